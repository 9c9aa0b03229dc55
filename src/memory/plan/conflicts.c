/* SPDX-License-Identifier: MIT */
#include "memory/plan/conflicts.h"

#include "base/hostmem.h"

#include <assert.h>

#define SHORTEST_SPAN 16

static uint32_t first_of(const struct rpi_lifetimes *x, uint32_t block, uint32_t lane)
{
    assert(block < x->count && lane < x->lanes);
    return x->first[(size_t)block * x->lanes + lane];
}

static uint32_t lane_size(const struct rpi_conflicts *conflicts, uint32_t lane)
{
    return conflicts->lane_start[lane + 1] - conflicts->lane_start[lane];
}

/* Keeps of held[from ..] what holds back `rank` of the lane. */
static void filter(struct rpi_conflicts *conflicts, size_t from, uint32_t lane, uint32_t rank)
{
    assert(from <= conflicts->held.count);
    size_t kept = from;
    for (size_t i = from; i < conflicts->held.count; i++)
        if (first_of(conflicts->x, conflicts->held.data[i], lane) > rank)
            conflicts->held.data[kept++] = conflicts->held.data[i];
    conflicts->held.count = kept;
}

/* Takes a snapshot of the lane at `rank`, from the one before (NULL: none) and the blocks since. */
static bool take_snapshot(struct rpi_conflicts *conflicts, uint32_t lane, uint32_t rank,
                          const struct rpi_snapshot *before)
{
    assert(rank < lane_size(conflicts, lane));
    struct rpi_snapshot made = {conflicts->held.count, 0,
                                conflicts->at[conflicts->lane_start[lane] + rank]};
    assert(!before || before->host <= made.host);
    uint32_t old = before ? before->count : 0, host = before ? before->host : 0;
    size_t first = before ? before->first : 0;
    if (!rpi_vec_reserve(&conflicts->held, made.first + old + (made.host - host)))
        return false;
    for (uint32_t i = 0; i < old; i++)
        conflicts->held.data[conflicts->held.count++] = conflicts->held.data[first + i];
    for (uint32_t block = host; block < made.host; block++)
        conflicts->held.data[conflicts->held.count++] = block;
    filter(conflicts, made.first, lane, rank);
    made.count = (uint32_t)(conflicts->held.count - made.first);
    return rpi_vec_push(&conflicts->snapshots, made);
}

static bool snapshot_lane(struct rpi_conflicts *conflicts, uint32_t lane)
{
    uint32_t size = lane_size(conflicts, lane);
    struct rpi_snapshot before;
    for (uint32_t rank = 0; rank < size;) {
        if (!take_snapshot(conflicts, lane, rank, rank ? &before : NULL))
            return false;
        before = conflicts->snapshots.data[conflicts->snapshots.count - 1];
        uint32_t span = before.count > SHORTEST_SPAN ? before.count : SHORTEST_SPAN;
        for (uint32_t end = size - rank < span ? size : rank + span; rank < end; rank++)
            conflicts->snapshot[conflicts->lane_start[lane] + rank] =
                (uint32_t)conflicts->snapshots.count - 1;
    }
    return true;
}

bool rpi_conflicts_init(struct rpi_conflicts *conflicts, const struct rpi_lifetimes *x)
{
    *conflicts = (struct rpi_conflicts){.x = x};
    conflicts->lane_start = rpi_calloc((size_t)x->lanes + 1, sizeof *conflicts->lane_start);
    conflicts->at = rpi_reallocarray(NULL, x->count, sizeof *conflicts->at);
    conflicts->snapshot = rpi_reallocarray(NULL, x->count, sizeof *conflicts->snapshot);
    if (!conflicts->lane_start || !conflicts->at || !conflicts->snapshot)
        return false;
    for (uint32_t i = 0; i < x->count; i++)
        conflicts->lane_start[x->lane[i] + 1]++;
    for (uint32_t l = 0; l < x->lanes; l++)
        conflicts->lane_start[l + 1] += conflicts->lane_start[l];
    for (uint32_t i = 0; i < x->count; i++)
        conflicts->at[conflicts->lane_start[x->lane[i]] + x->rank[i]] = i;
    for (uint32_t l = 0; l < x->lanes; l++)
        if (!snapshot_lane(conflicts, l))
            return false;
    return true;
}

void rpi_conflicts_finish(struct rpi_conflicts *conflicts)
{
    rpi_free(conflicts->lane_start);
    rpi_free(conflicts->at);
    rpi_free(conflicts->snapshot);
    rpi_vec_finish(&conflicts->snapshots);
    rpi_vec_finish(&conflicts->held);
}

/* The lane's first rank after `block` in host order. */
static uint32_t rank_after(const struct rpi_conflicts *conflicts, uint32_t block, uint32_t lane)
{
    const uint32_t *at = conflicts->at + conflicts->lane_start[lane];
    uint32_t low = 0, high = lane_size(conflicts, lane);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (at[middle] <= block)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The lane's ranks that come after `block` in host order and may not take its memory. */
static uint32_t held_back(const struct rpi_conflicts *conflicts, uint32_t block, uint32_t lane,
                          uint32_t *out_from)
{
    uint32_t size = lane_size(conflicts, lane), end = first_of(conflicts->x, block, lane);
    end = end < size ? end : size;
    *out_from = rank_after(conflicts, block, lane);
    return end > *out_from ? end - *out_from : 0;
}

uint64_t rpi_conflicts_pairs(const struct rpi_conflicts *conflicts)
{
    uint64_t pairs = 0;
    uint32_t from;
    for (uint32_t i = 0; i < conflicts->x->count; i++)
        for (uint32_t l = 0; l < conflicts->x->lanes; l++)
            pairs += held_back(conflicts, i, l, &from);
    return pairs;
}

uint32_t rpi_conflicts_list(const struct rpi_conflicts *conflicts, uint32_t block,
                            uint32_t *out_blocks)
{
    assert(block < conflicts->x->count);
    const struct rpi_lifetimes *x = conflicts->x;
    uint32_t lane = x->lane[block], rank = x->rank[block], found = 0, from;
    const struct rpi_snapshot *snapshot =
        &conflicts->snapshots.data[conflicts->snapshot[conflicts->lane_start[lane] + rank]];
    const uint32_t *held = conflicts->held.data + snapshot->first;
    for (uint32_t i = 0; i < snapshot->count; i++)
        if (first_of(x, held[i], lane) > rank)
            out_blocks[found++] = held[i];
    for (uint32_t other = snapshot->host; other < block; other++)
        if (first_of(x, other, lane) > rank)
            out_blocks[found++] = other;
    for (uint32_t l = 0; l < x->lanes; l++) {
        uint32_t count = held_back(conflicts, block, l, &from);
        for (uint32_t i = 0; i < count; i++)
            out_blocks[found++] = conflicts->at[conflicts->lane_start[l] + from + i];
    }
    assert(found < x->count);
    return found;
}
