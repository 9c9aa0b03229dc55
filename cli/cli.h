/* SPDX-License-Identifier: MIT
 *
 * The command line: main.c finds the subcommand, cmd_NAME.c does it. Commands see reprise.h, and of
 * the library's insides only how files are written and texts cleaned (base/outfile.h, base/text.h).
 *
 * Exit codes: 0 done, 1 the answer is no, 2 usage or bad input. Results go to standard output,
 * everything else to standard error.
 */
#ifndef REPRISE_CLI_H
#define REPRISE_CLI_H

enum { CLI_DONE = 0, CLI_NO = 1, CLI_USAGE = 2 };

/* argv[0] is the subcommand's name. */
typedef int (*cli_main)(int argc, char **argv);

struct cli_command {
    const char *name;
    cli_main run; /* NULL: the Python package does it */
    const char *summary;
};

/* One line for each command, here and in main.c's table. */
int cmd_advise(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_completion(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_plan(int argc, char **argv);

#endif
