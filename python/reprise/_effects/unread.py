# SPDX-License-Identifier: MIT
"""Attributes and globals that code sets and nobody reads: what a run puts there shows, also where it was there before.

A capture finds what its runs change. A module that notes the shape of its last input sets the same number that it set
at the call before, so nothing changed, and yet replays have to set it: between two of them a call of another shape
does. So during the runs such a place holds a stand-in, and whatever is there in its stead was set.

No code of the program's looks there (_reads/places.py). Whoever does so all the same, as another thread that logs, gets
from the stand-in what the program has there.
"""

import copy
import enum
import math
import operator
import types

from .._base.tree import flatten
from .python_state import ABSENT, Body, Mapping, Names, Slot, Slotted, is_plain

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
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


# Of these types are stand-ins subclasses, which C code takes too.
_KINDS = {kind: type(f"_{kind.__name__}", (kind,), {"__reduce__": lambda self, kind=kind: (kind, (kind(self),))})
          for kind in (int, float, complex, str, bytes, tuple)}


def stand_in_for(value):
    kind = _KINDS.get(type(value))
    return kind(value) if kind is not None else StandIn(value)


def is_one(value):
    """Is it a stand-in?"""
    return type(value) is StandIn or type(value) in _KINDS.values()


def _answering(name, ask):
    def method(self, *args):
        return ask(self.own, *args)
    method.__name__ = name
    return method


def _swapped(ask):
    return lambda own, other: ask(other, own)


def _found(name):
    return lambda own, *args: getattr(own, name)(*args)


_TWO = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and_", "or_", "xor")
_ONE = ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "abs", "invert", "index", "getitem", "contains")
_BUILT = {"hash": hash, "bool": bool, "repr": repr, "str": str, "len": len, "iter": iter, "reversed": reversed, "int": int,
          "float": float, "complex": complex, "format": format, "dir": dir, "divmod": divmod, "round": round,
          "copy": copy.copy, "deepcopy": copy.deepcopy, "trunc": math.trunc, "floor": math.floor, "ceil": math.ceil}
_ANSWERS = {**{name: getattr(operator, name) for name in (*_TWO, *_ONE)}, **_BUILT,
            **{f"r{name}": _swapped(getattr(operator, name)) for name in _TWO}, "rdivmod": _swapped(divmod),
            "reduce_ex": _found("__reduce_ex__"), "sizeof": _found("__sizeof__"), "call": _found("__call__")}
for _name, _ask in _ANSWERS.items():
    _name = f"__{_name.rstrip('_')}__"
    setattr(StandIn, _name, _answering(_name, _ask))


def is_made_of_plain(value):
    """Is it a plain value, or lists, tuples and dicts of such?"""
    return value is not ABSENT and all(map(is_plain, flatten(value)[0]))


def is_constant(value):
    """Is it what calls can set as it is, one object for all: a plain value, a member of an Enum, or a function?"""
    return is_plain(value) or isinstance(value, enum.Enum) or type(value) in _FUNCTIONS


def containers_in(value):
    """The lists, tuples and dicts in a value, itself among them."""
    found, ahead = [], [value]
    while ahead:
        value = ahead.pop()
        if type(value) in (list, tuple, dict):
            found.append(value)
            ahead += value.values() if type(value) is dict else value
    return found


def slots_for(records, places):
    """The slots of such places among what these records are of, each beside its record. places: a Places, or None."""
    names = places.set_alone() if places is not None else None
    if not names:
        return []
    slots = {(id(record.owner), key): (record, record.slot(key)) for record in records if has_attributes(record)
             for key in names.intersection(record.held) if _may_be_covered(record, record.held[key])}
    return [found for found in slots.values() if not places.tell(found[1].owner, found[1].key)]


def _may_be_covered(record, value):
    """That a tensor is another one shows by itself. What else is in a class may be a method or a descriptor."""
    return is_made_of_plain(value) or (type(record) is not Body and not hasattr(type(value), "untyped_storage"))


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
            own = slot.get()
            stand_in = stand_in_for(own)
            self._stand_ins.append((stand_in, own))
            slot.put(stand_in)

    def take_away(self):
        """Puts the program's values back where nobody set another one; returns the other (record, slot)."""
        found = []
        for (record, slot), (stand_in, own) in zip(self._slots, self._stand_ins):
            if slot.get() is stand_in:
                slot.put(own)
            else:
                found.append((record, slot))
        self._stand_ins = []
        return found
