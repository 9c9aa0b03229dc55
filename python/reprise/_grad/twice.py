# SPDX-License-Identifier: MIT
"""Gradients of gradients: the graph of a backward pass has no second one, so they are computed eagerly.

With create_graph=True the gradients that a graph made become results of a function of their own. Only where
somebody goes back through it, it calls the callable itself on the same arguments, and differentiates that
twice. What that call writes into buffers is put back, as the graph's call has written it already, and so is what it
changes of Python state.
"""

import contextlib

from .._base.tree import flatten
from .._base.warn import warn

_function = None  # the autograd function, made when torch is there


class Again:
    """How a captured callable is called eagerly. call: of the tensors among its arguments; buffers(): the
    tensors that the call may write; state(): the Python state that it may change (effects.Effects), as it is."""

    def __init__(self, torch, name, call, buffers, state=None):
        self.torch = torch
        self.state = state
        self.name = name
        self.call = call
        self.buffers = buffers
        self.has_warned = False
        self._autocast = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None

    def results(self, tensors):
        """The results of the call that have gradients, as it was captured."""
        torch = self.torch
        with torch.autocast("cuda", self._autocast, enabled=self._autocast is not None):
            made = flatten(self.call(tensors))[0]
        return [x for x in made if isinstance(x, torch.Tensor) and x.requires_grad]

    def gradients(self, tensors, params, incoming, has_graph=True):
        """The gradients of the call. has_graph: may somebody go back through them?"""
        torch = self.torch
        with torch.enable_grad(), self.buffers_kept():
            results = self.results(tensors)
            wanted = [t for t in (*tensors, *params) if t.requires_grad]
            found = iter(torch.autograd.grad(results, wanted, incoming, create_graph=has_graph, allow_unused=True))
        return [next(found) if t.requires_grad else None for t in (*tensors, *params)]

    @contextlib.contextmanager
    def buffers_kept(self):
        """What the call writes into buffers is put back, and what it changes of Python state: its graph did both."""
        state = self.state() if self.state is not None else None
        held = [(b, b._version, b.detach().clone()) for b in self.buffers() if not b.requires_grad]
        try:
            yield
        finally:
            if state is not None:
                state.finish()
            for buffer, version, values in held:
                if buffer._version != version:
                    buffer.data.copy_(values)  # unseen by autograd, which may have saved it

    def tell(self):
        if not self.has_warned:
            self.has_warned = True
            warn(f"reprise: gradients of gradients of '{self.name}' run eagerly, as a graph of its backward "
                 "pass has no second one: it is called once more for each. To have them in a graph, "
                 "capture the whole step, reprise.graphed(step, grad='whole'), both passes in it")


def attach(again, tensors, params, incoming, found):
    """The gradients that were found, through which one can go back. incoming: what they were made of."""
    global _function
    if _function is None:
        _function = _make_function(again.torch)
    wanted = [i for i, grad in enumerate(found) if grad is not None]
    made = _function.apply(again, len(tensors), len(params), [found[i] for i in wanted],
                           *tensors, *params, *incoming)
    attached = list(found)
    for i, grad in zip(wanted, made):
        attached[i] = grad
    return attached


def _cut_off(tensor):
    """The same without what it was made of: that way gradients go once, behind this function."""
    return tensor.detach().requires_grad_() if tensor.requires_grad else tensor


def _make_function(torch):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, again, tensors, params, found, *inputs):
            ctx.again, ctx.counts = again, (tensors, params)
            ctx.save_for_backward(*inputs)
            return tuple(grad.detach() for grad in found)

        @staticmethod
        def backward(ctx, *outer):
            ctx.again.tell()
            inputs = list(ctx.saved_tensors)
            tensors, params = ctx.counts
            if not torch.is_grad_enabled():  # nobody goes back a third time
                for i in (*range(tensors), *range(tensors + params, len(inputs))):
                    inputs[i] = _cut_off(inputs[i])
            with torch.enable_grad():
                first = ctx.again.gradients(inputs[:tensors], inputs[tensors:tensors + params],
                                            inputs[tensors + params:])
                pairs = [(g, o) for g, o in zip([g for g in first if g is not None], outer)
                         if g.requires_grad]
                wanted = [t for t in inputs if t.requires_grad]
            found = iter(torch.autograd.grad([g for g, _ in pairs], wanted, [o for _, o in pairs],
                                             create_graph=torch.is_grad_enabled(), allow_unused=True)
                         if pairs and wanted else [None] * len(wanted))
            return (None, None, None, None, *[next(found) if t.requires_grad else None for t in inputs])

    return Twice
