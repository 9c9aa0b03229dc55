/* SPDX-License-Identifier: MIT
 *
 * Captures planned into a pool without a driver: where kept blocks go in a sequence, and what that
 * leaves for the captures behind them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "memory/pool/pool_plan.h"
#include "unit/random_lifetimes.h"

enum { MOST_BLOCKS = 32, MOST_CAPTURES = 12, END = 1000 };

struct capture {
    struct rpi_pool_member member;
    struct rpi_lifetimes x;
    bool kept[MOST_BLOCKS];
    uint64_t offsets[MOST_BLOCKS];
    struct rpi_plan_result result;
};

struct sequence {
    struct rpi_pool pool;
    struct rpi_pool_group group;
    struct capture captures[MOST_CAPTURES];
    size_t count;
};

static const struct rpi_plan_options options = {.alignment = 1, .budget_ms = 200, .threads = 1};

static void sequence_init(struct sequence *s, enum rpi_compose_kind kind)
{
    memset(s, 0, sizeof *s);
    s->group.node.kind = kind;
    s->pool = (struct rpi_pool){.root = &s->group, .alignment = 1};
}

static void sequence_finish(struct sequence *s)
{
    for (size_t i = 0; i < s->count; i++) {
        rpi_pool_member_finish(&s->captures[i].member);
        rpi_lifetimes_finish(&s->captures[i].x);
    }
}

/* Blocks that live until END are kept. */
static struct capture *begin(struct sequence *s, const int64_t *lower, const int64_t *upper,
                             const uint64_t *bytes, uint32_t count)
{
    struct capture *c = &s->captures[s->count++];
    assert_int_equal(rpi_lifetimes_from_intervals(lower, upper, bytes, count, 1, &c->x, NULL),
                     RP_OK);
    for (uint32_t i = 0; i < count; i++)
        c->kept[i] = upper[c->x.block[i]] == END;
    return c;
}

static void take_place(struct capture *c)
{
    c->member.node.kind = RPI_COMPOSE_CAPTURE;
    c->member.lower_bound = c->result.lower_bound;
    for (uint32_t i = 0; i < c->x.count; i++) {
        struct rpi_range range = {c->offsets[i], c->offsets[i] + c->x.bytes[i]};
        assert_true(rpi_vec_push(&c->member.all, range));
        if (c->kept[i]) {
            assert_true(rpi_vec_push(&c->member.kept, range));
            c->member.kept_bytes += c->x.bytes[i];
        }
    }
    rpi_ranges_join(&c->member.all);
    rpi_ranges_join(&c->member.kept);
}

/* No two blocks that may live together overlap, and none lies in what is in the way. */
static void check(const struct capture *c, const struct rpi_pool_obstacles *obstacles)
{
    uint64_t height = 0;
    for (uint32_t b = 0; b < c->x.count; b++) {
        uint64_t from = c->offsets[b], to = from + c->x.bytes[b];
        height = height < to ? to : height;
        assert_false(rpi_ranges_overlap(&obstacles->always, from, to));
        assert_false(c->kept[b] && rpi_ranges_overlap(&obstacles->later, from, to));
        for (uint32_t a = 0; a < b; a++)
            assert_true(rpi_lifetimes_before(&c->x, a, b) ||
                        c->offsets[a] + c->x.bytes[a] <= from || to <= c->offsets[a]);
    }
    assert_int_equal(c->result.height, height);
}

static void plan(struct sequence *s, struct capture *c)
{
    struct rpi_pool_obstacles obstacles;
    assert_int_equal(rpi_pool_obstacles(&s->pool, &s->group, &obstacles, NULL), RP_OK);
    assert_int_equal(
        rpi_pool_plan(&c->x, c->kept, &obstacles, &options, c->offsets, &c->result, NULL), RP_OK);
    check(c, &obstacles);
    rpi_pool_obstacles_finish(&obstacles);
    take_place(c);
    rpi_pool_add(&s->pool, &s->group, &c->member.node);
}

/* Short blocks one after the other, with small ones between that are kept. */
static struct capture *begin_sprinkled(struct sequence *s)
{
    static const int64_t lower[] = {0, 1, 2, 3, 4, 5}, upper[] = {2, END, 4, END, 6, END};
    static const uint64_t bytes[] = {6, 1, 5, 1, 4, 1};
    return begin(s, lower, upper, bytes, 6);
}

static void kept_blocks_of_a_sequence_are_piled(void **state)
{
    (void)state;
    struct sequence s;
    sequence_init(&s, RPI_COMPOSE_SEQUENCE);
    for (int i = 0; i < 3; i++) {
        struct capture *c = begin_sprinkled(&s);
        plan(&s, c);
        assert_int_equal(c->member.kept.count, 1);
        assert_int_equal(c->member.kept.data[0].from, 3 * i);
        assert_int_equal(c->result.lower_bound, 7);
        assert_int_equal(c->result.height, 3 * i + 7);
        assert_int_equal(c->result.proof, i ? RPI_PROOF_NONE : RPI_PROOF_BOUND);
    }
    sequence_finish(&s);
}

/* No layout of these with the two kept blocks in one pile is as low as their bound. */
static void a_pile_that_costs_height_is_not_taken(void **state)
{
    (void)state;
    static const int64_t lower[] = {0, 1, 2, 3, 4}, upper[] = {2, 4, END, 5, END};
    static const uint64_t bytes[] = {4, 3, 2, 3, 1};
    struct sequence s;
    sequence_init(&s, RPI_COMPOSE_SEQUENCE);
    struct capture *c = begin(&s, lower, upper, bytes, 5);
    plan(&s, c);
    assert_int_equal(c->result.lower_bound, 8);
    assert_int_equal(c->result.height, 8);
    assert_int_equal(c->result.proof, RPI_PROOF_BOUND);
    sequence_finish(&s);
}

/* The lowest gap that holds the pile is between what a later capture, recorded first, has and what
 * an earlier one keeps. */
static void a_pile_goes_where_later_parts_leave_room(void **state)
{
    (void)state;
    struct sequence s;
    sequence_init(&s, RPI_COMPOSE_SEQUENCE);
    struct rpi_pool_obstacles obstacles = {.followed = true};
    assert_true(rpi_vec_push(&obstacles.always, ((struct rpi_range){4, 10})));
    assert_true(rpi_vec_push(&obstacles.later, ((struct rpi_range){0, 1})));
    struct capture *c = begin_sprinkled(&s);
    assert_int_equal(
        rpi_pool_plan(&c->x, c->kept, &obstacles, &options, c->offsets, &c->result, NULL), RP_OK);
    check(c, &obstacles);
    take_place(c);
    assert_int_equal(c->member.kept.count, 1);
    assert_int_equal(c->member.kept.data[0].from, 1);
    assert_int_equal(c->member.kept.data[0].to, 4);
    rpi_pool_obstacles_finish(&obstacles);
    sequence_finish(&s);
}

/* The lead is in everybody's way, what comes later in nobody's where the lead is too. */
static void a_lead_is_in_the_way_of_all(void **state)
{
    (void)state;
    static const uint64_t leads[] = {0, 1, 2, 3, 6, 20};
    for (size_t i = 0; i < sizeof leads / sizeof *leads; i++) {
        struct sequence s;
        sequence_init(&s, RPI_COMPOSE_SEQUENCE);
        struct rpi_pool_obstacles obstacles = {.followed = true};
        assert_true(rpi_vec_push(&obstacles.always, ((struct rpi_range){4, 10})));
        assert_true(rpi_vec_push(&obstacles.later, ((struct rpi_range){1, 3})));
        assert_int_equal(rpi_pool_obstacles_lead(&obstacles, leads[i], NULL), RP_OK);
        assert_int_equal(obstacles.always.count, leads[i] && leads[i] < 4 ? 2 : 1);
        assert_int_equal(obstacles.later.count, leads[i] < 3);
        if (leads[i] < 3)
            assert_int_equal(obstacles.later.data[0].from, leads[i] < 1 ? 1 : leads[i]);
        struct capture *c = begin_sprinkled(&s);
        assert_int_equal(
            rpi_pool_plan(&c->x, c->kept, &obstacles, &options, c->offsets, &c->result, NULL),
            RP_OK);
        check(c, &obstacles);
        for (uint32_t b = 0; b < c->x.count; b++)
            assert_true(c->offsets[b] >= leads[i]);
        rpi_pool_obstacles_finish(&obstacles);
        sequence_finish(&s);
    }
}

static struct capture *begin_random(struct sequence *s, uint64_t *seed, uint32_t count)
{
    int64_t lower[MOST_BLOCKS], upper[MOST_BLOCKS];
    uint64_t bytes[MOST_BLOCKS];
    for (uint32_t i = 0; i < count; i++) {
        lower[i] = i;
        upper[i] = random_below(seed, 4) == 0 ? END : (int64_t)(i + 1 + random_below(seed, 5));
        bytes[i] = 1 + random_below(seed, 16);
    }
    return begin(s, lower, upper, bytes, count);
}

/* A block of 2 and one of 3 that is kept. */
static struct capture *begin_pair(struct sequence *s)
{
    static const int64_t lower[] = {0, 1}, upper[] = {2, END};
    static const uint64_t bytes[] = {2, 3};
    return begin(s, lower, upper, bytes, 2);
}

static void released_blocks_are_in_nobodys_way(void **state)
{
    (void)state;
    struct sequence s;
    sequence_init(&s, RPI_COMPOSE_SEQUENCE);
    const struct rpi_pool_node *top = &s.group.node;
    plan(&s, begin_pair(&s));
    plan(&s, begin_pair(&s));
    assert_int_equal(rpi_pool_height(top), 8);
    rpi_pool_release(&s.pool, &s.captures[0].member);
    rpi_pool_release(&s.pool, &s.captures[0].member);
    plan(&s, begin_pair(&s));
    assert_int_equal(s.captures[2].member.kept.data[0].from, 0);
    assert_int_equal(rpi_pool_height(top), 8);
    assert_int_equal(rpi_pool_lower_bound(&s.pool, top), 8);
    plan(&s, begin_pair(&s)); /* what the second and third keep is in its way */
    assert_int_equal(rpi_pool_height(top), 11);
    assert_int_equal(rpi_pool_lower_bound(&s.pool, top), 11);
    for (int i = 1; i < 4; i++)
        rpi_pool_release(&s.pool, &s.captures[i].member);
    struct capture *last = begin_pair(&s);
    plan(&s, last);
    assert_int_equal(last->result.height, 5);
    assert_int_equal(rpi_pool_lower_bound(&s.pool, top), 11);
    sequence_finish(&s);
}

/* The bound is, of all captures, the most that was in the way of one and its own. */
static void bounds_know_what_was_released(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int round = 0; round < 6; round++) {
        struct sequence s;
        uint64_t most = 0;
        sequence_init(&s, RPI_COMPOSE_SEQUENCE);
        for (uint32_t i = 0; i < MOST_CAPTURES; i++) {
            uint64_t before = 0;
            for (uint32_t j = 0; j < i; j++)
                if (random_below(&seed, 3) == 0)
                    rpi_pool_release(&s.pool, &s.captures[j].member);
            for (uint32_t j = 0; j < i; j++)
                before += s.captures[j].member.released ? 0 : s.captures[j].member.kept_bytes;
            struct capture *c = begin_random(&s, &seed, 2 + random_below(&seed, 12));
            plan(&s, c);
            most = most < before + c->result.lower_bound ? before + c->result.lower_bound : most;
            assert_int_equal(rpi_pool_lower_bound(&s.pool, &s.group.node), most);
        }
        assert_true(rpi_pool_height(&s.group.node) >= most);
        sequence_finish(&s);
    }
}

/* A part of several: what was released between its members counts for none of them. */
static void bounds_of_parts_count_what_was_in_the_way_of_all(void **state)
{
    (void)state;
    struct sequence s;
    struct rpi_pool_group part = {.node.kind = RPI_COMPOSE_ALTERNATIVES};
    sequence_init(&s, RPI_COMPOSE_SEQUENCE);
    plan(&s, begin_pair(&s));
    plan(&s, begin_pair(&s));
    rpi_pool_add(&s.pool, &s.group, &part.node);
    struct rpi_pool_member members[2] = {{.node.kind = RPI_COMPOSE_CAPTURE, .lower_bound = 4},
                                         {.node.kind = RPI_COMPOSE_CAPTURE, .lower_bound = 5}};
    rpi_pool_add(&s.pool, &part, &members[0].node);
    assert_int_equal(rpi_pool_lower_bound(&s.pool, &s.group.node), 3 + 3 + 4);
    rpi_pool_release(&s.pool, &s.captures[0].member);
    assert_int_equal(rpi_pool_lower_bound(&s.pool, &s.group.node), 3 + 3 + 4);
    rpi_pool_add(&s.pool, &part, &members[1].node);
    assert_int_equal(rpi_pool_lower_bound(&s.pool, &s.group.node), 3 + 5);
    rpi_pool_group_finish(&part);
    sequence_finish(&s);
}

/* What is scattered by one capture no later one can mend: the sum over many sequences tells. */
static void sequences_stand_at_their_bound(void **state)
{
    (void)state;
    uint64_t seed = 3, heights = 0, bounds = 0;
    for (int round = 0; round < 60; round++) {
        struct sequence s;
        sequence_init(&s, RPI_COMPOSE_SEQUENCE);
        uint32_t captures = 2 + random_below(&seed, MOST_CAPTURES - 1);
        for (uint32_t i = 0; i < captures; i++)
            plan(&s, begin_random(&s, &seed, 2 + random_below(&seed, 12)));
        heights += rpi_pool_height(&s.group.node);
        bounds += rpi_pool_lower_bound(&s.pool, &s.group.node);
        sequence_finish(&s);
    }
    print_message("heights %llu, bounds %llu\n", (unsigned long long)heights,
                  (unsigned long long)bounds);
    assert_in_range(heights, bounds, bounds + bounds / 500);
}

/* Nobody is behind the captures: nothing has to be piled, and all is one problem. */
static void alternatives_are_planned_loosely(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int round = 0; round < 20; round++) {
        struct sequence s;
        sequence_init(&s, RPI_COMPOSE_ALTERNATIVES);
        for (int i = 0; i < 3; i++) {
            struct capture *c = begin_random(&s, &seed, 10);
            plan(&s, c);
            assert_int_equal(c->result.height, c->result.lower_bound);
        }
        sequence_finish(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_blocks_of_a_sequence_are_piled),
        cmocka_unit_test(a_pile_that_costs_height_is_not_taken),
        cmocka_unit_test(a_pile_goes_where_later_parts_leave_room),
        cmocka_unit_test(a_lead_is_in_the_way_of_all),
        cmocka_unit_test(released_blocks_are_in_nobodys_way),
        cmocka_unit_test(bounds_know_what_was_released),
        cmocka_unit_test(bounds_of_parts_count_what_was_in_the_way_of_all),
        cmocka_unit_test(sequences_stand_at_their_bound),
        cmocka_unit_test(alternatives_are_planned_loosely),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
