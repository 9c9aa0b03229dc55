/* SPDX-License-Identifier: MIT
 *
 * The advice for people: the verdict first, then what it rests on, then what to do.
 */
#include "report/advice_writer.h"

#include <string.h>

enum { SHOWN_OBSTACLES = 8, SHOWN_NAMES = 5 };

static double share(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void write_iteration(struct rpi_writer *w, const struct rp_advice *a)
{
    const struct rpi_iteration *i = rpi_typical(a);
    rpi_write(w, "Iterations   %zu, %s\n", a->iterations.count, rpi_source_text(a));
    rpi_write(w, "Kernels      %zu an iteration, %zu of them shorter than 50 us", i->kernels,
              i->short_kernels);
    if (i->copies + i->fills)
        rpi_write(w, "; %zu cop%s, %zu fill%s", i->copies, i->copies == 1 ? "y" : "ies", i->fills,
                  i->fills == 1 ? "" : "s");
    rpi_write(w, "\nDevice       busy ");
    rpi_write_us(w, (double)i->busy_ns / 1000);
    rpi_write(w, " of ");
    rpi_write_us(w, (double)i->span_ns / 1000);
    rpi_write(w, " in the trace (%.0f %%)", share(i->busy_ns, i->span_ns));
    if (a->given_eager_us > 0)
        rpi_write(w, "; an iteration takes %.0f us, as given\n", a->eager_us);
    else {
        rpi_write(w, "; without the profiler an iteration takes about ");
        rpi_write_model_us(w, a->eager_us);
        rpi_write(w, "\n");
    }
    if (i->critical_ns < i->busy_ns) {
        rpi_write(w, "             ");
        rpi_write_us(w, (double)i->critical_ns / 1000);
        rpi_write(w, " once the streams run side by side\n");
    }
}

static void write_streams(struct rpi_writer *w, const struct rp_advice *a)
{
    size_t used = 0;
    for (size_t s = 0; s < a->stream_use.count; s++)
        used += a->stream_use.data[s].work != 0;
    rpi_write(w, "Streams      %zu", used);
    if (used > 1) {
        for (size_t s = 0, shown = 0; s < a->stream_use.count && shown < 6; s++) {
            const struct rpi_stream *stream = &a->trace.streams.data[s];
            if (!a->stream_use.data[s].work)
                continue;
            rpi_write(w, "%s%lld: %zu", shown++ ? ", " : " (work on each: stream ",
                      (long long)stream->stream, a->stream_use.data[s].work);
        }
        rpi_write(w, "%s), joined by %zu waits an iteration", used > 6 ? ", .." : "", a->joins);
    }
    rpi_write(w, "\n");
    if (a->trace.has_memory)
        rpi_write(w, "Memory       %llu allocations and %llu frees of device memory in the trace\n",
                  (unsigned long long)a->trace.allocations, (unsigned long long)a->trace.frees);
}

static void write_gaps(struct rpi_writer *w, const struct rp_advice *a)
{
    uint64_t idle = 0;
    char name[64];
    for (size_t g = 0; g < RPI_GAP_CLASSES; g++)
        idle += a->gap_ns[g];
    if (!idle)
        return;
    rpi_write(w, "\nThe device stood idle between kernels for ");
    rpi_write_us(w, (double)idle / 1000 / (double)a->iterations.count);
    rpi_write(w, " an iteration:\n");
    for (size_t g = 0; g < RPI_GAP_CLASSES; g++)
        if (a->gap_ns[g])
            rpi_write(w, "  %3.0f %%  %s (%.1f gaps)\n", share(a->gap_ns[g], idle),
                      rpi_gap_text((enum rpi_gap_class)g),
                      (double)a->gap_count[g] / (double)a->iterations.count);
    if (a->gap_names[0].ns)
        rpi_write(w, "  most of it in:\n");
    for (size_t n = 0; n < SHOWN_NAMES && a->gap_names[n].ns; n++)
        rpi_write(w, "  %3.0f %%  %s\n", share(a->gap_names[n].ns, idle),
                  rpi_short_name(rpi_name(&a->trace, a->gap_names[n].name), name, 60));
}

static const char *where(const struct rpi_obstacle *o)
{
    return o->within   ? "between kernels"
           : o->before ? "before the first kernel"
                       : "after the last kernel";
}

static void write_obstacle(struct rpi_writer *w, const struct rp_advice *a, size_t index)
{
    const struct rpi_obstacle *o = &a->obstacles.data[index];
    char name[96];
    rpi_write(w, "%3zu. %s: %s", index + 1, rpi_obstacle_text(o->class),
              rpi_short_name(rpi_name(&a->trace, o->op ? o->op : o->call), name, 90));
    if (o->op)
        rpi_write(w, " (%s)", rpi_name(&a->trace, o->call));
    rpi_write(w, ", %zu time%s in %zu of %zu iterations, %s\n", o->count, o->count == 1 ? "" : "s",
              o->iterations, a->iterations.count, where(o));
    if (o->python)
        rpi_write(w, "     at %s", rpi_short_name(rpi_name(&a->trace, o->python), name, 90));
    if (o->python && o->caller)
        rpi_write(w, ", called from %s", rpi_short_name(rpi_name(&a->trace, o->caller), name, 90));
    if (o->python)
        rpi_write(w, "\n");
    if (o->module)
        rpi_write(w, "     in %s", rpi_name(&a->trace, o->module));
    if (o->module && o->modules > 1)
        rpi_write(w, " and %zu more modules", o->modules - 1);
    if (o->module)
        rpi_write(w, "\n");
    rpi_write(w, "     %s\n", o->mend);
}

static void write_obstacles(struct rpi_writer *w, const struct rp_advice *a)
{
    size_t count = a->obstacles.count;
    if (!count) {
        rpi_write(w, "\nNothing was seen that would break a capture.\n");
        return;
    }
    rpi_write(w, "\nIn the way of a capture, the gravest first:\n");
    for (size_t i = 0; i < count && i < SHOWN_OBSTACLES; i++)
        write_obstacle(w, a, i);
    if (count > SHOWN_OBSTACLES)
        rpi_write(w, "     and %zu more places; --json lists them\n", count - SHOWN_OBSTACLES);
    if (!a->trace.has_python)
        rpi_write(w, "The trace has no Python frames: profile with with_stack=True to see which "
                     "lines.\n");
}

static void write_measuring(struct rpi_writer *w, const struct rp_advice *a)
{
    if (a->measuring_waits)
        rpi_write(
            w,
            "\nNot counted: %s before the first or after the last iteration, which belongs to "
            "the measurement.\n",
            rpi_name(&a->trace, a->measuring_call));
}

static void write_notes(struct rpi_writer *w, const struct rp_advice *a)
{
    const struct rpi_model *m = &rpi_advice_model;
    rpi_write(
        w,
        "\nModel: with a graph, the device's longest chain of work + %.2f us a node + %.1f us "
        "a replay;\nwithout, the CPU's time less what the profiler adds (%.2f us an operator, "
        "%.2f a call,\n%.2f a Python frame). Fitted on an H200 with torch 2.11; on workloads that "
        "it was not "
        "fitted on\nspeed-ups were within %.0f %%. On another machine, give a measured "
        "iteration with --eager-us.\n",
        m->graph_gap_us, m->replay_us, m->op_us, m->call_us, m->python_us, 100 * m->error);
    if (a->region_count > 1)
        rpi_write(w, "What several graphs in one iteration gain was not measured.\n");
    if (a->trace.left_out > a->trace.timeless)
        rpi_write(w, "%llu events were left out: the trace has more than fit.\n",
                  (unsigned long long)(a->trace.left_out - a->trace.timeless));
    if (a->trace.timeless)
        rpi_write(w, "%llu events without usable times were left out.\n",
                  (unsigned long long)a->trace.timeless);
}

void rpi_advice_write_text(struct rpi_writer *w, const struct rp_advice *a)
{
    rpi_write_verdict(w, a);
    rpi_write(w, ".\n");
    if (rpi_has_way(a)) {
        rpi_write(w, "What to do: ");
        rpi_write_way(w, a);
        rpi_write(w, ".\n");
    }
    rpi_write(w, "\n");
    write_iteration(w, a);
    write_streams(w, a);
    write_gaps(w, a);
    write_obstacles(w, a);
    write_measuring(w, a);
    write_notes(w, a);
}
