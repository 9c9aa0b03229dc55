/* SPDX-License-Identifier: MIT
 *
 * Plans that were made ahead of their captures. The planner has a budget of time, so two runs of it
 * may end differently; a capture that finds its very problem here takes the plan that was made for
 * it, and so takes the memory that was estimated. The pool's capture lock guards them.
 */
#ifndef REPRISE_GRAPH_CAPTURE_PLANS_H
#define REPRISE_GRAPH_CAPTURE_PLANS_H

#include "memory/pool/pool_plan.h"

/* All that a plan depends on. Borrowed. */
struct rpi_problem {
    const struct rpi_lifetimes *lifetimes;
    const bool *kept;
    const struct rpi_pool_obstacles *obstacles;
};

struct rpi_plans {
    struct {
        RPI_VEC(struct rpi_made_plan *);
    } made;
};

/* The plan that was kept for this problem, if one was. */
bool rpi_plans_find(const struct rpi_plans *plans, const struct rpi_problem *problem,
                    uint64_t *out_offsets, struct rpi_plan_result *out_result);
/* Keeps a plan, and forgets the oldest where there are many. Without host memory it is not kept. */
void rpi_plans_keep(struct rpi_plans *plans, const struct rpi_problem *problem,
                    const uint64_t *offsets, const struct rpi_plan_result *result);
void rpi_plans_finish(struct rpi_plans *plans);

#endif
