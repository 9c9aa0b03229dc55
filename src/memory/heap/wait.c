/* SPDX-License-Identifier: MIT
 *
 * Blocks that were freed while other streams may still use them. When such a block is freed an
 * event is recorded on each of those streams; once all have happened the block is free. A free
 * never fails for the driver's sake: where no event can be recorded, as the stream is capturing or
 * the driver refuses, that is tried again whenever the shelf looks.
 *
 * Looks cost driver calls, so an allocation that need not find a waiting block looks only now and
 * then: each look in vain doubles the number of allocations until the next, up to 64. Events of one
 * stream happen in order, so a stream found busy once is not asked again in the same look.
 *
 * A program that runs far ahead of the device would have the heap map memory for each of its steps.
 * So where much waits already, the shelf's stream waits for the events in place of the host, and
 * takes the oldest blocks at once.
 */
#include "base/held.h"
#include "memory/heap/heap.h"

#include <assert.h>

enum { MOST_GAP = 64, BUSY_STREAMS = 8 };

/* What may wait in a shelf before its stream does: the larger of this, which leaves room for batches
 * that are fetched ahead, and of that share of what the heap has mapped. */
#define LEAST_WAITING ((int64_t)64 << 20)
enum { WAITING_SHARE = 16 };

struct look {
    bool finish;
    CUstream busy[BUSY_STREAMS];
    size_t busy_count;
};

bool rpi_heap_block_use(struct rpi_heap_block *block, CUstream stream)
{
    assert(block->state == RPI_HEAP_LIVE && rpi_heap_is_locked(&block->range->shelf->lock));
    for (const struct rpi_heap_use *use = block->uses; use; use = use->next)
        if (use->stream == stream)
            return true;
    struct rpi_heap_use *use = rpi_malloc(sizeof *use);
    if (!use)
        return false;
    *use = (struct rpi_heap_use){.stream = stream, .next = block->uses};
    block->uses = use;
    return true;
}

static void keep_event(struct rpi_shelf *shelf, CUevent event)
{
    assert(rpi_heap_is_locked(&shelf->lock));
    if (!rpi_vec_push(&shelf->events, event))
        shelf->heap->driver->cuEventDestroy(event);
}

/* A stream takes events of its own device only. */
static void record_elsewhere(struct rpi_shelf *shelf, struct rpi_heap_use *use)
{
    assert(!use->event && !use->elsewhere);
    const struct rp_driver *driver = shelf->heap->driver;
    CUcontext context = NULL, popped;
    CUevent event = NULL;
    if (driver->cuStreamGetCtx(use->stream, &context) != CUDA_SUCCESS ||
        context == shelf->heap->context || driver->cuCtxPushCurrent(context) != CUDA_SUCCESS)
        return;
    if (driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS) {
        use->elsewhere = driver->cuEventRecord(event, use->stream) == CUDA_SUCCESS;
        if (use->elsewhere)
            use->event = event;
        else
            driver->cuEventDestroy(event);
    }
    driver->cuCtxPopCurrent(&popped);
}

static void record(struct rpi_shelf *shelf, struct rpi_heap_use *use)
{
    assert(!use->event && !use->elsewhere);
    const struct rp_driver *driver = shelf->heap->driver;
    CUevent event = NULL;
    if (!rpi_heap_stream_runs(shelf->heap, use->stream))
        return;
    if (shelf->events.count)
        event = shelf->events.data[--shelf->events.count];
    else if (driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return;
    if (driver->cuEventRecord(event, use->stream) == CUDA_SUCCESS) {
        use->event = event;
        return;
    }
    keep_event(shelf, event);
    record_elsewhere(shelf, use);
}

void rpi_shelf_wait(struct rpi_shelf *shelf, struct rpi_heap_block *block)
{
    assert(block->state == RPI_HEAP_LIVE && block->uses);
    assert(rpi_heap_is_locked(&shelf->lock));
    /* Live blocks are fewer, active ones as many as before: no room is won. */
    shelf->gauges.level[RPI_COUNT_BLOCKS]--;
    shelf->gauges.level[RPI_COUNT_BYTES] -= (int64_t)block->bytes;
    shelf->gauges.waiting++;
    shelf->gauges.waiting_bytes += (int64_t)block->bytes;
    struct rpi_heap_scope scope;
    if (rpi_heap_enter(shelf->heap, &scope) == CUDA_SUCCESS) {
        for (struct rpi_heap_use *use = block->uses; use; use = use->next)
            record(shelf, use);
        rpi_heap_leave(shelf->heap, &scope);
    }
    block->state = RPI_HEAP_WAITING;
    block->left = NULL;
    *shelf->waiting_end = block;
    shelf->waiting_end = &block->left;
    shelf->poll_gap = 1;
    shelf->poll_in = 0;
}

static bool is_busy(const struct look *look, CUstream stream)
{
    assert(look->busy_count <= BUSY_STREAMS);
    for (size_t i = 0; i < look->busy_count; i++)
        if (look->busy[i] == stream)
            return true;
    return false;
}

/* Is the stream done with the block? */
static bool is_over(struct rpi_shelf *shelf, struct rpi_heap_use *use, struct look *look)
{
    const struct rp_driver *driver = shelf->heap->driver;
    if (!use->event)
        record(shelf, use);
    if (!use->event || is_busy(look, use->stream))
        return false;
    CUresult result =
        look->finish ? driver->cuEventSynchronize(use->event) : driver->cuEventQuery(use->event);
    if (result == CUDA_SUCCESS)
        return true;
    if (look->busy_count < BUSY_STREAMS)
        look->busy[look->busy_count++] = use->stream;
    return false;
}

static void drop_use(struct rpi_shelf *shelf, struct rpi_heap_use *use)
{
    if (use->elsewhere)
        shelf->heap->driver->cuEventDestroy(use->event);
    else
        keep_event(shelf, use->event);
    rpi_free(use);
}

static void drop_finished_uses(struct rpi_shelf *shelf, struct rpi_heap_block *block,
                               struct look *look)
{
    assert(block->state == RPI_HEAP_WAITING && block->range->shelf == shelf);
    for (struct rpi_heap_use **link = &block->uses; *link;) {
        struct rpi_heap_use *use = *link;
        if (!is_over(shelf, use, look)) {
            link = &use->next;
            continue;
        }
        *link = use->next;
        drop_use(shelf, use);
    }
}

bool rpi_shelf_poll(struct rpi_shelf *shelf, bool slow, bool finish)
{
    assert((!slow && !finish) || rpi_is_held(&shelf->heap->growth));
    assert(rpi_heap_is_locked(&shelf->lock));
    struct rpi_heap_scope scope;
    if (!shelf->waiting || rpi_heap_enter(shelf->heap, &scope) != CUDA_SUCCESS)
        return true;
    struct look look = {.finish = finish};
    bool any = false, all = true;
    for (struct rpi_heap_block **link = &shelf->waiting; *link;) {
        struct rpi_heap_block *block = *link, *next = block->left;
        drop_finished_uses(shelf, block, &look);
        if (!block->uses && rpi_shelf_give(shelf, block, slow)) {
            *link = next; /* the block may be gone by now */
            any = true;
            continue;
        }
        all &= block->uses != NULL;
        link = &block->left;
    }
    shelf->waiting_end = &shelf->waiting;
    while (*shelf->waiting_end)
        shelf->waiting_end = &(*shelf->waiting_end)->left;
    rpi_heap_leave(shelf->heap, &scope);
    shelf->poll_gap = any ? 1 : shelf->poll_gap * 2 > MOST_GAP ? MOST_GAP : shelf->poll_gap * 2;
    shelf->poll_in = shelf->poll_gap - 1;
    return all;
}

/* Has the shelf's stream wait for all that uses the block. False: it can't, for a use at least. */
static bool follow(struct rpi_shelf *shelf, struct rpi_heap_block *block)
{
    assert(block->state == RPI_HEAP_WAITING && block->range->shelf == shelf);
    const struct rp_driver *driver = shelf->heap->driver;
    while (block->uses) {
        struct rpi_heap_use *use = block->uses;
        if (!use->event || driver->cuStreamWaitEvent(shelf->stream, use->event, 0) != CUDA_SUCCESS)
            return false;
        block->uses = use->next;
        drop_use(shelf, use);
    }
    return true;
}

bool rpi_shelf_follow(struct rpi_shelf *shelf, uint64_t bytes)
{
    rpi_assert_held(&shelf->heap->growth);
    assert(rpi_heap_is_locked(&shelf->lock));
    int64_t most = shelf->heap->totals.reserved_bytes[RPI_HEAP_ALL].current / WAITING_SHARE;
    if (most < LEAST_WAITING)
        most = LEAST_WAITING;
    struct rpi_heap_scope scope;
    if (shelf->gauges.waiting_bytes <= most || rpi_heap_enter(shelf->heap, &scope) != CUDA_SUCCESS)
        return false;
    bool runs = rpi_heap_stream_runs(shelf->heap, shelf->stream), fits = false;
    struct rpi_heap_block **link = &shelf->waiting;
    while (runs && *link && !fits && shelf->gauges.waiting_bytes > most) {
        struct rpi_heap_block *block = *link, *next = block->left;
        if (!follow(shelf, block)) {
            link = &block->left;
            continue;
        }
        *link = next;
        if (!next)
            shelf->waiting_end = link;
        rpi_shelf_give(shelf, block, true);
        fits = rpi_heap_bins_find(&shelf->bins, bytes) != NULL;
    }
    rpi_heap_leave(shelf->heap, &scope);
    return fits;
}

bool rpi_shelf_poll_due(struct rpi_shelf *shelf)
{
    assert(rpi_heap_is_locked(&shelf->lock));
    if (!shelf->waiting)
        return false;
    if (shelf->poll_in == 0)
        return true;
    shelf->poll_in--;
    return false;
}
