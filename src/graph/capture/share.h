/* SPDX-License-Identifier: MIT
 *
 * A capture's share of its pool: planned from the rehearsal before it is recorded, taken down as it
 * was recorded after that.
 */
#ifndef REPRISE_GRAPH_CAPTURE_SHARE_H
#define REPRISE_GRAPH_CAPTURE_SHARE_H

#include "graph/capture/record.h"

struct rpi_share_plan {
    struct rpi_pool_obstacles obstacles;
    uint64_t *offsets; /* of each block of the rehearsal */
    uint64_t height;   /* highest end of these */
    uint64_t lower_bound;
    bool stopped; /* by the budget */
};

/* What is in the way of a capture into the pool. cautious: what runs later is for all blocks. */
rp_status rpi_share_obstacles(const struct rp_pool *pool, bool cautious,
                              struct rpi_pool_obstacles *out_obstacles, struct rp_error *err);
/* With the capture lock held. cautious: nothing is laid over what runs later. lead: nor on the
 * first bytes of the pool. */
rp_status rpi_share_plan(const struct rp_pool *pool, const struct rpi_rehearsal *rehearsal,
                         bool cautious, uint64_t lead, struct rpi_share_plan *out_plan,
                         struct rp_error *err);
void rpi_share_plan_finish(struct rpi_share_plan *plan);
/* Fills a member as the plan has it, as if it had been recorded so. False for want of memory. */
bool rpi_share_planned(struct rpi_pool_member *member, const struct rpi_rehearsal *rehearsal,
                       const struct rpi_share_plan *plan, const struct rpi_pool_core *core);

/* Fills the graph's blocks, and its member but for the event. RP_ERROR_DIVERGED where a block that
 * the rehearsal freed was not freed and lies over what runs later: a cautious plan prevents that.
 * What was made lies in the graph, whatever happens. */
rp_status rpi_share_take_down(struct rp_graph *graph, const struct rpi_rehearsal *rehearsal,
                              const struct rpi_recorded *recorded,
                              const struct rpi_share_plan *plan, struct rp_error *err);
/* The same where there was no rehearsal. */
rp_status rpi_share_take_down_alone(struct rp_graph *graph, const struct rpi_recorded *recorded,
                                    struct rp_error *err);

#endif
