#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the place of their data does to small kernels.

usage: places.py

Graphs of 200 kernels of one block, captured and replayed by PyTorch, each of which adds to the same
1 KiB: at 128 places, 4 KiB apart, of one piece of memory. Prints JSON: nanoseconds of the device for a
kernel, by place, and a histogram of them.
"""

import collections
import json
import sys

import torch

KERNELS, PLACES, STEP, FLOATS = 200, 128, 4096, 256
ROUNDS, REPLAYS = 5, 4


def ns_at(x, events):
    """The least of some rounds, of several replays in a row each, behind work that keeps the device
    until all is enqueued."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(KERNELS):
            x.add_(1)
    least = float("inf")
    for _ in range(ROUNDS):
        graph.replay()
        torch.cuda._sleep(200_000)
        events[0].record()
        for _ in range(REPLAYS):
            graph.replay()
        events[1].record()
        torch.cuda.synchronize()
        least = min(least, events[0].elapsed_time(events[1]) * 1e6 / REPLAYS / KERNELS)
    return round(least)


def main():
    if sys.argv[1:]:
        print(__doc__)
        return 2
    memory = torch.zeros(PLACES * STEP // 4, device="cuda")
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    memory[:FLOATS].add_(1)
    torch.cuda.synchronize()
    ns = [ns_at(memory[i * STEP // 4:][:FLOATS], events) for i in range(PLACES)]
    histogram = collections.Counter(n // 10 * 10 for n in ns)
    json.dump({"kernels": KERNELS, "bytes": FLOATS * 4, "apart": STEP, "least_ns": min(ns),
               "most_ns": max(ns), "ns": ns, "histogram": dict(sorted(histogram.items()))},
              sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
