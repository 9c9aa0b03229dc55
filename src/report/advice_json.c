/* SPDX-License-Identifier: MIT
 *
 * The advice as reprise-advice/1. Times are microseconds.
 */
#include "report/advice_writer.h"

static void write_name(struct rpi_writer *w, const char *key, const struct rp_advice *a,
                       uint32_t name)
{
    rpi_write(w, ",\"%s\":", key);
    if (name)
        rpi_write_json(w, rpi_name(&a->trace, name));
    else
        rpi_write(w, "null");
}

static void write_iterations(struct rpi_writer *w, const struct rp_advice *a)
{
    static const char *const sources[] = {"steps", "repetition", "none"};
    rpi_write(w,
              ",\n\"iterations\":{\"found_by\":\"%s\",\"same_kernels\":%s,\"typical\":%zu,"
              "\"list\":[",
              sources[a->source], a->same_sequence ? "true" : "false", a->typical);
    for (size_t i = 0; i < a->iterations.count; i++) {
        const struct rpi_iteration *t = &a->iterations.data[i];
        rpi_write(w,
                  "%s\n {\"cpu_us\":%.3f,\"busy_us\":%.3f,\"span_us\":%.3f,\"chain_us\":%.3f,"
                  "\"chain_nodes\":%zu,\"wait_us\":%.3f,\"eager_us\":%.3f,\"kernels\":%zu,"
                  "\"short_kernels\":%zu,\"copies\":%zu,\"fills\":%zu,\"calls\":%zu,"
                  "\"operators\":%zu,\"python_frames\":%zu,\"graph_launches\":%zu}",
                  i ? "," : "", (double)(t->end - t->start) / 1000, (double)t->busy_ns / 1000,
                  (double)t->span_ns / 1000, (double)t->critical_ns / 1000, t->critical_nodes,
                  (double)t->wait_ns / 1000, t->eager_us, t->kernels, t->short_kernels, t->copies,
                  t->fills, t->calls, t->ops, t->python_frames, t->graph_launches);
    }
    rpi_write(w, "]}");
}

static void write_streams(struct rpi_writer *w, const struct rp_advice *a)
{
    rpi_write(w, ",\n\"streams\":[");
    for (size_t s = 0, written = 0; s < a->stream_use.count; s++) {
        const struct rpi_stream *stream = &a->trace.streams.data[s];
        if (!a->stream_use.data[s].work)
            continue;
        rpi_write(w, "%s{\"device\":%lld,\"stream\":%lld,\"work\":%zu,\"busy_us\":%.3f}",
                  written++ ? "," : "", (long long)stream->device, (long long)stream->stream,
                  a->stream_use.data[s].work, (double)a->stream_use.data[s].busy_ns / 1000);
    }
    rpi_write(w, "],\"stream_waits\":%zu", a->joins);
}

static void write_gaps(struct rpi_writer *w, const struct rp_advice *a)
{
    rpi_write(w, ",\n\"gaps\":{");
    for (size_t g = 0; g < RPI_GAP_CLASSES; g++)
        rpi_write(w, "%s\"%s\":{\"us\":%.3f,\"count\":%zu}", g ? "," : "",
                  rpi_gap_key((enum rpi_gap_class)g), (double)a->gap_ns[g] / 1000, a->gap_count[g]);
    rpi_write(w, "}");
}

static void write_shares(struct rpi_writer *w, const struct rp_advice *a, const char *key,
                         const struct rpi_share *shares)
{
    rpi_write(w, ",\n\"%s\":[", key);
    for (size_t i = 0; i < RPI_MOST_SHARES && shares[i].ns; i++) {
        rpi_write(w, "%s{\"us\":%.3f,\"count\":%zu", i ? "," : "", (double)shares[i].ns / 1000,
                  shares[i].count);
        write_name(w, "name", a, shares[i].name);
        rpi_write(w, "}");
    }
    rpi_write(w, "]");
}

static void write_obstacles(struct rpi_writer *w, const struct rp_advice *a)
{
    rpi_write(w, ",\n\"obstacles\":[");
    for (size_t i = 0; i < a->obstacles.count; i++) {
        const struct rpi_obstacle *o = &a->obstacles.data[i];
        rpi_write(w,
                  "%s\n {\"class\":\"%s\",\"count\":%zu,\"iterations\":%zu,\"before\":%zu,"
                  "\"between\":%zu,\"after\":%zu,\"wait_us\":%.3f",
                  i ? "," : "", rpi_obstacle_key(o->class), o->count, o->iterations, o->before,
                  o->within, o->after, (double)o->wait_ns / 1000);
        write_name(w, "call", a, o->call);
        write_name(w, "operator", a, o->op);
        write_name(w, "python", a, o->python);
        write_name(w, "caller", a, o->caller);
        write_name(w, "module", a, o->module);
        rpi_write(w, ",\"modules\":%zu,\"mend\":", o->modules);
        rpi_write_json(w, o->mend);
        rpi_write(w, "}");
    }
    rpi_write(w, "]");
}

static void write_model(struct rpi_writer *w)
{
    const struct rpi_model *m = &rpi_advice_model;
    rpi_write(w,
              ",\n\"model\":{\"operator_us\":%g,\"call_us\":%g,\"python_us\":%g,"
              "\"eager_gap_us\":%g,\"graph_gap_us\":%g,\"replay_us\":%g,\"resume_us\":%g,"
              "\"fitted_on\":\"NVIDIA H200, torch 2.11\"}",
              m->op_us, m->call_us, m->python_us, m->eager_gap_us, m->graph_gap_us, m->replay_us,
              m->resume_us);
}

void rpi_advice_write_json(struct rpi_writer *w, const struct rp_advice *a)
{
    const struct rpi_iteration *typical = rpi_typical(a);
    rpi_write(w, "{\"format\":\"reprise-advice/1\",\"file\":");
    rpi_write_json(w, a->file);
    rpi_write(w, ",\"device\":");
    rpi_write_json(w, a->trace.device_name);
    rpi_write(w, ",\"verdict\":\"%s\",\"way\":\"%s\",\"sentence\":", rpi_verdict_key(a->verdict),
              rpi_way_key(a->way));
    struct rpi_writer sentence = {0};
    rpi_write_verdict(&sentence, a);
    w->failed |= sentence.failed;
    rpi_write_json(w, sentence.failed ? "" : sentence.data);
    rpi_vec_finish(&sentence);
    rpi_write(w,
              ",\n\"eager_us\":%.3f,\"graph_us\":%.3f,\"mended_us\":%.3f,\"device_us\":%.3f,"
              "\"speedup\":%.4f,\"speedup_mended\":%.4f,\"busy_share\":%.4f,\"kernels\":%zu,"
              "\"short_kernels\":%zu",
              a->eager_us, a->graph_us, a->mended_us, a->device_us, a->eager_us / a->graph_us,
              a->eager_us / a->mended_us,
              typical->span_ns ? (double)typical->busy_ns / (double)typical->span_ns : 1,
              typical->kernels, typical->short_kernels);
    if (rpi_advice_error(a) > 0)
        rpi_write(w, ",\"speedup_error\":%g", rpi_advice_error(a));
    else
        rpi_write(w, ",\"speedup_error\":null");
    rpi_write(w, ",\n\"regions\":{\"count\":%zu,\"largest_kernels\":%zu", a->region_count,
              a->region_kernels);
    write_name(w, "first", a, a->region_first);
    write_name(w, "last", a, a->region_last);
    rpi_write(w, "}");
    write_iterations(w, a);
    write_streams(w, a);
    write_gaps(w, a);
    write_shares(w, a, "gap_names", a->gap_names);
    write_shares(w, a, "top_kernels", a->kernels);
    write_obstacles(w, a);
    rpi_write(w, ",\n\"measuring_waits\":%zu", a->measuring_waits);
    rpi_write(w,
              ",\n\"driver_allocations\":%zu,\"work_outside_iterations\":%zu,\"events\":%llu,"
              "\"events_left_out\":%llu",
              a->allocations, a->unassigned, (unsigned long long)a->trace.events,
              (unsigned long long)a->trace.left_out);
    write_model(w);
    rpi_write(w, "}\n");
}
