# SPDX-License-Identifier: MIT
"""The arguments of a callable's sample, and calls brought into their form.

A call may name what the sample gave by position, and the other way round, and leave out what has the value
that the sample gave. So its arguments are put where the sample has them, by the callable's signature, before
they are flattened. Each other way of writing a call is looked up once.
"""

import inspect

from .._base.constants import is_plain
from .._base.tree import argument_names, flatten


class NoFit(ValueError):
    """A call is not for the graphs that were captured for a sample."""


class _Place:
    """Where a call has an argument: its number, or its name."""

    def __init__(self, at):
        self.at = at


class Form:
    """Of one sample. fn: what is called; name: for messages."""

    def __init__(self, torch, fn, name, args, kwargs):
        self._torch, self._name = torch, name
        self._signature = _signature_of(fn)
        self._args, self._names = len(args), tuple(kwargs)
        leaves, self.spec = flatten((args, kwargs))
        self._labels = argument_names(self.spec, True)
        self._check(leaves)
        self.leaves = leaves  # until forget()
        self._wanted = [_like(torch, leaf) for leaf in leaves]
        self._are_tensors = all(type(like) is tuple for like in self._wanted)
        self._ways = {(self._args, self._names): None}

    def forget(self):
        """The samples may go: what they were like is known."""
        self.leaves = None

    def _check(self, leaves):
        for label, leaf in zip(self._labels, leaves):
            if isinstance(leaf, self._torch.Tensor):
                if not leaf.is_cuda:
                    raise TypeError("sample_args holds a tensor on the CPU: only tensors on the GPU may be "
                                    "passed, as what a callable moves there itself is a constant of its graphs")
            elif not is_plain(leaf):
                raise TypeError(f"the sample of '{self._name}' holds a {type(leaf).__name__} ({label}): tensors, "
                                "numbers, texts, None, types and devices of PyTorch's, and containers of these "
                                "may be passed. reprise.graphed takes objects")

    # ---- Calls ----

    def fit(self, args, kwargs):
        """The tensors of a call for the graphs; None where one wants a gradient that they do not have. Raises
        NoFit and TypeError."""
        if len(args) != self._args or kwargs or self._names:
            args, kwargs = self._arranged(args, kwargs)
        leaves, spec = flatten((args, kwargs))
        if spec != self.spec:
            raise NoFit(f"'{self._name}' was captured for arguments of other shapes, types or requires_grad "
                        "than it is called with: other containers, or None in another place")
        return self._fitted(leaves)

    def _fitted(self, leaves):
        torch, tensors, others, wants = self._torch, [], None, False
        for i, (leaf, like) in enumerate(zip(leaves, self._wanted)):
            if type(like) is not tuple:
                self._compare(i, leaf, like.value)
                continue
            try:
                is_like = _like_of(leaf) == like
            except AttributeError:  # it is no tensor
                is_like = False
            if not is_like:
                others = others or torch.is_grad_enabled
                wants = wants or (getattr(leaf, "requires_grad", False) and not like[4] and others())
                leaf = self._copied(i, leaf, like)
            tensors.append(leaf)
        return None if wants else tensors

    def _compare(self, i, leaf, value):
        if leaf is value or (type(leaf) is type(value) and leaf == value):
            return
        raise NoFit(f"'{self._name}' was captured with {self._labels[i]} = {value!r}, and is called with "
                    f"{_told(self._torch, leaf)}: what is no tensor is a constant of its graphs. Make the callable "
                    "anew, pass a tensor, or take reprise.graphed, which captures each value")

    def _copied(self, i, leaf, like):
        """The argument as the graph has it: of the sample's type and strides, for autograd a copy."""
        shape, stride, dtype, device, _ = like
        if not isinstance(leaf, self._torch.Tensor) or (leaf.shape, leaf.device) != (shape, device):
            raise NoFit(f"'{self._name}' was captured for arguments of other shapes, types or requires_grad than "
                        f"it is called with: {self._labels[i]} was {_told_like(like)}, and is "
                        f"{_told(self._torch, leaf)}")
        if (leaf.dtype, leaf.stride()) == (dtype, stride):
            return leaf
        return self._torch.empty_strided(shape, stride, dtype=dtype, device=device).copy_(leaf)

    # ---- Ways of writing a call ----

    def _arranged(self, args, kwargs):
        key = (len(args), tuple(kwargs))
        if key not in self._ways:
            self._ways[key] = self._way(len(args), tuple(kwargs))
        way = self._ways[key]
        if way is None:
            return args, kwargs
        positional, named, beside = way
        for at, name, default in beside:
            given = _taken(at, args, kwargs)
            if given is not default and not (is_plain(given) and type(given) is type(default) and given == default):
                raise NoFit(f"'{self._name}' is called with {name} = {_told(self._torch, given)}, which its sample "
                            "did not have: give it in sample_args or sample_kwargs")
        return (tuple(_taken(at, args, kwargs) for at in positional),
                {name: _taken(at, args, kwargs) for name, at in named})

    def _way(self, count, names):
        """Where a call of so many arguments by position and of these names has those of the sample: by
        position, by name; and what it has beside them. None: it is written as the sample."""
        if self._signature is None:
            raise NoFit(f"'{self._name}' tells no signature: call it with {self._args} arguments by position and "
                        f"{list(self._names)} by name, as its sample has them")
        mine = self._by_name(self._args, self._names)
        theirs = self._by_name(count, names)
        lacks = [name for name in mine if name not in theirs and self._default(name) is inspect.Parameter.empty]
        if lacks:
            raise NoFit(f"'{self._name}' was captured with {lacks[0]}, and is called without it")
        found = {mine[name]: theirs.get(name, (self._default(name),)) for name in mine}
        beside = [(theirs[name], name, self._default(name)) for name in theirs if name not in mine]
        return [found[i] for i in range(self._args)], [(name, found[name]) for name in self._names], beside

    def _by_name(self, count, names):
        """Where a call so written has each parameter."""
        bound = self._signature.bind(*map(_Place, range(count)), **{name: _Place(name) for name in names})
        found = {}
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                found.update((f"*{name}[{i}]", place.at) for i, place in enumerate(value))
            elif kind is inspect.Parameter.VAR_KEYWORD:
                found.update((key, place.at) for key, place in value.items())
            else:
                found[name] = value.at
        return found

    def _default(self, name):
        parameter = self._signature.parameters.get(name)
        return inspect.Parameter.empty if parameter is None else parameter.default


def _taken(at, args, kwargs):
    """An argument of a call; at: its number, its name, or a tuple that holds the value itself."""
    return at[0] if type(at) is tuple else args[at] if type(at) is int else kwargs[at]


def _signature_of(fn):
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):  # of code in C
        return None


class _Value:
    """What a leaf that is no tensor has to be."""

    def __init__(self, value):
        self.value = value


def _like_of(tensor):
    return (tensor.shape, tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad)


def _like(torch, leaf):
    return _like_of(leaf) if isinstance(leaf, torch.Tensor) else _Value(leaf)


def _told_like(like):
    return f"a tensor of {tuple(like[0])}"


def _told(torch, value):
    return _told_like(_like_of(value)) if isinstance(value, torch.Tensor) else repr(value)[:80]
