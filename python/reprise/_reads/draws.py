# SPDX-License-Identifier: MIT
"""Numbers that `random.random()` gives a callable, drawn by its replays.

In the runs of a capture the function in the module `random` gives Scalars (scalars.py), so nothing is drawn.
A replay draws as many numbers as a run asked for, in that order, ahead of its launch, and writes what is
computed from them into kernels' parameters. So the generator goes on as eager calls have it, and the numbers
are those that eager calls would have got. Other threads get numbers of the generator's all the while.
"""

import contextlib
import random
import threading

from .scalars import POSITIVE

_NAME = "random"
_draw = random.random


def is_draw(function):
    """Is it the function that replays can call?"""
    return function == _draw


def key_of(number):
    """Where a seat has the number of this draw."""
    return ("draw", number)


def draw_into(seat, count):
    """Draws what a replay needs."""
    for number in range(count):
        seat[key_of(number)] = _draw()


@contextlib.contextmanager
def _instead(give):
    """Another function in the place of random.random, for this thread."""
    thread, before = threading.get_ident(), vars(random)[_NAME]

    def stand_in():
        return give() if threading.get_ident() == thread else before()
    vars(random)[_NAME] = stand_in
    try:
        yield
    finally:
        if vars(random)[_NAME] is stand_in:
            vars(random)[_NAME] = before


def given_again(seat, count):
    """Within an eager call: the numbers that were drawn for a replay come first."""
    left = [seat[key_of(number)] for number in range(count)]
    return _instead(lambda: left.pop(0) if left else _draw()) if count else contextlib.nullcontext()


class Draws:
    """Those of one capture. seat: where its replays find the numbers."""

    def __init__(self, seat):
        self.seat = seat
        self.count = 0  # in the latest run

    def during(self, trace, first):
        """Within a run: its numbers are inputs of the trace, from this number on."""
        self.count = 0

        def give():
            self.count += 1
            return trace.given(first + self.count - 1, POSITIVE)
        return _instead(give)

    def places(self):
        """As _C.Scalars takes them."""
        for number in range(self.count):
            self.seat[key_of(number)] = 0.3  # until the first replay
        return tuple((self.seat, key_of(number), -1, POSITIVE, None) for number in range(self.count))
