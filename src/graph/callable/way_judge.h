/* SPDX-License-Identifier: MIT
 *
 * rp_way_judge and rp_way_choice: the policy's chooser, the events that it learns from, and what
 * captures took. One mechanism for callables, which embed a judge, and for those who run and replay by
 * themselves.
 *
 * Guarded by whoever owns the judge: a callable's lock, or the caller's one thread at a time.
 */
#ifndef REPRISE_GRAPH_CALLABLE_WAY_JUDGE_H
#define REPRISE_GRAPH_CALLABLE_WAY_JUDGE_H

#include "graph/callable/timing.h"
#include "graph/objects/objects.h"
#include "reprise_framework.h"

struct rp_way_judge {
    struct rp_device *device; /* unowned */
    struct rpi_timing timing;
    uint64_t captured; /* captures that worked */
    double capture_ms; /* what all took */
};

struct rp_way_choice {
    struct rp_way_judge *judge;
    struct rpi_chooser chooser;
    struct rpi_timing_block block;
    double capture_ms; /* what its captures took */
};

void rpi_way_judge_init(struct rp_way_judge *judge, struct rp_device *device);
void rpi_way_judge_finish(struct rp_way_judge *judge); /* choices are gone */

#endif
