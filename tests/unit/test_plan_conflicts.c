/* SPDX-License-Identifier: MIT
 *
 * Lists of conflicting blocks against the definition.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "memory/plan/conflicts.h"
#include "unit/random_lifetimes.h"

#define MOST 2048

static void check(const struct rpi_lifetimes *x)
{
    static uint32_t listed[MOST];
    static bool near[MOST];
    struct rpi_conflicts index;
    uint64_t pairs = 0;
    assert_true(rpi_conflicts_init(&index, x));
    for (uint32_t a = 0; a < x->count; a++) {
        uint32_t count = rpi_conflicts_list(&index, a, listed);
        memset(near, 0, sizeof near);
        for (uint32_t i = 0; i < count; i++) {
            assert_false(near[listed[i]]); /* each once */
            near[listed[i]] = true;
        }
        for (uint32_t b = 0; b < x->count; b++)
            assert_int_equal(near[b], a != b && !rpi_lifetimes_before(x, a, b) &&
                                          !rpi_lifetimes_before(x, b, a));
        pairs += count;
    }
    assert_int_equal(rpi_conflicts_pairs(&index) * 2, pairs);
    rpi_conflicts_finish(&index);
}

static void random_lists_are_complete(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct random_shape shape = {
            .steps = seed * 40 % 1500, .streams = 1 + seed % 6, .most = MOST};
        struct rpi_lifetimes x;
        random_lifetimes(&x, &shape, seed);
        check(&x);
        rpi_lifetimes_finish(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lists_are_complete),
    };
    return cmocka_run_group_tests_name("plan_conflicts", tests, NULL, NULL);
}
