# SPDX-License-Identifier: MIT
"""Whether a generator of random numbers moved, told by the words that it keeps its state in."""

import random
import unittest
from unittest import mock

from reprise._base import generators
from reprise._effects.python_state import State

try:
    import numpy
    import numpy.random
except ImportError:
    numpy = None


class Marks(unittest.TestCase):
    def moves(self, made, change):
        before = generators.mark(made)
        self.assertIsNotNone(before)
        self.assertEqual(generators.mark(made), before)
        change()
        self.assertNotEqual(generators.mark(made), before)

    def test_pythons(self):
        made = random.Random(1)
        state = made.getstate()
        for draw in (made.random, lambda: made.getrandbits(1), lambda: made.gauss(0, 1), lambda: made.gauss(0, 1),
                     lambda: made.seed(2), lambda: made.setstate(state)):
            self.moves(made, draw)
        before = generators.mark(made)
        made.random()
        made.setstate(state)
        self.assertEqual(generators.mark(made), before)

    @unittest.skipIf(numpy is None, "needs NumPy")
    def test_numpys(self):
        made = numpy.random.RandomState(1)
        state = made.get_state()
        for draw in (made.random_sample, made.standard_normal, made.standard_normal, lambda: made.randint(5),
                     lambda: made.seed(2), lambda: made.set_state(state)):
            self.moves(made, draw)
        made.seed(0)
        made.standard_normal(2)
        self.moves(made, lambda: (made.seed(0), made.standard_normal()))  # its key and place are the same
        self.assertIsNone(generators.mark(numpy.random.RandomState(numpy.random.PCG64(1))))

    def test_others_are_asked(self):
        class Own(random.Random):
            pass
        self.assertIsNone(generators.mark(Own(1)))
        self.assertIsNone(generators.mark(None))

    def test_nothing_is_told_that_was_not_proved(self):
        with mock.patch.object(generators, "_words", lambda made, kind: b""):
            generators._tells_python.cache_clear()
            self.addCleanup(generators._tells_python.cache_clear)
            self.assertIsNone(generators.mark(random.Random(1)))

    def test_each_number_of_a_state_is_told(self):
        real = generators._words
        with mock.patch.object(generators, "_words", lambda made, kind: real(made, kind)[:-8] + bytes(8)):
            generators._tells_python.cache_clear()
            self.addCleanup(generators._tells_python.cache_clear)
            self.assertIsNone(generators.mark(random.Random(1)))

    @unittest.skipIf(numpy is None, "needs NumPy")
    def test_each_number_of_numpys_is_told(self):
        real = generators._words_of_numpy

        def all_but_one(made, numpy):
            words, bits, numbers = real(made, numpy)
            return words, bits, bytes(8) + numbers[8:]
        with mock.patch.object(generators, "_words_of_numpy", all_but_one):
            generators._tells_numpy.cache_clear()
            self.addCleanup(generators._tells_numpy.cache_clear)
            self.assertIsNone(generators.mark(numpy.random.RandomState(1)))

    def test_the_state_of_one_of_the_process_is_asked_once(self):
        made, asked = random.Random(1), []

        def get():
            asked.append(1)
            return made.getstate()
        with mock.patch.object(generators, "_of_process", lambda: [made]), mock.patch.dict(generators._states):
            first = generators.state_of(made, get)
            self.assertEqual(generators.state_of(made, get), first)
            self.assertEqual(len(asked), 1)
            made.random()
            self.assertNotEqual(generators.state_of(made, get)[0], first[0])
            made.setstate(first[0])
            self.assertEqual(generators.state_of(made, get)[0], first[0])
        before = len(asked)
        generators.state_of(made, get)
        generators.state_of(made, get)
        self.assertEqual(len(asked), before + 2, "others are not kept")

    def test_a_record_asks_where_the_words_moved(self):
        made = random.Random(1)
        asked = []

        def get():
            asked.append(1)
            return made.getstate()
        record = State(get, made.setstate, None, made)
        self.assertFalse(record.is_touched())
        self.assertEqual(len(asked), 1)
        made.random()
        self.assertTrue(record.is_touched())
        record.restore()
        self.assertFalse(record.is_touched())


if __name__ == "__main__":
    unittest.main()
