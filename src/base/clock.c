/* SPDX-License-Identifier: MIT */
#include "base/clock.h"

#include <time.h>

uint64_t rpi_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t rpi_clock_thread_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

struct rpi_stopwatch rpi_stopwatch_start(void)
{
    return (struct rpi_stopwatch){rpi_clock_ns(), rpi_clock_thread_ns()};
}

uint64_t rpi_stopwatch_ns(const struct rpi_stopwatch *watch)
{
    uint64_t least = (rpi_clock_ns() - watch->wall_ns) / 4;
    uint64_t ran = rpi_clock_thread_ns() - watch->cpu_ns;
    return ran > least ? ran : least;
}

/* No thread runs longer than time goes by. */
bool rpi_stopwatch_past(const struct rpi_stopwatch *watch, uint64_t ns)
{
    return rpi_clock_ns() - watch->wall_ns >= ns && rpi_stopwatch_ns(watch) >= ns;
}
