#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The memory that graphs take on the host driver, held against what an H200 showed for the same programs
(bench/results/h200). --install: with Reprise's allocator. Skipped where timm or transformers is missing."""

import contextlib
import json
import sys
import unittest
from pathlib import Path

import torch

import reprise

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "torch"))
import workloads  # noqa: E402

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    reprise.install()
WAY = "reprise-install" if INSTALL else "reprise"
MIB = 1 << 20
# Weights made on the device are made by kernels that NVRTC would compile: made on the CPU, and moved.
workloads.on_device = contextlib.nullcontext


def shown(file, workload):
    """What an H200 needed, in MiB."""
    results = json.loads((ROOT / "bench" / "results" / "h200" / file).read_text())
    return results["result"]["workloads"][workload][WAY]["median"]["pool_mib"]


class Memory(unittest.TestCase):
    def needed(self, net, calls):
        made = reprise.graphed(net.cuda(), strict=True)
        with torch.no_grad():
            for args in calls:
                made(*args)
        return reprise.graphed_of(made).pool.info()["planned_bytes"] / MIB

    def same(self, workload, most=0.0005):
        try:
            net, inputs = workloads.INFERENCE[workload]()
        except ImportError as error:
            self.skipTest(str(error))
        want = shown("torch-inference.json", workload)
        self.assertAlmostEqual(self.needed(net, inputs[:2]), want, delta=most * want)

    def test_mlp(self):
        self.same("mlp")

    def test_vit(self):
        self.same("vit")

    def test_bert(self):
        # The attention of the transformers that was measured took more with install().
        self.same("bert", 0.03)

    def test_shapes_of_an_mlp(self):
        net, make = workloads.forum_mlp()
        rows = (512, 511, 300, 128, 17, 1)
        calls = [(make(count),) for count in rows for _ in range(2)]
        self.assertAlmostEqual(self.needed(net, calls), shown("torch-forum-mlp.json", "mlp"), 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
