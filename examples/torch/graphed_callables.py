# SPDX-License-Identifier: MIT
"""make_graphed_callables: PyTorch's function, with planned memory, fresh results and the order of a pipeline.

Run:      python examples/torch/graphed_callables.py
Expected: net and pipeline stage: 8 steps each replayed by graphs, to the bit as eager
"""

import copy
import sys

import torch

import reprise

STEPS, WIDTH = 8, 64
ONE_F_ONE_B = [1, 1, -1, 1, -1, 1, -1, -1]  # four microbatches, two under way at once


def net():
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.GELU(), torch.nn.Dropout(0.1),
                               torch.nn.Linear(2 * WIDTH, WIDTH)).cuda()


def train(module, order):
    """Runs steps in an order of passes; losses, and whether each result came of a graph."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    torch.manual_seed(5)
    losses, replayed = [], []
    for _ in range(STEPS):
        waiting = []
        for step in order:
            if step > 0:
                out = module(torch.randn(16, WIDTH, device="cuda"))
                replayed.append(type(out.grad_fn).__name__ == "GraphedBackward")
                waiting.append(out.square().mean())
            else:
                losses.append(waiting.pop(0))
                losses[-1].backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.stack(losses).detach(), replayed


def main():
    torch.manual_seed(0)
    sample = (torch.randn(16, WIDTH, device="cuda"),)
    for order, options in (([1, -1], {}), (ONE_F_ONE_B, {"order": ONE_F_ONE_B})):
        module = net()
        twin = copy.deepcopy(module)
        module = reprise.make_graphed_callables(module, sample, **options)
        losses, replayed = train(module, order)
        wanted, _ = train(twin, order)
        if not torch.equal(losses, wanted) or not all(replayed):
            sys.exit(f"not as expected with {options}: losses equal: {torch.equal(losses, wanted)}, "
                     f"{replayed.count(False)} passes without a graph")
    try:  # a pass out of order would compute something else: it is an error that names the one that is due
        module(*sample)
        module(*sample)
        module(*sample)
        sys.exit("not as expected: a third pass forward was taken where a backward pass was due")
    except RuntimeError as error:
        print(error)
    print(f"net and pipeline stage: {STEPS} steps each replayed by graphs, to the bit as eager")


if __name__ == "__main__":
    main()
