# SPDX-License-Identifier: MIT
"""Floats that are new at every call, as numbers that replays follow.

A float that is another one at each call would be a capture each time: an argument `0.1 * step`, an attribute,
a variable. Where nothing else was new in some calls in a row, it is captured as the hyperparameters of
optimizers are (hyperparameters.py): the runs of a capture get Scalars, two captures prove which kernels'
parameters hold what was computed from them, and replays write there what holds at their call.

    argument   a leaf of the calls of one family. Its place is in a dict of the graph's own, its seat, which
               each call fills
    read       a place of a dict or a cell that the callable reads, and that is a part of no key from then on

The key has the sign of each, and the whole of one that work may be chosen by. Where a capture shows a use
that replays would not repeat, values are a part of the key again, and stay so.
"""

import types

from .. import _C
from .draws import Draws
from .hyperparameters import CONVERTERS, Place, Unfollowed, is_diverged, keeps_scalars
from .runs import Effect
from .scalars import FIXED, Escaped
from .walk import CELL

MOST_KNOWN = 4   # calls in a row that bring another float, before it is followed
_MOST_TIMES = 4  # that places come to be followed; of more the callable seems to make them anew
_CONTENTS = "cell_contents"


class _Cell:
    """A cell as a dict of one item."""

    __slots__ = ("cell",)

    def __init__(self, cell):
        self.cell = cell

    def get(self, name):
        try:
            return getattr(self.cell, name)
        except ValueError:  # it is empty
            return None

    def __getitem__(self, name):
        return getattr(self.cell, name)

    def __setitem__(self, name, value):
        setattr(self.cell, name, value)


class _CellPlace(Place):
    """A float in a cell."""

    __slots__ = ()

    def __init__(self, cell, path):
        super().__init__(_Cell(cell), _CONTENTS, -1, path)

    def where(self):
        return self.group.cell, self.key


class Numbers:
    """The floats that a callable's replays follow. reads: its Reads; can_follow: False where its graphs are
    not such that their scalars can be changed."""

    def __init__(self, reads, can_follow=True):
        self.reads = reads
        self.places = []       # of what is read
        self._can_follow = can_follow
        self._arguments = {}   # by family: names of arguments that are followed, by their number among values
        self._refused = set()  # families of which no argument is followed
        self._times = 0
        self._draws = False    # do replays draw numbers of Python's?
        self._may_draw = can_follow

    # ---- Keys ----

    def key(self):
        """What calls depend on of the floats that are read; None: none is followed."""
        return tuple(map(_token, self.places)) or None

    def values(self, family, values):
        """The tokens of a call's values, of which those that are followed tell no more than replays ask."""
        names = self._arguments.get(family)
        if not names:
            return values
        return tuple(_argument_token(token) if i in names else token for i, token in enumerate(values))

    # ---- What is followed ----

    def follow(self, family, latest, describe):
        """Follows what two calls of a family differ by, as News.latest has them, where that is floats alone.
        describe: called for the names of values. True: keys are other ones now."""
        before, values, read, reads = latest
        if not self._can_follow or before is None or len(before) != len(values):
            return False
        changed = [i for i, (old, now) in enumerate(zip(before, values)) if old != now]
        entries = [i for i, (old, now) in enumerate(zip(read[0], reads[0])) if old != now]
        walk = self.reads.values.walk
        if not (changed or entries) or read[1] is not reads[1] or reads[1] is not walk.paths or (
                family in self._refused) or self.reads.is_compiled or converts(walk):
            return False
        places = [self._place(walk, i) for i in entries]
        if None in places or not all(_is_float(values[i]) for i in changed) or not all(
                _is_float(reads[0][i]) for i in entries) or (places and self._times == _MOST_TIMES):
            return False
        if changed:
            names = describe()
            self._arguments[family] = {**self._arguments.get(family, {}), **{i: names[i] for i in changed}}
        if places:
            self._times += 1
            self.places += places
            self.reads.leave_out([place.where() for place in places])
        return True

    @staticmethod
    def _place(walk, entry):
        """Where a value lies that a walk found; None: replays cannot look there."""
        found = walk.place_of(entry)
        if found is None:
            return None
        kind, owner, key = found
        path = walk.paths[entry]
        return _CellPlace(owner, path) if kind == CELL else Place(owner, key, -1, path)

    def _stop(self, family):
        """Its values are part of the key from now on."""
        self._arguments.pop(family, None)
        self._refused.add(family)
        self._may_draw = self._may_draw and not self._draws
        self._draws = False
        if self.places:
            self.reads.look_at([place.where() for place in self.places])
            self.places, self._times = [], _MOST_TIMES

    def refuse(self, family, why):
        """Raises Unfollowed where a call of a family has anything that could not be followed then."""
        if self.follows(family):
            self._stop(family)
            raise Unfollowed(why)

    def judge(self, family, error):
        """An error of a capture: raises Unfollowed where it may be for what was followed, or would not be if
        replays drew numbers."""
        if isinstance(error, Effect) and error.is_draw and self._may_draw and not self._draws and not (
                self.reads.is_compiled or converts(self.reads.values.walk)):
            self._draws = True
            raise Unfollowed(str(error))
        if not self.follows(family) or isinstance(error, Unfollowed):
            return
        if keeps_scalars(error) or is_diverged(error) or isinstance(error, Escaped) or (
                not isinstance(error, _C.Error)):  # of a function that wants a float and nothing else
            self.refuse(family, str(error))

    def follows(self, family):
        return self.places or self._draws or self._arguments.get(family)

    # ---- Captures ----

    def seat(self, family, others):
        """For one graph: the floats among a call's values that it follows, by number. None: it follows none.
        others: of the call's leaves those that are no tensors."""
        names = self._arguments.get(family)
        return {i: others[i] for i in names or ()} if names or self._draws else None

    def bind(self, family, seat):
        """The places of one capture, whose seat() that is."""
        names = self._arguments.get(family)
        return [*self.places, *(Place(seat, i, -1, names[i]) for i in seat or ())]

    def draws(self, seat):
        """What the runs of one capture draw, whose seat() that is; None: nothing that replays could."""
        return Draws(seat) if self._draws else None


def converts(walk):
    """Does code name a library whose functions take numbers without asking them? What those make of a Scalar
    is not known."""
    return not CONVERTERS.isdisjoint(walk.globals) or any(
        _home_of(value) in CONVERTERS for _, _, _, _, values in walk.owners for value in values)


def _home_of(value):
    """The module that a value is, or that a function of C's is of."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    return value.__module__ if isinstance(value, types.BuiltinFunctionType) else None


def _is_float(token):
    return isinstance(token, tuple) and len(token) == 2 and token[0] is float


def _argument_token(token):
    if not _is_float(token):
        return token
    kind = _C.scalar_kind(float(token[1]))
    return token if kind == FIXED else ("followed", kind)


def _token(place):
    value = place.get()
    return place.kind() or (type(value), repr(value))
