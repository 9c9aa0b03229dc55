/* SPDX-License-Identifier: MIT
 *
 * The trace and fault wrappers, over a table of two functions that count their calls.
 */
#include "driver/driver.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static int allocs, frees, ended, destroyed, synchronized;

static CUresult mem_alloc(CUdeviceptr *address, size_t bytes)
{
    allocs++;
    *address = 0x7f0000000000u + bytes;
    return CUDA_SUCCESS;
}

static CUresult mem_free(CUdeviceptr address)
{
    frees++;
    return address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult ctx_synchronize(void)
{
    synchronized++;
    return CUDA_SUCCESS;
}

static CUresult end_capture(CUstream stream, CUgraph *graph)
{
    (void)stream;
    ended++;
    *graph = (CUgraph)0x10;
    return CUDA_SUCCESS;
}

static CUresult graph_destroy(CUgraph graph)
{
    destroyed += graph == (CUgraph)0x10;
    return CUDA_SUCCESS;
}

static const struct rp_driver inner = {.provider = "fake",
                                       .version = 12040,
                                       .capabilities = RPI_CAP_FUNC_NAME,
                                       .cuMemAlloc = mem_alloc,
                                       .cuMemFree = mem_free,
                                       .cuCtxSynchronize = ctx_synchronize,
                                       .cuStreamEndCapture = end_capture,
                                       .cuGraphDestroy = graph_destroy};

static int reset(void **state)
{
    (void)state;
    allocs = frees = ended = destroyed = synchronized = 0;
    return 0;
}

static void expect_same_face(const struct rp_driver *driver)
{
    assert_string_equal(driver->provider, "fake");
    assert_int_equal(driver->version, 12040);
    assert_int_equal(driver->capabilities, RPI_CAP_FUNC_NAME);
    assert_non_null(driver->cuMemAlloc);
    assert_null(driver->cuMemMap);
    assert_ptr_not_equal(driver->cuMemAlloc, inner.cuMemAlloc);
}

static CUresult other_mem_free(CUdeviceptr address)
{
    (void)address;
    return CUDA_ERROR_UNKNOWN;
}

/* Tracing another driver, or the same one again, changes nothing for who uses `traced` already. */
static void expect_a_trace_of_its_own(const struct rp_driver *traced)
{
    static const struct rp_driver other = {.provider = "other", .cuMemFree = other_mem_free},
                                  third = {.provider = "third", .cuMemFree = other_mem_free};
    char *text = NULL;
    size_t bytes = 0;
    FILE *sink = open_memstream(&text, &bytes);
    const struct rp_driver *driver = rpi_driver_trace(&other, sink);
    assert_ptr_not_equal(driver, traced);
    assert_null(driver->cuMemAlloc);
    assert_int_equal(driver->cuMemFree(0x50), CUDA_ERROR_UNKNOWN);
    assert_ptr_equal(rpi_driver_trace(&inner, sink), traced);
    assert_ptr_equal(rpi_driver_trace(&third, sink), &third);
    fclose(sink);
    assert_int_equal(strncmp(text, "0 ", 2), 0);
    assert_non_null(strstr(text, " cuMemFree(address=0x50) = CUDA_ERROR_UNKNOWN "));
    free(text);
}

static void test_trace_writes_each_call(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes = 0;
    FILE *sink = open_memstream(&text, &bytes);
    const struct rp_driver *driver = rpi_driver_trace(&inner, sink);
    expect_same_face(driver);
    CUdeviceptr address = 0;
    assert_int_equal(driver->cuMemAlloc(&address, 0x40), CUDA_SUCCESS);
    assert_int_equal(driver->cuMemFree(0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(driver->cuCtxSynchronize(), CUDA_SUCCESS);
    expect_a_trace_of_its_own(driver);
    assert_int_equal(driver->cuMemFree(1), CUDA_SUCCESS);
    fclose(sink);
    assert_true(allocs == 1 && frees == 2 && synchronized == 1);

    char expected[96];
    snprintf(expected, sizeof expected, "cuMemAlloc(address=0x%llx, bytes=0x40) = CUDA_SUCCESS ",
             (unsigned long long)(uintptr_t)&address);
    const char *line = text;
    assert_int_equal(strncmp(line, "0 ", 2), 0);
    assert_non_null(strstr(line, expected));
    line = strchr(line, '\n') + 1;
    assert_int_equal(strncmp(line, "1 ", 2), 0);
    assert_non_null(strstr(line, " cuMemFree(address=0x0) = CUDA_ERROR_INVALID_VALUE "));
    line = strchr(line, '\n') + 1;
    assert_int_equal(strncmp(line, "2 ", 2), 0);
    assert_non_null(strstr(line, " cuCtxSynchronize() = CUDA_SUCCESS "));
    line = strchr(line, '\n') + 1;
    assert_int_equal(strncmp(line, "3 ", 2), 0); /* the number went on */
    assert_string_equal(strchr(line, '\n'), "\n");
    free(text);
}

static void test_fault_strikes_once(void **state)
{
    (void)state;
    const struct rp_driver *driver = rpi_driver_fault(&inner);
    expect_same_face(driver);
    CUdeviceptr address = 0;
    rpi_driver_fault_at(1, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(driver->cuMemAlloc(&address, 1), CUDA_SUCCESS);
    assert_null(rpi_driver_fault_hit());
    assert_int_equal(driver->cuMemAlloc(&address, 1), CUDA_ERROR_OUT_OF_MEMORY);
    assert_string_equal(rpi_driver_fault_hit(), "cuMemAlloc");
    assert_int_equal(driver->cuMemAlloc(&address, 1), CUDA_SUCCESS);
    assert_int_equal(allocs, 2);
    assert_int_equal(rpi_driver_fault_calls(), 3);
}

static void test_fault_lets_giving_back_through(void **state)
{
    (void)state;
    const struct rp_driver *driver = rpi_driver_fault(&inner);
    rpi_driver_fault_at(0, CUDA_ERROR_UNKNOWN);
    assert_int_equal(driver->cuMemFree(1), CUDA_SUCCESS);
    assert_int_equal(frees, 1);
    assert_int_equal(rpi_driver_fault_calls(), 1);
    assert_null(rpi_driver_fault_hit());
}

static void test_fault_in_end_capture_ends_it(void **state)
{
    (void)state;
    const struct rp_driver *driver = rpi_driver_fault(&inner);
    CUgraph graph = (CUgraph)0x20;
    rpi_driver_fault_at(0, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(driver->cuStreamEndCapture(NULL, &graph),
                     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_ptr_equal(graph, NULL);
    assert_true(ended == 1 && destroyed == 1);
    assert_int_equal(driver->cuStreamEndCapture(NULL, &graph), CUDA_SUCCESS);
    assert_ptr_equal(graph, (CUgraph)0x10);
}

static void test_fault_off(void **state)
{
    (void)state;
    const struct rp_driver *driver = rpi_driver_fault(&inner);
    rpi_driver_fault_at(UINT64_MAX, CUDA_ERROR_UNKNOWN);
    CUdeviceptr address = 0;
    for (int i = 0; i < 100; i++)
        assert_int_equal(driver->cuMemAlloc(&address, 1), CUDA_SUCCESS);
    assert_int_equal(rpi_driver_fault_calls(), 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_trace_writes_each_call, reset),
        cmocka_unit_test_setup(test_fault_strikes_once, reset),
        cmocka_unit_test_setup(test_fault_lets_giving_back_through, reset),
        cmocka_unit_test_setup(test_fault_in_end_capture_ends_it, reset),
        cmocka_unit_test_setup(test_fault_off, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
