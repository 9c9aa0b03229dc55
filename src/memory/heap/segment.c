/* SPDX-License-Identifier: MIT
 *
 * Segments that a pool's source gives. Each is a range of its own without holes: it comes whole, and
 * goes when all of it is one free block. The source's functions are called with no lock held, as
 * they may wait for whatever they like: what goes is taken out of its shelf first and listed in
 * heap->orphans, and given away once growth is let go of.
 *
 * A range that is gone is used again by its shelf only: who looked it up may still read it.
 */
#include "memory/heap/heap.h"

#include "base/held.h"

#include <assert.h>

#define UNIT          ((uint64_t)1 << RPI_HEAP_UNIT_SHIFT)
#define LARGE_SEGMENT ((uint64_t)20 << 20) /* c10's, of requests below LEAST_OWN */
#define LEAST_OWN     ((uint64_t)10 << 20)

/* ---- Segments -------------------------------------------------------------------------------*/

static uint64_t segment_bytes(const struct rpi_shelf *shelf, uint64_t bytes)
{
    if (shelf->class == RPI_HEAP_LARGE && bytes < LEAST_OWN)
        return LARGE_SEGMENT;
    return rpi_round_up(bytes, UNIT);
}

bool rpi_heap_source_wish(const struct rpi_shelf *shelf, uint64_t bytes,
                          struct rpi_heap_wish *out_wish)
{
    assert(shelf->sourced && bytes);
    const struct rp_heap *heap = shelf->heap;
    rpi_assert_held(&heap->growth);
    uint64_t held = (uint64_t)heap->totals.reserved_bytes[RPI_HEAP_ALL].current;
    uint64_t limit = rpi_heap_limit(heap);
    *out_wish = (struct rpi_heap_wish){.bytes = segment_bytes(shelf, bytes),
                                       .source = heap->sources[shelf->pool]};
    return out_wish->bytes <= limit && held <= limit - out_wish->bytes;
}

/* One that is gone, or a new one; NULL: no host memory. */
static struct rpi_heap_range *get_range(struct rpi_shelf *shelf)
{
    assert(rpi_heap_is_locked(&shelf->lock));
    struct rpi_heap_range *range = shelf->retired;
    if (range)
        shelf->retired = range->next;
    else
        range = rpi_calloc(1, sizeof *range);
    return range;
}

static void retire(struct rpi_shelf *shelf, struct rpi_heap_range *range)
{
    assert(rpi_heap_is_locked(&shelf->lock) && !range->first);
    range->next = shelf->retired;
    shelf->retired = range;
}

rp_status rpi_heap_source_add(struct rpi_shelf *shelf, uint64_t address,
                              const struct rpi_heap_wish *wish, struct rp_error *err)
{
    assert(shelf->sourced && address && wish->bytes % shelf->chunk_bytes == 0);
    rpi_assert_held(&shelf->heap->growth);
    assert(rpi_heap_is_locked(&shelf->lock));
    size_t chunks = (size_t)(wish->bytes / shelf->chunk_bytes);
    struct rpi_heap_range *range = get_range(shelf);
    if (!range)
        return rpi_error_host_memory(err, "rp_heap_alloc_in", sizeof *range);
    range->shelf = shelf;
    range->base = address;
    range->bytes = wish->bytes;
    range->source = wish->source;
    bool made = rpi_vec_reserve(&shelf->ranges, shelf->ranges.count + 1) &&
                rpi_shelf_reserve(shelf, 1) && rpi_heap_make_tables(range, 0, chunks);
    if (made && !rpi_heap_sourced_enter(shelf->heap, range)) {
        rpi_heap_free_tables(range, 0, chunks);
        made = false;
    }
    if (!made) {
        retire(shelf, range);
        return rpi_error_host_memory(err, "rp_heap_alloc_in", chunks * sizeof(void *));
    }
    for (size_t i = 0; i < chunks; i++)
        range->chunks.data[i].span = 0; /* nothing to unmap */
    struct rpi_heap_block *block = rpi_shelf_descriptor(shelf);
    *block = (struct rpi_heap_block){.address = address, .bytes = wish->bytes, .range = range};
    range->first = block;
    shelf->ranges.data[shelf->ranges.count++] = range;
    rpi_heap_note(shelf->heap, RP_HEAP_EVENT_SEGMENT_MAP, address, wish->bytes, shelf->stream,
                  shelf->pool, shelf->heap->cause);
    rpi_heap_segments(shelf, 1, (int64_t)wish->bytes);
    rpi_shelf_settle(shelf, block);
    return RP_OK;
}

void rpi_heap_source_remove(struct rpi_shelf *shelf, struct rpi_heap_block *block)
{
    struct rp_heap *heap = shelf->heap;
    rpi_assert_held(&heap->growth);
    assert(rpi_heap_is_locked(&shelf->lock));
    struct rpi_heap_range *range = block->range;
    assert(block->state == RPI_HEAP_FREE && block->bytes == range->bytes);
    size_t at = 0;
    while (shelf->ranges.data[at] != range)
        at++;
    shelf->ranges.data[at] = shelf->ranges.data[--shelf->ranges.count];
    rpi_heap_sourced_leave(heap, range);
    rpi_heap_bins_remove(&shelf->bins, block);
    rpi_heap_free_tables(range, 0, (size_t)(range->bytes / shelf->chunk_bytes));
    range->first = NULL;
    rpi_shelf_discard(shelf, block);
    rpi_heap_note(heap, RP_HEAP_EVENT_SEGMENT_UNMAP, range->base, range->bytes, shelf->stream,
                  shelf->pool, heap->cause);
    rpi_heap_segments(shelf, -1, -(int64_t)range->bytes);
    range->next = heap->orphans;
    heap->orphans = range;
}

static void give_to_source(const struct rpi_heap_range *range)
{
    assert(range->shelf->sourced);
    range->source.free(range->base, range->bytes, range->shelf->stream, range->source.user);
}

bool rpi_heap_let_go(struct rp_heap *heap)
{
    rpi_assert_held(&heap->growth);
    struct rpi_heap_range *orphans = heap->orphans;
    struct rpi_heap_stack *cause = heap->cause;
    if (!orphans)
        return false;
    heap->orphans = NULL;
    heap->cause = NULL;
    pthread_mutex_unlock(&heap->growth);
    for (const struct rpi_heap_range *range = orphans; range; range = range->next)
        give_to_source(range);
    pthread_mutex_lock(&heap->growth);
    heap->cause = cause;
    while (orphans) {
        struct rpi_heap_range *range = orphans;
        orphans = range->next;
        rpi_heap_lock(&range->shelf->lock);
        retire(range->shelf, range);
        rpi_heap_unlock(&range->shelf->lock);
    }
    return true;
}

/* ---- The end --------------------------------------------------------------------------------*/

void rpi_heap_source_finish(struct rpi_shelf *shelf)
{
    for (size_t r = 0; shelf->sourced && r < shelf->ranges.count; r++)
        give_to_source(shelf->ranges.data[r]);
}
