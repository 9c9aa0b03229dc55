/* SPDX-License-Identifier: MIT
 *
 * reprise inspect: captures a step of the built-in decoder and lists its sites: which argument or
 * block each node of the graph touches.
 */
#include "cli.h"
#include "decoder.h"
#include "error.h"
#include "options.h"
#include "output.h"
#include "reprise_tools.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: reprise inspect [OPTIONS]\n"
    "\n"
    "Captures a step of the demo's decoder and lists its sites: the places in the nodes' "
    "parameters\n"
    "that were proved to hold an address of the capture, and which argument or block that is. In\n"
    "the list p0+8 is byte 8 of a kernel's parameter 0, arg an argument, block an allocation in "
    "the\n"
    "step.\n"
    "\n"
    "  --driver cuda|host   the driver to use (default: cuda where it works, host elsewhere)\n"
    "  --batch N            rows of the step, from 1 to 64 (default: 4)\n"
    "  --json               print one JSON object\n"
    "  -h, --help           print this\n"
    "\n"
    "exit: 0 done, 2 usage or failure\n";

struct request {
    const char *driver;
    uint32_t rows;
    bool json;
};

/* What is captured: addresses are only looked at. */
struct subject {
    struct rp_device *device;
    struct decoder *decoder;
    struct decoder_batch batch;
    struct rp_pool *pool;
    struct rp_graph *graph;
    struct gpu gpu;
    uint64_t arguments;
    bool pushed;
    struct rp_graph_info info;
};

/* ---- Options ------------------------------------------------------------------------------- */

static bool take_option(int option, void *taken)
{
    struct request *request = taken;
    uint64_t rows = 0;
    switch (option) {
    case 'd':
        return cli_take_driver("inspect", &request->driver);
    case 'b':
        if (!cli_take_number("inspect", "batch", 1, decoder_shape_demo.rows, &rows))
            return false;
        request->rows = (uint32_t)rows;
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
                                          {"batch", required_argument, NULL, 'b'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    const struct cli_options options = {"inspect", usage, names, take_option, 0, NULL};
    return cli_options_read(&options, argc, argv, request);
}

/* ---- The capture --------------------------------------------------------------------------- */

static rp_status open_subject(struct subject *s, const struct request *request,
                              struct rp_error *err)
{
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    options.driver = request->driver;
    rp_status status = rp_device_open(&options, &s->device, err);
    if (!status)
        status = gpu_init(&s->gpu, s->device, err);
    if (!status)
        status = rp_device_push(s->device, err);
    s->pushed = !status;
    if (!status)
        status = decoder_create(s->device, &decoder_shape_demo, 1, &s->decoder, err);
    if (!status)
        status = rp_pool_create(s->device, NULL, &s->pool, err);
    return status;
}

static rp_status capture(struct subject *s, const struct request *request, struct rp_error *err)
{
    enum { ALIGN = 256 };
    size_t words = (request->rows * sizeof(int32_t) + ALIGN - 1) / ALIGN * ALIGN;
    size_t bytes = 2 * words + (size_t)request->rows * decoder_shape_demo.vocab * sizeof(float);
    struct rp_arg args[DECODER_ARGS];
    rp_status status =
        gpu_check(&s->gpu, s->gpu.cuMemAlloc(&s->arguments, bytes), "cuMemAlloc", err);
    if (status)
        return status;
    s->batch = (struct decoder_batch){s->decoder, request->rows};
    decoder_args(&s->batch, s->arguments, s->arguments + words, s->arguments + 2 * words, args);
    status = rp_graph_capture(s->pool, NULL, decoder_step, &s->batch, args, DECODER_ARGS, &s->graph,
                              err);
    s->info.size = sizeof s->info;
    if (!status)
        rp_graph_info(s->graph, &s->info);
    return status;
}

static void close_subject(struct subject *s)
{
    rp_graph_destroy(s->graph);
    rp_pool_destroy(s->pool);
    decoder_destroy(s->decoder);
    if (s->arguments)
        s->gpu.cuMemFree(s->arguments);
    if (s->pushed)
        rp_device_pop(s->device);
    rp_device_destroy(s->device);
}

/* ---- Output -------------------------------------------------------------------------------- */

static void print_json_site(const struct rp_graph_site *site)
{
    printf("{\"node\":%zu,\"kind\":\"%s\",\"function\":", site->node, site->kind);
    cli_json_text(stdout, site->function);
    printf(",\"parameter\":%d,\"offset\":%u,\"%s\":%zu,\"delta\":%" PRId64 ",\"bytes\":%" PRIu64
           "}",
           site->parameter, site->offset, site->is_argument ? "argument" : "block", site->index,
           site->delta, site->bytes);
}

static void print_text_site(const struct rp_graph_site *site, bool first)
{
    fputs(first ? "  " : ", ", stdout);
    if (site->parameter >= 0)
        printf("p%d", site->parameter);
    printf("+%u %s %zu", site->offset, site->is_argument ? "arg" : "block", site->index);
    if (site->delta)
        printf("%+" PRId64, site->delta);
}

/* A line for each node. */
static void print_node(const struct rp_graph_site *site)
{
    printf("%4zu  %-7s%-20s", site->node, site->kind, site->function);
}

static rp_status print_sites(const struct subject *s, bool json, struct rp_error *err)
{
    size_t last = SIZE_MAX, of_arguments = 0;
    for (size_t i = 0; i < s->info.sites; i++) {
        struct rp_graph_site site = {.size = sizeof site};
        rp_status status = rp_graph_site(s->graph, i, &site, err);
        if (status)
            return status;
        of_arguments += site.is_argument != 0;
        if (json) {
            fputs(i ? ",\n " : "\n ", stdout);
            print_json_site(&site);
            continue;
        }
        if (site.node != last) {
            fputs(i ? "\n" : "", stdout);
            print_node(&site);
        }
        print_text_site(&site, site.node != last);
        last = site.node;
    }
    if (!json)
        printf("\n\n%zu nodes, %zu sites: %zu of %d arguments, %zu of %zu blocks\n", s->info.nodes,
               s->info.sites, of_arguments, DECODER_ARGS, s->info.sites - of_arguments,
               s->info.blocks);
    return RP_OK;
}

static rp_status show(const struct subject *s, const struct request *request, struct rp_error *err)
{
    struct rp_device_info info = {.size = sizeof info};
    rp_device_info(s->device, &info);
    if (request->json)
        printf("{\"driver\":\"%s\",\"batch\":%u,\"nodes\":%zu,\"blocks\":%zu,\"sites\":[",
               info.driver, request->rows, s->info.nodes, s->info.blocks);
    else
        printf("driver %s, decoder step of batch %u\n\n", info.driver, request->rows);
    rp_status status = print_sites(s, request->json, err);
    if (!status && request->json)
        puts("]}");
    if (!status && (fflush(stdout) || ferror(stdout)))
        return cli_error(err, RP_ERROR_IO, "printing", "standard output did not take the result");
    return status;
}

int cmd_inspect(int argc, char **argv)
{
    struct request request = {.rows = 4};
    struct subject subject = {0};
    struct rp_error err = {0};
    int code = parse(argc, argv, &request);
    if (code >= 0)
        return code;
    rp_status status = open_subject(&subject, &request, &err);
    if (!status)
        status = capture(&subject, &request, &err);
    if (!status)
        status = show(&subject, &request, &err);
    if (status)
        cli_say("inspect", "%s: %s", err.operation, err.message);
    close_subject(&subject);
    return status ? CLI_USAGE : CLI_DONE;
}
