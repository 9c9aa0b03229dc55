/* SPDX-License-Identifier: MIT
 *
 * Executable graphs: instantiating, launching, order, lifetime.
 */
#include "conformance.h"

/* Nothing is left for the first launch to do, so that it may follow a gate. */
static CUgraphExec uploaded(struct rpt *t, CUgraph graph)
{
    CUgraphExec exec = rpt_instantiate(t, graph);
    OK(cuGraphUpload(exec, NULL));
    OK(cuStreamSynchronize(NULL));
    return exec;
}

void case_exec_follows_edges(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUgraphNode node = NULL;
    uint32_t values[20];
    for (uint32_t i = 0; i < 20; i++) {
        values[i] = i + 1;
        node = rpt_mix_node(t, graph, node, word, values[i]);
    }
    CUgraphExec exec = rpt_instantiate(t, graph);
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, word), rpt_mixed(20, values));
}

void case_exec_of_every_node_type(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUstream stream = rpt_stream(t);
    uint32_t *host = rpt_pinned(t, 8);
    CUdeviceptr words = rpt_memory(t, 16);
    CUgraphNode in, fill, mix, out, empty;
    CUDA_MEMCPY3D copy_in = rpt_copy_params(words, NULL, 0, host, 4);
    CUDA_MEMSET_NODE_PARAMS memset_params = rpt_memset_params(words + 4, 0x55, 1, 4, 1, 0);
    CUDA_MEMCPY3D copy_out = rpt_copy_params(0, host + 1, words, NULL, 4);
    host[0] = 3;
    OK(cuGraphAddMemcpyNode(&in, graph, NULL, 0, &copy_in, t->context));
    OK(cuGraphAddMemsetNode(&fill, graph, NULL, 0, &memset_params, t->context));
    OK(cuGraphAddEmptyNode(&empty, graph, (CUgraphNode[]){in, fill}, 2));
    mix = rpt_mix_node(t, graph, empty, words, 4);
    OK(cuGraphAddMemcpyNode(&out, graph, &mix, 1, &copy_out, t->context));
    rpt_run(t, rpt_instantiate(t, graph), stream);
    EQUAL(host[1], MIXED(3, 4));
    EQUAL(rpt_word(t, words + 4), 0x55555555);
}

/* 8 ways, each of its own length, between one start and one end. */
void case_exec_fan_out_and_in(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUdeviceptr words = rpt_memory(t, 64);
    CUgraphNode start = rpt_mix_node(t, graph, NULL, words, 1), ends[8], end;
    for (uint32_t way = 0; way < 8; way++) {
        ends[way] = start;
        for (uint32_t i = 0; i <= way; i++)
            ends[way] = rpt_mix_node(t, graph, ends[way], words + 4 + 4 * way, i + 1);
    }
    OK(cuGraphAddEmptyNode(&end, graph, ends, 8));
    rpt_mix_node(t, graph, end, words, 2);
    CUgraphExec exec = rpt_instantiate(t, graph);
    for (int i = 0; i < 3; i++)
        rpt_run(t, exec, NULL);
    EQUAL(rpt_word(t, words), MIXED(1, 2, 1, 2, 1, 2));
    EQUAL(rpt_word(t, words + 4), MIXED(1, 1, 1));
    EQUAL(rpt_word(t, words + 12), MIXED(1, 2, 3, 1, 2, 3, 1, 2, 3));
}

void case_exec_relaunch(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUstream stream = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_mix_node(t, graph, NULL, word, 3);
    CUgraphExec exec = rpt_instantiate(t, graph);
    for (int i = 0; i < 4; i++)
        OK(cuGraphLaunch(exec, stream));
    EQUAL(rpt_word(t, word), MIXED(3, 3, 3, 3));
}

/* Launches of one exec are ordered, whatever streams they are on. */
void case_exec_launches_are_ordered_across_streams(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_mix_node(t, graph, NULL, word, 3);
    CUgraphExec exec = uploaded(t, graph);
    rpt_hold(t, a);
    OK(cuGraphLaunch(exec, a));
    OK(cuGraphLaunch(exec, b));
    rpt_expect_pending(t, b);
    rpt_open(t);
    EQUAL(rpt_word(t, word), MIXED(3, 3));
}

/* Different execs of one template are not. */
void case_exec_two_of_one_graph(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUdeviceptr words = rpt_memory(t, 8);
    CUDA_MEMSET_NODE_PARAMS fill = rpt_memset_params(words, 6, 4, 1, 1, 0);
    CUgraphNode node;
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, t->context));
    CUgraphExec first = uploaded(t, graph);
    fill.dst = words + 4;
    OK(cuGraphMemsetNodeSetParams(node, &fill));
    CUgraphExec second = uploaded(t, graph);
    rpt_hold(t, a);
    OK(cuGraphLaunch(first, a));
    OK(cuGraphLaunch(second, b));
    OK(cuStreamSynchronize(b));
    rpt_expect_pending(t, a);
    rpt_open(t);
    EQUAL(rpt_word(t, words), 6);
}

void case_exec_in_order_with_its_stream(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUstream stream = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_mix_node(t, graph, NULL, word, 2);
    CUgraphExec exec = rpt_instantiate(t, graph);
    rpt_mix(t, stream, word, 1);
    OK(cuGraphLaunch(exec, stream));
    rpt_mix(t, stream, word, 3);
    OK(cuGraphLaunch(exec, stream));
    EQUAL(rpt_word(t, word), MIXED(1, 2, 3, 2));
}

void case_exec_on_the_default_streams(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_mix_node(t, graph, NULL, word, 2);
    CUgraphExec exec = rpt_instantiate(t, graph);
    rpt_run(t, exec, NULL);
    rpt_run(t, exec, CU_STREAM_LEGACY);
    rpt_run(t, exec, CU_STREAM_PER_THREAD);
    EQUAL(rpt_word(t, word), MIXED(2, 2, 2));
}

void case_exec_upload(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUstream stream = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_mix_node(t, graph, NULL, word, 2);
    CUgraphExec exec = rpt_instantiate(t, graph);
    OK(cuGraphUpload(exec, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(rpt_word(t, word), 0);
    rpt_run(t, exec, stream);
    EQUAL(rpt_word(t, word), 2);
}

void case_exec_of_an_empty_graph(struct rpt *t)
{
    rpt_run(t, rpt_instantiate(t, rpt_graph(t)), rpt_stream(t));
}

void case_exec_bad_flags_refused(struct rpt *t)
{
    CUgraphExec exec;
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuGraphInstantiateWithFlags(&exec, rpt_graph(t), 0x8000000000000000u));
}

void case_exec_outlives_its_graph(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_mix_node(t, graph, NULL, word, 2);
    CUgraphExec exec = rpt_instantiate(t, graph);
    rpt_forget(t, TRACKED_GRAPH, HANDLE_OF(graph));
    OK(cuGraphDestroy(graph));
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, word), 2);
}

/* Nodes added to the template later are not in the exec. */
void case_exec_is_a_snapshot(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUgraphNode node = rpt_mix_node(t, graph, NULL, word, 2);
    CUgraphExec exec = rpt_instantiate(t, graph);
    rpt_mix_node(t, graph, node, word, 3);
    rpt_run(t, exec, rpt_stream(t));
    EQUAL(rpt_word(t, word), 2);
}

/* Destroying an exec whose launch is in flight: the launch is done all the same. */
void case_exec_destroyed_in_flight(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUstream stream = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_mix_node(t, graph, NULL, word, 2);
    CUgraphExec exec = uploaded(t, graph);
    rpt_hold(t, stream);
    OK(cuGraphLaunch(exec, stream));
    rpt_forget(t, TRACKED_EXEC, HANDLE_OF(exec));
    OK(cuGraphExecDestroy(exec));
    rpt_open(t);
    EQUAL(rpt_word(t, word), 2);
}

static void add_one(void *data)
{
    ++*(int *)data;
}

void case_exec_captured_host_function(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    int calls = 0;
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    OK(cuLaunchHostFunc(stream, add_one, &calls));
    CUgraphExec exec = rpt_instantiate(t, rpt_end(t, stream));
    EQUAL(calls, 0);
    for (int i = 0; i < 3; i++)
        rpt_run(t, exec, stream);
    EQUAL(calls, 3);
}

/* An event recorded after a launch covers the whole graph. */
void case_exec_event_after_launch(struct rpt *t)
{
    CUgraph graph = rpt_graph(t);
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUgraphNode node = rpt_mix_node(t, graph, NULL, word, 1);
    rpt_mix_node(t, graph, node, word, 2);
    CUgraphExec exec = rpt_instantiate(t, graph);
    OK(cuGraphLaunch(exec, a));
    rpt_fork(t, a, b);
    rpt_mix(t, b, word, 3);
    EQUAL(rpt_word(t, word), MIXED(1, 2, 3));
}
