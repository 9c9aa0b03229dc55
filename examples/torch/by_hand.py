# SPDX-License-Identifier: MIT
"""Captures by hand: reprise.graph in the place of torch.cuda.graph; the program replays, copies and clones.

Under install() the memory of captures is planned, here that of three batch sizes over each other in one pool.

Run:      python examples/torch/by_hand.py
Expected: 3 graphs in one pool, 12 replays by hand, to the bit as eager
"""

import sys

import torch

import reprise

reprise.install()

SIZES, WIDTH = (64, 16, 4), 256


def main():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(),
                              torch.nn.Linear(4 * WIDTH, WIDTH)).cuda().eval()
    pool = reprise.Pool("alternatives", name="by hand")  # graphs that never run at once
    graphs = {}
    with torch.inference_mode():
        for size in SIZES:
            static_input = torch.zeros(size, WIDTH, device="cuda")
            net(static_input)  # what PyTorch wants ahead of a capture
            graph = torch.cuda.CUDAGraph()
            with reprise.graph(graph, pool=pool):
                static_output = net(static_input)
            graphs[size] = graph, static_input, static_output

        wrong = 0
        for turn in range(4):
            for size, (graph, static_input, static_output) in graphs.items():
                batch = torch.randn(size, WIDTH, device="cuda")
                static_input.copy_(batch)
                graph.replay()
                result = static_output.clone()  # the pool is the next replay's
                wrong += not torch.equal(result, net(batch))

    print(reprise.report())
    info = pool.info()
    if wrong or info["graphs"] != len(SIZES):
        sys.exit(f"not as expected: {wrong} replays differ from eager, {info['graphs']} graphs in the pool")
    print(f"{len(graphs)} graphs in one pool, {4 * len(graphs)} replays by hand, to the bit as eager")


if __name__ == "__main__":
    main()
