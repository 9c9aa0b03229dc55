# SPDX-License-Identifier: MIT
"""Arguments that a forward pass leaves to its backward pass past autograd.

A checkpoint's closure has them, its keyword arguments, a hook, an attribute of a function's ctx. Autograd saves
nothing of these, so its hooks do not tell of them. Yet the backward graph finds its arguments elsewhere than the
forward graph does. So those that Python still has behind the forward pass count as saved, and the same tensors
are moved to where a backward run has them. A view would stay where it is: that is noticed, and refused.
"""

import gc
import sys

from .._base import torch_private


class LeftBehind:
    """Of the tensors that a forward run had as its arguments. made: views of them that the run had require gradients
    by themselves, which autograd's graph has."""

    def __init__(self, torch, stand_ins, made=()):
        self._torch = torch
        self._stand_ins = list(stand_ins)
        self._made = list(made)
        self._moved = ()   # (tensor, how it was packed) of each that Python has
        self._begins = None  # storages of others that something else has too

    def find(self, pack):
        """Which does Python have? pack: what autograd would save in place of one, a tuple."""
        torch, stand_ins, found = self._torch, self._stand_ins, []
        torch_private.of(torch).need(torch_private.PAIRS)
        base, apart = _alone(torch, False), _alone(torch, True)
        for i in range(len(stand_ins)):
            count = sys.getrefcount(stand_ins[i])
            if count > (apart if stand_ins[i].requires_grad else base):
                packed = pack(stand_ins[i])
                found += [(stand_ins[i], packed)] if isinstance(packed, tuple) else ()
        self._moved = found + [(tensor, pack(tensor)) for tensor in self._made]
        self._made = []
        self._begins = [_storage(torch, tensor) for tensor in stand_ins]

    def move(self, unpack):
        """Moves them to where a run of the backward pass has its arguments. False: something has a view of one."""
        torch = self._torch
        with torch.no_grad():
            for tensor, packed in self._moved:
                tensor.data = unpack(packed)
        if not self._begins:
            return True
        if self._is_viewed():
            gc.collect()  # cycles that nobody has may hold views
        begins, viewed = self._begins, self._is_viewed()
        self._begins = None
        del begins
        return not viewed

    def _is_viewed(self):
        moved = {id(tensor) for tensor, _ in self._moved}
        count, one = torch_private.of(self._torch).storage_users, self._torch.empty(0, device="cpu")
        base = count(_storage(self._torch, one).cdata)
        return any(count(at.cdata) > (0 if id(tensor) in moved else base)
                   for tensor, at in zip(self._stand_ins, self._begins) if not at.expired())


def _storage(torch, tensor):
    return torch.multiprocessing.reductions.StorageWeakRef(tensor.untyped_storage())


def _alone(torch, requires_grad):
    """How many references there are to a tensor that a list has, and autograd's node of it where it requires
    gradients."""
    some = [torch.empty(0, device="cpu", requires_grad=requires_grad)]
    edge = torch.autograd.graph.get_gradient_edge(some[0]) if requires_grad else None
    count = sys.getrefcount(some[0])
    del edge
    return count
