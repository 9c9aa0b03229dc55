/* SPDX-License-Identifier: MIT
 *
 * Minimising, and meeting a capacity, by decisions: does everything fit under this ceiling?
 *
 * The bound itself is asked for first: where it can be met the proof is had at once. Otherwise the
 * ceiling is lowered between what is known to fit and what is not, with growing effort, until the
 * two meet or the time is over. One decision runs several orders in turn, each with more nodes than
 * the last time; with threads, different orders at once, and the first answer stops the others.
 */
#include "memory/plan_search.h"

#include "base/clock.h"
#include "base/hostmem.h"
#include "memory/plan_search_core.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#define MOST_THREADS 16
/* Above this many blocks with one unit a ceiling would not fit 32 bits: count in a coarser unit. */
#define MOST_UNITS (UINT64_C(1) << 28)

static const char *const orders[] = {"WAT", "TAW", "TWA", "AZW", "ZWT"};
#define ORDER_COUNT (sizeof orders / sizeof *orders)

struct worker {
    struct solver *solver; /* unowned */
    struct rpi_searcher *searcher;
    int32_t *offsets; /* [blocks] */
    unsigned index;
    uint64_t rounds; /* runs so far, so that each decision goes on with other seeds */
    enum rpi_search_answer answer;
};

struct solver {
    struct rpi_search_instance *instance;
    struct worker workers[MOST_THREADS];
    unsigned threads;
    int32_t ceiling;
    uint64_t deadline_ns;
    atomic_int stop;
};

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct solver *solver = worker->solver;
    uint64_t steps = 1000 + 8 * (uint64_t)solver->instance->blocks;
    struct rpi_search_limits limits = {.deadline_ns = solver->deadline_ns, .stop = &solver->stop};
    worker->answer = RPI_SEARCH_STOPPED;
    for (uint64_t round = 0;; round++) {
        uint64_t turn = round * solver->threads + worker->index;
        struct rpi_search_style style = {
            .keys = orders[turn % ORDER_COUNT],
            .seed = turn < 2 * ORDER_COUNT ? 0 : (uint32_t)turn,
            .low_first = (turn / ORDER_COUNT) & 1,
        };
        limits.steps = steps << (turn / (2 * ORDER_COUNT));
        worker->answer =
            rpi_searcher_run(worker->searcher, solver->ceiling, &style, &limits, worker->offsets);
        if (worker->answer != RPI_SEARCH_STOPPED)
            atomic_store(&solver->stop, 1);
        if (atomic_load(&solver->stop) || rpi_clock_ns() >= solver->deadline_ns)
            return NULL;
    }
}

/* The worker that has the answer; any one when the time was too short. */
static const struct worker *decide(struct solver *solver, int32_t ceiling, uint64_t deadline_ns)
{
    pthread_t threads[MOST_THREADS];
    unsigned started = 1;
    solver->ceiling = ceiling;
    solver->deadline_ns = deadline_ns;
    atomic_store(&solver->stop, 0);
    while (started < solver->threads &&
           pthread_create(&threads[started], NULL, work, &solver->workers[started]) == 0)
        started++;
    work(&solver->workers[0]);
    for (unsigned i = 1; i < started; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < started; i++)
        if (solver->workers[i].answer != RPI_SEARCH_STOPPED)
            return &solver->workers[i];
    return &solver->workers[0];
}

static void finish(struct solver *solver)
{
    for (unsigned i = 0; i < MOST_THREADS; i++) {
        rpi_searcher_destroy(solver->workers[i].searcher);
        rpi_free(solver->workers[i].offsets);
    }
    rpi_search_instance_destroy(solver->instance);
}

/* solver->instance stays NULL where the input is too large to be searched. */
static rp_status init(struct solver *solver, const struct rpi_lifetimes *lifetimes, uint64_t unit,
                      unsigned threads, struct rp_error *err)
{
    *solver = (struct solver){.threads = threads < MOST_THREADS ? threads : MOST_THREADS};
    rp_status status = rpi_search_instance_create(lifetimes, unit, &solver->instance, err);
    for (unsigned i = 0; status == RP_OK && solver->instance && i < solver->threads; i++) {
        struct worker *worker = &solver->workers[i];
        worker->solver = solver;
        worker->index = i;
        worker->offsets = rpi_calloc(lifetimes->count, sizeof *worker->offsets);
        if (!worker->offsets)
            status = rpi_error_host_memory(err, "plan search",
                                           lifetimes->count * sizeof *worker->offsets);
        else
            status = rpi_searcher_create(solver->instance, &worker->searcher, err);
    }
    if (status != RP_OK)
        finish(solver);
    return status;
}

struct progress {
    const struct rpi_lifetimes *lifetimes;
    uint64_t unit, end_ns;
    int32_t least; /* nothing below it exists */
    uint64_t *offsets, *upper;
    bool no_memory;
};

/* The highest ceiling, in units, that is below the best known height. */
static int32_t below_best(const struct progress *progress)
{
    uint64_t units = (*progress->upper - 1) / progress->unit;
    return units < MOST_UNITS ? (int32_t)units : (int32_t)MOST_UNITS;
}

static void take_layout(const struct rpi_search_instance *instance, const int32_t *offsets,
                        struct progress *progress)
{
    uint64_t height = 0;
    for (uint32_t b = 0; b < instance->blocks; b++) {
        uint64_t end =
            (uint64_t)offsets[b] * progress->unit + progress->lifetimes->bytes[instance->origin[b]];
        height = end > height ? end : height;
    }
    assert(height < *progress->upper);
    for (uint32_t b = 0; b < instance->blocks; b++)
        progress->offsets[instance->origin[b]] = (uint64_t)offsets[b] * progress->unit;
    *progress->upper = height;
}

/* Asks for one ceiling. True when it was answered. */
static bool try_ceiling(struct solver *solver, struct progress *progress, int32_t ceiling,
                        uint64_t deadline_ns)
{
    if (deadline_ns > progress->end_ns)
        deadline_ns = progress->end_ns;
    const struct worker *worker = decide(solver, ceiling, deadline_ns);
    switch (worker->answer) {
    case RPI_SEARCH_FOUND:
        take_layout(solver->instance, worker->offsets, progress);
        return true;
    case RPI_SEARCH_IMPOSSIBLE:
        progress->least = ceiling + 1;
        return true;
    case RPI_SEARCH_NO_MEMORY:
        progress->no_memory = true;
        return false;
    default:
        return false;
    }
}

static bool is_over(const struct progress *progress)
{
    return progress->no_memory || progress->least > below_best(progress) ||
           rpi_clock_ns() >= progress->end_ns;
}

/* Between `least` and the best known: the lower end first, then ever nearer to the best known. */
static void minimise(struct solver *solver, struct progress *progress)
{
    uint64_t slice = 50 * UINT64_C(1000000);
    while (!is_over(progress)) {
        int32_t unknown = progress->least; /* ceilings up to it were not answered in this round */
        bool answered = try_ceiling(solver, progress, unknown, rpi_clock_ns() + 2 * slice);
        while (!answered && unknown < below_best(progress) && !is_over(progress)) {
            int32_t middle = unknown + (below_best(progress) - unknown + 1) / 2;
            bool known = try_ceiling(solver, progress, middle, rpi_clock_ns() + slice);
            if (!known || progress->least > middle)
                unknown = middle;
        }
        slice = answered ? slice : 2 * slice;
    }
}

rp_status rpi_plan_search(const struct rpi_lifetimes *lifetimes,
                          const struct rpi_plan_options *options, uint64_t lower_bound,
                          uint64_t *io_offsets, uint64_t *io_upper, bool *out_exhausted,
                          struct rp_error *err)
{
    assert(lifetimes->lanes == 1 && options->threads >= 1);
    uint64_t start = rpi_clock_ns(), goal = options->capacity ? options->capacity : lower_bound;
    *out_exhausted = *io_upper <= lower_bound;
    if (lifetimes->count == 0 || *io_upper <= goal)
        return RP_OK;
    uint64_t exact = 0, total = 0;
    for (uint32_t i = 0; i < lifetimes->count; i++) {
        exact = gcd(exact, lifetimes->bytes[i]);
        total = lifetimes->bytes[i] > UINT64_MAX - total ? UINT64_MAX : total + lifetimes->bytes[i];
    }
    assert(exact > 0);
    uint64_t ceiling = *io_upper < total ? *io_upper : total;
    uint64_t unit = exact * (ceiling / exact / MOST_UNITS + 1);
    struct solver solver;
    rp_status status = init(&solver, lifetimes, unit, options->threads, err);
    if (status != RP_OK || !solver.instance)
        return status;
    struct progress progress = {
        .lifetimes = lifetimes,
        .unit = unit,
        .end_ns = start + (uint64_t)(options->budget_ms * 1e6),
        .least = (int32_t)(lower_bound / unit + (lower_bound % unit != 0)),
        .offsets = io_offsets,
        .upper = io_upper,
    };
    if (options->capacity) {
        int32_t units = (int32_t)(options->capacity / unit);
        try_ceiling(&solver, &progress, units, progress.end_ns);
        *out_exhausted = unit == exact && progress.least > units;
    } else {
        minimise(&solver, &progress);
        *out_exhausted = unit == exact && progress.least > below_best(&progress);
    }
    finish(&solver);
    return progress.no_memory
               ? rpi_error_host_memory(err, "plan search", sizeof(int32_t) * lifetimes->count)
               : RP_OK;
}
