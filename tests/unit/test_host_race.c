/* SPDX-License-Identifier: MIT
 *
 * The race check of the host driver, by cases: two operations that read or write one range each, at
 * every distance, with an order between them or without, as nodes of one graph and as launches on
 * two streams. They race when the ranges overlap, one writes, and nothing orders them.
 */
#include "host_kernels.h"

static struct host_fixture f;
static CUstream streams[2];
static CUevent event;
static CUdeviceptr x;

static int open_driver(void **state)
{
    (void)state;
    host_open(&f);
    for (int i = 0; i < 2; i++)
        OK(f.d->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    OK(f.d->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(f.d->cuMemAlloc(&x, 4096));
    return 0;
}

static int close_driver(void **state)
{
    (void)state;
    rpi_host_reset();
    return 0;
}

struct access {
    bool writes;
    uint32_t from, bytes;
};

static const struct access pairs[][2] = {
    {{true, 0, 64}, {true, 0, 64}},    {{true, 0, 64}, {true, 63, 64}},
    {{true, 0, 64}, {true, 64, 64}},   {{true, 128, 64}, {true, 0, 129}},
    {{true, 128, 64}, {true, 0, 128}}, {{true, 0, 64}, {false, 0, 64}},
    {{true, 0, 64}, {false, 32, 64}},  {{true, 0, 64}, {false, 64, 64}},
    {{true, 32, 64}, {false, 0, 33}},  {{true, 32, 64}, {false, 0, 32}},
    {{true, 0, 256}, {false, 100, 1}}, {{true, 100, 1}, {false, 0, 256}},
    {{true, 0, 64}, {false, 4000, 4}}, {{false, 0, 64}, {false, 0, 64}},
    {{false, 0, 64}, {false, 32, 64}}, {{true, 8, 0}, {true, 0, 64}},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

static bool conflict(const struct access *a, const struct access *b)
{
    return (a->writes || b->writes) && a->bytes && b->bytes && a->from < b->from + b->bytes &&
           b->from < a->from + a->bytes;
}

static uint64_t races_of_all(void)
{
    struct rpi_host_statistics statistics;
    OK(f.d->cuCtxSynchronize());
    rpi_host_statistics(&statistics);
    rpi_host_races_clear();
    return statistics.races;
}

static CUgraphNode add_node(CUgraph graph, const CUgraphNode *before, const struct access *access)
{
    CUdeviceptr address = x + access->from;
    uint32_t bytes = access->bytes;
    void *params[] = {&address, &bytes};
    CUDA_KERNEL_NODE_PARAMS all = {.func = access->writes ? f.touch : f.look,
                                   .gridDimX = 1,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = 1,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .kernelParams = params};
    CUgraphNode node;
    OK(f.d->cuGraphAddKernelNode(&node, graph, before, before != NULL, &all));
    return node;
}

/* Two nodes; ordered: a third, which touches nothing, lies between them. */
static uint64_t races_in_a_graph(const struct access *a, const struct access *b, bool ordered)
{
    static const struct access nothing = {false, 0, 0};
    CUgraph graph;
    CUgraphExec exec;
    OK(f.d->cuGraphCreate(&graph, 0));
    CUgraphNode first = add_node(graph, NULL, a);
    CUgraphNode between = add_node(graph, &first, &nothing);
    add_node(graph, ordered ? &between : NULL, b);
    OK(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(f.d->cuGraphLaunch(exec, streams[0]));
    uint64_t races = races_of_all();
    OK(f.d->cuGraphExecDestroy(exec));
    OK(f.d->cuGraphDestroy(graph));
    return races;
}

static uint64_t races_on_streams(const struct access *a, const struct access *b, bool ordered)
{
    OK(host_touch(&f, a->writes ? f.touch : f.look, streams[0], x + a->from, a->bytes));
    if (ordered) {
        OK(f.d->cuEventRecord(event, streams[0]));
        OK(f.d->cuStreamWaitEvent(streams[1], event, 0));
    }
    OK(host_touch(&f, b->writes ? f.touch : f.look, streams[1], x + b->from, b->bytes));
    return races_of_all();
}

static void check_pairs(uint64_t (*races)(const struct access *, const struct access *, bool))
{
    for (int i = 0; i < PAIRS; i++)
        for (int swapped = 0; swapped < 2; swapped++) {
            const struct access *a = &pairs[i][swapped], *b = &pairs[i][!swapped];
            assert_int_equal(races(a, b, false), conflict(a, b));
            assert_int_equal(races(a, b, true), 0);
        }
}

static void nodes_of_a_graph_race(void **state)
{
    (void)state;
    check_pairs(races_in_a_graph);
}

static void launches_on_streams_race(void **state)
{
    (void)state;
    check_pairs(races_on_streams);
}

/* Three launches one after the other, with an event after the first and one after the second. */
static CUgraphExec graph_with_events(const CUevent events[2])
{
    CUgraph graph;
    CUgraphExec exec;
    CUstream s = streams[0];
    OK(f.d->cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (uint32_t i = 0; i < 3; i++) {
        OK(host_touch(&f, f.touch, s, x + 64 * i, 64));
        if (i < 2)
            OK(f.d->cuEventRecordWithFlags(events[i], s, CU_EVENT_RECORD_EXTERNAL));
    }
    OK(f.d->cuStreamEndCapture(s, &graph));
    OK(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(f.d->cuGraphDestroy(graph));
    return exec;
}

/* Who waits for an event within a graph comes after the nodes before it, and after no others. */
static void an_event_in_a_graph_orders_what_is_before_it(void **state)
{
    (void)state;
    CUevent events[2] = {event, NULL};
    OK(f.d->cuEventCreate(&events[1], CU_EVENT_DISABLE_TIMING));
    CUgraphExec exec = graph_with_events(events);
    for (int launch = 0; launch < 3; launch++)
        for (int waits = 0; waits < 3; waits++)
            for (uint32_t part = 0; part < 3; part++) {
                OK(f.d->cuGraphLaunch(exec, streams[0]));
                if (waits)
                    OK(f.d->cuStreamWaitEvent(streams[1], events[waits - 1], 0));
                OK(host_touch(&f, f.look, streams[1], x + 64 * part, 64));
                /* part 0 is before the first event, part 1 before the second, part 2 before none */
                assert_int_equal(races_of_all(), part >= (uint32_t)waits);
            }
    OK(f.d->cuGraphExecDestroy(exec));
    OK(f.d->cuEventDestroy(events[1]));
}

/* Of nodes side by side only the one that the event comes after is ordered by it. */
static void an_event_orders_its_branch_only(void **state)
{
    (void)state;
    CUgraph graph;
    CUgraphExec exec;
    CUevent fork;
    OK(f.d->cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    OK(f.d->cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(f.d->cuEventRecord(fork, streams[0]));
    OK(f.d->cuStreamWaitEvent(streams[1], fork, 0));
    OK(host_touch(&f, f.touch, streams[1], x + 64, 64));
    OK(host_touch(&f, f.touch, streams[0], x, 64));
    OK(f.d->cuEventRecordWithFlags(event, streams[0], CU_EVENT_RECORD_EXTERNAL));
    OK(f.d->cuEventRecord(fork, streams[1]));
    OK(f.d->cuStreamWaitEvent(streams[0], fork, 0));
    OK(f.d->cuStreamEndCapture(streams[0], &graph));
    OK(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (uint32_t part = 0; part < 2; part++) {
        OK(f.d->cuGraphLaunch(exec, streams[0]));
        OK(f.d->cuStreamWaitEvent(streams[1], event, 0));
        OK(host_touch(&f, f.touch, streams[1], x + 64 * part, 64));
        assert_int_equal(races_of_all(), part);
    }
    OK(f.d->cuGraphExecDestroy(exec));
    OK(f.d->cuGraphDestroy(graph));
    OK(f.d->cuEventDestroy(fork));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_driver, close_driver)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nodes_of_a_graph_race),
        TEST(launches_on_streams_race),
        TEST(an_event_in_a_graph_orders_what_is_before_it),
        TEST(an_event_orders_its_branch_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
