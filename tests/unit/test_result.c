/* SPDX-License-Identifier: MIT
 *
 * Driver result codes: every code of results.def has its own name and a meaning, the mapping to
 * rp_status keeps apart what must stay apart, and errors carry code, name, function and step.
 */
#include "driver/driver.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <string.h>

static void test_names_and_meanings(void **state)
{
    (void)state;
#define X(name, value, meaning)                                                                    \
    assert_string_equal(rpi_result_name(name), #name);                                             \
    assert_string_equal(rpi_result_meaning(name), meaning);                                        \
    assert_int_equal(rpi_result_status(name) == RP_OK, (value) == 0);
#include "driver/results.def"
#undef X
    assert_string_equal(rpi_result_name((CUresult)12345), "CUDA_ERROR_?");
    assert_non_null(rpi_result_meaning((CUresult)12345));
}

static void test_status_keeps_apart(void **state)
{
    (void)state;
    assert_int_equal(rpi_result_status(CUDA_ERROR_OUT_OF_MEMORY), RP_ERROR_OUT_OF_DEVICE_MEMORY);
    for (int code = 900; code <= 908; code++)
        assert_int_equal(rpi_result_status((CUresult)code), RP_ERROR_CAPTURE);
    assert_int_equal(rpi_result_status(CUDA_ERROR_TIMEOUT), RP_ERROR_DRIVER);
    assert_int_equal(rpi_result_status(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE), RP_ERROR_DRIVER);
    assert_int_equal(rpi_result_status(CUDA_ERROR_NO_DEVICE), RP_ERROR_NO_DRIVER);
    assert_int_equal(rpi_result_status(CUDA_ERROR_STUB_LIBRARY), RP_ERROR_NO_DRIVER);
    assert_int_equal(rpi_result_status((CUresult)12345), RP_ERROR_DRIVER);
}

static void test_error_from_driver(void **state)
{
    (void)state;
    struct rp_error err;
    memset(&err, 0xff, sizeof err);
    rp_status status = rpi_error_driver(&err, CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate",
                                        "taking %d MiB for pool '%s'", 64, "decode");
    assert_int_equal(status, RP_ERROR_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(err.status, status);
    assert_int_equal(err.driver_code, 2);
    assert_string_equal(err.driver_name, "CUDA_ERROR_OUT_OF_MEMORY");
    assert_string_equal(err.operation, "cuMemCreate");
    assert_string_equal(err.message,
                        "taking 64 MiB for pool 'decode': cuMemCreate returned "
                        "CUDA_ERROR_OUT_OF_MEMORY (2): device memory could not be allocated. "
                        "Often: captures of many batch sizes keep private pools, none of which "
                        "shares with another. To do: capture all shapes into one pool of "
                        "alternatives, largest first");
    assert_true(err.requested == 0 && err.available == 0);
    assert_int_equal(rpi_error_driver(NULL, CUDA_ERROR_INVALID_VALUE, "cuMemMap", "mapping"),
                     RP_ERROR_DRIVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_and_meanings),
        cmocka_unit_test(test_status_keeps_apart),
        cmocka_unit_test(test_error_from_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
