/* SPDX-License-Identifier: MIT
 *
 * Nodes that a program adds itself, and the parameters of all nodes. What a get function returns by
 * pointer belongs to the node's op and lives until the node's parameters change.
 */
#include "base/held.h"
#include "driver/host/state.h"

#include <assert.h>

/* ---- adding -------------------------------------------------------------------------------- */

/* Adds the op, which is consumed, after the nodes that the program named. */
static CUresult add(CUgraphNode *out_node, CUgraph graph, const CUgraphNode *dependencies,
                    size_t count, struct rpi_host_op *op, CUgraph child)
{
    rpi_assert_held(&rpi_host.lock);
    assert(!count || dependencies);
    struct rpi_host_edge *edges = rpi_calloc(count, sizeof *edges);
    CUresult result = edges ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < count && !result; i++) {
        edges[i].node = dependencies[i];
        if (!rpi_host_handle_is(dependencies[i], RPI_HOST_NODE) || dependencies[i]->graph != graph)
            result = CUDA_ERROR_INVALID_VALUE;
    }
    if (!result)
        result = rpi_host_graph_add(graph, edges, count, op, child, out_node);
    rpi_free(edges);
    rpi_host_op_drop(op);
    return result;
}

static bool may_add(CUgraphNode *out_node, CUgraph graph, const CUgraphNode *dependencies,
                    size_t count)
{
    return out_node && rpi_host_handle_is(graph, RPI_HOST_GRAPH) && (dependencies || count == 0);
}

CUresult rpi_host_cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph,
                                      const CUgraphNode *dependencies, size_t count)
{
    if (!may_add(node, graph, dependencies, count))
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_op *op = rpi_host_op_create(CU_GRAPH_NODE_TYPE_EMPTY);
    return op ? add(node, graph, dependencies, count, op, NULL) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult rpi_host_cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph,
                                       const CUgraphNode *dependencies, size_t count,
                                       const CUDA_KERNEL_NODE_PARAMS *params)
{
    if (!may_add(node, graph, dependencies, count) || !params)
        return CUDA_ERROR_INVALID_VALUE;
    if (!params->ctx && !rpi_host_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    struct rpi_host_op *op;
    CUresult result = rpi_host_kernel_op(params, NULL, &op);
    return result ? result : add(node, graph, dependencies, count, op, NULL);
}

CUresult rpi_host_cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph,
                                       const CUgraphNode *dependencies, size_t count,
                                       const CUDA_MEMCPY3D *params, CUcontext context)
{
    if (!may_add(node, graph, dependencies, count) || !params || !rpi_host_is_context(context))
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_op *op;
    CUresult result = rpi_host_copy_op(params, &op);
    return result ? result : add(node, graph, dependencies, count, op, NULL);
}

CUresult rpi_host_cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph,
                                       const CUgraphNode *dependencies, size_t count,
                                       const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
    if (!may_add(node, graph, dependencies, count) || !params || !rpi_host_is_context(context))
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_op *op;
    CUresult result = rpi_host_fill_op(params, false, &op);
    return result ? result : add(node, graph, dependencies, count, op, NULL);
}

CUresult rpi_host_cuGraphAddHostNode(CUgraphNode *node, CUgraph graph,
                                     const CUgraphNode *dependencies, size_t count,
                                     const CUDA_HOST_NODE_PARAMS *params)
{
    if (!may_add(node, graph, dependencies, count) || !params)
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_op *op;
    CUresult result = rpi_host_function_op(params, &op);
    return result ? result : add(node, graph, dependencies, count, op, NULL);
}

CUresult rpi_host_cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph,
                                           const CUgraphNode *dependencies, size_t count,
                                           CUgraph child)
{
    if (!may_add(node, graph, dependencies, count) || !rpi_host_handle_is(child, RPI_HOST_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    /* A graph cannot hold itself, nor a graph that holds it. */
    for (CUgraph above = graph; above; above = above->parent ? above->parent->graph : NULL)
        if (above == child)
            return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_op *op = rpi_host_op_create(CU_GRAPH_NODE_TYPE_GRAPH);
    return op ? add(node, graph, dependencies, count, op, child) : CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- reading and writing ------------------------------------------------------------------- */

static bool has_type(CUgraphNode node, CUgraphNodeType type)
{
    return rpi_host_handle_is(node, RPI_HOST_NODE) && node->op->type == type;
}

static void replace(CUgraphNode node, struct rpi_host_op *op)
{
    rpi_assert_held(&rpi_host.lock);
    assert(node->op->type == op->type);
    rpi_host_op_drop(node->op);
    node->op = op;
}

CUresult rpi_host_cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
    if (!has_type(node, CU_GRAPH_NODE_TYPE_KERNEL) || !params)
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_kernel_op *k = &node->op->kernel;
    *params = (CUDA_KERNEL_NODE_PARAMS){
        .func = k->function,
        .gridDimX = k->grid[0],
        .gridDimY = k->grid[1],
        .gridDimZ = k->grid[2],
        .blockDimX = k->block[0],
        .blockDimY = k->block[1],
        .blockDimZ = k->block[2],
        .sharedMemBytes = k->shared_bytes,
        .kernelParams = k->packed ? NULL : k->params,
        .extra = k->packed ? k->extra : NULL,
        .kern = rpi_host_kernel_of(k->function),
        .ctx = k->function->module->context,
    };
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuGraphKernelNodeSetParams(CUgraphNode node,
                                             const CUDA_KERNEL_NODE_PARAMS *params)
{
    if (!has_type(node, CU_GRAPH_NODE_TYPE_KERNEL) || !params)
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_op *op;
    CUresult result = rpi_host_kernel_op(params, &node->op->kernel, &op);
    if (!result)
        replace(node, op);
    return result;
}

CUresult rpi_host_cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                                CUkernelNodeAttrValue *value)
{
    if (!has_type(node, CU_GRAPH_NODE_TYPE_KERNEL) || !value)
        return CUDA_ERROR_INVALID_VALUE;
    const struct rpi_host_kernel_op *k = &node->op->kernel;
    bool clusters = k->cluster[0] * k->cluster[1] * k->cluster[2] > 1;
    CUkernelNodeAttrValue found = {0};
    switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        found.cooperative = k->cooperative;
        break;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        found.clusterDim.x = clusters ? k->cluster[0] : 0;
        found.clusterDim.y = clusters ? k->cluster[1] : 0;
        found.clusterDim.z = clusters ? k->cluster[2] : 0;
        break;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        found.priority = k->priority;
        break;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    *value = found;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                                const CUkernelNodeAttrValue *value)
{
    if (!has_type(node, CU_GRAPH_NODE_TYPE_KERNEL) || !value)
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_kernel_op like = node->op->kernel;
    switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        like.cooperative = value->cooperative != 0;
        break;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        like.cluster[0] = value->clusterDim.x ? value->clusterDim.x : 1;
        like.cluster[1] = value->clusterDim.y ? value->clusterDim.y : 1;
        like.cluster[2] = value->clusterDim.z ? value->clusterDim.z : 1;
        break;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        like.priority = value->priority;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_KERNEL_NODE_PARAMS params;
    struct rpi_host_op *op;
    CUresult result = rpi_host_cuGraphKernelNodeGetParams(node, &params);
    if (!result)
        result = rpi_host_kernel_op(&params, &like, &op);
    if (!result)
        replace(node, op);
    return result;
}

CUresult rpi_host_cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *params)
{
    if (!has_type(node, CU_GRAPH_NODE_TYPE_MEMCPY) || !params)
        return CUDA_ERROR_INVALID_VALUE;
    *params = node->op->copy;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *params)
{
    if (!has_type(node, CU_GRAPH_NODE_TYPE_MEMCPY) || !params)
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_op *op;
    CUresult result = rpi_host_copy_op(params, &op);
    if (!result)
        replace(node, op);
    return result;
}

CUresult rpi_host_cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *params)
{
    if (!has_type(node, CU_GRAPH_NODE_TYPE_MEMSET) || !params)
        return CUDA_ERROR_INVALID_VALUE;
    *params = node->op->fill;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuGraphMemsetNodeSetParams(CUgraphNode node,
                                             const CUDA_MEMSET_NODE_PARAMS *params)
{
    if (!has_type(node, CU_GRAPH_NODE_TYPE_MEMSET) || !params)
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_op *op;
    CUresult result = rpi_host_fill_op(params, false, &op);
    if (!result)
        replace(node, op);
    return result;
}

CUresult rpi_host_cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *params)
{
    if (!has_type(node, CU_GRAPH_NODE_TYPE_HOST) || !params)
        return CUDA_ERROR_INVALID_VALUE;
    *params = node->op->host;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params)
{
    if (!has_type(node, CU_GRAPH_NODE_TYPE_HOST) || !params)
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_op *op;
    CUresult result = rpi_host_function_op(params, &op);
    if (!result)
        replace(node, op);
    return result;
}

static CUresult get_event(CUgraphNode node, CUgraphNodeType type, CUevent *event)
{
    assert(type == CU_GRAPH_NODE_TYPE_EVENT_RECORD || type == CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    if (!has_type(node, type) || !event)
        return CUDA_ERROR_INVALID_VALUE;
    *event = node->op->event;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event)
{
    return get_event(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult rpi_host_cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event)
{
    return get_event(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

CUresult rpi_host_cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph)
{
    if (!has_type(node, CU_GRAPH_NODE_TYPE_GRAPH) || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = node->child;
    return CUDA_SUCCESS;
}
