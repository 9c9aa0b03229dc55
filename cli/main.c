/* SPDX-License-Identifier: MIT */
#include "cli.h"
#include "near.h"
#include "output.h"

#include "reprise.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const struct cli_command commands[] = {
    {"advise", cmd_advise,
     "what a profiler trace says about graphs: whether, how much, what first"},
    {"bench", cmd_bench, "measure one part of the library beside what it replaces"},
    {"check", cmd_check, "try to capture a function of a shared object: what stands in the way"},
    {"completion", cmd_completion, "print a script that lets bash or zsh complete these words"},
    {"demo", cmd_demo, "capture a decoder at several batch sizes, and plan recorded captures"},
    {"doctor", cmd_doctor, "is this machine ready for graphs, and if not, what to do"},
    {"estimate", NULL, "what memory the graphs of a Python function will take, without a GPU"},
    {"explain", cmd_explain, "what a capture error or symptom means, and what to do"},
    {"inspect", cmd_inspect, "which argument or block each node of the demo's decoder touches"},
    {"plan", cmd_plan, "what recorded captures need, beside the least possible"},
    {"run", NULL, "run a Python program with Reprise installed in PyTorch"},
    {NULL, NULL, NULL},
};

/* Did the Python package start this program, under this name? It does itself what has no function
 * here. */
static bool from_package;
#define NAME_FROM_PACKAGE "reprise of Python"

static void print_usage(FILE *out)
{
    fprintf(out, "usage: reprise COMMAND [OPTIONS]\n\ncommands:\n");
    for (const struct cli_command *c = commands; c->name; c++)
        if (c->run || from_package)
            fprintf(out, "  %-10s %s\n", c->name, c->summary);
    fprintf(out, "\noptions:\n"
                 "  -V, --version  print the version\n"
                 "  -h, --help     print this; after a command, what it does and takes\n"
                 "\n'reprise help COMMAND' tells more of one command.\n");
}

static const struct cli_command *find_command(const char *name)
{
    for (const struct cli_command *c = commands; c->name; c++)
        if (c->run && !strcmp(name, c->name))
            return c;
    return NULL;
}

static int refuse_command(const char *name)
{
    size_t best = SIZE_MAX;
    const char *near = NULL;
    bool of_package = false, option = *name == '-';
    const char *const others[] = {"help", "--help", "--version"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (cli_nearer(name, others[i], &best))
            near = others[i];
    for (const struct cli_command *c = commands; c->name; c++) {
        of_package = of_package || (!c->run && !strcmp(name, c->name));
        if ((c->run || from_package) && cli_nearer(name, c->name, &best))
            near = c->name;
    }
    if (of_package)
        cli_say(NULL, "'%s' is a command of the Python package: python -m reprise %s", name, name);
    else if (near)
        cli_say(NULL, "no %s '%s': did you mean '%s'? 'reprise --help' lists them",
                option ? "option" : "command", name, near);
    else
        cli_say(NULL, "no %s '%s'; 'reprise --help' lists them", option ? "option" : "command",
                name);
    return CLI_USAGE;
}

static int run(int argc, char **argv)
{
    const char *name = argv[0];
    bool help = !strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help");
    if (!strcmp(name, "--version") || !strcmp(name, "-V")) {
        printf("reprise %s\n", rp_version());
        return CLI_DONE;
    }
    if (help && argc == 1) {
        print_usage(stdout);
        return CLI_DONE;
    }
    const struct cli_command *command = find_command(help ? argv[1] : name);
    if (!command)
        return refuse_command(help ? argv[1] : name);
    char *asked[] = {argv[help ? 1 : 0], "--help", NULL};
    return help ? command->run(2, asked) : command->run(argc, argv);
}

int main(int argc, char **argv)
{
    from_package = argc > 0 && !strcmp(argv[0], NAME_FROM_PACKAGE);
    if (argc < 2) {
        print_usage(stderr);
        return CLI_USAGE;
    }
    int code = run(argc - 1, argv + 1);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_say(NULL, "the output could not be written");
        return CLI_USAGE;
    }
    return code;
}
