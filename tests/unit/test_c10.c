/* SPDX-License-Identifier: MIT
 *
 * The model of c10: its rules one by one, on captures made here.
 */
#include "recording/c10.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

/* A capture in the making: streams with one terminal each. */
struct made {
    struct rpi_capture_record record;
    uint32_t terminal[4];
    int64_t next_id;
};

static void made_init(struct made *made)
{
    memset(made, 0, sizeof *made);
    assert_int_equal(rpi_capture_record_init(&made->record, "made", NULL), RP_OK);
    for (uint32_t s = 0; s < 4; s++)
        assert_int_equal(rpi_order_add(made->record.order, NULL, 0, &made->terminal[s], NULL),
                         RP_OK);
}

static void made_finish(struct made *made)
{
    rpi_capture_record_finish(&made->record);
}

static uint32_t take(struct made *made, uint64_t bytes, uint32_t stream)
{
    uint32_t block;
    assert_int_equal(rpi_capture_record_alloc(&made->record, made->next_id++, bytes, stream,
                                              &made->terminal[stream], 1, &block, NULL),
                     RP_OK);
    return block;
}

static void use(struct made *made, uint32_t block, uint32_t stream)
{
    assert_int_equal(rpi_capture_record_use(&made->record, block, stream, NULL), RP_OK);
}

/* Frees a block of stream `own` that stream `other` used too; the same for none. */
static void give(struct made *made, uint32_t block, uint32_t own, uint32_t other)
{
    uint32_t nodes[] = {made->terminal[own], made->terminal[other]};
    assert_int_equal(rpi_capture_record_free(&made->record, block, nodes, 2, NULL), RP_OK);
}

/* A kernel on `stream`, after what `other` did so far. */
static void launch(struct made *made, uint32_t stream, uint32_t other)
{
    uint32_t nodes[] = {made->terminal[stream], made->terminal[other]};
    assert_int_equal(rpi_order_add(made->record.order, nodes, 2, &made->terminal[stream], NULL),
                     RP_OK);
}

static uint64_t reserved_after(const struct made *captures, size_t count,
                               enum rpi_c10_policy policy, bool keep)
{
    struct rpi_c10 *c10 = NULL;
    assert_int_equal(rpi_c10_create(policy, &c10, NULL), RP_OK);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(rpi_c10_capture(c10, &captures[i].record, keep, NULL), RP_OK);
    uint64_t bytes = rpi_c10_reserved(c10);
    rpi_c10_destroy(c10);
    return bytes;
}

static void segments_have_their_sizes(void **state)
{
    (void)state;
    static const struct {
        uint64_t request, segment;
    } cases[] = {{1, 2 * MIB},
                 {MIB, 2 * MIB},
                 {MIB + 1, 20 * MIB},
                 {10 * MIB - 512, 20 * MIB},
                 {10 * MIB, 10 * MIB},
                 {11 * MIB, 12 * MIB},
                 {100 * MIB + 1, 102 * MIB}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct made made;
        made_init(&made);
        take(&made, cases[i].request, 0);
        assert_int_equal(reserved_after(&made, 1, RPI_C10_DEFAULT, false), cases[i].segment);
        made_finish(&made);
    }
}

static void small_blocks_fill_a_segment(void **state)
{
    (void)state;
    struct made made;
    made_init(&made);
    for (int i = 0; i < 4096; i++)
        take(&made, 1, 0);
    assert_int_equal(reserved_after(&made, 1, RPI_C10_DEFAULT, false), 2 * MIB);
    take(&made, 1, 0);
    assert_int_equal(reserved_after(&made, 1, RPI_C10_DEFAULT, false), 4 * MIB);
    made_finish(&made);
}

/* What is left of a large block is split off only when it is more than 1 MiB. */
static void large_blocks_keep_small_rests(void **state)
{
    (void)state;
    struct made made;
    made_init(&made);
    uint32_t big = take(&made, 12 * MIB, 0);
    give(&made, big, 0, 0);
    take(&made, 11 * MIB, 0); /* leaves exactly 1 MiB: kept */
    take(&made, MIB + 512, 0);
    assert_int_equal(reserved_after(&made, 1, RPI_C10_DEFAULT, false), 32 * MIB);
    made_finish(&made);
    made_init(&made);
    big = take(&made, 14 * MIB, 0);
    give(&made, big, 0, 0);
    take(&made, 11 * MIB, 0); /* leaves 3 MiB: split */
    take(&made, 3 * MIB, 0);
    assert_int_equal(reserved_after(&made, 1, RPI_C10_DEFAULT, false), 14 * MIB);
    made_finish(&made);
}

static void free_neighbours_merge(void **state)
{
    (void)state;
    struct made made;
    made_init(&made);
    uint32_t blocks[4];
    for (int i = 0; i < 4; i++)
        blocks[i] = take(&made, 5 * MIB, 0);
    give(&made, blocks[0], 0, 0);
    give(&made, blocks[2], 0, 0);
    give(&made, blocks[1], 0, 0);
    take(&made, 15 * MIB, 0);
    assert_int_equal(reserved_after(&made, 1, RPI_C10_DEFAULT, false), 20 * MIB);
    made_finish(&made);
}

/* 14 and 12 MiB are free: 11 MiB takes the 12, so that 13 finds the 14. */
static void the_best_fit_is_taken(void **state)
{
    (void)state;
    struct made made;
    made_init(&made);
    uint32_t a = take(&made, 14 * MIB, 0), b = take(&made, 12 * MIB, 0);
    give(&made, a, 0, 0);
    give(&made, b, 0, 0);
    take(&made, 11 * MIB, 0);
    take(&made, 13 * MIB, 0);
    assert_int_equal(reserved_after(&made, 1, RPI_C10_DEFAULT, false), 26 * MIB);
    made_finish(&made);
}

static void streams_share_nothing(void **state)
{
    (void)state;
    struct made made;
    made_init(&made);
    uint32_t block = take(&made, 20 * MIB, 0);
    give(&made, block, 0, 0);
    launch(&made, 1, 0);
    take(&made, 20 * MIB, 1);
    assert_int_equal(reserved_after(&made, 1, RPI_C10_REUSE, false), 40 * MIB);
    made_finish(&made);
}

/* Used on stream 1, freed, then stream 0 waits for stream 1 (joined) or not. */
static void blocks_of_two_streams_follow_the_rule(void **state)
{
    (void)state;
    for (int joined = 0; joined < 2; joined++) {
        struct made made;
        made_init(&made);
        uint32_t block = take(&made, 20 * MIB, 0);
        launch(&made, 0, 0);
        launch(&made, 1, 0);
        use(&made, block, 1);
        give(&made, block, 0, 1);
        launch(&made, 0, joined ? 1 : 0);
        take(&made, 20 * MIB, 0);
        assert_int_equal(reserved_after(&made, 1, RPI_C10_DEFAULT, false), 40 * MIB);
        assert_int_equal(reserved_after(&made, 1, RPI_C10_REUSE, false),
                         joined ? 20 * MIB : 40 * MIB);
        made_finish(&made);
    }
}

static void a_use_on_its_own_stream_changes_nothing(void **state)
{
    (void)state;
    struct made made;
    made_init(&made);
    uint32_t block = take(&made, 20 * MIB, 0);
    use(&made, block, 0);
    give(&made, block, 0, 0);
    take(&made, 20 * MIB, 0);
    assert_int_equal(reserved_after(&made, 1, RPI_C10_DEFAULT, false), 20 * MIB);
    made_finish(&made);
}

static void captures_share_the_pool(void **state)
{
    (void)state;
    struct made captures[2];
    for (int i = 0; i < 2; i++) {
        made_init(&captures[i]);
        uint32_t block = take(&captures[i], 20 * MIB, 0);
        use(&captures[i], block, 1); /* kept back, but only until its capture ends */
        give(&captures[i], block, 0, 1);
        take(&captures[i], 4 * MIB, 0); /* a result */
    }
    assert_int_equal(reserved_after(captures, 1, RPI_C10_DEFAULT, false), 40 * MIB);
    assert_int_equal(reserved_after(captures, 2, RPI_C10_DEFAULT, false), 40 * MIB);
    assert_int_equal(reserved_after(captures, 2, RPI_C10_DEFAULT, true), 40 * MIB);
    made_finish(&captures[1]);
    made_init(&captures[1]);
    take(&captures[1], 40 * MIB, 0);
    take(&captures[1], 20 * MIB, 0);
    take(&captures[1], 20 * MIB, 0);
    assert_int_equal(reserved_after(captures, 2, RPI_C10_DEFAULT, false), 80 * MIB);
    assert_int_equal(reserved_after(captures, 2, RPI_C10_DEFAULT, true), 100 * MIB);
    for (int i = 0; i < 2; i++)
        made_finish(&captures[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_have_their_sizes),
        cmocka_unit_test(small_blocks_fill_a_segment),
        cmocka_unit_test(large_blocks_keep_small_rests),
        cmocka_unit_test(free_neighbours_merge),
        cmocka_unit_test(the_best_fit_is_taken),
        cmocka_unit_test(streams_share_nothing),
        cmocka_unit_test(blocks_of_two_streams_follow_the_rule),
        cmocka_unit_test(a_use_on_its_own_stream_changes_nothing),
        cmocka_unit_test(captures_share_the_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
