/* SPDX-License-Identifier: MIT
 *
 * Stamps against a plain array of bytes: whatever is watched, written and asked in any order, the
 * latest turn of a watched range is that of the latest write that reached any of its bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "memory/range/write_stamps.h"

enum { ROUNDS = 2000, BYTES = 64, MOST_WATCHED = 9, WRITES = 40 };

static uint64_t random_state = 1;

static uint64_t below(uint64_t limit)
{
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % limit;
}

static struct rpi_range draw(void)
{
    uint64_t from = below(BYTES);
    return (struct rpi_range){from, from + 1 + below(BYTES - from)};
}

static uint64_t latest(const uint64_t *bytes, struct rpi_range range)
{
    uint64_t found = 0;
    for (uint64_t i = range.from; i < range.to; i++)
        found = bytes[i] > found ? bytes[i] : found;
    return found;
}

static void test_against_bytes(void **state)
{
    (void)state;
    struct rpi_write_stamps stamps = {0};
    for (int round = 0; round < ROUNDS; round++) {
        struct rpi_ranges watched = {0};
        uint64_t bytes[BYTES] = {0}, count = below(MOST_WATCHED + 1);
        for (uint64_t i = 0; i < count; i++)
            assert_true(rpi_vec_push(&watched, draw()));
        assert_true(rpi_write_stamps_build(&stamps, &watched));
        for (uint64_t turn = 1; turn <= WRITES; turn++) {
            struct rpi_range range = draw();
            for (uint64_t i = range.from; i < range.to; i++)
                bytes[i] = turn;
            rpi_write_stamps_write(&stamps, rpi_write_stamps_span(&stamps, range), turn);
            for (uint64_t i = 0; i < count; i++) {
                struct rpi_range asked = watched.data[i];
                assert_int_equal(
                    rpi_write_stamps_latest(&stamps, rpi_write_stamps_span(&stamps, asked)),
                    latest(bytes, asked));
            }
        }
        rpi_vec_finish(&watched);
    }
    rpi_write_stamps_finish(&stamps);
}

static void test_nothing_watched(void **state)
{
    (void)state;
    struct rpi_write_stamps stamps = {0};
    struct rpi_ranges none = {0};
    struct rpi_write_span span = rpi_write_stamps_span(&stamps, (struct rpi_range){0, 100});
    assert_int_equal(span.first, span.end);
    rpi_write_stamps_write(&stamps, span, 7);
    assert_int_equal(rpi_write_stamps_latest(&stamps, span), 0);
    assert_true(rpi_write_stamps_build(&stamps, &none));
    span = rpi_write_stamps_span(&stamps, (struct rpi_range){0, 100});
    assert_int_equal(span.first, span.end);
    rpi_write_stamps_finish(&stamps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_bytes),
                                       cmocka_unit_test(test_nothing_watched)};
    return cmocka_run_group_tests_name("stamps", tests, NULL, NULL);
}
