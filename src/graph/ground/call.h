/* SPDX-License-Identifier: MIT
 *
 * A run of a callable. The three kinds of run (eager, rehearse, record) embed struct rp_call first
 * and give it the functions that serve its allocations.
 */
#ifndef REPRISE_GRAPH_GROUND_CALL_H
#define REPRISE_GRAPH_GROUND_CALL_H

#include "base/status.h"
#include "driver/cuda_abi.h"

#include <stdbool.h>

struct rpi_call_functions {
    /* As rp_call_alloc, rp_call_use and rp_call_free, arguments checked. */
    rp_status (*alloc)(struct rp_call *call, uint64_t bytes, CUstream stream, uint64_t *out_address,
                       struct rp_error *err);
    rp_status (*use)(struct rp_call *call, uint64_t address, CUstream stream, struct rp_error *err);
    rp_status (*free)(struct rp_call *call, uint64_t address, struct rp_error *err);
    /* As rp_call_result; NULL: no results are asked for. */
    rp_status (*result)(struct rp_call *call, uint64_t bytes, uint64_t block, uint64_t *out_address,
                        struct rp_error *err);
    /* As the functions of the same name; NULL: the run is not captured. */
    rp_status (*value)(struct rp_call *call, uint64_t address, struct rp_error *err);
    rp_status (*scalar)(struct rp_call *call, double value, struct rp_error *err);
    rp_status (*take_over)(struct rp_call *call, struct rp_error *err);
    rp_status (*begun)(struct rp_call *call, struct rp_error *err);
    rp_status (*ended)(struct rp_call *call, CUgraph graph, struct rp_error *err);
};

/* What the callable sees in place of what the run was given. */
struct rpi_call_view {
    const struct rp_arg *args;
    const uint64_t *addresses; /* in place of those in args */
    size_t arg_count;
    const void *key;
    size_t key_bytes;
};

struct rp_call {
    const struct rpi_call_functions *functions;
    CUstream stream;
    const uint64_t *args;       /* addresses, arg_count of them */
    const struct rp_arg *given; /* the same arguments as the caller described them */
    size_t arg_count;
    const struct rpi_call_view *view; /* NULL: what the run was given */
    bool captures;           /* into a graph, which a callable's way around a failure would be in */
    struct rp_error failure; /* the last error that one of the functions returned */
};

/* Is this thread in a callable whose run is captured? */
bool rpi_call_is_capturing(void);

/* Runs the callable. When it passes on a failure of its own call, that is the error; any other
 * status that it returns becomes RP_ERROR_CALLABLE with what the callable said. A capture in which
 * a function of its call failed for more than a wrong argument fails with that, whatever the
 * callable returns. `what` tells the step: "rehearsing 'decode'". */
rp_status rpi_call_run(struct rp_call *call, rp_callable_fn callable, void *user, const char *what,
                       struct rp_error *err);

#endif
