# SPDX-License-Identifier: MIT
"""Where a call that is measured with its backward pass ends.

What lies between both passes counts for eager calls and for graphs alike, and so does what the pass does
behind the callable's part of it: the difference is that of the callable."""

from .._base import torch_private
from .._base.tree import flatten


class Turn:
    """A call that a choice measures. It ends once, and is not measured where no backward pass comes."""

    __slots__ = ("_choice", "_turn")

    def __init__(self, choice, turn):
        self._choice = choice
        self._turn = turn

    def end(self, worked):
        choice, self._choice = self._choice, None
        if choice is not None:
            choice.end(self._turn, worked)

    def __del__(self):
        self.end(False)


def end_behind_backward(torch, choice, turn, result):
    """Ends the turn of a call, whose result this is, behind the backward pass through it."""
    nodes = {leaf.grad_fn for leaf in flatten(result)[0]
             if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None}
    queue = torch_private.of(torch).queue_callback
    call = Turn(choice, turn)
    if not nodes or queue is None:
        call.end(not nodes)

    def begins(*_):
        queue(lambda: call.end(True))
    for node in nodes if queue else ():
        node.register_prehook(begins)
