/* SPDX-License-Identifier: MIT */
#include "graph/template/view.h"

#include "base/hostmem.h"
#include "base/idmap.h"

#include <stdlib.h>

void rpi_view_finish(struct rpi_template_view *view)
{
    rpi_free(view->nodes);
    rpi_free(view->edges);
    *view = (struct rpi_template_view){0};
}

rp_status rpi_view_read_nodes(struct rpi_template_view *view, const struct rp_driver *driver,
                              CUgraph graph, struct rp_error *err)
{
    *view = (struct rpi_template_view){0};
    CUresult result = driver->cuGraphGetNodes(graph, NULL, &view->node_count);
    if (result == CUDA_SUCCESS) {
        view->nodes = rpi_calloc(view->node_count + 1, sizeof *view->nodes);
        if (!view->nodes)
            return rpi_error_host_memory(err, "rp_graph_capture",
                                         view->node_count * sizeof *view->nodes);
        if (view->node_count)
            result = driver->cuGraphGetNodes(graph, view->nodes, &view->node_count);
    }
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphGetNodes", "reading the nodes of a template");
    return RP_OK;
}

int rpi_edge_compare(const struct rpi_edge *a, const struct rpi_edge *b)
{
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    return (a->from_port << 16 | a->to_port << 8 | a->type) -
           (b->from_port << 16 | b->to_port << 8 | b->type);
}

static int order_edges(const void *left, const void *right)
{
    return rpi_edge_compare(left, right);
}

/* Fills view->edges from the driver's arrays, handles turned into places in view->nodes. */
static rp_status translate_edges(struct rpi_template_view *view, const CUgraphNode *from,
                                 const CUgraphNode *to, const CUgraphEdgeData *data,
                                 struct rp_error *err)
{
    struct rpi_idmap index = {0};
    for (size_t i = 0; i < view->node_count; i++) {
        if (!rpi_idmap_set(&index, (uintptr_t)view->nodes[i], (uint32_t)i)) {
            rpi_idmap_finish(&index);
            return rpi_error_host_memory(err, "rp_graph_capture", view->node_count * 32);
        }
    }
    for (size_t i = 0; i < view->edge_count; i++)
        view->edges[i] = (struct rpi_edge){rpi_idmap_get(&index, (uintptr_t)from[i]),
                                           rpi_idmap_get(&index, (uintptr_t)to[i]),
                                           data[i].from_port, data[i].to_port, data[i].type};
    rpi_idmap_finish(&index);
    qsort(view->edges, view->edge_count, sizeof *view->edges, order_edges);
    return RP_OK;
}

static rp_status view_edges(struct rpi_template_view *view, const struct rp_driver *driver,
                            CUgraph graph, struct rp_error *err)
{
    CUresult result = driver->cuGraphGetEdges(graph, NULL, NULL, NULL, &view->edge_count);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphGetEdges", "reading the edges of a template");
    size_t count = view->edge_count;
    if (!count)
        return RP_OK;
    CUgraphNode *from = rpi_calloc(count, sizeof *from), *to = rpi_calloc(count, sizeof *to);
    CUgraphEdgeData *data = rpi_calloc(count, sizeof *data);
    view->edges = rpi_calloc(count, sizeof *view->edges);
    rp_status status = RP_OK;
    if (!from || !to || !data || !view->edges)
        status = rpi_error_host_memory(err, "rp_graph_capture", count * sizeof *view->edges);
    if (status == RP_OK) {
        result = driver->cuGraphGetEdges(graph, from, to, data, &view->edge_count);
        if (result != CUDA_SUCCESS)
            status =
                rpi_error_driver(err, result, "cuGraphGetEdges", "reading the edges of a template");
    }
    if (status == RP_OK)
        status = translate_edges(view, from, to, data, err);
    rpi_free(from);
    rpi_free(to);
    rpi_free(data);
    return status;
}

rp_status rpi_view_read(struct rpi_template_view *view, const struct rp_driver *driver,
                        CUgraph graph, struct rp_error *err)
{
    rp_status status = rpi_view_read_nodes(view, driver, graph, err);
    return status == RP_OK ? view_edges(view, driver, graph, err) : status;
}
