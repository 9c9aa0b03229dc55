/* SPDX-License-Identifier: MIT
 *
 * The record: the capture that is kept. Its k-th allocation stands for the rehearsal's k-th while
 * size and stream agree, and gets the planned offset if this capture's own order proves every
 * earlier block there dead. That it does as long as it goes on as it was rehearsed: the same
 * events, and the same order of nodes, for which the plan was made. From the first difference on
 * the blocks so far are laid as they are, and each further one is looked at. Any other allocation
 * is placed online and counted: a program that frees later the second time, or asks for other
 * sizes, costs memory, never a wrong result.
 */
#ifndef REPRISE_GRAPH_CAPTURE_RECORD_H
#define REPRISE_GRAPH_CAPTURE_RECORD_H

#include "graph/capture/rehearse.h"
#include "memory/pool/pool_plan.h"

struct rpi_recorded {
    CUgraph template;
    struct rpi_capture_record record; /* of the blocks, as the rehearsal's */
    struct rpi_addresses addresses;   /* the arguments' staging, then each block's */
    struct rpi_addresses values;      /* words that replays set */
    struct rpi_scalars scalars;       /* of this run */
    struct rpi_host_data host_data;   /* likewise */
    size_t diverged;                  /* blocks placed online */
};

/* What the planner says: offsets, one for each block of the rehearsal's record, the highest end of
 * these blocks, and what other captures of the pool hold. */
struct rpi_record_plan {
    const uint64_t *offsets;
    uint64_t height;
    const struct rpi_pool_obstacles *obstacles;
};

/* staging: addresses of the arguments. The context is current. Memory that the pool grew by stays
 * mapped on failure: the caller settles it. A block that is not freed, other than in the rehearsal,
 * may lie over obstacles->later. */
rp_status rpi_record(struct rp_pool *pool, const char *name, rp_callable_fn callable, void *user,
                     const struct rp_arg *args, const uint64_t *staging, size_t arg_count,
                     const struct rpi_rehearsal *rehearsal, const struct rpi_record_plan *plan,
                     struct rpi_recorded *out_recorded, struct rp_error *err);
void rpi_recorded_finish(struct rpi_recorded *recorded, const struct rp_driver *driver);

#endif
