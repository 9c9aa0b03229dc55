/* SPDX-License-Identifier: MIT
 *
 * What a replay costs, counted in calls to the driver: a fixed number, one for each node that uses
 * an argument whose address changed, one for each copy. Whatever the size of the graph.
 */
#include "graph_fixture.h"

enum { COUNT = 64, BYTES = COUNT * sizeof(float), MOST_ARGS = 8, MOST_KERNELS = 200 };
/* Asking for the context and for a capture, the launch, the event behind it; of a stream that the
 * last replay was not on, whose it is, and a wait where there was one. */
enum { FIXED_CALLS = 4, PUSH_AND_POP = 2, NEW_STREAM = 1, WAIT = 1 };

static struct rpt_fixture fixture;

static int open_fixture(void **state)
{
    rpt_open_on(&fixture, rpi_driver_fault(rpi_driver_host()), NULL);
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    *state = &fixture;
    return 0;
}

/* Kernel j adds argument (j + 1) mod args to argument j mod args. */
struct chain {
    struct rpt_fixture *f;
    size_t kernels, args;
    struct rp_arg list[3][MOST_ARGS]; /* three sets of buffers */
    struct rp_graph *graph;
};

static rp_status run_chain(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct chain *c = user;
    rp_status status = RP_OK;
    for (size_t j = 0; status == RP_OK && j < c->kernels; j++)
        status = rpt_saxpy(c->f, rp_call_stream(call), rp_call_arg(call, j % c->args),
                           rp_call_arg(call, (j + 1) % c->args), 1, COUNT, err);
    return status;
}

/* Another graph has been replayed with them: the driver is asked about new memory once. */
static void know_buffers(struct chain *c)
{
    struct rpt_fixture *f = c->f;
    struct rp_graph *graph;
    RPT_OK(f, rp_graph_capture(f->pool, NULL, run_chain, c, c->list[0], c->args, &graph, &f->err));
    for (int i = 0; i < 3; i++)
        RPT_OK(f, rp_graph_replay(graph, c->list[i], c->args, NULL, &f->err));
    rp_graph_destroy(graph);
}

static void chain_init(struct chain *c, struct rpt_fixture *f, size_t kernels, size_t args)
{
    *c = (struct chain){.f = f, .kernels = kernels, .args = args};
    for (size_t k = 0; k < 3 * args; k++) {
        CUdeviceptr memory;
        assert_int_equal(f->driver->cuMemAlloc(&memory, BYTES + 16), 0);
        assert_int_equal(f->driver->cuMemsetD8(memory, 0, BYTES + 16), 0);
        c->list[k % 3][k / 3] = rpt_arg(memory, COUNT, RP_ARG_INOUT);
    }
    assert_int_equal(f->driver->cuCtxSynchronize(), 0);
    know_buffers(c);
    RPT_OK(f, rp_graph_capture(f->pool, NULL, run_chain, c, c->list[0], args, &c->graph, &f->err));
}

static void chain_finish(struct chain *c)
{
    assert_int_equal(c->f->driver->cuCtxSynchronize(), 0);
    rp_graph_destroy(c->graph);
    for (size_t k = 0; k < 3 * c->args; k++)
        c->f->driver->cuMemFree(c->list[k % 3][k / 3].address);
}

/* Calls that one replay made. */
static uint64_t calls_of(struct chain *c, const struct rp_arg *args, CUstream stream)
{
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    RPT_OK(c->f, rp_graph_replay(c->graph, args, c->args, stream, &c->f->err));
    return rpi_driver_fault_calls();
}

static void a_replay_takes_a_call_for_each_changed_node(void **state)
{
    struct rpt_fixture *f = *state;
    static const size_t shapes[][2] = {{1, 1}, {10, 4}, {MOST_KERNELS, MOST_ARGS}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct chain c;
        size_t kernels = shapes[i][0], args = shapes[i][1];
        chain_init(&c, f, kernels, args);
        CUstream s = f->streams[0];
        /* From the places of the capture, all nodes; then none; then those of one argument. */
        assert_int_equal(calls_of(&c, c.list[0], s), FIXED_CALLS + NEW_STREAM + kernels);
        assert_int_equal(calls_of(&c, c.list[0], s), FIXED_CALLS);
        assert_int_equal(calls_of(&c, c.list[1], s), FIXED_CALLS + kernels);
        assert_int_equal(calls_of(&c, c.list[1], s), FIXED_CALLS);
        struct rp_arg one[MOST_ARGS];
        memcpy(one, c.list[1], sizeof one);
        one[0] = c.list[2][0];
        size_t users = 0;
        for (size_t j = 0; j < kernels; j++)
            users += j % args == 0 || (j + 1) % args == 0;
        assert_int_equal(calls_of(&c, one, s), FIXED_CALLS + users);
        assert_int_equal(calls_of(&c, one, s), FIXED_CALLS);
        chain_finish(&c);
    }
}

static void copies_take_one_call_each_way(void **state)
{
    struct rpt_fixture *f = *state;
    struct chain c;
    chain_init(&c, f, 10, 4);
    CUstream s = f->streams[0];
    calls_of(&c, c.list[0], s);
    struct rp_arg args[MOST_ARGS];
    memcpy(args, c.list[0], sizeof args);
    args[2].address += 16; /* not aligned: copied in and out; five kernels use it */
    calls_of(&c, args, s); /* takes the memory that it is copied to */
    calls_of(&c, c.list[0], s);
    assert_int_equal(calls_of(&c, args, s), FIXED_CALLS + 5 + 2);
    assert_int_equal(calls_of(&c, args, s), FIXED_CALLS + 2);
    chain_finish(&c);
}

static void contexts_and_streams_cost_what_they_must(void **state)
{
    struct rpt_fixture *f = *state;
    struct chain c;
    chain_init(&c, f, 10, 4);
    calls_of(&c, c.list[0], f->streams[0]);
    assert_int_equal(calls_of(&c, c.list[0], f->streams[1]), FIXED_CALLS + NEW_STREAM + WAIT);
    assert_int_equal(calls_of(&c, c.list[0], f->streams[1]), FIXED_CALLS);
    CUcontext popped;
    assert_int_equal(f->driver->cuCtxPopCurrent(&popped), 0);
    assert_int_equal(calls_of(&c, c.list[0], f->streams[1]), FIXED_CALLS + PUSH_AND_POP);
    CUcontext current = popped;
    assert_int_equal(f->driver->cuCtxGetCurrent(&current), 0);
    assert_null(current); /* as before the call */
    assert_int_equal(f->driver->cuCtxPushCurrent(popped), 0);
    chain_finish(&c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fixture, rpt_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_replay_takes_a_call_for_each_changed_node),
        TEST(copies_take_one_call_each_way),
        TEST(contexts_and_streams_cost_what_they_must),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
