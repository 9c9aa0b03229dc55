/* SPDX-License-Identifier: MIT
 *
 * Opening devices, their contexts, functions by name, and pools made of wrong options.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "driver/host/host.h"
#include "driver/watch.h"
#include "reprise.h"
#include "reprise_heap.h"

static struct rp_device *open_host(void)
{
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    struct rp_device *device = NULL;
    options.driver = "host";
    assert_int_equal(rp_device_open(&options, &device, NULL), RP_OK);
    return device;
}

static void host_device_says_what_it_is(void **state)
{
    (void)state;
    struct rp_device *device = open_host();
    struct rp_device_info info = {.size = sizeof info};
    rp_device_info(device, &info);
    assert_string_equal(info.driver, "host");
    assert_true(info.name[0] != '\0');
    assert_true(info.driver_version >= 12030);
    assert_true(info.total_bytes > 0);
    rp_device_destroy(device);
    rp_device_destroy(NULL);
}

static void some_device_opens_anywhere(void **state)
{
    (void)state;
    struct rp_device *device = NULL;
    struct rp_device_info info = {.size = sizeof info};
    assert_int_equal(rp_device_open(NULL, &device, NULL), RP_OK);
    rp_device_info(device, &info);
    assert_true(strcmp(info.driver, "host") == 0 || strcmp(info.driver, "cuda") == 0);
    rp_device_destroy(device);
}

static void options_reach_the_host_driver(void **state)
{
    (void)state;
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    struct rpi_host_options before, seen;
    struct rp_device *device = NULL;
    rpi_host_options(&before);
    options.driver = "host";
    options.host_seed = 77;
    options.host_check_races = 0;
    assert_int_equal(rp_device_open(&options, &device, NULL), RP_OK);
    rpi_host_options(&seen);
    assert_int_equal(seen.seed, 77);
    assert_false(seen.check_races);
    rp_device_destroy(device);
    rpi_host_configure(&before);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    struct rp_device *device = NULL;
    struct rp_error err;
    assert_int_equal(rp_device_open(NULL, NULL, &err), RP_ERROR_INVALID_ARGUMENT);
    options.size = 3;
    assert_int_equal(rp_device_open(&options, &device, &err), RP_ERROR_INVALID_ARGUMENT);
    options.size = sizeof options;
    options.driver = "vulkan";
    assert_int_equal(rp_device_open(&options, &device, &err), RP_ERROR_NO_DRIVER);
    assert_non_null(strstr(err.message, "vulkan"));
    options.driver = "host";
    options.ordinal = 9;
    assert_int_equal(rp_device_open(&options, &device, &err), RP_ERROR_NO_DRIVER);
    assert_non_null(strstr(err.message, "no device 9"));
    options.driver = NULL;
    assert_int_equal(rp_device_open(&options, &device, &err), RP_ERROR_NO_DRIVER);
    assert_non_null(strstr(err.message, "cuda: "));
    assert_non_null(strstr(err.message, "host: "));
    assert_null(device);
}

static void contexts_nest(void **state)
{
    (void)state;
    struct rp_device *device = open_host();
    CUresult (*current)(CUcontext *) =
        (CUresult(*)(CUcontext *))rp_device_function(device, "cuCtxGetCurrent");
    CUcontext before = NULL, inside = NULL, after = NULL;
    assert_non_null(current);
    assert_int_equal(current(&before), 0);
    assert_int_equal(rp_device_push(device, NULL), RP_OK);
    assert_int_equal(rp_device_push(device, NULL), RP_OK);
    rp_device_pop(device);
    assert_int_equal(current(&inside), 0);
    assert_non_null(inside);
    rp_device_pop(device);
    assert_int_equal(current(&after), 0);
    assert_ptr_equal(before, after);
    rp_device_destroy(device);
}

static void functions_have_names(void **state)
{
    (void)state;
    struct rp_device *device = open_host();
    const struct rp_driver *table = rpi_driver_watch(rpi_driver_host());
    assert_ptr_equal((void *)(uintptr_t)rp_device_function(device, "cuLaunchKernel"),
                     (void *)(uintptr_t)table->cuLaunchKernel);
    assert_ptr_equal((void *)(uintptr_t)rp_device_function(device, "cuInit"),
                     (void *)(uintptr_t)table->cuInit);
    assert_null((void *)(uintptr_t)rp_device_function(device, "cuLaunchKernel_v2"));
    assert_null((void *)(uintptr_t)rp_device_function(device, ""));
    rp_device_destroy(device);
}

static void pools_refuse_wrong_options(void **state)
{
    (void)state;
    struct rp_device *device = open_host();
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    struct rp_pool *pool = NULL;
    struct rp_error err;
    assert_int_equal(rp_pool_create(NULL, NULL, &pool, &err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_pool_create(device, NULL, NULL, &err), RP_ERROR_INVALID_ARGUMENT);
    options.alignment = 48;
    assert_int_equal(rp_pool_create(device, &options, &pool, &err), RP_ERROR_INVALID_ARGUMENT);
    options.alignment = 4u << 20;
    assert_int_equal(rp_pool_create(device, &options, &pool, &err), RP_ERROR_INVALID_ARGUMENT);
    options.alignment = 2u << 20;
    options.size--;
    assert_int_equal(rp_pool_create(device, &options, &pool, &err), RP_ERROR_INVALID_ARGUMENT);
    assert_null(pool);
    options.size++;
    assert_int_equal(rp_pool_create(device, &options, &pool, &err), RP_OK);
    struct rp_pool_info info = {.size = sizeof info};
    rp_pool_info(pool, &info);
    assert_int_equal(info.mapped_bytes, 0);
    assert_int_equal(info.rehearsal_bytes, 0);
    rp_pool_destroy(pool);
    rp_pool_destroy(NULL);
    rp_device_destroy(device);
}

static _Atomic int gate_open;

static void wait_a_while(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void wait_at_gate(void *unused)
{
    (void)unused;
    while (!atomic_load(&gate_open))
        wait_a_while();
}

static void *destroy_device(void *device)
{
    rp_device_destroy(device);
    return NULL;
}

/* The last release waits for the device's work; who opens the device meanwhile keeps its context.
 */
static void opening_while_the_last_one_closes(void **state)
{
    (void)state;
    const struct rp_driver *driver = rpi_driver_host();
    struct rp_device *first = open_host(), *second;
    struct rp_pool *pool = NULL;
    pthread_t thread;
    atomic_store(&gate_open, 0);
    assert_int_equal(rp_device_push(first, NULL), RP_OK);
    assert_int_equal(driver->cuLaunchHostFunc(NULL, wait_at_gate, NULL), 0);
    rp_device_pop(first);
    assert_int_equal(pthread_create(&thread, NULL, destroy_device, first), 0);
    for (int i = 0; i < 50; i++) /* so that it is in the release by then, most likely */
        wait_a_while();
    second = open_host();
    atomic_store(&gate_open, 1);
    pthread_join(thread, NULL);
    assert_int_equal(rp_pool_create(second, NULL, &pool, NULL), RP_OK);
    rp_pool_destroy(pool);
    rp_device_destroy(second);
}

static void keep_message(enum rp_log_level level, const char *message, void *user)
{
    if (level == RP_LOG_ERROR)
        snprintf(user, 200, "%s", message);
}

/* What is left of a device can still be used, and destroyed. */
static void a_device_in_use_stays(void **state)
{
    (void)state;
    char message[200] = "";
    struct rp_device *device = open_host();
    struct rp_heap *heap = NULL;
    uint64_t address = 0;
    assert_int_equal(rp_heap_create(device, NULL, &heap, NULL), RP_OK);
    rp_set_log(keep_message, message, RP_LOG_ERROR);
    rp_device_destroy(device);
    rp_set_log(NULL, NULL, RP_LOG_ERROR);
    assert_non_null(strstr(message, "1 of its pools and heaps"));
    assert_int_equal(rp_heap_alloc(heap, 1000, NULL, &address, NULL), RP_OK);
    rp_heap_destroy(heap);
    rp_device_destroy(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_device_says_what_it_is),
        cmocka_unit_test(some_device_opens_anywhere),
        cmocka_unit_test(options_reach_the_host_driver),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(contexts_nest),
        cmocka_unit_test(opening_while_the_last_one_closes),
        cmocka_unit_test(functions_have_names),
        cmocka_unit_test(pools_refuse_wrong_options),
        cmocka_unit_test(a_device_in_use_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
