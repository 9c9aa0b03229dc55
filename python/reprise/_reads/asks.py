# SPDX-License-Identifier: MIT
"""What code asks of a tensor among its arguments beside what is in it, its sizes, strides, type and device.

The runs of a capture are shown stand-ins for the arguments: plain tensors that nothing was computed from, at the
beginning of their memory. Where code that runs names such a fact, and an argument answers in another way than its
stand-in would, a graph would be that of another call, so the call is eager. Code of PyTorch's own is not followed,
and what it asks counts for nothing, but for gradients.
"""

from typing import NamedTuple

from .._capture.record import span
from .runs import GRADIENT, ID

_GLOBALS = frozenset(("Parameter", "Buffer", "type"))  # names that code has as globals
_ALIGNED = 256  # bytes that stand-ins are aligned to


def _facts(torch, is_own, own):
    """By name: what a person calls it; is an argument like a stand-in? Gradients want no look at `requires_grad`:
    there it is part of the key, and the stand-in's too. is_own(tensor), own(): as of Asks."""
    def is_plain(tensor):
        return type(tensor) is not torch.nn.Parameter

    def is_whole(tensor):
        return tensor.storage_offset() == 0 and tensor.untyped_storage().nbytes() == span(tensor)

    def has_no_hooks(tensor):
        return not tensor._backward_hooks and not tensor._post_accumulate_grad_hooks

    def is_one_of_many(tensor):
        return tensor.is_cuda and tensor.data_ptr() % _ALIGNED == 0 and not is_own(tensor)

    storage = ("what its storage holds", lambda t: is_whole(t) and not is_own(t))
    kind = ("its class", is_plain)
    base = ("is it a view", lambda t: not t._is_view())
    hooks = ("its hooks", has_no_hooks)
    return {
        "is_leaf": ("is it a leaf", lambda t: t.is_leaf),
        "grad_fn": ("what it was computed by", lambda t: t.is_leaf),
        "storage_offset": ("where it begins in its memory", lambda t: t.storage_offset() == 0),
        "is_inference": ("is it of inference mode", lambda t: t.is_inference() == torch.is_inference_mode_enabled()),
        "_version": ("how often it was written to", lambda t: t.is_inference() or t._version == 0),
        "grad": ("its gradient", lambda t: not t.is_leaf or t.grad is None),
        GRADIENT: ("its gradient, in PyTorch's code", lambda t: not t.is_leaf or not (t.requires_grad or t.grad is not None)),
        "Parameter": ("is it a parameter", is_plain),
        "Buffer": ("is it a buffer", lambda t: not getattr(t, "_is_buffer", False)),
        **dict.fromkeys(("type", "__class__"), kind),
        **dict.fromkeys(("_base", "_is_view"), base),
        **dict.fromkeys(("untyped_storage", "storage", "_typed_storage"), storage),
        **dict.fromkeys(("_backward_hooks", "_post_accumulate_grad_hooks"), hooks),
        ID: ("its id, or for what a dict or set has by it", lambda t: id(t) in own()),
        "as_strided": ("where it begins in its memory", lambda t: t.storage_offset() == 0),
        "data_ptr": ("where it lies", is_one_of_many),
        "is_pinned": ("is it pinned", lambda t: t.is_cuda or not t.is_pinned()),
        "is_shared": ("is it shared", lambda t: t.is_cuda or not t.is_shared()),
        "retains_grad": ("does it retain its gradient", lambda t: not t.retains_grad),
        "output_nr": ("which output it is of what computed it", lambda t: t.output_nr == 0),
    }


class Asked(NamedTuple):
    """What the code that runs asks of its arguments.

    Attributes:
        facts: The names of those of _facts.
        wishes: Does it ask for `requires_grad`?
        attributes: May it ask for attributes that the program gave them, and find that there are none?
    """

    facts: tuple
    wishes: bool
    attributes: bool

    @property
    def is_nothing(self):
        return not (self.facts or self.wishes or self.attributes)


NOTHING = Asked((), False, False)


class Asks:
    """Of one callable. is_own(tensor): is it in memory that the callable has beside its arguments? own(): the ids of
    such tensors."""

    def __init__(self, torch, is_own, own):
        self._torch = torch
        self._facts = _facts(torch, is_own, own)
        self._names = frozenset(self._facts) - {"type"}  # no attribute

    def asked(self, walk):
        """An Asked; walk: what the callable reads, or None."""
        if walk is None:
            return NOTHING
        facts = (self._names & walk.names) | (_GLOBALS & walk.globals)
        return Asked(tuple(sorted(facts)), "requires_grad" in walk.names, walk.asks_for_what_may_lack)

    def are_like(self, asked):
        """A function that says whether all tensors of a call answer as their stand-ins do; None: nothing is asked
        that takes a look at each."""
        likes = [self._facts[name][1] for name in asked.facts]
        return (lambda tensors: all(is_like(t) for t in tensors for is_like in likes)) if likes else None

    def refusal(self, walk, asked, tensor, is_split, is_whole):
        """Why a call is not for a graph that is given this tensor, a sentence; None: it is. is_split: are forward
        and backward two graphs? is_whole: is the tensor an argument, not a part of one?"""
        for name in asked.facts:
            what, is_like = self._facts[name]
            if not is_like(tensor):
                return (f"it asks of an argument {what} (`{name}`), which is not the same for what stands in its place "
                        f"in a capture. Ask before the call, and pass what was found")
        if asked.wishes and not is_split and tensor.requires_grad:
            return ("it asks of an argument whether it wants a gradient (`requires_grad`) where none is computed, and "
                    "what stands in its place in a capture wants none. Ask before the call, or pass x.detach()")
        name = next((n for n in tensor.__dict__ if walk.asks_for(n)), None) if is_whole and walk is not None else None
        if name is None:
            return None
        return (f"it asks for an attribute that the program gave an argument (`{name}`), and what stands in its place in "
                "a capture has none. Pass it beside the tensor")
