# SPDX-License-Identifier: MIT
"""Transformer Engine's make_graphed_callables: its arguments, in the place of its function.

Two chunks of two layers in an interleaved order of two microbatches, called as Megatron's TECudaGraphHelper
calls TE's. The layers are PyTorch's, so that the example needs no Transformer Engine.

Run:      python examples/torch/te_arguments.py
Expected: 6 steps of 2 chunks and 2 microbatches replayed by graphs, to the bit as eager
"""

import copy
import sys

import torch

import reprise

STEPS, WIDTH, CHUNKS, LAYERS, MICROBATCHES = 6, 64, 2, 2, 2
ORDER = [1, 1, 2, 2, -2, -2, -1, -1]


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, hidden, *, mask=None, scale=1.0):
        made = self.second(torch.nn.functional.gelu(self.first(hidden))) * scale
        return hidden + (made if mask is None else made * mask)


def train(layers, calls):
    """calls: [chunk][microbatch] -> what to call, one behind the other. Losses, and whether all were replays."""
    optimizer = torch.optim.SGD([p for layer in layers for p in layer.parameters()], lr=0.1)
    torch.manual_seed(5)
    losses, replayed = [], True
    for _ in range(STEPS):
        mask = (torch.rand(WIDTH, device="cuda") > 0.1).float()
        taken, made = {}, {}  # what each chunk got of each microbatch, and what came out
        for number, microbatch in zip(ORDER, (0, 1, 0, 1, 0, 1, 0, 1)):
            if number > 0:
                start = torch.randn(8, WIDTH, device="cuda") if number == 1 else made[1, microbatch].detach()
                out = taken[number, microbatch] = start.requires_grad_()
                for call in calls[number - 1][microbatch]:
                    out = call(out, mask=mask, scale=0.5)
                    replayed = replayed and type(out.grad_fn).__name__ == "GraphedBackward"
                made[number, microbatch] = out
            elif number == -CHUNKS:
                losses.append(made[CHUNKS, microbatch].square().mean())
                losses[-1].backward()
            else:
                made[1, microbatch].backward(taken[2, microbatch].grad)
        optimizer.step()
        optimizer.zero_grad()
    return torch.stack(losses).detach(), replayed


def main():
    torch.manual_seed(0)
    layers = [Layer().cuda() for _ in range(CHUNKS * LAYERS)]
    twins = copy.deepcopy(layers)
    count = CHUNKS * MICROBATCHES * LAYERS
    mask = torch.ones(WIDTH, device="cuda")
    made = reprise.make_graphed_callables(
        tuple(layers), tuple((torch.randn(8, WIDTH, device="cuda", requires_grad=True),) for _ in range(count)),
        sample_kwargs=tuple({"mask": mask, "scale": 0.5} for _ in range(count)), num_warmup_iters=3,
        fp8_enabled=False, _order=ORDER, _num_layers_per_chunk=[LAYERS] * CHUNKS, allow_unused_input=True)
    # As with TE, a function for each sample: by chunk, by microbatch, by layer of the chunk.
    rows = iter(made)
    calls = [[[next(rows) for _ in range(LAYERS)] for _ in range(MICROBATCHES)] for _ in range(CHUNKS)]
    eager = [[twins[c * LAYERS:(c + 1) * LAYERS]] * MICROBATCHES for c in range(CHUNKS)]

    losses, replayed = train(layers, calls)
    wanted, _ = train(twins, eager)
    if not torch.equal(losses, wanted) or not replayed:
        sys.exit(f"not as expected: losses equal: {torch.equal(losses, wanted)}, replayed: {replayed}")
    print(f"{STEPS} steps of {CHUNKS} chunks and {MICROBATCHES} microbatches replayed by graphs, "
          "to the bit as eager")


if __name__ == "__main__":
    main()
