# SPDX-License-Identifier: MIT
"""policy="auto" beside eager calls and calls by a graph, or beside what torch.compile makes.

All sides of a workload are called in one process, in short turns one behind the other, as many calls
in each as take their share of SECONDS: so that a machine whose pace changes changes it for all. The
order goes round. Nothing is installed: reduce-overhead needs PyTorch's allocator. What compiles has
compiled before; "auto" starts cold in its first turn, before "graph", so that captures, what a
process pays for its first one, and what measuring costs are in its times. The first two calls of
"graph", an eager one and the capture, are told by themselves. bench_policy.py runs this and judges.
"""

import gc
import math
import time

import torch

import common
import workloads

CALLS = 20000   # of a run, over all turns
SECONDS = 2.5   # that a side's run may take
TURNS = 24
MOST_ROUNDS = 1
FRESH = False
AHEAD = 5
IMPORTS = ("transformers:BertModel", "timm", "torchvision")
COLUMNS = (("auto.us", "us a call", 2),)
LIMITS = {}

PLAIN = ("eager", "graph", "auto")
COMPILED = ("compiled", "reduce-overhead", "auto")
GRAPHED = ("graph", "auto")


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
    "vit_small": model("vit"), "vit_large": traced("vit_large_infer"),
    "decoder_step": traced("decoder_step"), "routed_experts": traced("routed_experts"),
    "resnet50": traced("resnet50_infer"), "matmul_chain": traced("matmul_chain"),
}
SIDES = {name: ["interleaved"] for name in WORKLOADS}
COMPILING = {f"{name} compiled": WORKLOADS[name] for name in (
    "small_mlp", "huge_elements", "large_matmul", "decoder_step", "bert", "vit_small")}
SIDES.update({name: ["interleaved-compiled"] for name in COMPILING})


def function_of(name, fn, compiled, options):
    """The workload's function as one of the sides calls it; compiled: by torch.compile, or None."""
    if name in ("eager", "compiled"):
        return fn if compiled is None else compiled
    if name == "reduce-overhead":
        return torch.compile(fn, dynamic=False, mode=name)
    import reprise
    policy = {"graph": "always", "auto": "auto"}[name]
    return reprise.graphed(fn if compiled is None else compiled, policy=policy, **options)


def functions_of(workload, is_compiled):
    """Of each side its name, what it calls, that without a graph of ours, and the arguments. A step
    that changes its parameters has some for each side."""
    make = {**WORKLOADS, **COMPILING}[workload]
    work, functions = make(), {}
    for name in COMPILED if is_compiled else PLAIN:
        if functions and work.options.get("grad"):
            torch.manual_seed(0)
            work = make()
        if isinstance(work.fn, torch.nn.Module):
            work.fn.requires_grad_(False)
        if not functions:
            compiled = torch.compile(work.fn, dynamic=False) if is_compiled else None
        functions[name] = function_of(name, work.fn, compiled, work.options)
        plain = functions[name]
        if name in GRAPHED:
            plain = work.fn if compiled is None else compiled
        yield name, functions[name], plain, work.inputs


class Side:
    """One way to call the workload: its pace, and the turns that it took."""

    def __init__(self, name, call, plain, inputs):
        self.name = name
        self.call = call
        self.plain = plain
        self.following = common.turns(inputs)
        self.done = 0
        self.told = None   # what "auto" chose when it was last told
        self.each = None   # seconds of a call, in the turn before
        self.error = None

    def warm_up(self):
        """What is cold in none of the runs: lazy state of PyTorch, what compiles."""
        for _ in range(8):
            self.plain(*self.following())
        torch.cuda.synchronize()

    def cold(self):
        """The first two calls of a graph."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(2):
            self.call(*self.following())
        torch.cuda.synchronize()
        return {"calls": 2, "seconds": time.perf_counter() - start}

    def turn(self):
        share = min(CALLS, SECONDS / self.each) / TURNS
        count = min(max(2, math.ceil(share)), CALLS - self.done)
        if count <= 0:
            return None
        call, following = self.call, self.following
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            call(*following())
        torch.cuda.synchronize()
        took = time.perf_counter() - start
        self.done += count
        self.each = min(took / count, 4 * self.each)  # a capture is no pace
        facts = {"calls": count, "seconds": took, "us": round(took / count * 1e6, 3)}
        if self.name == "auto":
            self.tell(facts)
        return facts

    def tell(self, facts):
        """What was chosen, where that changed."""
        choices = self.call.choices()
        chosen = [(c["choice"], c["reason"], c.get("switches")) for c in choices]
        if chosen != self.told or self.done >= CALLS:
            facts["choices"] = choices
        self.told = chosen

    def last(self):
        """What is known of "auto" in the end."""
        times = ("nodes", "rehearse_ms", "plan_ms", "record_ms", "instantiate_ms")
        return {"choices": self.call.choices(),
                "shapes": [{k: s[k] for k in times} for s in self.call.shapes()]}


def guarded(side, work):
    """What it tells; an error, once, where it raises one."""
    if side.error:
        return None
    try:
        return work()
    except Exception as error:  # the other sides go on
        text = str(error).strip().splitlines()
        side.error = f"{type(error).__name__}: {text[0] if text else ''}"
        return {"error": side.error}


def prepare(_, side, workload):
    torch.manual_seed(0)
    start = time.perf_counter()
    with torch.no_grad():
        sides = [Side(*made) for made in functions_of(workload, side.compiled)]
        sides[0].warm_up()
        for made in sides[1:]:
            guarded(made, made.warm_up)
    facts = {"ready_s": round(time.perf_counter() - start, 4)}
    gc.collect()
    gc.disable()  # for good: nothing else is done in this process
    number = 0

    def measure():
        nonlocal number
        told = {}
        with torch.no_grad():
            if number == 0:
                begin(sides, told)
            for i in range(len(sides)):
                made = sides[(number + i) % len(sides)]
                turn = None if "seconds" in told.get(made.name, {}) else guarded(made, made.turn)
                if turn:
                    told.setdefault(made.name, {}).update(turn)
        number += 1
        if number == TURNS:
            told["auto"] = {**told.get("auto", {}), **(guarded(sides[-1], sides[-1].last) or {})}
        return told
    return facts, measure


def begin(sides, told):
    """Paces, the first turn of "auto", and then the capture of "graph"."""
    each = time_of(sides[0].call, sides[0].following)
    for made in sorted(sides, key=lambda made: made.name == "graph"):
        made.each = each
        if made.error:
            told[made.name] = {"error": made.error}
        elif made.name == "auto":
            told["auto"] = guarded(made, made.turn)
        elif made.name == "graph":
            cold = guarded(made, made.cold)
            told["graph"] = cold if made.error else {"cold": cold}
        if made.name in ("graph", "reduce-overhead") and not made.error:
            made.each = time_of(made.call, made.following)


def time_of(call, following):
    """Seconds of a call in a row, roughly."""
    start, count = time.perf_counter(), 0
    while count < 10 or time.perf_counter() - start < 0.05:
        for _ in range(5):
            call(*following())
        torch.cuda.synchronize()
        count += 5
    return (time.perf_counter() - start) / count
