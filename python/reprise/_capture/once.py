# SPDX-License-Identifier: MIT
"""reprise.graph: torch.cuda.graph with Reprise's memory.

PyTorch begins and ends such a capture, makes it launchable, replays it and keeps its generators. It
runs once, so its memory cannot be planned ahead: it is placed while the capture goes on, in C
(python/csrc/alloc/once.c), where the hooks of the allocator tell of it. So under install()
torch.cuda.graph itself has it too; what is here beside it is reprise.Pool as a pool, cuBLAS's
workspaces as memory of the graph, and a current stream that is put back when a capture fails.
"""

from .. import _C
from .._alloc.install import is_installed
from .._alloc.pool import Pool
from .._base import torch_private
from .._base.collector import uncollected
from .._base.need import need_gpu
from . import draws, workspaces
from .streams import side_stream


_side_streams: dict[int, object] = {}  # by the index of the device


def _side_stream(torch):
    """The stream of captures on the current device. torch.cuda.graph has one, of the device that was
    current at its first capture."""
    index = torch.cuda.current_device()
    if index not in _side_streams:
        _side_streams[index] = side_stream(torch, torch.device("cuda", index))
    return _side_streams[index]


class graph:
    """Context-manager that captures CUDA work into a :class:`torch.cuda.CUDAGraph` for later replay:
    a drop-in for :class:`torch.cuda.graph`.

    Under :func:`reprise.install` the memory of the capture comes from one of Reprise's pools: a block
    that is freed makes room for later ones of any stream as soon as the order of the captured work
    allows, blocks split and merge freely, and the pool grows only to what is needed. Without it the
    memory is PyTorch's, and this is :class:`torch.cuda.graph`.

    The capture runs once, and ``cuda_graph.replay()`` is PyTorch's: inputs and results are static
    tensors, which the caller copies into and out of. :func:`reprise.graphed` needs neither, and
    plans its memory.

    Arguments:
        cuda_graph (torch.cuda.CUDAGraph): Graph object used for capture.
        pool (optional): A :class:`reprise.Pool`, or what :class:`torch.cuda.graph` takes: a handle
            from :func:`torch.cuda.graph_pool_handle` or ``other_graph.pool()``. Graphs of one pool
            share its memory: tensors that are alive stay, what was freed makes room for the next.
            They must be replayed in the order of their captures, or such that none needs what a
            later one has overwritten, and never at the same time, but in a concurrent
            :class:`reprise.Pool`. Default: a pool of its own.
        stream (torch.cuda.Stream, optional): Is the current stream in the context. Default: a side
            stream of the current device that all captures on it share.
        capture_error_mode (str): ``"global"``, ``"thread_local"`` or ``"relaxed"``: what other
            threads may do during the capture. Default: ``"global"``.

    The device is synchronized before the capture, and Python's garbage collector is off in it: a
    graph that it deletes would end the capture. Nothing runs until the first replay, which is
    enqueued on the current stream. Memory goes back to the device once all graphs of a pool are
    deleted, no tensor of theirs is alive, and ``torch.cuda.empty_cache()`` or another capture comes.

    Raises:
        RuntimeError: The work cannot be captured; the current stream is again what it was.
        torch.OutOfMemoryError: The pool cannot grow to what the work needs.
        ValueError: The pool is of another device.

    Example::

        g = torch.cuda.CUDAGraph()
        with reprise.graph(g, pool=pool):
            static_output = model(static_input)
        static_input.copy_(batch)
        g.replay()
    """

    def __init__(self, cuda_graph, pool=None, stream=None, capture_error_mode="global"):
        torch = self._torch = need_gpu()
        if stream is None:
            stream = _side_stream(torch)
        own = pool if isinstance(pool, Pool) else None
        if own is not None:
            self._handle = own.handle
        else:
            self._handle = torch.cuda.graph_pool_handle() if pool is None else pool
        self._capture = torch.cuda.graph(cuda_graph, pool=self._handle, stream=stream,
                                         capture_error_mode=capture_error_mode)
        self._pool = own
        self._uncollected = uncollected()
        self.cuda_graph = cuda_graph
        self.capture_stream = self._capture.capture_stream
        device = self.capture_stream.device.index
        if own is not None and own.device != device:
            raise ValueError(f"the pool '{own.name}' is of device {own.device}, but the capture is "
                             f"on device {device}")

    def __enter__(self):
        torch = self._torch
        self._before = torch.cuda.current_stream()
        if is_installed():
            _C.sweep()
            self._clear_workspaces()  # so that the capture has ones of its own
            if self._pool is not None:
                self._pool.bind()  # it may have been let go since
        # A collection could delete graphs, which ends the capture.
        self._uncollected.__enter__()
        try:
            self._capture.__enter__()
        except BaseException:
            self._uncollected.__exit__()
            self._failed(ended=False)
            raise

    def __exit__(self, *args):
        if is_installed():
            self._clear_workspaces()  # and they are free within it
        try:
            self._capture.__exit__(*args)
        except BaseException:
            self._failed(ended=True)
            raise
        finally:
            self._uncollected.__exit__()
        # PyTorch fills a generator's words on the stream of the capture as it begins, and on the current
        # stream before a replay: the first are not to come last.
        self._before.wait_stream(self.capture_stream)

    def _clear_workspaces(self):
        torch_private.of(self._torch).need(torch_private.CAPTURES)
        workspaces.drop(self._torch, self.capture_stream)

    def _failed(self, ended):
        """Leaves stream, allocator and the default generator as if there had been no capture."""
        torch, device = self._torch, self.capture_stream.device
        torch.cuda.set_stream(self._before)
        draws.abandon(torch, device.index, self._handle, ended)
        draws.recover(torch, device)
