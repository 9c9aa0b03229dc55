/* SPDX-License-Identifier: MIT */
#include "graph/bind/copy_nodes.h"

#include <assert.h>

/* Changing fewer nodes than these costs no more than a copy node does. */
enum { LEAST_NODES = 5 };

/* ---- Which are wanted ---------------------------------------------------------------------- */

/* How many copies replays can make at that end at most; 0: they make too few to be worth a node. */
static size_t room_for(const struct rpi_binding *binding, enum rpi_copy_node_end end)
{
    enum rp_arg_role role = end == RPI_COPY_NODE_IN ? RP_ARG_IN : RP_ARG_OUT;
    size_t values = end == RPI_COPY_NODE_IN ? binding->value_count : 0;
    size_t all = values, needed = values, nodes = 0;
    for (size_t k = 0; k < binding->arg_count; k++) {
        const struct rpi_bind_arg *arg = &binding->args[k];
        if (!(arg->role & role) || !arg->bytes)
            continue;
        all++;
        if (arg->never != RPI_COPY_NOT)
            needed++;
        else if (binding->choice && !arg->in_copies)
            nodes += arg->use_count;
    }
    return needed || nodes >= LEAST_NODES ? all : 0;
}

/* ---- Adding them --------------------------------------------------------------------------- */

static rp_status no_memory(struct rp_error *err, size_t bytes)
{
    return rpi_error_host_memory(err, "rp_graph_capture", bytes);
}

static rp_status refused(struct rp_error *err, CUresult result, const char *function)
{
    return rpi_error_driver(err, result, function, "adding the nodes that copy arguments");
}

/* Some of a graph's nodes. */
struct nodes {
    RPI_VEC(CUgraphNode);
};

static rp_status find_roots(struct nodes *roots, const struct rp_driver *driver, CUgraph graph,
                            struct rp_error *err)
{
    size_t count = 0;
    CUresult result = driver->cuGraphGetRootNodes(graph, NULL, &count);
    if (result == CUDA_SUCCESS && !rpi_vec_reserve(roots, count + 1))
        return no_memory(err, count * sizeof *roots->data);
    if (result == CUDA_SUCCESS && count)
        result = driver->cuGraphGetRootNodes(graph, roots->data, &count);
    roots->count = count;
    return result == CUDA_SUCCESS ? RP_OK : refused(err, result, "cuGraphGetRootNodes");
}

/* In the driver's order. */
static rp_status find_leaves(struct nodes *leaves, const struct rp_driver *driver, CUgraph graph,
                             struct rp_error *err)
{
    size_t count = 0;
    CUresult result = driver->cuGraphGetNodes(graph, NULL, &count);
    if (result == CUDA_SUCCESS && (!rpi_vec_reserve(leaves, count + 1) || !leaves->data))
        return no_memory(err, count * sizeof *leaves->data);
    if (result == CUDA_SUCCESS && count)
        result = driver->cuGraphGetNodes(graph, leaves->data, &count);
    if (result != CUDA_SUCCESS)
        return refused(err, result, "cuGraphGetNodes");
    for (size_t i = 0; i < count; i++) {
        size_t dependents = 0;
        result = driver->cuGraphNodeGetDependentNodes(leaves->data[i], NULL, NULL, &dependents);
        if (result != CUDA_SUCCESS)
            return refused(err, result, "cuGraphNodeGetDependentNodes");
        if (!dependents)
            leaves->data[leaves->count++] = leaves->data[i];
    }
    return RP_OK;
}

/* With an empty table, behind those nodes. */
static rp_status add_copy_node(struct rpi_copy_node *copy_node, const struct rpi_copier *copier,
                               CUgraph graph, const struct nodes *behind, size_t copies,
                               struct rp_error *err)
{
    assert(!copy_node->most && !copy_node->given && copies);
    struct rpi_copy_launch launch;
    size_t room = copies < RPI_COPY_MOST ? copies : RPI_COPY_MOST;
    uint32_t most = rpi_copy_table_size(room);
    copy_node->given = rpi_calloc(most, sizeof *copy_node->given);
    if (!copy_node->given)
        return no_memory(err, most * sizeof *copy_node->given);
    rpi_copy_launch_make(&launch, copier, most, NULL, 0);
    CUresult result = copier->driver->cuGraphAddKernelNode(&copy_node->node, graph, behind->data,
                                                           behind->count, &launch.kernel);
    if (result != CUDA_SUCCESS)
        return refused(err, result, "cuGraphAddKernelNode");
    copy_node->most = most;
    return RP_OK;
}

static rp_status add_edges(const struct rp_driver *driver, CUgraph graph, CUgraphNode from,
                           const struct nodes *to, struct rp_error *err)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; result == CUDA_SUCCESS && i < to->count; i++)
        result = driver->cuGraphAddDependencies(graph, &from, &to->data[i], NULL, 1);
    return result == CUDA_SUCCESS ? RP_OK : refused(err, result, "cuGraphAddDependencies");
}

static rp_status add(struct rpi_copy_nodes *copy_nodes, CUgraph graph, const size_t *copies,
                     struct rp_error *err)
{
    const struct rp_driver *driver = copy_nodes->copier->driver;
    struct nodes roots = {0}, leaves = {0}, none = {0};
    rp_status status = find_roots(&roots, driver, graph, err);
    if (status == RP_OK)
        status = find_leaves(&leaves, driver, graph, err);
    struct rpi_copy_node *in = &copy_nodes->ends[RPI_COPY_NODE_IN];
    struct rpi_copy_node *out = &copy_nodes->ends[RPI_COPY_NODE_OUT];
    if (status == RP_OK && roots.count && copies[RPI_COPY_NODE_IN])
        status = add_copy_node(in, copy_nodes->copier, graph, &none, copies[RPI_COPY_NODE_IN], err);
    if (status == RP_OK && in->most)
        status = add_edges(driver, graph, in->node, &roots, err);
    if (status == RP_OK && leaves.count && copies[RPI_COPY_NODE_OUT])
        status =
            add_copy_node(out, copy_nodes->copier, graph, &leaves, copies[RPI_COPY_NODE_OUT], err);
    rpi_vec_finish(&roots);
    rpi_vec_finish(&leaves);
    return status;
}

rp_status rpi_copy_nodes_add(struct rpi_copy_nodes *copy_nodes, const struct rpi_binding *binding,
                             struct rpi_copier *copier, CUgraph template, struct rp_error *err)
{
    size_t copies[RPI_COPY_NODE_ENDS];
    *copy_nodes = (struct rpi_copy_nodes){.copier = copier};
    for (int end = 0; end < RPI_COPY_NODE_ENDS; end++)
        copies[end] = room_for(binding, (enum rpi_copy_node_end)end);
    if (!copies[RPI_COPY_NODE_IN] && !copies[RPI_COPY_NODE_OUT])
        return RP_OK;
    rpi_copier_load(copier);
    return rpi_copier_is_loaded(copier) ? add(copy_nodes, template, copies, err) : RP_OK;
}

void rpi_copy_nodes_finish(struct rpi_copy_nodes *copy_nodes)
{
    for (int end = 0; end < RPI_COPY_NODE_ENDS; end++)
        rpi_free(copy_nodes->ends[end].given);
    *copy_nodes = (struct rpi_copy_nodes){0};
}

/* ---- Replays ------------------------------------------------------------------------------- */

CUresult rpi_copy_nodes_give(struct rpi_copy_nodes *copy_nodes, enum rpi_copy_node_end end,
                             CUgraphExec exec, const CUgraphNode *nodes,
                             const struct rpi_copy *copies, size_t count, size_t *out_carried)
{
    assert(!count || copies);
    assert(end < RPI_COPY_NODE_ENDS);
    struct rpi_copy_node *copy_node = &copy_nodes->ends[end];
    struct rpi_copy_launch launch;
    size_t carried = count < copy_node->most ? count : copy_node->most;
    *out_carried = carried;
    if (!copy_node->unknown && copy_node->count == carried &&
        (!carried || memcmp(copy_node->given, copies, carried * sizeof *copies) == 0))
        return CUDA_SUCCESS;
    copy_node->unknown = true;
    rpi_copy_launch_make(&launch, copy_nodes->copier, copy_node->most, copies, carried);
    CUresult result = copy_nodes->copier->driver->cuGraphExecKernelNodeSetParams(
        exec, nodes[copy_node->number], &launch.kernel);
    if (result != CUDA_SUCCESS)
        return result;
    copy_node->unknown = false;
    copy_node->count = carried;
    if (carried)
        memcpy(copy_node->given, copies, carried * sizeof *copies);
    copy_nodes->tables++;
    return CUDA_SUCCESS;
}
