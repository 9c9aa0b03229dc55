/* SPDX-License-Identifier: MIT
 *
 * What a callable did, shape by shape: as a table for people, and as reprise-callable/1.
 */
#include "base/refuse.h"
#include "base/text.h"
#include "graph/callable/callable.h"
#include "graph/objects/gates.h"
#include "report/writer.h"

#include <inttypes.h>
#include <string.h>

static const char *const state_names[] = {"new", "graph", "retry", "eager"};

/* A shape's text in a column of this width; longer ones end in dots. */
enum { SHAPE_WIDTH = 44 };

/* How a policy has the shape run, and what its graph does of itself. */
static void write_text_choice(struct rpi_writer *w, const struct rp_shape_info *s)
{
    rpi_write(w, "      by %s: %s (eager %.1f us, graph %.1f us, %" PRIu64 " measured)\n",
              s->choice, s->choice_reason, s->eager_us, s->graph_us, s->measured_calls);
    if (!s->graph)
        return;
    struct rp_graph_info graph = {.size = sizeof graph};
    rp_graph_info(s->graph, &graph);
    rpi_write(w, "      its graph: %zu arguments bound, %zu copied; ", graph.bound_args,
              graph.copied_args);
    if (graph.own_exec)
        rpi_write(w, "an exec of its own\n");
    else
        rpi_write(w, "a shared exec, updated %" PRIu64 " times\n", graph.exec_updates);
}

static bool is_stopped(const struct rp_shape_info *s)
{
    struct rp_graph_info graph = {.size = sizeof graph, .replays = 0};
    if (s->graph)
        rp_graph_info(s->graph, &graph);
    return graph.plan_stopped != 0;
}

static void write_text_shape(struct rpi_writer *w, const struct rp_shape_info *s)
{
    size_t length = strlen(s->text);
    bool cut = length > SHAPE_WIDTH;
    rpi_write(w, "  %-*.*s%s  %-5s %6zu %10.2f %10.1f %10.1f %9" PRIu64 " %9" PRIu64,
              SHAPE_WIDTH - (cut ? 3 : 0), SHAPE_WIDTH - (cut ? 3 : 0), s->text, cut ? "..." : "",
              state_names[s->state], s->nodes, s->capture_ms, (double)s->planned_bytes / 1024,
              (double)s->lower_bound_bytes / 1024, s->replays, s->eager_runs);
    if (s->padded_calls)
        rpi_write(w, "  %" PRIu64 " padded", s->padded_calls);
    if (s->stale_graphs)
        rpi_write(w, "  %" PRIu64 " stale", s->stale_graphs);
    if (is_stopped(s))
        rpi_write(w, "  plan stopped by the budget");
    rpi_write(w, "\n");
    if (s->reason)
        rpi_write(w, "      %s\n", s->reason);
    if (s->choice)
        write_text_choice(w, s);
}

static void write_text(struct rpi_writer *w, struct rp_callable *callable,
                       const struct rp_callable_info *info, const struct rp_pool_info *pool)
{
    struct rp_shape_info shape = {.size = sizeof shape};
    rpi_write(w, "%s: %zu shapes, of which %zu are graphs and %zu stay eager\n", info->name,
              info->shapes, info->graphs, info->eager_shapes);
    rpi_write(w, "%" PRIu64 " calls: %" PRIu64 " replays (%" PRIu64 " padded), %" PRIu64 " eager\n",
              info->calls, info->replays, info->padded_calls, info->eager_runs);
    rpi_write(w,
              "memory: %.1f KiB planned, at least %.1f KiB needed; %.1f KiB mapped, %.1f KiB of "
              "staging; captures took %.1f ms\n\n",
              (double)pool->planned_bytes / 1024, (double)pool->lower_bound_bytes / 1024,
              (double)pool->mapped_bytes / 1024, (double)info->staging_bytes / 1024,
              info->capture_ms);
    rpi_write(w, "  %-*s  %-5s %6s %10s %10s %10s %9s %9s\n", SHAPE_WIDTH, "shape", "state",
              "nodes", "capture ms", "KiB", "bound KiB", "replays", "eager");
    for (size_t i = 0; rp_callable_shape_info(callable, i, &shape); i++)
        write_text_shape(w, &shape);
    if (!w->failed) /* names, of the callable and of dimensions, are any bytes */
        w->count = rpi_text_mask_lines(w->data, w->count);
}

static void write_json_shape(struct rpi_writer *w, const struct rp_shape_info *s)
{
    rpi_write(w, "{\"shape\":");
    rpi_write_json(w, s->text);
    rpi_write(w, ",\"state\":\"%s\",\"reason\":", state_names[s->state]);
    if (s->reason)
        rpi_write_json(w, s->reason);
    else
        rpi_write(w, "null");
    rpi_write(w,
              ",\"nodes\":%zu,\"capture_ms\":%.3f,\"planned_bytes\":%" PRIu64
              ",\"lower_bound_bytes\":%" PRIu64 ",\"replays\":%" PRIu64 ",\"eager_runs\":%" PRIu64
              ",\"padded_calls\":%" PRIu64 ",\"stale_graphs\":%" PRIu64
              ",\"plan_stopped\":%s,\"choice\":",
              s->nodes, s->capture_ms, s->planned_bytes, s->lower_bound_bytes, s->replays,
              s->eager_runs, s->padded_calls, s->stale_graphs, is_stopped(s) ? "true" : "false");
    if (!s->choice) {
        rpi_write(w, "null}");
        return;
    }
    rpi_write_json(w, s->choice);
    rpi_write(w, ",\"choice_reason\":");
    rpi_write_json(w, s->choice_reason);
    rpi_write(w, ",\"eager_us\":%.3f,\"graph_us\":%.3f,\"measured_calls\":%" PRIu64, s->eager_us,
              s->graph_us, s->measured_calls);
    struct rp_graph_info graph = {.size = sizeof graph, .replays = 0};
    if (s->graph)
        rp_graph_info(s->graph, &graph);
    rpi_write(w, ",\"bound_args\":%zu,\"copied_args\":%zu,\"own_exec\":%s}", graph.bound_args,
              graph.copied_args, graph.own_exec ? "true" : "false");
}

static void write_json(struct rpi_writer *w, struct rp_callable *callable,
                       const struct rp_callable_info *info, const struct rp_pool_info *pool)
{
    struct rp_shape_info shape = {.size = sizeof shape};
    rpi_write(w, "{\"format\":\"reprise-callable/1\",\"name\":");
    rpi_write_json(w, info->name);
    rpi_write(w,
              ",\"graphs\":%zu,\"eager_shapes\":%zu,\"calls\":%" PRIu64 ",\"replays\":%" PRIu64
              ",\"padded_calls\":%" PRIu64 ",\"eager_runs\":%" PRIu64 ",\"capture_ms\":%.3f",
              info->graphs, info->eager_shapes, info->calls, info->replays, info->padded_calls,
              info->eager_runs, info->capture_ms);
    rpi_write(w,
              ",\"planned_bytes\":%" PRIu64 ",\"lower_bound_bytes\":%" PRIu64
              ",\"mapped_bytes\":%" PRIu64 ",\"staging_bytes\":%" PRIu64 ",\"shapes\":[",
              pool->planned_bytes, pool->lower_bound_bytes, pool->mapped_bytes,
              info->staging_bytes);
    for (size_t i = 0; rp_callable_shape_info(callable, i, &shape); i++) {
        rpi_write(w, i ? ",\n " : "\n ");
        write_json_shape(w, &shape);
    }
    rpi_write(w, "]}\n");
}

rp_status rp_callable_report(struct rp_callable *callable, enum rp_report_format format,
                             const char **out_text, struct rp_error *err)
{
    if (rpi_is_forked() || !callable || !out_text)
        return rpi_refuse(err, "rp_callable_report", !callable ? "callable" : "out_text");
    if (!callable || !out_text || (format != RP_REPORT_TEXT && format != RP_REPORT_JSON))
        return rpi_error(
            err, RP_ERROR_INVALID_ARGUMENT, "rp_callable_report",
            "a callable, a place for the text and an enum rp_report_format are needed");
    rp_status status =
        rpi_gate_for_callable(&callable->gate, "rp_callable_report", callable->name, err);
    if (status != RP_OK)
        return status;
    struct rpi_writer w = {0};
    struct rp_callable_info info = {.size = sizeof info};
    struct rp_pool_info pool = {.size = sizeof pool};
    rp_callable_info(callable, &info);
    rp_pool_info(callable->pool, &pool);
    (format == RP_REPORT_JSON ? write_json : write_text)(&w, callable, &info, &pool);
    if (w.failed) {
        status = rpi_error_host_memory(err, "rp_callable_report", w.count);
        rpi_vec_finish(&w);
    } else {
        rpi_free(callable->rendered);
        *out_text = callable->rendered = w.data;
    }
    rpi_gate_leave(&callable->gate);
    return status;
}
