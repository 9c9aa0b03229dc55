# SPDX-License-Identifier: MIT
"""The graphs of a part, of which no two calls wait for their backward passes at once."""

import weakref

from .. import _C
from .._alloc.install import is_installed
from .._base import torch_private
from .._base.tree import flatten
from .._call.graphed import HOOKED
from .._capture.record import is_alone
from .._shapes.shape import replayed
from .._shapes.split import Split

LEAST_NODES = 3   # of a part's graph: fewer do not pay for the launch
MOST_REFUSED = 2  # keys of calls that are refused, before those that differ only by what is read are

SMALL = "its graph would have {} nodes, and one of fewer than {} does not pay"


def _saves_elsewhere(torch):
    return torch_private.of(torch).saves_elsewhere()


class Lane:
    """What a Graphed is besides that is a lane of a part; stands in front of it among a class's bases."""

    all_parts = None  # parts.Parts
    part = None       # parts.Part
    number = 0        # of its round; None: for calls without a backward pass while round 0 waits
    _steps_aside = False  # lanes of other rounds take what comes while one waits

    def join(self, parts, part, number=0):
        self.all_parts, self.part, self.number = parts, part, number
        self.rounds = parts.rounds
        self.refused = {}  # by group of keys: how many of those were
        self._place = None  # in the round, once forward and backward were captured as two graphs
        self._placed = {}   # pools, by device and whether they are of two graphs
        self.__dict__.pop("_fast_call", None)  # the fast path's own; from here on that of the class
        if part.lanes:  # what one of them was refused, others are
            self.refused, self._refusals = part.lanes[0].refused, part.lanes[0].shared_refusals()
        return self

    def shared_refusals(self):
        return self._refusals

    # ---- Calls ----

    def __call__(self, *args, **kwargs):
        if self.rounds.is_quiet:
            return super().__call__(*args, **kwargs)
        return self._noisy_call(args, kwargs)

    def _noisy_call(self, args, kwargs):
        """A call while others wait for their backward passes."""
        rounds, torch = self.rounds, self._torch
        rounds.look()
        if rounds.is_quiet:
            return self.own_call(args, kwargs)
        if torch.cuda.is_current_stream_capturing() or is_alone() or self.part.is_divided():
            return self._fn(*args, **kwargs)
        if (self._opens and torch.is_grad_enabled()) or self._is_split(
                [leaf for leaf in flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]):
            lane = self.part.lane_behind(rounds.current, rounds.last_place(rounds.current))
        else:
            lane = self if not rounds.last_place(0) else self.part.lane_aside()
        return self._fn(*args, **kwargs) if lane is None else lane.own_call(args, kwargs)

    def _why_aside(self):
        """Calls of a part under hooks are told by _by_graph."""
        why = super()._why_aside()
        return None if why is HOOKED and self.part is not self.all_parts.root else why

    def _by_graph(self, key, leaves, tensors, spec, args, kwargs):
        if self.part is not self.all_parts.root and self._torch.is_grad_enabled() and (
                _saves_elsewhere(self._torch)):
            self.part.called(self.all_parts)
            self.part.reason = HOOKED
            return self._fn(*args, **kwargs)
        return super()._by_graph(key, leaves, tensors, spec, args, kwargs)

    def own_call(self, args, kwargs):
        """A call of this lane, whatever waits."""
        return super().__call__(*args, **kwargs)

    @property
    def place(self):
        """Of its graphs of forward and backward, in the round; None: there are none."""
        return self._place

    def is_behind(self, place):
        """Do its graphs of forward and backward lie behind a place of its round, or will they?"""
        return self._place is None or self._place > place

    def _warm_up(self, args, kwargs):
        self.part.called(self.all_parts)
        return super()._warm_up(args, kwargs)

    def was_called(self):
        return self.part.turn is not None or bool(self._shapes or self._failures)

    def _replay(self, key, shape, *call):
        result = super()._replay(key, shape, *call)
        if isinstance(shape, Split):
            self.rounds.note(self.number, self._place, flatten(result)[0])
        return result

    def _fast_call(self, args, kwargs):
        """The call by the fast path, which knows nothing of hooks that take what autograd saves."""
        if self.part is not self.all_parts.root and _saves_elsewhere(self._torch):
            return _C.miss
        return self._fast_path.call(args, kwargs)

    def _replayer(self, shape):
        if not isinstance(shape, Split):
            return super()._replayer(shape)
        note, lane, leaves_of = self.rounds.note, weakref.ref(self), shape.leaves
        flat, cpu = shape.plan.flat, shape.cpu

        def replay(tensors, _=()):
            if cpu is None and is_alone():
                return _C.miss
            leaves, here = leaves_of(tensors), lane()
            result = flat((*leaves, None)) if flat is not None else shape.delivered(leaves, tensors, ())
            note(here.number, here._place, leaves)
            return result
        return replay if cpu is None else lambda tensors, on_cpu=(): replayed(shape, tensors, replay, on_cpu)

    # ---- Captures ----

    def _own_pool(self, device, is_split):
        key = (device.index, is_split)
        if key not in self._placed:
            if not is_split:
                own_name = self.name if self.part is self.all_parts.root else None
                pool = self.rounds.beside(device, self.number != 0, own_name)
            else:
                if self.number is None:
                    self.number = self.rounds.current or 0
                place, pool = self.rounds.place(device, self.number, self.part, self.name)
                self._place = place if self._place is None else min(place, self._place)
            self._placed[key] = self._pools[device.index] = pool
        return self._placed[key]

    def leave_places(self):
        self._place = None
        self._placed.clear()
        self._pools.clear()

    def _keep(self, key, shape):
        super()._keep(key, shape)
        if self.part is self.all_parts.root:
            return
        # Without install() results are copied, all by one node.
        nodes = max(part.graph.info()["nodes"] - (not is_installed() and len(part.outputs) > 0)
                    for part in shape.parts())
        if 0 < nodes < LEAST_NODES:
            self.part.leave(SMALL.format(nodes, LEAST_NODES))

    # ---- What is not captured ----

    def _tell_eager(self, warning, why, line=None):
        """Divides instead of warning, but where there is nothing to divide."""
        if not self.part.divide(self.all_parts, self.found_modules, why, line) and (
                self.part is self.all_parts.root):
            super()._tell_eager(warning, why, line)

    def found_modules(self):
        """(name, module) of each in the callable."""
        if isinstance(self._fn, self._torch.nn.Module):
            return list(self._fn.named_children())
        return [(type(module).__name__, module) for module in self._watch.roots]

    def _failed(self, key, error, attempts=1):
        """A refusal that does not hang on what the callable reads comes with each value again."""
        super()._failed(key, error, attempts)
        if key in self._failures and self._has_failed(key):
            group = self._group(key)
            self.refused[group] = self.refused.get(group, 0) + 1

    def _has_failed(self, key):
        return super()._has_failed(key) or self.refused.get(self._group(key), 0) >= MOST_REFUSED

    def _forget(self):
        super()._forget()
        self.refused.clear()
