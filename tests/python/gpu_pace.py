# SPDX-License-Identifier: MIT
"""Restoring the pace of graphs on a GPU: usage: gpu_pace.py [--install] ... What is measured is in
bench/torch/pace.py; here, that nothing else changes."""

import sys
import unittest

import torch

import reprise

if "--install" in sys.argv:
    sys.argv.remove("--install")
    reprise.install()


class Restored(unittest.TestCase):
    def work_beside(self):
        x = torch.zeros(64, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(1000):
                x.add_(1)
        torch.cuda.synchronize()

    def test_what_is_told(self):
        self.work_beside()
        for told in (reprise.restore_pace(), reprise.restore_pace(0),
                     reprise.restore_pace(torch.device("cuda"))):
            self.assertEqual(set(told), {"before_us", "after_us", "restored", "ms"})
            self.assertGreater(told["before_us"], 0)
            self.assertGreater(told["after_us"], 0)
            self.assertEqual(told["restored"], told["ms"] > 0)
        with self.assertRaises(Exception):
            reprise.restore_pace(torch.cuda.device_count())

    def test_all_else_is_as_it_was(self):
        net = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(8)]).cuda()
        made = reprise.graphed(net, strict=True)
        graph, x = torch.cuda.CUDAGraph(), torch.randn(4, 64, device="cuda")
        with torch.no_grad():
            for _ in range(3):
                want = made(x)
            with reprise.graph(graph):
                out = net(x)
            held = torch.cuda.memory_allocated()
            self.work_beside()
            with torch.cuda.stream(torch.cuda.Stream()):
                reprise.restore_pace()
            self.assertEqual(torch.cuda.memory_allocated(), held)
            graph.replay()
            self.assertTrue(torch.equal(made(x), want))
            self.assertTrue(torch.equal(out, want))


if __name__ == "__main__":
    unittest.main()
