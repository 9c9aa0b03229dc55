/* SPDX-License-Identifier: MIT
 *
 * The fault loop over the heap: each driver call and each allocation of host memory fails in its
 * turn. A call that fails says so and changes nothing: the books agree with a recount, what is live
 * is as it was, and the same call works when it is made again. Nothing is left over.
 */
#include "heap_fixture.h"

#include "fault_loop.h"

#include <stdbool.h>

static struct {
    CUstream streams[3];
    CUcontext context;
    struct rpi_host_statistics before;
    uint64_t stacks_made, stacks_released;
    uint64_t sources_made, sources_released; /* bytes */
    bool wrong;                              /* something happened that no failure excuses */
} test;

static uint64_t capture_stack(void *user)
{
    (void)user;
    return ++test.stacks_made;
}

static void release_stack(uint64_t stack, void *user)
{
    (void)stack;
    (void)user;
    test.stacks_released++;
}

static uint64_t source_alloc(uint64_t bytes, struct CUstream_st *stream, void *user)
{
    (void)stream, (void)user;
    uint64_t address = ((uint64_t)1 << 45) + test.sources_made;
    test.sources_made += bytes;
    return address;
}

static void source_free(uint64_t address, uint64_t bytes, struct CUstream_st *stream, void *user)
{
    (void)address, (void)stream, (void)user;
    test.sources_released += bytes;
}

static int no_frame(uint64_t stack, size_t index, struct rp_heap_frame *out_frame, void *user)
{
    (void)out_frame;
    (void)user;
    return stack && index > 1000;
}

static void expect_at(bool holds, int line)
{
    if (!holds)
        print_error("line %d does not hold\n", line);
    test.wrong |= !holds;
}
#define expect(holds) expect_at((holds), __LINE__)

/* How far the scenario has got with a heap. A failed step is tried again: only one call fails. */
struct run {
    struct rp_heap *heap;
    bool failed;
};

static bool ok(struct run *run, rp_status status, const struct rp_error *err)
{
    expect(status == RP_OK || (err->status == status && err->message[0]));
    expect(rpi_heap_is_valid(run->heap));
    run->failed |= status != RP_OK;
    return status == RP_OK;
}

static uint64_t take(struct run *run, uint64_t bytes, CUstream stream)
{
    struct rp_error err = {0};
    uint64_t address = 0;
    int64_t before[RP_HEAP_STATS], after[RP_HEAP_STATS];
    rp_heap_stats(run->heap, before, RP_HEAP_STATS);
    if (!ok(run, rp_heap_alloc(run->heap, bytes, stream, &address, &err), &err)) {
        expect(address == 0);
        rp_heap_stats(run->heap, after, RP_HEAP_STATS);
        for (size_t i = 0; i < RP_HEAP_STATS; i++) {
            const char *name = rp_heap_stat_name(i);
            if (!strncmp(name, "allocat", 7) || !strncmp(name, "requested", 9))
                expect(before[i] == after[i]);
        }
        expect(rp_heap_alloc(run->heap, bytes, stream, &address, &err) == RP_OK);
    }
    expect(address != 0);
    return address;
}

/* For freeing no failure is an excuse. */
static void give(struct run *run, uint64_t address)
{
    expect(rp_heap_free(run->heap, address, NULL) == RP_OK);
}

static void use(struct run *run, uint64_t address, CUstream stream)
{
    struct rp_error err = {0};
    if (!ok(run, rp_heap_use(run->heap, address, stream, &err), &err))
        expect(rp_heap_use(run->heap, address, stream, &err) == RP_OK);
}

static void empty(struct run *run)
{
    struct rp_error err = {0};
    if (!ok(run, rp_heap_empty_cache(run->heap, &err), &err))
        expect(rp_heap_empty_cache(run->heap, &err) == RP_OK);
}

static void look(struct run *run)
{
    struct rp_heap_snapshot *snapshot = NULL;
    struct rp_error err = {0};
    if (!ok(run, rp_heap_snapshot_create(run->heap, &snapshot, &err), &err))
        expect(rp_heap_snapshot_create(run->heap, &snapshot, &err) == RP_OK);
    if (!rp_heap_snapshot_json(snapshot)) {
        run->failed = true;
        expect(rp_heap_snapshot_json(snapshot) != NULL);
    }
    rp_heap_snapshot_destroy(snapshot);
}

static uint64_t take_in(struct run *run, uint64_t bytes)
{
    struct rp_error err = {0};
    uint64_t address = 0;
    if (!ok(run, rp_heap_alloc_in(run->heap, 1, bytes, test.streams[0], &address, &err), &err))
        expect(rp_heap_alloc_in(run->heap, 1, bytes, test.streams[0], &address, &err) == RP_OK);
    return address;
}

/* A pool whose memory is no device's. */
static void go_on_with_source(struct run *run)
{
    const struct rp_heap_source source = {.alloc = source_alloc, .free = source_free};
    struct rp_error err = {0};
    rp_heap_set_limit(run->heap, 0);
    if (!ok(run, rp_heap_set_source(run->heap, 1, &source, &err), &err))
        expect(rp_heap_set_source(run->heap, 1, &source, &err) == RP_OK);
    uint64_t first = take_in(run, 3 * MIB), second = take_in(run, 30 * MIB),
             small = take_in(run, 9);
    give(run, first);
    give(run, small);
    empty(run);
    give(run, take_in(run, 14 * MIB));
    give(run, second);
}

static void go_on(struct run *run)
{
    struct rp_error err = {0};
    uint64_t blocks[80];
    if (!ok(run, rp_heap_record_history(run->heap, 50, &err), &err))
        expect(rp_heap_record_history(run->heap, 50, &err) == RP_OK);
    for (int i = 0; i < 80; i++) /* more than one slab of descriptors */
        blocks[i] = take(run, (uint64_t)(i + 1) * 3000, test.streams[0]);
    for (int i = 0; i < 80; i++) {
        if (i % 3 == 0)
            use(run, blocks[i], test.streams[1 + i % 2]);
        give(run, blocks[i]);
    }
    uint64_t large = take(run, 50 * MIB, test.streams[1]), small = take(run, 5, test.streams[1]);
    use(run, large, test.streams[0]);
    give(run, large);
    large = take(run, 30 * MIB, test.streams[1]);
    look(run);
    empty(run);
    give(run, large);
    /* Short of memory, with a chunk that holds something: retry, then lend. */
    rp_heap_set_limit(run->heap, 62 * MIB);
    uint64_t edge = take(run, 2 * MIB, test.streams[0]);
    large = take(run, 40 * MIB, test.streams[1]);
    uint64_t lent = take(run, 15 * MIB, test.streams[1]);
    give(run, lent);
    give(run, large);
    give(run, small);
    give(run, edge);
    empty(run);
    go_on_with_source(run);
}

static bool run_heap(const struct rp_driver *driver, void *user)
{
    struct run run = {NULL, false};
    struct rp_error err = {0};
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    (void)user;
    options.frames = (struct rp_heap_frames){capture_stack, release_stack, no_frame, NULL};
    options.gc_threshold = 0.1;
    if (rpi_heap_create_on(driver, 0, test.context, 256 * MIB, &options, &run.heap, &err) !=
        RP_OK) {
        expect(!run.heap && err.message[0]);
        return false;
    }
    go_on(&run);
    expect(rpi_heap_is_valid(run.heap));
    rp_heap_destroy(run.heap);
    return !run.failed;
}

static const char *what_is_left(void *user)
{
    struct rpi_host_statistics now;
    CUcontext context = NULL;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    const struct rp_driver *driver = rpi_driver_host();
    (void)user;
    rpi_host_statistics(&now);
    driver->cuCtxGetCurrent(&context);
    driver->cuThreadExchangeStreamCaptureMode(&mode);
    if (test.wrong)
        return "something went wrong that no failure excuses";
    if (now.physical_bytes != test.before.physical_bytes || now.chunks != test.before.chunks)
        return "device memory";
    if (now.mappings != test.before.mappings || now.reservations != test.before.reservations)
        return "addresses";
    if (now.events != test.before.events)
        return "events";
    if (now.races)
        return "a race";
    if (context != test.context)
        return "another context";
    if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL)
        return "another capture mode";
    if (test.stacks_made != test.stacks_released)
        return "stacks";
    if (test.sources_made != test.sources_released)
        return "memory of a source";
    return NULL;
}

static void open_streams(void)
{
    const struct rp_driver *driver = rpi_driver_host();
    rpi_host_reset();
    memset(&test, 0, sizeof test);
    assert_int_equal(driver->cuInit(0), 0);
    assert_int_equal(driver->cuDevicePrimaryCtxRetain(&test.context, 0), 0);
    assert_int_equal(driver->cuCtxSetCurrent(test.context), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(driver->cuStreamCreate(&test.streams[i], CU_STREAM_NON_BLOCKING), 0);
    rpi_host_statistics(&test.before);
}

static void driver_calls_fail_for_want_of_memory(void **state)
{
    (void)state;
    const struct rpt_scenario scenario = {run_heap, what_is_left, NULL, 0};
    open_streams();
    assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_OUT_OF_MEMORY) > 50);
    rpi_host_reset();
}

static void driver_calls_fail_for_reasons_unknown(void **state)
{
    (void)state;
    const struct rpt_scenario scenario = {run_heap, what_is_left, NULL, 0};
    open_streams();
    assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_UNKNOWN) > 50);
    rpi_host_reset();
}

static void host_memory_fails(void **state)
{
    (void)state;
    const struct rpt_scenario scenario = {run_heap, what_is_left, NULL, 0};
    open_streams();
    assert_true(rpt_memory_fault_loop(rpi_driver_host(), &scenario) > 50);
    rpi_host_reset();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(driver_calls_fail_for_want_of_memory),
        cmocka_unit_test(driver_calls_fail_for_reasons_unknown),
        cmocka_unit_test(host_memory_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
