# SPDX-License-Identifier: MIT
"""What the calls of a captured shape assign beside their results, and how the fast path does it."""

import functools

from .._base.tree import flatten, unflatten
from .containers import Filled, Within
from .growth import Step
from .python_state import FoundSlot, Mapping, Names, is_plain
from .unread import UnreadSlot

MOST_NAMED = 3  # places that a text names
HOW = {"set": 0, "added": 1, "made": 2}  # as csrc/call/shape.h has it; of what is made beside the result, the number


class Constant:
    """A leaf of what a run assigned: the same at each call."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Same:
    """A leaf of what a run assigned: a leaf of its result, by number."""

    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number


def kind_of(torch, value):
    """What a place has to hold for a replay to be right that was captured when it held this value."""
    if is_plain(value):
        return ("value", type(value), repr(value))
    leaves, spec = flatten(value)
    return (spec, tuple(_kind_of_leaf(torch, leaf) for leaf in leaves))


def _kind_of_leaf(torch, leaf):
    if isinstance(leaf, torch.Tensor):
        return (type(leaf), leaf.shape, leaf.dtype, leaf.device)
    return ("value", type(leaf), repr(leaf)) if is_plain(leaf) else ("object", id(leaf))


def _is_set_at_once(slot):
    """Does its value go into a dict, whatever is there but for the number that a step adds to?"""
    plainly = slot.slot if type(slot) is Step else slot
    return (type(slot) is Step or type(slot) is UnreadSlot) and type(plainly.owner) is dict and (
        plainly.record in (Mapping, Names))


class Assignments:
    """What the calls of a captured shape assign beside their results. values: what they put in the slots, the same at
    each call; None: the graph makes it."""

    def __init__(self, torch, slots, values=None):
        self.torch = torch
        self.slots = slots
        self._values = values
        self.fills = any(type(slot) is Filled for slot, _ in slots)
        self.misfits = 0  # calls that found something else there

    def __str__(self):
        return " and ".join(f"'{slot.path}'" for slot, _ in self.slots[:MOST_NAMED])

    def fit(self, arguments=()):
        """Do the places hold what they held before the capture, or what a call left there? arguments: of
        the call, those that are no tensors, and where this fills some the containers behind them."""
        kind_here = functools.partial(kind_of, self.torch)
        return all(slot.of(arguments).fits(kind_here, kind) for slot, kind in self.slots)

    def is_sure(self):
        """Does fit() hold whatever is there?"""
        return all(type(slot) is UnreadSlot for slot, _ in self.slots)

    def are_found(self):
        """May what sets() gives be elsewhere, as the program puts other objects there?"""
        return any(FoundSlot in (type(slot), type(getattr(slot, "slot", None))) for slot, _ in self.slots)

    def sets(self):
        """For the fast path, of each thing that calls set, one after the other: the dict, the key, the value, and HOW;
        None: that is not all there is to it."""
        slots = [slot.of() if type(slot) is FoundSlot else slot for slot, _ in self.slots]
        if not all(map(_is_set_at_once, slots)) or (self._values is None and not all(type(s) is UnreadSlot for s in slots)):
            return None
        found = []
        for number, slot in enumerate(slots):
            how = ("made", number) if self._values is None else (
                ("added", slot.by) if type(slot) is Step else ("set", self._values[number]))
            found += slot.owner, slot.key, how[1], HOW[how[0]]
        return tuple(found)

    @staticmethod
    def told(result):
        """A leaf of what the graph makes, as the fast path takes it."""
        if result[0] == "value" and type(result[1]) is Constant:
            return "value", result[1].value
        return ("again", result[1].number) if result[0] == "value" and type(result[1]) is Same else result

    def deliver(self, made, arguments=()):
        """Assigns, and returns the result of the call. made: that, with what the graph makes beside it."""
        if self._values is not None:
            for (slot, _), value in zip(self.slots, self._values):
                slot.of(arguments).put(value)
            return made
        result, values = made
        leaves = None
        for (slot, _), value in zip(self.slots, values):
            parts, spec = flatten(value)
            for i, part in enumerate(parts):
                if type(part) is Constant:
                    parts[i] = part.value
                elif type(part) is Within:
                    parts[i] = arguments[part.number]
                elif type(part) is Same:
                    leaves = flatten(result)[0] if leaves is None else leaves
                    parts[i] = leaves[part.number]
            slot.of(arguments).put(unflatten(spec, parts))
        return result
