/* SPDX-License-Identifier: MIT
 *
 * Work in a child process, so that code of a user's which ends its process, or breaks it, does not
 * end or break the command: the child tells how far it is, and its end is told apart from its
 * answer.
 */
#ifndef REPRISE_CLI_CHILD_H
#define REPRISE_CLI_CHILD_H

#include <stdbool.h>

/* What the child was at when it was last heard of. */
enum cli_child_stage {
    CLI_CHILD_BEFORE,   /* no callable has run yet */
    CLI_CHILD_RUN,      /* in a callable that runs eagerly */
    CLI_CHILD_CAPTURED, /* in a callable that is captured */
    CLI_CHILD_BETWEEN,  /* after one */
    CLI_CHILD_DONE      /* it has given its answer */
};

struct cli_child_end {
    enum cli_child_stage stage;
    int code;   /* CLI_CHILD_DONE: the work's; else of exit, where it is no signal */
    int signal; /* that ended it; 0: it called exit */
};

/* Runs work(user) in a child of this process, which must not have opened a device, and waits for
 * its end. Errors, of the system, are told on standard error: false. */
bool cli_child_run(const char *command, int (*work)(void *user), void *user,
                   struct cli_child_end *out_end);
/* In the child: it is at this stage now. Any thread. */
void cli_child_tell(enum cli_child_stage stage);

#endif
