/* SPDX-License-Identifier: MIT
 *
 * Sets of addresses as ranges. Joined ones are sorted, disjoint and do not touch.
 */
#ifndef REPRISE_MEMORY_RANGE_RANGES_H
#define REPRISE_MEMORY_RANGE_RANGES_H

#include "base/vec.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

struct rpi_range {
    uint64_t from, to; /* from < to */
};
struct rpi_ranges {
    RPI_VEC(struct rpi_range);
};

/* Sorts ranges and joins those that overlap or touch. */
void rpi_ranges_join(struct rpi_ranges *ranges);
/* Are they joined? A walker, for tests and debug builds. */
bool rpi_ranges_are_joined(const struct rpi_ranges *ranges);
/* Appends copies of `from`; false when there is no memory. */
bool rpi_ranges_append(struct rpi_ranges *ranges, const struct rpi_ranges *from);
/* Appends what lies in `from` and not in `away`, both joined; false when there is no memory. */
bool rpi_ranges_append_without(struct rpi_ranges *ranges, const struct rpi_ranges *from,
                               const struct rpi_ranges *away);
/* The end of the last of joined ranges; 0 when there is none. */
static inline uint64_t rpi_ranges_top(const struct rpi_ranges *ranges)
{
    return ranges->count ? ranges->data[ranges->count - 1].to : 0;
}
/* Takes what lies in [from, to) out of joined ranges; there is room for one more of them. */
void rpi_ranges_cut(struct rpi_ranges *ranges, uint64_t from, uint64_t to);
/* The first of joined ranges that ends above the address; their count: none does. */
static inline size_t rpi_ranges_above(const struct rpi_ranges *ranges, uint64_t address)
{
    size_t low = 0, high = ranges->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges->data[middle].to > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}
/* Does any of the joined ranges overlap [from, to)? */
bool rpi_ranges_overlap(const struct rpi_ranges *ranges, uint64_t from, uint64_t to);
/* Does one of them hold all of the range? */
static inline bool rpi_ranges_hold(const struct rpi_ranges *ranges, struct rpi_range range)
{
    assert(range.from < range.to);
    size_t i = rpi_ranges_above(ranges, range.from);
    return i < ranges->count && ranges->data[i].from <= range.from &&
           range.to <= ranges->data[i].to;
}
/* Adds a range to joined ones, which stay joined; false when there is no memory. */
bool rpi_ranges_insert(struct rpi_ranges *ranges, struct rpi_range range);

#endif
