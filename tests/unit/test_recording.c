/* SPDX-License-Identifier: MIT */
#include "memory/order/capture_record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void events_and_blocks_point_at_each_other(void **state)
{
    (void)state;
    struct rpi_capture_record record;
    assert_int_equal(rpi_capture_record_init(&record, "one", NULL), RP_OK);
    uint32_t node, block;
    assert_int_equal(rpi_order_add(record.order, NULL, 0, &node, NULL), RP_OK);
    assert_int_equal(rpi_capture_record_alloc(&record, 7, 100, 2, &node, 1, &block, NULL), RP_OK);
    assert_int_equal(rpi_capture_record_use(&record, block, 5, NULL), RP_OK);
    assert_int_equal(rpi_capture_record_free(&record, block, &node, 1, NULL), RP_OK);
    const struct rpi_block *made = &record.blocks.data[block];
    assert_int_equal(made->id, 7);
    assert_int_equal(made->alloc_event, 0);
    assert_int_equal(made->free_event, 2);
    assert_int_equal(record.streams, 6);
    assert_int_equal(record.events.data[1].node_count, 0);
    assert_int_equal(record.events.data[2].stream, 2);
    assert_int_equal(record.event_nodes.data[record.events.data[2].first_node], node);
    assert_string_equal(record.name, "one");
    rpi_capture_record_finish(&record);
}

static void total_and_peak_are_rounded(void **state)
{
    (void)state;
    struct rpi_capture_record record;
    assert_int_equal(rpi_capture_record_init(&record, "sums", NULL), RP_OK);
    uint32_t a, b, c;
    assert_int_equal(rpi_capture_record_alloc(&record, 1, 1, 0, NULL, 0, &a, NULL), RP_OK);
    assert_int_equal(rpi_capture_record_alloc(&record, 2, 513, 0, NULL, 0, &b, NULL), RP_OK);
    assert_int_equal(rpi_capture_record_free(&record, b, NULL, 0, NULL), RP_OK);
    assert_int_equal(rpi_capture_record_alloc(&record, 3, 512, 0, NULL, 0, &c, NULL), RP_OK);
    assert_int_equal(rpi_capture_record_total(&record, 512), 2048);
    assert_int_equal(rpi_capture_record_peak(&record, 512), 1536);
    assert_int_equal(rpi_capture_record_total(&record, 1), 1026);
    assert_int_equal(rpi_capture_record_peak(&record, 1), 514);
    rpi_capture_record_finish(&record);
}

static void sums_do_not_wrap(void **state)
{
    (void)state;
    struct rpi_capture_record record;
    assert_int_equal(rpi_capture_record_init(&record, "huge", NULL), RP_OK);
    uint32_t block;
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            rpi_capture_record_alloc(&record, i, UINT64_MAX / 2, 0, NULL, 0, &block, NULL), RP_OK);
    assert_true(rpi_capture_record_total(&record, 512) == UINT64_MAX);
    assert_true(rpi_capture_record_peak(&record, 512) == UINT64_MAX);
    rpi_capture_record_finish(&record);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_and_blocks_point_at_each_other),
        cmocka_unit_test(total_and_peak_are_rounded),
        cmocka_unit_test(sums_do_not_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
