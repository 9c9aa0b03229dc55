/* SPDX-License-Identifier: MIT
 *
 * What one stream may take: the segments of a range that are dead for it, as gaps.
 *
 * A segment that is dead for a stream stays so until it is taken, because what the stream comes
 * after only grows. Segments side by side that are dead make one gap, with its other end noted at
 * both ends, so that a segment joins its neighbours in constant time:
 *
 *     segments  | B4  .  B9  .  -- | B1 | B7 . B3 | B2 |          . dead on both sides
 *     other       -> --     -> B4         -> B3  -> B7
 *
 * Cutting a gap in two walks from the cut to both ends at once and stops at the nearer one: the
 * smaller half pays, n log n in all for any cuts. The gaps are kept in a sorted set by size.
 *
 * A freed block that is not dead for the stream waits at one of the nodes of its free that the
 * stream does not come after: in a heap for that node's chain, by position. It is looked at again
 * when the stream's frontier gets there, and not before.
 */
#ifndef REPRISE_MEMORY_PLACE_PLACE_VIEW_H
#define REPRISE_MEMORY_PLACE_PLACE_VIEW_H

#include "memory/place/place_segments.h"

enum { RPI_PLACE_VIEWS = 64 }; /* the least recent one is given up for the next stream */

struct rpi_waiting {
    uint32_t position, block;
};

/* A heap: the least position first. */
struct rpi_wait_heap {
    RPI_VEC(struct rpi_waiting);
};

struct rpi_place_view {
    uint32_t stream;
    uint32_t index;                /* its bit in rpi_segment.dead */
    bool made;                     /* false: a look failed half way, and it must be made anew */
    uint64_t last_look;            /* number of the look */
    size_t seen;                   /* how many of the freed blocks it has looked at */
    uint32_t chains;               /* in clock and waiting */
    uint32_t *clock;               /* the frontier of its last look */
    struct rpi_wait_heap *waiting; /* [chains] */
    struct rpi_gap_set gaps;
    uint32_t *other; /* [others], by segment: the other end of its gap; only right at ends */
    size_t others;
};

/* NULL: no host memory. */
struct rpi_place_view *rpi_place_view_create(uint32_t index);
void rpi_place_view_destroy(struct rpi_place_view *view);
/* Forgets all that it knows, and the segments' bits of it. Its memory is kept. */
void rpi_place_view_reset(struct rpi_place_view *view, struct rpi_segments *segments);

static inline bool rpi_place_view_is_dead(const struct rpi_place_view *view,
                                          const struct rpi_segment *segment)
{
    return segment->dead >> view->index & 1;
}

/* Room for `segments` ids and that many new gaps; after it the next three cannot fail. */
bool rpi_place_view_reserve(struct rpi_place_view *view, size_t segments, size_t gaps);
/* The segment is dead from now on; one gap more at most. */
void rpi_place_view_add(struct rpi_place_view *view, struct rpi_segments *segments,
                        uint32_t segment);
/* `lower` was split, `upper` is its upper part, and both are dead. */
void rpi_place_view_split(struct rpi_place_view *view, const struct rpi_segments *segments,
                          uint32_t lower, uint32_t upper);
/* Of the segments first .. last none is dead any more; two gaps more at most. */
void rpi_place_view_cut(struct rpi_place_view *view, struct rpi_segments *segments, uint32_t first,
                        uint32_t last);

/* The first segment of the gap that ends with this dead one. */
static inline uint32_t rpi_place_view_gap_start(const struct rpi_place_view *view, uint32_t last)
{
    return view->other[last];
}

/* Makes chains known; false: no host memory. */
bool rpi_place_view_chains(struct rpi_place_view *view, uint32_t chains);
/* The block waits for the chain to reach the position. */
bool rpi_place_view_wait(struct rpi_place_view *view, uint32_t chain, uint32_t position,
                         uint32_t block);
/* Takes a block whose wait is over out of a chain's heap; false: none. Its memory is kept, so that
 * it may wait there again without fail. */
bool rpi_place_view_due(struct rpi_place_view *view, uint32_t chain,
                        struct rpi_waiting *out_waiting);

/* Does all that it knows agree with the segments? For tests. */
bool rpi_place_view_is_valid(const struct rpi_place_view *view,
                             const struct rpi_segments *segments);

#endif
