# SPDX-License-Identifier: MIT
"""Calls that wait for their backward passes, which the next call must not run over.

What a call keeps for its backward pass lies where that of the next one would. A program that calls its net twice
ahead of one backward pass (two views of a batch, a triplet, a target beside an estimate) needs graphs that lie
apart. One that never goes back does not, though it may hold on to results: until a backward pass was seen, some
calls are eager that come while one waits.
"""

MOST_UNSURE = 4  # calls that wait, beside which others are eager
MOST_KEPT = 64   # eager calls beside one
MOST_BESIDE = 8  # calls that wait at once, each with graphs of its own


class Waiting:
    """The latest call of a callable that may wait. latest: a weak reference to the node that it made."""

    def __init__(self):
        self.latest = None
        self.went_back = False  # was there ever a backward pass?
        self._asked = None  # the latest call that this was asked of
        self._unsure = MOST_UNSURE
        self._kept = MOST_KEPT

    def is_one(self):
        """Does somebody hold results of it, whose backward pass is still to come?"""
        node = self.latest and self.latest()
        if node is not None and not getattr(node, "has_run", False):
            return True
        self.latest = None
        return False

    def may_go_on(self):
        """Is there nothing to say that the backward pass will come? Asked of each call while one waits."""
        if self.went_back:
            return False
        if self._unsure >= 0 and self.latest is not self._asked:  # that one waits no more
            self._asked, self._kept = self.latest, MOST_KEPT
            self._unsure -= 1
        self._kept -= 1
        if self._kept < 0:
            self._unsure = -1
        return self._unsure < 0
