# SPDX-License-Identifier: MIT
"""What code callables like this one executed: a further one follows it from its first call on.

What a callable executes is known by halves behind its first call and whole behind its capture, and each half takes
a walk. Callables of the same code, whose closures hold objects of the same classes, execute the same most of the
time: layers of a net, and what a program graphs anew. More code that is followed is more that keys tell apart. Where
it stands in the way of a capture, a callable begins without it.
"""

import inspect
import types

from .code import is_foreign_file
from .runs import place_of

MOST_KNOWN = 1024  # callables unlike each other
_known: dict[tuple, object] = {}  # by alike(): an Executed


def codes_of(torch, fn):
    """Of what runs at once when a callable is called."""
    for function in (fn, inspect.unwrap(fn)):
        if isinstance(function, torch.nn.Module):
            function = function.forward
        function = getattr(function, "__func__", function)
        if not hasattr(function, "__code__"):
            function = getattr(type(function), "__call__", None)
        if hasattr(function, "__code__"):
            yield function.__code__


def alike(torch, fn):
    """What callables have in common that most likely execute the same; None: nobody knows."""
    codes = tuple(codes_of(torch, fn))
    if not codes or any(is_foreign_file(code.co_filename) for code in codes):
        return None
    return tuple(map(place_of, codes)), tuple(map(_name_of, _held(fn)))


def _held(fn):
    """What a callable is called with beside its arguments."""
    function = getattr(fn, "__func__", fn)
    yield getattr(fn, "__self__", fn)
    if isinstance(function, types.FunctionType):
        for cell in function.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:
                yield None
        yield from function.__defaults__ or ()


def _name_of(value):
    kind = type(value)
    return (kind.__module__, kind.__qualname__) + (place_of(value.__code__) if kind is types.FunctionType else ())


def begin(executed, which):
    """An Executed, with what callables like this one executed."""
    found = _known.get(which) if which is not None else None
    if found is not None:
        executed.add_all(found)
    return executed


def learn(which, executed):
    """Behind a capture."""
    if which is None:
        return
    found = _known.get(which)
    if found is not None and found.size == executed.size:
        return
    if found is None and len(_known) >= MOST_KNOWN:
        _known.clear()
    _known[which] = executed.copy()
