/* SPDX-License-Identifier: MIT */
#include "child.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int told = -1; /* in the child: the pipe's end to write to */

struct message {
    enum cli_child_stage stage;
    int code;
};

static void send(struct message message)
{
    if (told >= 0 && write(told, &message, sizeof message) < 0)
        told = -1; /* nobody listens: the parent is gone */
}

void cli_child_tell(enum cli_child_stage stage)
{
    send((struct message){stage, 0});
}

/* Messages are shorter than what a pipe takes whole. */
static void listen_to(int from, struct cli_child_end *end)
{
    struct message message;
    ssize_t got;
    while ((got = read(from, &message, sizeof message)) != 0) {
        if (got < 0 && errno != EINTR)
            return;
        if (got == (ssize_t)sizeof message) {
            end->stage = message.stage;
            end->code = message.code;
        }
    }
}

static void take_status(int status, struct cli_child_end *end)
{
    if (end->stage == CLI_CHILD_DONE)
        return;
    end->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    end->code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

static bool fail(const char *command, const char *what)
{
    fprintf(stderr, "reprise %s: %s: %s\n", command, what, strerror(errno));
    return false;
}

bool cli_child_run(const char *command, int (*work)(void *user), void *user,
                   struct cli_child_end *out_end)
{
    int ends[2], status = 0;
    struct cli_child_end end = {.stage = CLI_CHILD_BEFORE};
    fflush(NULL); /* or the child would print it too */
    if (pipe(ends) != 0)
        return fail(command, "a pipe could not be made");
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        told = ends[1];
        int code = work(user);
        fflush(NULL);
        send((struct message){CLI_CHILD_DONE, code});
        _exit(code);
    }
    close(ends[1]);
    if (child > 0)
        listen_to(ends[0], &end);
    close(ends[0]);
    if (child < 0)
        return fail(command, "a process could not be started");
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return fail(command, "the process that checks was lost");
    take_status(status, &end);
    *out_end = end;
    return true;
}
