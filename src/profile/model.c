/* SPDX-License-Identifier: MIT
 *
 * The verdict. With graphs an iteration takes
 *
 *     critical chain + nodes on it * graph gap + replay                    the device
 *     + for each place where the host reads or waits: resume               it drains, and starts
 * anew
 *     + for each further graph: replay
 *     + kernels in runs too short to capture * eager time a kernel
 *
 * and without them, without the profiler (device_time.c)
 *
 *     max(busy + nodes * eager gap,
 *         elapsed - waits - what the profiler added + min(waits, the former))
 *
 * where the profiler adds a fixed time for each event it records. CPU work of an iteration that
 * launches nothing is taken to go with the launches: a region's Python does not run in a replay.
 */
#include "base/status.h"
#include "profile/advice.h"
#include "profile/stacks.h"

#include <stdlib.h>
#include <string.h>

const struct rpi_model rpi_advice_model = {
    .op_us = 0.66,
    .call_us = 1.34,
    .python_us = 0.30,
    .eager_gap_us = 1.5,
    .graph_gap_us = 0.35,
    .replay_us = 1.9,
    .resume_us = 27,
    .worth = 1.10,
    .little = 1.03,
    .error = 0.20,
    .graph_error = 0.10,
};

enum { SHORT_RUN = 4 }; /* kernels for which a graph of their own is not worth a launch */

struct run {
    uint64_t first, last; /* launch times of its kernels */
    size_t kernels;
};

struct runs {
    RPI_VEC(struct run);
};

struct launches {
    RPI_VEC(uint64_t);
};

static int compare_times(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* The typical iteration's launches, split at the cuts; cuts with nothing between them are one. */
static bool split_runs(const struct rp_advice *advice, struct runs *runs)
{
    const struct rpi_iteration *iteration = &advice->iterations.data[advice->typical];
    struct launches launches = {0};
    for (uint32_t i = 0; i < iteration->work_count; i++) {
        const struct rpi_event *work =
            &advice->trace.work.data[advice->order[iteration->first_work + i]];
        if (work->kind != RPI_WORK_COPY &&
            !rpi_vec_push(&launches, rpi_advice_launch_time(&advice->trace, work)))
            goto no_memory;
    }
    if (launches.count)
        qsort(launches.data, launches.count, sizeof *launches.data, compare_times);
    size_t cut = 0;
    for (size_t i = 0; i < launches.count; i++) {
        bool begins = !runs->count;
        for (; cut < advice->cuts.count && advice->cuts.data[cut] < launches.data[i]; cut++)
            begins = true;
        if (begins) {
            struct run run = {launches.data[i], launches.data[i], 0};
            if (!rpi_vec_push(runs, run))
                goto no_memory;
        }
        runs->data[runs->count - 1].last = launches.data[i];
        runs->data[runs->count - 1].kernels++;
    }
    rpi_vec_finish(&launches);
    return true;
no_memory:
    rpi_vec_finish(&launches);
    return false;
}

/* ---- How long ------------------------------------------------------------------------------ */

/* Places outside the kernels, in an iteration, at which the host waits. */
static double waits_outside(const struct rp_advice *advice)
{
    size_t count = 0, iterations = advice->iterations.count;
    for (size_t i = 0; i < advice->obstacles.count; i++) {
        const struct rpi_obstacle *o = &advice->obstacles.data[i];
        if (o->class < RPI_OBSTACLE_COPY_IN)
            count += (o->before + o->after) / iterations; /* of one in a few iterations: none */
    }
    return (double)count;
}

static void predict(struct rp_advice *advice, const struct runs *runs)
{
    const struct rpi_model *m = &rpi_advice_model;
    const struct rpi_iteration *i = &advice->iterations.data[advice->typical];
    double kernels_us = i->eager_us / (double)(i->work_count ? i->work_count : 1);
    advice->eager_us = advice->given_eager_us > 0 ? advice->given_eager_us : i->eager_us;
    advice->device_us = (double)i->critical_ns / 1000;
    advice->mended_us = advice->device_us + (double)i->critical_nodes * m->graph_gap_us +
                        m->replay_us + waits_outside(advice) * m->resume_us;
    advice->graph_us = advice->mended_us;
    for (size_t r = 0; r < runs->count; r++) {
        bool captured = runs->data[r].kernels >= SHORT_RUN || runs->count == 1;
        advice->region_count += captured;
        advice->graph_us += r ? m->resume_us : 0;
        advice->graph_us +=
            captured ? (r ? m->replay_us : 0) : (double)runs->data[r].kernels * kernels_us;
    }
}

double rpi_advice_error(const struct rp_advice *advice)
{
    if (advice->given_eager_us > 0)
        return rpi_advice_model.graph_error;
    return advice->trace.from_nsys ? 0 : rpi_advice_model.error;
}

/* ---- Which way ------------------------------------------------------------------------------ */

static void choose_way(struct rp_advice *advice, const struct runs *runs)
{
    bool outside = false, data_shape = false, recurs = false;
    for (size_t i = 0; i < advice->obstacles.count; i++) {
        const struct rpi_obstacle *o = &advice->obstacles.data[i];
        outside |= o->class <= RPI_OBSTACLE_COPY_IN && rpi_obstacle_is_regular(advice, o) &&
                   o->before + o->after > 0;
        data_shape |= o->within && o->class == RPI_OBSTACLE_DATA_SHAPE;
        recurs |= o->class < RPI_OBSTACLE_COPY_IN && o->within >= 3 * advice->iterations.count;
    }
    if (runs->count <= 1)
        advice->way = outside ? RP_ADVICE_WAY_MODEL : RP_ADVICE_WAY_ITERATION;
    else
        advice->way = recurs && !data_shape ? RP_ADVICE_WAY_LAYERS : RP_ADVICE_WAY_PARTS;
}

static void choose_verdict(struct rp_advice *advice)
{
    const struct rpi_iteration *typical = &advice->iterations.data[advice->typical];
    size_t in_graphs = 0;
    for (uint32_t i = 0; i < typical->work_count; i++)
        in_graphs += advice->trace.work.data[advice->order[typical->first_work + i]].in_graph;
    double best = advice->graph_us < advice->mended_us ? advice->graph_us : advice->mended_us;
    double gain = advice->eager_us / best;
    if (typical->graph_launches && 2 * in_graphs > typical->work_count)
        advice->verdict = RP_ADVICE_ALREADY;
    else
        advice->verdict = gain >= rpi_advice_model.worth    ? RP_ADVICE_WORTH
                          : gain >= rpi_advice_model.little ? RP_ADVICE_LITTLE
                                                            : RP_ADVICE_NOT;
}

/* ---- Which region --------------------------------------------------------------------------- */

/* The innermost module or outermost operator: what a person recognises. */
static bool name_end(void *user, const struct rpi_moment *moment, const uint32_t *frames,
                     size_t depth)
{
    struct rp_advice *advice = user;
    uint32_t module = 0, op = 0;
    for (size_t i = 0; i < depth; i++) {
        const struct rpi_event *frame = &advice->trace.frames.data[frames[i]];
        const char *name = rpi_name(&advice->trace, frame->name);
        if (frame->kind == RPI_FRAME_OP && !op)
            op = frame->name;
        if (frame->kind == RPI_FRAME_PYTHON && !strncmp(name, "nn.Module: ", 11))
            module = frame->name;
    }
    *(moment->what ? &advice->region_last : &advice->region_first) = module ? module : op;
    return true;
}

static rp_status name_region(struct rp_advice *advice, const struct run *run, struct rp_error *err)
{
    struct rpi_moments ends = {0};
    rp_status status = RP_OK;
    const struct rpi_trace *trace = &advice->trace;
    for (size_t i = 0; status == RP_OK && i < trace->calls.count; i++) {
        const struct rpi_event *call = &trace->calls.data[i];
        for (uint32_t last = 0; last < 2; last++) {
            struct rpi_moment moment = {call->start, call->lane, last};
            if (call->start == (last ? run->last : run->first) && !rpi_vec_push(&ends, moment))
                status = rpi_error_host_memory(err, "advise", sizeof moment);
        }
    }
    if (status == RP_OK)
        status = rpi_stacks_visit(&trace->frames, &ends, name_end, advice, err);
    rpi_vec_finish(&ends);
    return status;
}

rp_status rpi_advice_judge(struct rp_advice *advice, struct rp_error *err)
{
    struct runs runs = {0};
    rp_status status = RP_OK;
    if (!split_runs(advice, &runs))
        status = rpi_error_host_memory(err, "advise", runs.count);
    if (status == RP_OK) {
        predict(advice, &runs);
        choose_way(advice, &runs);
        choose_verdict(advice);
        const struct run *largest = runs.data;
        for (size_t r = 1; r < runs.count; r++)
            if (runs.data[r].kernels > largest->kernels)
                largest = &runs.data[r];
        if (runs.count) {
            advice->region_kernels = largest->kernels;
            status = name_region(advice, largest, err);
        }
    }
    rpi_vec_finish(&runs);
    return status;
}
