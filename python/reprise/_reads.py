# SPDX-License-Identifier: MIT
"""What a graphed callable reads beside its arguments, as a part of the keys of its calls.

A walk (_walk.py) finds where the values lie and what they are. From then on each call looks there again
(csrc/reads.h): where nothing changed, the key has the same small number as before; where a number or a
string changed, its token does; where anything else did, there is another walk. The same tokens get the
same number again, so that the graph of a value that comes back is found.
"""

import collections
import inspect
import sys
import threading
import types

from . import _C, _switches
from ._interrupts import Interrupts
from ._runs import Effect, Run, place_of
from ._walk import CALL, CELL, ITEMS, LIST, NAMES, Same, Walk, is_plain, plain_token
from ._warn import warn

MOST_STATES = 1024   # that are told apart; of more the one that was not met for longest is forgotten
MOST_ARGUMENTS = 16  # objects among arguments whose values are kept
_SIMPLE_KINDS = (NAMES, ITEMS, LIST, CELL, CALL)
checks = True  # bench/torch/guards.py turns it off, and nothing else: what is read is frozen then


def _probe(one=object(), *, two=None):
    """All that a function may have, for the extension to find where it does."""


_C.learn_function(_probe, types.FunctionType.__basicsize__)


class Unreadable(Exception):
    """Something that is read cannot be compared; the text is a sentence's end."""


class Values:
    """What one walk found, kept up to date."""

    def __init__(self, torch, roots, names=None, known=(), executed=None, is_compiled=False):
        self.torch = torch
        self.is_compiled = is_compiled
        self.runs_unseen = is_compiled  # compilers take functions in, which are never seen to run
        self.executed = executed
        self.roots = roots
        self.names = names
        self.known = known  # called for the ids of tensors that somebody else looks at
        self.handle = _C.Reads(torch.Tensor)
        self.left = {}  # places that are not looked at: owners by (id of the owner, key or None)
        self.walk = None
        self.walks = 0

    def tokens(self):
        """The tokens of what is there now, and whether they are other ones than the last time."""
        if self.walk is not None:
            if self.handle.holds():
                return self.walk.tokens, False
            changes = self.handle.changed()
            if not changes:
                return self.walk.tokens, False
            if self._take(changes):
                return self.walk.tokens, True
        self.look_again()
        return self.walk.tokens, True

    def look_again(self):
        try:
            walk = self._walk()
            self.handle.set(walk.owners)
        except Exception as error:  # objects may do anything when they are asked
            raise Unreadable("what it reads beside its arguments could not be looked through: "
                             f"{type(error).__name__}: {error}") from error
        self.walk = walk
        self.walks += 1

    def _walk(self):
        known = self.known() if callable(self.known) else self.known
        if self.runs_unseen:
            walk = Walk(self.torch, known, self.names, None, self.left).run(*self.roots)
            if not walk.obstacles:
                return walk
            self.runs_unseen = False
        walk = Walk(self.torch, known, self.names, self.executed, self.left).run(*self.roots)
        if self.is_compiled:
            walk.cautions.append("what compiled code reads is too much to follow; of functions that the "
                                 "compiler took in, changes of Python values may go unseen")
        return walk

    def _take(self, changes):
        """Where only numbers, strings and the like changed: no more than their tokens did."""
        walk, taken = self.walk, []
        for which, entry, value in changes:
            if entry < 0 or walk.owners[which][0] not in _SIMPLE_KINDS:
                return False
            before = walk.owners[which][4][entry]
            if not (is_plain(value) and is_plain(before)):
                return False
            taken.append((which, entry, value))
        for which, entry, value in taken:
            kind, way, owner, keys, values = walk.owners[which]
            values = (*values[:entry], value, *values[entry + 1:])
            walk.owners[which] = (kind, way, owner, keys, values)
            walk.tokens[walk.first[which] + entry] = plain_token(value)
            self.handle.accept(which, entry, value)
        return True


class Reads:
    """What a callable reads: `state()` is a number, the same for the same values."""

    def __init__(self, torch, fn, watch=None, extra=()):
        self.torch = torch
        self.watch = watch
        self.switches = _switches.of(torch)
        path = "self" if isinstance(fn, torch.nn.Module) or inspect.ismethod(fn) else "the function"
        roots = [(fn, path)] + [(module, "watch") for module in extra]
        self.executed = set(map(place_of, _codes_of(torch, fn)))
        self._learned = len(self.executed)
        self._is_compiled = any(hasattr(f, "_torchdynamo_orig_callable") or
                                type(f).__name__ == "OptimizedModule" for f in (fn, *extra))
        self.values = Values(torch, roots, known=self._known, executed=self.executed,
                             is_compiled=self._is_compiled)
        self.number = None
        self._numbers = collections.OrderedDict()
        self._made = 0
        self._arguments = collections.OrderedDict()
        self._warned = set()
        self._lock = threading.RLock()
        self.unseen = []         # effects of an eager run that no capture would keep from happening
        self.found_more = False  # there are modules to be watched that were not known

    def _known(self):
        return frozenset(map(id, self.watch.tensors)) if self.watch is not None else frozenset()

    @property
    def handle(self):
        """For the guard of the short way: a _C.Reads, or None."""
        return self.values.handle if checks else None

    def state(self):
        """A number for what is read now. Raises Unreadable."""
        if not checks and self.number is not None:
            return self.number
        with self._lock:
            return self._state()

    def _state(self):
        _, changed = self.values.tokens()
        if changed:
            self._met()
            self.number = self._number_of(tuple(self.values.walk.tokens))
        if len(self.executed) != self._learned:
            self._learn()
        self._refuse(self.values.walk)
        return self.number

    def _learn(self):
        """Code ran that had not run before: what it reads is looked at from now on. What was captured
        until now did without that code, so the number stays."""
        self._learned = len(self.executed)
        self.values.look_again()
        self._met()
        self._learned = len(self.executed)
        self._numbers.setdefault(tuple(self.values.walk.tokens), self.number)

    def leave_out(self, places):
        """Runs change what is at these places: (owner, key) each, or (owner, None) for all that it holds. What
        they find there tells no calls apart; captures look at it (_effects.py). The number stays."""
        with self._lock:
            left = self.values.left
            new = {(id(owner), key): owner for owner, key in places}
            if new.keys() <= left.keys() or self.values.walk is None:
                return
            left.update(new)
            self.values.look_again()
            self._numbers.setdefault(tuple(self.values.walk.tokens), self.number)

    def forget_arguments(self):
        """Lets go of the objects among arguments whose values were kept."""
        self._arguments.clear()

    def eager_call(self, fn, args, kwargs):
        """An eager call, of which is noted what it executes and what it does besides computing."""
        if not self._observes():
            return fn(*args, **kwargs)
        run = Run(self.executed, self.iterators)
        result = _recorded(run, lambda: fn(*args, **kwargs))
        self.unseen = run.unseen
        return result

    def refusing(self, body):
        """The body of a capture's runs, which raises what replays would not do again."""
        def run(placed):
            if not self._observes():
                return body(placed)
            if self.unseen:
                raise Effect(self.unseen[0])
            return _recorded(Run(self.executed, self.iterators, refuses=True), lambda: body(placed))
        return run

    def _observes(self):
        """Compilers make millions of calls, which before CPython 3.12 would all be told of."""
        return checks and (hasattr(sys, "monitoring") or not self._is_compiled)

    def _met(self):
        """Modules that the callable reaches are watched like those that it was given."""
        walk = self.values.walk
        if self.watch is not None and self.watch.find(walk.modules):
            self.values.look_again()  # what is watched needs no second look
            self.found_more = True

    def _refuse(self, walk):
        for text in walk.obstacles:
            raise Unreadable(text)
        for text in walk.cautions:
            if text not in self._warned:
                self._warned.add(text)
                warn(f"reprise: {text}")

    def _number_of(self, tokens):
        number = self._numbers.get(tokens)
        if number is None:
            number = self._made
            self._made += 1
            self._numbers[tokens] = number
            if len(self._numbers) > MOST_STATES:
                self._numbers.popitem(last=False)
        else:
            self._numbers.move_to_end(tokens)
        return number

    # ---- Arguments ----

    def argument(self, value):
        """What a call depends on of an argument that is neither a tensor nor a plain value: a number,
        the same for all that hold the same."""
        with self._lock:
            return self._argument(value)

    def _argument(self, value):
        known = self._arguments.get(id(value))
        if known is None:
            names = self.values.walk.names if self.values.walk is not None else None
            known = self._arguments[id(value)] = [value, Values(self.torch, [(value, "it")], names), None]
            if len(self._arguments) > MOST_ARGUMENTS:
                self._arguments.popitem(last=False)
        tokens, changed = known[1].tokens()
        if changed:
            known[2] = ("object", self._number_of(("argument", *tokens)))
        walk = known[1].walk
        if walk.has_memory:
            del self._arguments[id(value)]
        for _, path in walk.iterators:
            raise Unreadable("an argument is an iterator, or has one, which each call would move on. Take "
                             "from it before the call")
        for text in walk.obstacles:
            raise Unreadable(text)
        return known[2]

    # ---- Facts ----

    @property
    def modules(self):
        return self.values.walk.modules if self.values.walk is not None else []

    @property
    def optimizers(self):
        return self.values.walk.optimizers if self.values.walk is not None else []

    @property
    def iterators(self):
        return self.values.walk.iterators if self.values.walk is not None else []

    def snapshot(self):
        """What there is to compare by `differences`."""
        walk = self.values.walk
        return (list(walk.tokens), walk.paths) if walk is not None else ([], [])


def _recorded(run, call):
    """What a call returns that is recorded. Ctrl-C acts within it alone, so that no recording goes on."""
    held = Interrupts()
    with held, run, held.allowed():
        return call()


def differences(before, after):
    """What values differ between two snapshots: (path, token now) each."""
    known = dict(zip(before[1], before[0]))
    return [(path, token) for token, path in zip(*after)
            if path in known and known[path] != token and not (_was_seen(token) or _was_seen(known[path]))]


def _was_seen(token):
    """Is it a number of something that is told elsewhere?"""
    return isinstance(token, tuple) and token[:1] == ("seen",)


def told(token):
    """A token as a person would write the value."""
    if isinstance(token, Same):
        return f"a {type(token.object).__name__}"
    if isinstance(token, tuple) and len(token) == 2 and isinstance(token[0], type):
        return token[1] if token[0] in (float, complex) else repr(token[1])
    if isinstance(token, tuple) and token and token[0] in ("tensor", "array"):
        return f"another {token[0]}"
    return "another object"


def _codes_of(torch, fn):
    """Of what runs at once when a callable is called."""
    for function in (fn, inspect.unwrap(fn)):
        if isinstance(function, torch.nn.Module):
            function = function.forward
        function = getattr(function, "__func__", function)
        if not hasattr(function, "__code__"):
            function = getattr(type(function), "__call__", None)
        if hasattr(function, "__code__"):
            yield function.__code__
