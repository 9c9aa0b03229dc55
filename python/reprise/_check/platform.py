# SPDX-License-Identifier: MIT
"""What an observed run does to a CUDA device beside its operators.

PyTorch's Python entry points are replaced while a run is observed, and put back after it: waits and
queries, events (who waits for whom), the states of generators, optimizers' steps, data loaders.
Streams are compared by vector clocks: each counts its own work, and carries what it has waited for.
"""

import contextlib
import functools
import os
import sys
import threading

from .. import _C
from .._base import torch_private
from .._base.lines import take_stack

_WAITS = ("synchronize", "Stream.synchronize", "Stream.query", "Event.synchronize", "Event.query",
          "Event.elapsed_time")
_STATES = ("get_rng_state", "set_rng_state", "get_rng_state_all", "set_rng_state_all",
           "manual_seed", "manual_seed_all", "seed", "seed_all")


def _loaded(library):
    """The path of a library that this process has loaded; None: it has not."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for row in maps:
            path = row.rstrip("\n").partition("/")
            if os.path.basename(path[2]).startswith(library):
                return path[1] + path[2]
    return None


class Streams:
    """Who waits for whom among the streams of a run. Streams are raw handles; 0 is the default one."""

    def __init__(self, origin):
        self.origin = origin
        self.clocks = {origin: {origin: 1}}
        self.events = {}
        self.last = {}  # by side stream: the stack of its last work

    def is_forked(self, stream):
        """Does it come behind the origin's beginning?"""
        return self.origin in self.clocks.get(stream, ())

    def work(self, stream, stack):
        """Notes work; the kind of obstacle that it is, or None."""
        if stream == self.origin:
            return None
        if stream == 0:
            return "legacy-stream"
        if not self.is_forked(stream):
            return "outside-stream"
        clock = self.clocks[stream]
        clock[stream] = clock.get(stream, 0) + 1
        self.last[stream] = stack
        return None

    def record(self, event, stream):
        self.events[id(event)] = (event, dict(self.clocks.get(stream, {})))

    def wait(self, event, stream):
        """Notes a wait; False: a captured stream waits for what is not captured."""
        waited = self.events.get(id(event), (None, {}))[1]
        if self.origin not in waited:
            return not self.is_forked(stream)
        clock = self.clocks.setdefault(stream, {})
        for other, count in waited.items():
            clock[other] = max(clock.get(other, 0), count)
        return True

    def unjoined(self):
        """The stacks of the last work on streams that the origin does not wait for."""
        done = self.clocks[self.origin]
        return [stack for stream, stack in self.last.items()
                if self.clocks[stream][stream] > done.get(stream, 0)]


class Cuda:
    """The platform of an Observer: one CUDA device."""

    type = "cuda"

    def __init__(self, torch, device):
        self.torch = torch
        self.device = device

    # ---- State ----

    def current(self):
        return torch_private.of(self.torch).raw_stream(self.device.index)

    def knows(self, generator, named):
        """Is a generator the default one, or named by the caller?"""
        defaults = self.torch.cuda.default_generators  # operators see other objects around the same
        return any(generator._cdata == known._cdata for known in (*defaults, *named))

    def random_state(self):
        torch = self.torch
        return (torch.get_rng_state(), torch.cuda.get_rng_state(self.device))

    def set_random_state(self, state):
        self.torch.set_rng_state(state[0])
        self.torch.cuda.set_rng_state(state[1], self.device)

    def foreign_bytes(self):
        """Device memory in use that PyTorch's allocator did not take."""
        free, total = self.torch.cuda.mem_get_info(self.device)
        return total - free - self.torch.cuda.memory_reserved(self.device)

    def is_broken(self):
        """Is the capture on the current stream broken?"""
        return _C.capture_status(self.device.index, self.current())[0] == 2

    def captured_nodes(self):
        """How many nodes the capture on the current stream has; 0 where there is none."""
        return _C.capture_status(self.device.index, self.current())[1]

    def watch_refusals(self):
        """From here on the first call that the driver refuses in a capture is noted, whoever makes
        it; not where CUPTI is not loaded or a profiler has it."""
        library = _loaded("libcupti.so")
        return library is not None and _C.watch_refusals(library)

    def end_refusals(self):
        """(function, code) of that call, or None."""
        return _C.end_refusals()

    def driver_allocations(self):
        """How many calls of this process may have taken memory of the device, since watch_refusals()."""
        return _C.driver_allocations()

    def strays(self):
        """Allocations during the last capture that were not of its streams."""
        return _C.call_counts()[1]

    @contextlib.contextmanager
    def beside(self):
        """On a stream beside the current one, as captures are."""
        torch = self.torch
        before = torch.cuda.current_stream(self.device)
        side = torch.cuda.Stream(self.device)
        side.wait_stream(before)
        with torch.cuda.stream(side):
            yield
        before.wait_stream(side)

    # ---- Observing ----

    def enter(self, observer):
        torch = self.torch
        self.streams = Streams(self.current())
        self.undo = []
        try:
            self._watch_waits(observer)
            self._watch_events(observer)
            self._watch_random(observer)
            self._watch_others(observer)
            mode = torch.cuda.get_sync_debug_mode()
            torch.cuda.set_sync_debug_mode("warn")
            self.undo.append(lambda: torch.cuda.set_sync_debug_mode(mode))
        except BaseException:
            self._put_back()
            raise

    def _put_back(self):
        while self.undo:
            self.undo.pop()()

    def leave(self, observer):
        self._put_back()
        for stack in self.streams.unjoined():
            from ..mends import joined
            observer.note("unjoined-stream", "work on a side stream", stack=stack, fix=joined)

    def worked(self, observer, name, stack):
        """An operator was enqueued. Autograd joins the streams of a backward pass by itself, but not
        with the default one, on which nodes that accumulate gradients may have been made."""
        if torch_private.of(self.torch).task_id() != -1:
            if self.current() == 0:
                observer.note("grad-stream", "backward", stack=stack)
            return
        kind = self.streams.work(self.current(), stack)
        if kind:
            observer.note(kind, observer.operation(name), stack=stack)

    def _replace(self, owner, name, around):
        """Puts around(original, *args, **kwargs) in the place of owner.name."""
        original = getattr(owner, name)
        own = name in vars(owner)

        @functools.wraps(original)
        def replaced(*args, **kwargs):
            return around(original, *args, **kwargs)

        setattr(owner, name, replaced)
        self.undo.append(lambda: setattr(owner, name, original) if own else delattr(owner, name))

    def _watch_waits(self, observer):
        cuda = self.torch.cuda
        owners = {"Stream": cuda.Stream, "Event": cuda.Event}
        for path in _WAITS:
            owner, _, name = path.rpartition(".")
            self._replace(owners.get(owner, cuda), name,
                          functools.partial(self._waited, observer, f"torch.cuda.{path}"))

    def _waited(self, observer, path, original, *args, **kwargs):
        from ..mends import unwaited
        if threading.get_ident() != observer.thread:
            stack = take_stack(sys._getframe(1))
            if not isinstance(threading.current_thread(), threading._DummyThread):
                observer.note("background-thread", path, stack=stack)
                return original(*args, **kwargs)
        name = path.rpartition(".")[2]
        observer.note("synchronisation", path, fix=unwaited if name == "synchronize" else None)
        observer.quiet += 1
        try:
            return original(*args, **kwargs)
        finally:
            observer.quiet -= 1

    def _watch_events(self, observer):
        def record(original, event, stream=None):
            original(event, stream)
            raw = self.current() if stream is None else stream.cuda_stream
            if threading.get_ident() == observer.thread:
                self.streams.record(event, raw)

        def wait(original, event, stream=None):
            original(event, stream)
            raw = self.current() if stream is None else stream.cuda_stream
            if threading.get_ident() == observer.thread and not self.streams.wait(event, raw):
                observer.note("outside-stream", "torch.cuda.Event.wait",
                              what="a stream of the region waits for work that is not captured",
                              mend="wait for outside work before the region")

        self._replace(self.torch.cuda.Event, "record", record)
        self._replace(self.torch.cuda.Event, "wait", wait)

    def _watch_random(self, observer):
        def touched(name, original, *args, **kwargs):
            stack = observer.stack()
            if observer.quiet == 0:
                if "checkpoint.py" in stack.through:
                    from ..mends import checkpointed
                    observer.note("checkpoint", "torch.utils.checkpoint", stack=stack,
                                  fix=checkpointed)
                else:
                    observer.note("random-state", name, stack=stack)
            observer.quiet += 1
            try:
                return original(*args, **kwargs)
            finally:
                observer.quiet -= 1

        torch = self.torch
        for name in _STATES:
            self._replace(torch.cuda, name, functools.partial(touched, f"torch.cuda.{name}"))
        for name in ("manual_seed", "seed"):
            self._replace(torch, name, functools.partial(touched, f"torch.{name}"))

    def _watch_others(self, observer):
        torch = self.torch

        def anomaly(original, enabled, check_nan=True):
            if enabled and check_nan:
                from ..mends import without_anomaly_checks
                observer.note("nan-check", "torch.autograd.detect_anomaly",
                              fix=without_anomaly_checks)
            return original(enabled, check_nan)

        def load(original, loader):
            if threading.get_ident() == observer.thread:
                observer.note("data-loader", "torch.utils.data.DataLoader")
            return original(loader)

        def step(optimizer, *_):
            if any(group.get("capturable") is False and
                   any(p.device.type == self.type for p in group["params"])
                   for group in optimizer.param_groups):
                from ..mends import capturable_fix
                observer.note("optimizer", f"{type(optimizer).__name__}.step",
                              fix=capturable_fix(optimizer))

        self._replace(torch, "set_anomaly_enabled", anomaly)
        data = torch.utils.data
        self._replace(data.DataLoader, "__iter__", load)
        self._replace(data.dataloader._BaseDataLoaderIter, "__next__", load)
        from torch.optim.optimizer import register_optimizer_step_pre_hook
        self.undo.append(register_optimizer_step_pre_hook(step).remove)
