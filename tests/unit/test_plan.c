/* SPDX-License-Identifier: MIT
 *
 * Layouts against an independent checker, on random and on plain problems.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "memory/plan/parts.h"
#include "recording/file.h"
#include "unit/random_lifetimes.h"

#define MOST 4096

/* Every pair that may be alive together is apart, every offset aligned; returns the height. */
static uint64_t check_layout(const struct rpi_lifetimes *x, const uint64_t *offsets,
                             uint64_t alignment)
{
    uint64_t height = 0;
    for (uint32_t a = 0; a < x->count; a++) {
        uint64_t end = offsets[a] + x->bytes[a];
        assert_int_equal(offsets[a] % alignment, 0);
        assert_true(end > offsets[a]);
        height = end > height ? end : height;
        for (uint32_t b = 0; b < a; b++)
            if (!rpi_lifetimes_before(x, a, b) && !rpi_lifetimes_before(x, b, a))
                assert_true(end <= offsets[b] || offsets[b] + x->bytes[b] <= offsets[a]);
    }
    return height;
}

static struct rpi_plan_result plan_checked(const struct rpi_lifetimes *x,
                                           const struct rpi_plan_options *options,
                                           uint64_t *offsets)
{
    struct rpi_plan_result result;
    uint64_t bound;
    assert_int_equal(rpi_bound(x, &bound, NULL, NULL, NULL), RP_OK);
    assert_int_equal(rpi_plan(x, options, offsets, &result, NULL), RP_OK);
    assert_int_equal(result.height, check_layout(x, offsets, options->alignment));
    assert_int_equal(result.lower_bound, bound);
    assert_true(result.height >= bound);
    assert_int_equal(result.proof == RPI_PROOF_BOUND, result.height == bound);
    return result;
}

static void random_layouts_are_valid(void **state)
{
    (void)state;
    static uint64_t offsets[MOST];
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct random_shape shape = {
            .steps = 20 + seed * 4 % 500, .streams = 1 + seed % 8, .most = MOST};
        struct rpi_capture_record record;
        struct rpi_lifetimes x;
        uint64_t alignment = seed % 3 ? 1 : 16;
        random_record(&record, &shape, seed);
        assert_int_equal(rpi_lifetimes_from_record(&record, alignment, &x, NULL), RP_OK);
        struct rpi_plan_options options = {
            .alignment = alignment, .budget_ms = seed % 5 ? 5 : 0, .threads = 1};
        plan_checked(&x, &options, offsets);
        rpi_lifetimes_finish(&x);
        rpi_capture_record_finish(&record);
    }
}

static void large_layouts_are_valid(void **state)
{
    (void)state;
    static uint64_t offsets[MOST];
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct random_shape shape = {.steps = 6000, .streams = 1 + seed * 7 % 8, .most = MOST};
        struct rpi_plan_options options = {.alignment = 1, .budget_ms = 20, .threads = 1};
        struct rpi_lifetimes x;
        random_lifetimes(&x, &shape, seed);
        plan_checked(&x, &options, offsets);
        rpi_lifetimes_finish(&x);
    }
}

/* Does block `next` and all after it fit under the ceiling, the others lying at offsets? */
static bool fits_by_force(const struct rpi_lifetimes *x, uint64_t ceiling, uint32_t next,
                          uint64_t *offsets)
{
    if (next == x->count)
        return true;
    for (uint64_t at = 0; at + x->bytes[next] <= ceiling; at++) {
        bool free = true;
        for (uint32_t i = 0; free && i < next; i++)
            free = rpi_lifetimes_before(x, i, next) || at >= offsets[i] + x->bytes[i] ||
                   offsets[i] >= at + x->bytes[next];
        offsets[next] = at;
        if (free && fits_by_force(x, ceiling, next + 1, offsets))
            return true;
    }
    return false;
}

/* The least height was found, and proved; under it, a capacity is proved too small. */
static void check_solved(const struct rpi_lifetimes *x, uint64_t least, uint64_t *offsets)
{
    struct rpi_plan_options options = {.alignment = 1, .budget_ms = 50, .threads = 1};
    struct rpi_plan_result result = plan_checked(x, &options, offsets);
    assert_int_equal(result.height, least);
    assert_int_not_equal(result.proof, RPI_PROOF_NONE);
    assert_false(result.stopped);
    options.capacity = least - 1;
    if (options.capacity)
        assert_int_equal(plan_checked(x, &options, offsets).fits, 0);
    options.capacity = least;
    assert_int_equal(plan_checked(x, &options, offsets).fits, 1);
}

/* Random small problems, of one lane by intervals and of several: the least height is found. */
static void small_problems_are_solved(void **state)
{
    (void)state;
    uint64_t offsets[16], seed = 5;
    for (int round = 0; round < 1500; round++) {
        struct rpi_lifetimes x;
        int64_t lower[12], upper[12];
        uint64_t bytes[12];
        struct random_shape shape = {.steps = 26, .streams = 2 + round % 3, .most = 9};
        for (int i = 0; i < 12; i++) {
            lower[i] = random_below(&seed, 10);
            upper[i] = lower[i] + 1 + random_below(&seed, 4);
            bytes[i] = 1;
        }
        if (round % 4)
            rpi_lifetimes_from_intervals(lower, upper, bytes, 12, 1, &x, NULL);
        else
            random_lifetimes(&x, &shape, (uint64_t)round);
        for (uint32_t i = 0; i < x.count; i++)
            x.bytes[i] = 1 + random_below(&seed, 3);
        uint64_t least;
        assert_int_equal(rpi_bound(&x, &least, NULL, NULL, NULL), RP_OK);
        least = least <= 10 ? least : 0; /* force has its limits */
        while (least && !fits_by_force(&x, least, 0, offsets))
            least++;
        if (least)
            check_solved(&x, least, offsets);
        rpi_lifetimes_finish(&x);
    }
}

/* Blocks in a random partial order, each on a lane of its own. */
static void random_order(struct rpi_lifetimes *out, uint32_t count, uint32_t percent,
                         uint64_t *seed)
{
    assert_int_equal(rpi_lifetimes_init(out, count, count, NULL), RP_OK);
    for (uint32_t i = 0; i < count; i++) {
        out->bytes[i] = 1 + random_below(seed, 9);
        out->lane[i] = out->block[i] = i;
        out->rank[i] = 0;
        for (uint32_t j = 0; j < count; j++)
            out->first[i * count + j] = j > i && random_below(seed, 100) < percent ? 0 : RPI_NEVER;
    }
    for (uint32_t k = 0; k < count; k++) /* what comes after what comes after */
        for (uint32_t i = 0; i < k; i++)
            for (uint32_t j = k + 1; out->first[i * count + k] == 0 && j < count; j++)
                if (out->first[k * count + j] == 0)
                    out->first[i * count + j] = 0;
}

/* Is there an order in which the blocks of `left`, each placed on what it conflicts with of those
 * before it, stay under the ceiling? */
static bool fits_in_an_order(const struct rpi_lifetimes *x, uint64_t ceiling, uint32_t left,
                             uint64_t *offsets)
{
    for (uint32_t b = 0; b < x->count; b++) {
        uint64_t at = 0;
        if (!(left >> b & 1))
            continue;
        for (uint32_t i = 0; i < x->count; i++) {
            bool apart = i < b ? rpi_lifetimes_before(x, i, b) : rpi_lifetimes_before(x, b, i);
            if (!(left >> i & 1) && !apart && offsets[i] + x->bytes[i] > at)
                at = offsets[i] + x->bytes[i];
        }
        offsets[b] = at;
        if (at + x->bytes[b] <= ceiling &&
            (left == 1u << b || fits_in_an_order(x, ceiling, left & ~(1u << b), offsets)))
            return true;
    }
    return false;
}

/* The exact search alone, from the worst layout: everything on top of everything. Returns the height
 * that it found. */
static uint64_t check_exact(const struct rpi_lifetimes *x, uint64_t bound, uint64_t *offsets)
{
    struct rpi_meter meter = rpi_meter_start(false);
    struct rpi_plan_task task = {.x = x,
                                 .alignment = 1,
                                 .floor = bound,
                                 .meter = &meter,
                                 .end = UINT64_MAX,
                                 .offsets = offsets,
                                 .height = 0};
    bool exhausted;
    for (uint32_t i = 0; i < x->count; task.height += x->bytes[i++])
        offsets[i] = task.height;
    assert_int_equal(rpi_plan_exact(&task, &exhausted, NULL), RP_OK);
    assert_int_equal(task.height, check_layout(x, offsets, 1));
    assert_true(task.height >= bound);
    assert_int_equal(exhausted, task.height > bound);
    return task.height;
}

/* Orders that no intervals have, of which some need more than their heaviest antichain: those are
 * tried in every order, until there were as many as are told. */
static void small_orders_are_solved(void **state)
{
    (void)state;
    enum { ABOVE_BOUND = 10, ROUNDS = 30000 };
    uint64_t offsets[16], seed = 11;
    int above_bound = 0;
    for (uint32_t round = 0; round < ROUNDS && above_bound < ABOVE_BOUND; round++) {
        struct rpi_lifetimes x;
        uint64_t bound;
        random_order(&x, 9 - (round % 4 == 0), 40 + round % 15, &seed);
        assert_int_equal(rpi_bound(&x, &bound, NULL, NULL, NULL), RP_OK);
        uint64_t least = check_exact(&x, bound, offsets);
        if (least > bound)
            assert_false(fits_in_an_order(&x, least - 1, (1u << x.count) - 1, offsets));
        above_bound += least > bound;
        if (least > bound || round % 50 == 0)
            check_solved(&x, least, offsets);
        rpi_lifetimes_finish(&x);
    }
    assert_int_equal(above_bound, ABOVE_BOUND);
}

/* Thirteen intervals of which at most 12 bytes are alive at once and that need 13. */
static void heights_above_the_bound_are_proved(void **state)
{
    (void)state;
    const int64_t lower[] = {1, 9, 3, 6, 8, 1, 8, 0, 4, 6, 4, 1, 1};
    const int64_t upper[] = {2, 14, 6, 11, 13, 4, 9, 6, 9, 8, 9, 5, 7};
    const uint64_t bytes[] = {3, 5, 1, 5, 2, 1, 2, 1, 1, 3, 2, 6, 1};
    uint64_t offsets[13];
    struct rpi_lifetimes x;
    assert_int_equal(rpi_lifetimes_from_intervals(lower, upper, bytes, 13, 1, &x, NULL), RP_OK);
    assert_false(fits_by_force(&x, 12, 0, offsets));
    struct rpi_plan_options options = {.alignment = 1, .budget_ms = 10000, .threads = 1};
    struct rpi_plan_result result = plan_checked(&x, &options, offsets);
    assert_int_equal(result.lower_bound, 12);
    assert_int_equal(result.height, 13);
    assert_int_equal(result.proof, RPI_PROOF_SEARCH);
    options.capacity = 12;
    assert_int_equal(plan_checked(&x, &options, offsets).fits, 0);
    options.capacity = 13;
    assert_int_equal(plan_checked(&x, &options, offsets).fits, 1);
    rpi_lifetimes_finish(&x);
}

/* What PyTorch programs allocated reaches the bound. */
static void recorded_captures_reach_the_bound(void **state)
{
    (void)state;
    static const char *const names[] = {"bert",           "gpt2_train", "llama", "resnet50_train",
                                        "streams4x600x1", "towers4",    "vit"};
    static uint64_t offsets[MOST];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct rp_recording *recording;
        char path[512];
        snprintf(path, sizeof path, "%s/examples/captures/%s.json.gz", SOURCE_DIR, names[i]);
        assert_int_equal(rp_recording_load(path, &recording, NULL), RP_OK);
        for (size_t c = 0; c < recording->captures.count; c++) {
            struct rpi_plan_options options = {.alignment = 512, .budget_ms = 5000, .threads = 1};
            struct rpi_lifetimes x;
            assert_int_equal(rpi_lifetimes_from_record(&recording->captures.data[c], 512, &x, NULL),
                             RP_OK);
            struct rpi_plan_result result = plan_checked(&x, &options, offsets);
            assert_true(result.proof || result.height <= result.lower_bound * 1002 / 1000);
            rpi_lifetimes_finish(&x);
        }
        rp_recording_destroy(recording);
    }
}

/* A cut lies where everything before comes before everything after; pieces keep the order. */
static void pieces_are_independent(void **state)
{
    (void)state;
    static uint32_t ends[MOST];
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct random_shape shape = {.steps = 5 + seed % 40, .streams = 1 + seed % 4, .most = 30};
        struct rpi_lifetimes x, piece;
        uint32_t pieces, from = 0, at = 0;
        random_lifetimes(&x, &shape, seed);
        assert_int_equal(rpi_plan_cut(&x, ends, &pieces, NULL), RP_OK);
        assert_true(x.count == 0 || (pieces > 0 && ends[pieces - 1] == x.count));
        for (uint32_t cut = 1; cut < x.count; cut++) { /* found exactly where there is one */
            bool apart = true;
            for (uint32_t a = 0; a < cut; a++)
                for (uint32_t b = cut; b < x.count; b++)
                    apart = apart && rpi_lifetimes_before(&x, a, b);
            assert_int_equal(apart, ends[at] == cut);
            at += apart;
        }
        for (uint32_t i = 0; i < pieces; from = ends[i++]) {
            assert_int_equal(rpi_plan_extract(&x, from, ends[i], &piece, NULL), RP_OK);
            for (uint32_t a = 0; a < piece.count; a++)
                for (uint32_t b = 0; b < piece.count; b++)
                    assert_int_equal(rpi_lifetimes_before(&piece, a, b),
                                     rpi_lifetimes_before(&x, from + a, from + b));
            rpi_lifetimes_finish(&piece);
        }
        rpi_lifetimes_finish(&x);
    }
}

static void fixed_offsets_stay(void **state)
{
    (void)state;
    static uint64_t first[MOST], fixed[MOST], offsets[MOST];
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct random_shape shape = {.steps = 300, .streams = 1 + seed % 4, .most = MOST};
        struct rpi_lifetimes x;
        uint64_t pick = seed, raised = seed % 2 ? 64 : 0;
        random_lifetimes(&x, &shape, seed);
        struct rpi_plan_options options = {.alignment = 1, .budget_ms = 2, .threads = 1};
        plan_checked(&x, &options, first);
        for (uint32_t i = 0; i < x.count; i++)
            fixed[i] = random_below(&pick, 3) ? RPI_UNPLACED : first[i] + raised;
        options.fixed = fixed;
        plan_checked(&x, &options, offsets);
        for (uint32_t i = 0; i < x.count; i++)
            if (fixed[i] != RPI_UNPLACED)
                assert_int_equal(offsets[i], fixed[i]);
        rpi_lifetimes_finish(&x);
    }
}

static void make_intervals(struct rpi_lifetimes *x, uint32_t count, bool apart)
{
    int64_t lower[64] = {0}, upper[64] = {0};
    uint64_t bytes[64];
    for (uint32_t i = 0; i < count; i++) {
        lower[i] = apart ? i : 0;
        upper[i] = lower[i] + 1;
        bytes[i] = 10 + i;
    }
    assert_int_equal(rpi_lifetimes_from_intervals(lower, upper, bytes, count, 1, x, NULL), RP_OK);
}

static void plain_problems_are_solved(void **state)
{
    (void)state;
    struct rpi_plan_options options = {.alignment = 1, .budget_ms = 5, .threads = 1};
    uint64_t offsets[64];
    for (uint32_t count = 0; count <= 64; count = count * 2 + 1) {
        struct rpi_lifetimes x;
        make_intervals(&x, count, true);
        struct rpi_plan_result result = plan_checked(&x, &options, offsets);
        assert_int_equal(result.height, count ? 9 + count : 0);
        assert_int_equal(result.proof, RPI_PROOF_BOUND);
        rpi_lifetimes_finish(&x);
        make_intervals(&x, count, false);
        result = plan_checked(&x, &options, offsets);
        assert_int_equal(result.height, count * 10 + count * (count - 1) / 2);
        rpi_lifetimes_finish(&x);
        if (!count)
            count = 1;
    }
}

static void a_capacity_is_answered(void **state)
{
    (void)state;
    struct rpi_lifetimes x;
    uint64_t offsets[64];
    make_intervals(&x, 4, false); /* 10 + 11 + 12 + 13, all at once */
    struct rpi_plan_options options = {
        .alignment = 1, .capacity = 45, .budget_ms = 5, .threads = 1};
    assert_int_equal(plan_checked(&x, &options, offsets).fits, 0);
    options.capacity = 46;
    assert_int_equal(plan_checked(&x, &options, offsets).fits, 1);
    options.capacity = 100;
    assert_int_equal(plan_checked(&x, &options, offsets).fits, 1);
    rpi_lifetimes_finish(&x);
}

static void the_same_problem_gets_the_same_layout(void **state)
{
    (void)state;
    static uint64_t one[MOST], two[MOST];
    struct random_shape shape = {.steps = 400, .streams = 4, .most = MOST};
    struct rpi_lifetimes x;
    random_lifetimes(&x, &shape, 11);
    struct rpi_plan_options options = {.alignment = 1, .budget_ms = 1e9, .threads = 1};
    plan_checked(&x, &options, one);
    plan_checked(&x, &options, two);
    for (uint32_t i = 0; i < x.count; i++)
        assert_int_equal(one[i], two[i]);
    rpi_lifetimes_finish(&x);
}

/* ---- Host memory that fails ---------------------------------------------------------------- */

static struct {
    long left, held;
} faults;

static void *failing_malloc(size_t bytes, void *user)
{
    (void)user;
    if (faults.left-- == 0)
        return NULL;
    faults.held++;
    return malloc(bytes);
}

static void *failing_realloc(void *pointer, size_t bytes, void *user)
{
    (void)user;
    if (faults.left-- == 0)
        return NULL;
    faults.held += !pointer;
    return realloc(pointer, bytes);
}

static void failing_free(void *pointer, void *user)
{
    (void)user;
    faults.held--;
    free(pointer);
}

static rp_status bound_and_plan(const struct rpi_capture_record *record, struct rp_error *err)
{
    static uint64_t offsets[MOST];
    struct rpi_plan_options options = {.alignment = 1, .budget_ms = 1, .threads = 1};
    struct rpi_plan_result result;
    struct rpi_lifetimes x;
    uint64_t bound;
    rp_status status = rpi_lifetimes_from_record(record, 1, &x, err);
    if (status)
        return status;
    status = rpi_bound(&x, &bound, NULL, NULL, err);
    if (!status)
        status = rpi_plan(&x, &options, offsets, &result, err);
    rpi_lifetimes_finish(&x);
    return status;
}

static void host_memory_may_fail_anywhere(void **state)
{
    (void)state;
    const struct rp_host_memory failing = {failing_malloc, failing_realloc, failing_free, NULL};
    for (uint32_t streams = 1; streams <= 3; streams += 2) {
        struct random_shape shape = {.steps = 200, .streams = streams, .most = MOST};
        struct rpi_capture_record record;
        rp_status status = RP_ERROR_OUT_OF_HOST_MEMORY;
        random_record(&record, &shape, 3);
        for (long call = 0; status; call++) {
            struct rp_error err = {0};
            faults.left = call;
            faults.held = 0;
            rp_set_host_memory(&failing);
            status = bound_and_plan(&record, &err);
            rp_set_host_memory(NULL);
            assert_int_equal(faults.held, 0);
            assert_int_equal(err.status, status);
            assert_true(!status || status == RP_ERROR_OUT_OF_HOST_MEMORY);
            assert_true(call < 100000);
        }
        rpi_capture_record_finish(&record);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_layouts_are_valid),
        cmocka_unit_test(large_layouts_are_valid),
        cmocka_unit_test(small_problems_are_solved),
        cmocka_unit_test(small_orders_are_solved),
        cmocka_unit_test(heights_above_the_bound_are_proved),
        cmocka_unit_test(recorded_captures_reach_the_bound),
        cmocka_unit_test(pieces_are_independent),
        cmocka_unit_test(fixed_offsets_stay),
        cmocka_unit_test(plain_problems_are_solved),
        cmocka_unit_test(a_capacity_is_answered),
        cmocka_unit_test(the_same_problem_gets_the_same_layout),
        cmocka_unit_test(host_memory_may_fail_anywhere),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
