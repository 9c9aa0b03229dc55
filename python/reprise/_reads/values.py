# SPDX-License-Identifier: MIT
"""The values that one walk found, kept up to date: where nothing changed they are not looked for again."""

import collections
import contextlib

from .. import _C
from .._base.collector import uncollected
from .._base.interrupts import let_through
from .walk import CALL, CELL, ITEMS, LIST, NAMES, VARIABLE, Walk, is_plain, plain_token

MOST_UNSEEN = 20_000  # values that are followed through all code, ran it or not
_SIMPLE_KINDS = (NAMES, ITEMS, LIST, CELL, CALL, VARIABLE)


class Unreadable(Exception):
    """Something that is read cannot be compared; the text is a sentence's end."""


class Values:
    """What one walk found, kept up to date."""

    def __init__(self, torch, roots, names=None, known=(), executed=None, is_compiled=False, takes=None,
                 foresees=False):
        self.torch = torch
        self.foresees = foresees  # are tensors of modules that are met left to others? Then leaves_all() is asked
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
        self.replaced = 0  # times that empty containers took the places of others
        self._found_containers = (None, None)  # a walk, and what it found
        self._stages = []  # what was executed when the walk began, and each time that it went on
        self._size = None  # of executed, then

    def tokens(self):
        """The tokens of what is there now, and whether they are other ones than the last time."""
        if self.walk is not None:
            if self.handle.holds():
                return self.walk.tokens, False
            changes = self.handle.changed()
            if not changes:
                return self.walk.tokens, False
            others = self._take(changes)
            if others is not None:
                return self.walk.tokens, others
        self.look_again(self.foresees)
        return self.walk.tokens, True

    def look_again(self, foresees=False):
        with _readable(), uncollected():
            walk = self._walk(foresees)
            self.handle.set(walk.owners, self.unowned)
        self.walk = walk
        self.walks += 1

    def leaves_all(self):
        """Does somebody else look at all tensors that the walk left to others?"""
        known = self._known_now()
        if self.walk.known == known:
            return True
        if not self.walk.foresees or not self.walk.known <= known:
            return False
        self.walk.known = set(known)
        return True

    def take(self, other):
        """What another one found by the same roots, where that is all as it was; False: it looks for itself."""
        if not self._finds_the_same(other) or not self.handle.take(other.handle):
            return False
        walk = other.walk.twin()
        self.walk, self._stages, self._size = walk, list(other._stages), other._size
        self.walks += 1
        return True

    def _finds_the_same(self, other):
        if other.walk is None or other.walk.can_go_on or other.left or self.left or other.unowned is not None or (
                other.runs_unseen or self.runs_unseen):
            return False
        return self._known_now() == other.walk.known and self.executed == other.executed and (
            self.executed.asked == other.executed.asked and self.executed.made == other.executed.made and (
                self.executed.loose.keys() == other.executed.loose.keys()) and (
                    self.executed.loggers.keys() == other.executed.loggers.keys())) and (
            len(self.roots) == len(other.roots)) and all(
            mine[0] is its[0] and mine[1] == its[1] for mine, its in zip(self.roots, other.roots))

    def look_further(self):
        """The same where code that was executed meanwhile is the only news: that is followed."""
        if self.walk is None or not self.walk.can_go_on:
            self.look_again()
            return
        with _readable(), uncollected():
            self._go_on(self.walk, self.executed.copy())
            self.handle.add(self.walk.owners, self.unowned)
        self._found_containers = (None, None)
        self.walks += 1

    def can_go_on(self):
        """May what is executed by now be followed, where the program may have changed what nobody compares?"""
        return self.walk is not None and self.walk.can_go_on and self.walk.has_its_classes()

    def rest(self):
        """What was looked at is the program's to drop."""
        if self.walk is not None and self.walk.can_go_on:
            self.walk.end()

    def _known_now(self):
        return self.known() if callable(self.known) else self.known

    def _walk(self, foresees):
        known = self._known_now()
        if self.runs_unseen:
            walk = Walk(self.torch, known, self.names, None, self.left, self.takes, MOST_UNSEEN, foresees).run(
                *self.roots)
            if not walk.obstacles:
                return walk
            self.runs_unseen = False
        walk = self._walk_executed(known, foresees)
        if self.is_compiled:
            walk.cautions.append("what compiled code reads is too much to follow; of functions that the "
                                 "compiler took in, changes of Python values may go unseen")
        return walk

    def _walk_executed(self, known, foresees):
        """In the stages of the walk before, where no more was executed: the same values then have the same tokens."""
        if self.executed is None:
            return Walk(self.torch, known, self.names, None, self.left, self.takes, foresees=foresees).run(*self.roots)
        stages = self._stages if self._size == self.executed.size else [self.executed.copy()]
        for first, *more in (stages, stages[-1:]):
            walk = Walk(self.torch, known, self.names, first.copy(), self.left, self.takes,
                        foresees=foresees).run(*self.roots)
            self._stages = [first]
            self._note_executed(walk)
            if walk.can_go_on or not more:
                break
        for stage in more:
            self._go_on(walk, stage)
        return walk

    def _go_on(self, walk, stage):
        self._stages.append(stage)
        walk.go_on(stage.copy())
        self._note_executed(walk)

    def _note_executed(self, walk):
        self.executed.update(walk.executed)  # a walk finds code that autograd executes
        self._size = self.executed.size

    def _take(self, changes):
        """Where only numbers, strings and the like changed: no more than their tokens did. Are they others? None:
        more changed."""
        walk, taken, emptied = self.walk, [], []
        for which, entry, value in changes:
            if entry < 0 or walk.owners[which][0] not in _SIMPLE_KINDS:
                return None
            before = walk.owners[which][4][entry]
            if is_plain(value) and is_plain(before):
                taken.append((which, entry, value))
            elif _are_both_empty(before, value):
                emptied.append((which, entry, value))
            else:
                return None
        if emptied and not self._take_empty(emptied):
            return None
        for which, entry, value in taken:
            self._accept(which, entry, value)
            walk.tokens[walk.first[which] + entry] = plain_token(value)
        return bool(taken)

    def _accept(self, which, entry, value):
        kind, way, owner, keys, values = self.walk.owners[which]
        values = (*values[:entry], value, *values[entry + 1:])
        self.walk.owners[which] = (kind, way, owner, keys, values)
        self.handle.accept(which, entry, value)

    def _take_empty(self, changes):
        """Programs put a new empty dict or list in the place of an empty one, to begin anew: from now on that is
        looked at. The tokens stay. False: that is not all there is to it."""
        if self.takes is not None or len({id(value) for _, _, value in changes}) < len(changes):
            return False
        looked = self._containers()
        for which, entry, value in changes:
            at = looked.get(id(self.walk.owners[which][4][entry]))
            if at is None or id(value) in looked:
                return False
        self.replaced += 1
        for which, entry, value in changes:
            at = looked.pop(id(self.walk.owners[which][4][entry]))
            kind, way, _, keys, values = self.walk.owners[at]
            if not self.handle.replace(at, (kind, way, value, keys, values)):
                return False
            self.walk.owners[at] = (kind, way, value, keys, values)
            looked[id(value)] = at
            self._accept(which, entry, value)
        self.rest()  # it has seen what is replaced
        return True

    def _containers(self):
        """By id of each dict and list that is looked at: where its elements are; None where it has other names."""
        of, found = self._found_containers
        if of is not self.walk:
            owners = self.walk.owners
            met = collections.Counter(id(value) for _, _, _, _, values in owners for value in values)
            found = {}
            for at, (kind, _, owner, _, _) in enumerate(owners):
                is_one = kind in (ITEMS, LIST) and id(owner) not in found and met[id(owner)] == 1
                found[id(owner)] = at if is_one else None
            self._found_containers = (self.walk, found)
        return found


@contextlib.contextmanager
def _readable():
    try:
        yield
    except Exception as error:  # objects may do anything when they are asked
        let_through(error)
        raise Unreadable("what it reads beside its arguments could not be looked through: "
                         f"{type(error).__name__}: {error}") from error


def _are_both_empty(before, value):
    return type(before) in (dict, list) and type(value) is type(before) and not before and not value
