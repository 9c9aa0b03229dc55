#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`python -m reprise estimate` with a real PyTorch, as the package carries its libraries: each command runs in
a process that has none of this one's."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch

import reprise

MODEL = """
import torch

net = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024))
conv = torch.nn.Conv2d(3, 8, 3)
optimized = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.Adam(optimized.parameters(), capturable=True)

def build():
    print("what a program prints")
    return net, [(torch.empty(n, 1024, device="meta"),) for n in (1, 8, 64)]

def product(x, y):
    return x @ y

def added(x, n):
    return x + n

def attention(x):
    return torch.nn.functional.scaled_dot_product_attention(x, x, x)

def step(x):
    optimizer.zero_grad(set_to_none=True)
    loss = optimized(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()
"""
OURS = ("LD_PRELOAD", "TRITON_LIBCUDA_PATH", "CUBLAS_WORKSPACE_CONFIG")


class Estimate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        Path(cls.folder.name, "model.py").write_text(MODEL, encoding="utf-8")

    def run_it(self, *arguments, **environment):
        env = {key: value for key, value in os.environ.items() if key not in OURS}
        # The package alone: no folder of the tree's host.
        env["PYTHONPATH"] = str(Path(reprise.__file__).resolve().parents[1])
        return subprocess.run([sys.executable, "-m", "reprise", "estimate", *arguments], text=True,
                              capture_output=True, check=False, cwd=self.folder.name,
                              env={**env, **environment})

    def found(self, *arguments, code=0, **environment):
        done = self.run_it(*arguments, "--json", **environment)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout)

    def test_shapes_of_the_function(self):
        done = self.run_it("model.py:build")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], f"NVIDIA H200, PyTorch {torch.__version__}, with reprise.install()")
        self.assertEqual([line.split()[0] for line in lines[2:5]],
                         [f"Sequential({n}x1024)" for n in (64, 8, 1)])
        self.assertIn("in the plan: cuBLAS's workspace of 32.0 MiB in each graph that multiplies", lines)
        self.assertEqual(done.stderr, "what a program prints\n")

    def test_gpus(self):
        for gpu, name in (("h200", "NVIDIA H200"), ("h100", "NVIDIA H100 80GB HBM3")):
            found = self.found("model.py:net", "--gpu", gpu, "--shape", "64x1024")
            # The plan: workspaces, the result's place and the hidden layer's.
            workspaces = sum(row["bytes"] for row in found["workspaces"])
            self.assertEqual(workspaces, (32 + 1) << 20)
            self.assertEqual((found["gpu"], found["planned_bytes"] - workspaces),
                             (name, 64 * (4096 + 4096) * 4))
            self.assertEqual((found["failures"], found["left_out"]), ([], []))

    def test_workspaces_go_by_pytorchs_settings(self):
        for config, want in ((":4096:2:16:8", (2 * 4096 + 8 * 16) << 10), (":1024:1", 1 << 20)):
            found = self.found("model.py:product", "--shape", "64x64,64x64", CUBLAS_WORKSPACE_CONFIG=config)
            sizes = {row["library"]: row["bytes"] for row in found["workspaces"]}
            self.assertEqual(sizes["cuBLAS"], want)
            self.assertEqual(found["planned_bytes"], want)
        self.assertEqual(self.found("model.py:added", "--shape", "64x64,=2")["workspaces"], [])

    def test_what_cudnn_would_do_is_named(self):
        found = self.found("model.py:conv", "--shape", "2x3x16x16")
        self.assertEqual([row["use"] for row in found["left_out"]], ["convolutions"])
        found = self.found("model.py:attention", "--shape", "1x4x64x64:half")
        self.assertEqual([row["use"] for row in found["left_out"]], ["attention"])

    def test_shapes_that_have_no_graph(self):
        found = self.found("model.py:product", "--shape", "4x8,8x5:half", "--shape", "4x8,8x5", code=1)
        self.assertEqual([row["name"] for row in found["shapes"]], ["product(4x8, 8x5)"])
        self.assertEqual(len(found["failures"]), 1)
        self.assertIn("same dtype", found["failures"][0]["reason"])

    def test_training_and_pytorchs_allocator(self):
        found = self.found("model.py:step", "--grad", "--shape", "8x64")
        self.assertEqual((found["failures"], found["exact"]), ([], True))
        found = self.found("model.py:product", "--shape", "8x64,64x8", "--without-install")
        self.assertEqual((found["failures"], found["exact"]), ([], False))

    def test_what_has_to_be_put_right(self):
        for arguments, text in ((("model.py:buld",), "did you mean build?"),
                                (("model.py:product",), "product takes arguments, and none are known"),
                                (("model.py:MODEL",), "has no function 'MODEL'")):
            done = self.run_it(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
