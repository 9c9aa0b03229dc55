/* SPDX-License-Identifier: MIT */
#include "policy/exec_bytes.h"

#include <assert.h>
#include <math.h>

enum { LEAST_FALLS = 4, LEAST_EXECS = 256 };
/* Of one series read by steps, from its first fall to its last. */
static const uint64_t ENOUGH_BYTES = (uint64_t)12 << 20;
/* By which two series of one graph may differ, as a share. */
static const double AGREE[RPI_EXEC_WAYS] = {[RPI_EXEC_STEPS] = 0.08, [RPI_EXEC_LINE] = 0.06};
static const double DECADE = 10;

uint64_t rpi_exec_bytes(const struct rpi_byte_prices *prices, size_t charged, size_t paths)
{
    return prices->path * paths + prices->node * charged;
}

/* ---- Series -------------------------------------------------------------------------------- */

void rpi_exec_series_begin(struct rpi_exec_series *series, enum rpi_exec_way way,
                           uint64_t free_bytes)
{
    assert(way < RPI_EXEC_WAYS);
    *series = (struct rpi_exec_series){.way = way, .before = free_bytes, .lowest = free_bytes};
}

static uint64_t taken(const struct rpi_exec_series *series)
{
    return series->before - series->lowest;
}

static bool is_enough(const struct rpi_exec_series *series)
{
    size_t falls = series->falls;
    if (series->way == RPI_EXEC_LINE)
        return falls >= LEAST_FALLS && taken(series) >= RPI_EXEC_SERIES_BYTES(RPI_EXEC_LINE);
    return falls >= LEAST_FALLS && series->fall[falls - 1].bytes >= (double)ENOUGH_BYTES;
}

/* Of execs that take next to nothing, or of steps that are too large. */
static bool is_idle(const struct rpi_exec_series *series)
{
    return series->execs >= LEAST_EXECS && series->falls < LEAST_FALLS;
}

bool rpi_exec_series_add(struct rpi_exec_series *series, uint64_t free_bytes)
{
    assert(series->execs < RPI_EXEC_SERIES_EXECS);
    series->execs++;
    series->rose |= free_bytes > series->lowest;
    if (free_bytes < series->lowest) {
        series->fall[series->falls].exec = (double)series->execs;
        series->fall[series->falls++].bytes = (double)(series->before - series->lowest);
        series->lowest = free_bytes;
    }
    double exec = (double)series->execs, bytes = (double)taken(series);
    series->x += exec;
    series->y += bytes;
    series->xx += exec * exec;
    series->xy += exec * bytes;
    return series->rose || is_enough(series) || is_idle(series) ||
           series->execs == RPI_EXEC_SERIES_EXECS ||
           taken(series) >= RPI_EXEC_SERIES_BYTES(series->way);
}

/* What the pairs of falls leave room for. False: nothing. */
static bool enclose(const struct rpi_exec_series *series, double *out_each)
{
    double low = 0, high = INFINITY;
    for (size_t j = 1; j < series->falls; j++)
        for (size_t i = 0; i < j; i++) {
            double execs = series->fall[j].exec - series->fall[i].exec;
            double bytes = series->fall[j].bytes - series->fall[i].bytes;
            low = fmax(low, bytes / (execs + 1));
            high = execs > 1 ? fmin(high, bytes / (execs - 1)) : high;
        }
    *out_each = (low + high) / 2;
    return low <= high;
}

static double slope(const struct rpi_exec_series *series)
{
    double n = (double)series->execs, x = series->x, y = series->y;
    return (n * series->xy - x * y) / (n * series->xx - x * x);
}

double rpi_exec_series_each(const struct rpi_exec_series *series)
{
    double each;
    if (series->rose || !is_enough(series))
        return 0;
    if (series->way == RPI_EXEC_LINE)
        return slope(series);
    return enclose(series, &each) ? each : 0;
}

bool rpi_exec_series_may_be_line(const struct rpi_exec_series *series)
{
    return !series->rose && series->falls >= LEAST_FALLS;
}

/* ---- Prices -------------------------------------------------------------------------------- */

/* What an exec of the graph takes, of all its turns; or why that is not known. */
static const char *read_graph(const struct rpi_exec_fit_graph *graph, double *out_each)
{
    double least = INFINITY, most = 0, sum = 0;
    for (int turn = 0; turn < RPI_EXEC_FIT_TURNS; turn++) {
        const struct rpi_exec_series *series = &graph->turns[turn];
        double each = rpi_exec_series_each(series);
        if (each <= 0)
            return "free device memory did not fall evenly while executable graphs were made";
        least = fmin(least, each);
        most = fmax(most, each);
        sum += each;
    }
    if (most > least * (1 + AGREE[graph->turns[0].way]))
        return "two measurements of the same executable graphs differ";
    *out_each = sum / RPI_EXEC_FIT_TURNS;
    return NULL;
}

/* In any series, however far the others came. */
static bool any_rose(const struct rpi_exec_fit_graph *graphs)
{
    for (int g = 0; g < RPI_EXEC_FIT_GRAPHS; g++)
        for (int turn = 0; turn < RPI_EXEC_FIT_TURNS; turn++)
            if (graphs[g].turns[turn].rose)
                return true;
    return false;
}

static bool is_near(double price, uint64_t like)
{
    return price * DECADE >= (double)like && price <= (double)like * DECADE;
}

const char *rpi_exec_fit(const struct rpi_exec_fit_graph graphs[RPI_EXEC_FIT_GRAPHS],
                         const struct rpi_byte_prices *like, struct rpi_byte_prices *out_prices)
{
    double each[RPI_EXEC_FIT_GRAPHS];
    if (any_rose(graphs))
        return "free device memory rose while executable graphs were made";
    for (int g = 0; g < RPI_EXEC_FIT_GRAPHS; g++) {
        const char *why = read_graph(&graphs[g], &each[g]);
        if (why)
            return why;
    }
    /* Cramer's rule; the graphs differ in nodes a path, so the determinant is not 0. */
    double p0 = (double)graphs[0].paths, n0 = (double)graphs[0].charged;
    double p1 = (double)graphs[1].paths, n1 = (double)graphs[1].charged;
    double determinant = p0 * n1 - p1 * n0;
    double path = (each[0] * n1 - each[1] * n0) / determinant;
    double node = (p0 * each[1] - p1 * each[0]) / determinant;
    if (!is_near(path, like->path) || !is_near(node, like->node))
        return "the measured prices are more than ten times off those of an NVIDIA H200";
    *out_prices =
        (struct rpi_byte_prices){.path = (uint64_t)llround(path), .node = (uint64_t)llround(node)};
    return NULL;
}
