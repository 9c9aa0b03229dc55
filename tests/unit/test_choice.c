/* SPDX-License-Identifier: MIT
 *
 * Arguments that could be bound and are copied by choice: of a caller within the library, for all
 * of a graph.
 */
#include "graph_fixture.h"

#include "graph/exec.h"

enum { COUNT = 256, BYTES = COUNT * sizeof(float), SETS = 3, ARGS = 3 };

static struct rpt_fixture fixture;

static int open_fixture(void **state)
{
    rpt_open(&fixture);
    *state = &fixture;
    return 0;
}

static int close_fixture(void **state)
{
    rpt_close(*state);
    return 0;
}

/* y = 2 x, z += x. */
static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct rpt_fixture *f = user;
    CUstream s = rp_call_stream(call);
    rp_status status = rpt_scale(f, s, rp_call_arg(call, 1), rp_call_arg(call, 0), 2, COUNT, err);
    if (status != RP_OK)
        return status;
    return rpt_saxpy(f, s, rp_call_arg(call, 2), rp_call_arg(call, 0), 1, COUNT, err);
}

struct buffers {
    CUdeviceptr memory;
    struct rp_arg args[SETS][ARGS];
    unsigned replays[SETS];
};

static void buffers_init(const struct rpt_fixture *f, struct buffers *b)
{
    static const enum rp_arg_role roles[] = {RP_ARG_IN, RP_ARG_OUT, RP_ARG_INOUT};
    memset(b, 0, sizeof *b);
    assert_int_equal(f->driver->cuMemAlloc(&b->memory, (size_t)SETS * ARGS * BYTES), 0);
    for (uint32_t i = 0; i < SETS * ARGS; i++) {
        uint64_t address = b->memory + (uint64_t)i * BYTES;
        b->args[i / ARGS][i % ARGS] = rpt_arg(address, COUNT, roles[i % ARGS]);
        assert_int_equal(f->driver->cuMemsetD32(address, 0x3f800000, COUNT), 0);
    }
    assert_int_equal(f->driver->cuCtxSynchronize(), 0);
}

static void replay(struct rpt_fixture *f, struct rp_graph *graph, struct buffers *b, size_t set)
{
    RPT_OK(f, rp_graph_replay(graph, b->args[set], ARGS, NULL, &f->err));
    b->replays[set]++;
}

static void buffers_finish(const struct rpt_fixture *f, struct buffers *b)
{
    float values[COUNT];
    assert_int_equal(f->driver->cuCtxSynchronize(), 0);
    for (size_t set = 0; set < SETS; set++) {
        const float expected[ARGS] = {1, b->replays[set] ? 2 : 1, 1 + (float)b->replays[set]};
        for (size_t k = 0; k < ARGS; k++) {
            uint64_t from = b->args[set][k].address;
            assert_int_equal(f->driver->cuMemcpyDtoH(values, from, BYTES), 0);
            for (size_t i = 0; i < COUNT; i++)
                assert_true(values[i] == expected[k]);
        }
    }
    f->driver->cuMemFree(b->memory);
}

static void check_args(const struct rpt_fixture *f, const struct rp_graph *graph, size_t copied)
{
    struct rp_graph_info info;
    rp_graph_info(graph, &info);
    assert_int_equal(info.bindable_args, ARGS);
    assert_int_equal(info.copied_args, copied);
    assert_int_equal(info.bound_args, ARGS - copied);
    for (size_t k = 0; k < ARGS; k++) {
        struct rp_graph_arg_info arg;
        RPT_OK(f, rp_graph_arg_info(graph, k, &arg, NULL));
        assert_true(arg.bindable);
        assert_int_equal(arg.bound, !copied);
        assert_true(!arg.reason == !copied);
        if (copied)
            assert_string_equal(arg.reason, rpi_copy_reason_text(RPI_COPY_CHOSEN));
    }
}

static void all_are_copied_where_a_caller_says_so(void **state)
{
    struct rpt_fixture *f = *state;
    struct buffers b;
    struct rp_graph *graph;
    buffers_init(f, &b);
    RPT_OK(f, rp_graph_capture(f->pool, NULL, work, f, b.args[0], ARGS, &graph, &f->err));
    replay(f, graph, &b, 0);
    check_args(f, graph, 0);
    uint64_t before = graph->exec->patched;
    rpi_graph_copy_args(graph, true);
    replay(f, graph, &b, 0); /* the addresses of the last call, which are let go of */
    check_args(f, graph, ARGS);
    assert_int_equal(graph->exec->patched, before + 2);
    for (size_t i = 0; i < 6; i++)
        replay(f, graph, &b, i % SETS);
    check_args(f, graph, ARGS);
    assert_int_equal(graph->exec->patched, before + 2); /* nothing is changed any more */
    rpi_graph_copy_args(graph, false);
    replay(f, graph, &b, 1);
    check_args(f, graph, 0);
    assert_int_equal(graph->exec->patched, before + 4);
    rp_graph_destroy(graph);
    buffers_finish(f, &b);
}

static void all_are_bound_where_there_is_no_memory_to_copy_to(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    struct buffers b;
    struct rp_pool *small;
    struct rp_graph *graph;
    options.limit_bytes = BYTES;
    buffers_init(f, &b);
    RPT_OK(f, rp_pool_create(f->device, &options, &small, &f->err));
    RPT_OK(f, rp_graph_capture(small, NULL, work, f, b.args[0], ARGS, &graph, &f->err));
    rpi_graph_copy_args(graph, true);
    for (size_t i = 0; i < 6; i++) {
        replay(f, graph, &b, i % SETS);
        check_args(f, graph, 0);
    }
    rp_graph_destroy(graph);
    rp_pool_destroy(small);
    buffers_finish(f, &b);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_are_copied_where_a_caller_says_so),
        TEST(all_are_bound_where_there_is_no_memory_to_copy_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
