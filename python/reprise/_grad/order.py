# SPDX-License-Identifier: MIT
"""The order in which a pipeline runs its passes.

An order is a list of numbers: ``k`` is a forward pass of the k-th callable, ``-k`` a backward pass.
The n-th ``k`` is of microbatch n - 1 of that callable, and so is the n-th ``-k``: microbatches go
back in the order in which they came.
"""

import threading
from typing import NamedTuple


class Pass(NamedTuple):
    """One pass of one microbatch of one callable; both are counted from 0."""

    callable: int
    microbatch: int
    backward: bool

    def text(self, names):
        direction = "backward" if self.backward else "forward"
        return (f"the {direction} pass of microbatch {self.microbatch} of '{names[self.callable]}' "
                f"({'-' if self.backward else ''}{self.callable + 1})")


def parse(order, callables):
    """The passes of an order, one after the other. Raises ValueError where it cannot be one."""
    passes, begun, ended = [], [0] * callables, [0] * callables
    for place, number in enumerate(order):
        if isinstance(number, bool) or not isinstance(number, int) or not 0 < abs(number) <= callables:
            raise ValueError(f"order[{place}] is {number!r}, but has to be a number from 1 to {callables} "
                             "for a forward pass of that callable, or its negative for a backward pass")
        which, backward = abs(number) - 1, number < 0
        count = ended if backward else begun
        if backward and ended[which] == begun[which]:
            raise ValueError(f"order[{place}] is {number}: no forward pass of callable {-number} is "
                             "before it that has had no backward pass yet")
        passes.append(Pass(which, count[which], backward))
        count[which] += 1
    for which in range(callables):
        if begun[which] == 0 or begun[which] != ended[which]:
            raise ValueError(f"order has {begun[which]} forward and {ended[which]} backward passes of "
                             f"callable {which + 1}, but has to have as many of both, and at least one")
    return passes


class Schedule:
    """Where a pipeline is in its order, which it goes through again and again."""

    def __init__(self, passes, names):
        self._passes = passes
        self._names = names
        self._next = 0
        self._lock = threading.Lock()

    def _refuse(self, what):
        due = self._passes[self._next].text(self._names)
        self._next = 0
        raise RuntimeError(f"{what} is out of order: {due} is due. The graphs share memory in the order "
                           "that they were captured for. The next pass begins the order anew")

    def due(self, which, microbatch=None):
        """A forward pass of a callable comes, of that microbatch where one is named: its microbatch."""
        with self._lock:
            return self._due(which, microbatch)

    def _due(self, which, microbatch):
        due = self._passes[self._next]
        if due.callable != which or due.backward:
            self._refuse(f"a forward pass of '{self._names[which]}' ({which + 1})")
        if microbatch is not None and due.microbatch != microbatch:
            self._refuse(Pass(which, microbatch, False).text(self._names))
        return due.microbatch

    def forward(self, which, microbatch=None):
        """As due(), and it is under way from now on."""
        with self._lock:
            microbatch = self._due(which, microbatch)
            self._next = (self._next + 1) % len(self._passes)
            return microbatch

    def backward(self, which, microbatch):
        """A backward pass comes."""
        with self._lock:
            wanted = Pass(which, microbatch, True)
            if self._passes[self._next] != wanted:
                self._refuse(wanted.text(self._names))
            self._next = (self._next + 1) % len(self._passes)
