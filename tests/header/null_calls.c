/* SPDX-License-Identifier: MIT
 *
 * Every function of the headers with NULL for each pointer that may not be, the other objects being
 * memory that nobody can read: each call is refused before it looks at anything, by the name of the
 * argument. What returns no status does nothing, and gives 0. Then every function that needs a
 * device, in a process that was forked from this one once it had opened one: one clear error.
 */
#define RP_UNSTABLE
#include "reprise.h"
#include "reprise_framework.h"
#include "reprise_heap.h"
#include "reprise_tools.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    void *object; /* not NULL, and not to be read */
    uint64_t out[64];
    struct rp_error err;
} good;

static const char *volatile under_way = "nothing";
static int calls, wrong;

static rp_status good_callable(struct rp_call *call, void *user, struct rp_error *err)
{
    (void)call;
    (void)user;
    (void)err;
    return RP_OK;
}

static void good_progress(size_t done, size_t count, const struct rp_shape_info *shape, void *user)
{
    (void)done;
    (void)count;
    (void)shape;
    (void)user;
}

static void tell_crash(int number)
{
    static const char text[] = "null_calls: crashed in ";
    (void)number;
    if (write(2, text, sizeof text - 1) < 0 || write(2, under_way, strlen(under_way)) < 0 ||
        write(2, "\n", 1) < 0)
        _exit(2);
    _exit(1);
}

static void begin(const char *call)
{
    under_way = call;
    calls++;
    memset(&good.err, 0, sizeof good.err);
    good.out[0] = sizeof good.out; /* a struct's size */
}

static void check(const char *function, const char *what, rp_status status)
{
    if (status == RP_ERROR_INVALID_ARGUMENT && strstr(good.err.message, what))
        return;
    fprintf(stderr, "%s: %s and '%s', where '%s' is wrong\n", function, rp_status_name(status),
            good.err.message, what);
    wrong++;
}

#define CHECK_1(call, function, argument) check(function, argument " is NULL", call)
#define CHECK_0(call, function, argument) ((void)(call))
#define NULL_CALL(is_status, function, argument, arguments)                                        \
    begin(#function " without " argument);                                                         \
    CHECK_##is_status(function arguments, #function, argument);
#define NULL_DESTROY(function)                                                                     \
    begin(#function);                                                                              \
    function(NULL);
#define FORKED_CALL(function, arguments)

static void call_with_null(void)
{
#include "calls.inc"
}

static int errors_logged;

static void count_errors(enum rp_log_level level, const char *message, void *user)
{
    (void)user;
    errors_logged += level == RP_LOG_ERROR && strstr(message, "rp_set_host_memory") != NULL;
}

static void *never_malloc(size_t bytes, void *user)
{
    (void)bytes;
    (void)user;
    return NULL;
}

static void *never_realloc(void *pointer, size_t bytes, void *user)
{
    (void)pointer;
    return never_malloc(bytes, user);
}

static void never_free(void *pointer, void *user)
{
    (void)pointer;
    (void)user;
}

/* Host memory comes from where it came from, when one of the functions is NULL. */
static void set_half_a_host_memory(struct rp_device *device)
{
    struct rp_pool *pool = NULL;
    begin("rp_set_host_memory with a function that is NULL");
    rp_set_log(count_errors, NULL, RP_LOG_ERROR);
    for (int missing = 0; missing < 3; missing++) {
        struct rp_host_memory memory = {never_malloc, never_realloc, never_free, NULL};
        if (missing == 0)
            memory.malloc_fn = NULL;
        else if (missing == 1)
            memory.realloc_fn = NULL;
        else
            memory.free_fn = NULL;
        rp_set_host_memory(&memory);
    }
    rp_set_log(NULL, NULL, RP_LOG_ERROR);
    if (errors_logged != 3 || rp_pool_create(device, NULL, &pool, &good.err) != RP_OK) {
        fprintf(stderr, "rp_set_host_memory: %d errors for 3 missing functions; '%s'\n",
                errors_logged, good.err.message);
        wrong++;
    }
    rp_pool_destroy(pool);
}

#undef NULL_CALL
#undef NULL_DESTROY
#undef FORKED_CALL
#define NULL_CALL(is_status, function, argument, arguments)
#define NULL_DESTROY(function)
#define FORKED_CALL(function, arguments)                                                           \
    begin(#function " after a fork");                                                              \
    check(#function, "forked", function arguments);

static void call_forked(void)
{
#include "calls.inc"
}

/* Returns how many of the child's calls were wrong. */
static int fork_and_call(void)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        wrong = calls = 0;
        call_forked();
        printf("%d calls after a fork, %d of them wrong\n", calls, wrong);
        fflush(NULL);
        _exit(wrong != 0 || calls < 50);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 1;
    return status != 0;
}

int main(void)
{
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    struct rp_device *device;
    options.driver = "host";
    good.object = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (good.object == MAP_FAILED || rp_device_open(&options, &device, &good.err) != RP_OK)
        return 2;
    signal(SIGSEGV, tell_crash);
    signal(SIGBUS, tell_crash);
    call_with_null();
    set_half_a_host_memory(device);
    printf("%d calls with NULL, %d of them wrong\n", calls, wrong);
    int failed = wrong != 0 || calls < 150 || fork_and_call();
    rp_device_destroy(device);
    return failed;
}
