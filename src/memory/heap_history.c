/* SPDX-License-Identifier: MIT
 *
 * The history: a ring of the latest events, and the stacks that the program's callback gave for
 * them. A stack is shared by the block and the events that name it, and released with the last.
 */
#include "memory/heap.h"

#include "base/refuse.h"

#include <time.h>

const char *rpi_heap_action_name(enum rpi_heap_action action)
{
    static const char *const names[RPI_HEAP_ACTIONS] = {
        [RPI_HEAP_ALLOC] = "alloc",
        [RPI_HEAP_FREE_REQUESTED] = "free_requested",
        [RPI_HEAP_FREE_COMPLETED] = "free_completed",
        [RPI_HEAP_SEGMENT_MAP] = "segment_map",
        [RPI_HEAP_SEGMENT_UNMAP] = "segment_unmap",
        [RPI_HEAP_OOM] = "oom",
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
    if (stack)
        atomic_fetch_add_explicit(&stack->owners, 1, memory_order_relaxed);
    return stack;
}

void rpi_heap_stack_release(struct rp_heap *heap, struct rpi_heap_stack *stack)
{
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

void rpi_heap_append(struct rp_heap *heap, enum rpi_heap_action action, uint64_t address,
                     uint64_t bytes, CUstream stream, struct rpi_heap_stack *stack)
{
    struct rpi_heap_history *history = &heap->history;
    struct rpi_heap_stack *old = NULL;
    pthread_mutex_lock(&history->lock);
    if (history->capacity) {
        struct rpi_heap_event *event = &history->ring[history->written % history->capacity];
        if (history->written >= history->capacity)
            old = event->stack;
        *event = (struct rpi_heap_event){action, address,  bytes,
                                         stream, now_us(), rpi_heap_stack_share(stack)};
        history->written++;
    }
    pthread_mutex_unlock(&history->lock);
    rpi_heap_stack_drop(heap, old);
}

void rpi_heap_history_finish(struct rp_heap *heap)
{
    struct rpi_heap_history *history = &heap->history;
    uint64_t kept = history->written < history->capacity ? history->written : history->capacity;
    for (uint64_t i = 0; i < kept; i++)
        rpi_heap_stack_drop(heap, history->ring[i].stack);
    rpi_free(history->ring);
    history->ring = NULL;
    history->capacity = 0;
    history->written = 0;
}

rp_status rp_heap_record_history(struct rp_heap *heap, size_t entries, struct rp_error *err)
{
    if (rpi_is_forked() || !heap)
        return rpi_refuse(err, "rp_heap_record_history", "heap");
    struct rpi_heap_event *ring = NULL;
    if (entries) {
        ring = rpi_calloc(entries, sizeof *ring);
        if (!ring)
            return rpi_error_host_memory(err, "rp_heap_record_history", entries * sizeof *ring);
    }
    struct rpi_heap_history *history = &heap->history;
    pthread_mutex_lock(&history->lock);
    rpi_heap_history_finish(heap);
    history->ring = ring;
    history->capacity = entries;
    atomic_store(&heap->recording, entries != 0);
    pthread_mutex_unlock(&history->lock);
    return RP_OK;
}
