/* SPDX-License-Identifier: MIT
 *
 * The map against a plain array: random sets, removals and look-ups of few keys, so that probing
 * runs collide, wrap and get holes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/idmap.h"

enum { KEYS = 200, STEPS = 200000 };

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void agrees_with_an_array(void **state)
{
    (void)state;
    struct rpi_idmap map = {0};
    uint32_t expected[KEYS];
    size_t count = 0;
    uint64_t seed = 1;
    for (size_t i = 0; i < KEYS; i++)
        expected[i] = RPI_ABSENT;
    for (size_t step = 0; step < STEPS; step++) {
        size_t k = next_random(&seed) % KEYS;
        uint64_t key = 0x7f0000000000u + k * 512;
        if (next_random(&seed) % 2) {
            uint32_t value = (uint32_t)step;
            assert_true(rpi_idmap_set(&map, key, value));
            count += expected[k] == RPI_ABSENT;
            expected[k] = value;
        } else {
            rpi_idmap_remove(&map, key);
            count -= expected[k] != RPI_ABSENT;
            expected[k] = RPI_ABSENT;
        }
        size_t probe = next_random(&seed) % KEYS;
        assert_int_equal(rpi_idmap_get(&map, 0x7f0000000000u + probe * 512), expected[probe]);
        assert_int_equal(map.count, count);
    }
    for (size_t k = 0; k < KEYS; k++)
        assert_int_equal(rpi_idmap_get(&map, 0x7f0000000000u + k * 512), expected[k]);
    rpi_idmap_finish(&map);
}

static void empty_map_holds_nothing(void **state)
{
    (void)state;
    struct rpi_idmap map = {0};
    assert_int_equal(rpi_idmap_get(&map, 0), RPI_ABSENT);
    rpi_idmap_remove(&map, 0);
    assert_true(rpi_idmap_set(&map, 0, 7));
    assert_int_equal(rpi_idmap_get(&map, 0), 7);
    rpi_idmap_remove(&map, 0);
    assert_int_equal(rpi_idmap_get(&map, 0), RPI_ABSENT);
    rpi_idmap_finish(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_an_array),
        cmocka_unit_test(empty_map_holds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
