# SPDX-License-Identifier: MIT
"""The order in which a pipeline runs its passes.

An order is a list of numbers: ``k`` is a forward pass of the k-th callable, ``-k`` a backward pass.
The n-th ``k`` is of microbatch n - 1 of that callable, and so is the n-th ``-k``: microbatches go
back in the order in which they came. ``-k - 0.5`` are weight gradients that the n-th backward pass left
for later.
"""

import math
import threading
from typing import NamedTuple


class Pass(NamedTuple):
    """One pass of one microbatch of one callable; both are counted from 0."""

    callable: int
    microbatch: int
    backward: bool
    weights: bool = False  # the weight gradients that its backward pass left for later

    def text(self, names):
        what = ("the weight gradients" if self.weights else
                f"the {'backward' if self.backward else 'forward'} pass")
        number = f"{'-' if self.backward else ''}{self.callable + 1}{'.5' if self.weights else ''}"
        return f"{what} of microbatch {self.microbatch} of '{names[self.callable]}' ({number})"


def is_half(number):
    """Does it stand for weight gradients, as -1.5 does?"""
    return isinstance(number, float) and number < 0 and math.ceil(number) - number == 0.5


def _refuse_number(place, number, callables):
    raise ValueError(f"order[{place}] is {number!r}, but has to be a number from 1 to {callables} "
                     "for a forward pass of that callable, its negative for a backward pass, or that and "
                     "-0.5 for the weight gradients of one")


def parse(order, callables):
    """The passes of an order, one after the other. Raises ValueError where it cannot be one."""
    passes = []
    begun, ended, weighed = ([0] * callables for _ in range(3))
    for place, number in enumerate(order):
        half = is_half(number)
        whole = math.ceil(number) if half else number
        if isinstance(whole, bool) or not isinstance(whole, int) or not 0 < abs(whole) <= callables:
            _refuse_number(place, number, callables)
        which, backward = abs(whole) - 1, number < 0
        count = weighed if half else ended if backward else begun
        if half and weighed[which] == ended[which]:
            raise ValueError(f"order[{place}] is {number}: no backward pass of callable {-whole} is "
                             "before it whose weight gradients are not there yet")
        if backward and not half and ended[which] == begun[which]:
            raise ValueError(f"order[{place}] is {number}: no forward pass of callable {-number} is "
                             "before it that has had no backward pass yet")
        passes.append(Pass(which, count[which], backward, half))
        count[which] += 1
    for which in range(callables):
        if begun[which] == 0 or begun[which] != ended[which]:
            raise ValueError(f"order has {begun[which]} forward and {ended[which]} backward passes of "
                             f"callable {which + 1}, but has to have as many of both, and at least one")
        if weighed[which] not in (0, ended[which]):
            raise ValueError(f"order has {ended[which]} backward passes of callable {which + 1}, and the weight "
                             f"gradients of {weighed[which]}: give {-which - 1.5} for each, or for none")
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
        return self._due_of(which, microbatch, False, f"a forward pass of '{self._names[which]}' ({which + 1})")

    def _due_of(self, which, microbatch, weights, what):
        due = self._passes[self._next]
        if (due.callable, due.backward, due.weights) != (which, weights, weights):
            self._refuse(what)
        if microbatch is not None and due.microbatch != microbatch:
            self._refuse(Pass(which, microbatch, weights, weights).text(self._names))
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

    def weights(self, which, microbatch=None):
        """Weight gradients of a callable come, of that microbatch where one is named: its microbatch."""
        with self._lock:
            what = f"a call of backward_dw() of '{self._names[which]}' ({-which - 1.5})"
            microbatch = self._due_of(which, microbatch, True, what)
            self._next = (self._next + 1) % len(self._passes)
            return microbatch
