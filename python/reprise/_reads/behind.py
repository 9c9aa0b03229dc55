# SPDX-License-Identifier: MIT
"""What code of a backward pass reads, as hooks and the `backward` of a function do.

Where forward and backward are two graphs, a key tells what that was ahead of the forward pass. The program may change
it between the two. So one backward run of a capture is watched: what its code was given, and what it closes over,
is where a walk begins (_reads/walk.py), which follows this code alone. Each backward pass compares what was found.
Nothing is compared where no code of the program's runs in backward passes.
"""

import collections
import contextlib
import functools
import inspect
import threading
import types

from .. import _C
from .._base.collector import uncollected
from .._base.interrupts import let_through
from .code import is_foreign_file
from .runs import Executed, place_of
from .values import Unreadable
from .walk import ATTRIBUTES, CELL, FUNCTION, ITEMS, LIST, NAMES, Walk, is_plain

_PARTS = ("_modules", "_parameters", "_buffers")  # of modules: hooks that backward passes call are in their nodes


class Noted:
    """What code began in a backward run, and what it was given: by ids, as what the run made is to go with it."""

    def __init__(self, torch):
        self._tensor, self._node = torch.Tensor, torch.autograd.function.BackwardCFunction
        self.codes = {}  # by place: (code, its globals, ids of what it closes over by name)
        self.given = []  # (id, path)

    def wants(self, code):
        return not is_foreign_file(code.co_filename)

    def begins(self, frame):
        """A frame of such code, on any thread."""
        code, found = frame.f_code, frame.f_locals
        count = code.co_argcount + code.co_kwonlyargcount + sum(
            bool(code.co_flags & flag) for flag in (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS))
        for name in code.co_varnames[:count]:
            self._give(found.get(name), name)
        free = {name: id(found[name]) for name in code.co_freevars if name in found and self._is_kept(found[name])}
        self.codes.setdefault(place_of(code), (code, frame.f_globals, free))

    def _is_kept(self, value):
        return not is_plain(value) and not isinstance(value, self._tensor)

    def _give(self, value, name):
        if isinstance(value, self._node):  # what a function's forward pass left to its backward pass
            for key, held in value.__dict__.items():
                self._give(held, f"{name}.{key}")
        elif type(value) is tuple:
            for i, held in enumerate(value):
                self._give(held, f"{name}[{i}]")
        elif self._is_kept(value):
            self.given.append((id(value), name))


class Behind:
    """What code of the backward passes of one shape reads, as it was when that was captured.

    noted: a Noted. reads: what the callable reads, which was just looked at."""

    def __init__(self, torch, noted, reads):
        self._torch = torch
        walk = reads.values.walk
        self._all = _C.Reads(torch.Tensor)  # what the call reads too
        self._all.set(walk.owners, None)
        self._whole = walk.owners
        self._known = walk.known
        self._executed = Executed(noted.codes)
        self._roots = _roots(noted, walk, reads.values.roots)
        self._lock = threading.Lock()
        self._handle = _C.Reads(torch.Tensor)
        self._walk = self._walked()
        self._handle.set(self._walk.owners, None)

    def _walked(self):
        with uncollected():
            walk = Walk(self._torch, self._known, executed=self._executed.copy())
            walk.leave_hooks(_PARTS)
            walk.run(*self._roots)
            walk.end()
        return walk

    def reads_any(self, places):
        """The path of something that a run changes and this code reads; None: there is nothing. places: as effects
        have them."""
        left = {(id(owner), key) for owner, key in places}
        for at, (kind, _, owner, keys, _) in enumerate(self._walk.owners):
            for entry, key in enumerate(keys if kind in (NAMES, ITEMS, ATTRIBUTES) else (None,)):
                if (id(owner), key) in left or (id(owner), None) in left:
                    return self._path(at, entry)
        return None

    def _path(self, which, entry):
        at = self._walk.first[which] + max(entry, 0)
        return self._walk.paths[at] if at < len(self._walk.paths) else "it"

    def holds(self):
        """Is all as it was? On any thread."""
        if self._handle.holds():
            return True
        with self._lock:
            try:
                walk = self._walked()
            except Exception as error:  # objects may do anything when they are asked
                let_through(error)
                return False
            if walk.tokens != self._walk.tokens:
                return False
            self._walk = walk
            self._handle.set(walk.owners, None)
            return True

    def changed(self):
        """How a person would name what changed."""
        return ", ".join(dict.fromkeys(f"`{self._path(which, entry)}`" for which, entry, _ in self._handle.changed()))

    @contextlib.contextmanager
    def as_it_was(self):
        """Meanwhile all that the call reads is what it was ahead of it. Raises Unreadable where that cannot be."""
        classes, whole = self._walk.classes_by_dict(), {}
        for which, entry, value in self._all.changed():
            whole.setdefault(which, []).append((entry, value))
        back = []
        try:
            for which, entries in whole.items():
                kind, _, owner, keys, values = self._whole[which]
                back += _put_back(kind, classes.get(id(owner), owner), keys, values, entries)
            if not self._all.holds():
                raise Unreadable("that cannot be put back")
            yield
        finally:
            for put in reversed(back):
                put()


def _put_back(kind, owner, keys, values, entries):
    """Gives an owner what it had, and returns what puts back what it has now. Raises Unreadable where nothing does."""
    if kind == LIST:
        now = list(owner)
        owner[:] = values
        return [lambda: owner.__setitem__(slice(None), now)]
    if kind == ITEMS:
        now, make = dict(owner), collections.OrderedDict if isinstance(owner, collections.OrderedDict) else dict
        _fill(make, owner, zip(keys, values))
        return [lambda: _fill(make, owner, now.items())]
    if kind not in (NAMES, CELL, ATTRIBUTES) or any(entry < 0 for entry, _ in entries):
        raise Unreadable("that cannot be put back")
    put = _put_key if type(owner) is dict else _put_attribute
    names = [("cell_contents" if kind == CELL else keys[entry], values[entry], now) for entry, now in entries]
    for name, before, _ in names:
        put(owner, name, before)
    return [functools.partial(put, owner, name, now) for name, _, now in names]


def _fill(kind, owner, items):
    kind.clear(owner)
    for key, value in items:
        kind.__setitem__(owner, key, value)


def _put_key(owner, key, value):
    if value is _C.absent:
        owner.pop(key, None)
    else:
        owner[key] = value


def _put_attribute(owner, name, value):
    if value is not _C.absent:
        setattr(owner, name, value)
    elif hasattr(owner, name):
        delattr(owner, name)


def _roots(noted, walk, roots):
    """Where that code begins: functions, and what they were given of what the callable reads. All else was made in
    the run."""
    functions = [owner for kind, _, owner, _, _ in walk.owners if kind == FUNCTION]
    known = {id(value): value for owner in walk.owners for value in (owner[2], *owner[4])}
    known.update((id(value), value) for value, _ in roots)
    found = [(known[at], path) for at, path in noted.given if at in known]
    for place, (code, names, free) in noted.codes.items():
        same = [f for f in functions if place_of(f.__code__) == place]
        found += [(f, f.__name__) for f in same or (_like(code, names, free, functions, known),)]
    kept = {id(value): (value, path) for value, path in reversed(found)}
    return tuple(reversed(kept.values()))


def _like(code, names, free, functions, known):
    """A function of code that the run made one of: it closes over what that did which lies around it, and over
    objects that the callable reads."""
    cells = {}
    for function in functions:
        if _has(function.__code__, code):
            cells.update(zip(function.__code__.co_freevars, function.__closure__ or ()))
    held = {name: types.CellType(known[at]) for name, at in free.items() if at in known}
    closure = tuple(cells.get(name) or held.get(name) or types.CellType() for name in code.co_freevars)
    return types.FunctionType(code, names, code.co_name, None, closure)


def _has(outer, code):
    return any(one is code or (hasattr(one, "co_code") and _has(one, code)) for one in outer.co_consts)
