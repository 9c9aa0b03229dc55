# SPDX-License-Identifier: MIT
"""The values that one walk found, kept up to date: where nothing changed they are not looked for again."""

from .. import _C
from .walk import CALL, CELL, ITEMS, LIST, NAMES, Walk, is_plain, plain_token

_SIMPLE_KINDS = (NAMES, ITEMS, LIST, CELL, CALL)


class Unreadable(Exception):
    """Something that is read cannot be compared; the text is a sentence's end."""


class Values:
    """What one walk found, kept up to date."""

    def __init__(self, torch, roots, names=None, known=(), executed=None, is_compiled=False, takes=None):
        self.torch = torch
        self.takes = takes  # as for Walk
        self.unowned = None  # an object that this does not keep, though values lie in it
        self.is_compiled = is_compiled
        self.runs_unseen = is_compiled  # compilers take functions in, which are never seen to run
        self.executed = executed
        self.roots = roots
        self.names = names
        self.known = known  # called for the ids of tensors that somebody else looks at
        self.handle = _C.Reads(torch.Tensor)
        self.left = {}  # places that are not looked at: owners by (id of the owner, key or None)
        self.walk = None
        self.walks = 0

    def tokens(self):
        """The tokens of what is there now, and whether they are other ones than the last time."""
        if self.walk is not None:
            if self.handle.holds():
                return self.walk.tokens, False
            changes = self.handle.changed()
            if not changes:
                return self.walk.tokens, False
            if self._take(changes):
                return self.walk.tokens, True
        self.look_again()
        return self.walk.tokens, True

    def look_again(self):
        try:
            walk = self._walk()
            self.handle.set(walk.owners, self.unowned)
        except Exception as error:  # objects may do anything when they are asked
            raise Unreadable("what it reads beside its arguments could not be looked through: "
                             f"{type(error).__name__}: {error}") from error
        self.walk = walk
        self.walks += 1

    def _walk(self):
        known = self.known() if callable(self.known) else self.known
        if self.runs_unseen:
            walk = Walk(self.torch, known, self.names, None, self.left, self.takes).run(*self.roots)
            if not walk.obstacles:
                return walk
            self.runs_unseen = False
        walk = Walk(self.torch, known, self.names, self.executed, self.left, self.takes).run(*self.roots)
        if self.is_compiled:
            walk.cautions.append("what compiled code reads is too much to follow; of functions that the "
                                 "compiler took in, changes of Python values may go unseen")
        return walk

    def _take(self, changes):
        """Where only numbers, strings and the like changed: no more than their tokens did."""
        walk, taken = self.walk, []
        for which, entry, value in changes:
            if entry < 0 or walk.owners[which][0] not in _SIMPLE_KINDS:
                return False
            before = walk.owners[which][4][entry]
            if not (is_plain(value) and is_plain(before)):
                return False
            taken.append((which, entry, value))
        for which, entry, value in taken:
            kind, way, owner, keys, values = walk.owners[which]
            values = (*values[:entry], value, *values[entry + 1:])
            walk.owners[which] = (kind, way, owner, keys, values)
            walk.tokens[walk.first[which] + entry] = plain_token(value)
            self.handle.accept(which, entry, value)
        return True
