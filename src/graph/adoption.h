/* SPDX-License-Identifier: MIT
 *
 * Adopted graphs, as the rest of the floor sees them; adopt.c tells what they are.
 */
#ifndef REPRISE_GRAPH_ADOPTION_H
#define REPRISE_GRAPH_ADOPTION_H

#include "graph/objects.h"

/* RP_ERROR_INVALID_ARGUMENT, said to be `function`'s, while a capture into the pool that was
 * adopted is under way. With the capture lock held, under which none begins. */
rp_status rpi_adoption_check(const struct rp_pool *pool, const char *function,
                             struct rp_error *err);

/* What rp_graph_destroy does with an adopted graph, its capture over or not. */
void rpi_adopted_destroy(struct rp_graph *graph);

#endif
