# SPDX-License-Identifier: MIT
"""Training over two ranks: DistributedDataParallel, FSDP2, tensor parallel layers, a pipeline. Two processes, a GPU each
with NCCL between them where there are two, else the same GPU or the host driver with gloo; what needs NCCL is skipped
there. Results are eager's; --times prints times too, and --json FILE keeps them: a row for each kind of parallelism
whose results were eager's. Usage: gpu_two.py [--install] [--times] [--json FILE] ..., or as a rank:
gpu_two.py --rank RANK FOLDER NAME [--install] [--times]"""

import contextlib
import datetime
import faulthandler
import gc
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
import warnings

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

import torch
from torch import distributed
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import reprise
from reprise._layers import ranks
from training_steps import group_beside_captures

COMMAND = shlex.join(["tests/python/gpu_two.py", *sys.argv[1:]])
KEPT = sys.argv.pop(sys.argv.index("--json") + 1) if "--json" in sys.argv else None
INSTALL, TIMES = "--install" in sys.argv, "--times" in sys.argv or KEPT is not None
sys.argv = [argument for argument in sys.argv if argument not in ("--install", "--times", "--json")]
if INSTALL:
    reprise.install()

HOST = "/host/lib" in os.environ.get("LD_PRELOAD", "")
HAS_NCCL = not HOST and torch.cuda.device_count() > 1 and distributed.is_nccl_available()
NEEDS_NCCL = "needs two GPUs and NCCL: gloo's collectives are no part of a graph"
WIDTH, BATCH, STEPS, TIMED = (32, 8, 6, 2) if HOST else (256, 64, 12, 60)
ROUNDS = 5  # of times
TIMEOUT = 150  # of a rank, in seconds


class Skip(Exception):
    """A rank cannot do this here."""


# ---- What ranks do: each raises where something is not as it has to be ----------------------------


def built(layers=3, bias=True):
    torch.manual_seed(2)  # the same in both ranks
    return torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH, bias=bias), torch.nn.Tanh())
                                 for _ in range(layers)]).cuda()


def batches(rank, count, seed=100):
    """Of a rank its own."""
    torch.manual_seed(seed + rank)
    return [torch.randn(BATCH, WIDTH, device="cuda") for _ in range(count)]


def sample():
    return torch.randn(BATCH, WIDTH, device="cuda")


def same(got, want, what):
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        assert torch.equal(a, b), f"{what}: number {i} of {len(got)} is not eager's"


def timed(name, eager, ours):
    """Prints what a step takes both ways, in turns: the median of the rounds, and the least and the most. Called
    behind same(). Nothing is asserted of times."""
    if not TIMES:
        return
    found = {eager: [], ours: []}
    for _ in range(ROUNDS):
        for run, seen in found.items():
            run()
            torch.cuda.synchronize()
            distributed.barrier()
            start = time.perf_counter()
            for _ in range(TIMED):
                run()
            torch.cuda.synchronize()
            seen.append(round((time.perf_counter() - start) / TIMED * 1e6, 1))
    if distributed.get_rank() == 0:
        mid = {run: statistics.median(seen) for run, seen in found.items()}
        row = {"parallel": name, "install": INSTALL, "backend": distributed.get_backend(), "ranks": 2, "equal": True,
               "eager_us": mid[eager], "graph_us": mid[ours], "graph_of_eager": round(mid[ours] / mid[eager], 4),
               "eager_spread_us": [min(found[eager]), max(found[eager])],
               "graph_spread_us": [min(found[ours]), max(found[ours])]}
        print(f"time {json.dumps(row)}", flush=True)


def train(net, data, accumulates=1, begin=contextlib.nullcontext):
    """Losses and parameters; each step has several microbatches, of which the last one is reduced."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    seen = []
    with begin():
        for i in range(0, len(data), accumulates):
            optimizer.zero_grad()
            for m, x in enumerate(data[i:i + accumulates]):
                is_last = m == accumulates - 1
                with contextlib.nullcontext() if is_last else net.no_sync():
                    loss = net(x).square().mean()
                    loss.backward()
                seen.append(loss.detach())
            optimizer.step()
    return [*seen, *(p.detach().clone() for p in net.parameters())]


def wrapped(net, **options):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # so that whole steps can be captured
        made = DistributedDataParallel(net, device_ids=[torch.cuda.current_device()], **options)
    torch.cuda.current_stream().wait_stream(side)
    return made


def ddp_around(rank):
    """Callables, and a module that is graphed in place, in a DistributedDataParallel."""
    for make in (lambda net: reprise.make_graphed_callables(net, (sample(),)), reprise.graphed):
        for options in ({}, {"gradient_as_bucket_view": True}, {"bucket_cap_mb": 0.01}):
            nets = wrapped(make(built()), **options), wrapped(built(), **options)
            same(*(train(net, batches(rank, STEPS)) for net in nets), options)
            step = [lambda net=net, x=sample(): net(x).square().mean().backward() for net in nets]
        form = "graphed" if make is reprise.graphed else "make_graphed_callables"
        timed(f"DDP around {form}", step[1], step[0])


def ddp_around_layers(rank):
    """capture_layers within a DistributedDataParallel, whose ranks ask one another."""
    nets = wrapped(built()), wrapped(built())
    graphs = reprise.capture_layers(nets[0].module, list(nets[0].module), ranks=True, strict=True)
    same(*(train(net, batches(rank, STEPS)) for net in nets), "layers")
    assert {f["way"] for f in graphs.layers()} == {"graph"}, graphs.layers()


def no_sync(rank):
    """Gradients of two microbatches are added up before they are reduced."""
    nets = wrapped(reprise.make_graphed_callables(built(), (sample(),))), wrapped(built())
    same(*(train(net, batches(rank, 2 * STEPS), accumulates=2) for net in nets), "no_sync")


class Heads(torch.nn.Module):
    """Which parameters take part hangs on the call."""

    def __init__(self):
        super().__init__()
        self.trunk = built(1)
        self.heads = torch.nn.ModuleList(built(1) for _ in range(2))
        self.turn = 0

    def forward(self, x):
        self.turn += 1
        return self.heads[self.turn // 2 % 2](self.trunk(x))


def unused(rank):
    """find_unused_parameters: parts of the model are graphs."""
    nets = []
    for graphs in (True, False):
        net = Heads().cuda()
        if graphs:
            net.trunk = reprise.make_graphed_callables(net.trunk, (sample(),))
            for i, head in enumerate(net.heads):
                net.heads[i] = reprise.make_graphed_callables(head, (sample().requires_grad_(),))
        nets.append(wrapped(net, find_unused_parameters=True))
    same(*(train(net, batches(rank, 2 * STEPS)) for net in nets), "unused parameters")


def join(rank):
    """Ranks have other numbers of batches."""
    nets = wrapped(reprise.make_graphed_callables(built(), (sample(),))), wrapped(built())
    count = STEPS + 2 * rank
    same(*(train(net, batches(rank, count), begin=net.join) for net in nets), "join")


def ddp_within(rank):
    """The whole step over a DistributedDataParallel as one graph; over gloo it is refused by name."""
    nets = wrapped(built()), wrapped(built())
    steps = []
    for net in nets:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

        def step(x, net=net, optimizer=optimizer):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()
        steps.append(step)
    made = reprise.graphed(steps[0], strict=HAS_NCCL, warmup=11)
    data = batches(rank, 11 + STEPS)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        same([made(x) for x in data], [steps[1](x) for x in data], "losses")
    same(nets[0].parameters(), nets[1].parameters(), "parameters")
    if not HAS_NCCL:
        assert any("over the backend 'gloo'" in str(w.message) for w in said), [str(w.message) for w in said]
        raise Skip(NEEDS_NCCL)
    assert [f["calls"] for f in made.shapes()] == [STEPS], made.shapes()
    x = sample()
    timed("DDP within a whole step", lambda: steps[1](x), lambda: made(x))


# ---- FSDP2 ----


def mesh():
    from torch.distributed.device_mesh import init_device_mesh
    return init_device_mesh("cuda", (2,))


def sharded(net, layers):
    from torch.distributed.fsdp import fully_shard
    where = mesh()
    for layer in layers:
        fully_shard(layer, mesh=where)
    return fully_shard(net, mesh=where)


def own(params):
    """What this rank has of them."""
    return [p.to_local().detach().clone() for p in params]


def fsdp_is_refused(rank):
    """In each form, with what to do; calls are eager, and as they have to be."""
    said = "is sharded by fully_shard.*as arguments"

    def trained(form):
        net = built()
        net = sharded(net, list(net))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        call = net
        if form == "module":
            call = reprise.graphed(net)
        elif form == "parts":
            call = reprise.graphed(net, parts=True)
        elif form in ("layers", "inner layers"):
            graphs = reprise.capture_layers(net, list(net) if form == "layers" else torch.nn.Linear)

        def step(x):
            optimizer.zero_grad()
            loss = call(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()
        if form == "whole step":
            step = reprise.graphed(step)
        seen = [*[step(x) for x in batches(rank, STEPS)], *own(net.parameters())]
        if form in ("layers", "inner layers"):
            assert not any(f["graphs"] for f in graphs.layers()), graphs.layers()
        if form == "layers":
            unittest.TestCase().assertRegex(graphs.layers()[0]["reason"], said)
        return seen
    want = trained(None)
    for form in ("module", "layers", "inner layers", "parts", "whole step"):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            same(trained(form), want, form)
        texts = [str(w.message) for w in told if "reprise" in str(w.message)]
        if form in ("module", "whole step"):
            unittest.TestCase().assertRegex("\n".join(texts), said)
    net = built()
    net = sharded(net, list(net))
    for fn, args in ((net, (sample(),)), (net[0][0], (sample(),))):
        with unittest.TestCase().assertRaisesRegex(RuntimeError, said):
            reprise.make_graphed_callables(fn, args)
    with unittest.TestCase().assertRaisesRegex(RuntimeError, said):
        made = reprise.graphed(net, strict=True)
        for _ in range(3):
            made(sample())


class Block(torch.nn.Module):
    """What it computes is a function of its parameters."""

    def __init__(self, function):
        super().__init__()
        self.first, self.second = (torch.nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH ** 0.5) for _ in range(2))
        self.function = function

    def forward(self, x):
        return self.function(x, self.first, self.second)


def block(x, first, second):
    return x + functional.linear(functional.linear(x, first).tanh(), second)


def fsdp_by_layer(rank):
    """Graphs that take the gathered parameters as arguments."""
    results, steps, graphs = [], [], []
    for graphed in (True, False):
        torch.manual_seed(2)
        made = [reprise.graphed(block, strict=True) if graphed else block for _ in range(3)]
        net = torch.nn.Sequential(*map(Block, made)).cuda()
        net = sharded(net, list(net))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

        def step(x, net=net, optimizer=optimizer):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()
        results.append([*[step(x) for x in batches(rank, STEPS)], *own(net.parameters())])
        steps.append(step)
        graphs += made if graphed else []
    same(*results, "by layer")
    calls = [[f["calls"] for f in one.shapes()] for one in graphs]
    assert all(c and min(c) >= STEPS - 4 for c in calls), calls
    x = sample()
    timed("FSDP2 by layer", lambda: steps[1](x), lambda: steps[0](x))


# ---- Tensor parallel layers ----


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(WIDTH, 2 * WIDTH)
        self.down = torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(self.up(x).tanh())


class _Copied(torch.autograd.Function):
    """The same on all ranks, whose gradients are added up."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        distributed.all_reduce(grad)
        return grad


class _Added(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        distributed.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


def part_of_mlp(x, up, down):
    return functional.linear(functional.linear(x, up).tanh(), down)


def mlp_with_collectives(x, up, down):
    return x + _Added.apply(part_of_mlp(_Copied.apply(x), up, down))


class Spread(torch.nn.Module):
    """By columns and by rows; function: what is given this rank's parts."""

    def __init__(self, function, is_whole):
        from torch.distributed.tensor import DTensor, Shard
        super().__init__()
        rank, where = distributed.get_rank(), mesh()
        for name, dim, shape in (("up", 0, (2 * WIDTH, WIDTH)), ("down", 1, (WIDTH, 2 * WIDTH))):
            own_part = (torch.randn(shape, device="cuda") / WIDTH ** 0.5).chunk(2, dim)[rank].contiguous()
            spread = DTensor.from_local(own_part, where, [Shard(dim)], run_check=False)
            setattr(self, name, torch.nn.Parameter(spread))
        self.function, self.is_whole = function, is_whole

    def forward(self, x):
        up, down = self.up.to_local(), self.down.to_local()
        if self.is_whole:
            return self.function(x, up, down)
        return x + _Added.apply(self.function(_Copied.apply(x), up, down))


def tensor_parallel_by_layer(rank):
    """Graphs that take this rank's parts of the weights; over NCCL with the collectives in them too."""
    for is_whole in (False, True)[:1 + HAS_NCCL]:
        function = mlp_with_collectives if is_whole else part_of_mlp
        results, steps, graphs = [], [], []
        for graphed in (True, False):
            torch.manual_seed(2)
            functions = [reprise.graphed(function, strict=True) if graphed else function for _ in range(2)]
            net = torch.nn.Sequential(*[Spread(one, is_whole) for one in functions])
            params = list(net.parameters())

            def step(x, net=net, params=params):
                loss = net(x).square().mean()
                loss.backward()
                with torch.no_grad():
                    for param in params:
                        param.to_local().add_(param.grad.to_local(), alpha=-0.05)
                        param.grad = None
                return loss.detach()
            results.append([*[step(x) for x in batches(0, STEPS)], *own(params)])
            steps.append(step)
            graphs += functions if graphed else []
        same(*results, f"tensor parallel, {function.__name__}")
        calls = [[f["calls"] for f in one.shapes()] for one in graphs]
        assert all(c and min(c) >= STEPS - 4 for c in calls), calls
        x = sample()
        timed(f"tensor parallel by layer, {function.__name__}", lambda: steps[1](x), lambda: steps[0](x))


def tensor_parallel_is_refused(rank):
    """ColwiseParallel and RowwiseParallel of torch.distributed.tensor: in each form, with what to do."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    said = r"'Linear' are tensors of several ranks.*p\.to_local\(\)"
    net = torch.nn.Sequential(Mlp(), Mlp()).cuda()
    for mlp in net:
        parallelize_module(mlp, mesh(), {"up": ColwiseParallel(), "down": RowwiseParallel()})

    def step(x):
        loss = net(x).square().mean()
        loss.backward()
        return loss.detach()
    case = unittest.TestCase()
    for fn in (net, step):
        with case.assertRaisesRegex(RuntimeError, said):
            made = reprise.graphed(fn, strict=True)
            for _ in range(3):
                made(sample())
    with case.assertRaisesRegex(RuntimeError, said):
        reprise.make_graphed_callables(net, (sample(),))
    graphs = reprise.capture_layers(net, list(net))
    for _ in range(3):
        step(sample())
    case.assertRegex(graphs.layers()[0]["reason"], said)


# ---- A pipeline of two stages ----

# Of stage 0 and 1, with four microbatches: 1F1B.
ORDERS = ([1, 1, -1, 1, -1, 1, -1, -1], [1, -1, 1, -1, 1, -1, 1, -1])


def exchange(out, wants):
    """Sends a tensor to the other stage, or none, and receives one where it is wanted."""
    other, device = 1 - distributed.get_rank(), "cuda" if HAS_NCCL else "cpu"
    got = torch.empty(BATCH, WIDTH, device=device) if wants else None
    both = [] if out is None else [distributed.P2POp(distributed.isend, out.detach().to(device), other)]
    both += [distributed.P2POp(distributed.irecv, got, other)] if wants else []
    for work in distributed.batch_isend_irecv(both):
        work.wait()
    return got.cuda() if wants else None


def first_stage(stage, data):
    """A step in 1F1B, whose warm-up is one microbatch."""
    waiting = [stage(data[0])]
    exchange(waiting[0], False)
    for x in data[1:]:
        waiting.append(stage(x))
        waiting.pop(0).backward(exchange(waiting[-1], True))
    waiting.pop(0).backward(exchange(None, True))
    return []


def last_stage(stage, count):
    """Its losses."""
    losses, grad = [], None
    for _ in range(count):
        x = exchange(grad, True).requires_grad_()
        loss = stage(x).square().mean()
        loss.backward()
        losses.append(loss.detach())
        grad = x.grad
    exchange(grad, False)
    return losses


def pipeline(rank):
    """Each rank has a stage; graphs by make_graphed_callables with an order, and by capture_layers."""
    order = ORDERS[rank]

    def trained(form):
        torch.manual_seed(3 + rank)
        net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())
                                    for _ in range(2)]).cuda()
        stage = net
        if form == "order":
            stage = reprise.make_graphed_callables(net, (sample().requires_grad_(bool(rank)),), order=order)
        elif form == "layers":
            reprise.capture_layers(net, list(net), strict=True)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)

        def step(data):
            optimizer.zero_grad()
            losses = last_stage(stage, len(data)) if rank else first_stage(stage, data)
            optimizer.step()
            return losses
        seen = [loss for turn in range(STEPS) for loss in step(batches(0, 4, seed=turn))]
        return [*seen, *(p.detach().clone() for p in net.parameters())], step
    want, eager = trained(None)
    for form in ("order", "layers"):
        got, step = trained(form)
        same(got, want, form)
        timed(f"pipeline by {form}", lambda: eager(batches(0, 4)), lambda step=step: step(batches(0, 4)))


# ---- Ranks that decide differently ----


class Waits(torch.nn.Module):
    def __init__(self, waits):
        super().__init__()
        self.inner, self.waits = torch.nn.Linear(WIDTH, WIDTH), waits

    def forward(self, x):
        if self.waits:
            x.sum().item()
        return self.inner(x).tanh()


def differ(rank):
    """They are found before a collective waits for ever."""
    ranks.Ranks.__init__.__defaults__ = (20,)
    torch.manual_seed(2)
    net = torch.nn.Sequential(*[Waits(rank == 1) for _ in range(2)]).cuda()
    parallel = wrapped(net)
    reprise.capture_layers(net, list(net), ranks=True)
    with unittest.TestCase().assertRaisesRegex(RuntimeError, f"on rank {rank}, and .* on rank {1 - rank}"):
        for x in batches(rank, STEPS):
            parallel(x).square().mean().backward()


# ---- Processes -----------------------------------------------------------------------------------


def be_rank(rank, folder, name):
    faulthandler.dump_traceback_later(TIMEOUT - 10, exit=True)
    torch.cuda.set_device(rank % torch.cuda.device_count())
    backend = group_beside_captures(INSTALL) if HAS_NCCL else "gloo"
    distributed.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=2,
                                   timeout=datetime.timedelta(seconds=60))
    try:
        if HAS_NCCL:
            distributed.all_reduce(torch.ones(1, device="cuda"))
        globals()[name](rank)
        print("done")
    except Skip as why:
        print(f"skipped: {why}")
    except Exception:
        print(f"failed: {traceback.format_exc()[-3000:]}".replace("\n", "\n  "))
    sys.stdout.flush()
    os._exit(0)


ROWS = []  # of times


def keep(path, code):
    """The rows, with what is needed to judge them."""
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
    import record_result
    versions = {**record_result.versions(sys.argv[0]), "python": sys.version.split()[0], "torch": torch.__version__}
    record = {"date": datetime.date.today().isoformat(), "command": COMMAND, "exit": code,
              "machine": {**record_result.machine(), "gpus": torch.cuda.device_count()},
              "versions": versions, "steps": TIMED, "rounds": ROUNDS, "width": WIDTH, "batch": BATCH, "result": ROWS}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)
        file.write("\n")


class Two(unittest.TestCase):
    def run_ranks(self, name):
        with tempfile.TemporaryDirectory() as folder:
            options = [o for o, on in (("--install", INSTALL), ("--times", TIMES)) if on]
            started = [subprocess.Popen([sys.executable, "-W", "ignore", __file__, "--rank", str(rank), folder, name,
                                         *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                       for rank in range(2)]
            found = []
            try:
                for one in started:
                    out, said = one.communicate(timeout=TIMEOUT)
                    found.append((out.strip() or f"nothing was said: {said[-3000:]}"))
            finally:
                for one in started:
                    one.kill()
                    one.wait()
        gc.collect()
        for line in (line for out in found for line in out.splitlines()):
            if line.startswith("time "):
                ROWS.append(json.loads(line.removeprefix("time ")))
                print("  {parallel}: eager {eager_us:.0f} us a step, with graphs {graph_us:.0f}".format(**ROWS[-1]))
        ends = [out.splitlines() for out in found]
        for out in found:
            self.assertNotIn("failed: ", out, out)
        if all(end[-1].startswith("skipped: ") for end in ends):
            self.skipTest(ends[0][-1])
        self.assertEqual([end[-1] for end in ends], ["done", "done"], "\n".join(found))


for _work in (ddp_around, ddp_around_layers, no_sync, unused, join, ddp_within, fsdp_is_refused, fsdp_by_layer,
              tensor_parallel_is_refused, tensor_parallel_by_layer, pipeline, differ):
    setattr(Two, f"test_{_work.__name__}", lambda self, name=_work.__name__: self.run_ranks(name))


if __name__ == "__main__":
    if "--rank" in sys.argv:
        at = sys.argv.index("--rank")
        be_rank(int(sys.argv[at + 1]), *sys.argv[at + 2:at + 4])
    run = unittest.main(verbosity=2, exit=False)
    code = int(not run.result.wasSuccessful())
    if KEPT is not None:
        keep(KEPT, code)
    sys.exit(code)
