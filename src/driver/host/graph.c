/* SPDX-License-Identifier: MIT
 *
 * Graphs: nodes in the order of their creation, each with the edges that come in and go out, in the
 * order in which they were added. Edges may close a cycle; instantiation finds that.
 */
#include "driver/host/state.h"

/* ---- nodes and graphs ---------------------------------------------------------------------- */

CUgraph rpi_host_graph_create(CUgraphNode parent, bool internal)
{
    rpi_assert_held(&rpi_host.lock);
    CUgraph graph = rpi_calloc(1, sizeof *graph);
    if (!graph || (!internal && !rpi_host_handle_add(graph, RPI_HOST_GRAPH))) {
        rpi_free(graph);
        return NULL;
    }
    graph->parent = parent;
    graph->internal = internal;
    rpi_host.graph_count += !internal && !parent;
    return graph;
}

/* Frees a node whose edges are nobody's concern any more. */
static void free_node(CUgraphNode node)
{
    if (!node->graph->internal)
        rpi_host_handle_remove(node);
    if (node->child)
        rpi_host_graph_destroy(node->child);
    rpi_host_op_drop(node->op);
    rpi_vec_finish(&node->before);
    rpi_vec_finish(&node->after);
    rpi_free(node);
}

void rpi_host_graph_destroy(CUgraph graph)
{
    rpi_assert_held(&rpi_host.lock);
    for (size_t i = 0; i < graph->nodes.count; i++)
        free_node(graph->nodes.data[i]);
    rpi_vec_finish(&graph->nodes);
    if (!graph->internal)
        rpi_host_handle_remove(graph);
    rpi_host.graph_count -= !graph->internal && !graph->parent;
    rpi_free(graph);
}

CUgraph rpi_host_graph_top(CUgraph graph)
{
    rpi_assert_held(&rpi_host.lock);
    while (graph->parent)
        graph = graph->parent->graph;
    return graph;
}

void rpi_host_graphs_finish(void)
{
    rpi_assert_held(&rpi_host.lock);
    CUgraph graph;
    while ((graph = rpi_host_handle_any(RPI_HOST_GRAPH)))
        rpi_host_graph_destroy(rpi_host_graph_top(graph));
}

/* A node without edges at the end of the graph. */
static CUgraphNode append_node(CUgraph graph, struct rpi_host_op *op)
{
    CUgraphNode node = rpi_calloc(1, sizeof *node);
    if (!node || !rpi_vec_reserve(&graph->nodes, graph->nodes.count + 1) ||
        (!graph->internal && !rpi_host_handle_add(node, RPI_HOST_NODE))) {
        rpi_free(node);
        return NULL;
    }
    node->graph = graph;
    node->id = ++rpi_host.ids;
    node->index = graph->nodes.count;
    node->op = rpi_host_op_hold(op);
    graph->nodes.data[graph->nodes.count++] = node;
    return node;
}

static bool copy_edges(struct rpi_host_edges *to, const struct rpi_host_edges *from, CUgraph clone)
{
    if (!rpi_vec_reserve(to, from->count))
        return false;
    for (size_t i = 0; i < from->count; i++)
        to->data[i] = (struct rpi_host_edge){clone->nodes.data[from->data[i].node->index],
                                             from->data[i].data};
    to->count = from->count;
    return true;
}

CUresult rpi_host_graph_clone(CUgraph original, CUgraphNode parent, bool internal,
                              CUgraph *out_clone)
{
    rpi_assert_held(&rpi_host.lock);
    CUgraph clone = rpi_host_graph_create(parent, internal);
    bool ok = clone != NULL;
    for (size_t i = 0; i < original->nodes.count && ok; i++) {
        CUgraphNode from = original->nodes.data[i];
        CUgraphNode node = append_node(clone, from->op);
        ok = node != NULL;
        if (ok)
            node->cloned_from = from->id;
        if (ok && from->child)
            ok = rpi_host_graph_clone(from->child, node, internal, &node->child) == CUDA_SUCCESS;
    }
    for (size_t i = 0; i < original->nodes.count && ok; i++)
        ok = copy_edges(&clone->nodes.data[i]->before, &original->nodes.data[i]->before, clone) &&
             copy_edges(&clone->nodes.data[i]->after, &original->nodes.data[i]->after, clone);
    if (!ok) {
        if (clone)
            rpi_host_graph_destroy(clone);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out_clone = clone;
    return CUDA_SUCCESS;
}

bool rpi_host_edge_valid(const struct rpi_host_edge *edge)
{
    static const unsigned char zero[sizeof edge->data.reserved];
    const CUgraphEdgeData *data = &edge->data;
    bool kernel = edge->node->op->type == CU_GRAPH_NODE_TYPE_KERNEL;
    if (data->to_port != 0 || memcmp(data->reserved, zero, sizeof zero) != 0)
        return false;
    if (data->type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
        return kernel && (data->from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC ||
                          data->from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER);
    return data->type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT &&
           data->from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT;
}

/* ---- edges --------------------------------------------------------------------------------- */

static bool same_data(const CUgraphEdgeData *a, const CUgraphEdgeData *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static size_t find_edge(const struct rpi_host_edges *edges, CUgraphNode node,
                        const CUgraphEdgeData *data)
{
    size_t i = 0;
    while (i < edges->count &&
           (edges->data[i].node != node || !same_data(&edges->data[i].data, data)))
        i++;
    return i;
}

static size_t find_any_edge(const struct rpi_host_edges *edges, CUgraphNode node)
{
    size_t i = 0;
    while (i < edges->count && edges->data[i].node != node)
        i++;
    return i;
}

static void remove_at(struct rpi_host_edges *edges, size_t index)
{
    edges->count--;
    memmove(edges->data + index, edges->data + index + 1,
            (edges->count - index) * sizeof *edges->data);
}

static bool add_edge(CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *data)
{
    if (!rpi_vec_reserve(&from->after, from->after.count + 1) ||
        !rpi_vec_reserve(&to->before, to->before.count + 1))
        return false;
    from->after.data[from->after.count++] = (struct rpi_host_edge){to, *data};
    to->before.data[to->before.count++] = (struct rpi_host_edge){from, *data};
    return true;
}

static void remove_edge(CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *data)
{
    remove_at(&from->after, find_edge(&from->after, to, data));
    remove_at(&to->before, find_edge(&to->before, from, data));
}

static void remove_node(CUgraphNode node)
{
    while (node->before.count) {
        struct rpi_host_edge edge = node->before.data[node->before.count - 1];
        remove_edge(edge.node, node, &edge.data);
    }
    while (node->after.count) {
        struct rpi_host_edge edge = node->after.data[node->after.count - 1];
        remove_edge(node, edge.node, &edge.data);
    }
    CUgraph graph = node->graph;
    graph->nodes.count--;
    for (size_t i = node->index; i < graph->nodes.count; i++) {
        graph->nodes.data[i] = graph->nodes.data[i + 1];
        graph->nodes.data[i]->index = i;
    }
    free_node(node);
}

CUresult rpi_host_graph_add(CUgraph graph, const struct rpi_host_edge *edges, size_t count,
                            struct rpi_host_op *op, CUgraph child, CUgraphNode *out_node)
{
    rpi_assert_held(&rpi_host.lock);
    uint64_t mark = ++rpi_host.marks;
    for (size_t i = 0; i < count; i++) {
        if (edges[i].node->mark == mark)
            return CUDA_ERROR_INVALID_VALUE; /* a dependency twice */
        edges[i].node->mark = mark;
    }
    CUgraphNode node = append_node(graph, op);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    bool ok = true;
    if (child)
        ok = rpi_host_graph_clone(child, node, graph->internal, &node->child) == CUDA_SUCCESS;
    for (size_t i = 0; i < count && ok; i++)
        ok = add_edge(edges[i].node, node, &edges[i].data);
    if (!ok) {
        remove_node(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out_node = node;
    return CUDA_SUCCESS;
}

uint64_t rpi_host_graph_mark(const struct rpi_host_edge *nodes, size_t count)
{
    rpi_assert_held(&rpi_host.lock);
    /* Depth first, with the stack threaded through the nodes themselves, so that it cannot fail. */
    uint64_t mark = ++rpi_host.marks;
    CUgraphNode stack = NULL;
    for (size_t i = 0; i < count; i++) {
        if (nodes[i].node->mark == mark)
            continue;
        nodes[i].node->mark = mark;
        nodes[i].node->below = stack;
        stack = nodes[i].node;
    }
    while (stack) {
        CUgraphNode node = stack;
        stack = node->below;
        for (size_t i = 0; i < node->before.count; i++) {
            CUgraphNode before = node->before.data[i].node;
            if (before->mark == mark)
                continue;
            before->mark = mark;
            before->below = stack;
            stack = before;
        }
    }
    return mark;
}

/* ---- the graph functions ------------------------------------------------------------------- */

static bool is_graph(CUgraph graph)
{
    return rpi_host_handle_is(graph, RPI_HOST_GRAPH);
}

static bool is_node(CUgraphNode node)
{
    return rpi_host_handle_is(node, RPI_HOST_NODE);
}

CUresult rpi_host_cuGraphCreate(CUgraph *graph, unsigned flags)
{
    if (!graph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraph created = rpi_host_graph_create(NULL, false);
    if (!created)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *graph = created;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuGraphDestroy(CUgraph graph)
{
    /* A child belongs to its node, a graph being captured to its capture. */
    if (!is_graph(graph) || graph->parent || rpi_host_capture_owns(graph))
        return CUDA_ERROR_INVALID_VALUE;
    rpi_host_graph_destroy(graph);
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuGraphClone(CUgraph *clone, CUgraph original)
{
    if (!clone || !is_graph(original))
        return CUDA_ERROR_INVALID_VALUE;
    return rpi_host_graph_clone(original, NULL, false, clone);
}

CUresult rpi_host_cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original, CUgraph clone)
{
    if (!node || !is_node(original) || !is_graph(clone))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < clone->nodes.count; i++) {
        if (clone->nodes.data[i]->cloned_from == original->id) {
            *node = clone->nodes.data[i];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult list_nodes(CUgraph graph, bool roots, CUgraphNode *nodes, size_t *count)
{
    if (!is_graph(graph) || !count)
        return CUDA_ERROR_INVALID_VALUE;
    size_t found = 0;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        if (roots && graph->nodes.data[i]->before.count)
            continue;
        if (nodes && found < *count)
            nodes[found] = graph->nodes.data[i];
        found++;
    }
    for (size_t i = found; nodes && i < *count; i++)
        nodes[i] = NULL;
    if (!nodes || found < *count)
        *count = found;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    return list_nodes(graph, false, nodes, count);
}

CUresult rpi_host_cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    return list_nodes(graph, true, nodes, count);
}

CUresult rpi_host_cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
                                  CUgraphEdgeData *edges, size_t *count)
{
    static const CUgraphEdgeData none;
    if (!is_graph(graph) || !count || !from != !to || (edges && !from))
        return CUDA_ERROR_INVALID_VALUE;
    size_t found = 0;
    for (size_t i = 0; i < graph->nodes.count; i++) {
        CUgraphNode node = graph->nodes.data[i];
        for (size_t j = 0; j < node->after.count; j++, found++) {
            if (!from || found >= *count)
                continue;
            if (!edges && !same_data(&node->after.data[j].data, &none))
                return CUDA_ERROR_LOSSY_QUERY;
            from[found] = node;
            to[found] = node->after.data[j].node;
            if (edges)
                edges[found] = node->after.data[j].data;
        }
    }
    for (size_t i = found; from && i < *count; i++) {
        from[i] = to[i] = NULL;
        if (edges)
            edges[i] = none;
    }
    if (!from || found < *count)
        *count = found;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    if (!is_node(node) || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = node->op->type;
    return CUDA_SUCCESS;
}

static CUresult list_edges(const struct rpi_host_edges *list, CUgraphNode *nodes,
                           CUgraphEdgeData *edges, size_t *count)
{
    static const CUgraphEdgeData none;
    if (!count || (edges && !nodes))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; nodes && !edges && i < list->count && i < *count; i++)
        if (!same_data(&list->data[i].data, &none))
            return CUDA_ERROR_LOSSY_QUERY;
    for (size_t i = 0; nodes && i < *count; i++) {
        bool there = i < list->count;
        nodes[i] = there ? list->data[i].node : NULL;
        if (edges)
            edges[i] = there ? list->data[i].data : none;
    }
    if (!nodes || list->count < *count)
        *count = list->count;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes,
                                             CUgraphEdgeData *edges, size_t *count)
{
    return is_node(node) ? list_edges(&node->before, nodes, edges, count)
                         : CUDA_ERROR_INVALID_VALUE;
}

CUresult rpi_host_cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes,
                                               CUgraphEdgeData *edges, size_t *count)
{
    return is_node(node) ? list_edges(&node->after, nodes, edges, count) : CUDA_ERROR_INVALID_VALUE;
}

/* Whether the program may join these nodes of the graph. */
static bool may_join(CUgraph graph, CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *data)
{
    if (!is_node(from) || !is_node(to) || from == to || from->graph != graph || to->graph != graph)
        return false;
    struct rpi_host_edge edge = {from, *data};
    if (!rpi_host_edge_valid(&edge))
        return false;
    return data->type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT ||
           to->op->type == CU_GRAPH_NODE_TYPE_KERNEL;
}

CUresult rpi_host_cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from,
                                         const CUgraphNode *to, const CUgraphEdgeData *edges,
                                         size_t count)
{
    static const CUgraphEdgeData none;
    if (!is_graph(graph) || (count && (!from || !to)))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    size_t done = 0;
    for (; done < count && !result; done++) {
        const CUgraphEdgeData *data = edges ? &edges[done] : &none;
        if (!may_join(graph, from[done], to[done], data) ||
            find_any_edge(&from[done]->after, to[done]) < from[done]->after.count)
            result = CUDA_ERROR_INVALID_VALUE;
        else if (!add_edge(from[done], to[done], data))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!result)
        return CUDA_SUCCESS;
    for (done--; done-- > 0;)
        remove_edge(from[done], to[done], edges ? &edges[done] : &none);
    return result;
}

/* The data of the edges does not matter: there is at most one edge between two nodes. */
CUresult rpi_host_cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from,
                                            const CUgraphNode *to, const CUgraphEdgeData *edges,
                                            size_t count)
{
    (void)edges;
    if (!is_graph(graph) || (count && (!from || !to)))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!is_node(from[i]) || !is_node(to[i]) || from[i]->graph != graph ||
            find_any_edge(&from[i]->after, to[i]) == from[i]->after.count)
            return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        size_t edge = find_any_edge(&from[i]->after, to[i]);
        if (edge < from[i]->after.count) {
            CUgraphEdgeData data = from[i]->after.data[edge].data;
            remove_edge(from[i], to[i], &data);
        }
    }
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuGraphDestroyNode(CUgraphNode node)
{
    if (!is_node(node) || rpi_host_capture_owns(rpi_host_graph_top(node->graph)))
        return CUDA_ERROR_INVALID_VALUE;
    remove_node(node);
    return CUDA_SUCCESS;
}
