/* SPDX-License-Identifier: MIT
 *
 * A capture that is learned from: what a rehearsal and a record have in common. The callable's
 * allocations, uses and frees are written down with the capture's order; where a block lies, and
 * what its end means there, is each one's own.
 */
#ifndef REPRISE_GRAPH_CAPTURE_LEARNING_H
#define REPRISE_GRAPH_CAPTURE_LEARNING_H

#include "graph/capture/capture.h"
#include "graph/capture/host_data.h"
#include "graph/capture/rehearse.h"
#include "graph/ground/call.h"
#include "graph/objects/objects.h"

struct rpi_learning;

struct rpi_learning_steps {
    /* An address for the next block, in order of allocation, on the stream of that number;
     * learning->nodes are the terminals that it sees. Called before the block is recorded. */
    rp_status (*place)(struct rpi_learning *learning, uint64_t bytes, uint32_t stream,
                       uint64_t *out_address, struct rp_error *err);
    /* The block's memory is free once learning->nodes have run. NULL: nothing is to do. */
    rp_status (*give_back)(struct rpi_learning *learning, uint32_t block, struct rp_error *err);
    /* The address of a result, which is the block's from now on; RPI_ABSENT: of none. NULL: no
     * results are asked for. */
    rp_status (*result)(struct rpi_learning *learning, uint64_t bytes, uint32_t block,
                        uint64_t *out_address, struct rp_error *err);
};

/* Embedded first in the run of each. */
struct rpi_learning {
    struct rp_call call; /* first: the callable's handle is a pointer to it */
    const struct rpi_learning_steps *steps;
    struct rp_pool *pool;
    struct rpi_capture_record *record; /* written; block i of the run is its block i */
    struct rpi_capture capture;
    struct rpi_run_blocks run_blocks;
    struct rpi_node_list nodes;
    struct rpi_addresses values;    /* that the run named */
    struct rpi_scalars scalars;     /* likewise */
    struct rpi_host_data host_data; /* that its copies read */
};

/* What serves the calls of a run, without results and with them. */
extern const struct rpi_call_functions rpi_learning_functions, rpi_finding_functions;

/* Captures the callable, its arguments at these addresses in place of the caller's. `what` is for
 * errors: "rehearsing 'a'". The context is current. learning is zeroed but for steps, pool and
 * record, which was initialised. */
rp_status rpi_learn(struct rpi_learning *learning, const char *what, rp_callable_fn callable,
                    void *user, const struct rp_arg *args, const uint64_t *addresses,
                    size_t arg_count, CUgraph *out_template, struct rp_error *err);
/* Ends what is under way and frees the host memory; record is left alone. */
void rpi_learning_finish(struct rpi_learning *learning);

#endif
