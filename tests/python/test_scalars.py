# SPDX-License-Identifier: MIT
"""Numbers that are followed through a run (_reads/scalars.py), and the program that computes them again at
each call (csrc/capture/scalars.c). The runs of captures are played by hand."""

import ctypes
import math
import struct
import unittest

from reprise import _C
from reprise._reads.scalars import COUNTER, FIXED, LARGE_NEGATIVE, LARGE_POSITIVE, NEGATIVE, POSITIVE, Scalar, \
    Trace, turn_of


def bias_correction(lr, beta, step):
    """As Adam has it."""
    return -(lr / (1 - beta ** step)) * 2 + 1.5


def correct(trace):
    """The body of a run."""
    bias_correction(trace.given(0, POSITIVE), trace.given(1, POSITIVE), trace.counted(0, 1, trace.start(0) + 1))


def traces(body, count=6):
    """Of the runs of a capture."""
    runs = []
    for _ in range(count):
        runs.append(Trace(runs))
        body(runs[-1])
    return runs


class Followed(unittest.TestCase):
    def setUp(self):
        self.trace = Trace()
        self.number = self.trace.given(0, POSITIVE)

    def test_it_is_the_number(self):
        self.assertIsInstance(self.number, float)
        self.assertEqual(struct.pack("d", self.number + 0), struct.pack("d", self.trace.values[0]))
        self.assertEqual(self.trace.escapes, [])

    def test_arithmetic_gives_others(self):
        values = [1 - self.number, self.number * 2.0, 3 / self.number, self.number ** 0.5, -self.number,
                  True + self.number]
        self.assertTrue(all(type(value) is Scalar for value in values))
        self.assertEqual(self.trace.escapes, [])

    def test_the_same_is_one_step(self):
        one = 1 - self.number
        count = len(self.trace.steps)
        self.assertEqual((1 - self.number).at, one.at)
        self.assertEqual(len(self.trace.steps), count)

    def test_a_comparison_with_0_is_allowed(self):
        self.assertTrue(self.number != 0 and self.number > 0.0 and self.number)
        self.assertEqual(self.trace.escapes, [])

    def test_other_uses_escape(self):
        uses = {"compared": lambda x: x > 0.5, "compared, computed": lambda x: (1 - x) != 0,
                "true": lambda x: bool(x * 2), "converted": float, "rounded": round, "whole": int,
                "hashed": hash, "written": str, "formatted": lambda x: f"{x:.3f}", "divided": lambda x: x // 2,
                "next to another": lambda x: x < Trace().given(0, POSITIVE), "complex": lambda x: (-x) ** 0.5}
        for name, use in uses.items():
            with self.subTest(name):
                trace = Trace()
                use(trace.given(0, POSITIVE))
                self.assertTrue(trace.escapes)

    def test_runs_have_other_numbers_far_apart(self):
        for index in range(50):
            given = [trace.given(index, POSITIVE) for trace in traces(lambda trace: None)]
            for one, other in zip(given[::2], given[1::2]):  # of each attempt
                self.assertGreater(max(one, other) / min(one, other), 1.2)
        self.assertLess(Trace().given(0, NEGATIVE), 0)

    def test_inverses_are_told_apart(self):
        """By one of two runs, wherever they can be."""
        def tells(x):
            def rounded(y):
                return struct.unpack("f", struct.pack("f", y))[0]
            return rounded(1 / x) != rounded(1 / rounded(x))
        runs = traces(correct)
        for before, after in zip(runs, runs[1:]):
            self.assertEqual(before.steps, after.steps)
            for at in before.named():
                if before.steps[at][0] == COUNTER:
                    continue
                self.assertTrue(tells(before.values[at]) or tells(after.values[at]), before.steps[at])

    def test_runs_have_one_of_two_sets_of_numbers(self):
        """The two of an attempt other ones; and the order has no period."""
        runs = traces(correct, 8)
        turns = [turn_of(i) for i in range(len(runs))]
        for i, one in enumerate(runs):
            for j, other in enumerate(runs):
                self.assertEqual(one.values == other.values, turns[i] == turns[j])
        self.assertTrue(all(first != second for first, second in zip(turns[::2], turns[1::2])))
        for period in range(1, 5):
            self.assertNotEqual(turns[period:], turns[:-period])


class Program(unittest.TestCase):
    def setUp(self):
        self.count = ctypes.c_float(7)
        self.group, self.state = {"lr": 0.01, "betas": (0.9, 0.99), "kind": None}, {"step": self.count}

    def made(self, places, steps=(), counters=(), checked=()):
        return _C.Scalars(tuple(places), tuple(counters), tuple(steps), tuple(range(len(steps))), checked)

    def test_places_fit(self):
        made = self.made([(self.group, "lr", -1, POSITIVE, None), (self.group, "betas", 1, POSITIVE, None),
                          (self.group, "kind", -1, FIXED, None)])
        self.assertTrue(made.fit())
        for key, value in (("lr", -0.1), ("lr", 0.0), ("lr", 1.0), ("lr", math.inf), ("lr", math.nan), ("lr", 1),
                           ("lr", None), ("betas", (0.9,)), ("betas", [0.9, 0.99]), ("kind", 0)):
            with self.subTest(key=key, value=value):
                before, self.group[key] = self.group[key], value
                self.assertFalse(made.fit())
                self.group[key] = before
                self.assertTrue(made.fit())
        del self.group["lr"]
        self.assertFalse(made.fit())

    def test_a_fixed_number_is_compared_to_the_bit(self):
        self.group["lr"] = 0.0
        made = self.made([(self.group, "lr", -1, FIXED, 0.0)])
        self.group["lr"] = -1.0 + 1.0
        self.assertTrue(made.fit())
        self.group["lr"] = -0.0
        self.assertFalse(made.fit())

    def test_what_is_not_finite_does_not_fit(self):
        trace = Trace()
        _ = 1 / (trace.given(0, POSITIVE) - 0.25)
        made = self.made([(self.group, "lr", -1, POSITIVE, None)], trace.steps)
        self.assertTrue(made.fit())
        self.group["lr"] = 0.25
        self.assertFalse(made.fit())

    def test_steps_that_are_checked(self):
        """They are no numbers that work may be chosen by, nor such as no float holds."""
        trace = Trace()
        _ = trace.given(0, POSITIVE) * 2 + 0.5
        place = (self.group, "lr", -1, POSITIVE, None)
        self.assertEqual(trace.steps_from(0), (0, 2, 4))
        self.assertEqual(trace.steps_from(1), ())
        free = self.made([place], trace.steps)
        checked = self.made([place], trace.steps, (), trace.steps_from(0))
        for number, fits in ((0.3, True), (0.25, False), (0.75, False), (0.3, True)):
            with self.subTest(number):
                self.group["lr"] = number
                self.assertTrue(free.fit())
                self.assertEqual((checked.fit(), checked.special()), (fits, not fits))
        for number in (1.0, 1.5):  # the place does not fit
            self.group["lr"] = number
            self.assertEqual((checked.fit(), checked.special()), (False, False))
        large = self.made([(self.group, "lr", -1, LARGE_POSITIVE, None)], trace.steps, (), trace.steps_from(0))
        for number, fits in ((1.7, True), (1e39, False), (1.7, True)):
            self.group["lr"] = number
            self.assertEqual((large.fit(), large.special()), (fits, not fits))

    def test_cells(self):
        number = 0.3
        (cell,) = (lambda: number).__closure__
        made = self.made([(cell, "cell_contents", -1, POSITIVE, None)])
        self.assertTrue(made.fit())
        number = "0.3"
        self.assertFalse(made.fit())
        del number
        self.assertFalse(made.fit())
        with self.assertRaises(TypeError):
            self.made([(cell, "cell_contents", 0, POSITIVE, None)])

    def test_counters_that_stand_apart_do_not_fit(self):
        other = ctypes.c_float(7)
        state = {"step": other}
        counters = [(owner, "step", held, ctypes.addressof(held), False, 1.0, 0)
                    for owner, held in ((self.state, self.count), (state, other))]
        made = self.made([], (), counters)
        self.assertTrue(made.fit())
        other.value = 8
        self.assertFalse(made.fit())
        other.value = 7
        state["step"] = ctypes.c_float(7)  # another tensor
        self.assertFalse(made.fit())

    def test_mistakes_are_refused(self):
        place = (self.group, "lr", -1, POSITIVE, None)
        for steps in ([(1, 1, 0, 0.0)], [(3, 0, 0, 0.0)], [(9, 0, 0, 0.0)], [(-1, 0, 0, 0.0)], [(2, 0, 0, 0.0)]):
            with self.subTest(steps), self.assertRaises(ValueError):
                self.made([place], steps)
        for named, checked in (((0,), ()), ((), (0,))):
            with self.assertRaises(ValueError):
                _C.Scalars((place,), (), (), named, checked)

    def test_kinds(self):
        self.assertEqual([_C.scalar_kind(x) for x in (0.1, -0.1, 0.0, 1.0, -0.5, math.nan, 1.1, -7.0)],
                         [POSITIVE, NEGATIVE, FIXED, FIXED, FIXED, FIXED, LARGE_POSITIVE, LARGE_NEGATIVE])


if __name__ == "__main__":
    unittest.main()
