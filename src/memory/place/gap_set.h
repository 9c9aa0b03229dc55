/* SPDX-License-Identifier: MIT
 *
 * A sorted set of gaps, by size and then offset: exact best fit is "the first not below".
 *
 * The gaps lie in order in chunks of at most 64, and the chunks in one array with the least gap
 * that each may hold. A search is two binary searches in memory that lies together, an insertion
 * moves less than one chunk; an array of chunks is moved only when a chunk splits or goes. Up to
 * 100,000 gaps that is cheaper than any tree, and the cost hardly grows. The index has each chunk's
 * lowest offset too.
 *
 *     index   [least, lowest, chunk] [least, lowest, chunk] [least, lowest, chunk]
 *     chunks  |g g g g . . | |g g . . . . | |g g g . . . |      none is empty
 */
#ifndef REPRISE_MEMORY_PLACE_GAP_SET_H
#define REPRISE_MEMORY_PLACE_GAP_SET_H

#include "base/vec.h"

#include <stdint.h>

struct rpi_gap {
    uint64_t bytes; /* 0 where the set is one of offsets alone */
    uint64_t offset;
    uint32_t segment; /* the first of the gap; not part of the order */
};

struct rpi_gap_chunk;

struct rpi_gap_index {
    uint64_t bytes, offset; /* at most the first gap's, above the last gap's of the one before */
    uint64_t lowest;        /* least offset of the chunk's gaps */
    struct rpi_gap_chunk *chunk;
};

struct rpi_gap_set {
    struct {
        RPI_VEC(struct rpi_gap_index);
    } index;
    struct {
        RPI_VEC(struct rpi_gap_chunk *); /* empty; room for all chunks there are */
    } spare;
};

/* A zeroed set is empty. */
void rpi_gap_set_finish(struct rpi_gap_set *set);
/* Keeps its memory. */
void rpi_gap_set_clear(struct rpi_gap_set *set);

/* After this that many insertions cannot fail; false when there is no host memory. */
bool rpi_gap_set_reserve(struct rpi_gap_set *set, size_t insertions);
/* The gap is not in the set, and room was reserved. */
void rpi_gap_set_insert(struct rpi_gap_set *set, struct rpi_gap gap);
/* The gap is in the set. */
void rpi_gap_set_remove(struct rpi_gap_set *set, uint64_t bytes, uint64_t offset);

/* Neighbours of (bytes, offset) in the set, itself included; NULL: none. Until the set changes. */
const struct rpi_gap *rpi_gap_set_first_from(const struct rpi_gap_set *set, uint64_t bytes,
                                             uint64_t offset);
const struct rpi_gap *rpi_gap_set_last_to(const struct rpi_gap_set *set, uint64_t bytes,
                                          uint64_t offset);

/* The gap at the lowest offset of those with so many bytes or more; NULL: none. Looks into one
 * chunk and through the index. */
const struct rpi_gap *rpi_gap_set_lowest_from(const struct rpi_gap_set *set, uint64_t bytes);

size_t rpi_gap_set_count(const struct rpi_gap_set *set); /* walks the index */
/* The invariants above; for tests. */
bool rpi_gap_set_is_valid(const struct rpi_gap_set *set);

#endif
