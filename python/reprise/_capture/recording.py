# SPDX-License-Identifier: MIT
"""reprise.record: what a capture allocates, as a file that `reprise plan` reads.

A callable is captured once, on PyTorch's own terms, and thrown away. Written down are the graph's nodes
and edges, and each allocation, use and free of a tensor's memory with the terminals of its streams: the
nodes that what comes next will depend on. Where these come from:

    install()   the hooks of the allocator tell of each, at its moment (python/csrc/alloc/tap.c)
    without     PyTorch's memory history has each, in order, but not when in the graph. So a dispatch mode
                takes a moment before and behind each operator, and marks it in the history by an
                allocation. What lies between two moments began at the earlier and ended at the later: a
                block may look alive for an operator longer than it is, and never shorter
"""

import contextlib
import gc
import gzip
import json
import os

from .. import _C
from .._alloc.install import is_installed
from .._base import torch_private
from .._base.need import need_gpu
from .._base.outfile import write_file
from .._base.texts import plain
from .._base.tree import flatten
from . import workspaces
from .once import graph

_ALLOC, _USE, _FREE, _MOMENT = range(4)
_KINDS = ("kernel", "memcpy", "memset", "host", "graph", "empty", "wait_event", "event_record",
          "semaphore_signal", "semaphore_wait", "mem_alloc", "mem_free", "batch_mem_op", "conditional")
_PROGRAMMATIC = 1
_MARK = 509  # bytes of the allocations that mark moments


class Recording:
    """Captures that :func:`reprise.record` made, alternatives of each other: they share one pool, and
    never run at the same time.

    Attributes:
        captures (list of dict): As `reprise-capture/1` has them (docs/formats.md).
    """

    def __init__(self):
        self.captures = []

    def add(self, fn, *args, name=None, warmup=1):
        """Records one more capture; arguments as for :func:`reprise.record`.

        Returns:
            Recording: This one.
        """
        torch = need_gpu()
        name = plain(name or f"{_name_of(fn)} {len(self.captures) + 1}")
        if any(capture["name"] == name for capture in self.captures):
            raise ValueError(f"there is a capture '{name}' already: give another name")
        self.captures.append({"name": name, **_record(torch, fn, args, warmup)})
        return self

    def write(self, path):
        """Writes `reprise-capture/1`, compressed where the path ends in `.gz`. A file that is there is
        replaced when all is written."""
        torch = need_gpu()
        text = json.dumps({"format": "reprise-capture/1",
                           "source": f"torch {torch.__version__}, {torch.cuda.get_device_name()}",
                           "captures": self.captures}, separators=(",", ":")).encode()
        write_file(path, gzip.compress(text) if os.fspath(path).endswith(".gz") else text)

    def __repr__(self):
        blocks = sum(event[0] == "alloc" for capture in self.captures for event in capture["events"])
        nodes = sum(len(capture["nodes"]) for capture in self.captures)
        return f"<reprise.Recording: {len(self.captures)} captures, {nodes} nodes, {blocks} blocks>"


def record(fn, *args, name=None, warmup=1):
    """Records what a capture of ``fn(*args)`` allocates, for ``reprise plan``.

    The callable runs eagerly ``warmup`` times and is captured once, as PyTorch's documentation has it;
    the capture is thrown away. In a capture nothing runs: what it would have written is not there, and
    gradients are put back to what they were before it.

    Arguments:
        fn (callable): Not what :func:`reprise.graphed` returned, but what was given to it.
        args: Of the call. Their device is captured on, or else the current one.
        name (str, optional): Of the capture. Default: the callable's and a number.
        warmup (int): Eager runs before, so that what is created lazily exists. Default: 1.

    Returns:
        Recording: With :meth:`~Recording.add` for more captures, as alternatives, and
        :meth:`~Recording.write`. Under :func:`reprise.install` each block has its exact moments;
        without it they are exact to one operator of PyTorch, and what is planned holds as well.

    Raises:
        RuntimeError: The work cannot be captured, or PyTorch's memory history is recorded by somebody.

    Example::

        recording = reprise.record(model, batch8, name="8")
        recording.add(model, batch1, name="1").write("model.json.gz")
        # reprise plan --capacity 2GiB --draw model.svg model.json.gz
    """
    return Recording().add(fn, *args, name=name, warmup=warmup)


def _first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _name_of(fn):
    return getattr(fn, "__name__", None) or type(fn).__name__


# ---- The capture ----


def _device_of(torch, args):
    found = next((x.device for x in flatten(args)[0]
                  if isinstance(x, torch.Tensor) and x.is_cuda), None)
    return found if found is not None else torch.device("cuda", torch.cuda.current_device())


class _Gradients:
    """Puts back which tensors are whose gradients."""

    def __init__(self, torch):
        leaves = [x for x in gc.get_objects()
                  if issubclass(type(x), torch.Tensor) and x.requires_grad and x.is_leaf]
        self.before = [(x, x.grad) for x in leaves]

    def put_back(self):
        for leaf, gradient in self.before:
            if leaf.grad is not gradient:
                leaf.grad = gradient


def _record(torch, fn, args, warmup):
    device = _device_of(torch, args)
    with torch.cuda.device(device):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(warmup):
                fn(*args)
        torch.cuda.synchronize()
        source = _Hooks(torch) if is_installed() else _History(torch)
        return _describe(_capture(torch, fn, args, device, stream, source), source.events())


def _capture(torch, fn, args, device, stream, source):
    """The nodes and edges; the source has the rest. The workspaces of cuBLAS are dropped before, so
    that they are the capture's, as where it is captured on a stream of its own."""
    workspaces.drop(torch, stream)
    gradients = _Gradients(torch)
    made = torch.cuda.CUDAGraph()
    facts, result, failed = None, None, None
    try:
        with source, graph(made, stream=stream, capture_error_mode="thread_local"):
            try:
                with source.taken(device.index, stream):
                    result = fn(*args)
            except Exception as error:  # ending the capture says less
                failed = error
                raise
            facts = _C.record_graph(device.index, stream.cuda_stream)
    except Exception:
        if failed is None:
            raise
        raise RuntimeError(f"the capture that was to be recorded failed: {_first_line(failed)}; "
                           "reprise.check(fn, *args) names what stands in the way, by line") from failed
    finally:
        gradients.put_back()
        del result
        made.reset()
    return facts


class _Hooks:
    """Reprise's allocator tells of all by itself."""

    def __init__(self, torch):
        self.noted = []

    def __enter__(self):
        pass

    def __exit__(self, *error):
        pass

    @contextlib.contextmanager
    def taken(self, ordinal, stream):
        _C.record_begin(ordinal, stream.cuda_stream)
        try:
            yield
        finally:
            self.noted = _C.record_end()

    def events(self):
        return self.noted


class _History:
    """PyTorch's allocator has a history; moments of the graph are marked in it."""

    def __init__(self, torch):
        self.torch = torch
        self.ordinal = None
        self.moments = []  # (address of the mark, number, uses so far)
        self.uses = []  # (address, stream)
        self.noted, self.entries = [], []
        self.private = torch_private.of(torch)
        self.private.need(torch_private.RECORDING)
        if self.private.history_is_on():
            raise RuntimeError("PyTorch's memory history is being recorded: end that first, with "
                               "torch.cuda.memory._record_memory_history(enabled=None)")

    def __enter__(self):
        self.private.keep_history(enabled="all", context=None, stacks="python")

    def __exit__(self, *error):
        self.private.keep_history(enabled=None)

    @contextlib.contextmanager
    def taken(self, ordinal, stream):
        self.ordinal = ordinal
        _C.record_begin(ordinal, stream.cuda_stream)
        try:
            with _mode_class(self.torch, self.private.dispatch_mode)(self):
                self.moment()
                yield
            self.moment()
            self.entries = self.private.history()["device_traces"][ordinal]
        finally:
            self.noted = _C.record_end()

    def moment(self):
        memory = self.torch.cuda.memory
        stream = self.torch.cuda.current_stream(self.ordinal)
        number = _C.record_moment(stream.cuda_stream)
        mark = memory.caching_allocator_alloc(_MARK, self.ordinal, stream)
        memory.caching_allocator_delete(mark)
        self.moments.append((mark, number, len(self.uses)))

    def use(self, tensor, stream):
        self.uses.append((tensor.untyped_storage().data_ptr(), stream))

    def events(self):
        """As the hooks would have told: an allocation at the moment before it, a free at the one
        behind it."""
        found, at, told = [], -1, 0
        for entry in self.entries:
            action, address = entry["action"], entry["addr"]
            upcoming = self.moments[at + 1] if at + 1 < len(self.moments) else None
            if action == "alloc" and upcoming and (address, entry["size"]) == (upcoming[0], _MARK):
                at += 1
                found += [(_USE, used, 0, stream, self._terminals(at))
                          for used, stream in self.uses[told:upcoming[2]]]
                told = upcoming[2]
            elif action == "alloc" and 0 <= at < len(self.moments) - 1:
                found.append((_ALLOC, address, entry["size"], entry["stream"], self._terminals(at)))
            elif action == "free_requested" and 0 <= at < len(self.moments) - 1:
                found.append((_FREE, address, entry["size"], 0, self._terminals(at + 1)))
        if at + 1 != len(self.moments):
            raise _C.Error("PyTorch's memory history does not have all that was allocated: it has "
                           f"{at + 1} of {len(self.moments)} marks")
        return found

    def _terminals(self, at):
        return self.noted[self.moments[at][1]][4]


def _mode_class(torch, dispatch_mode):
    class Moments(dispatch_mode):
        """Takes a moment before and behind each operator, those of a backward pass too."""

        def __init__(self, history):
            super().__init__()
            self.history = history

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.history.moment()
            result = func(*args, **(kwargs or {}))
            if func is torch.ops.aten.record_stream.default:
                self.history.use(args[0], _handle_of(torch, args[1]))
            self.history.moment()
            return result

    return Moments


def _handle_of(torch, stream):
    return torch.cuda.Stream(stream_id=stream.stream_id, device_index=stream.device_index,
                             device_type=stream.device_type).cuda_stream


# ---- The file ----


def _describe(facts, noted):
    nodes, edges = facts
    index = {handle: number for number, (handle, _) in enumerate(nodes)}
    streams, alive, events = {}, {}, []
    made = 0
    for kind, address, size, stream, pairs in noted:
        terminals = {}
        for of, node in pairs:
            terminals.setdefault(of, []).extend([index[node]] if node else [])
        if kind == _ALLOC and stream in terminals:
            alive[address] = (made, [stream])
            events.append(["alloc", made, size, streams.setdefault(stream, len(streams)),
                           terminals[stream]])
            made += 1
        elif kind == _USE and address in alive:
            block, used_by = alive[address]
            if stream not in used_by:
                used_by.append(stream)
            events.append(["use", block, streams.setdefault(stream, len(streams))])
        elif kind == _FREE and address in alive:
            block, used_by = alive.pop(address)
            events.append(["free", block, streams[used_by[0]], _union(terminals, used_by)])
    return {"nodes": [_kind_of(kind) for _, kind in nodes],
            "edges": [[index[u], index[v]] + ["programmatic"] * (type_ == _PROGRAMMATIC)
                      for u, v, type_ in edges],
            "streams": max(len(streams), 1), "events": events}


def _kind_of(number):
    return _KINDS[number] if number < len(_KINDS) else f"kind {number}"


def _union(terminals, streams):
    """The terminals of all of them; none where one of them is in no capture, or has begun with none:
    then nothing says when it is done."""
    if not all(terminals.get(stream) for stream in streams):
        return []
    return sorted({node for stream in streams for node in terminals[stream]})
