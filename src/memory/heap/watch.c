/* SPDX-License-Identifier: MIT */
#include "memory/heap/watch.h"

#include "base/held.h"
#include "base/hostmem.h"
#include "memory/heap/heap.h"

#include <assert.h>
#include <stdlib.h>

/* ---- Heaps -----------------------------------------------------------------------------------*/

bool rpi_heaps_init(struct rpi_heaps *heaps)
{
    heaps->first = NULL;
    return pthread_mutex_init(&heaps->lock, NULL) == 0;
}

void rpi_heaps_finish(struct rpi_heaps *heaps)
{
    assert(!heaps->first);
    pthread_mutex_destroy(&heaps->lock);
}

void rpi_heaps_add(struct rpi_heaps *heaps, struct rp_heap *heap)
{
    assert(!heap->among);
    pthread_mutex_lock(&heaps->lock);
    heap->among = heaps;
    heap->number = ++heaps->added;
    heap->next = heaps->first;
    heaps->first = heap;
    pthread_mutex_unlock(&heaps->lock);
}

static void lose_all(struct rp_heap *heap)
{
    rpi_assert_held(&heap->among->lock);
    for (size_t s = 0; s < heap->shelf_count; s++) {
        struct rpi_shelf *shelf = heap->shelves[s];
        rpi_heap_lock(&shelf->lock);
        for (size_t r = 0; r < shelf->ranges.count; r++)
            for (struct rpi_heap_block *b = shelf->ranges.data[r]->first; b; b = b->after)
                if (b->state == RPI_HEAP_LIVE)
                    rpi_heap_block_lose(b);
        rpi_heap_unlock(&shelf->lock);
    }
}

void rpi_heaps_remove(struct rp_heap *heap)
{
    struct rpi_heaps *heaps = heap->among;
    if (!heaps)
        return;
    pthread_mutex_lock(&heaps->lock);
    struct rp_heap **link = &heaps->first;
    while (*link != heap) {
        assert(*link);
        link = &(*link)->next;
    }
    *link = heap->next;
    lose_all(heap);
    pthread_mutex_unlock(&heaps->lock);
    heap->among = NULL;
}

/* With the lock held. */
static struct rpi_heap_range *find_range(const struct rpi_heaps *heaps, uint64_t address,
                                         uint64_t *out_heap)
{
    rpi_assert_held(&((struct rpi_heaps *)heaps)->lock);
    struct rpi_heap_range *range = NULL;
    for (struct rp_heap *heap = heaps->first; heap && !range; heap = heap->next) {
        range = rpi_heap_range_of(heap, address);
        *out_heap = heap->number;
    }
    return range;
}

static bool is_there(const struct rpi_heaps *heaps, uint64_t number)
{
    rpi_assert_held(&((struct rpi_heaps *)heaps)->lock);
    const struct rp_heap *heap = heaps->first;
    while (heap && heap->number != number)
        heap = heap->next;
    return heap;
}

bool rpi_heaps_have(struct rpi_heaps *heaps, uint64_t address)
{
    uint64_t heap;
    pthread_mutex_lock(&heaps->lock);
    bool have = find_range(heaps, address, &heap);
    pthread_mutex_unlock(&heaps->lock);
    return have;
}

/* ---- Watches ---------------------------------------------------------------------------------*/

static int by_address(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Watches the live block that the address lies in, if there is one; its end, or 0. */
static uint64_t watch(struct rpi_heap_watches *watches, uint64_t address)
{
    uint64_t heap, end = 0;
    struct rpi_heap_range *range = find_range(watches->heaps, address, &heap);
    if (!range)
        return 0;
    rpi_heap_lock(&range->shelf->lock);
    struct rpi_heap_block *block = rpi_heap_block_of(range, address);
    if (block && block->state == RPI_HEAP_LIVE) {
        assert(address < block->address + block->bytes);
        struct rpi_heap_watch *made = &watches->all[watches->count++];
        *made = (struct rpi_heap_watch){.address = block->address,
                                        .bytes = block->requested,
                                        .owner = watches,
                                        .heap = heap,
                                        .range = range,
                                        .next = block->watches,
                                        .link = &block->watches};
        if (made->next)
            made->next->link = &made->next;
        block->watches = made;
        end = block->address + block->bytes;
    }
    rpi_heap_unlock(&range->shelf->lock);
    return end;
}

rp_status rpi_heap_watches_take(struct rpi_heap_watches *watches, struct rpi_heaps *heaps,
                                uint64_t *addresses, size_t count, struct rp_error *err)
{
    assert(!watches->all && !watches->count);
    if (!count)
        return RP_OK;
    watches->all = rpi_calloc(count, sizeof *watches->all);
    if (!watches->all)
        return rpi_error_host_memory(err, "rp_graph_capture", count * sizeof *watches->all);
    watches->heaps = heaps;
    qsort(addresses, count, sizeof *addresses, by_address);
    pthread_mutex_lock(&heaps->lock);
    uint64_t end = 0; /* of the last block: the next addresses may lie in it too */
    for (size_t i = 0; i < count; i++)
        if (addresses[i] >= end)
            end = watch(watches, addresses[i]);
    pthread_mutex_unlock(&heaps->lock);
    return RP_OK;
}

static void take_out(struct rpi_heap_watch *watch)
{
    if (!watch->link)
        return;
    assert(*watch->link == watch);
    assert(!watch->next || watch->next->link == &watch->next);
    *watch->link = watch->next;
    if (watch->next)
        watch->next->link = watch->link;
    watch->link = NULL;
}

void rpi_heap_watches_finish(struct rpi_heap_watches *watches)
{
    if (!watches->all)
        return;
    pthread_mutex_lock(&watches->heaps->lock);
    for (size_t i = 0; i < watches->count; i++) {
        struct rpi_heap_watch *watch = &watches->all[i];
        if (!is_there(watches->heaps, watch->heap))
            continue;
        rpi_heap_lock(&watch->range->shelf->lock);
        take_out(watch);
        rpi_heap_unlock(&watch->range->shelf->lock);
    }
    pthread_mutex_unlock(&watches->heaps->lock);
    rpi_free(watches->all);
    *watches = (struct rpi_heap_watches){0};
}

void rpi_heap_block_lose(struct rpi_heap_block *block)
{
    assert(rpi_heap_is_locked(&block->range->shelf->lock));
    while (block->watches) {
        struct rpi_heap_watch *watch = block->watches;
        const struct rpi_heap_watch *none = NULL;
        take_out(watch);
        atomic_compare_exchange_strong_explicit(&watch->owner->lost, &none, watch,
                                                memory_order_release, memory_order_relaxed);
    }
}
