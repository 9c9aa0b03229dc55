/* SPDX-License-Identifier: MIT
 *
 * The rule that says which exec a graph is launched with, under prices of many kinds: what it costs
 * beside an exec for each graph and beside always updating one, on walks that are random, regular
 * and chosen by an adversary who sees everything. What is paid is counted here, from what was done
 * to the execs, not by the rule's own books.
 */
#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "policy/rent_or_buy.h"

#include <math.h>

enum { MOST_GRAPHS = 512, MOST_CLASSES = 4, BYTES = 1000 };

struct held {
    struct rpi_rent_exec rent;
    const struct rpi_rent_graph *holds; /* what was put into it */
    bool changed;
};

struct world {
    struct rpi_rent rent;
    struct rpi_rent_class classes[MOST_CLASSES];
    struct rpi_rent_graph graphs[MOST_GRAPHS];
    size_t count, execs;
    double cost, each, always, dearest;
    /* The other two ways. */
    bool made[MOST_GRAPHS];
    struct {
        const struct rpi_rent_graph *holds;
        uint64_t launches;
        bool seen, changed;
    } one[MOST_CLASSES];
    uint64_t random;
};

static uint64_t next_random(struct world *w)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return w->random >> 33;
}

struct prices {
    double make, update, slow;
    bool alike; /* graphs of a class have the same functions and grids */
};

static void start(struct world *w, size_t graphs, size_t classes, struct prices prices,
                  uint64_t budget)
{
    memset(w, 0, sizeof *w);
    w->count = graphs;
    w->random = 1;
    w->rent.budget = budget;
    w->dearest = prices.make;
    for (size_t i = 0; i < graphs; i++) {
        struct rpi_rent_class *class = &w->classes[i % classes];
        class->bytes = BYTES;
        class->make_us = prices.make;
        class->update_us = prices.update;
        w->graphs[i].slow_us = prices.slow;
        w->graphs[i].launches = prices.alike ? 1 : i + 1;
        rpi_rent_join(&w->rent, class, &w->graphs[i]);
    }
}

static void drop(struct world *w, struct rpi_rent_exec *exec)
{
    w->execs--;
    free(exec);
}

static void stop(struct world *w)
{
    for (size_t i = 0; i < w->count; i++)
        rpi_rent_leave(&w->rent, &w->graphs[i]);
    for (size_t k = 0; k < MOST_CLASSES; k++)
        while (w->classes[k].execs) {
            struct rpi_rent_exec *exec = w->classes[k].execs;
            rpi_rent_drop(&w->rent, exec);
            drop(w, exec);
        }
    assert_int_equal(w->execs, 0);
    assert_int_equal(w->rent.bytes, 0);
    assert_int_equal(w->rent.wanted, 0);
    assert_null(w->rent.classes);
}

static void others_pay(struct world *w, const struct rpi_rent_graph *graph)
{
    size_t i = (size_t)(graph - w->graphs), k = (size_t)(graph->class - w->classes);
    w->each += w->made[i] ? 0 : graph->class->make_us;
    w->made[i] = true;
    if (!w->one[k].seen) {
        w->always += graph->class->make_us;
        w->one[k].seen = true;
        w->one[k].launches = graph->launches;
    } else {
        w->always += w->one[k].holds == graph ? 0 : graph->class->update_us;
        w->one[k].changed |= w->one[k].launches != graph->launches;
        w->always += w->one[k].changed ? graph->slow_us : 0;
    }
    w->one[k].holds = graph;
}

static struct held *make(struct world *w, struct rpi_rent_graph *graph)
{
    struct rpi_rent_exec *gone;
    struct held *held = calloc(1, sizeof *held);
    assert_non_null(held);
    while ((gone = rpi_rent_evict(&w->rent, graph)))
        drop(w, gone);
    rpi_rent_add(&w->rent, graph, &held->rent);
    w->execs++;
    while ((gone = rpi_rent_idle(&w->rent, graph->class)))
        drop(w, gone);
    assert_true(w->execs == 1 || w->execs * BYTES <= w->rent.budget);
    return held;
}

static void replay(struct world *w, size_t i)
{
    struct rpi_rent_graph *graph = &w->graphs[i];
    struct rpi_rent_exec *exec = NULL;
    struct held *held;
    others_pay(w, graph);
    switch (rpi_rent_take(&w->rent, graph, &exec)) {
    case RPI_RENT_HELD:
        held = (struct held *)exec;
        assert_ptr_equal(held->holds, graph);
        break;
    case RPI_RENT_UPDATE:
        held = (struct held *)exec;
        assert_ptr_equal(exec->class, graph->class);
        rpi_rent_lend(&w->rent, graph, exec);
        held->changed |= exec->launches != graph->launches;
        w->cost += graph->class->update_us;
        break;
    default:
        held = make(w, graph);
        w->cost += graph->class->make_us;
        break;
    }
    held->holds = graph;
    w->cost += held->changed ? graph->slow_us : 0;
    assert_int_equal(w->execs, w->rent.exec_count);
    assert_ptr_equal(graph->exec, &held->rent);
    assert_int_equal(held->rent.changed, held->changed);
}

/* ---- Walks ---------------------------------------------------------------------------------- */

/* The number of the next graph after `step` steps. */
typedef size_t (*walk)(struct world *w, size_t step);

static size_t uniform(struct world *w, size_t step)
{
    (void)step;
    assert(w->count);
    return next_random(w) % w->count;
}

/* The k-th has a share of 1/k, nearly. */
static size_t zipf(struct world *w, size_t step)
{
    (void)step;
    double x = (double)(next_random(w) & 0xffffff) / 0x1000000;
    size_t rank = (size_t)exp(x * log((double)w->count));
    return (rank - 1) % w->count;
}

static size_t ramp(struct world *w, size_t step)
{
    return step % w->count;
}

static size_t runs(struct world *w, size_t step)
{
    return step / 40 * 7919 % w->count;
}

/* Another set of eight is hot every 2,000 steps. */
static size_t drift(struct world *w, size_t step)
{
    return (step / 2000 * 31 + next_random(w) % 8) % w->count;
}

/* Where it hurts: a graph that has no exec, the one nearest to buying first. */
static size_t cruel(struct world *w, size_t step)
{
    size_t worst = step % w->count;
    for (size_t i = 0; i < w->count; i++) {
        const struct rpi_rent_graph *a = &w->graphs[i], *b = &w->graphs[worst];
        bool worse = !a->exec != !b->exec ? !a->exec : a->paid > b->paid;
        worst = worse ? i : worst;
    }
    return worst;
}

/* Leaves each graph once it has bought. */
static size_t faithless(struct world *w, size_t step)
{
    assert(w->count);
    for (size_t i = 0; i < w->count; i++)
        if (!w->graphs[i].exec || w->graphs[i].exec->owner != &w->graphs[i])
            return i;
    return step % w->count;
}

static const walk walks[] = {uniform, zipf, ramp, runs, drift, cruel, faithless};
enum { WALKS = sizeof walks / sizeof *walks };

static const struct prices all_prices[] = {
    {100, 20, 8, false},  {100, 0.5, 0, false},  {2000, 600, 30, false}, {100, 99, 0, true},
    {100, 150, 5, false}, {100, 0.1, 40, false}, {50, 10, 5, true},
};
enum { PRICES = sizeof all_prices / sizeof *all_prices };

/* ---- Where the budget holds all ------------------------------------------------------------- */

static void never_above_twice(size_t graphs, size_t classes, struct prices prices, walk next)
{
    static struct world w;
    start(&w, graphs, classes, prices, graphs * BYTES);
    for (size_t step = 0; step < 4000; step++) {
        replay(&w, next(&w, step));
        double cheaper = w.each < w.always ? w.each : w.always;
        assert_true(w.cost <= 2 * cheaper * (1 + 1e-9));
    }
    stop(&w);
}

static void test_at_most_twice_the_cheaper(void **state)
{
    (void)state;
    const size_t sizes[][2] = {{1, 1}, {2, 1}, {3, 1}, {7, 1}, {8, 3}, {40, 4}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t p = 0; p < PRICES; p++)
            for (size_t k = 0; k < WALKS; k++)
                never_above_twice(sizes[s][0], sizes[s][1], all_prices[p], walks[k]);
}

/* In the long run every graph that pays has its own, and what is for rent is gone. */
static void test_all_own_in_the_end(void **state)
{
    (void)state;
    static struct world w;
    start(&w, 30, 1, all_prices[0], 30 * BYTES);
    for (size_t step = 0; step < 4000; step++)
        replay(&w, uniform(&w, step));
    assert_int_equal(w.execs, 30);
    double cost = w.cost;
    for (size_t step = 0; step < 4000; step++)
        replay(&w, uniform(&w, step));
    assert_true(w.cost == cost);
    stop(&w);
}

/* One alone has its own from the start. */
static void test_one_graph_pays_once(void **state)
{
    (void)state;
    static struct world w;
    start(&w, 1, 1, all_prices[0], 1);
    for (size_t step = 0; step < 100; step++)
        replay(&w, 0);
    assert_true(w.cost == all_prices[0].make);
    stop(&w);
}

/* ---- Smaller budgets ------------------------------------------------------------------------ */

static void never_above_always(size_t graphs, size_t classes, size_t execs, struct prices prices,
                               walk next)
{
    static struct world w;
    start(&w, graphs, classes, prices, execs * BYTES);
    for (size_t step = 0; step < 4000; step++) {
        replay(&w, next(&w, step));
        assert_true(w.cost <= (w.always + w.dearest) * (1 + 1e-9));
    }
    stop(&w);
}

static void test_never_above_always_updating(void **state)
{
    (void)state;
    const size_t sizes[][3] = {{2, 1, 1}, {3, 1, 2},   {8, 1, 1},
                               {8, 1, 3}, {40, 1, 10}, {40, 4, 10}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t p = 0; p < PRICES; p++)
            for (size_t k = 0; k < WALKS; k++)
                never_above_always(sizes[s][0], sizes[s][1], sizes[s][2], all_prices[p], walks[k]);
}

static double share_of_always(size_t graphs, size_t execs, struct prices prices, walk next,
                              size_t steps)
{
    static struct world w;
    start(&w, graphs, 1, prices, execs * BYTES);
    for (size_t step = 0; step < steps; step++)
        replay(&w, next(&w, step));
    double share = w.cost / w.always;
    stop(&w);
    return share;
}

/* 512 shapes in a budget of one and of two thirds of them. */
static void test_walks_over_512_shapes(void **state)
{
    (void)state;
    const walk common[] = {uniform, zipf, ramp, runs, drift};
    for (size_t k = 0; k < sizeof common / sizeof *common; k++) {
        /* One price is a five thousandth of what always updating costs here. */
        assert_true(share_of_always(512, 1, all_prices[0], common[k], 20000) <= 1);
        assert_true(share_of_always(512, 336, all_prices[0], common[k], 20000) < 1.0003);
        assert_true(share_of_always(512, 336, all_prices[0], common[k], 2000) <= 1);
    }
    assert_true(share_of_always(512, 336, all_prices[0], zipf, 20000) < 0.3);
    assert_true(share_of_always(512, 12, all_prices[0], drift, 20000) < 0.1);
}

/* A graph that stays gets an exec of full speed even where only one fits. */
static void test_a_long_stay_pays_for_a_fresh_exec(void **state)
{
    (void)state;
    static struct world w;
    start(&w, 2, 1, all_prices[0], BYTES);
    replay(&w, 0);
    for (size_t step = 0; step < 1000; step++)
        replay(&w, 1);
    assert_false(((struct held *)w.graphs[1].exec)->changed);
    double cost = w.cost;
    replay(&w, 1);
    assert_true(w.cost == cost);
    stop(&w);
}

/* Two topologies in one exec: each turn is dear, and counts as such for always updating too. */
static void test_forced_evictions(void **state)
{
    (void)state;
    static struct world w;
    start(&w, 2, 2, all_prices[0], BYTES);
    for (size_t step = 0; step < 100; step++)
        replay(&w, step % 2);
    assert_true(w.cost == 100 * all_prices[0].make);
    assert_true(w.rent.cost <= w.rent.always);
    stop(&w);
}

/* ---- One each, pins, and graphs that may run at the same time ------------------------------- */

static void test_one_each(void **state)
{
    (void)state;
    static struct world w;
    start(&w, 20, 1, all_prices[0], RPI_RENT_ONE_EACH);
    for (size_t i = 0; i < w.count; i++) {
        assert_true(rpi_rent_wants_first(&w.rent, &w.graphs[i]));
        make(&w, &w.graphs[i])->holds = &w.graphs[i];
    }
    for (size_t step = 0; step < 1000; step++)
        replay(&w, uniform(&w, step));
    assert_true(w.cost == 0);
    assert_int_equal(w.execs, 20);
    stop(&w);
}

static void test_first_of_a_class_is_made_ahead(void **state)
{
    (void)state;
    static struct world w;
    start(&w, 2, 1, all_prices[0], BYTES);
    assert_true(rpi_rent_wants_first(&w.rent, &w.graphs[0]));
    make(&w, &w.graphs[0]);
    assert_false(rpi_rent_wants_first(&w.rent, &w.graphs[1]));
    stop(&w);
}

static void test_pinned_execs_stay(void **state)
{
    (void)state;
    static struct world w;
    struct rpi_rent_exec *exec = NULL;
    start(&w, 2, 1, all_prices[0], BYTES);
    replay(&w, 0);
    w.graphs[0].exec->pins = 1;
    uint64_t turns = w.rent.turns;
    assert_int_equal(rpi_rent_take(&w.rent, &w.graphs[1], &exec), RPI_RENT_WAIT);
    assert_int_equal(rpi_rent_take_anew(&w.rent, &w.graphs[1]), RPI_RENT_WAIT);
    assert_int_equal(w.rent.turns, turns);
    assert_int_equal(rpi_rent_take(&w.rent, &w.graphs[0], &exec), RPI_RENT_HELD);
    w.graphs[0].exec->pins = 0;
    replay(&w, 1);
    assert_null(w.graphs[0].exec);
    stop(&w);
}

static bool always_apart(const struct rpi_rent_graph *a, const struct rpi_rent_graph *b)
{
    return a != b;
}

static void test_apart_shares_only_without_room(void **state)
{
    (void)state;
    static struct world w;
    for (size_t execs = 1; execs <= 2; execs++) {
        start(&w, 2, 1, all_prices[0], execs * BYTES);
        w.rent.apart = always_apart;
        replay(&w, 0);
        replay(&w, 1);
        assert_int_equal(w.execs, execs);
        assert_int_equal(w.graphs[0].exec != NULL, execs == 2);
        stop(&w);
    }
}

/* What a graph that leaves had is for rent. */
static void test_leaving_leaves_the_exec(void **state)
{
    (void)state;
    static struct world w;
    start(&w, 3, 1, all_prices[0], 3 * BYTES);
    replay(&w, 0);
    struct rpi_rent_exec *exec = w.graphs[0].exec;
    rpi_rent_leave(&w.rent, &w.graphs[0]);
    assert_null(exec->owner);
    assert_null(exec->tenant);
    w.one[0].holds = NULL;
    replay(&w, 1);
    assert_ptr_equal(w.graphs[1].exec, exec);
    assert_int_equal(w.execs, 1);
    rpi_rent_join(&w.rent, &w.classes[0], &w.graphs[0]);
    stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_most_twice_the_cheaper),
        cmocka_unit_test(test_all_own_in_the_end),
        cmocka_unit_test(test_one_graph_pays_once),
        cmocka_unit_test(test_never_above_always_updating),
        cmocka_unit_test(test_walks_over_512_shapes),
        cmocka_unit_test(test_a_long_stay_pays_for_a_fresh_exec),
        cmocka_unit_test(test_forced_evictions),
        cmocka_unit_test(test_one_each),
        cmocka_unit_test(test_first_of_a_class_is_made_ahead),
        cmocka_unit_test(test_pinned_execs_stay),
        cmocka_unit_test(test_apart_shares_only_without_room),
        cmocka_unit_test(test_leaving_leaves_the_exec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
