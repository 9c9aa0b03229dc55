/* SPDX-License-Identifier: MIT
 *
 * Runs a Python for `reprise doctor`, and reads the lines that it answers with. Without a shell:
 * the interpreter's path may hold anything. A Python that hangs is ended after a minute.
 */
#include "doctor.h"

#include "reprise.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SECONDS = 60 };

/* Lines as they come in. One that is too long is cut. */
struct reader {
    void (*take)(void *into, const char *key, const char *text);
    void *into;
    char line[1024];
    size_t used;
    bool ended; /* the script's last line was seen */
};

static void take_line(struct reader *reader)
{
    reader->line[reader->used] = '\0';
    reader->used = 0;
    char *text = strchr(reader->line, ' ');
    if (text)
        *text++ = '\0';
    if (strcmp(reader->line, "end") == 0)
        reader->ended = true;
    else
        reader->take(reader->into, reader->line, text ? text : "");
}

static void take_bytes(struct reader *reader, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] == '\n')
            take_line(reader);
        else if (reader->used < sizeof reader->line - 1)
            reader->line[reader->used++] = bytes[i];
}

static long milliseconds_left(const struct timespec *since)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return MOST_SECONDS * 1000L - (now.tv_sec - since->tv_sec) * 1000L -
           (now.tv_nsec - since->tv_nsec) / 1000000L;
}

/* Reads to the script's last line, or the end of the file; false: the minute is over. */
static bool read_all(int from, struct reader *reader)
{
    struct timespec since;
    clock_gettime(CLOCK_MONOTONIC, &since);
    while (!reader->ended) {
        char bytes[4096];
        long left = milliseconds_left(&since);
        struct pollfd wait = {.fd = from, .events = POLLIN};
        int ready = left > 0 ? poll(&wait, 1, (int)left) : 0;
        if (ready == 0)
            return false;
        ssize_t count = ready > 0 ? read(from, bytes, sizeof bytes) : -1;
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return true;
        take_bytes(reader, bytes, (size_t)count);
    }
    return true;
}

/* Starts it with nothing to read and its errors unseen; returns errno's number. */
static int start(const char *python, int out, pid_t *out_child)
{
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", RP_VERSION_MAJOR, RP_VERSION_MINOR,
             RP_VERSION_PATCH);
    const char *const argv[] = {python, "-c", doctor_script, version, NULL};
    posix_spawn_file_actions_t files;
    int error = posix_spawn_file_actions_init(&files);
    if (error)
        return error;
    error = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    if (!error)
        error = posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (!error)
        error = posix_spawnp(out_child, python, &files, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

static void tell_end(const char *python, bool in_time, int status, char *out_why, size_t bytes)
{
    if (!in_time)
        snprintf(out_why, bytes, "%s did not answer within %d s", python, MOST_SECONDS);
    else if (WIFSIGNALED(status))
        snprintf(out_why, bytes, "%s was ended by signal %d (%s) before it answered", python,
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(out_why, bytes, "%s ended with exit code %d before it answered", python,
                 WEXITSTATUS(status));
}

/* Reads its answer from `from` and waits for its end. */
static enum doctor_answer hear(const char *python, pid_t child, int from, struct reader *reader,
                               char *out_why, size_t bytes)
{
    int status = 0;
    bool in_time = read_all(from, reader);
    if (!in_time)
        kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (reader->ended)
        return DOCTOR_ANSWERED;
    tell_end(python, in_time, status, out_why, bytes);
    return DOCTOR_BROKE_OFF;
}

enum doctor_answer doctor_python(const char *python,
                                 void (*take)(void *into, const char *key, const char *text),
                                 void *into, char *out_why, size_t bytes)
{
    struct reader reader = {.take = take, .into = into};
    enum doctor_answer answer = DOCTOR_NOT_FOUND;
    pid_t child = 0;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) {
        snprintf(out_why, bytes, "%s could not be started: %s", python, strerror(errno));
        return answer;
    }
    int error = start(python, ends[1], &child);
    close(ends[1]);
    if (error)
        snprintf(out_why, bytes, "%s could not be started: %s", python, strerror(error));
    else
        answer = hear(python, child, ends[0], &reader, out_why, bytes);
    close(ends[0]);
    return answer;
}
