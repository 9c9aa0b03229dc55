/* SPDX-License-Identifier: MIT
 *
 * Seeded random problems for the planner, and a checker that shares no code with it.
 */
#ifndef REPRISE_BENCH_PLAN_PROBLEMS_H
#define REPRISE_BENCH_PLAN_PROBLEMS_H

#include "memory/order/lifetimes.h"

#include <stdbool.h>

enum intervals {
    INTERVALS_UNIFORM, /* both ends anywhere */
    INTERVALS_SHORT,   /* about 600 blocks alive at once */
    INTERVALS_MEDIUM,  /* about 5,000 */
    INTERVALS_MIXED,   /* one of twenty lives a thousand times longer; sizes are powers of two */
    INTERVALS_KINDS
};
extern const char *const intervals_names[INTERVALS_KINDS];

/* Intervals of 1 byte to 1 MiB. The time taken is that of rpi_lifetimes_from_intervals. */
double random_intervals(enum intervals kind, uint32_t count, uint64_t alignment, uint64_t seed,
                        struct rpi_lifetimes *out);

/* Streams that fork and join: each step frees a random live block (p_free), or lets a stream wait
 * for another (p_join), or allocates 1, 3, 5, 8 or 16 MiB, writes them, and lets another stream
 * wait and read. */
struct program {
    uint32_t streams, blocks;
    double p_free, p_join;
    uint64_t seed;
    double p_keep; /* above 0: so many blocks are never freed, and at the end all others are */
};
/* The time taken is that of rpi_lifetimes_from_record. */
double random_streams(const struct program *program, uint64_t alignment, struct rpi_lifetimes *out);
/* The same, with which of the blocks are never freed: room for one more than the program makes. */
double random_capture(const struct program *program, uint64_t alignment, struct rpi_lifetimes *out,
                      bool *out_kept);

/* Do all blocks that may be alive together lie apart? Host order is painted block by block; what a
 * block paints over must come before it, and what that had painted over does by transitivity. */
bool layout_is_valid(const struct rpi_lifetimes *x, const uint64_t *offsets, uint64_t height);

void *must(void *memory);

#endif
