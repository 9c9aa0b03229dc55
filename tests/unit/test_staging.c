/* SPDX-License-Identifier: MIT
 *
 * Where arguments are copied to: no memory until a call copies, shared by graphs that never run at
 * the same time, apart for those that may, given back with the last graph, counted by the limit.
 */
#include "graph_fixture.h"

#include "graph/bind/bind.h"
#include "rare_addresses.h"

enum { COUNT = 1024, BYTES = COUNT * sizeof(float), PAGE = 2097152 };

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
    struct rp_arg args[3];
};

/* shift: of every address, from an aligned one. */
static void buffers_init(const struct rpt_fixture *f, struct buffers *b, uint64_t shift)
{
    static const enum rp_arg_role roles[] = {RP_ARG_IN, RP_ARG_OUT, RP_ARG_INOUT};
    assert_int_equal(f->driver->cuMemAlloc(&b->memory, 3 * (BYTES + 512)), 0);
    for (uint64_t k = 0; k < 3; k++) {
        b->args[k] = rpt_arg(b->memory + k * (BYTES + 512) + shift, COUNT, roles[k]);
        assert_int_equal(f->driver->cuMemsetD32(b->args[k].address, 0x3f800000, COUNT), 0);
    }
    assert_int_equal(f->driver->cuCtxSynchronize(), 0);
}

/* After so many replays. */
static void buffers_check(const struct rpt_fixture *f, const struct buffers *b, int replays)
{
    float values[COUNT];
    assert_int_equal(f->driver->cuCtxSynchronize(), 0);
    for (uint32_t k = 0; k < 3; k++) {
        assert_int_equal(f->driver->cuMemcpyDtoH(values, b->args[k].address, BYTES), 0);
        for (uint32_t i = 0; i < COUNT; i++)
            assert_true(values[i] == (k == 0 ? 1 : (k == 1 ? 2 : 1 + (float)replays)));
    }
}

static struct rp_graph *capture(struct rpt_fixture *f, struct rp_pool *pool, struct rp_arg *args)
{
    struct rp_graph *graph = NULL;
    RPT_OK(f, rp_graph_capture(pool, NULL, work, f, args, 3, &graph, &f->err));
    return graph;
}

static uint64_t staging_of_pool(const struct rp_pool *pool)
{
    struct rp_pool_info info = {.size = sizeof info};
    rp_pool_info(pool, &info);
    return info.staging_bytes;
}

static uint64_t staging_of_graph(const struct rp_graph *graph)
{
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(graph, &info);
    return info.staging_bytes;
}

static uint64_t physical_bytes(void)
{
    struct rpi_host_statistics now;
    rpi_host_statistics(&now);
    return now.physical_bytes;
}

static void memory_comes_with_the_first_copy(void **state)
{
    struct rpt_fixture *f = *state;
    struct buffers aligned, shifted;
    buffers_init(f, &aligned, 0);
    buffers_init(f, &shifted, 16);
    struct rp_graph *graph = capture(f, f->pool, aligned.args);
    uint64_t before = physical_bytes();
    RPT_OK(f, rp_graph_replay(graph, aligned.args, 3, NULL, &f->err));
    buffers_check(f, &aligned, 1);
    assert_int_equal(staging_of_pool(f->pool), 0);
    assert_int_equal(staging_of_graph(graph), 0);
    assert_int_equal(physical_bytes(), before);
    RPT_OK(f, rp_graph_replay(graph, shifted.args, 3, NULL, &f->err));
    RPT_OK(f, rp_graph_replay(graph, aligned.args, 3, NULL, &f->err));
    RPT_OK(f, rp_graph_replay(graph, shifted.args, 3, NULL, &f->err));
    buffers_check(f, &shifted, 2);
    buffers_check(f, &aligned, 2);
    assert_int_equal(staging_of_pool(f->pool), PAGE);
    assert_int_equal(staging_of_graph(graph), 3 * BYTES);
    assert_int_equal(physical_bytes(), before + PAGE);
    rp_graph_destroy(graph);
    assert_int_equal(staging_of_pool(f->pool), 0);
    assert_true(physical_bytes() <= before);
    f->driver->cuMemFree(aligned.memory);
    f->driver->cuMemFree(shifted.memory);
}

static void what_is_always_copied_has_memory_at_once(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct rp_graph *graph = NULL;
    struct buffers b;
    options.copy_args = 1;
    buffers_init(f, &b, 0);
    RPT_OK(f, rp_graph_capture(f->pool, &options, work, f, b.args, 3, &graph, &f->err));
    assert_int_equal(staging_of_pool(f->pool), PAGE);
    assert_int_equal(staging_of_graph(graph), 3 * BYTES);
    RPT_OK(f, rp_graph_replay(graph, b.args, 3, NULL, &f->err));
    buffers_check(f, &b, 1);
    rp_graph_destroy(graph);
    f->driver->cuMemFree(b.memory);
}

static void only_concurrent_graphs_are_kept_apart(void **state)
{
    struct rpt_fixture *f = *state;
    static const enum rp_pool_kind kinds[] = {RP_POOL_ALTERNATIVES, RP_POOL_SEQUENCE,
                                              RP_POOL_CONCURRENT};
    for (size_t i = 0; i < 3; i++) {
        struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
        struct rp_pool *pool = NULL;
        struct buffers b[2];
        struct rp_graph *graphs[2];
        options.kind = kinds[i];
        RPT_OK(f, rp_pool_create(f->device, &options, &pool, &f->err));
        for (int k = 0; k < 2; k++) {
            buffers_init(f, &b[k], 0);
            graphs[k] = capture(f, pool, b[k].args);
            b[k].args[0].address += 16; /* the last float lies behind the first 1,023 */
            b[k].args[0].bytes = BYTES;
            assert_int_equal(f->driver->cuMemsetD32(b[k].args[0].address, 0x3f800000, COUNT), 0);
        }
        const struct rpi_range *one = &graphs[0]->member.staging, *two = &graphs[1]->member.staging;
        bool apart = one->to <= two->from || two->to <= one->from;
        assert_int_equal(apart, kinds[i] == RP_POOL_CONCURRENT);
        assert_int_equal(f->driver->cuCtxSynchronize(), 0);
        for (int n = 0; n < 5; n++)
            for (int k = 0; k < 2; k++)
                RPT_OK(f, rp_graph_replay(graphs[k], b[k].args, 3, f->streams[k], &f->err));
        buffers_check(f, &b[0], 5);
        buffers_check(f, &b[1], 5);
        assert_int_equal(staging_of_pool(pool), PAGE);
        rp_graph_destroy(graphs[0]);
        assert_int_equal(staging_of_pool(pool), PAGE); /* the other one needs it */
        rp_graph_destroy(graphs[1]);
        rp_pool_destroy(pool);
        f->driver->cuMemFree(b[0].memory);
        f->driver->cuMemFree(b[1].memory);
    }
}

/* As those of callables that have a pool each: their addresses are not used up. */
static void many_pools_lie_high(void **state)
{
    struct rpt_fixture *f = *state;
    enum { POOLS = 40 };
    struct rp_pool *pools[POOLS];
    struct rp_graph *graphs[POOLS];
    struct buffers b;
    if (!RPT_LOWEST)
        skip();
    buffers_init(f, &b, 0);
    for (int i = 0; i < POOLS; i++) {
        RPT_OK(f, rp_pool_create(f->device, NULL, &pools[i], &f->err));
        graphs[i] = capture(f, pools[i], b.args);
        assert_in_range(pools[i]->core->staging.base >> 32, RPT_LOWEST, RPT_HIGHEST);
        assert_in_range(pools[i]->core->eager.base >> 32, RPT_LOWEST, RPT_HIGHEST);
    }
    for (int i = 0; i < POOLS; i++) {
        rp_graph_destroy(graphs[i]);
        rp_pool_destroy(pools[i]);
    }
    f->driver->cuMemFree(b.memory);
}

static void too_little_memory_refuses_the_call_only(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    struct rp_pool *pool = NULL;
    struct buffers aligned, shifted;
    options.limit_bytes = PAGE / 2; /* the graph has no blocks, so that it takes none */
    RPT_OK(f, rp_pool_create(f->device, &options, &pool, &f->err));
    buffers_init(f, &aligned, 0);
    buffers_init(f, &shifted, 16);
    struct rp_graph *graph = capture(f, pool, aligned.args);
    assert_int_equal(rp_graph_replay(graph, shifted.args, 3, NULL, &f->err), RP_ERROR_LIMIT);
    assert_int_equal(f->err.requested, PAGE);
    struct rpi_host_options before, few;
    rpi_host_options(&before);
    RPT_OK(f, rp_graph_replay(graph, aligned.args, 3, NULL, &f->err));
    buffers_check(f, &aligned, 1);
    rp_graph_destroy(graph);
    rp_pool_destroy(pool);
    graph = capture(f, f->pool, aligned.args);
    few = before;
    few.total_bytes = physical_bytes() + PAGE / 2;
    rpi_host_configure(&few);
    assert_int_equal(rp_graph_replay(graph, shifted.args, 3, NULL, &f->err),
                     RP_ERROR_OUT_OF_DEVICE_MEMORY);
    RPT_OK(f, rp_graph_replay(graph, aligned.args, 3, NULL, &f->err));
    rpi_host_configure(&before);
    RPT_OK(f, rp_graph_replay(graph, shifted.args, 3, NULL, &f->err));
    buffers_check(f, &shifted, 1);
    rp_graph_destroy(graph);
    f->driver->cuMemFree(aligned.memory);
    f->driver->cuMemFree(shifted.memory);
}

/* A graph that was captured with a lower alignment is bound at it. */
static void arguments_need_the_alignment_of_the_capture(void **state)
{
    struct rpt_fixture *f = *state;
    struct buffers at[3];
    static const uint64_t shifts[] = {16, 64, 8};
    struct rp_graph_arg_info info = {.size = sizeof info};
    for (int i = 0; i < 3; i++)
        buffers_init(f, &at[i], shifts[i]);
    struct rp_graph *graph = capture(f, f->pool, at[0].args);
    for (int i = 0; i < 3; i++) {
        RPT_OK(f, rp_graph_replay(graph, at[i].args, 3, NULL, &f->err));
        buffers_check(f, &at[i], 1);
        RPT_OK(f, rp_graph_arg_info(graph, 0, &info, &f->err));
        assert_int_equal(info.bound, shifts[i] >= 16);
    }
    rp_graph_destroy(graph);
    for (int i = 0; i < 3; i++)
        f->driver->cuMemFree(at[i].memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RPT_TEST(memory_comes_with_the_first_copy),
        RPT_TEST(what_is_always_copied_has_memory_at_once),
        RPT_TEST(only_concurrent_graphs_are_kept_apart),
        RPT_TEST(many_pools_lie_high),
        RPT_TEST(too_little_memory_refuses_the_call_only),
        RPT_TEST(arguments_need_the_alignment_of_the_capture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
