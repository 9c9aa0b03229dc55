# SPDX-License-Identifier: MIT
"""torch.cuda.memory._record_memory_history and _snapshot over Reprise's heaps.

What is here answers the functions of torch._C that PyTorch's own call, with their arguments. The form of
a snapshot is that of PyTorch's allocator with expandable segments, key by key, so that
torch.cuda._memory_viz and pytorch.org/memory_viz read it. Heaps keep the events; stacks are gathered
by PyTorch, and put into words where a snapshot is taken.
"""

from .. import _C
from .._base import torch_private
from .._base.warn import warn

NO_STACKS, OF_BLOCKS, OF_ALLOCATIONS, ALL = range(4)  # enum rp_heap_stacks
_STACKS = {None: NO_STACKS, "state": OF_BLOCKS, "alloc": OF_ALLOCATIONS, "all": ALL}
# Bits of what is not kept. Memory is mapped here where PyTorch's allocator makes a segment.
_EVENTS = {"alloc": 0, "free_requested": 1, "free_completed": 2, "segment_map": 3, "segment_alloc": 3,
           "segment_unmap": 4, "segment_free": 4, "snapshot": 5, "oom": 6}
MOST_ENTRIES = (1 << 63) - 1


def _one_of(value, allowed, names):
    if value not in allowed:
        raise RuntimeError(f"expected {names}")


class History:
    """What the process records of the memory of all its devices."""

    def __init__(self, torch, settings):
        from . import checkpoints  # it needs PyTorch
        self.of_graphs = checkpoints.segments
        self.torch = torch
        self.settings = settings
        self.private = torch_private.of(torch)
        self.on = False
        self.pytorchs = torch_private.native(torch, torch_private.HISTORY_NAMES[0])
        self.regions = False  # does PyTorch tell of compiled ones?
        self.marks = [""]  # metadata by the mark that events have
        self.marked = {"": 0}
        self.metadata = ""

    def _devices(self):
        self.torch.cuda.init()
        return range(self.torch.cuda.device_count())

    def _tell_regions(self, wanted):
        """Has PyTorch tell of compiled regions, as for its own history, or not; are they told of?"""
        self.torch.cuda.init()  # PyTorch's does, too
        for further in ((), (False, True)):  # which later versions have
            if wanted == self.regions or self.pytorchs is None:
                break
            try:
                if _C.call_for_regions(self.pytorchs, ("all" if wanted else None, None, "python", 1, False,
                                                       wanted, False, [], *further)):
                    self.regions = wanted
            except TypeError:
                continue
        return self.regions

    def _keep(self, entries, stacks, cpp, forget, skip_actions):
        if stacks != NO_STACKS and torch_private.STACKS in self.private.off:
            warn(self.private.off[torch_private.STACKS])
            stacks = NO_STACKS
        bits = 0
        for name in skip_actions or ():
            if name in _EVENTS:
                bits |= 1 << _EVENTS[name]
        gather = None if stacks == NO_STACKS else self.private.gather_traceback
        if self.regions and stacks == NO_STACKS:
            stacks = ALL  # of which nothing but the region is gathered
        for device in self._devices():
            _C.keep_history(device, min(entries, MOST_ENTRIES), stacks, bits, not forget, gather, cpp,
                            self.regions)
        self.on = entries > 0

    def record(self, enabled, context=None, stacks="all", max_entries=MOST_ENTRIES, clear_history=False,
               compile_context=False, global_record_annotations=False, skip_actions=None,
               record_pinned_host_memory=False, record_cuda=True, *further):
        """torch._C._cuda_record_memory_history: from here on; enabled: "all", "state" or None."""
        _one_of(enabled, (None, "state", "all"), "state to be 'state', 'all', or None")
        _one_of(context, _STACKS, "context to be 'state', 'alloc', 'all', or None")
        _one_of(stacks, ("python", "all"), "stacks to be 'python', or 'all'")
        _pinned_needs(enabled is not None, record_pinned_host_memory)
        told = self._tell_regions(bool(enabled and compile_context))
        _say_what_is_missing(compile_context and enabled and not told, global_record_annotations,
                             record_pinned_host_memory,
                             self.private.further_of_history("_record_memory_history_impl", 10, further))
        if enabled is None or not record_cuda:
            return self._keep(0, NO_STACKS, False, True, ())
        entries = max(1, max_entries) if enabled == "all" else 1
        return self._keep(entries, _STACKS[context], stacks == "all", clear_history, skip_actions)

    def record_as_before(self, enabled, record_context=True, trace_alloc_max_entries=1,
                         trace_alloc_record_context=False, record_cpp_context=False, clear_history=False,
                         compile_context=False, global_record_annotations=False, skip_actions=None,
                         record_pinned_host_memory=False, record_cuda=True, *further):
        """torch._C._cuda_record_memory_history_legacy, whose first argument is True or False."""
        _pinned_needs(enabled, record_pinned_host_memory)
        told = self._tell_regions(bool(enabled and compile_context))
        _say_what_is_missing(compile_context and enabled and not told, global_record_annotations,
                             record_pinned_host_memory,
                             self.private.further_of_history("_record_memory_history_legacy", 11, further))
        if not enabled or not record_cuda:
            return self._keep(0, NO_STACKS, False, True, ())
        stacks = (OF_ALLOCATIONS if trace_alloc_record_context else
                  OF_BLOCKS if record_context else NO_STACKS)
        return self._keep(max(1, trace_alloc_max_entries), stacks, record_cpp_context, clear_history,
                          skip_actions)

    def is_on(self):
        return self.on

    def set_metadata(self, text):
        """Events from here on have this text."""
        mark = self.marked.setdefault(text, len(self.marks))
        if mark == len(self.marks):
            self.marks.append(text)
        self.metadata = text
        for device in self._devices():
            _C.mark_history(device, mark)

    def get_metadata(self):
        return self.metadata

    def snapshot(self, asked=None):
        """torch._C._cuda_memorySnapshot: of all devices. asked: None, or the two numbers of a pool's id,
        0 for all, and, from PyTorch 2.11 on, whether events are wanted."""
        asked = tuple(asked or ())
        pool, traces = asked[:2], all(asked[2:3])
        whole = {"segments": [], "device_traces": [], "allocator_settings": self.settings.shown(),
                 "external_annotations": []}
        if self.private.history_of_host:  # which is not recorded here
            whole["host_segments"], whole["host_traces"] = [], []
            whole["allocator_settings"].update(self.settings.shown_of_pinned())
        wanted = []
        for device in self._devices():
            segments, events, wanted_here = _C.heap_look(device, traces, self.marks,
                                                         self.private.history_of_host)
            whole["segments"] += segments + self.of_graphs(device)
            whole["device_traces"].append(events)
            wanted += wanted_here
        if any(pool):
            whole["segments"] = [s for s in whole["segments"] if s["segment_pool_id"] == pool]
        self._fill_in(wanted)
        return whole

    def _fill_in(self, wanted):
        """Puts stacks into words, each once."""
        if not wanted:
            return
        stacks = {id(stack): stack for _, stack in wanted}
        frames = dict(zip(stacks, self.private.symbolize_tracebacks(list(stacks.values()))))
        for holder, stack in wanted:
            holder["frames"] = frames[id(stack)]


def _pinned_needs(enabled, pinned):
    if pinned and not enabled:
        raise RuntimeError("record_pinned_host_memory requires memory history recording to be enabled")


def _say_what_is_missing(compile_context, annotations, pinned, further):
    names = [name for name, asked in (("compile_context", compile_context),
                                      ("global_record_annotations", annotations),
                                      ("record_pinned_host_memory", pinned)) if asked] + further
    if names:
        warn(f"{' and '.join(names)} of torch.cuda.memory._record_memory_history need PyTorch's own "
             "allocator: the history goes without")
