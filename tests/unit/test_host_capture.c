/* SPDX-License-Identifier: MIT
 *
 * The host driver: capture, and every way that it can end in an error.
 */
#include "host_kernels.h"

static struct host_fixture f;
static CUstream a, b;
static CUevent event, second;
static CUdeviceptr x;

static int open_driver(void **state)
{
    (void)state;
    host_open(&f);
    OK(f.d->cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(f.d->cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(f.d->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(f.d->cuEventCreate(&second, CU_EVENT_DISABLE_TIMING));
    OK(f.d->cuMemAlloc(&x, 1 << 20));
    return 0;
}

static int close_driver(void **state)
{
    (void)state;
    rpi_host_reset();
    struct rpi_host_statistics s;
    rpi_host_statistics(&s);
    return s.graphs || s.execs || s.streams || s.events || s.captures || s.physical_bytes;
}

static void begin(CUstream stream)
{
    OK(f.d->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
}

/* Ends a lost capture: 901, no graph, and the stream is ordinary again. */
static void end_lost(CUstream stream)
{
    CUstreamCaptureStatus status;
    CUgraph graph = (CUgraph)1;
    OK(f.d->cuStreamIsCapturing(stream, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    assert_int_equal(host_add(&f, stream, x, x, 1, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(f.d->cuStreamEndCapture(stream, &graph),
                     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_null(graph);
    OK(host_add(&f, stream, x, x, 1, 1));
}

static void forks_and_joins_become_edges(void **state)
{
    (void)state;
    begin(a);
    OK(host_add(&f, a, x, x, 1, 1));
    OK(f.d->cuEventRecord(event, a));
    OK(f.d->cuStreamWaitEvent(b, event, 0));
    OK(host_add(&f, b, x + 64, x, 1, 1));
    OK(host_add(&f, a, x + 128, x, 1, 1));
    OK(f.d->cuEventRecord(event, b));
    OK(f.d->cuStreamWaitEvent(a, event, 0));
    CUstreamCaptureStatus status;
    const CUgraphNode *terminals;
    const CUgraphEdgeData *data;
    size_t count;
    cuuint64_t id = 0;
    CUgraph during, graph;
    OK(f.d->cuStreamGetCaptureInfo(a, &status, &id, &during, &terminals, &data, &count));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_int_equal(count, 2);
    assert_true(id != 0);
    OK(host_add(&f, a, x, x + 64, 1, 1));
    OK(f.d->cuStreamEndCapture(a, &graph));
    assert_ptr_equal(graph, during);
    CUgraphNode nodes[8], from[8], to[8];
    CUgraphEdgeData edges[8];
    count = 8;
    OK(f.d->cuGraphGetNodes(graph, nodes, &count));
    assert_int_equal(count, 4);
    assert_null(nodes[4]);
    count = 8;
    OK(f.d->cuGraphGetEdges(graph, from, to, edges, &count));
    assert_int_equal(count, 4);
    count = 8;
    OK(f.d->cuGraphNodeGetDependencies(nodes[3], from, NULL, &count));
    assert_int_equal(count, 2);
    CUstreamCaptureStatus after;
    OK(f.d->cuStreamIsCapturing(b, &after));
    assert_int_equal(after, CU_STREAM_CAPTURE_STATUS_NONE);
    OK(f.d->cuGraphDestroy(graph));
}

static void unsupported(void **state)
{
    (void)state;
    CUdeviceptr y;
    begin(a);
    assert_int_equal(f.d->cuStreamSynchronize(a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_lost(a);
    begin(a);
    assert_int_equal(f.d->cuStreamQuery(a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_lost(a);
    begin(a);
    assert_int_equal(f.d->cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_lost(a);
    begin(a);
    assert_int_equal(f.d->cuMemAlloc(&y, 16), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_lost(a);
    begin(a); /* waiting for other work is as unsafe as allocating */
    assert_int_equal(f.d->cuStreamSynchronize(b), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_lost(a);
    CUgraph graph;
    CUgraphExec exec;
    begin(a);
    OK(f.d->cuStreamEndCapture(a, &graph));
    OK(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    begin(a); /* seen on an H100: PyTorch's graphs that are deleted in a capture end it */
    assert_int_equal(f.d->cuGraphExecDestroy(exec), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_lost(a);
    OK(f.d->cuGraphExecDestroy(exec));
    OK(f.d->cuGraphDestroy(graph));
    OK(f.d->cuEventRecord(event, b));
    begin(a);
    assert_int_equal(f.d->cuEventQuery(event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_lost(a);
    assert_int_equal(f.d->cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED),
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

static void virtual_memory_is_allowed(void **state)
{
    (void)state;
    const size_t bytes = 2 << 20;
    const CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle chunk;
    CUdeviceptr base;
    CUgraph graph;
    begin(a);
    OK(f.d->cuMemCreate(&chunk, bytes, &property, 0));
    OK(f.d->cuMemAddressReserve(&base, 2 * bytes, 0, 0, 0));
    OK(f.d->cuMemMap(base, bytes, 0, chunk, 0));
    OK(f.d->cuMemSetAccess(base, bytes, &access, 1));
    OK(f.d->cuMemsetD8Async(base, 1, 64, a));
    OK(f.d->cuStreamEndCapture(a, &graph));
    CUgraphExec exec;
    OK(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(f.d->cuGraphExecDestroy(exec));
    OK(f.d->cuGraphDestroy(graph));
    begin(a);
    OK(f.d->cuMemsetD8Async(base + bytes, 1, 64, a)); /* not mapped: seen when instantiated */
    OK(f.d->cuStreamEndCapture(a, &graph));
    assert_int_equal(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    OK(f.d->cuGraphDestroy(graph));
}

struct other_thread {
    CUstreamCaptureMode mode;
    CUresult result;
    CUstream end;
};

static void *allocate_elsewhere(void *argument)
{
    struct other_thread *t = argument;
    CUdeviceptr y = 0;
    CUgraph graph;
    OK(f.d->cuCtxSetCurrent(f.context));
    OK(f.d->cuThreadExchangeStreamCaptureMode(&t->mode));
    t->result = t->end ? f.d->cuStreamEndCapture(t->end, &graph) : f.d->cuMemAlloc(&y, 16);
    return NULL;
}

static CUresult elsewhere(CUstreamCaptureMode thread_mode, CUstream end)
{
    struct other_thread t = {.mode = thread_mode, .end = end};
    pthread_t thread;
    pthread_create(&thread, NULL, allocate_elsewhere, &t);
    pthread_join(thread, NULL);
    return t.result;
}

static void modes_decide_what_is_unsafe(void **state)
{
    (void)state;
    enum { GLOBAL, LOCAL, RELAXED };
    /* [mode of the capture][mode of the other thread] */
    static const bool fails[3][3] = {{true, false, false}, {false}, {false}};
    for (int capture = GLOBAL; capture <= RELAXED; capture++) {
        for (int mode = GLOBAL; mode <= RELAXED; mode++) {
            CUgraph graph;
            OK(f.d->cuStreamBeginCapture(a, (CUstreamCaptureMode)capture));
            CUresult result = elsewhere((CUstreamCaptureMode)mode, NULL);
            assert_int_equal(result, fails[capture][mode] ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                                          : CUDA_SUCCESS);
            if (result) {
                end_lost(a);
            } else {
                OK(f.d->cuStreamEndCapture(a, &graph));
                OK(f.d->cuGraphDestroy(graph));
            }
        }
    }
    /* The capturing thread itself: free to allocate if either is relaxed. */
    CUdeviceptr y;
    CUgraph graph;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    begin(a);
    OK(f.d->cuThreadExchangeStreamCaptureMode(&mode));
    OK(f.d->cuMemAlloc(&y, 16));
    OK(f.d->cuMemFree(y));
    OK(f.d->cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(f.d->cuStreamEndCapture(a, &graph));
    OK(f.d->cuGraphDestroy(graph));
    OK(f.d->cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    assert_int_equal(f.d->cuMemAlloc(&y, 16), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_lost(a);
}

static void merge(void **state)
{
    (void)state;
    begin(a);
    begin(b);
    OK(host_add(&f, b, x, x, 1, 1));
    OK(f.d->cuEventRecord(event, b));
    assert_int_equal(f.d->cuStreamWaitEvent(a, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    end_lost(a);
    end_lost(b);
}

static void unmatched(void **state)
{
    (void)state;
    CUgraph graph;
    begin(a);
    OK(f.d->cuEventRecord(event, a));
    OK(f.d->cuStreamWaitEvent(b, event, 0));
    assert_int_equal(f.d->cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    assert_int_equal(f.d->cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(f.d->cuStreamEndCapture(a, &graph), CUDA_ERROR_ILLEGAL_STATE);
}

static void unjoined(void **state)
{
    (void)state;
    CUgraph graph;
    begin(a);
    OK(host_add(&f, a, x, x, 1, 1));
    OK(f.d->cuEventRecord(event, a));
    OK(f.d->cuStreamWaitEvent(b, event, 0));
    OK(host_add(&f, b, x, x, 1, 1));
    OK(f.d->cuEventRecord(event, b));
    OK(f.d->cuStreamWaitEvent(a, event, 0));
    OK(host_add(&f, b, x, x, 1, 1)); /* after the join */
    assert_int_equal(f.d->cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    assert_null(graph);
    /* A fork that did nothing needs no join. */
    begin(a);
    OK(host_add(&f, a, x, x, 1, 1));
    OK(f.d->cuEventRecord(event, a));
    OK(f.d->cuStreamWaitEvent(b, event, 0));
    OK(f.d->cuStreamEndCapture(a, &graph));
    OK(f.d->cuGraphDestroy(graph));
}

static void isolation(void **state)
{
    (void)state;
    OK(f.d->cuEventRecord(event, b));
    begin(a);
    assert_int_equal(f.d->cuStreamWaitEvent(a, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    end_lost(a);
}

static void implicit(void **state)
{
    (void)state;
    CUstream blocking;
    CUgraph graph;
    CUstreamCaptureStatus status;
    OK(f.d->cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    begin(blocking);
    assert_int_equal(f.d->cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_int_equal(host_add(&f, NULL, x, x, 1, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_int_equal(f.d->cuStreamEndCapture(blocking, &graph),
                     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(a); /* does not block */
    OK(host_add(&f, NULL, x, x, 1, 1));
    OK(f.d->cuStreamEndCapture(a, &graph));
    OK(f.d->cuGraphDestroy(graph));
}

static void captured_event(void **state)
{
    (void)state;
    begin(a);
    OK(f.d->cuEventRecord(event, a));
    assert_int_equal(f.d->cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
    end_lost(a);
    begin(a);
    OK(f.d->cuEventRecord(event, a));
    assert_int_equal(f.d->cuEventSynchronize(event), CUDA_ERROR_CAPTURED_EVENT);
    end_lost(a);
    OK(f.d->cuEventRecord(event, a));
    OK(f.d->cuEventSynchronize(event));
}

static void wrong_thread(void **state)
{
    (void)state;
    begin(a);
    assert_int_equal(elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL, a),
                     CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    CUgraph graph;
    assert_int_equal(f.d->cuStreamEndCapture(a, &graph), CUDA_ERROR_ILLEGAL_STATE);
    OK(host_add(&f, a, x, x, 1, 1)); /* the capture is over */
    OK(f.d->cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL, a));
}

static void dependencies_can_be_set(void **state)
{
    (void)state;
    CUgraph graph;
    CUstreamCaptureStatus status;
    CUgraphNode node, extra, nodes[4];
    size_t count;
    begin(a);
    assert_int_equal(f.d->cuStreamUpdateCaptureDependencies(b, NULL, NULL, 0, 0),
                     CUDA_ERROR_ILLEGAL_STATE);
    OK(host_add(&f, a, x, x, 1, 1));
    OK(f.d->cuStreamGetCaptureInfo(a, &status, NULL, &graph, NULL, NULL, NULL));
    OK(f.d->cuGraphAddEmptyNode(&extra, graph, NULL, 0));
    OK(f.d->cuStreamUpdateCaptureDependencies(a, &extra, NULL, 1,
                                              CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    OK(host_add(&f, a, x, x, 1, 1));
    OK(f.d->cuStreamUpdateCaptureDependencies(a, &extra, NULL, 1,
                                              CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    OK(host_add(&f, a, x, x, 1, 1));
    assert_int_equal(f.d->cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    OK(f.d->cuStreamEndCapture(a, &graph));
    count = 4;
    OK(f.d->cuGraphGetNodes(graph, nodes, &count));
    assert_int_equal(count, 4);
    OK(f.d->cuGraphNodeGetDependencies(nodes[2], NULL, NULL, &count));
    assert_int_equal(count, 2);
    count = 1;
    OK(f.d->cuGraphNodeGetDependencies(nodes[3], &node, NULL, &count));
    assert_int_equal(count, 1);
    assert_ptr_equal(node, extra);
    OK(f.d->cuGraphDestroy(graph));
}

static CUresult launch_programmatic(CUstream stream)
{
    CUdeviceptr out = x;
    uint32_t bytes = 4;
    void *params[] = {&out, &bytes};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config = {.gridDimX = 1,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream,
                             .attrs = &attribute,
                             .numAttrs = 1};
    return f.d->cuLaunchKernelEx(&config, f.touch, params, NULL);
}

static void programmatic_launch_gives_edge_data(void **state)
{
    (void)state;
    CUgraph graph;
    CUgraphNode from, to;
    CUgraphEdgeData data;
    size_t count = 1;
    begin(a);
    OK(host_touch(&f, f.touch, a, x, 4));
    OK(launch_programmatic(a));
    OK(f.d->cuStreamEndCapture(a, &graph));
    assert_int_equal(f.d->cuGraphGetEdges(graph, &from, &to, NULL, &count), CUDA_ERROR_LOSSY_QUERY);
    OK(f.d->cuGraphGetEdges(graph, &from, &to, &data, &count));
    assert_int_equal(data.type, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
    assert_int_equal(data.from_port, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
    CUgraphExec exec;
    OK(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(f.d->cuGraphLaunch(exec, a));
    OK(f.d->cuStreamSynchronize(a));
    struct rpi_host_race race;
    assert_int_equal(rpi_host_races(&race, 1), 0);
}

static void a_child_is_captured_by_hand(void **state)
{
    (void)state;
    CUgraph inner, outer, child;
    CUgraphExec exec, outer_exec;
    CUgraphNode node;
    CUgraphNodeType type;
    size_t count = 1;
    uint32_t out;
    begin(a);
    OK(host_add(&f, a, x, x, 3, 1));
    OK(f.d->cuStreamEndCapture(a, &inner));
    OK(f.d->cuGraphInstantiateWithFlags(&exec, inner, 0));
    begin(a);
    assert_int_equal(f.d->cuGraphLaunch(exec, a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    end_lost(a);
    OK(f.d->cuStreamSynchronize(a));
    CUgraph capturing;
    CUstreamCaptureStatus status;
    begin(a);
    OK(f.d->cuStreamGetCaptureInfo(a, &status, NULL, &capturing, NULL, NULL, NULL));
    OK(f.d->cuGraphAddChildGraphNode(&node, capturing, NULL, 0, inner));
    OK(f.d->cuStreamUpdateCaptureDependencies(a, &node, NULL, 1,
                                              CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    OK(f.d->cuStreamEndCapture(a, &outer));
    OK(f.d->cuGraphDestroy(inner));
    OK(f.d->cuGraphExecDestroy(exec));
    OK(f.d->cuGraphGetNodes(outer, &node, &count));
    OK(f.d->cuGraphNodeGetType(node, &type));
    assert_int_equal(type, CU_GRAPH_NODE_TYPE_GRAPH);
    OK(f.d->cuGraphChildGraphNodeGetGraph(node, &child));
    assert_int_equal(f.d->cuGraphDestroy(child), CUDA_ERROR_INVALID_VALUE);
    OK(f.d->cuGraphInstantiateWithFlags(&outer_exec, outer, 0));
    OK(f.d->cuMemsetD32Async(x, 4, 1, a));
    OK(f.d->cuGraphLaunch(outer_exec, a));
    OK(f.d->cuStreamSynchronize(a));
    OK(f.d->cuMemcpyDtoH(&out, x, 4));
    assert_int_equal(out, 7);
}

static void a_destroyed_stream_ends_its_capture(void **state)
{
    (void)state;
    CUgraph graph;
    begin(a);
    OK(f.d->cuEventRecord(event, a));
    OK(f.d->cuStreamWaitEvent(b, event, 0));
    OK(f.d->cuStreamDestroy(b));
    assert_int_equal(f.d->cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(a);
    OK(f.d->cuStreamDestroy(a));
    assert_int_equal(f.d->cuStreamEndCapture(a, &graph), CUDA_ERROR_INVALID_HANDLE);
    OK(f.d->cuCtxSynchronize());
}

static void capture_into_a_graph(void **state)
{
    (void)state;
    CUgraph graph, same;
    CUgraphNode first, nodes[2], before;
    size_t count = 2;
    OK(f.d->cuGraphCreate(&graph, 0));
    OK(f.d->cuGraphAddEmptyNode(&first, graph, NULL, 0));
    OK(f.d->cuStreamBeginCaptureToGraph(a, graph, &first, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(host_add(&f, a, x, x, 1, 1));
    OK(f.d->cuStreamEndCapture(a, &same));
    assert_ptr_equal(graph, same);
    OK(f.d->cuGraphGetNodes(graph, nodes, &count));
    assert_int_equal(count, 2);
    count = 1;
    OK(f.d->cuGraphNodeGetDependencies(nodes[1], &before, NULL, &count));
    assert_ptr_equal(before, first);
    /* A graph stays while something is captured into a child of it. */
    CUgraph outer, child;
    CUgraphNode holder;
    OK(f.d->cuGraphCreate(&outer, 0));
    OK(f.d->cuGraphAddChildGraphNode(&holder, outer, NULL, 0, graph));
    OK(f.d->cuGraphChildGraphNodeGetGraph(holder, &child));
    OK(f.d->cuStreamBeginCaptureToGraph(a, child, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(f.d->cuGraphDestroyNode(holder), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(f.d->cuGraphDestroy(outer), CUDA_ERROR_INVALID_VALUE);
    OK(f.d->cuStreamEndCapture(a, &same));
    assert_ptr_equal(child, same);
    OK(f.d->cuGraphDestroy(outer));
    /* Nor is anything captured into a child of what a capture may destroy. */
    CUstreamCaptureStatus status;
    begin(a);
    OK(f.d->cuStreamGetCaptureInfo(a, &status, NULL, &outer, NULL, NULL, NULL));
    OK(f.d->cuGraphAddChildGraphNode(&holder, outer, NULL, 0, graph));
    OK(f.d->cuGraphChildGraphNodeGetGraph(holder, &child));
    assert_int_equal(
        f.d->cuStreamBeginCaptureToGraph(b, child, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED),
        CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_driver, close_driver)
        TEST(forks_and_joins_become_edges),
        TEST(unsupported),
        TEST(virtual_memory_is_allowed),
        TEST(modes_decide_what_is_unsafe),
        TEST(merge),
        TEST(unmatched),
        TEST(unjoined),
        TEST(isolation),
        TEST(implicit),
        TEST(captured_event),
        TEST(wrong_thread),
        TEST(dependencies_can_be_set),
        TEST(programmatic_launch_gives_edge_data),
        TEST(a_child_is_captured_by_hand),
        TEST(a_destroyed_stream_ends_its_capture),
        TEST(capture_into_a_graph),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
