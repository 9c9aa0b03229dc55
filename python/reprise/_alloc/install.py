# SPDX-License-Identifier: MIT
"""Reprise's heap as PyTorch's CUDA allocator.

PyTorch lets a program put another allocator in the place of its own once, before CUDA is used.
The hooks are C functions (python/csrc/alloc/hooks.c). What PyTorch does not offer for such an allocator
(statistics, snapshots) is put back here under PyTorch's own names; what cannot be had is answered
with a sentence that says so.
"""

import atexit
import ctypes
import sys
import weakref

from .. import _C
from .._base import torch_private
from .._base.need import need_gpu_unused
from .._base.relaxed import relaxed
from .._base.warn import warn
from . import listeners, mempool
from .execs import budget_bytes
from .history import History
from .options import Settings, fraction_of, from_environment

_allocator = None  # PyTorch's object around the hooks, once installed
_history = None    # of its memory
_segments: list[object] = []     # the same for pools of PyTorch's
_immortal: list[object] = []     # pools that were let go and whose destructors may not run
_followers: list[object] = []    # what rooms above put in place of PyTorch's own with it


def is_installed():
    """Is Reprise's heap PyTorch's allocator?"""
    return _allocator is not None


def when_installed(follow):
    """Calls the function once the heap is installed."""
    _followers.append(follow)


class _Segments:
    """An allocator for a torch.cuda.MemPool, the pool that has it, and a reference to the run that has
    the pool. is_used: a pool that is gone may have left segments to tensors that are alive, or in
    PyTorch's cache."""

    def __init__(self, torch):
        _C.prepare()
        hooks = _C.hooks()
        self.torch = torch
        self.allocator = torch_private.of(torch).custom_allocator(hooks["segment"], hooks["free"])
        self.pool = self.owner = self.index = None
        self.is_used = False

    def take(self, owner):
        """A pool for the owner. Where destructors allow, it has a use besides the object."""
        torch, private = self.torch, torch_private.of(self.torch)
        self.is_used = True
        self.index = torch.cuda.current_device()
        self.pool = torch.cuda.MemPool(self.allocator)
        if not private.pools_have_one_use:
            private.begin_pool_here(self.index, self.pool.id)
            private.end_pool(self.index, self.pool.id)
        self.owner = weakref.ref(owner)
        return self.pool

    def is_left(self):
        """Is the owner gone, and has nobody else the pool?"""
        only_here = 2  # this reference, and getrefcount's
        return self.pool is not None and self.owner() is None and sys.getrefcount(self.pool) <= only_here

    def let_go(self):
        """Leaves the pool to PyTorch, which frees its memory when its cache is emptied. The destructor of one that
        has no other use frees memory itself: it ends the process where any thread allocates for a graph or from
        a pool. Before 2.11 it ends the process where there is another use, too: then the object stays for good."""
        private = torch_private.of(self.torch)
        known, self.pool, pool = self.pool.id, None, self.pool
        if private.pools_have_one_use:
            _immortal.append(pool)
        del pool
        private.release_pool(self.index, known)


def segment_pool(torch, owner):
    """A torch.cuda.MemPool that takes its segments through the hooks, for as long as its owner lives,
    and until drop_segment_pools after that. No other pool that is there has its allocator, which knows
    segments by their addresses: where a capture is taken once more, its record has those of the one before.
    Allocators are kept for good: a pool may give segments back when it is gone, and older versions of
    PyTorch know the allocator by its bare address."""
    free = next((s for s in _segments if not s.is_used), None)
    if free is None:
        free = _Segments(torch)
        _segments.append(free)
    return free.take(owner)


@atexit.register
def _outlive_the_interpreter():
    """A pool that goes with the interpreter, behind its allocator or while a capture is on, ends the process
    with an abort on PyTorch 2.9. So none goes: the driver frees their memory."""
    for kept in [*_immortal, *(x for segments in _segments for x in (segments.allocator, segments.pool))]:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


def drop_segment_pools():
    """Lets the pools go whose owners are gone, and which nobody else has, and their memory with what PyTorch has
    cached. Garbage may have pools, and would let them go while another thread captures. Not while anything is
    captured here. Returns whether PyTorch's cache was emptied."""
    left = [segments for segments in _segments if segments.is_left()]
    for segments in left:
        segments.let_go()
    if left:
        empty_cache(left[0].torch)
    if _C.call_counts()[0] == 0:
        for segments in _segments:
            segments.is_used = segments.pool is not None
    return bool(left)


def empty_cache(torch):
    """Gives back to the device what PyTorch has cached. What is freed breaks no capture of other threads, which it
    would in global mode."""
    with relaxed(torch.cuda.current_device()):
        torch.cuda.empty_cache()


def install(*, memory_fraction=None, record_history=0, exec_budget_bytes=None,
            garbage_collection_threshold=None, max_split_size_mb=None,
            max_non_split_rounding_mb=None, roundup_power2_divisions=None):
    """Makes Reprise's heap the allocator of PyTorch's CUDA memory, for the rest of the process.

    Captures made with :func:`reprise.graphed` then lie in planned memory. Call it right after
    ``import torch``, or start the program with ``python -m reprise run script.py``.

    Arguments:
        memory_fraction (float, optional): Most of each device's memory that the heap may take,
            at least 0 and at most 1, as ``torch.cuda.set_per_process_memory_fraction``.
        record_history (int): Keep this many of the latest allocator events for
            ``torch.cuda.memory_snapshot()``. Default: 0.
        exec_budget_bytes (int or str, optional): Most device memory for executable graphs of each
            device, or ``"one each"``, as :func:`reprise.set_exec_budget`. Default: 64 MiB.
        garbage_collection_threshold (float, optional): Share of the limit, above 0 and below 1, from
            which on memory that was not used for long is given back before more is taken.
        max_split_size_mb (int, optional): Blocks of so many MiB or more are never cut for smaller
            requests. Above 20.
        max_non_split_rounding_mb (int, optional): Such a block serves no request that is smaller by
            this or more. Above 20. Default: 20.
        roundup_power2_divisions (int, dict or str, optional): Requests are rounded up to the next of
            so many equal parts between two powers of two: one number, or one for each interval in
            MiB, ``{256: 1, 512: 2, ">": 8}`` or ``"[256:1,512:2,>:8]"``.

    The last four are PyTorch's, and are read from ``PYTORCH_ALLOC_CONF`` or
    ``PYTORCH_CUDA_ALLOC_CONF`` where they are not passed; other settings there that the heap does not
    have are warned of.

    ``torch.cuda.memory_stats``, ``memory_allocated``, ``max_memory_allocated``, ``memory_reserved``,
    ``reset_peak_memory_stats``, ``memory_summary``, ``memory_snapshot``, ``empty_cache`` and
    ``Tensor.record_stream`` work as before, and so do histories and their snapshots, settings that
    change while the program runs, observers of a lack of memory, callbacks of the GPU trace, profilers, and
    ``torch.cuda.MemPool``; ``empty_cache`` gives back what rehearsals of captures
    keep, too. ``torch.compile(mode="reduce-overhead")`` takes graphs of ours in the place of PyTorch's:
    their results are fresh, and nothing of them has to be cloned or marked.
    ``torch.backends.cudnn.benchmark`` works. On PyTorch 2.15 the backend ``"nccl"`` becomes the one of earlier versions,
    ``"nccl-legacy"``: the new one needs that allocator too. CUDA tensors are sent to other
    processes as descriptors of their memory; where one cannot be, an object arrives that raises why when
    it is used, with a warning here.

    Raises:
        RuntimeError: CUDA is in use already, or there is no GPU.
        ValueError: An option cannot be.

    A second call does nothing.
    """
    if _allocator is not None:
        return
    torch = need_gpu_unused()
    if torch.cuda.is_initialized():
        raise RuntimeError(
            "reprise.install() has to come before the first use of CUDA, which has been "
            "initialized: PyTorch cannot change its allocator any more. Call it right after "
            "`import torch`, or start the program with `python -m reprise run script.py`")
    chosen = from_environment()
    chosen.update({name: value for name, value in (
        ("garbage_collection_threshold", garbage_collection_threshold),
        ("max_split_size_mb", max_split_size_mb),
        ("max_non_split_rounding_mb", max_non_split_rounding_mb),
        ("roundup_power2_divisions", roundup_power2_divisions),
        ("per_process_memory_fraction", memory_fraction)) if value is not None})
    budget = None if exec_budget_bytes is None else budget_bytes(exec_budget_bytes)
    fraction = fraction_of(chosen)
    settings = Settings(chosen)
    _put_in_place(torch, settings)
    if fraction is None and not record_history and budget is None:
        return  # CUDA is not begun: a process that is forked from here on may use it
    for device in range(torch.cuda.device_count()):
        if fraction is not None:
            torch.cuda.set_per_process_memory_fraction(fraction, device)
        if record_history:
            _C.keep_history(device, record_history, 0, 0, False, None, False, False)
        if budget is not None:
            _C.exec_budget(device, budget)


def _put_in_place(torch, settings):
    """Makes the hooks PyTorch's allocator."""
    global _allocator, _history
    private = torch_private.of(torch)
    private.need(torch_private.INSTALL)
    hooks = _C.hooks()
    allocator = private.custom_allocator(hooks["alloc"], hooks["free"])
    for method, hook in torch_private.ALLOCATOR_HOOKS:
        getattr(allocator, method)(hooks[hook])
    missing = _C.prepare()
    if missing is not None:
        warn(f"this PyTorch has no {missing} that Reprise can find: running out of memory "
             "will raise RuntimeError instead of torch.OutOfMemoryError")
    private.change_allocator(allocator)
    _allocator = allocator
    _history = History(torch, settings)
    _restore_statistics(torch)
    _answer_settings(torch, settings)
    _answer_pools(torch)
    listeners.answer(torch)
    from . import sharing  # it needs PyTorch
    sharing.answer(lends=True)
    _answer_methods(torch)
    for follow in _followers:
        follow()
    _take_earlier_nccl(private)


def _nested(flat):
    """{"a.b": 1} as {"a": {"b": 1}}, as PyTorch keeps its statistics."""
    nested = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def _restore_statistics(torch):
    fractions = {}

    before = getattr(torch._C, "_cuda_setMemoryFraction", None)

    def set_fraction(fraction, device):
        if before is not None:
            before(fraction, device)
        fractions[device] = fraction

    # Of a setting since 2.14 that the heap does not have; torch.accelerator does not tell it.
    further = {"num_oom_rejections": 0} if torch_private.of(torch).history_of_host else {}

    def stats(device):
        return _nested(_C.heap_stats(device))

    def cuda_stats(device):
        return stats(device) | further

    def reset_peaks(device):
        _C.heap_reset(device, True)

    def reset_accumulated(device):
        _C.heap_reset(device, False)

    answers = (cuda_stats, reset_peaks, reset_accumulated, set_fraction,
               lambda device: fractions.get(device, 1.0))
    _answer(torch, torch_private.STATISTICS_NAMES, answers)
    _answer(torch, torch_private.HISTORY_NAMES,
            (_history.record, _history.record_as_before, _history.is_on, _history.snapshot,
             _history.set_metadata, _history.get_metadata))
    _answer(torch, torch_private.OBSERVER_NAMES, (_C.observe_shortage, _C.enable_caching))
    # torch.accelerator asks PyTorch's own allocator, whatever is in its place.
    _answer(torch, torch_private.ACCELERATOR_NAMES,
            (torch.cuda.is_initialized, torch.cuda.empty_cache, stats, reset_peaks, reset_accumulated))


def _answer_settings(torch, settings):
    name = torch_private.SETTINGS_NAME
    pytorchs = torch_private.native(torch, name)
    if pytorchs is not None:
        setattr(torch._C, name, settings.setter(pytorchs))


def _answer_pools(torch):
    """torch.cuda.MemPool and what uses one. PyTorch's Python has these functions by name too."""
    torch.cuda.MemPool = torch.cuda.memory.MemPool = mempool.MemPool
    names = torch_private.POOL_NAMES
    for kind in names[:-2]:
        before = [torch_private.native(torch, name) for name in (kind, *names[-2:])]
        if None in before:
            continue
        for name, function in zip((kind, *names[-2:]), mempool.answers(*before)):
            setattr(torch._C, name, function)
            if hasattr(torch.cuda.memory, name):
                setattr(torch.cuda.memory, name, function)

    empty = torch_private.native(torch, torch_private.EMPTY_NAME)
    if empty is not None:
        _answer(torch, (torch_private.EMPTY_NAME,), (mempool.emptier(empty),))

    from . import checkpoints  # it needs PyTorch
    _answer(torch, torch_private.LIVE_NAMES, (checkpoints.check, checkpoints.State, checkpoints.put_back))


def _answer(torch, names, functions):
    """Puts these functions in the place of PyTorch's, where it has them."""
    for name, function in zip(names, functions):
        if hasattr(torch._C, name):
            setattr(torch._C, name, function)


def _take_earlier_nccl(private):
    """Makes "nccl" the process group that PyTorch had before 2.15. Its successor asks the allocator for
    a snapshot when it goes, and ends the process where that fails, as with any allocator from outside."""
    if torch_private.NCCL in private.off:
        warn(f"{private.off[torch_private.NCCL]}. Set TORCH_DIST_USE_NCCL2=0 before Python starts")
    elif private.register_earlier_nccl is not None:
        private.register_earlier_nccl()


def _answer_methods(torch):
    """What PyTorch's C++ asks of the allocator."""
    missing = _C.answer_methods()
    if missing is not None and torch.backends.cudnn.benchmark:
        torch.backends.cudnn.benchmark = False
        warn(f"this PyTorch has no {missing} that Reprise can find, so nobody could tell "
             "torch.backends.cudnn.benchmark how much memory is free: reprise.install() has switched it off")
