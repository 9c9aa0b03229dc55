# SPDX-License-Identifier: MIT
"""Which values nobody can change: those that a key says all of, and those that are the same at every call,
though each call makes them anew."""

import collections
import types

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented), slice, range)
# Of these modules objects do not change, and are what they are written as.
WRITTEN = frozenset(("decimal", "fractions", "datetime", "uuid", "pathlib"))
_DICTS: tuple[dict, ...] = ({}, collections.OrderedDict())
# Views of dicts, which lead to them.
VIEWS = (types.MappingProxyType, *(type(view) for held in _DICTS for view in (held.keys(), held.values(), held.items())))
_OF_TORCH = frozenset(("device", "dtype", "layout", "memory_format", "Size", "finfo", "iinfo"))


def is_plain(value):
    """Is it a value without parts, which a token says all of?"""
    return is_plain_type(type(value))


def is_class(value):
    """Is it one? What poses as a class, as list[int] on CPython 3.10, is none."""
    return issubclass(type(value), type)


def is_plain_type(kind):
    return kind in _PLAIN or _is_of_torch(kind)


def _is_of_torch(kind):
    return kind.__module__ == "torch" and kind.__name__ in _OF_TORCH


def are_constant(a, b):
    """Are a and b, which two runs returned, values that nobody can change, and alike? Numbers of runs may
    differ where replays follow them."""
    kind = type(a)
    if kind is not type(b):
        return isinstance(a, float) and isinstance(b, float)
    module = kind.__module__
    if kind in _PLAIN or isinstance(a, (int, float)) or module.partition(".")[0] == "reprise":
        return True
    if kind is frozenset or module in WRITTEN or _is_of_torch(kind):
        return a == b
    return module == "numpy" and kind.__name__ != "ndarray" and hasattr(a, "tobytes") and (
        a.tobytes() == b.tobytes())
