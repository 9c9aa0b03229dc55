/* SPDX-License-Identifier: MIT
 *
 * The offline planner: offsets for blocks with a partial order of lifetimes, so that no two blocks
 * which may be alive together overlap, in the least height.
 */
#ifndef REPRISE_MEMORY_PLAN_H
#define REPRISE_MEMORY_PLAN_H

#include "memory/bound.h"

#define RPI_UNPLACED UINT64_MAX

struct rpi_plan_options {
    uint64_t alignment; /* offsets are multiples of it; sizes are already */
    uint64_t capacity;  /* stop at a height at most this; 0: minimise */
    /* As rpi_stopwatch counts, the bound included; bound and a first layout are not cut short. */
    double budget_ms;
    unsigned threads; /* at least 1 */
    /* Offsets that are given: RPI_UNPLACED where the planner is free. NULL: free everywhere. Two
     * fixed blocks may overlap only if one is before the other (asserted). */
    const uint64_t *fixed;
};

enum rpi_plan_proof { RPI_PROOF_NONE, RPI_PROOF_BOUND, RPI_PROOF_SEARCH };

struct rpi_plan_result {
    uint64_t height; /* highest end of a block */
    uint64_t lower_bound;
    enum rpi_plan_proof proof; /* BOUND: height equals the bound; SEARCH: nothing lower exists */
    int fits;                  /* with a capacity: 1 yes, 0 proved impossible, -1 not found */
    double ms;
};

/* out_offsets has room for count offsets. Deterministic for a given input when it ends before the
 * budget. Fails only for want of host memory. */
rp_status rpi_plan(const struct rpi_lifetimes *lifetimes, const struct rpi_plan_options *options,
                   uint64_t *out_offsets, struct rpi_plan_result *out_result, struct rp_error *err);

#endif
