/* SPDX-License-Identifier: MIT
 *
 * The one table of what goes wrong with captures and graphs, why, and what to do about it. The
 * command line, the library's errors and the Python exceptions all read it. rp_explain and its
 * struct are in reprise.h.
 */
#ifndef REPRISE_EXPLAIN_EXPLAIN_H
#define REPRISE_EXPLAIN_EXPLAIN_H

#include "reprise.h"

/* The entry of a driver code, or NULL. Static; any thread. */
const struct rp_explanation *rpi_explanation_of_code(int driver_code);

#endif
