/* SPDX-License-Identifier: MIT
 *
 * Bound and offsets for captures that share a pool, whatever way they are composed.
 *
 * The bound follows from the parts' own; memory/pool/compose_sum.h tells how.
 *
 * The layout. Alternatives lie over each other and concurrent parts on top of each other. A
 * sequence is one problem where it holds no alternatives: what a capture frees comes before all
 * blocks of later ones. Where it does, the heaviest choice of alternatives is planned as one
 * problem first; the others are then fitted in, one after the other, around what is placed: of
 * earlier parts that is what they kept, of concurrent parts everything, and of later parts
 * everything, but only for blocks that are not freed.
 */
#ifndef REPRISE_RECORDING_COMPOSE_PLAN_H
#define REPRISE_RECORDING_COMPOSE_PLAN_H

#include "memory/order/capture_record.h"
#include "memory/plan/plan.h"

/* A capture's blocks. The caller owns everything. */
struct rpi_part {
    struct rpi_lifetimes lifetimes;
    bool *kept;          /* [count]: never freed */
    uint64_t kept_bytes; /* sum of those */
    uint64_t bound;
    uint64_t *offsets; /* [count]: filled by the plan */
};

/* parts are indexed by the captures of compose. options->fixed must be NULL; the budget is for all.
 */
rp_status rpi_compose_plan(const struct rpi_compose *compose, struct rpi_part *parts,
                           size_t part_count, const struct rpi_plan_options *options,
                           struct rpi_plan_result *out_result, struct rp_error *err);

#endif
