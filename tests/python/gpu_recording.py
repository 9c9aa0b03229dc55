# SPDX-License-Identifier: MIT
"""reprise.record on a GPU, with install() and without: usage: gpu_recording.py [--install] ..."""

import gzip
import json
import os
import subprocess
import sys
import tempfile
import unittest

INSTALL = "--install" in sys.argv
if INSTALL:
    sys.argv.remove("--install")

import torch  # noqa: E402

import reprise  # noqa: E402

if INSTALL:
    reprise.install()
KIB = 1024


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.x = torch.randn(512, 256, device="cuda")

    def path(self, name):
        return os.path.join(self.folder, name)

    def plan(self, recording, *options):
        path = self.path("r.json.gz")
        recording.write(path)
        done = subprocess.run([sys.executable, "-m", "reprise", "plan", "--json", *options, path],
                              capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout)[0]


class Streams(Case):
    """What is known of a program of two streams, to the event."""

    def setUp(self):
        super().setUp()
        self.side = torch.cuda.Stream()

    def towers(self, x):
        here = torch.cuda.current_stream()
        a = x * 2
        self.side.wait_stream(here)
        with torch.cuda.stream(self.side):
            b = (a + 1).relu()
            a.record_stream(self.side)
            c = b.sum(1)
        d = (a * 3).exp()
        del a
        e = d.sum(1)
        here.wait_stream(self.side)
        c.record_stream(here)
        return e + c

    def test_each_event_has_its_terminals(self):
        (capture,) = reprise.record(self.towers, self.x).captures
        self.assertEqual(capture["nodes"], ["kernel"] * 8)
        self.assertEqual(sorted(capture["edges"]),
                         [[0, 1], [0, 4], [1, 2], [2, 3], [3, 7], [4, 5], [5, 6], [6, 7]])
        self.assertEqual(capture["streams"], 2)
        large, small = 512 * KIB, 2 * KIB
        self.assertEqual(capture["events"][:12], [
            ["alloc", 0, large, 0, []], ["alloc", 1, large, 1, [0]], ["alloc", 2, large, 1, [1]],
            ["free", 1, 1, [2]], ["use", 0, 1], ["alloc", 3, small, 1, [2]],
            ["alloc", 4, large, 0, [0]], ["alloc", 5, large, 0, [4]], ["free", 4, 0, [5]],
            ["free", 0, 0, [3, 5]],  # behind both streams' work
            ["alloc", 6, small, 0, [5]], ["use", 3, 0]])
        kind, block, size, stream, nodes = capture["events"][12]
        self.assertEqual((kind, block, size, stream, sorted(nodes)), ("alloc", 7, small, 0, [3, 6]))
        freed = {event[1]: event for event in capture["events"][13:]}
        self.assertEqual(sorted(freed), [2, 3, 5, 6])  # not 7, which is returned
        self.assertEqual(freed[3], ["free", 3, 1, [3, 7]])  # side's own, and here, that used it

    def test_plan_has_the_bound(self):
        recording = reprise.record(self.towers, self.x, name="towers")
        code, layout = self.plan(recording)
        # a, a+1 and relu, or a, relu, a*3 and exp with the sums: five large ones may be alive.
        self.assertEqual((code, layout["optimal"]), (0, True))
        self.assertEqual(layout["lower_bound_bytes"], 5 * 512 * KIB)
        self.assertEqual(layout["captures"][0]["name"], "towers")


class Training(Case):
    def setUp(self):
        super().setUp()
        self.net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(),
                                       torch.nn.Linear(1024, 256)).cuda()

    def step(self, x):
        loss = self.net(x).square().sum()
        loss.backward()
        return loss

    def test_backward_has_moments_of_its_own(self):
        (capture,) = reprise.record(self.step, self.x).captures
        last = max(node for event in capture["events"] if event[0] == "alloc" for node in event[4])
        self.assertGreater(last, 0.7 * len(capture["nodes"]))
        chain = [max(event[4], default=-1) for event in capture["events"] if event[0] == "alloc"]
        self.assertEqual(chain, sorted(chain))  # one stream: on and on
        self.assertGreater(len(set(chain)), 8)
        sizes = [event[2] for event in capture["events"] if event[0] == "alloc"]
        self.assertGreaterEqual(sizes.count(512 * 1024 * 4), 3)  # hidden, relu, its gradient

    def test_nothing_is_left_behind(self):
        self.step(self.x)
        before = [(p.grad, p.grad.clone(), p.detach().clone()) for p in self.net.parameters()]
        reprise.record(self.step, self.x, warmup=0)
        for p, (gradient, value, weights) in zip(self.net.parameters(), before):
            self.assertIs(p.grad, gradient)
            self.assertTrue(torch.equal(p.grad, value))
            self.assertTrue(torch.equal(p, weights))
        for p in self.net.parameters():
            p.grad = None
        reprise.record(self.step, self.x, warmup=0)
        self.assertEqual([p.grad for p in self.net.parameters()], [None] * 4)

    def test_capacity_and_drawing(self):
        recording = reprise.record(self.step, self.x, name="512")
        self.assertIs(recording.add(self.step, self.x[:8], name="8"), recording)
        with self.assertRaisesRegex(ValueError, "capture '8' already"):
            recording.add(self.step, self.x[:8], name="8")
        code, layout = self.plan(recording)
        self.assertEqual((code, [c["name"] for c in layout["captures"]]), (0, ["512", "8"]))
        need = layout["pool_bytes"]
        self.assertGreaterEqual(need, layout["captures"][0]["lower_bound_bytes"])
        self.assertLess(need, sum(c["planned_bytes"] for c in layout["captures"]))  # alternatives
        self.assertIs(self.plan(recording, "--capacity", str(need))[1]["fits"], True)
        self.assertIs(self.plan(recording, "--capacity", str(need // 2))[1]["fits"], False)
        drawing = self.path("drawn.svg")
        self.assertEqual(self.plan(recording, "--draw", drawing)[0], 0)
        with open(drawing, encoding="utf-8") as file:
            self.assertEqual(file.read().count(">peak "), 2)


class Failures(Case):
    def test_what_cannot_be_captured(self):
        with self.assertRaisesRegex(RuntimeError, "was to be recorded failed.*reprise.check"):
            reprise.record(lambda x: x.sum().item(), self.x)
        with self.assertRaisesRegex(RuntimeError, "failed: on purpose"):
            reprise.record(self.raises, self.x, warmup=0)
        self.assertFalse(not INSTALL and torch._C._cuda_isHistoryEnabled())
        (capture,) = reprise.record(lambda x: x + 1, self.x).captures
        self.assertEqual(capture["events"], [["alloc", 0, 512 * KIB, 0, []]])

    def raises(self, x):
        x + 1
        raise ValueError("on purpose")

    @unittest.skipIf(INSTALL, "the history is not asked")
    def test_history_of_somebody_else(self):
        torch.cuda.memory._record_memory_history()
        try:
            with self.assertRaisesRegex(RuntimeError, "history is being recorded"):
                reprise.record(lambda x: x + 1, self.x)
            self.assertTrue(torch._C._cuda_isHistoryEnabled())
        finally:
            torch.cuda.memory._record_memory_history(enabled=None)


class Files(Case):
    def test_files(self):
        recording = reprise.record(lambda x: x + 1, self.x, name="one")
        plain, target, link = self.path("a.json"), self.path("b.json.gz"), self.path("link.json.gz")
        recording.write(plain)
        os.chmod(plain, 0o600)
        recording.write(plain)
        self.assertEqual(os.stat(plain).st_mode & 0o777, 0o600)
        with open(target, "wb"):
            pass
        os.symlink(target, link)
        recording.write(link)
        self.assertTrue(os.path.islink(link))
        with open(plain, encoding="utf-8") as file, gzip.open(target) as packed:
            text = file.read()
            self.assertEqual(json.loads(text), json.load(packed))
        self.assertEqual(json.loads(text)["captures"], recording.captures)
        self.assertEqual(sorted(os.listdir(self.folder)), ["a.json", "b.json.gz", "link.json.gz"])
        with self.assertRaises(OSError):
            recording.write(self.path("none/a.json"))


if __name__ == "__main__":
    unittest.main(verbosity=1)
