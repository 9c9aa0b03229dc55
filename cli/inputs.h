/* SPDX-License-Identifier: MIT
 *
 * The files that a command reads, and that what it writes is none of them.
 */
#ifndef REPRISE_CLI_INPUTS_H
#define REPRISE_CLI_INPUTS_H

#include <stdbool.h>
#include <stddef.h>

struct cli_inputs {
    char **paths; /* [count], owned */
    size_t count;
};

/* The files given, and of each folder its recordings by name: .json, .json.gz and .csv. False: the
 * reason was told on standard error. */
bool cli_inputs_find(const char *command, char *const *given, size_t count,
                     struct cli_inputs *out_inputs);
void cli_inputs_finish(struct cli_inputs *inputs); /* zeroed ones are allowed */

struct cli_output {
    const char *option; /* "html" */
    const char *path;   /* NULL: it was not given */
};

/* False, with a word on standard error, where an output is an input or another output. Looks at
 * names and folders only, opens nothing. */
bool cli_outputs_apart(const char *command, const struct cli_output *outputs, size_t count,
                       const struct cli_inputs *inputs);

#endif
