# SPDX-License-Identifier: MIT
"""Choices through the extension, on the host driver."""

import unittest

from reprise import _C
from on_host import OnHost

EAGER, GRAPH, CAPTURE = range(3)


class Choices(OnHost):
    def setUp(self):
        super().setUp()
        self.judge = _C.Judge(0)

    def call(self, choice):
        """A call of a shape, captured where its choice asks for that; its way."""
        turn = choice.begin(0, 0.0)
        if turn[0] == CAPTURE:
            choice.captured(True, 0.01)
            turn = choice.begin(0, 0.0)
        self.assertEqual(choice.turn(), turn)
        choice.end(turn, True)
        return turn[0]

    def test_calls_of_two_shapes(self):
        """Both ways are tried for either; which is kept is a matter of measured times."""
        shapes = [_C.Choice(self.judge) for _ in range(2)]
        ways = {(i // 3 % 2, self.call(shapes[i // 3 % 2])) for i in range(400)}
        self.assertTrue({(0, GRAPH), (1, GRAPH), (0, EAGER), (1, EAGER)} <= ways)
        for shape in shapes:
            self.assertGreater(shape.info()["judged_calls"], 150)

    def test_what_could_not_be_captured_stays_eager(self):
        choice = _C.Choice(self.judge)
        choice.captured(False, 1e9)  # tried once more behind eager calls of as long
        self.assertEqual({self.call(choice) for _ in range(50)}, {EAGER})


if __name__ == "__main__":
    unittest.main()
