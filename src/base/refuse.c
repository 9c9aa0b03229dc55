/* SPDX-License-Identifier: MIT */
#include "base/refuse.h"

#include <pthread.h>
#include <stdatomic.h>

static struct {
    pthread_once_t asked;
    atomic_bool forked;
} state = {.asked = PTHREAD_ONCE_INIT};

static void note_fork(void)
{
    atomic_store(&state.forked, true);
}

static void ask_to_be_told(void)
{
    pthread_atfork(NULL, NULL, note_fork); /* it can fail for want of memory: then nobody is told */
}

void rpi_forbid_forks(void)
{
    pthread_once(&state.asked, ask_to_be_told);
}

bool rpi_is_forked(void)
{
    return atomic_load_explicit(&state.forked, memory_order_relaxed);
}

rp_status rpi_refuse(struct rp_error *err, const char *function, const char *argument)
{
    if (rpi_is_forked())
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "this process was forked from one that had opened a device, and what that "
                         "had does not work here: open devices after forking only, or start the "
                         "child anew (exec, or Python's spawn)");
    return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function, "%s is NULL", argument);
}
