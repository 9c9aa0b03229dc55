/* SPDX-License-Identifier: MIT
 *
 * A window of measured values and what they say: median, mean, and how far the mean may be off.
 *
 * The mean is what a run pays, and a callable that has a cheap and a dear way has a median that
 * hides the dear one; so decisions compare means. A value beyond RPI_OUTLIER times the median is
 * the machine's doing (an interrupt, a page fault), and counts as that much only; in a window of 8
 * and more, the value farthest from the median is left out.
 */
#ifndef REPRISE_POLICY_MEASURE_H
#define REPRISE_POLICY_MEASURE_H

#include <stddef.h>
#include <stdint.h>

enum { RPI_WINDOW = 64, RPI_OUTLIER = 20 };

struct rpi_measure {
    double values[RPI_WINDOW]; /* the newest; a ring */
    uint32_t next;             /* where the next one goes */
    uint32_t held;             /* of the window */
    uint64_t count;            /* ever added */
};

struct rpi_measured {
    double median, mean;
    double error; /* standard error of the mean */
    size_t values;
};

void rpi_measure_add(struct rpi_measure *measure, double value);
/* Keeps the newest `count` values at most. */
void rpi_measure_keep(struct rpi_measure *measure, size_t count);
/* Of no value all is 0; of one, error is 0 and means nothing. */
struct rpi_measured rpi_measure_read(const struct rpi_measure *measure);
/* Of the newest `count` values, or of what is held where that is less. */
struct rpi_measured rpi_measure_newest(const struct rpi_measure *measure, size_t count);

/* The least of the newest `count` values, or of what is held where that is less; there is one. */
double rpi_measure_least(const struct rpi_measure *measure, size_t count);

#endif
