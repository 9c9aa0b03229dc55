/* SPDX-License-Identifier: MIT
 *
 * Seeded captures on several streams, as programs that overlap work make them: each step picks a
 * stream, and
 *
 *     with p_free   a random block that is alive is freed (nothing happens where none is),
 *     with p_join   the stream waits for another,
 *     otherwise     it allocates 1, 3, 5, 8 or 16 MiB and writes all of it; another stream, chosen
 *                   anew, waits for it and reads the block.
 *
 * At the end everything is freed and all streams are joined. The captures go through the driver:
 * memset and memcpy nodes, streams forked and joined by events.
 *
 * Whoever includes this defines RP_UNSTABLE first.
 */
#ifndef REPRISE_CLI_SWEEP_H
#define REPRISE_CLI_SWEEP_H

#include "gpu.h"
#include "reprise_tools.h"

enum { SWEEP_MOST_STREAMS = 32 };

struct sweep_case {
    unsigned streams; /* 2 to SWEEP_MOST_STREAMS */
    unsigned steps;
    double p_free, p_join;
    uint64_t seed;
};

/* What all captures share. */
struct sweep {
    struct rp_device *device; /* unowned */
    struct gpu gpu;
    struct rp_pool *pool;
    struct CUstream_st *streams[SWEEP_MOST_STREAMS]; /* [0] is each capture's own */
    struct CUevent_st *events[SWEEP_MOST_STREAMS];
    uint64_t sink; /* device memory that blocks are read into */
};

/* budget_ms: for each plan. What was made before a failure is freed by sweep_finish. */
rp_status sweep_init(struct sweep *sweep, struct rp_device *device, unsigned budget_ms,
                     struct rp_error *err);
void sweep_finish(struct sweep *sweep);

rp_status sweep_run(struct sweep *sweep, const struct sweep_case *which, struct rp_placements *out,
                    struct rp_error *err);

#endif
