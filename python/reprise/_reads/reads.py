# SPDX-License-Identifier: MIT
"""What a graphed callable reads beside its arguments, as a part of the keys of its calls.

A walk (_reads/walk.py) finds where the values lie and what they are. From then on each call looks there again
(csrc/reads/reads.h): where nothing changed, the key has the same small number as before; where a number or a
string changed, its token does; where anything else did, there is another walk. The same tokens get the
same number again, so that the graph of a value that comes back is found.
"""

import abc
import collections
from contextlib import nullcontext, suppress
import inspect
import sys
import threading
import types
import weakref

from .. import _C
from .._base.constants import is_plain
from .._base.interrupts import Interrupts
from .._base.objects import dict_of
from .._base.tree import flatten
from .._base.warn import warn
from . import alike, asks, switches
from .alike import codes_of
from .arguments import Arguments
from .behind import Behind
from .code import OF_FUNCTIONS
from .places import Places
from .runs import GRADIENT, Effect, Executed, Run, current_stream, place_of
from .values import Unreadable, Values
from .walk import BASES, OF_CLASSES, TENSOR, Same

MOST_STEPS = 4        # from an object among the arguments to a module that it leads to
MOST_TOLD = 100       # characters of a value
MOST_SEARCHED = 256   # objects on the way to such modules
MOST_STATES = 1024   # that are told apart; of more the one that was not met for longest is forgotten
_found: weakref.WeakValueDictionary[int, object] = weakref.WeakValueDictionary()  # Reads by the id of a callable


def _probe(one=object(), *, two=None) -> None:
    """All that a function may have, for the extension to find where it does."""


class _Probe:
    """Likewise of a class, whose names differ."""

    __qualname__ = "_probes.Probe"


_probe.__qualname__ = "_probes.probe"
_C.learn_function(_probe, types.FunctionType.__basicsize__)
_C.learn_words(_probe, types.FunctionType.__basicsize__, OF_FUNCTIONS)
_C.learn_words(_Probe, vars(type)["__basicsize__"].__get__(type), (*OF_CLASSES, BASES))
_C.learn_count(sys.modules.get("_abc"), abc.get_cache_token, lambda: abc.ABCMeta("Any", (), {}).register(_Probe))


def is_compiled(fn):
    return hasattr(fn, "_torchdynamo_orig_callable") or type(fn).__name__ == "OptimizedModule"


class Reads:
    """What a callable reads: `state()` is a number, the same for the same values."""

    def __init__(self, torch, fn, watch=None, extra=()):
        self.torch = torch
        self.watch = watch
        self.switches = switches.of(torch)
        path = "self" if isinstance(fn, torch.nn.Module) or inspect.ismethod(fn) else "the function"
        roots = [(fn, path)] + [(module, "watch") for module in extra]
        self.is_compiled = any(map(is_compiled, (fn, *extra)))
        self._alike = None if self.is_compiled else alike.alike(torch, fn)
        self._root = id(fn)
        self._code = tuple(map(place_of, codes_of(torch, fn)))
        self.executed = alike.begin(Executed(self._code), self._alike)
        self._learned = self.executed.size
        self._follows_more = len(self.executed) > len(set(self._code))  # than it executed itself
        self._knows_code = self._follows_more  # what it will execute, most likely
        self.values = Values(torch, roots, known=self._known, executed=self.executed,
                             is_compiled=self.is_compiled, foresees=watch is not None)
        self._asks = asks.Asks(torch, self._is_own, self.own_tensors)
        self.number = None
        self._numbers = collections.OrderedDict()
        self._made = 0
        self._arguments = Arguments(torch, self._number_of, self._numbers.setdefault, self._names, self._is_own,
                                    self._is_own_object)
        self._own = (None, frozenset())  # a walk, and where storages begin that it found
        self._own_tensors = (None, ())  # a walk and a look at modules, and the tensors' ids
        self._own_objects = (None, {})
        self._warned = set()
        self._walks_before = None  # a call whose state nobody asked for yet
        self._is_new = False  # was all looked at as this call began, so that captures have run since at most?
        self._lock = threading.RLock()
        self.unseen = []         # effects of an eager run that no capture would keep from happening
        self.found_more = False  # there are modules to be watched that were not known

    def _known(self):
        return frozenset(map(id, self.watch.tensors)) if self.watch is not None else frozenset()

    @property
    def handle(self):
        """For the guard of the fast path: a _C.Reads."""
        return self.values.handle

    def begin(self):
        """A call begins, whose state is asked for next: that may look at all ahead of it (identities)."""
        self._walks_before = self.values.walks

    def state(self):
        """A number for what is read now. Raises Unreadable."""
        with self._lock:
            walks = self.values.walks if self._walks_before is None else self._walks_before
            self._walks_before = None
            number = self._state()
            self._is_new = self.values.walks != walks
            if not self._is_new:
                self.values.rest()
            return number

    def _state(self, is_new=False):
        taken = self.values.walk is None and self._take_found()
        _, changed = self.values.tokens()
        changed = changed or taken
        if self._follows_more and self.values.walk.obstacles:
            self._begin_alone()
            changed = True
        if changed:
            self._met()
            self.number = self._number_of(tuple(self.values.walk.tokens))
        if self.executed.size != self._learned:
            self._learn(is_new, goes_on=not changed and not self.is_compiled)
        self._refuse(self.values.walk)
        return self.number

    def _take_found(self):
        """What another callable found that was made of the same object, and was captured; is there any?"""
        other = _found.get(self._root)
        if other is None or other is self or not other._lock.acquire(blocking=False):
            return False
        try:
            taken = self._watch_as(other) and self.values.take(other.values)
            self._knows_code = self._knows_code or taken
            return taken
        finally:
            other._lock.release()

    def _watch_as(self, other):
        """Watches the modules that another callable's watch found beside those that both were given. False: they have
        other members or hooks by now, of which those who watch them are told before CPython 3.12."""
        if self.watch is None or other.watch is None:
            return self.watch is other.watch
        taken = self.watch.take(other.watch)
        self.found_more = taken or self.found_more
        return taken

    def _begin_alone(self):
        """Code that callables like this one executed is not followed any more, as it stands in the way."""
        self._follows_more = self._knows_code = False
        self._alike = None
        self.executed.clear()
        self.executed.update(self._code)
        self._learned = self.executed.size
        self.values.look_again()

    def _learn(self, is_new, goes_on):
        """Code ran that had not run before: what it reads is looked at from now on. What was captured
        until now did without that code, so the number stays. is_new: it ran in captures, which put back what
        they change, and all else was looked at ahead of them. goes_on: it ran in an eager call behind the first look,
        and all that was found is as it was: what else came to be the walk asks for."""
        self._learned = self.executed.size
        if is_new or (goes_on and self.values.can_go_on()):
            self.values.look_further()
        else:
            self.values.look_again(self.values.foresees)
        self._met()
        self._learned = self.executed.size
        self._numbers.setdefault(tuple(self.values.walk.tokens), self.number)

    def leave_out(self, places):
        """Runs change what is at these places: (owner, key) each, or (owner, None) for all that it holds. What
        they find there tells no calls apart; captures look at it (_effects/effects.py). The number stays. Are some of
        them new?"""
        new = {(id(owner), key): owner for owner, key in places}
        with self._lock:
            left = self.values.left
            if new.keys() <= left.keys():
                return False
            left.update(new)
            if self.values.walk is not None:  # or the first look will know
                self.values.look_again()
                self._numbers.setdefault(tuple(self.values.walk.tokens), self.number)
            return True

    def left_out(self):
        """Those places."""
        with self._lock:
            left = tuple(self.values.left.items())
        return [(owner, key) for (_, key), owner in left]

    def places(self):
        """Where code that ran looks and what it sets, a Places; None: nobody knows."""
        with self._lock:
            walk = self.values.walk
            return Places(walk, walk.stored | self.executed.stored) if walk is not None else None

    def look_at(self, places):
        """What was left out is looked at again."""
        with self._lock:
            for owner, key in places:
                self.values.left.pop((id(owner), key), None)
            self.look_anew()

    def look_anew(self):
        """Modules have other members or hooks than when they were looked at."""
        with self._lock:
            if self.values.walk is not None:
                self.values.look_again()
                self.number = self._number_of(tuple(self.values.walk.tokens))

    def forget_arguments(self):
        """Lets go of the objects among arguments whose values were kept."""
        self._arguments.clear()

    def eager_call(self, fn, args, kwargs):
        """An eager call, of which is noted what it executes and what it does besides computing. Where callables like
        this one were captured, its capture is soon enough to tell what it executes, and refuses what they did not
        do."""
        self._is_new = False
        if not self._observes():
            return fn(*args, **kwargs)

        def call():
            result = fn(*args, **kwargs)
            with suppress(Exception):  # which captures meet, and the caller may never
                flatten(result)  # by code of the program's, where it registered nodes of trees: captures execute it
            return result
        run = Run(self.executed, self.iterators, hears=not self._knows_code)
        result = _recorded(run, call)
        self.unseen = run.unseen
        return result

    def refusing(self, body, around, results=None, noted=None):
        """The body of a capture's runs, which raises what replays would not do again. Once one has ended, the others
        are not watched: each begins with the same state, and being watched costs as much as the run. A profiler
        leaves other words on the stack, which kernels' padding would show: with one all runs are watched.
        around(body): the body of a run that looks at what it did; that is ours, and is not watched. results: of
        backward runs, a function that gives what they go back from; noted: a Noted of them."""
        has_ended, stream = False, current_stream()
        unwatched = around(body)

        def run(placed):
            nonlocal has_ended
            if has_ended or not self._observes():
                return unwatched(placed)
            if self.unseen:
                raise Effect(self.unseen[0])
            watch = Run(self.executed, self.iterators, refuses=True, noted=noted, stream=stream)
            ending = watch.ending(body if results is None else watch.on_threads_of(body, results))
            watch.given = frozenset(map(id, placed))
            result = _recorded(watch, lambda: around(ending)(placed))
            has_ended = hasattr(sys, "monitoring")
            return result
        return run

    def behind(self, noted):
        """What code of a backward pass reads, a behind.Behind. noted: a Noted of a run of it, whose capture this
        has learnt from."""
        with self._lock:
            return Behind(self.torch, noted, self)

    def guard(self):
        """A context manager of a part of a run, which raises what replays would not do again as it ends, or
        before it happens."""
        return Run(self.executed, self.iterators, refuses=True) if self._observes() else nullcontext()

    def _observes(self):
        """Compilers make millions of calls, which before CPython 3.12 would all be told of."""
        return hasattr(sys, "monitoring") or not self.is_compiled

    def _met(self):
        """Modules that the callable reaches are watched like those that it was given."""
        if self.watch is None:
            return
        self.found_more = self.watch.find(self.values.walk.modules) or self.found_more
        if not self.values.leaves_all():
            self.values.look_again()

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
        """Of an argument that is neither a tensor nor a plain value: what a call depends on, the same for all
        that hold the same, and the tensors that it brings (_reads/arguments.py). Raises Unreadable."""
        with self._lock:
            self._state()  # what code ran is known now
            return self._arguments.look(value)

    def adopt(self, value, name):
        """Takes such an argument for one of the roots from now on, which it keeps, as long as there are few."""
        with self._lock:
            if self._arguments.adopts(value):
                self.values.roots = [*self.values.roots, (value, name)]
                self.values.look_again()
                return True
            return False

    def short(self, value):
        """Of such an argument what _C.FastCall.know takes, or None."""
        with self._lock:
            return self._arguments.short(value)

    def binds_all(self, value):
        """Does such an argument bring all tensors of the device that it has to each call?"""
        with self._lock:
            try:
                return self._arguments.binds_all(value)
            except Unreadable:
                return False

    def learn(self, values):
        """Behind a capture: what it executed is known before the program changes what that reads."""
        with self._lock:
            try:
                self._state(self._is_new)
                self._is_new = False
                self.values.rest()
                alike.learn(self._alike, self.executed)
                _found[self._root] = self
                for value in values:
                    self._arguments.look(value)
            except Unreadable:
                pass  # the next call will say so

    def _names(self):
        """The names in the callable's code, the same object for as long as they are the same."""
        return self.values.walk.names if self.values.walk is not None else None

    def _is_own(self, tensor):
        """Does a tensor lie in memory that the callable has beside its arguments?"""
        if self._own[0] != self.values.walks:
            found = self.tensors() + (self.watch.tensors if self.watch is not None else [])
            self._own = (self.values.walks, frozenset(map(_storage, found)))
        return _storage(tensor) in self._own[1]

    def own_tensors(self):
        """The ids of the tensors that it reads beside its arguments, those on the CPU among them: a dict."""
        at = (self.values.walks, self.watch and self.watch.seen)
        if self._own_tensors[0] != at:
            walk = self.values.walk
            found = [*self.tensors(), *(self.watch.found if self.watch is not None else ())]
            found += walk.cpu_tensors() if walk is not None else ()
            self._own_tensors = (at, dict.fromkeys(map(id, found)))
        return self._own_tensors[1]

    def _is_own_object(self, value):
        """Is it one that the callable reaches beside its arguments?"""
        return id(value) in self._places()

    def _places(self):
        """By id of each object that the callable reaches beside its arguments: where it was found first, as
        container_at takes it."""
        at = (self.values.walks, self.values.replaced)
        if self._own_objects[0] != at:
            found, walk = {}, self.values.walk
            for which, (_, _, owner, _, values) in enumerate(walk.owners if walk is not None else ()):
                found.setdefault(id(owner), (which,))
                for entry, value in enumerate(values):
                    _place(value, (which, entry), found)
            self._own_objects = (at, found)
        return self._own_objects[1]

    def identities(self):
        """Does code compare objects by what they are? And a function that tells of a container whether it is one that
        the callable reaches: where, or None. What it holds the callable then reaches too."""
        with self._lock:
            try:
                self._state()
            except Unreadable:
                pass  # whoever asks for the state is told
            walk = self.values.walk
            return walk is not None and walk.compares, self._place_of_container

    def _place_of_container(self, container):
        place = self._places().get(id(container))
        return place if place is not None and all(map(self._is_own_leaf, flatten(container)[0])) else None

    def _is_own_leaf(self, leaf):
        if isinstance(leaf, self.torch.Tensor):
            return id(leaf) in self.own_tensors()
        return is_plain(leaf) or self._is_own_object(leaf)

    def container_at(self, place):
        """What is there by now, as identities() told of it; None: nothing."""
        which, *entries = place
        owners = self.values.walk.owners
        if which >= len(owners):
            return None
        found = owners[which][4] if entries else owners[which][2]
        for entry in entries:
            if not isinstance(found, tuple) or entry >= len(found):
                return None
            found = found[entry]
        return found

    def compares(self, tensor):
        """Do keys tell what is in a tensor on the CPU?"""
        at = tensor.untyped_storage()._cdata
        return any(t.untyped_storage()._cdata == at for t in self.values.walk.cpu_tensors())

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

    def looks_at_wishes(self):
        """Does it matter which parameters want gradients? Without gradients to code alone that asks."""
        walk = self.values.walk
        return self.torch.is_grad_enabled() or (walk is not None and "requires_grad" in walk.names)

    def asked(self):
        """What code asks of tensors among the arguments, an asks.Asked."""
        return self._asks.asked(self.values.walk)

    def are_like(self, asked):
        """As of asks.Asks."""
        return self._asks.are_like(asked)

    def refusal(self, asked, tensor, is_split, is_whole):
        """As of asks.Asks."""
        return self._asks.refusal(self.values.walk, asked, tensor, is_split, is_whole)

    @property
    def version(self):
        """Another one where objects that are read may be others."""
        return self.values.walks, self.values.replaced

    @property
    def walks(self):
        """How often all that is read was looked for."""
        return self.values.walks

    def tensors(self):
        """Those on the device that it reads, but for what is watched."""
        walk = self.values.walk
        found = [] if walk is None else [owner() for kind, _, owner, _, _ in walk.owners if kind == TENSOR]
        return list(filter(_is_there, found))

    def asks_for_gradients(self):
        """May code ask a tensor for its gradient?"""
        return self.values.walk is not None and "grad" in self.values.walk.names

    def has_adopted(self):
        """Are objects among the arguments the callable's own, beside optimizers?"""
        return any(not isinstance(value, self.torch.optim.Optimizer) for value in self._arguments.adopted())

    def trained(self, value):
        """The parameters of a module among the arguments, or of those that an object there leads to, where backward passes
        of the callable's, or code of PyTorch's, may work on their gradients. None of what is the callable's own by now."""
        if self.values.walk is None or self.values.walk.names.isdisjoint(("backward", GRADIENT)) or any(
                value is other for other in self._arguments.adopted()):
            return []
        kind = self.torch.nn.Module
        return [p for one in _modules_in(self.torch, value) for p in kind.parameters(one) if p.requires_grad]

    def leaves(self):
        """Those of tensors() that may have gradients."""
        return [tensor for tensor in self.tensors() if tensor.is_leaf and not tensor.is_inference()]

    def snapshot(self):
        """What there is to compare by `differences`."""
        walk = self.values.walk
        return (list(walk.tokens), walk.paths) if walk is not None else ([], [])


def _modules_in(torch, value):
    """The modules that attributes, containers and methods lead to from an object, a few steps away."""
    found, ahead, seen = [], [(value, 0)], set()
    while ahead and len(seen) < MOST_SEARCHED:
        one, steps = ahead.pop()
        if id(one) in seen or is_plain(one) or isinstance(one, torch.Tensor):
            continue
        seen.add(id(one))
        if isinstance(one, torch.nn.Module):
            found.append(one)
        elif steps < MOST_STEPS:
            ahead += [(part, steps + 1) for part in _parts_of(one)]
    return found


def _parts_of(value):
    if isinstance(value, types.MethodType):
        return (value.__self__,)
    if type(value) in (list, tuple):
        return value[:MOST_SEARCHED]
    names = value if type(value) is dict else dict_of(value)
    return tuple(names.values()) if type(names) is dict and not isinstance(value, types.ModuleType) else ()


def _place(value, place, found):
    """Notes where a value was found, and what is in a tuple."""
    found.setdefault(id(value), place)
    for entry, part in enumerate(value) if isinstance(value, tuple) else ():
        if isinstance(part, tuple):
            _place(part, (*place, entry), found)


def _recorded(run, call):
    """What a call returns that is recorded. Ctrl-C acts within it alone, so that no recording goes on."""
    held = Interrupts()
    with held, run, held.allowed():
        return call()


def _is_there(tensor):
    return tensor is not None


def _storage(tensor):
    """Where a tensor's storage begins; 0: it has none."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError, AttributeError):
        return 0


def differences(before, after):
    """What values differ between two snapshots: (path, token now) each."""
    known = {}
    for token, path in _one_by_one(*before):
        known.setdefault(path, []).append(token)
    return [(path, token) for token, path in _one_by_one(*after)
            if path in known and token not in known[path] and not (
                _was_seen(token) or any(map(_was_seen, known[path])))]


def _one_by_one(tokens, paths):
    """Names that are not there have one token for all of an object's."""
    for token, path in zip(tokens, paths):
        if isinstance(token, tuple) and token[:1] == ("absent",) and len(token) == 2:
            yield from ((token[:1], path + name) for name in token[1])
        else:
            yield token, path


def _was_seen(token):
    """Is it a number of something that is told elsewhere?"""
    return isinstance(token, tuple) and token[:1] == ("seen",)


def told(token):
    """A token as a person would write the value."""
    if isinstance(token, Same):
        return f"a {type(token.object).__name__}"
    if isinstance(token, tuple) and len(token) == 2 and isinstance(token[0], type):
        if token[0] is bytes and len(token[1]) > MOST_TOLD:
            return f"{len(token[1])} bytes"
        text = token[1] if token[0] in (float, complex) else repr(token[1])
        return text if len(text) <= MOST_TOLD else f"{text[:MOST_TOLD]}.."
    if isinstance(token, tuple) and token and token[0] in ("tensor", "array"):
        return f"another {token[0]}"
    return "another object"
