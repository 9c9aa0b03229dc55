/* SPDX-License-Identifier: MIT
 *
 * The address range while blocks come and go: used segments and free runs in address order, free
 * runs also in bins by size (two-level segregated fit, Masmano et al. 2004), so that taking and
 * giving cost a constant. The range has no top.
 *
 *   | A | free run | B | C | free run | D |  free without end
 *
 * Segments are numbers, from 0. A bin set is a way to find segments by size; the free runs are in
 * one, and a caller may keep used segments in others of its own.
 */
#ifndef REPRISE_MEMORY_PLAN_RUNS_H
#define REPRISE_MEMORY_PLAN_RUNS_H

#include "base/status.h"

#include <stdbool.h>

#define RPI_NO_SEGMENT UINT32_MAX
#define RPI_BIN_LEVELS 64
#define RPI_BIN_PARTS  32

struct rpi_segment {
    uint64_t offset, bytes;
    uint32_t below, above; /* neighbours in address order */
    bool free;
};

struct rpi_bins {
    uint64_t levels;                /* bit: level has a part that is not empty */
    uint32_t parts[RPI_BIN_LEVELS]; /* bit: part is not empty */
    uint32_t head[RPI_BIN_LEVELS][RPI_BIN_PARTS];
    uint32_t *next, *previous; /* [segments] */
};

struct rpi_runs {
    struct rpi_segment *segments; /* [capacity] */
    uint32_t capacity, made;
    uint32_t spare; /* list of unused segments, through above */
    uint32_t top;   /* the highest segment, or RPI_NO_SEGMENT */
    uint64_t height;
    struct rpi_bins free;
};

bool rpi_bins_init(struct rpi_bins *bins, uint32_t segments);
void rpi_bins_finish(struct rpi_bins *bins);
void rpi_bins_clear(struct rpi_bins *bins);
void rpi_bins_add(struct rpi_bins *bins, const struct rpi_runs *runs, uint32_t segment);
void rpi_bins_remove(struct rpi_bins *bins, const struct rpi_runs *runs, uint32_t segment);
/* A segment of at least `bytes`, as small as a short look finds, or RPI_NO_SEGMENT. */
uint32_t rpi_bins_find(const struct rpi_bins *bins, const struct rpi_runs *runs, uint64_t bytes);

/* Room for the runs around `blocks` blocks that are in use at once. */
bool rpi_runs_init(struct rpi_runs *runs, uint32_t blocks);
void rpi_runs_finish(struct rpi_runs *runs);
void rpi_runs_clear(struct rpi_runs *runs);

/* Takes `bytes` at the low end of segment `from`, which is free or in use; without one
 * (RPI_NO_SEGMENT) at the end of the range, a free run that ends there included. Returns a used
 * segment. `from` keeps what is left, and is gone when nothing is: *out_gone. The caller has taken
 * a used `from` out of its bins before. */
uint32_t rpi_runs_take(struct rpi_runs *runs, uint32_t from, uint64_t bytes, bool *out_gone);
/* Frees a used segment and merges it with the free runs beside it. */
void rpi_runs_give(struct rpi_runs *runs, uint32_t segment);

#endif
