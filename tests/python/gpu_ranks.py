# SPDX-License-Identifier: MIT
"""Ranks that decide differently are found at their first calls: two processes, which talk over gloo and have the same
GPU. Usage: gpu_ranks.py [--install] ..., or as a rank: gpu_ranks.py --rank RANK FOLDER WAY [--install]"""

import datetime
import os
import subprocess
import sys
import tempfile
import unittest

import torch
from torch import distributed

import reprise
import reprise.megatron
from reprise._layers import ranks

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()


class Layer(torch.nn.Module):
    def __init__(self, waits):
        super().__init__()
        self.inner = torch.nn.Linear(16, 16)
        self.waits = waits

    def forward(self, x):
        if self.waits:
            x.sum().item()
        return self.inner(x).tanh()


class Model(torch.nn.Module):
    def __init__(self, waits):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(waits) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def schedule(*, forward_step_func, data_iterator, model, num_microbatches):
    for _ in range(num_microbatches):
        forward_step_func(data_iterator, model).backward()


def step_func(iterator, model):
    return model(next(iterator)).square().mean()


def train(rank, way):
    """way: what one rank does that the other one does not."""
    model = Model(way == "waits" and rank == 1).cuda()
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    reprise.capture_layers(model, list(model.layers), ranks=True) if way != "iteration" else None
    for turn in range(6):
        if way == "leaves" and rank == 1 and turn == 2:
            return
        model(torch.ones(4, 16, device="cuda")).square().mean().backward()


def iterate(rank, way):
    model = Model(way == "iteration waits" and rank == 1).cuda()
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    made = reprise.megatron.full_iteration(schedule)
    for _ in range(6):
        made(forward_step_func=step_func, data_iterator=iter([torch.ones(4, 16, device="cuda")] * 2), model=model,
             num_microbatches=2)


def be_rank(rank, folder, way):
    ranks.Ranks.__init__.__defaults__ = (20 if way != "leaves" else 2,)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2,
                                   timeout=datetime.timedelta(seconds=60))
    try:
        (iterate if way.startswith("iteration") else train)(rank, way)
        print("done")
    except RuntimeError as error:
        print(f"refused: {error}")
    sys.stdout.flush()
    os._exit(0)


class Ranks(unittest.TestCase):
    def run_ranks(self, way):
        """What each of two ranks printed."""
        with tempfile.TemporaryDirectory() as folder:
            options = ["--install"] if INSTALL else []
            started = [subprocess.Popen([sys.executable, "-W", "ignore", __file__, "--rank", str(rank), folder, way,
                                         *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                       for rank in range(2)]
            found = []
            for one in started:
                out, said = one.communicate(timeout=180)
                self.assertTrue(out, said[-2000:])
                found.append(out.strip().splitlines()[-1])
        return found

    def test_ranks_that_agree(self):
        self.assertEqual(self.run_ranks("alike"), ["done", "done"])
        self.assertEqual(self.run_ranks("iteration"), ["done", "done"])

    def test_a_rank_whose_layer_is_not_captured(self):
        first, second = self.run_ranks("waits")
        self.assertRegex(first, r"call 2 of 'Model.layers.0' is a graph on rank 0, and eager on rank 1")
        self.assertRegex(second, r"call 2 of 'Model.layers.0' is eager on rank 1, and a graph on rank 0")

    def test_a_rank_whose_iteration_is_not_captured(self):
        first, second = self.run_ranks("iteration waits")
        self.assertRegex(first, r"call 2 of 'training iteration' is a graph on rank 0, and eager on rank 1")
        self.assertRegex(second, r"is eager on rank 1, and a graph on rank 0")

    def test_a_rank_that_does_not_come(self):
        first, second = self.run_ranks("leaves")
        self.assertRegex(first, r"rank 1 has not come to call 3 of 'Model.layers.0' within 2 s")
        self.assertEqual(second, "done")


if __name__ == "__main__":
    if "--rank" in sys.argv:
        at = sys.argv.index("--rank")
        be_rank(int(sys.argv[at + 1]), *sys.argv[at + 2:at + 4])
    unittest.main()
