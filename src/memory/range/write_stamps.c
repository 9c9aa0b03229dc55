/* SPDX-License-Identifier: MIT */
#include "memory/range/write_stamps.h"

#include <assert.h>
#include <stdlib.h>

/* Node 1 is the root, nodes n to 2n - 1 the n segments: an iterative tree, which needs no power of
 * two. A node whose children wrap around the end of the segments is no one's ancestor that counts:
 * no span is made up of it. */

static size_t segments(const struct rpi_write_stamps *stamps)
{
    return stamps->ends.count ? stamps->ends.count - 1 : 0;
}

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

bool rpi_write_stamps_build(struct rpi_write_stamps *stamps, const struct rpi_ranges *watched)
{
    struct rpi_write_stamps made = {0};
    size_t count = 2 * watched->count;
    if (!rpi_vec_reserve(&made.ends, count + 1))
        return false;
    assert(made.ends.data);
    for (size_t i = 0; i < watched->count; i++) {
        made.ends.data[2 * i] = watched->data[i].from;
        made.ends.data[2 * i + 1] = watched->data[i].to;
    }
    qsort(made.ends.data, count, sizeof *made.ends.data, compare);
    for (size_t i = 0; i < count; i++)
        if (!made.ends.count || made.ends.data[made.ends.count - 1] != made.ends.data[i])
            made.ends.data[made.ends.count++] = made.ends.data[i];
    made.latest = rpi_calloc(2 * segments(&made) + 1, sizeof *made.latest);
    made.whole = rpi_calloc(2 * segments(&made) + 1, sizeof *made.whole);
    if (!made.latest || !made.whole) {
        rpi_write_stamps_finish(&made);
        return false;
    }
    assert(segments(&made) || !watched->count);
    rpi_write_stamps_finish(stamps);
    *stamps = made;
    return true;
}

void rpi_write_stamps_finish(struct rpi_write_stamps *stamps)
{
    rpi_vec_finish(&stamps->ends);
    rpi_free(stamps->latest);
    rpi_free(stamps->whole);
    *stamps = (struct rpi_write_stamps){0};
}

/* How many ends are at or below the address. */
static size_t count_ends(const struct rpi_write_stamps *stamps, uint64_t address)
{
    size_t low = 0, high = stamps->ends.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (stamps->ends.data[middle] <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct rpi_write_span rpi_write_stamps_span(const struct rpi_write_stamps *stamps,
                                            struct rpi_range range)
{
    assert(range.from < range.to);
    struct rpi_write_span span = {0, 0};
    size_t all = segments(stamps), first = count_ends(stamps, range.from);
    size_t end = count_ends(stamps, range.to - 1);
    span.first = (uint32_t)(first ? first - 1 : 0);
    span.end = (uint32_t)(end < all ? end : all);
    if (span.first >= span.end)
        span.first = span.end = 0;
    return span;
}

static void lift(struct rpi_write_stamps *stamps, size_t node, uint64_t turn)
{
    for (node /= 2; node; node /= 2)
        stamps->latest[node] = turn;
}

void rpi_write_stamps_write(struct rpi_write_stamps *stamps, struct rpi_write_span span,
                            uint64_t turn)
{
    assert(turn);
    if (span.first == span.end)
        return;
    size_t n = segments(stamps);
    assert(span.first < span.end && span.end <= n);
    for (size_t l = span.first + n, r = span.end + n; l < r; l /= 2, r /= 2) {
        if (l % 2) {
            stamps->latest[l] = stamps->whole[l] = turn;
            l++;
        }
        if (r % 2) {
            r--;
            stamps->latest[r] = stamps->whole[r] = turn;
        }
    }
    lift(stamps, span.first + n, turn);
    lift(stamps, span.end - 1 + n, turn);
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

uint64_t rpi_write_stamps_latest(const struct rpi_write_stamps *stamps, struct rpi_write_span span)
{
    assert(span.first <= span.end && span.end <= segments(stamps));
    if (span.first == span.end)
        return 0;
    size_t n = segments(stamps);
    uint64_t latest = 0;
    for (size_t l = span.first + n, r = span.end + n; l < r; l /= 2, r /= 2) {
        if (l % 2)
            latest = most(latest, stamps->latest[l++]);
        if (r % 2)
            latest = most(latest, stamps->latest[--r]);
    }
    /* What was written over more than the span: the nodes above both of its ends. */
    for (size_t node = (span.first + n) / 2; node; node /= 2)
        latest = most(latest, stamps->whole[node]);
    for (size_t node = (span.end - 1 + n) / 2; node; node /= 2)
        latest = most(latest, stamps->whole[node]);
    return latest;
}
