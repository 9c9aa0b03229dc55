/* SPDX-License-Identifier: MIT
 *
 * The facts of a demo, as text for people and as JSON.
 */
#include "demo.h"
#include "exec_memory.h"
#include "output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static double ratio(uint64_t bytes, uint64_t bound)
{
    return bound ? (double)bytes / (double)bound : 1.0;
}

/* "608.0 KiB", "64.5 MiB" */
static const char *human(uint64_t bytes, char *out, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024.0 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024.0;
        unit++;
    }
    snprintf(out, size, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return out;
}

static void show_device(const struct demo_facts *facts)
{
    char state[32];
    const struct rp_device_info *device = &facts->device;
    printf("Device: %s, through the driver '%s', CUDA %d.%d\n", device->name, device->driver,
           device->driver_version / 1000, device->driver_version % 1000 / 10);
    if (facts->no_gpu[0])
        printf("\nNo GPU: %s.\n", facts->no_gpu);
    if (!strcmp(device->driver, "host"))
        printf("\nThe host driver stands in for a GPU: a CPU that speaks the same driver API. Its "
               "memory\nfigures are a GPU's; its times are this CPU's and say nothing about a "
               "GPU's.\n");
    printf("\nOne step of a small decoder (%s of weights and KV cache), captured at %zu batch "
           "sizes\ninto one pool of alternatives:\n\n",
           human(facts->state_bytes, state, sizeof state), facts->capture_count);
}

static void show_captures(const struct demo_facts *facts)
{
    static const char *const headers[] = {"  KiB", "nodes",    "pool after", "bound",
                                          "ratio", "eager us", "replay us",  "outputs"};
    struct cli_table table;
    cli_table_init(&table, headers, sizeof headers / sizeof *headers);
    for (size_t i = 0; i < facts->capture_count; i++) {
        const struct demo_capture *c = &facts->captures[i];
        cli_table_cell(&table, "  %s", c->name);
        cli_table_cell(&table, "%zu", c->nodes);
        cli_table_cell(&table, "%.1f", (double)c->pool_bytes_after / 1024.0);
        cli_table_cell(&table, "%.1f", (double)c->lower_bound_bytes / 1024.0);
        cli_table_cell(&table, "%.3f", ratio(c->pool_bytes_after, c->lower_bound_bytes));
        cli_table_cell(&table, "%.1f", c->eager_us);
        cli_table_cell(&table, "%.1f", c->replay_us);
        if (c->equal == c->samples)
            cli_table_cell(&table, "equal");
        else
            cli_table_cell(&table, "%zu of %zu DIFFER", c->samples - c->equal, c->samples);
    }
    cli_table_print(&table, stdout);
    cli_table_finish(&table);
    printf("\n  Times are medians of %zu interleaved runs each, from the call to the end of the "
           "work.\n  Outputs are logits and KV cache after a replay, against an eager run, to the "
           "bit.\n",
           facts->captures[0].samples);
}

static void show_recordings(const struct demo_facts *facts)
{
    static const char *const headers[] = {"  MiB",      "graphs",        "PyTorch",
                                          "reuse flag", "measured best", "Reprise",
                                          "bound",      "ratio",         ""};
    struct cli_table table;
    if (!facts->recording_count) {
        printf("\nNo recorded captures were found; --recordings DIR says where they are.\n");
        return;
    }
    printf("\nCaptures recorded from PyTorch programs, and the memory they need:\n\n");
    cli_table_init(&table, headers, sizeof headers / sizeof *headers);
    for (size_t i = 0; i < facts->recording_count; i++) {
        const struct rp_layout_info *info = &facts->recordings[i].info;
        cli_table_cell(&table, "  %s", facts->recordings[i].name);
        cli_table_cell(&table, "%zu", info->captures);
        cli_table_mib(&table, info->c10_default_bytes);
        cli_table_mib(&table, info->c10_reuse_bytes);
        cli_table_mib(&table, facts->recordings[i].pytorch_best_bytes);
        cli_table_mib(&table, info->pool_bytes);
        cli_table_mib(&table, info->lower_bound_bytes);
        cli_table_cell(&table, "%.3f", ratio(info->pool_bytes, info->lower_bound_bytes));
        cli_table_cell(&table, "%s", info->optimal ? "optimal" : "");
    }
    cli_table_print(&table, stdout);
    cli_table_finish(&table);
    printf(
        "\n  PyTorch and reuse flag: what two rules of its allocator hold, computed for the same "
        "captures.\n  Measured best: what it held on an H200 by the best of three settings; of "
        "captures that\n  were not measured the less of the two.\n");
}

static void show_execs(const struct demo_facts *facts)
{
    char bytes[32], budget[32], seen[256];
    const struct rp_device_exec_info *execs = &facts->execs;
    cli_exec_describe(execs, seen, sizeof seen);
    printf("Executable graphs: %zu for %zu graphs of %zu %s, an estimated %s of a budget of %s;\n"
           "%" PRIu64 " made, %" PRIu64 " updates from graph to graph.\n%s\n",
           execs->execs, execs->graphs, execs->topologies,
           execs->topologies == 1 ? "topology" : "topologies",
           human(execs->bytes, bytes, sizeof bytes),
           human(execs->budget_bytes, budget, sizeof budget), execs->instantiated, execs->updates,
           seen);
}

static void show_estimate(const struct demo_facts *facts)
{
    char text[2][32];
    human(facts->estimate.planned_bytes, text[0], sizeof text[0]);
    human(facts->estimate.mapped_bytes, text[1], sizeof text[1]);
    if (demo_estimate_right(facts))
        printf("Estimate: %s planned, %s mapped, foreseen before the first capture, to the byte.\n",
               text[0], text[1]);
    else
        printf("ESTIMATE: %s planned, %s mapped, WHICH IS NOT WHAT WAS TAKEN. Please report it.\n",
               text[0], text[1]);
}

static void show_summary(const struct demo_facts *facts)
{
    char text[5][32];
    uint64_t apart = 0;
    size_t samples = 0, bound = 0, copied = 0;
    const struct demo_capture *first = &facts->captures[0];
    const struct demo_capture *last = &facts->captures[facts->capture_count - 1];
    for (size_t i = 0; i < facts->capture_count; i++) {
        apart += facts->captures[i].graph_planned_bytes;
        samples += facts->captures[i].samples;
        bound += facts->captures[i].bound_args;
        copied += facts->captures[i].copied_args;
    }
    human(first->pool_bytes_after, text[0], sizeof text[0]);
    human(last->pool_bytes_after, text[1], sizeof text[1]);
    human(apart, text[2], sizeof text[2]);
    human(facts->rehearsal_bytes, text[3], sizeof text[3]);
    human(last->mapped_bytes_after, text[4], sizeof text[4]);
    if (facts->capture_count == 1)
        printf("\nThe pool takes %s.", text[1]);
    else if (first->pool_bytes_after == last->pool_bytes_after)
        printf("\nConstant memory: the pool took %s for the first graph and takes %s for all %zu.",
               text[0], text[1], facts->capture_count);
    else
        printf("\nThe pool took %s for the first graph and takes %s for all %zu.", text[0], text[1],
               facts->capture_count);
    printf("\nA pool for each would take %s. The device gave %s for the pool, and one chunk of "
           "%s\nfor all rehearsals.\n",
           text[2], text[4], text[3]);
    if (demo_all_equal(facts))
        printf("All %zu replays gave what eager runs give, to the bit.\n", samples);
    else
        printf("REPLAYS DIFFER FROM EAGER RUNS. This must not happen: please report it.\n");
    if (!copied)
        printf("Arguments: %zu bound in one replay of each graph, none copied.\n", bound);
    else
        printf("Arguments: %zu bound, %zu copied in one replay of each graph.\n", bound, copied);
    show_estimate(facts);
    show_execs(facts);
    printf("Contract: a graph was called before the one whose memory it reads, and refused:\n"
           "  %s\n",
           facts->refused);
    printf("Chart: %s\n", facts->chart);
}

void demo_show_text(const struct demo_facts *facts)
{
    show_device(facts);
    show_captures(facts);
    show_recordings(facts);
    show_summary(facts);
}

static void json_text(const char *key, const char *text)
{
    printf("\"%s\":", key);
    cli_json_text(stdout, text);
}

static void json_number(const char *key, uint64_t value)
{
    printf(",\"%s\":%" PRIu64, key, value);
}

static void json_bool(const char *key, bool value)
{
    printf(",\"%s\":%s", key, value ? "true" : "false");
}

static void json_capture(const struct demo_capture *c)
{
    printf("\n  {");
    json_text("name", c->name);
    json_number("nodes", c->nodes);
    json_number("pool_bytes_after", c->pool_bytes_after);
    json_number("mapped_bytes_after", c->mapped_bytes_after);
    json_number("lower_bound_bytes", c->lower_bound_bytes);
    json_number("graph_planned_bytes", c->graph_planned_bytes);
    json_number("graph_lower_bound_bytes", c->graph_bound_bytes);
    printf(",\"eager_us\":%.2f,\"replay_us\":%.2f", c->eager_us, c->replay_us);
    json_number("samples", c->samples);
    json_number("bound_args", c->bound_args);
    json_number("copied_args", c->copied_args);
    json_bool("outputs_equal", c->equal == c->samples);
    printf("}");
}

static void json_recording(const struct demo_recording *r)
{
    const struct rp_layout_info *info = &r->info;
    printf("\n  {");
    json_text("name", r->name);
    json_number("captures", info->captures);
    json_number("pool_bytes", info->pool_bytes);
    json_number("lower_bound_bytes", info->lower_bound_bytes);
    json_bool("bound_exact", info->bound_exact);
    json_bool("optimal", info->optimal);
    json_number("c10_default_bytes", info->c10_default_bytes);
    json_number("c10_reuse_bytes", info->c10_reuse_bytes);
    json_number("pytorch_best_bytes", r->pytorch_best_bytes);
    json_bool("pytorch_measured", r->pytorch_measured);
    printf(",\"ms\":%.3f}", info->ms);
}

static void json_execs(const struct rp_device_exec_info *execs)
{
    printf(",\n \"execs\":{\"count\":%zu", execs->execs);
    json_number("bytes", execs->bytes);
    json_number("budget_bytes", execs->budget_bytes);
    json_number("topologies", execs->topologies);
    json_number("hits", execs->hits);
    json_number("updates", execs->updates);
    json_number("instantiated", execs->instantiated);
    json_number("evicted", execs->evicted);
    cli_exec_json(execs, "");
    printf("}");
}

void demo_show_json(const struct demo_facts *facts)
{
    printf("{");
    json_text("driver", facts->device.driver);
    printf(",");
    json_text("device", facts->device.name);
    json_number("rehearsal_bytes", facts->rehearsal_bytes);
    json_number("state_bytes", facts->state_bytes);
    json_execs(&facts->execs);
    printf(",\n \"estimate\":{\"planned_bytes\":%" PRIu64, facts->estimate.planned_bytes);
    json_number("mapped_bytes", facts->estimate.mapped_bytes);
    json_number("exec_bytes", facts->estimate.exec_bytes);
    json_number("taken_planned_bytes", facts->taken.planned_bytes);
    json_number("taken_mapped_bytes", facts->taken.mapped_bytes);
    printf("},\n ");
    json_text("refused", facts->refused);
    printf(",\n \"captures\":[");
    for (size_t i = 0; i < facts->capture_count; i++) {
        fputs(i ? "," : "", stdout);
        json_capture(&facts->captures[i]);
    }
    printf("],\n \"recordings\":[");
    for (size_t i = 0; i < facts->recording_count; i++) {
        fputs(i ? "," : "", stdout);
        json_recording(&facts->recordings[i]);
    }
    printf("],\n ");
    json_text("chart", facts->chart);
    printf("}\n");
}
