# SPDX-License-Identifier: MIT
"""DistributedDataParallel: layers are graphs, gradients are reduced in buckets between them, as ever.

The ranks ask one another at the first calls whether all have a graph, so one that differs is found by name.

Run:      torchrun --nproc-per-node=2 examples/torch/ddp.py
          python examples/torch/ddp.py                              (one rank)
Expected: 12 steps of 4 layers by graphs on each rank, losses as in eager mode
"""

import os
import sys

import torch
from torch import distributed

import reprise

reprise.install()

STEPS, WIDTH, LAYERS = 12, 128, 4


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.second(self.first(x).relu())


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def train(graphed, rank):
    """The losses of this rank, and what became of the layers."""
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(Net().cuda(), bucket_cap_mb=1)
    graphs = reprise.capture_layers(model) if graphed else None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(100 + rank)  # each rank has data of its own
    losses = []
    for _ in range(STEPS):
        x, y = torch.randn(16, WIDTH, device="cuda"), torch.randn(16, WIDTH, device="cuda")
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), graphs


def main():
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}.items():
        os.environ.setdefault(name, value)  # what torchrun sets
    device = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    if "MASTER_ADDR" in os.environ:
        distributed.init_process_group("nccl")
    else:
        distributed.init_process_group("nccl", store=distributed.HashStore(), rank=0, world_size=1)
    rank = distributed.get_rank()
    try:
        wanted, _ = train(False, rank)
        losses, graphs = train(True, rank)
        ways = [layer["way"] for layer in graphs.layers()]
        # Buckets may be filled in another order, so sums of more than two ranks may round otherwise.
        equal = torch.allclose(losses, wanted, rtol=1e-5)
        if not equal or ways != ["graph"] * LAYERS:
            sys.exit(f"not as expected on rank {rank}: layers {ways}, losses equal: {equal}\n{reprise.report()}")
        graphs.release()
        distributed.barrier(device_ids=[device])
        if rank == 0:
            print(f"{STEPS} steps of {LAYERS} layers by graphs on each rank, losses as in eager mode")
    finally:
        torch.cuda.synchronize()
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
