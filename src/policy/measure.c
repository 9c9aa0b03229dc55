/* SPDX-License-Identifier: MIT */
#include "policy/measure.h"

#include <assert.h>
#include <math.h>
#include <string.h>

void rpi_measure_add(struct rpi_measure *measure, double value)
{
    measure->values[measure->next] = value;
    measure->next = (measure->next + 1) % RPI_WINDOW;
    measure->held += measure->held < RPI_WINDOW;
    measure->count++;
}

void rpi_measure_keep(struct rpi_measure *measure, size_t count)
{
    if (count < measure->held)
        measure->held = (uint32_t)count;
}

static double newest(const struct rpi_measure *measure, size_t i)
{
    return measure->values[(measure->next + RPI_WINDOW - 1 - i) % RPI_WINDOW];
}

/* The newest `count` values in ascending order. */
static size_t sort(const struct rpi_measure *measure, size_t count, double *out)
{
    size_t held = count < measure->held ? count : measure->held;
    for (size_t i = 0; i < held; i++) {
        double value = newest(measure, i);
        size_t place = i;
        for (; place > 0 && out[place - 1] > value; place--)
            out[place] = out[place - 1];
        out[place] = value;
    }
    return held;
}

static double median_of(const double *sorted, size_t count)
{
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* Leaves out the value farthest from the median, which is the first or the last. */
static size_t trim(const double **sorted, size_t count, double median)
{
    enum { ENOUGH = 8 };
    if (count < ENOUGH)
        return count;
    *sorted += median - (*sorted)[0] > (*sorted)[count - 1] - median;
    return count - 1;
}

struct rpi_measured rpi_measure_newest(const struct rpi_measure *measure, size_t count)
{
    double values[RPI_WINDOW];
    const double *sorted = values;
    struct rpi_measured read = {.values = sort(measure, count, values)};
    if (!read.values)
        return read;
    read.median = median_of(values, read.values);
    size_t used = trim(&sorted, read.values, read.median);
    double most = RPI_OUTLIER * fabs(read.median), sum = 0, squares = 0;
    for (size_t i = 0; i < used; i++) {
        double value = most > 0 && sorted[i] > most ? most : sorted[i];
        sum += value;
        squares += value * value;
    }
    read.mean = sum / (double)used;
    double variance = squares / (double)used - read.mean * read.mean;
    if (used > 1 && variance > 0)
        read.error = sqrt(variance / (double)(used - 1));
    return read;
}

struct rpi_measured rpi_measure_read(const struct rpi_measure *measure)
{
    return rpi_measure_newest(measure, RPI_WINDOW);
}

double rpi_measure_least(const struct rpi_measure *measure, size_t count)
{
    assert(measure->held && count);
    double least = newest(measure, 0);
    for (size_t i = 1; i < count && i < measure->held; i++)
        least = fmin(least, newest(measure, i));
    return least;
}
