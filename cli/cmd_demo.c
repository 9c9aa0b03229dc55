/* SPDX-License-Identifier: MIT
 *
 * reprise demo: a decoder captured at several batch sizes replays in constant memory; recorded
 * captures of PyTorch programs are planned beside what PyTorch held.
 */
#include "cli.h"
#include "demo.h"
#include "error.h"
#include "options.h"
#include "output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: reprise demo [OPTIONS]\n"
    "\n"
    "Estimates the memory of one step of a small transformer decoder at several batch sizes,\n"
    "captures them into one pool, calls each and compares with eager runs to the bit; then\n"
    "plans recorded captures of PyTorch programs. Writes a chart.\n"
    "\n"
    "  --driver cuda|host   the driver to use (default: cuda where it works, host elsewhere)\n"
    "  --batches LIST       batch sizes in the order of capture (default: 64,32,16,8,4,2,1)\n"
    "  --recordings DIR     recorded captures to plan (default: those that come with Reprise)\n"
    "  --out DIR            where the chart is written (default: reprise/demo in the\n"
    "                       cache folder: $XDG_CACHE_HOME or ~/.cache, else a temporary one)\n"
    "  --json               print the facts as JSON\n"
    "  --help               print this\n"
    "\n"
    "Exit code: 0 done, 1 a replay differed from its eager run or the estimate was wrong, 2 usage\n"
    "or failure.\n";

/* "64,32,1" */
static bool parse_batches(const char *text, struct demo_options *options)
{
    enum { MOST_ROWS = 512 };
    options->batch_count = 0;
    for (;;) {
        char *end;
        errno = 0;
        unsigned long rows = strtoul(text, &end, 10);
        if (*text < '0' || *text > '9' || errno || rows < 1 || rows > MOST_ROWS ||
            options->batch_count == DEMO_MOST_BATCHES)
            return cli_refuse("demo",
                              "--batches wants at most %d sizes from 1 to %d, as in 64,32,1",
                              DEMO_MOST_BATCHES, MOST_ROWS);
        for (size_t i = 0; i < options->batch_count; i++)
            if (options->batches[i] == rows)
                return cli_refuse("demo", "--batches names %lu twice", rows);
        options->batches[options->batch_count++] = (uint32_t)rows;
        if (*end == 0)
            return true;
        text = *end == ',' ? end + 1 : ""; /* anything else is no size */
    }
}

static bool take_option(int option, void *taken)
{
    struct demo_options *options = taken;
    switch (option) {
    case 'd':
        return cli_take_driver("demo", &options->driver);
    case 'b':
        return parse_batches(optarg, options);
    case 'r':
        options->recordings = optarg;
        return true;
    case 'o':
        options->out = optarg;
        return true;
    case 'j':
        options->json = true;
        return true;
    default:
        return false;
    }
}

/* The exit code when the command is to end here, -1 when it goes on. */
static int parse(int argc, char **argv, struct demo_options *options)
{
    static const struct option names[] = {{"driver", required_argument, NULL, 'd'},
                                          {"batches", required_argument, NULL, 'b'},
                                          {"recordings", required_argument, NULL, 'r'},
                                          {"out", required_argument, NULL, 'o'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    const struct cli_options read = {"demo", usage, names, take_option, 0, NULL};
    return cli_options_read(&read, argc, argv, options);
}

/* Opens the driver that is asked for; when none is, NVIDIA's, else the host driver, and facts say
 * why. */
static rp_status open_device(const struct demo_options *options, struct rp_device **out_device,
                             struct demo_facts *facts, struct rp_error *err)
{
    struct rp_device_options device = RP_DEVICE_OPTIONS_INIT;
    device.driver = options->driver ? options->driver : "cuda";
    rp_status status = rp_device_open(&device, out_device, err);
    if (status == RP_ERROR_NO_DRIVER && !options->driver) {
        snprintf(facts->no_gpu, sizeof facts->no_gpu, "%s", err->message);
        device.driver = "host";
        status = rp_device_open(&device, out_device, err);
    }
    facts->device.size = sizeof facts->device;
    if (!status)
        rp_device_info(*out_device, &facts->device);
    return status;
}

static rp_status run(const struct demo_options *options, struct rp_device *device,
                     const struct demo_files *files, struct demo_facts *facts, struct rp_error *err)
{
    rp_status status = demo_decoder(options, device, facts, err);
    if (!status)
        status = demo_contract(device, facts, err);
    if (!status)
        status = demo_recordings(files, facts, err);
    cli_progress_end();
    if (!status)
        status = demo_chart(options, facts, err);
    if (status)
        return status;
    if (options->json)
        demo_show_json(facts);
    else
        demo_show_text(facts);
    if (fflush(stdout) || ferror(stdout))
        return cli_error(err, RP_ERROR_IO, "printing", "standard output did not take the result");
    return RP_OK;
}

int cmd_demo(int argc, char **argv)
{
    struct demo_options options = {.batches = {64, 32, 16, 8, 4, 2, 1}, .batch_count = 7};
    int code = parse(argc, argv, &options);
    if (code >= 0)
        return code;
    struct rp_error err;
    struct rp_device *device = NULL;
    struct demo_files files = {.count = 0};
    struct demo_facts *facts = calloc(1, sizeof *facts);
    if (!facts) {
        cli_say("demo", "out of host memory");
        return CLI_USAGE;
    }
    rp_status status = demo_recordings_find(&options, &files, &err);
    if (!status)
        status = open_device(&options, &device, facts, &err);
    if (!status)
        status = run(&options, device, &files, facts, &err);
    code = CLI_DONE;
    if (status) {
        cli_fail("demo", &err);
        code = CLI_USAGE;
    } else if (!demo_all_equal(facts)) {
        cli_say("demo", "REPLAYED OUTPUTS DIFFER FROM EAGER ONES");
        code = CLI_NO;
    } else if (!demo_estimate_right(facts)) {
        cli_say("demo", "THE CAPTURES TOOK OTHER MEMORY THAN WAS ESTIMATED");
        code = CLI_NO;
    }
    rp_device_destroy(device);
    demo_recordings_free(&files);
    free(facts);
    return code;
}
