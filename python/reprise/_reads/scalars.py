# SPDX-License-Identifier: MIT
"""Numbers that are followed through the Python code of one run of a capture.

A Scalar is a float that remembers how it was computed. PyTorch takes it for the float that it is; Python's
arithmetic on it gives another one. So behind a run a Trace has the few steps that lead from the numbers it
was given to those that kernels may have got, and a replay repeats them (csrc/scalars.c): in double
precision and in the same order, as Python did, so with the same results to the bit.

What a program does with a number beside arithmetic would be frozen: a comparison, a conversion, a place in
a text. Such a use is noted (`escapes`), and nothing is followed then. One comparison is allowed: of a
number that was given with 0. Its sign is part of what the graph is for.

Where a kernel holds an inverse, as a float, two ways to round it are to be told apart: the numbers of a run
are chosen so that for each scalar they differ in it, or did in the run before.

The two runs that are compared get other numbers, of plain size, of no special value and far apart: nothing
that is computed from them is rounded away or by chance the same. Runs of later attempts get the same two
sets: what differs then was not computed from them. The order of the sets repeats no period, as what malloc
gives may have one. A capture runs nothing on the device, so the numbers matter to nobody else.

PyTorch may make an integer of a number, unseen (torch.full, torch.arange). So numbers of the program's own
are of a kind by whether they are larger than 1, and the two sets lie so that what is computed from them
differs as an integer too, where it would for any two numbers of the kind: small ones near both ends, large
ones as far apart as it takes.
"""

import random
import struct

from .. import _C

CONSTANT, INPUT, COUNTER, ADD, SUBTRACT, MULTIPLY, DIVIDE, POWER, NEGATE = range(9)  # as csrc/scalars.c
FIXED, POSITIVE, NEGATIVE, LARGE_POSITIVE, LARGE_NEGATIVE = range(5)
_TURNS = (0, 1, 1, 0, 1, 0, 0, 1)     # which set of numbers runs are given: two of each attempt
_GIVEN = ((0.3, 0.4), (0.5, 0.65))    # least and most of the numbers of a set
_SMALL = ((0.11, 0.19), (0.9925, 0.9995))  # of those of the program's own, of the kinds up to 1
_LARGE = ((1.2, 1.4), (1.0, 1.2))     # and above it; those of the second set times one of these:
_SCALES = tuple(2.0 ** n for n in range(4, 27, 2))
_APART = 2.0                          # by which what is computed from large ones has to differ
_STARTS = ((1.0, 2.0), (0.25, 0.75))  # and of what counters begin at
_NUMBERS = (float, int, bool)


class Escaped(_C.Error):
    """A number was used in a way that replays could not follow; the text is a sentence's end."""


_TRIES = 2000          # draws of numbers for a run, fewer where there are many steps
_MOST_TRIED = 100_000  # steps that are computed for that


def _round(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def _tells(x):
    """Do the two ways to round an inverse differ for it?"""
    return x != 0 and _round(1.0 / x) != _round(1.0 / _round(x))


def turn_of(run):
    """Which set of numbers a run of a capture is given, by its number from 0."""
    return _TURNS[run % len(_TURNS)]


class Trace:
    """The steps of one run. earlier: the traces of the runs before; those of other numbers had inverses that
    this one tells apart where they did not. own: the number of the first input that is the program's own,
    and no optimizer's."""

    def __init__(self, earlier=(), own=None):
        self._turn = turn_of(len(earlier))
        self._random = random.Random(0x5eed + self._turn)
        self._own = own
        self._scale = _SCALES[0]
        self._kinds = {}  # of inputs
        self._drawn = {}  # by (INPUT or COUNTER, index)
        self.steps = []    # (op, left, right, number)
        self.values = []   # of each step, in this run
        self.escapes = []  # sentences' ends
        self._known = {}
        same = next((run for run in earlier if run._turn == self._turn), None)
        if same is not None:
            self._drawn = dict(same._drawn)
        elif earlier:
            self._choose(earlier)

    def given(self, index, kind):
        """A number in place of input `index`, of its sign."""
        self._kinds[index] = kind
        return self.add((INPUT, index, 0, 0.0), self._number(INPUT, index))

    def start(self, index):
        """What counter `index` begins at in this run, exact in a float."""
        return self._number(COUNTER, index)

    def _number(self, op, index):
        if (op, index) not in self._drawn:
            self._drawn[op, index] = self._draw(op, index)
        return self._drawn[op, index]

    def _draw(self, op, index):
        if op == COUNTER:
            return round(self._random.uniform(*_STARTS[self._turn]) * 4096) / 4096
        kind = self._kinds[index]
        least, most = self._range(index, kind)
        number = self._random.uniform(least, most)
        while not _tells(number):
            number = self._random.uniform(least, most)
        return -number if kind in (NEGATIVE, LARGE_NEGATIVE) else number

    def _is_own(self, index):
        return self._own is not None and index >= self._own

    def _range(self, index, kind):
        if not self._is_own(index):
            return _GIVEN[self._turn]
        if kind in (POSITIVE, NEGATIVE):
            return _SMALL[self._turn]
        least, most = _LARGE[self._turn]
        return (least * self._scale, most * self._scale) if self._turn else (least, most)

    def _choose(self, earlier):
        """Draws numbers that tell most inverses apart, by the steps of the run before: one is drawn anew at
        a time, and kept where that makes it no worse."""
        before = earlier[-1]
        self._kinds = dict(before._kinds)
        large = [index for index, kind in self._kinds.items()
                 if self._is_own(index) and kind in (LARGE_POSITIVE, LARGE_NEGATIVE)]
        for self._scale in _SCALES if large else _SCALES[:1]:
            self._choose_told(earlier, before)
            if not large or self._are_apart(before, large):
                return
        self.escape("what is computed from it may be an integer unseen")

    def _are_apart(self, before, large):
        """Do all steps that hang on these inputs differ by more than integers may be alike in?"""
        values = _computed(before.steps, self._drawn)
        return values is not None and all(
            abs(values[at] - before.values[at]) >= _APART for at in before._hanging_on(large))

    def _choose_told(self, earlier, before):
        open_steps = [i for i in before.named()  # a count is exact as a float, whichever way it is rounded
                      if before.steps[i][0] != COUNTER and not all(_tells(run.values[i]) for run in earlier)]
        self._drawn = {at: self._draw(*at) for at in before._drawn}
        best = self._count_told(before, open_steps, self._drawn)
        for _ in range(min(_TRIES, _MOST_TRIED // (len(before.steps) + 1))):
            if best == len(open_steps) or not self._drawn:
                break
            at = self._random.choice(list(self._drawn))
            drawn = {**self._drawn, at: self._draw(*at)}
            count = self._count_told(before, open_steps, drawn)
            if count >= best:
                best, self._drawn = count, drawn

    @staticmethod
    def _count_told(before, open_steps, drawn):
        values = _computed(before.steps, drawn)
        return -1 if values is None else sum(_tells(values[i]) for i in open_steps)

    def counted(self, index, by, value):
        """Counter `index`, moved on by a number."""
        return self.add((COUNTER, index, 0, float(by)), value)

    def add(self, step, value):
        at = self._known.get(step)
        if at is None:
            at = self._known[step] = len(self.steps)
            self.steps.append(step)
            self.values.append(value)
        return Scalar(value, self, at)

    def operate(self, op, left, right, value):
        if type(value) is not float:
            self.escape("a power of it is a complex number")
            return value
        return self.add((op, self._step_of(left), self._step_of(right), 0.0), value)

    def _step_of(self, number):
        if type(number) is Scalar:
            return number.at
        return self.add((CONSTANT, 0, 0, float(number)), float(number)).at

    def escape(self, how):
        self.escapes.append(how)

    def inputs_of(self, steps):
        """The numbers of the inputs that some steps hang on."""
        ahead, found, seen = list(steps), set(), set()
        while ahead:
            at = ahead.pop()
            if at in seen:
                continue
            seen.add(at)
            op, left, right, _ = self.steps[at]
            if op == INPUT:
                found.add(left)
            elif op not in (CONSTANT, COUNTER):
                ahead += (left, right)
        return found

    def steps_from(self, first):
        """The steps that hang on an input of this number or a higher one."""
        return self._hanging_on({left for op, left, _, _ in self.steps if op == INPUT and left >= first})

    def _hanging_on(self, inputs):
        found = set()
        for at, (op, left, right, _) in enumerate(self.steps):
            if left in inputs if op == INPUT else op not in (CONSTANT, COUNTER) and not found.isdisjoint(
                    (left, right)):
                found.add(at)
        return tuple(sorted(found))

    def named(self):
        """The steps that kernels may have got: all but constants."""
        return tuple(i for i, step in enumerate(self.steps) if step[0] != CONSTANT)


def _computed(steps, drawn):
    """The values of steps for these numbers; None where Python would not compute them."""
    values = []
    try:
        for op, left, right, number in steps:
            values.append(number if op == CONSTANT else drawn[op, left] if op == INPUT else
                          drawn[op, left] + number if op == COUNTER else
                          _OPERATIONS[op](values[left], values[right]))
    except (ArithmeticError, KeyError):
        return None
    return values if all(type(value) is float for value in values) else None


_OPERATIONS = {ADD: lambda a, b: a + b, SUBTRACT: lambda a, b: a - b, MULTIPLY: lambda a, b: a * b,
               DIVIDE: lambda a, b: a / b, POWER: lambda a, b: a ** b, NEGATE: lambda a, _: -a}


def plain(number):
    """The float that a number is, without its past."""
    return float.__pos__(number) if type(number) is Scalar else number


def _binary(op):
    compute = _OPERATIONS[op]

    def forward(self, other):
        if type(other) is not Scalar and type(other) not in _NUMBERS:
            return NotImplemented
        return self.trace.operate(op, self, other, compute(plain(self), plain(other)))

    def backward(self, other):
        if type(other) not in _NUMBERS:
            return NotImplemented
        return self.trace.operate(op, other, self, compute(plain(other), plain(self)))

    return forward, backward


def _escaping(name, how):
    method = getattr(float, name)

    def escaping(self, *others):
        self.trace.escape(how)
        return method(plain(self), *map(plain, others))

    return escaping


def _comparing(name):
    method = getattr(float, name)

    def comparing(self, other):
        if type(other) is not Scalar and type(other) not in _NUMBERS:
            return method(plain(self), other)
        if other != 0 or type(other) is Scalar or self.trace.steps[self.at][0] != INPUT:
            self.trace.escape("it is compared")
        return method(plain(self), plain(other))

    return comparing


class Scalar(float):
    """A number of a trace: step `at`."""

    __slots__ = ("trace", "at")

    def __new__(cls, value, trace, at):
        made = super().__new__(cls, value)
        made.trace = trace
        made.at = at
        return made

    __add__, __radd__ = _binary(ADD)
    __sub__, __rsub__ = _binary(SUBTRACT)
    __mul__, __rmul__ = _binary(MULTIPLY)
    __truediv__, __rtruediv__ = _binary(DIVIDE)
    _pow, __rpow__ = _binary(POWER)

    def __pow__(self, other, modulus=None):
        return self._pow(other)

    def __neg__(self):
        return self.trace.operate(NEGATE, self, self, -plain(self))

    def __pos__(self):
        return self

    def __bool__(self):
        if self.trace.steps[self.at][0] != INPUT:
            self.trace.escape("it is compared")
        return bool(plain(self))

    def __reduce_ex__(self, protocol):
        self.trace.escape("it is copied")
        return float, (plain(self),)

    __hash__ = _escaping("__hash__", "it is hashed")


for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
    setattr(Scalar, _name, _comparing(_name))
for _name in ("__float__", "__int__", "__trunc__", "__round__", "__floor__", "__ceil__", "__abs__",
              "is_integer", "as_integer_ratio", "hex"):
    setattr(Scalar, _name, _escaping(_name, "it is converted"))
for _name in ("__floordiv__", "__rfloordiv__", "__mod__", "__rmod__", "__divmod__", "__rdivmod__"):
    setattr(Scalar, _name, _escaping(_name, "it is divided without a fraction"))
for _name in ("__repr__", "__format__"):
    setattr(Scalar, _name, _escaping(_name, "it is written into a text"))
