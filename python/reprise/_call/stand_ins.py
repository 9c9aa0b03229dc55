# SPDX-License-Identifier: MIT
"""What a run finds in the objects among its arguments, in the place of the caller's tensors.

While a run takes, attributes and elements of the objects hold tensors at the run's addresses. Behind it the
caller's are there again, also behind an exception or Ctrl-C. Where the run put something else, that stays,
for _effects/effects.py to judge. Other threads that read the objects meanwhile find the run's tensors.
"""

from .. import _C
from .._base.interrupts import Interrupts
from .._effects.python_state import Elements, Mapping, Slotted
from .._reads.walk import ATTRIBUTES, LIST


class StandIns:
    """Those of one run."""

    def __init__(self):
        self._places = []  # (record, owner, key, the caller's tensor, the run's)

    def add(self, tensor, places, stand_in):
        """A tensor of the caller's, its places as _reads/walk.py has them, and the run's."""
        if tensor is None:
            raise _C.Error("a tensor of an object among the arguments was freed before the capture began")
        if tensor.__dict__:
            stand_in.__dict__.update(tensor.__dict__)
        for kind, owner, key in places:
            record = Slotted if kind == ATTRIBUTES else Elements if kind == LIST else Mapping
            self._places.append((record, owner, key, tensor, stand_in))

    def during(self, call):
        """What call() returns, which finds them. Ctrl-C acts within it alone."""
        if not self._places:
            return call()
        held = Interrupts()
        with held:
            try:
                self._put()
                with held.allowed():
                    return call()
            finally:
                for record, owner, key, tensor, stand_in in self._places:
                    if _held(record, owner, key) is stand_in:
                        record.put(owner, key, tensor)

    def _put(self):
        there = {}  # what an object that is two arguments was shown already
        for record, owner, key, tensor, stand_in in self._places:
            if _held(record, owner, key) is not there.get((id(owner), key), tensor):
                raise _C.Error("an object among the arguments changed while its call was captured")
            record.put(owner, key, stand_in)
            there[id(owner), key] = stand_in


def _held(record, owner, key):
    """What a place holds; None: it is there no more."""
    found = record.look(owner)
    if record is Elements:
        return found[key] if key < len(found) else None
    return found.get(key)
