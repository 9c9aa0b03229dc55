/* SPDX-License-Identifier: MIT
 *
 * The rule of binding and copying alone: the set that costs least for a replay against all sets,
 * and what a run of replays costs against the better of two fixed sets, whatever comes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "policy/bind_or_copy.h"

enum { MOST_ARGS = 8, MOST_GROUPS = 24 };

static uint64_t random_state;

static uint32_t random_below(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % below);
}

struct problem {
    struct rpi_bind_arg_uses args[MOST_ARGS];
    struct rpi_bind_group groups[MOST_GROUPS];
    uint32_t members[MOST_GROUPS * MOST_ARGS];
    size_t arg_count, group_count;
    struct rpi_bind_prices prices;
    unsigned char changed[MOST_ARGS];
    struct rpi_bind_choice choice;
};

static void make_problem(struct problem *p, uint64_t seed)
{
    uint32_t members = 0;
    random_state = seed;
    memset(p, 0, sizeof *p);
    p->arg_count = 1 + random_below(MOST_ARGS);
    p->group_count = random_below(MOST_GROUPS + 1);
    for (size_t a = 0; a < p->arg_count; a++) {
        uint32_t role = 1 + random_below(3);
        p->args[a] = (struct rpi_bind_arg_uses){.bytes = random_below(3000),
                                                .in = role & 1,
                                                .out = role & 2,
                                                .only_bound = random_below(6) == 0};
        p->changed[a] = random_below(4) != 0;
    }
    for (size_t g = 0; g < p->group_count; g++) {
        p->groups[g] = (struct rpi_bind_group){.first = members, .nodes = 1 + random_below(12)};
        for (uint32_t a = 0; a < p->arg_count; a++)
            if (random_below(3) == 0)
                p->members[members++] = a;
        p->groups[g].count = members - p->groups[g].first;
    }
    p->prices = (struct rpi_bind_prices){.copies = {.launch = 1 + random_below(20),
                                                    .entry = 0.01 * random_below(100),
                                                    .single = 1 + random_below(9),
                                                    .byte = 0.001 * random_below(5),
                                                    .single_byte = 0.001 * random_below(5),
                                                    .no_launches = random_below(5) == 0},
                                         .node = 0.1 * (1 + random_below(20)),
                                         .known = true};
    assert_true(rpi_bind_choice_init(&p->choice, p->args, p->arg_count, p->groups, p->group_count,
                                     p->members));
}

static bool may_copy(const struct problem *p, const unsigned char *set)
{
    for (size_t a = 0; a < p->arg_count; a++)
        if (set[a] && (p->args[a].only_bound || !p->changed[a]))
            return false;
    return true;
}

static void the_set_that_costs_least_is_found(void **state)
{
    (void)state;
    unsigned copying = 0;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        struct problem p;
        unsigned char set[MOST_ARGS], found[MOST_ARGS];
        make_problem(&p, seed);
        double least = 1e9;
        for (unsigned bits = 0; bits < 1u << p.arg_count; bits++) {
            for (size_t a = 0; a < p.arg_count; a++)
                set[a] = bits >> a & 1;
            double us = rpi_bind_cost(&p.choice, &p.prices, set, p.changed);
            if (may_copy(&p, set) && us < least)
                least = us;
        }
        double us = rpi_bind_solve(&p.choice, &p.prices, p.changed, found);
        assert_true(may_copy(&p, found));
        assert_true(us == rpi_bind_cost(&p.choice, &p.prices, found, p.changed));
        /* The cut is reckoned in nanoseconds. */
        if (us > least + 0.1)
            fail_msg("seed %u: %.3f us where %.3f would do", (unsigned)seed, us, least);
        copying += memchr(found, 1, p.arg_count) != NULL;
        rpi_bind_choice_finish(&p.choice);
    }
    assert_in_range(copying, 500, 2500); /* both kinds of problem were there */
}

/* ---- Runs of replays ----------------------------------------------------------------------- */

/* Nodes of one argument, or of eight that come in pairs, as a chain has them. */
static void make_chain(struct problem *p, size_t args, uint32_t nodes)
{
    memset(p, 0, sizeof *p);
    p->arg_count = p->group_count = args;
    for (uint32_t a = 0; a < args; a++) {
        p->args[a] = (struct rpi_bind_arg_uses){.bytes = 4096, .in = true, .out = true};
        p->groups[a] = (struct rpi_bind_group){2 * a, args > 1 ? 2 : 1, nodes / (uint32_t)args};
        p->members[2 * a] = a;
        p->members[2 * a + 1] = (a + 1) % (uint32_t)args;
    }
    p->prices = (struct rpi_bind_prices){
        .copies = {.launch = 5, .entry = 0.05, .single = 6, .byte = 1e-6, .single_byte = 1e-6},
        .node = 0.27,
        .known = true};
    assert_true(
        rpi_bind_choice_init(&p->choice, p->args, args, p->groups, p->group_count, p->members));
}

struct spent {
    double own, bound, copied, largest;
    unsigned switches;
};

/* One replay, as the rule has it and in the two fixed ways. */
static void replay(struct problem *p, struct spent *spent)
{
    unsigned char none[MOST_ARGS] = {0}, all[MOST_ARGS], before[MOST_ARGS];
    memset(all, 1, sizeof all);
    memcpy(before, p->choice.copied, p->arg_count);
    bool switched = rpi_bind_choice_next(&p->choice, &p->prices, p->changed) == RPI_BIND_SWITCHES;
    spent->bound += rpi_bind_cost(&p->choice, &p->prices, none, p->changed);
    spent->copied += rpi_bind_cost(&p->choice, &p->prices, all, p->changed);
    spent->own += rpi_bind_cost(&p->choice, &p->prices, p->choice.copied, p->changed);
    if (switched) /* all nodes are changed once, wherever the addresses are */
        spent->own += rpi_bind_cost(&p->choice, &p->prices, none, all);
    spent->largest = rpi_bind_cost(&p->choice, &p->prices, none, all);
    spent->switches = p->choice.switches;
}

static void many_nodes_for_few_arguments_are_copied(void **state)
{
    (void)state;
    struct problem p;
    struct spent spent = {0};
    make_chain(&p, 8, 1000);
    memset(p.changed, 1, sizeof p.changed);
    for (int i = 0; i < 10; i++)
        replay(&p, &spent);
    for (size_t a = 0; a < p.arg_count; a++)
        assert_true(p.choice.copied[a]);
    assert_int_equal(spent.switches, 1);
    assert_int_equal(p.choice.solved, 2); /* nothing is reckoned where nothing is new */
    /* They stay where they are: bound again, after a while. */
    memset(p.changed, 0, sizeof p.changed);
    for (int i = 0; i < 1000; i++)
        replay(&p, &spent);
    assert_int_equal(spent.switches, 2);
    for (size_t a = 0; a < p.arg_count; a++)
        assert_false(p.choice.copied[a]);
    rpi_bind_choice_finish(&p.choice);
}

static void few_nodes_and_large_arguments_stay_bound(void **state)
{
    (void)state;
    struct problem p;
    struct spent spent = {0};
    make_chain(&p, 8, 32);
    memset(p.changed, 1, sizeof p.changed);
    for (int i = 0; i < 1000; i++)
        replay(&p, &spent);
    assert_int_equal(spent.switches, 0);
    rpi_bind_choice_finish(&p.choice);
    make_chain(&p, 8, 1000);
    memset(p.changed, 1, sizeof p.changed);
    for (size_t a = 0; a < p.arg_count; a++)
        ((struct rpi_bind_arg_uses *)p.choice.args)[a].bytes = 1 << 30;
    for (int i = 0; i < 1000; i++)
        replay(&p, &spent);
    assert_int_equal(spent.switches, 0);
    rpi_bind_choice_finish(&p.choice);
}

static void what_never_moves_is_never_copied(void **state)
{
    (void)state;
    struct problem p;
    struct spent spent = {0};
    make_chain(&p, 8, 1000);
    p.changed[3] = 1;
    for (int i = 0; i < 100; i++)
        replay(&p, &spent);
    for (size_t a = 0; a < p.arg_count; a++)
        assert_int_equal(p.choice.copied[a], a == 3);
    rpi_bind_choice_finish(&p.choice);
}

static void prices_that_are_not_known_are_asked_for_first(void **state)
{
    (void)state;
    struct problem p;
    unsigned asked = 0;
    make_chain(&p, 8, 1000);
    memset(p.changed, 1, sizeof p.changed);
    p.prices.known = false;
    for (int i = 0; i < 20; i++)
        asked += rpi_bind_choice_next(&p.choice, &p.prices, p.changed) == RPI_BIND_LEARN;
    assert_in_range(asked, 10, 19);
    assert_int_equal(p.choice.switches, 0);
    /* They turn out to be such that it does not pay. */
    p.prices.known = true;
    p.prices.copies.launch = 500;
    p.prices.copies.single = 100;
    for (int i = 0; i < 20; i++)
        assert_int_equal(rpi_bind_choice_next(&p.choice, &p.prices, p.changed), RPI_BIND_STAYS);
    rpi_bind_choice_finish(&p.choice);
}

/* At most twice the better of both ways; plus what changing costs, one part in 2 x
 * RPI_BIND_PATIENCE of that at first and less and less; plus one lead. */
static void check_spent(const struct spent *spent, const char *what)
{
    double better = spent->bound < spent->copied ? spent->bound : spent->copied;
    double lead = RPI_BIND_PATIENCE * RPI_BIND_MOST_PATIENCE * (spent->largest + 5);
    if (spent->own > 2.1 * better + lead)
        fail_msg("%s: %.0f us spent, where bound takes %.0f and copied %.0f", what, spent->own,
                 spent->bound, spent->copied);
}

static void whatever_comes_costs_at_most_twice_the_better_way(void **state)
{
    (void)state;
    static const uint32_t nodes[] = {40, 100, 1000};
    for (size_t n = 0; n < 3; n++) {
        struct problem p;
        struct spent spent = {0};
        /* Whichever way it is now costs. */
        make_chain(&p, 1, nodes[n]);
        for (int i = 0; i < 200000; i++) {
            p.changed[0] = !p.choice.copied[0];
            replay(&p, &spent);
        }
        check_spent(&spent, "an adversary");
        assert_in_range(spent.switches, 2, 2000);
        rpi_bind_choice_finish(&p.choice);
        /* Phases of random lengths, and single changes. */
        for (uint64_t seed = 1; seed <= 20; seed++) {
            make_chain(&p, 1, nodes[n]);
            spent = (struct spent){0};
            random_state = seed;
            uint32_t left = 0, of = 1;
            for (int i = 0; i < 20000; i++) {
                if (!left--) {
                    left = random_below(400);
                    of = 1 + random_below(20);
                }
                p.changed[0] = random_below(of) == 0;
                replay(&p, &spent);
            }
            check_spent(&spent, "phases");
            rpi_bind_choice_finish(&p.choice);
        }
    }
}

static void small_samples_of_a_price_count_more(void **state)
{
    (void)state;
    struct rpi_bind_price price = {0};
    rpi_bind_price_add(&price, 0.3);
    assert_true(price.us == 0.3);
    rpi_bind_price_add(&price, 30); /* the launch waited */
    assert_true(price.us < 2.5);
    for (int i = 0; i < 12; i++)
        rpi_bind_price_add(&price, 0.3);
    assert_true(price.us < 0.31);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_set_that_costs_least_is_found),
        cmocka_unit_test(many_nodes_for_few_arguments_are_copied),
        cmocka_unit_test(few_nodes_and_large_arguments_stay_bound),
        cmocka_unit_test(what_never_moves_is_never_copied),
        cmocka_unit_test(prices_that_are_not_known_are_asked_for_first),
        cmocka_unit_test(whatever_comes_costs_at_most_twice_the_better_way),
        cmocka_unit_test(small_samples_of_a_price_count_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
