# SPDX-License-Identifier: MIT
"""PyTorch's capture of a run, where the run's memory cannot begin: it ends as it began."""

import types
import unittest
from unittest import mock

from reprise import _C
from reprise._capture import draws


class Mine(Exception):
    """What fails."""


class Beginning(unittest.TestCase):
    def setUp(self):
        self.calls = []
        self.fails = ("begin", "segments")
        private = types.SimpleNamespace(begin_pool=self.note("begin"), end_pool=self.note("end"),
                                        release_pool=self.note("release"), resets_failed=True)
        graph = types.SimpleNamespace(capture_end=lambda: self.calls.append(("end", "capture")))
        for owner, name, value in ((draws.torch_private, "of", lambda torch: private),
                                   (_C, "call_take_over", lambda: None), (_C, "call_begun", lambda: None),
                                   (draws.Within, "_capture_begin", self.begin_capture)):
            patch = mock.patch.object(owner, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.capture = draws.Within.__new__(draws.Within)
        self.capture.torch, self.capture.graph, self.capture.generators = None, graph, ()
        self.capture.device = types.SimpleNamespace(index=0)
        self.capture.segments, self.capture.pool = types.SimpleNamespace(id="segments"), None

    def begin_capture(self, graph):
        self.capture.pool = "pool"
        self.calls.append(("begin", "capture"))

    def note(self, what):
        def noted(ordinal, pool):
            self.calls.append((what, pool))
            if self.calls[-1] == self.fails:
                raise Mine(pool)
        return noted

    def test_pytorch_ends_the_pool_that_it_began_with(self):
        with self.assertRaises(Mine):
            self.capture.begin()
        self.assertEqual(self.calls, [
            ("begin", "capture"), ("end", "pool"), ("begin", "segments"), ("begin", "pool"),
            ("end", "capture"), ("release", "pool")])

    def test_segments_begin_in_its_place(self):
        self.fails = None
        self.capture.begin()
        self.assertEqual(self.calls, [("begin", "capture"), ("end", "pool"), ("begin", "segments")])


if __name__ == "__main__":
    unittest.main()
