/* SPDX-License-Identifier: MIT
 *
 * reprise advise: what a profiler trace says about CUDA graphs.
 */
#include "base/outfile.h"
#include "cli.h"
#include "error.h"
#include "inputs.h"
#include "options.h"
#include "output.h"

#include "reprise.h"
#include "reprise_tools.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct request {
    struct rp_advise_options options;
    bool json;
    const char *html; /* where to write the page; NULL: not at all */
};

static const char usage[] = "usage: reprise advise [OPTIONS] FILE\n"
                            "\n"
                            "Reads a trace of torch.profiler (export_chrome_trace; gzip or not, of "
                            "any size), or\n"
                            "the database that nsys export --type sqlite writes, and\n"
                            "says whether CUDA graphs would help, how much, what to capture, and "
                            "what stands in\n"
                            "the way. Profile a few iterations with ProfilerActivity.CUDA, "
                            "schedule and\n"
                            "profiler.step(); with_stack=True names the lines of obstacles. A "
                            "FILE that is - is\n"
                            "standard input.\n"
                            "\n"
                            "options:\n"
                            "  --json         print one JSON object and nothing else\n"
                            "  --html FILE    write a page with the timeline of an iteration as "
                            "well\n"
                            "  --eager-us N   an iteration takes N microseconds without the "
                            "profiler; without it\n"
                            "                 that is estimated from the trace\n"
                            "  -h, --help     print this\n"
                            "\n"
                            "exit: 0 graphs are worth it, 1 they gain little or nothing, or are "
                            "used already,\n"
                            "2 usage or a file that could not be used\n";

enum { OPT_JSON = 256, OPT_HTML, OPT_EAGER };

static const struct option long_options[] = {
    {"json", no_argument, NULL, OPT_JSON},
    {"html", required_argument, NULL, OPT_HTML},
    {"eager-us", required_argument, NULL, OPT_EAGER},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static bool take_option(int option, void *into)
{
    struct request *request = into;
    double us = 0;
    if (option == OPT_JSON)
        request->json = true;
    if (option == OPT_HTML)
        request->html = optarg;
    if (option != OPT_EAGER)
        return true;
    bool good = cli_decimal(optarg, &us) && us > 0 && us < 1e12;
    request->options.eager_us = us;
    return good || cli_refuse("advise",
                              "--eager-us must be a decimal number of microseconds above 0, not "
                              "'%s'",
                              optarg);
}

static const struct cli_options reading = {
    "advise", usage, long_options, take_option, 1, "one file must be given",
};

static void put_text(FILE *out, const void *text)
{
    fputs(text, out);
}

static bool write_page(struct rp_advice *advice, const char *path, struct rp_error *err)
{
    const char *text;
    if (rp_advice_render(advice, RP_ADVICE_HTML, &text, err) != RP_OK) {
        cli_fail("advise", err);
        return false;
    }
    if (rpi_output_file(path, "advise", put_text, text, err) == RP_OK)
        return true;
    cli_fail("advise", err);
    return false;
}

/* The first line is the verdict: green where graphs are worth it. */
static void put_advice(const char *text, bool json, enum rp_advice_verdict verdict)
{
    size_t line = json ? 0 : strcspn(text, "\n");
    if (line)
        printf("%s%.*s%s", cli_style(stdout, verdict == RP_ADVICE_WORTH ? CLI_GREEN : CLI_YELLOW),
               (int)line, text, cli_style(stdout, CLI_PLAIN));
    fputs(text + line, stdout);
}

static int print_advice(struct rp_advice *advice, const struct request *request,
                        struct rp_error *err)
{
    const char *text;
    struct rp_advice_info info = {.size = sizeof info};
    rp_advice_info(advice, &info);
    if (request->html && !write_page(advice, request->html, err))
        return CLI_USAGE;
    if (rp_advice_render(advice, request->json ? RP_ADVICE_JSON : RP_ADVICE_TEXT, &text, err) !=
        RP_OK) {
        cli_fail("advise", err);
        return CLI_USAGE;
    }
    put_advice(text, request->json, info.verdict);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_say("advise", "the results could not be written");
        return CLI_USAGE;
    }
    return info.verdict == RP_ADVICE_WORTH ? CLI_DONE : CLI_NO;
}

/* A large trace takes seconds, and a pipe as long as its writer. */
static void show_reading(const char *path)
{
    enum { LARGE = 16 << 20 };
    struct stat about;
    if (stat(path, &about) != 0)
        return;
    if (!S_ISREG(about.st_mode))
        cli_progress(true, "reading %s", path);
    else if (about.st_size >= LARGE)
        cli_progress(true, "reading %s (%.0f MiB)", path, cli_mib((uint64_t)about.st_size));
}

int cmd_advise(int argc, char **argv)
{
    struct request request = {.options = RP_ADVISE_OPTIONS_INIT};
    int ended = cli_options_read(&reading, argc, argv, &request);
    if (ended >= 0)
        return ended;
    static char standard_input[] = "/dev/stdin";
    char *path = strcmp(argv[optind], "-") != 0 ? argv[optind] : standard_input;
    const struct cli_inputs input = {&path, 1};
    const struct cli_output page = {"html", request.html};
    if (!cli_outputs_apart("advise", &page, 1, &input))
        return CLI_USAGE;
    struct rp_advice *advice = NULL;
    struct rp_error err = {0};
    show_reading(path);
    rp_status status = rp_advise(path, &request.options, &advice, &err);
    cli_progress_end();
    if (status != RP_OK) {
        cli_fail("advise", &err);
        return CLI_USAGE;
    }
    int code = print_advice(advice, &request, &err);
    rp_advice_destroy(advice);
    return code;
}
