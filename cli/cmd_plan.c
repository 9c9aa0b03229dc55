/* SPDX-License-Identifier: MIT
 *
 * reprise plan: what recorded captures need, beside the least possible and what PyTorch would hold.
 */
#include "cli.h"
#include "error.h"
#include "inputs.h"
#include "options.h"
#include "output.h"

#include "reprise.h"
#include "reprise_tools.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LONG_MS = 1000 }; /* a budget from which on a person wants to see what goes on */
#define LONG_STEPS (LONG_MS * UINT64_C(1000000))
#define MOST_STEPS (UINT64_C(86400000) * 1000000) /* about a day */

struct request {
    struct rp_plan_options options;
    bool json;
    const char *out, *draw;
};

struct totals {
    size_t files, captures, optimal, failed, unmet, recordings;
    uint64_t pool, bound;
    uint64_t recorded, c10_default, c10_reuse; /* of files that are not CSV */
    double ms;
};

struct printer {
    const struct request *request;
    struct cli_table table; /* without --json */
    struct totals totals;
};

static const char usage[] =
    "usage: reprise plan [OPTIONS] FILE|FOLDER...\n"
    "\n"
    "Plans the memory of recorded captures. For each capture: its blocks, their sum, the peak\n"
    "in host order, the exact lower bound, the planned height, their ratio, and what "
    "PyTorch's\n"
    "allocator would hold by its default rule and with graph_capture_record_stream_reuse.\n"
    "Files are reprise-capture/1 (JSON, gzip or not) or CSV with the header\n"
    "id,lower,upper,size; docs/formats.md defines both. Of a folder, all its .json, .json.gz and\n"
    ".csv files are taken, in the order of their names.\n"
    "\n"
    "options:\n"
    "  --json            print one JSON list, an object a file, and nothing else\n"
    "  --capacity SIZE   stop once the layout fits; exit with 1 where it does not. A number of\n"
    "                    bytes, or with a unit: 64MiB, 1.5GiB, 100MB\n"
    "  --budget-steps N  work on a better layout, for each file (default 50000000, which takes\n"
    "                    some 50 ms on an idle core): the same layout on every machine\n"
    "  --budget-ms N     time for that instead: what comes of it depends on the machine\n"
    "  --threads N       threads that search (default 1)\n"
    "  --align N         round sizes and offsets up to N, a power of two (default 512 for\n"
    "                    captures, 1 for CSV)\n"
    "  --out FILE        write the offsets of the one input: reprise-layout/1, or the CSV\n"
    "                    with an offset column\n"
    "  --draw FILE       draw the layout of the one input as SVG: address upwards, order to\n"
    "                    the right, one rectangle a block\n"
    "  -h, --help        print this\n"
    "\n"
    "exit: 0 done, 1 a capacity is not met, 2 usage or a file that could not be used (the\n"
    "others are still reported)\n";

/* ---- Options ------------------------------------------------------------------------------- */

enum {
    OPT_JSON = 256,
    OPT_CAPACITY,
    OPT_STEPS,
    OPT_BUDGET,
    OPT_THREADS,
    OPT_ALIGN,
    OPT_OUT,
    OPT_DRAW
};

static const struct option long_options[] = {
    {"json", no_argument, NULL, OPT_JSON},
    {"capacity", required_argument, NULL, OPT_CAPACITY},
    {"budget-steps", required_argument, NULL, OPT_STEPS},
    {"budget-ms", required_argument, NULL, OPT_BUDGET},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"align", required_argument, NULL, OPT_ALIGN},
    {"out", required_argument, NULL, OPT_OUT},
    {"draw", required_argument, NULL, OPT_DRAW},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static bool take_number(const char *option, uint64_t most, uint64_t *out)
{
    return cli_take_number("plan", option, 1, most, out);
}

/* Once: a second would be for another input. */
static bool take_path(const char *option, const char **out)
{
    if (*out)
        return cli_refuse("plan", "--%s is given twice, '%s' and '%s'", option, *out, optarg);
    *out = optarg;
    return true;
}

static bool take_alignment(struct request *request)
{
    uint64_t value;
    if (!cli_number(optarg, 1, 1u << 30, &value) || (value & (value - 1)))
        return cli_refuse("plan", "--align must be a power of two from 1 to 2^30, not '%s'",
                          optarg);
    request->options.alignment = value;
    return true;
}

static bool take_option(int option, void *into)
{
    struct request *request = into;
    uint64_t value = 0;
    bool good = true;
    switch (option) {
    case OPT_JSON:
        request->json = true;
        break;
    case OPT_OUT:
        return take_path("out", &request->out);
    case OPT_DRAW:
        return take_path("draw", &request->draw);
    case OPT_CAPACITY:
        return cli_size(optarg, &request->options.capacity_bytes) ||
               cli_refuse("plan",
                          "--capacity must be from 1 to 9223372036854775807 bytes, or a size such "
                          "as 64MiB, not '%s'",
                          optarg);
    case OPT_STEPS:
        return take_number("budget-steps", MOST_STEPS, &request->options.budget_steps);
    case OPT_BUDGET:
        good = take_number("budget-ms", 86400000, &value);
        request->options.budget_ms = (unsigned)value;
        break;
    case OPT_THREADS:
        good = take_number("threads", 256, &value);
        request->options.threads = (unsigned)value;
        break;
    case OPT_ALIGN:
        return take_alignment(request);
    }
    return good;
}

static const struct cli_options reading = {
    "plan", usage, long_options, take_option, CLI_SOME, "give at least one file",
};

/* What is written is of one input, and goes to files of their own. */
static bool fits_inputs(const struct request *request, const struct cli_inputs *inputs)
{
    const struct cli_output outputs[] = {{"out", request->out}, {"draw", request->draw}};
    if (request->options.budget_ms && request->options.budget_steps)
        return cli_refuse("plan", "give --budget-ms or --budget-steps, not both");
    if (request->out && inputs->count > 1)
        return cli_refuse("plan", "--out takes one input, not %zu", inputs->count);
    if (request->draw && inputs->count > 1)
        return cli_refuse("plan", "--draw takes one input, not %zu", inputs->count);
    return cli_outputs_apart("plan", outputs, 2, inputs);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void json_bytes(const char *key, uint64_t bytes)
{
    printf(",\"%s\":%" PRIu64, key, bytes);
}

/* c10 has nothing to say of CSV. */
static void json_c10(bool csv, uint64_t by_default, uint64_t with_reuse)
{
    if (csv) {
        fputs(",\"c10_default_bytes\":null,\"c10_reuse_bytes\":null", stdout);
        return;
    }
    json_bytes("c10_default_bytes", by_default);
    json_bytes("c10_reuse_bytes", with_reuse);
}

static void json_capture(const struct rp_layout *layout, size_t index, bool csv)
{
    struct rp_layout_capture capture = {.size = sizeof capture};
    rp_layout_capture(layout, index, &capture);
    printf("%s\n  {\"name\":", index ? "," : "");
    cli_json_text(stdout, capture.name);
    json_bytes("blocks", capture.blocks);
    json_bytes("total_bytes", capture.total_bytes);
    json_bytes("peak_bytes", capture.peak_bytes);
    json_bytes("lower_bound_bytes", capture.lower_bound_bytes);
    json_bytes("planned_bytes", capture.planned_bytes);
    json_c10(csv, capture.c10_default_bytes, capture.c10_reuse_bytes);
    putchar('}');
}

static void json_open(const struct printer *printer, const char *file)
{
    bool first = printer->totals.files + printer->totals.failed == 0;
    printf("%s\n {\"file\":", first ? "" : ",");
    cli_json_text(stdout, file);
}

static void json_file(const struct printer *printer, const char *file,
                      const struct rp_layout *layout, bool csv, double ms)
{
    struct rp_layout_info info = {.size = sizeof info};
    rp_layout_info(layout, &info);
    json_open(printer, file);
    json_bytes("pool_bytes", info.pool_bytes);
    json_bytes("lower_bound_bytes", info.lower_bound_bytes);
    printf(",\"bound_exact\":%s", info.bound_exact ? "true" : "false");
    printf(",\"proof\":%s%s%s", info.proof ? "\"" : "", info.proof ? info.proof : "null",
           info.proof ? "\"" : "");
    printf(",\"optimal\":%s", info.optimal ? "true" : "false");
    printf(",\"stopped\":%s", info.stopped ? "\"budget\"" : "null");
    json_bytes("steps", info.steps);
    if (printer->request->options.capacity_bytes)
        printf(",\"fits\":%s", info.fits > 0 ? "true" : info.fits == 0 ? "false" : "null");
    printf(",\"ms\":%.3f", ms);
    json_c10(csv, info.c10_default_bytes, info.c10_reuse_bytes);
    fputs(",\"captures\":[", stdout);
    for (size_t c = 0; c < info.captures; c++)
        json_capture(layout, c, csv);
    fputs("]}", stdout);
}

/* ---- The table ----------------------------------------------------------------------------- */

static const char *const headers[] = {"MiB",     "blocks", "total",       "peak",      "bound",
                                      "planned", "ratio",  "c10 default", "c10 reuse", ""};
enum { COLUMNS = sizeof headers / sizeof *headers };

static double ratio(uint64_t planned, uint64_t bound)
{
    return bound ? (double)planned / (double)bound : 1;
}

static void table_c10(struct cli_table *table, bool csv, uint64_t by_default, uint64_t with_reuse)
{
    if (csv) {
        cli_table_cell(table, "-");
        cli_table_cell(table, "-");
        return;
    }
    cli_table_mib(table, by_default);
    cli_table_mib(table, with_reuse);
}

static void table_capture(struct cli_table *table, const struct rp_layout *layout, size_t index,
                          bool csv)
{
    struct rp_layout_capture capture = {.size = sizeof capture};
    rp_layout_capture(layout, index, &capture);
    cli_table_cell(table, "  %s", capture.name);
    cli_table_cell(table, "%zu", capture.blocks);
    cli_table_mib(table, capture.total_bytes);
    cli_table_mib(table, capture.peak_bytes);
    cli_table_mib(table, capture.lower_bound_bytes);
    cli_table_mib(table, capture.planned_bytes);
    cli_table_cell(table, "%.3f", ratio(capture.planned_bytes, capture.lower_bound_bytes));
    table_c10(table, csv, capture.c10_default_bytes, capture.c10_reuse_bytes);
    cli_table_empty(table, 1);
}

#define STOPPED "stopped by the budget"

static const char *verdict(const struct rp_layout_info *info, bool has_capacity)
{
    if (has_capacity)
        return info->fits > 0    ? "fits"
               : info->fits == 0 ? "cannot fit"
               : info->stopped   ? "no fit found: " STOPPED
                                 : "no fit found";
    return info->proof ? "optimal" : info->stopped ? STOPPED : "best found";
}

static void table_file(struct printer *printer, const char *file, const struct rp_layout *layout,
                       bool csv)
{
    struct cli_table *table = &printer->table;
    struct rp_layout_info info = {.size = sizeof info};
    rp_layout_info(layout, &info);
    cli_table_section(table, file);
    for (size_t c = 0; c < info.captures; c++)
        table_capture(table, layout, c, csv);
    cli_table_cell(table, "  = pool");
    cli_table_empty(table, 3);
    cli_table_mib(table, info.lower_bound_bytes);
    cli_table_mib(table, info.pool_bytes);
    cli_table_cell(table, "%.3f", ratio(info.pool_bytes, info.lower_bound_bytes));
    table_c10(table, csv, info.c10_default_bytes, info.c10_reuse_bytes);
    cli_table_cell(table, "%s", verdict(&info, printer->request->options.capacity_bytes != 0));
}

static void print_summary(const struct totals *t)
{
    printf("\n%zu file%s, %zu capture%s: %.1f MiB planned for a bound of %.1f (%.3f)", t->files,
           t->files == 1 ? "" : "s", t->captures, t->captures == 1 ? "" : "s", cli_mib(t->pool),
           cli_mib(t->bound), ratio(t->pool, t->bound));
    if (t->recordings)
        printf("; PyTorch holds %.1f for the recorded captures, or %.1f with its reuse flag",
               cli_mib(t->c10_default), cli_mib(t->c10_reuse));
    printf("; %zu of %zu proved optimal; %.0f ms\n", t->optimal, t->files, t->ms);
}

/* ---- Files --------------------------------------------------------------------------------- */

static void count_file(struct totals *totals, const struct rp_layout *layout, bool csv,
                       bool has_capacity)
{
    struct rp_layout_info info = {.size = sizeof info};
    rp_layout_info(layout, &info);
    totals->files++;
    totals->captures += info.captures;
    totals->optimal += info.optimal != 0;
    totals->unmet += has_capacity && info.fits <= 0;
    totals->pool += info.pool_bytes;
    totals->bound += info.lower_bound_bytes;
    totals->recordings += !csv;
    totals->c10_default += info.c10_default_bytes;
    totals->c10_reuse += info.c10_reuse_bytes;
}

/* Reports a file that could not be used. */
static void report_error(struct printer *printer, const char *file, const struct rp_error *err)
{
    cli_progress_end();
    if (printer->request->json) {
        json_open(printer, file);
        fputs(",\"error\":", stdout);
        cli_json_text(stdout, err->message);
        putchar('}');
    } else {
        cli_fail("plan", err);
    }
    printer->totals.failed++;
}

/* The time of a file is what passes until its results are at hand: reading and writing too. */
static rp_status plan_file(struct printer *printer, const char *file, struct rp_error *err)
{
    double start = cli_seconds();
    struct rp_recording *recording = NULL;
    struct rp_layout *layout = NULL;
    rp_status status = rp_recording_load(file, &recording, err);
    bool csv = status == RP_OK && rp_recording_is_csv(recording);
    if (status == RP_OK)
        status = rp_recording_plan(recording, &printer->request->options, &layout, err);
    if (status == RP_OK && printer->request->out)
        status = rp_layout_write(layout, printer->request->out, err);
    if (status == RP_OK && printer->request->draw)
        status = rp_layout_draw(layout, printer->request->draw, err);
    double ms = (cli_seconds() - start) * 1000;
    printer->totals.ms += ms;
    if (status == RP_OK) {
        if (printer->request->json)
            json_file(printer, file, layout, csv, ms);
        else
            table_file(printer, file, layout, csv);
        count_file(&printer->totals, layout, csv, printer->request->options.capacity_bytes != 0);
    }
    rp_layout_destroy(layout);
    rp_recording_destroy(recording);
    return status;
}

static bool is_long(const struct request *request)
{
    return request->options.budget_ms >= LONG_MS || request->options.budget_steps >= LONG_STEPS;
}

static int plan_all(const struct request *request, const struct cli_inputs *inputs)
{
    struct printer printer = {.request = request};
    if (request->json)
        putchar('[');
    cli_table_init(&printer.table, headers, COLUMNS);
    for (size_t i = 0; i < inputs->count; i++) {
        struct rp_error err = {0};
        cli_progress(is_long(request), "planning %s (%zu of %zu)", inputs->paths[i], i + 1,
                     inputs->count);
        if (plan_file(&printer, inputs->paths[i], &err) != RP_OK)
            report_error(&printer, inputs->paths[i], &err);
    }
    cli_progress_end();
    if (request->json) {
        puts("\n]");
    } else if (printer.totals.files) {
        cli_table_print(&printer.table, stdout);
        print_summary(&printer.totals);
    }
    cli_table_finish(&printer.table);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_say("plan", "the results could not be written");
        return CLI_USAGE;
    }
    return printer.totals.failed ? CLI_USAGE : printer.totals.unmet ? CLI_NO : CLI_DONE;
}

int cmd_plan(int argc, char **argv)
{
    struct request request = {.options = RP_PLAN_OPTIONS_INIT};
    struct cli_inputs inputs = {0};
    int code = cli_options_read(&reading, argc, argv, &request);
    if (code >= 0)
        return code;
    code = cli_inputs_find("plan", argv + optind, (size_t)(argc - optind), &inputs) &&
                   fits_inputs(&request, &inputs)
               ? plan_all(&request, &inputs)
               : CLI_USAGE;
    cli_inputs_finish(&inputs);
    return code;
}
