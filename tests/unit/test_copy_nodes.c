/* SPDX-License-Identifier: MIT
 *
 * Copies that a graph makes by itself: ahead of all roots and behind all leaves, whatever order its
 * nodes run in; tables that change where addresses do and are empty where nothing is copied; execs
 * that graphs take turns in; what goes beside the graph all the same.
 */
#include "graph_fixture.h"

#include "fault_loop.h"
#include "graph/bind/copy_choice.h"
#include "graph/exec/exec_cache.h"
#include "reprise_tools.h"

enum { WIDE = 3, COUNT = 48, BYTES = COUNT * sizeof(float), SETS = 4 };

/* Argument WIDE + i is argument i times three, each on a stream of its own: as many roots as
 * leaves. */
struct fan {
    struct rpt_fixture *f;
    CUdeviceptr memory;
    struct rp_arg args[SETS][2 * WIDE];
    unsigned turn;
};

static rp_status run_fan(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct rpt_fixture *f = ((const struct fan *)user)->f;
    rp_status status = RP_OK;
    CUstream s = rp_call_stream(call);
    for (size_t i = 1; status == RP_OK && i < WIDE; i++)
        status = rpt_join(f, s, f->streams[i], err);
    for (size_t i = 0; status == RP_OK && i < WIDE; i++)
        status = rpt_scale(f, i ? f->streams[i] : s, rp_call_arg(call, WIDE + i),
                           rp_call_arg(call, i), 3, COUNT, err);
    for (size_t i = 1; status == RP_OK && i < WIDE; i++)
        status = rpt_join(f, f->streams[i], s, err);
    return status;
}

static void fan_init(struct fan *fan, struct rpt_fixture *f)
{
    *fan = (struct fan){.f = f};
    assert_int_equal(f->driver->cuMemAlloc(&fan->memory, (size_t)SETS * 2 * WIDE * BYTES), 0);
    for (size_t i = 0; i < (size_t)SETS * 2 * WIDE; i++)
        fan->args[i / (2 * WIDE)][i % (2 * WIDE)] =
            rpt_arg(fan->memory + i * BYTES, COUNT, i % (2 * WIDE) < WIDE ? RP_ARG_IN : RP_ARG_OUT);
}

static struct rp_graph *capture_fan(struct fan *fan)
{
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct rp_graph *graph = NULL;
    options.copy_args = 1;
    RPT_OK(fan->f, rp_graph_capture(fan->f->pool, &options, run_fan, fan, fan->args[0], 2 * WIDE,
                                    &graph, &fan->f->err));
    return graph;
}

/* Other values each time: what a replay left out or did too late is noticed. */
static void replay_fan(struct fan *fan, struct rp_graph *graph, const struct rp_arg *args)
{
    const struct rp_driver *driver = fan->f->driver;
    float values[COUNT];
    fan->turn++;
    for (size_t k = 0; k < 2 * WIDE; k++) {
        for (size_t n = 0; n < COUNT; n++)
            values[n] = k < WIDE ? (float)(fan->turn * 64 + k * 7 + n) : -1;
        assert_int_equal(driver->cuMemcpyHtoD(args[k].address, values, BYTES), 0);
    }
    RPT_OK(fan->f, rp_graph_replay(graph, args, 2 * WIDE, fan->f->streams[3], &fan->f->err));
    assert_int_equal(driver->cuCtxSynchronize(), 0);
    for (size_t k = WIDE; k < 2 * WIDE; k++) {
        assert_int_equal(driver->cuMemcpyDtoH(values, args[k].address, BYTES), 0);
        for (size_t n = 0; n < COUNT; n++)
            assert_true(values[n] == 3 * (float)(fan->turn * 64 + (k - WIDE) * 7 + n));
    }
}

static struct rpi_copy_node *copy_node(const struct rp_graph *graph, enum rpi_copy_node_end end)
{
    return &graph->exec->copy_nodes.ends[end];
}

static void they_stand_ahead_of_all_roots_and_behind_all_leaves(void **state)
{
    struct rpt_fixture *f = *state;
    struct fan fan;
    struct rp_graph_info info = {.size = sizeof info};
    fan_init(&fan, f);
    struct rp_graph *graph = capture_fan(&fan);
    CUgraphNode roots[4];
    size_t count = 4;
    CUgraph template = graph->client->source->template;
    assert_int_equal(f->driver->cuGraphGetRootNodes(template, roots, &count), 0);
    assert_int_equal(count, 1);
    assert_ptr_equal(roots[0], copy_node(graph, RPI_COPY_NODE_IN)->node);
    count = 0;
    assert_int_equal(f->driver->cuGraphNodeGetDependentNodes(roots[0], NULL, NULL, &count), 0);
    assert_int_equal(count, WIDE);
    assert_int_equal(f->driver->cuGraphNodeGetDependencies(
                         copy_node(graph, RPI_COPY_NODE_OUT)->node, NULL, NULL, &count),
                     0);
    assert_int_equal(count, WIDE);
    for (unsigned i = 0; i < 60; i++)
        replay_fan(&fan, graph, fan.args[i * 3 % SETS]);
    rp_graph_info(graph, &info);
    assert_int_equal(info.nodes, WIDE); /* of the callable */
    assert_int_equal(info.copied_args, 2 * WIDE);
    assert_int_equal(f->device->copier.launches, 0);
    rp_graph_destroy(graph);
    f->driver->cuMemFree(fan.memory);
}

static void tables_change_where_addresses_do(void **state)
{
    struct rpt_fixture *f = *state;
    struct fan fan;
    fan_init(&fan, f);
    struct rp_graph *graph = capture_fan(&fan);
    const struct rpi_copy_nodes *copy_nodes = &graph->exec->copy_nodes;
    for (int i = 0; i < 3; i++)
        replay_fan(&fan, graph, fan.args[1]);
    assert_int_equal(copy_nodes->tables, 2);
    struct rp_arg args[2 * WIDE];
    memcpy(args, fan.args[1], sizeof args);
    args[0] = fan.args[2][0];
    replay_fan(&fan, graph, args);
    assert_int_equal(copy_nodes->tables, 3);
    replay_fan(&fan, graph, args);
    assert_int_equal(copy_nodes->tables, 3);
    rp_graph_destroy(graph);
    f->driver->cuMemFree(fan.memory);
}

static void graphs_that_share_an_exec_have_their_own(void **state)
{
    struct rpt_fixture *f = *state;
    struct fan fan;
    struct rp_graph *graphs[3];
    rpi_exec_cache_set_budget(f->device->execs, 1);
    fan_init(&fan, f);
    for (size_t i = 0; i < 3; i++)
        graphs[i] = capture_fan(&fan);
    for (unsigned i = 0; i < 40; i++)
        replay_fan(&fan, graphs[i % 3], fan.args[i % 3 + (i > 20)]); /* each its own, for a while */
    struct rp_device_exec_info info = {.size = sizeof info};
    rp_device_exec_info(f->device, &info);
    assert_int_equal(info.execs, 1);
    assert_true(info.updates > 20 && !info.refused);
    for (size_t i = 0; i < 3; i++)
        rp_graph_destroy(graphs[i]);
    f->driver->cuMemFree(fan.memory);
}

/* ---- Drivers of other habits --------------------------------------------------------------- */

static CUgraph watched;

/* Of the template, the node that was added last first. */
static CUresult newest_first(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    CUresult result = rpi_driver_host()->cuGraphGetNodes(graph, nodes, count);
    for (size_t i = 0; result == CUDA_SUCCESS && nodes && i < *count / 2; i++) {
        CUgraphNode node = nodes[i];
        nodes[i] = nodes[*count - 1 - i];
        nodes[*count - 1 - i] = node;
    }
    watched = graph;
    return result;
}

static void nodes_keep_their_numbers_whatever_the_drivers_order(void **state)
{
    (void)state;
    static struct rpt_fixture f;
    struct rp_driver table = *rpi_driver_host();
    struct fan fan;
    struct rp_graph_site site = {.size = sizeof site};
    table.cuGraphGetNodes = newest_first;
    rpt_open_on(&f, &table, NULL);
    rpi_exec_cache_set_budget(f.device->execs, 1);
    fan_init(&fan, &f);
    struct rp_graph *graphs[] = {capture_fan(&fan), capture_fan(&fan)};
    assert_ptr_equal(watched, graphs[1]->client->source->template);
    assert_int_equal(copy_node(graphs[0], RPI_COPY_NODE_IN)->number, WIDE);
    assert_int_equal(copy_node(graphs[0], RPI_COPY_NODE_OUT)->number, WIDE + 1);
    RPT_OK(&f, rp_graph_site(graphs[0], 0, &site, &f.err));
    assert_string_equal(site.function, "rpt_scale");
    for (unsigned i = 0; i < 12; i++)
        replay_fan(&fan, graphs[i % 2], fan.args[i % SETS]);
    for (size_t i = 0; i < 2; i++)
        rp_graph_destroy(graphs[i]);
    f.driver->cuMemFree(fan.memory);
    rpt_close(&f);
}

/* Nodes behind those that they depend on, however they were added: an order that the driver may
 * list them in. */
static CUresult roots_first(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    enum { MOST = 8 };
    CUgraphNode listed[MOST], before[MOST];
    size_t all = MOST, done = 0;
    bool taken[MOST] = {false};
    if (!nodes)
        return rpi_driver_host()->cuGraphGetNodes(graph, nodes, count);
    assert_int_equal(rpi_driver_host()->cuGraphGetNodes(graph, listed, &all), 0);
    for (size_t i = 0; done < all; i = (i + 1) % all) {
        size_t needed = MOST, met = 0;
        if (taken[i])
            continue;
        assert_int_equal(
            rpi_driver_host()->cuGraphNodeGetDependencies(listed[i], before, NULL, &needed), 0);
        for (size_t k = 0; k < needed; k++)
            for (size_t j = 0; j < done; j++)
                met += nodes[j] == before[k];
        taken[i] = met == needed;
        if (taken[i])
            nodes[done++] = listed[i];
    }
    *count = done;
    return CUDA_SUCCESS;
}

struct line {
    struct rpt_fixture *f;
    int kernels;
};

/* y = x times two, again and again. */
static rp_status run_line(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct line *line = user;
    rp_status status = RP_OK;
    for (int i = 0; status == RP_OK && i < line->kernels; i++)
        status = rpt_scale(line->f, rp_call_stream(call), rp_call_arg(call, 1),
                           rp_call_arg(call, i ? 1 : 0), 2, COUNT, err);
    return status;
}

/* One kernel between two copy nodes, and three kernels: of one topology where such do not count.
 */
static void graphs_with_carriers_share_with_none_that_have_others(void **state)
{
    (void)state;
    static struct rpt_fixture f;
    struct rp_driver table = *rpi_driver_host();
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct line lines[] = {{&f, 1}, {&f, 3}};
    struct rp_graph *graphs[2];
    CUdeviceptr memory;
    table.cuGraphGetNodes = roots_first;
    rpt_open_on(&f, &table, NULL);
    rpi_exec_cache_set_budget(f.device->execs, 1);
    assert_int_equal(f.driver->cuMemAlloc(&memory, 2 * BYTES), 0);
    struct rp_arg args[] = {rpt_arg(memory, COUNT, RP_ARG_IN),
                            rpt_arg(memory + BYTES, COUNT, RP_ARG_OUT)};
    for (int i = 0; i < 2; i++) {
        options.copy_args = !i;
        RPT_OK(&f, rp_graph_capture(f.pool, &options, run_line, &lines[i], args, 2, &graphs[i],
                                    &f.err));
    }
    for (unsigned i = 0; i < 20; i++) {
        float value = (float)i, got;
        assert_int_equal(f.driver->cuMemcpyHtoD(memory, &value, sizeof value), 0);
        RPT_OK(&f, rp_graph_replay(graphs[i % 2], args, 2, NULL, &f.err));
        assert_int_equal(f.driver->cuCtxSynchronize(), 0);
        assert_int_equal(f.driver->cuMemcpyDtoH(&got, memory + BYTES, sizeof got), 0);
        assert_true(got == (i % 2 ? 8 : 2) * value);
    }
    for (size_t i = 0; i < 2; i++)
        rp_graph_destroy(graphs[i]);
    f.driver->cuMemFree(memory);
    rpt_close(&f);
}

static CUresult refuse_module(CUmodule *module, const void *image)
{
    if (image == &rpi_copy_host_image)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    return rpi_driver_host()->cuModuleLoadData(module, image);
}

static void without_the_kernel_copies_go_beside_the_graph(void **state)
{
    (void)state;
    static struct rpt_fixture f;
    struct rp_driver table = *rpi_driver_host();
    struct fan fan;
    table.cuModuleLoadData = refuse_module;
    rpt_open_on(&f, &table, NULL);
    fan_init(&fan, &f);
    struct rp_graph *graph = capture_fan(&fan);
    assert_int_equal(copy_node(graph, RPI_COPY_NODE_IN)->most, 0);
    assert_int_equal(copy_node(graph, RPI_COPY_NODE_OUT)->most, 0);
    for (unsigned i = 0; i < 12; i++)
        replay_fan(&fan, graph, fan.args[i % SETS]);
    rp_graph_destroy(graph);
    f.driver->cuMemFree(fan.memory);
    rpt_close(&f);
}

/* ---- More than a table holds --------------------------------------------------------------- */

enum { MANY = RPI_COPY_MOST + 9, OF_ALL = MANY * (MANY - 1) / 2 };

/* The last argument is the sum of the others. */
static rp_status run_sum(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct rpt_fixture *f = user;
    uint64_t sum = rp_call_arg(call, MANY);
    rp_status status = rpt_fill(f, rp_call_stream(call), sum, 0, 1, err);
    for (size_t i = 0; status == RP_OK && i < MANY; i++)
        status = rpt_saxpy(f, rp_call_stream(call), sum, rp_call_arg(call, i), 1, 1, err);
    return status;
}

static void what_a_table_has_no_room_for_goes_beside_the_graph(void **state)
{
    enum { APART = 256 };
    struct rpt_fixture *f = *state;
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct rp_graph *graph = NULL;
    static struct rp_arg args[MANY + 1];
    CUdeviceptr memory;
    assert_int_equal(f->driver->cuMemAlloc(&memory, (size_t)2 * (MANY + 1) * APART), 0);
    for (size_t i = 0; i < (size_t)2 * (MANY + 1); i++) {
        size_t set = i / (MANY + 1);
        float value = (float)(i % (MANY + 1) + 1000 * set);
        assert_int_equal(f->driver->cuMemcpyHtoD(memory + i * APART, &value, sizeof value), 0);
    }
    for (size_t i = 0; i <= MANY; i++)
        args[i] = rpt_arg(memory + i * APART, 1, i < MANY ? RP_ARG_IN : RP_ARG_OUT);
    options.copy_args = 1;
    RPT_OK(f, rp_graph_capture(f->pool, &options, run_sum, f, args, MANY + 1, &graph, &f->err));
    assert_int_equal(copy_node(graph, RPI_COPY_NODE_IN)->most, RPI_COPY_MOST);
    assert_int_equal(copy_node(graph, RPI_COPY_NODE_OUT)->most, 8);
    for (int turn = 0; turn < 6; turn++) {
        size_t set = (size_t)turn % 2;
        float sum;
        for (size_t i = 0; i <= MANY; i++)
            args[i].address = memory + (i + set * (MANY + 1)) * APART;
        RPT_OK(f, rp_graph_replay(graph, args, MANY + 1, NULL, &f->err));
        assert_int_equal(f->driver->cuCtxSynchronize(), 0);
        assert_int_equal(f->driver->cuMemcpyDtoH(&sum, args[MANY].address, sizeof sum), 0);
        assert_true(sum == (float)(OF_ALL + 1000 * (int)set * MANY));
    }
    rp_graph_destroy(graph);
    f->driver->cuMemFree(memory);
}

/* ---- Any call may fail --------------------------------------------------------------------- */

static struct fan failing;

/* A replay that failed is tried again; then it works. */
static bool replay_failing(struct rp_graph *graph, size_t set)
{
    const struct rpt_fixture *f = failing.f;
    const struct rp_arg *args = failing.args[set];
    float values[COUNT];
    if (rp_graph_replay(graph, args, 2 * WIDE, f->streams[3], NULL) != RP_OK &&
        rp_graph_replay(graph, args, 2 * WIDE, f->streams[3], NULL) != RP_OK)
        return false;
    if (f->driver->cuCtxSynchronize() != CUDA_SUCCESS ||
        f->driver->cuMemcpyDtoH(values, args[WIDE + 1].address, BYTES) != CUDA_SUCCESS)
        return false;
    for (size_t n = 0; n < COUNT; n++)
        assert_true(values[n] == 3 * (float)(set + 1));
    return true;
}

static bool capture_and_replay(const struct rp_driver *driver, void *user)
{
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct rpt_scene scene;
    struct fan *fan = user;
    options.copy_args = 1;
    bool works = rpt_scene_open(&scene, driver) &&
                 rp_graph_capture(scene.pool, &options, run_fan, fan, fan->args[0], 2 * WIDE,
                                  &scene.graph, &scene.err) == RP_OK;
    for (size_t set = 0; works && set < SETS; set++)
        works = replay_failing(scene.graph, set);
    rpt_scene_close(&scene);
    return works;
}

static void any_call_may_fail(void **state)
{
    struct rpt_fixture *f = *state;
    const struct rpt_scenario scenario = {.run = capture_and_replay, .user = &failing};
    fan_init(&failing, f);
    for (size_t set = 0; set < SETS; set++)
        for (size_t k = 0; k < WIDE; k++) {
            const float value = (float)(set + 1);
            uint32_t bits;
            memcpy(&bits, &value, sizeof bits);
            assert_int_equal(f->driver->cuMemsetD32(failing.args[set][k].address, bits, COUNT), 0);
        }
    assert_int_equal(f->driver->cuCtxSynchronize(), 0);
    assert_true(rpt_fault_loop(f->driver, &scenario, CUDA_ERROR_INVALID_VALUE) > 50);
    struct rpi_host_options before = rpt_ignore_races();
    assert_true(rpt_memory_fault_loop(f->driver, &scenario) > 50);
    rpi_host_configure(&before);
    f->driver->cuMemFree(failing.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RPT_TEST(they_stand_ahead_of_all_roots_and_behind_all_leaves),
        RPT_TEST(tables_change_where_addresses_do),
        RPT_TEST(graphs_that_share_an_exec_have_their_own),
        cmocka_unit_test(nodes_keep_their_numbers_whatever_the_drivers_order),
        cmocka_unit_test(graphs_with_carriers_share_with_none_that_have_others),
        cmocka_unit_test(without_the_kernel_copies_go_beside_the_graph),
        RPT_TEST(what_a_table_has_no_room_for_goes_beside_the_graph),
        RPT_TEST(any_call_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
