/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static struct {
    pthread_mutex_t lock; /* guards the rest */
    void (*log)(enum rp_log_level level, const char *message, void *user);
    void *user;
    enum rp_log_level level;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

void rp_set_log(void (*log)(enum rp_log_level level, const char *message, void *user), void *user,
                enum rp_log_level level)
{
    pthread_mutex_lock(&state.lock);
    state.log = log;
    state.user = user;
    state.level = level;
    pthread_mutex_unlock(&state.lock);
}

void rpi_log(enum rp_log_level level, const char *format, ...)
{
    pthread_mutex_lock(&state.lock);
    void (*log)(enum rp_log_level, const char *, void *) = level <= state.level ? state.log : NULL;
    void *user = state.user;
    pthread_mutex_unlock(&state.lock);
    if (!log)
        return;
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    log(level, message, user);
}
