# SPDX-License-Identifier: MIT
"""All passes of a step as one graph, by the signature of Megatron's schedules."""

import functools
import types

from .. import _C
from .._base.tree import flatten, unflatten
from .._call.make import graphed
from .ranks import Ranks

NEEDED = ("data_iterator", "model", "num_microbatches")


class Iteration:
    """A function of a schedule, whose calls are replayed (reprise.megatron.full_iteration)."""

    def __init__(self, torch, function, update, pool, generators, strict, watch, ranks):
        self._torch, self._function, self._update = torch, function, update
        self._options = dict(pool=pool, generators=tuple(generators), strict=strict, grad="whole")
        self._watch = tuple(watch)
        self._ranks = None if ranks is None or ranks is False else Ranks(torch, ranks)
        self._graphed = {}  # by what calls have in common beside the data: Graphed, and what it calls

    def __call__(self, *args, **given):
        missing = [name for name in NEEDED if name not in given]
        if args or missing:
            raise TypeError("a schedule is called by keyword" + (f", and {missing[0]} is missing" if missing else ""))
        batches = self._read(given.pop("data_iterator"), given["num_microbatches"])
        leaves, spec = flatten(batches)  # by position: calls of plain tensors take the fast path
        made = self._of(given, spec)
        made.look_ahead()  # Megatron makes new empty dicts in each step
        return made(*leaves)

    def graphs(self):
        """The :class:`reprise.Graphed` of each kind of call."""
        return [made for made, _ in self._graphed.values()]

    def reset(self):
        """Drops all graphs."""
        for made, _ in self._graphed.values():
            made.reset()
        self._graphed.clear()

    # ---- Data ----

    def _read(self, iterators, count):
        """The batches of each iterator, or None; of one alone, not as a list."""
        if isinstance(iterators, (list, tuple)):
            return [self._batches(iterator, count) for iterator in iterators]
        return self._batches(iterators, count)

    def _batches(self, iterator, count):
        return None if iterator is None else [self._moved(next(iterator)) for _ in range(count)]

    def _moved(self, batch):
        leaves, spec = flatten(batch)
        return unflatten(spec, [leaf.cuda(non_blocking=True) if isinstance(leaf, self._torch.Tensor) else leaf
                                for leaf in leaves])

    # ---- Graphs ----

    def _of(self, given, spec):
        key = (spec, *sorted((name, _token(value)) for name, value in given.items()))
        if key not in self._graphed:
            self._graphed[key] = self._new(given, spec)
        made, bound = self._graphed[key]
        for name, value in given.items():  # a function made anew, with a closure of its own
            if isinstance(value, types.FunctionType) and bound.keywords[name] is not value:
                bound.keywords[name] = value
        return made

    def _new(self, given, spec):
        trains = not given.get("forward_only", False)
        update = self._update if trains else None
        model = given["model"]
        chunks = model if isinstance(model, (list, tuple)) else [model]
        bound = functools.partial(self._function, **given)  # what is called is followed from here

        name = "training iteration" if trains else "validation iteration"
        agreement = None if self._ranks is None else self._ranks.agreement(name)
        begin = _nothing if agreement is None else agreement.begin_eager

        def iteration(*leaves):
            begin()
            result = bound(data_iterator=_iterators(unflatten(spec, leaves)))
            if update is not None:
                update()
            return result
        made = graphed(iteration, name=name, watch=[*chunks, *self._watch], **self._options)
        return (made if agreement is None else _asking(made, agreement)), bound


def _nothing():
    """Nobody is asked."""


class _Asking:
    """In front of a kind of Graphed: asks ahead of each replay."""

    agreement = None

    def _fast_call(self, args, kwargs):
        return self._fast_path.call(args, kwargs) if self.agreement.is_over else _C.miss

    def _replay(self, *call):
        self.agreement.ask("graph")
        return super()._replay(*call)


def _asking(made, agreement):
    kind = type(made)
    made.__class__ = type(kind.__name__, (_Asking, kind), {"__module__": kind.__module__})
    made.__dict__.pop("_fast_call", None)  # the fast path's own; from here on that of the class
    made.agreement = agreement
    return made


def _iterators(batches):
    """Of the batches of one iterator, or of each chunk's; those of a chunk are a list in a list."""
    if batches is None:
        return None
    if batches and all(one is None or isinstance(one, list) for one in batches):
        return [None if one is None else iter(one) for one in batches]
    return iter(batches)


def _token(value):
    """Tells calls apart: numbers and texts by value, models as they are. Methods and functions are other objects
    at each look at them, or each time they are made: what these are of is told."""
    if isinstance(value, (int, float, str, bool, type(None))):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, (list, tuple)):
        return "(" + ",".join(map(_token, value)) + ")"
    if isinstance(value, types.MethodType):
        return f"method {id(value.__self__)} {_token(value.__func__)}"
    if isinstance(value, types.FunctionType):
        return f"function {id(value.__code__)}"
    if type(value) is functools.partial:
        return f"partial ({_token(value.func)},{_token(value.args)},{_token(sorted(value.keywords.items()))})"
    return f"id {id(value)}"
