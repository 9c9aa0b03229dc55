# SPDX-License-Identifier: MIT
"""Arguments and results as flat lists.

A tree is flattened into its leaves and a spec, a hashable value that says how to put them back.
Tuples, named tuples, lists, dicts and None are known here; other containers are known when they are
registered with torch.utils._pytree (the outputs of Hugging Face models are). Objects that a run makes stand
in a tree as Parts (made_objects.py), and are put together where the tree is built for a caller.
"""

import itertools
import operator
import sys
from typing import Any, NamedTuple

# As python/csrc/call/builder.c has them.
_TUPLE, _LIST, _DICT, _NAMED, _OTHER, _LEAF, _NONE, _OBJECT = range(8)
_LEAF_SPEC = (_LEAF,)
_NONE_SPEC = (_NONE,)


def _registered(kind):
    """How torch.utils._pytree takes containers of this type apart, or None. A torch.Size is a value: PyTorch
    registers it to come back as a tuple."""
    if kind.__name__ == "Size" and kind.__module__ == "torch":
        return None
    pytree = sys.modules.get("torch.utils._pytree")
    return None if pytree is None else pytree.SUPPORTED_NODES.get(kind)


class Parts:
    """An object taken apart: its class, its number in the tree, and its attributes; names None: the object of this
    number, once more."""

    __slots__ = ("kind", "number", "names", "values")

    def __init__(self, kind, number, names, values):
        self.kind = kind
        self.number = number
        self.names = names
        self.values = values


class _Context:
    """What torch's pytree keeps of a container, made hashable by its text."""

    __slots__ = ("value", "text")

    def __init__(self, value):
        self.value = value
        self.text = repr(value)

    def __eq__(self, other):
        return isinstance(other, _Context) and self.text == other.text

    def __hash__(self):
        return hash(self.text)


def _flatten(tree, leaves):
    kind = type(tree)
    if tree is None:
        return _NONE_SPEC
    if kind is tuple or kind is list:
        return (_TUPLE if kind is tuple else _LIST, tuple(_flatten(x, leaves) for x in tree))
    if kind is dict:
        return (_DICT, tuple(tree), tuple(_flatten(x, leaves) for x in tree.values()))
    if isinstance(tree, tuple) and hasattr(kind, "_fields"):
        return (_NAMED, kind, tuple(_flatten(x, leaves) for x in tree))
    if kind is Parts:
        return (_OBJECT, tree.kind, tree.number, tree.names, tuple(_flatten(x, leaves) for x in tree.values))
    node = _registered(kind)
    if node is not None:
        parts, context = node.flatten_fn(tree)
        return (_OTHER, kind, _Context(context), tuple(_flatten(x, leaves) for x in parts))
    leaves.append(tree)
    return _LEAF_SPEC


def flatten(tree):
    """The leaves of a tree as a list, and its spec."""
    leaves = []
    spec = _flatten(tree, leaves)
    return leaves, spec


def attributed(tree):
    """The class of a named tuple in a tree that has attributes besides its parts, which no spec tells of; or None."""
    kind = type(tree)
    if isinstance(tree, tuple) and hasattr(kind, "_fields") and getattr(tree, "__dict__", None):
        return kind
    parts = tree.values() if kind is dict else tree.values if kind is Parts else tree if (
        kind is list or isinstance(tree, tuple)) else ()
    return next(filter(None, map(attributed, parts)), None)


def met_twice(tree, apart):
    """The class of a list, dict or registered container that stands in a tree in two places, of which a spec makes
    two; or None. apart: ids of some that do not count, nor what is in them."""
    seen, ahead = set(), [tree]
    while ahead:
        value = ahead.pop()
        kind = type(value)
        node = None if kind in (list, dict) else _registered(kind)
        if isinstance(value, tuple):
            ahead += value
        elif id(value) not in apart and (kind in (list, dict) or node is not None):
            if id(value) in seen:
                return kind
            seen.add(id(value))
            ahead += value.values() if kind is dict else value if kind is list else node.flatten_fn(value)[0]
    return None


def containers_in(tree):
    """The lists and dicts in a tree, outer ones ahead of those within them. Trees with one spec have the same in
    one order."""
    kind = type(tree)
    if kind is list or isinstance(tree, tuple):
        parts = tree
    elif kind is dict:
        parts = tree.values()
    else:
        node = _registered(kind)
        parts = () if node is None else node.flatten_fn(tree)[0]
    found = [tree] if kind in (list, dict) else []
    for part in parts:
        found += containers_in(part)
    return found


def has_containers(spec):
    """Are there containers within the tree's outermost one?"""
    return spec[0] not in (_LEAF, _NONE) and any(part[0] not in (_LEAF, _NONE) for part in spec[-1])


def identified_in(tree, wide):
    """The containers in a tree of which code may ask whether they are the same one, outer ones ahead of those within
    them; wide: tuples among them, but for empty ones, and registered ones. Trees with one spec have the same in one
    order."""
    found = []
    _identify(tree, wide, found)
    return found


def _identify(tree, wide, found):
    parts = _parts_of(tree)
    if parts is None:
        return
    if _is_identified(tree, wide):
        found.append(tree)
    for part in parts:
        _identify(part, wide, found)


def _parts_of(tree):
    """What is in a container; None: it is none."""
    kind = type(tree)
    if kind is list or kind is tuple or (isinstance(tree, tuple) and hasattr(kind, "_fields")):
        return tree
    if kind is dict:
        return tree.values()
    node = _registered(kind)
    return None if node is None else node.flatten_fn(tree)[0]


def _is_identified(tree, wide):
    return type(tree) in (list, dict) or (wide and not (type(tree) is tuple and not tree))


class Identity(NamedTuple):
    """Which containers of a tree are the same one, or one that is there besides.

    Attributes:
        wide: As of identified_in.
        firsts: Of each, as identified_in has them, the number of the first which it is; None: all are others.
        own: By number, what tells those that are there besides.
    """

    wide: bool
    firsts: Any
    own: Any

    def joined(self, tree, found):
        """The tree, in which these are so. found: by number, those that are there besides."""
        return self._joined(tree, found, [])

    def _joined(self, tree, found, made):
        parts = _parts_of(tree)
        if parts is None:
            return tree
        number, kind = len(made), type(tree)
        is_one = _is_identified(tree, self.wide)
        if is_one:
            first = number if self.firsts is None else self.firsts[number]
            known = found.get(number) if first == number else made[first]
            if known is not None:
                made += identified_in(known, self.wide)
                return known
            made.append(tree)
        if kind is list or kind is dict:
            for key, part in list(enumerate(tree) if kind is list else tree.items()):
                tree[key] = self._joined(part, found, made)
            return tree
        other = [self._joined(part, found, made) for part in parts]
        if not all(map(operator.is_, other, parts)):
            tree = tuple.__new__(kind, other) if isinstance(tree, tuple) else self._made(tree, other)
        if is_one:
            made[number] = tree
        return tree

    @staticmethod
    def _made(tree, parts):
        node = _registered(type(tree))
        return node.unflatten_fn(parts, node.flatten_fn(tree)[1])


def leaf_count(spec):
    """How many leaves a tree has."""
    if spec[0] in (_LEAF, _NONE):
        return int(spec[0] == _LEAF)
    return sum(map(leaf_count, spec[-1]))


def argument_names(spec, has_kwargs):
    """For each leaf of a call's arguments what names the argument. spec: of args, or of (args, kwargs)."""
    args, kwargs = spec[1] if has_kwargs else (spec, None)
    names = [f"argument {i}" for i, part in enumerate(args[1], 1) for _ in range(leaf_count(part))]
    if kwargs is not None:
        names += [name for name, part in zip(kwargs[1], kwargs[2]) for _ in range(leaf_count(part))]
    return names


def is_leaf(spec):
    """Is the tree no container?"""
    return spec == _LEAF_SPEC


def holds_objects(spec):
    """Are there Parts in such a tree?"""
    return spec[0] == _OBJECT or (spec[0] not in (_LEAF, _NONE) and any(map(holds_objects, spec[-1])))


def _object(spec, leaves, objects):
    """The object that Parts stand for."""
    _, kind, number, names, parts = spec
    if names is None:
        return objects[number]
    made = objects[number] = kind.__new__(kind)
    vars(made).update(zip(names, [_unflatten(s, leaves, objects) for s in parts]))
    return made


def _unflatten(spec, leaves, objects=None):
    """objects: those put together so far, by number; None: Parts stay."""
    kind = spec[0]
    if kind == _LEAF:
        return next(leaves)
    if kind == _NONE:
        return None
    if kind == _OBJECT and objects is not None:
        return _object(spec, leaves, objects)
    parts = [_unflatten(s, leaves, objects) for s in spec[-1]]
    if kind == _OBJECT:
        return Parts(*spec[1:4], tuple(parts))
    if kind == _TUPLE:
        return tuple(parts)
    if kind == _LIST:
        return parts
    if kind == _DICT:
        return dict(zip(spec[1], parts))
    if kind == _NAMED:
        return tuple.__new__(spec[1], parts)  # its own __new__ may make other parts of these
    return made_of(spec[1], spec[2], parts)


def made_of(kind, context, parts):
    """A container that is registered with PyTorch's pytree."""
    return _registered(kind).unflatten_fn(parts, context.value)


def unflatten(spec, leaves):
    """The tree that the spec tells of, with these leaves."""
    return _unflatten(spec, iter(leaves))


def places_in(spec):
    """Of each part of a tuple of leaves and None the number of its leaf, or None; None for another tree."""
    if spec[0] != _TUPLE or any(part not in (_LEAF_SPEC, _NONE_SPEC) for part in spec[1]):
        return None
    numbers = itertools.count()
    return [None if part == _NONE_SPEC else next(numbers) for part in spec[1]]


def build(spec, leaves):
    """The same for a caller: with objects in the place of Parts, new ones in each call."""
    return _unflatten(spec, iter(leaves), {})


def assembled(tree):
    """A tree with objects in the place of its Parts."""
    leaves, spec = flatten(tree)
    return build(spec, leaves)
