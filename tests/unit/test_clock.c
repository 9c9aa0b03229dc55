/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"

#define MS 1000000u

/* Asleep a thread spends a quarter of what goes by. */
static void a_thread_that_does_not_run_spends_a_quarter(void **state)
{
    (void)state;
    uint64_t before = rpi_clock_ns();
    struct rpi_stopwatch watch = rpi_stopwatch_start();
    assert_false(rpi_stopwatch_past(&watch, 1000 * MS));
    nanosleep(&(struct timespec){0, 80 * MS}, NULL);
    uint64_t spent = rpi_stopwatch_ns(&watch), passed = rpi_clock_ns() - before;
    assert_in_range(spent, 20 * MS, passed);
    assert_true(spent < passed / 2);
    assert_true(rpi_stopwatch_past(&watch, 20 * MS));
    assert_false(rpi_stopwatch_past(&watch, 1000000 * (uint64_t)MS));
}

static void a_thread_that_runs_spends_what_it_runs(void **state)
{
    (void)state;
    struct rpi_stopwatch watch = rpi_stopwatch_start();
    uint64_t start = rpi_clock_thread_ns(), last = 0;
    while (rpi_clock_thread_ns() - start < 10 * MS) {
        uint64_t spent = rpi_stopwatch_ns(&watch);
        assert_true(spent >= last);
        last = spent;
    }
    assert_true(rpi_stopwatch_ns(&watch) >= 10 * MS);
    assert_true(rpi_stopwatch_past(&watch, 10 * MS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_that_does_not_run_spends_a_quarter),
        cmocka_unit_test(a_thread_that_runs_spends_what_it_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
