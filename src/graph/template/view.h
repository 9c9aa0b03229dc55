/* SPDX-License-Identifier: MIT
 *
 * A template's nodes and edges as arrays: nodes in the order of cuGraphGetNodes, edges by the
 * places of their ends in it, sorted.
 */
#ifndef REPRISE_GRAPH_TEMPLATE_VIEW_H
#define REPRISE_GRAPH_TEMPLATE_VIEW_H

#include "driver/driver.h"

struct rpi_edge {
    uint32_t from, to; /* places in nodes */
    unsigned char from_port, to_port, type;
};

struct rpi_template_view {
    CUgraphNode *nodes;
    struct rpi_edge *edges;
    size_t node_count, edge_count;
};

/* Reads a template. What was read before a failure is freed by rpi_view_finish. */
rp_status rpi_view_read(struct rpi_template_view *view, const struct rp_driver *driver,
                        CUgraph graph, struct rp_error *err);
/* The same without the edges. */
rp_status rpi_view_read_nodes(struct rpi_template_view *view, const struct rp_driver *driver,
                              CUgraph graph, struct rp_error *err);
void rpi_view_finish(struct rpi_template_view *view);

/* The order of edges: below 0, 0 or above 0. */
int rpi_edge_compare(const struct rpi_edge *a, const struct rpi_edge *b);

#endif
