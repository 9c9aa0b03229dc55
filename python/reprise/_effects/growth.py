# SPDX-License-Identifier: MIT
"""Lists that calls append to, and counters that they raise.

What such a place holds is new at each call, so no replay may hang on it. The first run of an attempt finds
what is added. The runs behind it find a stand-in in its place, which takes what is added and tells nothing: a run
that asks for a length, an element or the number itself cannot go by a graph. What a run does otherwise for the
stand-in shows too: all runs of a capture have to launch the same.

Another thread that comes upon a stand-in gets what the program has there. Then the capture is refused.
"""

import collections
import copy
import threading

TAIL = "what is added"  # the key of a list's slot
_LISTS = (list, collections.deque)


class Step:
    """The slot of a counter: a replay adds to what is there by then."""

    __slots__ = ("slot", "by")

    def __init__(self, slot, by):
        self.slot = slot
        self.by = by

    owner = property(lambda self: self.slot.owner)
    key = property(lambda self: self.slot.key)
    path = property(lambda self: self.slot.path)

    def of(self, arguments):
        return self

    def fits(self, kind_of, kind):
        return type(self.slot.get()) is int

    def put(self, _):
        self.slot.put(self.slot.get() + self.by)

    def stand_in(self):
        return _Placed(Counter(self.slot.get()), [self.slot])

    def places(self):
        return []


class Tail:
    """The slot of a list: a replay appends to the one that is there by then. holders: the slots that hold it."""

    __slots__ = ("owner", "key", "path", "holders")

    def __init__(self, owner, path):
        self.owner = owner
        self.key = TAIL
        self.path = path
        self.holders = ()

    def find_holders(self, records):
        """Finds the slots that lead to the list; False where other ways may do so too."""
        self.holders = [slot for record in records for slot in record.holders_of(self.owner)]
        return bool(self.holders) and not any(record.has_inside(self.owner) for record in records)

    def of(self, arguments):
        return self

    def fits(self, kind_of, kind):
        """Do all that held it before the capture hold one list?"""
        there = self.holders[0].get()
        return type(there) is type(self.owner) and all(holder.get() is there for holder in self.holders)

    def put(self, values):
        self.holders[0].get().extend(values)

    def stand_in(self):
        return _Placed(Added(self.owner), self.holders)

    def places(self):
        """Where another list may come to be, which calls then append to."""
        return [(holder.owner, holder.key) for holder in self.holders]


def step_of(change):
    """By how much a change raises a whole number; None: it does something else."""
    if change.slot is None or type(change.before) is not int or type(change.after) is not int:
        return None
    return change.after - change.before


def tail_of(owner, held):
    """What was appended to a list or deque that held this; None: it changed otherwise."""
    if type(owner) not in _LISTS:
        return None
    now, most = list(owner), getattr(owner, "maxlen", None)
    for added in range(1, len(now) + 1):
        kept = len(now) - added
        if kept > len(held) or (kept < len(held) and len(now) != most):
            continue
        if all(a is b for a, b in zip(now[:kept], held[len(held) - kept:])):
            return now[kept:]
    return None


class _Placed:
    """A stand-in, and the slots that it is in during a run."""

    def __init__(self, stand_in, slots):
        self.stand_in = stand_in
        self.slots = slots

    def put(self):
        for slot in self.slots:
            slot.put(self.stand_in)

    def take_away(self):
        """Puts the program's own back, with what was added. False: the run asked for more, or put something else
        there."""
        stand_in, is_right = self.stand_in, True
        for slot in self.slots:
            there = slot.get()
            is_right = is_right and is_stand_in(there) and there.reads is stand_in.reads
            if is_stand_in(there):
                slot.put(there.whole())
        if type(stand_in) is Added:
            stand_in.own.extend(stand_in.added)
        return is_right and not stand_in.reads


class _StandIn:
    """What both kinds have: they belong to a thread. reads: not empty once anybody asked for more."""

    __slots__ = ("own", "reads", "_thread")

    def __init__(self, own, reads=None):
        self.own = own
        self.reads = [] if reads is None else reads
        self._thread = threading.get_ident()

    def _read(self):
        """What other threads get instead."""
        self.reads.append(None)
        if self._is_here():
            raise TypeError("no replay can read what each call adds to")
        return self.own

    def _is_here(self):
        return threading.get_ident() == self._thread

    @property  # type: ignore[misc]
    def __class__(self):
        return type(self.own)

    def __getattr__(self, name):
        return getattr(self._read(), name)


# Where a type has no such method, Python does this.
_OTHERWISE = {"__bool__": bool, "__complex__": complex, "__copy__": copy.copy, "__deepcopy__": copy.deepcopy}


def _reader(name):
    def method(self, *args, **kwargs):
        own = self._read()
        if hasattr(own, name):
            return getattr(own, name)(*args, **kwargs)
        return _OTHERWISE[name](own, *args, **kwargs)
    method.__name__ = name
    return method


def _reading(*names):
    """Gives a class methods that read."""
    def give(kind):
        for name in names:
            if name not in vars(kind):
                setattr(kind, name, _reader(name))
        return kind
    return give


_COMMON = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__repr__", "__str__", "__format__", "__mul__",
           "__rmul__", "__reduce_ex__", "__dir__", "__sizeof__", "__copy__", "__deepcopy__")


@_reading(*_COMMON, "__len__", "__iter__", "__reversed__", "__contains__", "__add__", "__imul__", "__setitem__",
          "__delitem__", "__bool__")
class Added(_StandIn):
    """In the place of a list or a deque."""

    __slots__ = ("added",)

    def __init__(self, own):
        super().__init__(own)
        self.added = []

    def whole(self):
        return self.own

    def append(self, value):
        (self.added if self._is_here() else self.own).append(value)

    def extend(self, values):
        (self.added if self._is_here() else self.own).extend(values)

    def __iadd__(self, values):
        self.extend(values)
        return self

    def __getitem__(self, at):
        """The run may have what it added itself."""
        if type(at) is int and -len(self.added) <= at < 0:
            return self.added[at]
        return self._read()[at]


@_reading(*_COMMON, "__bool__", "__int__", "__float__", "__complex__", "__index__", "__neg__", "__pos__", "__abs__",
          "__invert__", "__round__", "__trunc__", "__floor__", "__ceil__", "__rsub__", "__truediv__", "__rtruediv__",
          "__floordiv__", "__rfloordiv__", "__mod__", "__rmod__", "__divmod__", "__rdivmod__", "__pow__", "__rpow__",
          "__lshift__", "__rlshift__", "__rshift__", "__rrshift__", "__and__", "__rand__", "__or__", "__ror__", "__xor__",
          "__rxor__", "__hash__")
class Counter(_StandIn):
    """In the place of a whole number. What is added to it makes another one."""

    __slots__ = ("by",)

    def __init__(self, own, by=0, reads=None):
        super().__init__(own, reads)
        self.by = by

    def whole(self):
        return self.own + self.by

    def __add__(self, value):
        if type(value) is not int or not self._is_here():
            return self._read() + value
        return Counter(self.own, self.by + value, self.reads)

    __radd__ = __add__

    def __sub__(self, value):
        return self + -value if type(value) is int else self._read() - value


def during(slots, run):
    """(what a run returns or raises, those of the slots whose place it read). The places hold their stand-ins
    meanwhile."""
    placed = [slot.stand_in() for slot in slots]
    for one in placed:
        one.put()
    result = error = None
    try:
        result = run()
    except BaseException as raised:
        error = raised
    return result, error, [slot for slot, one in zip(slots, placed) if not one.take_away()]


def is_stand_in(value):
    return type(value) in (Added, Counter)
