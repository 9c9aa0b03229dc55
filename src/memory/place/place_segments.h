/* SPDX-License-Identifier: MIT
 *
 * The segments of a range of offsets: they tile it from 0 to its end, each laid over by one block
 * last, or by none yet. They are linked in the order of offsets, and found by offset in a sorted
 * set. Ids stay while a segment lives and are used again.
 */
#ifndef REPRISE_MEMORY_PLACE_PLACE_SEGMENTS_H
#define REPRISE_MEMORY_PLACE_PLACE_SEGMENTS_H

#include "memory/place/gap_set.h"

#define RPI_NO_SEGMENT UINT32_MAX
#define RPI_NO_BLOCK   UINT32_MAX

struct rpi_segment {
    uint64_t offset, end;
    uint64_t dead;                   /* bit v: dead in view v; see place_view.h */
    uint32_t block;                  /* or RPI_NO_BLOCK: nothing ever lay here */
    uint32_t prev, next;             /* neighbours, or RPI_NO_SEGMENT; next also links unused ids */
    uint32_t piece_prev, piece_next; /* other segments of the block */
};

struct rpi_segments {
    struct {
        RPI_VEC(struct rpi_segment);
    } all;
    struct rpi_gap_set by_offset; /* {0, offset, segment} */
    uint32_t first, last;         /* RPI_NO_SEGMENT where there are none */
    uint32_t unused;              /* ids to use again */
};

void rpi_segments_init(struct rpi_segments *segments);
void rpi_segments_finish(struct rpi_segments *segments);

/* After this `count` segments can be added by the two functions below; false: no host memory. */
bool rpi_segments_reserve(struct rpi_segments *segments, size_t count);
/* Adds [end of the last, end) with no block and dead for nobody. */
uint32_t rpi_segments_append(struct rpi_segments *segments, uint64_t end);
/* Cuts a segment at an offset within it; the new one is the upper part, a piece of the same block.
 * `dead` is copied: views must be told (rpi_place_view_split). */
uint32_t rpi_segments_split(struct rpi_segments *segments, uint32_t segment, uint64_t offset);
/* Makes first .. last one segment, which is first, of no block and dead for nobody. None of them
 * may be a piece of a block still, and no view may count them. */
void rpi_segments_join(struct rpi_segments *segments, uint32_t first, uint32_t last);

/* The segment that holds the offset, which is below the end. */
uint32_t rpi_segments_at(const struct rpi_segments *segments, uint64_t offset);

#endif
