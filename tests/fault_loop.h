/* SPDX-License-Identifier: MIT
 *
 * The fault loop: a scenario is run with one of its calls made to fail, then with another, until no
 * call is left to fail. After each run nothing may be left over. After each fourth the scenario must
 * work when it is run without a fault. Two kinds of call: those of a driver, through the fault
 * wrapper, and allocations of host memory, through rp_set_host_memory.
 *
 * A loop in a scenario makes the same call a thousand times, whose failures all go the same way up.
 * So a run without a fault notes the path of each call: the functions that stand on its stack. Of
 * the calls with one path two are made to fail: the first, when least is there to be undone, and the
 * last, when most is.
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

#include <execinfo.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rpt_scenario {
    /* Does something with the driver and gives back all that it took, whether it worked or not.
     * True when it worked. */
    bool (*run)(const struct rp_driver *driver, void *user);
    /* What is left over that was not there before the loop, or NULL. May be NULL itself. */
    const char *(*left)(void *user);
    void *user;
    uint64_t step; /* of the calls to fail, every step-th; 0: 1, each */
};

/* The step of long loops. Under the thread sanitizer, which looks for races and is many times as
 * slow, every seventh failure; all are had without it. */
#ifdef __SANITIZE_THREAD__
#define RPT_LONG_LOOP_STEP 7
#else
#define RPT_LONG_LOOP_STEP 1
#endif

/* ---- The calls to fail --------------------------------------------------------------------- */

enum { RPT_MOST_CALLS = 100000, RPT_FAULTS_UNTIL_AGAIN = 4 };

/* The calls of a run without a fault. Any thread notes; the rest is for one. */
static struct {
    uint64_t paths[RPT_MOST_CALLS]; /* 0: can't be made to fail */
    uint64_t order[RPT_MOST_CALLS];
    bool chosen[RPT_MOST_CALLS];
    uint64_t count;
} rpt_seen;

static inline void rpt_note_call(uint64_t call, bool fails)
{
    void *frames[48];
    uint64_t path = 14695981039346656037u;
    if (call >= RPT_MOST_CALLS || !fails)
        return;
    for (int i = backtrace(frames, 48) - 1; i >= 0; i--)
        path = (path ^ (uintptr_t)frames[i]) * 1099511628211u;
    rpt_seen.paths[call] = path ? path : 1;
}

static inline int rpt_by_path(const void *a, const void *b)
{
    uint64_t i = *(const uint64_t *)a, j = *(const uint64_t *)b;
    uint64_t x = rpt_seen.paths[i], y = rpt_seen.paths[j];
    return x != y ? (x > y) - (x < y) : (i > j) - (i < j);
}

/* Of the `calls` that were noted. */
static inline void rpt_choose_calls(uint64_t calls)
{
    rpt_seen.count = calls < RPT_MOST_CALLS ? calls : RPT_MOST_CALLS;
    for (uint64_t i = 0; i < rpt_seen.count; i++) {
        rpt_seen.order[i] = i;
        rpt_seen.chosen[i] = false;
    }
    qsort(rpt_seen.order, rpt_seen.count, sizeof *rpt_seen.order, rpt_by_path);
    const uint64_t *order = rpt_seen.order, *paths = rpt_seen.paths;
    for (uint64_t i = 0; i < rpt_seen.count; i++) {
        uint64_t path = paths[order[i]];
        bool first = i == 0 || path != paths[order[i - 1]];
        bool last = i + 1 == rpt_seen.count || path != paths[order[i + 1]];
        rpt_seen.chosen[order[i]] = path && (first || last);
    }
}

/* The next call to fail, from `call` on. A run may make more calls than the one that was noted. */
static inline uint64_t rpt_next_call(const struct rpt_scenario *scenario, uint64_t call)
{
    uint64_t left = scenario->step ? scenario->step : 1;
    for (; call < rpt_seen.count; call++)
        if (rpt_seen.chosen[call] && --left == 0)
            break;
    return call;
}

/* ---- Driver calls -------------------------------------------------------------------------- */

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
        fprintf(stderr,
                "after %s %" PRIu64 ", or one of the last few before it, failed, the scenario does "
                "not work any more\n",
                kind, call);
    return worked;
}

/* Driver calls return `result`, one in each run. */
static inline int64_t rpt_fault_loop(const struct rp_driver *inner,
                                     const struct rpt_scenario *scenario, CUresult result)
{
    const struct rp_driver *driver = rpi_driver_fault(inner);
    int64_t faults = 0;
    memset(rpt_seen.paths, 0, sizeof rpt_seen.paths);
    rpi_driver_fault_watch(rpt_note_call);
    bool clean = rpt_works_again(driver, scenario, "no driver call", 0);
    rpi_driver_fault_watch(NULL);
    rpt_choose_calls(rpi_driver_fault_calls());
    for (uint64_t call = rpt_next_call(scenario, 0); clean && call < RPT_MOST_CALLS;
         call = rpt_next_call(scenario, call + 1)) {
        rpi_driver_fault_at(call, result);
        bool worked = scenario->run(driver, scenario->user);
        uint64_t calls = rpi_driver_fault_calls();
        const char *hit = rpi_driver_fault_hit();
        rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
        clean = rpt_run_is_clean(scenario, "driver call", call, hit ? hit : "none", worked, hit) &&
                (!hit || ++faults % RPT_FAULTS_UNTIL_AGAIN ||
                 rpt_works_again(driver, scenario, "driver call", call));
        if (clean && calls <= call && call >= rpt_seen.count)
            return faults;
    }
    if (clean)
        fprintf(stderr, "the scenario has more than %d calls\n", RPT_MOST_CALLS);
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
    bool noting;          /* the calls, while none fails */
    _Atomic int64_t held; /* allocations not freed; below 0 for those from before */
};

static inline bool rpt_allocation_fails(struct rpt_failing_memory *memory)
{
    uint64_t call = atomic_fetch_add(&memory->calls, 1);
    if (memory->noting)
        rpt_note_call(call, true);
    return call == atomic_load(&memory->fail_at);
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

/* Runs it twice, as the first run may free what was allocated before allocations were counted, and
 * notes the calls of the second. */
static inline bool rpt_note_allocations(const struct rp_driver *driver,
                                        const struct rpt_scenario *scenario,
                                        struct rpt_failing_memory *memory)
{
    memset(rpt_seen.paths, 0, sizeof rpt_seen.paths);
    bool clean = scenario->run(driver, scenario->user);
    atomic_store(&memory->calls, 0);
    memory->noting = true;
    clean = clean && scenario->run(driver, scenario->user);
    memory->noting = false;
    rpt_choose_calls(atomic_load(&memory->calls));
    return clean;
}

/* Allocations fail, one in each run. After a run without a fault as many are held as before the loop: what a driver keeps from run to run does not count, what was lost does. */
static inline int64_t rpt_memory_fault_loop(const struct rp_driver *driver,
                                            const struct rpt_scenario *scenario)
{
    struct rpt_failing_memory memory = {.fail_at = UINT64_MAX};
    const struct rp_host_memory functions = {rpt_failing_malloc, rpt_failing_realloc,
                                             rpt_counting_free, &memory};
    int64_t faults = 0;
    rp_set_host_memory(&functions);
    bool ended = false, clean = rpt_note_allocations(driver, scenario, &memory);
    int64_t held = atomic_load(&memory.held);
    for (uint64_t call = rpt_next_call(scenario, 0); clean && !ended && call < RPT_MOST_CALLS;
         call = rpt_next_call(scenario, call + 1)) {
        atomic_store(&memory.calls, 0);
        atomic_store(&memory.fail_at, call);
        bool worked = scenario->run(driver, scenario->user);
        bool faulted = atomic_load(&memory.calls) > call;
        atomic_store(&memory.fail_at, UINT64_MAX);
        clean = rpt_run_is_clean(scenario, "allocation", call, "host memory", worked, faulted) &&
                (!faulted || ++faults % RPT_FAULTS_UNTIL_AGAIN ||
                 rpt_works_again(driver, scenario, "allocation", call));
        bool again = !faulted || faults % RPT_FAULTS_UNTIL_AGAIN == 0; /* the last run was whole */
        if (again && atomic_load(&memory.held) != held) {
            fprintf(stderr,
                    "allocation %" PRIu64 " failed, and the last few before it: %" PRId64
                    " are held, not %" PRId64 "\n",
                    call, atomic_load(&memory.held), held);
            clean = false;
        }
        ended = !faulted && call >= rpt_seen.count;
    }
    rp_set_host_memory(NULL);
    return clean && ended ? faults : -1;
}

#endif
