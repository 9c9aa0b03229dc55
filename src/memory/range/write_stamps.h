/* SPDX-License-Identifier: MIT
 *
 * When was a range of a pool last written? For the few ranges that somebody asks about.
 *
 * The watched ranges' ends cut the addresses into segments. A segment tree holds for each the turn
 * of the latest replay that reached it; turns only grow, so that a write puts its turn on the nodes
 * that make up its range, and the latest of a range is the greatest on the paths to it. A write or
 * a question costs O(log segments) for each joined range, building O(segments log segments), and
 * memory is 40 bytes a segment.
 *
 *     watched     [-----)      [-------)
 *                     [----------)
 *     segments    | 0 |1|   2  | 3 | 4 |
 *
 * Of a write that reaches only a part of a segment the whole segment is written: each watched range
 * that holds the segment was reached.
 */
#ifndef REPRISE_MEMORY_RANGE_WRITE_STAMPS_H
#define REPRISE_MEMORY_RANGE_WRITE_STAMPS_H

#include "memory/range/ranges.h"

struct rpi_write_stamps {
    struct {
        RPI_VEC(uint64_t);
    } ends;           /* of the segments, sorted, each once; one more than there are segments */
    uint64_t *latest; /* of each node, the greatest turn below it; twice as many as segments */
    uint64_t *whole;  /* of each node, the latest turn that reached all of it */
};

/* Segments, from first to before end. */
struct rpi_write_span {
    uint32_t first, end;
};

/* Cuts the addresses anew, at the ends of these ranges in any order, nothing written; false, with
 * the stamps as they were, when there is no memory. */
bool rpi_write_stamps_build(struct rpi_write_stamps *stamps, const struct rpi_ranges *watched);
void rpi_write_stamps_finish(struct rpi_write_stamps *stamps); /* allowed on a zeroed one */

/* The segments that the range reaches; none: first is end. */
struct rpi_write_span rpi_write_stamps_span(const struct rpi_write_stamps *stamps,
                                            struct rpi_range range);

/* The span is written by a replay whose turn is greater than all before. */
void rpi_write_stamps_write(struct rpi_write_stamps *stamps, struct rpi_write_span span,
                            uint64_t turn);
/* The turn of the latest write to any segment of the span; 0: none. */
uint64_t rpi_write_stamps_latest(const struct rpi_write_stamps *stamps, struct rpi_write_span span);

#endif
