/* SPDX-License-Identifier: MIT
 *
 * The one table of what goes wrong with captures and graphs, why, and what to do about it. The
 * command line, the library's errors and the Python exceptions all read it. rp_explain and its
 * struct are in reprise.h.
 */
#ifndef REPRISE_EXPLAIN_EXPLAIN_H
#define REPRISE_EXPLAIN_EXPLAIN_H

#include "reprise.h"
#include "reprise_tools.h"

/* The index-th name that people ask about the entry by, beside its key; NULL past the last. Static;
 * any thread. */
const char *rpi_explanation_topic(const struct rp_explanation *e, size_t index);

/* The entry of a driver code, or NULL. Static; any thread. */
const struct rp_explanation *rpi_explanation_of_code(int driver_code);

/* A driver function that has no place in what is captured. */
struct rpi_call_explanation {
    const char *function;
    const char *kind; /* of the obstacle: see struct rp_obstacle */
    const char *what; /* "the host waits for a stream" */
    const char *mend;
};
/* NULL: the function may be captured, or has nothing to do with captures. Static; any thread. */
const struct rpi_call_explanation *rpi_explanation_of_call(const char *function);

#endif
