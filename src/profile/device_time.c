/* SPDX-License-Identifier: MIT
 *
 * What each iteration gives the device to do, and how long that takes at least.
 *
 * The critical chain is the work laid out as a graph would run it: streams run side by side, and
 * join where the host made one wait for another (cudaStreamWaitEvent). The trace does not tell
 * which stream waited for which, so every wait is taken as a barrier: between two waits the longest
 * stream counts. Where the observed union of all work is shorter, that is taken.
 */
#include "base/status.h"
#include "profile/advice.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT_NS = 50000, MOST_CELLS = 1 << 20 };

/* ---- Counting the CPU's events ------------------------------------------------------------- */

static void count_frames(struct rp_advice *advice)
{
    for (size_t i = 0; i < advice->trace.frames.count; i++) {
        const struct rpi_event *frame = &advice->trace.frames.data[i];
        uint32_t at = rpi_advice_iteration_at(advice, frame->start);
        if (at == RPI_NO_LINK)
            continue;
        advice->iterations.data[at].ops += frame->kind == RPI_FRAME_OP;
        advice->iterations.data[at].python_frames += frame->kind == RPI_FRAME_PYTHON;
    }
}

static bool is_wait_of_stream(const char *name)
{
    return !strncmp(name, "cudaStreamWaitEvent", 19) || !strncmp(name, "cuStreamWaitEvent", 17);
}

static bool is_graph_launch(const char *name)
{
    return !strncmp(name, "cudaGraphLaunch", 15) || !strncmp(name, "cuGraphLaunch", 13);
}

struct waits {
    RPI_VEC(uint64_t);
};

static void count_calls(struct rp_advice *advice)
{
    const struct rpi_trace *trace = &advice->trace;
    for (size_t i = 0; i < trace->calls.count; i++) {
        const struct rpi_event *call = &trace->calls.data[i];
        uint32_t at = rpi_advice_iteration_at(advice, call->start);
        if (at == RPI_NO_LINK)
            continue;
        struct rpi_iteration *iteration = &advice->iterations.data[at];
        iteration->calls++;
        const char *name = rpi_name(trace, call->name);
        iteration->graph_launches += is_graph_launch(name);
        if (strstr(name, "Synchronize"))
            iteration->wait_ns += call->span;
    }
}

/* ---- Busy time ----------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

static void measure_busy(struct rp_advice *advice, struct rpi_iteration *iteration)
{
    assert(iteration->first_work + iteration->work_count <= advice->trace.work.count);
    uint64_t until = 0;
    for (uint32_t i = 0; i < iteration->work_count; i++) {
        const struct rpi_event *work =
            &advice->trace.work.data[advice->order[iteration->first_work + i]];
        uint64_t end = rpi_event_end(work), start = work->start;
        if (!i)
            iteration->span_ns = start;
        iteration->busy_ns += end > until ? end - (start > until ? start : until) : 0;
        until = end > until ? end : until;
        iteration->work_ns += work->span;
        iteration->kernels += work->kind == RPI_WORK_KERNEL;
        iteration->copies += work->kind == RPI_WORK_COPY;
        iteration->fills += work->kind == RPI_WORK_FILL;
        iteration->short_kernels += work->kind == RPI_WORK_KERNEL && work->span < SHORT_NS;
        iteration->sequence = mix(iteration->sequence, work->name);
        struct rpi_stream_use *use = &advice->stream_use.data[work->lane];
        use->busy_ns += work->span;
        use->work++;
    }
    iteration->span_ns = until - iteration->span_ns;
}

/* ---- The critical chain -------------------------------------------------------------------- */

struct cell {
    uint64_t ns;
    size_t nodes;
};

static int compare_times(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* All stream waits of the trace, in order. */
static bool gather_waits(const struct rpi_trace *trace, struct waits *waits)
{
    for (size_t i = 0; i < trace->calls.count; i++)
        if (is_wait_of_stream(rpi_name(trace, trace->calls.data[i].name)) &&
            !rpi_vec_push(waits, trace->calls.data[i].start))
            return false;
    if (waits->count)
        qsort(waits->data, waits->count, sizeof *waits->data, compare_times);
    return true;
}

/* How many waits began before time. */
static size_t waits_before(const struct waits *waits, uint64_t time)
{
    size_t low = 0, high = waits->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (waits->data[middle] < time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* cells: of segments * streams, zeroed. */
static void add_chains(const struct rp_advice *advice, struct rpi_iteration *iteration,
                       const struct waits *waits, size_t first, size_t segments, struct cell *cells)
{
    const struct rpi_trace *trace = &advice->trace;
    size_t streams = trace->streams.count;
    for (uint32_t i = 0; i < iteration->work_count; i++) {
        const struct rpi_event *work = &trace->work.data[advice->order[iteration->first_work + i]];
        size_t segment = waits_before(waits, rpi_advice_launch_time(trace, work)) - first;
        assert(segment < segments && work->lane < streams);
        struct cell *cell = &cells[segment * streams + work->lane];
        cell->ns += work->span;
        cell->nodes++;
    }
    for (size_t s = 0; s < segments; s++) {
        const struct cell *longest = &cells[s * streams];
        for (size_t lane = 1; lane < streams; lane++)
            if (cells[s * streams + lane].ns > longest->ns)
                longest = &cells[s * streams + lane];
        iteration->critical_ns += longest->ns;
        iteration->critical_nodes += longest->nodes;
    }
}

static bool measure_chain(struct rp_advice *advice, struct rpi_iteration *iteration,
                          const struct waits *waits)
{
    assert(iteration->start <= iteration->end);
    size_t first = waits_before(waits, iteration->start);
    size_t segments = waits_before(waits, iteration->end) - first + 1;
    size_t streams = advice->trace.streams.count;
    iteration->critical_ns = iteration->critical_nodes = 0;
    if (segments * streams <= MOST_CELLS) {
        struct cell *cells = rpi_calloc(segments * streams, sizeof *cells);
        if (!cells)
            return false;
        add_chains(advice, iteration, waits, first, segments, cells);
        rpi_free(cells);
    }
    if (!iteration->critical_ns || iteration->critical_ns > iteration->busy_ns) {
        iteration->critical_ns = iteration->busy_ns;
        iteration->critical_nodes = iteration->work_count;
    }
    return true;
}

/* ---- Time without the profiler ------------------------------------------------------------- */

static double eager_us(const struct rp_advice *advice, const struct rpi_iteration *i)
{
    const struct rpi_model *m = &rpi_advice_model;
    double device = (double)i->busy_ns / 1000 + (double)i->critical_nodes * m->eager_gap_us;
    if (advice->source == RPI_ITERATIONS_NONE && !advice->trace.calls.count)
        return (double)i->span_ns / 1000;
    double elapsed = (double)(i->end - i->start) / 1000;
    double added = (double)i->ops * m->op_us + (double)i->calls * m->call_us +
                   (double)i->python_frames * m->python_us;
    double wait = (double)i->wait_ns / 1000;
    double cpu = elapsed - wait - added;
    cpu = cpu > 0.2 * (elapsed - wait) ? cpu : 0.2 * (elapsed - wait);
    cpu += wait < device ? wait : device;
    return cpu > device ? cpu : device;
}

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The iteration at the lower quartile: what disturbs one (the profiler's start, a wait for earlier
 * work) only makes it longer. */
static bool choose_typical(struct rp_advice *advice)
{
    size_t count = advice->iterations.count;
    double *times = rpi_reallocarray(NULL, count, sizeof *times);
    if (!times)
        return false;
    for (size_t i = 0; i < count; i++)
        times[i] = advice->iterations.data[i].eager_us;
    qsort(times, count, sizeof *times, compare_doubles);
    double wanted = times[(count - 1) / 4];
    rpi_free(times);
    advice->same_sequence = true;
    for (size_t i = count; i-- > 0;) {
        if (advice->iterations.data[i].eager_us == wanted)
            advice->typical = i;
        advice->same_sequence &=
            advice->iterations.data[i].sequence == advice->iterations.data[0].sequence;
    }
    return true;
}

static bool tally_kernels(struct rp_advice *advice)
{
    struct rpi_tally tally = {0};
    bool ok = true;
    size_t assigned = advice->trace.work.count - advice->unassigned;
    for (size_t i = 0; ok && i < assigned; i++) {
        const struct rpi_event *work = &advice->trace.work.data[advice->order[i]];
        ok = rpi_tally_add(&tally, work->name, work->span);
    }
    rpi_tally_finish(&tally, advice->kernels, RPI_MOST_SHARES);
    return ok;
}

rp_status rpi_advice_measure_device(struct rp_advice *advice, struct rp_error *err)
{
    struct waits waits = {0};
    size_t streams = advice->trace.streams.count;
    bool ok = rpi_vec_reserve(&advice->stream_use, streams) && gather_waits(&advice->trace, &waits);
    if (ok) {
        memset(advice->stream_use.data, 0, streams * sizeof *advice->stream_use.data);
        advice->stream_use.count = streams;
        count_frames(advice);
        count_calls(advice);
    }
    for (size_t i = 0; ok && i < advice->iterations.count; i++) {
        struct rpi_iteration *iteration = &advice->iterations.data[i];
        measure_busy(advice, iteration);
        ok = measure_chain(advice, iteration, &waits);
        iteration->eager_us = eager_us(advice, iteration);
    }
    ok = ok && choose_typical(advice) && tally_kernels(advice);
    if (ok) {
        const struct rpi_iteration *typical = &advice->iterations.data[advice->typical];
        advice->joins = waits_before(&waits, typical->end) - waits_before(&waits, typical->start);
    }
    rpi_vec_finish(&waits);
    return ok ? RP_OK : rpi_error_host_memory(err, "advise", advice->trace.work.count);
}
