# SPDX-License-Identifier: MIT
"""What reprise.record makes of what it noted: events with their terminals, without PyTorch."""

import unittest

from reprise._capture import recording
from reprise._capture.recording import _ALLOC, _FREE, _MOMENT, _USE, _describe

HERE, SIDE = 0x10, 0x20
A, B, C = 0x1000, 0x2000, 0x3000
MARK = 0x9000
N = [0x500, 0x501, 0x502, 0x503]
NODES = [(n, 0) for n in N]
EDGES = [(N[0], N[1], 0), (N[0], N[2], 0), (N[1], N[3], 1)]


def at(**streams):
    """Terminals of a moment: here=[0], side=[] by the numbers of nodes."""
    handles = {"here": HERE, "side": SIDE}
    return tuple((handles[name], N[node] if node is not None else 0)
                 for name, nodes in streams.items() for node in (nodes or [None]))


class Described(unittest.TestCase):
    def events(self, noted):
        return _describe((NODES, EDGES), noted)["events"]

    def test_graph(self):
        made = _describe(([*NODES[:2], (N[2], 2), (N[3], 99)], EDGES), [])
        self.assertEqual(made["nodes"], ["kernel", "kernel", "memset", "kind 99"])
        self.assertEqual(made["edges"], [[0, 1], [0, 2], [1, 3, "programmatic"]])
        self.assertEqual((made["streams"], made["events"]), (1, []))

    def test_a_free_is_behind_all_that_used_it(self):
        noted = [(_ALLOC, A, 100, HERE, at(here=[])), (_USE, A, 0, SIDE, at(here=[0], side=[0])),
                 (_USE, A, 0, SIDE, at(here=[0], side=[0])),
                 (_FREE, A, 100, 0, at(here=[1], side=[2]))]
        self.assertEqual(self.events(noted), [["alloc", 0, 100, 0, []], ["use", 0, 1], ["use", 0, 1],
                                              ["free", 0, 0, [1, 2]]])

    def test_a_stream_that_has_begun_with_nothing_says_nothing(self):
        noted = [(_ALLOC, A, 100, HERE, at(here=[])), (_USE, A, 0, SIDE, at(here=[0], side=[])),
                 (_FREE, A, 100, 0, at(here=[1], side=[]))]
        self.assertEqual(self.events(noted)[-1], ["free", 0, 0, []])
        noted[-1] = (_FREE, A, 100, 0, at(here=[1]))  # not in the capture any more
        self.assertEqual(self.events(noted)[-1], ["free", 0, 0, []])

    def test_what_is_not_of_the_capture(self):
        noted = [(_FREE, A, 100, 0, at(here=[0])), (_USE, A, 0, HERE, at(here=[0])),
                 (_ALLOC, A, 100, SIDE, at(here=[0])), (_FREE, A, 100, 0, at(here=[0])),
                 (_MOMENT, 0, 0, HERE, at(here=[0]))]
        self.assertEqual(self.events(noted), [])

    def test_an_address_that_comes_again_is_another_block(self):
        noted = [(_ALLOC, A, 100, HERE, at(here=[])), (_FREE, A, 100, 0, at(here=[0])),
                 (_ALLOC, A, 60, HERE, at(here=[0]))]
        self.assertEqual(self.events(noted), [["alloc", 0, 100, 0, []], ["free", 0, 0, [0]],
                                              ["alloc", 1, 60, 0, [0]]])


class Histories(unittest.TestCase):
    """PyTorch's history, in which moments are marked."""

    def history(self, entries, uses=(), moments=3):
        made = object.__new__(recording._History)
        made.entries = [dict(zip(("action", "addr", "size", "stream"), e)) for e in entries]
        made.uses = list(uses)
        made.moments = [(MARK, number, len(made.uses) if number else 0) for number in range(moments)]
        made.noted = [(_MOMENT, 0, 0, HERE, at(here=[number])) for number in range(moments)]
        return made

    MARKED = [("alloc", MARK, recording._MARK, HERE), ("free_requested", MARK, recording._MARK, HERE),
              ("free_completed", MARK, recording._MARK, HERE)]

    def test_begins_at_the_moment_before_and_ends_at_the_one_behind(self):
        made = self.history([("alloc", C, 8, HERE), *self.MARKED, ("segment_alloc", A, 4096, HERE),
                             ("alloc", A, 100, HERE), ("free_requested", A, 100, HERE),
                             ("free_completed", A, 100, HERE), *self.MARKED,
                             ("alloc", B, 50, HERE), *self.MARKED, ("alloc", C, 8, HERE)])
        told = [e for e in made.events() if e[1] != MARK]
        self.assertEqual(told, [(_ALLOC, A, 100, HERE, at(here=[0])),
                                (_FREE, A, 100, 0, at(here=[1])),
                                (_ALLOC, B, 50, HERE, at(here=[1]))])

    def test_uses_are_told_at_their_moment(self):
        made = self.history([*self.MARKED, ("alloc", A, 100, HERE), *self.MARKED, *self.MARKED],
                            uses=[(A, SIDE)])
        told = [e for e in made.events() if e[1] != MARK]
        self.assertEqual(told, [(_ALLOC, A, 100, HERE, at(here=[0])),
                                (_USE, A, 0, SIDE, at(here=[1]))])

    def test_a_history_that_was_cut(self):
        with self.assertRaisesRegex(recording._C.Error, "has 2 of 3 marks"):
            self.history([*self.MARKED, *self.MARKED]).events()


if __name__ == "__main__":
    unittest.main()
