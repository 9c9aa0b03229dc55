/* SPDX-License-Identifier: MIT
 *
 * A callable that fails for a driver call of its own, made through the device's table: the error
 * names the call and its code, in a run, in a capture and in a run on a heap.
 */
#include "graph_fixture.h"
#include "reprise_heap.h"

struct attempt {
    struct rpt_fixture *f;
    bool without_context, asks_only;
};

static rp_status calls_badly(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct attempt *attempt = user;
    const struct rp_driver *given = attempt->f->device->given;
    CUdeviceptr address = 0;
    CUcontext context = NULL;
    (void)err;
    if (attempt->asks_only) /* "not ready" is no failure */
        given->cuStreamQuery(attempt->f->streams[0]);
    else if (attempt->without_context)
        given->cuCtxPopCurrent(&context);
    CUresult result = attempt->asks_only ? CUDA_SUCCESS : given->cuMemAlloc(&address, 0);
    if (context)
        given->cuCtxPushCurrent(context);
    assert_true(attempt->asks_only || result != CUDA_SUCCESS);
    (void)call;
    return RP_ERROR_DRIVER;
}

static void runs_name_the_call(void **state)
{
    struct attempt attempt = {.f = *state};
    struct rpt_fixture *f = *state;
    assert_int_equal(rp_run(f->pool, calls_badly, &attempt, NULL, 0, f->streams[1], &f->err),
                     RP_ERROR_CALLABLE);
    rpt_says(f, "cuMemAlloc (call 1)");
    rpt_says(f, "CUDA_ERROR_INVALID_VALUE (1)");
    assert_int_equal(f->err.driver_code, CUDA_ERROR_INVALID_VALUE);
    assert_string_equal(f->err.driver_name, "CUDA_ERROR_INVALID_VALUE");
    attempt.asks_only = true;
    assert_int_equal(rp_run(f->pool, calls_badly, &attempt, NULL, 0, f->streams[1], &f->err),
                     RP_ERROR_CALLABLE);
    assert_null(strstr(f->err.message, "driver call"));
    assert_int_equal(f->err.driver_code, 0);
}

static void captures_name_the_call(void **state)
{
    struct attempt attempt = {.f = *state};
    struct rpt_fixture *f = *state;
    struct rp_graph *graph;
    assert_int_equal(
        rp_graph_capture(f->pool, NULL, calls_badly, &attempt, NULL, 0, &graph, &f->err),
        RP_ERROR_CALLABLE);
    rpt_says(f, "cuMemAlloc");
    assert_int_not_equal(f->err.driver_code, 0);
}

static void a_missing_context_is_told(void **state)
{
    struct attempt attempt = {.f = *state, .without_context = true};
    struct rpt_fixture *f = *state;
    rp_device_pop(f->device); /* the fixture's, which would stand in */
    rp_status status = rp_run(f->pool, calls_badly, &attempt, NULL, 0, f->streams[1], &f->err);
    rp_device_push(f->device, NULL);
    assert_int_equal(status, RP_ERROR_CALLABLE);
    rpt_says(f, "CUDA_ERROR_INVALID_CONTEXT (201)");
    rpt_says(f, "rp_device_push");
    assert_int_equal(f->err.driver_code, CUDA_ERROR_INVALID_CONTEXT);
}

static void runs_on_a_heap_name_the_call(void **state)
{
    struct attempt attempt = {.f = *state};
    struct rpt_fixture *f = *state;
    struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
    struct rp_callable *callable;
    struct rp_heap *heap;
    struct rp_inputs inputs = {.arg_count = 0};
    RPT_OK(f, rp_heap_create(f->device, NULL, &heap, &f->err));
    options.heap = heap;
    RPT_OK(f, rp_callable_create(f->device, &options, calls_badly, &attempt, &callable, &f->err));
    assert_int_equal(rp_callable_call(callable, &inputs, f->streams[1], &f->err),
                     RP_ERROR_CALLABLE);
    rpt_says(f, "CUDA_ERROR_INVALID_VALUE (1)");
    rp_callable_destroy(callable);
    rp_heap_destroy(heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RPT_TEST(runs_name_the_call),
        RPT_TEST(captures_name_the_call),
        RPT_TEST(a_missing_context_is_told),
        RPT_TEST(runs_on_a_heap_name_the_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
