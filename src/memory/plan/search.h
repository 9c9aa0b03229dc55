/* SPDX-License-Identifier: MIT
 *
 * Exact search for total orders of lifetimes (one lane): what rpi_plan calls when lanes == 1 and
 * nothing is fixed. Same contract as rpi_plan; out_offsets may come in with a feasible layout,
 * whose height is *upper (UINT64_MAX: none), and is overwritten only by lower ones.
 */
#ifndef REPRISE_MEMORY_PLAN_SEARCH_H
#define REPRISE_MEMORY_PLAN_SEARCH_H

#include "memory/plan/plan.h"

/* lower_bound is proved; upper the height of the layout in io_offsets. On return *io_upper is the
 * height of the layout in io_offsets, *out_exhausted is true when nothing lower than it exists
 * (with a capacity: when nothing at most the capacity exists). */
rp_status rpi_plan_search(const struct rpi_lifetimes *lifetimes,
                          const struct rpi_plan_options *options, uint64_t lower_bound,
                          uint64_t *io_offsets, uint64_t *io_upper, bool *out_exhausted,
                          struct rp_error *err);

struct rpi_plan_search_counts {
    uint64_t decisions; /* ceilings asked for */
    uint64_t nodes;     /* of all threads */
};

/* The same, and how much work it was. out_counts is written with RP_OK only. */
rp_status rpi_plan_search_counted(const struct rpi_lifetimes *lifetimes,
                                  const struct rpi_plan_options *options, uint64_t lower_bound,
                                  uint64_t *io_offsets, uint64_t *io_upper, bool *out_exhausted,
                                  struct rpi_plan_search_counts *out_counts, struct rp_error *err);

#endif
