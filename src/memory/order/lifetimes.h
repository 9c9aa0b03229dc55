/* SPDX-License-Identifier: MIT
 *
 * Blocks with a partial order of lifetimes, in the form that the bound and the planner read.
 *
 * "A before B" (B may take A's memory) is a strict partial order. Allocations are laid on lanes: on
 * one lane, whatever is before an allocation is before every later one. So for each block A and
 * lane l there is one rank from which the allocations of l may take A's memory:
 *
 *     A before B  <=>  rank[B] >= first[A * lanes + lane[B]]
 *
 * That is blocks times lanes numbers instead of blocks squared, and an answer in constant time. A
 * total order of intervals has one lane. The lanes of a capture are usually its streams; where an
 * allocation on a stream sees less than an earlier one (possible when a stream's dependencies are
 * set by hand) a lane is opened for it.
 */
#ifndef REPRISE_MEMORY_ORDER_LIFETIMES_H
#define REPRISE_MEMORY_ORDER_LIFETIMES_H

#include "memory/order/capture_record.h"

#define RPI_NEVER UINT32_MAX

struct rpi_lifetimes {
    uint32_t count; /* blocks, in host order of allocation (rank order when one lane) */
    uint32_t lanes;
    uint64_t *bytes;       /* [count], rounded up to the alignment asked for; > 0 */
    uint32_t *lane, *rank; /* [count]; ranks of a lane are 0, 1, 2 ... in host order */
    uint32_t *first;       /* [count * lanes]; RPI_NEVER: no allocation of that lane */
    uint32_t *block;       /* [count]: index in the recording or input this came from */
};

static inline int rpi_lifetimes_before(const struct rpi_lifetimes *l, uint32_t a, uint32_t b)
{
    return l->rank[b] >= l->first[(size_t)a * l->lanes + l->lane[b]];
}

/* From a recording; blocks of 0 bytes are left out, sizes rounded up to alignment. Fails with
 * RP_ERROR_FORMAT when the relation is no strict partial order or a size overflows. */
rp_status rpi_lifetimes_from_record(const struct rpi_capture_record *record, uint64_t alignment,
                                    struct rpi_lifetimes *out, struct rp_error *err);

/* From half-open intervals [lower, upper) in any order; those of 0 bytes are left out, sizes
 * rounded up. Fails with RP_ERROR_FORMAT where lower >= upper or a size overflows. */
rp_status rpi_lifetimes_from_intervals(const int64_t *lower, const int64_t *upper,
                                       const uint64_t *bytes, uint32_t count, uint64_t alignment,
                                       struct rpi_lifetimes *out, struct rp_error *err);

/* Arrays for `count` blocks on `lanes` lanes, all to be filled by the caller. */
rp_status rpi_lifetimes_init(struct rpi_lifetimes *lifetimes, uint32_t count, uint32_t lanes,
                             struct rp_error *err);
/* Rounds bytes[i] up to a multiple of alignment. Fails with RP_ERROR_FORMAT when a size or their
 * sum would not fit in 63 bits. */
rp_status rpi_lifetimes_round(struct rpi_lifetimes *lifetimes, uint64_t alignment,
                              struct rp_error *err);
void rpi_lifetimes_finish(struct rpi_lifetimes *lifetimes);

#endif
