/* SPDX-License-Identifier: MIT
 *
 * Walks over the shapes of a callable: which one is replayed at each step.
 */
#ifndef REPRISE_CLI_BENCH_WALK_H
#define REPRISE_CLI_BENCH_WALK_H

#include <stddef.h>
#include <stdint.h>

/* X(name, what it is) */
#define BENCH_WALKS(X)                                                                             \
    X(uniform, "each shape as likely as any other")                                                \
    X(zipf, "the k-th shape with a share of 1/k")                                                  \
    X(ramp, "one shape after the other, from the start again")                                     \
    X(recorded, "lengths of the sentences of a text, in its order")

enum bench_walk {
#define X(name, what) WALK_##name,
    BENCH_WALKS(X)
#undef X
        BENCH_WALK_COUNT
};

extern const char *const bench_walk_names[BENCH_WALK_COUNT];

/* The shapes of a walk of so many steps, numbers below `shapes`, into out_shapes. */
void bench_walk_fill(enum bench_walk walk, size_t shapes, size_t steps, uint32_t *out_shapes);

#endif
