/* SPDX-License-Identifier: MIT
 *
 * reprise completion: the scripts of packaging/completion, which `make install` puts where shells
 * look, for who did not install. The build makes the texts of the files.
 */
#include "cli.h"
#include "options.h"

#include <stdio.h>
#include <string.h>

extern const char completion_bash[], completion_zsh[];

static const char usage[] =
    "usage: reprise completion bash|zsh\n"
    "\n"
    "Prints a script that lets the shell complete commands, options and files:\n"
    "\n"
    "    source <(reprise completion bash)                        in ~/.bashrc\n"
    "    reprise completion zsh > \"${fpath[1]}/_reprise\"         once\n"
    "\n"
    "  -h, --help  print this\n"
    "\n"
    "exit: 0 done, 2 usage\n";

static const struct option long_options[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};

static bool take_none(int option, void *request)
{
    (void)option;
    (void)request;
    return false;
}

static const struct cli_options reading = {
    "completion", usage, long_options, take_none, 1, "say bash or zsh",
};

int cmd_completion(int argc, char **argv)
{
    int ended = cli_options_read(&reading, argc, argv, NULL);
    if (ended >= 0)
        return ended;
    const char *shell = argv[optind];
    bool zsh = !strcmp(shell, "zsh");
    if (!zsh && strcmp(shell, "bash") != 0) {
        cli_refuse("completion", "say bash or zsh, not '%s'", shell);
        return CLI_USAGE;
    }
    fputs(zsh ? completion_zsh : completion_bash, stdout);
    return CLI_DONE;
}
