/* SPDX-License-Identifier: MIT
 *
 * The history: a ring of the latest events, and the stacks that the program's callback gave for
 * them. A stack is shared by the block and the events that name it, and released with the last.
 */
#include "base/held.h"
#include "memory/heap/heap.h"

#include "base/refuse.h"
#include "base/sized.h"

#include <assert.h>
#include <time.h>

const char *rpi_heap_event_name(enum rp_heap_event action)
{
    assert(action < RP_HEAP_EVENTS);
    static const char *const names[RP_HEAP_EVENTS] = {
        [RP_HEAP_EVENT_ALLOC] = "alloc",
        [RP_HEAP_EVENT_FREE_REQUESTED] = "free_requested",
        [RP_HEAP_EVENT_FREE_COMPLETED] = "free_completed",
        [RP_HEAP_EVENT_SEGMENT_MAP] = "segment_map",
        [RP_HEAP_EVENT_SEGMENT_UNMAP] = "segment_unmap",
        [RP_HEAP_EVENT_SNAPSHOT] = "snapshot",
        [RP_HEAP_EVENT_OOM] = "oom",
    };
    return names[action];
}

struct rpi_heap_stack *rpi_heap_stack_make(struct rp_heap *heap)
{
    if (!heap->frames.capture)
        return NULL;
    struct rpi_heap_stack *stack = rpi_malloc(sizeof *stack);
    if (!stack)
        return NULL;
    atomic_init(&stack->owners, 1);
    stack->id = heap->frames.capture(heap->frames.user);
    return stack;
}

struct rpi_heap_stack *rpi_heap_stack_share(struct rpi_heap_stack *stack)
{
    assert(!stack || atomic_load(&stack->owners) > 0);
    if (stack)
        atomic_fetch_add_explicit(&stack->owners, 1, memory_order_relaxed);
    return stack;
}

void rpi_heap_stack_release(struct rp_heap *heap, struct rpi_heap_stack *stack)
{
    assert(atomic_load(&stack->owners) > 0);
    if (atomic_fetch_sub_explicit(&stack->owners, 1, memory_order_acq_rel) != 1)
        return;
    if (heap->frames.release)
        heap->frames.release(stack->id, heap->frames.user);
    rpi_free(stack);
}

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* Makes room for one event more, twice as much as there was. Where there is no host memory the ring
 * stays as large as it is. */
static void make_room(struct rpi_heap_history *history)
{
    rpi_assert_held(&history->lock);
    assert(history->written == history->room && history->room < history->capacity);
    size_t room = history->room < history->capacity / 2 ? 2 * history->room : history->capacity;
    assert(room > history->room && room <= history->capacity);
    struct rpi_heap_event *ring = rpi_realloc(history->ring, room * sizeof *ring);
    if (!ring) {
        history->capacity = history->room; /* all of it is written: the oldest is the first */
        return;
    }
    history->ring = ring;
    history->room = room;
}

void rpi_heap_append(struct rp_heap *heap, enum rp_heap_event action, uint64_t address,
                     uint64_t bytes, CUstream stream, uint32_t pool, struct rpi_heap_stack *stack)
{
    assert(action < RP_HEAP_EVENTS);
    struct rpi_heap_history *history = &heap->history;
    struct rpi_heap_stack *old = NULL;
    pthread_mutex_lock(&history->lock);
    if (history->capacity && !(history->skip >> action & 1)) {
        if (history->written == history->room && history->room < history->capacity)
            make_room(history);
        assert(history->written % history->capacity < history->room);
        struct rpi_heap_event *event = &history->ring[history->written % history->capacity];
        if (history->written >= history->capacity)
            old = event->stack;
        *event = (struct rpi_heap_event){.action = action,
                                         .address = address,
                                         .bytes = bytes,
                                         .stream = stream,
                                         .pool = pool,
                                         .time_us = now_us(),
                                         .mark = history->mark,
                                         .stack = history->in_events ? rpi_heap_stack_share(stack)
                                                                     : NULL};
        history->written++;
    }
    pthread_mutex_unlock(&history->lock);
    rpi_heap_stack_drop(heap, old);
}

static uint64_t kept(const struct rpi_heap_history *history)
{
    return history->written < history->capacity ? history->written : history->capacity;
}

/* Forgets the oldest events but for so many, and all room. */
static void forget(struct rp_heap *heap, uint64_t left)
{
    assert(left <= kept(&heap->history));
    struct rpi_heap_history *history = &heap->history;
    for (uint64_t i = history->written - kept(history); i + left < history->written; i++)
        rpi_heap_stack_drop(heap, history->ring[i % history->capacity].stack);
}

void rpi_heap_history_finish(struct rp_heap *heap)
{
    struct rpi_heap_history *history = &heap->history;
    forget(heap, 0);
    rpi_free(history->ring);
    history->ring = NULL;
    history->capacity = history->room = 0;
    history->written = 0;
}

/* Puts another ring in the place of the one that there is, with the latest of its events. */
static void take_over(struct rp_heap *heap, struct rpi_heap_event *ring, size_t room,
                      const struct rp_heap_history_options *options)
{
    rpi_assert_held(&heap->history.lock);
    assert(room <= options->entries && (ring || !room));
    struct rpi_heap_history *history = &heap->history;
    uint64_t left = options->keep ? kept(history) : 0;
    if (left > room)
        left = room;
    forget(heap, left);
    for (uint64_t i = 0; i < left; i++)
        ring[i] = history->ring[(history->written - left + i) % history->capacity];
    rpi_free(history->ring);
    history->ring = ring;
    history->room = room;
    history->capacity = options->entries;
    history->written = left;
    history->skip = options->skip;
    history->in_events = options->stacks >= RP_HEAP_STACKS_OF_ALLOCATIONS;
}

enum { FIRST_ROOM = 1024 };

static size_t room_for(const struct rpi_heap_history *history,
                       const struct rp_heap_history_options *options)
{
    rpi_assert_held(&history->lock);
    size_t room = options->keep ? (size_t)kept(history) : 0;
    if (room < FIRST_ROOM)
        room = FIRST_ROOM;
    return room < options->entries ? room : options->entries;
}

rp_status rp_heap_keep_history(struct rp_heap *heap, const struct rp_heap_history_options *options,
                               struct rp_error *err)
{
    struct rp_heap_history_options chosen = RP_HEAP_HISTORY_OPTIONS_INIT;
    if (rpi_is_forked() || !heap)
        return rpi_refuse(err, "rp_heap_keep_history", "heap");
    rp_status status = rpi_take_options(&chosen, sizeof chosen, options, "rp_heap_keep_history",
                                        "RP_HEAP_HISTORY_OPTIONS_INIT", err);
    if (status != RP_OK)
        return status;
    struct rpi_heap_history *history = &heap->history;
    pthread_mutex_lock(&history->lock);
    size_t room = room_for(history, &chosen);
    struct rpi_heap_event *ring = room ? rpi_calloc(room, sizeof *ring) : NULL;
    if (room && !ring)
        status = rpi_error_host_memory(err, "rp_heap_keep_history", room * sizeof *ring);
    else {
        take_over(heap, ring, room, &chosen);
        atomic_store(&heap->recording, room ? 1 + (int)chosen.stacks : 0);
    }
    pthread_mutex_unlock(&history->lock);
    return status;
}

rp_status rp_heap_record_history(struct rp_heap *heap, size_t entries, struct rp_error *err)
{
    struct rp_heap_history_options options = RP_HEAP_HISTORY_OPTIONS_INIT;
    options.entries = entries;
    return rp_heap_keep_history(heap, &options, err);
}

void rp_heap_mark_history(struct rp_heap *heap, uint64_t mark)
{
    if (rpi_is_forked() || !heap)
        return;
    pthread_mutex_lock(&heap->history.lock);
    heap->history.mark = mark;
    pthread_mutex_unlock(&heap->history.lock);
}
