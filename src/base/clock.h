/* SPDX-License-Identifier: MIT */
#ifndef REPRISE_BASE_CLOCK_H
#define REPRISE_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds of a clock that only goes forward. */
uint64_t rpi_clock_ns(void);
/* Nanoseconds that the calling thread has run: what work costs, whatever else the machine does. */
uint64_t rpi_clock_thread_ns(void);

/* Measures what a thread spends of a budget: the time that it ran, so that a machine which is busy
 * with other things takes nothing away; but a quarter of what went by at least, so that budgets end
 * all the same. To be read by the thread that started it. */
struct rpi_stopwatch {
    uint64_t wall_ns, cpu_ns;
};
struct rpi_stopwatch rpi_stopwatch_start(void);
uint64_t rpi_stopwatch_ns(const struct rpi_stopwatch *watch);
/* Have so many nanoseconds been spent? Costs a look at the thread's time near the end only. */
bool rpi_stopwatch_past(const struct rpi_stopwatch *watch, uint64_t ns);

static inline double rpi_ms_since(uint64_t start_ns)
{
    return (double)(rpi_clock_ns() - start_ns) * 1e-6;
}

#endif
