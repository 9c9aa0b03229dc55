/* SPDX-License-Identifier: MIT
 *
 * Lifetimes of one total order: half-open intervals.
 *
 * Sorted by their lower ends the blocks have ranks, and the first rank that may take a block's
 * memory is the number of blocks that start before it ends: a binary search. n log n in all.
 */
#include "memory/order/lifetimes.h"

#include "base/hostmem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

rp_status rpi_lifetimes_init(struct rpi_lifetimes *lifetimes, uint32_t count, uint32_t lanes,
                             struct rp_error *err)
{
    assert(lanes || !count);
    struct rpi_lifetimes made = {.count = count, .lanes = lanes};
    made.bytes = rpi_reallocarray(NULL, count, sizeof *made.bytes);
    made.lane = rpi_reallocarray(NULL, count, sizeof *made.lane);
    made.rank = rpi_reallocarray(NULL, count, sizeof *made.rank);
    made.first = rpi_reallocarray(NULL, (size_t)count * lanes, sizeof *made.first);
    made.block = rpi_reallocarray(NULL, count, sizeof *made.block);
    if (!made.bytes || !made.lane || !made.rank || !made.first || !made.block) {
        rpi_lifetimes_finish(&made);
        return rpi_error_host_memory(err, "lifetimes", (size_t)count * (20 + 4 * (size_t)lanes));
    }
    *lifetimes = made;
    return RP_OK;
}

void rpi_lifetimes_finish(struct rpi_lifetimes *lifetimes)
{
    rpi_free(lifetimes->bytes);
    rpi_free(lifetimes->lane);
    rpi_free(lifetimes->rank);
    rpi_free(lifetimes->first);
    rpi_free(lifetimes->block);
    memset(lifetimes, 0, sizeof *lifetimes);
}

rp_status rpi_lifetimes_round(struct rpi_lifetimes *lifetimes, uint64_t alignment,
                              struct rp_error *err)
{
    assert(alignment);
    uint64_t room = INT64_MAX;
    for (uint32_t i = 0; i < lifetimes->count; i++) {
        uint64_t bytes = lifetimes->bytes[i];
        uint64_t rest = bytes % alignment ? alignment - bytes % alignment : 0;
        if (bytes > room || rest > room - bytes)
            return rpi_error(err, RP_ERROR_FORMAT, "lifetimes",
                             "block %u of %llu bytes, rounded up to %llu, takes the sum of all "
                             "sizes beyond 2^63 bytes; check the sizes",
                             lifetimes->block[i], (unsigned long long)bytes,
                             (unsigned long long)alignment);
        lifetimes->bytes[i] = bytes + rest;
        room -= bytes + rest;
    }
    return RP_OK;
}

struct start {
    int64_t lower;
    uint32_t index;
};

static int compare_starts(const void *left, const void *right)
{
    const struct start *a = left, *b = right;
    if (a->lower != b->lower)
        return a->lower < b->lower ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* The number of starts below `limit`. */
static uint32_t starts_below(const struct start *starts, uint32_t count, int64_t limit)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (starts[middle].lower < limit)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void fill_intervals(struct rpi_lifetimes *lifetimes, const struct start *starts,
                           const int64_t *upper, const uint64_t *bytes)
{
    assert(lifetimes->lanes == 1);
    uint32_t count = lifetimes->count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t from = starts[i].index;
        uint32_t first = starts_below(starts, count, upper[from]);
        lifetimes->bytes[i] = bytes[from];
        lifetimes->lane[i] = 0;
        lifetimes->rank[i] = i;
        lifetimes->first[i] = first < count ? first : RPI_NEVER;
        lifetimes->block[i] = from;
    }
}

/* The starts of blocks of more than 0 bytes, sorted; *out_count of them. */
static rp_status sorted_starts(const int64_t *lower, const int64_t *upper, const uint64_t *bytes,
                               uint32_t count, struct start **out_starts, uint32_t *out_count,
                               struct rp_error *err)
{
    struct start *starts = rpi_reallocarray(NULL, count, sizeof *starts);
    if (!starts)
        return rpi_error_host_memory(err, "lifetimes", count * sizeof *starts);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (lower[i] >= upper[i]) {
            rpi_free(starts);
            return rpi_error(err, RP_ERROR_FORMAT, "lifetimes",
                             "interval %u ends at %lld, not after its start at %lld", i,
                             (long long)upper[i], (long long)lower[i]);
        }
        if (bytes[i])
            starts[kept++] = (struct start){lower[i], i};
    }
    qsort(starts, kept, sizeof *starts, compare_starts);
    *out_starts = starts;
    *out_count = kept;
    return RP_OK;
}

rp_status rpi_lifetimes_from_intervals(const int64_t *lower, const int64_t *upper,
                                       const uint64_t *bytes, uint32_t count, uint64_t alignment,
                                       struct rpi_lifetimes *out, struct rp_error *err)
{
    struct start *starts = NULL;
    uint32_t kept = 0;
    rp_status status = sorted_starts(lower, upper, bytes, count, &starts, &kept, err);
    if (status)
        return status;
    struct rpi_lifetimes made = {0};
    status = rpi_lifetimes_init(&made, kept, 1, err);
    if (!status) {
        fill_intervals(&made, starts, upper, bytes);
        status = rpi_lifetimes_round(&made, alignment, err);
        if (status)
            rpi_lifetimes_finish(&made);
        else
            *out = made;
    }
    rpi_free(starts);
    return status;
}
