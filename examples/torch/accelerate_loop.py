# SPDX-License-Identifier: MIT
"""Accelerate: one line after prepare makes the layers graphs, also where gradients are accumulated.

Run:      python examples/torch/accelerate_loop.py
Expected: Accelerate: 16 microbatches with 3 layers as graphs gave eager's losses to the bit
"""

import sys

import torch

import reprise

try:
    import accelerate
except ImportError as error:
    print(f"skipped: accelerate is not installed ({error})")
    sys.exit(77)

MICROBATCHES, BATCH, WIDTH, LAYERS = 16, 8, 64, 3


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Dropout(0.1))
            for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


def train(graphed):
    """The loss of each microbatch, and the graphs."""
    torch.manual_seed(2)
    rows = torch.utils.data.TensorDataset(*(torch.randn(MICROBATCHES * BATCH, WIDTH) for _ in range(2)))
    net = Net()
    accelerator = accelerate.Accelerator(gradient_accumulation_steps=2)
    net, optimizer, loader = accelerator.prepare(
        net, torch.optim.AdamW(net.parameters(), lr=1e-2), torch.utils.data.DataLoader(rows, batch_size=BATCH))
    graphs = reprise.capture_layers(accelerator.unwrap_model(net)) if graphed else None
    losses = []
    for x, y in loader:
        with accelerator.accumulate(net):
            loss = torch.nn.functional.mse_loss(net(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses), graphs


def main():
    wanted, _ = train(graphed=False)
    losses, graphs = train(graphed=True)
    print(reprise.report())
    ways, equal = [layer["way"] for layer in graphs.layers()], torch.equal(losses, wanted)
    if not equal or ways != ["graph"] * LAYERS:
        sys.exit(f"not as expected: layers {ways}, losses equal: {equal}")
    print(f"Accelerate: {len(losses)} microbatches with {LAYERS} layers as graphs gave eager's losses to the bit")


if __name__ == "__main__":
    main()
