# SPDX-License-Identifier: MIT
"""Objects among the arguments of calls: what tells their calls apart, and the tensors that they bring.

An object is walked as the callable is (_reads/walk.py). Its structure (classes, names, plain values, shapes of
tensors) becomes a number, the same for all objects that have the same. Tensors of the device are bound
at each call, as those are which are arguments themselves, where a run can be shown others in their place:
in attributes of objects, and as elements of dicts and lists. All others are told by where they lie, also
those in memory that the callable has beside its arguments.

What was found is kept as long as the program has the object, which this does not keep alive. Later calls look
there again, as the callable's own values are looked at.

A callable adopts its first few optimizers: it takes them for its own, and follows their numbers (hyperparameters.py).
"""

import gc
import types
import weakref

from .. import _C
from .values import Unreadable, Values

MOST_ARGUMENTS = 16    # objects of which is kept what was found
MOST_ADOPTED = 4       # that a callable keeps
MOST_LOOKED_AT = 4096  # in the search for a way back to an object

_ENDS = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType)


class _Known:
    """What was found of an object. find() is the object, None once it is gone; names: those that its
    attributes were looked up by; own: its id, where the callable reaches it beside its arguments too: code may ask
    which one it is."""

    __slots__ = ("find", "values", "token", "names", "own")

    def __init__(self, find, values, names):
        self.find, self.values, self.names = find, values, names
        self.token = self.own = None


class Arguments:
    """number_of(tokens): their number; keep_number(tokens, number): those have it from now on; names(): the
    names in the callable's code; is_own(tensor): is it in memory that the callable has beside its
    arguments? is_own_object(value): does the callable reach it beside its arguments?"""

    def __init__(self, torch, number_of, keep_number, names, is_own, is_own_object):
        self._torch = torch
        self._number_of, self._keep_number = number_of, keep_number
        self._names, self._is_own, self._is_own_object = names, is_own, is_own_object
        self._known = {}  # by id; the last is the one that was called with last
        self._adopted = {}  # by id
        self._nothing = None  # what a call of an adopted one looks at: a _C.Reads

    def adopts(self, value):
        """Is an object the callable's own from now on? Its values are looked at as the callable's are; a call is told
        by which object it is. False: there are too many."""
        if len(self._adopted) == MOST_ADOPTED or id(value) in self._adopted:
            return False
        self._drop(id(value))
        self._adopted[id(value)] = value
        return True

    def adopted(self):
        """Those objects."""
        return list(self._adopted.values())

    def _is_adopted(self, value):
        return self._adopted.get(id(value)) is value

    def clear(self):
        for at in list(self._known):
            self._drop(at)

    def _drop(self, at):
        """Also whoever has what was found, the fast path of calls, holds no part of the object then."""
        known = self._known.pop(at, None)
        if known is not None:
            known.values.handle.set([])

    def look(self, value):
        """(token, tensors) of an object: a hashable value, and of each tensor that it brings (tensor, places),
        a place being (kind, owner, key) as in _reads/walk.py. Raises Unreadable."""
        if self._is_adopted(value):
            return ("adopted", id(value)), []
        known = self._known.pop(id(value), None)
        if known is None or known.find() is not value:
            known = self._new()
        elif known.names is not self._names():
            known = self._with_more_names(known, value)
        self._update(known, value)
        if known.values.walk.parts is not None:  # another walk than the last time
            known.find = self._way_to(known, value)
        if known.find is not None:
            self._known[id(value)] = known
            if len(self._known) > MOST_ARGUMENTS:
                self._drop(next(iter(self._known)))
        return known.token, [(ref(), places) for ref, places in known.values.walk.bound]

    def binds_all(self, value):
        """Does an object bring all tensors of the device that it has to each call?"""
        if self._is_adopted(value):
            return False
        known = self._known.get(id(value))
        if known is None or known.find() is not value:
            known = self._new()
            self._update(known, value)
        return known.values.walk.binds_all

    def short(self, value):
        """Of an object that was looked at, what _C.FastCall.know takes; None where it is not kept."""
        if self._is_adopted(value):
            if not type(value).__weakrefoffset__:
                return None
            return weakref.ref(value), self._looks_at_nothing(), b"adopted %d" % id(value), ()
        known = self._known.get(id(value))
        if known is None or known.find() is not value or not isinstance(known.find, weakref.ref):
            return None
        refs = tuple(ref for ref, _ in known.values.walk.bound)
        return known.find, known.values.handle, b"object %d" % known.token[1], refs

    def _looks_at_nothing(self):
        if self._nothing is None:
            self._nothing = _C.Reads(self._torch.Tensor)
            self._nothing.set([])
        return self._nothing

    def _new(self):
        names = self._names()
        return _Known(None, Values(self._torch, (), names, takes=self._takes), names)

    def _takes(self, tensor):
        torch = self._torch
        return (type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.is_cuda and
                tensor.layout is torch.strided and not tensor.is_conj() and not tensor.is_neg() and
                not tensor.is_nested and not self._is_own(tensor))

    def _with_more_names(self, known, value):
        """Code ran that had not run before. What was captured until now did without it, so an object that
        did not change keeps its number."""
        made = self._new()
        if known.names == made.names:
            known.names = made.names
            return known
        held = known.values.handle.holds()
        known.values.handle.set([])
        self._update(made, value, known.token if held else None)
        made.find = self._way_to(made, value)
        return made

    def _update(self, known, value, token=None):
        """Looks at the object. token: that of what is found, if it is new."""
        values = known.values
        values.roots, values.unowned = ((value, "it"),), value
        try:
            tokens, changed = values.tokens()
        finally:
            values.roots, values.unowned = (), None
        own = id(value) if self._is_own_object(value) else None
        if changed or known.token is None or known.own != own:
            known.own = own
            if token is not None:
                self._keep_number(("argument", own, *tokens), token[1])
            known.token = ("object", self._number_of(("argument", own, *tokens)))
        walk = values.walk
        if walk.iterators:
            raise Unreadable("an argument is an iterator, or has one, which each call would move on. Take "
                             "from it before the call")
        for text in walk.obstacles:
            raise Unreadable(text)

    def _way_to(self, known, value):
        """What finds the object again without keeping it alive. None: it would live on in what was found, and
        memory of the device with it."""
        walk, at = known.values.walk, id(value)
        walk.owners = [(kind, way, None, keys, values) for kind, way, _, keys, values in walk.owners]
        parts, walk.parts = walk.parts, None
        if type(value).__weakrefoffset__ and not _leads_to(value, parts):
            return weakref.ref(value, lambda gone: self._forget(at, gone))
        return None if walk.has_memory else lambda: value

    def _forget(self, at, gone):
        known = self._known.get(at)
        if known is not None and known.find is gone:
            self._drop(at)


def _leads_to(value, parts):
    """Would these parts of an object keep it alive? In doubt, they would."""
    ahead, seen = [part for part in parts if part is not value], {}
    while ahead:
        part = ahead.pop()
        if part is value or len(seen) > MOST_LOOKED_AT:
            return True
        if id(part) in seen or isinstance(part, _ENDS):
            continue
        seen[id(part)] = part
        ahead += gc.get_referents(part)
        if isinstance(part, dict):
            ahead += part.values()  # from CPython 3.13 on an object's attributes may be no referents of its dict
    return False
