/* SPDX-License-Identifier: MIT
 *
 * The fault loop: open a device, make a pool, run, capture, replay, destroy, with driver call N
 * made to fail, N = 0, 1, 2 .. until none is left to fail; then the same with host memory. After
 * each failure: an error that says something, everything as it was before, the same step works when
 * it is tried again, and in the end nothing is left over.
 */
#include "graph/handles/device.h"
#include "graph_fixture.h"

#include "fault_loop.h"

#include <stdbool.h>
#include <stdio.h>

enum { COUNT = 700 };

static struct rpt_fixture outer; /* on the driver itself, whose calls do not fail by the wrapper */
static struct rp_arg args[2];

/* ---- What is done ---------------------------------------------------------------------------*/

/* Two streams, a block on each, one of them freed after use by the other. */
static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct rpt_fixture *f = user;
    CUstream s = rp_call_stream(call), t = f->streams[0];
    uint64_t x = rp_call_arg(call, 0), y = rp_call_arg(call, 1), a, b;
    rp_status status;
    if ((status = rpt_join(f, s, t, err)) != RP_OK ||
        (status = rp_call_alloc(call, COUNT * 4, s, &a, err)) != RP_OK ||
        (status = rpt_scale(f, s, a, x, 2, COUNT, err)) != RP_OK ||
        (status = rp_call_alloc(call, COUNT * 4, t, &b, err)) != RP_OK ||
        (status = rpt_scale(f, t, b, x, 3, COUNT, err)) != RP_OK ||
        (status = rpt_join(f, t, s, err)) != RP_OK ||
        (status = rp_call_use(call, b, s, err)) != RP_OK ||
        (status = rpt_add(f, s, a, a, b, COUNT, err)) != RP_OK ||
        (status = rp_call_free(call, b, err)) != RP_OK ||
        (status = rp_call_alloc(call, COUNT * 4, s, &b, err)) != RP_OK ||
        (status = rpt_scale(f, s, b, a, 2, COUNT, err)) != RP_OK ||
        (status = rp_call_free(call, a, err)) != RP_OK ||
        (status = rpt_add(f, s, y, b, x, COUNT, err)) != RP_OK)
        return status;
    return rp_call_free(call, b, err);
}

/* Is the output right? False too when the host driver finds no memory to tell. */
static bool output_is_right(void)
{
    const struct rp_driver *driver = outer.driver;
    float values[COUNT];
    if (driver->cuCtxSynchronize() != CUDA_SUCCESS ||
        driver->cuMemcpyDtoH(values, args[1].address, sizeof values) != CUDA_SUCCESS)
        return false;
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(values[i] == 11.0f * (1.0f + (float)(i % 7)));
    return driver->cuMemsetD8(args[1].address, 0, sizeof values) == CUDA_SUCCESS &&
           driver->cuCtxSynchronize() == CUDA_SUCCESS; /* a fill does not wait */
}

/* Did it work? A failure is an error that was filled in. */
static bool worked(rp_status status, const struct rp_error *err)
{
    if (status == RP_OK)
        return true;
    assert_int_equal(err->status, status);
    assert_true(err->message[0] != '\0');
    assert_true(status != RP_ERROR_INTERNAL);
    return false;
}

static void same_pool(const struct rp_pool *pool, const struct rp_pool_info *before)
{
    struct rp_pool_info now = {.size = sizeof now};
    rp_pool_info(pool, &now);
    assert_int_equal(now.planned_bytes, before->planned_bytes);
    assert_int_equal(now.mapped_bytes, before->mapped_bytes);
    assert_int_equal(now.lower_bound_bytes, before->lower_bound_bytes);
    assert_int_equal(now.graphs, before->graphs);
}

/* Each of these is done again where it fails: one failure is all there is, so the second try works.
 */
static void open_all(const struct rp_driver *driver, struct rp_device **device,
                     struct rp_pool **pool)
{
    struct rp_error err;
    if (!worked(rpi_device_open_on(driver, 0, device, &err), &err)) {
        assert_null(*device);
        RPT_OK(&outer, rpi_device_open_on(driver, 0, device, &outer.err));
    }
    if (!worked(rp_pool_create(*device, NULL, pool, &err), &err)) {
        assert_null(*pool);
        RPT_OK(&outer, rp_pool_create(*device, NULL, pool, &outer.err));
    }
}

static struct rp_graph *capture(struct rp_pool *pool)
{
    struct rp_error err;
    struct rp_graph *graph = NULL;
    struct rp_pool_info before = {.size = sizeof before};
    rp_pool_info(pool, &before);
    if (!worked(rp_graph_capture(pool, NULL, work, &outer, args, 2, &graph, &err), &err)) {
        assert_null(graph);
        same_pool(pool, &before);
        RPT_OK(&outer, rp_graph_capture(pool, NULL, work, &outer, args, 2, &graph, &outer.err));
    }
    return graph;
}

static void replay(struct rp_graph *graph, struct CUstream_st *stream)
{
    struct rp_error err;
    if (!worked(rp_graph_replay(graph, args, 2, stream, &err), &err))
        RPT_OK(&outer, rp_graph_replay(graph, args, 2, stream, &outer.err));
}

static bool run_all(const struct rp_driver *driver, void *user)
{
    struct rp_error err;
    struct rp_device *device = NULL;
    struct rp_pool *pool = NULL;
    struct rp_graph *graphs[2];
    (void)user;
    open_all(driver, &device, &pool);
    if (!worked(rp_run(pool, work, &outer, args, 2, outer.streams[1], &err), &err))
        RPT_OK(&outer, rp_run(pool, work, &outer, args, 2, outer.streams[1], &outer.err));
    bool right = output_is_right();
    for (int i = 0; i < 2; i++)
        graphs[i] = capture(pool);
    for (int i = 0; i < 6; i++) /* on two streams and the legacy one */
        replay(graphs[i % 2], i < 4 ? outer.streams[i / 2] : NULL);
    right &= output_is_right();
    replay(graphs[0], outer.streams[0]);
    rp_graph_destroy(graphs[0]); /* waits for it */
    rp_graph_destroy(graphs[1]);
    rp_pool_destroy(pool);
    rp_device_destroy(device);
    return right;
}

/* ---- What must be as before -----------------------------------------------------------------*/

static struct rpi_host_statistics held;
static CUcontext context;

static const char *what_is_left(void *user)
{
    struct rpi_host_statistics now;
    CUcontext current = NULL;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    (void)user;
    if (outer.driver->cuCtxSynchronize() != CUDA_SUCCESS ||
        outer.driver->cuCtxGetCurrent(&current) != CUDA_SUCCESS ||
        outer.driver->cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS)
        return "a driver that does not work";
    rpi_host_statistics(&now);
    const struct {
        const char *name;
        bool same;
    } states[] = {{"device memory", now.physical_bytes == held.physical_bytes},
                  {"chunks", now.chunks == held.chunks},
                  {"mappings", now.mappings == held.mappings},
                  {"reserved addresses", now.reservations == held.reservations},
                  {"allocations", now.allocations == held.allocations},
                  {"streams", now.streams == held.streams},
                  {"events", now.events == held.events},
                  {"graphs", now.graphs == held.graphs},
                  {"execs", now.execs == held.execs},
                  {"captures", now.captures == held.captures},
                  {"races", now.races == 0},
                  {"a context", current == context},
                  {"a capture mode", mode == CU_STREAM_CAPTURE_MODE_GLOBAL}};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (!states[i].same)
            return states[i].name;
    return NULL;
}

static const struct rpt_scenario scenario = {.run = run_all, .left = what_is_left};

static void driver_calls_fail_out_of_memory(void **state)
{
    (void)state;
    int64_t faults = rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_OUT_OF_MEMORY);
    print_message("%lld driver calls failed\n", (long long)faults);
    assert_true(faults > 100);
}

static void driver_calls_fail_for_reasons_unknown(void **state)
{
    (void)state;
    assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_UNKNOWN) > 100);
}

/* Without the race check, which keeps what it saw: the count would never be the same. */
static void host_memory_fails(void **state)
{
    (void)state;
    struct rpi_host_options before = rpt_ignore_races();
    int64_t faults = rpt_memory_fault_loop(rpi_driver_host(), &scenario);
    print_message("%lld allocations failed\n", (long long)faults);
    assert_true(faults > 100);
    rpi_host_configure(&before);
}

static int open_outer(void **state)
{
    (void)state;
    rpt_open(&outer);
    args[0] = rpt_arg(rpt_buffer(&outer, COUNT, 1), COUNT, RP_ARG_IN);
    args[1] = rpt_arg(rpt_buffer(&outer, COUNT, 0), COUNT, RP_ARG_OUT);
    rpi_host_statistics(&held);
    return outer.driver->cuCtxGetCurrent(&context) != CUDA_SUCCESS;
}

static int close_outer(void **state)
{
    (void)state;
    outer.driver->cuMemFree(args[0].address);
    outer.driver->cuMemFree(args[1].address);
    rpt_close(&outer);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(driver_calls_fail_out_of_memory),
        cmocka_unit_test(driver_calls_fail_for_reasons_unknown),
        cmocka_unit_test(host_memory_fails),
    };
    return cmocka_run_group_tests(tests, open_outer, close_outer);
}
