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
 * Best fit without classes, or the lowest gap where none fits well, for any stream: each stream
 * that asks has a view of the range (see place_view.h), which knows the gaps that it may take, by
 * size. A view learns of what happened since its stream last asked when the stream asks again, so a
 * stream that does not ask costs nothing, and a block that is gone before a stream asks never
 * reaches its view.
 *
 * Cost. A free notes its nodes. An allocation looks at each block that was freed since its stream's
 * last one, moves it to the view's gaps or to the nodes that it waits for, then searches and
 * updates sorted sets. Each block does that once for each stream that asks while the block is dead
 * and not taken, so an operation's amortised cost grows with the streams and with the logarithm of
 * the gaps only. A stream whose frontier shrinks (its dependencies were set by hand) has its view
 * made anew, at a cost in segments.
 */
#ifndef REPRISE_MEMORY_PLACE_PLACE_H
#define REPRISE_MEMORY_PLACE_PLACE_H

#include "memory/order/order.h"
#include "memory/place/place_view.h"

struct rpi_place_block {
    uint32_t first_marker, marker_count; /* slice of markers; none: dead for nobody */
    uint32_t first_piece; /* a segment that is still the block's; or RPI_NO_SEGMENT */
    bool freed;
};

/* A node of a free, as the order's frontiers see it. */
struct rpi_place_marker {
    uint32_t chain, position;
};

struct rpi_place {
    const struct rpi_order *order; /* unowned */
    uint64_t alignment;            /* of offsets and sizes; a power of two */
    uint64_t height;               /* where the last segment ends; gaps below are preferred */
    struct {
        RPI_VEC(struct rpi_place_block);
    } blocks;
    struct {
        RPI_VEC(struct rpi_place_marker);
    } markers;
    struct {
        RPI_VEC(uint32_t); /* blocks, in the order of their frees; those without nodes left out */
    } freed;
    struct rpi_segments segments;
    struct {
        RPI_VEC(struct rpi_place_view *); /* at most RPI_PLACE_VIEWS; view i has bit i */
    } views;
    struct rpi_place_view *view; /* the one that looks; NULL: none */
    uint64_t looks;
};

/* An empty range whose memory so far ends at `height`, a multiple of alignment. Allocates nothing.
 */
void rpi_place_init(struct rpi_place *place, const struct rpi_order *order, uint64_t alignment,
                    uint64_t height);
void rpi_place_finish(struct rpi_place *place);

/* What follows is asked for an allocation on `stream`, any number that tells streams apart, whose
 * terminals are the frontier's. After a failure it must be asked again. */
rp_status rpi_place_look(struct rpi_place *place, uint32_t stream,
                         const struct rpi_frontier *frontier, struct rp_error *err);
/* Is every block under [offset, offset + bytes) dead for the frontier? */
bool rpi_place_fits(const struct rpi_place *place, uint64_t offset, uint64_t bytes);
/* The offset of the smallest gap below the height that is large enough, the lowest of them; where
 * that is more than three times as large, of the lowest that is large enough; or else the lowest
 * that needs growth. UINT64_MAX when offset + bytes would overflow. */
uint64_t rpi_place_find(const struct rpi_place *place, uint64_t bytes);
/* Lays the next block at [offset, offset + bytes), bytes > 0, where it fits; bytes are rounded up
 * to the alignment, of which offset is a multiple. The height grows with it. */
rp_status rpi_place_take(struct rpi_place *place, uint64_t offset, uint64_t bytes,
                         uint32_t *out_block, struct rp_error *err);
/* The block is freed on the host now, and dead for whoever comes after all of nodes. */
rp_status rpi_place_free(struct rpi_place *place, uint32_t block, const uint32_t *nodes,
                         size_t count, struct rp_error *err);

/* The invariants above, each view's among them; for tests. Walks everything. */
bool rpi_place_is_valid(const struct rpi_place *place);

#endif
