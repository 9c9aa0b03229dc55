# SPDX-License-Identifier: MIT
"""reprise.graphed(net, parts=True): what cannot be captured whole is captured by the largest of its modules
that can.

The net is tried as any callable is. Where its calls stay eager for a shape, each of its children becomes a
graphed module in place, and a child whose calls stay eager is divided likewise. So the tree is found by
trying, at the first calls.

    Parts     what all parts of a net share
    Part      a module of the net, and what became of it
    Lane      graphs of a part (lanes.py); it has a second one for calls that come while a call of the first
              waits for its backward pass
"""

import functools
import weakref

from .._base.tree import argument_names
from .._call import make
from .._call import module as modules
from .._call.body import body_of, firsts_of, refusal_in
from .._call.graphed import ATTEMPTS, Graphed
from .._capture.record import is_alone
from .._reads.walk import is_plain
from .cuts import Cuts, Cutter, Uncuttable
from .eager import Marked, is_marked
from .lanes import LEAST_NODES, SMALL, Lane
from .rounds import MOST_ROUNDS, Rounds

MOST_LANES = 16    # of a part; calls that would need more are eager
WATCHED_CALLS = 3  # of the callable, behind each division: is what was made a part called at all?


class Parts:
    """What the parts of a callable share. Does not keep the callable's own Graphed. kind: of Graphed; lane: a
    class to stand in front of that; most: rounds at a time, more than one of a part's lanes each."""

    def __init__(self, torch, name, kind, options, lane=Lane, most=MOST_ROUNDS):
        self.torch = torch
        self.rounds = Rounds(name, options[0], most)
        self.most_lanes = MOST_LANES * most // MOST_ROUNDS
        self.strict = False  # do lanes raise what keeps a call from being captured?
        self.root = None   # the Part that is the callable itself
        self.known = {}    # by id of a module: its Part
        self.watched = 0   # calls of the callable that are watched still
        self.turns = 0     # of parts that were called
        self._kind, self._lane = kind, lane
        self._options = options

    def new_lane(self, fn, part, number):
        """Graphs of a part beside those that it has."""
        which = f" ({len(part.lanes) + 1})" if part.lanes else ""
        pool, _, _, copy_args, _, _, generators, _, frozen, verify, most = self._options
        lane = _lane_class(self._lane, self._kind)(fn, pool, f"{part.path}{which}", 1, copy_args, self.strict, (), generators,
                                       "auto", frozen, verify, most)
        return lane.join(self, part, number)

    def watch(self):
        """Ahead of a call of the callable. Behind the last that is watched, modules that were never called
        are looked at closer: those in them may be called in their place."""
        self.watched -= 1
        if self.watched == 0:
            for part in list(self.known.values()):
                part.probe(self.torch)

    def divide(self, above, found):
        """Makes modules parts below one; found: (name, module) of each. Returns those that were none."""
        made = [part for name, module in found
                for part in self._parts_of(above, f"{above.path}.{name}", module)]
        self.watched = WATCHED_CALLS if made else self.watched
        return made

    def _parts_of(self, above, path, module):
        """What a module becomes: a part, or those in it where it is a list, which is not called."""
        known = self.known.get(id(module))
        if modules.is_module(module) or (known is not None and known.of() is module):
            return  # it is one already: another module has it too, or it is the program's
        if type(module).forward is self.torch.nn.Module.forward:
            for name, child in module.named_children():
                yield from self._parts_of(above, f"{path}.{name}", child)
            return
        part = self.known[id(module)] = Part(path, type(module).__name__, weakref.ref(module), above)
        if is_marked(module):
            part.reason = "it is marked with reprise.eager"
        elif not modules.can_be(self.torch, module):
            part.reason = "it is of TorchScript, and cannot be graphed in place"
        elif _is_small(module):
            part.reason = SMALL.format("one or two", LEAST_NODES)
        else:
            part.grow(self, module)
        yield part

    def reset(self):
        """Makes all modules what they were before."""
        for part in self.known.values():
            part.leave(None)
        self.known.clear()
        self.watched = 0
        self.rounds.reset()


class Part:
    """A module of a callable in parts, or the callable itself: where it is found, and which way its calls
    go."""

    def __init__(self, path, kind, of=None, parent=None):
        self.path = path
        self.kind = kind      # name of its class
        self.of = of          # weak reference to the module
        self.lanes = []       # none: its calls are eager
        self.reason = None    # why a shape of it, or all of it, is not captured
        self.line = None      # of that (lines.Frame)
        self.parent = parent  # the part that it was divided from
        self.children = None  # parts, of one that was divided
        self.turn = None      # of its first call among those of all parts
        self._is_graphed = False
        self._new_lane, self._most = None, 0
        self._probed = []     # weak references to modules in it that tell of their calls

    def begin(self, parts, fn, head=None):
        """Gives it its first lane."""
        self._new_lane, self._most = functools.partial(parts.new_lane, fn, self), parts.most_lanes
        self.lanes = [head or self._new_lane(0)]
        return self

    def grow(self, parts, module):
        """Makes the module graphed in place."""
        plain = modules.twin_of(module)
        self.begin(parts, plain)
        modules.change(parts.torch, module, plain, self.lanes[0], lambda other: other)
        self._is_graphed = True

    def leave(self, why):
        """Lets the module be what it was: its calls are eager."""
        module = self.of() if self._is_graphed else None
        if module is not None:
            modules.restore(module)
        self._is_graphed = False
        self.reason = why or self.reason
        self.lanes = []
        self._stop_probing()

    # ---- Lanes ----

    def lane_behind(self, number, place):
        """A lane of a round whose graphs lie behind a place of it; None where there are enough."""
        if number is None:
            return None
        for lane in self.lanes:
            if lane.number == number and lane.is_behind(place):
                return lane
        return self._add(number)

    def lane_aside(self):
        """The lane of calls without a backward pass while others wait for theirs."""
        return next((lane for lane in self.lanes if lane.number is None), None) or self._add(None)

    def _add(self, number):
        if len(self.lanes) >= self._most:
            return None
        self.lanes.append(self._new_lane(number))
        return self.lanes[-1]

    def called(self, parts):
        """Notes a call, ahead of it."""
        if self.turn is None:
            self.turn = parts.turns
            parts.turns += 1

    def graphs(self):
        return sum(len(lane.shapes()) for lane in self.lanes)

    # ---- Division ----

    def is_divided(self):
        """Are all its calls made by its children?"""
        return self.children is not None and not self.graphs()

    def divide(self, parts, find, why, line):
        """Makes the modules in it parts, and leaves it alone from then on unless some shape of it has a
        graph; find: returns (name, module) of each. False where there are none."""
        self.reason, self.line = why.splitlines()[0], line
        self.children = (self.children or []) + parts.divide(self, find())
        if self is not parts.root and not self.graphs():
            self.leave(self.reason)
        return bool(self.children)

    def probe(self, torch):
        """Of a module that was never called: lets the modules in it tell when one is called."""
        module = self.of() if self._is_graphed else None
        if module is None or self.children is not None or self.lanes[0].was_called():
            return
        for inner in module.modules():
            if inner is not module and not modules.is_module(inner) and modules.can_be(torch, inner):
                plain = modules.twin_of(inner)
                modules.change(torch, inner, plain, _Probe(plain, self), lambda other: other)
                self._probed.append(weakref.ref(inner))

    def _stop_probing(self):
        for ref in self._probed:
            inner = ref()
            if inner is not None:
                modules.restore(inner)
        self._probed = []

    def seen_inside(self):
        """A module in it was called: divides it if it is never called itself."""
        self._stop_probing()
        if self.lanes and self.children is None and not self.lanes[0].was_called():
            head = self.lanes[0]
            self.divide(head.all_parts, head.found_modules, BYPASSED, None)

    def facts(self):
        graphs = self.graphs()
        way = "graph" if graphs else "parts" if self.children else "eager" if self.reason else "untried"
        return {"name": self.path, "kind": self.kind, "way": way, "graphs": graphs,
                "lanes": len(self.lanes), "reason": self.reason,
                "line": None if self.line is None else str(self.line)}


BYPASSED = "it is not called itself, but modules in it are"


class _Probe:
    """In the place of a module's calls: tells the part that it is in."""

    def __init__(self, plain, part):
        self._plain = plain
        self._part = part

    def __call__(self, *args, **kwargs):
        if not is_alone():
            self._part.seen_inside()
        return self._plain(*args, **kwargs)


class Root(Lane):
    """The first lane of a callable that is made with parts=True."""

    def __init__(self, fn, *options):
        super().__init__(fn, *options)
        parts = Parts(self._torch, self.name, self.kind, options)
        self._cut = set()  # groups of keys whose calls are captured in segments
        parts.root = Part(self.name, type(fn).__name__)
        self.join(parts, parts.root)
        parts.root.begin(parts, fn, weakref.proxy(self))
        weakref.finalize(self, parts.reset).atexit = False

    def __call__(self, *args, **kwargs):
        if self.all_parts.watched and not is_alone():
            self.all_parts.watch()
        return super().__call__(*args, **kwargs)

    def _noisy_call(self, args, kwargs):
        if not is_alone():
            self.rounds.look()
            self.rounds.begin()
        return super()._noisy_call(args, kwargs)

    # ---- Cuts ----

    def _failed(self, key, error, attempts=1):
        """Where a marked function is in the way, the next call of the kind is captured around it."""
        if type(refusal_in(error)) is Marked and self.kind is Graphed and self._group(key) not in self._cut:
            self._cut.add(self._group(key))
        else:
            super()._failed(key, error, attempts)

    def _first_call(self, key, leaves, tensors, spec, args, kwargs):
        if self._group(key) not in self._cut or self._has_failed(key):
            return super()._first_call(key, leaves, tensors, spec, args, kwargs)

        def eager():
            return self._fn(*args, **kwargs)

        try:
            cuts = self._new_cuts(leaves, tensors, spec, bool(kwargs))
            with self._torch.cuda.device(cuts.device):
                result = cuts.call(tensors, eager)
        except Uncuttable as why:
            super()._failed(key, why, ATTEMPTS)
            return (eager(),)
        if cuts.variants:
            self._keep(key, cuts)
        else:
            super()._failed(key, cuts.why, ATTEMPTS)
        return (result,)

    def _new_cuts(self, leaves, tensors, spec, has_kwargs):
        torch, device = self._torch, self._device(tensors)
        if torch.is_grad_enabled() and (self._watch.trains() or any(t.requires_grad for t in tensors)):
            raise Uncuttable("a marked function is in the way, and callables are cut without gradients only")
        if firsts_of(tensors) is not None:
            raise Uncuttable("a marked function is in the way, and a tensor is two of the arguments")
        if self._own_among(leaves):
            raise Uncuttable("a marked function is in the way, and an argument is a tensor that it reads elsewhere too")
        if not all(isinstance(leaf, torch.Tensor) or is_plain(leaf) for leaf in leaves):
            raise Uncuttable("a marked function is in the way, and an argument is an object")
        kept = [(name, leaf) for name, leaf in zip(argument_names(spec, has_kwargs), leaves)
                if not isinstance(leaf, torch.Tensor)]

        def new_cutter(statics, answers):
            return Cutter(torch, self.rounds.of_segments(device), self._reads, self._fn, kept,
                          [*statics, *self._watch.tensors], self._generators, answers)

        return Cuts(torch, device, new_cutter, body_of(torch, self._fn, leaves, spec, has_kwargs), tensors)

    def _replay(self, key, shape, tensors, args, kwargs):
        if not isinstance(shape, Cuts):
            return super()._replay(key, shape, tensors, args, kwargs)
        with self._lock, self._torch.cuda.device(shape.device):
            return shape.call(tensors, lambda: self._fn(*args, **kwargs))

    def parts(self):
        facts = [part.facts() for part in (self.part, *self.all_parts.known.values())]
        cuts = [shape for shape in list(self._shapes.values()) if isinstance(shape, Cuts)]
        if cuts:
            facts[0].update(way="segments", graphs=facts[0]["graphs"] + sum(c.segments() for c in cuts))
            facts[0]["reason"] = next((str(c.why).splitlines()[0] for c in cuts if c.why),
                                      facts[0]["reason"])
        return facts

    def reset(self):
        with self._lock:
            self.all_parts.reset()
            self.part.children = self.part.reason = self.part.line = None
            self._cut.clear()
            self.leave_places()
            self._forget()


def _is_small(module):
    """Layers of PyTorch's own without parameters: a kernel or two."""
    return type(module).__module__.startswith("torch.nn.modules.") and not any(
        True for _ in module.children()) and not any(True for _ in module.parameters())


@functools.cache
def _lane_class(lane, kind):
    return type(kind.__name__, (lane, kind), {"__module__": kind.__module__})


@functools.cache
def _root_class(kind):
    return type(kind.__name__, (Root, kind), {"__module__": kind.__module__, "kind": kind})


make.tell_divided(_root_class)
