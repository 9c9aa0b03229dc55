# SPDX-License-Identifier: MIT
"""reprise.eager: marks what stays outside of graphs."""

import functools
import threading
import types

from .._capture.record import is_alone
from .._shapes.split import Refused


class Marked(Refused):
    """A capture came to a function that is marked."""


class Here(threading.local):
    """Who answers the calls of marked functions on this thread: cuts.Cutter, cuts.Answers or nobody."""

    way = None


here = Here()


def _refuse(name, kind=Refused):
    if is_alone() or here.way is not None and here.way.is_capturing:
        raise kind(f"{name} is marked with reprise.eager")


class EagerFunction:
    """A marked function. An object of the package, as what such functions read and change is their own."""

    def __init__(self, fn):
        functools.update_wrapper(self, fn)
        self._fn = fn

    def __call__(self, *args, **kwargs):
        if here.way is not None:
            return here.way.marked(self._fn, args, kwargs)
        _refuse(f"'{getattr(self, '__name__', None) or type(self._fn).__name__}'", Marked)
        return self._fn(*args, **kwargs)

    def __get__(self, owner, kind=None):
        if type(self._fn) in (staticmethod, classmethod):  # it stands above that in the body of a class
            return EagerFunction(self._fn.__get__(owner, kind))
        return self if owner is None else types.MethodType(self, owner)

    def __reduce__(self):
        """A function is pickled, and copied, by its name."""
        return self.__qualname__


class _Outside:
    """A block of a program that stays outside of graphs."""

    def __enter__(self):
        _refuse("a block in it")

    def __exit__(self, *_):
        return False


def _refuse_module(module, _):
    """Ahead of a marked module's forward."""
    _refuse(f"the module {type(module).__name__}")


def is_marked(module):
    """Is a module marked with reprise.eager?"""
    return _refuse_module in module._forward_pre_hooks.values()


def eager(fn=None):
    """Marks what stays outside of graphs: a function, a module or a block.

    Arguments:
        fn (callable or torch.nn.Module, optional): A module is marked in place, by a forward pre-hook,
            and neither it nor what is in it is captured by ``parts=True``. Of a function another one is
            made. Default: the result is a context manager.

    Returns:
        The module itself, a function with the same arguments, or a context manager.

    A capture that comes to what is marked is refused there, before it runs, and the callable around it runs
    eagerly. With ``reprise.graphed(..., parts=True)``, and without gradients, marked functions cut it: what
    lies between them becomes graphs, and a call replays these and runs the marked functions between. There
    they get tensors that the next call overwrites (keep copies), and what they return is copied to where the
    next graph reads it. Other shapes, and other values that are no tensors, are captured as another variant,
    up to eight of them. Marked modules and blocks, and all marks where gradients are wanted, leave the
    callable in parts by its modules. Outside of captures of :func:`reprise.graphed` a mark does nothing.

    Example::

        @reprise.eager
        def choose(scores):               # reads values on the host
            return scores.argmax().item()
    """
    if fn is None:
        return _Outside()
    hook = getattr(fn, "register_forward_pre_hook", None)
    if hook is not None:
        if not is_marked(fn):
            hook(_refuse_module)
        return fn
    if not callable(fn) and not isinstance(fn, classmethod):
        raise TypeError(f"fn is a {type(fn).__name__}, which is neither a function nor a module")
    return EagerFunction(fn)
