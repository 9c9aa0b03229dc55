/* SPDX-License-Identifier: MIT
 *
 * Callables whose function uses a block of a heap beside its arguments: when that is freed and
 * another takes its place, calls give what eager runs give, by a graph that was captured anew;
 * where that happens again and again, without one.
 */
#include "graph_fixture.h"

#include "graph/callable/callable.h"
#include "memory/heap/heap.h"

enum { COUNT = 32, BYTES = COUNT * sizeof(float) };

struct fixture {
    struct rpt_fixture f;
    struct rp_heap *heap;
    struct rp_callable *callable;
    uint64_t held, in, out;
    int runs;
};

#define OK(t, call) RPT_OK(&(t)->f, call)

static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    struct fixture *t = user;
    t->runs++;
    return rpt_add(&t->f, rp_call_stream(call), rp_call_arg(call, 1), rp_call_arg(call, 0), t->held,
                   COUNT, err);
}

/* Another block, that holds `value` everywhere. */
static void replace(struct fixture *t, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    assert_int_equal(t->f.driver->cuCtxSynchronize(), 0);
    OK(t, rp_heap_free(t->heap, t->held, &t->f.err));
    OK(t, rp_heap_alloc(t->heap, BYTES, NULL, &t->held, &t->f.err));
    assert_int_equal(t->f.driver->cuMemsetD32(t->held, bits, COUNT), 0);
}

static void start(struct fixture *t, enum rp_policy policy)
{
    struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
    memset(t, 0, sizeof *t);
    rpt_open(&t->f);
    options.policy = policy;
    OK(t, rp_heap_create(t->f.device, NULL, &t->heap, &t->f.err));
    OK(t, rp_callable_create(t->f.device, &options, work, t, &t->callable, &t->f.err));
    t->in = rpt_buffer(&t->f, COUNT, 1);
    t->out = rpt_buffer(&t->f, COUNT, 0);
    replace(t, 0);
}

static void finish(struct fixture *t)
{
    rp_callable_destroy(t->callable);
    rp_heap_destroy(t->heap);
    t->f.driver->cuMemFree(t->in);
    t->f.driver->cuMemFree(t->out);
    rpt_close(&t->f);
}

/* A call gives the argument plus what is held now. */
static void call(struct fixture *t, float held)
{
    struct rp_arg args[] = {rpt_arg(t->in, COUNT, RP_ARG_IN), rpt_arg(t->out, COUNT, RP_ARG_OUT)};
    const struct rp_inputs inputs = {args, 2, NULL, 0};
    float got[COUNT];
    OK(t, rp_callable_call(t->callable, &inputs, NULL, &t->f.err));
    rpt_read(&t->f, t->out, got, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(got[i] == 1 + (float)(i % 7) + held);
}

static struct rp_shape_info shape_of(struct fixture *t)
{
    struct rp_shape_info shape = {.size = sizeof shape};
    struct rp_callable_info info = {.size = sizeof info};
    assert_true(rp_callable_shape_info(t->callable, 0, &shape));
    assert_true(rpi_shapes_are_valid(&t->callable->shapes));
    rp_callable_info(t->callable, &info);
    assert_int_equal(info.stale_graphs, shape.stale_graphs);
    assert_int_equal(info.graphs, shape.graph != NULL);
    return shape;
}

static void captured_anew_and_then_eager(void **state)
{
    (void)state;
    enum { STALE = 4, CALLS = 5 };
    struct fixture t;
    start(&t, RP_POLICY_ALWAYS);
    call(&t, 0); /* the first runs eagerly */
    for (int round = 0; round < STALE; round++) {
        for (int i = 0; i < CALLS; i++)
            call(&t, (float)round);
        struct rp_shape_info shape = shape_of(&t);
        assert_int_equal(shape.state, RP_SHAPE_GRAPH);
        assert_int_equal(shape.stale_graphs, round);
        assert_int_equal(shape.replays, (round + 1) * CALLS);
        replace(&t, (float)round + 1);
    }
    int runs = t.runs;
    for (int i = 0; i < CALLS; i++)
        call(&t, STALE);
    assert_int_equal(t.runs, runs + CALLS); /* none of them a capture's */
    struct rp_shape_info shape = shape_of(&t);
    assert_int_equal(shape.state, RP_SHAPE_EAGER);
    assert_non_null(strstr(shape.reason, "a block of 128 bytes"));
    assert_non_null(strstr(shape.reason, "4th time"));
    const char *text;
    OK(&t, rp_callable_report(t.callable, RP_REPORT_TEXT, &text, &t.f.err));
    assert_non_null(strstr(text, "  4 stale\n"));
    OK(&t, rp_callable_report(t.callable, RP_REPORT_JSON, &text, &t.f.err));
    assert_non_null(strstr(text, "\"stale_graphs\":4"));
    finish(&t);
}

/* Ahead of time too. */
static void captured_anew_ahead(void **state)
{
    (void)state;
    struct fixture t;
    start(&t, RP_POLICY_ALWAYS);
    struct rp_arg args[] = {rpt_arg(t.in, COUNT, RP_ARG_IN), rpt_arg(t.out, COUNT, RP_ARG_OUT)};
    const struct rp_inputs inputs = {args, 2, NULL, 0};
    size_t failed = 7;
    OK(&t, rp_callable_capture(t.callable, &inputs, 1, NULL, NULL, NULL, &t.f.err));
    replace(&t, 3);
    OK(&t, rp_callable_capture(t.callable, &inputs, 1, NULL, NULL, &failed, &t.f.err));
    assert_int_equal(failed, 0);
    struct rp_shape_info shape = shape_of(&t);
    assert_int_equal(shape.stale_graphs, 1);
    assert_false(rp_graph_is_stale(shape.graph));
    call(&t, 3);
    finish(&t);
}

/* Where a policy judges, a graph that is dropped is judged no more, and what was measured of it
 * counts for no other. */
static void judged_anew(void **state)
{
    (void)state;
    struct fixture t;
    start(&t, RP_POLICY_AUTO);
    struct rp_arg args[] = {rpt_arg(t.in, COUNT, RP_ARG_IN), rpt_arg(t.out, COUNT, RP_ARG_OUT)};
    const struct rp_inputs inputs = {args, 2, NULL, 0};
    call(&t, 0);
    OK(&t, rp_callable_capture(t.callable, &inputs, 1, NULL, NULL, NULL, &t.f.err));
    assert_int_equal(shape_of(&t).state, RP_SHAPE_GRAPH);
    for (int i = 0; i < 100; i++)
        call(&t, 0);
    assert_true(shape_of(&t).measured_calls > 0);
    replace(&t, 2);
    call(&t, 2);
    struct rp_shape_info shape = shape_of(&t);
    assert_int_equal(shape.stale_graphs, 1);
    assert_int_equal(shape.measured_calls, 0);
    for (int i = 0; i < 100; i++)
        call(&t, 2);
    finish(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captured_anew_and_then_eager),
        cmocka_unit_test(captured_anew_ahead),
        cmocka_unit_test(judged_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
