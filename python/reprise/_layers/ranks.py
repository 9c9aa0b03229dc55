# SPDX-License-Identifier: MIT
"""Ranks that decide differently, found before they wait for one another for ever.

A rank whose call is a graph, beside one that could not be captured, may have made its communicators at another
time, or skip what the other one does. So at the first calls each rank writes down which way its call goes, ahead
of the call, and reads what the others wrote. That goes through the store of torch.distributed: it is no
collective, so a rank that does not come is noticed too.
"""

import datetime
import threading

from .._capture.record import is_alone

CHECKED = 4        # calls of each callable
SECONDS = 120      # that others may be late
HOW = ("Ranks have to take the same way, or collectives of one wait for those of another: see reprise.report() of "
       "both, and make the slower way right, or turn graphs off on all")

_made: dict[str, int] = {}  # how many agreements of a name there were
_lock = threading.Lock()


class Ranks:
    """Those that call the same callables in the same order. group: a group of torch.distributed, or True: all;
    seconds: how long others are waited for."""

    def __init__(self, torch, group, seconds=SECONDS):
        self._c10d = torch.distributed
        self._group = None if group is True else group
        self._seconds = seconds

    def agreement(self, name):
        """What a callable asks ahead of its calls; None where there is nobody else."""
        c10d = self._c10d
        if not c10d.is_available() or not c10d.is_initialized() or c10d.get_world_size(self._group) < 2:
            return None
        find = getattr(c10d.distributed_c10d, "_get_default_store", None)  # a name of PyTorch's own
        if find is None or c10d.get_rank(self._group) < 0:
            return None  # this rank is none of them
        ranks = list(range(c10d.get_world_size())) if self._group is None else (
            c10d.get_process_group_ranks(self._group))
        with _lock:
            turn = _made[name] = _made.get(name, 0) + 1
        return Agreement(find(), name, turn, c10d.get_rank(), ranks, self._seconds)


class Agreement:
    """Of one callable. store: that of torch.distributed; turn: how many of the name there are; rank: this one's;
    ranks: of all."""

    def __init__(self, store, name, turn, rank, ranks, seconds):
        self._store, self._name, self._turn, self._rank, self._ranks = store, name, turn, rank, sorted(ranks)
        self._wait = datetime.timedelta(seconds=seconds)
        self._calls = 0

    @property
    def is_over(self):
        return self._calls >= CHECKED

    def begin_eager(self):
        """Ahead of what an eager call does; in a capture nothing is done."""
        if not is_alone():
            self.ask("eager")

    def ask(self, way):
        """Ahead of a call, which is a graph or eager. Raises RuntimeError where another rank's is not."""
        if self.is_over:
            return
        call, self._calls = self._calls, self._calls + 1
        self._store.set(self._key(call, self._rank), way)
        for rank in self._ranks:
            if rank != self._rank:
                self._compare(call, rank, way)

    def _key(self, call, rank):
        return f"reprise/{'-'.join(map(str, self._ranks))}/{self._name}/{self._turn}/{call}/{rank}"

    def _compare(self, call, rank, way):
        key = self._key(call, rank)
        try:
            self._store.wait([key], self._wait)
        except RuntimeError as error:  # of torch.distributed; its kind hangs on the version
            raise RuntimeError(f"rank {rank} has not come to call {call + 1} of '{self._name}' within "
                               f"{self._wait.total_seconds():.0f} s, which is {_told(way)} on rank {self._rank}. "
                               f"{HOW}") from error
        theirs = self._store.get(key).decode()
        if theirs != way:
            raise RuntimeError(f"call {call + 1} of '{self._name}' is {_told(way)} on rank {self._rank}, and "
                               f"{_told(theirs)} on rank {rank}. {HOW}")


def _told(way):
    return "a graph" if way == "graph" else "eager"
