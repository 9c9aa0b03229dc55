/* SPDX-License-Identifier: MIT
 *
 * The exact search against enumeration, against packings cut from a full rectangle (whose optimum
 * is known), and on the published problems.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "memory/plan/search.h"
#include "unit/random_lifetimes.h"

#include <string.h>

#define MOST            4096
#define MOST_ENUMERATED 32

struct problem {
    uint32_t count;
    int64_t lower[MOST], upper[MOST];
    uint64_t bytes[MOST];
};

static void add(struct problem *p, int64_t lower, int64_t upper, uint64_t bytes)
{
    assert_true(p->count < MOST);
    p->lower[p->count] = lower;
    p->upper[p->count] = upper;
    p->bytes[p->count++] = bytes;
}

struct outcome {
    uint64_t bound, height;
    bool exhausted;
};

/* The layout is checked pair by pair against the intervals. */
static void check_layout(const struct problem *p, const struct rpi_lifetimes *x,
                         const uint64_t *offsets, uint64_t height)
{
    uint64_t top = 0;
    for (uint32_t i = 0; i < x->count; i++) {
        uint32_t a = x->block[i];
        uint64_t end = offsets[i] + p->bytes[a];
        top = end > top ? end : top;
        for (uint32_t j = 0; j < i; j++) {
            uint32_t b = x->block[j];
            if (p->lower[a] < p->upper[b] && p->lower[b] < p->upper[a])
                assert_true(end <= offsets[j] || offsets[j] + p->bytes[b] <= offsets[i]);
        }
    }
    assert_int_equal(top, height);
}

static struct outcome search(const struct problem *p, uint64_t capacity, double budget_ms,
                             unsigned threads)
{
    static uint64_t offsets[MOST];
    struct rpi_lifetimes x;
    struct outcome outcome = {.height = UINT64_MAX};
    struct rpi_plan_options options = {
        .alignment = 1, .capacity = capacity, .budget_ms = budget_ms, .threads = threads};
    assert_int_equal(
        rpi_lifetimes_from_intervals(p->lower, p->upper, p->bytes, p->count, 1, &x, NULL), RP_OK);
    assert_int_equal(rpi_bound(&x, &outcome.bound, NULL, NULL, NULL), RP_OK);
    assert_int_equal(rpi_plan_search(&x, &options, outcome.bound, offsets, &outcome.height,
                                     &outcome.exhausted, NULL),
                     RP_OK);
    if (outcome.height != UINT64_MAX)
        check_layout(p, &x, offsets, outcome.height);
    rpi_lifetimes_finish(&x);
    return outcome;
}

/* ---- against enumeration ---- */

struct enumeration {
    const struct problem *p;
    uint64_t limit, offsets[MOST_ENUMERATED];
};

/* False when a moment's live blocks that are not placed no longer fit above `floor`. */
static bool has_room(const struct enumeration *e, uint32_t placed, uint64_t floor)
{
    const struct problem *p = e->p;
    for (uint32_t at = 0; at < p->count; at++) {
        uint64_t top = floor, rest = 0;
        for (uint32_t b = 0; b < p->count; b++) {
            if (p->lower[b] > p->lower[at] || p->upper[b] <= p->lower[at])
                continue;
            uint64_t end = e->offsets[b] + p->bytes[b];
            if (!(placed >> b & 1))
                rest += p->bytes[b];
            else if (end > top)
                top = end;
        }
        if (rest > 0 && top + rest > e->limit)
            return false;
    }
    return true;
}

/* Whether the blocks not in the set `placed` can be dropped, one by one and none lower than
 * `floor`, so that all ends are within the limit. If a layout fits, its order of offsets does. */
static bool can_drop(struct enumeration *e, uint32_t placed, uint64_t floor)
{
    const struct problem *p = e->p;
    if (placed == (1u << p->count) - 1)
        return true;
    if (!has_room(e, placed, floor))
        return false;
    for (uint32_t b = 0; b < p->count; b++) {
        uint64_t offset = 0;
        if (placed >> b & 1)
            continue;
        for (uint32_t a = 0; a < p->count; a++)
            if ((placed >> a & 1) && p->lower[a] < p->upper[b] && p->lower[b] < p->upper[a] &&
                e->offsets[a] + p->bytes[a] > offset)
                offset = e->offsets[a] + p->bytes[a];
        e->offsets[b] = offset;
        if (offset >= floor && offset + p->bytes[b] <= e->limit &&
            can_drop(e, placed | 1u << b, offset))
            return true;
    }
    return false;
}

static uint64_t enumerate(const struct problem *p, uint64_t bound)
{
    struct enumeration e = {.p = p, .limit = bound};
    while (!can_drop(&e, 0, 0))
        e.limit++;
    return e.limit;
}

/* Starts blocks at `now` that sum up to `room`; those that it makes live get an end later. */
static void fill_up(struct problem *p, uint64_t *seed, int64_t now, uint64_t room, uint64_t unit)
{
    while (room > 0) {
        uint64_t bytes = 1 + random_below(seed, room < 4 ? (uint32_t)room : 4);
        add(p, now, INT64_MAX, bytes * unit);
        room -= bytes;
    }
}

/* At every moment the same load: what ends makes room for what starts. Many of these can't be
 * packed without waste. */
static void full_problem(struct problem *p, uint64_t *seed)
{
    uint64_t unit = 1 + random_below(seed, 3), load = 4 + random_below(seed, 4);
    uint32_t most = 7 + random_below(seed, 4);
    p->count = 0;
    fill_up(p, seed, 0, load, unit);
    int64_t now = 1;
    for (; p->count < most; now++) {
        uint64_t room = 0;
        for (uint32_t i = 0; i < p->count; i++)
            if (p->upper[i] == INT64_MAX && random_below(seed, 3) == 0) {
                p->upper[i] = now;
                room += p->bytes[i] / unit;
            }
        fill_up(p, seed, now, room, unit);
    }
    for (uint32_t i = 0; i < p->count; i++)
        p->upper[i] = p->upper[i] == INT64_MAX ? now : p->upper[i];
}

static void random_problem(struct problem *p, uint64_t *seed)
{
    uint32_t count = 1 + random_below(seed, 9), moments = 2 + random_below(seed, 8);
    uint64_t unit = 1 + random_below(seed, 3);
    p->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        int64_t lower = (int64_t)random_below(seed, moments) - 3;
        add(p, lower, lower + 1 + random_below(seed, moments), unit * (1 + random_below(seed, 9)));
    }
}

/* One whose bound of 8 can't be met, and sometimes more blocks beside it. */
static void wasteful_problem(struct problem *p, uint64_t *seed)
{
    static const int64_t blocks[][3] = {{0, 2, 4}, {0, 4, 2}, {0, 1, 1}, {0, 6, 1},
                                        {1, 5, 1}, {2, 3, 3}, {2, 6, 1}, {3, 5, 2},
                                        {3, 4, 1}, {4, 6, 3}, {5, 6, 3}};
    uint64_t unit = 1 + random_below(seed, 5);
    p->count = 0;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        add(p, blocks[i][0], blocks[i][1], unit * (uint64_t)blocks[i][2]);
    for (uint32_t more = random_below(seed, 3); more > 0; more--) {
        int64_t lower = random_below(seed, 6);
        add(p, lower, lower + 1 + random_below(seed, 3), 1 + random_below(seed, 4));
    }
}

static void small_problems_are_solved_exactly(void **state)
{
    (void)state;
    static struct problem p;
    uint64_t seed = 1, above_bound = 0;
    for (unsigned i = 0; i < 1500; i++) {
        if (i % 16 == 0)
            wasteful_problem(&p, &seed);
        else if (i % 3)
            full_problem(&p, &seed);
        else
            random_problem(&p, &seed);
        struct outcome outcome = search(&p, 0, 1e6, 1 + i % 2);
        uint64_t least = enumerate(&p, outcome.bound);
        assert_int_equal(outcome.height, least);
        assert_true(outcome.exhausted);
        above_bound += least > outcome.bound;
        outcome = search(&p, least, 1e6, 1);
        assert_int_equal(outcome.height, least);
        if (least == 1)
            continue;
        outcome = search(&p, least - 1, 1e6, 1);
        assert_int_equal(outcome.height, UINT64_MAX);
        assert_true(outcome.exhausted);
    }
    assert_true(above_bound > 40); /* else the bound alone would do */
}

/* ---- packings without waste ---- */

/* Cuts a rectangle of time by height into count blocks; `pinwheels` of all cuts are into five. */
static void cut_rectangle(struct problem *p, uint64_t *seed, uint32_t count, uint64_t height,
                          unsigned pinwheels)
{
    p->count = 0;
    add(p, 0, 4096, height);
    while (p->count < count) {
        uint32_t b = random_below(seed, p->count);
        int64_t length = p->upper[b] - p->lower[b];
        uint64_t bytes = p->bytes[b];
        if (length >= 3 && bytes >= 3 && random_below(seed, 100) < pinwheels) {
            int64_t left = p->lower[b], right = p->upper[b];
            int64_t x1 = left + 1 + random_below(seed, (uint32_t)length - 2);
            int64_t x2 = x1 + 1 + random_below(seed, (uint32_t)(right - x1) - 1);
            uint64_t y1 = 1 + random_below(seed, (uint32_t)bytes - 2);
            uint64_t y2 = y1 + 1 + random_below(seed, (uint32_t)(bytes - y1) - 1);
            p->upper[b] = x2;
            p->bytes[b] = y1;
            add(p, x2, right, y2);
            add(p, x1, right, bytes - y2);
            add(p, left, x1, bytes - y1);
            add(p, x1, x2, y2 - y1);
        } else if (random_below(seed, 2) && length >= 2) {
            int64_t at = p->lower[b] + 1 + random_below(seed, (uint32_t)length - 1);
            add(p, at, p->upper[b], bytes);
            p->upper[b] = at;
        } else if (bytes >= 2) {
            uint64_t part = 1 + random_below(seed, (uint32_t)bytes - 1);
            add(p, p->lower[b], p->upper[b], bytes - part);
            p->bytes[b] = part;
        }
    }
}

static void cut_rectangles_are_put_together(void **state)
{
    (void)state;
    static struct problem p;
    uint64_t seed = 7;
    for (unsigned i = 0; i < 60; i++) {
        cut_rectangle(&p, &seed, 20 + i, 1000, i % 2 ? 30 : 0);
        struct outcome outcome = search(&p, 0, 1e6, 1 + i % 2);
        assert_int_equal(outcome.bound, 1000);
        assert_int_equal(outcome.height, 1000);
        assert_true(outcome.exhausted);
    }
}

/* ---- published problems ---- */

static void load(struct problem *p, const char *name)
{
    char path[512], line[256];
    snprintf(path, sizeof path, "%s/tests/data/dsa/%s.1048576.csv", SOURCE_DIR, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    p->count = 0;
    while (fgets(line, sizeof line, file)) {
        long long lower, upper;
        unsigned long long bytes;
        assert_int_equal(sscanf(line, "%*d,%lld,%lld,%llu", &lower, &upper, &bytes), 3);
        add(p, lower, upper, bytes);
    }
    fclose(file);
}

static void published_problems_fit(void **state)
{
    (void)state;
    static struct problem p;
    const char *const names[] = {"A", "C", "D", "F", "K"};
    for (unsigned i = 0; i < 5; i++)
        for (unsigned threads = 1; threads <= 2; threads++) {
            load(&p, names[i]);
            struct outcome outcome = search(&p, 1048576, 1e6, threads);
            assert_true(outcome.height <= 1048576);
            outcome = search(&p, outcome.bound - 1024, 1e6, threads);
            assert_int_equal(outcome.height, UINT64_MAX);
            assert_true(outcome.exhausted);
        }
}

static void one_thread_is_deterministic(void **state)
{
    (void)state;
    static struct problem p;
    static uint64_t first[MOST], second[MOST];
    struct rpi_lifetimes x;
    struct rpi_plan_options options = {
        .alignment = 1, .capacity = 1048576, .budget_ms = 1e6, .threads = 1};
    load(&p, "K");
    assert_int_equal(rpi_lifetimes_from_intervals(p.lower, p.upper, p.bytes, p.count, 1, &x, NULL),
                     RP_OK);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t upper = UINT64_MAX;
        bool exhausted;
        assert_int_equal(
            rpi_plan_search(&x, &options, 1048576, i ? second : first, &upper, &exhausted, NULL),
            RP_OK);
        assert_int_equal(upper, 1048576);
    }
    assert_memory_equal(first, second, p.count * sizeof *first);
    rpi_lifetimes_finish(&x);
}

/* ---- limits ---- */

static void a_layout_is_replaced_by_lower_ones_only(void **state)
{
    (void)state;
    static struct problem p;
    uint64_t offsets[2] = {5, 7};
    struct rpi_lifetimes x;
    struct rpi_plan_options options = {.alignment = 1, .budget_ms = 1e6, .threads = 1};
    add(&p, 0, 2, 1);
    add(&p, 1, 3, 2);
    assert_int_equal(rpi_lifetimes_from_intervals(p.lower, p.upper, p.bytes, p.count, 1, &x, NULL),
                     RP_OK);
    uint64_t upper = 3;
    bool exhausted = false;
    assert_int_equal(rpi_plan_search(&x, &options, 3, offsets, &upper, &exhausted, NULL), RP_OK);
    assert_true(upper == 3 && exhausted && offsets[0] == 5 && offsets[1] == 7);
    upper = 9;
    assert_int_equal(rpi_plan_search(&x, &options, 3, offsets, &upper, &exhausted, NULL), RP_OK);
    assert_true(upper == 3 && exhausted);
    check_layout(&p, &x, offsets, 3);
    rpi_lifetimes_finish(&x);
}

/* Sizes that count more units than the search does: still a layout, and no false proof. */
static void huge_sizes_are_rounded(void **state)
{
    (void)state;
    static struct problem p;
    add(&p, 0, 2, (UINT64_C(1) << 61) + 1);
    add(&p, 1, 3, (UINT64_C(1) << 60) + 3);
    add(&p, 2, 4, (UINT64_C(1) << 61) + 5);
    struct outcome outcome = search(&p, 0, 10, 1);
    assert_true(outcome.height >= outcome.bound && outcome.height < outcome.bound * 2);
    assert_true(!outcome.exhausted || outcome.height == outcome.bound);
}

/* Long lives on top of each other make more cells than are searched. */
static void a_problem_too_large_is_left_alone(void **state)
{
    (void)state;
    enum { COUNT = 60000 };
    int64_t *lower = calloc(COUNT, sizeof *lower), *upper = calloc(COUNT, sizeof *upper);
    uint64_t *bytes = calloc(COUNT, sizeof *bytes), *offsets = calloc(COUNT, sizeof *offsets);
    struct rpi_lifetimes x;
    struct rpi_plan_options options = {.alignment = 1, .budget_ms = 20, .threads = 2};
    assert_true(lower && upper && bytes && offsets);
    for (int i = 0; i < COUNT; i++) {
        lower[i] = i;
        upper[i] = i % 2 ? i + 1 : COUNT + i;
        bytes[i] = 1 + (uint64_t)i % 97;
    }
    assert_int_equal(rpi_lifetimes_from_intervals(lower, upper, bytes, COUNT, 1, &x, NULL), RP_OK);
    uint64_t height = UINT64_MAX;
    bool exhausted = true;
    assert_int_equal(rpi_plan_search(&x, &options, 1, offsets, &height, &exhausted, NULL), RP_OK);
    assert_true(height == UINT64_MAX && !exhausted);
    rpi_lifetimes_finish(&x);
    free(lower);
    free(upper);
    free(bytes);
    free(offsets);
}

/* ---- want of memory ---- */

static long allocations_left;

static void *failing_malloc(size_t bytes, void *user)
{
    (void)user;
    return allocations_left-- > 0 ? malloc(bytes) : NULL;
}

static void *failing_realloc(void *pointer, size_t bytes, void *user)
{
    (void)user;
    return allocations_left-- > 0 ? realloc(pointer, bytes) : NULL;
}

static void plain_free(void *pointer, void *user)
{
    (void)user;
    free(pointer);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static struct problem p;
    static uint64_t offsets[MOST];
    const struct rp_host_memory failing = {failing_malloc, failing_realloc, plain_free, NULL};
    struct rpi_lifetimes x;
    struct rpi_plan_options options = {
        .alignment = 1, .capacity = 1048576, .budget_ms = 1e6, .threads = 1};
    load(&p, "A");
    assert_int_equal(rpi_lifetimes_from_intervals(p.lower, p.upper, p.bytes, p.count, 1, &x, NULL),
                     RP_OK);
    rp_status status = RP_ERROR_OUT_OF_HOST_MEMORY;
    unsigned failures = 0;
    rp_set_host_memory(&failing);
    for (long n = 0; n < 10000 && status != RP_OK; n++) {
        uint64_t upper = UINT64_MAX;
        bool exhausted = false;
        struct rp_error err = {0};
        allocations_left = n;
        status = rpi_plan_search(&x, &options, 1048576, offsets, &upper, &exhausted, &err);
        failures += status != RP_OK;
        if (status != RP_OK) {
            assert_int_equal(status, RP_ERROR_OUT_OF_HOST_MEMORY);
            assert_int_equal(err.status, status);
            assert_true(upper == UINT64_MAX && !exhausted);
        }
    }
    rp_set_host_memory(NULL);
    assert_int_equal(status, RP_OK);
    assert_true(failures > 20);
    rpi_lifetimes_finish(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_problems_are_solved_exactly),
        cmocka_unit_test(cut_rectangles_are_put_together),
        cmocka_unit_test(published_problems_fit),
        cmocka_unit_test(one_thread_is_deterministic),
        cmocka_unit_test(a_layout_is_replaced_by_lower_ones_only),
        cmocka_unit_test(huge_sizes_are_rounded),
        cmocka_unit_test(a_problem_too_large_is_left_alone),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
