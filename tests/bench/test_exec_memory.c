/* SPDX-License-Identifier: MIT
 *
 * The estimate of exec memory beside what was seen: judged where many steps were taken, and the
 * reason where it is not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "exec_memory.h"

#define MIB ((uint64_t)1 << 20)

static struct rp_device_exec_info seen(uint64_t most, uint64_t measured, uint64_t step)
{
    return (struct rp_device_exec_info){
        .most_bytes = most, .measured_bytes = measured, .measured_step_bytes = step};
}

static void expect(const struct rp_device_exec_info *execs, bool judged, double share,
                   const char *words)
{
    double found = 0;
    char text[256];
    assert_int_equal(cli_exec_error(execs, &found), judged);
    if (judged)
        assert_float_equal(found, share, 1e-9);
    cli_exec_describe(execs, text, sizeof text);
    if (!strstr(text, words))
        fail_msg("'%s' is not in: %s", words, text);
}

static void test_nothing_seen(void **state)
{
    (void)state;
    const struct rp_device_exec_info execs = seen(3 * MIB, 0, 0);
    expect(&execs, false, 0, "did not fall");
}

static void test_too_little_seen(void **state)
{
    (void)state;
    const struct rp_device_exec_info execs = seen(3 * MIB, 14 * MIB, 2 * MIB);
    expect(&execs, false, 0, "fell by 14.0 MiB while they were made, by 2.0 at a time: too little");
}

static void test_judged(void **state)
{
    (void)state;
    const struct rp_device_exec_info low = seen(4 * MIB, 16 * MIB, 2 * MIB);
    const struct rp_device_exec_info high = seen(20 * MIB, 16 * MIB, 2 * MIB);
    expect(&low, true, -0.75, "the estimate of 4.0 is 75 % too low");
    expect(&high, true, 0.25, "the estimate of 20.0 is 25 % too high");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_seen),
        cmocka_unit_test(test_too_little_seen),
        cmocka_unit_test(test_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
