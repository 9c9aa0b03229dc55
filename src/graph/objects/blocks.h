/* SPDX-License-Identifier: MIT
 *
 * What lies at a place of a pool: which block of which graph, and whether it holds what its graph
 * wrote there. Blocks of a graph that do not live together may lie over each other; those that it
 * keeps do not.
 *
 * With the core's lock held, all of it.
 */
#ifndef REPRISE_GRAPH_OBJECTS_BLOCKS_H
#define REPRISE_GRAPH_OBJECTS_BLOCKS_H

#include "memory/range/ranges.h"

#include <stddef.h>

struct rp_graph;
struct rp_pool;

/* What a replay finds where an argument of it lies. */
enum rpi_block_state {
    RPI_BLOCK_NONE,  /* no kept block holds all of it */
    RPI_BLOCK_WHOLE, /* one does, and holds what its graph wrote or the program put there */
    RPI_BLOCK_STALE  /* one does; its graph was not replayed, or another has overwritten it */
};

struct rpi_block_place {
    const struct rp_graph *graph; /* whose block it is */
    uint32_t block;
};

/* Looks for a kept block that holds the range. `read`: what it holds matters, so one that is whole
 * is looked for first; otherwise any will do. *out_place is written where there is one. */
enum rpi_block_state rpi_blocks_look(const struct rp_pool *pool, struct rpi_range range, bool read,
                                     struct rpi_block_place *out_place);

/* The graph's block at the offset that is kept, or is not; UINT32_MAX: there is none. */
uint32_t rpi_blocks_at(const struct rp_graph *graph, uint64_t offset, bool kept);
/* Whose the memory at an offset of the pool is: "block 3 of graph 'a', which frees it". */
void rpi_blocks_describe(const struct rp_pool *pool, uint64_t offset, char *text, size_t bytes);

/* The graph that wrote over the writer's block last, NULL when it is known no more; the writer
 * itself, when its last replay failed. */
const struct rp_graph *rpi_blocks_overwriter(const struct rp_graph *writer, uint32_t block);

#endif
