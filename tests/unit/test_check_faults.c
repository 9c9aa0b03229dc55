/* SPDX-License-Identifier: MIT
 *
 * The fault loop over what judges: a check, the self-test, and a callable that chooses between
 * eager and graph, with driver call N made to fail, N = 0, 1, 2 .., then the same with host memory.
 * No crash, nothing left over, and all works when it is tried again.
 */
#include "graph/handles/device.h"
#include "graph_fixture.h"

#include "fault_loop.h"
#include "reprise_tools.h"

/* What is checked here races on purpose: on one thread, for the check alone. */
static void open_fixture(struct rpt_fixture *f)
{
    rpt_open(f);
    struct rpi_host_options options;
    rpi_host_options(&options);
    options.threads = 1;
    rpi_host_configure(&options);
}

enum { WORDS = 256, BYTES = 4 * WORDS };

static struct rp_arg args[2]; /* made on the driver itself */

/* Calls what callables are given, and tells of a failure as a careful one does. */
static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct rp_device *device = user;
    CUstream stream = rp_call_stream(call);
    uint64_t block;
    rp_status status = rp_call_alloc(call, BYTES, stream, &block, err);
    if (status != RP_OK)
        return status;
    CUresult result = device->given->cuMemcpyDtoDAsync(block, rp_call_arg(call, 0), BYTES, stream);
    if (result == CUDA_SUCCESS)
        result = device->given->cuMemcpyDtoDAsync(rp_call_arg(call, 1), block, BYTES, stream);
    return result == CUDA_SUCCESS ? rp_call_free(call, block, err)
                                  : rpi_error_driver(err, result, "work", "copying");
}

static bool self_tests_pass(struct rp_device *device)
{
    struct rp_error err;
    const char *name;
    rp_status status;
    bool passed = true;
    for (size_t i = 0; rp_self_test(device, i, &name, &status, &err); i++) {
        assert_true(status == RP_OK || (err.status == status && err.message[0]));
        passed &= status == RP_OK;
    }
    return passed;
}

/* A check that comes to an end finds nothing, or what was made to fail. */
static bool check_finds_nothing(struct rp_device *device)
{
    struct rp_findings *findings = NULL;
    struct rp_error err;
    rp_status status = rp_check(device, work, device, args, 2, &findings, &err);
    assert_true((status == RP_OK) == (findings != NULL));
    assert_true(status == RP_OK || (err.status == status && err.message[0]));
    bool nothing = status == RP_OK && rp_findings_count(findings) == 0;
    rp_findings_destroy(findings);
    return nothing;
}

static bool callable_works(struct rp_device *device, CUstream stream)
{
    struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
    struct rp_callable *callable = NULL;
    struct rp_inputs inputs = {.args = args, .arg_count = 2};
    struct rp_error err;
    options.policy = RP_POLICY_AUTO;
    if (rp_callable_create(device, &options, work, device, &callable, &err) != RP_OK)
        return false;
    bool works = true;
    for (int i = 0; i < 8; i++)
        works &= rp_callable_call(callable, &inputs, stream, &err) == RP_OK;
    /* The driver keeps a stream's last work, which is eager or a graph's as the calls were timed.
     */
    works &= device->driver->cuMemsetD8Async(args[1].address, 0, BYTES, stream) == CUDA_SUCCESS;
    works &= device->driver->cuStreamSynchronize(stream) == CUDA_SUCCESS;
    rp_callable_destroy(callable);
    return works;
}

static bool judge(const struct rp_driver *driver, void *user)
{
    struct rp_device *device = NULL;
    CUstream stream = *(CUstream *)user;
    if (rpi_device_open_on(driver, 0, &device, NULL) != RP_OK)
        return false;
    bool worked = self_tests_pass(device);
    worked &= check_finds_nothing(device);
    if (rp_device_push(device, NULL) == RP_OK) {
        worked &= callable_works(device, stream);
        rp_device_pop(device);
    } else {
        worked = false;
    }
    rp_device_destroy(device);
    rpi_host_races_clear(); /* with what the host driver keeps about finished work */
    return worked;
}

static const char *left_over(void *user)
{
    struct rpi_host_statistics now;
    (void)user;
    rpi_driver_host()->cuCtxSynchronize();
    rpi_host_statistics(&now);
    return now.chunks || now.mappings || now.reservations ? "device memory"
           : now.allocations > 2                          ? "allocations"
           : now.streams > RPT_STREAMS + 1           ? "streams" /* one is kept for the next pool */
           : now.events > 1                          ? "events"
           : now.graphs || now.execs || now.captures ? "graphs"
                                                     : NULL;
}

static void each_failure_is_survived(void **state)
{
    (void)state;
    struct rpt_fixture f;
    memset(&f, 0, sizeof f);
    open_fixture(&f);
    rp_pool_destroy(f.pool); /* so that nothing but buffers is there */
    f.pool = NULL;
    for (int i = 0; i < 2; i++)
        args[i] = rpt_arg(rpt_buffer(&f, WORDS, 1), WORDS, i ? RP_ARG_OUT : RP_ARG_IN);
    struct rpt_scenario scenario = {
        .run = judge, .left = left_over, .user = &f.streams[1], .step = RPT_LONG_LOOP_STEP};
    assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_OUT_OF_MEMORY) > 50);
    assert_true(
        rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) > 50);
    assert_true(rpt_memory_fault_loop(rpi_driver_host(), &scenario) > 50);
    for (int i = 0; i < 2; i++)
        assert_int_equal(f.driver->cuMemFree(args[i].address), 0);
    rpt_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_failure_is_survived)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
