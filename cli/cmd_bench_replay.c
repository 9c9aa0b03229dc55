/* SPDX-License-Identifier: MIT
 *
 * reprise bench replay: what a replay costs the host, what many shapes of one callable take of the
 * device's memory, and what their execs cost.
 */
#include "bench_chain.h"
#include "bench_shapes.h"
#include "cli.h"
#include "cmd_bench.h"
#include "error.h"
#include "exec_memory.h"
#include "options.h"
#include "output.h"

#include <inttypes.h>
#include <string.h>

static const char usage[] =
    "usage: reprise bench replay [OPTIONS]\n"
    "\n"
    "Times the host's side of a replay whose arguments are all at new addresses: bound by "
    "Reprise,\n"
    "with bare calls of the driver, and with copies in and out done by hand. Then captures a\n"
    "decoder's step at many batch sizes: the device memory they take under budgets for executable\n"
    "graphs, a hot shape beside one whose executable graph was never shared, and what walks over\n"
    "the shapes cost beside an executable graph for each and beside always updating one.\n"
    "\n"
    "  --driver cuda|host   the driver to use (default: cuda where it works, host elsewhere)\n"
    "  --shapes N           batch sizes 1 to N, from 2 to 4096 (default: 512; host: 32)\n"
    "  --steps N            replays of a walk (default: 2000; host: 300)\n"
    "  --rounds N           medians of so many rounds (default: 3)\n"
    "  --calls N            calls for each way of a chain (default: 500)\n"
    "  --quick              16 shapes, 64 steps, 1 round, 20 calls\n"
    "  --json               print one JSON object\n"
    "  -h, --help           print this\n"
    "\n"
    "exit: 0 done, 2 usage or failure\n";

struct request {
    const char *driver;
    uint64_t shapes, steps, rounds, calls; /* 0: the default */
    bool json;
};

struct results {
    char driver[16], device[128];
    struct bench_chain chains[BENCH_CHAINS];
    struct bench_shapes shapes;
};

/* ---- Options ------------------------------------------------------------------------------- */

static bool take_option(int option, void *taken)
{
    struct request *request = taken;
    switch (option) {
    case 'd':
        return cli_take_driver("bench replay", &request->driver);
    case 's':
        return cli_take_number("bench replay", "shapes", 2, 4096, &request->shapes);
    case 't':
        return cli_take_number("bench replay", "steps", 1, 1000000, &request->steps);
    case 'r':
        return cli_take_number("bench replay", "rounds", 1, 1000, &request->rounds);
    case 'c':
        return cli_take_number("bench replay", "calls", 1, 1000000, &request->calls);
    case 'q':
        *request = (struct request){request->driver, 16, 64, 1, 20, request->json};
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
                                          {"shapes", required_argument, NULL, 's'},
                                          {"steps", required_argument, NULL, 't'},
                                          {"rounds", required_argument, NULL, 'r'},
                                          {"calls", required_argument, NULL, 'c'},
                                          {"quick", no_argument, NULL, 'q'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    static const char more[] = "takes options, and no other word";
    const struct cli_options options = {"bench replay", usage, names, take_option, 1, more};
    return cli_options_read(&options, argc, argv, request);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static const char *const chain_ways[BENCH_CHAIN_WAYS] = {"bound", "chosen", "bare", "copies"};

/* Of binding all arguments and copying them by hand. */
static double cheaper(const struct bench_chain *chain)
{
    double bound = chain->us[BENCH_BOUND], copies = chain->us[BENCH_COPIES];
    return bound < copies ? bound : copies;
}

static void print_chains(const struct bench_chain *chains)
{
    fputs(",\"chains\":[", stdout);
    for (size_t i = 0; i < BENCH_CHAINS; i++) {
        const struct bench_chain *c = &chains[i];
        printf("%s\n {\"kernels\":%zu,\"args\":%zu,\"bound_args\":%zu,\"copied_args\":%zu,"
               "\"chosen_after\":%zu,\"nodes_patched_a_replay\":%.2f",
               i ? "," : "", c->kernels, c->args, c->bound_args, c->copied_args, c->chosen_after,
               c->patched);
        for (int way = 0; way < BENCH_CHAIN_WAYS; way++)
            printf(",\"%s_us\":%.3f,\"%s_done_us\":%.3f", chain_ways[way], c->us[way],
                   chain_ways[way], c->done_us[way]);
        printf(",\"bound_over_bare\":%.3f,\"chosen_over_cheaper\":%.3f}",
               c->us[BENCH_BOUND] / c->us[BENCH_BARE], c->us[BENCH_CHOSEN] / cheaper(c));
    }
    fputs("]", stdout);
}

static void print_memory(const struct bench_memory *memory)
{
    fputs(",\n\"memory\":[", stdout);
    for (size_t b = 0; b < BENCH_BUDGETS; b++) {
        const struct bench_memory *m = &memory[b];
        printf("%s\n {\"budget\":\"%s\",\"budget_bytes\":%" PRIu64 ",\"largest_bytes\":%" PRIu64
               ",\"all_bytes\":%" PRIu64 ",\"pool_bytes\":%" PRIu64 ",\"capture_ms\":%.1f",
               b ? "," : "", m->budget, m->budget_bytes, m->largest_bytes, m->all_bytes,
               m->pool_bytes, m->capture_ms);
        printf(",\"execs\":%zu,\"exec_bytes\":%" PRIu64, m->execs.execs, m->execs.bytes);
        cli_exec_json(&m->execs, "exec_");
        printf(",\"topologies\":%zu,\"instantiated\":%" PRIu64 ",\"updates\":%" PRIu64
               ",\"refused\":%" PRIu64 "}",
               m->execs.topologies, m->execs.instantiated, m->execs.updates, m->execs.refused);
    }
    fputs("]", stdout);
}

static void print_hot(const struct bench_hot *hot)
{
    printf(",\n\"hot\":{\"rows\":%u,\"nodes\":%zu,\"replays_until_own\":%zu,\"own_us\":%.3f,"
           "\"fresh_us\":%.3f,\"updated_us\":%.3f,\"own_over_fresh\":%.4f,"
           "\"updated_over_fresh\":%.4f}",
           hot->rows, hot->nodes, hot->replays_until_own, hot->own_us, hot->fresh_us,
           hot->updated_us, hot->own_us / hot->fresh_us, hot->updated_us / hot->fresh_us);
}

static void print_walks(const struct bench_shapes *shapes)
{
    printf(",\n\"small_budget_bytes\":%" PRIu64 ",\"walks\":[", shapes->small_bytes);
    for (size_t w = 0; w < BENCH_WALK_COUNT; w++) {
        const struct bench_walk_costs *c = &shapes->walks[w];
        printf("%s\n {\"walk\":\"%s\",\"steps\":%zu,\"plain_us\":%.0f", w ? "," : "",
               bench_walk_names[c->walk], shapes->steps, c->plain_us);
        for (int way = 0; way < BENCH_WAYS; way++)
            printf(",\"%s\":{\"cost_us\":%.0f,\"instantiated\":%" PRIu64 ",\"updates\":%" PRIu64
                   "}",
                   bench_way_names[way], c->cost_us[way], c->instantiated[way], c->updates[way]);
        fputs("}", stdout);
    }
    fputs("]", stdout);
}

static void print_json(const struct results *r)
{
    printf("{\"driver\":\"%s\",\"device\":", r->driver);
    cli_json_text(stdout, r->device);
    printf(",\"shapes\":%zu", r->shapes.shapes);
    print_chains(r->chains);
    print_memory(r->shapes.memory);
    print_hot(&r->shapes.hot);
    print_walks(&r->shapes);
    puts("}");
}

/* ---- Tables -------------------------------------------------------------------------------- */

static void show_chains(const struct bench_chain *chains)
{
    static const char *const headers[] = {
        "host us of a replay", "bound",  "chosen",      "bare",   "copies",
        "bound/bare",          "copied", "done: bound", "chosen", "copies"};
    struct cli_table table;
    cli_table_init(&table, headers, 10);
    for (size_t i = 0; i < BENCH_CHAINS; i++) {
        const struct bench_chain *c = &chains[i];
        cli_table_cell(&table, "%zu kernels, %zu arguments", c->kernels, c->args);
        for (int way = 0; way < BENCH_CHAIN_WAYS; way++)
            cli_table_cell(&table, "%.2f", c->us[way]);
        cli_table_cell(&table, "%.3f", c->us[BENCH_BOUND] / c->us[BENCH_BARE]);
        cli_table_cell(&table, "%zu", c->copied_args);
        cli_table_cell(&table, "%.2f", c->done_us[BENCH_BOUND]);
        cli_table_cell(&table, "%.2f", c->done_us[BENCH_CHOSEN]);
        cli_table_cell(&table, "%.2f", c->done_us[BENCH_COPIES]);
    }
    cli_table_print(&table, stdout);
    cli_table_finish(&table);
}

static void show_memory(const struct bench_shapes *shapes)
{
    static const char *const headers[] = {
        "device memory, MiB", "largest alone", "all", "pool", "execs", "exec memory", "estimated"};
    struct cli_table table;
    printf("\n%zu shapes, by budget for executable graphs\n", shapes->shapes);
    cli_table_init(&table, headers, 7);
    for (size_t b = 0; b < BENCH_BUDGETS; b++) {
        const struct bench_memory *m = &shapes->memory[b];
        cli_table_cell(&table, "%s", m->budget);
        cli_table_mib(&table, m->largest_bytes);
        cli_table_mib(&table, m->all_bytes);
        cli_table_mib(&table, m->pool_bytes);
        cli_table_cell(&table, "%zu", m->execs.execs);
        cli_table_mib(&table, m->execs.measured_bytes);
        cli_table_mib(&table, m->execs.bytes);
    }
    cli_table_print(&table, stdout);
    cli_table_finish(&table);
    const struct bench_memory *each = &shapes->memory[BENCH_BUDGETS - 1];
    char text[256];
    cli_exec_describe(&each->execs, text, sizeof text);
    printf("\n%zu executable graphs, %s: %s\n", each->execs.execs, each->budget, text);
}

static void show_hot(const struct bench_hot *hot)
{
    printf(
        "\nbatch size %u, again and again: its own after %zu replays; device time %.2f us by its "
        "own, %.2f by one never shared (%.4f), %.2f by an updated one (%.4f)\n",
        hot->rows, hot->replays_until_own, hot->own_us, hot->fresh_us, hot->own_us / hot->fresh_us,
        hot->updated_us, hot->updated_us / hot->fresh_us);
}

static void show_walks(const struct bench_shapes *shapes)
{
    static const char *const headers[] = {"cost of a walk, ms", "one each", "always update",
                                          "holds all",          "small",    "one exec"};
    struct cli_table table;
    printf("\n%zu replays, beyond the time with an executable graph for each; small: %.1f MiB\n",
           shapes->steps, cli_mib(shapes->small_bytes));
    cli_table_init(&table, headers, 1 + BENCH_WAYS);
    for (size_t w = 0; w < BENCH_WALK_COUNT; w++) {
        cli_table_cell(&table, "%s", bench_walk_names[shapes->walks[w].walk]);
        for (int way = 0; way < BENCH_WAYS; way++)
            cli_table_cell(&table, "%.2f", shapes->walks[w].cost_us[way] / 1000);
    }
    cli_table_print(&table, stdout);
    cli_table_finish(&table);
}

static void show(const struct results *r)
{
    printf("driver %s: %s\n\n", r->driver, r->device);
    show_chains(r->chains);
    show_memory(&r->shapes);
    show_hot(&r->shapes.hot);
    show_walks(&r->shapes);
}

/* ---- Running ------------------------------------------------------------------------------- */

static rp_status run_chains(const struct request *request, struct results *results,
                            struct rp_error *err)
{
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    struct rp_device *device = NULL;
    struct rp_device_info info = {.size = sizeof info};
    options.driver = request->driver;
    options.host_check_races = 0;
    rp_status status = rp_device_open(&options, &device, err);
    if (status)
        return status;
    rp_device_info(device, &info);
    snprintf(results->driver, sizeof results->driver, "%s", info.driver);
    snprintf(results->device, sizeof results->device, "%s", info.name);
    status = bench_chain_run(device, request->calls ? request->calls : 500, results->chains, err);
    rp_device_destroy(device);
    return status;
}

static rp_status run(const struct request *request, struct results *results, struct rp_error *err)
{
    rp_status status = run_chains(request, results, err);
    if (status)
        return status;
    bool host = !strcmp(results->driver, "host");
    struct bench_shapes *shapes = &results->shapes;
    shapes->shapes = request->shapes ? request->shapes : host ? 32 : 512;
    shapes->steps = request->steps ? request->steps : host ? 300 : 2000;
    shapes->rounds = request->rounds ? request->rounds : 3;
    return bench_shapes_run(results->driver, shapes, err);
}

int cmd_bench_replay(int argc, char **argv)
{
    struct request request = {0};
    struct results results = {.driver = ""};
    struct rp_error err = {0};
    int code = parse(argc, argv, &request);
    if (code >= 0)
        return code;
    rp_status status = run(&request, &results, &err);
    cli_progress_end();
    if (status) {
        cli_say("bench", "%s: %s", err.operation, err.message);
        return CLI_USAGE;
    }
    if (request.json)
        print_json(&results);
    else
        show(&results);
    if (!fflush(stdout) && !ferror(stdout))
        return CLI_DONE;
    cli_say("bench", "printing: standard output did not take the result");
    return CLI_USAGE;
}
