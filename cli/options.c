/* SPDX-License-Identifier: MIT */
#include "options.h"

#include "cli.h"
#include "output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool has_operands(const struct cli_options *options, int argc, char **argv)
{
    if (argc - optind == options->operands)
        return true;
    if (options->operands)
        fprintf(stderr, "reprise %s: %s\n", options->command, options->missing);
    else
        fprintf(stderr, "reprise %s: takes no '%s'\n", options->command, argv[optind]);
    return false;
}

int cli_options_read(const struct cli_options *options, int argc, char **argv, void *request)
{
    bool good = true;
    int option;
    optind = 1;
    while (good && (option = getopt_long(argc, argv, "h", options->names, NULL)) != -1) {
        if (option == 'h')
            return fputs(options->usage, stdout) == EOF ? CLI_USAGE : CLI_DONE;
        good = options->take(option, request);
    }
    if (good && has_operands(options, argc, argv))
        return -1;
    fprintf(stderr, "'reprise %s --help' lists the options\n", options->command);
    return CLI_USAGE;
}

bool cli_take_driver(const char *command, const char **out_driver)
{
    *out_driver = optarg;
    if (!strcmp(optarg, "cuda") || !strcmp(optarg, "host"))
        return true;
    fprintf(stderr, "reprise %s: --driver wants cuda or host, not '%s'\n", command, optarg);
    return false;
}

bool cli_take_number(const char *command, const char *option, uint64_t least, uint64_t most,
                     uint64_t *out)
{
    if (cli_number(optarg, least, most, out))
        return true;
    fprintf(stderr, "reprise %s: --%s must be from %" PRIu64 " to %" PRIu64 ", not '%s'\n", command,
            option, least, most, optarg);
    return false;
}
