/* SPDX-License-Identifier: MIT
 *
 * The fault loop: open a device, make a pool, run, capture, replay, destroy, with driver call N
 * made to fail, N = 0, 1, 2 .. until none is left to fail; then the same with host memory. After
 * each failure: an error that says something, everything as it was before, the same step works when
 * it is tried again, and in the end nothing is left over.
 */
#include "graph_fixture.h"

#include "base/hostmem.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

enum { COUNT = 700 };

static struct rpt_fixture outer; /* on the driver itself: nothing of it fails */

/* ---- What is made to fail -------------------------------------------------------------------*/

static struct {
    _Atomic uint64_t calls, fail_at;
    _Atomic int64_t held;
    _Atomic bool paused; /* while the test itself uses the driver */
} memory;

static bool memory_fails(void)
{
    if (atomic_load(&memory.paused))
        return false;
    return atomic_fetch_add(&memory.calls, 1) == atomic_load(&memory.fail_at);
}

static void *failing_malloc(size_t bytes, void *user)
{
    (void)user;
    void *pointer = memory_fails() ? NULL : malloc(bytes);
    atomic_fetch_add(&memory.held, pointer != NULL);
    return pointer;
}

static void *failing_realloc(void *pointer, size_t bytes, void *user)
{
    (void)user;
    void *moved = memory_fails() ? NULL : realloc(pointer, bytes);
    atomic_fetch_add(&memory.held, moved != NULL && pointer == NULL);
    return moved;
}

static void counting_free(void *pointer, void *user)
{
    (void)user;
    atomic_fetch_sub(&memory.held, 1);
    free(pointer);
}

static const struct rp_host_memory failing_memory = {failing_malloc, failing_realloc, counting_free,
                                                     NULL};

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

static void check_output(uint64_t out)
{
    float values[COUNT];
    atomic_store(&memory.paused, true);
    assert_int_equal(outer.driver->cuCtxSynchronize(), 0);
    assert_int_equal(outer.driver->cuMemcpyDtoH(values, out, sizeof values), 0);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(values[i] == 11.0f * (1.0f + (float)(i % 7)));
    assert_int_equal(outer.driver->cuMemsetD8(out, 0, sizeof values), 0);
    assert_int_equal(outer.driver->cuCtxSynchronize(), 0); /* a fill does not wait */
    atomic_store(&memory.paused, false);
}

/* A failure is an error that was filled in. */
static rp_status told(rp_status status, const struct rp_error *err)
{
    if (status == RP_OK)
        return RP_OK;
    assert_int_equal(err->status, status);
    assert_true(err->message[0] != '\0');
    assert_true(status != RP_ERROR_INTERNAL);
    return status;
}

static void same_pool(const struct rp_pool *pool, const struct rp_pool_info *before)
{
    struct rp_pool_info now;
    rp_pool_info(pool, &now);
    assert_int_equal(now.planned_bytes, before->planned_bytes);
    assert_int_equal(now.mapped_bytes, before->mapped_bytes);
    assert_int_equal(now.lower_bound_bytes, before->lower_bound_bytes);
    assert_int_equal(now.graphs, before->graphs);
}

/* Each step is done again where it fails: one failure is all there is, so the second one works. */
static void do_everything(const struct rp_driver *driver, struct rp_arg *args)
{
    struct rp_error err;
    struct rp_device *device = NULL;
    struct rp_pool *pool = NULL;
    struct rp_graph *graphs[2] = {NULL, NULL};
    struct rp_pool_info before;

    if (told(rpi_device_open_on(driver, 0, &device, &err), &err) != RP_OK) {
        assert_null(device);
        RPT_OK(&outer, rpi_device_open_on(driver, 0, &device, &outer.err));
    }
    if (told(rp_pool_create(device, NULL, &pool, &err), &err) != RP_OK) {
        assert_null(pool);
        RPT_OK(&outer, rp_pool_create(device, NULL, &pool, &outer.err));
    }
    if (told(rp_run(pool, work, &outer, args, 2, outer.streams[1], &err), &err) != RP_OK)
        RPT_OK(&outer, rp_run(pool, work, &outer, args, 2, outer.streams[1], &outer.err));
    check_output(args[1].address);
    for (int i = 0; i < 2; i++) {
        rp_pool_info(pool, &before);
        if (told(rp_graph_capture(pool, NULL, work, &outer, args, 2, &graphs[i], &err), &err) !=
            RP_OK) {
            assert_null(graphs[i]);
            same_pool(pool, &before);
            RPT_OK(&outer,
                   rp_graph_capture(pool, NULL, work, &outer, args, 2, &graphs[i], &outer.err));
        }
    }
    for (int i = 0; i < 4; i++) {
        struct CUstream_st *stream = outer.streams[i / 2];
        if (told(rp_graph_replay(graphs[i % 2], args, 2, stream, &err), &err) != RP_OK)
            RPT_OK(&outer, rp_graph_replay(graphs[i % 2], args, 2, stream, &outer.err));
    }
    check_output(args[1].address);
    if (told(rp_graph_replay(graphs[0], args, 2, NULL, &err), &err) != RP_OK)
        RPT_OK(&outer, rp_graph_replay(graphs[0], args, 2, NULL, &outer.err));
    rp_graph_destroy(graphs[0]);
    rp_graph_destroy(graphs[1]);
    rp_pool_destroy(pool);
    rp_device_destroy(device);
}

/* ---- What must be as before -----------------------------------------------------------------*/

struct state {
    struct rpi_host_statistics held;
    CUcontext context;
};

static struct state look(void)
{
    struct state state;
    assert_int_equal(outer.driver->cuCtxSynchronize(), 0);
    rpi_host_statistics(&state.held);
    assert_int_equal(outer.driver->cuCtxGetCurrent(&state.context), 0);
    return state;
}

static void same_state(const struct state *before)
{
    struct state now = look();
    assert_int_equal(now.held.physical_bytes, before->held.physical_bytes);
    assert_int_equal(now.held.chunks, before->held.chunks);
    assert_int_equal(now.held.mappings, before->held.mappings);
    assert_int_equal(now.held.reservations, before->held.reservations);
    assert_int_equal(now.held.allocations, before->held.allocations);
    assert_int_equal(now.held.streams, before->held.streams);
    assert_int_equal(now.held.events, before->held.events);
    assert_int_equal(now.held.graphs, before->held.graphs);
    assert_int_equal(now.held.execs, before->held.execs);
    assert_int_equal(now.held.captures, before->held.captures);
    assert_int_equal(now.held.races, 0);
    assert_ptr_equal(now.context, before->context);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    assert_int_equal(outer.driver->cuThreadExchangeStreamCaptureMode(&mode), 0);
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static void fail_every_driver_call(CUresult result)
{
    const struct rp_driver *driver = rpi_driver_fault(rpi_driver_host());
    struct rp_arg args[2] = {rpt_arg(rpt_buffer(&outer, COUNT, 1), COUNT, RP_ARG_IN),
                             rpt_arg(rpt_buffer(&outer, COUNT, 0), COUNT, RP_ARG_OUT)};
    struct state before = look();
    uint64_t call = 0, hits = 0;
    for (;; call++) {
        rpi_driver_fault_at(call, result);
        do_everything(driver, args);
        hits += rpi_driver_fault_hit() != NULL;
        same_state(&before);
        if (rpi_driver_fault_calls() <= call)
            break;
    }
    assert_true(hits > 100);
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    outer.driver->cuMemFree(args[0].address);
    outer.driver->cuMemFree(args[1].address);
}

static void driver_calls_fail_out_of_memory(void **state)
{
    (void)state;
    fail_every_driver_call(CUDA_ERROR_OUT_OF_MEMORY);
}

static void driver_calls_fail_for_reasons_unknown(void **state)
{
    (void)state;
    fail_every_driver_call(CUDA_ERROR_UNKNOWN);
}

static void host_memory_fails(void **state)
{
    (void)state;
    const struct rp_driver *driver = rpi_driver_host();
    struct rpi_host_options options;
    rpi_host_options(&options);
    options.check_races = false; /* it keeps what it saw, so that the count would never be equal */
    rpi_host_configure(&options);
    struct rp_arg args[2] = {rpt_arg(rpt_buffer(&outer, COUNT, 1), COUNT, RP_ARG_IN),
                             rpt_arg(rpt_buffer(&outer, COUNT, 0), COUNT, RP_ARG_OUT)};
    do_everything(driver, args); /* what the driver keeps for later is there then */
    struct state before = look();
    int64_t held = atomic_load(&memory.held);
    for (uint64_t call = 0;; call++) {
        atomic_store(&memory.calls, 0);
        atomic_store(&memory.fail_at, call);
        do_everything(driver, args);
        uint64_t calls = atomic_load(&memory.calls);
        atomic_store(&memory.fail_at, UINT64_MAX);
        same_state(&before);
        assert_int_equal(atomic_load(&memory.held), held);
        if (calls <= call)
            break;
    }
    outer.driver->cuMemFree(args[0].address);
    outer.driver->cuMemFree(args[1].address);
}

static int open_outer(void **state)
{
    (void)state;
    atomic_store(&memory.fail_at, UINT64_MAX);
    rp_set_host_memory(&failing_memory);
    rpt_open(&outer);
    return 0;
}

static int close_outer(void **state)
{
    (void)state;
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
