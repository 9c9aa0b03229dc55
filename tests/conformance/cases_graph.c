/* SPDX-License-Identifier: MIT
 *
 * Graphs as templates: nodes, edges, their parameters, clones and child graphs.
 */
#include "conformance.h"

#include "kernels/kernels.h"

static CUgraphNode empty_node(struct rpt *t, CUgraph graph, CUgraphNode after)
{
    CUgraphNode node;
    OK(cuGraphAddEmptyNode(&node, graph, &after, after != NULL));
    return node;
}

void case_graph_create_refuses_flags(struct rpt *t)
{
    CUgraph graph;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphCreate(&graph, 1));
}

void case_graph_get_nodes(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUgraphNode nodes[5] = {NULL}, made[3];
    size_t count = 99;
    OK(cuGraphGetNodes(graph, NULL, &count));
    EQUAL(count, 0);
    for (int i = 0; i < 3; i++)
        made[i] = empty_node(t, graph, NULL);
    count = 2;
    OK(cuGraphGetNodes(graph, nodes, &count));
    EQUAL(count, 2);
    REQUIRE(nodes[2] == NULL);
    count = 5;
    nodes[3] = nodes[4] = made[0];
    OK(cuGraphGetNodes(graph, nodes, &count));
    EQUAL(count, 3);
    REQUIRE(nodes[3] == NULL && nodes[4] == NULL);
    for (int i = 0; i < 3; i++)
        REQUIRE(made[i] == nodes[0] || made[i] == nodes[1] || made[i] == nodes[2]);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(graph, nodes, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphGetNodes(NULL, nodes, &count));
}

/* a -> b -> d, a -> c -> d */
static void diamond(struct rpt *t, CUgraph graph, CUgraphNode nodes[4])
{
    nodes[0] = empty_node(t, graph, NULL);
    nodes[1] = empty_node(t, graph, nodes[0]);
    nodes[2] = empty_node(t, graph, nodes[0]);
    OK(cuGraphAddEmptyNode(&nodes[3], graph, &nodes[1], 2));
}

void case_graph_roots(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUgraphNode nodes[4], roots[4], lone;
    size_t count = 4;
    diamond(t, graph, nodes);
    OK(cuGraphGetRootNodes(graph, roots, &count));
    EQUAL(count, 1);
    REQUIRE(roots[0] == nodes[0] && roots[1] == NULL);
    lone = empty_node(t, graph, NULL);
    OK(cuGraphGetRootNodes(graph, NULL, &count));
    EQUAL(count, 2);
    OK(cuGraphDestroyNode(lone));
    OK(cuGraphGetRootNodes(graph, NULL, &count));
    EQUAL(count, 1);
}

void case_graph_get_edges(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUgraphNode nodes[4], from[6], to[6];
    CUgraphEdgeData edges[6], none = {0};
    size_t count = 6;
    diamond(t, graph, nodes);
    from[5] = to[5] = nodes[0];
    OK(cuGraphGetEdges(graph, from, to, edges, &count));
    EQUAL(count, 4);
    REQUIRE(from[5] == NULL && to[5] == NULL);
    for (size_t i = 0; i < count; i++)
        REQUIRE(!memcmp(&edges[i], &none, sizeof none));
    REQUIRE(rpt_has_edge(t, graph, nodes[0], nodes[1]));
    REQUIRE(rpt_has_edge(t, graph, nodes[0], nodes[2]));
    REQUIRE(rpt_has_edge(t, graph, nodes[1], nodes[3]));
    REQUIRE(rpt_has_edge(t, graph, nodes[2], nodes[3]));
    count = 1;
    OK(cuGraphGetEdges(graph, from, to, NULL, &count));
    EQUAL(count, 1);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphGetEdges(graph, from, NULL, NULL, &count));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphGetEdges(graph, NULL, to, NULL, &count));
}

void case_graph_node_neighbours(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUgraphNode nodes[4], seen[4];
    size_t count = 4;
    diamond(t, graph, nodes);
    OK(cuGraphNodeGetDependencies(nodes[3], seen, NULL, &count));
    EQUAL(count, 2);
    REQUIRE((seen[0] == nodes[1] && seen[1] == nodes[2]) ||
            (seen[0] == nodes[2] && seen[1] == nodes[1]));
    REQUIRE(seen[2] == NULL);
    OK(cuGraphNodeGetDependentNodes(nodes[0], NULL, NULL, &count));
    EQUAL(count, 2);
    OK(cuGraphNodeGetDependencies(nodes[0], NULL, NULL, &count));
    EQUAL(count, 0);
    OK(cuGraphNodeGetDependentNodes(nodes[3], NULL, NULL, &count));
    EQUAL(count, 0);
}

void case_graph_dependencies_added_and_removed(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUgraphNode a = empty_node(t, graph, NULL), b = empty_node(t, graph, NULL);
    OK(cuGraphAddDependencies(graph, &a, &b, NULL, 1));
    REQUIRE(rpt_has_edge(t, graph, a, b));
    OK(cuGraphRemoveDependencies(graph, &a, &b, NULL, 1));
    EQUAL(rpt_edge_count(t, graph), 0);
    OK(cuGraphAddDependencies(graph, NULL, NULL, NULL, 0));
}

void case_graph_dependencies_refusals(struct rpt *t)
{
    CUgraph graph = rpt_graph(t), other = rpt_graph(t);
    CUgraphNode a = empty_node(t, graph, NULL), b = empty_node(t, graph, a);
    CUgraphNode stranger = empty_node(t, other, NULL);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &a, &b, NULL, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &a, &a, NULL, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &a, &stranger, NULL, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &stranger, &a, NULL, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, NULL, &b, NULL, 1));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, &b, &a, NULL, 1));
    EQUAL(rpt_edge_count(t, graph), 1);
}

void case_graph_cycle_is_never_executable(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUgraphNode a = empty_node(t, graph, NULL), b = empty_node(t, graph, a);
    CUgraphExec exec;
    if (t->d->cuGraphAddDependencies(graph, &b, &a, NULL, 1) == CUDA_SUCCESS)
        EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&exec, graph, 0));
}

void case_graph_destroy_node_severs_its_edges(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUgraphNode nodes[4];
    diamond(t, graph, nodes);
    OK(cuGraphDestroyNode(nodes[1]));
    EQUAL(rpt_node_count(t, graph), 3);
    EQUAL(rpt_edge_count(t, graph), 2);
    REQUIRE(rpt_has_edge(t, graph, nodes[2], nodes[3]));
}

void case_graph_node_types(struct rpt *t)
{
    CUgraph graph = rpt_graph(t), child = rpt_graph(t);
    CUdeviceptr word = rpt_memory(t, 64);
    CUgraphNode node;
    CUgraphNodeType type;
    CUDA_MEMCPY3D copy = rpt_copy_params(word, NULL, word + 32, NULL, 4);
    CUDA_MEMSET_NODE_PARAMS fill = rpt_memset_params(word, 1, 4, 1, 1, 0);
    OK(cuGraphNodeGetType(rpt_mix_node(t, graph, NULL, word, 1), &type));
    EQUAL(type, CU_GRAPH_NODE_TYPE_KERNEL);
    OK(cuGraphNodeGetType(empty_node(t, graph, NULL), &type));
    EQUAL(type, CU_GRAPH_NODE_TYPE_EMPTY);
    OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, t->context));
    OK(cuGraphNodeGetType(node, &type));
    EQUAL(type, CU_GRAPH_NODE_TYPE_MEMCPY);
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, t->context));
    OK(cuGraphNodeGetType(node, &type));
    EQUAL(type, CU_GRAPH_NODE_TYPE_MEMSET);
    OK(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    OK(cuGraphNodeGetType(node, &type));
    EQUAL(type, CU_GRAPH_NODE_TYPE_GRAPH);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetType(node, NULL));
}

/* ---- Parameters ---------------------------------------------------------------------------- */

/* Value i of a node's parameters, in whichever form the driver gives them. */
static void read_param(struct rpt *t, const CUDA_KERNEL_NODE_PARAMS *params, size_t index,
                       void *out_value, size_t bytes)
{
    size_t offset = 0, size = 0;
    OK(cuFuncGetParamInfo(params->func, index, &offset, &size));
    REQUIRE(size == bytes);
    if (params->kernelParams) {
        memcpy(out_value, params->kernelParams[index], bytes);
        return;
    }
    REQUIRE(params->extra != NULL);
    for (void **word = params->extra; word && *word != CU_LAUNCH_PARAM_END; word += 2)
        if (*word == CU_LAUNCH_PARAM_BUFFER_POINTER)
            memcpy(out_value, (const char *)word[1] + offset, bytes);
}

static void need_param_info(struct rpt *t)
{
    if (!t->d->cuFuncGetParamInfo)
        rpt_skip(t, "the driver lacks cuFuncGetParamInfo");
}

void case_graph_kernel_params(struct rpt *t)
{
    need_param_info(t);
    CUgraph graph = rpt_graph(t);
    CUdeviceptr to = rpt_memory(t, 64), seen = 0;
    CUgraphNode node = rpt_fill_node(t, graph, NULL, to, 1.5f, 16);
    CUDA_KERNEL_NODE_PARAMS params;
    float value = 0;
    uint32_t count = 0;
    OK(cuGraphKernelNodeGetParams(node, &params));
    REQUIRE(params.func == rpt_function(t, "rpt_fill"));
    REQUIRE(params.gridDimX == 1 && params.blockDimX == 64 && params.sharedMemBytes == 0);
    REQUIRE(params.kernelParams != NULL);
    read_param(t, &params, 0, &seen, 8);
    read_param(t, &params, 1, &value, 4);
    read_param(t, &params, 2, &count, 4);
    REQUIRE(seen == to && value == 1.5f && count == 16);
}

/* A node that was made with a packed buffer gives its parameters as one. */
void case_graph_kernel_params_packed(struct rpt *t)
{
    need_param_info(t);
    CUgraph graph = rpt_graph(t);
    CUdeviceptr to = rpt_memory(t, 64), seen = 0;
    struct {
        CUdeviceptr to;
        float value;
        uint32_t count;
    } packed = {to, 2.5f, 16};
    size_t bytes = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(rpt_function(t, "rpt_fill"), 1, 64, NULL);
    CUgraphNode node;
    float value = 0;
    params.extra = extra;
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    memset(&packed, 0, sizeof packed);
    OK(cuGraphKernelNodeGetParams(node, &params));
    REQUIRE(params.extra != NULL && params.kernelParams == NULL);
    read_param(t, &params, 0, &seen, 8);
    read_param(t, &params, 1, &value, 4);
    REQUIRE(seen == to && value == 2.5f);
    rpt_run(t, rpt_instantiate(t, graph), rpt_stream(t));
    REQUIRE(rpt_float(t, to + 60) == 2.5f);
}

/* The same through capture: the launch's form is the node's. */
void case_graph_kernel_params_packed_captured(struct rpt *t)
{
    need_param_info(t);
    CUstream stream = rpt_stream(t);
    CUdeviceptr to = rpt_memory(t, 4), seen = 0;
    struct {
        CUdeviceptr to;
        uint32_t value;
    } packed = {to, 9};
    size_t bytes = 12; /* to the end of the last parameter, and no further */
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    CUDA_KERNEL_NODE_PARAMS params;
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    OK(cuLaunchKernel(rpt_function(t, "rpt_mix"), 1, 1, 1, 1, 1, 1, 0, stream, NULL, extra));
    CUgraph graph = rpt_end(t, stream);
    OK(cuGraphKernelNodeGetParams(rpt_node(t, graph, 0), &params));
    REQUIRE(params.extra != NULL && params.kernelParams == NULL);
    read_param(t, &params, 0, &seen, 8);
    EQUAL(seen, to);
}

/* More than the kernel takes is refused, in a capture with another code, which does not end it. */
void case_graph_kernel_params_packed_overlong(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    struct {
        CUdeviceptr to;
        uint32_t value, more;
    } packed = {rpt_memory(t, 4), 9, 0};
    size_t bytes = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    CUfunction mix = rpt_function(t, "rpt_mix");
    EXPECT(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
           cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, stream, NULL, extra));
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, stream, NULL, extra));
    EQUAL(rpt_node_count(t, rpt_end(t, stream)), 0);
}

void case_graph_kernel_params_structure(struct rpt *t)
{
    need_param_info(t);
    CUgraph graph = rpt_graph(t);
    CUdeviceptr to = rpt_memory(t, 64);
    struct rpt_padded_param in = {.tag = 7, .to = (uint32_t *)(uintptr_t)to, .index = 3}, out = {0};
    void *args[] = {&in};
    CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(rpt_function(t, "rpt_padded"), 1, 1, args);
    CUgraphNode node;
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    OK(cuGraphKernelNodeGetParams(node, &params));
    read_param(t, &params, 0, &out, sizeof out);
    REQUIRE(out.tag == in.tag && out.to == in.to && out.index == in.index);
}

/* Changing the template changes what is instantiated later, not what was before. */
void case_graph_kernel_set_params(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUstream stream = rpt_stream(t);
    CUdeviceptr words = rpt_memory(t, 8), to = words + 4;
    uint32_t value = 8;
    void *args[] = {&to, &value};
    CUgraphNode node = rpt_mix_node(t, graph, NULL, words, 7);
    CUgraphExec before = rpt_instantiate(t, graph);
    CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(rpt_function(t, "rpt_mix"), 1, 1, args);
    OK(cuGraphKernelNodeSetParams(node, &params));
    rpt_run(t, before, stream);
    EQUAL(rpt_word(t, words), 7);
    EQUAL(rpt_word(t, words + 4), 0);
    rpt_run(t, rpt_instantiate(t, graph), stream);
    EQUAL(rpt_word(t, words + 4), 8);
}

void case_graph_kernel_node_refusals(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUdeviceptr to = rpt_memory(t, 4);
    uint32_t value = 1;
    void *args[] = {&to, &value};
    CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(rpt_function(t, "rpt_mix"), 1, 1, args);
    CUgraphNode node;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddKernelNode(&node, graph, NULL, 0, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddKernelNode(&node, graph, NULL, 1, &params));
    params.kernelParams = NULL;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    EQUAL(rpt_node_count(t, graph), 0);
}

void case_graph_memcpy_params(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUdeviceptr a = rpt_memory(t, 64), b = rpt_memory(t, 64);
    CUDA_MEMCPY3D copy = rpt_copy_params(a, NULL, b, NULL, 16), seen;
    CUgraphNode node;
    OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, t->context));
    memset(&seen, 0xff, sizeof seen);
    OK(cuGraphMemcpyNodeGetParams(node, &seen));
    REQUIRE(seen.dstDevice == a && seen.srcDevice == b);
    REQUIRE(seen.dstMemoryType == CU_MEMORYTYPE_DEVICE &&
            seen.srcMemoryType == CU_MEMORYTYPE_DEVICE);
    REQUIRE(seen.WidthInBytes == 16 && seen.Height == 1 && seen.Depth == 1);
    REQUIRE(seen.srcXInBytes == 0 && seen.dstXInBytes == 0);
    copy.dstDevice = a + 32;
    OK(cuGraphMemcpyNodeSetParams(node, &copy));
    OK(cuGraphMemcpyNodeGetParams(node, &seen));
    EQUAL(seen.dstDevice, a + 32);
}

/* What a captured copy looks like: addresses, one row. */
void case_graph_memcpy_params_captured(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr a = rpt_memory(t, 64);
    uint32_t *host = rpt_pinned(t, 64);
    CUDA_MEMCPY3D seen;
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    OK(cuMemcpyHtoDAsync(a + 4, host + 2, 8, stream));
    CUgraph graph = rpt_end(t, stream);
    OK(cuGraphMemcpyNodeGetParams(rpt_node(t, graph, 0), &seen));
    REQUIRE(seen.dstDevice + seen.dstXInBytes == a + 4);
    REQUIRE(seen.srcMemoryType == CU_MEMORYTYPE_HOST ||
            seen.srcMemoryType == CU_MEMORYTYPE_UNIFIED);
    REQUIRE((seen.srcMemoryType == CU_MEMORYTYPE_HOST ? HANDLE_OF(seen.srcHost) : seen.srcDevice) +
                seen.srcXInBytes ==
            HANDLE_OF(host + 2));
    EQUAL(seen.WidthInBytes, 8);
    REQUIRE(seen.Height == 1 && seen.Depth == 1);
}

void case_graph_memset_params(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUdeviceptr a = rpt_memory(t, 256);
    CUDA_MEMSET_NODE_PARAMS fill = rpt_memset_params(a, 0xabcd, 2, 8, 3, 64), seen;
    CUgraphNode node;
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, t->context));
    OK(cuGraphMemsetNodeGetParams(node, &seen));
    REQUIRE(seen.dst == a && seen.value == 0xabcd && seen.elementSize == 2);
    REQUIRE(seen.width == 8 && seen.height == 3 && seen.pitch == 64);
    rpt_run(t, rpt_instantiate(t, graph), rpt_stream(t));
    EQUAL(rpt_word(t, a + 2 * 64 + 12), 0xabcdabcd);
    EQUAL(rpt_word(t, a + 16), 0);
    fill.value = 0x1234;
    OK(cuGraphMemsetNodeSetParams(node, &fill));
    OK(cuGraphMemsetNodeGetParams(node, &seen));
    EQUAL(seen.value, 0x1234);
    fill.elementSize = 3;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphMemsetNodeSetParams(node, &fill));
}

void case_graph_memset_params_captured(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr a = rpt_memory(t, 64);
    CUDA_MEMSET_NODE_PARAMS seen;
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    OK(cuMemsetD32Async(a + 8, 0x01020304, 5, stream));
    CUgraph graph = rpt_end(t, stream);
    OK(cuGraphMemsetNodeGetParams(rpt_node(t, graph, 0), &seen));
    REQUIRE(seen.dst == a + 8 && seen.value == 0x01020304);
    REQUIRE(seen.elementSize == 4 && seen.width == 5 && seen.height == 1);
}

static void count_call(void *data)
{
    ++*(int *)data;
}

static void count_ten(void *data)
{
    *(int *)data += 10;
}

void case_graph_host_params(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUstream stream = rpt_stream(t);
    int calls = 0;
    CUDA_HOST_NODE_PARAMS params = {count_call, &calls}, seen;
    CUgraphNode node;
    OK(cuGraphAddHostNode(&node, graph, NULL, 0, &params));
    OK(cuGraphHostNodeGetParams(node, &seen));
    REQUIRE(seen.fn == count_call && seen.userData == &calls);
    rpt_run(t, rpt_instantiate(t, graph), stream);
    EQUAL(calls, 1);
    params.fn = count_ten;
    OK(cuGraphHostNodeSetParams(node, &params));
    rpt_run(t, rpt_instantiate(t, graph), stream);
    EQUAL(calls, 11);
}

/* Parameters of one type are not read from a node of another. */
void case_graph_params_of_the_wrong_type(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUgraphNode kernel = rpt_mix_node(t, graph, NULL, word, 1), empty = empty_node(t, graph, NULL);
    CUDA_KERNEL_NODE_PARAMS params;
    CUDA_MEMCPY3D copy;
    CUgraph child;
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphKernelNodeGetParams(empty, &params));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphMemcpyNodeGetParams(kernel, &copy));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphChildGraphNodeGetGraph(kernel, &child));
}

void case_graph_kernel_attributes(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUgraphNode node = rpt_mix_node(t, graph, NULL, word, 1);
    CUkernelNodeAttrValue value;
    memset(&value, 0xff, sizeof value);
    OK(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    EQUAL(value.cooperative, 0);
    memset(&value, 0, sizeof value);
    value.cooperative = 1;
    OK(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    memset(&value, 0, sizeof value);
    OK(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    EQUAL(value.cooperative, 1);
    rpt_run(t, rpt_instantiate(t, graph), rpt_stream(t));
    EQUAL(rpt_word(t, word), 1);
}

/* ---- Clones and children ------------------------------------------------------------------- */

void case_graph_clone_and_find(struct rpt *t)
{
    CUgraph graph = rpt_graph(t), clone = NULL;
    CUgraphNode nodes[4], found[4];
    diamond(t, graph, nodes);
    OK(cuGraphClone(&clone, graph));
    rpt_track(t, TRACKED_GRAPH, HANDLE_OF(clone), 0);
    for (int i = 0; i < 4; i++) {
        OK(cuGraphNodeFindInClone(&found[i], nodes[i], clone));
        REQUIRE(found[i] != nodes[i]);
    }
    REQUIRE(rpt_has_edge(t, clone, found[0], found[1]));
    REQUIRE(rpt_has_edge(t, clone, found[2], found[3]));
    EQUAL(rpt_edge_count(t, clone), 4);
}

void case_graph_find_in_clone_refusals(struct rpt *t)
{
    CUgraph graph = rpt_graph(t), other = rpt_graph(t), clone = NULL;
    CUgraphNode node = empty_node(t, graph, NULL), gone = empty_node(t, graph, NULL), found;
    OK(cuGraphClone(&clone, graph));
    rpt_track(t, TRACKED_GRAPH, HANDLE_OF(clone), 0);
    CUgraphNode later = empty_node(t, graph, NULL), stranger = empty_node(t, other, NULL);
    OK(cuGraphNodeFindInClone(&found, gone, clone));
    OK(cuGraphDestroyNode(found));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphNodeFindInClone(&found, gone, clone));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphNodeFindInClone(&found, later, clone));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphNodeFindInClone(&found, stranger, clone));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphNodeFindInClone(&found, node, other));
}

void case_graph_clone_is_independent(struct rpt *t)
{
    CUgraph graph, clone = NULL;
    CUdeviceptr word = rpt_memory(t, 4);
    OK(cuGraphCreate(&graph, 0));
    rpt_track(t, TRACKED_GRAPH, HANDLE_OF(graph), 0);
    rpt_mix_node(t, graph, NULL, word, 5);
    OK(cuGraphClone(&clone, graph));
    rpt_track(t, TRACKED_GRAPH, HANDLE_OF(clone), 0);
    rpt_mix_node(t, graph, rpt_node(t, graph, 0), word, 6);
    EQUAL(rpt_node_count(t, clone), 1);
    rpt_forget(t, TRACKED_GRAPH, HANDLE_OF(graph));
    OK(cuGraphDestroy(graph));
    rpt_run(t, rpt_instantiate(t, clone), rpt_stream(t));
    EQUAL(rpt_word(t, word), 5);
}

/* A child graph is copied in: later changes of the one given do not count, those of the copy do. */
void case_graph_child(struct rpt *t)
{
    CUgraph graph = rpt_graph(t), child = rpt_graph(t), embedded = NULL;
    CUdeviceptr word = rpt_memory(t, 4);
    CUgraphNode first = rpt_mix_node(t, graph, NULL, word, 1), node;
    rpt_mix_node(t, child, NULL, word, 2);
    OK(cuGraphAddChildGraphNode(&node, graph, &first, 1, child));
    rpt_mix_node(t, graph, node, word, 4);
    rpt_mix_node(t, child, rpt_node(t, child, 0), word, 99);
    OK(cuGraphChildGraphNodeGetGraph(node, &embedded));
    REQUIRE(embedded != child);
    EQUAL(rpt_node_count(t, embedded), 1);
    rpt_mix_node(t, embedded, rpt_node(t, embedded, 0), word, 3);
    rpt_run(t, rpt_instantiate(t, graph), rpt_stream(t));
    EQUAL(rpt_word(t, word), MIXED(1, 2, 3, 4));
}

void case_graph_child_is_cloned_with_its_parent(struct rpt *t)
{
    CUgraph graph = rpt_graph(t), child = rpt_graph(t), clone = NULL, first = NULL, second = NULL;
    CUdeviceptr word = rpt_memory(t, 4);
    CUgraphNode node, found;
    rpt_mix_node(t, child, NULL, word, 2);
    OK(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    OK(cuGraphClone(&clone, graph));
    rpt_track(t, TRACKED_GRAPH, HANDLE_OF(clone), 0);
    OK(cuGraphNodeFindInClone(&found, node, clone));
    OK(cuGraphChildGraphNodeGetGraph(node, &first));
    OK(cuGraphChildGraphNodeGetGraph(found, &second));
    REQUIRE(first != second);
    EQUAL(rpt_node_count(t, second), 1);
}
