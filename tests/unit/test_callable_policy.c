/* SPDX-License-Identifier: MIT
 *
 * Callables that judge for themselves: eager first, a graph once it may pay, the faster of both in
 * the end, results right all along; and the policies that do not judge. How long a run takes is set
 * by the test: an eager call sleeps on the host, a replay in a host function of the graph, so long
 * that a busy machine does not turn the order round. Which way of passing arguments to a graph is
 * the quicker is not set, and not asked.
 */
#include "graph_fixture.h"

#include "graph/callable/callable.h"
#include "reprise_heap.h"

#include <time.h>

enum { COUNT = 256 };

struct fixture {
    struct rpt_fixture f;
    struct rp_callable *callable;
    struct rp_heap *heap;
    uint64_t in, out;
    long eager_us, replay_us; /* that a call takes at least */
    bool refuses;
    int eager, captures;
};

static void sleep_us(long us)
{
    struct timespec t = {.tv_nsec = us * 1000};
    nanosleep(&t, NULL);
}

static void sleep_on_stream(void *user)
{
    sleep_us(*(long *)user);
}

static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    struct fixture *t = user;
    CUstream stream = rp_call_stream(call);
    CUstreamCaptureStatus capturing;
    t->f.driver->cuStreamIsCapturing(stream, &capturing);
    if (capturing != CU_STREAM_CAPTURE_STATUS_NONE) {
        t->captures++;
        if (t->refuses) {
            sleep_us(20000); /* dear enough not to be tried again soon */
            return rpi_error(err, RP_ERROR_CALLABLE, "work", "it reads a value");
        }
        if (t->replay_us &&
            t->f.driver->cuLaunchHostFunc(stream, sleep_on_stream, &t->replay_us) != CUDA_SUCCESS)
            return RP_ERROR_INTERNAL;
    } else {
        t->eager++;
        sleep_us(t->eager_us);
    }
    return rpt_scale(&t->f, stream, rp_call_arg(call, 1), rp_call_arg(call, 0), 3, COUNT, err);
}

static void start(struct fixture *t, enum rp_policy policy, long eager_us, long replay_us)
{
    struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
    memset(t, 0, sizeof *t);
    t->eager_us = eager_us;
    t->replay_us = replay_us;
    rpt_open(&t->f);
    RPT_OK(&t->f, rp_heap_create(t->f.device, NULL, &t->heap, &t->f.err));
    options.policy = policy;
    options.heap = t->heap;
    RPT_OK(&t->f, rp_callable_create(t->f.device, &options, work, t, &t->callable, &t->f.err));
    t->in = rpt_buffer(&t->f, COUNT, 1);
    t->out = rpt_buffer(&t->f, COUNT, 0);
}

static void finish(struct fixture *t)
{
    rp_callable_destroy(t->callable);
    rp_heap_destroy(t->heap);
    assert_int_equal(t->f.driver->cuMemFree(t->in), 0);
    assert_int_equal(t->f.driver->cuMemFree(t->out), 0);
    rpt_close(&t->f);
}

static struct rp_shape_info call(struct fixture *t, int count)
{
    struct rp_arg args[] = {rpt_arg(t->in, COUNT, RP_ARG_IN), rpt_arg(t->out, COUNT, RP_ARG_OUT)};
    struct rp_inputs inputs = {.args = args, .arg_count = 2};
    for (int i = 0; i < count; i++) {
        float out[COUNT];
        assert_int_equal(t->f.driver->cuMemsetD32Async(t->out, 0, COUNT, t->f.streams[0]), 0);
        RPT_OK(&t->f, rp_callable_call(t->callable, &inputs, t->f.streams[0], &t->f.err));
        rpt_read(&t->f, t->out, out, COUNT);
        for (int k = 0; k < COUNT; k++)
            assert_float_equal(out[k], 3 * (1 + k % 7), 0);
    }
    struct rp_shape_info info = {.size = sizeof info};
    assert_int_equal(rp_callable_shape_info(t->callable, 0, &info), 1);
    return info;
}

static void a_slow_eager_callable_becomes_a_graph(void **state)
{
    (void)state;
    struct fixture t;
    start(&t, RP_POLICY_AUTO, 40000, 0);
    struct rp_shape_info info = call(&t, 200);
    assert_int_equal(strncmp(info.choice, "graph", 5), 0);
    assert_string_equal(info.choice_reason, "measured to be the fastest");
    assert_int_equal(info.state, RP_SHAPE_GRAPH);
    assert_true(info.eager_us > 40000 && info.graph_us > 0 && info.graph_us < info.eager_us);
    assert_true(info.measured_calls > 3);
    assert_true(info.replays + info.eager_runs == 200);
    /* The first, a block, a round, and what comes in late. */
    assert_true(info.eager_runs < 12);
    const char *report;
    RPT_OK(&t.f, rp_callable_report(t.callable, RP_REPORT_TEXT, &report, &t.f.err));
    assert_non_null(strstr(report, "by graph: measured to be the fastest (eager "));
    assert_non_null(strstr(report, "its graph: 2 arguments bound, 0 copied; an exec of its own"));
    RPT_OK(&t.f, rp_callable_report(t.callable, RP_REPORT_JSON, &report, &t.f.err));
    assert_non_null(strstr(report, "\"bound_args\":2,\"copied_args\":0,\"own_exec\":true}"));
    finish(&t);
}

static void a_slow_graph_is_left(void **state)
{
    (void)state;
    struct fixture t;
    start(&t, RP_POLICY_AUTO, 0, 40000);
    struct rp_shape_info info = call(&t, 300);
    assert_string_equal(info.choice, "eager");
    assert_int_equal(info.state, RP_SHAPE_GRAPH); /* it was tried */
    assert_true(info.graph_us > 40000 && info.eager_us < info.graph_us);
    assert_true(info.replays > 0 && info.replays < 50);
    finish(&t);
}

static void what_cannot_be_captured_stays_eager(void **state)
{
    (void)state;
    struct fixture t;
    start(&t, RP_POLICY_AUTO, 0, 0);
    t.refuses = true;
    struct rp_shape_info info = call(&t, 100);
    assert_string_equal(info.choice, "eager");
    assert_string_equal(info.choice_reason, "the callable could not be captured");
    assert_int_equal(info.eager_runs, 100);
    assert_non_null(strstr(info.reason, "it reads a value"));
    assert_int_equal(t.captures, 1);
    finish(&t);
}

static void policies_that_do_not_judge(void **state)
{
    (void)state;
    struct fixture t;
    start(&t, RP_POLICY_NEVER, 0, 0);
    struct rp_shape_info info = call(&t, 20);
    assert_true(info.eager_runs == 20 && t.captures == 0 && !info.choice);
    finish(&t);
    start(&t, RP_POLICY_ALWAYS, 0, 2000);
    info = call(&t, 20);
    assert_true(info.eager_runs == 1 && info.replays == 19 && !info.choice);
    finish(&t);
    struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
    options.policy = (enum rp_policy)7;
    rpt_open(&t.f);
    assert_int_equal(rp_callable_create(t.f.device, &options, work, &t, &t.callable, &t.f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    rpt_close(&t.f);
}

/* A shape captured ahead of time is compared too, without being captured again. */
static void a_graph_made_ahead_is_compared(void **state)
{
    (void)state;
    struct fixture t;
    start(&t, RP_POLICY_AUTO, 40000, 0);
    struct rp_arg args[] = {rpt_arg(0, COUNT, RP_ARG_IN), rpt_arg(0, COUNT, RP_ARG_OUT)};
    struct rp_inputs inputs = {.args = args, .arg_count = 2};
    call(&t, 1);
    RPT_OK(&t.f, rp_callable_capture(t.callable, &inputs, 1, NULL, NULL, NULL, &t.f.err));
    int captures = t.captures;
    struct rp_shape_info info = call(&t, 100);
    assert_int_equal(t.captures, captures);
    assert_int_equal(strncmp(info.choice, "graph", 5), 0);
    finish(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_eager_callable_becomes_a_graph),
        cmocka_unit_test(a_slow_graph_is_left),
        cmocka_unit_test(what_cannot_be_captured_stays_eager),
        cmocka_unit_test(policies_that_do_not_judge),
        cmocka_unit_test(a_graph_made_ahead_is_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
