# SPDX-License-Identifier: MIT
"""Layouts that are moved and timed, without a GPU: which place is kept, and what is left as it was."""

import threading
import types
import unittest
from unittest import mock

from fake_fast_path import give_fast_path
from reprise import _C
from reprise._call.graphed import Graphed
from reprise._call.policy import Ungraphed
from reprise._shapes.shape import Shape

KEY = ("what", None)


class Clock:
    us = 0.0


class Event:
    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = Clock.us

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return (end.at - self.at) / 1000


class Played(Shape):
    """Whose calls take so long, now and then longer."""

    def __init__(self, lead, us):
        self.lead, self.us, self.calls = lead, us, 0

    def replay(self, tensors):
        self.calls += 1
        Clock.us += self.us + (5 if self.calls % 13 == 0 else 0)


class Tuned(unittest.TestCase):
    us = {0: 9, 4096: 7.5, 8192: 6, 12288: 8, 16384: 6.5}

    def setUp(self):
        self.made = made = Graphed.__new__(Graphed)
        made._fn, made._name = lambda: None, "subject"
        made._shapes, made._leads, made._lock = {}, {}, threading.RLock()
        give_fast_path(made)
        made._torch = types.SimpleNamespace(cuda=types.SimpleNamespace(
            Event=Event, device=lambda index: mock.MagicMock()))
        made._capture = self.capture
        self.captured = []
        self.first = self.played(0)
        made.captured = self.capture_one

    def played(self, lead):
        shape = Played(lead, self.us[lead])
        shape.device = "cuda:0"
        return shape

    def capture_one(self, args, kwargs):
        self.assertEqual((args, kwargs), ((1,), {"b": 2}))
        self.made._shapes[KEY] = self.first
        return self.first, KEY, (["leaves"], ["tensors"], "spec", True, None)

    def capture(self, key, *call):
        self.assertEqual((key, call), (KEY, (["leaves"], ["tensors"], "spec", True, None)))
        self.captured.append(self.played(self.made._leads[KEY[0]]))
        return self.captured[-1]

    def tune(self, **options):
        return self.made.tune(1, b=2, **options)

    def test_the_quickest_place_is_kept(self):
        told = self.tune(places=5)
        self.assertEqual([s.lead for s in self.captured], [4096, 8192, 12288, 16384])
        self.assertEqual(told, {"us": self.us, "lead_bytes": 8192})
        self.assertIs(self.made._shapes[KEY], self.captured[1])
        self.assertEqual(self.made._leads, {KEY[0]: 8192})

    def test_so_many_places_are_tried(self):
        for places, captured in ((1, 0), (2, 1), (4, 3)):
            self.captured.clear()
            self.assertEqual(len(self.tune(places=places)["us"]), places)
            self.assertEqual(len(self.captured), captured)
        with self.assertRaisesRegex(ValueError, "places is 0"):
            self.tune(places=0)
        self.first = self.played(16384)  # beyond those that are tried
        self.captured.clear()
        self.assertEqual(list(self.tune(places=2)["us"]), [16384, 0])
        self.assertEqual(len(self.captured), 1)

    def test_the_place_of_before_is_one_of_them(self):
        self.first = self.played(8192)
        self.us = dict(self.us)
        self.us[8192] = self.first.us = 1
        told = self.tune(places=3)
        self.assertEqual(list(told["us"]), [8192, 0, 4096])
        self.assertEqual(len(self.captured), 2)
        self.assertIs(self.made._shapes[KEY], self.first)
        self.assertEqual(told["lead_bytes"], 8192)

    def test_a_capture_that_fails_leaves_all_as_it_was(self):
        def capture(key, *call):
            if self.made._leads[KEY[0]] == 8192:
                raise RuntimeError("no memory")
            return self.capture(key, *call)
        self.made._capture = capture
        with self.assertRaisesRegex(RuntimeError, "no memory"):
            self.tune()
        self.assertIs(self.made._shapes[KEY], self.first)
        self.assertEqual(self.made._leads, {KEY[0]: 0})

    def test_what_cannot_be_tuned(self):
        self.first = types.SimpleNamespace(parts=tuple)  # forward and backward
        with self.assertRaisesRegex(_C.Error, "are two graphs for these arguments"):
            self.tune()
        never = Ungraphed.__new__(Ungraphed)
        never._name = "plain"
        with self.assertRaisesRegex(_C.Error, "'plain' has policy=\"never\""):
            never.tune(1)


if __name__ == "__main__":
    unittest.main()
