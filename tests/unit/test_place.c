/* SPDX-License-Identifier: MIT
 *
 * Online placement: hand-made cases, then random programs on several streams, where every block
 * that was ever laid anywhere is checked against every later one by plain reachability.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "memory/place.h"

struct fixture {
    struct rpi_order *order;
    struct rpi_place place;
    struct rpi_frontier frontier;
};

static void open_place(struct fixture *f, uint64_t alignment, uint64_t height)
{
    *f = (struct fixture){0};
    assert_int_equal(rpi_order_create(&f->order, NULL), RP_OK);
    rpi_place_init(&f->place, f->order, alignment, height);
}

static void close_place(struct fixture *f)
{
    rpi_place_finish(&f->place);
    rpi_frontier_finish(&f->frontier);
    rpi_order_destroy(f->order);
}

static uint32_t add_node(struct fixture *f, const uint32_t *predecessors, size_t count)
{
    uint32_t node = 0;
    assert_int_equal(rpi_order_add(f->order, predecessors, count, &node, NULL), RP_OK);
    return node;
}

static void look_from(struct fixture *f, const uint32_t *nodes, size_t count)
{
    assert_int_equal(rpi_frontier_set(&f->frontier, f->order, nodes, count, NULL), RP_OK);
}

static uint32_t take(struct fixture *f, uint64_t offset, uint64_t bytes)
{
    uint32_t block = 0;
    assert_int_equal(rpi_place_take(&f->place, offset, bytes, &block, NULL), RP_OK);
    assert_true(rpi_place_is_valid(&f->place));
    return block;
}

static void dead_blocks_give_their_memory(void **state)
{
    (void)state;
    struct fixture f;
    open_place(&f, 512, 4096);
    uint32_t first = add_node(&f, NULL, 0), second = add_node(&f, &first, 1);
    uint32_t other = add_node(&f, NULL, 0);
    look_from(&f, NULL, 0);
    assert_int_equal(rpi_place_find(&f.place, 1024, &f.frontier), 0);
    uint32_t a = take(&f, 0, 1024);
    look_from(&f, &second, 1);
    assert_false(rpi_place_fits(&f.place, 512, 512, &f.frontier)); /* alive */
    assert_int_equal(rpi_place_free(&f.place, a, &first, 1, NULL), RP_OK);
    assert_true(rpi_place_fits(&f.place, 512, 512, &f.frontier));
    look_from(&f, &other, 1);
    assert_false(rpi_place_fits(&f.place, 512, 512, &f.frontier)); /* not ordered after it */
    assert_true(rpi_place_fits(&f.place, 1024, 512, &f.frontier));
    close_place(&f);
}

static void free_without_nodes_is_dead_for_nobody(void **state)
{
    (void)state;
    struct fixture f;
    open_place(&f, 1, 0);
    uint32_t node = add_node(&f, NULL, 0);
    uint32_t a = take(&f, 0, 100);
    assert_int_equal(rpi_place_free(&f.place, a, NULL, 0, NULL), RP_OK);
    look_from(&f, &node, 1);
    assert_false(rpi_place_fits(&f.place, 99, 1, &f.frontier));
    assert_int_equal(rpi_place_find(&f.place, 8, &f.frontier), 100);
    close_place(&f);
}

static void smallest_gap_is_chosen(void **state)
{
    (void)state;
    struct fixture f;
    open_place(&f, 16, 1000);
    uint32_t node = add_node(&f, NULL, 0);
    take(&f, 0, 100);
    uint32_t wide = take(&f, 112, 300);
    take(&f, 416, 100);
    uint32_t narrow = take(&f, 528, 120);
    take(&f, 656, 100);
    assert_int_equal(rpi_place_free(&f.place, wide, &node, 1, NULL), RP_OK);
    assert_int_equal(rpi_place_free(&f.place, narrow, &node, 1, NULL), RP_OK);
    look_from(&f, &node, 1);
    assert_int_equal(rpi_place_find(&f.place, 120, &f.frontier), 528);
    assert_int_equal(rpi_place_find(&f.place, 130, &f.frontier), 768); /* 232 at the top */
    assert_int_equal(rpi_place_find(&f.place, 290, &f.frontier), 112);
    assert_int_equal(rpi_place_find(&f.place, 310, &f.frontier), 768); /* grows */
    assert_int_equal(rpi_place_find(&f.place, UINT64_MAX - 10, &f.frontier), UINT64_MAX);
    close_place(&f);
}

enum { STREAMS = 3, BLOCKS = 120 };

struct laid {
    uint64_t offset, bytes;
    uint32_t alloc_node, free_node; /* terminals: one a stream is enough here */
    bool freed;
};

/* Frees include what the allocation saw because a stream's nodes are one after the other. */
static void random_program(uint64_t seed)
{
    struct fixture f;
    struct laid laid[BLOCKS];
    uint32_t last[STREAMS], live[BLOCKS];
    size_t count = 0, alive = 0;
    srand((unsigned)seed);
    open_place(&f, 8, 0);
    uint32_t root = add_node(&f, NULL, 0);
    for (int s = 0; s < STREAMS; s++)
        last[s] = add_node(&f, &root, 1);
    while (count < BLOCKS) {
        int s = rand() % STREAMS, what = rand() % 8;
        if (what < 2) {
            uint32_t pair[2] = {last[s], last[rand() % STREAMS]};
            last[s] = add_node(&f, pair, 2);
        } else if (what < 5 && alive) {
            size_t victim = (size_t)rand() % alive;
            struct laid *b = &laid[live[victim]];
            uint32_t pair[2] = {last[s], b->alloc_node};
            last[s] = add_node(&f, pair, 2); /* the last use, ordered after the allocation */
            b->free_node = last[s];
            b->freed = true;
            assert_int_equal(rpi_place_free(&f.place, live[victim], &last[s], 1, NULL), RP_OK);
            live[victim] = live[--alive];
        } else {
            uint64_t bytes = 8 * (1 + (uint64_t)rand() % 30);
            look_from(&f, &last[s], 1);
            uint64_t offset = rpi_place_find(&f.place, bytes, &f.frontier);
            assert_int_equal(offset % 8, 0);
            assert_true(rpi_place_fits(&f.place, offset, bytes, &f.frontier));
            for (size_t i = 0; i < count; i++) {
                if (laid[i].offset + laid[i].bytes <= offset || offset + bytes <= laid[i].offset)
                    continue;
                assert_true(laid[i].freed);
                assert_true(rpi_order_reaches(f.order, laid[i].free_node, last[s]));
            }
            assert_int_equal(take(&f, offset, bytes), count);
            laid[count] = (struct laid){offset, bytes, last[s], 0, false};
            live[alive++] = (uint32_t)count++;
        }
    }
    close_place(&f);
}

static void nothing_overlaps_what_may_be_alive(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++)
        random_program(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dead_blocks_give_their_memory),
        cmocka_unit_test(free_without_nodes_is_dead_for_nobody),
        cmocka_unit_test(smallest_gap_is_chosen),
        cmocka_unit_test(nothing_overlaps_what_may_be_alive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
