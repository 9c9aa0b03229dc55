# SPDX-License-Identifier: MIT
"""A graphed function in the body of a class: each object has a graphed method of its own.

It lies in the object's dict, and goes with the object. A copy or a pickle of that has none yet.
"""

import types

from .._base.objects import dict_of

_NAME = "_reprise_methods"  # in an object's dict


class _Methods(dict):
    """By the Graphed in the class: that of the object's method."""

    def __deepcopy__(self, memo):
        return type(self)()

    def __copy__(self):
        return type(self)()

    def __reduce_ex__(self, protocol):
        return type(self), ()


def method_of(declared, owner, make):
    """Of a Graphed that a class has, the method of one of its objects. make(method): another Graphed with its options.
    An object without a dict is an argument of the call."""
    names = dict_of(owner)
    if isinstance(owner, type) or type(names) is not dict:
        return types.MethodType(declared, owner)
    methods = names.get(_NAME)
    made = methods.get(declared) if type(methods) is _Methods else None
    if made is None or made.__wrapped__.__self__ is not owner:  # its dict may be another one's too
        made = make(types.MethodType(declared.__wrapped__, owner))
        names.setdefault(_NAME, _Methods())[declared] = made
    return made
