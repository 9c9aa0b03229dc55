/* SPDX-License-Identifier: MIT */
#include "cli.h"

#include "reprise.h"

#include <stdio.h>
#include <string.h>

static const struct cli_command commands[] = {
    {"bench", cmd_bench, "measure one part of the library beside what it replaces"},
    {"demo", cmd_demo, "capture a decoder at several batch sizes, and plan recorded captures"},
    {"explain", cmd_explain, "what a capture error or symptom means, and what to do"},
    {"plan", cmd_plan, "what recorded captures need, beside the least possible"},
    {NULL, NULL, NULL},
};

static void print_usage(FILE *out)
{
    fprintf(out, "usage: reprise COMMAND [OPTIONS]\n\ncommands:\n");
    for (const struct cli_command *c = commands; c->name; c++)
        fprintf(out, "  %-10s %s\n", c->name, c->summary);
    fprintf(out, "\n'reprise COMMAND --help' tells more of one command.\n");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return CLI_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        print_usage(stdout);
        return CLI_DONE;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("reprise %s\n", rp_version());
        return CLI_DONE;
    }
    for (const struct cli_command *c = commands; c->name; c++)
        if (!strcmp(argv[1], c->name))
            return c->run(argc - 1, argv + 1);
    fprintf(stderr, "reprise: no command '%s'; 'reprise --help' lists them\n", argv[1]);
    return CLI_USAGE;
}
