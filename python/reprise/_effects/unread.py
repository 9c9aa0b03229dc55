# SPDX-License-Identifier: MIT
"""Attributes and globals that code sets and nobody reads: what a run puts there shows, also where it was there before.

A capture finds what its runs change. A module that notes the shape of its last input sets the same number that it set
at the call before, so nothing changed, and yet replays have to set it: between two of them a call of another shape
does. So during the runs such a place holds a stand-in, and whatever is there in its stead was set.

No code of the program's looks there (_reads/places.py). Whoever does so all the same, as another thread that logs, gets
from the stand-in what the program has there.
"""

import copy

from .._base.tree import flatten
from .python_state import ABSENT, Body, Mapping, Names, Slot, Slotted, is_plain

_ATTRIBUTE = "."  # the form of a Mapping of attributes


class UnreadSlot(Slot):
    """One whose value is set whatever is there."""

    __slots__ = ()

    @classmethod
    def like(cls, slot):
        return cls(slot.record, slot.owner, slot.key, slot.path)

    def fits(self, kind_of, kind):
        return True


class StandIn:
    """What is in such a place meanwhile. own: the program's value, as which it answers."""

    __slots__ = ("own",)

    def __init__(self, own):
        self.own = own

    @property  # type: ignore[misc]
    def __class__(self):
        return type(self.own)

    def __getattr__(self, name):
        return getattr(self.own, name)


def _answering(name, ask):
    def method(self, *args):
        return ask(self.own, *args)
    method.__name__ = name
    return method


def _by_method(name):
    return lambda own, *args: getattr(own, name)(*args)


for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__format__", "__len__", "__iter__", "__getitem__",
              "__contains__", "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__",
              "__rtruediv__", "__floordiv__", "__rfloordiv__", "__mod__", "__rmod__", "__pow__", "__rpow__", "__neg__",
              "__pos__", "__abs__", "__int__", "__float__", "__index__", "__and__", "__or__", "__xor__", "__reduce_ex__",
              "__round__", "__dir__", "__sizeof__", "__call__"):
    setattr(StandIn, _name, _answering(_name, _by_method(_name)))
for _name, _ask in (("__hash__", hash), ("__bool__", bool), ("__repr__", repr), ("__str__", str), ("__copy__", copy.copy),
                    ("__deepcopy__", copy.deepcopy)):
    setattr(StandIn, _name, _answering(_name, _ask))


def is_made_of_plain(value):
    """Is it a plain value, or lists, tuples and dicts of such?"""
    return value is not ABSENT and all(map(is_plain, flatten(value)[0]))


def slots_for(records, places):
    """The slots of such places among what these records are of, each beside its record. places: a Places, or None."""
    names = places.set_alone() if places is not None else None
    if not names:
        return []
    slots = {(id(record.owner), key): (record, record.slot(key)) for record in records if has_attributes(record)
             for key in names.intersection(record.held) if is_made_of_plain(record.held[key])}
    return [found for found in slots.values() if not places.looks_at(found[1].owner, found[1].key)]


def has_attributes(record):
    """Is it of attributes or globals, and none of what PyTorch registers?"""
    kind = type(record)
    return kind in (Names, Slotted, Body) or (kind is Mapping and record.form == _ATTRIBUTE and not record.registered)


class Covered:
    """Stand-ins in the places of these slots, from put() to take_away()."""

    def __init__(self, slots):
        self._slots = slots  # (record, slot) each
        self._stand_ins = []

    def put(self):
        for _, slot in self._slots:
            stand_in = StandIn(slot.get())
            self._stand_ins.append(stand_in)
            slot.put(stand_in)

    def take_away(self):
        """Puts the program's values back where nobody set another one; returns the other (record, slot)."""
        found = []
        for (record, slot), stand_in in zip(self._slots, self._stand_ins):
            there = slot.get()
            if there is stand_in:
                slot.put(stand_in.own)
            else:
                found.append((record, slot))
        self._stand_ins = []
        return found
