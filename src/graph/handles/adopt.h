/* SPDX-License-Identifier: MIT
 *
 * Adopted graphs, as rp_graph_destroy sees them; adopt.c tells what they are.
 */
#ifndef REPRISE_GRAPH_HANDLES_ADOPT_H
#define REPRISE_GRAPH_HANDLES_ADOPT_H

#include "graph/objects/objects.h"

/* What rp_graph_destroy does with an adopted graph, its capture over or not. */
void rpi_adopted_destroy(struct rp_graph *graph);

#endif
