# SPDX-License-Identifier: MIT
"""The fast path of a graphed callable's calls, from its side: what takes them in C, and under which guard."""

from .. import _C
from .._base import torch_private
from .._reads.walk import is_plain


class NoFastPath:
    """In the place of a _C.FastCall, where there can be none: takes no calls."""

    call = staticmethod(lambda *_: _C.miss)
    add = add_split = is_guarded = renew = staticmethod(lambda *_: False)
    accept_reads = clear = hold = know = set_guard = set_own = staticmethod(lambda *_: None)


class FastPath:
    """What takes a callable's calls without any Python between their arguments and the launch.

    Attributes:
        call: Takes (args, kwargs); returns the result, or _C.miss or _C.eager.
        guards (int): How often a guard was set, which forgets all shapes.
    """

    def __init__(self, torch, watch, reads, frozen, answers=None):
        self.guards = 0
        self._answers = answers
        self._torch, self._watch, self._reads, self._frozen = torch, watch, reads, frozen
        self._modes = None  # in which it takes calls; None: there is no guard
        self._number = None  # of what was read when the guard was set
        self.looks_again = False  # do calls set what the program may put elsewhere?
        self._version = None      # of the look at what is read, as the guard was set
        self._own = None     # what the taker knows of _reads.own_tensors()
        try:
            self._taker = _C.FastCall(
                torch.Tensor, torch.empty_strided, torch_private.of(torch).quick_empty,
                torch.is_grad_enabled, torch.is_inference_mode_enabled, torch.is_autocast_enabled,
                torch.cuda.current_device, torch.nn.Parameter, torch_private.of(torch).hooks_of_saved,
                torch_private.of(torch).transforms)
        except (AttributeError, NotImplementedError, TypeError, ValueError):
            self._taker = NoFastPath()  # PyTorch tells nothing of tensors through DLPack's C interface
        self.call = self._taker.call

    def takes_calls(self):
        """It looks at nothing of autocast."""
        return not self._torch.is_autocast_enabled()

    def is_guarded(self):
        """Does it take calls in the modes that hold now? Hooks and modules of others do not count, which
        the slow path has just looked at: PyTorch 2.15 registers a hook in every graph. Nor do other objects
        of the same values among what is read: Megatron has new empty dicts in each step."""
        if self._modes != self._modes_now() or (self.looks_again and self._version != self._reads.version):
            return False
        self.accept_reads()
        return self._taker.is_guarded() or self._taker.renew(*self._watch.counts(self._frozen))

    def accept_reads(self):
        """What is read was looked at: where it has the values that it had, calls are taken as before."""
        if self._number is not None and self._number == self._reads.number:
            self._taker.accept_reads()
            self._tell_own()

    def _tell_own(self):
        """Lets the taker know which tensors are read beside the arguments: calls may be given such."""
        own = self._reads.own_tensors()
        if own is not self._own:
            self._taker.set_own(tuple(own))
            self._own = own

    def holds(self):
        """Is all as when the guard was set? A call in other modes or under autocast has to look."""
        return self._modes == self._modes_now() and not self._torch.is_autocast_enabled() and (
            self._taker.is_guarded())

    def _modes_now(self):
        return (self._torch.is_grad_enabled(), self._torch.is_inference_mode_enabled(), self._reads.asked())

    def guard(self, guarded):
        """What shapes are added to. Where it was not guarded it is, and knows no shapes."""
        if guarded:
            return self._taker
        watch, modes = self._watch, self._modes_now()
        tensors, modules = ((), ()) if self._frozen else (watch.tensors, watch.modules)
        params = watch.params if self._reads.looks_at_wishes() and not self._frozen else ()
        *modes_of_torch, asked = modes
        asks = None if asked.is_nothing else (asked.wishes, asked.attributes, self._reads.are_like(asked))
        self._taker.set_guard(tuple(tensors), tuple(m.__dict__ for m in modules), watch.handle, *modes_of_torch,
                              tuple(params), self._reads.handle, None if self._frozen else watch.members,
                              self._answers and self._answers.handle, asks)
        self._own = None
        self._tell_own()
        self._modes, self._number = modes, self._reads.number
        self.looks_again, self._version = False, self._reads.version
        self.guards += 1
        return self._taker

    def know(self, values):
        """Lets the taker know the objects among the arguments of a call."""
        for value in values:
            if not is_plain(value) and not isinstance(value, self._torch.Tensor):
                known = self._reads.short(value)
                if known is not None:
                    self._taker.know(*known)

    def hold(self, held):
        """Keeps something until a call is taken, or until nothing is held."""
        self._taker.hold(held)

    def clear(self):
        """Forgets all shapes."""
        self._taker.clear()
