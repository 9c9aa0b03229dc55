/* SPDX-License-Identifier: MIT
 *
 * Measures what a search spends of its budget: in steps or in time.
 *
 * A step is a fixed amount of work, about a nanosecond on an idle core of today. The search counts
 * its own loops, so the same input spends the same steps on every machine, at every load and under
 * every sanitizer. In time a stopwatch counts. Both are read in the same way: a budget of so many
 * nanoseconds is one of so many steps, and shares of what is left are taken of either.
 */
#ifndef REPRISE_BASE_METER_H
#define REPRISE_BASE_METER_H

#include "base/clock.h"

/* Used by the thread that started it. */
struct rpi_meter {
    bool timed;
    uint64_t steps;             /* that were counted, timed or not */
    struct rpi_stopwatch watch; /* of a timed one */
};

static inline struct rpi_meter rpi_meter_start(bool timed)
{
    struct rpi_meter meter = {.timed = timed};
    if (timed)
        meter.watch = rpi_stopwatch_start();
    return meter;
}

static inline void rpi_meter_add(struct rpi_meter *meter, uint64_t steps)
{
    meter->steps += steps;
}

/* Nanoseconds, or steps. */
static inline uint64_t rpi_meter_spent(const struct rpi_meter *meter)
{
    return meter->timed ? rpi_stopwatch_ns(&meter->watch) : meter->steps;
}

static inline bool rpi_meter_past(const struct rpi_meter *meter, uint64_t end)
{
    return meter->timed ? rpi_stopwatch_past(&meter->watch, end) : meter->steps >= end;
}

/* The reading at which `budget_ms` are spent from now on; a step is a nanosecond. Budgets beyond a
 * year are a year. */
static inline uint64_t rpi_meter_end(const struct rpi_meter *meter, double budget_ms)
{
    const double year_ms = 3.2e10;
    double ms = budget_ms > 0 ? budget_ms : 0;
    return rpi_meter_spent(meter) + (uint64_t)((ms < year_ms ? ms : year_ms) * 1e6);
}

/* Milliseconds, or millions of steps, until that reading; 0 past it. */
static inline double rpi_meter_left_ms(const struct rpi_meter *meter, uint64_t end)
{
    uint64_t spent = rpi_meter_spent(meter);
    return spent < end ? (double)(end - spent) * 1e-6 : 0;
}

#endif
