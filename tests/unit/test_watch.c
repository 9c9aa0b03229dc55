/* SPDX-License-Identifier: MIT
 *
 * The watch: the first call that a capture refused is in the error, with its place and its mend,
 * whatever the callable did with the result. Callables here call what rp_device_function gives.
 */
#include "driver/watch.h"
#include "graph_fixture.h"
#include "reprise_tools.h"

enum what { SYNC, SYNC_UNSEEN, ALLOCATE, LEGACY, UNJOINED, TWO, ALLOC_AFTER, CLEAN };

struct subject {
    const struct rpt_fixture *f;
    enum what what;
};

static CUresult break_capture(const struct rp_driver *given, enum what what, CUstream stream)
{
    CUdeviceptr address;
    switch (what) {
    case SYNC:
    case SYNC_UNSEEN:
    case ALLOC_AFTER:
        return given->cuStreamSynchronize(stream);
    case ALLOCATE:
        return given->cuMemAlloc(&address, 4096);
    case TWO:
        given->cuStreamQuery(stream);
        return given->cuStreamSynchronize(stream);
    default:
        return CUDA_SUCCESS;
    }
}

static rp_status broken(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct subject *subject = user;
    const struct rp_driver *given = subject->f->device->given;
    CUstream stream = rp_call_stream(call);
    uint64_t block;
    rp_status status = rp_call_alloc(call, 4096, stream, &block, err);
    if (status != RP_OK)
        return status;
    CUresult result = given->cuMemsetD32Async(block, 1, 16, stream);
    if (result == CUDA_SUCCESS)
        result = break_capture(given, subject->what, stream);
    if (subject->what == UNJOINED) {
        given->cuEventRecord(subject->f->event, stream);
        given->cuStreamWaitEvent(subject->f->streams[0], subject->f->event, 0);
        result = given->cuMemsetD32Async(block, 1, 16, subject->f->streams[0]);
    }
    if (subject->what == ALLOC_AFTER)
        return rp_call_alloc(call, 4096, stream, &block, err);
    if (subject->what == SYNC_UNSEEN || result == CUDA_SUCCESS)
        return RP_OK;
    return rpi_error_driver(err, result, "broken", "breaking the capture");
}

static void expect(struct rpt_fixture *f, enum what what, rp_status status, int code,
                   const char *operation, const char *mend)
{
    struct subject subject = {f, what};
    struct rp_graph *graph = NULL;
    assert_int_equal(rp_graph_capture(f->pool, NULL, broken, &subject, NULL, 0, &graph, &f->err),
                     status);
    assert_int_equal(f->err.driver_code, code);
    assert_string_equal(f->err.operation, operation);
    if (!strstr(f->err.message, mend))
        fail_msg("'%s' does not say '%s'", f->err.message, mend);
    assert_non_null(rp_explain(f->err.driver_name));
}

static void the_first_refused_call_is_named(void **state)
{
    (void)state;
    struct rpt_fixture f;
    rpt_open(&f);
    const char *wait = "wait after the replay";
    expect(&f, SYNC, RP_ERROR_CALLABLE, 900, "cuStreamSynchronize", wait);
    expect(&f, SYNC_UNSEEN, RP_ERROR_CAPTURE, 900, "cuStreamSynchronize", wait);
    assert_non_null(strstr(f.err.message, "(driver call 2 of the callable)"));
    expect(&f, ALLOC_AFTER, RP_ERROR_CAPTURE, 900, "cuStreamSynchronize", wait);
    expect(&f, ALLOCATE, RP_ERROR_CALLABLE, 900, "cuMemAlloc", "rp_call_alloc");
    expect(&f, TWO, RP_ERROR_CALLABLE, 900, "cuStreamQuery", "ask after the replay");
    expect(&f, UNJOINED, RP_ERROR_CAPTURE, 904, "cuStreamEndCapture", "record an event");
    rpt_close(&f);
}

/* The functions are the driver's own outside a capture, and all of them are there. */
static void the_table_is_whole(void **state)
{
    (void)state;
    const struct rp_driver *host = rpi_driver_host(), *watched = rpi_driver_watch(host);
    assert_ptr_equal(rpi_driver_watch(host), watched);
    assert_string_equal(watched->provider, "host");
    assert_int_equal(watched->capabilities, host->capabilities);
#define X(need, name, version, params, args)                                                       \
    assert_true(!host->name == !watched->name && (!host->name || host->name != watched->name));
#include "driver/symbols.def"
#undef X
    int count = 0;
    assert_int_equal(watched->cuInit(0), CUDA_SUCCESS);
    assert_int_equal(watched->cuDeviceGetCount(&count), CUDA_SUCCESS);
    assert_int_equal(count, 1);
}

struct seen {
    struct rpi_watch_observer observer;
    size_t before, after;
    uint64_t bytes;
    bool has_stream;
    CUresult result;
};

static enum rpi_watch_way see(struct rpi_watch_observer *observer,
                              const struct rpi_watch_call *call)
{
    struct seen *seen = (struct seen *)observer;
    seen->before++;
    seen->bytes = rpi_watch_value(call, "bytes");
    seen->has_stream = rpi_watch_has(call, "stream");
    return strcmp(call->function, "cuMemFree") == 0 ? RPI_WATCH_SKIP : RPI_WATCH_RELAX;
}

static void saw(struct rpi_watch_observer *observer, const struct rpi_watch_call *call,
                CUresult result)
{
    struct seen *seen = (struct seen *)observer;
    assert_int_equal(call->number, ++seen->after);
    seen->result = result;
}

/* An observer is asked and told of each call, the inner watch's too, and may keep it back. */
static void an_observer_sees_and_skips(void **state)
{
    (void)state;
    struct rpt_fixture f;
    rpt_open(&f);
    struct seen seen = {.observer = {see, saw}};
    struct rpi_watch outer = {.observer = &seen.observer}, inner = {0};
    const struct rp_driver *given = f.device->given;
    CUdeviceptr address = 0;
    rpi_watch_begin(&outer);
    rpi_watch_begin(&inner);
    assert_int_equal(f.driver->cuStreamBeginCapture(f.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL),
                     0);
    assert_int_equal(given->cuMemAlloc(&address, 4096), CUDA_SUCCESS); /* relaxed: allowed */
    assert_true(seen.bytes == 4096 && !seen.has_stream);
    assert_int_equal(given->cuMemsetD32Async(address, 0, 4, f.streams[0]), CUDA_SUCCESS);
    assert_true(seen.has_stream);
    assert_int_equal(given->cuMemFree(address), CUDA_SUCCESS); /* not made */
    CUgraph graph;
    assert_int_equal(f.driver->cuStreamEndCapture(f.streams[0], &graph), CUDA_SUCCESS);
    rpi_watch_end(&inner);
    rpi_watch_end(&outer);
    assert_true(seen.before == 3 && seen.after == 3 && inner.calls == 3 && outer.calls == 0);
    assert_null(inner.first.function);
    assert_int_equal(given->cuStreamSynchronize(f.streams[0]), CUDA_SUCCESS);
    assert_int_equal(seen.before, 3);
    f.driver->cuGraphDestroy(graph);
    assert_int_equal(f.driver->cuMemFree(address), CUDA_SUCCESS); /* it is still there */
    rpt_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_refused_call_is_named),
        cmocka_unit_test(the_table_is_whole),
        cmocka_unit_test(an_observer_sees_and_skips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
