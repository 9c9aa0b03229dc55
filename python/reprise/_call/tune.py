# SPDX-License-Identifier: MIT
"""Where the memory of a graph lies, chosen by the clock.

Each 4 KiB belong to a part of the GPU's cache, by a hash of their address, and a multiprocessor waits
longer for the part that is farther away. Layouts are moved as a whole, a few times 4 KiB, which deals
near and far anew to all blocks at once.
"""

STEP = 4096
PASSES, ROUNDS, CALLS = 2, 3, 8


def other_leads(lead, places):
    """Where a layout that begins at `lead` is to be tried besides, at so many places with that one."""
    return [other for other in range(0, places * STEP, STEP) if other != lead][:places - 1]


def least_us(torch, shapes, tensors):
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
