/* SPDX-License-Identifier: MIT
 *
 * The options of a command: getopt_long's loop, help, operands, and one voice for what is wrong.
 */
#ifndef REPRISE_CLI_OPTIONS_H
#define REPRISE_CLI_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

struct cli_options {
    const char *command; /* "bench replay" */
    const char *usage;
    const struct option *names; /* "help" is 'h' */
    /* Takes an option, its value in optarg, into the command's request. False: it is refused, and
     * the reason was told on standard error. */
    bool (*take)(int option, void *request);
    int operands;        /* how many follow the options; 0: none */
    const char *missing; /* told where there are fewer or more; not needed where there are none */
};
/* Of operands: any number from 1. */
#define CLI_SOME (-1)

/* The exit code when the command is to end here, -1 when it goes on, from argv[optind]. */
int cli_options_read(const struct cli_options *options, int argc, char **argv, void *request);

/* A word on standard error, with where to find more; false, so that refusing is one line. */
bool cli_refuse(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for "--jsno", which is no option: with the name that it is nearest to. */
bool cli_refuse_option(const char *command, const struct option *names, const char *given);

/* Values in optarg; false, and a word on standard error, where they will not do. */
bool cli_take_driver(const char *command, const char **out_driver);
bool cli_take_number(const char *command, const char *option, uint64_t least, uint64_t most,
                     uint64_t *out);

#endif
