/* SPDX-License-Identifier: MIT
 *
 * The offline planner: offsets for blocks with a partial order of lifetimes, so that no two blocks
 * which may be alive together overlap, in the least height.
 */
#ifndef REPRISE_MEMORY_PLAN_PLAN_H
#define REPRISE_MEMORY_PLAN_PLAN_H

#include "base/meter.h"
#include "memory/plan/bound.h"

#define RPI_UNPLACED UINT64_MAX

struct rpi_plan_options {
    uint64_t alignment; /* offsets are multiples of it; sizes are already */
    uint64_t capacity;  /* stop at a height at most this; 0: minimise */
    /* Millions of steps, or milliseconds where it is timed. Bound and a first layout are made
     * whatever it is, and cost no steps; in time they count. */
    double budget_ms;
    bool timed;
    struct rpi_meter *meter; /* counts for the caller too, timed as it is; NULL: one of its own */
    unsigned threads;        /* at least 1 */
    /* Offsets that are given: RPI_UNPLACED where the planner is free. NULL: free everywhere. Two
     * fixed blocks may overlap only if one is before the other (asserted). */
    const uint64_t *fixed;
};

/* What a budget is where none is given: steps that take some 50 ms on an idle core. */
#define RPI_PLAN_DEFAULT_STEPS 50000000

/* As the library's options have it: so many milliseconds, or 0 for the default, in steps. */
static inline void rpi_plan_set_budget(struct rpi_plan_options *options, unsigned budget_ms)
{
    options->timed = budget_ms != 0;
    options->budget_ms = budget_ms ? (double)budget_ms : RPI_PLAN_DEFAULT_STEPS * 1e-6;
}

enum rpi_plan_proof { RPI_PROOF_NONE, RPI_PROOF_BOUND, RPI_PROOF_SEARCH };

struct rpi_plan_result {
    uint64_t height; /* highest end of a block */
    uint64_t lower_bound;
    enum rpi_plan_proof proof; /* BOUND: height equals the bound; SEARCH: nothing lower exists */
    int fits;                  /* with a capacity: 1 yes, 0 proved impossible, -1 not found */
    bool stopped; /* by the budget: more of it might have found a lower layout, or a proof */
    double ms;
};

/* out_offsets has room for count offsets. By steps and with one thread the answer depends on the
 * input alone. Fails only for want of host memory. */
rp_status rpi_plan(const struct rpi_lifetimes *lifetimes, const struct rpi_plan_options *options,
                   uint64_t *out_offsets, struct rpi_plan_result *out_result, struct rp_error *err);

#endif
