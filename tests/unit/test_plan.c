/* SPDX-License-Identifier: MIT
 *
 * Layouts against an independent checker, on random and on plain problems.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "memory/plan.h"
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
    int64_t lower[64], upper[64];
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
        cmocka_unit_test(fixed_offsets_stay),
        cmocka_unit_test(plain_problems_are_solved),
        cmocka_unit_test(a_capacity_is_answered),
        cmocka_unit_test(the_same_problem_gets_the_same_layout),
        cmocka_unit_test(host_memory_may_fail_anywhere),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
