/* SPDX-License-Identifier: MIT */
#ifndef REPRISE_CLI_BENCH_TIME_H
#define REPRISE_CLI_BENCH_TIME_H

#include <stddef.h>

/* Microseconds of a clock that only goes forward. */
double bench_now_us(void);
/* Sorts the values. count is not 0. */
double bench_median(double *values, size_t count);

#endif
