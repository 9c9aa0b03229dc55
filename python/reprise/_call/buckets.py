# SPDX-License-Identifier: MIT
"""Calls of several sizes that share a graph: named dimensions of arguments are padded up to the next bucket,
and results cut to size.

The callable has to give, within the true sizes, results that do not depend on what lies beyond them, as one
does that treats each row by itself. What a call does to its arguments in place is brought back from the
padded ones. The first padded call of a kind runs eagerly, at its true sizes: it tells which axes of results
have a named dimension, and which arguments are written to.
"""

import inspect
import math

from .. import _C
from .._base.tree import flatten, unflatten
from .._base.warn import warn
from .._reads.walk import is_plain, plain_token

POWERS_OF_TWO = "powers of two"
_FILLS = ("zeros", "last")


class Unbucketed(_C.Error):
    """A result does not have the dimension that arguments were padded along."""


class Dim:
    """A named dimension. rule: a list of sizes, ascending; POWERS_OF_TWO; or a number whose multiples are
    the buckets. axes: of each argument, by its name or position, the axis; None: the first of all."""

    def __init__(self, name, rule, axes):
        self.name, self.axes = name, axes
        is_list = isinstance(rule, (list, tuple))
        numbers = list(rule) if is_list else [rule] if rule != POWERS_OF_TWO else []
        if (is_list and not numbers) or any(type(n) is not int or n < 1 for n in numbers) or (
                sorted(set(numbers)) != numbers):
            raise ValueError(f"buckets of '{name}' are {rule!r}, but have to be sizes in ascending order, "
                             f"{POWERS_OF_TWO!r}, or a number whose multiples they are")
        self.sizes, self.multiple = (numbers, None) if is_list else (None, numbers[0] if numbers else None)

    def bucket(self, size):
        """The next bucket. Above the last of a list a size stays as it is."""
        if size == 0:
            return 0
        if self.sizes is not None:
            return next((n for n in self.sizes if n >= size), size)
        if self.multiple is not None:
            return -(-size // self.multiple) * self.multiple
        return 1 << (size - 1).bit_length()


class Buckets:
    """What a callable was made with."""

    def __init__(self, fn, buckets, axes, fill):
        """fn: whose arguments are named; None: what asks has the names."""
        axes = axes or {}
        unknown = [name for name in axes if name not in buckets]
        if unknown:
            raise ValueError(f"axes names the dimension '{unknown[0]}', which buckets does not")
        self.dims = [Dim(name, rule, axes.get(name)) for name, rule in buckets.items()]
        if sum(dim.axes is None for dim in self.dims) > 1:
            raise ValueError("of several dimensions only one may be without axes, which is the first axis of "
                             "all arguments: name the axes of the others")
        self.fill = fill if isinstance(fill, dict) else {None: fill}
        for rule in self.fill.values():
            if rule not in _FILLS and (isinstance(rule, str) or not isinstance(rule, (int, float))):
                raise ValueError(f"fill is {rule!r}, but has to be 'zeros', 'last' or a number")
        try:
            self._names = [] if fn is None else list(inspect.signature(getattr(fn, "forward", fn)).parameters)
        except (TypeError, ValueError):
            self._names = []

    def places(self, torch, args, kwargs):
        """Of each leaf of a call (dimension, axis) pairs, and what it is filled with."""
        found = []
        named = [(self._names[i] if i < len(self._names) else i, i, value) for i, value in enumerate(args)]
        named += [(name, name, value) for name, value in kwargs.items()]
        for name, position, value in named:
            rule = self.rule(name, position)
            for leaf in flatten(value)[0]:
                is_tensor = isinstance(leaf, torch.Tensor)
                found.append((list(self.axes(name, position, leaf.dim())) if is_tensor else [], rule))
        return found

    def rule(self, name, position):
        """What padding of an argument holds."""
        return self.fill.get(name, self.fill.get(position, self.fill.get(None, "zeros")))

    def axes(self, name, position, count):
        """(dimension, axis) pairs of a tensor of so many axes in an argument."""
        for dim in self.dims:
            axis = 0 if dim.axes is None else dim.axes.get(name, dim.axes.get(position))
            if axis is None or (dim.axes is None and count == 0):
                continue
            if not -count <= axis < count:
                raise ValueError(f"the argument {name!r} has no axis {axis}, which is to be the dimension "
                                 f"'{dim.name}': it has {count}")
            yield dim, axis % count


def padded(torch, tensor, axis, size, rule):
    """A tensor with more along an axis, up to a size."""
    have = tensor.shape[axis]
    shape = (*tensor.shape[:axis], size - have, *tensor.shape[axis + 1:])
    if rule == "last":
        more = tensor.narrow(axis, have - 1, 1).expand(shape)
    elif rule == "zeros":
        more = tensor.new_zeros(shape)
    else:
        more = tensor.new_full(shape, rule)
    return torch.cat((tensor, more), axis)


class _Kind:
    """Padded calls that are alike but for their sizes: what the first of them told."""

    __slots__ = ("results", "written", "refused")

    def __init__(self, results, written, refused):
        self.results = results  # of each leaf: (axis, dimension) pairs; None: no tensor
        self.written = written  # which leaves of the arguments are written to
        self.refused = refused


class Use:
    """What the calls of one bucket took."""

    __slots__ = ("calls", "padded_calls", "true", "taken")

    def __init__(self):
        self.calls = self.padded_calls = self.true = self.taken = 0

    def note(self, sizes, taken):
        """A call of these sizes, which took those."""
        true, bucket = math.prod(sizes), math.prod(taken)
        self.calls += 1
        self.padded_calls += bucket != true
        self.true += true
        self.taken += bucket

    def facts(self):
        return {"calls": self.calls, "padded_calls": self.padded_calls,
                "waste": 1 - self.true / self.taken if self.taken else 0.0}


def version_of(tensor):
    """None: it does not tell whether it was written to."""
    return None if tensor.is_inference() else tensor._version


class Bucketed:
    """In front of a class of graphed callables (_call/graphed.py): its calls are padded. The last of what it
    is made with is a Buckets."""

    def __init__(self, *given):
        super().__init__(*given[:-1])
        self._buckets = given[-1]
        self._kinds = {}
        self._padded_uses = {}  # by the sizes of the dimensions
        self._sizes = {}  # by the shapes of a call's tensors: those

    def __call__(self, *args, **kwargs):
        call = self._sized(args, kwargs)
        if not call.is_padded:
            self._note(call)
            return super().__call__(*args, **kwargs)
        kind = self._kinds.get(call.like)
        if kind is None:
            return self._first(call, args, kwargs)
        if kind.refused is not None:
            return self._fn(*args, **kwargs)
        why = self._why_unpadded(call)
        if why is not None:
            return self._eager(args, kwargs, why)
        self._note(call)
        args_padded, kwargs_padded, leaves = call.padded(self._torch)
        made, spec = flatten(super().__call__(*args_padded, **kwargs_padded))
        if len(made) != len(kind.results):
            raise Unbucketed(f"'{self.name}' returned {len(made)} results for padded arguments, and "
                             f"{len(kind.results)} before")
        for i in kind.written:
            call.bring_back(i, leaves[i])
        return unflatten(spec, [self._cut(call, leaf, places) for leaf, places in zip(made, kind.results)])

    def _why_unpadded(self, call):
        """Why a call's arguments may not be padded, which takes others in their place; None: they may be."""
        torch = self._torch
        if self._own_among(call.leaves):
            self.look_ahead()  # one that is gone may have had the same id
            if self._own_among(call.leaves):
                return ("an argument that would be padded is a tensor that it reads beside them too. Pass another one, "
                        "or read it from the argument")
        asked = self._reads.asked()
        is_split = torch.is_grad_enabled() and self._grad != "whole"
        found = (self._reads.refusal(asked, leaf, is_split, True) for leaf in call.leaves
                 if isinstance(leaf, torch.Tensor) and not (asked.is_nothing and not leaf.__dict__))
        return next(filter(None, found), None)

    def _first(self, call, args, kwargs):
        """An eager call at its true sizes, which tells of its kind."""
        torch = self._torch
        versions = [version_of(x) if isinstance(x, torch.Tensor) else 0 for x in call.leaves]
        ahead = self._eager_runs < self._warmup
        result = (self._warm_up if ahead else lambda a, k: self._fn(*a, **k))(args, kwargs)
        written = [i for i, (leaf, before) in enumerate(zip(call.leaves, versions))
                   if call.places[i][0] and (before is None or version_of(leaf) != before)]
        results, refused = [], None
        for number, leaf in enumerate(flatten(result)[0]):
            if not isinstance(leaf, torch.Tensor):
                results.append(())
                continue
            places = self._axes_of(call, leaf)
            if places is None:
                refused = (f"result {number}, of shape {tuple(leaf.shape)}, does not have each padded "
                           "dimension on one axis of its size, and might depend on what lies beyond the true "
                           "sizes. Compute it of the others, behind the call")
            results.append(places)
        self._kinds[call.like] = _Kind(results, written, refused)
        if refused is not None:
            if self._strict:
                raise Unbucketed(refused)
            warn(f"reprise: '{self.name}' runs without a graph for sizes between buckets: {refused}")
        return result

    @staticmethod
    def _axes_of(call, tensor):
        """(axis, dimension) of each padded dimension; None where one is not told."""
        found = []
        for dim in call.padded_dims:
            axes = [i for i, n in enumerate(tensor.shape) if n == call.sizes[dim]]
            wanted = {axis for places, _ in call.places for one, axis in places if one is dim}
            axes = [i for i in axes if i in wanted] or axes
            if len(axes) != 1:
                return None
            found.append((axes[0], dim))
        return tuple(found)

    def _cut(self, call, leaf, places):
        for axis, dim in places:
            if leaf.shape[axis] != call.buckets[dim]:
                raise Unbucketed(f"'{self.name}' returned a result of {leaf.shape[axis]} along axis {axis}, "
                                 f"where '{dim.name}' is padded to {call.buckets[dim]}")
            leaf = leaf.narrow(axis, 0, call.sizes[dim])
        return leaf

    def _sized(self, args, kwargs):
        return Call(self._torch, self._buckets, args, kwargs)

    def _note(self, call):
        at = tuple((dim.name, n) for dim, n in call.buckets.items())
        self._sizes[call.shapes(self._torch)] = at
        self._padded_uses.setdefault(at, Use()).note(call.sizes.values(), call.buckets.values())

    def _forget(self):
        super()._forget()
        if hasattr(self, "_kinds"):
            self._kinds.clear()

    # ---- Ahead of calls ----

    def captured(self, args, kwargs):
        args, kwargs, _ = self._sized(args, kwargs).padded(self._torch)
        return super().captured(args, kwargs)

    def estimate_into(self, into, args, stand_ins, kept):
        args, _, _ = self._sized(args, {}).padded(self._torch)
        return super().estimate_into(into, args, stand_ins, kept)

    # ---- Facts ----

    def shapes(self):
        facts = []
        for key, made in list(self._shapes.items()):
            at = self._sizes.get(tuple(like[0] for like in key[0][0][1] if type(like) is tuple))
            more = {} if at is None else {"bucket": dict(at), **self._padded_uses[at].facts()}
            more.pop("calls", None)
            facts += [{**part.facts(), **more} for part in made.parts()]
        return facts

    def buckets(self):
        return [{"sizes": dict(at), **use.facts()} for at, use in list(self._padded_uses.items())]


class Call:
    """A call's sizes."""

    def __init__(self, torch, buckets, args, kwargs):
        self.leaves, self.spec = flatten((args, kwargs))
        self.places = buckets.places(torch, args, kwargs)
        self.sizes, self.buckets = {}, {}
        for leaf, (places, _) in zip(self.leaves, self.places):
            for dim, axis in places:
                size = self.sizes.setdefault(dim, leaf.shape[axis])
                if leaf.shape[axis] != size:
                    raise ValueError(f"the dimension '{dim.name}' is {size} and {leaf.shape[axis]} in "
                                     "arguments of one call: name the axes that have it, axes={...}")
        self.buckets = {dim: dim.bucket(size) for dim, size in self.sizes.items()}
        self.padded_dims = [dim for dim, n in self.buckets.items() if n != self.sizes[dim]]
        self.is_padded = bool(self.padded_dims)
        self.like = self._like(torch) if self.is_padded else None

    def _like(self, torch):
        """What padded calls have in common of which one tells of the others."""
        found = [self.spec, tuple(self.padded_dims)]
        for leaf, (places, _) in zip(self.leaves, self.places):
            if isinstance(leaf, torch.Tensor):
                named = {axis for _, axis in places}
                found.append((leaf.dtype, tuple(None if i in named else n for i, n in enumerate(leaf.shape))))
            else:
                found.append(plain_token(leaf) if is_plain(leaf) else type(leaf))
        return tuple(found)

    def shapes(self, torch):
        """Those of the tensors of the call, in buckets."""
        found = []
        for leaf, (places, _) in zip(self.leaves, self.places):
            if isinstance(leaf, torch.Tensor):
                sizes = {axis: self.buckets[dim] for dim, axis in places}
                found.append(torch.Size(sizes.get(i, n) for i, n in enumerate(leaf.shape)))
        return tuple(found)

    def padded(self, torch):
        """(args, kwargs, leaves) in buckets."""
        leaves, done = [], {}
        for leaf, (places, rule) in zip(self.leaves, self.places):
            at = (id(leaf), tuple(places), rule)
            for dim, axis in places if at not in done else ():
                if leaf.shape[axis] < self.buckets[dim]:
                    leaf = padded(torch, leaf, axis, self.buckets[dim], rule)
            leaves.append(done.setdefault(at, leaf))  # one that is given twice is one there too
        args, kwargs = unflatten(self.spec, leaves)
        return args, kwargs, leaves

    def bring_back(self, which, leaf):
        """What the call wrote into a padded argument."""
        for dim, axis in self.places[which][0]:
            leaf = leaf.narrow(axis, 0, self.sizes[dim])
        if leaf is not self.leaves[which]:
            self.leaves[which].detach().copy_(leaf.detach())
