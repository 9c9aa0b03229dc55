# SPDX-License-Identifier: MIT
"""torch.cuda.MemPool over Reprise's heaps: what stands in its place under reprise.install()."""

import weakref

from .. import _C
from .._base import torch_private
from .._base.need import need_gpu

KEEPS, LENDS, WHOLE = 1, 2, 4  # enum rp_heap_pool


class MemPool:
    """As torch.cuda.MemPool: memory of its own for what a program allocates while it uses it
    (torch.cuda.use_mem_pool), on each device. It stays mapped until the pool is gone and nothing lives
    in it.

    Arguments:
        allocator (torch._C._cuda_CUDAAllocator, optional): Whose functions its memory comes from and goes
            back to, as from ``torch.cuda.memory.CUDAPluggableAllocator(..).allocator()``, in segments of
            2 MiB, 20 MiB or more. Default: Reprise's heap maps it.
        use_on_oom (bool): Its free memory is given to requests outside of it that nothing else can satisfy.
        no_split (bool): Its blocks are never cut.
    """

    def __init__(self, allocator=None, use_on_oom=False, no_split=False):
        torch = need_gpu()
        kind = torch_private.native(torch, torch_private.ALLOCATOR_KIND)
        if allocator is not None and kind is not None and not isinstance(allocator, kind):
            raise TypeError("the allocator of a torch.cuda.MemPool has to be what torch.cuda.memory."
                            f"CUDAPluggableAllocator(..).allocator() returns, not {allocator!r}")
        torch.cuda.init()
        self.id = tuple(torch.cuda.graph_pool_handle())
        self.allocator = allocator
        self._number = _C.mempool_make(*self.id, KEEPS | LENDS * bool(use_on_oom) | WHOLE * bool(no_split),
                                       allocator)
        if allocator is not None:
            _allocators[id(allocator)] = allocator
        weakref.finalize(self, _C.mempool_drop, self._number).atexit = False

    def use_count(self):
        """1, and 1 for each use that is under way."""
        return _C.mempool_count(self._number)

    def snapshot(self, include_traces=True):
        """Its segments, of all devices."""
        del include_traces  # segments have none
        return need_gpu().cuda.memory_snapshot(self.id)


_allocators: dict[int, object] = {}  # memory may go back to them when their pools are gone


def answers(begin, end, release):
    """What stands in the place of PyTorch's functions of these kinds: they are asked where the pool is
    none of these. A pool of graphs gets memory beside that of its captures: what PyTorch's trees run
    eagerly in it is known by its id."""
    lent = {}  # numbers of those, by id

    def begin_here(device, pool):
        number = _C.mempool_find(*pool)
        if not number:
            drop_unused()
            number = _C.mempool_make(*pool, KEEPS, None)  # graphs may have its addresses
            if not number:
                return begin(device, pool)
            lent[tuple(pool)] = number
        return _C.mempool_begin(device, number)

    def drop_unused():
        """Lets go of those that are in no use, and of whose pools all graphs are gone."""
        graphs = {pool for device in range(need_gpu().cuda.device_count()) for pool, *_ in _C.lease_pools(device)}
        for pool, number in list(lent.items()):
            if pool not in graphs and _C.mempool_count(number) == 1:
                del lent[pool]
                _C.mempool_drop(number)

    def end_here(device, pool):
        number = _C.mempool_find(*pool)
        return _C.mempool_end(device, number) if number else end(device, pool)

    def release_here(device, pool):
        number = _C.mempool_find(*pool)
        if not number:
            return release(device, pool)
        _C.mempool_release(number)
        if lent:
            drop_unused()
        return None

    _drops.append(drop_unused)
    return begin_here, end_here, release_here


_drops: list[object] = []  # what lets go of pools, of each kind of beginning


def emptier(empty):
    """What stands in the place of torch._C._cuda_emptyCache."""
    def empty_here():
        empty()  # graphs that are gone too
        for drop in _drops:
            drop()
    return empty_here
