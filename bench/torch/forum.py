# SPDX-License-Identifier: MIT
"""Many batch sizes, as the forum's users capture them: what memory they take, and how long it takes.

mlp: one small net, sizes from 512 down to 1, each captured as it comes, into one pool.
pinned: a ** 2 + b * 2 of inputs in pinned host memory, which is copied to the device inside the
callable; and of the copied inputs, the way of a call that gets new tensors.
"""

import functools
import time

import common
import sides as ways

MEMORY_SIDES = ["graph", "graph-reuse", "graph-expandable", "graph-reuse-expandable", "reprise",
                "reprise-install", "reprise-install-one-exec"]
SIDES = {"mlp": MEMORY_SIDES,
         "pinned": [s for s in MEMORY_SIDES if s not in ("graph-reuse", "graph-expandable")]}
FRESH = True
IMPORTS = ()
COLUMNS = (("after_1.device_mib", "device MiB after 1", 1),
           ("after_128.device_mib", "after 128", 1), ("after_512.device_mib", "after 512", 1),
           ("after_128.seconds", "s for 128", 3), ("after_512.seconds", "s for 512", 3),
           ("pool_mib", "pool MiB", 2), ("bound_mib", "bound", 2), ("wall_us", "call us", 1))
LIMITS = {"pool_mib": "bound_mib"}

MOST = 512
MARKS = (1, 128, 512)
CHECKED = (1, 7, 64, 128, 333, 512)


def prepare(torch, side, workload):
    with torch.no_grad():
        return {"mlp": mlp, "pinned": pinned}[workload](torch, side), None


# ---- One function at many sizes -------------------------------------------------------------


class Shapes:
    """A function made ready at many sizes, the way of a side. make(size) gives its arguments;
    PyTorch's graphs get slices of one set of static inputs, made for the largest."""

    def __init__(self, torch, side, fn, make):
        self.torch = torch
        self.fn = fn
        self.make = make
        self.kept = {}
        self.graphed = None
        if side.is_ours:
            import reprise
            self.graphed = reprise.graphed(fn, strict=True)
        else:
            self.static = make(MOST)
            self.pool = torch.cuda.graph_pool_handle()

    def ready(self, size):
        """Captures a size; the result of its first replay."""
        given = self.make(size)
        if self.graphed is not None:
            if not self.kept:
                self.graphed(*given)  # the warm-up that runs eagerly
            self.kept[size] = True
        else:
            inputs = [x[:size] if isinstance(x, self.torch.Tensor) else size for x in self.static]
            self.kept[size] = (*common.capture(self.torch, functools.partial(self.fn, *inputs),
                                               self.pool), inputs)
        return self.call(size, given)

    def call(self, size, given):
        if self.graphed is not None:
            return self.graphed(*given)
        graph, out, inputs = self.kept[size]
        for to, of in zip(inputs, given):
            if isinstance(to, self.torch.Tensor):
                to.copy_(of, non_blocking=True)
        graph.replay()
        return out.clone()

    def facts(self):
        if self.graphed is not None:
            return ways.pool_of_graphed(self.graphed)
        return {"pool_mib": common.mib(ways.pool_bytes(self.torch, self.pool)),
                "graphs": len(self.kept)}


def all_sizes(torch, shapes):
    """Captures sizes from the largest down: at marks, the memory that the device lost and the time
    until there, without that for looking."""
    result, spent = {}, 0.0
    before = common.free_bytes(torch)
    start = time.perf_counter()
    for done, size in enumerate(range(MOST, 0, -1), 1):
        shapes.ready(size)
        if done in MARKS:
            torch.cuda.synchronize()
            spent += time.perf_counter() - start
            taken = before - common.free_bytes(torch)
            result[f"after_{done}"] = {"device_mib": common.mib(taken),
                                       "seconds": round(spent, 4)}
            start = time.perf_counter()
    return result


def checked(torch, shapes, fn):
    """Whether what is replayed is what runs eagerly, at some sizes and with other inputs."""
    given = {size: shapes.make(size) for size in CHECKED}
    got = [shapes.call(size, args) for size, args in given.items()]
    return common.compared(torch, got, [fn(*args) for args in given.values()])


def finish(torch, side, shapes, fn, result):
    """What there is to tell once all sizes are captured."""
    result.update(shapes.facts())
    if side.is_ours:
        result["exec_budget_mib"] = side.budget_mib
        result.update(ways.estimated(fn, [shapes.make(size) for size in range(MOST, 0, -1)]))
    result.update(checked(torch, shapes, fn))
    given = common.turns([shapes.make(MOST) for _ in range(8)])
    result.update(common.timed(torch, lambda: shapes.call(MOST, given()), 300))
    return result


# ---- The workloads --------------------------------------------------------------------------


def mlp(torch, side):
    import workloads
    torch.manual_seed(0)
    net, make = workloads.forum_mlp()

    def make_args(size):
        return (make(size),)
    for _ in range(3):
        net(make(MOST))
    shapes = Shapes(torch, side, net, make_args)
    return finish(torch, side, shapes, net, all_sizes(torch, shapes))


WIDTH = 4096


def pinned(torch, side):
    """Inside the callable: it copies from pinned memory that stays where it is, and is told the
    size. The host memory is filled anew before a call."""
    torch.manual_seed(0)
    host = [torch.randn(MOST, WIDTH).pin_memory() for _ in range(2)]

    def work(size):
        a, b = (x[:size].to("cuda", non_blocking=True) for x in host)
        return a ** 2 + b * 2

    def make_args(size):
        return (size,)
    work(MOST)
    shapes = Shapes(torch, side, work, make_args)
    result = finish(torch, side, shapes, work, all_sizes(torch, shapes))
    result["outside"] = copied_outside(torch, side)
    return result


def copied_outside(torch, side):
    """The inputs are new in pinned memory at each call, and copied before it."""
    hosts = [[torch.randn(MOST, WIDTH).pin_memory() for _ in range(2)] for _ in range(4)]

    def work(a, b):
        return a ** 2 + b * 2

    shapes = Shapes(torch, side, work, lambda size: [torch.empty(size, WIDTH, device="cuda")
                                                     for _ in range(2)])
    shapes.ready(MOST)
    following = common.turns(hosts)

    def call():
        given = following()
        if side.is_ours:
            given = [x.to("cuda", non_blocking=True) for x in given]
        return shapes.call(MOST, given)

    facts = common.compared(torch, [call()], [work(*(x.to("cuda") for x in hosts[1]))])
    return {**facts, **common.timed(torch, call, 200)}
