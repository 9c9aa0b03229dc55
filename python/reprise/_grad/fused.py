# SPDX-License-Identifier: MIT
"""Backward passes that add weight gradients up by themselves.

Megatron's fused linear layers write a gradient into ``param.main_grad`` within the kernel that computes it, and
say so by an attribute of the parameter, ``grad_added_to_main_grad``: what autograd gets is a dummy, which nobody
may add. Python code of a backward pass runs in its capture alone, so each replay has to say so too.

Such a layer finds its parameter in ``ctx.saved_tensors``. Where hooks see what autograd saves, as they do in a
capture of two graphs, autograd has another tensor there, without the parameter's attributes. So while the
backward pass of a callable with such parameters is captured, functions of Python get their context through one
that has the parameters in their places.
"""

import contextlib

FLAG = "grad_added_to_main_grad"


@contextlib.contextmanager
def main_gradients_aside(torch, params):
    """Parameters have other memory for these meanwhile: what runs within adds nothing to what is there."""
    fused = [(p, p.main_grad, getattr(p, FLAG, None)) for p in params
             if isinstance(getattr(p, "main_grad", None), torch.Tensor)]
    try:
        for param, grad, _ in fused:
            param.main_grad = torch.zeros_like(grad)
        yield
    finally:
        for param, grad, flag in fused:
            param.main_grad = grad
            if flag is not None:
                setattr(param, FLAG, flag)


class Flags:
    """Of the parameters of one callable, around the runs of its backward pass. of: gives what stands for a
    parameter in such a run."""

    def __init__(self, torch, params, of):
        self._torch = torch
        self._params = [p for p in params if hasattr(p, FLAG)]
        self._of = of
        self._before = [getattr(p, FLAG) for p in self._params]
        self.set = ()  # parameters that the last run set it for

    @contextlib.contextmanager
    def around(self):
        """A run. What it said is noted and unsaid, as nothing ran."""
        if not self._params:
            yield
            return
        for param in self._params:
            setattr(self._of(param), FLAG, False)
        try:
            with self._found_by_functions():
                yield
            self.set = tuple(p for p in self._params if getattr(self._of(p), FLAG))
        finally:
            for param, before in zip(self._params, self._before):
                setattr(self._of(param), FLAG, before)
                setattr(param, FLAG, before)

    @contextlib.contextmanager
    def _found_by_functions(self):
        base = self._torch.autograd.function.BackwardCFunction
        places = {_place(p): self._of(p) for p in self._params}
        apply = base.apply

        def apply_within(context, *grads):
            return apply(_Context(context, places), *grads)
        base.apply = apply_within
        try:
            yield
        finally:
            base.apply = apply


def say(params):
    """Behind a replay's launch: these have had their gradients added up."""
    for param in params:
        setattr(param, FLAG, True)


def _place(tensor):
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


class _Context:
    """A function's context, which has the parameters themselves among what was saved."""

    def __init__(self, context, places):
        object.__setattr__(self, "_context", context)
        object.__setattr__(self, "_places", places)

    @property
    def saved_tensors(self):
        return tuple(t if t is None else self._places.get(_place(t), t) for t in self._context.saved_tensors)

    def __getattr__(self, name):
        return getattr(self._context, name)

    def __setattr__(self, name, value):
        setattr(self._context, name, value)
