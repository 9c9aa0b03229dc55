/* SPDX-License-Identifier: MIT
 *
 * order against plain reachability on random graphs of several shapes.
 */
#include "memory/order/order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST_NODES = 300, MOST_PREDECESSORS = 8, MOST_STREAMS = 16 };

static uint64_t random_state;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % n);
}

/* reach[v] has bit u when u is before or equal to v. */
struct model {
    uint64_t reach[MOST_NODES][MOST_NODES / 64 + 1];
    uint32_t count;
};

static bool model_reaches(const struct model *model, uint32_t u, uint32_t v)
{
    return model->reach[v][u / 64] >> (u % 64) & 1;
}

static void model_add(struct model *model, const uint32_t *predecessors, size_t count)
{
    uint32_t v = model->count++;
    memset(model->reach[v], 0, sizeof model->reach[v]);
    for (size_t i = 0; i < count; i++)
        for (size_t w = 0; w < MOST_NODES / 64 + 1; w++)
            model->reach[v][w] |= model->reach[predecessors[i]][w];
    model->reach[v][v / 64] |= 1ull << (v % 64);
}

/* Streams that wait on each other at random: what captures look like. tails are the streams' last
 * nodes. */
static size_t pick_streams(const uint32_t *tails, uint32_t streams, uint32_t *predecessors,
                           uint32_t *out_stream)
{
    uint32_t stream = random_below(streams), other = random_below(streams);
    size_t count = 0;
    if (tails[stream] != UINT32_MAX)
        predecessors[count++] = tails[stream];
    if (tails[other] != UINT32_MAX && random_below(3) == 0)
        predecessors[count++] = tails[other];
    *out_stream = stream;
    return count;
}

static size_t pick_any(uint32_t nodes, uint32_t most, uint32_t *predecessors)
{
    size_t count = nodes ? random_below(most + 1) : 0;
    for (size_t i = 0; i < count; i++)
        predecessors[i] = random_below(nodes);
    return count;
}

static void check_frontier(const struct rpi_order *order, const struct model *model)
{
    struct rpi_frontier frontier = {0};
    for (int round = 0; round < 5; round++) {
        uint32_t members[4];
        size_t count = random_below(5);
        for (size_t i = 0; i < count; i++)
            members[i] = random_below(model->count);
        assert_int_equal(rpi_frontier_set(&frontier, order, members, count, NULL), RP_OK);
        for (uint32_t u = 0; u < model->count; u++) {
            bool inside = false;
            for (size_t i = 0; i < count; i++)
                inside |= model_reaches(model, u, members[i]);
            assert_int_equal(rpi_frontier_holds(&frontier, order, u), inside);
        }
    }
    rpi_frontier_finish(&frontier);
}

/* streams 0: predecessors are any earlier nodes. */
static void grow_and_compare(uint64_t seed, uint32_t streams)
{
    random_state = seed;
    static struct model model;
    model.count = 0;
    struct rpi_order *order = NULL;
    assert_int_equal(rpi_order_create(&order, NULL), RP_OK);
    uint32_t tails[MOST_STREAMS];
    memset(tails, 0xff, sizeof tails);
    uint32_t nodes = 1 + random_below(MOST_NODES);
    for (uint32_t v = 0; v < nodes; v++) {
        uint32_t predecessors[MOST_PREDECESSORS], node, stream = 0;
        size_t count = streams ? pick_streams(tails, streams, predecessors, &stream)
                               : pick_any(v, 1 + seed % 3, predecessors);
        assert_int_equal(rpi_order_add(order, predecessors, count, &node, NULL), RP_OK);
        assert_int_equal(node, v);
        model_add(&model, predecessors, count);
        tails[stream] = v;
    }
    for (uint32_t u = 0; u < nodes; u++)
        for (uint32_t v = 0; v < nodes; v++)
            if (rpi_order_reaches(order, u, v) != model_reaches(&model, u, v))
                fail_msg("seed %d, streams %u: is %u before %u?", (int)seed, streams, u, v);
    check_frontier(order, &model);
    rpi_order_destroy(order);
}

static void random_graphs_agree_with_reachability(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++)
        grow_and_compare(seed, 0);
}

static void random_streams_agree_with_reachability(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++)
        grow_and_compare(seed, 1 + seed % MOST_STREAMS);
}

static void a_line_is_one_chain(void **state)
{
    (void)state;
    struct rpi_order *order = NULL;
    assert_int_equal(rpi_order_create(&order, NULL), RP_OK);
    uint32_t node = 0;
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(rpi_order_add(order, &node, i ? 1 : 0, &node, NULL), RP_OK);
    assert_int_equal(rpi_order_chains(order), 1);
    assert_int_equal(rpi_order_position_of(order, 999), 1000);
    assert_int_equal(rpi_order_nodes(order), 1000);
    rpi_order_destroy(order);
}

/* Forking to four and joining again, 200 times, needs four chains, not 600. */
static void forks_after_a_join_use_chains_again(void **state)
{
    (void)state;
    struct rpi_order *order = NULL;
    assert_int_equal(rpi_order_create(&order, NULL), RP_OK);
    uint32_t join;
    assert_int_equal(rpi_order_add(order, NULL, 0, &join, NULL), RP_OK);
    for (int round = 0; round < 200; round++) {
        uint32_t forks[4];
        for (int i = 0; i < 4; i++)
            assert_int_equal(rpi_order_add(order, &join, 1, &forks[i], NULL), RP_OK);
        assert_int_equal(rpi_order_add(order, forks, 4, &join, NULL), RP_OK);
    }
    assert_int_equal(rpi_order_chains(order), 4);
    rpi_order_destroy(order);
}

static void predecessors_that_repeat_or_are_implied_change_nothing(void **state)
{
    (void)state;
    struct rpi_order *order = NULL;
    assert_int_equal(rpi_order_create(&order, NULL), RP_OK);
    uint32_t a, b, c;
    assert_int_equal(rpi_order_add(order, NULL, 0, &a, NULL), RP_OK);
    assert_int_equal(rpi_order_add(order, &a, 1, &b, NULL), RP_OK);
    uint32_t both[] = {a, b, b, a};
    assert_int_equal(rpi_order_add(order, both, 4, &c, NULL), RP_OK);
    assert_int_equal(rpi_order_chains(order), 1);
    assert_true(rpi_order_reaches(order, a, c));
    assert_false(rpi_order_reaches(order, c, b));
    rpi_order_destroy(order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_agree_with_reachability),
        cmocka_unit_test(random_streams_agree_with_reachability),
        cmocka_unit_test(a_line_is_one_chain),
        cmocka_unit_test(forks_after_a_join_use_chains_again),
        cmocka_unit_test(predecessors_that_repeat_or_are_implied_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
