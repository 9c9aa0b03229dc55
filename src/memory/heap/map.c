/* SPDX-License-Identifier: MIT
 *
 * Memory behind a shelf's addresses: taken chunk by chunk where a hole is, given back chunk by
 * chunk where a free block covers whole ones; an oversize block's chunks all at once. What needs
 * host memory comes first, then the driver, then what can't fail.
 */
#include "base/held.h"
#include "memory/heap/heap.h"

#include <assert.h>

#define MIB(bytes) ((double)(bytes) / 1048576.0)

/* Bytes of a neighbour of a hole that will be one with what is mapped there. */
static uint64_t free_bytes(const struct rpi_shelf *shelf, const struct rpi_heap_block *block)
{
    return block && block->state == RPI_HEAP_FREE && !shelf->whole ? block->bytes : 0;
}

/* Bytes to map at the start of the hole so that a free block of `bytes` is there; 0 when the hole
 * is too small. Free blocks on either side count. */
static uint64_t bytes_to_map(const struct rpi_shelf *shelf, const struct rpi_heap_block *hole,
                             uint64_t bytes)
{
    assert(hole->state == RPI_HEAP_HOLE && hole->bytes % shelf->chunk_bytes == 0);
    uint64_t before = free_bytes(shelf, hole->before), chunk = shelf->chunk_bytes;
    uint64_t missing = bytes > before ? bytes - before : 1;
    if (missing <= hole->bytes)
        return (missing + chunk - 1) / chunk * chunk;
    return missing <= hole->bytes + free_bytes(shelf, hole->after) ? hole->bytes : 0;
}

/* The hole that needs least; the lowest of those. */
static struct rpi_heap_block *choose_hole(const struct rpi_shelf *shelf, uint64_t bytes,
                                          uint64_t *out_map)
{
    struct rpi_heap_block *best = NULL;
    for (struct rpi_heap_block *hole = shelf->holes; hole; hole = hole->left) {
        uint64_t map = bytes_to_map(shelf, hole, bytes);
        if (!map ||
            (best && (map > *out_map || (map == *out_map && hole->address > best->address))))
            continue;
        best = hole;
        *out_map = map;
    }
    return best;
}

/* What is mapped has to go even where the driver fails now and then. */
static void unmap_each(struct rpi_heap_range *range, size_t first, size_t count)
{
    assert(first + count <= range->chunks.count);
    enum { ATTEMPTS = 3 };
    const struct rp_driver *driver = range->shelf->heap->driver;
    uint64_t chunk = range->shelf->chunk_bytes;
    for (size_t i = first; i < first + count; i++) {
        uint64_t bytes = range->chunks.data[i].span * chunk;
        for (int attempt = 0; bytes && attempt < ATTEMPTS; attempt++)
            if (rpi_unmap(driver, range->base + i * chunk, bytes) == CUDA_SUCCESS)
                break;
        if (bytes)
            driver->cuMemRelease(range->chunks.data[i].handle);
    }
}

void rpi_heap_empty_range(struct rpi_heap_range *range)
{
    for (size_t i = 0; i < range->chunks.count; i++)
        if (range->chunks.data[i].starts)
            unmap_each(range, i, 1);
}

/* Maps `span` chunks with one handle. */
static rp_status map_one(struct rpi_heap_range *range, size_t index, size_t span,
                         struct rp_error *err)
{
    assert(span && index + span <= range->chunks.count && !range->chunks.data[index].span);
    const struct rp_heap *heap = range->shelf->heap;
    uint64_t chunk = range->shelf->chunk_bytes, bytes = span * chunk;
    CUmemAllocationProp properties = rpi_heap_memory(heap);
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = heap->driver->cuMemCreate(&handle, bytes, &properties, 0);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuMemCreate", "taking %.1f MiB of device memory",
                                MIB(bytes));
    result = heap->driver->cuMemMap(range->base + index * chunk, bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS) {
        heap->driver->cuMemRelease(handle);
        return rpi_error_driver(err, result, "cuMemMap", "mapping %.1f MiB of device memory",
                                MIB(bytes));
    }
    range->chunks.data[index].handle = handle;
    range->chunks.data[index].span = (uint32_t)span;
    return RP_OK;
}

static rp_status map_each(struct rpi_heap_range *range, size_t first, size_t count,
                          struct rp_error *err)
{
    assert(count && !range->shelf->sourced);
    const struct rp_heap *heap = range->shelf->heap;
    uint64_t chunk = range->shelf->chunk_bytes;
    size_t done = 0, span = range->shelf->whole ? count : 1;
    rp_status status = RP_OK;
    for (size_t i = first; i < first + count; i++)
        range->chunks.data[i].span = 0;
    while (done < count && (status = map_one(range, first + done, span, err)) == RP_OK)
        done += span;
    if (status == RP_OK) {
        CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, heap->device},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CUresult result =
            heap->driver->cuMemSetAccess(range->base + first * chunk, count * chunk, &access, 1);
        if (result != CUDA_SUCCESS)
            status = rpi_error_driver(err, result, "cuMemSetAccess",
                                      "allowing access to %.1f MiB of device memory",
                                      MIB(count * chunk));
        else
            rpi_peers_let_in(heap->peers, heap->driver, range->base + first * chunk, count * chunk);
    }
    if (status != RP_OK)
        unmap_each(range, first, done);
    return status;
}

/* The shelf's lock is held. What a source gave is the source's to let others in to. */
static void let_in(const struct rpi_heap_range *range, CUdevice peer)
{
    assert(rpi_heap_is_locked(&range->shelf->lock));
    if (range->shelf->sourced)
        return;
    uint64_t chunk = range->shelf->chunk_bytes;
    for (size_t first = 0, end; first < range->chunks.count; first = end + 1) {
        for (end = first; end < range->chunks.count && range->chunks.data[end].starts; end++)
            ;
        if (end > first)
            rpi_peer_let_in(range->shelf->heap->driver, peer, range->base + first * chunk,
                            (end - first) * chunk);
    }
}

void rpi_heap_let_in(struct rpi_mapper *mapper, CUdevice peer)
{
    struct rp_heap *heap = (struct rp_heap *)((char *)mapper - offsetof(struct rp_heap, mapper));
    struct rpi_heap_scope scope;
    pthread_mutex_lock(&heap->growth);
    if (rpi_heap_enter(heap, &scope) == CUDA_SUCCESS) {
        for (size_t s = 0; s < heap->shelf_count; s++) {
            struct rpi_shelf *shelf = heap->shelves[s];
            rpi_heap_lock(&shelf->lock);
            for (size_t r = 0; r < shelf->ranges.count; r++)
                let_in(shelf->ranges.data[r], peer);
            rpi_heap_unlock(&shelf->lock);
        }
        rpi_heap_leave(heap, &scope);
    }
    pthread_mutex_unlock(&heap->growth);
}

/* Maps the first `map` bytes of the hole and makes them a free block. */
static rp_status fill_hole(struct rpi_shelf *shelf, struct rpi_heap_block *hole, uint64_t map,
                           struct rp_error *err)
{
    assert(map && map <= hole->bytes && map % shelf->chunk_bytes == 0);
    struct rpi_heap_range *range = hole->range;
    size_t first = (hole->address - range->base) / shelf->chunk_bytes;
    size_t count = map / shelf->chunk_bytes;
    if (!rpi_shelf_reserve(shelf, 1) || !rpi_heap_make_tables(range, first, count))
        return rpi_error_host_memory(err, "rp_heap_alloc", count * sizeof(struct rpi_heap_chunk));
    rp_status status = map_each(range, first, count, err);
    if (status != RP_OK) {
        rpi_heap_free_tables(range, first, count);
        return status;
    }
    rpi_heap_note(shelf->heap, RP_HEAP_EVENT_SEGMENT_MAP, hole->address, map, shelf->stream,
                  shelf->pool, shelf->heap->cause);
    rpi_heap_segments(shelf, shelf->whole ? 1 : (int64_t)count, (int64_t)map);
    rpi_shelf_remove_hole(shelf, hole);
    if (map < hole->bytes)
        rpi_shelf_add_hole(shelf, rpi_shelf_cut(shelf, hole, map));
    rpi_shelf_settle(shelf, hole);
    return RP_OK;
}

rp_status rpi_shelf_grow(struct rpi_shelf *shelf, uint64_t bytes, struct rp_error *err)
{
    assert(!shelf->sourced);
    rpi_assert_held(&shelf->heap->growth);
    assert(rpi_heap_is_locked(&shelf->lock));
    struct rp_heap *heap = shelf->heap;
    uint64_t map = 0, held = (uint64_t)heap->totals.reserved_bytes[RPI_HEAP_ALL].current;
    struct rpi_heap_block *hole = choose_hole(shelf, bytes, &map);
    uint64_t least = hole ? map : bytes, limit = rpi_heap_limit(heap);
    if (least > limit || held > limit - least)
        return rpi_error(err, RP_ERROR_LIMIT, "rp_heap_alloc", "the heap's limit is reached");
    if (!hole && bytes > heap->range_bytes - shelf->chunk_bytes)
        return rpi_error(err, RP_ERROR_OUT_OF_DEVICE_MEMORY, "rp_heap_alloc",
                         "more than the device has");
    if (!hole) {
        rp_status status = rpi_shelf_add_range(shelf, err);
        if (status != RP_OK)
            return status;
        return rpi_shelf_grow(shelf, bytes, err);
    }
    return fill_hole(shelf, hole, map, err);
}

/* ---- Giving back -----------------------------------------------------------------------------*/

/* The block is free; [first, end) of it is not mapped any more. Returns the hole. */
static struct rpi_heap_block *make_hole(struct rpi_shelf *shelf, struct rpi_heap_block *block,
                                        uint64_t first, uint64_t end)
{
    assert(block->state == RPI_HEAP_FREE && first < end);
    assert(block->address <= first && end <= block->address + block->bytes);
    uint64_t stuck = rpi_shelf_stuck(shelf, block->range, block->address, block->bytes);
    int pieces = (first > block->address) + (end < block->address + block->bytes);
    const int64_t change[RPI_COUNTS] = {[RPI_COUNT_SPLITS] = pieces - (stuck ? 1 : 0)};
    rpi_heap_change(shelf, change);
    rpi_heap_bins_remove(&shelf->bins, block);
    if (first > block->address) {
        struct rpi_heap_block *edge = block;
        block = rpi_shelf_cut(shelf, edge, first - edge->address);
        rpi_heap_bins_insert(&shelf->bins, edge);
    }
    if (end < block->address + block->bytes)
        rpi_heap_bins_insert(&shelf->bins, rpi_shelf_cut(shelf, block, end - block->address));
    if (block->after && block->after->state == RPI_HEAP_HOLE) {
        rpi_shelf_remove_hole(shelf, block->after);
        rpi_shelf_join(shelf, block);
    }
    if (block->before && block->before->state == RPI_HEAP_HOLE) {
        block = block->before;
        rpi_shelf_remove_hole(shelf, block);
        rpi_shelf_join(shelf, block);
    }
    rpi_shelf_add_hole(shelf, block);
    return block;
}

static rp_status unmap_run(struct rpi_shelf *shelf, struct rpi_heap_range *range, uint64_t first,
                           uint64_t end, struct rp_error *err)
{
    assert(first < end && end <= range->base + range->bytes);
    assert((first - range->base) % shelf->chunk_bytes == 0 &&
           (end - first) % shelf->chunk_bytes == 0);
    const struct rp_driver *driver = shelf->heap->driver;
    CUresult result = driver->cuMemUnmap(first, end - first);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuMemUnmap", "giving back %.1f MiB of device memory",
                                MIB(end - first));
    size_t from = (first - range->base) / shelf->chunk_bytes;
    size_t count = (end - first) / shelf->chunk_bytes;
    for (size_t i = from; i < from + count; i++)
        if (range->chunks.data[i].span)
            driver->cuMemRelease(range->chunks.data[i].handle);
    rpi_heap_free_tables(range, from, count);
    rpi_heap_note(shelf->heap, RP_HEAP_EVENT_SEGMENT_UNMAP, first, end - first, shelf->stream,
                  shelf->pool, shelf->heap->cause);
    rpi_heap_segments(shelf, shelf->whole ? -1 : -(int64_t)count, -(int64_t)(end - first));
    return RP_OK;
}

/* Work that was enqueued before the frees may still run. */
static rp_status wait_for_stream(const struct rpi_shelf *shelf, bool *waited, struct rp_error *err)
{
    if (*waited)
        return RP_OK;
    CUresult result = shelf->heap->driver->cuStreamSynchronize(shelf->stream);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuStreamSynchronize",
                                "waiting for a stream before giving its memory back");
    *waited = true;
    return RP_OK;
}

/* The last first: another takes the place of one that goes. */
static rp_status shrink_sourced(struct rpi_shelf *shelf, uint64_t until, uint64_t *bytes,
                                struct rp_error *err)
{
    assert(shelf->sourced && rpi_heap_is_locked(&shelf->lock));
    bool waited = false;
    for (size_t r = shelf->ranges.count; r-- > 0;) {
        struct rpi_heap_block *block = shelf->ranges.data[r]->first;
        if (block->state != RPI_HEAP_FREE || block->freed_at > until ||
            block->bytes != shelf->ranges.data[r]->bytes)
            continue;
        if (!waited && !rpi_heap_stream_runs(shelf->heap, shelf->stream))
            return RP_OK;
        rp_status status = wait_for_stream(shelf, &waited, err);
        if (status != RP_OK)
            return status;
        *bytes += block->bytes;
        rpi_heap_source_remove(shelf, block);
    }
    return RP_OK;
}

rp_status rpi_shelf_shrink(struct rpi_shelf *shelf, uint64_t until, uint64_t *bytes,
                           struct rp_error *err)
{
    rpi_assert_held(&shelf->heap->growth);
    assert(rpi_heap_is_locked(&shelf->lock));
    bool waited = false;
    if (shelf->sourced)
        return shrink_sourced(shelf, until, bytes, err);
    for (size_t r = 0; r < shelf->ranges.count; r++) {
        struct rpi_heap_range *range = shelf->ranges.data[r];
        for (struct rpi_heap_block *block = range->first; block; block = block->after) {
            uint64_t first, end;
            if (block->state != RPI_HEAP_FREE || block->freed_at > until ||
                !rpi_shelf_whole_chunks(shelf, range, block->address, block->bytes, &first, &end))
                continue;
            if (!waited && !rpi_heap_stream_runs(shelf->heap, shelf->stream))
                return RP_OK;
            if (!rpi_shelf_reserve(shelf, 2))
                return rpi_error_host_memory(err, "rp_heap_empty_cache", sizeof *block);
            rp_status status = wait_for_stream(shelf, &waited, err);
            if (status == RP_OK)
                status = unmap_run(shelf, range, first, end, err);
            if (status != RP_OK)
                return status;
            *bytes += end - first;
            block = make_hole(shelf, block, first, end);
        }
    }
    return RP_OK;
}

rp_status rpi_shelf_unmap(struct rpi_shelf *shelf, struct rpi_heap_block *block,
                          struct rp_error *err)
{
    rpi_assert_held(&shelf->heap->growth);
    assert(rpi_heap_is_locked(&shelf->lock));
    bool waited = false;
    uint64_t end = block->address + block->bytes;
    assert(shelf->whole && block->state == RPI_HEAP_FREE);
    rp_status status = wait_for_stream(shelf, &waited, err);
    if (status == RP_OK && shelf->sourced) {
        rpi_heap_source_remove(shelf, block);
        return RP_OK;
    }
    if (status == RP_OK)
        status = unmap_run(shelf, block->range, block->address, end, err);
    if (status == RP_OK)
        make_hole(shelf, block, block->address, end);
    return status;
}
