/* SPDX-License-Identifier: MIT
 *
 * Nodes of child graphs: their sites are listed as others are, their arguments are bound, also in
 * execs that change hands between graphs, and how deep they lie is part of a graph's topology.
 * test_bind.c binds arguments in child graphs too, in every way that calls may differ.
 */
#include "graph_fixture.h"

#include "graph/exec/exec_cache.h"
#include "reprise_tools.h"

#include <stdio.h>

enum { COUNT = 64, GRAPHS = 4, SETS = 5, MOST = COUNT + GRAPHS, ARGS = 3 };

static struct rpt_fixture f;

struct subject {
    uint32_t count;
    int depth;
};

struct places {
    uint64_t x, y, z, block;
    uint32_t count;
};

/* block = 2 x by a kernel, z = 1 by a fill, y = block by a copy. */
static rp_status enqueue(const struct rpt_fixture *fixture, CUstream s, const void *data,
                         struct rp_error *err)
{
    const struct places *p = data;
    rp_status status = rpt_scale(fixture, s, p->block, p->x, 2, p->count, err);
    CUresult result = CUDA_SUCCESS;
    if (status == RP_OK)
        result = fixture->driver->cuMemsetD32Async(p->z, 0x3f800000, p->count, s);
    if (status == RP_OK && result == CUDA_SUCCESS)
        result = fixture->driver->cuMemcpyDtoDAsync(p->y, p->block, p->count * 4, s);
    return result == CUDA_SUCCESS ? status : rpi_error_driver(err, result, "driver", "enqueuing");
}

/* The work within child graphs, then a kernel behind them: z += x. */
static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct subject *subject = user;
    CUstream s = rp_call_stream(call);
    struct places p = {.x = rp_call_arg(call, 0),
                       .y = rp_call_arg(call, 1),
                       .z = rp_call_arg(call, 2),
                       .count = subject->count};
    rp_status status = rp_call_alloc(call, p.count * 4, s, &p.block, err);
    if (status == RP_OK)
        status = rpt_within(&f, s, subject->depth, enqueue, &p, err);
    if (status == RP_OK)
        status = rpt_saxpy(&f, s, p.z, p.x, 1, p.count, err);
    return status == RP_OK ? rp_call_free(call, p.block, err) : status;
}

static void make_args(struct rp_arg args[ARGS], uint32_t count, float value)
{
    args[0] = rpt_arg(rpt_buffer(&f, count, value), count, RP_ARG_IN);
    args[1] = rpt_arg(rpt_buffer(&f, count, -1), count, RP_ARG_OUT);
    args[2] = rpt_arg(rpt_buffer(&f, count, -1), count, RP_ARG_OUT);
}

static void free_args(const struct rp_arg args[ARGS])
{
    for (size_t k = 0; k < ARGS; k++)
        f.driver->cuMemFree(args[k].address);
}

static struct rp_graph *capture(struct subject *subject)
{
    struct rp_arg args[ARGS];
    struct rp_graph *graph = NULL;
    make_args(args, subject->count, 1);
    RPT_OK(&f, rp_graph_capture(f.pool, NULL, work, subject, args, ARGS, &graph, &f.err));
    free_args(args);
    return graph;
}

static void check_outputs(const struct rp_arg args[ARGS], uint32_t count, float value)
{
    float y[MOST], z[MOST];
    rpt_read(&f, args[1].address, y, count);
    rpt_read(&f, args[2].address, z, count);
    for (uint32_t i = 0; i < count; i++) {
        float x = value + (float)(i % 7);
        assert_true(y[i] == 2 * x);
        assert_true(z[i] == 1 + x);
    }
}

/* ---- Sites --------------------------------------------------------------------------------- */

static void sites_of_nested_nodes_are_listed(void **state)
{
    (void)state;
    static const struct {
        size_t node;
        const char *kind, *function;
        int parameter, is_argument;
        size_t index;
    } expected[] = {
        /* 0: a kernel, 1: the child, 2: a kernel in it, 3: its child, 4 to 6: the work */
        {4, "kernel", "rpt_scale", 0, 0, 0}, {4, "kernel", "rpt_scale", 1, 1, 0},
        {5, "memset", "", -1, 1, 2},         {6, "memcpy", "", -1, 0, 0},
        {6, "memcpy", "", -1, 1, 1},         {7, "kernel", "rpt_saxpy", 0, 1, 2},
        {7, "kernel", "rpt_saxpy", 1, 1, 0},
    };
    enum { EXPECTED = sizeof expected / sizeof *expected };
    rpt_open(&f);
    struct subject subject = {COUNT, 2};
    struct rp_graph *graph = capture(&subject);
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(graph, &info);
    assert_int_equal(info.nodes, 3); /* of the template itself */
    assert_int_equal(info.sites, EXPECTED);
    assert_int_equal(info.bindable_args, ARGS);
    for (size_t i = 0; i < EXPECTED; i++) {
        struct rp_graph_site site = {.size = sizeof site};
        RPT_OK(&f, rp_graph_site(graph, i, &site, &f.err));
        assert_int_equal(site.node, expected[i].node);
        assert_string_equal(site.kind, expected[i].kind);
        assert_string_equal(site.function, expected[i].function);
        assert_int_equal(site.parameter, expected[i].parameter);
        assert_int_equal(site.is_argument, expected[i].is_argument);
        assert_int_equal(site.index, expected[i].index);
        assert_int_equal(site.delta, 0);
    }
    rp_graph_destroy(graph);
    rpt_close(&f);
}

/* ---- Execs that change hands --------------------------------------------------------------- */

/* Graphs of other sizes take turns in one exec, each call with buffers of its own: a node is found
 * by its number in the graph that the exec was made from, which is another one's. */
static void arguments_follow(int depth)
{
    struct subject subjects[GRAPHS];
    struct rp_graph *graphs[GRAPHS];
    struct rp_arg args[GRAPHS][SETS][ARGS];
    struct rp_device_exec_info info = {.size = sizeof info};
    rpt_open(&f);
    rpi_exec_cache_set_budget(f.device->execs, 1);
    for (uint32_t i = 0; i < GRAPHS; i++) {
        subjects[i] = (struct subject){COUNT + i, depth};
        graphs[i] = capture(&subjects[i]);
        for (size_t k = 0; k < SETS; k++)
            make_args(args[i][k], subjects[i].count, (float)k);
    }
    for (size_t step = 0; step < 60; step++) {
        size_t i = step * 7 / 3 % GRAPHS, k = step % SETS;
        struct rp_graph_info graph = {.size = sizeof graph};
        RPT_OK(&f, rp_graph_replay(graphs[i], args[i][k], ARGS, f.streams[0], &f.err));
        check_outputs(args[i][k], subjects[i].count, (float)k);
        rp_graph_info(graphs[i], &graph);
        assert_int_equal(graph.bound_args, ARGS);
    }
    rp_device_exec_info(f.device, &info);
    assert_int_equal(info.topologies, 1);
    assert_int_equal(info.instantiated, 1);
    assert_int_equal(info.refused, 0);
    assert_true(info.updates > 20);
    for (size_t i = 0; i < GRAPHS; i++) {
        rp_graph_destroy(graphs[i]);
        for (size_t k = 0; k < SETS; k++)
            free_args(args[i][k]);
    }
    rpt_close(&f);
}

static void arguments_follow_in_shared_execs(void **state)
{
    (void)state;
    arguments_follow(1);
    arguments_follow(2);
    arguments_follow(3);
}

static void another_depth_is_another_topology(void **state)
{
    (void)state;
    struct subject subjects[2] = {{COUNT, 1}, {COUNT, 2}};
    struct rp_graph *graphs[2];
    struct rp_device_exec_info info = {.size = sizeof info};
    rpt_open(&f);
    for (int i = 0; i < 2; i++)
        graphs[i] = capture(&subjects[i]);
    rp_device_exec_info(f.device, &info);
    assert_int_equal(info.topologies, 2);
    for (int i = 0; i < 2; i++)
        rp_graph_destroy(graphs[i]);
    rpt_close(&f);
}

/* ---- Estimates ----------------------------------------------------------------------------- */

static rp_status enqueue_many(const struct rpt_fixture *fixture, CUstream s, const void *data,
                              struct rp_error *err)
{
    rp_status status = RP_OK;
    (void)data;
    for (int i = 0; status == RP_OK && i < 200; i++)
        status = rpt_launch(fixture, fixture->nothing, s, NULL, err);
    return status;
}

static rp_status many(struct rp_call *call, void *user, struct rp_error *err)
{
    (void)user;
    return rpt_within(&f, rp_call_stream(call), 1, enqueue_many, NULL, err);
}

/* An exec holds the nodes of child graphs too, and an estimate counts them. */
static void estimates_count_nested_nodes(void **state)
{
    (void)state;
    struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
    struct rp_callable *callable = NULL;
    struct rp_inputs inputs = {0};
    struct rp_estimate *estimate = NULL;
    struct rp_estimate_shape shape = {.size = sizeof shape};
    struct rp_graph *graph = NULL;
    struct rp_graph_info info = {.size = sizeof info};
    rpt_open(&f);
    RPT_OK(&f, rp_callable_create(f.device, &options, many, NULL, &callable, &f.err));
    RPT_OK(&f, rp_estimate(&callable, &inputs, 1, &estimate, &f.err));
    assert_int_equal(rp_estimate_shape(estimate, 0, &shape), 1);
    RPT_OK(&f, rp_graph_capture(f.pool, NULL, many, NULL, NULL, 0, &graph, &f.err));
    rp_graph_info(graph, &info);
    assert_int_equal(shape.nodes, info.nodes);
    assert_int_equal(shape.exec_bytes, info.exec_bytes);
    assert_int_equal(shape.exec_bytes,
                     rpi_exec_bytes(&rpi_h200_byte_prices, 201, 1)); /* and one that is a graph */
    rp_graph_destroy(graph);
    rp_estimate_destroy(estimate);
    rp_callable_destroy(callable);
    rpt_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sites_of_nested_nodes_are_listed),
        cmocka_unit_test(arguments_follow_in_shared_execs),
        cmocka_unit_test(another_depth_is_another_topology),
        cmocka_unit_test(estimates_count_nested_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
