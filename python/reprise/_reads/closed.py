# SPDX-License-Identifier: MIT
"""Which variables that functions close over no code sets any more.

A decorator's function keeps what it wraps in a cell. The cell is set by the code that has the variable: of the
function around it, while that runs, and of functions within that declare it nonlocal. Where that function has
ended, and none within sets the variable, others can fill the cell by its attribute alone, which a descriptor
tells (csrc/reads/descriptors.h).

Which function is around is not kept anywhere. The name of the code says where to look, and it is the right one if
the code is among its constants.

Methods that call super() close over `__class__`, which the interpreter fills as the class is made. Around them is the
class's own code, which nobody keeps: whether a method sets the variable is asked of those that the class has now.
"""

import dis
import functools
import inspect
import sys
import types

from .._base.constants import is_class
from .code import once_for_code

_SETS = frozenset(dis.opmap[name] for name in ("STORE_DEREF", "DELETE_DEREF"))
_MOST_WRAPPED = 8
_WAITING = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_LOCALS = "<locals>"
_OWN_CLASS = "__class__"

_within: dict = {}  # by the id of code: (the code, those around it from the outermost on; (): they were not found)
_MOST_CODE = 10_000


def running():
    """The ids of code that is under way in any thread."""
    found = set()
    for frame in sys._current_frames().values():
        while frame is not None:
            found.add(id(frame.f_code))
            frame = frame.f_back
    return found


def is_closed(function, name, under_way):
    """Is a variable that a function closes over set by no code any more? under_way: as running() says."""
    if "greenlet" in sys.modules:  # whose functions wait where no thread has them
        return False
    if name == _OWN_CLASS:
        return _is_made(function)
    for code in reversed(_around(function)):
        if name in code.co_cellvars:
            return not code.co_flags & _WAITING and id(code) not in under_way and not _is_set(code, name)
    return False


def _is_made(method):
    """Was the class made that a method closes over, and does none of its methods set the variable?"""
    cell = method.__closure__[method.__code__.co_freevars.index(_OWN_CLASS)]
    try:
        made = cell.cell_contents
    except ValueError:
        return False
    if not is_class(made):
        return False
    codes = [method.__code__, *(code for value in tuple(vars(made).values()) for code in _codes_of(value))]
    return not any(_OWN_CLASS in code.co_freevars and (_OWN_CLASS in _sets(code) or _is_set(code, _OWN_CLASS))
                   for code in codes)


def _around(function):
    """The code around a function's, from the outermost on."""
    code = function.__code__
    found = _within.get(id(code))
    if found is None:
        if len(_within) >= _MOST_CODE:
            _within.clear()
        found = _within[id(code)] = (code, _find_around(code, function.__globals__))
    return found[1]


def _find_around(code, names):
    above, local, _ = getattr(code, "co_qualname", "").partition(f".{_LOCALS}.")
    if not local:
        return ()
    first, *rest = above.split(".")
    value = names.get(first)
    for part in rest:
        value = vars(value).get(part) if is_class(value) else None
    for outer in _codes_of(value):
        found = _way_to(code, outer)
        if found:
            return found
    return ()


def _codes_of(value):
    """The code of a function, and of those that it wraps."""
    for _ in range(_MOST_WRAPPED):
        kind = type(value)
        if kind in (staticmethod, classmethod, types.MethodType):
            value = value.__func__
        elif kind is property:
            value = value.fget
        elif kind is types.FunctionType:
            yield value.__code__
            value = value.__dict__.get("__wrapped__")
        elif kind is functools._lru_cache_wrapper:
            value = value.__wrapped__
        else:
            return


def _way_to(code, outer):
    """The code from an outer one on that leads to another within it; (): none does."""
    for inner in _inner(outer):
        if inner is code:
            return (outer,)
        found = _way_to(code, inner)
        if found:
            return (outer, *found)
    return ()


@once_for_code
def _inner(code):
    return tuple(one for one in code.co_consts if isinstance(one, types.CodeType))


@once_for_code
def _sets(code):
    """The variables in cells that code sets."""
    if _SETS.isdisjoint(code.co_code[::2]):
        return frozenset()
    return frozenset(one.argval for one in dis.get_instructions(code) if one.opcode in _SETS)


def _is_set(code, name):
    """Does code within this one set a variable of its?"""
    return any(name in inner.co_freevars and (name in _sets(inner) or _is_set(inner, name)) for inner in _inner(code))
