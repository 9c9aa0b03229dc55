/* SPDX-License-Identifier: MIT */
#include "base/outfile.h"
#include "chart.h"
#include "demo.h"
#include "error.h"

#include <stdio.h>
#include <string.h>

enum { DETAIL = 96 };

struct rows {
    struct chart_row row[DEMO_MOST_RECORDINGS];
    char details[DEMO_MOST_RECORDINGS][DETAIL];
    size_t count, measured;
};

/* A file whose graphs hold nothing has no row. */
static void fill_rows(const struct demo_facts *facts, struct rows *rows)
{
    const double mib = 1024.0 * 1024.0;
    rows->count = rows->measured = 0;
    for (size_t i = 0; i < facts->recording_count; i++) {
        const struct demo_recording *r = &facts->recordings[i];
        size_t at = rows->count;
        if (!r->info.lower_bound_bytes || !r->pytorch_best_bytes)
            continue;
        snprintf(rows->details[at], DETAIL, "%zu graph%s", r->info.captures,
                 r->info.captures == 1 ? "" : "s");
        rows->row[at] = (struct chart_row){.name = r->name,
                                           .detail = rows->details[at],
                                           .theirs = (double)r->pytorch_best_bytes / mib,
                                           .ours = (double)r->info.pool_bytes / mib,
                                           .least = (double)r->info.lower_bound_bytes / mib};
        rows->measured += r->pytorch_measured;
        rows->count++;
    }
}

static struct chart describe(const struct rows *rows)
{
    struct chart chart = {.title = "CUDA graphs of PyTorch programs in the least memory",
                          .unit = "MiB",
                          .ours = "Reprise",
                          .least = "lower bound: no layout takes less",
                          .rows = rows->row,
                          .row_count = rows->count};
    chart.subtitle = "What the graphs of a program hold; each line of the axis is twice the one "
                     "before.";
    if (!rows->count)
        chart.subtitle = "There are no recorded captures to draw.";
    if (rows->measured == rows->count) {
        chart.theirs = "PyTorch, the best of three settings";
        chart.footnote =
            "PyTorch 2.11 as measured on an H200: default, reuse flag, reuse flag with "
            "expandable segments.";
    } else {
        chart.theirs = "PyTorch, the best of its settings";
        chart.footnote = rows->measured
                             ? "PyTorch as measured on an H200 where that is known, or by "
                               "its allocator's rules: default, reuse flag."
                             : "PyTorch by its allocator's rules: default, reuse flag.";
    }
    return chart;
}

static void write_chart(FILE *out, const void *chart)
{
    chart_write(out, chart);
}

rp_status demo_chart(const struct demo_options *options, struct demo_facts *facts,
                     struct rp_error *err)
{
    struct rows rows;
    fill_rows(facts, &rows);
    struct chart chart = describe(&rows);
    char folder[DEMO_PATH];
    rp_status status = demo_folder(options->out, folder, err);
    if (status)
        return status;
    if (snprintf(facts->chart, sizeof facts->chart, "%s/demo.svg", folder) >=
        (int)sizeof facts->chart)
        return cli_error(err, RP_ERROR_INVALID_ARGUMENT, "demo_chart", "the path %s is too long",
                         folder);
    return rpi_output_file(facts->chart, "demo_chart", write_chart, &chart, err);
}
