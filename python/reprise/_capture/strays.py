# SPDX-License-Identifier: MIT
"""Work on streams that a capture does not include, which a graph would leave out in silence, and events that it
records for others.

A stream that waits for the capture's is part of it, as PyTorch's documentation has it. Work on any other one runs
at once and once: what it wrote is a constant of the graph, often of memory that is freed. So a run is refused as it
leaves such a stream, and the caller's own stream, which is the current one in eager calls, is the capture's.

An event that a capture records joins streams within it. Outside it cannot be waited for: CUDA refuses that, in the
program's own call. So a run is refused that records an event, waits for it nowhere, and leaves it to somebody.

While runs last, functions stand for what sets the current stream: those that torch.cuda.set_stream,
torch.cuda.stream and torch.accelerator.set_stream call, and the methods by which a torch.cuda.Stream is a context itself. So do some for what records
an event or waits for one. What C++ sets and records is not seen, nor a torch.Event, nor a plain torch.Stream that is a context.
"""

import functools
import sys
import threading

from .. import _C
from .._base import torch_private
from .._base.lines import take_stack

_SET, _SET_ANY = "_cuda_setStream", "_accelerator_setStream"
_lock = threading.Lock()
_active: dict[int, list] = {}  # by thread: its runs, the innermost last
_originals: list = []  # of torch.cuda.Event, while there are any: record, wait


class Watch:
    """Those of one run, on its thread. stream: the capture's; before: the caller's, as current() names it."""

    def __init__(self, torch, stream, before):
        self._torch = torch
        self._stream = _name(stream)
        self.device_type = stream.device_type
        self._handle = stream.cuda_stream
        self._before = before
        self._outer = []  # of streams that are contexts: what was current before each
        self._events = {}  # that were recorded and that no stream waited for: [event, frame's line] by id

    def set(self, wanted, frame):
        """What to set where the program wants a stream; the error where it leaves one that is not captured."""
        self.leave(frame)
        return self._stream if wanted == self._before else wanted

    def leave(self, frame):
        """Raises where the current stream is none of the capture's. frame: who sets another one."""
        here = current(self._torch, self._stream[1])
        if here != self._stream and not self._is_captured(here):
            raise _C.Error("it works on a stream that does not wait for the current one (at "
                           f"{take_stack(frame).frames[0]}), and a graph would leave that work out. Call "
                           "side.wait_stream(torch.cuda.current_stream()) ahead of it, and "
                           "torch.cuda.current_stream().wait_stream(side) behind it")

    def nodes(self):
        return _C.capture_status(self._stream[1], self._handle)[1]

    def recorded(self, event, nodes, frame):
        """nodes: how many there were. An event with external=True is a node, which replays record."""
        if self.nodes() == nodes:
            self._events[id(event)] = [event, take_stack(frame).frames[0]]

    def waited(self, event):
        self._events.pop(id(event), None)

    def finish(self, frame):
        """What is left behind as a run ends well: raises where that is a stream or an event that others have."""
        self.leave(frame)
        events, self._events = list(self._events.values()), {}
        only_here = 2  # the list's reference, and getrefcount's
        for event_and_line in events:
            if sys.getrefcount(event_and_line[0]) > only_here:
                raise _C.Error(f"it records an event that it does not wait for itself (at {event_and_line[1]}), and "
                               "a replay would not record it. Record it outside of the call")

    def _is_captured(self, name):
        handle = self._torch.cuda.Stream(stream_id=name[0], device_index=name[1], device_type=name[2]).cuda_stream
        return handle != 0 and _C.capture_status(name[1], handle)[0]

    def enter(self, stream, put, frame):
        self._outer.append(current(self._torch, self._stream[1]))
        _put(put, self.set(_name(stream), frame))

    def exit(self, put, frame):
        _put(put, self.set(self._outer.pop(), frame))


def current(torch, index):
    """A device's current stream on this thread: its number, the device's, and the kind of device. None where PyTorch
    does not tell."""
    private = torch_private.of(torch)
    return None if private.set_stream is None else tuple(private.get_stream(index))


def _name(stream):
    return stream.stream_id, stream.device_index, stream.device_type


def _put(put, name):
    put(stream_id=name[0], device_index=name[1], device_type=name[2])


def _here():
    runs = _active.get(threading.get_ident())
    return runs[-1] if runs else None


def _replace(torch):
    """Functions in the place of PyTorch's; other threads, and this one between its runs, get what they stand for."""
    private = torch_private.of(torch)
    put, kind = private.set_stream, torch.cuda.Stream

    def set_stream(stream_id, device_index, device_type):
        watch, wanted = _here(), (stream_id, device_index, device_type)
        _put(put, wanted if watch is None else watch.set(wanted, sys._getframe(1)))

    def enter(self):
        watch = _here()
        if watch is None:
            return super(kind, self).__enter__()
        watch.enter(self, put, sys._getframe(1))
        return self

    def leave(self, *error):
        watch = _here()
        if watch is None:
            return super(kind, self).__exit__(*error)
        watch.exit(put, sys._getframe(1))
        return None

    def set_any_stream(stream):
        watch = _here()
        if watch is None or stream.device_type != watch.device_type:
            private.set_any_stream(stream)
        else:
            _put(put, watch.set(_name(stream), sys._getframe(1)))

    torch_private.put_native(torch, _SET, set_stream)
    if private.set_any_stream is not None:
        torch_private.put_native(torch, _SET_ANY, set_any_stream)
    if hasattr(kind, "__enter__"):
        kind.__enter__, kind.__exit__ = enter, leave
    _replace_events(torch.cuda.Event)


def _replace_events(kind):
    record, wait = _originals[:] = vars(kind)["record"], vars(kind)["wait"]

    @functools.wraps(record)
    def recording(self, *args, **kwargs):
        watch = _here()
        nodes = 0 if watch is None else watch.nodes()
        record(self, *args, **kwargs)
        if watch is not None:
            watch.recorded(self, nodes, sys._getframe(1))

    @functools.wraps(wait)
    def waiting(self, *args, **kwargs):
        wait(self, *args, **kwargs)
        watch = _here()
        if watch is not None:
            watch.waited(self)

    kind.record, kind.wait = recording, waiting


def _put_back(torch):
    kind, private = torch.cuda.Stream, torch_private.of(torch)
    torch_private.put_native(torch, _SET, private.set_stream)
    if private.set_any_stream is not None:
        torch_private.put_native(torch, _SET_ANY, private.set_any_stream)
    for name in ("__enter__", "__exit__"):
        if name in vars(kind):
            delattr(kind, name)
    torch.cuda.Event.record, torch.cuda.Event.wait = _originals


def begin(torch, stream, before):
    """From now on this thread's streams are looked at. before: current() ahead of the capture. The Watch; None where
    PyTorch has no such functions."""
    if before is None:
        return None
    watch = Watch(torch, stream, before)
    with _lock:
        if not _active:
            _replace(torch)
        _active.setdefault(threading.get_ident(), []).append(watch)
    return watch


def end(torch):
    """Ends what this thread's last begin began."""
    here = threading.get_ident()
    with _lock:
        runs = _active.get(here)
        if runs:
            runs.pop()
            if not runs:
                del _active[here]
            if not _active:
                _put_back(torch)
