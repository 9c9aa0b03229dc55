# SPDX-License-Identifier: MIT
"""reprise.graphed: a callable whose GPU work is captured once for each shape and then replayed."""

import copy
import functools
import inspect
import threading
import traceback
import types
import weakref

from . import _C, _distributed, _module, _private
from ._effects import Before, Changed, Containers, Effects, Unobserved, records_of
from ._findings import line_of, tell_mend
from ._gradients import Gradients, Shared, for_short_way, homes, to_give
from ._news import News, names_of_leaves
from ._pool import Pool
from ._progress import Progress
from ._reads import Reads, Unreadable
from ._record import VERIFY, Work, extents, is_alone
from ._refusals import Refusals, traced_call
from ._shape import Shape
from ._split import Refused, Split
from ._torch import need_gpu, need_torch, why_no_gpu
from ._tree import argument_names, flatten, unflatten
from ._twice import Again
from ._walk import is_plain, plain_token
from ._warn import warn
from ._watch import Watch, find_modules

ATTEMPTS = 2  # captures of a shape that may fail before it stays eager
MOST_HELD = 64  # objects in a container that a callable finds, for modules to be looked for there
MOST_MISFITS = 8  # calls that find other Python state than a graph is right for, before it goes
MOST_SHAPES = 1024  # that are kept, unless told
MOST_STALE = 4  # graphs of a shape whose memory was freed before it does
all_graphed = weakref.WeakSet()
_warned = False  # that there is no GPU


def every_graphed():
    """Those that there are; other threads may make some meanwhile."""
    while True:
        try:
            return list(all_graphed)
        except RuntimeError:  # its size changed
            pass


class Uncapturable(_C.Error):
    """A call that graphs are not for; the reason is its text."""


def _missing(params):
    """Of which parameters gradients are missing; None where there are no parameters."""
    return tuple([p.grad is None for p in params]) or None


def body_of(torch, fn, leaves, spec, has_kwargs, watches=False):
    """A function of the tensors among the leaves alone. watches: it raises Changed where a container of
    the arguments changes."""
    where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def body(placed):
        given = list(leaves)
        for i, tensor in zip(where, placed):
            given[i] = tensor
        tree = unflatten(spec, given)
        args, kwargs = tree if has_kwargs else (tree, {})
        containers = Containers(args, kwargs) if watches else None
        result = fn(*args, **kwargs)
        if containers is not None:
            containers.check()
        return result

    return body


def brings_home(torch, body, params):
    """The body, which leaves gradients where the parameters want them."""
    def bringing(placed):
        result = body(placed)
        homes.bring(torch, params)
        return result
    return bringing


def clear_frames(error):
    """Lets go of what the frames hold that an exception went through: memory of a capture that failed."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def settle(torch, params):
    """Gives the parameters whose gradients lie in memory of graphs homes for them, and drops the graphs
    that leave them elsewhere. False where none did."""
    moved = set(map(id, homes.move(torch, params)))
    for graphed in every_graphed() if moved else ():
        graphed.drop_giving(moved)
    return bool(moved)


def find_params(torch, fn, known, modules=(), optimizers=()):
    """Parameters whose gradients a callable may leave: those watched, and what modules and optimizers
    hold that it closes over, or names as globals, or that it or its owner has; and functions beside it
    that it calls. modules: those whose parameters are among the known ones, with their children;
    optimizers: that it was found to use."""
    found = {id(p): p for p in known}
    watched = set(map(id, modules))
    for value in [*_values_of(fn), *optimizers]:
        params = []
        if isinstance(value, torch.nn.Module):
            params = () if id(value) in watched else type(value).parameters(value)
        elif isinstance(value, torch.optim.Optimizer):
            params = [p for group in value.param_groups for p in group["params"]]
        found.update((id(p), p) for p in params)
    return list(found.values())


def _values_of(fn):
    """What a callable finds by name, with what functions of its module find that are among that."""
    ahead, seen, values = [fn, inspect.unwrap(fn)], set(), []
    while ahead:
        here = ahead.pop()
        if id(here) in seen:
            continue
        seen.add(id(here))
        names = getattr(getattr(here, "__code__", None), "co_names", ())
        beside = getattr(here, "__globals__", {})
        owner = getattr(here, "__self__", None)
        found = [c.cell_contents for c in getattr(here, "__closure__", None) or () if _is_filled(c)]
        found += [beside[name] for name in names if name in beside]
        found += [*getattr(here, "__dict__", {}).values(), *getattr(owner, "__dict__", {}).values()]
        values += [owner, *found]
        for some in found:  # a list of nets, a dict of optimizers; not a data set
            if type(some) in (list, tuple, dict) and len(some) <= MOST_HELD:
                values += some.values() if type(some) is dict else some
        ahead += [v for v in found
                  if isinstance(v, types.FunctionType) and v.__globals__ is beside]
    return values


def _is_filled(cell):
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def _is_forward(torch, fn):
    """Is it a module, or the method that a module's calls go through?"""
    owner = getattr(fn, "__self__", fn)
    return isinstance(owner, torch.nn.Module) and (
        owner is fn or getattr(fn, "__name__", "") in ("forward", "__call__"))


class LongWay:
    """In the place of a _C.Hot, where there can be none: takes no calls."""

    call = staticmethod(lambda *_: _C.miss)
    add = is_guarded = renew = staticmethod(lambda *_: False)
    clear = set_guard = staticmethod(lambda *_: None)


class Graphed:
    """What :func:`reprise.graphed` makes of a function. Of a module it makes another module, whose calls
    go through one of these (:func:`reprise.graphed_of`)."""

    __class_getitem__ = classmethod(types.GenericAlias)
    is_eager = False  # does it never capture?
    _need = staticmethod(need_gpu)
    _given = None  # what it was made with

    def __new__(cls, *given):
        made = super().__new__(cls)
        made._given = given
        return made

    def __init__(self, fn, pool, name, warmup, copy_args, strict, watch, generators, grad,
                 frozen, verify, max_shapes=MOST_SHAPES):
        self._torch = self._need()
        self._fn = fn
        self._given_pool = pool
        self._pools = {}  # by the index of the device
        self._name = name
        self._warmup = warmup
        self._copy_args = copy_args
        self._strict = strict
        self._grad = grad
        self._frozen = frozen
        self._verify = verify
        self._generators = tuple(generators)
        torch = self._torch
        modules = find_modules(torch, fn) + [w for w in watch if isinstance(w, torch.nn.Module)]
        self._watch = Watch(torch, modules, [w for w in watch if isinstance(w, torch.Tensor)])
        self._addresses = self._watch.addresses()
        self._reads = Reads(torch, fn, self._watch, modules)
        self._news = News()
        self._max_shapes = max_shapes
        self._shapes = {}
        self._failures = {}
        self._stale = {}  # by key: how many graphs were dropped, as memory that they used was freed
        self._eager_runs = 0
        self._hot = None
        self._guards = 0  # how often the short way was guarded anew, and forgot its shapes
        self._draws = True  # until a capture drew no random numbers
        self._trained = ()  # parameters, once a call was seen to touch gradients
        self._leads = {}  # by key, but for gradients: where a layout begins, if it was tuned
        self._drops = {}  # by key, but for gradients, of calls that drop those first: other parameters
        self._refusals = Refusals()
        self._lock = threading.RLock()
        functools.update_wrapper(self, fn if not isinstance(fn, torch.nn.Module) else fn.forward,
                                 updated=())
        all_graphed.add(self)

    # ---- Copies ----

    def __deepcopy__(self, memo):
        """One of a copy of the callable, which has captured nothing. It is made when it is first needed:
        the owner of a bound method is copied around it, and is not whole yet."""
        made = memo[id(self)] = object.__new__(type(self))
        made._given = (copy.deepcopy(self._fn, memo), *self._given[1:])
        return made

    def __getattr__(self, name):
        if self._given and "_torch" not in self.__dict__:
            self.__init__(*self._given)
            return getattr(self, name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __reduce_ex__(self, protocol):
        """What is pickled is the callable."""
        return _module.pickled(self._fn)

    # ---- Calls ----

    def __call__(self, *args, **kwargs):
        if self._hot is not None:
            result = self._hot.call(args, kwargs)
            if result is not _C.miss:
                return self._fn(*args, **kwargs) if result is _C.eager else result
        torch = self._torch
        leaves, spec = flatten((args, kwargs)) if kwargs else flatten(args)
        if self._refusals.has_object_of(leaves):
            return self._fn(*args, **kwargs)
        try:
            tensors, key = self._key(leaves, (spec, bool(kwargs)))
            self._notice_new(key, leaves, args, kwargs)
        except Uncapturable as why:
            return self._eager(args, kwargs, str(why))
        if torch.cuda.is_current_stream_capturing() or is_alone():
            return self._fn(*args, **kwargs)  # a part of somebody else's capture
        return self._by_graph(key, leaves, tensors, spec, args, kwargs)

    def _by_graph(self, key, leaves, tensors, spec, args, kwargs):
        shape = self._known(key)
        if shape is not None:
            self._shorten(shape, key, args, kwargs, tensors)
            return self._replay(key, shape, tensors, args, kwargs)
        with self._lock:
            shape = self._known(key)
            while shape is None:  # what a capture put back may have freed what it used
                shape = self._first_call(key, leaves, tensors, spec, args, kwargs)
                if isinstance(shape, tuple):
                    return shape[0]
                key = self._stored(key)
                shape = self._known(key)
        return self._replay(key, shape, tensors, args, kwargs)

    def _replay(self, key, shape, tensors, args, kwargs):
        """The call by its graph, where that is right for what the places hold which it assigns."""
        if shape.effects is None or shape.effects.fit():
            return shape.replay(tensors)
        shape.effects.misfits += 1
        if shape.effects.misfits == MOST_MISFITS:
            self._drop_misfit(key, shape)
        return self._fn(*args, **kwargs)

    def _drop_misfit(self, key, shape):
        """The callable assigns to places that hold something else than they did before its capture."""
        with self._lock:
            if self._shapes.get(key) is not shape:
                return
            self._drop(key)
        text = f"{shape.effects} held something else in {MOST_MISFITS} calls than before the capture"
        self._failures[key] = (text, ATTEMPTS)
        warn(f"reprise: '{self.name}' runs without a graph for these arguments from now on: {text}")

    def _stored(self, key):
        """The key that a shape is stored with, now that it was captured."""
        return (key[0], self._pattern(key[0])) if key[0] in self._drops else key

    def _looked(self, key):
        """The parameters whose gradients decide which shape calls of such a key are of."""
        return self._drops.get(key, self._trained)

    def _pattern(self, key):
        """Which gradients are missing, of those that calls of such a key look at."""
        return _missing(self._looked(key))

    def _known(self, key):
        """The captured shape of this key, where all memory that it uses is there."""
        shape = self._shapes.get(key)
        if shape is None or not shape.is_stale():
            return shape
        with self._lock:
            if self._shapes.get(key) is shape:
                self._drop_stale(key, shape)
        return None

    def drop_giving(self, params):
        """Drops the shapes that leave gradients of some of these parameters, told by their ids. Calls
        that are under way on other threads keep theirs."""
        for key, shape in list(self._shapes.items()):
            if isinstance(shape, Shape) and any(id(param) in params for param, _ in shape.given):
                self._drop(key)

    def _drop(self, key):
        """What was captured for a key is not called any more."""
        self._shapes.pop(key, None)
        if self._hot is not None:
            self._hot.clear()

    @staticmethod
    def _group(key):
        """What the keys of calls have in common that differ by what the callable reads."""
        family, values, modes = key[0]
        return family, values, modes[1:]

    def _settled(self, key):
        return self._group(key), key[1]

    def _drop_freed(self, key):
        """Drops what was captured for like calls with tensors that were freed since."""
        settled = self._settled(key)
        for other, shape in list(self._shapes.items()):
            if other != key and self._settled(other) == settled and shape.is_stale():
                self._drop_stale(other, shape)

    def _drop_stale(self, key, shape):
        """The callable uses other memory by now than the shape, which is captured anew; but not for
        ever, as captures cost more than they bring."""
        self._drop(key)
        if isinstance(shape, Shape):
            settle(self._torch, list(shape.moved()))
        settled = self._settled(key)
        self._stale[settled] = self._stale.get(settled, 0) + 1
        if self._stale[settled] < MOST_STALE:
            return
        lost = max(part.graph.info()["lost_bytes"] for part in shape.parts())
        text = (f"memory that it uses beside its arguments, {lost} bytes, was freed after each of "
                f"{MOST_STALE} captures. Give that tensor as an argument, or write into it instead "
                "of replacing it") if lost else (
            f"gradients that it uses lay elsewhere after each of {MOST_STALE} captures. Let the "
            "optimizer keep them, zero_grad(set_to_none=False), and write into them instead of "
            "assigning to p.grad.data")
        self._failures[settled] = (text, ATTEMPTS)
        warn(f"reprise: '{self.name}' runs without a graph for these arguments from now on: {text}")

    def _shorten_eager(self, args, kwargs, tensors):
        """Lets the short way tell that calls of a shape which cannot be captured are eager ones, where
        it need not forget shapes for that which have graphs. It would take those that share no memory
        for the same as those that do. Where gradients decide, all such calls come here: next to what
        an eager training step costs, that is little."""
        guarded = self._is_guarded()
        if (guarded or not self._shapes) and self._may_shorten() and not self._trained and (
                self._aliasing(tensors) is None):
            self._guarded_hot(guarded).add(self._device(tensors).index, args, kwargs, None, (), None)

    def _shorten(self, shape, key, args, kwargs, tensors):
        """Lets the short way have calls of this shape, where it can take them."""
        if not isinstance(shape, Shape) or not self._may_shorten():
            return
        guarded = self._is_guarded()
        if guarded and shape.offered == self._guards:
            return
        short = self._short(shape, key, tensors)
        if short is not None:
            made, build, gradients = short
            self._guarded_hot(guarded).add(shape.device.index, args, kwargs, shape.graph, made, build,
                                           None, gradients)
        shape.offered = self._guards

    def _short(self, shape, key, tensors):
        """How the short way makes the results of a shape, for a call that is about to be made, and what
        it has to know of gradients; or None."""
        looked = self._looked(key[0])
        missing = _missing(looked)
        if self._shapes.get((key[0], missing)) is not shape:
            return None  # another thread has made or dropped gradients since
        short = shape.short(tensors)
        return short and (*short, for_short_way(looked, missing or (), shape.used, shape.given))

    def _may_shorten(self):
        """The short way looks at nothing of autocast."""
        return not self._torch.is_autocast_enabled()

    def _is_guarded(self):
        """Does the short way take calls in the modes that hold now? Hooks and modules of others do not
        count, which the long way has just looked at: PyTorch 2.15 registers a hook in every graph."""
        hot = self._hot
        if hot is None or self._hot_modes != self._hot_modes_now():
            return False
        return hot.is_guarded() or hot.renew(*self._watch.counts(self._frozen))

    def _hot_modes_now(self):
        return (self._torch.is_grad_enabled(), self._torch.is_inference_mode_enabled())

    def _guarded_hot(self, guarded):
        """The short way; where it was not guarded it is, and knows no shapes."""
        torch, watch = self._torch, self._watch
        if self._hot is None:
            try:
                self._hot = _C.Hot(torch.Tensor, torch.empty_strided, _private.of(torch).quick_empty,
                                   torch.is_grad_enabled, torch.is_inference_mode_enabled,
                                   torch.is_autocast_enabled, torch.cuda.current_device)
            except (AttributeError, NotImplementedError, TypeError, ValueError):
                self._hot = LongWay()  # PyTorch tells nothing of tensors through DLPack's C interface
        if not guarded:
            modes = self._hot_modes_now()
            tensors, modules = ((), ()) if self._frozen else (watch.tensors, watch.modules)
            params = watch.params if modes[0] and not self._frozen else ()
            self._hot.set_guard(tuple(tensors), tuple(m.__dict__ for m in modules), watch.handle,
                                *modes, tuple(params), self._reads.handle)
            self._hot_modes = modes
            self._guards += 1
        return self._hot

    def _first_call(self, key, leaves, tensors, spec, args, kwargs):
        """The captured shape, or a tuple that holds an eager call's result."""
        if self._has_failed(key):
            self._shorten_eager(args, kwargs, tensors)
            return (self._fn(*args, **kwargs),)
        if self._eager_runs < self._warmup:
            return (self._warm_up(args, kwargs),)
        group = self._group(key)
        if self._refusals.covers(group, leaves):
            return (self._fn(*args, **kwargs),)
        self._drop_freed(key)
        if self._has_failed(key):
            return (self._fn(*args, **kwargs),)
        try:
            shape = self._capture(key, leaves, tensors, spec, bool(kwargs), self._verify)
        except Changed as error:
            return (self._run_changing(group, error, args, kwargs),)
        except Unobserved as error:
            return (self._run_observed(group, error, args, kwargs),)
        except Exception as error:  # whatever the callable raises in a capture
            if self._strict:
                tell_mend(error, self.name)
                raise
            others = [leaf for leaf in leaves if not isinstance(leaf, self._torch.Tensor)]
            self._failed(self._refusals.failed(others) or key, error,
                         ATTEMPTS if isinstance(error, Refused) else 1)
            return (self._fn(*args, **kwargs),)
        self._refusals.worked(group, leaves)
        self._keep(self._stored(key), shape)
        return shape

    def _has_failed(self, key):
        return any(self._failures.get(k, ("", 0))[1] >= ATTEMPTS for k in (key, self._settled(key)))

    def _run_changing(self, group, error, args, kwargs):
        """An eager call, behind an attempt that found it to change Python state. Once there will be no
        further one, the warning tells the line that does."""
        if not self._refusals.note(group, error):
            return self._fn(*args, **kwargs)
        if self._strict:
            tell_mend(error, self.name)
            raise error
        records = error.records or records_of(args, kwargs)
        result, line = traced_call(self._fn, args, kwargs, records)
        self._reads.forget_arguments()
        if not error.kinds:
            self._failures[group] = (f"{type(error).__name__}: {error}", ATTEMPTS)
        if self._refusals.is_new(error):
            self._tell_refused(error, line)
        return result

    def _run_observed(self, group, error, args, kwargs):
        """An eager call, which tells whether calls take iterators forward: nothing would put them back."""
        result, line = traced_call(self._fn, args, kwargs, error.records)
        self._refusals.observed.add(group)
        changed = error.changed()
        if changed is not None:
            if self._strict:
                raise changed
            self._refusals.note(group, changed)
            self._failures[group] = (f"{type(changed).__name__}: {changed}", ATTEMPTS)
            self._tell_refused(changed, line)
        return result

    def _keep(self, key, shape):
        """Keeps a shape, and lets the one go that was not used for longest where there are too many."""
        self._shapes[key] = shape
        for other, old in list(self._shapes.items()) if len(self._shapes) > self._max_shapes else ():
            used = sum(part.graph.info()["replays"] for part in old.parts())
            if old is shape or used != old.used_before:
                old.used_before = used
                self._shapes[other] = self._shapes.pop(other)  # the latest now
                continue
            self._drop(other)
            break
        while len(self._shapes) > self._max_shapes:
            self._drop(next(iter(self._shapes)))

    def _warm_up(self, args, kwargs):
        """An eager call, which tells whether calls touch gradients."""
        self._eager_runs += 1
        before = self._gradients()
        result = self._reads.eager_call(self._fn, args, kwargs)
        self._notice_gradients(before, before.changed() or before.used())
        return result

    def _gradients(self):
        """The gradients of what the callable may train."""
        watch = self._watch
        fresh = () if self._frozen else watch.modules  # looked at by each call
        return Gradients(find_params(self._torch, self._fn, watch.params, fresh,
                                     self._reads.optimizers))

    def _notice_gradients(self, before, touched):
        """Calls that touch gradients do not do the same where there are none yet."""
        if touched and not self._trained:
            self._trained = tuple(before.params)
            if self._hot is not None:
                self._hot.clear()

    def _failed(self, key, error, attempts=1):
        count = self._failures.get(key, ("", 0))[1] + attempts
        self._failures[key] = (f"{type(error).__name__}: {error}", count)
        if count < ATTEMPTS:
            return
        self._tell_refused(error, line_of(error))

    def _tell_refused(self, error, line):
        known = _C.explain(str(error))
        mend = f" {known[2]}." if known and known[2] and known[2] not in str(error) else ""
        text = (str(error) or type(error).__name__).splitlines()[0]
        place = f" (at {line})" if line else ""
        warn(f"reprise: '{self.name}' runs without a graph for these arguments, because "
             f"it could not be captured: {text}{place}.{mend} "
             "reprise.check names everything that stands in the way; strict=True raises "
             "the error itself")

    def _eager(self, args, kwargs, why):
        if self._strict:
            raise _C.Error(f"'{self.name}' cannot be captured for these arguments: {why}")
        if why not in self._failures:
            self._failures[why] = (why, ATTEMPTS)
            warn(f"reprise: '{self.name}' runs without a graph for these arguments: {why}")
        return self._fn(*args, **kwargs)

    # ---- Keys ----

    def _key(self, leaves, spec):
        """The tensors among the leaves, and what a captured graph depends on. The first part of that is
        what calls have in common that differ by values only."""
        tensors, likes, values = self._sort(leaves)
        device = self._device(tensors)
        overlap = self._aliasing(tensors) if len(tensors) > 1 else None
        family = (spec, likes, overlap)
        why = self._news.why(family)
        if why is not None:
            raise Uncapturable(why)
        key = (family, values, self._modes(device))
        try:
            return tensors, (key, self._pattern(key))
        except TypeError:
            raise Uncapturable("an argument that is no tensor cannot be hashed, so that a change "
                               "of it would go unseen") from None

    def _sort(self, leaves):
        """The tensors among the leaves; what each leaf is; and the values of those that are no tensors."""
        torch = self._torch
        tensors, likes, values = [], [], []
        for leaf in leaves:
            kind = type(leaf)
            if kind is torch.Tensor or kind is torch.nn.Parameter:
                self._check_tensor(leaf)
                tensors.append(leaf)
                likes.append((leaf.shape, leaf.stride(), leaf.dtype, leaf.device.index,
                              leaf.requires_grad))
            elif isinstance(leaf, torch.Tensor):
                raise Uncapturable(f"an argument is a {kind.__name__}, a subclass of Tensor")
            else:
                likes.append(kind)
                values.append(plain_token(leaf) if is_plain(leaf) else self._object(leaf))
        return tensors, tuple(likes), tuple(values)

    def _check_tensor(self, tensor):
        if not tensor.is_cuda:
            raise Uncapturable("an argument is a tensor on the CPU, which a graph would "
                               "not see change. Move it to the GPU before the call")
        if tensor.layout is not self._torch.strided or tensor.is_conj() or tensor.is_neg():
            raise Uncapturable("an argument is a sparse tensor or a lazy view")

    def _object(self, leaf):
        """What a call depends on of an argument that is an object."""
        if type(leaf).__hash__ is None and type(leaf).__module__ == "builtins":
            return leaf  # cannot be hashed, and is refused for that
        try:
            return self._reads.argument(leaf)
        except Unreadable as why:
            raise Uncapturable(str(why)) from None

    def _notice_new(self, key, leaves, args, kwargs):
        """Calls whose values were never met before, time after time, are not for graphs."""
        family, values, modes = key[0]
        is_known = key in self._shapes or key in self._failures
        self._news.notice(family, (values, modes), is_known, values, self._reads,
                          lambda: self._names_of_values(leaves, args, kwargs))
        why = self._news.why(family)
        if why is not None:
            raise Uncapturable(why)

    def _names_of_values(self, leaves, args, kwargs):
        names = names_of_leaves(self._fn, args, kwargs)
        return [name for name, leaf in zip(names, leaves) if not isinstance(leaf, self._torch.Tensor)]

    @staticmethod
    def _aliasing(tensors):
        """Which of them overlap, and how; None when none do."""
        found = extents(tensors)
        if len(found) == len(tensors):
            return None
        return tuple((e.bytes, tuple(e.members)) for e in found)

    def _modes(self, device):
        torch, watch = self._torch, self._watch
        if not self._frozen:
            self._notice_changes()
        try:
            read = self._reads.state()
        except Unreadable as why:
            raise Uncapturable(str(why)) from None
        if self._reads.found_more:
            self._addresses, self._reads.found_more = watch.addresses(), False
        autocast = torch.is_autocast_enabled("cuda")
        return (read, self._reads.switches.key(),
                torch.is_grad_enabled(), torch.is_inference_mode_enabled(),
                autocast and torch.get_autocast_dtype("cuda"),
                device.index,
                not self._frozen and (watch.modes(), torch.is_grad_enabled() and watch.grads()))

    def _notice_changes(self):
        watch = self._watch
        if watch.has_changed_members():
            self._forget()
        addresses = watch.addresses()
        if addresses != self._addresses:
            self._forget()
            self._addresses = addresses

    def _forget(self):
        """Drops all that was captured: it reads memory that the modules left."""
        self._shapes.clear()
        self._failures.clear()
        self._stale.clear()
        self._drops.clear()
        self._refusals.clear()
        if self._trained:
            self._trained = tuple(self._gradients().params)
        if self._hot is not None:
            self._hot.clear()

    # ---- Captures ----

    def _device(self, tensors):
        """The GPU of a call with these arguments."""
        torch = self._torch
        indices = {t.device.index for t in tensors} or {torch.cuda.current_device()}
        if len(indices) > 1:
            named = " and ".join(f"cuda:{i}" for i in sorted(indices))
            raise Uncapturable(f"arguments lie on {named}, and a graph is of one GPU. Move them to one "
                               "before the call")
        index = indices.pop()
        pool = self._given_pool
        if pool is not None and pool.device != index:
            raise Uncapturable(f"the pool '{pool.name}' is of cuda:{pool.device}, and the arguments lie "
                               f"on cuda:{index}. Leave the pool out, or give the calls of each GPU a "
                               "graphed callable with a pool of that GPU")
        return torch.device("cuda", index)

    def _own_pool(self, device):
        """The pool of alternatives that the shapes on this device lie in; within one of another kind
        that it was given: shapes of one callable never run at the same time there."""
        pool = self._pools.get(device.index)
        if pool is None:
            pool = self._given_pool
            if pool is None or pool.kind != "alternatives":
                pool = Pool("alternatives", parent=pool, name=self.name, device=device)
            self._pools[device.index] = pool
        return pool

    def _capture(self, key, *call):
        """A shape, captured (as for _take). Gradients are afterwards what they were before, but where
        it uses some that lay in memory of graphs: those have moved."""
        try:
            return self._capture_here(key, *call)
        except Shared:
            if not settle(self._torch, self._gradients().params):
                raise
        return self._capture_here(key, *call)

    def _capture_here(self, key, *call):
        before = self._before(key, *call)
        if self._group(key) not in self._refusals.observed and before.effects.iterators():
            raise Unobserved(before.effects.iterators())
        try:
            made = self._take(before, key, *call)
            if isinstance(made, Shape):
                self._keep_gradients(key, made, before.gradients)
            made.effects = before.effects.replayed(made)
        except BaseException as error:
            clear_frames(error)
            raise
        finally:
            before.finish()
            self._reads.leave_out(before.effects.places)
        return made

    def _before(self, key, leaves, tensors, spec, has_kwargs, *_):
        """What a capture for a call with these arguments has to leave as it is."""
        gradients = self._gradients().hold()
        kept = [(name, leaf) for name, leaf in zip(argument_names(spec, has_kwargs), leaves)
                if not isinstance(leaf, self._torch.Tensor)]
        return Before(gradients, Effects(self._torch, self._fn, kept,
                                          self._refusals.known.get(key and self._group(key))))

    def _take(self, before, key, leaves, tensors, spec, has_kwargs, verify):
        torch = self._torch
        device = self._device(tensors)
        split = self._is_split(tensors)
        _distributed.check_modules(torch, self._watch.modules, split)
        pool = self._own_pool(device)
        body = self._body(before, leaves, spec, has_kwargs)
        name = self._shape_name(tensors)
        with torch.cuda.device(device):
            if split:
                made = Split(torch, device, body, tensors, self._watch.params, self._generators)
                made.capture(Pool("sequence", parent=pool, name=name), name,
                             verify and "capture")  # a step must not be taken twice
                made.again = None if self._strict else self._called_again(leaves, spec, has_kwargs)
            else:
                work = Work(torch, device, body, tensors, self._generators, draws=self._draws,
                            put_back=before.gradients.restore)
                lead = self._leads.get(key[0], 0)
                made = Shape(work, work.capture(pool._pool, name, self._copy_args, verify, lead))
                made.lead = lead
                self._draws = work.draws
        for part in made.parts():
            part.stale = self._stale.get(self._settled(key), 0)
        return made

    def _called_again(self, leaves, spec, has_kwargs):
        """How gradients of gradients call it; of the arguments it keeps those that are no tensors."""
        torch, watch = self._torch, self._watch
        which = [isinstance(leaf, torch.Tensor) for leaf in leaves]
        stand_ins = [torch.empty(0) if is_tensor else leaf for is_tensor, leaf in zip(which, leaves)]
        return Again(torch, self.name, body_of(torch, self._fn, stand_ins, spec, has_kwargs),
                     lambda: watch.tensors)

    def _body(self, before, leaves, spec, has_kwargs):
        """What the runs of a capture call; before: as _before returned it."""
        body = body_of(self._torch, self._fn, leaves, spec, has_kwargs, watches=True)
        params = before.gradients.params
        if any(homes.of(p) is not None for p in params):
            body = brings_home(self._torch, body, params)
        return self._reads.refusing(before.effects.watched(body))

    def _keep_gradients(self, key, shape, before):
        """What the capture did to gradients, for the shape's calls."""
        torch, changed = self._torch, before.changed()
        shape.used = before.named_by(torch, shape.graph)
        if changed:
            shape.given = to_give(torch, changed, shape.graph)
            shape.left = tuple((g, g.data_ptr()) for _, g in shape.given if g is not None)
        self._notice_gradients(before, changed or shape.used)
        if key[0] in self._drops or (changed and not shape.used and before.replaced()):
            self._drops[key[0]] = before.missing()

    def _is_split(self, tensors):
        """Is the caller going to ask for gradients through the result?"""
        torch = self._torch
        if not torch.is_grad_enabled() or self._grad == "whole":
            return False
        if any(t.requires_grad for t in tensors):
            return True
        return (self._grad == "split" or _is_forward(torch, self._fn)) and self._watch.trains()

    def _shape_name(self, tensors):
        shapes = ", ".join("x".join(map(str, t.shape)) or "scalar" for t in tensors[:3])
        return f"{self.name}({shapes})"

    # ---- Facts ----

    @property
    def name(self):
        if self._name:
            return self._name
        fn = self._fn
        return getattr(fn, "__name__", None) or type(fn).__name__

    @property
    def pool(self):
        """The :class:`reprise.Pool` that the graphs lie in, of the current device or else of the first
        that any were captured on; None before the first capture."""
        pools = self._pools
        here = pools.get(self._torch.cuda.current_device()) if len(pools) > 1 else None
        return here or next(iter(pools.values()), self._given_pool)

    @property
    def pools(self):
        """A dict: by the index of each GPU that anything was captured on, the pool of its graphs."""
        return dict(self._pools)

    def shapes(self):
        """What was captured: for each graph a dict of its facts, ``calls`` and
        ``arguments`` (each with ``bound``, ``bindable`` and the ``reason`` why not) among them, and
        how it was ``verified``, with how many ``unverified_args`` are copied for it."""
        facts = []
        for made in list(self._shapes.values()):
            for shape in made.parts():
                facts.append(shape.facts())
        return facts

    def tune(self, *args, places=8, **kwargs):
        """Chooses by the clock where the memory of a graph lies.

        The parts of a GPU's cache are near to some multiprocessors and far from others, and which part
        4 KiB of memory belong to hangs on their address. So graphs of many small kernels take more or
        less time by where their layout begins in the pool (``bench/torch/places.py``). This captures
        ``fn`` for these arguments at several places, 4 KiB apart, and keeps the graph that was
        quickest; where it has to be captured anew, it lies there again.

        Arguments:
            args, kwargs: As for a call. They are captured first where they were not.
            places (int): How many to try. Default: 8, of which the last begins 28 KiB into the pool.

        Returns:
            A dict: ``us``, a dict of the microseconds of a call at each place, by the bytes that lie
            before it, and ``lead_bytes``, where the graph lies from now on.

        ``fn`` is captured at each place and its graph is called some 50 times there: for callables that
        may be called so often with these arguments. The current stream is synchronised. Raises what
        keeps ``fn`` from being captured, and :class:`reprise.Error` where forward and backward are two
        graphs. The pool may grow by 4 KiB for each place."""
        from ._tune import tune
        return tune(self, args, kwargs, places)

    def failures(self):
        """Why some calls run without a graph: texts."""
        return [text for text, _ in self._failures.values()]

    def choices(self):
        """How the calls of each shape go where ``policy`` is ``"auto"``: for each a dict with
        ``shape``, ``choice`` and its ``reason``, ``eager_us`` and ``graph_us``, the counts of calls
        that were judged and measured, and what it took to know: ``capture_ms`` of captures, and
        ``trial_ms`` of calls that went the slower way to be compared."""
        return []


def graphed(fn=None, *, shapes=None, warmup=1, pool=None, name=None, copy_args=False, strict=False,
            watch=(), generators=(), grad="auto", frozen=False, progress=False,
            policy="always", verify=None, max_shapes=MOST_SHAPES):
    """Captures a callable's GPU work once for each shape of its arguments, and replays it.

    Arguments:
        fn (callable or torch.nn.Module): Called with tensors and other values in any nesting of
            tuples, lists, dicts and registered containers. It may be a whole training step.
        shapes (iterable of tuples, optional): Arguments to capture ahead, largest first: each a
            tuple of what ``fn`` is called with. Their values are not read, and nothing runs but
            the warm-up.
        warmup (int): How many first calls run eagerly, so that what the callable creates lazily
            exists. Default: 1.
        pool (reprise.Pool, optional): Where its graphs lie: in it when it is one of alternatives,
            otherwise in such a pool within it. Default: a pool of its own.
        name (str, optional): For reports and errors.
        copy_args (bool): Copy arguments to where the capture had them, at every call: for callables
            that keep an argument's address in device memory, where no capture sees it.
        strict (bool): Raise what keeps a call from being captured, instead of running it eagerly
            and warning.
        watch (iterable): Modules and tensors that ``fn`` uses and that cannot be found as ``fn``
            itself, its owner or what it closes over. When their memory moves, all is captured anew.
            Under :func:`reprise.install` any tensor that ``fn`` uses is known once it is freed, and
            what used it is captured anew; watch those that are replaced while something keeps them.
        generators (iterable of torch.Generator): Those it draws from beside the default one.
        grad (str): ``"split"``: with gradients enabled, forward and backward are two graphs, and
            results take part in autograd. ``"whole"``: the callable is one graph, backward passes
            and optimizer steps inside it included, and results are detached. ``"auto"``: split
            where an argument requires a gradient, or ``fn`` is a module with a parameter that does.
            Gradients that a whole graph leaves lie in its memory, until its next call. When the
            last of them is dropped after the graph, the stream of its last call, which has to exist
            then, is waited for. Where graphs read them or add to them (micro-batches, an optimizer's
            step) they get memory of their own instead, for as long as the parameters live, until the
            next call of any graph that makes gradients of these.
        frozen (bool): A promise that modules keep their parameters, buffers, modes and hooks from the
            first capture on, so that calls need not look at them: some 5 ns for each parameter,
            15 with gradients enabled, and, before CPython 3.12, 20 ns for each module. Values of
            parameters may change.
        progress (bool or callable): While ``shapes`` are captured: ``True`` writes a line to standard
            error that rewrites itself, where that is a terminal; a callable is called after each
            shape with how many are done, how many there are, and the facts of its graph.
        policy (str): ``"always"``: what can be captured goes by its graph. ``"auto"``: calls of a
            shape begin eagerly and are timed; it is captured once that may pay, then eager runs
            and graph are measured in turns, and calls go the faster way, looked at again from time
            to time. Forward and backward as two graphs are not judged, and always go by them.
            ``"never"``: no graph.
        verify (str, optional): ``"capture"``: each shape is captured once more, to verify with
            arguments at other addresses what two captures prove; an argument that is found elsewhere
            is copied, with a warning in the log of the library. ``"run"``: besides, ``fn`` is run
            twice more and the graph replayed on copies of the arguments, and results have to be
            equal to the bit: for an ``fn`` that changes nothing but its arguments and results. Where
            it draws random numbers, wants gradients, or is captured ahead, ``"capture"`` it is.
        max_shapes (int): How many graphs are kept; of more the one goes that was not used for
            longest. Default: 1024.

    Returns:
        A :class:`reprise.Graphed` with the same arguments. Of a module another module, which shares
        all that ``fn`` has (parameters, mode, hooks, attributes): a copy of it is graphed by itself,
        and what is pickled is ``fn``. Results are fresh tensors, as from ``fn``; no input is copied
        where two captures prove every place that holds its address. Work is enqueued on the current
        stream. Without a GPU calls run eagerly, with one warning, or an error where ``strict``.

    A capture calls ``fn`` more than once, and puts back what that changes of Python state: attributes,
    variables, containers, generators of random numbers. Tensors that ``fn`` assigns (``self.loss = ..``)
    are assigned afresh by each replay. Where calls change other state (a list that grows, a counter, a
    cache that is read and replaced), they run eagerly, with a warning that names the place and the line.
    State of C++ objects, and of Python's own library, is not looked at.

    Values that are no tensors are part of the key: another value, shape, stride, dtype, device, mode
    (``train``/``eval``, ``no_grad``, autocast) or overlap of arguments is captured anew. So is what
    ``fn`` reads beside its arguments: closures, defaults, globals, attributes of modules and objects,
    containers, small tensors on the CPU, PyTorch's switches. The graph of a value that comes back is
    found again. A value that is new at each of eight calls in a row is warned of by name, and such calls
    are eager from then on. What a replay would not do again (a line printed, a number of ``random`` or
    NumPy drawn, an iterator moved on, the time) is refused, with its line.

    A graph is of one GPU, that of the arguments, which is the current device while ``fn`` is
    captured; of calls without tensors it is the current device. Each GPU has a pool of its own.

    Example::

        model = reprise.graphed(model)
        with torch.no_grad():
            for batch in batches:
                out = model(batch)
    """
    if fn is None:
        return functools.partial(graphed, shapes=shapes, warmup=warmup, pool=pool, name=name,
                                 copy_args=copy_args, strict=strict, watch=watch,
                                 generators=generators, grad=grad, frozen=frozen,
                                 progress=progress, policy=policy, verify=verify,
                                 max_shapes=max_shapes)
    if policy not in ("always", "auto", "never"):
        raise ValueError(f"policy is {policy!r}, but has to be always, auto or never")
    if grad not in ("auto", "split", "whole"):
        raise ValueError(f"grad is {grad!r}, but has to be auto, split or whole")
    if not callable(fn):
        raise TypeError(f"fn is a {type(fn).__name__}, which cannot be called")
    if verify not in VERIFY:
        raise ValueError(f"verify is {verify!r}, but has to be None, 'capture' or 'run'")
    if not isinstance(max_shapes, int) or max_shapes < 1:
        raise ValueError(f"max_shapes is {max_shapes!r}, but has to be 1 or more")
    options = (pool, name, warmup, copy_args, strict, watch, generators, grad, frozen, verify,
               max_shapes)
    return _make(fn, policy, options, shapes, progress)


def graphed_(module, **options):
    """Graphs a module in place: as :func:`reprise.graphed` with the same options, but the object itself
    becomes the graphed module, for whoever holds it.

    Example::

        reprise.graphed_(trainer.model.encoder)
    """
    torch = need_torch()
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module is a {type(module).__name__}, which is no torch.nn.Module: use "
                        "reprise.graphed")
    if _module.is_module(module):
        raise ValueError(f"this {type(module).__name__} is graphed already")
    if not _module.can_be(torch, module):
        raise TypeError(f"a {type(module).__name__} is of TorchScript, and cannot be graphed in place: use "
                        "reprise.graphed")
    plain = _module.twin_of(module)
    made = _module.graphed_of(graphed(plain, **options))
    return _module.change(torch, module, plain, made, functools.partial(graphed_, **options))


def _make(fn, policy, options, shapes, progress):
    torch = need_torch()
    fn = _module.plain_of(fn)
    made = _kind(torch, policy, options)(fn, *options)
    if shapes is not None and not made.is_eager:
        _capture_ahead(made, shapes, progress)
    if not isinstance(fn, torch.nn.Module) or not _module.can_be(torch, fn):
        return made
    return _module.wrap(torch, fn, made, lambda other: _make(other, policy, options, None, False))


def _kind(torch, policy, options):
    """The class whose calls go as the policy says."""
    from ._policy import Judged, Ungraphed, WithoutGpu
    if torch.cuda.is_available():
        return {"always": Graphed, "auto": Judged, "never": Ungraphed}[policy]
    if options[4]:  # strict
        need_gpu()
    global _warned
    if not _warned:
        _warned = True
        warn(f"reprise: what is graphed runs without graphs, as it is: {why_no_gpu(torch)}")
    return WithoutGpu


def by_size(torch, shapes):
    """The arguments of shapes as tuples, those with the most elements first."""
    def size(args):
        return sum(t.numel() for t in flatten(args)[0] if isinstance(t, torch.Tensor))

    return sorted(map(tuple, shapes), key=size, reverse=True)


def _capture_ahead(made, shapes, progress):
    """Runs the warm-up on the largest, then captures all, largest first."""
    wanted = by_size(made._torch, shapes)
    progress = Progress(progress, made.name, len(wanted))
    try:
        for args in wanted:
            shape = capture_one(made, args, {})[0]
            progress(shape.parts()[-1].facts(), made.pools[shape.device.index].info())
    finally:
        progress.close()


def capture_one(made, args, kwargs):
    """The shape of these arguments, captured where it was not; its key, and what Graphed._capture takes
    of the call."""
    with made._lock:
        while made._eager_runs < made._warmup:
            made._warm_up(args, kwargs)
        leaves, spec = flatten((args, kwargs)) if kwargs else flatten(args)
        tensors, key = made._key(leaves, (spec, bool(kwargs)))
        call = (leaves, tensors, spec, bool(kwargs), made._verify and "capture")
        if made._known(key) is None:
            shape = _capture_ahead_of(made, key, call, args, kwargs)
            key = made._stored(key)
            made._keep(key, shape)
        return made._shapes[key], key, call


def _capture_ahead_of(made, key, call, args, kwargs):
    """A shape, captured; behind an eager call where what is made lazily was not there."""
    try:
        return made._capture(key, *call)
    except (Changed, Unobserved) as error:
        if isinstance(error, Changed) and made._refusals.note(made._group(key), error):
            raise
        made._fn(*args, **kwargs)
        made._refusals.observed.add(made._group(key))
    return made._capture(key, *call)
