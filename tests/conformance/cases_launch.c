/* SPDX-License-Identifier: MIT
 *
 * Launch attributes in graphs: programmatic dependent launch, whose edges carry data, clusters,
 * cooperative kernels. The first two need compute capability 9.0.
 */
#include "conformance.h"

enum { COUNT = 256 };

/* Launches a kernel of `blocks` blocks of 64 threads with one attribute. */
static void launch(struct rpt *t, const char *name, unsigned blocks, CUstream stream,
                   CUlaunchAttribute attribute, void **params)
{
    CUlaunchConfig config = {.gridDimX = blocks,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 64,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream,
                             .attrs = &attribute,
                             .numAttrs = 1};
    OK(cuLaunchKernelEx(&config, rpt_function(t, name), params, NULL));
}

/* The pair: the second may start before the first is done, and waits inside for its writes. */
static void launch_pair(struct rpt *t, CUstream stream, CUdeviceptr to, CUdeviceptr from,
                        float value)
{
    uint32_t count = COUNT;
    uint64_t nanoseconds = 200000;
    void *first[] = {&from, &value, &count, &nanoseconds};
    void *second[] = {&to, &from, &count};
    CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value = {.programmaticStreamSerializationAllowed = 1}};
    OK(cuLaunchKernel(rpt_function(t, "rpt_pdl_first"), 4, 1, 1, 64, 1, 1, 0, stream, first, NULL));
    launch(t, "rpt_pdl_second", 4, stream, early, second);
}

static CUgraph capture_pair(struct rpt *t, CUstream stream, CUdeviceptr to, CUdeviceptr from,
                            float value)
{
    rpt_function(t, "rpt_pdl_first"); /* skips before the capture begins */
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    launch_pair(t, stream, to, from, value);
    return rpt_end(t, stream);
}

void case_programmatic_launch(struct rpt *t)
{
    CUdeviceptr to = rpt_memory(t, 4 * COUNT), from = rpt_memory(t, 4 * COUNT);
    CUstream stream = rpt_stream(t);
    launch_pair(t, stream, to, from, 1.5f);
    for (unsigned i = 0; i < COUNT; i += 85)
        REQUIRE(rpt_float(t, to + 4 * i) == 3.0f);
}

static CUgraphEdgeData only_edge(struct rpt *t, CUgraph graph)
{
    CUgraphNode from, to;
    CUgraphEdgeData edge;
    size_t count = 1;
    EQUAL(rpt_node_count(t, graph), 2);
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
    EQUAL(count, 1);
    OK(cuGraphGetEdges(graph, &from, &to, &edge, &count));
    return edge;
}

void case_programmatic_edge_captured(struct rpt *t)
{
    CUdeviceptr to = rpt_memory(t, 4 * COUNT), from = rpt_memory(t, 4 * COUNT);
    CUgraph graph = capture_pair(t, rpt_stream(t), to, from, 2.0f);
    CUgraphEdgeData edge = only_edge(t, graph);
    EQUAL(edge.type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
    EQUAL(edge.from_port, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
    EQUAL(edge.to_port, 0);
}

/* Asking for edges without their data would lose it: 402. */
void case_programmatic_edge_lossy_query(struct rpt *t)
{
    CUdeviceptr to = rpt_memory(t, 4 * COUNT), from = rpt_memory(t, 4 * COUNT);
    CUgraph graph = capture_pair(t, rpt_stream(t), to, from, 2.0f);
    CUgraphNode a, b, second;
    CUgraphEdgeData edge;
    size_t count = 1;
    EXPECT(CUDA_ERROR_LOSSY_QUERY, cuGraphGetEdges(graph, &a, &b, NULL, &count));
    OK(cuGraphGetEdges(graph, &a, &second, &edge, &count));
    count = 1;
    EXPECT(CUDA_ERROR_LOSSY_QUERY, cuGraphNodeGetDependencies(second, &b, NULL, &count));
    count = 1;
    EXPECT(CUDA_ERROR_LOSSY_QUERY, cuGraphNodeGetDependentNodes(a, &b, NULL, &count));
    count = 1;
    OK(cuGraphNodeGetDependencies(second, &b, &edge, &count));
    REQUIRE(b == a);
    EQUAL(edge.type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
}

void case_programmatic_graph_replays(struct rpt *t)
{
    CUdeviceptr to = rpt_memory(t, 4 * COUNT), from = rpt_memory(t, 4 * COUNT);
    CUstream stream = rpt_stream(t);
    CUgraphExec exec = rpt_instantiate(t, capture_pair(t, stream, to, from, 2.0f));
    for (int i = 0; i < 10; i++) {
        OK(cuMemsetD32Async(from, 0, COUNT, stream));
        OK(cuMemsetD32Async(to, 0, COUNT, stream));
        OK(cuGraphLaunch(exec, stream));
        REQUIRE(rpt_float(t, to) == 4.0f && rpt_float(t, to + 4 * (COUNT - 1)) == 4.0f);
    }
}

void case_programmatic_graph_updated(struct rpt *t)
{
    CUdeviceptr a = rpt_memory(t, 4 * COUNT), b = rpt_memory(t, 4 * COUNT);
    CUdeviceptr c = rpt_memory(t, 4 * COUNT);
    CUstream stream = rpt_stream(t);
    CUgraphExecUpdateResultInfo info;
    CUgraphExec exec = rpt_instantiate(t, capture_pair(t, stream, a, b, 2.0f));
    CUgraph other = capture_pair(t, stream, c, b, 5.0f);
    OK(cuGraphExecUpdate(exec, other, &info));
    EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    rpt_run(t, exec, stream);
    REQUIRE(rpt_float(t, c + 4) == 10.0f && rpt_float(t, a + 4) == 0.0f);
}

void case_programmatic_edge_cloned(struct rpt *t)
{
    CUdeviceptr to = rpt_memory(t, 4 * COUNT), from = rpt_memory(t, 4 * COUNT);
    CUgraph graph = capture_pair(t, rpt_stream(t), to, from, 2.0f), clone = NULL;
    OK(cuGraphClone(&clone, graph));
    rpt_track(t, TRACKED_GRAPH, HANDLE_OF(clone), 0);
    EQUAL(only_edge(t, clone).type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
}

/* The edge taken out and put back by hand, one call for each distinct edge data. */
void case_programmatic_edge_by_hand(struct rpt *t)
{
    CUdeviceptr to = rpt_memory(t, 4 * COUNT), from = rpt_memory(t, 4 * COUNT);
    CUstream stream = rpt_stream(t);
    CUgraph graph = capture_pair(t, stream, to, from, 2.0f);
    CUgraphNode a, b;
    CUgraphEdgeData edge, none = {0};
    size_t count = 1;
    OK(cuGraphGetEdges(graph, &a, &b, &edge, &count));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies(graph, &a, &b, &none, 1));
    OK(cuGraphRemoveDependencies(graph, &a, &b, &none, 1)); /* whatever data the edge has */
    EQUAL(rpt_edge_count(t, graph), 0);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphRemoveDependencies(graph, &a, &b, &edge, 1));
    OK(cuGraphAddDependencies(graph, &a, &b, &edge, 1));
    EQUAL(only_edge(t, graph).type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
    rpt_run(t, rpt_instantiate(t, graph), stream);
    REQUIRE(rpt_float(t, to) == 4.0f);
}

/* Behind a full dependency, nothing starts early: a plain launch between the pair. */
void case_programmatic_edge_only_between_kernels(struct rpt *t)
{
    CUdeviceptr to = rpt_memory(t, 4 * COUNT), from = rpt_memory(t, 4 * COUNT);
    CUstream stream = rpt_stream(t);
    uint32_t count = COUNT;
    void *second[] = {&to, &from, &count};
    CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value = {.programmaticStreamSerializationAllowed = 1}};
    rpt_function(t, "rpt_pdl_second");
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    OK(cuMemsetD32Async(from, 0x40000000, COUNT, stream)); /* 2.0f */
    launch(t, "rpt_pdl_second", 4, stream, early, second);
    CUgraph graph = rpt_end(t, stream);
    EQUAL(only_edge(t, graph).type, CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
    rpt_run(t, rpt_instantiate(t, graph), stream);
    REQUIRE(rpt_float(t, to) == 4.0f);
}

static CUlaunchAttribute cluster_of(unsigned x)
{
    return (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                               .value = {.clusterDim = {x, 1, 1}}};
}

void case_cluster_launch(struct rpt *t)
{
    CUdeviceptr to = rpt_memory(t, 12);
    void *params[] = {&to};
    launch(t, "rpt_cluster", 8, rpt_stream(t), cluster_of(4), params);
    EQUAL(rpt_word(t, to), 4);
    EQUAL(rpt_word(t, to + 4), 1);
    launch(t, "rpt_cluster", 8, rpt_stream(t), cluster_of(1), params);
    EQUAL(rpt_word(t, to), 1);
}

void case_cluster_that_does_not_divide_the_grid(struct rpt *t)
{
    CUdeviceptr to = rpt_memory(t, 12);
    void *params[] = {&to};
    CUlaunchAttribute attribute = cluster_of(2);
    CUlaunchConfig config = {.gridDimX = 3,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = rpt_stream(t),
                             .attrs = &attribute,
                             .numAttrs = 1};
    CUfunction function = rpt_function(t, "rpt_cluster");
    REFUSED(cuLaunchKernelEx(&config, function, params, NULL));
    EQUAL(rpt_word(t, to), 0);
}

void case_cluster_captured(struct rpt *t)
{
    CUdeviceptr to = rpt_memory(t, 12);
    CUstream stream = rpt_stream(t);
    CUkernelNodeAttrValue value;
    void *params[] = {&to};
    rpt_function(t, "rpt_cluster");
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    launch(t, "rpt_cluster", 8, stream, cluster_of(2), params);
    CUgraph graph = rpt_end(t, stream);
    memset(&value, 0, sizeof value);
    OK(cuGraphKernelNodeGetAttribute(rpt_node(t, graph, 0), CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                     &value));
    REQUIRE(value.clusterDim.x == 2 && value.clusterDim.y == 1 && value.clusterDim.z == 1);
    rpt_run(t, rpt_instantiate(t, graph), stream);
    EQUAL(rpt_word(t, to), 2);
}

/* Setting a node's arguments keeps its attributes. */
void case_cluster_kept_when_arguments_are_set(struct rpt *t)
{
    CUdeviceptr to = rpt_memory(t, 24), other = to + 12;
    CUstream stream = rpt_stream(t);
    void *params[] = {&to}, *moved[] = {&other};
    rpt_function(t, "rpt_cluster");
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    launch(t, "rpt_cluster", 8, stream, cluster_of(2), params);
    CUgraph graph = rpt_end(t, stream);
    CUgraphExec exec = rpt_instantiate(t, graph);
    CUDA_KERNEL_NODE_PARAMS node = rpt_kernel_params(rpt_function(t, "rpt_cluster"), 8, 64, moved);
    OK(cuGraphExecKernelNodeSetParams(exec, rpt_node(t, graph, 0), &node));
    rpt_run(t, exec, stream);
    EQUAL(rpt_word(t, to), 0);
    EQUAL(rpt_word(t, other), 2);
}

void case_cooperative_captured(struct rpt *t)
{
    CUdeviceptr to = rpt_memory(t, 28);
    CUstream stream = rpt_stream(t);
    CUkernelNodeAttrValue value;
    void *params[] = {&to};
    CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                                     .value = {.cooperative = 1}};
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    launch(t, "rpt_shape", 2, stream, cooperative, params);
    CUgraph graph = rpt_end(t, stream);
    memset(&value, 0, sizeof value);
    OK(cuGraphKernelNodeGetAttribute(rpt_node(t, graph, 0), CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                                     &value));
    EQUAL(value.cooperative, 1);
    rpt_run(t, rpt_instantiate(t, graph), stream);
    EQUAL(rpt_word(t, to), 2);
}
