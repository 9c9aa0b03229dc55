/* SPDX-License-Identifier: MIT
 *
 * Random sequences of driver calls on living, dead and foreign handles: no call may crash, hang or
 * leave anything behind that a reset does not give back. The sanitizers watch.
 */
#include "host_kernels.h"

enum { SLOTS = 6, CALLS = 20000 };

static struct host_fixture f;
static uint64_t random_state;
static size_t succeeded, failed;

static struct {
    CUstream streams[SLOTS];
    CUevent events[SLOTS];
    CUgraph graphs[SLOTS];
    CUgraphNode nodes[SLOTS];
    CUgraphExec execs[SLOTS];
    CUdeviceptr memory[SLOTS];
} pool;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % below;
}

static CUstream any_stream(void)
{
    uint32_t kind = draw(20);
    if (kind == 0)
        return NULL;
    if (kind == 1)
        return CU_STREAM_PER_THREAD;
    return kind == 2 ? (CUstream)(void *)pool.graphs[draw(SLOTS)] : pool.streams[draw(SLOTS)];
}

#define ANY(what) pool.what[draw(SLOTS)]

static void count(CUresult result)
{
    assert_true(result != CUDA_ERROR_UNKNOWN);
    succeeded += result == CUDA_SUCCESS;
    failed += result != CUDA_SUCCESS;
}

static void pick_nodes(CUgraph graph)
{
    size_t room = SLOTS;
    CUgraphNode nodes[SLOTS];
    if (f.d->cuGraphGetNodes(graph, nodes, &room) == CUDA_SUCCESS && room)
        ANY(nodes) = nodes[draw((uint32_t)room)];
}

static void call_stream(uint32_t which)
{
    switch (which) {
    case 0:
        count(f.d->cuStreamCreate(&ANY(streams), draw(2)));
        break;
    case 1:
        if (draw(4) == 0)
            count(f.d->cuStreamDestroy(ANY(streams)));
        break;
    case 2:
        count(f.d->cuEventCreate(&ANY(events), draw(4)));
        break;
    case 3:
        if (draw(4) == 0)
            count(f.d->cuEventDestroy(ANY(events)));
        break;
    case 4:
        count(f.d->cuEventRecordWithFlags(ANY(events), any_stream(), draw(8) == 0));
        break;
    case 5:
        count(f.d->cuStreamWaitEvent(any_stream(), ANY(events), draw(8) == 0));
        break;
    case 6:
        if (draw(8) == 0)
            count(f.d->cuStreamSynchronize(any_stream()));
        break;
    case 7:
        if (draw(8) == 0)
            count(f.d->cuEventQuery(ANY(events)));
        break;
    case 8:
        count(host_touch(&f, f.touch, any_stream(), ANY(memory), draw(100)));
        break;
    default:
        count(f.d->cuMemsetD8Async(ANY(memory), 1, draw(5000), any_stream()));
        break;
    }
}

static void call_capture(uint32_t which)
{
    CUstreamCaptureStatus status;
    CUgraph graph = NULL;
    const CUgraphNode *nodes;
    const CUgraphEdgeData *edges;
    size_t room;
    CUgraphNode node = ANY(nodes);
    switch (which) {
    case 0:
        count(f.d->cuStreamBeginCapture(any_stream(), (CUstreamCaptureMode)draw(4)));
        break;
    case 1:
        count(f.d->cuStreamEndCapture(any_stream(), &graph));
        if (graph)
            ANY(graphs) = graph;
        break;
    case 2:
        count(f.d->cuStreamGetCaptureInfo(any_stream(), &status, NULL, &graph, &nodes,
                                          draw(2) ? &edges : NULL, &room));
        if (graph)
            pick_nodes(graph);
        break;
    case 3:
        count(f.d->cuStreamUpdateCaptureDependencies(any_stream(), &node, NULL, 1, draw(3)));
        break;
    default:
        count(f.d->cuStreamBeginCaptureToGraph(any_stream(), ANY(graphs), &node, NULL, draw(2),
                                               CU_STREAM_CAPTURE_MODE_RELAXED));
        break;
    }
}

static void call_graph(uint32_t which)
{
    CUgraphNode from = ANY(nodes), to = ANY(nodes);
    CUgraphEdgeData data = {.from_port = (unsigned char)draw(3), .type = (unsigned char)draw(2)};
    CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = ANY(memory), .pitch = 64, .elementSize = 1, .width = draw(70), .height = draw(3)};
    switch (which) {
    case 0:
        count(f.d->cuGraphCreate(&ANY(graphs), 0));
        break;
    case 1:
        count(f.d->cuGraphDestroy(ANY(graphs)));
        break;
    case 2:
        count(f.d->cuGraphAddEmptyNode(&ANY(nodes), ANY(graphs), &from, draw(2)));
        break;
    case 3:
        count(
            f.d->cuGraphAddMemsetNode(&ANY(nodes), ANY(graphs), &from, draw(2), &fill, f.context));
        break;
    case 4:
        if (draw(4) == 0) /* graphs in graphs grow as powers do */
            count(f.d->cuGraphAddChildGraphNode(&ANY(nodes), ANY(graphs), NULL, 0, ANY(graphs)));
        break;
    case 5:
        count(f.d->cuGraphAddDependencies(ANY(graphs), &from, &to, draw(2) ? &data : NULL, 1));
        break;
    case 6:
        count(f.d->cuGraphRemoveDependencies(ANY(graphs), &from, &to, draw(2) ? &data : NULL, 1));
        break;
    case 7:
        count(f.d->cuGraphDestroyNode(from));
        break;
    case 8:
        count(f.d->cuGraphClone(&ANY(graphs), ANY(graphs)));
        break;
    default:
        pick_nodes(ANY(graphs));
        break;
    }
}

static void call_exec(uint32_t which)
{
    CUgraphExecUpdateResultInfo info;
    CUDA_KERNEL_NODE_PARAMS params;
    switch (which) {
    case 0:
        count(f.d->cuGraphInstantiateWithFlags(&ANY(execs), ANY(graphs), 0));
        break;
    case 1:
        count(f.d->cuGraphExecDestroy(ANY(execs)));
        break;
    case 2:
        count(f.d->cuGraphExecUpdate(ANY(execs), ANY(graphs), &info));
        break;
    case 3:
        if (f.d->cuGraphKernelNodeGetParams(ANY(nodes), &params) == CUDA_SUCCESS)
            count(f.d->cuGraphExecKernelNodeSetParams(ANY(execs), ANY(nodes), &params));
        break;
    case 4:
        count(f.d->cuMemAlloc(&ANY(memory), 4096));
        break;
    case 5:
        if (draw(4) == 0)
            count(f.d->cuMemFree(ANY(memory)));
        break;
    default:
        count(f.d->cuGraphLaunch(ANY(execs), any_stream()));
        break;
    }
}

/* Everything in a slot that is overwritten is lost to the test, so a round is short. */
static void random_calls_do_no_harm(void **state)
{
    (void)state;
    /* Random programs race; one at a time, their operations do not race as the compiler means it.
     */
    struct rpi_host_options options = RPI_HOST_OPTIONS_INIT;
    options.threads = 1;
    rpi_host_configure(&options);
    for (uint64_t round = 0; round < 40; round++) {
        host_open(&f);
        memset(&pool, 0, sizeof pool);
        random_state = round;
        for (int i = 0; i < CALLS / 40; i++) {
            uint32_t group = draw(8);
            if (group < 3)
                call_stream(draw(12));
            else if (group == 3)
                call_capture(draw(5));
            else if (group < 6)
                call_graph(draw(10));
            else
                call_exec(draw(9));
        }
        rpi_host_reset();
        struct rpi_host_statistics s;
        rpi_host_statistics(&s);
        assert_int_equal(s.graphs + s.execs + s.streams + s.events + s.captures + s.pending, 0);
        assert_int_equal(s.physical_bytes + s.modules + s.allocations, 0);
    }
    assert_true(succeeded > CALLS / 10 && failed > CALLS / 10); /* both roads were walked */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_calls_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
