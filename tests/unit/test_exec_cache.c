/* SPDX-License-Identifier: MIT
 *
 * Execs that graphs share: results on every walk and under every budget, what the driver is asked
 * for, which node of a borrowed exec is changed, refusals, concurrent pools, threads, and failures.
 */
#include "graph_fixture.h"

#include "fault_loop.h"
#include "graph/exec/exec_cache.h"
#include "graph/exec/exec_prices.h"
#include "graph/template/topology.h"

#include <pthread.h>
#include <stdio.h>

enum { COUNT = 64, MOST_SHAPES = 24 };

static struct rpt_fixture f;

/* ---- Shapes of one callable: the number of floats differs, the topology not ---------------- */

struct shape {
    uint32_t count;
    unsigned grid;
    bool chain; /* another topology */
    struct rp_graph *graph;
    struct rp_arg args[2];
};

static struct shape shapes[MOST_SHAPES];

static rp_status launch(CUfunction function, unsigned grid, CUstream stream, void **params,
                        struct rp_error *err)
{
    CUresult result =
        f.driver->cuLaunchKernel(function, grid, 1, 1, 32, 1, 1, 0, stream, params, NULL);
    return result ? rpi_error_driver(err, result, "cuLaunchKernel", "launching") : RP_OK;
}

/* y = 2 x + 3 x, by two streams and a block on each. */
static rp_status diamond(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct shape *shape = user;
    CUstream s = rp_call_stream(call), t = shape->chain ? s : f.streams[0];
    uint64_t x = rp_call_arg(call, 0), y = rp_call_arg(call, 1), a, b;
    uint32_t count = shape->count;
    float two = 2, three = 3;
    void *first[] = {&a, &x, &two, &count}, *second[] = {&b, &x, &three, &count};
    rp_status status;
    if ((!shape->chain && (status = rpt_join(&f, s, t, err)) != RP_OK) ||
        (status = rp_call_alloc(call, count * 4, s, &a, err)) != RP_OK ||
        (status = launch(f.scale, shape->grid, s, first, err)) != RP_OK ||
        (status = rp_call_alloc(call, count * 4, t, &b, err)) != RP_OK ||
        (status = launch(f.scale, shape->grid, t, second, err)) != RP_OK ||
        (!shape->chain && (status = rpt_join(&f, t, s, err)) != RP_OK) ||
        (!shape->chain && (status = rp_call_use(call, b, s, err)) != RP_OK) ||
        (status = rpt_add(&f, s, y, a, b, count, err)) != RP_OK ||
        (status = rp_call_free(call, a, err)) != RP_OK)
        return status;
    return rp_call_free(call, b, err);
}

static void capture_shape(struct rp_pool *pool, struct shape *shape)
{
    shape->args[0] = rpt_arg(rpt_buffer(&f, shape->count, 1), shape->count, RP_ARG_IN);
    shape->args[1] = rpt_arg(rpt_buffer(&f, shape->count, 0), shape->count, RP_ARG_OUT);
    RPT_OK(&f, rp_graph_capture(pool, NULL, diamond, shape, shape->args, 2, &shape->graph, &f.err));
}

static void open_shapes(size_t count, uint64_t budget)
{
    rpt_open(&f);
    rpi_exec_cache_set_budget(f.device->execs, budget);
    for (size_t i = 0; i < count; i++) {
        shapes[i] = (struct shape){.count = COUNT + (uint32_t)i, .grid = 1 + (unsigned)i};
        capture_shape(f.pool, &shapes[i]);
    }
}

static void drop_shape(struct shape *shape)
{
    rp_graph_destroy(shape->graph);
    f.driver->cuMemFree(shape->args[0].address);
    f.driver->cuMemFree(shape->args[1].address);
}

static void close_shapes(size_t count)
{
    for (size_t i = 0; i < count; i++)
        drop_shape(&shapes[i]);
    memset(shapes, 0, sizeof shapes);
    rpt_close(&f);
}

static void check_output(const struct shape *shape)
{
    float out[COUNT + MOST_SHAPES];
    rpt_read(&f, shape->args[1].address, out, shape->count);
    for (uint32_t k = 0; k < shape->count; k++)
        assert_true(out[k] == 5 * (1 + (float)(k % 7)));
    assert_int_equal(f.driver->cuMemsetD8(shape->args[1].address, 0, shape->count * 4), 0);
    assert_int_equal(f.driver->cuCtxSynchronize(), 0);
}

static void replay(struct shape *shape)
{
    RPT_OK(&f, rp_graph_replay(shape->graph, shape->args, 2, f.streams[1], &f.err));
    check_output(shape);
}

static struct rp_device_exec_info info_now(void)
{
    struct rp_device_exec_info info = {.size = sizeof info};
    rp_device_exec_info(f.device, &info);
    return info;
}

static struct rp_graph_info graph_info(const struct shape *shape)
{
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(shape->graph, &info);
    return info;
}

static size_t execs_of_driver(void)
{
    struct rpi_host_statistics statistics;
    rpi_host_statistics(&statistics);
    return statistics.execs;
}

/* ---- Sharing -------------------------------------------------------------------------------- */

static void test_one_exec_for_all(void **state)
{
    (void)state;
    enum { SHAPES = 12 };
    open_shapes(SHAPES, 1);
    assert_int_equal(info_now().instantiated, 1); /* with the first capture */
    assert_int_equal(info_now().topologies, 1);
    for (size_t turn = 0; turn < 3; turn++)
        for (size_t i = 0; i < SHAPES; i++) {
            replay(&shapes[i]);
            assert_int_equal(execs_of_driver(), 1);
        }
    struct rp_device_exec_info info = info_now();
    assert_int_equal(info.execs, 1);
    assert_int_equal(info.graphs, SHAPES);
    assert_int_equal(info.hits + info.updates + info.instantiated - 1, 3 * SHAPES);
    assert_true(info.updates >= 2 * SHAPES);
    assert_int_equal(info.refused, 0);
    assert_int_equal(graph_info(&shapes[3]).exec_sharers, SHAPES - 1);
    close_shapes(SHAPES);
}

static void test_one_each(void **state)
{
    (void)state;
    enum { SHAPES = 5 };
    open_shapes(SHAPES, RP_EXEC_ONE_EACH);
    assert_int_equal(info_now().instantiated, SHAPES);
    for (size_t i = 0; i < 3 * SHAPES; i++) {
        replay(&shapes[i % SHAPES]);
        assert_true(graph_info(&shapes[i % SHAPES]).own_exec);
    }
    assert_int_equal(info_now().updates, 0);
    assert_int_equal(info_now().hits, 3 * SHAPES);
    assert_int_equal(execs_of_driver(), SHAPES);
    close_shapes(SHAPES);
}

/* Prices set by hand, so that the rule's answers are known. */
static void set_prices(double make, double update, double slow)
{
    for (struct rpi_exec_class *class = f.device->execs->classes; class; class = class->next) {
        class->rent.make_us = make;
        class->rent.update_us = update;
    }
    for (size_t i = 0; i < MOST_SHAPES; i++)
        if (shapes[i].graph)
            shapes[i].graph->client->rent.slow_us = slow;
}

/* A device whose free memory falls as drivers let it: in steps, once what is in hand is used up. */
enum { STEP = 1 << 20 };
static struct {
    struct rp_driver table;
    uint64_t taken; /* by execs, each a little more than half a step */
} stepping;

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    stepping.taken += STEP / 2 + 4096;
    return rpi_driver_host()->cuGraphInstantiateWithFlags(exec, graph, flags);
}

/* Three kernels on two paths. */
static uint64_t diamond_bytes(void)
{
    return rpi_exec_bytes(&rpi_h200_byte_prices, 3, 2);
}

static CUresult memory_info(size_t *out_free, size_t *out_total)
{
    *out_total = (size_t)1 << 40;
    *out_free = *out_total - (stepping.taken + STEP - 1) / STEP * STEP;
    return CUDA_SUCCESS;
}

static void test_memory_is_measured_in_steps(void **state)
{
    (void)state;
    enum { SHAPES = 12 };
    stepping.table = *rpi_driver_host();
    stepping.table.cuGraphInstantiateWithFlags = instantiate;
    stepping.table.cuMemGetInfo = memory_info;
    stepping.taken = STEP / 4; /* what others left */
    rpt_open_on(&f, &stepping.table, NULL);
    rpi_exec_cache_set_budget(f.device->execs, RP_EXEC_ONE_EACH);
    struct rp_device_exec_info info = {.size = sizeof info};
    for (size_t i = 0; i < SHAPES; i++) {
        shapes[i] = (struct shape){.count = COUNT + (uint32_t)i, .grid = 1};
        capture_shape(f.pool, &shapes[i]);
        info = info_now();
        assert_int_equal(info.measured_step_bytes, i ? STEP : 0); /* the first found enough */
    }
    assert_int_equal(info.measured_bytes, SHAPES / 2 * STEP);
    assert_int_equal(info.most_bytes, SHAPES * diamond_bytes());
    close_shapes(SHAPES);
}

/* A driver whose execs are weighed as they are made: what the shapes' templates begin with tells
 * their paths, and all have three kernels. */
static struct {
    struct rp_driver table;
    struct {
        CUgraphExec exec;
        uint64_t bytes;
    } execs[MOST_SHAPES];
    uint64_t bytes;
} weighed;

static CUresult weigh(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    size_t roots = 0, i = 0;
    CUresult result = rpi_driver_host()->cuGraphInstantiateWithFlags(exec, graph, flags);
    if (result == CUDA_SUCCESS)
        result = rpi_driver_host()->cuGraphGetRootNodes(graph, NULL, &roots);
    while (weighed.execs[i].exec)
        i++;
    weighed.execs[i].exec = *exec;
    weighed.execs[i].bytes = rpi_exec_bytes(&rpi_h200_byte_prices, 3, roots);
    weighed.bytes += weighed.execs[i].bytes;
    return result;
}

static CUresult take_off(CUgraphExec exec)
{
    size_t i = 0;
    while (weighed.execs[i].exec != exec)
        i++;
    weighed.execs[i].exec = NULL;
    weighed.bytes -= weighed.execs[i].bytes;
    return rpi_driver_host()->cuGraphExecDestroy(exec);
}

/* Of graphs on one path more fit than of graphs on two, and of both together no more than fit. */
static void test_a_budget_holds_what_it_says(void **state)
{
    (void)state;
    enum { SHAPES = 12 };
    const uint64_t budget = 5 * diamond_bytes() + diamond_bytes() / 2;
    const size_t fit[] = {5, (size_t)(budget / rpi_exec_bytes(&rpi_h200_byte_prices, 3, 1))};
    assert_true(fit[1] > fit[0] && fit[1] < SHAPES);
    for (int kinds = 0; kinds < 3; kinds++) {
        memset(&weighed, 0, sizeof weighed);
        weighed.table = *rpi_driver_host();
        weighed.table.cuGraphInstantiateWithFlags = weigh;
        weighed.table.cuGraphExecDestroy = take_off;
        rpt_open_on(&f, &weighed.table, NULL);
        rpi_exec_cache_set_budget(f.device->execs, budget);
        for (size_t i = 0; i < SHAPES; i++) {
            bool chain = kinds == 2 ? i % 2 : kinds == 1;
            shapes[i] = (struct shape){
                .count = COUNT + (uint32_t)i, .grid = 1 + (unsigned)i, .chain = chain};
            capture_shape(f.pool, &shapes[i]);
        }
        for (size_t i = 0; i < (size_t)40 * SHAPES; i++) {
            set_prices(1, 10, 10); /* an exec of one's own pays at once */
            replay(&shapes[i % SHAPES]);
            assert_int_equal(info_now().bytes, weighed.bytes);
            assert_true(weighed.bytes <= budget);
        }
        if (kinds < 2)
            assert_int_equal(execs_of_driver(), fit[kinds]);
        close_shapes(SHAPES);
        assert_int_equal(weighed.bytes, 0);
    }
}

/* What the first exec of a process takes is no price: graphs would be kept from their own by it. */
static void test_first_prices_are_doubted(void **state)
{
    (void)state;
    open_shapes(2, 0);
    struct rpi_exec_cache *cache = f.device->execs;
    struct rpi_exec_class *class = cache->classes;
    class->make = class->update = cache->make_node = cache->update_node = (struct rpi_exec_time){0};
    pthread_mutex_lock(&cache->lock);
    rpi_exec_price_class(cache, class);
    double make = class->rent.make_us, update = class->rent.update_us;
    rpi_exec_learn_make(cache, class, 1000 * make);
    rpi_exec_learn_update(cache, class, 1000 * update);
    pthread_mutex_unlock(&cache->lock);
    assert_true(class->rent.make_us > make && class->rent.make_us < 2 * make);
    assert_true(class->rent.update_us > update && class->rent.update_us < 2 * update);
    assert_true(info_now().make_us_per_node < 10);
    pthread_mutex_lock(&cache->lock);
    for (int i = 0; i < 30; i++) /* a device on which it does cost that */
        rpi_exec_learn_make(cache, class, 1000 * make);
    pthread_mutex_unlock(&cache->lock);
    assert_true(class->rent.make_us > 900 * make);
    close_shapes(2);
}

/* A graph gets its own when it has paid for it, and no more than one each are there. */
static void test_bought_when_paid(void **state)
{
    (void)state;
    open_shapes(2, 0);
    set_prices(100, 30, 20);
    replay(&shapes[1]); /* takes the first one's: 50 paid */
    assert_int_equal(info_now().updates, 1);
    assert_false(graph_info(&shapes[1]).own_exec);
    set_prices(100, 30, 20);
    replay(&shapes[1]);
    set_prices(100, 30, 20);
    replay(&shapes[1]);
    assert_false(graph_info(&shapes[1]).own_exec);
    set_prices(100, 30, 20);
    replay(&shapes[1]); /* it would be 110 */
    assert_true(graph_info(&shapes[1]).own_exec);
    assert_int_equal(info_now().execs, 2);
    set_prices(100, 5, 20);
    replay(&shapes[0]); /* counts as having paid already */
    assert_true(graph_info(&shapes[0]).own_exec);
    assert_int_equal(info_now().execs, 2); /* the one that was for rent is gone */
    assert_int_equal(execs_of_driver(), 2);
    assert_int_equal(info_now().instantiated, 3);
    close_shapes(2);
}

/* An update that changes addresses alone costs nothing later: no penalty is counted. */
static void test_same_launches_change_nothing(void **state)
{
    (void)state;
    rpt_open(&f);
    for (size_t i = 0; i < 2; i++) {
        shapes[i] = (struct shape){.count = COUNT, .grid = 2};
        capture_shape(f.pool, &shapes[i]);
    }
    assert_true(shapes[0].graph->client->rent.launches == shapes[1].graph->client->rent.launches);
    for (size_t i = 0; i < 4; i++) {
        replay(&shapes[i % 2]);
        assert_false(shapes[i % 2].graph->client->rent.exec->changed);
    }
    close_shapes(2);
}

static void test_topologies_do_not_mix(void **state)
{
    (void)state;
    rpt_open(&f);
    rpi_exec_cache_set_budget(f.device->execs, 1);
    for (size_t i = 0; i < 4; i++) {
        shapes[i] = (struct shape){.count = COUNT, .grid = 1, .chain = i % 2};
        capture_shape(f.pool, &shapes[i]);
    }
    assert_int_equal(info_now().topologies, 2);
    for (size_t i = 0; i < 12; i++) {
        replay(&shapes[i * 5 % 4]);
        assert_int_equal(execs_of_driver(), 1);
    }
    assert_int_equal(info_now().refused, 0);
    assert_true(info_now().evicted > 0);
    close_shapes(4);
}

/* Random walks under every budget: results, and the books beside the driver's. */
static void test_random_walks(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (uint64_t execs = 1; execs <= 8; execs++) {
        open_shapes(8, execs * diamond_bytes());
        for (int step = 0; step < 150; step++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            size_t i = (size_t)(random >> 33) % 8;
            if (step % 40 > 20)
                i = i < 6 ? 2 : i;
            replay(&shapes[i]);
            struct rp_device_exec_info info = info_now();
            assert_int_equal(info.execs, execs_of_driver());
            assert_int_equal(info.bytes, info.execs * diamond_bytes());
            assert_true(info.most_bytes <= info.budget_bytes);
        }
        struct rp_device_exec_info info = info_now();
        uint64_t first = 1; /* made at the capture */
        assert_int_equal(info.hits + info.updates + info.instantiated - first, 150);
        close_shapes(8);
    }
}

/* A graph that goes leaves its exec to others, with the template that names its nodes. */
static void test_exec_outlives_its_graph(void **state)
{
    (void)state;
    open_shapes(3, 1);
    rp_graph_destroy(shapes[0].graph);
    shapes[0].graph = NULL;
    for (size_t i = 0; i < 6; i++)
        replay(&shapes[1 + i % 2]);
    assert_int_equal(info_now().instantiated, 1);
    rp_graph_destroy(shapes[1].graph);
    rp_graph_destroy(shapes[2].graph);
    shapes[1].graph = shapes[2].graph = NULL;
    assert_int_equal(execs_of_driver(), 0);
    close_shapes(3);
}

/* New arguments at every replay, in execs that change hands. */
static void test_arguments_follow(void **state)
{
    (void)state;
    enum { SETS = 5 };
    open_shapes(4, 1);
    struct rp_arg args[4][SETS][2];
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < SETS; k++) {
            args[i][k][0] =
                rpt_arg(rpt_buffer(&f, shapes[i].count, (float)k), shapes[i].count, RP_ARG_IN);
            args[i][k][1] =
                rpt_arg(rpt_buffer(&f, shapes[i].count, 0), shapes[i].count, RP_ARG_OUT);
        }
    for (size_t step = 0; step < 60; step++) {
        size_t i = step * 7 / 3 % 4, k = step % SETS;
        RPT_OK(&f, rp_graph_replay(shapes[i].graph, args[i][k], 2, f.streams[1], &f.err));
        float out[COUNT + MOST_SHAPES];
        rpt_read(&f, args[i][k][1].address, out, shapes[i].count);
        for (uint32_t n = 0; n < shapes[i].count; n++)
            assert_true(out[n] == 5 * ((float)k + (float)(n % 7)));
    }
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < SETS; k++) {
            f.driver->cuMemFree(args[i][k][0].address);
            f.driver->cuMemFree(args[i][k][1].address);
        }
    close_shapes(4);
}

/* An exec is updated, and evicted, while launches of it wait for the device. */
static void test_in_flight(void **state)
{
    (void)state;
    open_shapes(6, 1);
    shapes[6] = (struct shape){.count = COUNT, .grid = 1, .chain = true};
    capture_shape(f.pool, &shapes[6]);
    for (size_t round = 0; round < 10; round++) {
        for (size_t i = 0; i < 7; i++)
            RPT_OK(&f,
                   rp_graph_replay(shapes[i].graph, shapes[i].args, 2, f.streams[i % 4], &f.err));
        for (size_t i = 0; i < 7; i++)
            check_output(&shapes[i]);
    }
    close_shapes(7);
}

/* ---- Node maps ------------------------------------------------------------------------------ */

/* Node i of the template that an exec was made from is node i of the template that it was updated
 * to: each is given a value through the one and seen to be the other's. */
static CUgraph capture_words(uint64_t words, uint32_t first)
{
    CUgraph graph = NULL;
    CUstream s = f.streams[0], t = f.streams[1];
    rpi_driver_host();
    assert_int_equal(f.driver->cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), 0);
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t to = words + 4 * i;
        float value = (float)(first + i);
        uint32_t count = 1;
        void *params[] = {&to, &value, &count};
        if (i == 1 || i == 3)
            assert_int_equal(rpt_join(&f, s, t, NULL), RP_OK);
        CUstream on = i == 1 || i == 2 || i == 4 ? t : s;
        assert_int_equal(f.driver->cuLaunchKernel(f.fill, 1, 1, 1, 1, 1, 1, 0, on, params, NULL),
                         0);
    }
    assert_int_equal(rpt_join(&f, t, s, NULL), RP_OK);
    assert_int_equal(f.driver->cuStreamEndCapture(s, &graph), 0);
    return graph;
}

static void set_node(CUgraphExec exec, CUgraphNode node, uint64_t to, float value)
{
    CUDA_KERNEL_NODE_PARAMS params;
    uint32_t count = 1;
    void *list[] = {&to, &value, &count};
    memset(&params, 0, sizeof params);
    assert_int_equal(f.driver->cuGraphKernelNodeGetParams(node, &params), 0);
    params.kernelParams = list;
    params.extra = NULL;
    assert_int_equal(f.driver->cuGraphExecKernelNodeSetParams(exec, node, &params), 0);
}

static void test_nodes_are_paired_by_number(void **state)
{
    (void)state;
    rpt_open(&f);
    uint64_t words = rpt_buffer(&f, 16, 0);
    CUgraph first = capture_words(words, 10), second = capture_words(words + 32, 20);
    struct rpi_topology a = {0}, b = {0};
    RPT_OK(&f, rpi_topology_read(&a, f.driver, first, &f.err));
    RPT_OK(&f, rpi_topology_read(&b, f.driver, second, &f.err));
    assert_true(rpi_topology_equal(&a, &b));
    assert_int_equal(a.nodes, 6);
    for (size_t i = 0; i < a.nodes; i++) {
        CUgraphExec exec = NULL;
        CUgraphExecUpdateResultInfo info = {0};
        float out[16], expected[6];
        assert_int_equal(f.driver->cuGraphInstantiateWithFlags(&exec, first, 0), 0);
        assert_int_equal(f.driver->cuGraphExecUpdate(exec, second, &info), 0);
        /* Node i of the second template writes this word. */
        CUDA_KERNEL_NODE_PARAMS params;
        memset(&params, 0, sizeof params);
        assert_int_equal(f.driver->cuGraphKernelNodeGetParams(b.handles.data[i], &params), 0);
        uint64_t to = *(uint64_t *)params.kernelParams[0];
        set_node(exec, a.handles.data[i], to, 99);
        assert_int_equal(f.driver->cuGraphLaunch(exec, f.streams[0]), 0);
        rpt_read(&f, words, out, 16);
        for (size_t k = 0; k < 6; k++)
            expected[k] = to == words + 32 + 4 * k ? 99 : 20 + (float)k;
        assert_memory_equal(out + 8, expected, sizeof expected);
        f.driver->cuGraphExecDestroy(exec);
    }
    rpi_topology_finish(&a);
    rpi_topology_finish(&b);
    f.driver->cuGraphDestroy(first);
    f.driver->cuGraphDestroy(second);
    f.driver->cuMemFree(words);
    rpt_close(&f);
}

/* Edges in another order are another class: the driver may pair them otherwise. */
static void test_order_of_dependencies_counts(void **state)
{
    (void)state;
    rpt_open(&f);
    CUgraph graphs[2];
    struct rpi_topology read[2] = {0};
    for (int i = 0; i < 2; i++) {
        CUgraphNode ends[2], last;
        assert_int_equal(f.driver->cuGraphCreate(&graphs[i], 0), 0);
        assert_int_equal(f.driver->cuGraphAddEmptyNode(&ends[0], graphs[i], NULL, 0), 0);
        assert_int_equal(f.driver->cuGraphAddEmptyNode(&ends[1], graphs[i], NULL, 0), 0);
        CUgraphNode turned[] = {ends[i], ends[1 - i]};
        assert_int_equal(f.driver->cuGraphAddEmptyNode(&last, graphs[i], turned, 2), 0);
        RPT_OK(&f, rpi_topology_read(&read[i], f.driver, graphs[i], &f.err));
    }
    assert_false(rpi_topology_equal(&read[0], &read[1]));
    for (int i = 0; i < 2; i++) {
        rpi_topology_finish(&read[i]);
        f.driver->cuGraphDestroy(graphs[i]);
    }
    rpt_close(&f);
}

/* ---- Refusals ------------------------------------------------------------------------------- */

/* The same topology by its words, but one fills pinned memory and one the device's, which no update
 * changes: the exec is dropped, and the graph shares with nobody from then on. */
static rp_status fill_words(struct rp_call *call, void *user, struct rp_error *err)
{
    CUresult result = f.driver->cuMemsetD32Async(*(uint64_t *)user, 7, COUNT, rp_call_stream(call));
    return result ? rpi_error_driver(err, result, "cuMemsetD32Async", "filling") : RP_OK;
}

static void test_refused_update(void **state)
{
    (void)state;
    rpt_open(&f);
    void *pinned = NULL;
    assert_int_equal(f.driver->cuMemAllocHost(&pinned, COUNT * 4), 0);
    uint64_t to[2] = {rpt_buffer(&f, COUNT, 0), (uintptr_t)pinned};
    struct rp_graph *graphs[2];
    for (int i = 0; i < 2; i++)
        RPT_OK(&f, rp_graph_capture(f.pool, NULL, fill_words, &to[i], NULL, 0, &graphs[i], &f.err));
    assert_int_equal(info_now().topologies, 1);
    for (struct rpi_exec_class *class = f.device->execs->classes; class; class = class->next)
        class->rent.make_us = 1e6; /* so that it is an update which is tried */
    for (int step = 0; step < 6; step++) {
        uint32_t *out = (uint32_t *)(uintptr_t)to[(step + 1) % 2]; /* memory of a CPU */
        memset(out, 0, COUNT * 4);
        RPT_OK(&f, rp_graph_replay(graphs[(step + 1) % 2], NULL, 0, f.streams[0], &f.err));
        assert_int_equal(f.driver->cuCtxSynchronize(), 0);
        assert_int_equal(out[COUNT - 1], 7);
        assert_int_equal(execs_of_driver(), step ? 2 : 1);
    }
    assert_int_equal(info_now().refused, 1);
    assert_int_equal(info_now().topologies, 2);
    assert_int_equal(info_now().instantiated, 3);
    assert_int_equal(info_now().execs, 2);
    assert_int_equal(execs_of_driver(), 2);
    for (int i = 0; i < 2; i++)
        rp_graph_destroy(graphs[i]);
    f.driver->cuMemFree(to[0]);
    f.driver->cuMemFreeHost(pinned);
    rpt_close(&f);
}

/* ---- Pools that may run at the same time ---------------------------------------------------- */

static void test_concurrent_graphs_do_not_share(void **state)
{
    (void)state;
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    options.kind = RP_POOL_CONCURRENT;
    rpt_open_on(&f, rpi_driver_host(), &options);
    for (size_t i = 0; i < 3; i++) {
        shapes[i] = (struct shape){.count = COUNT, .grid = 1};
        capture_shape(f.pool, &shapes[i]);
    }
    for (size_t i = 0; i < 9; i++) {
        set_prices(1e6, 1, 1); /* so that it would be an update if that were allowed */
        replay(&shapes[i % 3]);
    }
    assert_int_equal(info_now().updates, 0);
    assert_int_equal(info_now().execs, 3);
    close_shapes(3);
}

/* ---- Threads -------------------------------------------------------------------------------- */

struct worker {
    struct rp_pool *pool;
    CUstream stream;
    struct shape shapes[3];
    struct rp_error err;
    rp_status status;
};

static void *work(void *user)
{
    struct worker *worker = user;
    worker->status = RP_OK;
    for (int step = 0; step < 100 && worker->status == RP_OK; step++) {
        struct shape *shape = &worker->shapes[step * 5 % 7 % 3];
        worker->status =
            rp_graph_replay(shape->graph, shape->args, 2, worker->stream, &worker->err);
        if (worker->status == RP_OK && step % 10 == 0)
            f.driver->cuStreamSynchronize(worker->stream);
    }
    return NULL;
}

/* Two pools, two threads, one cache with room for one exec, and for two. */
static void share_between_threads(uint64_t budget)
{
    static struct worker workers[2];
    pthread_t threads[2];
    rpt_open(&f);
    rpi_exec_cache_set_budget(f.device->execs, budget);
    for (int w = 0; w < 2; w++) {
        workers[w].stream = f.streams[2 + w];
        RPT_OK(&f, rp_pool_create(f.device, NULL, &workers[w].pool, &f.err));
        for (uint32_t i = 0; i < 3; i++) {
            workers[w].shapes[i] = (struct shape){.count = COUNT + i, .grid = 1 + i};
            capture_shape(workers[w].pool, &workers[w].shapes[i]);
        }
    }
    for (int w = 0; w < 2; w++)
        assert_int_equal(pthread_create(&threads[w], NULL, work, &workers[w]), 0);
    for (int i = 0; i < 8; i++) { /* another topology comes and goes meanwhile */
        struct shape other = {.count = COUNT, .grid = 1, .chain = true};
        capture_shape(f.pool, &other);
        RPT_OK(&f, rp_graph_replay(other.graph, other.args, 2, f.streams[1], &f.err));
        drop_shape(&other);
    }
    for (int w = 0; w < 2; w++)
        pthread_join(threads[w], NULL);
    struct rp_device_exec_info info = info_now();
    assert_true(info.most_bytes <= info.budget_bytes || info.most_bytes <= diamond_bytes());
    for (int w = 0; w < 2; w++) {
        f.err = workers[w].err;
        RPT_OK(&f, workers[w].status);
        for (uint32_t i = 0; i < 3; i++) {
            replay(&workers[w].shapes[i]);
            drop_shape(&workers[w].shapes[i]);
        }
        rp_pool_destroy(workers[w].pool);
    }
    rpt_close(&f);
}

static void test_threads_share_the_cache(void **state)
{
    (void)state;
    share_between_threads(1);
    share_between_threads(2 * diamond_bytes());
    share_between_threads(0);
}

/* ---- Failures ------------------------------------------------------------------------------- */

static struct rpt_fixture outer;

/* Works or says why, and works when it is done again. */
static bool replay_again(struct rp_graph *graph, const struct rp_arg *args, bool *ok)
{
    struct rp_error err = {0};
    rp_status status = rp_graph_replay(graph, args, 2, outer.streams[1], &err);
    if (status == RP_OK)
        return true;
    *ok = false;
    assert_true(err.message[0] && err.status == status && status != RP_ERROR_INTERNAL);
    outer.driver->cuCtxSynchronize();
    return rp_graph_replay(graph, args, 2, outer.streams[1], &err) == RP_OK;
}

static bool cache_scenario(const struct rp_driver *driver, void *user)
{
    const uint64_t *budget = user;
    struct rpt_scene scene;
    struct rp_graph *graphs[2] = {NULL};
    bool ok = rpt_scene_open(&scene, driver);
    if (ok)
        rpi_exec_cache_set_budget(scene.device->execs, *budget);
    for (int i = 0; i < 2 && ok; i++)
        ok = rp_graph_capture(scene.pool, NULL, diamond, &shapes[i], shapes[i].args, 2, &graphs[i],
                              NULL) == RP_OK;
    for (int step = 0; step < 5 && ok; step++) {
        /* A failure that is over leaves a graph that works. */
        if (!replay_again(graphs[(step + 1) % 2], shapes[(step + 1) % 2].args, &ok))
            ok = false;
    }
    outer.driver->cuCtxSynchronize();
    for (int i = 0; i < 2; i++)
        rp_graph_destroy(graphs[i]);
    rpt_scene_close(&scene);
    return ok;
}

/* A copy, which an exec moves among memory of one kind only: another is made when the kind changes.
 */
static rp_status copy_args(struct rp_call *call, void *user, struct rp_error *err)
{
    (void)user;
    CUresult result = f.driver->cuMemcpyDtoDAsync(rp_call_arg(call, 1), rp_call_arg(call, 0),
                                                  COUNT * 4, rp_call_stream(call));
    return result ? rpi_error_driver(err, result, "cuMemcpyDtoDAsync", "copying") : RP_OK;
}

static bool renew_scenario(const struct rp_driver *driver, void *user)
{
    const struct rp_arg(*args)[2] = user; /* allocated, and mapped */
    struct rpt_scene scene;
    bool ok = rpt_scene_open(&scene, driver) &&
              rp_graph_capture(scene.pool, NULL, copy_args, NULL, args[0], 2, &scene.graph, NULL) ==
                  RP_OK;
    for (int step = 0; step < 4 && ok; step++)
        if (!replay_again(scene.graph, args[step % 2], &ok))
            ok = false;
    outer.driver->cuCtxSynchronize();
    rpt_scene_close(&scene);
    return ok;
}

static uint64_t map_memory(uint64_t bytes)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address = 0;
    CUmemAllocationProp properties;
    CUmemAccessDesc access;
    memset(&properties, 0, sizeof properties);
    memset(&access, 0, sizeof access);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    assert_int_equal(f.driver->cuMemAddressReserve(&address, bytes, 0, 0, 0), 0);
    assert_int_equal(f.driver->cuMemCreate(&handle, bytes, &properties, 0), 0);
    assert_int_equal(f.driver->cuMemMap(address, bytes, 0, handle, 0), 0);
    assert_int_equal(f.driver->cuMemSetAccess(address, bytes, &access, 1), 0);
    assert_int_equal(f.driver->cuMemRelease(handle), 0);
    return address;
}

static const char *left_over(void *user)
{
    (void)user;
    return execs_of_driver() ? "execs" : NULL;
}

static void test_each_failure(void **state)
{
    (void)state;
    uint64_t budgets[] = {1, 0, RP_EXEC_ONE_EACH};
    rpt_open(&f);
    outer = f;
    for (uint32_t i = 0; i < 3; i++) {
        shapes[i] = (struct shape){.count = COUNT + i, .grid = 1 + i};
        shapes[i].args[0] = rpt_arg(rpt_buffer(&f, shapes[i].count, 1), shapes[i].count, RP_ARG_IN);
        shapes[i].args[1] =
            rpt_arg(rpt_buffer(&f, shapes[i].count, 0), shapes[i].count, RP_ARG_OUT);
    }
    for (size_t b = 0; b < 3; b++) {
        struct rpt_scenario scenario = {cache_scenario, left_over, &budgets[b], 0};
        assert_true(rpt_fault_loop(f.driver, &scenario, CUDA_ERROR_OUT_OF_MEMORY) > 50);
    }
    struct rpt_scenario scenario = {cache_scenario, left_over, &budgets[0], 0};
    assert_true(rpt_fault_loop(f.driver, &scenario, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) > 50);
    struct rpi_host_options before = rpt_ignore_races();
    assert_true(rpt_memory_fault_loop(f.driver, &scenario) > 50);
    rpi_host_configure(&before);
    for (uint32_t i = 0; i < 3; i++) {
        f.driver->cuMemFree(shapes[i].args[0].address);
        f.driver->cuMemFree(shapes[i].args[1].address);
    }
    rpt_close(&f);
}

static void test_each_failure_of_a_renewal(void **state)
{
    (void)state;
    enum { PAGE = 2 << 20 };
    rpt_open(&f);
    outer = f;
    uint64_t mapped = map_memory(PAGE), from = rpt_buffer(&f, COUNT, 1),
             to = rpt_buffer(&f, COUNT, 0);
    struct rp_arg args[2][2] = {
        {rpt_arg(from, COUNT, RP_ARG_IN), rpt_arg(to, COUNT, RP_ARG_OUT)},
        {rpt_arg(mapped, COUNT, RP_ARG_IN), rpt_arg(mapped + 4096, COUNT, RP_ARG_OUT)}};
    struct rpt_scenario scenario = {renew_scenario, left_over, args, 0};
    assert_true(rpt_fault_loop(f.driver, &scenario, CUDA_ERROR_OUT_OF_MEMORY) > 50);
    f.driver->cuMemFree(from);
    f.driver->cuMemFree(to);
    assert_int_equal(f.driver->cuMemUnmap(mapped, PAGE), 0);
    assert_int_equal(f.driver->cuMemAddressFree(mapped, PAGE), 0);
    rpt_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_exec_for_all),
        cmocka_unit_test(test_one_each),
        cmocka_unit_test(test_memory_is_measured_in_steps),
        cmocka_unit_test(test_a_budget_holds_what_it_says),
        cmocka_unit_test(test_first_prices_are_doubted),
        cmocka_unit_test(test_bought_when_paid),
        cmocka_unit_test(test_same_launches_change_nothing),
        cmocka_unit_test(test_topologies_do_not_mix),
        cmocka_unit_test(test_random_walks),
        cmocka_unit_test(test_exec_outlives_its_graph),
        cmocka_unit_test(test_arguments_follow),
        cmocka_unit_test(test_in_flight),
        cmocka_unit_test(test_nodes_are_paired_by_number),
        cmocka_unit_test(test_order_of_dependencies_counts),
        cmocka_unit_test(test_refused_update),
        cmocka_unit_test(test_concurrent_graphs_do_not_share),
        cmocka_unit_test(test_threads_share_the_cache),
        cmocka_unit_test(test_each_failure),
        cmocka_unit_test(test_each_failure_of_a_renewal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
