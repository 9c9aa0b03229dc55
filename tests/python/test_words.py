# SPDX-License-Identifier: MIT
"""Which generators a captured run draws from, that nobody named: told by kernels' parameters, and by what
PyTorch's allocator says of the places there."""

import types
import unittest
import weakref
from unittest import mock

from reprise import _C
from reprise._capture import draws
from reprise._capture.record import Work

WORDS = (0x1000, 0x1200), (0x2000, 0x2200), (0x3000, 0x3200)  # alive, of 8 bytes
LARGE, FREE, NOTHING = (0x4000, 0x4200), (0x5000, 0x5200), (1 << 40, 1 << 41)


class Graph:
    """PyTorch's."""


class Torch:
    """A PyTorch that has such memory. asked: how often it was to tell."""

    def __init__(self):
        self.asked = 0
        self.cuda = self

    def memory_snapshot(self):
        self.asked += 1
        blocks = [(address, 8, "active_allocated") for pair in WORDS for address in pair]
        blocks += [(address, 64, "active_allocated") for address in LARGE]
        blocks += [(address, 8, "inactive") for address in FREE]
        return [{"blocks": [{"address": address, "requested_size": nbytes, "state": state}]}
                for address, nbytes, state in blocks]


class Unnamed(unittest.TestCase):
    def setUp(self):
        self.torch = Torch()
        self.work = Work(self.torch, None, None, [], [])
        named = mock.patch.object(draws, "_named", weakref.WeakKeyDictionary())
        named.start()
        self.addCleanup(named.stop)

    def run_drawing(self, *pairs, ends=True):
        """A run whose kernels' parameters have these places; ends: it is not taken anew."""
        run = types.SimpleNamespace(capture=types.SimpleNamespace(words=pairs))
        self.work.runs.append(run)
        if ends:
            self.work._check_generators(run)

    def refused(self, *pairs):
        with self.assertRaisesRegex(_C.Error, r"generators=\[generator\]"):
            self.run_drawing(*pairs)

    def test_other_words_in_each_run_are_a_generators(self):
        self.run_drawing(WORDS[0])
        self.refused(WORDS[1])

    def test_the_same_words_in_each_run_are_the_callables(self):
        for _ in range(3):
            self.run_drawing(WORDS[0])
        self.assertEqual(self.torch.asked, 0)

    def test_what_is_no_tensor_of_one_number_that_is_alive_is_there_by_chance(self):
        self.run_drawing()
        for pair in (LARGE, FREE, NOTHING, (WORDS[0][0], LARGE[1]), (NOTHING[0], WORDS[0][1])):
            self.run_drawing(pair)
        self.refused(NOTHING, WORDS[0])

    def test_words_that_a_living_capture_named_are_there_by_chance(self):
        graph = Graph()
        draws._named[graph] = {WORDS[0][0]}
        self.run_drawing()
        self.run_drawing(WORDS[0])
        self.refused(WORDS[0], WORDS[1])
        del graph
        self.run_drawing()
        self.refused(WORDS[0])

    def test_rehearsals_that_were_for_nothing_tell_nothing(self):
        self.run_drawing(WORDS[1], ends=False)
        self.run_drawing(WORDS[0])
        self.run_drawing(WORDS[2], ends=False)
        self.run_drawing(WORDS[0])
        self.refused(WORDS[1])

    def test_places_in_arguments_are_no_words(self):
        self.run_drawing()
        self.work.ranges = [(WORDS[0][0], 8), (WORDS[1][1], 512)]
        self.run_drawing(WORDS[0], WORDS[1])
        self.refused(WORDS[2])


if __name__ == "__main__":
    unittest.main()
