/* SPDX-License-Identifier: MIT
 *
 * Online placement: where a block may lie while a capture is under way and its future is not known.
 *
 * One range of offsets from 0 upwards is cut into segments, each with the block that was laid there
 * last. A later block may take a segment when that block is dead for it: freed on the host before,
 * and every node of its free before or equal to a terminal of the asking stream. Whoever lay there
 * earlier needs no look: it was dead for the last one, and a block's free nodes include whatever
 * its own allocation saw (rpi_capture_free_nodes sees to that).
 *
 *     0        offset                                       height
 *     |  B4   |   never used   |  B1  |    B7     |   B2   |
 *
 * Asking whether a block fits costs a binary search and the segments under it; finding the best
 * gap walks all segments.
 */
#ifndef REPRISE_MEMORY_PLACE_H
#define REPRISE_MEMORY_PLACE_H

#include "base/vec.h"
#include "memory/order.h"

struct rpi_place_block {
    bool freed;
    uint32_t first_node, node_count; /* slice of nodes, of the free; none: dead for nobody */
};
struct rpi_place_segment {
    uint64_t offset, end;
    uint32_t block;
};

struct rpi_place {
    const struct rpi_order *order; /* unowned */
    uint64_t alignment;            /* of offsets; a power of two */
    uint64_t height;               /* gaps below it are preferred to growth */
    struct {
        RPI_VEC(struct rpi_place_block);
    } blocks;
    struct {
        RPI_VEC(struct rpi_place_segment); /* by offset, disjoint, not empty */
    } segments;
    struct {
        RPI_VEC(uint32_t);
    } nodes;
};

/* An empty range whose memory so far ends at `height`. Allocates nothing. */
void rpi_place_init(struct rpi_place *place, const struct rpi_order *order, uint64_t alignment,
                    uint64_t height);
void rpi_place_finish(struct rpi_place *place);

/* Is every block under [offset, offset + bytes) dead for the frontier? */
bool rpi_place_fits(const struct rpi_place *place, uint64_t offset, uint64_t bytes,
                    const struct rpi_frontier *frontier);
/* The offset of the smallest gap below the height that is large enough, or else the lowest that
 * needs growth; UINT64_MAX when offset + bytes would overflow. */
uint64_t rpi_place_find(const struct rpi_place *place, uint64_t bytes,
                        const struct rpi_frontier *frontier);
/* Lays the next block at [offset, offset + bytes), bytes > 0, where it fits; height grows with it.
 */
rp_status rpi_place_take(struct rpi_place *place, uint64_t offset, uint64_t bytes,
                         uint32_t *out_block, struct rp_error *err);
/* The block is freed on the host now, and dead for whoever comes after all of nodes. */
rp_status rpi_place_free(struct rpi_place *place, uint32_t block, const uint32_t *nodes,
                         size_t count, struct rp_error *err);

/* The invariants above; for tests and asserts. */
bool rpi_place_is_valid(const struct rpi_place *place);

#endif
