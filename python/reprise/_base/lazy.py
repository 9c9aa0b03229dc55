# SPDX-License-Identifier: MIT
"""Lazy views: tensors that conjugate or negate what lies in their memory, whenever it is read."""


def bits(tensor):
    """(does it conjugate? does it negate?)"""
    return tensor.is_conj(), tensor.is_neg()


def with_bits(torch, made, wanted):
    """A view of a tensor that does so."""
    conjugates, negates = wanted
    made = made.conj() if conjugates else made
    return torch._neg_view(made) if negates else made


def resolved(torch, tensor):
    """One of the same form whose memory holds what is read of this one: itself, where that is no lazy view."""
    if not any(bits(tensor)):
        return tensor
    with torch.no_grad():
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        return made.copy_(tensor)
