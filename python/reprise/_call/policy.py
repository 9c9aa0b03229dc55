# SPDX-License-Identifier: MIT
"""policy="auto": eager or graph, for each shape, from measured times; and policy="never".

The library decides and measures (rp_way_judge, rp_way_choice); here is how calls are made. A shape is

    eager       until a capture may pay, or for good where graphs lose or it cannot be captured; the
                first call is not measured
    compared    rounds of some calls by the graph and some eager ones
    decided     calls go the faster way; a round now and then sees whether that holds

Calls of plain tensors take the fast path in all of these, which asks the shape's choice itself. Of the
others, those whose shapes are all eager are made without being looked at until one has to be.
"""

import time

from .. import _C
from .._alloc.install import is_installed
from .._base import torch_private
from .._base.interrupts import let_through
from .._base.lines import tell_mend
from .._base.need import need_torch, why_no_gpu
from .._base.tree import flatten
from .._capture.record import is_alone
from .._reads.hyperparameters import Unfollowed
from .._shapes.shape import Shape
from .._shapes.split import Split
from .graphed import ATTEMPTS, Graphed, NewValues, Uncapturable
from .passes import end_behind_backward

_EAGER, _GRAPH, _CAPTURE = range(3)  # enum rp_way
_MOST_REST = 255
_MOST_UNMET = 64  # calls in a row of shapes that were never met, before most are not looked at
_FEW = 8
_run_eagerly, _Choice = _C.eager, _C.Choice


class Ungraphed(Graphed):
    """policy="never"."""

    is_eager = True

    def __call__(self, *args, **kwargs):
        return self._fn(*args, **kwargs)

    def tune(self, *args, places=8, **kwargs):
        raise _C.Error(f"'{self.name}' has policy=\"never\": there is no graph to be tuned")


class WithoutGpu(Ungraphed):
    """Where there is no GPU."""

    _need = staticmethod(need_torch)

    def failures(self):
        return [why_no_gpu(self._torch)]


class _Case:
    """A shape, and how its calls go."""

    __slots__ = ("name", "choice", "device", "shape", "offered", "is_short", "is_pair")

    def __init__(self, name, choice, device, is_pair=False):
        self.name = name
        self.choice = choice
        self.device = device   # its index
        self.shape = None      # captured
        self.offered = 0       # to the fast path: when, by its guards
        self.is_short = False  # it took it
        self.is_pair = is_pair  # are forward and backward two graphs, judged as one?


class Judged(Graphed):
    """policy="auto"."""

    follows_numbers = False  # each value has a case of its own
    _unmet = 0  # calls in a row of shapes that were never met

    def __init__(self, *args):
        super().__init__(*args)
        self._judges = {}  # by device
        self._cases = {}
        self._rest = 0  # calls to be made eagerly before one is looked at

    # ---- Calls ----

    def __call__(self, *args, **kwargs):
        if self._rest > 0:
            self._rest -= 1
            return self._fn(*args, **kwargs)
        if self._waiting.owner is not None and (turn := self._turn(args, kwargs)) is not None:
            return turn()
        result = self._fast_call(args, kwargs)
        if result is _run_eagerly:
            return self._fn(*args, **kwargs)
        if result is not _C.miss:
            return self._finish(result, args, kwargs)
        start = time.perf_counter_ns()
        torch = self._torch
        why = self._why_aside()
        if why is not None:
            return self._eager_aside(args, kwargs, why)
        leaves, spec = flatten((args, kwargs)) if kwargs else flatten(args)
        if self._rests.holds and self._rests.take(leaves, spec):
            return self._fn(*args, **kwargs)
        try:
            tensors, key = self._key(leaves, self._form(spec, args, kwargs))
            self._notice_new(key, leaves, args, kwargs)
        except Uncapturable as why:
            if not isinstance(why, NewValues) and all(c.shape is None for c in self._cases.values()):
                self._rest = _MOST_REST
            self._rests.note(leaves, spec, any_values=True)
            return self._eager(args, kwargs, str(why))
        if torch.cuda.is_current_stream_capturing() or is_alone():
            return self._fn(*args, **kwargs)
        if self._eager_runs < self._warmup:
            return self._warm_up(args, kwargs)
        case = self._met(key)
        self._count_unmet(case)
        if case is None:
            case = self._meet(key, tensors)
        elif self._offer(case, key, args, kwargs, tensors):
            result = self._fast_call(args, kwargs)
            if result is not _C.miss:
                return self._finish(result, args, kwargs)
        return self._judged_call(case, key, (leaves, tensors, spec), args, kwargs, start)

    def _finish(self, result, args, kwargs):
        """What the fast path returned: a result, or how the call is to be made eagerly."""
        if result is _run_eagerly:
            return self._fn(*args, **kwargs)
        if type(result) is _Choice:
            return self._measured(result, result.turn(), lambda: self._fn(*args, **kwargs))
        return result

    @staticmethod
    def _measured(choice, turn, call):
        """A call that is measured, unless something else was made ready in it."""
        worked, before = False, _made_ready()
        try:
            result = call()
            worked = True
            return result
        finally:
            choice.end(turn, worked and _made_ready() == before)

    def _measured_pair(self, choice, turn, call):
        """Measured until the backward pass through the result has been enqueued."""
        if not turn[1]:
            return call()
        worked, before = False, _made_ready()
        try:
            result = call()
            worked = _made_ready() == before
        finally:
            if not worked:
                choice.end(turn, False)
        if worked:
            end_behind_backward(self._torch, choice, turn, result)
        return result

    def _judged_call(self, case, key, found, args, kwargs, start):
        leaves, tensors, spec = found
        stream = torch_private.of(self._torch).raw_stream(case.device)
        ahead = (time.perf_counter_ns() - start) / 1000
        turn = case.choice.begin(stream, ahead)
        if turn[0] == _CAPTURE:
            self._try_capture(case, key, leaves, tensors, spec, bool(kwargs))
            key = self._stored(key)
            if case.shape is not None and self._known(key) is not case.shape:
                return self._fn(*args, **kwargs)  # it was stale at once, and the case is gone
            self._offer_graph(case, key, args, kwargs, tensors)
            turn = case.choice.begin(stream, ahead)
        measured = self._measured_pair if case.is_pair else self._measured
        if turn[0] == _GRAPH:
            return measured(case.choice, turn, lambda: self._replay(key, case.shape, tensors, args, kwargs))
        result = measured(case.choice, turn, lambda: self._fn(*args, **kwargs))
        if not case.is_short:
            if self._has_failed(key):
                self._rests.note(leaves, spec)
            self._lie_down(case)
        return result

    def _count_unmet(self, case):
        """Where each call is of another shape, none is judged."""
        if case is not None:
            if self._unmet >= _MOST_UNMET:
                self._rests.stir()
            self._unmet = 0
            return
        self._unmet += 1
        if self._unmet >= _MOST_UNMET:
            self._rests.rest_all()

    def _lie_down(self, case):
        """Where no shape goes by a graph, and the fast path does not take this one: as many calls as
        the choice lets go need not be looked at."""
        if len(self._cases) <= _FEW and all(
                c.shape is None or c.choice.info()["choice"] == "eager"
                for c in self._cases.values()):
            self._rest = case.choice.rest(_MOST_REST)

    # ---- Shapes ----

    def _met(self, key):
        """The case of a shape that was met before, unless its graph is stale."""
        self._known(key)  # drops what is stale, the case with it
        return self._cases.get(key)

    def _meet(self, key, tensors):
        """A new shape, maybe one that was captured ahead."""
        with self._lock:
            if key in self._cases:
                return self._cases[key]
            device = tensors[0].device.index if tensors else self._torch.cuda.current_device()
            if device not in self._judges:
                self._judges[device] = _C.Judge(device)
            case = _Case(self._shape_name(tensors), _Choice(self._judges[device]), device,
                         self._is_split(tensors))
            shape = self._shapes.get(key)
            if shape is not None:
                case.shape = shape
                case.choice.captured(True, _capture_ms(shape))
            elif self._failures.get(key, ("", 0))[1] >= ATTEMPTS:
                case.choice.captured(False, 0.0)
            self._cases[key] = case
            return case

    def _offer(self, case, key, args, kwargs, tensors):
        """Lets the fast path have the shape as it is now; does it?"""
        fast_path = self._fast_path
        guarded = fast_path.is_guarded()
        if case.is_pair or not fast_path.takes_calls() or not self._answers.holds(self._cpu_family(key)) or (
                guarded and case.offered == fast_path.guards):
            return False  # it had the call already, or cannot take it
        if case.shape is None and self._trained:
            return False  # with other gradients the call would be of another case
        taker = fast_path.guard(guarded)
        case.offered = fast_path.guards
        case.is_short = False
        if case.shape is None:
            on_cpu = self._told_on_cpu(key, args, kwargs)
            case.is_short = taker.add(case.device, args, kwargs, None, (), None, case.choice, (), on_cpu)
        elif case.shape.cpu is not None:
            case.is_short = self._add_replayed(True, case.shape, key, tensors, args, kwargs, case.choice)
        else:
            short = self._short(case.shape, key, tensors, args, kwargs)
            case.is_short = short is not None and self._add(True, case.shape, key, case.device, args, kwargs,
                                                            case.choice, short)
        return case.is_short

    def _offer_graph(self, case, key, args, kwargs, tensors):
        """Lets the fast path have the graph that was just captured, or take the shape no more: it
        would begin calls of the graph as it has it, for eager ones only, and their block is lost."""
        case.offered = 0
        if case.shape is not None and not self._offer(case, key, args, kwargs, tensors):
            self._fast_path.clear()

    def _try_capture(self, case, key, leaves, tensors, spec, has_kwargs):
        with self._lock:
            if case.shape is not None:
                return  # by another thread
            start = time.perf_counter()
            try:
                shape = self._capture(key, leaves, tensors, spec, has_kwargs, self._verify)
            except (Unfollowed, Uncapturable):  # such calls have another key from now on, or none
                case.choice.captured(False, (time.perf_counter() - start) * 1000)
                self._cases.pop(key, None)
                return
            except Exception as error:  # whatever the callable raises in a capture
                let_through(error)
                case.choice.captured(False, (time.perf_counter() - start) * 1000)
                if self._strict:
                    tell_mend(error, self.name)
                    raise
                self._failed(key, error, ATTEMPTS)
                return
            self._cases.pop(key, None)
            key = self._stored(key)
            self._cases[key] = case
            case.shape = shape
            case.is_pair = isinstance(shape, Split)
            self._rests.captured(leaves, spec)
            self._keep(key, shape)
            case.choice.captured(True, (time.perf_counter() - start) * 1000)

    def _capture(self, *call):
        """Refused where calls leave tensors behind and it is not known whose they are: who reads them
        would find those of a graph after an eager call, or the other way round."""
        alive = _C.call_counts()[0]
        shape = super()._capture(*call)
        if isinstance(shape, Shape) and not shape.given and self._torch.is_grad_enabled() and (
                is_installed() and _C.call_counts()[0] > alive):
            raise _C.Error("it leaves tensors behind, gradients maybe, and the modules that they "
                           "belong to are not known, so that a graph and eager calls cannot take "
                           "turns. Pass the modules in watch=, or use another policy")
        return shape

    def _drop(self, key):
        super()._drop(key)
        self._cases.pop(key, None)

    def _forget(self):
        super()._forget()
        self._cases.clear()

    # ---- Facts ----

    def choices(self):
        facts = []
        for case in list(self._cases.values()):
            fact = {"shape": case.name, **case.choice.info()}
            if case.is_pair:
                fact["passes"] = "forward and backward"
            if case.shape is not None:
                graph = case.shape.parts()[0].facts()
                fact.update({k: graph[k] for k in ("bound_args", "copied_args", "own_exec",
                                                   "exec_updates")})
            facts.append(fact)
        return facts


def _made_ready():
    """How much was captured and compiled so far. A call in which more was tells nothing of later ones."""
    return Graphed.captures, torch_private.frames_compiled()


def _capture_ms(shape):
    return sum(part.facts()[k] for part in shape.parts()
               for k in ("rehearse_ms", "plan_ms", "record_ms", "instantiate_ms"))


def verdict(fact):
    """What choices() tells of a shape, as a sentence."""
    text = f"{fact['shape']}: {fact['choice']}: {fact['reason']}"
    if "measured_calls" not in fact:
        return text
    times = [f"{name} {fact[key]:.1f} us" for name, key in (("eager", "eager_us"),
                                                            ("graph", "graph_us")) if fact[key]]
    if "passes" in fact:
        text += f", {fact['passes']} as one"
    if times:
        text += f" ({', '.join(times)}; {fact['measured_calls']} of {fact['judged_calls']} calls " \
                "measured)"
    if "bound_args" in fact:
        text += f"; its graph: {fact['bound_args']} arguments bound, {fact['copied_args']} copied, "
        text += "an exec of its own" if fact["own_exec"] else \
            f"a shared exec, updated {fact['exec_updates']} times"
    return text
