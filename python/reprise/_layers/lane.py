# SPDX-License-Identifier: MIT
"""The graphs of a layer (reprise.capture_layers), of which no two calls wait for their backward passes at once."""

from .. import _C
from .._base.warn import warn
from .._capture.record import is_alone
from .._parts.lanes import Lane

TOO_MANY = ("'{}' is called while {} microbatches wait for their backward passes, for which there are graphs. Pass "
            "capture_layers a larger number, microbatches=")


class Surroundings:
    """What a framework does around layers in Python. None of it here."""

    def ahead(self, module):
        """Ahead of each call, of which nothing else in the layer's Python code runs."""

    def give_back(self):
        """The layers are what they were before."""


class LayerLane(Lane):
    """Stands in front of a kind of Graphed. Which lane a call has is looked up once for a microbatch: its round
    is that of the call of the model, and layers of one call come one behind the other."""

    warned = False

    def join(self, parts, part, number=0):
        self._agreement = parts.ranks and parts.ranks.agreement(self.name)
        self._way = None
        self._lane_of = part.__dict__.setdefault("lane_of", {})  # by round
        return super().join(parts, part, number)

    def __call__(self, *args, **kwargs):
        if is_alone():
            return super().__call__(*args, **kwargs)
        self.all_parts.surroundings.ahead(self.part.of())
        lane = self if self.rounds.is_quiet else self._lane_due()
        if lane is not None:  # most calls of training: without the ways of others
            result = lane._fast_call(args, kwargs)
            if result is not _C.miss:
                return self._fn(*args, **kwargs) if result is _C.eager else result
        return super().__call__(*args, **kwargs)

    def _lane_due(self):
        """That of the round of the call that is under way, if it is known and comes behind what waits there."""
        rounds = self.rounds
        lane = self._lane_of.get(rounds.current)
        return lane if lane is not None and self._torch.is_grad_enabled() and lane.is_behind(
            rounds.latest.get(rounds.current, ())) else None

    def _noisy_call(self, args, kwargs):
        rounds = self.rounds
        lane = self._lane_due()
        if lane is not None and not is_alone():
            return lane.own_call(args, kwargs)
        if rounds.current is None and not is_alone():
            rounds.look()
            rounds.begin()
            self._look_for_too_many()
        return super()._noisy_call(args, kwargs)

    def _look_for_too_many(self):
        if self.rounds.current is not None or not self._torch.is_grad_enabled():
            return
        text = TOO_MANY.format(self.name, self.rounds.most)
        if self.all_parts.strict:
            raise RuntimeError(text)
        if not self.all_parts.told_too_many:
            self.all_parts.told_too_many = True
            warn(f"reprise: this call runs without a graph, as {text}")

    def own_call(self, args, kwargs):
        if self.number is not None:
            self._lane_of[self.number] = self
        return super().own_call(args, kwargs)

    def _fast_call(self, args, kwargs):
        agreement = self._agreement
        return _C.miss if agreement is not None and not agreement.is_over else super()._fast_call(args, kwargs)

    def _by_graph(self, *call):
        agreement = self._agreement
        if agreement is None or agreement.is_over:
            return super()._by_graph(*call)
        self._way = "eager"
        result = super()._by_graph(*call)
        if self._way == "eager":
            agreement.ask("eager")
        return result

    def _replay(self, *call):
        if self._agreement is not None:
            self._way = "graph"
            self._agreement.ask("graph")
        return super()._replay(*call)

    def _tell_eager(self, warning, why, line=None):
        if not self.part.divide(self.all_parts, self.found_modules, why, line):
            warn(warning)
