# SPDX-License-Identifier: MIT
"""What objects have, without code of the program's: their `__getattr__` may raise anything, or make what it is asked
for."""

import types


def dict_of(value):
    """An object's attributes; None: it has no dict."""
    ask = type.__getattribute__(type(value), "__getattribute__")
    if type(ask) is not types.WrapperDescriptorType:  # a class of C, as threading.local, has a way of its own
        ask = object.__getattribute__
    try:
        return ask(value, "__dict__")
    except AttributeError:
        return None


def has(kind, name):
    """Has a class this, itself or by its bases? Its metaclass is not asked."""
    return any(name in one.__dict__ for one in type.__dict__["__mro__"].__get__(kind))
