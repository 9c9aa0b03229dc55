/* SPDX-License-Identifier: MIT
 *
 * What a thread was doing at given moments: the frames that enclose each, innermost last.
 */
#ifndef REPRISE_PROFILE_STACKS_H
#define REPRISE_PROFILE_STACKS_H

#include "profile/trace.h"

struct rpi_moment {
    uint64_t time;
    uint32_t lane;
    uint32_t what; /* the caller's */
};

struct rpi_moments {
    RPI_VEC(struct rpi_moment);
};

/* frames[0 .. depth): indices into events, outermost first. False stops with out of host memory. */
typedef bool (*rpi_stack_visit)(void *user, const struct rpi_moment *moment, const uint32_t *frames,
                                size_t depth);

/* Sorts the moments by lane and time, and visits each with its stack of `events`, which must be in
 * the order of RPI_BY_LANE. One pass over both. */
rp_status rpi_stacks_visit(const struct rpi_events *events, struct rpi_moments *moments,
                           rpi_stack_visit visit, void *user, struct rp_error *err);

#endif
