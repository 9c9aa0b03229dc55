/* SPDX-License-Identifier: MIT
 *
 * Values that each replay sets (rp_call_value, rp_graph_replay_values): ahead of all nodes, in the
 * graph's own copy node or beside the graph, whatever else is copied and whoever shares the exec.
 */
#include "graph_fixture.h"

#include "fault_loop.h"
#include "graph/exec/exec_cache.h"
#include "reprise_framework.h"

enum { MANY = RPI_COPY_MOST + 9 };

/* Argument 1 + i is value i, read on a stream of its own where there are two, and argument 0 is
 * doubled into the last. */
struct subject {
    const struct rpt_fixture *f;
    CUdeviceptr words, memory;
    size_t values;
    size_t named; /* in this run; more than values: one twice */
    size_t fewer; /* than in the run before */
    uint64_t odd; /* added to the first address */
    struct rp_arg args[MANY + 2];
};

static rp_status copy_word(const struct rpt_fixture *f, CUstream stream, uint64_t to, uint64_t from,
                           struct rp_error *err)
{
    uint32_t floats = 2;
    void *params[] = {&to, &from, &floats};
    return rpt_launch(f, f->copy, stream, params, err);
}

static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    struct subject *subject = user;
    const struct rpt_fixture *f = subject->f;
    CUstream first = rp_call_stream(call), second = f->streams[0];
    size_t last = subject->values + 1;
    rp_status status = rpt_join(f, first, second, err);
    for (size_t i = 0; status == RP_OK && i < subject->values; i++)
        status = copy_word(f, i % 2 ? second : first, rp_call_arg(call, 1 + i),
                           subject->words + 8 * i, err);
    if (status == RP_OK)
        status = rpt_scale(f, second, rp_call_arg(call, last), rp_call_arg(call, 0), 2, 1, err);
    if (status == RP_OK)
        status = rpt_join(f, second, first, err);
    size_t named = rp_call_is_captured(call) && subject->values ? subject->named : 0;
    for (size_t i = 0; status == RP_OK && i < named; i++)
        status =
            rp_call_value(call, subject->words + 8 * (i % subject->values) + subject->odd, err);
    subject->named -= subject->fewer;
    return status;
}

static void init(struct subject *subject, const struct rpt_fixture *f, size_t values)
{
    enum { APART = 256 };
    *subject = (struct subject){.f = f, .values = values, .named = values};
    assert_int_equal(f->driver->cuMemAlloc(&subject->words, MANY * 8), 0);
    assert_int_equal(f->driver->cuMemAlloc(&subject->memory, (MANY + 2) * APART), 0);
    for (size_t i = 0; i < values + 2; i++) {
        subject->args[i] =
            rpt_arg(subject->memory + i * APART, i ? 2 : 1, i ? RP_ARG_OUT : RP_ARG_IN);
    }
    subject->args[values + 1].bytes = sizeof(float);
}

static void finish(struct subject *subject)
{
    subject->f->driver->cuMemFree(subject->words);
    subject->f->driver->cuMemFree(subject->memory);
}

static rp_status capture(struct subject *subject, const struct rp_capture_options *options,
                         struct rp_graph **out_graph, struct rp_error *err)
{
    *out_graph = NULL;
    return rp_graph_capture(subject->f->pool, options, work, subject, subject->args,
                            subject->values + 2, out_graph, err);
}

static struct rp_graph *captured(struct subject *subject, int copy_args)
{
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct rp_error err = {0};
    struct rp_graph *graph;
    options.copy_args = copy_args;
    rp_status status = capture(subject, &options, &graph, &err);
    if (status != RP_OK)
        print_error("%s\n", err.message);
    assert_int_equal(status, RP_OK);
    return graph;
}

/* Other values and another argument each time: what came too late or not at all is noticed. */
static void replay(struct subject *subject, struct rp_graph *graph, unsigned turn)
{
    const struct rp_driver *driver = subject->f->driver;
    uint64_t values[MANY], got;
    float x = (float)turn, y;
    struct rp_error err = {0};
    for (size_t i = 0; i < subject->values; i++)
        values[i] = ((uint64_t)turn << 40) + (i << 20) + 5 * turn;
    assert_int_equal(driver->cuMemcpyHtoD(subject->args[0].address, &x, sizeof x), 0);
    assert_int_equal(rp_graph_replay_values(graph, subject->args, subject->values + 2, values,
                                            subject->values, subject->f->streams[1], &err),
                     RP_OK);
    assert_int_equal(driver->cuCtxSynchronize(), 0);
    for (size_t i = 0; i < subject->values; i++) {
        assert_int_equal(driver->cuMemcpyDtoH(&got, subject->args[1 + i].address, 8), 0);
        assert_true(got == values[i]);
    }
    assert_int_equal(driver->cuMemcpyDtoH(&y, subject->args[subject->values + 1].address, sizeof y),
                     0);
    assert_true(y == 2 * x);
}

static void each_replay_sets_its_own(void **state)
{
    const struct rpt_fixture *f = *state;
    struct subject subject;
    for (int copy_args = 0; copy_args < 2; copy_args++) {
        init(&subject, f, 3);
        struct rp_graph *graph = captured(&subject, copy_args);
        for (unsigned turn = 1; turn < 30; turn++)
            replay(&subject, graph, turn);
        assert_int_equal(f->device->copier.launches, 0); /* all in the graph */
        rp_graph_destroy(graph);
        finish(&subject);
    }
}

static void the_same_values_change_no_node(void **state)
{
    const struct rpt_fixture *f = *state;
    struct subject subject;
    init(&subject, f, 2);
    struct rp_graph *graph = captured(&subject, 0);
    replay(&subject, graph, 1);
    uint64_t tables = graph->exec->copy_nodes.tables;
    replay(&subject, graph, 1);
    assert_int_equal(graph->exec->copy_nodes.tables, tables);
    replay(&subject, graph, 2);
    assert_int_equal(graph->exec->copy_nodes.tables, tables + 1);
    rp_graph_destroy(graph);
    finish(&subject);
}

static void graphs_that_share_an_exec_have_their_own(void **state)
{
    const struct rpt_fixture *f = *state;
    struct subject subjects[3];
    struct rp_graph *graphs[3];
    struct rp_device_exec_info info = {.size = sizeof info};
    rpi_exec_cache_set_budget(f->device->execs, 1);
    for (size_t i = 0; i < 3; i++) {
        init(&subjects[i], f, 2);
        graphs[i] = captured(&subjects[i], 0);
    }
    for (unsigned turn = 1; turn < 60; turn++)
        replay(&subjects[turn % 3], graphs[turn % 3], turn);
    rp_device_exec_info(f->device, &info);
    assert_int_equal(info.execs, 1);
    for (size_t i = 0; i < 3; i++) {
        rp_graph_destroy(graphs[i]);
        finish(&subjects[i]);
    }
}

static void more_than_a_table_holds_go_beside_the_graph(void **state)
{
    const struct rpt_fixture *f = *state;
    struct subject subject;
    init(&subject, f, MANY);
    struct rp_graph *graph = captured(&subject, 0);
    for (unsigned turn = 1; turn < 6; turn++)
        replay(&subject, graph, turn);
    rp_graph_destroy(graph);
    finish(&subject);
}

static CUresult refuse_module(CUmodule *module, const void *image)
{
    if (image == &rpi_copy_host_image)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    return rpi_driver_host()->cuModuleLoadData(module, image);
}

static void without_the_kernel_they_are_fills(void **state)
{
    (void)state;
    static struct rpt_fixture f;
    struct rp_driver table = *rpi_driver_host();
    struct subject subject;
    table.cuModuleLoadData = refuse_module;
    rpt_open_on(&f, &table, NULL);
    init(&subject, &f, 4);
    struct rp_graph *graph = captured(&subject, 0);
    for (unsigned turn = 1; turn < 12; turn++)
        replay(&subject, graph, turn);
    rp_graph_destroy(graph);
    finish(&subject);
    rpt_close(&f);
}

/* ---- What is refused ------------------------------------------------------------------------ */

static void another_number_of_values_is_a_breach(void **state)
{
    struct rpt_fixture *f = *state;
    struct subject subject;
    uint64_t values[3] = {0};
    init(&subject, f, 2);
    struct rp_graph *graph = captured(&subject, 0);
    assert_int_equal(rp_graph_replay(graph, subject.args, 4, NULL, &f->err), RP_ERROR_CONTRACT);
    rpt_says(f, "is given 0 values and has 2");
    assert_int_equal(rp_graph_replay_values(graph, subject.args, 4, values, 3, NULL, &f->err),
                     RP_ERROR_CONTRACT);
    rp_graph_destroy(graph);
    finish(&subject);
}

static void addresses_are_checked(void **state)
{
    struct rpt_fixture *f = *state;
    struct subject subject;
    struct rp_graph *graph;
    init(&subject, f, 2);
    subject.odd = 4;
    assert_int_equal(capture(&subject, NULL, &graph, &f->err), RP_ERROR_INVALID_ARGUMENT);
    rpt_says(f, "no address of a word");
    subject.odd = 0;
    subject.named = 3;
    assert_int_equal(capture(&subject, NULL, &graph, &f->err), RP_ERROR_INVALID_ARGUMENT);
    rpt_says(f, "named before");
    finish(&subject);
}

static void each_run_names_as_many(void **state)
{
    struct rpt_fixture *f = *state;
    struct subject subject;
    struct rp_graph *graph;
    init(&subject, f, 9);
    subject.fewer = 1;
    assert_int_equal(capture(&subject, NULL, &graph, &f->err), RP_ERROR_DIVERGED);
    rpt_says(f, "in its rehearsal. It must name the same in each run");
    finish(&subject);
}

static rp_status name_an_argument(struct rp_call *call, void *user, struct rp_error *err)
{
    (void)user;
    return rp_call_value(call, rp_call_arg(call, 0), err);
}

/* In memory of eager runs, of which one that captures has none. */
static rp_status name_a_block(struct rp_call *call, void *user, struct rp_error *err)
{
    uint64_t *block = user;
    if (rp_call_is_captured(call))
        return rp_call_value(call, *block, err);
    rp_status status = rp_call_alloc(call, 512, rp_call_stream(call), block, err);
    return status == RP_OK ? rp_call_free(call, *block, err) : status;
}

static void words_of_captures_are_not_the_callers(void **state)
{
    struct rpt_fixture *f = *state;
    struct subject subject;
    struct rp_graph *graph = NULL;
    uint64_t block = 0;
    init(&subject, f, 1);
    RPT_OK(f, rp_run(f->pool, name_a_block, &block, subject.args, 1, NULL, &f->err));
    assert_int_equal(
        rp_graph_capture(f->pool, NULL, name_a_block, &block, subject.args, 1, &graph, &f->err),
        RP_ERROR_INVALID_ARGUMENT);
    rpt_says(f, "memory of captures");
    assert_int_equal(
        rp_graph_capture(f->pool, NULL, name_an_argument, NULL, subject.args, 1, &graph, &f->err),
        RP_ERROR_INVALID_ARGUMENT);
    rpt_says(f, "memory of captures");
    assert_int_equal(rp_run(f->pool, name_an_argument, NULL, subject.args, 1, NULL, &f->err),
                     RP_ERROR_INVALID_ARGUMENT);
    rpt_says(f, "not captured");
    finish(&subject);
}

static void what_has_values_is_not_verified_by_running(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct subject subject;
    struct rp_graph *graph;
    struct rp_graph_info info = {.size = sizeof info};
    init(&subject, f, 2);
    options.verify = RP_VERIFY_RUN;
    RPT_OK(f, capture(&subject, &options, &graph, &f->err));
    rp_graph_info(graph, &info);
    assert_int_equal(info.verified, RP_VERIFY_CAPTURE);
    assert_non_null(info.not_run);
    replay(&subject, graph, 3);
    rp_graph_destroy(graph);
    finish(&subject);
}

/* ---- Any call may fail ---------------------------------------------------------------------- */

static bool capture_and_replay(const struct rp_driver *driver, void *user)
{
    struct subject *subject = user;
    uint64_t values[] = {7, 8}, got = 0;
    struct rpt_scene scene;
    bool works = rpt_scene_open(&scene, driver) &&
                 rp_graph_capture(scene.pool, NULL, work, subject, subject->args, 4, &scene.graph,
                                  &scene.err) == RP_OK &&
                 rp_graph_replay_values(scene.graph, subject->args, 4, values, 2,
                                        subject->f->streams[1], NULL) == RP_OK;
    works &= subject->f->driver->cuCtxSynchronize() == CUDA_SUCCESS &&
             subject->f->driver->cuMemcpyDtoH(&got, subject->args[2].address, 8) == CUDA_SUCCESS;
    assert_true(!works || got == 8);
    rpt_scene_close(&scene);
    return works;
}

static void any_call_may_fail(void **state)
{
    const struct rpt_fixture *f = *state;
    struct subject subject;
    init(&subject, f, 2);
    const struct rpt_scenario scenario = {.run = capture_and_replay, .user = &subject};
    assert_true(rpt_fault_loop(f->driver, &scenario, CUDA_ERROR_UNKNOWN) > 50);
    struct rpi_host_options before = rpt_ignore_races();
    assert_true(rpt_memory_fault_loop(f->driver, &scenario) > 50);
    rpi_host_configure(&before);
    finish(&subject);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RPT_TEST(each_replay_sets_its_own),
        RPT_TEST(the_same_values_change_no_node),
        RPT_TEST(graphs_that_share_an_exec_have_their_own),
        RPT_TEST(more_than_a_table_holds_go_beside_the_graph),
        cmocka_unit_test(without_the_kernel_they_are_fills),
        RPT_TEST(another_number_of_values_is_a_breach),
        RPT_TEST(addresses_are_checked),
        RPT_TEST(each_run_names_as_many),
        RPT_TEST(words_of_captures_are_not_the_callers),
        RPT_TEST(what_has_values_is_not_verified_by_running),
        RPT_TEST(any_call_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
