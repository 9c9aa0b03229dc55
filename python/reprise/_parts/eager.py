# SPDX-License-Identifier: MIT
"""reprise.eager: marks what stays outside of graphs."""

import functools

from .._capture.record import is_alone
from .._shapes.split import Refused


def _refuse(name):
    if is_alone():
        raise Refused(f"{name} is marked with reprise.eager")


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

    A capture that comes to what is marked is refused there, before it runs. So a callable around it runs
    eagerly, or with ``reprise.graphed(..., parts=True)`` in parts, and the report names the mark. Outside
    of captures of :func:`reprise.graphed` a mark does nothing.

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
    if not callable(fn):
        raise TypeError(f"fn is a {type(fn).__name__}, which is neither a function nor a module")
    name = f"'{getattr(fn, '__name__', None) or type(fn).__name__}'"

    @functools.wraps(fn)
    def outside(*args, **kwargs):
        _refuse(name)
        return fn(*args, **kwargs)

    return outside
