# SPDX-License-Identifier: MIT
"""Objects that a run makes and returns, taken apart: each replay puts together one of its own.

An object stands here for its class and attributes, as copy.copy() would copy it:

    is taken apart    an object with a __dict__ whose class leaves making and copying to Python, with a tensor
                      in it, and which nobody but the result holds
    stays             any other: what was there before the run, what something keeps, what has slots, a
                      finalizer or ways of its own to be copied, what allows no weak reference

So a decoder's cache that each call makes, a record of tensors, a distribution are results like tuples are.
"""

import weakref

from .tree import Parts, flatten, unflatten

_WAYS = ("__reduce__", "__reduce_ex__", "__getattribute__", "__getstate__")
_NONE = ("__setstate__", "__copy__", "__deepcopy__", "__del__", "__getnewargs__", "__getnewargs_ex__")
_DEEPEST = 16


def _is_simple(kind):
    """Are its objects their attributes, and nothing else?"""
    return (not issubclass(kind, type) and kind.__new__ is object.__new__ and kind.__basicsize__ == _PLAIN_SIZE and
            kind.__dictoffset__ != 0 and kind.__weakrefoffset__ != 0 and
            all(getattr(kind, name, None) is getattr(object, name, None) for name in _WAYS) and
            not any(hasattr(kind, name) for name in _NONE))


class _Plain:
    """Has attributes, and may be referred to weakly."""


_PLAIN_SIZE = _Plain.__basicsize__


class _Candidate:
    """An object that may be taken apart; values: its attributes' (_apart)."""

    __slots__ = ("ref", "kind", "names", "values", "parts")

    def __init__(self, made):
        self.ref = weakref.ref(made)
        self.kind = type(made)
        self.names, self.values = (), ()
        self.parts = None


class _Apart:
    """One result, taken apart in two steps: what is held still, once the result is gone, stays."""

    def __init__(self, torch):
        self._torch, self._tensor = torch, torch.Tensor
        self._known = {}  # candidates by id of the object
        self._simple = {}
        self._count = 0
        self.found = False

    def first(self, value, depth=0):
        """The tree with candidates in it, and whether a tensor of the device is in it."""
        leaves, spec = flatten(value)
        has = False
        for k, leaf in enumerate(leaves):
            if isinstance(leaf, self._tensor):
                has = has or leaf.is_cuda
            elif self._takes(leaf):
                leaves[k], inside = self._candidate(leaf, depth)
                has = has or inside
        return unflatten(spec, leaves) if self.found else value, has

    def _takes(self, value):
        kind = type(value)
        if kind not in self._simple:
            self._simple[kind] = _is_simple(kind) and not issubclass(
                kind, (self._torch.nn.Module, self._torch.optim.Optimizer))
        return self._simple[kind]

    def _candidate(self, made, depth):
        if id(made) in self._known:
            return self._known[id(made)], False
        if depth == _DEEPEST:
            return made, False
        candidate = self._known[id(made)] = _Candidate(made)
        before, self.found = self.found, True  # within, all is copied: the object's own containers stay its own
        candidate.names = tuple(vars(made))
        values = [self.first(value, depth + 1) for value in vars(made).values()]
        candidate.values = tuple(value for value, _ in values)
        has = any(inside for _, inside in values)
        if not has:
            del self._known[id(made)]
            self.found = before
        return (candidate, True) if has else (made, False)

    def second(self, value):
        """The same with Parts, or with the objects that somebody holds."""
        leaves, spec = flatten(value)
        return unflatten(spec, [self._settled(leaf) if type(leaf) is _Candidate else leaf for leaf in leaves])

    def _settled(self, candidate):
        if candidate.parts is not None:
            return Parts(candidate.kind, candidate.parts, None, ())
        held = candidate.ref()
        if held is not None:
            return held
        candidate.parts = self._count
        self._count += 1
        return Parts(candidate.kind, candidate.parts, candidate.names, tuple(map(self.second, candidate.values)))


def taking_apart(torch, body):
    """The body, which returns Parts for the objects that it makes."""
    def run(placed):
        result = body(placed)
        apart = _Apart(torch)
        made, _ = apart.first(result)
        if not apart.found:
            return result
        del result
        return apart.second(made)
    return run
