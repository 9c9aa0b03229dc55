/* SPDX-License-Identifier: MIT
 *
 * Programs built with another header than the library's: options and infos that are shorter or
 * longer than its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/sized.h"
#include "reprise_heap.h"
#include "reprise_tools.h"

struct options {
    size_t size;
    int64_t first, second;
};

struct newer {
    struct options known;
    int64_t third;
};

static rp_status take(struct options *chosen, const void *options, struct rp_error *err)
{
    *chosen = (struct options){sizeof *chosen, 10, 20};
    return rpi_take_options(chosen, sizeof *chosen, options, "test", "TEST_INIT", err);
}

static void test_options_of_any_header(void **state)
{
    (void)state;
    struct options chosen;
    struct rp_error err;
    struct newer given = {{sizeof given, 1, 2}, 0};

    assert_int_equal(take(&chosen, NULL, &err), RP_OK);
    assert_int_equal(chosen.first, 10);

    assert_int_equal(take(&chosen, &given, &err), RP_OK);
    assert_int_equal(chosen.size, sizeof chosen);
    assert_int_equal(chosen.first, 1);
    assert_int_equal(chosen.second, 2);

    given.third = 3;
    assert_int_equal(take(&chosen, &given, &err), RP_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "TEST_INIT"));
    assert_int_equal(chosen.first, 10);

    given.known.size = offsetof(struct options, second);
    assert_int_equal(take(&chosen, &given, &err), RP_OK);
    assert_int_equal(chosen.size, sizeof chosen);
    assert_int_equal(chosen.first, 1);
    assert_int_equal(chosen.second, 20);

    static const size_t wrong[] = {0, 7, 4097, (size_t)-1};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        given.known.size = wrong[i];
        assert_int_equal(take(&chosen, &given, &err), RP_ERROR_INVALID_ARGUMENT);
    }
}

static void test_infos_of_any_header(void **state)
{
    (void)state;
    const struct options whole = {0, 1, 2};
    struct newer out;
    memset(&out, 0xff, sizeof out);
    out.known.size = offsetof(struct options, second);
    assert_true(rpi_give(&out, &whole, sizeof whole, "test"));
    assert_int_equal(out.known.first, 1);
    assert_int_equal(out.known.second, -1);
    out.known.size = sizeof out;
    assert_true(rpi_give(&out, &whole, sizeof whole, "test"));
    assert_int_equal(out.known.size, sizeof out);
    assert_int_equal(out.known.second, 2);
    assert_int_equal(out.third, 0);
    rpi_give_nothing(&out);
    assert_int_equal(out.known.size, sizeof out);
    assert_int_equal(out.known.second, 0);
}

static int told;

static void listen(enum rp_log_level level, const char *message, void *user)
{
    (void)user;
    told += level == RP_LOG_ERROR && strstr(message, "rp_test: the struct's size is") != NULL;
}

static void test_a_size_that_was_not_set(void **state)
{
    (void)state;
    const struct options whole = {0, 1, 2};
    static const size_t wrong[] = {0, 4, 17, 8192, (size_t)-1};
    struct rp_error err;
    rp_set_log(listen, NULL, RP_LOG_ERROR);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct options out = {wrong[i], 7, 8};
        assert_false(rpi_give(&out, &whole, sizeof whole, "rp_test"));
        assert_int_equal(rpi_hand_out(&out, &whole, sizeof whole, "rp_test", &err),
                         RP_ERROR_INVALID_ARGUMENT);
        rpi_give_nothing(&out);
        assert_int_equal(out.size, wrong[i]);
        assert_int_equal(out.first, 7);
        assert_int_equal(out.second, 8);
    }
    rp_set_log(NULL, NULL, RP_LOG_ERROR);
    assert_int_equal(told, sizeof wrong / sizeof *wrong);
}

#define ENDS_WITH(type, field)                                                                     \
    _Static_assert(offsetof(struct type, field) + sizeof(((struct type *)0)->field) ==             \
                       sizeof(struct type),                                                        \
                   "padding at the end of " #type)
ENDS_WITH(rp_device_options, exec_budget_bytes);
ENDS_WITH(rp_pool_options, reserved);
ENDS_WITH(rp_capture_options, in_use);
ENDS_WITH(rp_heap_options, roundup_power2_divisions);
ENDS_WITH(rp_heap_history_options, keep);
ENDS_WITH(rp_plan_options, budget_steps);
ENDS_WITH(rp_advise_options, eager_us);

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_of_any_header),
        cmocka_unit_test(test_infos_of_any_header),
        cmocka_unit_test(test_a_size_that_was_not_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
