# SPDX-License-Identifier: MIT
"""Calls that are made eagerly without a look at what they depend on.

A look (the key of a call) reads all that the callable reads, and walks it anew where the call changed that:
more than an eager call may take. Where looks find time after time that a call cannot be captured, like calls
rest: they are eager, and one is looked at again behind 32 of them, then behind twice as many, up to 4,096. So
what keeps it from being captured may go away.

    like     calls whose arguments are alike: shapes, types and plain values, in the same modes of PyTorch
    all      calls of which no like one was captured, where each is another: new sizes at every call
"""

import collections

from .._reads.walk import is_plain, plain_token
from .watch import registrations

FIRST_REST = 32
MOST_REST = 4096
LOOKS = 2            # that find the same before like calls rest
LOOKS_CAPTURED = 64  # where a like call was captured once: what it reads may decide
MOST_STIRS = 16      # looks for modules or parameters that were registered, which may be others' own
_MOST_LIKES = 1024   # that are remembered


class _Rest:
    __slots__ = ("looks", "left", "next")

    def __init__(self):
        self.looks = self.left = 0
        self.next = FIRST_REST


class Rests:
    """Those of one callable.

    Attributes:
        holds (bool): Has any call to be asked for?
    """

    def __init__(self, torch):
        self._torch = torch
        self._rests = collections.OrderedDict()
        self.clear()

    def clear(self):
        self.holds = False
        self._rests.clear()
        self._captured = set()
        self._left = 0  # of all that none like was captured of
        self._next = FIRST_REST
        self._stirs = 0
        self._seen = registrations()

    # ---- Calls ----

    def take(self, leaves, spec):
        """Is this call to be eager without a look?"""
        if self._seen != registrations() and self._stirs < MOST_STIRS:
            self._look_again()
            return False
        if self._left > 0 and not self._captured:
            self._left -= 1
            return True
        like, kinds = self._likes(leaves, spec)
        for rest in (self._rests.get(like), self._rests.get(kinds)):
            if rest is not None and rest.left > 0:
                rest.left -= 1
                return True
        if self._left > 0 and like not in self._captured:
            self._left -= 1
            return True
        return False

    def _look_again(self):
        self._seen = registrations()
        self._stirs += 1
        self._left = 0
        for rest in list(self._rests.values()):
            rest.left = 0

    def note(self, leaves, spec, any_values=False):
        """A look found that this call cannot be captured; any_values: whatever its plain values are."""
        like, kinds = self._likes(leaves, spec)
        rest = self._of(kinds if any_values else like)
        rest.looks += 1
        if rest.looks >= (LOOKS_CAPTURED if like in self._captured and not any_values else LOOKS):
            rest.left, rest.next = rest.next, min(2 * rest.next, MOST_REST)

    def note_for(self, leaves, spec, calls):
        """So many like calls need no look."""
        self._of(self._likes(leaves, spec)[0]).left = calls

    def rest_all(self, most=MOST_REST):
        """Calls that none like was captured of rest, at most so many; returns how many."""
        self._left = min(self._next, most)
        self._next = min(2 * self._next, MOST_REST)
        self.holds = True
        return self._left

    def stir(self):
        """Calls that none like was captured of rest no more."""
        self._left, self._next = 0, FIRST_REST

    def captured(self, leaves, spec):
        """A graph of such a call was made."""
        like, kinds = self._likes(leaves, spec)
        if len(self._captured) >= _MOST_LIKES:
            self._captured.clear()
        self._captured.add(like)
        self._stirs = 0
        self.stir()
        self.replayed(leaves, spec)

    def replayed(self, leaves, spec):
        """A look found a graph for such a call."""
        for like in self._likes(leaves, spec):
            self._rests.pop(like, None)

    def _of(self, like):
        rest = self._rests.get(like)
        if rest is None:
            rest = self._rests[like] = _Rest()
            if len(self._rests) > _MOST_LIKES:
                self._rests.popitem(last=False)
        self.holds = True
        return rest

    def _likes(self, leaves, spec):
        """(what like calls have in common, what calls have that are alike but for plain values)."""
        torch = self._torch
        of_tensor, of_param = torch.Tensor, torch.nn.Parameter
        kinds, values = [], []
        for leaf in leaves:
            kind = type(leaf)
            if kind is of_tensor or kind is of_param:
                kinds += (None if leaf.is_nested else leaf.shape, leaf.dtype, leaf.is_cuda, leaf.requires_grad)
            else:
                kinds.append(kind)
                if is_plain(leaf) and kind not in (slice, range):
                    values.append(plain_token(leaf))
        like = (spec, *kinds, torch.is_grad_enabled(), torch.is_inference_mode_enabled(),
                torch.is_autocast_enabled("cuda"))
        return (like, *values), like
