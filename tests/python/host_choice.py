# SPDX-License-Identifier: MIT
"""Choices through the extension, on the host driver: when a graph's calls are settled."""

import gc
import time
import unittest
import weakref

from reprise import _C
from on_host import OnHost

EAGER, GRAPH, CAPTURE = range(3)


class Settling(OnHost):
    """Two shapes of a callable. Whatever way calls go, which is a matter of measured times, a graph's
    call is settled where the one before it was another's."""

    def setUp(self):
        super().setUp()
        self.judge = _C.Judge(0)
        self.shapes = [_C.Choice(self.judge) for _ in range(2)]
        self.settled = []
        self.latest = None  # the shape whose graph the latest call went by
        self.eager_seconds = 0

    def call(self, k, settle):
        """A call of a shape, captured where its choice asks for that; its way."""
        choice = self.shapes[k]
        turn = choice.begin(0, 0.0)
        if turn[0] == CAPTURE:
            choice.captured(True, 0.01, settle)
            turn = choice.begin(0, 0.0)
        if turn[0] == EAGER:
            time.sleep(self.eager_seconds)
        choice.end(turn, True)
        return turn[0]

    def check(self, k):
        before = len(self.settled)
        way = self.call(k, lambda: self.settled.append(k))
        expected = [k] if way == GRAPH and self.latest != k else []
        self.assertEqual(self.settled[before:], expected)
        self.latest = k if way == GRAPH else None
        return way

    def test_calls_of_two_shapes(self):
        ways = set()
        for i in range(400):
            ways.add((i // 3 % 2, self.check(i // 3 % 2)))
            if i % 100 == 50:
                self.judge.unsettle()
                self.latest = None
        self.assertTrue({(0, GRAPH), (1, GRAPH), (0, EAGER), (1, EAGER)} <= ways)

    def test_what_cannot_be_settled_is_tried_again(self):
        """Eager calls are slow, so that calls of the graph follow each other soon."""
        self.eager_seconds = 0.0005
        fails, tries = False, []

        def settle():
            tries.append(True)
            if fails:
                raise KeyError("mine")
        for _ in range(300):
            self.call(0, settle)
        self.judge.unsettle()
        fails = True
        with self.assertRaises(KeyError):
            for _ in range(300):
                self.call(0, settle)
        fails = False
        before = len(tries)
        while self.call(0, settle) != GRAPH:
            pass
        self.assertEqual(len(tries), before + 1, "it goes on as if it were settled")

    def test_one_that_its_settling_knows_is_collected(self):
        """A parameter's hook may know the callable, which has the choice."""
        class Holder:
            def settle(self):
                pass
        holder = Holder()
        holder.choice = _C.Choice(self.judge)
        holder.choice.captured(True, 0.01, holder.settle)
        gone = weakref.ref(holder)
        del holder
        gc.collect()
        self.assertIsNone(gone())

    def test_a_settling_may_replace_itself(self):
        """It may let other threads run, which capture the shape once more."""
        done = []

        def settle():
            self.shapes[0].captured(True, 0.01, lambda: done.append("other"))
            done.append("first")
        for _ in range(400):
            self.call(0, settle)
            if "other" in done:
                break
        self.assertEqual(done[0], "first")
        self.assertIn("other", done)


if __name__ == "__main__":
    unittest.main()
