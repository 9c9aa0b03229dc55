/* SPDX-License-Identifier: MIT
 *
 * Results that a rehearsal found (rp_call_result), as arguments of the runs that follow: whoever
 * captures is asked for their memory.
 */
#ifndef REPRISE_GRAPH_CAPTURE_RESULTS_H
#define REPRISE_GRAPH_CAPTURE_RESULTS_H

#include "graph/capture/rehearse.h"

/* Who is asked. */
struct rpi_results {
    rp_results_fn place; /* NULL: the callable names no results */
    void *user;
};

/* The arguments with the results behind them, an array that the caller frees. Errors are also those
 * of who is asked, and where what it gives is no argument. */
rp_status rpi_results_ask(const struct rpi_results *results, const struct rpi_rehearsal *rehearsal,
                          const char *function, const struct rp_arg *args, size_t arg_count,
                          struct rp_arg **out_args, size_t *out_count, struct rp_error *err);

#endif
