# SPDX-License-Identifier: MIT
"""Calls that wait for their backward passes, which the next call must not run over.

What a call keeps for its backward pass lies where that of the next one would. A program that calls its net twice
ahead of one backward pass (two views of a batch, a triplet, a target beside an estimate) needs graphs that lie
apart. One that never goes back does not, though it may hold on to results: until a backward pass was seen, some
calls are eager that come while one waits.

Threads do not wait for each other's backward passes, and those of all threads run on one of autograd's, where a
capture would meet them. So one thread alone calls by such graphs, as long as it lives, and none captures while
others call.
"""

import threading
import time

SHARED = ("other threads call it with gradients too, and would run over what its backward pass needs. Give each "
          "thread a callable of its own, or call it under torch.no_grad() where no backward pass will come")
COMPANY_S = 5.0  # seconds for which a call of another thread may have its backward pass ahead

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
        self.owner = None  # the number of the thread that calls by graphs
        self._met = {}     # by number of a thread: when it called last, with gradients and no graph

    def meet(self):
        """This thread calls without a graph, with gradients."""
        self._met[threading.get_ident()] = time.monotonic()

    def has_company(self):
        """Do other threads call it as well?"""
        here, now = threading.get_ident(), time.monotonic()
        return any(thread != here and now - when < COMPANY_S for thread, when in list(self._met.items()))

    def is_anothers(self):
        """Is it another thread that calls by graphs? The thread that asks takes over from one that is gone."""
        here, owner = threading.get_ident(), self.owner
        if owner is not None and owner != here:
            if any(thread.ident == owner for thread in threading.enumerate()):
                return True
            self.owner = here
        return False

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
