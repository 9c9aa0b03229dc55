/* SPDX-License-Identifier: MIT
 *
 * What execs take, read off simulated drivers (policy/exec_bytes.h): with one pool of memory or
 * several, each with steps of its own and somewhat in hand; alone on the device, or not.
 */
#include "policy/exec_bytes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB          ((uint64_t)1 << 20)
#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { MOST_POOLS = 5, DRIVERS = 1000 };

static const struct rpi_byte_prices like = {.path = 113664, .node = 2458};
static const struct {
    size_t charged, paths;
} shapes[RPI_EXEC_FIT_GRAPHS] = {{48, 1}, {4, 2}}; /* as byte_probe.c has them */

struct pool {
    double path, node, used, held;
};

struct simulated {
    uint64_t random;
    double path, node, step; /* of execs, of all pools */
    size_t pools;
    struct pool pool[MOST_POOLS];
    double taken;
    size_t execs, jump_at; /* the exec from which on somebody else has more, or less */
    double jump;
    double busy; /* somebody takes or gives so much at each exec */
};

static double draw(struct simulated *driver)
{
    uint64_t x = driver->random += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

/* Prices from half to twice an H200's, in shares that pools have by chance. */
static struct simulated make_driver(uint64_t seed, size_t pools)
{
    struct simulated driver = {.random = seed, .step = 2 * (double)MIB, .jump_at = SIZE_MAX};
    double paths = 0, nodes = 0;
    driver.path = (double)like.path * exp2(2 * draw(&driver) - 1);
    driver.node = (double)like.node * exp2(2 * draw(&driver) - 1);
    driver.pools = pools ? pools : 2 + (size_t)(draw(&driver) * (MOST_POOLS - 1));
    for (size_t k = 0; k < driver.pools; k++) {
        struct pool *pool = &driver.pool[k];
        paths += pool->path = 0.03 + draw(&driver);
        nodes += pool->node = 0.03 + draw(&driver);
        pool->used = draw(&driver) * driver.step;
        pool->held = driver.step;
    }
    for (size_t k = 0; k < driver.pools; k++) {
        driver.pool[k].path *= driver.path / paths;
        driver.pool[k].node *= driver.node / nodes;
    }
    return driver;
}

static uint64_t make_exec(struct simulated *driver, int shape)
{
    static const double all = 0x1p36;
    for (size_t k = 0; k < driver->pools; k++) {
        struct pool *pool = &driver->pool[k];
        pool->used +=
            pool->path * (double)shapes[shape].paths + pool->node * (double)shapes[shape].charged;
        for (; pool->used > pool->held; pool->held += driver->step)
            driver->taken += driver->step;
    }
    if (driver->execs++ == driver->jump_at)
        driver->taken += driver->jump;
    driver->taken += driver->busy * floor(draw(driver) * 1.1);
    return (uint64_t)(all - driver->taken);
}

struct outcome {
    const char *reason;
    enum rpi_exec_way way;
    struct rpi_byte_prices prices;
    size_t execs;
    double taken;
};

/* As rpi_byte_probe does. */
static struct outcome measure(struct simulated *driver)
{
    struct rpi_exec_fit_graph *fits = malloc(RPI_EXEC_FIT_GRAPHS * sizeof *fits);
    struct outcome outcome = {0};
    bool again = true;
    assert_non_null(fits);
    for (int way = 0; again && way < RPI_EXEC_WAYS; way++) {
        const struct rpi_exec_series *latest = NULL;
        memset(fits, 0, RPI_EXEC_FIT_GRAPHS * sizeof *fits);
        for (int i = 0; i < RPI_EXEC_FIT_GRAPHS * RPI_EXEC_FIT_TURNS; i++) {
            int g = i % RPI_EXEC_FIT_GRAPHS;
            struct rpi_exec_series *series = &fits[g].turns[i / RPI_EXEC_FIT_GRAPHS];
            fits[g].charged = shapes[g].charged;
            fits[g].paths = shapes[g].paths;
            rpi_exec_series_begin(series, (enum rpi_exec_way)way, make_exec(driver, g));
            while (!rpi_exec_series_add(series, make_exec(driver, g)))
                ;
            latest = series;
            if (rpi_exec_series_each(series) <= 0)
                break;
        }
        outcome.way = (enum rpi_exec_way)way;
        outcome.reason = rpi_exec_fit(fits, &like, &outcome.prices);
        again = outcome.reason && rpi_exec_series_may_be_line(latest);
    }
    free(fits);
    outcome.execs = driver->execs;
    outcome.taken = driver->taken;
    return outcome;
}

static double off(const struct simulated *driver, const struct outcome *outcome)
{
    return fmax(fabs((double)outcome->prices.path / driver->path - 1),
                fabs((double)outcome->prices.node / driver->node - 1));
}

/* Of many drivers: how many learned, how many of these are off by more, and the farthest. */
static void survey(size_t pools, double most, size_t *out_learned, size_t *out_off, double *out_far)
{
    *out_learned = *out_off = 0;
    *out_far = 0;
    for (uint64_t seed = 0; seed < DRIVERS; seed++) {
        struct simulated driver = make_driver(seed, pools);
        struct outcome outcome = measure(&driver);
        assert_true(outcome.taken <= (4 * 72 + 64) * (double)MIB);
        assert_true(outcome.execs < 4 * 1024);
        if (outcome.reason)
            continue;
        ++*out_learned;
        *out_off += off(&driver, &outcome) > most;
        *out_far = fmax(*out_far, off(&driver, &outcome));
    }
    print_message("%zu pools: %zu of %d learned, %zu off by more than %.2f, %.3f at most\n", pools,
                  *out_learned, DRIVERS, *out_off, most, *out_far);
}

static void drivers_of_several_pools_are_learned(void **state)
{
    (void)state;
    size_t learned, wrong;
    double far;
    for (size_t pools = 1; pools <= MOST_POOLS; pools++) {
        survey(pools, 0.05, &learned, &wrong, &far);
        assert_true(learned > DRIVERS * 9 / 10);
        assert_true(wrong < DRIVERS / 50);
        assert_true(far < 0.2);
    }
}

/* Whatever it has in hand. */
static void short_series_are_enough_for_one_pool(void **state)
{
    (void)state;
    size_t lines = 0;
    for (uint64_t seed = 0; seed < DRIVERS; seed++) {
        struct simulated driver = make_driver(seed, 1);
        struct outcome outcome = measure(&driver);
        lines += outcome.way == RPI_EXEC_LINE;
    }
    print_message("%zu of %d needed lines\n", lines, DRIVERS);
    assert_true(lines < DRIVERS / 20);
}

/* Once, wherever it falls. */
static void memory_that_others_take_does_not_mislead(void **state)
{
    (void)state;
    static const double jumps[] = {2, 4, 6, 20, 100, -2, -6, -100};
    size_t wrong = 0, told = 0, all = 0;
    for (size_t j = 0; j < COUNT(jumps); j++)
        for (size_t at = 5; at < 1200; at += 23, all++) {
            struct simulated driver = make_driver(at, 0);
            driver.jump_at = at;
            driver.jump = jumps[j] * (double)MIB;
            struct outcome outcome = measure(&driver);
            told += outcome.reason != NULL;
            wrong += !outcome.reason && off(&driver, &outcome) > 0.12;
        }
    print_message("%zu of %zu told, %zu off by more than 0.12\n", told, all, wrong);
    assert_true(told > all / 5);
    assert_true(wrong <= all / 100);
}

/* All the time. */
static void a_busy_neighbour_is_told(void **state)
{
    (void)state;
    size_t told = 0;
    for (uint64_t seed = 0; seed < DRIVERS / 10; seed++) {
        struct simulated driver = make_driver(seed, 0);
        driver.busy = (seed % 2 ? 8 : 32) * (double)MIB;
        struct outcome outcome = measure(&driver);
        told += outcome.reason != NULL;
    }
    print_message("%zu of %d told\n", told, DRIVERS / 10);
    assert_true(told >= DRIVERS / 10 * 9 / 10);
}

static void what_takes_nothing_ends_soon(void **state)
{
    (void)state;
    struct simulated driver = make_driver(1, 1);
    driver.pool[0].path = driver.pool[0].node = 0;
    struct outcome outcome = measure(&driver);
    assert_non_null(outcome.reason);
    assert_true(outcome.execs < 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drivers_of_several_pools_are_learned),
        cmocka_unit_test(short_series_are_enough_for_one_pool),
        cmocka_unit_test(memory_that_others_take_does_not_mislead),
        cmocka_unit_test(a_busy_neighbour_is_told),
        cmocka_unit_test(what_takes_nothing_ends_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
