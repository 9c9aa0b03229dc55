/* SPDX-License-Identifier: MIT
 *
 * The fault loop over callables: create, estimate, capture ahead of time, call eagerly, by graph,
 * padded and with fresh outputs, report, destroy, with driver call N made to fail, then with host
 * memory. A call that fails works when it is made again, results are right, and nothing is left.
 */
#include "graph/handles/device.h"
#include "graph_fixture.h"

#include "fault_loop.h"
#include "reprise_heap.h"

enum { WIDTH = 20, MOST_ROWS = 8, COUNT = WIDTH * MOST_ROWS };

static struct rpt_fixture outer; /* on the driver itself, whose calls do not fail by the wrapper */
static uint64_t in, out;

/* out = 3 in, by way of scratch memory. */
static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct rpt_fixture *f = user;
    CUstream stream = rp_call_stream(call);
    struct rp_arg from;
    uint64_t scratch;
    if (!rp_call_tensor(call, 0, &from))
        return RP_ERROR_INTERNAL;
    uint32_t count = (uint32_t)(from.shape[0] * from.shape[1]);
    rp_status status = rp_call_alloc(call, from.bytes, stream, &scratch, err);
    if (status == RP_OK)
        status = rpt_scale(f, stream, scratch, from.address, 3, count, err);
    if (status == RP_OK)
        status = rpt_scale(f, stream, rp_call_arg(call, 1), scratch, 1, count, err);
    return status == RP_OK ? rp_call_free(call, scratch, err) : status;
}

static bool worked(rp_status status, const struct rp_error *err)
{
    if (status == RP_OK)
        return true;
    assert_int_equal(err->status, status);
    assert_true(err->message[0] != '\0');
    assert_true(status != RP_ERROR_INTERNAL);
    return false;
}

/* One failure is all there is: what fails works when it is tried again. */
#define TWICE(call)                                                                                \
    do {                                                                                           \
        struct rp_error err_;                                                                      \
        struct rp_error *err = &err_;                                                              \
        if (!worked((call), err)) {                                                                \
            err = &outer.err;                                                                      \
            RPT_OK(&outer, (call));                                                                \
        }                                                                                          \
    } while (0)

static struct rp_arg rows_at(uint64_t address, const int64_t shape[2], enum rp_arg_role role)
{
    return (struct rp_arg){.address = address,
                           .bytes = (uint64_t)(shape[0] * shape[1]) * sizeof(float),
                           .role = role,
                           .dtype = RP_DTYPE_FLOAT32,
                           .rank = 2,
                           .shape = shape};
}

/* False where the host driver has no memory to tell. */
static bool is_right(uint64_t address, int64_t rows)
{
    float values[COUNT];
    if (outer.driver->cuCtxSynchronize() != CUDA_SUCCESS ||
        outer.driver->cuMemcpyDtoH(values, address, (size_t)rows * WIDTH * sizeof(float)) !=
            CUDA_SUCCESS)
        return false;
    for (int64_t i = 0; i < rows * WIDTH; i++)
        assert_true(values[i] == 3.0f * (1.0f + (float)(i % 7)));
    return true;
}

static bool call(struct rp_callable *callable, struct rp_heap *heap, int64_t rows, bool fresh)
{
    const int64_t shape[2] = {rows, WIDTH};
    struct rp_arg args[] = {rows_at(in, shape, RP_ARG_IN),
                            rows_at(fresh ? 0 : out, shape, RP_ARG_OUT)};
    struct rp_inputs inputs = {.args = args, .arg_count = 2};
    TWICE(rp_callable_call(callable, &inputs, outer.streams[rows % RPT_STREAMS], err));
    bool right = is_right(args[1].address, rows);
    if (fresh)
        TWICE(rp_heap_free(heap, args[1].address, err));
    return right;
}

static void ahead_of_time(struct rp_callable *callable)
{
    static const int64_t shapes[2][2] = {{3, WIDTH}, {8, WIDTH}};
    struct rp_callable *callables[] = {callable, callable};
    struct rp_arg args[2][2];
    struct rp_inputs inputs[2];
    struct rp_estimate *estimate = NULL;
    for (int i = 0; i < 2; i++) {
        args[i][0] = rows_at(0, shapes[i], RP_ARG_IN);
        args[i][1] = rows_at(0, shapes[i], RP_ARG_OUT);
        inputs[i] = (struct rp_inputs){.args = args[i], .arg_count = 2};
    }
    TWICE(rp_estimate(callables, inputs, 2, &estimate, err));
    rp_estimate_destroy(estimate);
    TWICE(rp_callable_capture(callable, inputs, 2, NULL, NULL, NULL, err));
}

static bool run_all(const struct rp_driver *driver, void *user)
{
    static const struct rp_axis axes[] = {{0, 0}, {1, 0}};
    static const struct rp_dim batch = {"batch", axes, 2, RP_BUCKET_POWERS_OF_TWO, 0, NULL, 0};
    struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
    struct rp_device *device = NULL;
    struct rp_heap *heap = NULL;
    struct rp_callable *callable = NULL;
    const char *report;
    (void)user;
    TWICE(rpi_device_open_on(driver, 0, &device, err));
    TWICE(rp_heap_create(device, NULL, &heap, err));
    options.heap = heap;
    options.dims = &batch;
    options.dim_count = 1;
    TWICE(rp_callable_create(device, &options, work, &outer, &callable, err));
    bool right = call(callable, heap, 2, false);
    ahead_of_time(callable);
    for (int64_t rows = 1; rows <= MOST_ROWS; rows++)
        right &= call(callable, heap, rows, rows % 3 == 0);
    TWICE(rp_callable_report(callable, RP_REPORT_JSON, &report, err));
    rp_callable_destroy(callable);
    rp_heap_destroy(heap);
    rp_device_destroy(device);
    return right;
}

/* ---- What must be as before -----------------------------------------------------------------*/

static struct rpi_host_statistics held;

static const char *what_is_left(void *user)
{
    struct rpi_host_statistics now;
    (void)user;
    if (outer.driver->cuCtxSynchronize() != CUDA_SUCCESS)
        return "a driver that does not work";
    rpi_host_statistics(&now);
    const struct {
        const char *name;
        bool same;
    } states[] = {{"device memory", now.physical_bytes == held.physical_bytes},
                  {"mappings", now.mappings == held.mappings},
                  {"reserved addresses", now.reservations == held.reservations},
                  {"allocations", now.allocations == held.allocations},
                  {"streams", now.streams == held.streams},
                  {"events", now.events == held.events},
                  {"graphs", now.graphs == held.graphs},
                  {"execs", now.execs == held.execs},
                  {"captures", now.captures == held.captures},
                  {"races", now.races == 0}};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (!states[i].same)
            return states[i].name;
    return NULL;
}

static const struct rpt_scenario scenario = {
    .run = run_all, .left = what_is_left, .step = RPT_LONG_LOOP_STEP};

static void driver_calls_fail_out_of_memory(void **state)
{
    (void)state;
    assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_OUT_OF_MEMORY) > 50);
}

static void driver_calls_fail_for_reasons_unknown(void **state)
{
    (void)state;
    assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_UNKNOWN) > 50);
}

/* Without the race check, which keeps what it saw: the count would never be the same. */
static void host_memory_fails(void **state)
{
    (void)state;
    struct rpi_host_options before = rpt_ignore_races();
    assert_true(rpt_memory_fault_loop(rpi_driver_host(), &scenario) > 50);
    rpi_host_configure(&before);
}

static int open_outer(void **state)
{
    (void)state;
    rpt_open(&outer);
    in = rpt_buffer(&outer, COUNT, 1);
    out = rpt_buffer(&outer, COUNT, 0);
    rpi_host_statistics(&held);
    return 0;
}

static int close_outer(void **state)
{
    (void)state;
    outer.driver->cuMemFree(in);
    outer.driver->cuMemFree(out);
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
