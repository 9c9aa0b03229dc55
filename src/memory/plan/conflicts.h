/* SPDX-License-Identifier: MIT
 *
 * The blocks that conflict with a block, listed in about as much time as there are of them.
 *
 * Later ones: on each lane they are a stretch of ranks, from the block's place in host order to the
 * first rank that may take its memory. Earlier ones: those that hold back the block's rank on its
 * lane. Every so many ranks of a lane the blocks that hold it back are written down; between two
 * such snapshots lie about as many ranks as the snapshot has blocks, so all of them take memory in
 * blocks times lanes, and a list is a snapshot and a stretch of host order, filtered.
 */
#ifndef REPRISE_MEMORY_PLAN_CONFLICTS_H
#define REPRISE_MEMORY_PLAN_CONFLICTS_H

#include "base/vec.h"
#include "memory/order/lifetimes.h"

struct rpi_snapshot {
    size_t first; /* slice of held */
    uint32_t count;
    uint32_t host; /* the blocks of held are before this one in host order */
};

struct rpi_conflicts {
    const struct rpi_lifetimes *x;
    uint32_t *lane_start; /* [lanes + 1]: slices of at and snapshot */
    uint32_t *at;         /* [count]: blocks by lane and rank */
    uint32_t *snapshot;   /* [count]: by lane and rank, the snapshot at or before it */
    struct {
        RPI_VEC(struct rpi_snapshot);
    } snapshots;
    struct {
        RPI_VEC(uint32_t);
    } held;
};

/* false: no host memory; finish is due all the same. */
bool rpi_conflicts_init(struct rpi_conflicts *conflicts, const struct rpi_lifetimes *x);
void rpi_conflicts_finish(struct rpi_conflicts *conflicts);

/* How many pairs conflict. Blocks times lanes. */
uint64_t rpi_conflicts_pairs(const struct rpi_conflicts *conflicts);

/* Writes the blocks that conflict with `block`, each once, in no order that means anything. */
uint32_t rpi_conflicts_list(const struct rpi_conflicts *conflicts, uint32_t block,
                            uint32_t *out_blocks);

#endif
