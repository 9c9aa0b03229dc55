# SPDX-License-Identifier: MIT
"""Callables that marked functions cut: a call replays a graph, runs a marked function, replays the next.

Such a callable is captured as it runs, once: up to a marked function, whose arguments need the work before
to be done; then the graph is replayed, the function is called, and another capture begins. So it is torch's
kind of graph, with static arguments, which a call copies into, and static results, which it copies out of.

    Answer    what one call of a marked function did
    Segment   a graph, and the marked function behind it
    Variant   the segments of one way through the callable
    Cuts      what was captured for a key: variants, tried in the order of their last calls

A call that leaves a variant (a marked function returns another shape, or a value that code branches on) goes
on by another one, which begins anew, or runs without graphs. Either way the functions that were called are
not called again: their answers are used. That is right because segments write to no memory but their own,
which their captures check before anything runs.
"""

import warnings

from .. import _C
from .._base.interrupts import is_of_handler, let_through
from .._base.tree import flatten, unflatten
from .._capture.once import graph
from .._capture.record import extents
from .._effects.effects import Changed, Effects
from .._effects.unread import Covered, slots_for
from .._reads.walk import is_plain
from .._shapes.assigned import Assigned
from .eager import here

MOST_VARIANTS = 8


class Uncuttable(_C.Error):
    """The callable cannot be captured in segments; the reason is its text."""


class Aborted(BaseException):
    """Takes a run that is captured to its end, past the program's own handlers; the reason is its cause."""


def _version(leaf):
    return None if leaf.is_inference() else leaf._version


class Same:
    """A leaf of what a marked function returned: one of its arguments, by number."""

    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number


class Answer:
    """What a call of a marked function returned or raised, and what it wrote to its arguments."""

    def __init__(self, torch, fn, args, kwargs):
        given = flatten((args, kwargs))[0]
        before = [_version(leaf) if isinstance(leaf, torch.Tensor) else None for leaf in given]
        self.error, self.leaves, self.spec = None, (), None
        try:
            leaves, self.spec = flatten(fn(*args, **kwargs))
            numbers = {id(leaf): i for i, leaf in enumerate(given) if isinstance(leaf, torch.Tensor)}
            self.leaves = [Same(numbers[id(leaf)]) if id(leaf) in numbers else leaf for leaf in leaves]
        except Exception as error:  # the program's, which its code around the call may handle
            self.error = error
        self.written = [(i, leaf.clone()) for i, (leaf, version) in enumerate(zip(given, before))
                        if isinstance(leaf, torch.Tensor) and _version(leaf) != version]

    def write(self, given):
        """Writes to the arguments what the call wrote to those that it had."""
        for i, values in self.written:
            given[i].copy_(values)

    def result(self, given):
        """What the call did, for these leaves of its arguments."""
        if self.error is not None:
            raise self.error
        return unflatten(self.spec, [given[leaf.number] if type(leaf) is Same else leaf
                                     for leaf in self.leaves])


class Answers:
    """Stands in for marked functions in an eager run, for those calls that were made already."""

    is_capturing = False

    def __init__(self, answers):
        self._left = iter(answers)

    def marked(self, fn, args, kwargs):
        answer = next(self._left, None)
        if answer is None:
            return fn(*args, **kwargs)
        given = flatten((args, kwargs))[0]
        answer.write(given)
        return answer.result(given)

    def during(self, call):
        here.way = self
        try:
            return call()
        finally:
            here.way = None


class Segment:
    """A graph, and the call of a marked function behind it; fn: None where there is none."""

    def __init__(self, cuda_graph, sets=()):
        self.graph = cuda_graph
        self.fn = None
        self._sets = sets  # (slot, value) of plain values that it sets

    def replay(self):
        self.graph.replay()
        for slot, value in self._sets:
            slot.put(value)

    def cut(self, torch, fn, args, kwargs, answer):
        """Notes the call, and returns its result in memory that the next segment may read."""
        self.fn = fn
        self.given, self.spec = flatten((args, kwargs))
        self.answer_spec = answer.spec
        self.into = []
        for leaf in answer.leaves:
            if isinstance(leaf, torch.Tensor):
                if type(leaf) is not torch.Tensor or not leaf.is_cuda or leaf.layout is not torch.strided:
                    raise Uncuttable("a marked function returns a tensor on the CPU, or one that is sparse "
                                     "or of a subclass: return values, or tensors on the GPU")
                leaf = leaf.detach().clone()
            elif not (is_plain(leaf) or type(leaf) is Same):
                raise Uncuttable(f"a marked function returns a {type(leaf).__name__}: return tensors, "
                                 "numbers or strings")
            self.into.append(leaf)
        return unflatten(answer.spec, [self.given[leaf.number] if type(leaf) is Same else leaf
                                       for leaf in self.into])

    def takes(self, torch, answer):
        """Is the next segment right for this answer?"""
        if answer.error is not None or answer.spec != self.answer_spec:
            return False
        for leaf, into in zip(answer.leaves, self.into):
            if type(leaf) is not type(into):
                return False
            if type(into) is Same:
                fits = leaf.number == into.number
            elif isinstance(into, torch.Tensor):
                fits = (leaf.shape, leaf.dtype, leaf.device) == (into.shape, into.dtype, into.device)
            else:
                fits = leaf == into
            if not fits:
                return False
        return True

    def call(self, torch):
        args, kwargs = unflatten(self.spec, self.given)
        return Answer(torch, self.fn, args, kwargs)

    def take(self, torch, answer):
        for leaf, into in zip(answer.leaves, self.into):
            if isinstance(into, torch.Tensor):
                into.copy_(leaf)


class Cutter:
    """A run that is captured in segments. pool: what their memory comes from; fn: the callable; kept: (name,
    value) of its arguments that are no tensors; watched: tensors that no segment may write to; answers: of
    calls that were made already."""

    def __init__(self, torch, pool, reads, fn, kept, watched, generators, answers=()):
        self.torch = torch
        self.segments = []
        self.answers = list(answers)
        self.is_capturing = False
        self._asked = 0
        self._pool, self._reads, self._fn, self._kept = pool, reads, fn, kept
        self._watched, self._generators = watched, generators
        self._why = None      # it was aborted
        self._effects = None  # of the segment that is under way
        self._covered = Covered(())  # of that

    def watched(self):
        return self._watched

    def run(self, call):
        """What the call returns. Raises Aborted where it cannot be captured; then self.answers are those of
        the calls that were made."""
        here.way = self
        try:
            self._begin()
            result = call()
            self._end()
            return result
        except BaseException as error:
            self._abandon(error)
            if not isinstance(self._why, Exception) or is_of_handler(error):
                raise  # an interrupt
            raise Aborted from self._why
        finally:
            here.way = None

    def marked(self, fn, args, kwargs):
        """A call of a marked function: between two segments."""
        if self._why is not None:
            raise Aborted from self._why
        try:
            self._end()
            given = flatten((args, kwargs))[0]
            if self._asked < len(self.answers):
                answer = self.answers[self._asked]
                answer.write(given)
            else:
                here.way = None  # it may use graphs, and marks
                answer = Answer(self.torch, fn, args, kwargs)
                here.way = self
                self.answers.append(answer)
            self._asked += 1
            if answer.error is not None:
                raise Uncuttable("a marked function raised") from answer.error
            result = self.segments[-1].cut(self.torch, fn, args, kwargs, answer)
            self._begin()
            return result
        except Exception as error:
            self._abandon(error)
            let_through(error)
            raise Aborted from error

    def _begin(self):
        torch = self.torch
        self._effects = Effects(torch, self._fn, self._kept)
        self._covered = Covered(slots_for(self._effects.records, self._reads.places()))
        self._versions = [_version(t) for t in self._watched]
        made = torch.cuda.CUDAGraph()
        for generator in self._generators:
            made.register_generator_state(generator)
        self._capture = graph(made, pool=self._pool)
        self._capture.__enter__()
        self.is_capturing = True
        self._guard = self._reads.guard()
        self._guard.__enter__()
        self._graph = made
        self._covered.put()

    def _end(self):
        """Ends the segment, and runs it, where replays do all that it did."""
        found = self._covered.take_away()
        guard, self._guard = self._guard, None  # it raises what happened
        guard.__exit__(None, None, None)
        self.is_capturing = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns of graphs without nodes
            self._capture.__exit__(None, None, None)
        sets = {(id(slot.owner), slot.key): (self._effects.lasting(slot), slot.get()) for _, slot in found if is_plain(
            slot.get()) and self._effects.has_found(slot.path)}
        changes = [change for record in self._effects.touched() for change in record.changes() if change.slot is None or (
            (id(change.slot.owner), change.slot.key) not in sets)]
        if changes:
            raise Changed(changes, "")
        if [_version(t) for t in self._watched] != self._versions:
            raise Uncuttable("it writes to an argument, a parameter or a buffer outside of its marked "
                             "functions")
        self._effects.finish()
        segment = Segment(self._graph, tuple(sets.values()))
        segment.replay()
        self.segments.append(segment)

    def _abandon(self, error):
        """Leaves everything as it was before the segment that is under way."""
        if self._why is not None:
            return
        self._why = error
        if self._effects is None:
            return
        if self.is_capturing:
            self.is_capturing = False
            for manager in (self._guard, self._capture):
                try:
                    if manager is not None:
                        manager.__exit__(type(error), error, error.__traceback__)
                except Exception:  # the capture is broken: the reason is known already
                    pass
        self._covered.take_away()
        self._effects.restore()
        self._effects.finish()


class Variant:
    """One way through the callable. statics: its arguments; result: what it returned."""

    def __init__(self, torch, segments, statics, watched, result):
        self.torch = torch
        self.segments = segments
        self.leaves, self.spec = flatten(result)
        numbers = {id(t): i for i, t in enumerate(statics)}
        lasting = {id(t) for t in watched}
        self.ways = [numbers[id(leaf)] if id(leaf) in numbers else "copy"
                     if isinstance(leaf, torch.Tensor) and id(leaf) not in lasting else "value"
                     for leaf in self.leaves]

    def result(self, tensors):
        """What the last replay made, for the caller to keep; tensors: the arguments of the call."""
        return unflatten(self.spec, [tensors[way] if isinstance(way, int) else
                                     leaf.detach().clone() if way == "copy" else leaf
                                     for way, leaf in zip(self.ways, self.leaves)])

    def play(self, answers):
        """Replays; True: to the end. answers: of calls that were made already, and then of all."""
        torch = self.torch
        for number, segment in enumerate(self.segments):
            segment.replay()
            if segment.fn is None:
                break
            if number < len(answers):
                answers[number].write(segment.given)
            else:
                answers.append(segment.call(torch))
            if not segment.takes(torch, answers[number]):
                return False
            segment.take(torch, answers[number])
        return True

    def agrees(self, answers):
        return len(answers) < len(self.segments) and all(
            segment.takes(self.torch, answer) for segment, answer in zip(self.segments, answers))


class Cuts:
    """What was captured for a key."""

    effects = None
    has_given = False
    given = used = spares = assigns = ()  # as of a Shape
    assigned = Assigned(())

    def __init__(self, torch, device, new_cutter, body, tensors):
        if len(extents(tensors)) < len(tensors):
            raise Uncuttable("arguments that overlap are not captured in segments")
        self.torch = torch
        self.device = device
        self.variants = []
        self.used_before = -1
        self.why = None  # a way through the callable was not captured
        self._new_cutter = new_cutter
        self._body = body  # of tensors
        self._last = None  # stream and event of the last call
        self._is_running = False
        self._statics = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device)
                         for t in tensors]

    def call(self, tensors, eager):
        """The result for these tensors; eager: makes the call without graphs. One call at a time, and none in
        another one; what the last one did on another stream is waited for."""
        if self._is_running:
            return eager()
        stream = self.torch.cuda.current_stream()
        if self._last is not None and self._last[0] != stream:
            stream.wait_event(self._last[1])
        self._is_running = True
        try:
            return self._call(tensors, eager)
        finally:
            self._is_running = False
            self._last = (stream, stream.record_event())

    def _call(self, tensors, eager):
        self._fill(tensors)
        answers = []
        for variant in list(self.variants):
            if variant.agrees(answers) and variant.play(answers):
                self.variants.remove(variant)
                self.variants.insert(0, variant)
                return variant.result(tensors)
        if len(self.variants) == MOST_VARIANTS or self.why is not None or (
                answers and answers[-1].error is not None):
            return Answers(answers).during(eager)
        return self._capture(tensors, eager, answers)

    def _fill(self, tensors):
        for static, tensor in zip(self._statics, tensors):
            static.copy_(tensor)

    def _capture(self, tensors, eager, answers):
        self._fill(tensors)
        cutter = self._new_cutter(self._statics, answers)
        try:
            result = cutter.run(lambda: self._body(self._statics))
            variant = Variant(self.torch, cutter.segments, self._statics, cutter.watched(), result)
        except Aborted as aborted:
            self.why = aborted.__cause__ or aborted
            return Answers(cutter.answers).during(eager)
        self.variants.insert(0, variant)
        return variant.result(tensors)

    # ---- As what else is captured for a key ----

    def parts(self):
        return ()

    def segments(self):
        return sum(len(variant.segments) for variant in self.variants)

    @staticmethod
    def is_stale():
        return False

    @staticmethod
    def has_its_scalars():
        return True
