# SPDX-License-Identifier: MIT
"""Values that are new at every call. A graph for each would cost more than it brings, for ever: after some
in a row the value is named, and calls that differ by nothing else are eager."""

import collections
import inspect

from .._base.tree import flatten
from .reads import differences, told

MOST_NEW = 8      # keys in a row that were never met before
_REMEMBERED = 16  # of the latest keys


class _Family:
    """Calls that differ by values only."""

    __slots__ = ("recent", "count", "why", "values", "reads", "before")

    def __init__(self):
        self.recent = collections.OrderedDict()
        self.count = 0      # new ones in a row
        self.why = None     # a sentence's end, once they are eager
        self.values = None  # of the arguments, at the last new call
        self.reads = None
        self.before = (None, None)  # values and reads of the new call ahead of that


class News:
    """The families of a callable's calls, by what of their keys is no value."""

    def __init__(self):
        self._families = {}

    def why(self, family):
        """Why such calls are eager by now; None: they are not."""
        known = self._families.get(family)
        return known.why if known is not None else None

    def count(self, family):
        """How many calls in a row brought values that were never met."""
        known = self._families.get(family)
        return known.count if known is not None else 0

    def latest(self, family):
        """Of the last two such calls: the values of the first, of the second, and what either read."""
        known = self._families[family]
        return known.before[0], known.values, known.before[1], known.reads

    def begin_again(self, family):
        """Values count as new no more."""
        self._families[family].count = 0

    def notice(self, family, key, is_known, values, reads, describe):
        """A call. is_known: there is a graph for its key, or it is known that there can be none; values:
        of arguments that are no tensors; reads: a Reads; describe: called for the names of arguments."""
        known = self._families.get(family)
        if known is None:
            known = self._families[family] = _Family()
        if is_known or key in known.recent:
            known.count = 0
            return
        known.recent[key] = None
        if len(known.recent) > _REMEMBERED:
            known.recent.popitem(last=False)
        known.count += 1
        known.before = before, read = known.values, known.reads
        known.values, known.reads = values, reads.snapshot()
        if known.count > MOST_NEW and before is not None:
            known.why = _sentence(before, values, read, known.reads, describe)


def _sentence(before, values, read, reads, describe):
    """What was new, and what to do."""
    named = [(f"the argument `{name}`", _told(now)) for name, old, now in
             zip(describe(), before, values) if old != now]
    for path, token in differences(read[:2], reads[:2]):
        named.append((f"`{path}`, which it reads,", told(token)))
    for line, now in (reads[2].items() if len(reads) > 2 else ()):
        if line in read[2] and read[2][line] != now:
            named.append((f"the value of the GPU that is read on the host at {line}", now))
    if not named:
        named = [("something that it reads", "other objects")]
    what = " and ".join(f"{name} (now {value})" for name, value in named[:3])
    return (f"{what} was new at each of {MOST_NEW} calls in a row, and a graph holds one value. Pass it as a "
            "tensor on the GPU, or change it less often")


def _told(value):
    text = repr(value[1]) if isinstance(value, tuple) and len(value) == 2 else repr(value)
    return text if len(text) < 60 else text[:57] + "..."


def names_of_leaves(fn, args, kwargs):
    """How a program would write each leaf of a call."""
    try:
        names = list(inspect.signature(getattr(fn, "forward", fn)).parameters)
    except (TypeError, ValueError):
        names = []
    found = []
    for i, value in enumerate(args):
        found += _of_tree(names[i] if i < len(names) else f"argument {i}", value)
    for name, value in kwargs.items():
        found += _of_tree(name, value)
    return found


def _of_tree(name, value):
    count = len(flatten(value)[0])
    if type(value) in (tuple, list):
        return [leaf for i, one in enumerate(value) for leaf in _of_tree(f"{name}[{i}]", one)]
    if type(value) is dict:
        return [leaf for key, one in value.items() for leaf in _of_tree(f"{name}[{key!r}]", one)]
    return [name] * count
