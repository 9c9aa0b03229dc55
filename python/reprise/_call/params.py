# SPDX-License-Identifier: MIT
"""Whose gradients a callable may leave: the parameters that it finds by name."""

import inspect
import types

MOST_HELD = 64  # objects in a container that a callable finds, for modules to be looked for there


def find_params(torch, fn, known, modules=(), optimizers=()):
    """Parameters whose gradients a callable may leave: those watched, and what modules and optimizers
    hold that it closes over, or names as globals, or that it or its owner has; and functions beside it
    that it calls. modules: those whose parameters are among the known ones, with their children;
    optimizers: that it was found to use."""
    found = {id(p): p for p in known}
    watched = set(map(id, modules))
    for value in [*_values_of(fn), *optimizers]:
        params = []
        if isinstance(value, torch.nn.Module):
            params = () if id(value) in watched else type(value).parameters(value)
        elif isinstance(value, torch.optim.Optimizer):
            params = [p for group in value.param_groups for p in group["params"]]
        found.update((id(p), p) for p in params)
    return list(found.values())


def _values_of(fn):
    """What a callable finds by name, with what functions of its module find that are among that."""
    ahead, seen, values = [fn, inspect.unwrap(fn)], set(), []
    while ahead:
        here = ahead.pop()
        if id(here) in seen:
            continue
        seen.add(id(here))
        names = getattr(getattr(here, "__code__", None), "co_names", ())
        beside = getattr(here, "__globals__", {})
        owner = getattr(here, "__self__", None)
        found = [c.cell_contents for c in getattr(here, "__closure__", None) or () if _is_filled(c)]
        found += [beside[name] for name in names if name in beside]
        found += [*getattr(here, "__dict__", {}).values(), *getattr(owner, "__dict__", {}).values()]
        values += [owner, *found]
        for some in found:  # a list of nets, a dict of optimizers; not a data set
            if type(some) in (list, tuple, dict) and len(some) <= MOST_HELD:
                values += some.values() if type(some) is dict else some
        ahead += [v for v in found
                  if isinstance(v, types.FunctionType) and v.__globals__ is beside]
    return values


def _is_filled(cell):
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


def is_forward(torch, fn):
    """Is it a module, or the method that a module's calls go through?"""
    owner = getattr(fn, "__self__", fn)
    return isinstance(owner, torch.nn.Module) and (
        owner is fn or getattr(fn, "__name__", "") in ("forward", "__call__"))
