/* SPDX-License-Identifier: MIT
 *
 * Loading NVIDIA's driver, against libraries that only look like it: what is missing is named, what
 * is optional becomes a capability, and the toolkit's stub is told from the driver. A library that
 * was loaded is kept for the life of the process, so cases that load one run in a child process.
 */
#include "driver/driver.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static rp_status load(const char *library, struct rp_error *err, const struct rp_driver **out)
{
    setenv("REPRISE_LIBCUDA", library, 1);
    rp_status status = rpi_driver_libcuda(out, err);
    unsetenv("REPRISE_LIBCUDA");
    return status;
}

static int clear_fake(void **state)
{
    (void)state;
    unsetenv("FAKE_VERSION");
    unsetenv("FAKE_MISSING");
    unsetenv("FAKE_RESULT");
    return 0;
}

/* Runs check in a child, which exits with 0 when check returns. */
static void in_child(void (*check)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        check();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* For children: a failure ends the process. */
static void require(int condition, const char *text, int line)
{
    if (condition)
        return;
    dprintf(2, "%s:%d: %s\n", __FILE__, line, text);
    _exit(1);
}
#define CHECK(condition) require((condition) != 0, #condition, __LINE__)

static void check_filled(const char *library)
{
    const struct rp_driver *driver = NULL;
    struct rp_error err;
    CHECK(load(library, &err, &driver) == RP_OK);
    CHECK(driver && !strcmp(driver->provider, "cuda") && driver->version == 13000);
    CHECK(driver->capabilities == (RPI_CAP_PARAM_INFO | RPI_CAP_FUNC_NAME |
                                   RPI_CAP_CAPTURE_TO_GRAPH | RPI_CAP_LIBRARY | RPI_CAP_SHARE));
#define X(need, name, version, params, args) CHECK(driver->name);
#include "driver/symbols.def"
#undef X
    CHECK((int)driver->cuMemAlloc(NULL, 0) == 1001);
    CHECK((int)driver->cuFuncGetName(NULL, NULL) == 1002);
    CHECK((int)driver->cuMemFree(0) == 0);
    const struct rp_driver *again = NULL;
    CHECK(load("/nonexistent/libcuda.so.1", &err, &again) == RP_OK && again == driver);
}

static void check_v2(void)
{
    check_filled(FAKE_V2);
}

static void check_v1(void)
{
    check_filled(FAKE_V1);
}

static void test_fills_the_table(void **state)
{
    (void)state;
    in_child(check_v2);
    in_child(check_v1);
}

static void check_optional(void)
{
    const struct rp_driver *driver = NULL;
    setenv("FAKE_MISSING", "cuFuncGetName", 1);
    CHECK(load(FAKE_V2, NULL, &driver) == RP_OK);
    CHECK(driver->capabilities ==
          (RPI_CAP_PARAM_INFO | RPI_CAP_CAPTURE_TO_GRAPH | RPI_CAP_LIBRARY | RPI_CAP_SHARE));
    CHECK(!driver->cuFuncGetName && driver->cuFuncGetParamInfo);
}

static void check_driver_older_than_optional(void)
{
    const struct rp_driver *driver = NULL;
    setenv("FAKE_VERSION", "12030", 1); /* cuFuncGetParamInfo came with 12.4 */
    CHECK(load(FAKE_V2, NULL, &driver) == RP_OK);
    CHECK(driver->capabilities ==
          (RPI_CAP_FUNC_NAME | RPI_CAP_CAPTURE_TO_GRAPH | RPI_CAP_LIBRARY | RPI_CAP_SHARE));
    CHECK(!driver->cuFuncGetParamInfo);
}

static void test_optional_becomes_capability(void **state)
{
    (void)state;
    in_child(check_optional);
    in_child(check_driver_older_than_optional);
}

static void expect_no_driver(const char *library, const char *const *words)
{
    const struct rp_driver *driver = NULL;
    struct rp_error err;
    assert_int_equal(load(library, &err, &driver), RP_ERROR_NO_DRIVER);
    assert_int_equal(err.status, RP_ERROR_NO_DRIVER);
    assert_null(driver);
    for (; *words; words++)
        if (!strstr(err.message, *words))
            fail_msg("'%s' is not in: %s", *words, err.message);
    assert_int_equal(load(library, NULL, &driver), RP_ERROR_NO_DRIVER);
}
#define EXPECT_NO_DRIVER(library, ...)                                                             \
    expect_no_driver(library, (const char *const[]){__VA_ARGS__, NULL})

static void test_required_is_named(void **state)
{
    (void)state;
    setenv("FAKE_MISSING", "cuMemMap", 1);
    EXPECT_NO_DRIVER(FAKE_V2, "cuMemMap", "CUDA 10.2", "for CUDA 13.0", "(1 of ", FAKE_V2);
    EXPECT_NO_DRIVER(FAKE_V1, "cuMemMap");
}

static void test_old_driver_is_refused(void **state)
{
    (void)state;
    setenv("FAKE_VERSION", "12020", 1);
    EXPECT_NO_DRIVER(FAKE_V2, "cuStreamGetCaptureInfo", "CUDA 12.3", "for CUDA 12.2", "newer");
}

static void test_not_a_driver(void **state)
{
    (void)state;
    EXPECT_NO_DRIVER("/nonexistent/libcuda.so.1", "/nonexistent/libcuda.so.1", "REPRISE_LIBCUDA");
    EXPECT_NO_DRIVER(FAKE_NONE, "no cuGetProcAddress");
    setenv("FAKE_MISSING", "cuDriverGetVersion", 1);
    EXPECT_NO_DRIVER(FAKE_V2, "cuDriverGetVersion");
}

static void test_stub_is_told(void **state)
{
    (void)state;
    setenv("FAKE_RESULT", "34", 1);
    EXPECT_NO_DRIVER(FAKE_V2, "stub", FAKE_V2, "LD_LIBRARY_PATH");
    EXPECT_NO_DRIVER(FAKE_V1, "stub");
}

static void test_real_stub_is_told(void **state)
{
    (void)state;
    if (!strcmp(REAL_STUB, "")) {
        print_message("skipped: no CUDA toolkit with a stub library was found\n");
        skip();
    }
    EXPECT_NO_DRIVER(REAL_STUB, "stub", REAL_STUB);
}

static void check_without_override(void)
{
    const struct rp_driver *driver = NULL;
    struct rp_error err;
    unsetenv("REPRISE_LIBCUDA");
    if (rpi_driver_libcuda(&driver, &err) == RP_OK) {
        CHECK(driver->version >= 12030);
        return;
    }
    CHECK(err.status == RP_ERROR_NO_DRIVER);
    CHECK(strstr(err.message, "libcuda"));
}

static void test_this_machine(void **state)
{
    (void)state;
    in_child(check_without_override);
}

static void *load_in_thread(void *out)
{
    struct rp_error err;
    if (rpi_driver_libcuda(out, &err) != RP_OK)
        *(const struct rp_driver **)out = NULL;
    return NULL;
}

static void check_threads(void)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    const struct rp_driver *drivers[THREADS];
    setenv("REPRISE_LIBCUDA", FAKE_V2, 1);
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, load_in_thread, &drivers[i]));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        CHECK(drivers[i] && drivers[i] == drivers[0] && drivers[i]->cuMemAlloc);
}

static void test_threads_share_one_table(void **state)
{
    (void)state;
    in_child(check_threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_fills_the_table, clear_fake),
        cmocka_unit_test_setup(test_optional_becomes_capability, clear_fake),
        cmocka_unit_test_setup(test_required_is_named, clear_fake),
        cmocka_unit_test_setup(test_old_driver_is_refused, clear_fake),
        cmocka_unit_test_setup(test_not_a_driver, clear_fake),
        cmocka_unit_test_setup(test_stub_is_told, clear_fake),
        cmocka_unit_test_setup(test_real_stub_is_told, clear_fake),
        cmocka_unit_test_setup(test_this_machine, clear_fake),
        cmocka_unit_test_setup(test_threads_share_one_table, clear_fake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
