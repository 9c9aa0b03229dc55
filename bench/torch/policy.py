# SPDX-License-Identifier: MIT
"""policy="auto" beside eager calls and calls by a graph: runs of many calls, one behind the other.

Each side makes its calls in short turns, as many in each as the pace of the one before lets expect
to take its share of SECONDS. "auto" starts cold in its first turn, so that captures and what
measuring costs are in its times; the graph of "reprise-install" is captured before, and what
compiles has compiled before. bench_policy.py runs this and judges.
"""

import time

import torch

import common
import workloads

CALLS = 20000   # of a run, over all turns
SECONDS = 1.3   # that a run may take
TURNS = 8
MOST_ROUNDS = 1
FRESH = False
TOGETHER = True
IMPORTS = ("transformers:BertModel", "timm")
COLUMNS = (("us", "us a call", 2), ("ready_s", "ready s", 3))
LIMITS = {}

PLAIN = ["eager", "reprise-install", "reprise-install-auto"]
COMPILED = ["compiled", "reduce-overhead", "reprise-install-auto-compiled"]


class Work:
    """fn(*args) for each of `inputs` in turn. options: of reprise.graphed, for all of ours."""

    def __init__(self, fn, inputs, **options):
        self.fn = fn
        self.inputs = inputs
        self.options = options


def small_mlp():
    return Work(*workloads.small_mlp())


def one_kernel():
    """Nothing to gain: one launch either way."""
    return Work(torch.relu, [(workloads.randn(64, 64),) for _ in range(8)])


def large_matmul():
    with workloads.on_device():
        net = torch.nn.Linear(8192, 8192, bias=False).bfloat16()
    return Work(net, [(workloads.randn(4096, 8192).bfloat16(),) for _ in range(4)])


def huge_pairs():
    return [(workloads.randn(1 << 26), workloads.randn(1 << 26)) for _ in range(4)]


def huge_elements():
    """The device's memory is all that counts."""
    return Work(lambda x, y: x * 2 + y, huge_pairs())


def huge_copies():
    """The same where arguments have to lie where they were captured: the graph loses."""
    return Work(lambda x, y: x * 2 + y, huge_pairs(), copy_args=True)


def many_arguments():
    """200 tensors in three launches: telling a graph where they are takes longer."""
    def fn(*tensors):
        return torch._foreach_add(tensors, 1.0)
    return Work(fn, [tuple(workloads.randn(4096) for _ in range(200)) for _ in range(2)])


def training_step():
    net, batch, loss_of = workloads.train_mlp()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, capturable=True)

    def step(x, y):
        with torch.enable_grad():
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(net(x), y)
            loss.backward()
            optimizer.step()
        return loss.detach()
    return Work(step, [batch() for _ in range(8)], grad="whole")


def traced(name):
    """A workload that profiler traces were made of: a step without arguments."""
    def make():
        import make_traces
        with workloads.on_device():
            work = getattr(make_traces, name)()
        return Work(work.step, [()])
    return make


def model(name):
    return lambda: Work(*workloads.INFERENCE[name]())


# Where time runs out it is the last ones that are not measured.
WORKLOADS = {
    "small_mlp": small_mlp, "one_kernel": one_kernel, "huge_copies": huge_copies,
    "many_arguments": many_arguments, "bert": model("bert"), "lstm_loop": traced("lstm_loop"),
    "training_step": training_step, "large_matmul": large_matmul, "huge_elements": huge_elements,
    "vit_small": model("vit"), "decoder_step": traced("decoder_step"),
    "routed_experts": traced("routed_experts"), "resnet50": traced("resnet50_infer"),
    "matmul_chain": traced("matmul_chain"), "vit_large": traced("vit_large_infer"),
}
SIDES = {name: PLAIN for name in WORKLOADS}
COMPILING = {"small_mlp compiled": small_mlp, "bert compiled": model("bert"),
             "huge_elements compiled": huge_elements, "vit_small compiled": model("vit")}
SIDES.update({name: COMPILED for name in COMPILING})


def side_of(side, work):
    """The function as it is without a graph of ours, and as the side calls it."""
    fn = work.fn
    if side.compiled:
        mode = "reduce-overhead" if side.name == "reduce-overhead" else None
        fn = torch.compile(fn, dynamic=False, mode=mode)
    if not side.is_ours:
        return fn, fn
    import reprise
    policy = "auto" if "auto" in side.name else "always"
    return fn, reprise.graphed(fn, policy=policy, **work.options)


def prepare(_, side, workload):
    torch.manual_seed(0)
    work = {**WORKLOADS, **COMPILING}[workload]()
    if isinstance(work.fn, torch.nn.Module):
        work.fn.requires_grad_(False)
    start = time.perf_counter()
    plain, call = side_of(side, work)
    before = plain if "auto" in side.name else call  # "auto" is to begin cold
    following = common.turns(work.inputs)
    with torch.no_grad():
        for _ in range(8):
            before(*following())
        torch.cuda.synchronize()
        facts = {"ready_s": round(time.perf_counter() - start, 4)}
        each = time_of(lambda: before(*following()))

    def measure():
        nonlocal each
        count = max(2, int(min(CALLS, SECONDS / each) / TURNS))
        with torch.no_grad(), common.no_collection():
            told = turn(call, following, count)
        each = told["seconds"] / count
        return told
    return facts, measure


def time_of(call):
    """Seconds of a call in a row, roughly."""
    start, count = time.perf_counter(), 0
    while count < 10 or time.perf_counter() - start < 0.05:
        for _ in range(5):
            call()
        torch.cuda.synchronize()
        count += 5
    return (time.perf_counter() - start) / count


def turn(call, following, count):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call(*following())
    torch.cuda.synchronize()
    took = time.perf_counter() - start
    facts = {"calls": count, "seconds": took, "us": round(took / count * 1e6, 3)}
    if hasattr(call, "choices"):
        facts.update(choices=call.choices(), graphs=len(call.shapes()))
    return facts
