/* SPDX-License-Identifier: MIT
 *
 * Pools whose memory comes from functions of the program's: which pool has which, and where their
 * segments are. Other ranges are looked up by their upper bits, and stay for good. Those of sources
 * come and go, at any addresses, so they have a sorted table, and a lock of its own that is the last
 * as the history's.
 */
#include "memory/heap/heap.h"

#include "base/held.h"
#include "base/refuse.h"

#include <assert.h>
#include <string.h>

/* ---- Which source ---------------------------------------------------------------------------*/

static bool has_other_memory(const struct rp_heap *heap, uint32_t pool)
{
    assert(pool < RP_HEAP_POOLS);
    rpi_assert_held(&heap->growth);
    for (size_t s = 0; s < heap->shelf_count; s++)
        if (heap->shelves[s]->pool == pool && !heap->shelves[s]->sourced)
            return true;
    return false;
}

/* growth is held. */
static rp_status set_source(struct rp_heap *heap, uint32_t pool,
                            const struct rp_heap_source *source, struct rp_error *err)
{
    assert(pool && pool < RP_HEAP_POOLS && source->alloc && source->free);
    rpi_assert_held(&heap->growth);
    if (has_other_memory(heap, pool))
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_heap_set_source",
                         "pool %u has memory of the device: name its source before anything is "
                         "allocated in it",
                         (unsigned)pool);
    if (!heap->sources)
        heap->sources = rpi_calloc(RP_HEAP_POOLS, sizeof *heap->sources);
    if (!heap->sources)
        return rpi_error_host_memory(err, "rp_heap_set_source",
                                     RP_HEAP_POOLS * sizeof *heap->sources);
    heap->sources[pool] = *source;
    return RP_OK;
}

rp_status rp_heap_set_source(struct rp_heap *heap, uint32_t pool,
                             const struct rp_heap_source *source, struct rp_error *err)
{
    if (rpi_is_forked() || !heap || !source)
        return rpi_refuse(err, "rp_heap_set_source", !heap ? "heap" : "source");
    if (!source->alloc || !source->free)
        return rpi_refuse(err, "rp_heap_set_source",
                          source->alloc ? "source->free" : "source->alloc");
    if (pool == 0 || pool >= RP_HEAP_POOLS)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_heap_set_source",
                         "pool is %u, but has to be at least 1 and below %d", (unsigned)pool,
                         RP_HEAP_POOLS);
    pthread_mutex_lock(&heap->growth);
    rp_status status = set_source(heap, pool, source, err);
    pthread_mutex_unlock(&heap->growth);
    return status;
}

bool rpi_heap_has_source(const struct rp_heap *heap, uint32_t pool)
{
    assert(pool < RP_HEAP_POOLS);
    rpi_assert_held(&heap->growth);
    return heap->sources && heap->sources[pool].alloc;
}

/* ---- Which range ----------------------------------------------------------------------------*/

/* The first of the table that ends above the address. The table's lock is held. */
static size_t place_of(const struct rpi_heap_sourced *sourced, uint64_t address)
{
    rpi_assert_held(&sourced->lock);
    size_t low = 0, high = sourced->ranges.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct rpi_heap_range *range = sourced->ranges.data[middle];
        if (range->base + range->bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct rpi_heap_range *rpi_heap_sourced_range_of(struct rp_heap *heap, uint64_t address)
{
    struct rpi_heap_sourced *sourced = &heap->sourced;
    struct rpi_heap_range *found = NULL;
    pthread_mutex_lock(&sourced->lock);
    size_t at = place_of(sourced, address);
    if (at < sourced->ranges.count && sourced->ranges.data[at]->base <= address)
        found = sourced->ranges.data[at];
    pthread_mutex_unlock(&sourced->lock);
    return found;
}

bool rpi_heap_sourced_enter(struct rp_heap *heap, struct rpi_heap_range *range)
{
    rpi_assert_held(&heap->growth);
    struct rpi_heap_sourced *sourced = &heap->sourced;
    pthread_mutex_lock(&sourced->lock);
    bool room = rpi_vec_reserve(&sourced->ranges, sourced->ranges.count + 1);
    if (room) {
        size_t at = place_of(sourced, range->base);
        memmove(&sourced->ranges.data[at + 1], &sourced->ranges.data[at],
                (sourced->ranges.count - at) * sizeof *sourced->ranges.data);
        sourced->ranges.data[at] = range;
        atomic_store(&sourced->count, ++sourced->ranges.count);
    }
    pthread_mutex_unlock(&sourced->lock);
    return room;
}

void rpi_heap_sourced_leave(struct rp_heap *heap, const struct rpi_heap_range *range)
{
    rpi_assert_held(&heap->growth);
    struct rpi_heap_sourced *sourced = &heap->sourced;
    pthread_mutex_lock(&sourced->lock);
    size_t at = place_of(sourced, range->base);
    assert(sourced->ranges.data[at] == range);
    atomic_store(&sourced->count, --sourced->ranges.count);
    memmove(&sourced->ranges.data[at], &sourced->ranges.data[at + 1],
            (sourced->ranges.count - at) * sizeof *sourced->ranges.data);
    pthread_mutex_unlock(&sourced->lock);
}
