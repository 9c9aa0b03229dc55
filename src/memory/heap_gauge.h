/* SPDX-License-Identifier: MIT
 *
 * Figures of the heap that are sums over its shelves, with their exact peaks, without a counter
 * that all threads write.
 *
 * Each shelf counts for itself and has a limit for each gauge. The limits are handed out so that
 * their sum is no more than the peak seen so far: while every shelf stays within its own, the sum
 * has no new peak, and nobody needs to look. A shelf that would pass a limit takes all locks,
 * changes its gauge, adds up, raises the peak where it is one, and hands out anew what lies between
 * sum and peak: half of it to itself, as it is the one that grows. So a rise of the sum by x
 * towards an old peak costs about log2(x) looks, and a new peak one.
 *
 * Every gauge has two peaks to respect: that of its class and that of both together.
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

struct rpi_gauges {
    int64_t now[RPI_GAUGES];
    int64_t limit[RPI_GAUGES];
    int64_t risen[RPI_GAUGES]; /* sum of all rises */
};

enum { RPI_HEAP_ALL, RPI_HEAP_LARGE_POOL, RPI_HEAP_SMALL_POOL, RPI_HEAP_POOLS };

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

/* Changes a shelf's gauges under its lock; false, with nothing changed, when a limit would be
 * passed. */
static inline bool rpi_gauges_change(struct rpi_gauges *gauges, const int64_t change[RPI_GAUGES])
{
    int64_t room = 0;
    for (int i = 0; i < RPI_GAUGES; i++)
        room |= gauges->limit[i] - gauges->now[i] - change[i];
    if (room < 0)
        return false;
    for (int i = 0; i < RPI_GAUGES; i++) {
        gauges->now[i] += change[i];
        gauges->risen[i] += change[i] > 0 ? change[i] : 0;
    }
    return true;
}

struct rpi_shelf;
struct rp_heap;

/* The same beyond the limits. growth and the shelf's lock are held, no other shelf's. */
void rpi_heap_change(struct rpi_shelf *shelf, const int64_t change[RPI_GAUGES]);
/* Chunks were mapped (count, bytes > 0) or unmapped (both < 0). growth is held. */
void rpi_heap_segments(struct rpi_shelf *shelf, int64_t count, int64_t bytes);
/* Hands out what lies between sums and peaks; growth and every shelf's lock are held. */
void rpi_heap_hand_out(struct rp_heap *heap, const struct rpi_shelf *asking);

#endif
