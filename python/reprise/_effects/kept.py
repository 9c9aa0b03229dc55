# SPDX-License-Identifier: MIT
"""The records of a capture, for the next one of the same callable.

A capture looks for all that its runs may change, which for a transformer takes as long as a run. Where it found
no change, the next capture of the same object takes its records, if nothing of what they know is another by
then, and nothing that led the walk on: functions, objects, names of globals, what classes inherit from. What is
filled as it goes, caches of functions and the states of random numbers, is looked at anew.

What is kept so is the program's, so it is kept as long as captures follow each other: a replay lets go of it. And
where it has memory of the device, its watched modules have that too.
"""

import enum
import logging
import threading
import types
import weakref
from contextvars import ContextVar

from .. import _C
from .._base.torch_private import GRADIENT_HOOKS
from .python_state import Body, Cell, Elements, Empties, Mapping, Members, Memo, Names, Pointing, Slotted, is_plain

MOST_CALLS = 3  # that go through Python until it is let go
_KINDS = frozenset((Mapping, Elements, Members, Pointing, Cell, Body, Names, Memo, Empties, Slotted))
_ATOMS = (types.ModuleType, enum.Enum, logging.Filterer, logging.Formatter, types.CodeType, types.GenericAlias,
          types.UnionType, ContextVar, type(threading.Lock()), type(threading.RLock()))
_MODULES = frozenset(("builtins", "typing", "re", "types"))
_OF_TORCH = frozenset(("torch.dtype", "torch.device", "torch.layout", "torch.memory_format")) | frozenset(
    f"torch.autograd.grad_mode.{name}" for name in ("no_grad", "enable_grad", "set_grad_enabled", "inference_mode"))
_kept: weakref.WeakValueDictionary[int, object] = weakref.WeakValueDictionary()  # by the id of a callable


def _is_harmless(kind):
    """Does no object of a type that is not looked into have memory of the device?"""
    return issubclass(kind, _ATOMS) or kind.__module__ in _MODULES or f"{kind.__module__}.{kind.__name__}" in _OF_TORCH


class Kept:
    """What a walk found from a callable. The records are a capture's while it takes."""

    def __init__(self, fn, reach):
        self.fn = fn
        self._records = None
        self._own = list(reach.records)
        self._tensors = None
        names, classes = [], []
        for space in reach.spaces():
            names += (space.owner, list(space.owner))
        for record in self._own:
            if type(record) is Body:
                classes += (record.owner, record.owner.__mro__)
        self._noted = (reach.functions, reach.objects, names, classes)

    @staticmethod
    def may_be(reach):
        """Is what a walk found to be kept, as far as types tell?"""
        return reach.functions is not None and _KINDS.issuperset(map(type, reach.records)) and all(
            look is not None or _is_harmless(kind) for kind, look in reach.met())

    def put(self, watched):
        """Behind a capture that changed nothing. watched: tensors that somebody else keeps. Is it kept now?"""
        known = set(map(id, watched))
        if self._tensors is None:
            self._tensors = [record for record in self._own if type(record) is Pointing]
        if not all(id(r.owner) in known and r.alike is not None for r in self._tensors):
            return False
        for record in self._tensors:  # where memory is replaced, the one before is the program's to free
            record.held = (None, *record.held[1:])
        for record in self._own:
            if type(record) is Memo:
                record.let_go()
        self._records = self._own
        _kept[id(self.fn)] = self
        return True

    def take(self):
        """The records, where all is as it was; None: it is not, and what was kept is of no use."""
        records, self._records = self._records, None
        if records is None or not _C.is_as_reached(*self._noted):
            return None
        if any(getattr(record.owner, name, None) for record in self._tensors for name in GRADIENT_HOOKS):
            return None
        count = len(records)
        filled = _C.touched(records)  # which puts records of dicts that were empty behind the others
        if len(records) != count or not all(type(record) is Memo for record in filled):
            return None
        for record in records:
            if type(record) is Memo:
                record.hold()
        for record in self._tensors:
            record.held = (record.owner.detach(), *record.held[1:])
        return list(records)


def found_for(fn, arguments):
    """The Kept of an earlier capture of the same object, and its records; (None, None): there are none."""
    found = _kept.pop(id(fn), None)
    if found is None or found.fn is not fn or not are_plain(arguments):
        return None, None
    records = found.take()
    return (found, records) if records is not None else (None, None)


def are_plain(arguments):
    """Do arguments, as Effects has them, lead to nothing?"""
    return all(is_plain(value) for _, value in arguments)
