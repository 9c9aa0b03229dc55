# SPDX-License-Identifier: MIT
"""Tensors on the CPU: among the arguments of calls, and those that a callable moves to the device.

A small argument on the CPU is no part of the key where the callable moves it, or what it computes of it on
the CPU: each call repeats that, and copies what comes out to the device in one copy ahead of the launch.
Where kernels take it as a number, their parameters are changed, as those that hold hyperparameters are
(_reads/scalars.py). Any other use makes its value a part of the key. Which use it is captures find
(_call/cpu_run.py).

What else is moved from the CPU is a constant of the graph: the runs of a capture find it in memory of the
device, which it is copied to once, behind the capture. Of two graphs each has constants of its own; the
backward pass may use arguments on the CPU by their values only.
"""

import contextlib
import ctypes
import sys
import threading

from .. import _C
from .._base import torch_private
from .._base.lines import cut_frames
from .._base.tree import flatten
from .._effects.effects import Changed
from .._reads.scalars import FIXED, Trace, turn_of
from .._shapes.split import Refused as Never
from .answers import Asked
from .cpu_run import ALIGN, MOVED, NUMBER, VALUE, Compiled, Emitted, NoRoom, Refused, Run, View, contents, \
    follows_compiled, is_number, modes, use_once

MOST_BYTES = 1 << 16      # of an argument; of a tensor outside of the call that is compared at each call
MOST_MOVED = 1 << 24      # of all that a graph is given
_OTHERS = "it moves other values from the CPU in each run of a capture: it must do the same each time"
_SET = ("random numbers are drawn on the CPU in each call, and their generator is set, or other threads draw from it: "
        "replays would draw others")


def is_taken(torch, tensor):
    """Can such an argument on the CPU be followed?"""
    dtype = tensor.dtype
    return tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.requires_grad and (
        not tensor.is_nested and not tensor.is_conj() and not tensor.is_neg() and not tensor.is_quantized) and (
        tensor.numel() * tensor.element_size() <= MOST_BYTES) and dtype.itemsize > 0


def _copied(torch, tensor):
    """One of the same shape and strides, in memory of its own, that nothing was written to as autograd counts it."""
    if 0 in tensor.stride() and tensor.numel() > 1:
        return tensor.detach().clone()
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    made.data.copy_(tensor.detach())
    return made


def _may_be_a_move(torch, error):
    """Is it an error that PyTorch refuses a copy with? No text decides it."""
    return not isinstance(error, (_C.Error, Never, NotImplementedError, torch.OutOfMemoryError))


class CpuValues:
    """What the captures of a callable learned."""

    def __init__(self, torch, is_compiled, answers=None):
        self.torch = torch
        self.answers = answers  # an answers.Answers, or None: keys have none
        self.is_compiled = is_compiled
        # Compilers run nothing of theirs under a mode that is to be told of it.
        self.can_follow = torch_private.of(torch).dispatch_mode is not None and not is_compiled
        self.keeps_compiled = is_compiled  # does compiled code run as it is where captures answer? (Compiled)
        self.moves = False  # do its captures answer moves?
        self.has_moved = False  # did one?
        self.room = [0, 0]  # bytes for constants, and for computed values
        self._levels = {}   # by family: of each argument on the CPU
        self._diverged = set()  # families of which two captures differed once

    def levels(self, family, count):
        return self._levels.get(family, (MOVED,) * count)

    def tokens(self, family, tensors):
        """What the keys of calls have of these arguments."""
        levels = self.levels(family, len(tensors))
        return [self._token(t, level) for t, level in zip(tensors, levels)]

    def _token(self, tensor, level):
        if level == MOVED:
            return None
        if level == NUMBER and _C.scalar_kind(float(tensor)) != FIXED:
            return _C.scalar_kind(float(tensor))
        return contents(self.torch, tensor)

    def learn(self, family, count, wanted):
        """Notes what a capture wanted."""
        levels = list(self.levels(family, count))
        for which in wanted.which:
            levels[which] = max(levels[which], wanted.level)
        self._levels[family] = tuple(levels)

    def give_up_numbers(self, family, tensors):
        """Two captures proved nothing of numbers: behind a second such attempt, as the first may have met
        rubbish in padding, their values are part of the key. False: they are already."""
        levels = self.levels(family, len(tensors))
        open_ones = [i for i, (t, level) in enumerate(zip(tensors, levels))
                     if level < VALUE and is_number(self.torch, t)]
        if open_ones and family not in self._diverged:
            self._diverged.add(family)
        elif open_ones:
            self._levels[family] = tuple(VALUE if i in open_ones else level for i, level in enumerate(levels))
        return bool(open_ones)

    def make_room(self, error):
        """False: it would be too much."""
        self.room = [max(have, needed) for have, needed in zip(self.room, error.needed)]
        return max(self.room) <= MOST_MOVED

    def moving(self, capture):
        """What capture() returns. Where it fails a second attempt answers what the callable moves from the
        CPU, and notes what it draws there, as captures do from then on where there was something. Of a callable that
        may run compiled code one that leaves that alone comes before, which follows no more than draws."""
        while True:
            try:
                return capture()
            except NoRoom as error:
                if not self.make_room(error):
                    raise
            except RuntimeError as error:
                cut_frames(error)  # it stays, and tensors of its run may not
                return self._answering(capture, error)

    def _answering(self, capture, error):
        is_drawn = isinstance(error, Changed) and error.is_drawn
        if is_drawn and not self.moves and self._may_be_compiled():
            self.keeps_compiled = True
            try:
                return self._answered(capture, error)
            except RuntimeError:
                self.keeps_compiled = self.is_compiled
        fails = self.moves and (self.is_compiled or not self.keeps_compiled)
        if fails or not self.can_follow or not (is_drawn or _may_be_a_move(self.torch, error)):
            raise error
        self.keeps_compiled = False
        return self._answered(capture, error)

    def _may_be_compiled(self):
        return (self.is_compiled or torch_private.frames_compiled() > 0) and follows_compiled(self.torch)

    def _answered(self, capture, error):
        self.moves, self.has_moved = True, False
        try:
            with self.without_compilers():
                return self.moving(capture)
        except RuntimeError:
            if not self.has_moved:
                raise error from None
            raise
        finally:
            self.moves = self.has_moved

    def attempt(self, device, family, tensors, may_number, arguments=()):
        """For one capture: an Attempt, or None where nothing is to be answered. tensors: arguments of the
        call that lie on the CPU; may_number: can its graph follow numbers? arguments: those on the device."""
        if not tensors and not self.moves:
            return None
        origins = None
        if self.answers is not None and (tensors or not self.keeps_compiled):
            origins = self.answers.following(device, family, arguments)
        return Attempt(self, device, tensors, self.levels(family, len(tensors)), may_number, origins=origins)

    def without_compilers(self):
        """A context of a run under a mode, which compilers are kept out of unless the mode lets them be."""
        return contextlib.nullcontext() if self.keeps_compiled else _eagerly(self.torch)

    def behind(self, device, forward):
        """For the capture of a backward pass: an Attempt, or None; forward: that of its forward pass, or
        None."""
        if forward is None and not self.moves:
            return None
        origins = forward and forward.origins and forward.origins.again()
        return Attempt(self, device, (), (), False, forward, origins)


class _Eagerly:
    """Keeps torch.compile out: it keeps what it found of functions that ran under a mode, and fails by it later
    (torch.cond). Its stance is one for all threads: the first sets it, and the last puts back what the first
    found. Any thread."""

    def __init__(self):
        self._lock = threading.Lock()
        self._inside = 0       # threads, counted again where one is inside twice
        self._stance = None    # what the first of them set

    @contextlib.contextmanager
    def __call__(self, torch):
        with self._lock:
            self._inside += 1
            if self._inside == 1 and "torch._dynamo" in sys.modules:
                self._stance = torch.compiler.set_stance("force_eager")
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                assert self._inside >= 0
                if self._inside == 0 and self._stance is not None:
                    self._stance.__exit__(None, None, None)
                    self._stance = None


_eagerly = _Eagerly()


class Attempt:
    """What the runs of one capture do with values on the CPU."""

    def __init__(self, owner, device, tensors, levels, may_number, forward=None, origins=None):
        torch = self.torch = owner.torch
        use_once(torch, torch_private.of(torch).dispatch_mode)
        self.owner, self.device, self.tensors, self.may_number = owner, device, tensors, may_number
        self.levels = [VALUE if level == NUMBER and _C.scalar_kind(float(t)) == FIXED else level
                       for t, level in zip(tensors, levels)]
        self.followed = [i for i, level in enumerate(self.levels) if level == NUMBER]
        self.constants = torch.empty(max(owner.room[0], ALIGN), dtype=torch.uint8, device=device)
        self.packed = []  # the argument that computed values come in
        if forward is None and owner.room[1] or any(level < VALUE for level in self.levels):
            least = sum(t.numel() * t.element_size() + ALIGN for t in tensors)
            self.packed = [torch.empty(max(owner.room[1], least // ALIGN * ALIGN), dtype=torch.uint8,
                                       device=device)]
        # Compiled code reads arguments on the CPU, of which a mode that leaves it alone is told nothing.
        self.kind = forward.kind if forward is not None else Compiled if owner.keeps_compiled and not tensors else Run
        self.origins = origins  # an answers.Origins: what runs may read on the host; or None
        self.forward = forward  # of a backward pass: the Attempt of its forward pass, or None
        self.given = list(tensors)  # what the run that is under way finds
        self.trace = None
        self.run = None      # the latest
        self.traces = []  # of the runs
        self.earlier = {}    # tensors on the CPU that runs met, by their storages
        self.outside = []    # of those that were there before
        self.made = frozenset()  # of those, the storages that the latest run made

    # ---- Runs ----

    def around(self, body):
        """A body of the arguments on the device, whose runs are answered."""
        def answered(placed):
            packed = placed[-1] if self.packed else None
            placed = placed[:-1] if self.packed else placed
            if not self.torch.cuda.is_current_stream_capturing():
                self.given = [_copied(self.torch, t) for t in self.tensors]
                return body(placed)
            return self._run(body, placed, packed)
        return answered

    def _run(self, body, placed, packed):
        torch = self.torch
        self.trace = Trace(self.traces, 0)
        self.given = [self._stand_in(i, t) for i, t in enumerate(self.tensors)]
        before = self.forward and self.forward.run
        follower = self.origins and self.origins.follower(before and before.follower)
        run = self.kind(torch, self.device, self.given, self.levels, self.constants, packed, self.earlier,
                        self.may_number, before, follower)
        try:
            with contextlib.ExitStack() as entered:
                for mode in modes(torch, torch_private.of(torch).dispatch_mode, run):
                    entered.enter_context(mode)
                result = body(placed)
        except Exception as error:
            self._note(run)
            if run.error is not None and run.error is not error:
                raise run.error from error
            raise
        run.packed = None  # nothing of a run is to have it, or the backward pass is thought to need it
        run.check_result(flatten(result)[0])
        self._look(run)
        return result

    def _stand_in(self, which, tensor):
        """What the run finds for an argument. Numbers differ from run to run, so that what holds one
        unnoticed differs too."""
        torch, level = self.torch, self.levels[which]
        if level == VALUE or not is_number(torch, tensor):
            return _copied(torch, tensor)
        if level == MOVED:
            return torch.full_like(tensor, 0.3711 + 0.2307 * turn_of(len(self.traces)) + 0.0113 * which)
        kind = _C.scalar_kind(float(tensor))
        return torch.full_like(tensor, float.__pos__(self.trace.given(self.followed.index(which), kind)))

    def _look(self, run):
        """Behind a run: is it what the one before was?"""
        self._note(run)
        if run.error is not None:
            raise run.error
        if run.has_drawn and not run.follows_draws():
            raise Refused(_SET)
        needed = list(run.used)
        room = [self.constants.numel(), self.packed[0].numel() if self.packed else 0]
        if any(n > r for n, r in zip(needed, room)):
            raise NoRoom(needed)
        if self.run is not None and _form(run) != _form(self.run):
            raise Refused(_OTHERS)
        if run.follower is not None:
            self.origins.check(run.follower.asked)
        before = self.earlier.keys() - (self.forward.made if self.forward is not None else ())
        self.outside = [t for at, t in run.read.items() if at in before]
        self.made = run.met.keys() - self.earlier.keys()
        self.earlier.update(run.met)
        if self.followed:
            _C.call_scalars(tuple(self.trace.values[i] for i in self.trace.named()))
        self.owner.has_moved |= run.follows_draws()
        self.run = run
        self.traces.append(self.trace)

    def _note(self, run):
        self.owner.has_moved |= bool(run.constants) or isinstance(run.error, Asked) or (
            run.follower is not None and bool(run.follower.asked))

    def follows_draws(self):
        """Does a replay draw all random numbers that the run drew on the CPU which has just ended?"""
        return self.run is not None and self.run.follows_draws()

    # ---- Behind the capture ----

    def give(self, shape, graph, is_compared):
        """Has the calls of what was captured follow. graph: None where there are two; is_compared(tensor): is
        one outside of the call compared by keys?"""
        torch, run = self.torch, self.run
        if run is None:
            return
        outside = [t for t in self.outside if not is_compared(t)]
        large = next((t for t in outside if t.numel() * t.element_size() > MOST_BYTES), None)
        if large is not None:
            nbytes = large.numel() * large.element_size()
            raise Refused(f"it reads a tensor on the CPU of {nbytes} bytes that nothing else compares, too "
                          "many to compare at each call. Move it to the GPU before the call")
        if run.used[0]:
            self._fill(run)
        if run.follower is not None and run.follower.asked:
            self.origins.left.give(graph or getattr(shape, "forward", shape).graph)
        scalars = self._scalars(graph) if self.followed else None
        if self.packed or outside or run.drawn is not None:
            shape.cpu = Program(torch, self, run, scalars, outside)
        shape.constants = self.constants if run.used[0] else None
        if scalars is not None:
            shape.scalars = scalars[0]

    def _fill(self, run):
        """Brings the constants to the device, for whatever stream replays come on."""
        torch = self.torch
        host = torch.zeros(run.used[0], dtype=torch.uint8)
        for offset, found in run.constants:
            host[offset:offset + len(found)] = torch.frombuffer(bytearray(found), dtype=torch.uint8)
        self.constants[:run.used[0]].copy_(host)
        torch.cuda.current_stream(self.device).synchronize()

    def _scalars(self, graph):
        """What tells the graph the numbers, and where calls put them."""
        places = [{"value": float(self.tensors[i])} for i in self.followed]
        made = _C.Scalars(tuple((place, "value", -1, _C.scalar_kind(place["value"]), place["value"])
                                for place in places), (), tuple(self.trace.steps), self.trace.named())
        graph.set_scalars(made)
        return made, list(zip(self.followed, places))

    def close(self):
        """Lets go of what the runs had."""
        self.run, self.earlier, self.outside, self.given, self.forward = None, {}, [], [], None
        self.origins = None


class Pair:
    """The Attempts of a forward pass, which may be None, and of the backward pass behind it."""

    def __init__(self, owner, device, forward):
        self.owner, self.device = owner, device
        self.forward, self.backward = forward, None

    def around(self, body):
        """The body of the backward pass, whose runs are answered where that is known to be needed."""
        self.backward = self.owner.behind(self.device, self.forward)
        return body if self.backward is None else self.backward.around(body)

    def give(self, split, is_compared):
        """Behind both captures, as Attempt.give."""
        for attempt, shape in ((self.forward, split), (self.backward, split.backward)):
            if attempt is not None:
                attempt.give(shape, None, is_compared)
        for attempt in filter(None, (self.forward, self.backward)):
            attempt.close()


def _form(run):
    """What is the same in all runs of a capture."""
    steps = [(s.offset, s.nbytes, s.dtype, s.shape, _place(s.of)) if type(s) is Emitted else
             (s[0], str(_plain(s[1])), str(_plain(tuple(s[2].items()))), s[3])
             for s in run.steps]
    return steps, run.constants, run.numbers, run.follower and [q.form for q in run.follower.asked]


def _place(view):
    return view.number, view.dtype, view.size, view.stride, view.offset


def _plain(value):
    """Arguments of an operator as what can be compared."""
    if isinstance(value, View):
        return _place(value)
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if not hasattr(value, "untyped_storage") else (value.shape, value.dtype, value.tolist())


class Program:
    """What a call does on the CPU ahead of its launch."""

    def __init__(self, torch, attempt, run, scalars, outside):
        self.torch, self.device = torch, attempt.device
        self.room = attempt.packed[0].numel() if attempt.packed else 0
        self.used = run.used[1]
        # Arguments that come whole, as (number, offset, bytes) each, and what takes an operator or more.
        whole = [step for step in run.steps if _is_whole(step, attempt.given)]
        self.whole = [(step.of.number, step.offset, step.nbytes) for step in whole]
        self.steps = _steps([step for step in run.steps if step not in whole])
        self.draws = run.drawn is not None
        self.places = scalars[1] if scalars else []
        self.outside = [(t, contents(torch, t)) for t in outside]
        self.lock = threading.Lock() if self.places else None
        self._undrawn = threading.local()  # state: the generator's, ahead of this thread's latest call

    def has_changed(self):
        """Did a tensor outside of the calls change that it was captured for?"""
        return any(contents(self.torch, t) != held for t, held in self.outside)

    def place(self, tensors):
        """Has its graph follow the numbers of a call with these tensors on the CPU. With the lock held."""
        for which, place in self.places:
            place["value"] = float(tensors[which])

    def prepare(self, tensors, may_take_back=True, is_placed=False):
        """The argument behind those on the device, in a list, of a call with these tensors on the CPU.
        may_take_back: may take_back() come? is_placed: did place()? Another thread may have written to them since."""
        if not is_placed:
            self.place(tensors)
        torch = self.torch
        host = torch.empty(self.used, dtype=torch.uint8, pin_memory=True) if self.used else None
        if self.draws and may_take_back:
            self._undrawn.state = torch.get_rng_state()
        for which, offset, nbytes in self.whole:
            tensor = tensors[which]
            tensor = tensor if tensor.is_contiguous() else tensor.contiguous()
            ctypes.memmove(host.data_ptr() + offset, tensor.data_ptr(), nbytes)
        if self.steps:
            with torch.no_grad():
                self._compute(tensors, host)
        if not self.room:
            return []
        packed = torch.empty(self.room, dtype=torch.uint8, device=self.device)
        if self.used:
            into = packed if self.used == self.room else packed[:self.used]
            into.copy_(host, non_blocking=True)
        return [packed]

    def take_back(self):
        """Takes back the random numbers that prepare() drew in this thread."""
        if self.draws:
            self.torch.set_rng_state(self._undrawn.state)

    def _compute(self, tensors, host):
        """Repeats the steps of the run. host: where what they emit goes, or None where they emit nothing."""
        if self.torch.is_autocast_enabled("cpu"):
            with self.torch.autocast("cpu", enabled=False):
                self._repeat(tensors, host)
        else:
            self._repeat(tensors, host)

    def _repeat(self, tensors, host):
        torch = self.torch
        tensors = [t if t.storage_offset() == 0 and (0 not in t.stride() or t.numel() < 2) else
                   _copied(torch, t) for t in tensors]
        storages = {i: t.untyped_storage() for i, t in enumerate(tensors)}
        for step in self.steps:
            if type(step) is Emitted:
                place = host[step.offset:step.offset + step.nbytes].view(step.dtype).view(step.shape)
                place.copy_(step.of.of(torch, storages))
                continue
            func, args, kwargs, has_views, numbers = step
            if has_views:
                args = _given(torch, args, storages)
                kwargs = {k: _given(torch, v, storages) for k, v in kwargs.items()}
            made = func(*args, **kwargs)
            for number, tensor in zip(numbers, made if isinstance(made, (list, tuple)) else (made,)):
                storages[number] = tensor.untyped_storage()


def _is_whole(step, given):
    """Does a step copy an argument as it is? given: what stood for each in the run."""
    if type(step) is not Emitted or not 0 <= step.of.number < len(given):
        return False
    like, of = given[step.of.number], step.of
    return (of.dtype, of.size, of.stride, of.offset) == (like.dtype, like.shape, like.stride(), 0)


def _steps(steps):
    """The steps of a run, for calls: of operators whether Views are among the arguments, and the numbers of what
    they give, none where no later step has it."""
    made, later = [], set()
    for step in reversed(steps):
        if type(step) is Emitted:
            later.add(step.of.number)
            made.append(step)
            continue
        func, args, kwargs, numbers = step
        views = _views((args, tuple(kwargs.values())))
        later.update(view.number for view in views)
        made.append((func, args, kwargs, bool(views), numbers if later.intersection(numbers) else ()))
    return made[::-1]


def _views(value):
    if type(value) is View:
        return [value]
    return [view for one in value for view in _views(one)] if isinstance(value, (list, tuple)) else []


def _given(torch, value, storages):
    if type(value) is View:
        return value.of(torch, storages)
    if isinstance(value, (list, tuple)):
        return type(value)([_given(torch, v, storages) for v in value])
    return value
