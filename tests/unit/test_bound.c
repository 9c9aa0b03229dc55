/* SPDX-License-Identifier: MIT
 *
 * The bound against brute force over all sets of blocks, on random partial orders.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "memory/plan/bound.h"
#include "unit/random_lifetimes.h"

static uint64_t heaviest_by_force(const struct rpi_lifetimes *x)
{
    uint64_t most = 0;
    for (uint32_t set = 0; set < 1u << x->count; set++) {
        uint64_t weight = 0;
        bool antichain = true;
        for (uint32_t a = 0; antichain && a < x->count; a++) {
            if (!(set >> a & 1))
                continue;
            weight += x->bytes[a];
            for (uint32_t b = a + 1; antichain && b < x->count; b++)
                antichain = !(set >> b & 1) || !rpi_lifetimes_before(x, a, b);
        }
        if (antichain && weight > most)
            most = weight;
    }
    return most;
}

static void check_members(const struct rpi_lifetimes *x, uint64_t bound, const uint32_t *members,
                          uint32_t count)
{
    uint64_t weight = 0;
    for (uint32_t i = 0; i < count; i++) {
        weight += x->bytes[members[i]];
        for (uint32_t j = 0; j < i; j++) {
            assert_int_not_equal(members[i], members[j]);
            assert_false(rpi_lifetimes_before(x, members[i], members[j]));
            assert_false(rpi_lifetimes_before(x, members[j], members[i]));
        }
    }
    assert_int_equal(weight, bound);
}

static void is_the_heaviest_antichain(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        struct random_shape shape = {.steps = 4 + seed % 37, .streams = 1 + seed % 5, .most = 13};
        struct rpi_lifetimes x;
        random_lifetimes(&x, &shape, seed);
        uint32_t members[16], count;
        uint64_t bound;
        assert_int_equal(rpi_bound(&x, &bound, members, &count, NULL), RP_OK);
        assert_int_equal(bound, heaviest_by_force(&x));
        check_members(&x, bound, members, count);
        rpi_lifetimes_finish(&x);
    }
}

static void large_orders_give_true_antichains(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct random_shape shape = {.steps = 3000, .streams = 8, .most = 3000};
        struct rpi_lifetimes x;
        random_lifetimes(&x, &shape, seed);
        uint32_t *members = test_malloc(x.count * sizeof *members), count;
        uint64_t bound;
        assert_int_equal(rpi_bound(&x, &bound, members, &count, NULL), RP_OK);
        check_members(&x, bound, members, count);
        test_free(members);
        rpi_lifetimes_finish(&x);
    }
}

static void of_nothing_is_nothing(void **state)
{
    (void)state;
    struct rpi_lifetimes x;
    uint64_t bound = 1;
    uint32_t count = 1;
    for (uint32_t lanes = 1; lanes < 4; lanes++) {
        assert_int_equal(rpi_lifetimes_init(&x, 0, lanes, NULL), RP_OK);
        assert_int_equal(rpi_bound(&x, &bound, NULL, &count, NULL), RP_OK);
        assert_int_equal(bound, 0);
        assert_int_equal(count, 0);
        rpi_lifetimes_finish(&x);
    }
}

static void intervals_that_touch_share(void **state)
{
    (void)state;
    const int64_t lower[] = {5, 0, 0, 10}, upper[] = {10, 5, 10, 12};
    const uint64_t bytes[] = {100, 200, 1000, 4000};
    struct rpi_lifetimes x;
    uint64_t bound;
    assert_int_equal(rpi_lifetimes_from_intervals(lower, upper, bytes, 4, 512, &x, NULL), RP_OK);
    assert_int_equal(rpi_bound(&x, &bound, NULL, NULL, NULL), RP_OK);
    assert_int_equal(bound, 4096);
    x.bytes[3] = 512;
    assert_int_equal(rpi_bound(&x, &bound, NULL, NULL, NULL), RP_OK);
    assert_int_equal(bound, 1536);
    rpi_lifetimes_finish(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_the_heaviest_antichain),
        cmocka_unit_test(large_orders_give_true_antichains),
        cmocka_unit_test(of_nothing_is_nothing),
        cmocka_unit_test(intervals_that_touch_share),
    };
    return cmocka_run_group_tests_name("bound", tests, NULL, NULL);
}
