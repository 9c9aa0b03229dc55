# SPDX-License-Identifier: MIT
"""Where the graphs of parts lie, and which of their calls wait for their backward passes.

What a forward graph keeps for its backward pass lies in the pool until that has run, and no other graph that
is replayed before may lie over it. The parts of one call run one behind the other, and autograd goes back
through them in the reverse order. So they are a sequence, a round:

    concurrent      (and torch's own graphs, where marked functions cut the callable)
        round 0     a sequence: the graphs without a backward pass, which are alternatives, and the lanes of
                    parts whose forward and backward are two graphs, in the order of their calls
        round 1 ..  likewise, for calls of the callable that begin while round 0 waits
        aside       alternatives: graphs without a backward pass, for calls while round 0 waits

A call in a round only goes to places behind those that wait in it. So a part that is called for the second
time in a call, or in another order than before, gets a further place at the end of the round.
"""

import threading
import weakref

from .._alloc.install import is_installed
from .._alloc.pool import Pool
from .._base.need import need_gpu

MOST_ROUNDS = 8


class Slot:
    """A place in a round, as the numbers of the places in places, and its pool."""

    def __init__(self, place, pool):
        self.place = place
        self.pool = pool
        self._count = 0  # of the places in it

    def add(self, kind, name):
        """The next place in it."""
        self._count += 1
        return Slot((*self.place, self._count), Pool(kind, parent=self.pool, name=name,
                                                     device=self.pool.device))


class Rounds:
    """Of one callable in parts, on all its devices."""

    def __init__(self, name, given, most=MOST_ROUNDS):
        self.is_quiet = True  # nothing waits
        self.current = 0      # the round of the call of the callable that is under way; None: of none
        self.most = most
        self._name = name
        self._given = given   # the pool that the user gave, or None
        self.latest = {}      # by round: the place of the latest call in it
        self._waiting = []    # (round, place, weak reference to the node of autograd)
        self._pools = {}      # by device and which
        self._slots = {}      # by device and round; and by part
        self._taken = set()   # (slot, part) of parts that lie there themselves
        self._lock = threading.Lock()

    # ---- Calls ----

    def note(self, number, place, leaves):
        """Notes that a call in a round waits for its backward pass; leaves: those of what it returned."""
        for leaf in leaves:
            node = getattr(leaf, "grad_fn", None)
            if node is not None:
                with self._lock:
                    self._waiting.append((number, place, weakref.ref(node)))
                    self.latest[number] = place
                    self.is_quiet = False
                return

    def look(self):
        """Forgets calls whose backward passes have run, or never will."""
        with self._lock:
            self._waiting = list(filter(_is_awaited, self._waiting))
            if not self._waiting:
                self.is_quiet, self.current = True, 0

    def begin(self):
        """Behind look(), ahead of a call of the callable: its round is the first in which nothing waits."""
        if not self.is_quiet:
            busy = {number for number, _, _ in self._waiting}
            self.current = next((n for n in range(self.most) if n not in busy), None)
        self.latest[self.current] = ()

    def last_place(self, number):
        """The last that waits in a round; (): none does."""
        return max((place for of, place, _ in self._waiting if of == number), default=())

    # ---- Pools ----

    def place(self, device, number, part, name):
        """(a place of a part in a round, behind all that wait there; a pool of alternatives there)."""
        slot = self._slot(device, number, part)
        if (slot, part) in self._taken or not slot.place > self.last_place(number):
            slot = self._round(device, number)
        self._taken.add((slot, part))
        made = slot.add("alternatives", name)
        return made.place, made.pool

    def _slot(self, device, number, part):
        """Where the graphs of a part and of its children lie, these in the order of their first calls."""
        if part.parent is None:
            return self._round(device, number)
        key = (device.index, number, part)
        if key not in self._slots:
            above = self._slot(device, number, part.parent)
            for other in sorted(part.parent.children, key=lambda p: (p.turn is None, p.turn or 0)):
                if (device.index, number, other) not in self._slots:
                    self._slots[device.index, number, other] = above.add("sequence", other.path)
        return self._slots[key]

    def beside(self, device, is_aside, own_name=None):
        """The pool of graphs without a backward pass; is_aside: for calls while round 0 waits. own_name: of
        one that no other part shares."""
        key = (device.index, "aside" if is_aside else "quiet", own_name)
        if key not in self._pools:
            parent = self._top(device) if is_aside else self._round(device, 0).pool
            self._pools[key] = Pool("alternatives", parent=parent, name=own_name or self._name, device=device)
        return self._pools[key]

    def reset(self):
        """Forgets all places. Memory goes with what lies there."""
        self.is_quiet, self.current = True, 0
        for taken in (self.latest, self._waiting, self._pools, self._slots, self._taken):
            taken.clear()

    def of_segments(self, device):
        """What torch's own graphs of a variant of a callable that is cut lie in: a pool under install(), or a
        handle of PyTorch's."""
        if not is_installed():
            return need_gpu().cuda.graph_pool_handle()
        return Pool("sequence", parent=self._top(device), name=self._name, device=device)

    def _round(self, device, number):
        key = (device.index, number)
        if key not in self._slots:
            self._slots[key] = Slot((), Pool("sequence", parent=self._top(device),
                                             name=f"{self._name} {number}", device=device))
        return self._slots[key]

    def _top(self, device):
        if device.index not in self._pools:
            self._pools[device.index] = Pool("concurrent", parent=self._given, name=self._name,
                                             device=device)
        return self._pools[device.index]


def _is_awaited(entry):
    """An entry of Rounds._waiting: has its backward pass yet to run?"""
    node = entry[2]()
    return node is not None and not getattr(node, "has_run", False)
