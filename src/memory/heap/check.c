/* SPDX-License-Identifier: MIT
 *
 * Walks a whole heap and compares what it finds with what is counted: each invariant of heap.h, the
 * gauges to the byte, the mapped bytes, the limits of the gauges. For tests.
 */
#include "memory/heap/heap.h"

#include <string.h>

static bool is_hole_or_free(const struct rpi_heap_block *block, enum rpi_heap_state state)
{
    return block && block->state == state;
}

static bool block_is_valid(const struct rpi_shelf *shelf, const struct rpi_heap_range *range,
                           const struct rpi_heap_block *block)
{
    const struct rpi_heap_block *after = block->after;
    uint64_t end = after ? after->address : range->base + range->bytes;
    if (block->range != range || !block->bytes || block->bytes % RPI_HEAP_GRAIN ||
        block->address + block->bytes != end || (after && after->before != block))
        return false;
    struct rpi_heap_block **start = rpi_shelf_start(range, block->address);
    if (shelf->whole && (block->address - range->base) % shelf->chunk_bytes)
        return false;
    if (block->state == RPI_HEAP_HOLE)
        return !is_hole_or_free(after, RPI_HEAP_HOLE) && !start &&
               block->bytes % shelf->chunk_bytes == 0;
    if (block->state == RPI_HEAP_FREE)
        return (shelf->whole || !is_hole_or_free(after, RPI_HEAP_FREE)) && start && *start != block;
    for (const struct rpi_heap_watch *watch = block->watches; watch; watch = watch->next)
        if (block->state != RPI_HEAP_LIVE || watch->address != block->address ||
            watch->range != range)
            return false;
    return start && *start == block && block->requested <= block->bytes;
}

static void count_block(const struct rpi_shelf *shelf, const struct rpi_heap_block *block,
                        int64_t seen[RPI_GAUGES])
{
    int64_t bytes = (int64_t)block->bytes;
    if (block->state == RPI_HEAP_FREE) {
        int64_t stuck = (int64_t)rpi_shelf_stuck(shelf, block->range, block->address, block->bytes);
        seen[RPI_GAUGE_INACTIVE_SPLIT] += stuck > 0;
        seen[RPI_GAUGE_INACTIVE_SPLIT_BYTES] += stuck;
    } else if (block->state != RPI_HEAP_HOLE) {
        bool live = block->state == RPI_HEAP_LIVE;
        seen[RPI_GAUGE_ACTIVE]++;
        seen[RPI_GAUGE_ACTIVE_BYTES] += bytes;
        seen[RPI_GAUGE_REQUESTED_BYTES] += (int64_t)block->requested;
        seen[RPI_GAUGE_ALLOCATION] += live;
        seen[RPI_GAUGE_ALLOCATED_BYTES] += live ? bytes : 0;
    }
}

static size_t tree_size(const struct rpi_heap_block *tree)
{
    return tree ? 1 + tree_size(tree->left) + tree_size(tree->right) : 0;
}

static size_t binned(const struct rpi_heap_bins *bins)
{
    size_t count = tree_size(bins->tree);
    for (int bin = 0; bin < RPI_HEAP_BINS; bin++)
        for (const struct rpi_heap_block *block = bins->lists[bin]; block; block = block->left)
            count += block->bytes == (uint64_t)(bin + 1) * RPI_HEAP_GRAIN;
    return count;
}

static size_t listed(const struct rpi_heap_block *block)
{
    size_t count = 0;
    for (; block; block = block->left)
        count++;
    return count;
}

static bool shelf_is_valid(const struct rpi_shelf *shelf, uint64_t *mapped)
{
    int64_t seen[RPI_GAUGES] = {0};
    size_t states[RPI_HEAP_WAITING + 1] = {0};
    for (size_t r = 0; r < shelf->ranges.count; r++) {
        const struct rpi_heap_range *range = shelf->ranges.data[r];
        if (range->first->address != range->base || range->first->before)
            return false;
        for (const struct rpi_heap_block *block = range->first; block; block = block->after) {
            if (!block_is_valid(shelf, range, block))
                return false;
            count_block(shelf, block, seen);
            states[block->state]++;
            *mapped += block->state == RPI_HEAP_HOLE ? 0 : block->bytes;
        }
    }
    int64_t now[RPI_GAUGES];
    rpi_shelf_gauges(shelf, now);
    for (int i = 0; i < RPI_COUNTS; i++)
        if (shelf->gauges.room[i] < 0)
            return false;
    return memcmp(seen, now, sizeof seen) == 0 && binned(&shelf->bins) == states[RPI_HEAP_FREE] &&
           listed(shelf->holes) == states[RPI_HEAP_HOLE] &&
           listed(shelf->waiting) == states[RPI_HEAP_WAITING];
}

bool rpi_heap_is_valid(struct rp_heap *heap)
{
    bool valid = true;
    uint64_t mapped = 0;
    int64_t most[RPI_COUNTS] = {0};
    pthread_mutex_lock(&heap->growth);
    rpi_heap_lock_shelves(heap);
    for (size_t s = 0; valid && s < heap->shelf_count; s++) {
        valid = shelf_is_valid(heap->shelves[s], &mapped);
        for (int i = 0; i < RPI_COUNTS; i++)
            most[i] += heap->shelves[s]->gauges.level[i];
    }
    const int64_t *peak = heap->totals.peak[RPI_HEAP_ALL];
    valid = valid && most[RPI_COUNT_BLOCKS] <= peak[RPI_GAUGE_ALLOCATION] &&
            most[RPI_COUNT_BYTES] <= peak[RPI_GAUGE_ALLOCATED_BYTES] &&
            most[RPI_COUNT_REQUESTED] <= peak[RPI_GAUGE_REQUESTED_BYTES] &&
            most[RPI_COUNT_SPLITS] <= peak[RPI_GAUGE_INACTIVE_SPLIT] &&
            most[RPI_COUNT_SPLIT_BYTES] <= peak[RPI_GAUGE_INACTIVE_SPLIT_BYTES];
    valid = valid && (int64_t)mapped == heap->totals.reserved_bytes[RPI_HEAP_ALL].current;
    rpi_heap_unlock_shelves(heap);
    pthread_mutex_unlock(&heap->growth);
    return valid;
}
