/* SPDX-License-Identifier: MIT
 *
 * Finding the iterations: the ranges that profiler.step() leaves (ProfilerStep#N), or, without
 * them, the period of the sequence of kernel names. The longest prefix or suffix of the sequence
 * that is at least twice its own period is taken, found with the failure function of Knuth, Morris
 * and Pratt in linear time: work at the trace's end, or at its beginning, may stand outside.
 */
#include "base/status.h"
#include "profile/advice.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const char step_prefix[] = "ProfilerStep#";

uint64_t rpi_advice_launch_time(const struct rpi_trace *trace, const struct rpi_event *work)
{
    assert(work->link == RPI_NO_LINK || work->link < trace->calls.count);
    return work->link == RPI_NO_LINK ? work->start : trace->calls.data[work->link].start;
}

uint32_t rpi_advice_iteration_at(const struct rp_advice *advice, uint64_t time)
{
    size_t low = 0, high = advice->iterations.count;
    while (low < high) { /* the first that ends after time */
        size_t middle = low + (high - low) / 2;
        if (advice->iterations.data[middle].end <= time)
            low = middle + 1;
        else
            high = middle;
    }
    return low < advice->iterations.count && advice->iterations.data[low].start <= time
               ? (uint32_t)low
               : RPI_NO_LINK;
}

static int by_start(const void *left, const void *right)
{
    const struct rpi_iteration *a = left, *b = right;
    return (a->start > b->start) - (a->start < b->start);
}

static bool add_iteration(struct rp_advice *advice, uint64_t start, uint64_t end)
{
    assert(start <= end);
    struct rpi_iteration iteration = {.start = start, .end = end};
    return rpi_vec_push(&advice->iterations, iteration);
}

/* ---- Steps --------------------------------------------------------------------------------- */

static bool find_steps(struct rp_advice *advice)
{
    const struct rpi_trace *trace = &advice->trace;
    for (size_t i = 0; i < trace->frames.count; i++) {
        const struct rpi_event *frame = &trace->frames.data[i];
        if (frame->kind != RPI_FRAME_ANNOTATION ||
            strncmp(rpi_name(trace, frame->name), step_prefix, sizeof step_prefix - 1) != 0)
            continue;
        if (!add_iteration(advice, frame->start, rpi_event_end(frame)))
            return false;
    }
    size_t count = advice->iterations.count;
    if (!count)
        return true;
    qsort(advice->iterations.data, count, sizeof *advice->iterations.data, by_start);
    for (size_t i = 0; i + 1 < count; i++) /* of several threads: they must not overlap */
        if (advice->iterations.data[i].end > advice->iterations.data[i + 1].start)
            advice->iterations.data[i].end = advice->iterations.data[i + 1].start;
    return true;
}

/* ---- Repetition ---------------------------------------------------------------------------- */

struct repetition {
    size_t first, count, period; /* kernels [first, first + count) repeat */
};

static uint32_t at(const uint32_t *names, size_t count, bool backwards, size_t i)
{
    assert(i < count);
    return backwards ? names[count - 1 - i] : names[i];
}

/* The longest prefix of names (read backwards: suffix) that is at least twice its period. fail is
 * scratch of count entries. */
static struct repetition find_prefix(const uint32_t *names, size_t count, bool backwards,
                                     uint32_t *fail)
{
    assert(count);
    struct repetition best = {0};
    size_t matched = 0;
    fail[0] = 0;
    for (size_t i = 1; i < count; i++) {
        while (matched && at(names, count, backwards, i) != at(names, count, backwards, matched))
            matched = fail[matched - 1];
        matched += at(names, count, backwards, i) == at(names, count, backwards, matched);
        fail[i] = (uint32_t)matched;
        size_t length = i + 1, period = length - matched;
        if (length >= 2 * period)
            best = (struct repetition){0, length, period};
    }
    if (backwards)
        best.first = count - best.count;
    return best;
}

/* Iterations that begin with every period-th launch. */
static bool cut_repetition(struct rp_advice *advice, const uint64_t *launches,
                           const struct repetition *r, size_t count)
{
    assert(r->period && r->first + r->count <= count);
    size_t whole = r->count / r->period;
    for (size_t i = 0; i < whole; i++) {
        size_t next = r->first + (i + 1) * r->period;
        uint64_t start = launches[r->first + i * r->period];
        uint64_t end = next < count ? launches[next] : launches[count - 1] + 1;
        if (end > start && !add_iteration(advice, start, end))
            return false;
    }
    advice->source = RPI_ITERATIONS_REPETITION;
    return true;
}

struct launch {
    uint64_t time;
    uint32_t name;
};

static int by_time(const void *left, const void *right)
{
    const struct launch *a = left, *b = right;
    return (a->time > b->time) - (a->time < b->time);
}

static bool split_launches(const struct rpi_trace *trace, uint64_t *times, uint32_t *names)
{
    struct launch *launches = rpi_reallocarray(NULL, trace->work.count, sizeof *launches);
    if (!launches)
        return false;
    for (size_t i = 0; i < trace->work.count; i++) {
        launches[i].time = rpi_advice_launch_time(trace, &trace->work.data[i]);
        launches[i].name = trace->work.data[i].name;
    }
    qsort(launches, trace->work.count, sizeof *launches, by_time);
    for (size_t i = 0; i < trace->work.count; i++) {
        times[i] = launches[i].time;
        names[i] = launches[i].name;
    }
    rpi_free(launches);
    return true;
}

static bool find_repetition(struct rp_advice *advice)
{
    size_t count = advice->trace.work.count;
    uint64_t *times = rpi_reallocarray(NULL, count, sizeof *times);
    uint32_t *names = rpi_reallocarray(NULL, count, sizeof *names);
    uint32_t *fail = rpi_reallocarray(NULL, count, sizeof *fail);
    bool ok = times && names && fail && split_launches(&advice->trace, times, names);
    if (ok) {
        struct repetition ahead = find_prefix(names, count, false, fail);
        struct repetition back = find_prefix(names, count, true, fail);
        struct repetition best = back.count >= ahead.count ? back : ahead;
        if (2 * best.count >= count && best.period && best.count / best.period >= 2)
            ok = cut_repetition(advice, times, &best, count);
    }
    rpi_free(times);
    rpi_free(names);
    rpi_free(fail);
    return ok;
}

/* ---- Assigning work ------------------------------------------------------------------------ */

static void extend(uint64_t *start, uint64_t *end, uint64_t from, uint64_t to)
{
    *start = from < *start ? from : *start;
    *end = to > *end ? to : *end;
}

static bool take_whole(struct rp_advice *advice)
{
    uint64_t start = UINT64_MAX, end = 0;
    const struct rpi_trace *trace = &advice->trace;
    for (size_t i = 0; i < trace->work.count; i++) {
        uint64_t at = rpi_advice_launch_time(trace, &trace->work.data[i]);
        extend(&start, &end, at, at + 1);
    }
    advice->source = RPI_ITERATIONS_NONE;
    return add_iteration(advice, start, end);
}

/* Whose work it is; of steps, only that whose call is in the trace. */
static uint32_t owner(const struct rp_advice *advice, const struct rpi_event *work)
{
    if (work->link == RPI_NO_LINK && advice->source == RPI_ITERATIONS_STEPS)
        return RPI_NO_LINK;
    return rpi_advice_iteration_at(advice, rpi_advice_launch_time(&advice->trace, work));
}

/* Counting sort of the work by iteration; within one it stays by start. */
static bool assign(struct rp_advice *advice)
{
    const struct rpi_events *work = &advice->trace.work;
    size_t count = advice->iterations.count;
    rpi_free(advice->order);
    advice->order = rpi_reallocarray(NULL, work->count, sizeof *advice->order);
    if (!advice->order)
        return false;
    for (size_t i = 0; i < work->count; i++) {
        uint32_t at = owner(advice, &work->data[i]);
        if (at != RPI_NO_LINK)
            advice->iterations.data[at].work_count++;
    }
    uint32_t next = 0;
    for (size_t i = 0; i < count; i++) {
        struct rpi_iteration *iteration = &advice->iterations.data[i];
        iteration->first_work = next;
        next += iteration->work_count;
        iteration->work_count = 0;
    }
    assert(next <= work->count);
    advice->unassigned = work->count - next;
    for (uint32_t i = 0; i < work->count; i++) {
        uint32_t at = owner(advice, &work->data[i]);
        if (at == RPI_NO_LINK) {
            advice->order[next++] = i;
            continue;
        }
        struct rpi_iteration *iteration = &advice->iterations.data[at];
        advice->order[iteration->first_work + iteration->work_count++] = i;
    }
    return true;
}

/* Iterations without work say nothing: a step that only waits, the profiler's last. */
static void drop_empty(struct rp_advice *advice)
{
    size_t kept = 0;
    for (size_t i = 0; i < advice->iterations.count; i++)
        if (advice->iterations.data[i].work_count)
            advice->iterations.data[kept++] = advice->iterations.data[i];
    advice->iterations.count = kept;
}

rp_status rpi_advice_find_iterations(struct rp_advice *advice, struct rp_error *err)
{
    advice->source = RPI_ITERATIONS_STEPS;
    bool ok = find_steps(advice) && assign(advice);
    drop_empty(advice);
    if (ok && !advice->iterations.count)
        ok = find_repetition(advice) && (advice->iterations.count || take_whole(advice)) &&
             assign(advice);
    drop_empty(advice);
    return ok ? RP_OK : rpi_error_host_memory(err, "advise", advice->trace.work.count);
}
