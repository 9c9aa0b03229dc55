# SPDX-License-Identifier: MIT
"""What all comparisons with PyTorch measure with. Nothing here needs reprise."""

import contextlib
import gc
import statistics
import time

MIB = 2 ** 20


# ---- Time -----------------------------------------------------------------------------------


@contextlib.contextmanager
def no_collection():
    """Keeps Python's garbage collector out of what is timed."""
    collects = gc.isenabled()
    if collects:
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def timed(torch, call, count, warmup=10):
    """Medians in microseconds over calls that the device is idle before: host time, and until the
    device is done; with what a tenth of the calls were below and above."""
    for _ in range(warmup):
        call()
    torch.cuda.synchronize()
    host, wall = [], []
    with no_collection():
        for _ in range(count):
            start = time.perf_counter()
            call()
            middle = time.perf_counter()
            torch.cuda.synchronize()
            host.append((middle - start) * 1e6)
            wall.append((time.perf_counter() - start) * 1e6)
    return {"host_us": round(statistics.median(host), 2),
            "wall_us": round(statistics.median(wall), 2),
            "host_tenths_us": tenths(host), "wall_tenths_us": tenths(wall)}


def back_to_back(torch, call, count, warmup=10):
    """Microseconds a call when nobody waits in between: what the device or the host can take."""
    for _ in range(warmup):
        call()
    torch.cuda.synchronize()
    with no_collection():
        start = time.perf_counter()
        for _ in range(count):
            call()
        torch.cuda.synchronize()
        return {"throughput_us": round((time.perf_counter() - start) / count * 1e6, 2)}


def timed_for(torch, call, seconds, most=400, least=20):
    """As timed and back_to_back, with as many calls as take about so many seconds each."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    count = int(min(most, max(least, seconds / (time.perf_counter() - start))))
    return {**timed(torch, call, count), **back_to_back(torch, call, count), "calls": count}


def call_for(torch, call, inputs, seconds):
    """Calls with each of the inputs in turn for so long."""
    following = turns(inputs)
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        call(*following())
        torch.cuda.synchronize()


def tenths(values):
    """What a tenth of the values are below, and what a tenth are above."""
    if len(values) < 2:
        return [round(v, 2) for v in values * 2]
    cuts = statistics.quantiles(values, n=10)
    return [round(cuts[0], 2), round(cuts[-1], 2)]


def turns(inputs):
    """A function that gives each of the inputs in turn."""
    at = [0]

    def following():
        at[0] = (at[0] + 1) % len(inputs)
        return inputs[at[0]]
    return following


# ---- PyTorch's own graphs -------------------------------------------------------------------


def capture(torch, fn, pool=None, warmup=3, beside=True):
    """A graph of fn as PyTorch's documentation makes it, warm-up on a stream beside included, or else
    on the current one; the graph and its result. All use one such stream: cuBLAS keeps a workspace
    for each."""
    side = torch.cuda.graph.default_capture_stream
    if side is None:
        side = torch.cuda.graph.default_capture_stream = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side if beside else torch.cuda.current_stream()):
        for _ in range(warmup):
            fn()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        out = fn()
    return graph, out


def with_copies(torch, fn, args, pool=None):
    """A graph of fn as a function of any tensors: they are copied in and the result is cloned out.
    The function, and the graph."""
    static = [x.clone() for x in args]
    graph, out = capture(torch, lambda: fn(*static), pool)

    def call(*given):
        for to, of in zip(static, given):
            to.copy_(of)
        graph.replay()
        return out.clone()
    return call, graph


# ---- Memory and results ---------------------------------------------------------------------


def free_bytes(torch):
    """What the device has free when all work is done and PyTorch has given back what it can."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def mib(size):
    return round(size / MIB, 3)


def compared(torch, got, want):
    """Whether lists of tensors are equal to the bit, and by how much they differ where not."""
    same = all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    far = 0.0 if same else max((a.double() - b.double()).abs().max().item()
                               for a, b in zip(got, want))
    return {"equal": same, "max_difference": far}


# ---- Many rounds ----------------------------------------------------------------------------


def is_figure(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def median(values):
    """Of figures their median; of nested results one of medians; True only where all are; of the
    rest the first."""
    first = values[0]
    if isinstance(first, dict):
        keys = dict.fromkeys(k for v in values for k in v)
        return {k: median([v[k] for v in values if k in v]) for k in keys}
    if isinstance(first, bool):
        return all(values)
    if is_figure(first):
        return statistics.median(values) if len(set(values)) > 1 else first
    return first


def spread(values):
    """Of figures that differ from round to round, the least and the most."""
    first = values[0]
    if isinstance(first, dict):
        keys = dict.fromkeys(k for v in values for k in v)
        found = {k: spread([v[k] for v in values if k in v]) for k in keys}
        return {k: v for k, v in found.items() if v}
    if is_figure(first) and len(set(values)) > 1:
        return [min(values), max(values)]
    return None
