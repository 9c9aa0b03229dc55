# SPDX-License-Identifier: MIT
"""What Inductor asks for graphs, answered by ours: torch.compile(mode="reduce-overhead") under install(),
and the backend "reprise" without it.

PyTorch's answer (torch/_inductor/cudagraph_trees.py) keeps results in a pool of its caching allocator and
asks that allocator which blocks of the pool are alive. Another allocator cannot tell, and need not:
graphs of ours return fresh results. So the function that Inductor asks, cudagraphify_impl, is another one.
"""

import dataclasses
import functools
import itertools
import sys
import weakref
from importlib import util

from .._alloc.install import is_installed, when_installed
from .._base import torch_private
from .._base.torch_private import TREES, TREES_NAMES
from .._base.warn import warn
from .partition import Partition

# Partitions, by the id of Inductor's function, which they keep.
_made: weakref.WeakValueDictionary[int, Partition] = weakref.WeakValueDictionary()
# By the class of names of compilations, and a policy, that of those by the backend.
_kinds: dict[tuple, type] = {}
_numbers = itertools.count()


class _NoTree:
    """In the place of a tree of PyTorch's, for backward passes without a graph to tell of themselves."""

    def __bool__(self):
        return False

    def set_to_running_backward(self):
        """A forward pass of ours has left nothing that the next one would overwrite."""


class _Finder:
    """Answers as the module is imported, which takes a second that others need not wait for."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != TREES:
            return None
        sys.meta_path.remove(_Finder)
        spec = util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                _answer(module)
            spec.loader.exec_module = exec_module
        return spec


def serve():
    """Answers for what is compiled from now on: all under install(), else what is asked for."""
    if TREES in sys.modules:
        _answer(sys.modules[TREES])
    elif _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


def ask_for(context, policy="always"):
    """Graphs of ours for a compilation, by a policy (partition.Partition), told by its context: its name is another object from now on, which
    Inductor hands on to all of its parts, and which goes with these."""
    name = None if context is None else context.compile_id
    if name is None or getattr(name, "is_asked", False):
        return
    key = type(name), policy
    kind = _kinds.get(key)
    if kind is None:
        kind = _kinds[key] = _asking(*key)
    context.compile_id = kind(**_fields(name))


def _fields(name):
    return {field.name: getattr(name, field.name) for field in dataclasses.fields(name)}


def _asking(base, by):
    """A class of names that are equal to PyTorch's and can be told from them."""
    class Asked(base):
        __slots__ = ()
        is_asked = True
        policy = by

        def __eq__(self, other):
            return _fields(self) == _fields(other) if isinstance(other, base) else NotImplemented

        def __hash__(self):
            return hash(base(**_fields(self)))

        def __reduce__(self):
            return functools.partial(base, **_fields(self)), ()

    Asked.__name__ = Asked.__qualname__ = base.__name__
    return Asked


def _is_asked_for(told):
    """Is it for us to answer Inductor, which told this of a function?"""
    return is_installed() or getattr(told.get("compile_id"), "is_asked", False)


def _answer(trees):
    """Puts our answers in the place of a module's functions, which others ask it for at each use."""
    import torch
    try:
        their_impl, their_manager = torch_private.functions_of_trees(torch, trees)
    except torch_private.Missing as why:
        warn(f"{why}. Use reprise.graphed(torch.compile(fn))")
        return
    if getattr(their_impl, "is_answer", False):
        return

    def cudagraphify_impl(model, inputs, static_input_idxs, *args, **kwargs):
        if not _is_asked_for(kwargs):
            return their_impl(model, inputs, static_input_idxs, *args, **kwargs)
        if kwargs.get("kernel_free_cudagraph"):  # nothing that a graph would hold
            return model
        return _partition(torch, model, static_input_idxs, kwargs)

    def get_manager(*args, **kwargs):
        manager = their_manager(*args, **kwargs)
        return _NoTree() if manager is None else manager

    cudagraphify_impl.is_answer = True
    for name, function in zip(TREES_NAMES, (cudagraphify_impl, get_manager)):
        setattr(trees, name, function)


def _partition(torch, model, fixed, told):
    made = _made.get(id(model))  # each thread asks, since PyTorch 2.14
    if made is None:
        way = "backward" if told.get("is_backward") else "inference" if told.get("is_inference") else "forward"
        frame = told.get("compile_id")
        name = f"compiled {next(_numbers) if frame is None else frame} {way}"
        device = told.get("device_index")
        made = _made[id(model)] = Partition(torch, model, fixed, told.get("mutated_input_idxs", ()),
                                            torch.cuda.current_device() if device is None else device,
                                            way == "backward", name, getattr(frame, "policy", "always"))
    return made


when_installed(serve)
