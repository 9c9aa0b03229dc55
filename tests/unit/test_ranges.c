/* SPDX-License-Identifier: MIT
 *
 * Joined ranges against a map with a bit for each address.
 */
#include "memory/range/ranges.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { ADDRESSES = 64, ROUNDS = 400, STEPS = 40 };

struct map {
    bool has[ADDRESSES];
};

static uint32_t next_number(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

static struct rpi_range any_range(uint32_t *state)
{
    uint64_t from = next_number(state) % ADDRESSES;
    uint64_t most = ADDRESSES - from < 9 ? ADDRESSES - from : 9;
    return (struct rpi_range){from, from + 1 + next_number(state) % most};
}

static size_t count_in(const struct map *map, struct rpi_range range)
{
    size_t count = 0;
    for (uint64_t i = range.from; i < range.to; i++)
        count += map->has[i];
    return count;
}

static void compare(const struct rpi_ranges *ranges, const struct map *map)
{
    assert_true(rpi_ranges_are_joined(ranges));
    for (uint64_t from = 0; from < ADDRESSES; from++)
        for (uint64_t to = from + 1; to <= ADDRESSES; to++) {
            struct rpi_range range = {from, to};
            size_t count = count_in(map, range);
            assert_int_equal(rpi_ranges_overlap(ranges, from, to), count != 0);
            assert_int_equal(rpi_ranges_hold(ranges, range), count == to - from);
        }
}

static void inserting_keeps_ranges_joined(void **state)
{
    (void)state;
    uint32_t seed = 1;
    for (int round = 0; round < ROUNDS; round++) {
        struct rpi_ranges ranges = {0};
        struct map map = {{false}};
        for (int step = 0; step < STEPS / 4; step++) {
            struct rpi_range range = any_range(&seed);
            memset(map.has + range.from, 1, range.to - range.from);
            assert_true(rpi_ranges_insert(&ranges, range));
        }
        compare(&ranges, &map);
        rpi_vec_finish(&ranges);
    }
}

static void cutting_keeps_ranges_joined(void **state)
{
    (void)state;
    uint32_t seed = 2;
    for (int round = 0; round < ROUNDS / 4; round++) {
        struct rpi_ranges ranges = {0};
        struct map map = {{false}};
        for (int step = 0; step < STEPS; step++) {
            struct rpi_range range = any_range(&seed);
            bool cut = next_number(&seed) % 3 == 0;
            memset(map.has + range.from, !cut, range.to - range.from);
            assert_true(rpi_vec_reserve(&ranges, ranges.count + 1));
            if (cut)
                rpi_ranges_cut(&ranges, range.from, range.to);
            else
                assert_true(rpi_ranges_insert(&ranges, range));
        }
        compare(&ranges, &map);
        rpi_vec_finish(&ranges);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inserting_keeps_ranges_joined),
        cmocka_unit_test(cutting_keeps_ranges_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
