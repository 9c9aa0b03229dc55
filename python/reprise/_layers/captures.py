# SPDX-License-Identifier: MIT
"""The warm-up of callables, and their captures in the order of their passes."""

import contextlib
import functools

from .._base.collector import clear_frames
from .._base.tree import flatten
from .._capture import draws
from .._grad.fused import main_gradients_aside
from .._grad.nodes import Aliases
from .._grad.reached import Open
from .._reads.reads import is_compiled
from .._shapes.split import Refused, Split
from .._call.body import body_of
from .._call.cpu_values import CpuValues, Pair
from .._call.kept import Kept
from .buffers import Buffers
from .delayed import DelayedSplit
from .form import Form
from .randomness import kept as random_states_kept


UNKNOWN = ("'{}' goes back to a tensor of the shape {} that requires gradients and is neither an argument nor a "
           "parameter of it, which would have none: pass it as an argument, or make it a parameter")


def name_of(fn):
    return getattr(fn, "__name__", None) or type(fn).__name__


class Captures:
    """Of several callables. callables: those; plan: a chunks.Plan; samples: (args, kwargs) of each sample;
    generators: of which captures know beside the default one; hooks: an options.Hooks; ordered: do calls have
    to come in the order of the plan? quantized: a quantized.Quantized, or None; delays: by callable that delays
    its weight gradients a delayed.Delays."""

    def __init__(self, torch, device, callables, plan, samples, generators, hooks, ordered, quantized=None, delays=None):
        self.torch, self.device, self.ordered = torch, device, ordered
        self.callables, self.plan, self.generators, self.hooks = callables, plan, generators, hooks
        self.names = [name_of(fn) for fn in callables]
        self.functions = [fn.forward if isinstance(fn, torch.nn.Module) else fn for fn in callables]
        self.quantized, self.delays = quantized, delays or {}
        self.bodies = self.functions if quantized is None else quantized.functions(self.functions)
        self.samples = samples
        forms = {}
        for (which, _), at in plan.samples.items():
            if (which, at) not in forms:
                forms[which, at] = Form(torch, self.functions[which], self.names[which], *samples[at])
        self.forms = {place: forms[place[0], at] for place, at in plan.samples.items()}
        self.splits = {}  # by (callable, microbatch)
        self.kept = []    # of each callable a Kept, or None

    def run(self, pool, warmup, allow_unused, before=None, behind=None):
        """Warms up, and captures all."""
        torch, fns = self.torch, self.callables
        left = [] if self.quantized is None else self.quantized.left_out()
        left += [place for one in self.delays.values() for place in one.places()]
        self.kept = [Kept(torch, fn.forward if isinstance(fn, torch.nn.Module) else fn,
                          fn if isinstance(fn, torch.nn.Module) else None, left)
                     if warmup and not is_compiled(fn) else None for fn in fns]
        buffers = Buffers(torch)
        with contextlib.nullcontext() if self.quantized is None else self.quantized.around():
            try:
                self._run(pool, warmup, allow_unused, before, behind, buffers)
            finally:
                buffers.put_back()
        for which, known in enumerate(self.kept if self.quantized is not None else ()):
            left = self.quantized.settle(which)
            if known is not None:
                known.leave_out(left)
        for form in self.forms.values():
            form.forget()
        self.samples = None

    def _run(self, pool, warmup, allow_unused, before, behind, buffers):
        torch = self.torch
        with random_states_kept(torch, self.device, self.generators) as check:
            watched = draws.Watched(torch, self.generators)
            if before is not None:
                before()
            for (which, _), form in self._once_each():
                warm = functools.partial(self._warm_up_aside, which, form, warmup, allow_unused)
                is_module = isinstance(self.callables[which], torch.nn.Module)
                buffers.around(self.callables[which], warm) if is_module else warm()
                check(self.names[which])
            if behind is not None:
                behind()
            self._capture(pool, watched.may_draw() or not warmup, allow_unused)

    def _once_each(self):
        """Each callable with each form of its samples."""
        seen = set()
        for place, form in self.forms.items():
            if id(form) not in seen:
                seen.add(id(form))
                yield place, form

    # ---- Warm-up ----

    def _warm_up_aside(self, which, *given):
        """What parameters have as gradients stays, also where passes of the callable add them up by themselves."""
        fn, delays = self.callables[which], self.delays.get(which)
        params = list(fn.parameters()) if isinstance(fn, self.torch.nn.Module) else []
        with main_gradients_aside(self.torch, params):
            if delays is None:
                return self._warm_up(which, *given)
            with delays.aside(), delays.without_gradients():
                return self._warm_up(which, *given)

    def _warm_up(self, which, form, iterations, allow_unused):
        """Runs one eagerly, forward and backward, on the current stream: hundreds of launches on another one
        would slow all graphs of the process down (reprise.restore_pace)."""
        torch, fn, known = self.torch, self.callables[which], self.kept[which]
        args, kwargs = self.samples[self._sample_of(which, form)]
        wanted = [leaf for leaf in form.leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if isinstance(fn, torch.nn.Module):
            wanted += [p for p in fn.parameters() if p.requires_grad]
        delays = self.delays.get(which)
        allow_unused = allow_unused or delays is not None
        for turn in range(iterations):
            self.hooks.run(which, "forward_pre_hooks")
            out = self._called(which, known, args, kwargs)
            self.hooks.run(which, "forward_hooks")
            out = [o for o in flatten(out)[0] if isinstance(o, torch.Tensor) and o.requires_grad]
            if out and wanted:
                is_last = delays is not None and turn == iterations - 1 and turn > 0
                new = torch.zeros_like if is_last else torch.empty_like
                self.hooks.run(which, "backward_pre_hooks")
                torch.autograd.grad(out, wanted, [new(o) for o in out], allow_unused=allow_unused)
                self.hooks.run(which, "backward_hooks")
                if delays is not None:
                    delays.learn() if is_last else delays.compute()

    def _called(self, which, known, args, kwargs):
        fn, quantized = self.callables[which], self.quantized
        if quantized is None:
            return known.warm_up(fn, args, kwargs) if known else fn(*args, **kwargs)
        run = quantized.functions(self.callables)[which]
        with quantized.noted(which):
            return known.warm_up(run, args, kwargs) if known else run(*args, **kwargs)

    def _sample_of(self, which, form):
        return next(at for place, at in self.plan.samples.items()
                    if place[0] == which and self.forms[place] is form)

    # ---- Captures ----

    def _new_split(self, place, cpu, may_draw, allow_unused):
        torch, which = self.torch, place[0]
        fn, form = self.callables[which], self.forms[place]
        modules = list(fn.modules()) if isinstance(fn, torch.nn.Module) else []
        aliases = Aliases(torch, modules, list(fn.parameters()) if modules else [])
        attempt = cpu.attempt(self.device, None, (), False)
        body = body_of(torch, aliases.around(self.bodies[which]), form.leaves, form.spec, True, cpu=attempt)
        tensors = [leaf for leaf in form.leaves if isinstance(leaf, torch.Tensor)]
        delays = self.delays.get(which)
        made = (Split if delays is None else DelayedSplit)(
            torch, self.device, body, tensors, aliases, self.generators, allow_unused or delays is not None,
            Pair(cpu, self.device, attempt), may_draw)
        if delays is not None:
            made.delays, made.allows_unused = delays, allow_unused
        return made

    def _capture(self, pool, may_draw, allow_unused):
        cpu = CpuValues(self.torch, any(map(is_compiled, self.callables)))
        is_last = {(p.callable, p.microbatch) for p in self.plan.passes if not p.backward}

        def forward(place, name):
            split = self._new_split(place, cpu, may_draw, allow_unused)
            with _clearing():
                try:
                    split.capture_forward(pool, name)
                except Open as error:
                    raise Refused(UNKNOWN.format(name, tuple(error.leaves[0].shape))) from error
            return split

        def backward(split, name):
            with _clearing():
                split.capture_backward(pool, name)

        try:
            for which, microbatch, goes_back, is_of_weights in self.plan.passes:
                place = (which, microbatch)
                name = self.names[which] + (f"[{microbatch}]" if self.ordered else "")
                if is_of_weights:
                    with _clearing():
                        self.splits[place].capture_weights(pool, name)
                    is_last.discard(place)
                    if self.ordered:
                        self.splits[place].release()
                    continue
                if not goes_back:
                    self.hooks.run(which, "forward_pre_hooks")
                    self.splits[place] = cpu.moving(functools.partial(forward, place, name))
                    self.hooks.run(which, "forward_hooks")
                    continue
                split = self.splits[place]
                self.hooks.run(which, "backward_pre_hooks")
                cpu.moving(functools.partial(backward, split, name))
                self.hooks.run(which, "backward_hooks")
                split.values.give(split, _never)
                split.values = None
                if which in self.delays:
                    continue
                is_last.discard(place)
                if self.ordered:
                    split.release()
        finally:
            for place in is_last:  # of those whose backward pass was not captured
                if place in self.splits:
                    self.splits[place].drop_runs()
        for split in self.splits.values():
            split.let_go()


@contextlib.contextmanager
def _clearing():
    """What fails holds no memory of a capture that a second attempt follows."""
    try:
        yield
    except BaseException as error:
        clear_frames(error)
        raise


def _never(tensor):
    """Is this tensor on the CPU compared by a key? Calls have none."""
    return False
