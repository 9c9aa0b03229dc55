/* SPDX-License-Identifier: MIT
 *
 * Replaying a recording under each way of placing its blocks, with the time that the way itself
 * takes. Blocks of 0 bytes take no memory and are left out of every layout.
 */
#ifndef REPRISE_RECORDING_PLACEMENTS_H
#define REPRISE_RECORDING_PLACEMENTS_H

#include "memory/plan/plan.h"

struct rpi_placement {
    uint64_t bytes;
    double ns; /* for the whole recording */
};

/* The recording has its nodes' predecessors. out_offsets has room for each block. */
rp_status rpi_placement_online(const struct rpi_capture_record *record, uint64_t alignment,
                               uint64_t *out_offsets, struct rpi_placement *out,
                               struct rp_error *err);
rp_status rpi_placement_planned(const struct rpi_capture_record *record,
                                const struct rpi_plan_options *options, uint64_t *out_offsets,
                                uint64_t *out_bound, struct rpi_placement *out,
                                struct rp_error *err);

/* Are any two blocks that overlap ordered in the recording itself: the earlier one freed before the
 * later one is allocated, and all nodes of its free before a terminal of the allocation?
 * RP_ERROR_INTERNAL names two that are not. Looks at every pair; shares nothing with the planner.
 */
rp_status rpi_placement_check(const struct rpi_capture_record *record, const uint64_t *offsets,
                              uint64_t alignment, const char *what, struct rp_error *err);

#endif
