/* SPDX-License-Identifier: MIT
 *
 * Verifying a graph by running: what replays at other bindings give is compared, to the bit, with
 * what the callable gives without a graph.
 *
 *     begin   looks, in a rehearsal, for what running would change beside the arguments; runs the
 *             callable twice on buffers of its own with the arguments' contents
 *     (the graph is captured, and verified by a third capture)
 *     end     replays it twice, each time on other buffers while all those of before hold
 *             something else; where that gives other results, finds the arguments whose binding
 *             does, and has them copied
 *
 * The runs come before the captures, so that what the callable leaves behind it (host memory that a
 * copy reads) is the record's. Whom a group of bound arguments makes wrong is found by halving it:
 * a replay for each half, the others copied.
 */
#ifndef REPRISE_GRAPH_VERIFY_VERIFY_RUN_H
#define REPRISE_GRAPH_VERIFY_VERIFY_RUN_H

#include "graph/verify/trial.h"

enum { RPI_VERIFY_SETS = 3 };

struct rpi_verify_run {
    struct rp_pool *pool;
    const char *name;
    rp_callable_fn callable;
    void *user;
    const struct rp_arg *args;
    size_t arg_count;
    CUstream stream;
    const char *instead; /* why nothing runs; NULL: it does. Static */
    struct rpi_trial trial;
    struct rpi_twins twins[RPI_VERIFY_SETS];
    int turn; /* whose buffers the next run or replay has: eager runs the first, replays the others
                 in turns */
};

/* Takes no lock but while it works. pool .. stream are set, the rest is zeroed; the context is
 * current. Errors: those of a rehearsal and of rp_run. */
rp_status rpi_verify_run_begin(struct rpi_verify_run *run, struct rp_error *err);
/* The graph is in its pool. RP_ERROR_CAPTURE where replays give other results whatever is copied:
 * it is the caller's to destroy. */
rp_status rpi_verify_run_end(struct rpi_verify_run *run, struct rp_graph *graph,
                             struct rp_error *err);
void rpi_verify_run_finish(struct rpi_verify_run *run); /* allowed on one that never began */

#endif
