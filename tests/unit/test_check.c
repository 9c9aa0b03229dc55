/* SPDX-License-Identifier: MIT
 *
 * rp_check: each obstacle has a callable that provokes it, and is reported with operation, code,
 * place and mend; a callable with several gets all of them named; one without gets none.
 */
#include "graph_fixture.h"
#include "reprise_tools.h"

#include <stdio.h>

/* What is checked here races on purpose: on one thread, for the check alone. */
static void open_fixture(struct rpt_fixture *f)
{
    rpt_open(f);
    struct rpi_host_options options;
    rpi_host_options(&options);
    options.threads = 1;
    rpi_host_configure(&options);
}

enum { COUNT = 1024 };

enum what {
    CLEAN,
    SYNC,
    QUERY,
    HOST_READ,
    ALLOCATE,
    PINNED,
    LEGACY,
    LEGACY_FILL,
    OUTSIDE,
    UNJOINED,
    OUTSIDE_EVENT,
    FREED,
    COUNTER,
    KEPT,
    BAKED_ADDRESS,
    FROZEN_VALUE,
    RANDOM,
    FAILS,
    MANY,
    WHATS
};

static const struct {
    enum what what;
    int code;
    const char *kind, *operation, *mend;
} expected[] = {
    {SYNC, 900, "synchronisation", "cuStreamSynchronize", "wait after the replay"},
    {QUERY, 900, "synchronisation", "cuStreamQuery", "ask after the replay"},
    {HOST_READ, 0, "host-copy", "cuMemcpyDtoH", "keep the value on the device"},
    {ALLOCATE, 900, "allocation", "cuMemAlloc", "rp_call_alloc"},
    {PINNED, 900, "allocation", "cuMemAllocHost", "before the capture"},
    {LEGACY, 0, "legacy-stream", "cuMemsetD32Async", "rp_call_stream"},
    {LEGACY_FILL, 0, "legacy-stream", "cuMemsetD32", "cuMemsetD32Async"},
    {OUTSIDE, 0, "outside-stream", "cuMemsetD32Async", "let the stream wait"},
    {UNJOINED, 904, "unjoined-stream", "cuStreamEndCapture", "record an event on the side stream"},
    {OUTSIDE_EVENT, 905, "refused-call", "cuStreamWaitEvent", "before the capture begins"},
    {FREED, 0, "use-after-free", "cuLaunchKernel", "behind the last work"},
    {COUNTER, 0, "divergence", "rp_graph_capture", "the same in each call"},
    {KEPT, 0, "kept-address", "rp_graph_capture", "every address from the call"},
    {BAKED_ADDRESS, 0, "other-results", "rp_graph_replay", "copy_args"},
    {FROZEN_VALUE, 0, "frozen-value", "rp_graph_replay", "keep it on the device"},
    {RANDOM, 0, "not-repeatable", "rp_run", "random numbers"},
    {FAILS, 0, "fails-eagerly", "rp_run", "without a graph first"},
};

struct subject {
    const struct rpt_fixture *f;
    enum what what;
    uint32_t calls;
    uint64_t kept, table;
    float value;
    CUdeviceptr taken[64]; /* what it allocates is freed after the check */
    void *pinned[64];
    size_t taken_count, pinned_count;
};

static CUresult launch_scale(const struct subject *s, CUstream stream, uint64_t to, uint64_t from,
                             float factor)
{
    uint32_t count = COUNT;
    void *params[] = {&to, &from, &factor, &count};
    return s->f->device->given->cuLaunchKernel(s->f->scale, 1, 1, 1, 32, 1, 1, 0, stream, params,
                                               NULL);
}

static bool is_capturing(const struct subject *s, CUstream stream)
{
    CUstreamCaptureStatus status;
    s->f->driver->cuStreamIsCapturing(stream, &status);
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* What stands in the way, by driver calls. block is memory of the run; its end is nobody else's. */
static CUresult obstruct(struct subject *s, enum what what, CUstream stream, uint64_t block)
{
    const struct rp_driver *d = s->f->device->given;
    CUstream side = s->f->streams[0];
    CUdeviceptr memory = 0;
    void *pinned = NULL;
    CUresult result = CUDA_SUCCESS;
    switch (what) {
    case SYNC:
        return d->cuStreamSynchronize(stream);
    case QUERY:
        result = d->cuStreamQuery(stream);
        return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
    case HOST_READ:
        return d->cuMemcpyDtoH(&s->value, block, sizeof s->value);
    case ALLOCATE:
        result = d->cuMemAlloc(&memory, 4096);
        if (memory)
            s->taken[s->taken_count++] = memory;
        return result;
    case PINNED:
        result = d->cuMemAllocHost(&pinned, 4096);
        if (pinned)
            s->pinned[s->pinned_count++] = pinned;
        return result;
    case LEGACY:
        return d->cuMemsetD32Async(block + COUNT * sizeof(float), 0, 4, NULL);
    case LEGACY_FILL:
        return d->cuMemsetD32(block + COUNT * sizeof(float), 0, 4);
    case OUTSIDE:
        return d->cuMemsetD32Async(block + COUNT * sizeof(float), 0, 4, side);
    case OUTSIDE_EVENT:
        return d->cuStreamWaitEvent(stream, s->f->event, 0);
    case UNJOINED:
        result = d->cuEventRecord(s->f->event, stream);
        if (result == CUDA_SUCCESS)
            result = d->cuStreamWaitEvent(side, s->f->event, 0);
        return result == CUDA_SUCCESS
                   ? d->cuMemsetD32Async(block + COUNT * sizeof(float), 0, 4, side)
                   : result;
    default:
        return CUDA_SUCCESS;
    }
}

/* What the callable computes: the argument times a factor that should be 2. */
static float factor_of(struct subject *s, CUstream stream, uint64_t in)
{
    s->calls++;
    if (s->what == COUNTER || s->what == RANDOM)
        return is_capturing(s, stream) == (s->what == COUNTER) ? (float)s->calls : 2;
    if (s->what != FROZEN_VALUE)
        return 2;
    /* Read through the driver's own table, which nobody watches, and only when that is allowed. */
    if (!is_capturing(s, stream)) {
        s->f->driver->cuStreamSynchronize(stream);
        s->f->driver->cuMemcpyDtoH(&s->value, in, sizeof s->value);
    }
    return s->value;
}

static rp_status subject(struct rp_call *call, void *user, struct rp_error *err)
{
    struct subject *s = user;
    CUstream stream = rp_call_stream(call);
    uint64_t in = rp_call_arg(call, 0), out = rp_call_arg(call, 1), block;
    if (s->what == FAILS)
        return rpi_error(err, RP_ERROR_IO, "subject", "there is no file");
    rp_status status = rp_call_alloc(call, (COUNT + 4) * sizeof(float), stream, &block, err);
    if (status != RP_OK)
        return status;
    if (!s->kept)
        s->kept = in;
    CUresult result = launch_scale(s, stream, block, in, 1);
    for (enum what what = SYNC; what <= OUTSIDE_EVENT && result == CUDA_SUCCESS; what++)
        if (what == s->what || (s->what == MANY && what != OUTSIDE_EVENT && what != UNJOINED))
            result = obstruct(s, what, stream, block);
    if (s->what == FREED)
        status = rp_call_free(call, block, err);
    if (result == CUDA_SUCCESS)
        result = launch_scale(s, stream, out, s->what == BAKED_ADDRESS ? s->kept : block,
                              factor_of(s, stream, in));
    if (result == CUDA_SUCCESS && s->what == KEPT) {
        uint64_t before = s->table;
        s->table = block;
        if (before && is_capturing(s, stream))
            result = launch_scale(s, stream, before, block, 1);
    }
    if (status == RP_OK && s->what != FREED)
        status = rp_call_free(call, block, err);
    return result == CUDA_SUCCESS ? status : rpi_error_driver(err, result, "subject", "working");
}

static struct rp_findings *check(struct rpt_fixture *f, enum what what)
{
    struct subject s = {.f = f, .what = what};
    struct rp_findings *findings = NULL;
    uint64_t in = rpt_buffer(f, COUNT, 1), out = rpt_buffer(f, COUNT, 100);
    struct rp_arg args[] = {rpt_arg(in, COUNT, RP_ARG_IN), rpt_arg(out, COUNT, RP_ARG_OUT)};
    assert_int_equal(f->driver->cuEventRecord(f->event, f->streams[1]), 0);
    RPT_OK(f, rp_check(f->device, subject, &s, args, 2, &findings, &f->err));
    for (size_t i = 0; i < s.taken_count; i++)
        assert_int_equal(f->driver->cuMemFree(s.taken[i]), 0);
    for (size_t i = 0; i < s.pinned_count; i++)
        assert_int_equal(f->driver->cuMemFreeHost(s.pinned[i]), 0);
    rpi_host_races_clear(); /* side streams that nobody waits for are what some are about */
    float back[COUNT];
    rpt_read(f, out, back, COUNT); /* as it was */
    for (int i = 0; i < COUNT; i++)
        assert_float_equal(back[i], 100 + i % 7, 0);
    assert_int_equal(f->driver->cuMemFree(in), 0);
    assert_int_equal(f->driver->cuMemFree(out), 0);
    return findings;
}

/* Is there an obstacle of this kind and operation? *out has it. */
static bool has(const struct rp_findings *findings, const char *kind, const char *operation,
                struct rp_obstacle *out)
{
    for (size_t i = 0; rp_findings_obstacle(findings, i, out); i++)
        if (strcmp(out->kind, kind) == 0 && strcmp(out->operation, operation) == 0)
            return true;
    return false;
}

static void print_all(const struct rp_findings *findings)
{
    struct rp_obstacle o = {.size = sizeof o};
    for (size_t i = 0; rp_findings_obstacle(findings, i, &o); i++)
        print_error("%s %s %d %s | %s | %s\n", o.kind, o.operation, o.driver_code, o.where, o.what,
                    o.mend);
}

static void each_obstacle_is_named(void **state)
{
    (void)state;
    struct rpt_fixture f;
    open_fixture(&f);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct rp_obstacle o = {.size = sizeof o};
        struct rp_place place;
        struct rp_findings *findings = check(&f, expected[i].what);
        bool found = has(findings, expected[i].kind, expected[i].operation, &o);
        if (!found || rp_findings_count(findings) != 1)
            print_all(findings);
        if (!found)
            fail_msg("%s of %s is not found", expected[i].kind, expected[i].operation);
        assert_int_equal(rp_findings_count(findings), 1);
        assert_int_equal(o.driver_code, expected[i].code);
        if (!strstr(o.mend, expected[i].mend))
            fail_msg("%s: '%s' is not '%s'", o.kind, o.mend, expected[i].mend);
        assert_true(o.what[0]);
        if (strncmp(o.operation, "cu", 2) == 0) {
            assert_true(o.where[0] && o.places >= 1);
            assert_int_equal(rp_findings_place(findings, 0, 0, &place), 1);
            assert_non_null(strstr(place.file, "test_check"));
        }
        assert_int_equal(rp_findings_place(findings, 0, o.places, &place), 0);
        rp_findings_destroy(findings);
    }
    rpt_close(&f);
}

static void a_clean_callable_has_none(void **state)
{
    (void)state;
    struct rpt_fixture f;
    open_fixture(&f);
    struct rp_findings *findings = check(&f, CLEAN);
    print_all(findings);
    assert_int_equal(rp_findings_count(findings), 0);
    rp_findings_destroy(findings);
    rp_findings_destroy(NULL);
    rpt_close(&f);
}

/* One check names them all, not the first alone. */
static void several_are_named_at_once(void **state)
{
    (void)state;
    struct rpt_fixture f;
    open_fixture(&f);
    struct rp_findings *findings = check(&f, MANY);
    struct rp_obstacle o = {.size = sizeof o};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (expected[i].what <= OUTSIDE &&
            !has(findings, expected[i].kind, expected[i].operation, &o))
            fail_msg("%s of %s is not found", expected[i].kind, expected[i].operation);
    assert_int_equal(rp_findings_count(findings), OUTSIDE - SYNC + 1);
    rp_findings_destroy(findings);
    rpt_close(&f);
}

static void misuse_is_refused(void **state)
{
    (void)state;
    struct rpt_fixture f;
    open_fixture(&f);
    struct rp_findings *findings = NULL;
    assert_int_equal(rp_check(NULL, subject, NULL, NULL, 0, &findings, &f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_check(f.device, NULL, NULL, NULL, 0, &findings, &f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_check(f.device, subject, NULL, NULL, 1, &findings, &f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_null(findings);
    rpt_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clean_callable_has_none),
        cmocka_unit_test(each_obstacle_is_named),
        cmocka_unit_test(several_are_named_at_once),
        cmocka_unit_test(misuse_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
