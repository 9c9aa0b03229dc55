# SPDX-License-Identifier: MIT
"""Schedules of the learning rate, of which a call makes the last thing it does a step.

A replay runs no Python, and a schedule is Python. But what follows its step in the call often can't tell whether the
step was made: `schedule.step(); optimizer.zero_grad(); return loss`. So the runs of a capture leave such a step out,
and each call makes it itself, behind its launch: in the order of eager calls. The rate that it sets is what the next
call launches with (_reads/hyperparameters.py).

What follows a step is read from the bytecode of the functions that are under way, up to the callable's own: they may
take values from variables and attributes, call `step()` of a schedule, `zero_grad()` of an optimizer and `detach()`
of a tensor, and return. A step in any other place is refused.
"""

import bisect
import contextlib
import dis
import sys
import threading

from .._base.lines import Frame, is_ours
from .._base.objects import dict_of
from .._reads.code import once_for_code
from .python_state import Path

# Instructions that move values only, or jump where no value decides.
_MOVES = frozenset(("NOP", "RESUME", "POP_TOP", "PUSH_NULL", "COPY", "SWAP", "DUP_TOP", "ROT_TWO", "PRECALL",
                    "BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP", "NOT_TAKEN", "EXTENDED_ARG"))
_CONSTANTS = frozenset(("LOAD_CONST", "LOAD_SMALL_INT", "KW_NAMES"))
_LOCALS = frozenset(("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF"))
_PAIRS = frozenset(("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"))
_ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_METHOD"))
_CALLS = frozenset(("CALL", "CALL_METHOD", "CALL_FUNCTION", "CALL_KW", "CALL_FUNCTION_KW"))
_JUMPS = frozenset(("JUMP_FORWARD", "JUMP_ABSOLUTE"))
_RETURNS = frozenset(("RETURN_VALUE", "RETURN_CONST"))
_UNKNOWN = object()


def kind(torch):
    """The class of schedules, or None where the program has none."""
    module = sys.modules.get("torch.optim.lr_scheduler")
    return None if torch is None or module is None else module.LRScheduler


class Stepped:
    """The slot of a schedule, as effects have it: a replay steps it."""

    __slots__ = ("owner", "path")
    key = "step()"

    def __init__(self, schedule, path):
        self.owner, self.path = schedule, Path(path, ".", self.key)

    def of(self, arguments):
        return self

    def fits(self, kind_of, kind):
        return True

    def put(self, _):
        self.owner.step()

    def places(self):
        """What calls change of it, which the runs do not see."""
        return [(self.owner, None), (vars(self.owner), None)]


class Schedules:
    """Those that a callable may step. found: (schedule, path) of each; refuse(path, line): raises what a run is
    refused with that steps one earlier."""

    def __init__(self, torch, found, refuse):
        self.torch = torch
        self._refuse = refuse
        self._found = [(one, path) for one, path in found if "step" not in vars(one)]
        self.stepped = []  # slots of the run that is under way, in the order of their steps

    @contextlib.contextmanager
    def left_out(self):
        """During a run, in whose last instructions their steps are left out and noted."""
        self.stepped = []
        thread = threading.get_ident()
        for schedule, path in self._found:
            vars(schedule)["step"] = self._step_of(schedule, path, thread)
        try:
            yield
        finally:
            for schedule, _ in self._found:
                del vars(schedule)["step"]

    def _step_of(self, schedule, path, thread):
        def step(*args, **kwargs):
            if threading.get_ident() != thread:
                return type(schedule).step(schedule, *args, **kwargs)
            caller = sys._getframe(1)
            if args or kwargs or not self._is_last(caller):
                self._refuse(path, Frame(caller.f_code.co_filename, caller.f_lineno, caller.f_code.co_name))
            return self.stepped.append(Stepped(schedule, path))
        return step

    def _is_last(self, frame):
        """Can nothing tell that runs behind the call which a frame is about to return from?"""
        while frame is not None:
            if is_ours(frame.f_code.co_filename):
                return True
            if not _Rest(self.torch, frame).is_harmless():
                return False
            frame = frame.f_back
        return False


@once_for_code
def _instructions(code):
    """Those of a code object in order, and their offsets."""
    found = list(dis.get_instructions(code))
    return found, [one.offset for one in found]


class _Rest:
    """What a frame runs yet, behind the call that is under way."""

    def __init__(self, torch, frame):
        self.torch, self.frame = torch, frame
        self.value = _UNKNOWN   # what the latest instructions took from a variable or an attribute
        self.method = None      # (object, name) of what they take to call it

    def is_harmless(self):
        instructions, offsets = _instructions(self.frame.f_code)
        at = bisect.bisect_right(offsets, self.frame.f_lasti)  # which may lie in the cache of the call
        left = len(instructions)  # jumps lead ahead only, or this would not end
        while left:
            left -= 1
            one = instructions[at]
            if one.opname in _RETURNS:
                return True
            if one.opname in _JUMPS:
                at = offsets.index(one.argval)
                continue
            if not self._passes(one):
                return False
            at += 1
        return False

    def _passes(self, one):
        name = one.opname
        if name in _MOVES or name in _CONSTANTS:
            return True
        if name in _CALLS:
            return self._calls()
        self.method, before = None, self.value
        self.value = _UNKNOWN
        if name in _LOCALS:
            self.value = self.frame.f_locals.get(one.argval, _UNKNOWN)
        elif name in _PAIRS:
            self.value = self.frame.f_locals.get(one.argval[-1], _UNKNOWN)
        elif name == "LOAD_GLOBAL":
            self.value = self.frame.f_globals.get(one.argval, _UNKNOWN)
        elif name in _ATTRIBUTES:
            return self._takes(before, one.argval)
        else:
            return False
        return True

    def _takes(self, owner, name):
        """An attribute of what was taken before: one that it holds, or a method."""
        if owner is _UNKNOWN or "__getattribute__" in {n for one in type(owner).__mro__[:-1] for n in vars(one)}:
            return False
        held = dict_of(owner) or {}
        if name in held and name != "step" and not hasattr(getattr(type(owner), name, None), "__set__"):
            self.value = held[name]
        else:
            self.method = (owner, name)
        return True

    def _calls(self):
        """Is what is called known to tell of no schedule?"""
        if self.method is None:
            return False
        (owner, name), self.method, self.value = self.method, None, _UNKNOWN
        torch = self.torch
        if name == "step":
            return isinstance(owner, kind(torch))
        if name == "zero_grad":
            return isinstance(owner, torch.optim.Optimizer) and name not in vars(owner) and (
                type(owner).zero_grad is torch.optim.Optimizer.zero_grad)
        return name == "detach" and type(owner) is torch.Tensor
