/* SPDX-License-Identifier: MIT
 *
 * Blocks from free to live and back. Taking splits off what is not needed, giving merges with free
 * neighbours at once, so that no two free blocks touch. What changes in the gauges is worked out
 * first, as that may ask for more locks; only then anything is changed.
 */
#include "base/held.h"
#include "memory/heap/heap.h"

#include <assert.h>

/* Adds (sign 1) or takes away (-1) a free block in the gauges. */
static inline void count_free(const struct rpi_shelf *shelf, const struct rpi_heap_range *range,
                              uint64_t address, uint64_t bytes, int sign,
                              int64_t change[RPI_COUNTS])
{
    int64_t stuck = (int64_t)rpi_shelf_stuck(shelf, range, address, bytes);
    change[RPI_COUNT_SPLITS] += stuck ? sign : 0;
    change[RPI_COUNT_SPLIT_BYTES] += sign * stuck;
}

static inline bool change_gauges(struct rpi_shelf *shelf, const int64_t change[RPI_COUNTS],
                                 bool slow)
{
    assert(!slow || rpi_is_held(&shelf->heap->growth));
    if (rpi_gauges_change(&shelf->gauges, change))
        return true;
    if (slow)
        rpi_heap_change(shelf, change);
    return slow;
}

enum rpi_heap_outcome rpi_shelf_take(struct rpi_shelf *shelf, uint64_t bytes, uint64_t requested,
                                     CUstream stream, bool slow, struct rpi_heap_block **out_block)
{
    assert(bytes && bytes % RPI_HEAP_GRAIN == 0);
    assert(rpi_heap_is_locked(&shelf->lock));
    struct rpi_heap_block *block = rpi_heap_bins_find(&shelf->bins, bytes);
    if (!block)
        return RPI_HEAP_MISS;
    if (shelf->whole && block->bytes >= bytes + shelf->heap->non_split_rounding)
        return RPI_HEAP_MISS;
    if (shelf->whole)
        bytes = block->bytes;
    uint64_t rest = block->bytes - bytes;
    if (rest && !rpi_shelf_reserve(shelf, 1))
        return RPI_HEAP_NO_MEMORY;
    int64_t change[RPI_COUNTS] = {[RPI_COUNT_BLOCKS] = 1,
                                  [RPI_COUNT_BYTES] = (int64_t)bytes,
                                  [RPI_COUNT_REQUESTED] = (int64_t)requested};
    count_free(shelf, block->range, block->address, block->bytes, -1, change);
    if (rest)
        count_free(shelf, block->range, block->address + bytes, rest, 1, change);
    if (!change_gauges(shelf, change, slow))
        return RPI_HEAP_SLOW;
    rpi_heap_bins_remove(&shelf->bins, block);
    if (rest)
        rpi_heap_bins_insert(&shelf->bins, rpi_shelf_cut(shelf, block, bytes));
    block->state = RPI_HEAP_LIVE;
    block->requested = requested;
    block->stream = stream;
    block->uses = NULL;
    block->stack = NULL;
    block->watches = NULL;
    *rpi_shelf_start(block->range, block->address) = block;
    if (shelf->class != RPI_HEAP_SMALL && shelf->heap->gc_threshold > 0)
        atomic_fetch_add_explicit(&shelf->heap->ticks, 1, memory_order_relaxed);
    assert(block->bytes >= bytes && block->bytes % RPI_HEAP_GRAIN == 0);
    *out_block = block;
    return RPI_HEAP_DONE;
}

/* Can the shelf's free block join this neighbour of it? */
static inline bool joins(const struct rpi_shelf *shelf, const struct rpi_heap_block *neighbour)
{
    return neighbour && neighbour->state == RPI_HEAP_FREE && !shelf->whole;
}

/* What becomes of the free blocks in the gauges when this one is free too. */
static inline void count_merge(const struct rpi_shelf *shelf, const struct rpi_heap_block *block,
                               int64_t change[RPI_COUNTS])
{
    const struct rpi_heap_block *before = block->before, *after = block->after;
    uint64_t address = block->address, bytes = block->bytes;
    if (joins(shelf, before)) {
        count_free(shelf, block->range, before->address, before->bytes, -1, change);
        address = before->address;
        bytes += before->bytes;
    }
    if (joins(shelf, after)) {
        count_free(shelf, block->range, after->address, after->bytes, -1, change);
        bytes += after->bytes;
    }
    count_free(shelf, block->range, address, bytes, 1, change);
}

static inline void merge(struct rpi_shelf *shelf, struct rpi_heap_block *block)
{
    assert(rpi_heap_is_locked(&shelf->lock) && block->range->shelf == shelf);
    block->state = RPI_HEAP_FREE;
    if (joins(shelf, block->after)) {
        rpi_heap_bins_remove(&shelf->bins, block->after);
        rpi_shelf_join(shelf, block);
    }
    if (joins(shelf, block->before)) {
        block = block->before;
        rpi_heap_bins_remove(&shelf->bins, block);
        rpi_shelf_join(shelf, block);
    }
    assert(!joins(shelf, block->before) && !joins(shelf, block->after));
    block->freed_at = atomic_load_explicit(&shelf->heap->ticks, memory_order_relaxed);
    rpi_heap_bins_insert(&shelf->bins, block);
}

bool rpi_shelf_give(struct rpi_shelf *shelf, struct rpi_heap_block *block, bool slow)
{
    assert(block->range->shelf == shelf && block->requested <= block->bytes);
    assert(block->state == RPI_HEAP_LIVE || block->state == RPI_HEAP_WAITING);
    assert(!block->uses);
    assert(rpi_heap_is_locked(&shelf->lock));
    bool live = block->state == RPI_HEAP_LIVE;
    int64_t bytes = (int64_t)block->bytes;
    int64_t change[RPI_COUNTS] = {[RPI_COUNT_BLOCKS] = live ? -1 : 0,
                                  [RPI_COUNT_BYTES] = live ? -bytes : 0,
                                  [RPI_COUNT_REQUESTED] = -(int64_t)block->requested};
    count_merge(shelf, block, change);
    if (!change_gauges(shelf, change, slow))
        return false;
    if (!live) {
        shelf->gauges.waiting--;
        shelf->gauges.waiting_bytes -= bytes;
    }
    rpi_heap_note(shelf->heap, RP_HEAP_EVENT_FREE_COMPLETED, block->address, block->requested,
                  block->stream, shelf->pool, block->stack);
    rpi_heap_stack_drop(shelf->heap, block->stack);
    *rpi_shelf_start(block->range, block->address) = NULL;
    merge(shelf, block);
    return true;
}

void rpi_shelf_settle(struct rpi_shelf *shelf, struct rpi_heap_block *block)
{
    assert(block->state == RPI_HEAP_HOLE && block->range->shelf == shelf);
    rpi_assert_held(&shelf->heap->growth);
    assert(rpi_heap_is_locked(&shelf->lock));
    int64_t change[RPI_COUNTS] = {0};
    count_merge(shelf, block, change);
    rpi_heap_change(shelf, change);
    merge(shelf, block);
}
