/* SPDX-License-Identifier: MIT
 *
 * reprise bench sweep: captures on several streams, and what each way of placing their blocks takes
 * and costs the host.
 */
#define RP_UNSTABLE /* rp_compare_placements */
#include "cmd_bench.h"
#include "cli.h"
#include "error.h"
#include "options.h"
#include "output.h"
#include "sweep.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: reprise bench sweep [OPTIONS]\n"
    "\n"
    "Captures seeded programs on several streams through the driver and places their blocks in\n"
    "four ways: a model of PyTorch's allocator by its default rule (c10 default) and with\n"
    "graph_capture_record_stream_reuse (c10 reuse), online (place), and planned after a\n"
    "rehearsal (plan). Shows the bytes that each takes beside the lower bound, and the host time\n"
    "of each method alone for an allocation or a free. The model runs c10's algorithms in this\n"
    "program; its times are those of the algorithms, not of PyTorch.\n"
    "\n"
    "  --driver cuda|host   the driver to use (default: cuda where it works, host elsewhere)\n"
    "  --seeds LIST         seeds of each configuration (default: 1,2,3)\n"
    "  --streams LIST       how many streams (default: 2,4,8)\n"
    "  --steps LIST         how many steps (default: 500,10000)\n"
    "  --budget-ms N        time to search for a plan (default: 50)\n"
    "  --quick              500 steps and seed 1\n"
    "  --json               print one JSON list, an object a configuration and seed\n"
    "  -h, --help           print this\n"
    "\n"
    "'reprise bench replay --help' tells of the other benchmark: replays and their execs.\n"
    "\n"
    "exit: 0 done, 2 usage or failure\n";

enum { MOST_LIST = 16, PAIRS = 4, WAYS = 4 };

static const struct {
    double p_free, p_join;
} pairs[PAIRS] = {{0.40, 0.10}, {0.45, 0.30}, {0.30, 0.20}, {0.42, 0.20}};

static const char *const way_names[WAYS] = {"c10_default", "c10_reuse", "place", "plan"};
enum { C10_DEFAULT, C10_REUSE, PLACE, PLAN };

struct list {
    uint64_t values[MOST_LIST];
    size_t count;
};

struct request {
    const char *driver;
    struct list seeds, streams, steps;
    unsigned budget_ms;
    bool json;
};

struct result {
    struct sweep_case which;
    struct rp_placements found;
};

struct results {
    struct result *all;
    size_t count;
};

/* ---- Options ------------------------------------------------------------------------------- */

/* "1,2,3" */
static bool read_list(const char *option, const char *text, uint64_t least, uint64_t most,
                      struct list *out)
{
    out->count = 0;
    for (;;) {
        char *end;
        errno = 0;
        unsigned long long value = strtoull(text, &end, 10);
        if (*text < '0' || *text > '9' || errno || value < least || value > most ||
            out->count == MOST_LIST || (*end && *end != ','))
            return cli_refuse("bench",
                              "--%s wants at most %d numbers from %" PRIu64 " to %" PRIu64
                              ", as in 1,2,3",
                              option, MOST_LIST, least, most);
        out->values[out->count++] = value;
        if (!*end)
            return true;
        text = end + 1;
    }
}

static bool read_budget(struct request *request)
{
    uint64_t value;
    if (!cli_take_number("bench", "budget-ms", 1, 86400000, &value))
        return false;
    request->budget_ms = (unsigned)value;
    return true;
}

static bool take_option(int option, void *taken)
{
    struct request *request = taken;
    switch (option) {
    case 'd':
        return cli_take_driver("bench", &request->driver);
    case 's':
        return read_list("seeds", optarg, 0, UINT64_MAX - 1, &request->seeds);
    case 'n':
        return read_list("streams", optarg, 2, SWEEP_MOST_STREAMS, &request->streams);
    case 't':
        return read_list("steps", optarg, 1, 1000000, &request->steps);
    case 'b':
        return read_budget(request);
    case 'q':
        request->seeds = (struct list){{1}, 1};
        request->steps = (struct list){{500}, 1};
        return true;
    case 'j':
        request->json = true;
        return true;
    default:
        return false;
    }
}

/* The exit code when the command is to end here, -1 when it goes on. */
static int parse(int argc, char **argv, struct request *request)
{
    static const struct option names[] = {{"driver", required_argument, NULL, 'd'},
                                          {"seeds", required_argument, NULL, 's'},
                                          {"streams", required_argument, NULL, 'n'},
                                          {"steps", required_argument, NULL, 't'},
                                          {"budget-ms", required_argument, NULL, 'b'},
                                          {"quick", no_argument, NULL, 'q'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    static const char one[] = "name one benchmark: sweep or replay";
    const struct cli_options options = {"bench", usage, names, take_option, 1, one};
    int code = cli_options_read(&options, argc, argv, request);
    if (code != -1 || !strcmp(argv[optind], "sweep"))
        return code;
    cli_refuse("bench", "%s", one);
    return CLI_USAGE;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static const struct rp_placement *placement(const struct rp_placements *found, int way)
{
    const struct rp_placement *all[WAYS] = {&found->c10_default, &found->c10_reuse, &found->place,
                                            &found->plan};
    return all[way];
}

static void print_json(const struct results *results)
{
    putchar('[');
    for (size_t i = 0; i < results->count; i++) {
        const struct result *r = &results->all[i];
        printf(
            "%s\n {\"streams\":%u,\"steps\":%u,\"p_free\":%.2f,\"p_join\":%.2f,\"seed\":%" PRIu64,
            i ? "," : "", r->which.streams, r->which.steps, r->which.p_free, r->which.p_join,
            r->which.seed);
        printf(",\"nodes\":%zu,\"blocks\":%zu,\"operations\":%zu", r->found.nodes, r->found.blocks,
               r->found.operations);
        for (int way = 0; way < WAYS; way++)
            printf(",\"%s_bytes\":%" PRIu64 ",\"%s_ns_per_op\":%.1f", way_names[way],
                   placement(&r->found, way)->bytes, way_names[way],
                   placement(&r->found, way)->ns_per_op);
        printf(",\"lower_bound_bytes\":%" PRIu64 "}", r->found.lower_bound_bytes);
    }
    puts("\n]");
}

/* ---- The table ----------------------------------------------------------------------------- */

/* A figure of one result; the rows of the table are medians of these. */
typedef double (*figure)(const struct result *result);

static double ratio(uint64_t bytes, uint64_t to)
{
    return to ? (double)bytes / (double)to : 1;
}

static double mib_c10_default(const struct result *r)
{
    return cli_mib(r->found.c10_default.bytes);
}
static double mib_c10_reuse(const struct result *r)
{
    return cli_mib(r->found.c10_reuse.bytes);
}
static double mib_place(const struct result *r)
{
    return cli_mib(r->found.place.bytes);
}
static double mib_plan(const struct result *r)
{
    return cli_mib(r->found.plan.bytes);
}
static double mib_bound(const struct result *r)
{
    return cli_mib(r->found.lower_bound_bytes);
}
static double place_to_reuse(const struct result *r)
{
    return ratio(r->found.place.bytes, r->found.c10_reuse.bytes);
}
static double plan_to_bound(const struct result *r)
{
    return ratio(r->found.plan.bytes, r->found.lower_bound_bytes);
}
static double ns_c10_default(const struct result *r)
{
    return r->found.c10_default.ns_per_op;
}
static double ns_c10_reuse(const struct result *r)
{
    return r->found.c10_reuse.ns_per_op;
}
static double ns_place(const struct result *r)
{
    return r->found.place.ns_per_op;
}
static double ns_plan(const struct result *r)
{
    return r->found.plan.ns_per_op;
}

static const struct column {
    const char *header, *format;
    figure figure;
} columns[] = {{"c10 default", "%.0f", mib_c10_default},
               {"c10 reuse", "%.0f", mib_c10_reuse},
               {"place", "%.0f", mib_place},
               {"plan", "%.0f", mib_plan},
               {"bound", "%.0f", mib_bound},
               {"place/reuse", "%.3f", place_to_reuse},
               {"plan/bound", "%.4f", plan_to_bound},
               {"ns: c10", "%.0f", ns_c10_default},
               {"reuse", "%.0f", ns_c10_reuse},
               {"place", "%.0f", ns_place},
               {"plan", "%.0f", ns_plan}};
enum { COLUMNS = sizeof columns / sizeof *columns };

static int compare_figures(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

struct spread {
    double median, worst;
};

static struct spread spread_of(const struct result *results, size_t count, figure which,
                               double *room)
{
    for (size_t i = 0; i < count; i++)
        room[i] = which(&results[i]);
    qsort(room, count, sizeof *room, compare_figures);
    double median = count % 2 ? room[count / 2] : (room[count / 2 - 1] + room[count / 2]) / 2;
    return (struct spread){median, room[count - 1]};
}

static void add_figure(struct cli_table *table, const struct column *column, double value)
{
    char text[32];
    /* The format is the column's, a literal above. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof text, column->format, value);
#pragma GCC diagnostic pop
    cli_table_cell(table, "%s", text);
}

static void print_summary(const struct results *results, double *room)
{
    struct spread place = spread_of(results->all, results->count, place_to_reuse, room);
    struct spread plan = spread_of(results->all, results->count, plan_to_bound, room);
    printf("\n%zu captures: place takes %.3f of c10 reuse in the median, %.3f at worst; plan takes "
           "%.4f of the bound in the median, %.4f at worst\n",
           results->count, place.median, place.worst, plan.median, plan.worst);
    printf("host time for an allocation or a free, in the median: c10 default %.0f ns, c10 reuse "
           "%.0f, place %.0f, plan %.0f\n",
           spread_of(results->all, results->count, ns_c10_default, room).median,
           spread_of(results->all, results->count, ns_c10_reuse, room).median,
           spread_of(results->all, results->count, ns_place, room).median,
           spread_of(results->all, results->count, ns_plan, room).median);
}

/* Results of one configuration lie together, one for each seed. */
static void print_table(const struct results *results, size_t seeds)
{
    const char *headers[COLUMNS + 1] = {"MiB, medians"};
    struct cli_table table;
    double *room = calloc(results->count, sizeof *room);
    if (!room) {
        cli_say("bench", "out of host memory");
        return;
    }
    for (size_t c = 0; c < COLUMNS; c++)
        headers[c + 1] = columns[c].header;
    cli_table_init(&table, headers, COLUMNS + 1);
    for (size_t i = 0; i < results->count; i += seeds) {
        const struct sweep_case *which = &results->all[i].which;
        cli_table_cell(&table, "%u streams, %u steps, %.2f/%.2f", which->streams, which->steps,
                       which->p_free, which->p_join);
        for (size_t c = 0; c < COLUMNS; c++)
            add_figure(&table, &columns[c],
                       spread_of(&results->all[i], seeds, columns[c].figure, room).median);
    }
    cli_table_print(&table, stdout);
    cli_table_finish(&table);
    print_summary(results, room);
    free(room);
}

/* ---- Running ------------------------------------------------------------------------------- */

/* The cases in order; those of one configuration lie together. */
static void list_cases(const struct request *request, struct results *results)
{
    for (size_t n = 0; n < request->streams.count; n++)
        for (size_t t = 0; t < request->steps.count; t++)
            for (size_t p = 0; p < PAIRS; p++)
                for (size_t s = 0; s < request->seeds.count; s++)
                    results->all[results->count++].which = (struct sweep_case){
                        (unsigned)request->streams.values[n], (unsigned)request->steps.values[t],
                        pairs[p].p_free, pairs[p].p_join, request->seeds.values[s]};
}

static rp_status run_cases(struct sweep *sweep, struct results *results, struct rp_error *err)
{
    for (size_t i = 0; i < results->count; i++) {
        struct result *r = &results->all[i];
        cli_progress(false, "capture %zu of %zu: %u streams, %u steps", i + 1, results->count,
                     r->which.streams, r->which.steps);
        rp_status status = sweep_run(sweep, &r->which, &r->found, err);
        if (status != RP_OK)
            return status;
    }
    return RP_OK;
}

static rp_status run(const struct request *request, struct results *results, struct rp_error *err)
{
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    struct rp_device *device = NULL;
    struct sweep sweep = {0};
    options.driver = request->driver;
    rp_status status = rp_device_open(&options, &device, err);
    if (status != RP_OK)
        return status;
    status = sweep_init(&sweep, device, request->budget_ms, err);
    if (status == RP_OK)
        status = run_cases(&sweep, results, err);
    cli_progress_end();
    if (status == RP_OK && request->json) {
        print_json(results);
    } else if (status == RP_OK) {
        struct rp_device_info info = {.size = sizeof info};
        rp_device_info(device, &info);
        printf("driver %s: %s\n\n", info.driver, info.name);
        print_table(results, request->seeds.count);
    }
    sweep_finish(&sweep);
    rp_device_destroy(device);
    if (status == RP_OK && (fflush(stdout) || ferror(stdout)))
        return cli_error(err, RP_ERROR_IO, "printing", "standard output did not take the result");
    return status;
}

/* Is it the last word, where the benchmark's name stands, or the first? */
static bool names(int argc, char **argv, const char *name)
{
    return argc > 1 && (!strcmp(argv[1], name) || !strcmp(argv[argc - 1], name));
}

int cmd_bench(int argc, char **argv)
{
    if (names(argc, argv, "replay"))
        return cmd_bench_replay(argc, argv);
    struct request request = {.seeds = {{1, 2, 3}, 3},
                              .streams = {{2, 4, 8}, 3},
                              .steps = {{500, 10000}, 2},
                              .budget_ms = 50};
    int code = parse(argc, argv, &request);
    if (code >= 0)
        return code;
    size_t cases = request.streams.count * request.steps.count * PAIRS * request.seeds.count;
    struct results results = {calloc(cases, sizeof *results.all), 0};
    if (!results.all) {
        cli_say("bench", "out of host memory");
        return CLI_USAGE;
    }
    struct rp_error err = {0};
    list_cases(&request, &results);
    rp_status status = run(&request, &results, &err);
    if (status != RP_OK)
        cli_fail("bench", &err);
    free(results.all);
    return status == RP_OK ? CLI_DONE : CLI_USAGE;
}
