# SPDX-License-Identifier: MIT
"""reprise.report on a GPU, and the options of install(): usage: gpu_report.py [--install] ..."""

import os
import sys
import tempfile
import unittest

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")
    os.environ["PYTORCH_ALLOC_CONF"] = "roundup_power2_divisions:[64:4,>:1],max_split_size_mb:200"

import torch  # noqa: E402

import reprise  # noqa: E402

if INSTALL:
    reprise.install(exec_budget_bytes=32 << 20, garbage_collection_threshold=0.9)


class Reports(unittest.TestCase):
    def setUp(self):
        self.net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU()).cuda().eval()
        with torch.no_grad():
            self.made = reprise.graphed(self.net, name="net", strict=True, shapes=[
                (torch.randn(n, 256, device="cuda"),) for n in (32, 8)])
            self.made(torch.randn(32, 256, device="cuda"))
        self.x = torch.ones(1 << 18, device="cuda")
        self.graph = torch.cuda.CUDAGraph()
        with reprise.graph(self.graph):
            self.y = (self.x + 1) * 2

    def test_text_has_memory_beside_its_bound_and_execs(self):
        text = reprise.report()
        rows = [line.split() for line in text.splitlines() if line.strip().startswith("net(")]
        self.assertEqual([row[0] for row in rows], ["net(32x256)", "net(8x256)"])
        self.assertEqual(rows[0][1], "1")
        self.assertGreater(float(rows[0][5]), 0)
        self.assertRegex(text, "executable graphs? for")
        self.assertEqual("torch.cuda.graph" in text, INSTALL)

    def test_page_has_drawings(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.html")
            reprise.report(path)
            with open(path, encoding="utf-8") as file:
                page = file.read()
        self.assertGreaterEqual(page.count("<svg"), 2 if INSTALL else 1)
        self.assertIn("net(32x256)", page)

    def test_each_graph_tells_its_exec(self):
        for facts in self.made.shapes():
            self.assertGreater(facts["exec_bytes"], 0)
            self.assertIsInstance(facts["own_exec"], bool)


@unittest.skipUnless(INSTALL, "options of install()")
class Options(unittest.TestCase):
    def test_the_budget_is_set(self):
        self.assertEqual(reprise.exec_info()["budget_bytes"], 32 << 20)

    def test_requests_are_rounded_as_the_environment_says(self):
        before = torch.cuda.memory_allocated()
        tensor = torch.empty(33 << 20, dtype=torch.uint8, device="cuda")  # quarters of 32 MiB
        self.assertEqual(torch.cuda.memory_allocated() - before, 40 << 20)
        del tensor


if __name__ == "__main__":
    unittest.main(verbosity=2)
