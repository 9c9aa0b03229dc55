/* SPDX-License-Identifier: MIT
 *
 * The parts that rpi_plan is made of. Each improves the layout of one task until it is at the
 * floor, the meter is past the end, or the part has nothing more to try.
 *
 *   piece   blocks that are all after those of earlier pieces: planned by itself
 *   floor   no height below it is wanted: the bound, or the capacity where that is more
 */
#ifndef REPRISE_MEMORY_PLAN_PARTS_H
#define REPRISE_MEMORY_PLAN_PARTS_H

#include "memory/plan/plan.h"

struct rpi_plan_task {
    const struct rpi_lifetimes *x;
    const uint64_t *fixed; /* as in rpi_plan_options */
    uint64_t alignment;
    uint64_t floor;
    bool decide; /* a layout above the floor is worth nothing: a capacity is to be met */
    struct rpi_meter *meter;
    uint64_t end;      /* the meter's reading at which to stop */
    uint64_t *offsets; /* the best layout so far */
    uint64_t height;   /* its height; UINT64_MAX: none yet */
};

static inline bool rpi_plan_is_fixed(const struct rpi_plan_task *task, uint32_t block)
{
    return task->fixed && task->fixed[block] != RPI_UNPLACED;
}

static inline bool rpi_plan_conflict(const struct rpi_lifetimes *x, uint32_t a, uint32_t b)
{
    return a < b ? !rpi_lifetimes_before(x, a, b) : !rpi_lifetimes_before(x, b, a);
}

/* Finds the pieces of a problem: out_ends has room for count indices and receives the end of each,
 * in host order. At least one piece when count > 0. */
rp_status rpi_plan_cut(const struct rpi_lifetimes *x, uint32_t *out_ends, uint32_t *out_pieces,
                       struct rp_error *err);
/* The blocks [from, to), a piece, as a problem of their own on the lanes that they use. */
rp_status rpi_plan_extract(const struct rpi_lifetimes *x, uint32_t from, uint32_t to,
                           struct rpi_lifetimes *out, struct rp_error *err);

/* First layouts, from nothing; the first ignores the end. Nothing is fixed. Time: blocks times
 * lanes. */
rp_status rpi_plan_sweep(struct rpi_plan_task *task, struct rp_error *err);

/* Layouts by placing orders, mended for some rounds. The first, where there is no layout yet,
 * ignores the end. Time: blocks squared for each. */
rp_status rpi_plan_greedy(struct rpi_plan_task *task, unsigned rounds, struct rp_error *err);

/* Search at a ceiling by ejection; needs a first layout. */
rp_status rpi_plan_ejection(struct rpi_plan_task *task, struct rp_error *err);

/* Exact search on any lanes, for so many blocks at most, of which none is fixed; needs a first
 * layout. *out_exhausted: nothing lower than the task's layout exists, or, where it decides,
 * nothing at the floor. */
enum { RPI_PLAN_EXACT_MOST = 64 };
rp_status rpi_plan_exact(struct rpi_plan_task *task, bool *out_exhausted, struct rp_error *err);

#endif
