/* SPDX-License-Identifier: MIT
 *
 * Figures of the heap that are sums over its shelves, with their exact peaks, without a counter
 * that all threads write.
 *
 * Each shelf counts for itself and has room for each gauge: how much it may still rise before
 * anybody has to look. The rooms are handed out so that sum and rooms together are no more than the
 * peak seen so far: while every shelf stays within its own, the sum has no new peak. A shelf
 * without enough room takes all locks, changes its gauge, adds up, raises the peak where it is one,
 * and hands out anew what lies between sum and peak: half of it to itself, as it is the one that
 * grows. So a rise of the sum by x towards an old peak costs about log2(x) looks, and a new peak
 * one.
 *
 * Every gauge has two or three peaks to respect: that of all, and those of its pools.
 */
#ifndef REPRISE_MEMORY_HEAP_GAUGE_H
#define REPRISE_MEMORY_HEAP_GAUGE_H

#include <stdbool.h>
#include <stdint.h>

/* The names are c10's. `active` counts blocks that are live or waiting, `inactive_split` free
 * blocks with a part that can't be given back, as a chunk is shared with an active block. */
enum rpi_gauge {
    RPI_GAUGE_ACTIVE,
    RPI_GAUGE_ACTIVE_BYTES,
    RPI_GAUGE_ALLOCATED_BYTES,
    RPI_GAUGE_ALLOCATION,
    RPI_GAUGE_INACTIVE_SPLIT,
    RPI_GAUGE_INACTIVE_SPLIT_BYTES,
    RPI_GAUGE_REQUESTED_BYTES,
    RPI_GAUGES
};

/* What one allocation or free changes. Blocks that begin or cease to wait are rare, and counted
 * beside. */
enum rpi_count {
    RPI_COUNT_BLOCKS, /* live */
    RPI_COUNT_BYTES,  /* of them */
    RPI_COUNT_REQUESTED,
    RPI_COUNT_SPLITS,
    RPI_COUNT_SPLIT_BYTES,
    RPI_COUNTS
};

struct rpi_gauges {
    int64_t room[RPI_COUNTS];  /* that of blocks is good for live and for active ones, and so on */
    int64_t level[RPI_COUNTS]; /* level less room is how many there are */
    int64_t risen[RPI_COUNTS]; /* sum of all rises */
    int64_t waiting, waiting_bytes;
};

/* Oversize blocks count as large ones too. */
enum {
    RPI_HEAP_ALL,
    RPI_HEAP_LARGE_POOL,
    RPI_HEAP_SMALL_POOL,
    RPI_HEAP_OVERSIZE_POOL,
    RPI_HEAP_POOLS
};

/* One of c10's statistics. */
struct rpi_heap_stat {
    int64_t current, peak, allocated, freed;
};

/* What is kept for the heap as a whole; guarded by growth. */
struct rpi_heap_totals {
    int64_t peak[RPI_HEAP_POOLS][RPI_GAUGES];
    int64_t base[RPI_HEAP_POOLS][RPI_GAUGES]; /* sums when `risen` was last set to 0 */
    struct rpi_heap_stat segment[RPI_HEAP_POOLS], reserved_bytes[RPI_HEAP_POOLS];
    int64_t alloc_retries, ooms, sync_all_streams, device_allocs, device_frees;
};

static inline int64_t rpi_gauges_count(const struct rpi_gauges *gauges, enum rpi_count count)
{
    return gauges->level[count] - gauges->room[count];
}

/* The change where it is above 0, else 0; without a branch. */
static inline int64_t rpi_rise(int64_t change)
{
    return (int64_t)((uint64_t)change & (((uint64_t)change >> 63) - 1));
}

/* Changes a shelf's gauges under its lock; false, with nothing changed, when there is no room.
 * Inlined where much of the change is known: five figures on the way of every allocation and free.
 */
static inline bool rpi_gauges_change(struct rpi_gauges *gauges, const int64_t change[RPI_COUNTS])
{
    int64_t *room = gauges->room, *risen = gauges->risen;
    int64_t blocks = room[RPI_COUNT_BLOCKS] - change[RPI_COUNT_BLOCKS];
    int64_t bytes = room[RPI_COUNT_BYTES] - change[RPI_COUNT_BYTES];
    int64_t requested = room[RPI_COUNT_REQUESTED] - change[RPI_COUNT_REQUESTED];
    int64_t splits = room[RPI_COUNT_SPLITS] - change[RPI_COUNT_SPLITS];
    int64_t split_bytes = room[RPI_COUNT_SPLIT_BYTES] - change[RPI_COUNT_SPLIT_BYTES];
    if ((blocks | bytes | requested | splits | split_bytes) < 0)
        return false;
    room[RPI_COUNT_BLOCKS] = blocks;
    room[RPI_COUNT_BYTES] = bytes;
    room[RPI_COUNT_REQUESTED] = requested;
    room[RPI_COUNT_SPLITS] = splits;
    room[RPI_COUNT_SPLIT_BYTES] = split_bytes;
    if (change[RPI_COUNT_REQUESTED] > 0) { /* an allocation, else none of the three rises */
        risen[RPI_COUNT_BLOCKS] += change[RPI_COUNT_BLOCKS];
        risen[RPI_COUNT_BYTES] += change[RPI_COUNT_BYTES];
        risen[RPI_COUNT_REQUESTED] += change[RPI_COUNT_REQUESTED];
    }
    risen[RPI_COUNT_SPLITS] += rpi_rise(change[RPI_COUNT_SPLITS]);
    risen[RPI_COUNT_SPLIT_BYTES] += rpi_rise(change[RPI_COUNT_SPLIT_BYTES]);
    return true;
}

struct rpi_shelf;
struct rp_heap;

/* The same where there is no room. growth and the shelf's lock are held, no other shelf's. */
void rpi_heap_change(struct rpi_shelf *shelf, const int64_t change[RPI_COUNTS]);
/* Chunks were mapped (count, bytes > 0) or unmapped (both < 0). growth is held. */
void rpi_heap_segments(struct rpi_shelf *shelf, int64_t count, int64_t bytes);
/* All gauges of one shelf, whose lock is held. */
void rpi_shelf_gauges(const struct rpi_shelf *shelf, int64_t out_now[RPI_GAUGES]);
/* Hands out what lies between sums and peaks; growth and every shelf's lock are held. */
void rpi_heap_hand_out(struct rp_heap *heap, const struct rpi_shelf *asking);

#endif
