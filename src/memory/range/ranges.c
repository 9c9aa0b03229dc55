/* SPDX-License-Identifier: MIT */
#include "memory/range/ranges.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int by_start(const void *left, const void *right)
{
    const struct rpi_range *a = left, *b = right;
    return a->from < b->from ? -1 : a->from > b->from;
}

bool rpi_ranges_are_joined(const struct rpi_ranges *ranges)
{
    for (size_t i = 0; i < ranges->count; i++)
        if (ranges->data[i].from >= ranges->data[i].to ||
            (i && ranges->data[i - 1].to >= ranges->data[i].from))
            return false;
    return true;
}

void rpi_ranges_join(struct rpi_ranges *ranges)
{
    if (!ranges->count)
        return;
    struct rpi_range *data = ranges->data;
    qsort(data, ranges->count, sizeof *data, by_start);
    size_t last = 0;
    for (size_t i = 1; i < ranges->count; i++) {
        if (data[i].from > data[last].to)
            data[++last] = data[i];
        else if (data[i].to > data[last].to)
            data[last].to = data[i].to;
    }
    ranges->count = last + 1;
}

bool rpi_ranges_append(struct rpi_ranges *ranges, const struct rpi_ranges *from)
{
    if (!rpi_vec_reserve(ranges, ranges->count + from->count))
        return false;
    for (size_t i = 0; i < from->count; i++)
        ranges->data[ranges->count++] = from->data[i];
    return true;
}

bool rpi_ranges_append_without(struct rpi_ranges *ranges, const struct rpi_ranges *from,
                               const struct rpi_ranges *away)
{
    assert(rpi_ranges_are_joined(from) && rpi_ranges_are_joined(away));
    size_t a = 0;
    for (size_t i = 0; i < from->count; i++) {
        struct rpi_range rest = from->data[i];
        while (a < away->count && away->data[a].to <= rest.from)
            a++;
        for (size_t k = a; k < away->count && away->data[k].from < rest.to; k++) {
            struct rpi_range piece = {rest.from, away->data[k].from};
            if (piece.from < piece.to && !rpi_vec_push(ranges, piece))
                return false;
            rest.from = away->data[k].to;
        }
        if (rest.from < rest.to && !rpi_vec_push(ranges, rest))
            return false;
    }
    return true;
}

bool rpi_ranges_overlap(const struct rpi_ranges *ranges, uint64_t from, uint64_t to)
{
    assert(from <= to);
    size_t i = rpi_ranges_above(ranges, from);
    return i < ranges->count && ranges->data[i].from < to;
}

bool rpi_ranges_insert(struct rpi_ranges *ranges, struct rpi_range range)
{
    assert(range.from < range.to && rpi_ranges_are_joined(ranges));
    if (!rpi_vec_reserve(ranges, ranges->count + 1))
        return false;
    struct rpi_range *data = ranges->data;
    size_t first = range.from ? rpi_ranges_above(ranges, range.from - 1) : 0, end = first;
    for (; end < ranges->count && data[end].from <= range.to; end++) { /* touched: become one */
        range.from = data[end].from < range.from ? data[end].from : range.from;
        range.to = data[end].to > range.to ? data[end].to : range.to;
    }
    memmove(data + first + 1, data + end, (ranges->count - end) * sizeof range);
    data[first] = range;
    ranges->count = ranges->count + 1 - (end - first);
    assert(rpi_ranges_are_joined(ranges));
    return true;
}

void rpi_ranges_cut(struct rpi_ranges *ranges, uint64_t from, uint64_t to)
{
    assert(from < to && rpi_ranges_are_joined(ranges));
    size_t kept = 0, count = ranges->count;
    for (size_t i = 0; i < count; i++) {
        struct rpi_range range = ranges->data[i];
        if (range.from < from && to < range.to) { /* the only one that is touched */
            assert(ranges->count < ranges->capacity);
            memmove(&ranges->data[i + 1], &ranges->data[i], (count - i) * sizeof range);
            ranges->data[i].to = from;
            ranges->data[i + 1].from = to;
            ranges->count++;
            return;
        }
        if (range.from < to && from < range.to) {
            if (range.from < from)
                range.to = from;
            else
                range.from = to < range.to ? to : range.to;
        }
        if (range.from < range.to)
            ranges->data[kept++] = range;
    }
    ranges->count = kept;
}
