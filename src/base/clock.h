/* SPDX-License-Identifier: MIT */
#ifndef REPRISE_BASE_CLOCK_H
#define REPRISE_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of a clock that only goes forward. */
uint64_t rpi_clock_ns(void);
/* Nanoseconds that the calling thread has run: what work costs, whatever else the machine does. */
uint64_t rpi_clock_thread_ns(void);
static inline double rpi_ms_since(uint64_t start_ns)
{
    return (double)(rpi_clock_ns() - start_ns) * 1e-6;
}

#endif
