/* SPDX-License-Identifier: MIT
 *
 * What is done when memory is short, from the cheapest to the dearest: collect what was not used
 * for long, wait for blocks that other streams use, give back free chunks, lend other streams'
 * memory; and the error that says why nothing helped.
 */
#include "memory/heap/heap.h"

#include "base/held.h"
#include "base/refuse.h"

#include <assert.h>
#include <stdio.h>

#define MIB(bytes) ((double)(bytes) / 1048576.0)

void rpi_heap_finish_waiting(struct rp_heap *heap)
{
    rpi_assert_held(&heap->growth);
    heap->totals.sync_all_streams++;
    for (size_t s = 0; s < heap->shelf_count; s++) {
        rpi_heap_lock(&heap->shelves[s]->lock);
        rpi_shelf_poll(heap->shelves[s], true, true);
        rpi_heap_unlock(&heap->shelves[s]->lock);
    }
}

static rp_status shrink(struct rpi_shelf *shelf, uint64_t until, uint64_t *bytes,
                        struct rp_error *err)
{
    rpi_assert_held(&shelf->heap->growth);
    struct rpi_heap_scope scope;
    CUresult result = rpi_heap_enter(shelf->heap, &scope);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuCtxPushCurrent",
                                "making the device's context current");
    rpi_heap_lock(&shelf->lock);
    rp_status status = rpi_shelf_shrink(shelf, until, bytes, err);
    rpi_heap_unlock(&shelf->lock);
    rpi_heap_leave(shelf->heap, &scope);
    return status;
}

rp_status rpi_heap_give_back(struct rp_heap *heap, struct rp_error *err)
{
    rpi_assert_held(&heap->growth);
    rp_status first = RP_OK;
    uint64_t bytes = 0;
    for (size_t s = 0; s < heap->shelf_count; s++) {
        if (rpi_shelf_pool_is(heap->shelves[s], RP_HEAP_POOL_KEEPS))
            continue;
        rp_status status =
            shrink(heap->shelves[s], UINT64_MAX, &bytes, first == RP_OK ? err : NULL);
        if (first == RP_OK)
            first = status;
    }
    return first;
}

uint64_t rp_heap_pool_bytes(struct rp_heap *heap, uint32_t pool)
{
    uint64_t bytes = 0;
    if (rpi_is_forked() || !heap)
        return 0;
    pthread_mutex_lock(&heap->growth);
    for (size_t s = 0; s < heap->shelf_count; s++) {
        struct rpi_shelf *shelf = heap->shelves[s];
        if (shelf->pool != pool)
            continue;
        rpi_heap_lock(&shelf->lock);
        bytes += (uint64_t)rpi_gauges_count(&shelf->gauges, RPI_COUNT_BYTES);
        bytes += (uint64_t)shelf->gauges.waiting_bytes;
        rpi_heap_unlock(&shelf->lock);
    }
    pthread_mutex_unlock(&heap->growth);
    return bytes;
}

rp_status rp_heap_empty_pool(struct rp_heap *heap, uint32_t pool, struct rp_error *err)
{
    rp_status first = RP_OK;
    uint64_t bytes = 0;
    if (rpi_is_forked() || !heap)
        return rpi_refuse(err, "rp_heap_empty_pool", "heap");
    struct rpi_heap_stack *stack = rpi_heap_stack_capture(heap, RP_HEAP_STACKS_ALL);
    pthread_mutex_lock(&heap->growth);
    heap->cause = stack;
    for (size_t s = 0; s < heap->shelf_count; s++) {
        if (heap->shelves[s]->pool != pool)
            continue;
        rpi_heap_lock(&heap->shelves[s]->lock);
        rpi_shelf_poll(heap->shelves[s], true, false);
        rpi_heap_unlock(&heap->shelves[s]->lock);
        rp_status status =
            shrink(heap->shelves[s], UINT64_MAX, &bytes, first == RP_OK ? err : NULL);
        if (first == RP_OK)
            first = status;
    }
    rpi_heap_let_go(heap);
    heap->cause = NULL;
    pthread_mutex_unlock(&heap->growth);
    rpi_heap_stack_drop(heap, stack);
    return first;
}

static struct rpi_heap_block *largest_of(const struct rpi_heap_bins *bins)
{
    struct rpi_heap_block *block = bins->tree;
    while (block && block->right)
        block = block->right;
    for (int word = RPI_HEAP_BINS / 64; !block && word-- > 0;)
        if (bins->words[word])
            block = bins->lists[word * 64 + 63 - __builtin_clzll(bins->words[word])];
    return block;
}

/* The lock is held, in a scope. */
static void release_until(struct rpi_shelf *shelf, uint64_t bytes)
{
    assert(shelf->whole && bytes % RPI_HEAP_GRAIN == 0);
    assert(rpi_heap_is_locked(&shelf->lock));
    uint64_t released = 0;
    struct rpi_heap_block *block = rpi_heap_bins_find(&shelf->bins, bytes);
    if (!rpi_heap_stream_runs(shelf->heap, shelf->stream))
        return;
    if (!block)
        block = largest_of(&shelf->bins);
    while (block && released < bytes) {
        released += block->bytes;
        if (rpi_shelf_unmap(shelf, block, NULL) != RP_OK)
            return;
        block = largest_of(&shelf->bins);
    }
}

void rpi_heap_release_oversize(struct rp_heap *heap, CUstream stream, uint32_t pool, uint64_t bytes)
{
    assert(pool < RP_HEAP_POOLS);
    rpi_assert_held(&heap->growth);
    struct rpi_shelf *shelf = rpi_heap_shelf(heap, stream, rpi_heap_kind(pool, RPI_HEAP_OVERSIZE));
    struct rpi_heap_scope scope;
    if (!shelf || rpi_shelf_pool_is(shelf, RP_HEAP_POOL_KEEPS) ||
        rpi_heap_enter(heap, &scope) != CUDA_SUCCESS)
        return;
    rpi_heap_lock(&shelf->lock);
    release_until(shelf, rpi_round_up(bytes, RPI_HEAP_GRAIN));
    rpi_heap_unlock(&shelf->lock);
    rpi_heap_leave(heap, &scope);
}

/* ---- Garbage collection ----------------------------------------------------------------------*/

/* Ages of the free blocks that cover whole chunks, in large allocations since. */
static void add_ages(struct rpi_shelf *shelf, uint64_t now, uint64_t *sum, uint64_t *count)
{
    rpi_assert_held(&shelf->heap->growth);
    rpi_heap_lock(&shelf->lock);
    for (size_t r = 0; r < shelf->ranges.count; r++) {
        for (const struct rpi_heap_block *b = shelf->ranges.data[r]->first; b; b = b->after) {
            uint64_t first, end;
            if (b->state != RPI_HEAP_FREE ||
                !rpi_shelf_whole_chunks(shelf, b->range, b->address, b->bytes, &first, &end))
                continue;
            *sum += now > b->freed_at ? now - b->freed_at : 0;
            *count += 1;
        }
    }
    rpi_heap_unlock(&shelf->lock);
}

static bool is_collected(const struct rpi_shelf *shelf)
{
    return shelf->class != RPI_HEAP_SMALL && !rpi_shelf_pool_is(shelf, RP_HEAP_POOL_KEEPS);
}

void rpi_heap_collect(struct rp_heap *heap, uint64_t more)
{
    rpi_assert_held(&heap->growth);
    if (heap->gc_threshold <= 0)
        return;
    uint64_t limit = rpi_heap_limit(heap);
    if (limit > heap->total_bytes)
        limit = heap->total_bytes;
    const struct rpi_heap_stat *held = &heap->totals.reserved_bytes[RPI_HEAP_ALL];
    uint64_t most = (uint64_t)(heap->gc_threshold * (double)limit), freed = 1;
    while (freed && (uint64_t)held->current + more > most) {
        uint64_t now = atomic_load(&heap->ticks), sum = 0, count = 0;
        for (size_t s = 0; s < heap->shelf_count; s++)
            if (is_collected(heap->shelves[s]))
                add_ages(heap->shelves[s], now, &sum, &count);
        if (!count)
            return;
        uint64_t age = (sum + count - 1) / count; /* at most that of the oldest, once rounded up */
        freed = 0;
        for (size_t s = 0; s < heap->shelf_count; s++)
            if (is_collected(heap->shelves[s]))
                shrink(heap->shelves[s], now - age, &freed, NULL);
    }
}

/* ---- Lending ---------------------------------------------------------------------------------*/

/* Nothing that the stream was given is still to be done; so nobody uses its free blocks. */
static bool is_idle(const struct rp_heap *heap, CUstream stream)
{
    return rpi_heap_stream_runs(heap, stream) &&
           heap->driver->cuStreamQuery(stream) == CUDA_SUCCESS;
}

/* Another stream counts as a user, so that the block returns to its shelf by way of an event. */
static enum rpi_heap_outcome borrow_from(struct rpi_shelf *shelf, CUstream stream, uint64_t bytes,
                                         uint64_t requested, struct rpi_heap_block **out_block)
{
    rpi_assert_held(&shelf->heap->growth);
    assert(rpi_heap_is_locked(&shelf->lock));
    struct rp_heap *heap = shelf->heap;
    if (stream == shelf->stream) /* of another pool */
        return rpi_shelf_take(shelf, bytes, requested, stream, true, out_block);
    if (!rpi_heap_bins_find(&shelf->bins, bytes) || !is_idle(heap, shelf->stream))
        return RPI_HEAP_MISS;
    struct rpi_heap_use *use = rpi_malloc(sizeof *use);
    if (!use)
        return RPI_HEAP_NO_MEMORY;
    *use = (struct rpi_heap_use){.stream = stream};
    enum rpi_heap_outcome outcome =
        rpi_shelf_take(shelf, bytes, requested, stream, true, out_block);
    if (outcome == RPI_HEAP_DONE)
        (*out_block)->uses = use;
    else
        rpi_free(use);
    return outcome;
}

enum rpi_heap_outcome rpi_heap_borrow(struct rpi_shelf *own, uint64_t bytes, uint64_t requested,
                                      struct rpi_heap_block **out_block)
{
    rpi_assert_held(&own->heap->growth);
    struct rp_heap *heap = own->heap;
    struct rpi_heap_scope scope;
    enum rpi_heap_outcome outcome = RPI_HEAP_MISS;
    if (rpi_heap_enter(heap, &scope) != CUDA_SUCCESS)
        return RPI_HEAP_MISS;
    for (size_t s = 0; outcome == RPI_HEAP_MISS && s < heap->shelf_count; s++) {
        struct rpi_shelf *shelf = heap->shelves[s];
        bool lends = shelf->pool == own->pool || rpi_shelf_pool_is(shelf, RP_HEAP_POOL_LENDS);
        if (shelf == own || shelf->class != own->class || !lends)
            continue;
        rpi_heap_lock(&shelf->lock);
        rpi_shelf_poll(shelf, true, false);
        outcome = borrow_from(shelf, own->stream, bytes, requested, out_block);
        if (outcome != RPI_HEAP_DONE)
            rpi_heap_unlock(&shelf->lock);
    }
    rpi_heap_leave(heap, &scope);
    return outcome;
}

/* ---- The error -------------------------------------------------------------------------------*/

struct picture {
    uint64_t allocated, waiting, largest;
};

static struct picture look(struct rp_heap *heap)
{
    rpi_assert_held(&heap->growth);
    struct picture picture = {0};
    for (size_t s = 0; s < heap->shelf_count; s++) {
        struct rpi_shelf *shelf = heap->shelves[s];
        rpi_heap_lock(&shelf->lock);
        picture.allocated += (uint64_t)rpi_gauges_count(&shelf->gauges, RPI_COUNT_BYTES);
        picture.waiting += (uint64_t)shelf->gauges.waiting_bytes;
        const struct rpi_heap_block *block = largest_of(&shelf->bins);
        if (block && block->bytes > picture.largest)
            picture.largest = block->bytes;
        rpi_heap_unlock(&shelf->lock);
    }
    return picture;
}

static uint64_t device_free(const struct rp_heap *heap)
{
    struct rpi_heap_scope scope;
    size_t available = 0, total = 0;
    if (rpi_heap_enter(heap, &scope) != CUDA_SUCCESS)
        return 0;
    if (heap->driver->cuMemGetInfo(&available, &total) != CUDA_SUCCESS)
        available = 0;
    rpi_heap_leave(heap, &scope);
    return available;
}

static const char *advice(const struct rp_heap *heap, rp_status status, uint64_t requested,
                          uint64_t idle, uint64_t available)
{
    if (requested > heap->total_bytes)
        return "no setting helps: it is more than the device has";
    if (status == RP_ERROR_LIMIT && heap->fraction_bytes < heap->limit_bytes)
        return "raise the share given to rp_heap_set_fraction, or free blocks";
    if (status == RP_ERROR_LIMIT)
        return "raise limit_bytes (rp_heap_set_limit), or free blocks";
    if (requested <= idle + available)
        return "enough is free but in pieces: free blocks, or set share_early and use fewer "
               "streams";
    return "free blocks, or have other users of the device free memory (in their heaps: "
           "rp_heap_empty_cache, limit_bytes)";
}

rp_status rpi_heap_out_of_memory(const struct rpi_shelf *shelf, uint64_t requested,
                                 rp_status status, struct rp_error *err)
{
    rpi_assert_held(&shelf->heap->growth);
    assert(status == RP_ERROR_LIMIT || status == RP_ERROR_OUT_OF_DEVICE_MEMORY);
    struct rp_heap *heap = shelf->heap;
    uint64_t available = device_free(heap), limit = rpi_heap_limit(heap);
    uint64_t held = (uint64_t)heap->totals.reserved_bytes[RPI_HEAP_ALL].current;
    heap->totals.ooms++;
    rpi_heap_note(heap, RP_HEAP_EVENT_OOM, available, requested, shelf->stream, shelf->pool,
                  heap->cause);
    struct picture now = look(heap);
    /* Other threads may have freed meanwhile. */
    uint64_t busy = now.allocated + now.waiting, idle = held > busy ? held - busy : 0;
    char limited[64] = "";
    if (limit != UINT64_MAX)
        snprintf(limited, sizeof limited, " of at most %.1f MiB", MIB(limit));
    if (status != RP_ERROR_LIMIT)
        status = RP_ERROR_OUT_OF_DEVICE_MEMORY;
    rpi_error(
        err, status, "rp_heap_alloc",
        "%.1f MiB were asked for; the heap holds %.1f MiB%s (%.1f allocated, %.1f waiting for "
        "other streams, %.1f free in pieces of at most %.1f), the device has %.1f of %.1f MiB "
        "free: %s",
        MIB(requested), MIB(held), limited, MIB(now.allocated), MIB(now.waiting), MIB(idle),
        MIB(now.largest), MIB(available), MIB(heap->total_bytes),
        advice(heap, status, requested, idle, available));
    if (err) {
        err->requested = requested;
        err->available = status == RP_ERROR_LIMIT ? (limit > held ? limit - held : 0) : available;
        if (status != RP_ERROR_LIMIT) {
            err->driver_code = CUDA_ERROR_OUT_OF_MEMORY;
            snprintf(err->driver_name, sizeof err->driver_name, "%s",
                     rpi_result_name(CUDA_ERROR_OUT_OF_MEMORY));
        }
    }
    return status;
}
