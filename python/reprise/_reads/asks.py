# SPDX-License-Identifier: MIT
"""What code asks of a tensor among its arguments beside what is in it, its sizes, strides, type and device.

The runs of a capture are shown stand-ins for the arguments: plain tensors that nothing was computed from, at the
beginning of their memory. Where code that runs names such a fact, and an argument answers in another way than its
stand-in would, a graph would be that of another call, so the call is eager. Code of PyTorch's own is not followed,
and what it asks counts for nothing.
"""

from typing import NamedTuple

_CLASSES = frozenset(("Parameter",))  # which code may also have as globals


def _facts(torch):
    """By name: what a person calls it; is an argument like a stand-in? Gradients want no look at `requires_grad`:
    there it is part of the key, and the stand-in's too."""
    return {
        "is_leaf": ("is it a leaf", lambda t: t.is_leaf),
        "grad_fn": ("what it was computed by", lambda t: t.is_leaf),
        "storage_offset": ("where it begins in its memory", lambda t: t.storage_offset() == 0),
        "is_inference": ("is it of inference mode", lambda t: t.is_inference() == torch.is_inference_mode_enabled()),
        "_version": ("how often it was written to", lambda t: t.is_inference() or t._version == 0),
        "grad": ("its gradient", lambda t: not t.is_leaf or t.grad is None),
        "Parameter": ("is it a parameter", lambda t: type(t) is not torch.nn.Parameter),
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
    """Of one callable."""

    def __init__(self, torch):
        self._torch = torch
        self._facts = _facts(torch)
        self._names = frozenset(self._facts)

    def asked(self, walk):
        """An Asked; walk: what the callable reads, or None."""
        if walk is None:
            return NOTHING
        facts = (self._names & walk.names) | (_CLASSES & walk.globals)
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
