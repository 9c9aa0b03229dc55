/* SPDX-License-Identifier: MIT
 *
 * Watching blocks of heaps: who has put the address of a live block where it is used later, as a
 * captured graph does, learns that the block was freed.
 *
 *     watch     one block that is watched, in the list of that block
 *     watches   of one watcher; `lost` is the first whose block was freed
 *     heaps     the heaps that addresses are looked up in: those of one device
 *
 *     block ---- watch of a -- watch of b             freeing the block takes all of its list out,
 *                   |             |                   and tells each watcher; destroying a heap is
 *     watches    | . W . |     | W . . |              freeing all of its blocks
 *
 * A block that is given out again at the same address is another one: the watch stays lost.
 *
 * Allocating pays one store for this, and freeing one load, both in a part of the block that is
 * touched anyway; the shelf's lock, which both hold, guards the list. A watcher looks at `lost`
 * without a lock. heaps.lock comes before any shelf's: under it no heap goes, so that a watcher
 * that takes its watches back finds the shelves of those that are still there.
 */
#ifndef REPRISE_MEMORY_HEAP_WATCH_H
#define REPRISE_MEMORY_HEAP_WATCH_H

#include "base/status.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rp_heap;
struct rpi_heap_block;
struct rpi_heap_range;
struct rpi_heap_watches;

struct rpi_heaps {
    pthread_mutex_t lock; /* guards what follows, and the list through the heaps */
    struct rp_heap *first;
    uint64_t added; /* heaps, ever: each has the number of its turn */
};

struct rpi_heap_watch {
    uint64_t address, bytes; /* of the block, as asked for */
    struct rpi_heap_watches *owner;
    uint64_t heap;                       /* its number */
    struct rpi_heap_range *range;        /* of the block, as long as the heap is there */
    struct rpi_heap_watch *next, **link; /* in the block's list; link is NULL in none. Guarded by
                                            the lock of the range's shelf */
};

/* Zeroed ones watch nothing. Stays where it is while it watches. */
struct rpi_heap_watches {
    struct rpi_heaps *heaps; /* unowned */
    struct rpi_heap_watch *all;
    size_t count;
    _Atomic(const struct rpi_heap_watch *) lost;
};

bool rpi_heaps_init(struct rpi_heaps *heaps); /* false for want of host memory */
void rpi_heaps_finish(struct rpi_heaps *heaps);
void rpi_heaps_add(struct rpi_heaps *heaps, struct rp_heap *heap);
/* Nothing of the heap is watched any more. It may be in no list. */
void rpi_heaps_remove(struct rp_heap *heap);
/* Does a heap have this address, mapped or not? */
bool rpi_heaps_have(struct rpi_heaps *heaps, uint64_t address);

/* Watches each live block that one of the addresses lies in; sorts them. watches is zeroed. Fails
 * for want of host memory only. */
rp_status rpi_heap_watches_take(struct rpi_heap_watches *watches, struct rpi_heaps *heaps,
                                uint64_t *addresses, size_t count, struct rp_error *err);
void rpi_heap_watches_finish(struct rpi_heap_watches *watches); /* allowed on zeroed ones */

/* The first watch whose block was freed, NULL when all are live. Any thread. */
static inline const struct rpi_heap_watch *
rpi_heap_watches_lost(const struct rpi_heap_watches *watches)
{
    return atomic_load_explicit(&watches->lost, memory_order_acquire);
}

/* The block, which somebody watches, is freed: tells them all. The shelf's lock is held. */
void rpi_heap_block_lose(struct rpi_heap_block *block);

#endif
