/* SPDX-License-Identifier: MIT
 *
 * The Python extension's table of addresses against a plain list, in random operations.
 */
#include "../../python/csrc/base/addresses.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ADDRESSES = 300, STEPS = 200000 };

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

/* Addresses as allocators give them: some near each other, some a power of two apart. */
static uint64_t address_of(uint64_t index)
{
    return 0x7f0000000000u + (index % 3 ? index * 512 : index << 21);
}

static void check_all(const struct rpp_addresses *table, const uint64_t *bytes)
{
    size_t count = 0;
    for (uint64_t i = 0; i < ADDRESSES; i++) {
        const struct rpp_block *block = rpp_addresses_get(table, address_of(i));
        assert_int_equal(block != NULL, bytes[i] != 0);
        if (block)
            assert_int_equal(block->bytes, bytes[i]);
        count += bytes[i] != 0;
    }
    assert_int_equal(table->count, count);
}

static void holds_what_was_put_and_not_removed(void **state)
{
    (void)state;
    struct rpp_addresses table = {0};
    uint64_t bytes[ADDRESSES] = {0}, seed = 42;
    for (int step = 0; step < STEPS; step++) {
        uint64_t i = next(&seed) % ADDRESSES;
        if (next(&seed) % 2) {
            bytes[i] = 1 + next(&seed) % 1000;
            struct rpp_block block = {.address = address_of(i), .bytes = bytes[i]};
            assert_true(rpp_addresses_put(&table, &block));
        } else {
            bytes[i] = 0;
            rpp_addresses_remove(&table, address_of(i));
        }
        if (step % 500 == 0)
            check_all(&table, bytes);
    }
    check_all(&table, bytes);
    free(table.slots);
}

static void an_empty_table_has_nothing(void **state)
{
    (void)state;
    struct rpp_addresses table = {0};
    assert_null(rpp_addresses_get(&table, 512));
    rpp_addresses_remove(&table, 512);
    assert_int_equal(table.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_what_was_put_and_not_removed),
        cmocka_unit_test(an_empty_table_has_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
