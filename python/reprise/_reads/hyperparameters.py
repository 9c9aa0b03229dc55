# SPDX-License-Identifier: MIT
"""Hyperparameters of the optimizers that a callable uses, as numbers that its replays follow.

A learning rate that a schedule changes would be another value of the key at each call, and so a capture.
Here the runs of a capture get Scalars (scalars.py) in place of the floats in `param_groups`, and of the
step counts that Adam and others keep on the CPU. What is computed from them is named, two captures prove
which kernels' parameters hold it, and replays write there what holds then. One graph serves all values.

    place      a float in a group, or in a tuple there (`betas`). Where it is one that work may be chosen by
               (0, 1, 0.5, ..) it is part of the key as it is, otherwise by its sign
    counter    a tensor `step` of one element on the CPU, which each replay moves on as the runs did

Where that cannot be proved the values are part of the key, as all that a callable reads is, and the reason
is told: `Graphed.hyperparameters()`.
"""

import contextlib

from .. import _C
from .._base.tree import flatten
from .scalars import FIXED, Escaped, Scalar, Trace

_DIVERGED = "RP_ERROR_DIVERGED"
_CHECKS = ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check")
_PARAMS = "params"
_STEP = "step"
CONVERTERS = frozenset(("math", "cmath", "numpy", "np", "decimal", "fractions", "struct", "ctypes"))


class Place:
    """A float in a parameter group. index: in the tuple there; -1: it is none."""

    __slots__ = ("group", "key", "index", "path")

    def __init__(self, group, key, index, path):
        self.group = group
        self.key = key
        self.index = index
        self.path = path

    def get(self):
        value = self.group.get(self.key)
        if self.index < 0:
            return value
        return value[self.index] if type(value) is tuple and self.index < len(value) else None

    def where(self):
        """The dict and the key, as _C.Scalars takes them."""
        return self.group, self.key

    def kind(self):
        value = self.get()
        return _C.scalar_kind(value) if type(value) is float else FIXED


class Counter:
    """A step count on the CPU."""

    __slots__ = ("state", "tensor")

    def __init__(self, state, tensor):
        self.state = state
        self.tensor = tensor


def places_of(optimizer, path):
    """The floats of its groups."""
    for i, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            name = f"{path}.param_groups[{i}][{key!r}]"
            if type(value) is float:
                yield Place(group, key, -1, name)
            elif type(value) is tuple:
                yield from (Place(group, key, j, f"{name}[{j}]") for j, one in enumerate(value)
                            if type(one) is float)


def counters_of(torch, optimizer):
    for state in optimizer.state.values():
        step = state.get(_STEP) if type(state) is dict else None
        if type(step) is torch.Tensor and step.device.type == "cpu" and step.numel() == 1 and (
                step.dtype in (torch.float32, torch.float64)):
            yield Counter(state, step)


class Bound:
    """What the runs of one capture followed. kinds: of each place. numbers: more places, behind those of
    optimizers. draws: a Draws, or None."""

    def __init__(self, owner, places, counters, numbers=(), draws=None):
        self.owner = owner
        self.torch = owner.torch
        self.places = [*places, *numbers]
        self.first = len(places)  # of the numbers
        self.draws = draws
        self.counters = counters
        self.kinds = [place.kind() for place in self.places]
        self.traces = []  # of the runs
        self.moved = []   # of each counter (by how much it was moved on, which one stands for it)

    def body(self, body):
        """A run's body, which finds Scalars in the places."""
        def run(placed):
            trace = Trace(self.traces, self.first)
            with _Swapped(self, trace) as swapped, self._drawing(trace):
                result = body(placed)
                moved = swapped.moved()
            self._look(trace, result, moved)
            return result
        return run

    def forget(self):
        """The capture is taken once more: numbers differ by the count of its runs."""
        self.traces.clear()
        self.moved = []

    def _drawing(self, trace):
        return self.draws.during(trace, len(self.places)) if self.draws else contextlib.nullcontext()

    def _look(self, trace, result, moved):
        """Names what kernels may have got; raises Escaped where replays could not follow."""
        if any(type(leaf) is Scalar for leaf in flatten(result)[0]):
            trace.escape("it is returned")
        if any(moved[lead][0] != by for by, lead in moved):
            trace.escape("some parameters take a step and others, which took as many before, do not")
        if trace.escapes:
            raise Escaped(trace.escapes[0])
        if self.traces and (trace.steps, moved) != (self.traces[-1].steps, self.moved):
            raise Escaped("other work follows from it in each run of a capture")
        self.traces.append(trace)
        self.moved = moved
        _C.call_scalars(tuple(trace.values[i] for i in trace.named()))

    def give(self, graph):
        """Has the replays of the captured graph follow the places: the _C.Scalars that tells it."""
        places = tuple((*p.where(), p.index, kind, p.get())
                       for p, kind in zip(self.places, self.kinds))
        places += self.draws.places() if self.draws else ()
        double = self.torch.float64
        counters = tuple((c.state, _STEP, c.tensor, c.tensor.data_ptr(), c.tensor.dtype is double, by, lead)
                         for c, (by, lead) in zip(self.counters, self.moved))
        trace = self.traces[-1]
        named = trace.named()
        checked = trace.steps_from(self.first)
        scalars = _C.Scalars(places, counters, tuple(trace.steps), named, checked)
        graph.set_scalars(scalars)
        held = [step for i, step in enumerate(named) if graph.scalar_places(i)]
        self.owner.held = {self.places[i].path for i in trace.inputs_of(held) if i < len(self.places)}
        return scalars


class _Group:
    """Counters that stand alike: one input of a trace."""

    __slots__ = ("first", "lead")

    def __init__(self, first):
        self.first = first
        self.lead = None  # the first that was read


class _Swapped:
    """Within a run: Scalars in the places, and other tensors for the counters."""

    def __init__(self, bound, trace):
        self.bound = bound
        self.trace = trace
        self.before = []   # (dict, key, value)
        self.steps = []    # (tensor, what it began at)
        self.allowed = []  # (dict of an optimizer, name)
        self.groups = {}   # of counters that stand alike
        self.leads = {}    # by counter that was read: the one of its group that stands for it

    def __enter__(self):
        try:
            self._allow()
            self._swap_places()
            for i, counter in enumerate(self.bound.counters):
                self._swap_counter(i, counter)
        except BaseException:
            self._put_back()
            raise
        return self

    def __exit__(self, *_):
        self._put_back()

    def _swap(self, owner, key, value):
        self.before.append((owner, key, owner[key], value))
        owner[key] = value

    def _swap_places(self):
        tuples = {}
        for i, (place, kind) in enumerate(zip(self.bound.places, self.bound.kinds)):
            given = place.get() if kind == FIXED else self.trace.given(i, kind)
            if place.index < 0:
                if kind != FIXED:
                    self._swap(place.group, place.key, given)
                continue
            at = (id(place.group), place.key)
            if at not in tuples:
                tuples[at] = (place, list(place.group[place.key]))
            tuples[at][1][place.index] = given
        for place, values in tuples.values():
            self._swap(place.group, place.key, tuple(values))

    def _swap_counter(self, index, counter):
        torch = self.bound.torch
        group = self.groups.setdefault((_read(counter.tensor), counter.tensor.dtype), _Group(index))
        start = self.trace.start(group.first)
        stand_in = _steps(torch)._make_subclass(_steps(torch), torch.full_like(counter.tensor, start))
        stand_in.follow = (self.trace, group, self.leads, index, start)
        self.steps.append((stand_in, start))
        self._swap(counter.state, _STEP, stand_in)

    def _allow(self):
        """PyTorch refuses to capture steps that are counted on the CPU, which replays move on here."""
        for optimizer in self.bound.owner.optimizers():
            names = vars(optimizer)
            for check in _CHECKS:
                if hasattr(optimizer, check) and check not in names:
                    names[check] = _nothing
                    self.allowed.append((names, check))

    def _put_back(self):
        """What the run wrote itself stays, and is noticed."""
        for owner, key, before, given in reversed(self.before):
            if owner.get(key) is given:
                owner[key] = before
        for names, check in self.allowed:
            names.pop(check, None)

    def moved(self):
        """Of each counter by how much it was moved on, and which one stands for it."""
        return [(_read(stand_in) - start, self.leads.get(i, i))
                for i, (stand_in, start) in enumerate(self.steps)]


def _read(tensor):
    return float(tensor.detach().numpy().reshape(-1)[0])


def _nothing():
    """In the place of a check of PyTorch's."""


_kinds: dict[object, type] = {}


def _steps(torch):
    """A tensor whose item() is a Scalar."""
    if torch not in _kinds:
        class Steps(torch.Tensor):
            # A parameter's: functions of it give plain tensors.
            __torch_function__ = torch.nn.Parameter.__torch_function__

            def item(self):
                trace, group, leads, index, start = self.follow
                value = super().item()
                group.lead = index if group.lead is None else group.lead
                leads[index] = group.lead
                return trace.counted(group.lead, value - start, value)

        _kinds[torch] = Steps
    return _kinds[torch]


def is_diverged(error):
    """Did the two captures of a shape differ?"""
    return bool(error.args) and getattr(error, "status", None) == _DIVERGED


def may_want_float(error):
    """Is it an error of what takes a float and nothing that computes as one, compilers among it?"""
    return isinstance(error, (TypeError, ValueError, LookupError, AssertionError)) or (
        type(error).__module__.startswith("torch._dynamo"))


def keeps_scalars(error):
    """Does the program keep Scalars, by the changes of Python state that an error of a capture names?"""
    return any(type(leaf) is Scalar for change in getattr(error, "changes", ())
               for leaf in flatten(change.after)[0])


class Unfollowed(_C.Error):
    """Replays do not follow hyperparameters any more, so that calls have other keys."""


def _signature(optimizers):
    """What the places of some optimizers hang on: changes where they are to be found anew."""
    return tuple((id(group), key, type(value)) for optimizer in optimizers
                 for group in optimizer.param_groups for key, value in group.items() if key != _PARAMS)


class Hyperparameters:
    """Those of the optimizers that a callable was found to use. reads: its Reads; can_follow: False
    where its graphs are not such that their scalars can be changed."""

    def __init__(self, torch, reads, can_follow=True):
        self.torch = torch
        self.reads = reads
        self.can_follow = can_follow
        self.why = None       # why values are part of the key; None: replays follow them
        self.places = []
        self.counters = []
        self.has_moved = False  # did the number of what is read change since it was asked for?
        self.held = set()     # paths of the places that kernels of the latest graph hold
        self._signature = ()
        self._owners = ()     # ids of the dicts and tensors of the places, which a checkpoint replaces
        self._walk = None
        self._generation = 0

    def optimizers(self):
        return self.reads.optimizers

    # ---- Keys ----

    def key(self):
        """What the graphs of a call depend on of them, beside what `reads` tells. Behind its state()."""
        optimizers = self.optimizers()
        if not optimizers or self.why is not None or not self.can_follow:
            return None
        signature = _signature(optimizers)
        if self.reads.values.walk is not self._walk or signature != self._signature:
            self._find()
            self._walk, self._signature = self.reads.values.walk, signature
        if not self.places:
            return None
        return (self._generation, tuple(map(self._token, self.places)))

    @staticmethod
    def _token(place):
        value = place.get()
        return _C.scalar_kind(value) or repr(value)

    def _find(self):
        walk = self.reads.values.walk
        if "param_groups" in walk.names and not CONVERTERS.isdisjoint(walk.globals):
            self._stop("code that reads it names a library whose functions convert numbers")
            return
        places, counters = [], []
        for optimizer, path in zip(walk.optimizers, walk.optimizer_paths):
            places += places_of(optimizer, path)
            counters += counters_of(self.torch, optimizer)
        owners = (tuple((id(p.group), p.key, p.index) for p in places),
                  tuple(id(c.tensor) for c in counters))
        if owners == self._owners:
            return
        before = self._left_out()
        self.places, self.counters, self._owners = places, counters, owners
        self._generation += 1
        left = self._left_out()
        now = {(id(owner), key) for owner, key in left}
        self.has_moved = True
        self.reads.look_at([(owner, key) for owner, key in before if (id(owner), key) not in now])
        self.reads.leave_out(left)

    def _left_out(self):
        return [(p.group, p.key) for p in self.places] + [(c.state, _STEP) for c in self.counters]

    def _stop(self, why):
        """Replays do not follow them from now on: their values are part of the key."""
        self.why = why
        self.has_moved = True
        self.reads.look_at(self._left_out())
        self.places, self.counters, self._owners = [], [], ()

    def refuse(self, why):
        """Raises Unfollowed where there is anything that could not be followed then."""
        if self.places:
            self._stop(why)
            raise Unfollowed(why)

    def judge(self, error):
        """An error of a capture: raises Unfollowed where it may be for what was followed."""
        if not self.places or isinstance(error, Unfollowed):
            return
        if isinstance(error, Escaped):
            self.refuse(f"{error}, which replays would not repeat")
        if keeps_scalars(error):
            self.refuse("the program keeps what it computes from it")
        if is_diverged(error) or may_want_float(error):
            self.refuse(str(error))

    # ---- Captures ----

    def bind(self, numbers=(), draws=None):
        """For one capture: a Bound, or None where there is nothing to follow. numbers: more places; draws: a
        Draws, or None."""
        has_any = self.places or numbers or draws
        return Bound(self, self.places, self.counters, numbers, draws) if has_any else None

    # ---- Facts ----

    def facts(self):
        """For each optimizer a dict (Graphed.hyperparameters)."""
        walk = self.reads.values.walk
        found = []
        for optimizer, path in zip(walk.optimizers, walk.optimizer_paths) if walk is not None else ():
            groups = {id(group) for group in optimizer.param_groups}
            states = set(map(id, optimizer.state.values()))
            own = [p for p in self.places if id(p.group) in groups]
            found.append({
                "optimizer": path, "kind": type(optimizer).__name__,
                "way": "patched" if own else "key",
                "patched": tuple(p.path for p in own if p.path in self.held),
                "counted": sum(id(c.state) in states for c in self.counters),
                "reason": self.why})
        return found
