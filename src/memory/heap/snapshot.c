/* SPDX-License-Identifier: MIT
 *
 * A copy of what the heap holds, taken under all its locks so that it is of one moment. A segment
 * is a stretch of mapped memory between two holes, or an oversize block.
 */
#include "memory/heap/snapshot.h"

#include "base/held.h"
#include "base/refuse.h"
#include "base/sized.h"

#include <assert.h>

static uint64_t id_of(const struct rpi_heap_stack *stack)
{
    return stack ? stack->id : 0;
}

static bool add_segment(struct rp_heap_snapshot *snapshot, const struct rpi_shelf *shelf,
                        const struct rpi_heap_block *block)
{
    assert(block->state != RPI_HEAP_HOLE && block->range->shelf == shelf);
    struct rp_heap_snapshot_segment segment = {.address = block->address,
                                               .stream = shelf->stream,
                                               .is_large = shelf->class != RPI_HEAP_SMALL,
                                               .is_oversize = shelf->whole,
                                               .pool = shelf->pool,
                                               .is_sourced = shelf->sourced,
                                               .first_block = snapshot->blocks.count};
    return rpi_vec_push(&snapshot->segments, segment);
}

static bool add_block(struct rp_heap_snapshot *snapshot, const struct rpi_shelf *shelf,
                      const struct rpi_heap_block *block)
{
    assert(snapshot->segments.count && block->state != RPI_HEAP_HOLE);
    bool live = block->state == RPI_HEAP_LIVE, active = block->state != RPI_HEAP_FREE;
    struct rpi_snapshot_block copy = {.seen = {.address = block->address,
                                               .bytes = block->bytes,
                                               .requested = active ? block->requested : 0,
                                               .state = live     ? "active_allocated"
                                                        : active ? "active_pending_free"
                                                                 : "inactive",
                                               .stream = active ? block->stream : shelf->stream,
                                               .stack = active ? id_of(block->stack) : 0},
                                      .stack = active ? block->stack : NULL};
    if (!rpi_vec_push(&snapshot->blocks, copy))
        return false;
    rpi_heap_stack_share(copy.stack);
    struct rp_heap_snapshot_segment *segment =
        &snapshot->segments.data[snapshot->segments.count - 1];
    segment->block_count++;
    segment->bytes += block->bytes;
    segment->allocated_bytes += live ? block->bytes : 0;
    segment->active_bytes += active ? block->bytes : 0;
    segment->requested_bytes += copy.seen.requested;
    return true;
}

static bool copy_range(struct rp_heap_snapshot *snapshot, const struct rpi_shelf *shelf,
                       const struct rpi_heap_range *range)
{
    assert(range->shelf == shelf && rpi_heap_is_locked(&range->shelf->lock));
    bool in_segment = false; /* a sourced range is one, and has no hole */
    for (const struct rpi_heap_block *block = range->first; block; block = block->after) {
        bool mapped = block->state != RPI_HEAP_HOLE;
        if (mapped && (!in_segment || shelf->whole) && !add_segment(snapshot, shelf, block))
            return false;
        if (mapped && !add_block(snapshot, shelf, block))
            return false;
        in_segment = mapped;
    }
    return true;
}

static bool copy_shelves(struct rp_heap_snapshot *snapshot, struct rp_heap *heap)
{
    rpi_assert_held(&heap->growth);
    for (size_t s = 0; s < heap->shelf_count; s++) {
        const struct rpi_shelf *shelf = heap->shelves[s];
        for (size_t r = 0; r < shelf->ranges.count; r++)
            if (!copy_range(snapshot, shelf, shelf->ranges.data[r]))
                return false;
    }
    return true;
}

static bool copy_history(struct rp_heap_snapshot *snapshot, struct rp_heap *heap)
{
    assert(!snapshot->events.count);
    struct rpi_heap_history *history = &heap->history;
    bool copied = true;
    pthread_mutex_lock(&history->lock);
    uint64_t kept = history->written < history->capacity ? history->written : history->capacity;
    copied = kept == 0 || rpi_vec_reserve(&snapshot->events, kept);
    for (uint64_t i = history->written - kept; copied && i < history->written; i++) {
        struct rpi_heap_event event = history->ring[i % history->capacity];
        rpi_heap_stack_share(event.stack);
        snapshot->events.data[snapshot->events.count++] = event;
    }
    pthread_mutex_unlock(&history->lock);
    return copied;
}

/* For snapshots to come. */
static void note_snapshot(struct rp_heap *heap, const struct rp_heap_snapshot *snapshot)
{
    rpi_assert_held(&heap->growth);
    assert(snapshot->heap == heap);
    uint64_t active = 0;
    for (size_t i = 0; i < snapshot->segments.count; i++)
        active += snapshot->segments.data[i].active_bytes;
    rpi_heap_note(heap, RP_HEAP_EVENT_SNAPSHOT, 0, active, NULL, 0, NULL);
}

rp_status rp_heap_snapshot_create(struct rp_heap *heap, struct rp_heap_snapshot **out_snapshot,
                                  struct rp_error *err)
{
    if (rpi_is_forked() || !heap || !out_snapshot)
        return rpi_refuse(err, "rp_heap_snapshot_create", !heap ? "heap" : "out_snapshot");
    struct rp_heap_snapshot *snapshot = rpi_calloc(1, sizeof *snapshot);
    if (!snapshot)
        return rpi_error_host_memory(err, "rp_heap_snapshot_create", sizeof *snapshot);
    snapshot->heap = heap;
    pthread_mutex_lock(&heap->growth);
    rpi_heap_lock_shelves(heap);
    bool copied = copy_shelves(snapshot, heap) && copy_history(snapshot, heap);
    if (copied)
        note_snapshot(heap, snapshot);
    rpi_heap_unlock_shelves(heap);
    pthread_mutex_unlock(&heap->growth);
    if (!copied) {
        rp_heap_snapshot_destroy(snapshot);
        return rpi_error_host_memory(err, "rp_heap_snapshot_create",
                                     sizeof(struct rpi_snapshot_block));
    }
    *out_snapshot = snapshot;
    return RP_OK;
}

void rp_heap_snapshot_destroy(struct rp_heap_snapshot *snapshot)
{
    if (!snapshot || rpi_is_forked())
        return;
    for (size_t i = 0; i < snapshot->blocks.count; i++)
        rpi_heap_stack_drop(snapshot->heap, snapshot->blocks.data[i].stack);
    for (size_t i = 0; i < snapshot->events.count; i++)
        rpi_heap_stack_drop(snapshot->heap, snapshot->events.data[i].stack);
    rpi_vec_finish(&snapshot->segments);
    rpi_vec_finish(&snapshot->blocks);
    rpi_vec_finish(&snapshot->events);
    rpi_free(snapshot->text);
    rpi_free(snapshot);
}

int rp_heap_snapshot_segment(const struct rp_heap_snapshot *snapshot, size_t index,
                             struct rp_heap_snapshot_segment *out_segment)
{
    if (!snapshot || !out_segment)
        return 0;
    if (index >= snapshot->segments.count)
        return 0;
    const struct rp_heap_snapshot_segment *segment = &snapshot->segments.data[index];
    return rpi_give(out_segment, segment, sizeof *segment, __func__);
}

int rp_heap_snapshot_block(const struct rp_heap_snapshot *snapshot, size_t index,
                           struct rp_heap_snapshot_block *out_block)
{
    if (!snapshot || !out_block)
        return 0;
    if (index >= snapshot->blocks.count)
        return 0;
    const struct rp_heap_snapshot_block *block = &snapshot->blocks.data[index].seen;
    return rpi_give(out_block, block, sizeof *block, __func__);
}

int rp_heap_snapshot_event(const struct rp_heap_snapshot *snapshot, size_t index,
                           struct rp_heap_snapshot_event *out_event)
{
    if (!snapshot || !out_event)
        return 0;
    if (index >= snapshot->events.count)
        return 0;
    const struct rpi_heap_event *event = &snapshot->events.data[index];
    const struct rp_heap_snapshot_event seen = {.action = rpi_heap_event_name(event->action),
                                                .address = event->address,
                                                .bytes = event->bytes,
                                                .time_us = event->time_us,
                                                .stream = event->stream,
                                                .stack = id_of(event->stack),
                                                .mark = event->mark,
                                                .pool = event->pool};
    return rpi_give(out_event, &seen, sizeof seen, __func__);
}
