# SPDX-License-Identifier: MIT
"""Memory of graphs that PyTorch captures itself: as snapshots show it, and put back to what it was at a
checkpoint, as PyTorch's cudagraph trees ask.

A checkpoint is which blocks of a pool tensors lay in. To put it back, what was allocated since is freed,
and what was freed since is allocated again, each block at its address.
"""

import torch

from .. import _C
from .._base import torch_private

_ROUNDED = 512  # blocks of PyTorch's are multiples of it


def _native(name):
    return torch_private.native(torch, name)


class State:
    """Blocks of a pool that were alive."""

    def __init__(self, device, pool):
        self.device, self.pool = device, tuple(pool)
        self.blocks = _alive(device, self.pool)


def _alive(device, pool):
    """Sizes and streams of the blocks of the pool that are alive, by address: those that captures took,
    and those that were taken in it eagerly."""
    return {block["address"]: (block["requested_size"], segment["stream"])
            for segment in torch.cuda.memory_snapshot()
            if segment["segment_pool_id"] == pool and segment["device"] == device
            for block in segment["blocks"] if block["state"] == "active_allocated"}


def check(device, pool, addresses):
    """_cuda_checkPoolLiveAllocations: are these the blocks of the pool that are alive?"""
    return _alive(device, tuple(pool)).keys() == set(addresses)


def put_back(device, state, stale, owners):
    """_cuda_setCheckpointPoolState. stale: storages whose blocks may go, from under them;
    owners: storages without an owner, which free their blocks from now on."""
    now = _alive(device, state.pool)
    stale, owners = _by_address(stale), _by_address(owners)
    gone = [address for address in now if address not in state.blocks]
    if any(address not in stale for address in gone):
        raise RuntimeError("Any stale tensors which are being manually freed must be passed to set checkpoint")
    for address in gone:
        _native("_free_And_Remove_DeleterFn")(stale[address])
    for address, (size, stream) in state.blocks.items():
        owner = owners.get(address)
        if address in now:
            if owner is None or _native("_has_Standard_Deleter")(owner):
                continue
            _native("_cuda_cudaCachingAllocator_raw_delete")(address)
        _allocate_again(state, address, size, stream, owner)


def _by_address(storages):
    """StorageImpls, as numbers, by where they lie."""
    return {torch.UntypedStorage._new_with_weak_ptr(s).data_ptr(): s for s in storages}


def _allocate_again(state, address, size, stream, owner):
    _C.lease_want(*state.pool, address, stream)
    try:
        with torch.cuda.device(state.device):
            if owner is None:
                stream = torch.cuda.current_stream(state.device).cuda_stream
                _native("_cuda_cudaCachingAllocator_raw_alloc")(size, stream)
                return
            block = torch.empty(size, dtype=torch.uint8, device="cuda")
    finally:
        _C.lease_want(0, 0, 0, 0)
    _C.swap_owners(block.untyped_storage()._cdata, owner, address)


def segments(device):
    """Memory of a device's graphs, as a snapshot has it: a segment for each stretch of a pool whose blocks
    are one stream's, as a segment has a stream and its blocks have none."""
    seen, found = set(), []
    for pool, address, size in _C.lease_pools(device):
        if not size or address in seen:  # pools of PyTorch's may stand for one of ours
            continue
        seen.add(address)
        end = address + size
        for begin, stream, alive in reversed(_by_stream(address, _C.lease_blocks(device, *pool))):
            found.append(_segment(device, pool, stream, _blocks(alive, begin, end)))
            end = begin
    return found


def _by_stream(address, alive):
    """Stretches of a pool that begins there: (where, stream, blocks)."""
    found = []
    for block, size, stream in sorted(alive):
        if not found or found[-1][1] != stream:
            found.append((block if found else address, stream, []))
        found[-1][2].append((block, size))
    return found or [(address, 0, [])]


def _segment(device, pool, stream, blocks):
    active = [b for b in blocks if b["state"] == "active_allocated"]
    allocated = sum(b["size"] for b in active)
    return {"device": device, "address": blocks[0]["address"], "total_size": sum(b["size"] for b in blocks),
            "allocated_size": allocated, "active_size": allocated,
            "requested_size": sum(b["requested_size"] for b in active), "stream": stream,
            "segment_type": "large", "segment_pool_id": tuple(pool), "is_expandable": True, "frames": [],
            "blocks": blocks}


def _blocks(alive, at, end):
    """Those that are alive, and what lies between."""
    found = []
    for address, size in (*alive, (end, 0)):
        if address < at:
            continue
        if address > at:
            found.append({"address": at, "size": address - at, "requested_size": 0, "state": "inactive",
                          "frames": []})
        at = address + -(-size // _ROUNDED) * _ROUNDED
        if size:
            found.append({"address": address, "size": at - address, "requested_size": size,
                          "state": "active_allocated", "frames": []})
    return found
