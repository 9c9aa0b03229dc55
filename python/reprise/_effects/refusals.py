# SPDX-License-Identifier: MIT
"""Calls that stay eager for the Python state that they change: which, and the line that does it.

An attempt that found changes is followed by another at the next call with that key, as what is made
lazily changes state only once. Changes of an object among the arguments (a cache that grows) are told by
its type, as each object is another key: after two attempts in a row calls with such objects are eager.
"""

import weakref

from .._base.lines import Frame
from .._base.trace import traced_lines
from .assignments import MOST_NAMED
from .python_state import is_plain

ATTEMPTS = 2      # that find changes before calls are eager
MOST_REFUSED = 4  # groups in a row whose calls are eager, before those of other ones are
MOST_FAILED = 8   # captures in a row, whatever the reason: where each call is of another shape
FIRST_REST = 256  # eager calls before the next attempt then; twice as many each time


class Refusals:
    def __init__(self):
        self.known = {}     # by group: the changes that the last attempt found
        self._final = set()  # groups whose calls are eager
        self._types = set()
        self._counts = {}   # by type of an argument: attempts since one with it worked
        self._refused = 0   # groups since one was captured
        self._tried = 0     # captures that failed since one worked
        self._asked = 0     # calls since all was forgotten
        self._vain = 0      # times that memory was others before a graph was called again
        self._moved = 0     # attempts in which parameters or buffers were others by the end
        self._rest = self._next_rest = FIRST_REST
        self._failed = {}   # by type of an argument: weak reference to the last with which a capture failed
        self.observed = set()  # groups of calls that were seen to leave iterators alone
        self._told = set()  # places that a warning has named

    def has_object_of(self, leaves):
        """Are calls eager for an object among these arguments?"""
        return bool(self._types) and any(type(leaf) in self._types for leaf in leaves)

    def covers(self, group, leaves):
        """Are calls of this group, or with these arguments, eager?"""
        self._asked += 1
        if group in self._final:
            return True
        if self.has_object_of(leaves):
            return True
        if self._refused < MOST_REFUSED and self._moved < ATTEMPTS and max(self._tried, self._vain) < MOST_FAILED:
            return False
        self._rest -= 1
        if self._rest == 0:
            self._next_rest *= 2
            self._rest = self._next_rest
            return False
        return True

    def is_final(self, group):
        """Are calls of this group eager, whatever becomes of others?"""
        return group in self._final

    def rest(self):
        """How many calls covers() would be asked for ahead of the next attempt."""
        return self._rest - 1

    def skip(self, calls):
        """So many are eager, and nobody asks for them."""
        self._rest -= calls

    def tried(self):
        """Notes a capture that failed; True: there were too many now, so that calls of others are eager."""
        self._tried += 1
        return self._tried == MOST_FAILED

    def forgotten(self, uses, shapes):
        """Notes that so many captured shapes, with so many calls by their graphs, are forgotten as memory is elsewhere;
        True: they were captured in vain too often now, so that calls are eager."""
        self._vain = 0 if uses > shapes else self._vain + 1  # each is called once as it is captured
        return self._vain == MOST_FAILED

    def note(self, group, error):
        """Notes an attempt that found changes; True if there will be no other one. group: what keys of
        calls have in common for which that holds."""
        if error.kinds:
            self.known[group] = error.found
            for kind in set(error.kinds):
                self._counts[kind] = self._counts.get(kind, 0) + 1
            full = {kind for kind in error.kinds if self._counts[kind] >= ATTEMPTS or error.is_hopeless}
            self._types |= full
            return bool(full)
        if error.is_registered:  # each call changes what all that was captured depends on
            self._moved += 1
            return self._moved >= ATTEMPTS
        if group not in self.known and not error.is_hopeless:
            self.known[group] = error.found
            return False
        self.known.pop(group, None)
        self._final.add(group)
        self._refused += 1
        return True

    def failed(self, leaves):
        """Notes a capture that failed otherwise; the types of arguments that are another object each time.
        A key would hold them, and never be met again."""
        kinds = []
        for leaf in leaves:
            kind = type(leaf)
            if is_plain(leaf) or kind.__weakrefoffset__ == 0:
                continue
            last = self._failed.get(kind)
            self._failed[kind] = weakref.ref(leaf)
            if last is not None and last() is not leaf:
                kinds.append(kind)
                self._counts[kind] = self._counts.get(kind, 0) + 1
                if self._counts[kind] >= ATTEMPTS:
                    self._types.add(kind)
        return tuple(kinds)

    def worked(self, group, leaves):
        """A capture of this group did."""
        self.known.pop(group, None)
        self._refused = self._moved = self._tried = 0
        for leaf in leaves:
            self._counts.pop(type(leaf), None)

    def is_new(self, error):
        """Has no warning named these places yet?"""
        paths = frozenset(str(change.path) for change in error.changes[:MOST_NAMED])
        new = paths not in self._told
        self._told.add(paths)
        return new

    def clear(self):
        """All that was captured is forgotten, as memory or modules are others. Where each call makes them
        others, captures that failed go on counting."""
        self.known.clear()
        self._final.clear()
        self.observed.clear()
        self._refused = 0
        if self._asked != 1:
            self._tried = 0
        self._asked = 0


def traced_call(fn, args, kwargs, records):
    """(what an eager call returns, the program's line that first changed what one of the records is of,
    or None)."""
    found = []

    def look(frame):
        if not found and any(record.is_touched() for record in records):
            found.append(frame)

    with traced_lines(look):
        result = fn(*args, **kwargs)
        if not found:
            look(None)
    return result, _first(found)


def _first(found):
    return found[0] if found and isinstance(found[0], Frame) else None
