/* SPDX-License-Identifier: MIT
 *
 * The compact form of lifetimes against the definition, pair by pair.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "memory/order/lifetimes.h"
#include "unit/random_lifetimes.h"

/* "B may take the memory of A", word for word. */
static bool before_by_definition(const struct rpi_capture_record *record, uint32_t a, uint32_t b)
{
    const struct rpi_block *from = &record->blocks.data[a], *to = &record->blocks.data[b];
    if (from->free_event == RPI_NO_EVENT || from->free_event > to->alloc_event)
        return false;
    const struct rpi_event *gone = &record->events.data[from->free_event];
    const struct rpi_event *made = &record->events.data[to->alloc_event];
    for (uint32_t i = 0; i < gone->node_count; i++) {
        bool reached = false;
        for (uint32_t j = 0; j < made->node_count; j++)
            reached |=
                rpi_order_reaches(record->order, record->event_nodes.data[gone->first_node + i],
                                  record->event_nodes.data[made->first_node + j]);
        if (!reached)
            return false;
    }
    return gone->node_count > 0;
}

static void check_lanes(const struct rpi_lifetimes *x)
{
    uint32_t *ranks = test_calloc(x->lanes, sizeof *ranks);
    for (uint32_t i = 0; i < x->count; i++) {
        assert_in_range(x->lane[i], 0, x->lanes - 1);
        assert_int_equal(x->rank[i], ranks[x->lane[i]]++);
        assert_true(i == 0 || x->block[i - 1] < x->block[i]);
    }
    test_free(ranks);
}

static void recordings_follow_the_definition(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct random_shape shape = {
            .steps = 10 + seed % 300, .streams = 1 + seed % 6, .most = 200};
        struct rpi_capture_record record;
        struct rpi_lifetimes x;
        random_record(&record, &shape, seed);
        assert_int_equal(rpi_lifetimes_from_record(&record, 8, &x, NULL), RP_OK);
        assert_int_equal(x.count, record.blocks.count);
        check_lanes(&x);
        for (uint32_t a = 0; a < x.count; a++) {
            assert_int_equal(x.bytes[a], (record.blocks.data[x.block[a]].bytes + 7) / 8 * 8);
            for (uint32_t b = 0; b < x.count; b++)
                assert_int_equal(rpi_lifetimes_before(&x, a, b),
                                 before_by_definition(&record, x.block[a], x.block[b]));
        }
        rpi_lifetimes_finish(&x);
        rpi_capture_record_finish(&record);
    }
}

static void a_stream_that_sees_less_opens_a_lane(void **state)
{
    (void)state;
    struct rpi_capture_record record;
    struct rpi_lifetimes x;
    uint32_t nodes[2], block[3], first;
    assert_int_equal(rpi_capture_record_init(&record, "set by hand", NULL), RP_OK);
    assert_int_equal(rpi_order_add(record.order, NULL, 0, &nodes[0], NULL), RP_OK);
    assert_int_equal(rpi_order_add(record.order, NULL, 0, &nodes[1], NULL), RP_OK);
    rpi_capture_record_alloc(&record, 0, 100, 0, NULL, 0, &first, NULL);
    rpi_capture_record_free(&record, first, &nodes[0], 1, NULL);
    rpi_capture_record_alloc(&record, 1, 100, 0, &nodes[0], 1, &block[0], NULL);
    rpi_capture_record_alloc(&record, 2, 100, 0, &nodes[1], 1, &block[1], NULL);
    rpi_capture_record_alloc(&record, 3, 100, 0, nodes, 2, &block[2], NULL);
    rpi_capture_record_alloc(&record, 4, 0, 0, nodes, 2, &block[2], NULL);
    assert_int_equal(rpi_lifetimes_from_record(&record, 512, &x, NULL), RP_OK);
    assert_int_equal(x.count, 4); /* the block of 0 bytes is left out */
    assert_int_equal(x.lanes, 2);
    assert_true(rpi_lifetimes_before(&x, 0, 1));
    assert_false(rpi_lifetimes_before(&x, 0, 2));
    assert_true(rpi_lifetimes_before(&x, 0, 3));
    rpi_lifetimes_finish(&x);
    rpi_capture_record_finish(&record);
}

static void intervals_follow_the_definition(void **state)
{
    (void)state;
    int64_t lower[60], upper[60];
    uint64_t bytes[60], seed = 7;
    for (int round = 0; round < 100; round++) {
        struct rpi_lifetimes x;
        for (int i = 0; i < 60; i++) {
            lower[i] = (int64_t)random_below(&seed, 40) - 20;
            upper[i] = lower[i] + 1 + random_below(&seed, 10);
            bytes[i] = random_below(&seed, 5);
        }
        assert_int_equal(rpi_lifetimes_from_intervals(lower, upper, bytes, 60, 4, &x, NULL), RP_OK);
        for (uint32_t a = 0; a < x.count; a++) {
            assert_int_equal(x.bytes[a], 4);
            assert_int_not_equal(bytes[x.block[a]], 0);
            assert_int_equal(x.rank[a], a);
            for (uint32_t b = 0; b < x.count; b++)
                assert_int_equal(rpi_lifetimes_before(&x, a, b),
                                 upper[x.block[a]] <= lower[x.block[b]]);
        }
        rpi_lifetimes_finish(&x);
    }
}

static void what_is_no_order_is_refused(void **state)
{
    (void)state;
    struct rp_error err;
    struct rpi_lifetimes x;
    const int64_t lower[] = {1, 5}, upper[] = {2, 5};
    const uint64_t bytes[] = {1, 1}, huge[] = {INT64_MAX, 1};
    assert_int_equal(rpi_lifetimes_from_intervals(lower, upper, bytes, 2, 1, &x, &err),
                     RP_ERROR_FORMAT);
    assert_int_equal(rpi_lifetimes_from_intervals(lower, upper, huge, 1, 512, &x, &err),
                     RP_ERROR_FORMAT);

    /* The second block is freed at a node that its own allocation does not come before. */
    struct rpi_capture_record record;
    uint32_t nodes[2], block[3];
    assert_int_equal(rpi_capture_record_init(&record, "broken", NULL), RP_OK);
    assert_int_equal(rpi_order_add(record.order, NULL, 0, &nodes[0], NULL), RP_OK);
    assert_int_equal(rpi_order_add(record.order, NULL, 0, &nodes[1], NULL), RP_OK);
    rpi_capture_record_alloc(&record, 0, 100, 0, NULL, 0, &block[0], NULL);
    rpi_capture_record_free(&record, block[0], &nodes[0], 1, NULL);
    rpi_capture_record_alloc(&record, 1, 100, 0, &nodes[0], 1, &block[1], NULL);
    rpi_capture_record_free(&record, block[1], &nodes[1], 1, NULL);
    rpi_capture_record_alloc(&record, 2, 100, 1, &nodes[1], 1, &block[2], NULL);
    assert_int_equal(rpi_lifetimes_from_record(&record, 1, &x, &err), RP_ERROR_FORMAT);
    assert_non_null(strstr(err.message, "block 1 "));
    rpi_capture_record_finish(&record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recordings_follow_the_definition),
        cmocka_unit_test(a_stream_that_sees_less_opens_a_lane),
        cmocka_unit_test(intervals_follow_the_definition),
        cmocka_unit_test(what_is_no_order_is_refused),
    };
    return cmocka_run_group_tests_name("lifetimes", tests, NULL, NULL);
}
