# SPDX-License-Identifier: MIT
"""Where the memory of a graph lies, chosen by the clock.

Each 4 KiB belong to a part of the GPU's cache, by a hash of their address, and a multiprocessor waits
longer for the part that is farther away. Layouts are moved as a whole, a few times 4 KiB, which deals
near and far anew to all blocks at once.
"""

from . import _C
from ._graphed import capture_one
from ._shape import Shape

STEP = 4096
PASSES, ROUNDS, CALLS = 2, 3, 8


def tune(graphed, args, kwargs, places):
    """As Graphed.tune."""
    if places < 1:
        raise ValueError(f"places is {places}, but one has to be tried at least")
    torch = graphed._torch
    with graphed._lock:
        first, key, call = capture_one(graphed, args, kwargs)
        if not isinstance(first, Shape):
            raise _C.Error(f"forward and backward of '{graphed.name}' are two graphs for these arguments, "
                           "and only a graph by itself is tuned: call it without gradients")
        before = first.lead
        others = [lead for lead in range(0, places * STEP, STEP) if lead != before][:places - 1]
        try:
            tried = [first] + [_captured(graphed, key, call, lead) for lead in others]
            with torch.cuda.device(first.device):
                us = _times(torch, tried, call[1])
            chosen = tried[us.index(min(us))]
            before = chosen.lead
        finally:
            graphed._leads[key[0]] = before
        graphed._drop(key)
        graphed._shapes[key] = chosen
    return {"us": {shape.lead: round(u, 3) for shape, u in zip(tried, us)}, "lead_bytes": chosen.lead}


def _captured(graphed, key, call, lead):
    graphed._leads[key[0]] = lead
    return graphed._capture(key, *call)


def _times(torch, shapes, tensors):
    """The least microseconds that a call of each took, in a row of calls, over some rounds in turns."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    least = [float("inf")] * len(shapes)
    for _ in range(PASSES):
        for i, shape in enumerate(shapes):
            shape.replay(tensors)  # whatever the first one takes more
            for _ in range(ROUNDS):
                least[i] = min(least[i], _row(shape, tensors, *events))
    return least


def _row(shape, tensors, start, end):
    start.record()
    for _ in range(CALLS):
        shape.replay(tensors)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1000 / CALLS
