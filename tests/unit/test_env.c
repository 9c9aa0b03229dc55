/* SPDX-License-Identifier: MIT */
#include "base/env.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void a_variable_that_is_set_is_read(void **state)
{
    (void)state;
    setenv("REPRISE_LIBCUDA", "libother.so", 1);
    assert_string_equal(rpi_env(RPI_ENV_LIBCUDA), "libother.so");
}

static void unset_and_empty_are_the_same(void **state)
{
    (void)state;
    setenv("REPRISE_LIBCUDA", "", 1);
    assert_null(rpi_env(RPI_ENV_LIBCUDA));
    unsetenv("REPRISE_LIBCUDA");
    assert_null(rpi_env(RPI_ENV_LIBCUDA));
}

static void every_variable_has_a_name_and_a_meaning(void **state)
{
    (void)state;
    assert_string_equal(rpi_env_name(RPI_ENV_LIBCUDA), "REPRISE_LIBCUDA");
    for (int i = 0; i < RPI_ENV_COUNT; i++) {
        assert_int_equal(strncmp(rpi_env_name((enum rpi_env)i), "REPRISE_", 8), 0);
        assert_true(strlen(rpi_env_meaning((enum rpi_env)i)) > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_variable_that_is_set_is_read),
        cmocka_unit_test(unset_and_empty_are_the_same),
        cmocka_unit_test(every_variable_has_a_name_and_a_meaning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
