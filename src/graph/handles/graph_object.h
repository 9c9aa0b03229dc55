/* SPDX-License-Identifier: MIT
 *
 * The end of a graph, whoever captured it.
 */
#ifndef REPRISE_GRAPH_HANDLES_GRAPH_OBJECT_H
#define REPRISE_GRAPH_HANDLES_GRAPH_OBJECT_H

#include "graph/objects/objects.h"

/* Frees it and what it has; it is in no pool and in no cache. */
void rpi_graph_free(struct rp_graph *graph);

/* It has no share of its pool, and was not added to it. */
void rpi_graph_drop_share(struct rp_graph *graph);

#endif
