/* SPDX-License-Identifier: MIT
 *
 * Stream capture that works: what is recorded, forks and joins, what may be asked and changed while
 * it grows.
 */
#include "conformance.h"

static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                            CU_STREAM_CAPTURE_MODE_RELAXED};
#define LOCAL CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

static CUgraphNodeType type_of(struct rpt *t, CUgraphNode node)
{
    CUgraphNodeType type;
    OK(cuGraphNodeGetType(node, &type));
    return type;
}

void case_capture_runs_nothing(struct rpt *t)
{
    for (int i = 0; i < 3; i++) {
        CUstream stream = rpt_stream(t);
        CUdeviceptr word = rpt_memory(t, 4);
        rpt_begin(t, stream, modes[i]);
        rpt_mix(t, stream, word, 5);
        CUgraph graph = rpt_end(t, stream);
        EQUAL(rpt_word(t, word), 0);
        EQUAL(rpt_node_count(t, graph), 1);
        rpt_run(t, rpt_instantiate(t, graph), stream);
        EQUAL(rpt_word(t, word), 5);
    }
}

void case_capture_nothing(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    rpt_begin(t, stream, LOCAL);
    CUgraph graph = rpt_end(t, stream);
    EQUAL(rpt_node_count(t, graph), 0);
    rpt_run(t, rpt_instantiate(t, graph), stream);
}

static cuuint64_t capture_id(struct rpt *t, CUstream stream)
{
    CUstreamCaptureStatus status;
    cuuint64_t id = 0;
    OK(cuStreamGetCaptureInfo(stream, &status, &id, NULL, NULL, NULL, NULL));
    EQUAL(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    return id;
}

void case_capture_status_and_id(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    EQUAL(rpt_status(t, a), CU_STREAM_CAPTURE_STATUS_NONE);
    rpt_begin(t, a, LOCAL);
    rpt_begin(t, b, LOCAL);
    EQUAL(rpt_status(t, a), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    cuuint64_t first = capture_id(t, a);
    REQUIRE(first != capture_id(t, b));
    rpt_end(t, a);
    rpt_end(t, b);
    EQUAL(rpt_status(t, a), CU_STREAM_CAPTURE_STATUS_NONE);
    rpt_begin(t, a, LOCAL);
    REQUIRE(first != capture_id(t, a));
}

void case_capture_info_of_idle_stream(struct rpt *t)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    OK(cuStreamGetCaptureInfo(rpt_stream(t), &status, NULL, NULL, NULL, NULL, NULL));
    EQUAL(status, CU_STREAM_CAPTURE_STATUS_NONE);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamIsCapturing(rpt_stream(t), NULL));
}

void case_capture_terminals(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUgraphNode terminals[8], second[8];
    rpt_begin(t, stream, LOCAL);
    EQUAL(rpt_terminals(t, stream, terminals), 0);
    rpt_mix(t, stream, word, 1);
    EQUAL(rpt_terminals(t, stream, terminals), 1);
    rpt_mix(t, stream, word, 2);
    EQUAL(rpt_terminals(t, stream, second), 1);
    CUgraph graph = rpt_end(t, stream);
    EQUAL(rpt_node_count(t, graph), 2);
    EQUAL(rpt_edge_count(t, graph), 1);
    REQUIRE(rpt_has_edge(t, graph, terminals[0], second[0]));
}

/* The graph can be looked at while it is captured into, and plain edges carry no data. */
void case_capture_info_gives_graph_and_edge_data(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUstreamCaptureStatus status;
    CUgraph graph = NULL;
    const CUgraphNode *nodes = NULL;
    const CUgraphEdgeData *edges = NULL;
    const CUgraphEdgeData none = {0};
    size_t count = 0;
    rpt_begin(t, stream, LOCAL);
    rpt_mix(t, stream, word, 1);
    OK(cuStreamGetCaptureInfo(stream, &status, NULL, &graph, &nodes, &edges, &count));
    EQUAL(count, 1);
    EQUAL(rpt_node_count(t, graph), 1);
    REQUIRE(nodes[0] == rpt_node(t, graph, 0));
    REQUIRE(edges == NULL || !memcmp(&edges[0], &none, sizeof none));
    REQUIRE(rpt_end(t, stream) == graph);
}

void case_capture_node_types(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr words = rpt_memory(t, 64);
    uint32_t *host = rpt_pinned(t, 64);
    const CUgraphNodeType expected[] = {CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_MEMCPY,
                                        CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMSET,
                                        CU_GRAPH_NODE_TYPE_HOST};
    CUgraphNode nodes[5], terminals[8];
    rpt_begin(t, stream, LOCAL);
    for (int i = 0; i < 5; i++) {
        if (i == 0)
            rpt_mix(t, stream, words, 1);
        if (i == 1)
            OK(cuMemcpyDtoHAsync(host, words, 4, stream));
        if (i == 2)
            OK(cuMemcpyDtoDAsync(words + 8, words, 4, stream));
        if (i == 3)
            OK(cuMemsetD32Async(words + 16, 3, 2, stream));
        if (i == 4)
            rpt_hold(t, stream);
        EQUAL(rpt_terminals(t, stream, terminals), 1);
        nodes[i] = terminals[0];
    }
    rpt_open(t);
    CUgraph graph = rpt_end(t, stream);
    EQUAL(rpt_node_count(t, graph), 5);
    for (int i = 0; i < 5; i++)
        EQUAL(type_of(t, nodes[i]), expected[i]);
    rpt_run(t, rpt_instantiate(t, graph), stream);
    EQUAL(host[0], 1);
    EQUAL(rpt_word(t, words + 8), 1);
    EQUAL(rpt_word(t, words + 20), 3);
}

void case_capture_copies_parameters(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    uint32_t value = 5;
    void *params[] = {&word, &value};
    rpt_begin(t, stream, LOCAL);
    OK(cuLaunchKernel(rpt_function(t, "rpt_mix"), 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    value = 6;
    rpt_run(t, rpt_instantiate(t, rpt_end(t, stream)), stream);
    EQUAL(rpt_word(t, word), 5);
}

/* ---- Forks and joins ----------------------------------------------------------------------- */

void case_capture_fork_and_join(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUdeviceptr words = rpt_memory(t, 8);
    CUgraphNode top[8], left[8], right[8], joined[8], bottom[8];
    rpt_begin(t, a, LOCAL);
    rpt_mix(t, a, words, 1);
    EQUAL(rpt_terminals(t, a, top), 1);
    rpt_fork(t, a, b);
    EQUAL(rpt_status(t, b), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EQUAL(capture_id(t, a), capture_id(t, b));
    rpt_mix(t, a, words, 2);
    rpt_mix(t, b, words + 4, 3);
    EQUAL(rpt_terminals(t, a, left), 1);
    EQUAL(rpt_terminals(t, b, right), 1);
    rpt_fork(t, b, a);
    EQUAL(rpt_terminals(t, a, joined), 2);
    rpt_mix(t, a, words, 4);
    EQUAL(rpt_terminals(t, a, bottom), 1);
    CUgraph graph = rpt_end(t, a);
    EQUAL(rpt_status(t, b), CU_STREAM_CAPTURE_STATUS_NONE);
    EQUAL(rpt_node_count(t, graph), 4);
    EQUAL(rpt_edge_count(t, graph), 4);
    REQUIRE(rpt_has_edge(t, graph, top[0], left[0]) && rpt_has_edge(t, graph, top[0], right[0]));
    REQUIRE(rpt_has_edge(t, graph, left[0], bottom[0]));
    REQUIRE(rpt_has_edge(t, graph, right[0], bottom[0]));
    rpt_run(t, rpt_instantiate(t, graph), b);
    EQUAL(rpt_word(t, words), MIXED(1, 2, 4));
    EQUAL(rpt_word(t, words + 4), 3);
}

/* A stream that was drawn in and was given nothing needs no join, and is free afterwards. */
void case_capture_fork_without_work(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_begin(t, a, LOCAL);
    rpt_mix(t, a, word, 1);
    rpt_fork(t, a, b);
    rpt_mix(t, a, word, 2);
    EQUAL(rpt_node_count(t, rpt_end(t, a)), 2);
    rpt_usable(t, b);
}

/* A fork before anything was captured: the forked stream's first node is a root. */
void case_capture_fork_at_the_start(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUdeviceptr words = rpt_memory(t, 8);
    size_t roots = 0;
    rpt_begin(t, a, LOCAL);
    rpt_fork(t, a, b);
    EQUAL(rpt_status(t, b), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    rpt_mix(t, b, words, 1);
    rpt_mix(t, a, words + 4, 2);
    rpt_fork(t, b, a);
    CUgraph graph = rpt_end(t, a);
    OK(cuGraphGetRootNodes(graph, NULL, &roots));
    EQUAL(roots, 2);
    EQUAL(rpt_edge_count(t, graph), 0);
}

void case_capture_nested_forks(struct rpt *t)
{
    CUstream streams[4];
    CUdeviceptr words = rpt_memory(t, 16);
    for (int i = 0; i < 4; i++)
        streams[i] = rpt_stream(t);
    rpt_begin(t, streams[0], LOCAL);
    rpt_mix(t, streams[0], words, 1);
    for (unsigned i = 1; i < 4; i++) {
        rpt_fork(t, streams[i - 1], streams[i]);
        rpt_mix(t, streams[i], words + 4 * i, i);
    }
    for (unsigned i = 3; i > 0; i--) {
        rpt_fork(t, streams[i], streams[i - 1]);
        rpt_mix(t, streams[i - 1], words + 4 * (i - 1), 10 + i);
    }
    CUgraph graph = rpt_end(t, streams[0]);
    EQUAL(rpt_node_count(t, graph), 7);
    EQUAL(rpt_edge_count(t, graph), 9);
    rpt_run(t, rpt_instantiate(t, graph), streams[3]);
    EQUAL(rpt_word(t, words), MIXED(1, 11));
    EQUAL(rpt_word(t, words + 8), MIXED(2, 13));
    EQUAL(rpt_word(t, words + 12), 3);
}

/* A forked stream may be joined through another one. */
void case_capture_join_through_another_stream(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t), c = rpt_stream(t);
    CUdeviceptr words = rpt_memory(t, 8);
    rpt_begin(t, a, LOCAL);
    rpt_fork(t, a, b);
    rpt_fork(t, a, c);
    rpt_mix(t, b, words, 1);
    rpt_fork(t, b, c);
    rpt_mix(t, c, words + 4, 2);
    rpt_fork(t, c, a);
    EQUAL(rpt_node_count(t, rpt_end(t, a)), 2);
    rpt_usable(t, b);
    rpt_usable(t, c);
}

/* Joining a stream that was given nothing since the fork adds no dependency. */
void case_capture_join_of_the_same_node(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUgraphNode before[8], after[8];
    rpt_begin(t, a, LOCAL);
    rpt_mix(t, a, word, 1);
    EQUAL(rpt_terminals(t, a, before), 1);
    rpt_fork(t, a, b);
    rpt_fork(t, b, a);
    EQUAL(rpt_terminals(t, a, after), 1);
    REQUIRE(before[0] == after[0]);
    rpt_end(t, a);
}

void case_capture_event_recorded_again(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4), other = rpt_memory(t, 4);
    CUevent event = rpt_event(t);
    CUgraphNode second[8], forked[8];
    rpt_begin(t, a, LOCAL);
    rpt_mix(t, a, word, 1);
    OK(cuEventRecord(event, a));
    rpt_mix(t, a, word, 2);
    OK(cuEventRecord(event, a));
    EQUAL(rpt_terminals(t, a, second), 1);
    OK(cuStreamWaitEvent(b, event, 0));
    EQUAL(rpt_terminals(t, b, forked), 1);
    REQUIRE(forked[0] == second[0]);
    rpt_mix(t, b, other, 3);
    rpt_fork(t, b, a);
    rpt_end(t, a);
}

/* The event keeps its place when the stream goes on. */
void case_capture_event_keeps_its_place(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4), other = rpt_memory(t, 4);
    CUevent event = rpt_event(t);
    CUgraphNode first[8], forked[8];
    rpt_begin(t, a, LOCAL);
    rpt_mix(t, a, word, 1);
    EQUAL(rpt_terminals(t, a, first), 1);
    OK(cuEventRecord(event, a));
    rpt_mix(t, a, word, 2);
    OK(cuStreamWaitEvent(b, event, 0));
    EQUAL(rpt_terminals(t, b, forked), 1);
    REQUIRE(forked[0] == first[0]);
    rpt_mix(t, b, other, 3);
    rpt_fork(t, b, a);
    rpt_end(t, a);
}

void case_capture_event_destroyed_meanwhile(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUdeviceptr words = rpt_memory(t, 8);
    CUevent event = rpt_event(t);
    rpt_begin(t, a, LOCAL);
    rpt_mix(t, a, words, 1);
    OK(cuEventRecord(event, a));
    OK(cuStreamWaitEvent(b, event, 0));
    rpt_forget(t, TRACKED_EVENT, HANDLE_OF(event));
    OK(cuEventDestroy(event));
    rpt_mix(t, b, words + 4, 2);
    rpt_fork(t, b, a);
    EQUAL(rpt_edge_count(t, rpt_end(t, a)), 1);
}

/* Recorded as external, an event is a node: launches record it. */
void case_capture_external_event_record(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUevent event = rpt_event(t);
    rpt_begin(t, stream, LOCAL);
    OK(cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
    CUgraph graph = rpt_end(t, stream);
    EQUAL(rpt_node_count(t, graph), 1);
    EQUAL(type_of(t, rpt_node(t, graph, 0)), CU_GRAPH_NODE_TYPE_EVENT_RECORD);
    CUgraphExec exec = rpt_instantiate(t, graph);
    OK(cuGraphUpload(exec, stream));
    OK(cuStreamSynchronize(stream));
    rpt_hold(t, stream);
    OK(cuGraphLaunch(exec, stream));
    rpt_expect_pending(t, stream);
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    rpt_open(t);
    OK(cuEventSynchronize(event));
    OK(cuEventQuery(event));
}

/* Waited for as external, an event from outside is allowed: launches wait for it. */
void case_capture_external_event_wait(struct rpt *t)
{
    CUstream stream = rpt_stream(t), other = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUevent event = rpt_event(t);
    OK(cuEventRecord(event, other));
    rpt_begin(t, stream, LOCAL);
    OK(cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL));
    rpt_mix(t, stream, word, 2);
    CUgraph graph = rpt_end(t, stream);
    EQUAL(rpt_node_count(t, graph), 2);
    rpt_node_of_type(t, graph, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    CUgraphExec exec = rpt_instantiate(t, graph);
    OK(cuGraphUpload(exec, stream));
    OK(cuStreamSynchronize(stream));
    rpt_hold(t, other);
    rpt_mix(t, other, word, 1);
    OK(cuEventRecord(event, other));
    OK(cuGraphLaunch(exec, stream));
    rpt_expect_pending(t, stream);
    rpt_open(t);
    EQUAL(rpt_word(t, word), MIXED(1, 2));
}

/* ---- Dependencies set by hand -------------------------------------------------------------- */

void case_capture_dependencies_set(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr words = rpt_memory(t, 12);
    CUgraphNode first[8], now[8];
    size_t roots = 0;
    rpt_begin(t, stream, LOCAL);
    rpt_mix(t, stream, words, 1);
    EQUAL(rpt_terminals(t, stream, first), 1);
    OK(cuStreamUpdateCaptureDependencies(stream, NULL, NULL, 0,
                                         CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    EQUAL(rpt_terminals(t, stream, now), 0);
    rpt_mix(t, stream, words + 4, 2);
    OK(cuStreamUpdateCaptureDependencies(stream, first, NULL, 1,
                                         CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    EQUAL(rpt_terminals(t, stream, now), 1);
    REQUIRE(now[0] == first[0]);
    rpt_mix(t, stream, words + 8, 3);
    CUgraph graph = rpt_end(t, stream); /* nodes taken out this way need no join */
    OK(cuGraphGetRootNodes(graph, NULL, &roots));
    EQUAL(roots, 2);
    EQUAL(rpt_edge_count(t, graph), 1);
}

void case_capture_dependencies_added(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr words = rpt_memory(t, 12);
    CUgraphNode first[8], now[8];
    rpt_begin(t, stream, LOCAL);
    rpt_mix(t, stream, words, 1);
    EQUAL(rpt_terminals(t, stream, first), 1);
    OK(cuStreamUpdateCaptureDependencies(stream, NULL, NULL, 0,
                                         CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    rpt_mix(t, stream, words + 4, 2);
    OK(cuStreamUpdateCaptureDependencies(stream, first, NULL, 1,
                                         CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    EQUAL(rpt_terminals(t, stream, now), 2);
    rpt_mix(t, stream, words + 8, 3);
    EQUAL(rpt_edge_count(t, rpt_end(t, stream)), 2);
}

/* A node made by hand in the graph that is being captured becomes part of the stream's order. */
void case_capture_node_made_by_hand(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUstreamCaptureStatus status;
    CUgraph graph;
    CUgraphNode first[8], node;
    rpt_begin(t, stream, LOCAL);
    rpt_mix(t, stream, word, 1);
    EQUAL(rpt_terminals(t, stream, first), 1);
    OK(cuStreamGetCaptureInfo(stream, &status, NULL, &graph, NULL, NULL, NULL));
    node = rpt_mix_node(t, graph, first[0], word, 2);
    OK(cuStreamUpdateCaptureDependencies(stream, &node, NULL, 1,
                                         CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    rpt_mix(t, stream, word, 3);
    graph = rpt_end(t, stream);
    EQUAL(rpt_edge_count(t, graph), 2);
    rpt_run(t, rpt_instantiate(t, graph), stream);
    EQUAL(rpt_word(t, word), MIXED(1, 2, 3));
}

void case_capture_dependencies_refusals(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    EXPECT(CUDA_ERROR_ILLEGAL_STATE,
           cuStreamUpdateCaptureDependencies(stream, NULL, NULL, 0,
                                             CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    rpt_begin(t, stream, LOCAL);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamUpdateCaptureDependencies(stream, NULL, NULL, 0, 7));
    EXPECT(CUDA_ERROR_INVALID_VALUE,
           cuStreamUpdateCaptureDependencies(stream, NULL, NULL, 1,
                                             CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    rpt_expect_intact(t, stream);
}

/* ---- Where captures begin and end ---------------------------------------------------------- */

void case_capture_begin_refusals(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamBeginCapture(stream, (CUstreamCaptureMode)9));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture(NULL, LOCAL));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture(CU_STREAM_LEGACY, LOCAL));
    rpt_usable(t, stream);
}

void case_capture_begin_twice(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    rpt_begin(t, stream, LOCAL);
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture(stream, LOCAL));
    rpt_expect_intact(t, stream);
}

void case_capture_end_without_begin(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUgraph graph = NULL;
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(stream, &graph));
    EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(NULL, &graph));
    rpt_usable(t, stream);
}

void case_capture_of_two_streams_apart(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUdeviceptr words = rpt_memory(t, 8);
    rpt_begin(t, a, LOCAL);
    rpt_begin(t, b, LOCAL);
    rpt_mix(t, a, words, 1);
    rpt_mix(t, b, words + 4, 2);
    rpt_mix(t, a, words, 3);
    EQUAL(rpt_node_count(t, rpt_end(t, a)), 2);
    EQUAL(rpt_node_count(t, rpt_end(t, b)), 1);
}

/* Synchronising a stream that is not captured is unsafe, so the capture is a relaxed one. */
void case_capture_other_streams_run(struct rpt *t)
{
    CUstream captured = rpt_stream(t), other = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    uint32_t *host = rpt_pinned(t, 4);
    rpt_begin(t, captured, CU_STREAM_CAPTURE_MODE_RELAXED);
    rpt_mix(t, other, word, 3);
    OK(cuMemcpyDtoHAsync(host, word, 4, other));
    OK(cuStreamSynchronize(other));
    EQUAL(host[0], 3);
    EQUAL(rpt_node_count(t, rpt_end(t, captured)), 0);
}

void case_capture_per_thread_stream(struct rpt *t)
{
    CUstream stream = CU_STREAM_PER_THREAD;
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_begin(t, stream, LOCAL);
    rpt_mix(t, stream, word, 3);
    EQUAL(rpt_node_count(t, rpt_end(t, stream)), 1);
}

/* A launch cannot be captured, and trying ends the capture. */
void case_capture_of_a_graph_launch_refused(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUgraph inner = rpt_graph(t);
    rpt_mix_node(t, inner, NULL, word, 2);
    CUgraphExec exec = rpt_instantiate(t, inner);
    for (int mode = 0; mode < 3; mode++) {
        rpt_begin(t, stream, (CUstreamCaptureMode)mode);
        EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuGraphLaunch(exec, stream));
        rpt_expect_invalidated(t, stream);
    }
    rpt_run(t, exec, stream);
    EQUAL(rpt_word(t, word), MIXED(2));
}

/* A graph comes into a capture by hand: as a child of the graph that is being captured. */
void case_capture_with_a_child_graph_by_hand(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUgraph inner = rpt_graph(t), capturing = NULL;
    const CUgraphNode *nodes = NULL;
    const CUgraphEdgeData *edges = NULL;
    CUstreamCaptureStatus status;
    CUgraphNode node;
    size_t count = 0;
    rpt_mix_node(t, inner, NULL, word, 2);
    rpt_begin(t, stream, LOCAL);
    rpt_mix(t, stream, word, 1);
    OK(cuStreamGetCaptureInfo(stream, &status, NULL, &capturing, &nodes, &edges, &count));
    OK(cuGraphAddChildGraphNode(&node, capturing, nodes, count, inner));
    OK(cuStreamUpdateCaptureDependencies(stream, &node, NULL, 1,
                                         CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    rpt_mix(t, stream, word, 3);
    CUgraph graph = rpt_end(t, stream);
    EQUAL(rpt_node_count(t, graph), 3);
    rpt_run(t, rpt_instantiate(t, graph), stream);
    EQUAL(rpt_word(t, word), MIXED(1, 2, 3));
}

struct ended {
    CUstream stream;
    CUgraph graph;
    CUresult result;
};

static void end_elsewhere(struct rpt *t, void *data)
{
    struct ended *ended = data;
    ended->result = t->d->cuStreamEndCapture(ended->stream, &ended->graph);
}

void case_capture_relaxed_ended_by_another_thread(struct rpt *t)
{
    struct ended ended = {.stream = rpt_stream(t)};
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_begin(t, ended.stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    rpt_mix(t, ended.stream, word, 3);
    rpt_on_thread(t, end_elsewhere, &ended, true);
    EQUAL(ended.result, CUDA_SUCCESS);
    rpt_track(t, TRACKED_GRAPH, HANDLE_OF(ended.graph), 0);
    EQUAL(rpt_node_count(t, ended.graph), 1);
    rpt_usable(t, ended.stream);
}

void case_capture_into_a_graph(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUgraph graph = rpt_graph(t), ended = NULL;
    if (!t->d->cuStreamBeginCaptureToGraph)
        rpt_skip(t, "the driver lacks cuStreamBeginCaptureToGraph");
    CUgraphNode first = rpt_mix_node(t, graph, NULL, word, 1);
    OK(cuStreamBeginCaptureToGraph(stream, graph, &first, NULL, 1, LOCAL));
    rpt_mix(t, stream, word, 2);
    OK(cuStreamEndCapture(stream, &ended));
    REQUIRE(ended == graph);
    EQUAL(rpt_node_count(t, graph), 2);
    EQUAL(rpt_edge_count(t, graph), 1);
    rpt_run(t, rpt_instantiate(t, graph), stream);
    EQUAL(rpt_word(t, word), MIXED(1, 2));
}

/* ---- Modes --------------------------------------------------------------------------------- */

void case_capture_mode_exchange(struct rpt *t)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    EQUAL(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    mode = LOCAL;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    EQUAL(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    EQUAL(mode, LOCAL);
}

struct allocated {
    bool relax;
    CUresult result;
    CUdeviceptr address;
};

static void allocate(struct rpt *t, void *data)
{
    struct allocated *allocated = data;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (allocated->relax)
        t->d->cuThreadExchangeStreamCaptureMode(&mode);
    allocated->result = t->d->cuMemAlloc(&allocated->address, 64);
    if (allocated->result == CUDA_SUCCESS)
        t->d->cuMemFree(allocated->address);
    if (allocated->relax)
        t->d->cuThreadExchangeStreamCaptureMode(&mode);
}

void case_capture_relaxed_allows_allocation(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    struct allocated allocated = {0};
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    allocate(t, &allocated);
    EQUAL(allocated.result, CUDA_SUCCESS);
    rpt_on_thread(t, allocate, &allocated, true);
    EQUAL(allocated.result, CUDA_SUCCESS);
    rpt_expect_intact(t, stream);
}

void case_capture_thread_local_allows_other_threads(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    struct allocated allocated = {0};
    rpt_begin(t, stream, LOCAL);
    rpt_on_thread(t, allocate, &allocated, true);
    EQUAL(allocated.result, CUDA_SUCCESS);
    rpt_expect_intact(t, stream);
}

/* A thread that has said that it knows what it does may do it, whatever the capture's mode. */
void case_capture_relaxed_thread_may_allocate(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    struct allocated allocated = {.relax = true};
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    allocate(t, &allocated);
    EQUAL(allocated.result, CUDA_SUCCESS);
    rpt_on_thread(t, allocate, &allocated, true);
    EQUAL(allocated.result, CUDA_SUCCESS);
    rpt_expect_intact(t, stream);
}

/* Events that no capture knows may be asked after by a relaxed thread. */
void case_capture_relaxed_thread_may_query_events(struct rpt *t)
{
    CUstream stream = rpt_stream(t), other = rpt_stream(t);
    CUevent event = rpt_event(t);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuEventRecord(event, other));
    OK(cuStreamSynchronize(other));
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuEventQuery(event));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    rpt_expect_intact(t, stream);
}
