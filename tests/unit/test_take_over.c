/* SPDX-License-Identifier: MIT
 *
 * Captures that the callable begins and ends itself (rp_call_take_over), on the host driver: the
 * graph is the one that the library would have captured, and what goes wrong in between leaves
 * nothing behind.
 */
#include "graph_fixture.h"

#include "fault_loop.h"
#include "reprise_framework.h"

enum { COUNT = 64 };
enum { X, Y, ARGS };

enum habit {
    HONEST,
    FORGETS_TO_END,  /* the capture, and to say so */
    FORGETS_TO_TELL, /* ends it */
    TAKES_OVER_TWICE,
    TAKES_OVER_LATE, /* once work is enqueued */
    BEGINS_NOTHING,
    ENDS_WHILE_IT_CAPTURES,
    FAILS_IN_BETWEEN,
};

struct subject {
    const struct rpt_fixture *f;
    enum habit habit;
    CUgraph mine[4]; /* what was captured in each run: it stays the callable's */
    size_t runs;
};

static rp_status begin(struct rp_call *call, const struct subject *subject, struct rp_error *err)
{
    const struct rp_driver *driver = subject->f->driver;
    rp_status status = rp_call_take_over(call, err);
    if (status == RP_OK && subject->habit == TAKES_OVER_TWICE)
        status = rp_call_take_over(call, err);
    if (status != RP_OK)
        return status;
    if (subject->habit != BEGINS_NOTHING &&
        driver->cuStreamBeginCapture(rp_call_stream(call), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
        return RP_ERROR_DRIVER;
    return rp_call_begun(call, err);
}

static rp_status end(struct rp_call *call, struct subject *subject, struct rp_error *err)
{
    CUgraph *mine = &subject->mine[subject->runs++];
    if (subject->habit == FORGETS_TO_END)
        return RP_OK;
    if (subject->habit == ENDS_WHILE_IT_CAPTURES)
        return rp_call_ended(call, (CUgraph)(uintptr_t)8, err);
    if (subject->f->driver->cuStreamEndCapture(rp_call_stream(call), mine))
        return RP_ERROR_DRIVER;
    if (subject->habit == FORGETS_TO_TELL)
        return RP_OK;
    return rp_call_ended(call, *mine, err);
}

/* y = 5 x, through a block that is freed and taken again. */
static rp_status enqueue(struct rp_call *call, const struct rpt_fixture *f, struct rp_error *err)
{
    CUstream s = rp_call_stream(call);
    uint64_t a = 0, b = 0;
    rp_status status = rp_call_alloc(call, COUNT * sizeof(float), s, &a, err);
    if (status == RP_OK)
        status = rpt_scale(f, s, a, rp_call_arg(call, X), 2, COUNT, err);
    if (status == RP_OK)
        status = rpt_scale(f, s, rp_call_arg(call, Y), a, 2, COUNT, err);
    if (status == RP_OK)
        status = rp_call_free(call, a, err);
    if (status == RP_OK)
        status = rp_call_alloc(call, COUNT * sizeof(float), s, &b, err);
    if (status == RP_OK)
        status = rpt_scale(f, s, b, rp_call_arg(call, X), 1, COUNT, err);
    if (status == RP_OK)
        status = rpt_saxpy(f, s, rp_call_arg(call, Y), b, 1, COUNT, err);
    return status == RP_OK ? rp_call_free(call, b, err) : status;
}

static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    struct subject *subject = user;
    rp_status status = RP_OK;
    bool takes = rp_call_is_captured(call);
    if (subject->habit == TAKES_OVER_LATE)
        status = rpt_fill(subject->f, rp_call_stream(call), rp_call_arg(call, Y), 1, 1, err);
    if (status == RP_OK && takes)
        status = begin(call, subject, err);
    if (status == RP_OK)
        status = enqueue(call, subject->f, err);
    if (status == RP_OK && takes && subject->habit == FAILS_IN_BETWEEN)
        status = RP_ERROR_CALLABLE;
    if (status == RP_OK && takes)
        status = end(call, subject, err);
    return status;
}

static void drop_mine(struct subject *subject)
{
    for (size_t i = 0; i < sizeof subject->mine / sizeof *subject->mine; i++)
        if (subject->mine[i])
            assert_int_equal(subject->f->driver->cuGraphDestroy(subject->mine[i]), 0);
    *subject = (struct subject){.f = subject->f, .habit = subject->habit};
}

static void the_graph_is_the_same(void **state)
{
    struct rpt_fixture *f = *state;
    struct subject subject = {.f = f};
    struct rp_graph *graph = NULL;
    struct rp_graph_info info = {.size = sizeof info};
    float got[COUNT];
    const struct rp_arg args[ARGS] = {
        rpt_arg(rpt_buffer(f, COUNT, 3), COUNT, RP_ARG_IN),
        rpt_arg(rpt_buffer(f, COUNT, 0), COUNT, RP_ARG_OUT),
    };
    RPT_OK(f, rp_run(f->pool, work, &subject, args, ARGS, NULL, &f->err));
    assert_int_equal(subject.runs, 0); /* eager runs are not captured */
    RPT_OK(f, rp_graph_capture(f->pool, NULL, work, &subject, args, ARGS, &graph, &f->err));
    assert_int_equal(subject.runs, 2);
    drop_mine(&subject); /* the library has clones */
    RPT_OK(f, rp_graph_replay(graph, args, ARGS, NULL, &f->err));
    rpt_read(f, args[Y].address, got, COUNT);
    for (int i = 0; i < COUNT; i++)
        assert_true(got[i] == 5 * (3 + (float)(i % 7)));
    rp_graph_info(graph, &info);
    assert_int_equal(info.nodes, 4);
    assert_int_equal(info.blocks, 2);
    assert_int_equal(info.diverged_blocks, 0);
    assert_true(info.planned_bytes < 2 * 512); /* the second block lies over the first */
    assert_int_equal(info.bindable_args, 2);
    rp_graph_destroy(graph);
    for (int k = 0; k < ARGS; k++)
        f->driver->cuMemFree(args[k].address);
}

static void misuse_is_told(void **state)
{
    static const struct {
        enum habit habit;
        rp_status status;
        const char *says;
    } cases[] = {
        {FORGETS_TO_END, RP_ERROR_CAPTURE, "gave no graph"},
        {FORGETS_TO_TELL, RP_ERROR_CAPTURE, "gave no graph"},
        {TAKES_OVER_TWICE, RP_ERROR_INVALID_ARGUMENT, "taken over before"},
        {TAKES_OVER_LATE, RP_ERROR_INVALID_ARGUMENT, "take it over first"},
        {BEGINS_NOTHING, RP_ERROR_INVALID_ARGUMENT, "is not capturing"},
        {ENDS_WHILE_IT_CAPTURES, RP_ERROR_INVALID_ARGUMENT, "end the capture first"},
        {FAILS_IN_BETWEEN, RP_ERROR_CALLABLE, "the callable returned"},
    };
    struct rpt_fixture *f = *state;
    const struct rp_arg args[ARGS] = {
        rpt_arg(rpt_buffer(f, COUNT, 3), COUNT, RP_ARG_IN),
        rpt_arg(rpt_buffer(f, COUNT, 0), COUNT, RP_ARG_OUT),
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct subject subject = {.f = f, .habit = cases[i].habit};
        struct rp_graph *graph = NULL;
        assert_int_equal(
            rp_graph_capture(f->pool, NULL, work, &subject, args, ARGS, &graph, &f->err),
            cases[i].status);
        rpt_says(f, cases[i].says);
        drop_mine(&subject);
        subject.habit = HONEST; /* and nothing is left of it */
        RPT_OK(f, rp_graph_capture(f->pool, NULL, work, &subject, args, ARGS, &graph, &f->err));
        drop_mine(&subject);
        rp_graph_destroy(graph);
    }
    for (int k = 0; k < ARGS; k++)
        f->driver->cuMemFree(args[k].address);
}

/* ---- Any call may fail ---------------------------------------------------------------------- */

struct failing {
    struct subject subject;
    struct rp_arg args[ARGS];
};

static bool capture_and_replay(const struct rp_driver *driver, void *user)
{
    struct failing *failing = user;
    struct rpt_scene scene;
    bool works = rpt_scene_open(&scene, driver) &&
                 rp_graph_capture(scene.pool, NULL, work, &failing->subject, failing->args, ARGS,
                                  &scene.graph, &scene.err) == RP_OK &&
                 rp_graph_replay(scene.graph, failing->args, ARGS, NULL, &scene.err) == RP_OK;
    failing->subject.f->driver->cuCtxSynchronize();
    drop_mine(&failing->subject);
    rpt_scene_close(&scene);
    return works;
}

static void any_call_may_fail(void **state)
{
    const struct rpt_fixture *f = *state;
    struct failing failing = {.subject.f = f,
                              .args = {rpt_arg(rpt_buffer(f, COUNT, 3), COUNT, RP_ARG_IN),
                                       rpt_arg(rpt_buffer(f, COUNT, 0), COUNT, RP_ARG_OUT)}};
    const struct rpt_scenario scenario = {.run = capture_and_replay, .user = &failing};
    assert_true(rpt_fault_loop(f->driver, &scenario, CUDA_ERROR_UNKNOWN) > 50);
    struct rpi_host_options before = rpt_ignore_races();
    assert_true(rpt_memory_fault_loop(f->driver, &scenario) > 50);
    rpi_host_configure(&before);
    for (int k = 0; k < ARGS; k++)
        f->driver->cuMemFree(failing.args[k].address);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RPT_TEST(the_graph_is_the_same),
        RPT_TEST(misuse_is_told),
        RPT_TEST(any_call_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
