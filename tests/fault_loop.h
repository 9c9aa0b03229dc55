/* SPDX-License-Identifier: MIT
 *
 * The fault loop: a scenario is run with call 0 made to fail, then call 1, and so on until no call
 * is left to fail. After each run nothing may be left over, and the scenario must work when it is
 * run again without a fault. Two kinds of call: those of a driver, through the fault wrapper, and
 * allocations of host memory, through rp_set_host_memory.
 *
 *     struct rpt_scenario scenario = {.run = make_and_destroy, .left = what_is_left};
 *     assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_OUT_OF_MEMORY) > 0);
 *     assert_true(rpt_memory_fault_loop(rpi_driver_host(), &scenario) > 0);
 *
 * Functions return how many runs met a fault, or -1 with the reason on standard error.
 */
#ifndef TESTS_FAULT_LOOP_H
#define TESTS_FAULT_LOOP_H

#include "driver/driver.h"
#include "driver/host/host.h"
#include "reprise.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct rpt_scenario {
    /* Does something with the driver and gives back all that it took, whether it worked or not.
     * True when it worked. */
    bool (*run)(const struct rp_driver *driver, void *user);
    /* What is left over that was not there before the loop, or NULL. May be NULL itself. */
    const char *(*left)(void *user);
    void *user;
    uint64_t limit; /* most runs; 0: 100,000 */
    uint64_t step;  /* from one call that fails to the next; 0: 1, each call in its turn */
};

/* The step of long loops. Under the thread sanitizer, which looks for races and is many times as
 * slow, every seventh failure; all are had without it. */
#ifdef __SANITIZE_THREAD__
#define RPT_LONG_LOOP_STEP 7
#else
#define RPT_LONG_LOOP_STEP 1
#endif

static inline uint64_t rpt_next_call(const struct rpt_scenario *scenario, uint64_t call)
{
    return call + (scenario->step ? scenario->step : 1);
}

static inline bool rpt_run_is_clean(const struct rpt_scenario *scenario, const char *kind,
                                    uint64_t call, const char *what, bool worked, bool faulted)
{
    const char *left = scenario->left ? scenario->left(scenario->user) : NULL;
    if (left)
        fprintf(stderr, "%s %" PRIu64 " (%s) failed: left over: %s\n", kind, call, what, left);
    if (!worked && !faulted)
        fprintf(stderr, "%s %" PRIu64 ": no call was made to fail, but the scenario did\n", kind,
                call);
    return !left && (worked || faulted);
}

static inline bool rpt_works_again(const struct rp_driver *driver,
                                   const struct rpt_scenario *scenario, const char *kind,
                                   uint64_t call)
{
    bool worked = scenario->run(driver, scenario->user);
    if (!worked)
        fprintf(stderr, "after %s %" PRIu64 " failed, the scenario does not work any more\n", kind,
                call);
    return worked;
}

/* Each driver call returns `result` in its turn. */
static inline int64_t rpt_fault_loop(const struct rp_driver *inner,
                                     const struct rpt_scenario *scenario, CUresult result)
{
    const struct rp_driver *driver = rpi_driver_fault(inner);
    uint64_t limit = scenario->limit ? scenario->limit : 100000;
    int64_t faults = 0;
    for (uint64_t call = 0; call < limit; call = rpt_next_call(scenario, call)) {
        rpi_driver_fault_at(call, result);
        bool worked = scenario->run(driver, scenario->user);
        uint64_t calls = rpi_driver_fault_calls();
        const char *hit = rpi_driver_fault_hit();
        rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
        if (!rpt_run_is_clean(scenario, "driver call", call, hit ? hit : "none", worked, hit) ||
            !rpt_works_again(driver, scenario, "driver call", call))
            return -1;
        faults += hit != NULL;
        if (calls <= call)
            return faults;
    }
    fprintf(stderr, "the scenario did not end within %" PRIu64 " runs\n", limit);
    return -1;
}

/* ---- Host memory --------------------------------------------------------------------------- */

/* The host driver's race check keeps what it saw, so that no run would hold what the one before
 * held: off, until rpi_host_configure is given what this returns. */
static inline struct rpi_host_options rpt_ignore_races(void)
{
    struct rpi_host_options before, options;
    rpi_host_options(&before);
    options = before;
    options.check_races = false;
    rpi_host_configure(&options);
    return before;
}

struct rpt_failing_memory {
    _Atomic uint64_t calls, fail_at;
    _Atomic int64_t held; /* allocations not freed; below 0 for those from before */
};

static inline bool rpt_allocation_fails(struct rpt_failing_memory *memory)
{
    return atomic_fetch_add(&memory->calls, 1) == atomic_load(&memory->fail_at);
}

static inline void *rpt_failing_malloc(size_t bytes, void *user)
{
    struct rpt_failing_memory *memory = user;
    void *pointer = rpt_allocation_fails(memory) ? NULL : malloc(bytes);
    atomic_fetch_add(&memory->held, pointer != NULL);
    return pointer;
}

static inline void *rpt_failing_realloc(void *pointer, size_t bytes, void *user)
{
    struct rpt_failing_memory *memory = user;
    bool fresh = !pointer;
    void *moved = rpt_allocation_fails(memory) ? NULL : realloc(pointer, bytes);
    atomic_fetch_add(&memory->held, fresh && moved);
    return moved;
}

static inline void rpt_counting_free(void *pointer, void *user)
{
    struct rpt_failing_memory *memory = user;
    atomic_fetch_sub(&memory->held, pointer != NULL);
    free(pointer);
}

/* Each allocation fails in its turn. After the run without a fault that follows as many are held as
 * before the loop: what a driver keeps from run to run does not count, what was lost does. */
static inline int64_t rpt_memory_fault_loop(const struct rp_driver *driver,
                                            const struct rpt_scenario *scenario)
{
    struct rpt_failing_memory memory = {.fail_at = UINT64_MAX};
    const struct rp_host_memory functions = {rpt_failing_malloc, rpt_failing_realloc,
                                             rpt_counting_free, &memory};
    uint64_t limit = scenario->limit ? scenario->limit : 100000;
    int64_t faults = -1;
    rp_set_host_memory(&functions);
    /* Twice: the first run may free what was allocated before allocations were counted. */
    bool clean = true;
    for (int warm = 0; warm < 2 && clean; warm++)
        clean = scenario->run(driver, scenario->user);
    int64_t held = atomic_load(&memory.held);
    for (uint64_t call = 0; clean && faults < 0 && call < limit;
         call = rpt_next_call(scenario, call)) {
        atomic_store(&memory.calls, 0);
        atomic_store(&memory.fail_at, call);
        bool worked = scenario->run(driver, scenario->user);
        bool faulted = atomic_load(&memory.calls) > call;
        atomic_store(&memory.fail_at, UINT64_MAX);
        clean = rpt_run_is_clean(scenario, "allocation", call, "host memory", worked, faulted) &&
                rpt_works_again(driver, scenario, "allocation", call);
        if (atomic_load(&memory.held) != held) {
            fprintf(stderr,
                    "allocation %" PRIu64 " failed: %" PRId64 " are held, not %" PRId64 "\n", call,
                    atomic_load(&memory.held), held);
            clean = false;
        }
        if (!faulted)
            faults = (int64_t)call;
    }
    rp_set_host_memory(NULL);
    return clean ? faults : -1;
}

#endif
