/* SPDX-License-Identifier: MIT
 *
 * Minimising, and meeting a capacity, by decisions: does everything fit under this ceiling?
 *
 * The bound itself is asked for first: where it can be met the proof is had at once. Otherwise the
 * ceiling is lowered between what is known to fit and what is not, with growing effort, until the
 * two meet or the budget is spent. One decision runs several orders in turn, each with more nodes
 * than the last time; with threads, different orders at once, and the first answer stops the
 * others.
 */
#include "memory/plan/search.h"

#include "base/hostmem.h"
#include "memory/plan/search_core.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

#define MOST_THREADS 16
#define RUN_MOVES    256                 /* of the shortest run, and one a block */
#define FIRST_RUNS   2                   /* how many of those a ceiling gets at first */
#define MOST_UNITS   (UINT64_C(1) << 28) /* of a ceiling; higher ones are counted coarsely */

static const char *const orders[] = {"WAT", "TAW", "TWA", "AZW", "ZWT"};
#define ORDER_COUNT (sizeof orders / sizeof *orders)

struct worker {
    struct solver *solver; /* unowned */
    struct rpi_searcher *searcher;
    int32_t *offsets; /* [blocks] */
    unsigned index;
    uint32_t seed;  /* the last one used: each decision goes on with other ones */
    uint64_t spent; /* steps, for the decision at hand */
    enum rpi_search_answer answer;
};

struct solver {
    struct rpi_search_instance *instance;
    struct worker workers[MOST_THREADS];
    unsigned threads;
    uint64_t decisions;
    uint64_t run_moves; /* of the shortest run */
    uint64_t moves;     /* of each thread for the decision at hand */
    int32_t ceiling;
    struct rpi_meter *meter; /* the calling thread's */
    uint64_t end;            /* its reading at which to stop */
    double left_ms;          /* for the decision at hand, of each worker's own meter */
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

/* 1 1 2 1 1 2 4 1 1 2 ..: how much longer than the first run number i is, from 1, when nothing is
 * known of how long a lucky run takes (Luby, Sinclair and Zuckerman 1993). */
static uint64_t luby(uint64_t i)
{
    assert(i);
    uint64_t power = 1;
    while (2 * power - 1 < i)
        power *= 2;
    return i == 2 * power - 1 ? power : luby(i - (power - 1));
}

static struct rpi_search_style style_of(struct worker *worker, uint64_t round)
{
    assert(worker->index < worker->solver->threads);
    uint64_t turn = round * worker->solver->threads + worker->index;
    struct rpi_search_style style = {.keys = orders[turn % ORDER_COUNT],
                                     .look_ahead = turn / ORDER_COUNT % 4 != 3};
    if (turn >= ORDER_COUNT)
        style.seed = ++worker->seed * worker->solver->threads + worker->index;
    return style;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct solver *solver = worker->solver;
    struct rpi_meter meter = rpi_meter_start(solver->meter->timed);
    uint64_t left = solver->moves, end = rpi_meter_end(&meter, solver->left_ms);
    worker->answer = RPI_SEARCH_STOPPED;
    for (uint64_t round = 0; left > 0; round++) {
        uint64_t moves = solver->run_moves * luby(round + 1);
        struct rpi_search_style style = style_of(worker, round);
        struct rpi_search_limits limits = {.moves = moves < left ? moves : left,
                                           .meter = &meter,
                                           .end = end,
                                           .stop = &solver->stop};
        worker->answer =
            rpi_searcher_run(worker->searcher, solver->ceiling, &style, &limits, worker->offsets);
        if (worker->answer != RPI_SEARCH_STOPPED)
            atomic_store(&solver->stop, 1);
        if (atomic_load(&solver->stop) || rpi_meter_past(&meter, end))
            break;
        left -= limits.moves;
    }
    worker->spent = meter.steps;
    return NULL;
}

/* The worker that has the answer; any one when the moves or the budget were too few. */
static const struct worker *decide(struct solver *solver, int32_t ceiling, uint64_t moves)
{
    assert(solver->threads && solver->threads <= MOST_THREADS);
    pthread_t threads[MOST_THREADS];
    unsigned started = 1;
    solver->ceiling = ceiling;
    solver->decisions++;
    solver->moves = moves;
    solver->left_ms = rpi_meter_left_ms(solver->meter, solver->end);
    atomic_store(&solver->stop, 0);
    while (started < solver->threads &&
           pthread_create(&threads[started], NULL, work, &solver->workers[started]) == 0)
        started++;
    work(&solver->workers[0]);
    for (unsigned i = 1; i < started; i++)
        pthread_join(threads[i], NULL);
    rpi_meter_add(solver->meter, solver->workers[0].spent);
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
    *solver = (struct solver){.threads = threads < MOST_THREADS ? threads : MOST_THREADS,
                              .run_moves = RUN_MOVES + (uint64_t)lifetimes->count};
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

/* Sizes are counted in their greatest common divisor, *out_exact, or a multiple of it where a
 * height would not fit the search's integers. */
static uint64_t choose_unit(const struct rpi_lifetimes *lifetimes, uint64_t upper,
                            uint64_t *out_exact)
{
    uint64_t exact = 0, total = 0;
    for (uint32_t i = 0; i < lifetimes->count; i++) {
        uint64_t bytes = lifetimes->bytes[i];
        exact = gcd(exact, bytes);
        total = bytes > UINT64_MAX - total ? UINT64_MAX : total + bytes;
    }
    assert(exact > 0);
    *out_exact = exact;
    return exact * ((upper < total ? upper : total) / exact / MOST_UNITS + 1);
}

struct progress {
    const struct rpi_lifetimes *lifetimes;
    uint64_t unit;
    int32_t least; /* nothing below it exists */
    uint64_t *offsets, *upper;
    bool no_memory;
};

/* The highest ceiling, in units, that is below the best known height. */
static int32_t below_best(const struct progress *progress)
{
    assert(*progress->upper && progress->unit);
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

/* Asks for one ceiling, with so many moves of each thread. True when it was answered. */
static bool try_ceiling(struct solver *solver, struct progress *progress, int32_t ceiling,
                        uint64_t moves)
{
    const struct worker *worker = decide(solver, ceiling, moves);
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

static bool is_over(const struct solver *solver, const struct progress *progress)
{
    assert(solver->meter);
    return progress->no_memory || progress->least > below_best(progress) ||
           rpi_meter_past(solver->meter, solver->end);
}

/* Between `least` and the best known: the lower end first, then ever nearer to the best known. The
 * effort of each is counted in moves, so that the result does not depend on the machine. */
static void minimise(struct solver *solver, struct progress *progress)
{
    uint64_t moves = FIRST_RUNS * solver->run_moves;
    while (!is_over(solver, progress)) {
        int32_t unknown = progress->least; /* ceilings up to it were not answered in this round */
        bool answered = try_ceiling(solver, progress, unknown, 4 * moves);
        while (!answered && unknown < below_best(progress) && !is_over(solver, progress)) {
            int32_t middle = unknown + (below_best(progress) - unknown + 1) / 2;
            bool known = try_ceiling(solver, progress, middle, moves);
            if (!known || progress->least > middle)
                unknown = middle;
        }
        if (!answered)
            moves *= 2;
    }
}

static void fill_counts(const struct solver *solver, struct rpi_plan_search_counts *counts)
{
    *counts = (struct rpi_plan_search_counts){.decisions = solver->decisions};
    for (unsigned i = 0; i < solver->threads; i++)
        counts->nodes += rpi_searcher_nodes(solver->workers[i].searcher);
}

rp_status rpi_plan_search_counted(const struct rpi_lifetimes *lifetimes,
                                  const struct rpi_plan_options *options, uint64_t lower_bound,
                                  uint64_t *io_offsets, uint64_t *io_upper, bool *out_exhausted,
                                  struct rpi_plan_search_counts *out_counts, struct rp_error *err)
{
    assert(lifetimes->lanes == 1 && options->threads >= 1);
    struct rpi_meter own = rpi_meter_start(options->timed);
    uint64_t goal = options->capacity ? options->capacity : lower_bound;
    *out_counts = (struct rpi_plan_search_counts){0};
    *out_exhausted = *io_upper <= lower_bound;
    if (lifetimes->count == 0 || *io_upper <= goal)
        return RP_OK;
    uint64_t exact, unit = choose_unit(lifetimes, *io_upper, &exact);
    struct solver solver;
    rp_status status = init(&solver, lifetimes, unit, options->threads, err);
    if (status != RP_OK || !solver.instance)
        return status;
    solver.meter = options->meter ? options->meter : &own;
    solver.end = rpi_meter_end(solver.meter, options->budget_ms);
    struct progress progress = {
        .lifetimes = lifetimes,
        .unit = unit,
        .least = (int32_t)(lower_bound / unit + (lower_bound % unit != 0)),
        .offsets = io_offsets,
        .upper = io_upper,
    };
    int32_t highest;
    if (options->capacity) {
        highest = (int32_t)(options->capacity / unit);
        try_ceiling(&solver, &progress, highest, UINT64_MAX);
    } else {
        minimise(&solver, &progress);
        highest = below_best(&progress);
    }
    *out_exhausted = unit == exact && progress.least > highest;
    fill_counts(&solver, out_counts);
    finish(&solver);
    return progress.no_memory
               ? rpi_error_host_memory(err, "plan search", sizeof(int32_t) * lifetimes->count)
               : RP_OK;
}

rp_status rpi_plan_search(const struct rpi_lifetimes *lifetimes,
                          const struct rpi_plan_options *options, uint64_t lower_bound,
                          uint64_t *io_offsets, uint64_t *io_upper, bool *out_exhausted,
                          struct rp_error *err)
{
    struct rpi_plan_search_counts counts;
    return rpi_plan_search_counted(lifetimes, options, lower_bound, io_offsets, io_upper,
                                   out_exhausted, &counts, err);
}
