# SPDX-License-Identifier: MIT
"""Calls of what make_graphed_callables captured."""

import functools
import types

from .. import _C
from .._alloc.install import drop_segment_pools
from .._base.tree import flatten
from .._base.warn import warn
from .._grad.order import Schedule
from .delayed import NOTHING
from .form import NoFit
from .options import on_stream, taken_out

MOST_TOLD = 8  # reasons that one callable warns of


class Calls:
    """Those of one callable. fn: it; name: its own; check: raises where constants of the graphs changed, or
    None; kept: says whether all is as it was captured (kept.Kept), or None; aside: names of arguments that
    are for the replay; pool: where the graphs lie; quantized: which it is of a Quantized, and that, or None;
    delays: a delayed.Delays, or None."""

    def __init__(self, torch, fn, name, kept, check, aside, pool=None, quantized=None, delays=None):
        self.torch, self.fn, self.name = torch, fn, name
        self.is_module = isinstance(fn, torch.nn.Module)
        self.original = fn.forward if self.is_module else fn
        self.mode = fn.training if self.is_module else None
        self._kept, self._check, self._aside, self._pool = kept, check, aside, pool
        self._takes_flag = "is_first_microbatch" in aside
        self._warned, self._told = False, set()
        self._is_reset = False
        self._quantized, self.delays = quantized, delays

    def call(self, args, kwargs):
        """As one that is made by the program."""
        if self._is_reset:
            raise RuntimeError(f"'{self.name}' was reset, and its graphs are gone: make it anew")
        if self.is_module and self.fn.training != self.mode:
            taken_out(kwargs, [name for name in self._aside if name.startswith("cuda_graph")])
            return self.original(*args, **kwargs)
        return self._by_graph(args, kwargs)

    def _by_graph(self, args, kwargs):
        stream, event, is_first = taken_out(kwargs, self._aside) if kwargs or self._takes_flag else (None, None, None)
        if self._quantized is not None:
            which, quantized = self._quantized
            quantized.refuse(which, self.name)
        if self._check is not None:
            self._check()
        why = self._kept.differs() if self._kept is not None else None
        if why is not None:
            self._differs(why)
            return self.original(*args, **kwargs)
        form, split = self._due()
        tensors = form.fit(args, kwargs)
        if tensors is None:
            self._wants_gradients()
            return self.original(*args, **kwargs)
        self._begun()
        replay = split.replay
        if self._quantized is not None:
            split.behind_backward = quantized.ahead(which, is_first)
        if stream is None and event is None:
            return replay(tensors)
        return on_stream(self.torch, stream, event, replay, tensors, self._tensors_of)

    def _tensors_of(self, result):
        return [leaf for leaf in flatten(result)[0] if isinstance(leaf, self.torch.Tensor) and leaf.is_cuda]

    def _differs(self, why):
        """Warns that something is not as it was captured for, once."""
        if why not in self._told and len(self._told) < MOST_TOLD:
            self._told.add(why)
            warn(f"reprise: this call runs without a graph, as {self._other(why)}")

    def _other(self, why):
        return (f"'{self.name}' was captured for something else than there is now: {why}. Make the callable "
                "anew, or take reprise.graphed, which captures what changes")

    def _wants_gradients(self):
        if not self._warned:
            self._warned = True
            warn(f"reprise: '{self.name}' runs without a graph where an argument wants a gradient and its sample did "
                 "not: let sample_args have the real requires_grad")

    def reset(self):
        """Drops the graphs. Calls raise RuntimeError from then on."""
        self._is_reset = True
        self._kept = self._check = None
        if isinstance(vars(self.fn).get("backward_dw") if self.is_module else None, _Method):
            del self.fn.backward_dw
        self._drop()
        drop_segment_pools()
        _C.sweep()
        if self._pool is not None and self._pool.info()["graphs"] == 0:
            self._pool.trim()

    def backward_dw(self):
        """Computes the weight gradients that the backward pass left for later; nothing where it leaves none."""
        if self.delays is None:
            return
        if self._is_reset:
            self.delays.compute()
        elif not self._weigh():
            if not self.delays.waits():
                raise RuntimeError(NOTHING.format(self.name))
            self.delays.compute()


class Single(Calls):
    """Without an order: calls may be eager."""

    def __init__(self, form, split, *common):
        super().__init__(*common)
        self._graphs = (form, split)

    def _due(self):
        return self._graphs

    def _begun(self):
        pass

    def _weigh(self):
        return self._graphs[1].weigh()

    def _differs(self, why):
        if self._quantized is not None:
            raise RuntimeError(self._other(why))
        super()._differs(why)

    def _drop(self):
        self._graphs = None


class Ordered(Calls):
    """With one: a call has the graphs of the microbatch that is due, and is never eager. graphs: (form, split) of
    each; microbatch: of which all calls are, or None."""

    def __init__(self, schedule, which, graphs, microbatch, *common):
        super().__init__(*common)
        self._schedule, self._which, self._microbatch = schedule, which, microbatch
        self._graphs = graphs

    def _due(self):
        if not self.torch.is_grad_enabled():
            raise RuntimeError(f"'{self.name}' was captured with an order of forward and backward passes, and "
                               "gradients are disabled: call modules in the other mode, or what was passed to "
                               "make_graphed_callables")
        return self._graphs[self._schedule.due(self._which, self._microbatch)]

    def _begun(self):
        self._schedule.forward(self._which, self._microbatch)

    def _weigh(self):
        if self.delays.waits():  # of a call in the other mode
            return False
        return self._graphs[self._schedule.weights(self._which, self._microbatch)][1].weigh()

    def _differs(self, why):
        raise RuntimeError(self._other(why))

    def _wants_gradients(self):
        raise NoFit(f"'{self.name}' was captured for arguments of other shapes, types or requires_grad than it is "
                    "called with: one wants a gradient, and its sample did not")

    def _drop(self):
        self._graphs = ()


def check_of(name, splits):
    """Raises where a tensor on the CPU is not what the callable was captured for; None: there is none."""
    parts = [part for split in splits for part in (split, *split.parts()) if part.cpu is not None]

    def check():
        if any(part.reads_other_values() for part in parts):
            raise RuntimeError(f"'{name}' was captured for other values of a tensor on the CPU, which its graphs "
                               "hold as constants. Keep it on the GPU, or make the callable anew")
    return check if parts else None


def schedule_of(captures):
    """Where the program is in the order; backward passes tell."""
    schedule = Schedule(captures.plan.passes, captures.names)
    for (which, microbatch), split in captures.splits.items():
        split.before_backward = functools.partial(schedule.backward, which, microbatch)
    return schedule


def function_of(calls):
    """A function for a program to call."""
    def graphed(*args, **kwargs):
        return calls.call(args, kwargs)
    functools.update_wrapper(graphed, calls.original if not calls.is_module else type(calls.fn).forward, updated=())
    return _told(graphed, calls)


def in_place(calls):
    """The module, whose forward method is the graphed one."""
    calls.fn.forward = _Forward(calls)
    return _told(calls.fn, calls)


def _told(made, calls):
    """With what Transformer Engine's have as attributes, where it has none of the name itself."""
    for name in ("reset", "backward_dw"):
        delays = name == "backward_dw" and calls.delays is not None
        if delays or not hasattr(made, name):
            setattr(made, name, _Method(getattr(calls, name), calls.fn if delays and calls.is_module else None))
    return made


class _Method:
    """One of these. A copy of the module has no graphs. module: whose own method this stands in front of, or
    None."""

    def __init__(self, call, module=None):
        self._call, self._module = call, module

    def __call__(self):
        return self._call()

    def __deepcopy__(self, memo):
        own = getattr(type(self._module), "backward_dw", None)
        copied = memo.get(id(self._module))
        return _Method(_nothing) if own is None or copied is None else types.MethodType(own, copied)


def _nothing():
    return None


class _Forward:
    """The graphed forward method of a module. A copy of the module has its class's: the graphs are of this
    one's parameters."""

    def __init__(self, calls):
        self._calls = calls

    def __call__(self, *args, **kwargs):
        return self._calls.call(args, kwargs)

    def __deepcopy__(self, memo):
        module = self._calls.fn
        copied = memo.get(id(module))
        return self if copied is None else types.MethodType(type(copied).forward, copied)
