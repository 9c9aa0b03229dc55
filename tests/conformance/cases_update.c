/* SPDX-License-Identifier: MIT
 *
 * Changing executable graphs: whole-graph update with its refusals, and per-node parameters with
 * their limits.
 */
#include "conformance.h"

#include <assert.h>

static CUgraphExecUpdateResultInfo update(struct rpt *t, CUgraphExec exec, CUgraph graph,
                                          CUresult expected)
{
    CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    EXPECT(expected, cuGraphExecUpdate(exec, graph, &info));
    return info;
}

static void update_succeeds(struct rpt *t, CUgraphExec exec, CUgraph graph)
{
    CUgraphExecUpdateResultInfo info = update(t, exec, graph, CUDA_SUCCESS);
    EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
}

/* The update is refused for `reason`, at `node` where that is not NULL. */
static void update_refused(struct rpt *t, CUgraphExec exec, CUgraph graph,
                           CUgraphExecUpdateResult reason, CUgraphNode node)
{
    CUgraphExecUpdateResultInfo info = update(t, exec, graph, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EQUAL(info.result, reason);
    REQUIRE(!node || info.errorNode == node);
}

static CUgraph mix_graph(struct rpt *t, CUdeviceptr to, uint32_t value)
{
    CUgraph graph = rpt_graph(t);
    rpt_mix_node(t, graph, NULL, to, value);
    return graph;
}

void case_update_addresses_and_values(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 8);
    CUstream stream = rpt_stream(t);
    CUgraphExec exec = rpt_instantiate(t, mix_graph(t, words, 1));
    rpt_run(t, exec, stream);
    update_succeeds(t, exec, mix_graph(t, words + 4, 2));
    rpt_run(t, exec, stream);
    EQUAL(rpt_word(t, words), 1);
    EQUAL(rpt_word(t, words + 4), 2);
}

/* A launch that is in flight keeps the parameters that it was launched with. */
void case_update_does_not_touch_launches_in_flight(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 8);
    CUstream stream = rpt_stream(t);
    CUgraphExec exec = rpt_instantiate(t, mix_graph(t, words, 1));
    rpt_hold(t, stream);
    OK(cuGraphLaunch(exec, stream));
    update_succeeds(t, exec, mix_graph(t, words + 4, 2));
    OK(cuGraphLaunch(exec, stream));
    rpt_open(t);
    EQUAL(rpt_word(t, words), 1);
    EQUAL(rpt_word(t, words + 4), 2);
}

void case_update_function_and_grid(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 32);
    CUstream stream = rpt_stream(t);
    CUgraphExec exec = rpt_instantiate(t, mix_graph(t, words, 1));
    CUgraph other = rpt_graph(t);
    CUgraphNode node;
    void *args[] = {&words};
    CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(rpt_function(t, "rpt_shape"), 6, 32, args);
    OK(cuGraphAddKernelNode(&node, other, NULL, 0, &params));
    update_succeeds(t, exec, other);
    rpt_run(t, exec, stream);
    EQUAL(rpt_word(t, words), 6);
    EQUAL(rpt_word(t, words + 12), 32);
}

void case_update_from_a_clone(struct rpt *t)
{
    CUdeviceptr word = rpt_memory(t, 4);
    CUgraph graph = mix_graph(t, word, 3), clone = NULL;
    CUgraphExec exec = rpt_instantiate(t, graph);
    OK(cuGraphClone(&clone, graph));
    rpt_track(t, TRACKED_GRAPH, HANDLE_OF(clone), 0);
    update_succeeds(t, exec, clone);
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, word), 3);
}

/* What a program that captures the same work again relies on. */
void case_update_from_a_second_capture(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUdeviceptr words = rpt_memory(t, 32);
    CUgraphExec exec = NULL;
    for (unsigned i = 0; i < 2; i++) {
        CUdeviceptr base = words + 16 * i;
        rpt_begin(t, a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        rpt_mix(t, a, base, 1 + i);
        rpt_fork(t, a, b);
        rpt_mix(t, b, base + 4, 3 + i);
        OK(cuMemsetD32Async(base + 8, 5 + i, 1, a));
        rpt_fork(t, b, a);
        OK(cuMemcpyDtoDAsync(base + 12, base + 4, 4, a));
        CUgraph graph = rpt_end(t, a);
        if (i == 0)
            exec = rpt_instantiate(t, graph);
        else
            update_succeeds(t, exec, graph);
    }
    rpt_run(t, exec, b);
    EQUAL(rpt_word(t, words), 0);
    EQUAL(rpt_word(t, words + 16), 2);
    EQUAL(rpt_word(t, words + 24), 6);
    EQUAL(rpt_word(t, words + 28), 4);
}

enum { FORKED = 6 };

/* Two streams that part and meet: node i writes first + i to the word i. */
static CUgraph forked_graph(struct rpt *t, CUdeviceptr words, uint32_t first)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    rpt_begin(t, a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (uint32_t i = 0; i < FORKED; i++) {
        if (i == 1 || i == 3)
            rpt_fork(t, a, b);
        rpt_mix(t, i == 1 || i == 2 || i == 4 ? b : a, words + 4 * i, first + i);
    }
    rpt_fork(t, b, a);
    rpt_mix(t, a, words + 4 * FORKED, first + FORKED);
    return rpt_end(t, a);
}

/* The node of a graph that writes the word, by its place in cuGraphGetNodes. */
static CUdeviceptr word_of(struct rpt *t, CUgraph graph, size_t place)
{
    CUDA_KERNEL_NODE_PARAMS params = {0};
    OK(cuGraphKernelNodeGetParams(rpt_node(t, graph, place), &params));
    REQUIRE(params.kernelParams != NULL);
    assert(params.kernelParams);
    return *(CUdeviceptr *)params.kernelParams[0];
}

/* A graph that holds the graph in a child of a child, behind a node on each level. */
static CUgraph hold(struct rpt *t, CUgraph graph, CUdeviceptr word, unsigned depth)
{
    for (; depth; depth--) {
        CUgraph outer = rpt_graph(t);
        CUgraphNode node, first = rpt_mix_node(t, outer, NULL, word, 1);
        OK(cuGraphAddChildGraphNode(&node, outer, &first, 1, graph));
        graph = outer;
    }
    return graph;
}

/* The graph that lies in there. */
static CUgraph held(struct rpt *t, CUgraph graph, unsigned depth)
{
    for (; depth; depth--)
        OK(cuGraphChildGraphNodeGetGraph(rpt_node_of_type(t, graph, CU_GRAPH_NODE_TYPE_GRAPH),
                                         &graph));
    return graph;
}

static void pairs_by_place(struct rpt *t, unsigned depth)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr words = rpt_memory(t, 4 * 2 * (FORKED + 1)), spare = rpt_memory(t, 8);
    CUgraph first = hold(t, forked_graph(t, words, 1), spare + 4, depth);
    CUgraph second = hold(t, forked_graph(t, words + 4 * (FORKED + 1), 20), spare + 4, depth);
    CUgraph inner = held(t, first, depth), inner_second = held(t, second, depth);
    for (size_t i = 0; i <= FORKED; i++) {
        CUgraphExec exec = rpt_instantiate(t, first);
        CUdeviceptr word = word_of(t, inner_second, i);
        uint32_t value = 99;
        void *args[] = {&spare, &value};
        CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(rpt_function(t, "rpt_mix"), 1, 1, args);
        update_succeeds(t, exec, second);
        OK(cuGraphExecKernelNodeSetParams(exec, rpt_node(t, inner, i), &params));
        OK(cuMemsetD8(words, 0, 4 * 2 * (FORKED + 1)));
        OK(cuMemsetD8(spare, 0, 8));
        OK(cuCtxSynchronize());
        rpt_run(t, exec, stream);
        EQUAL(rpt_word(t, spare), MIXED(0, 99));
        for (size_t k = 0; k <= FORKED; k++) {
            CUdeviceptr at = words + 4 * (FORKED + 1 + k);
            EQUAL(rpt_word(t, words + 4 * k), 0);
            EQUAL(rpt_word(t, at), at == word ? 0 : MIXED(0, 20 + (uint32_t)k));
        }
    }
}

/* What execs that graphs share rely on: after an update to a second capture of the same work, node
 * i of the graph that was instantiated stands for node i of the second. */
void case_update_pairs_nodes_by_place_undocumented(struct rpt *t)
{
    pairs_by_place(t, 0);
}

/* And node i of a child graph for node i of the other's. */
void case_update_pairs_nodes_of_child_graphs_by_place_undocumented(struct rpt *t)
{
    pairs_by_place(t, 1);
    pairs_by_place(t, 2);
}

static void count(void *data)
{
    ++*(int *)data;
}

void case_update_host_node(struct rpt *t)
{
    int first = 0, second = 0;
    CUDA_HOST_NODE_PARAMS params = {count, &first};
    CUgraph a = rpt_graph(t), b = rpt_graph(t);
    CUgraphNode node;
    OK(cuGraphAddHostNode(&node, a, NULL, 0, &params));
    params.userData = &second;
    OK(cuGraphAddHostNode(&node, b, NULL, 0, &params));
    CUgraphExec exec = rpt_instantiate(t, a);
    update_succeeds(t, exec, b);
    rpt_run(t, exec, rpt_stream(t));
    REQUIRE(first == 0 && second == 1);
}

void case_update_child_graph(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 8);
    CUgraph graphs[2];
    CUgraphNode node;
    for (unsigned i = 0; i < 2; i++) {
        graphs[i] = rpt_graph(t);
        OK(cuGraphAddChildGraphNode(&node, graphs[i], NULL, 0, mix_graph(t, words + 4 * i, 5 + i)));
    }
    CUgraphExec exec = rpt_instantiate(t, graphs[0]);
    update_succeeds(t, exec, graphs[1]);
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, words), 0);
    EQUAL(rpt_word(t, words + 4), 6);
}

void case_update_memset_one_row(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 64);
    CUDA_MEMSET_NODE_PARAMS fill = rpt_memset_params(words, 1, 4, 4, 1, 0);
    CUgraph a = rpt_graph(t), b = rpt_graph(t);
    CUgraphNode node;
    OK(cuGraphAddMemsetNode(&node, a, NULL, 0, &fill, t->context));
    fill.dst = words + 32;
    fill.value = 2;
    OK(cuGraphAddMemsetNode(&node, b, NULL, 0, &fill, t->context));
    CUgraphExec exec = rpt_instantiate(t, a);
    update_succeeds(t, exec, b);
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, words), 0);
    EQUAL(rpt_word(t, words + 44), 2);
}

/* ---- Refusals of the whole-graph update ---------------------------------------------------- */

void case_update_refused_node_count(struct rpt *t)
{
    CUdeviceptr word = rpt_memory(t, 4);
    CUgraph graph = mix_graph(t, word, 1);
    CUgraphExec exec = rpt_instantiate(t, graph);
    rpt_mix_node(t, graph, rpt_node(t, graph, 0), word, 2);
    CUgraphExecUpdateResultInfo info = update(t, exec, graph, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EQUAL(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    REQUIRE(info.errorNode == NULL);
}

void case_update_refused_dependency_count(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 12);
    CUgraph graphs[2];
    CUgraphNode nodes[3], first = NULL;
    for (int i = 0; i < 2; i++) {
        graphs[i] = rpt_graph(t);
        nodes[0] = rpt_mix_node(t, graphs[i], NULL, words, 1);
        nodes[1] = rpt_mix_node(t, graphs[i], i ? NULL : nodes[0], words + 4, 2);
        nodes[2] = rpt_mix_node(t, graphs[i], nodes[1], words + 8, 3);
        first = nodes[1];
    }
    REQUIRE(first != NULL);
    update_refused(t, rpt_instantiate(t, graphs[0]), graphs[1],
                   CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL);
}

void case_update_refused_other_dependency(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 16);
    CUgraph graphs[2];
    for (int i = 0; i < 2; i++) {
        CUgraphNode nodes[4];
        graphs[i] = rpt_graph(t);
        nodes[0] = rpt_mix_node(t, graphs[i], NULL, words, 1);
        nodes[1] = rpt_mix_node(t, graphs[i], nodes[0], words + 4, 2);
        nodes[2] = rpt_mix_node(t, graphs[i], nodes[1], words + 8, 3);
        nodes[3] = rpt_mix_node(t, graphs[i], i ? nodes[0] : nodes[2], words + 12, 4);
    }
    update_refused(t, rpt_instantiate(t, graphs[0]), graphs[1],
                   CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL);
}

void case_update_refused_node_type(struct rpt *t)
{
    CUdeviceptr word = rpt_memory(t, 4);
    CUDA_MEMSET_NODE_PARAMS fill = rpt_memset_params(word, 1, 4, 1, 1, 0);
    CUgraph other = rpt_graph(t);
    CUgraphNode node;
    OK(cuGraphAddMemsetNode(&node, other, NULL, 0, &fill, t->context));
    update_refused(t, rpt_instantiate(t, mix_graph(t, word, 1)), other,
                   CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, node);
}

static CUgraph copy_graph(struct rpt *t, CUDA_MEMCPY3D copy, CUgraphNode *out_node)
{
    CUgraph graph = rpt_graph(t);
    OK(cuGraphAddMemcpyNode(out_node, graph, NULL, 0, &copy, t->context));
    return graph;
}

void case_update_refused_memcpy_direction(struct rpt *t)
{
    CUdeviceptr word = rpt_memory(t, 4);
    uint32_t *host = rpt_pinned(t, 4);
    CUgraphNode node;
    CUgraph in = copy_graph(t, rpt_copy_params(word, NULL, 0, host, 4), &node);
    CUgraph out = copy_graph(t, rpt_copy_params(0, host, word, NULL, 4), &node);
    update_refused(t, rpt_instantiate(t, in), out, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED,
                   node);
}

void case_update_refused_memset_two_dimensions(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 256);
    CUDA_MEMSET_NODE_PARAMS fill = rpt_memset_params(words, 1, 4, 2, 3, 64);
    CUgraph a = rpt_graph(t), b = rpt_graph(t);
    CUgraphNode node;
    OK(cuGraphAddMemsetNode(&node, a, NULL, 0, &fill, t->context));
    fill.width = 3;
    OK(cuGraphAddMemsetNode(&node, b, NULL, 0, &fill, t->context));
    update_refused(t, rpt_instantiate(t, a), b, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED,
                   node);
}

/* That a kernel may not become cooperative is documented, which reason is given is not. */
void case_update_refused_cooperative_undocumented(struct rpt *t)
{
    CUdeviceptr word = rpt_memory(t, 4);
    CUgraph graph = mix_graph(t, word, 1), other = mix_graph(t, word, 1);
    CUkernelNodeAttrValue value = {.cooperative = 1};
    CUgraphNode node = rpt_node(t, other, 0);
    OK(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
    update_refused(t, rpt_instantiate(t, graph), other,
                   CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED, node);
}

/* ---- Kernel nodes one by one --------------------------------------------------------------- */

void case_set_kernel_arguments(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 8), to = words + 4;
    uint32_t value = 9;
    CUstream stream = rpt_stream(t);
    void *args[] = {&to, &value};
    CUgraph graph = mix_graph(t, words, 1);
    CUgraphExec exec = rpt_instantiate(t, graph);
    CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(rpt_function(t, "rpt_mix"), 1, 1, args);
    rpt_hold(t, stream);
    OK(cuGraphLaunch(exec, stream));
    OK(cuGraphExecKernelNodeSetParams(exec, rpt_node(t, graph, 0), &params));
    value = 10; /* copied by the call */
    OK(cuGraphLaunch(exec, stream));
    rpt_open(t);
    EQUAL(rpt_word(t, words), 1);
    EQUAL(rpt_word(t, words + 4), 9);
    rpt_run(t, rpt_instantiate(t, graph), stream); /* the template is as it was */
    EQUAL(rpt_word(t, words), MIXED(1, 1));
}

void case_set_kernel_arguments_packed(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 8);
    struct {
        CUdeviceptr to;
        uint32_t value;
    } packed = {words + 4, 9};
    size_t bytes = 12; /* to the end of the last parameter, and no further */
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    CUgraph graph = mix_graph(t, words, 1);
    CUgraphExec exec = rpt_instantiate(t, graph);
    CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(rpt_function(t, "rpt_mix"), 1, 1, NULL);
    params.extra = extra;
    OK(cuGraphExecKernelNodeSetParams(exec, rpt_node(t, graph, 0), &params));
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, words), 0);
    EQUAL(rpt_word(t, words + 4), 9);
}

/* What the node itself gives, changed in one word and put into the exec: how sites are patched. */
void case_set_kernel_arguments_read_from_the_node(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 8), to = words + 4;
    CUgraph graph = mix_graph(t, words, 7);
    CUgraphExec exec = rpt_instantiate(t, graph);
    CUDA_KERNEL_NODE_PARAMS params;
    void *args[2];
    OK(cuGraphKernelNodeGetParams(rpt_node(t, graph, 0), &params));
    REQUIRE(params.kernelParams != NULL);
    assert(params.kernelParams);
    args[0] = &to;
    args[1] = params.kernelParams[1];
    params.kernelParams = args;
    OK(cuGraphExecKernelNodeSetParams(exec, rpt_node(t, graph, 0), &params));
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, words + 4), 7);
}

void case_set_kernel_function_and_grid(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 32);
    void *args[] = {&words};
    CUgraph graph = mix_graph(t, words, 1);
    CUgraphExec exec = rpt_instantiate(t, graph);
    CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(rpt_function(t, "rpt_shape"), 5, 96, args);
    OK(cuGraphExecKernelNodeSetParams(exec, rpt_node(t, graph, 0), &params));
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, words), 5);
    EQUAL(rpt_word(t, words + 12), 96);
}

void case_set_kernel_refusals(struct rpt *t)
{
    CUdeviceptr word = rpt_memory(t, 4);
    uint32_t value = 9;
    void *args[] = {&word, &value};
    CUgraph graph = rpt_graph(t), other = mix_graph(t, word, 1), clone = NULL;
    CUgraphNode empty, found, kernel = rpt_mix_node(t, graph, NULL, word, 1);
    OK(cuGraphAddEmptyNode(&empty, graph, NULL, 0));
    CUgraphExec exec = rpt_instantiate(t, graph);
    CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(rpt_function(t, "rpt_mix"), 1, 1, args);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams(exec, empty, &params));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams(exec, kernel, NULL));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuGraphExecKernelNodeSetParams(exec, rpt_node(t, other, 0), &params));
    OK(cuGraphClone(&clone, graph));
    rpt_track(t, TRACKED_GRAPH, HANDLE_OF(clone), 0);
    OK(cuGraphNodeFindInClone(&found, kernel, clone));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams(exec, found, &params));
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, word), 1);
}

/* After an update from another graph, nodes are still named by the graph instantiated from. */
void case_set_kernel_after_update_wants_the_first_graph(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 12), to = words + 8;
    uint32_t value = 3;
    void *args[] = {&to, &value};
    CUgraph first = mix_graph(t, words, 1), second = mix_graph(t, words + 4, 2);
    CUgraphExec exec = rpt_instantiate(t, first);
    CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(rpt_function(t, "rpt_mix"), 1, 1, args);
    update_succeeds(t, exec, second);
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuGraphExecKernelNodeSetParams(exec, rpt_node(t, second, 0), &params));
    OK(cuGraphExecKernelNodeSetParams(exec, rpt_node(t, first, 0), &params));
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, words + 4), 0);
    EQUAL(rpt_word(t, words + 8), 3);
}

/* ---- Nodes of child graphs, named by the copies that the template embeds ------------------- */

/* Kernel, copy and fill in a child, each told apart by its type: the kernel mixes value into word
 * 0, the copy brings word 1 to word 2, the fill writes value to word 3. */
static CUgraph work_graph(struct rpt *t, CUdeviceptr words, uint32_t value)
{
    CUgraph graph = mix_graph(t, words, value);
    CUDA_MEMCPY3D copy = rpt_copy_params(words + 8, NULL, words + 4, NULL, 4);
    CUDA_MEMSET_NODE_PARAMS fill = rpt_memset_params(words + 12, value, 4, 1, 1, 0);
    CUgraphNode node;
    OK(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, t->context));
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, t->context));
    return graph;
}

/* Points all three at other words, of which the exec's next launch makes what was said above. */
static void set_work(struct rpt *t, CUgraphExec exec, CUgraph graph, CUdeviceptr words,
                     uint32_t value)
{
    void *args[] = {&words, &value};
    CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(rpt_function(t, "rpt_mix"), 1, 1, args);
    CUDA_MEMCPY3D copy = rpt_copy_params(words + 8, NULL, words + 4, NULL, 4);
    CUDA_MEMSET_NODE_PARAMS fill = rpt_memset_params(words + 12, value, 4, 1, 1, 0);
    OK(cuGraphExecKernelNodeSetParams(exec, rpt_node_of_type(t, graph, CU_GRAPH_NODE_TYPE_KERNEL),
                                      &params));
    OK(cuGraphExecMemcpyNodeSetParams(exec, rpt_node_of_type(t, graph, CU_GRAPH_NODE_TYPE_MEMCPY),
                                      &copy, t->context));
    OK(cuGraphExecMemsetNodeSetParams(exec, rpt_node_of_type(t, graph, CU_GRAPH_NODE_TYPE_MEMSET),
                                      &fill, t->context));
}

/* Did the work run on these words, once, with this value? They are as new afterwards. */
static void expect_work(struct rpt *t, CUdeviceptr words, uint32_t value)
{
    EQUAL(rpt_word(t, words), value);
    EQUAL(rpt_word(t, words + 8), value ? 6 : 0);
    EQUAL(rpt_word(t, words + 12), value);
    OK(cuMemsetD8(words, 0, 16));
    OK(cuMemsetD32(words + 4, 6, 1));
    OK(cuCtxSynchronize());
}

static void set_inside(struct rpt *t, unsigned depth)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr words = rpt_memory(t, 48), word = rpt_memory(t, 4);
    CUgraph graph = hold(t, work_graph(t, words, 3), word, depth);
    CUgraphExec exec = rpt_instantiate(t, graph);
    for (unsigned i = 0; i < 3; i++)
        expect_work(t, words + 16 * i, 0);
    rpt_hold(t, stream);
    OK(cuGraphLaunch(exec, stream));
    set_work(t, exec, held(t, graph, depth), words + 16, 4);
    OK(cuGraphLaunch(exec, stream));
    set_work(t, exec, held(t, graph, depth), words + 32, 5);
    rpt_open(t);
    rpt_run(t, exec, stream);
    for (unsigned i = 0; i < 3; i++)
        expect_work(t, words + 16 * i, 3 + i);
    rpt_run(t, rpt_instantiate(t, graph), stream); /* the template is as it was */
    expect_work(t, words, 3);
    expect_work(t, words + 32, 0);
}

void case_set_nodes_inside_a_child_graph_undocumented(struct rpt *t)
{
    set_inside(t, 1);
}

void case_set_nodes_two_children_deep_undocumented(struct rpt *t)
{
    set_inside(t, 2);
}

/* A child that was set as a whole: the template's embedded nodes still name its nodes. */
void case_set_nodes_of_a_child_graph_that_was_set_undocumented(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 48), word = rpt_memory(t, 4);
    CUgraph graph = hold(t, work_graph(t, words, 3), word, 1);
    CUgraphExec exec = rpt_instantiate(t, graph);
    for (unsigned i = 0; i < 3; i++)
        expect_work(t, words + 16 * i, 0);
    OK(cuGraphExecChildGraphNodeSetParams(
        exec, rpt_node_of_type(t, graph, CU_GRAPH_NODE_TYPE_GRAPH), work_graph(t, words + 16, 4)));
    rpt_run(t, exec, rpt_stream(t));
    expect_work(t, words + 16, 4);
    set_work(t, exec, held(t, graph, 1), words + 32, 5);
    rpt_run(t, exec, rpt_stream(t));
    for (unsigned i = 0; i < 3; i++)
        expect_work(t, words + 16 * i, i == 2 ? 5 : 0);
}

/* The template's own nodes decide what an exec is made from: changed in the embedded graph before,
 * as copies are that go to other memory. */
void case_template_nodes_inside_a_child_graph_change_the_next_exec(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 32), word = rpt_memory(t, 4);
    CUgraph graph = hold(t, work_graph(t, words, 3), word, 2);
    for (unsigned i = 0; i < 2; i++)
        expect_work(t, words + 16 * i, 0);
    CUDA_MEMCPY3D copy = rpt_copy_params(words + 24, NULL, words + 4, NULL, 4);
    OK(cuGraphMemcpyNodeSetParams(rpt_node_of_type(t, held(t, graph, 2), CU_GRAPH_NODE_TYPE_MEMCPY),
                                  &copy));
    rpt_run(t, rpt_instantiate(t, graph), rpt_stream(t));
    EQUAL(rpt_word(t, words + 8), 0);
    EQUAL(rpt_word(t, words + 24), 6);
    EQUAL(rpt_word(t, words), 3);
}

/* ---- Other nodes one by one ---------------------------------------------------------------- */

void case_set_memcpy_addresses(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 64);
    CUgraphNode node;
    OK(cuMemsetD32(words + 16, 6, 1));
    OK(cuCtxSynchronize());
    CUgraph graph = copy_graph(t, rpt_copy_params(words, NULL, words + 4, NULL, 4), &node);
    CUgraphExec exec = rpt_instantiate(t, graph);
    CUDA_MEMCPY3D copy = rpt_copy_params(words + 32, NULL, words + 16, NULL, 4);
    OK(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, t->context));
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, words + 32), 6);
}

void case_set_memcpy_host_address(struct rpt *t)
{
    CUdeviceptr word = rpt_memory(t, 4);
    uint32_t *host = rpt_pinned(t, 8);
    CUgraphNode node;
    host[0] = 1;
    host[1] = 2;
    CUgraph graph = copy_graph(t, rpt_copy_params(word, NULL, 0, host, 4), &node);
    CUgraphExec exec = rpt_instantiate(t, graph);
    CUDA_MEMCPY3D copy = rpt_copy_params(word, NULL, 0, host + 1, 4);
    OK(cuGraphExecMemcpyNodeSetParams(exec, node, &copy, t->context));
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, word), 2);
}

/* What a node used is gone when it is given something else to use. */
void case_set_memory_after_the_former_was_freed_undocumented(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 64), former = 0;
    CUgraphNode copied, filled;
    OK(cuMemAlloc(&former, 4096));
    CUgraph graph = copy_graph(t, rpt_copy_params(former, NULL, former + 64, NULL, 4), &copied);
    CUDA_MEMSET_NODE_PARAMS fill = rpt_memset_params(former + 128, 1, 4, 1, 1, 0);
    OK(cuGraphAddMemsetNode(&filled, graph, NULL, 0, &fill, t->context));
    CUgraphExec exec = rpt_instantiate(t, graph);
    rpt_run(t, exec, rpt_stream(t));
    OK(cuMemFree(former));
    OK(cuMemsetD32(words + 16, 6, 1));
    OK(cuCtxSynchronize());
    CUDA_MEMCPY3D copy = rpt_copy_params(words, NULL, words + 16, NULL, 4);
    fill.dst = words + 32;
    OK(cuGraphExecMemcpyNodeSetParams(exec, copied, &copy, t->context));
    OK(cuGraphExecMemsetNodeSetParams(exec, filled, &fill, t->context));
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, words), 6);
    EQUAL(rpt_word(t, words + 32), 1);
}

/* A launch that runs or waits keeps the parameters that it was given. */
void case_set_params_in_flight(struct rpt *t)
{
    enum { LAUNCHES = 5 };
    CUdeviceptr words = rpt_memory(t, 4 * LAUNCHES), to = words;
    uint32_t value = 1;
    uint64_t nanoseconds = 2000000;
    void *args[] = {&to, &value, &nanoseconds};
    CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(rpt_function(t, "rpt_slow"), 1, 1, args);
    CUgraph graph = rpt_graph(t);
    CUgraphNode node;
    OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    CUgraphExec exec = rpt_instantiate(t, graph);
    CUstream stream = rpt_stream(t);
    for (uint32_t i = 0; i < LAUNCHES; i++) {
        to = words + 4 * i;
        value = i + 1;
        OK(cuGraphExecKernelNodeSetParams(exec, node, &params));
        OK(cuGraphLaunch(exec, stream));
    }
    OK(cuStreamSynchronize(stream));
    for (uint32_t i = 0; i < LAUNCHES; i++)
        EQUAL(rpt_word(t, words + 4 * i), i + 1);
}

void case_set_memcpy_refusals(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 256);
    uint32_t *host = rpt_pinned(t, 64);
    CUgraphNode node;
    CUgraph graph = copy_graph(t, rpt_copy_params(words, NULL, words + 64, NULL, 8), &node);
    CUgraphExec exec = rpt_instantiate(t, graph);
    CUDA_MEMCPY3D direction = rpt_copy_params(words, NULL, 0, host, 8);
    CUDA_MEMCPY3D nothing = rpt_copy_params(words, NULL, words + 64, NULL, 0);
    CUDA_MEMCPY3D rows = rpt_copy_params(words, NULL, words + 64, NULL, 8);
    rows.Height = 2;
    rows.srcPitch = rows.dstPitch = 16;
    rows.srcHeight = rows.dstHeight = 2;
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuGraphExecMemcpyNodeSetParams(exec, node, &direction, t->context));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuGraphExecMemcpyNodeSetParams(exec, node, &nothing, t->context));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(exec, node, &rows, t->context));
    graph = copy_graph(t, rows, &node);
    exec = rpt_instantiate(t, graph);
    CUDA_MEMCPY3D moved = rows;
    moved.dstDevice = words + 128;
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuGraphExecMemcpyNodeSetParams(exec, node, &moved, t->context));
}

void case_set_memset_address_and_value(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 64);
    CUDA_MEMSET_NODE_PARAMS fill = rpt_memset_params(words, 1, 4, 4, 1, 0);
    CUgraph graph = rpt_graph(t);
    CUgraphNode node;
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, t->context));
    CUgraphExec exec = rpt_instantiate(t, graph);
    fill.dst = words + 16;
    fill.value = 5;
    OK(cuGraphExecMemsetNodeSetParams(exec, node, &fill, t->context));
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, words), 0);
    EQUAL(rpt_word(t, words + 28), 5);
}

void case_set_memset_refusals(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 512);
    CUDA_MEMSET_NODE_PARAMS fill = rpt_memset_params(words, 1, 4, 2, 3, 64), changed = fill;
    CUgraph graph = rpt_graph(t);
    CUgraphNode node;
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, t->context));
    CUgraphExec exec = rpt_instantiate(t, graph);
    changed.width = 3;
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuGraphExecMemsetNodeSetParams(exec, node, &changed, t->context));
    changed = fill;
    changed.height = 2;
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuGraphExecMemsetNodeSetParams(exec, node, &changed, t->context));
    changed = fill;
    changed.width = 0;
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuGraphExecMemsetNodeSetParams(exec, node, &changed, t->context));
}

/* Two-dimensional memsets keep their shape, but move. */
void case_set_memset_two_dimensions_moves(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 512);
    CUDA_MEMSET_NODE_PARAMS fill = rpt_memset_params(words, 1, 4, 2, 3, 64);
    CUgraph graph = rpt_graph(t);
    CUgraphNode node;
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, t->context));
    CUgraphExec exec = rpt_instantiate(t, graph);
    fill.dst = words + 256;
    fill.value = 8;
    OK(cuGraphExecMemsetNodeSetParams(exec, node, &fill, t->context));
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, words), 0);
    EQUAL(rpt_word(t, words + 256 + 128 + 4), 8);
}

void case_set_host_function(struct rpt *t)
{
    int first = 0, second = 0;
    CUDA_HOST_NODE_PARAMS params = {count, &first};
    CUgraph graph = rpt_graph(t);
    CUgraphNode node;
    OK(cuGraphAddHostNode(&node, graph, NULL, 0, &params));
    CUgraphExec exec = rpt_instantiate(t, graph);
    params.userData = &second;
    OK(cuGraphExecHostNodeSetParams(exec, node, &params));
    rpt_run(t, exec, rpt_stream(t));
    REQUIRE(first == 0 && second == 1);
}

void case_set_child_graph(struct rpt *t)
{
    CUdeviceptr words = rpt_memory(t, 8);
    CUgraph graph = rpt_graph(t), wider;
    CUgraphNode node;
    OK(cuGraphAddChildGraphNode(&node, graph, NULL, 0, mix_graph(t, words, 1)));
    CUgraphExec exec = rpt_instantiate(t, graph);
    OK(cuGraphExecChildGraphNodeSetParams(exec, node, mix_graph(t, words + 4, 2)));
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, words), 0);
    EQUAL(rpt_word(t, words + 4), 2);
    wider = mix_graph(t, words, 1);
    rpt_mix_node(t, wider, NULL, words + 4, 2);
    REFUSED(cuGraphExecChildGraphNodeSetParams(exec, node, wider));
}
