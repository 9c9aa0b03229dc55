/* SPDX-License-Identifier: MIT
 *
 * The entries of the explanations that a text is nearest to, for what is not known.
 */
#ifndef REPRISE_CLI_EXPLAIN_NEAR_H
#define REPRISE_CLI_EXPLAIN_NEAR_H

#include "reprise.h"
#include "reprise_tools.h"

#include <stddef.h>

enum { EXPLAIN_MOST_NEAR = 8 };

/* Writes at most EXPLAIN_MOST_NEAR entries, the nearest first; returns how many. None where no
 * entry has more than half of the text, or nearly all of its longest word. */
size_t explain_near(const char *query, const struct rp_explanation **out_near);

#endif
