/* SPDX-License-Identifier: MIT */
#include "cli.h"

#include "reprise.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct cli_command commands[] = {
    {"advise", cmd_advise,
     "what a profiler trace says about graphs: whether, how much, what first"},
    {"bench", cmd_bench, "measure one part of the library beside what it replaces"},
    {"check", cmd_check, "try to capture a function of a shared object: what stands in the way"},
    {"demo", cmd_demo, "capture a decoder at several batch sizes, and plan recorded captures"},
    {"doctor", cmd_doctor, "is this machine ready for graphs, and if not, what to do"},
    {"explain", cmd_explain, "what a capture error or symptom means, and what to do"},
    {"inspect", cmd_inspect, "which argument or block each node of the demo's decoder touches"},
    {"plan", cmd_plan, "what recorded captures need, beside the least possible"},
    {NULL, NULL, NULL},
};

static void print_usage(FILE *out)
{
    fprintf(out, "usage: reprise COMMAND [OPTIONS]\n\ncommands:\n");
    for (const struct cli_command *c = commands; c->name; c++)
        fprintf(out, "  %-10s %s\n", c->name, c->summary);
    fprintf(out, "\n'reprise help COMMAND' tells more of one command.\n");
}

static const struct cli_command *find_command(const char *name)
{
    for (const struct cli_command *c = commands; c->name; c++)
        if (!strcmp(name, c->name))
            return c;
    return NULL;
}

static int run(int argc, char **argv)
{
    const char *name = argv[0];
    bool help = !strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help");
    if (!strcmp(name, "--version")) {
        printf("reprise %s\n", rp_version());
        return CLI_DONE;
    }
    if (help && argc == 1) {
        print_usage(stdout);
        return CLI_DONE;
    }
    const struct cli_command *command = find_command(help ? argv[1] : name);
    if (!command) {
        fprintf(stderr, "reprise: no command '%s'; 'reprise --help' lists them\n",
                help ? argv[1] : name);
        return CLI_USAGE;
    }
    char *asked[] = {argv[help ? 1 : 0], "--help", NULL};
    return help ? command->run(2, asked) : command->run(argc, argv);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return CLI_USAGE;
    }
    int code = run(argc - 1, argv + 1);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "reprise: the output could not be written\n");
        return CLI_USAGE;
    }
    return code;
}
