#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The memory that graphs take on the host driver, held against what an H200 showed for the same programs of
bench/torch (bench/results/h200, in MiB to three places). --install: with Reprise's allocator. --all: those
too that compute for minutes on a CPU. Skipped where timm or transformers is missing.

Equal to those places, unless a test says by how much it may differ and why. Programs whose graphs are
alternatives are captured at some of their shapes, the largest among them: the plan is its plan."""

import contextlib
import gc
import json
import sys
import types
import unittest
from pathlib import Path

import torch

import reprise

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "torch"))
import micro  # noqa: E402
import training  # noqa: E402
import workloads  # noqa: E402

WORKSPACE_MIB = 32  # of cuBLAS, on Hopper
INSTALL = "--install" in sys.argv
ALL = "--all" in sys.argv
if ALL:
    sys.argv.remove("--all")
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()
WAY = "reprise-install" if INSTALL else "reprise"
MIB = 1 << 20
# Weights made on the device are made by kernels that NVRTC would compile: made on the CPU, and moved.
workloads.on_device = contextlib.nullcontext


takes_minutes = unittest.skipUnless(ALL and INSTALL, "takes minutes: --install --all")


def recorded(file, workload, way=""):
    """What an H200 needed, in MiB; None: this side was not run there."""
    results = json.loads((ROOT / "bench" / "results" / "h200" / file).read_text())
    sides_of = results["result"]["workloads"][workload]
    side = sides_of.get("-".join([WAY, way]) if way else WAY)
    return side and side["median"]["pool_mib"]


def planned(made):
    return reprise.graphed_of(made).pool.info()["planned_bytes"] / MIB


class Memory(unittest.TestCase):
    def setUp(self):
        # PyTorch places blocks by what it has in its cache.
        gc.collect()
        torch.cuda.empty_cache()

    def equal(self, got, want, most=0.0):
        """most: what it may be off, as a part of what the H200 showed."""
        if want is None:
            self.skipTest("the H200's results do not have this side")
        self.assertAlmostEqual(got, want, delta=max(0.0005, most * want))

    def captured(self, fn, calls):
        """The plan of what these calls capture; the first runs eagerly."""
        made = reprise.graphed(fn, strict=True)
        with torch.no_grad():
            for args in calls:
                made(*args)
        return planned(made)

    # ---- Inference ----

    def inference(self, workload, most=0.0):
        try:
            net, inputs = workloads.INFERENCE[workload]()
        except ImportError as error:
            self.skipTest(str(error))
        net = net.cuda().requires_grad_(False)
        got = self.captured(net, inputs[:2])
        self.equal(got, recorded("torch-inference.json", workload), most)
        with torch.no_grad():
            found = reprise.estimate(net, inputs[:1])
        self.equal(found.planned_bytes / MIB, got)

    def test_mlp(self):
        self.inference("mlp")

    def test_vit(self):
        self.inference("vit")

    def test_bert(self):
        # In half precision the H200 took cuDNN's attention, which works in memory of its own (0.76 MiB
        # at the peak, with install()); here it is PyTorch's.
        self.inference("bert", 0.025 if INSTALL else 0.0)

    # ---- Many shapes ----

    def test_shapes_of_an_mlp(self):
        net, make = workloads.forum_mlp()
        calls = [(make(rows),) for rows in (512, 512, 511, 300, 128, 17, 1)]
        self.equal(self.captured(net, calls), recorded("torch-forum-mlp.json", "mlp"))

    def test_inputs_from_pinned_memory(self):
        host = [torch.randn(512, 4096).pin_memory() for _ in range(2)]

        def work(size):
            a, b = (x[:size].to("cuda", non_blocking=True) for x in host)
            return a ** 2 + b * 2
        calls = [(size,) for size in (512, 512, 511, 300, 1)]
        self.equal(self.captured(work, calls), recorded("torch-forum.json", "pinned"))

    def test_decoding(self):
        try:
            decoder = workloads.Decoder(64)
        except ImportError as error:
            self.skipTest(str(error))
        decoder.step.model.cuda().requires_grad_(False)
        calls = [decoder.arguments(rows) for rows in (64, 64, 1)]
        self.equal(self.captured(decoder.step, calls), recorded("torch-decode.json", "llama"))

    # ---- Training ----

    def trained(self, workload, way, most=0.0, jobs=training, file="torch-training.json", forwards=0):
        """forwards: of how many forward graphs that are kept for their backward passes. Without install() each of
        them had the workspace of cuBLAS in its memory on the H200; it is given back since."""
        want = recorded(file, workload, way)
        if want is None:
            self.skipTest("the H200's results do not have this side")
        if not INSTALL:
            want -= forwards * WORKSPACE_MIB
        make = workloads.TRAINING[workload]
        workloads.TRAINING[workload] = lambda: on_device(make)
        self.addCleanup(workloads.TRAINING.__setitem__, workload, make)
        try:
            job = jobs.Job(torch, workload)
        except ImportError as error:
            self.skipTest(str(error))
        step, facts = training.ours(types.SimpleNamespace(way=way), job)
        for batch in job.batches[:3]:
            step(*batch)
        self.equal(facts()["pool_mib"], want, most)

    def test_steps_of_an_mlp(self):
        self.trained("mlp", "whole")

    def test_forward_and_backward_of_an_mlp(self):
        self.trained("mlp", "model", forwards=1)

    def test_layers_of_an_mlp(self):
        self.trained("mlp", "layers", forwards=8)

    def test_micro_batches_of_an_mlp(self):
        self.trained("mlp", "micro", jobs=micro, file="torch-micro.json")

    @takes_minutes
    def test_steps_of_a_gpt2(self):
        self.trained("gpt2", "whole")

    @takes_minutes
    def test_forward_and_backward_of_a_gpt2(self):
        self.trained("gpt2", "model")

    @takes_minutes
    def test_micro_batches_of_a_gpt2(self):
        self.trained("gpt2", "micro", jobs=micro, file="torch-micro.json")

    # cuDNN's convolutions work in memory of their own; PyTorch's, which are in their place here, in
    # other memory.

    @takes_minutes
    def test_steps_of_a_resnet50(self):
        self.trained("resnet50", "whole", 0.05)

    @takes_minutes
    def test_forward_and_backward_of_a_resnet50(self):
        self.trained("resnet50", "model", 0.05)


def on_device(make):
    net, batch, loss = make()
    return net.cuda(), batch, loss


if __name__ == "__main__":
    unittest.main(verbosity=2)
