/* SPDX-License-Identifier: MIT */
#include "chart.h"
#include "demo.h"
#include "error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define COLOR_OURS   "#2f6fde"
#define COLOR_PEER   "#8f99a8"
#define COLOR_PEER_2 "#cfd4dc"

enum { LABEL = 96 };

/* Pool memory after each capture beside a pool of its own for each. */
struct pool_panel {
    double together[DEMO_MOST_BATCHES], apart[DEMO_MOST_BATCHES];
    char labels[DEMO_MOST_BATCHES][LABEL];
    const char *categories[DEMO_MOST_BATCHES];
    struct chart_series series[2];
    char subtitle[256];
};

static struct chart_panel pool_panel(const struct demo_facts *facts, struct pool_panel *p)
{
    const double kib = 1024.0;
    double sum = 0.0;
    const struct demo_capture *last = &facts->captures[facts->capture_count - 1];
    for (size_t i = 0; i < facts->capture_count; i++) {
        const struct demo_capture *c = &facts->captures[i];
        sum += (double)c->graph_planned_bytes / kib;
        p->apart[i] = sum;
        p->together[i] = (double)c->pool_bytes_after / kib;
        snprintf(p->labels[i], LABEL, "%s\n%zu nodes", c->name, c->nodes);
        p->categories[i] = p->labels[i];
    }
    p->series[0] = (struct chart_series){"a pool for each, added up", COLOR_PEER_2, p->apart};
    p->series[1] = (struct chart_series){"one pool of alternatives", COLOR_OURS, p->together};
    snprintf(p->subtitle, sizeof p->subtitle, "Pool memory after each capture, in this order. %s",
             facts->device.name);
    return (struct chart_panel){.title = "One decoder step, captured batch size after batch size",
                                .subtitle = p->subtitle,
                                .axis = "KiB",
                                .value_format = "%.0f",
                                .category = p->categories,
                                .categories = facts->capture_count,
                                .series = p->series,
                                .series_count = 2,
                                .reference = (double)last->lower_bound_bytes / kib,
                                .reference_name = "lower bound: no layout takes less"};
}

/* Recorded captures, everything divided by the bound. */
struct recording_panel {
    double c10_default[DEMO_MOST_RECORDINGS], c10_reuse[DEMO_MOST_RECORDINGS];
    double planned[DEMO_MOST_RECORDINGS];
    char labels[DEMO_MOST_RECORDINGS][LABEL];
    const char *categories[DEMO_MOST_RECORDINGS];
    struct chart_series series[3];
};

static struct chart_panel recording_panel(const struct demo_facts *facts, struct recording_panel *p)
{
    for (size_t i = 0; i < facts->recording_count; i++) {
        const struct rp_layout_info *info = &facts->recordings[i].info;
        double bound = info->lower_bound_bytes ? (double)info->lower_bound_bytes : 1.0;
        p->c10_default[i] = (double)info->c10_default_bytes / bound;
        p->c10_reuse[i] = (double)info->c10_reuse_bytes / bound;
        p->planned[i] = (double)info->pool_bytes / bound;
        snprintf(p->labels[i], LABEL, "%s\n%.1f MiB", facts->recordings[i].name,
                 bound / (1024.0 * 1024.0));
        p->categories[i] = p->labels[i];
    }
    p->series[0] = (struct chart_series){"PyTorch, default", COLOR_PEER_2, p->c10_default};
    p->series[1] = (struct chart_series){"PyTorch, reuse flag", COLOR_PEER, p->c10_reuse};
    p->series[2] = (struct chart_series){"Reprise, planned", COLOR_OURS, p->planned};
    return (struct chart_panel){
        .title = "Captures recorded from PyTorch programs",
        .subtitle = "Memory that each file's graphs hold, divided by its lower bound (below the "
                    "name). PyTorch: by its allocator's rules.",
        .axis = "times the lower bound",
        .value_format = "%.3f",
        .category = p->categories,
        .categories = facts->recording_count,
        .series = p->series,
        .series_count = 3,
        .most = 4.0,
        .reference = 1.0,
        .reference_name = "lower bound: no layout takes less"};
}

/* Makes a directory and those above it. */
static rp_status make_directories(const char *path, struct rp_error *err)
{
    char part[DEMO_PATH];
    if (snprintf(part, sizeof part, "%s/", path) >= (int)sizeof part)
        return cli_error(err, RP_ERROR_INVALID_ARGUMENT, "demo_chart", "the path %s is too long",
                         path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(part, 0777) && errno != EEXIST)
            return cli_error(err, RP_ERROR_IO, "mkdir", "%s: %s", part, strerror(errno));
        *slash = '/';
    }
    return RP_OK;
}

rp_status demo_chart(const struct demo_options *options, struct demo_facts *facts,
                     struct rp_error *err)
{
    struct pool_panel pool;
    struct recording_panel recordings;
    struct chart_panel panels[] = {pool_panel(facts, &pool), recording_panel(facts, &recordings)};
    rp_status status = make_directories(options->out, err);
    if (status)
        return status;
    if (snprintf(facts->chart, sizeof facts->chart, "%s/demo.svg", options->out) >=
        (int)sizeof facts->chart)
        return cli_error(err, RP_ERROR_INVALID_ARGUMENT, "demo_chart", "the path %s is too long",
                         options->out);
    FILE *out = fopen(facts->chart, "w");
    int good =
        out && chart_write(out, "CUDA graphs in the least memory",
                           "The lower bound is the heaviest set of blocks no two of which may "
                           "share memory while the graph keeps its concurrency.",
                           panels, facts->recording_count ? 2 : 1);
    if (out && fclose(out))
        good = 0;
    return good ? RP_OK
                : cli_error(err, RP_ERROR_IO, "demo_chart", "%s could not be written: %s",
                            facts->chart, strerror(errno));
}
