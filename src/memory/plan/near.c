/* SPDX-License-Identifier: MIT */
#include "memory/plan/near.h"

#include "base/hostmem.h"

#define SHORTEST_SPAN 16

static uint32_t first_of(const struct rpi_lifetimes *x, uint32_t block, uint32_t lane)
{
    return x->first[(size_t)block * x->lanes + lane];
}

static uint32_t lane_size(const struct rpi_near *near, uint32_t lane)
{
    return near->lane_start[lane + 1] - near->lane_start[lane];
}

/* Keeps of held[from ..] what holds back `rank` of the lane. */
static void filter(struct rpi_near *near, size_t from, uint32_t lane, uint32_t rank)
{
    size_t kept = from;
    for (size_t i = from; i < near->held.count; i++)
        if (first_of(near->x, near->held.data[i], lane) > rank)
            near->held.data[kept++] = near->held.data[i];
    near->held.count = kept;
}

/* Takes a snapshot of the lane at `rank`, from the one before (NULL: none) and the blocks since. */
static bool take_snapshot(struct rpi_near *near, uint32_t lane, uint32_t rank,
                          const struct rpi_snapshot *before)
{
    struct rpi_snapshot made = {near->held.count, 0, near->at[near->lane_start[lane] + rank]};
    uint32_t old = before ? before->count : 0, host = before ? before->host : 0;
    size_t first = before ? before->first : 0;
    if (!rpi_vec_reserve(&near->held, made.first + old + (made.host - host)))
        return false;
    for (uint32_t i = 0; i < old; i++)
        near->held.data[near->held.count++] = near->held.data[first + i];
    for (uint32_t block = host; block < made.host; block++)
        near->held.data[near->held.count++] = block;
    filter(near, made.first, lane, rank);
    made.count = (uint32_t)(near->held.count - made.first);
    return rpi_vec_push(&near->snapshots, made);
}

static bool snapshot_lane(struct rpi_near *near, uint32_t lane)
{
    uint32_t size = lane_size(near, lane);
    struct rpi_snapshot before;
    for (uint32_t rank = 0; rank < size;) {
        if (!take_snapshot(near, lane, rank, rank ? &before : NULL))
            return false;
        before = near->snapshots.data[near->snapshots.count - 1];
        uint32_t span = before.count > SHORTEST_SPAN ? before.count : SHORTEST_SPAN;
        for (uint32_t end = size - rank < span ? size : rank + span; rank < end; rank++)
            near->snapshot[near->lane_start[lane] + rank] = (uint32_t)near->snapshots.count - 1;
    }
    return true;
}

bool rpi_near_init(struct rpi_near *near, const struct rpi_lifetimes *x)
{
    *near = (struct rpi_near){.x = x};
    near->lane_start = rpi_calloc((size_t)x->lanes + 1, sizeof *near->lane_start);
    near->at = rpi_reallocarray(NULL, x->count, sizeof *near->at);
    near->snapshot = rpi_reallocarray(NULL, x->count, sizeof *near->snapshot);
    if (!near->lane_start || !near->at || !near->snapshot)
        return false;
    for (uint32_t i = 0; i < x->count; i++)
        near->lane_start[x->lane[i] + 1]++;
    for (uint32_t l = 0; l < x->lanes; l++)
        near->lane_start[l + 1] += near->lane_start[l];
    for (uint32_t i = 0; i < x->count; i++)
        near->at[near->lane_start[x->lane[i]] + x->rank[i]] = i;
    for (uint32_t l = 0; l < x->lanes; l++)
        if (!snapshot_lane(near, l))
            return false;
    return true;
}

void rpi_near_finish(struct rpi_near *near)
{
    rpi_free(near->lane_start);
    rpi_free(near->at);
    rpi_free(near->snapshot);
    rpi_vec_finish(&near->snapshots);
    rpi_vec_finish(&near->held);
}

/* The lane's first rank after `block` in host order. */
static uint32_t rank_after(const struct rpi_near *near, uint32_t block, uint32_t lane)
{
    const uint32_t *at = near->at + near->lane_start[lane];
    uint32_t low = 0, high = lane_size(near, lane);
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
static uint32_t held_back(const struct rpi_near *near, uint32_t block, uint32_t lane,
                          uint32_t *out_from)
{
    uint32_t size = lane_size(near, lane), end = first_of(near->x, block, lane);
    end = end < size ? end : size;
    *out_from = rank_after(near, block, lane);
    return end > *out_from ? end - *out_from : 0;
}

uint64_t rpi_near_pairs(const struct rpi_near *near)
{
    uint64_t pairs = 0;
    uint32_t from;
    for (uint32_t i = 0; i < near->x->count; i++)
        for (uint32_t l = 0; l < near->x->lanes; l++)
            pairs += held_back(near, i, l, &from);
    return pairs;
}

uint32_t rpi_near_list(const struct rpi_near *near, uint32_t block, uint32_t *out_blocks)
{
    const struct rpi_lifetimes *x = near->x;
    uint32_t lane = x->lane[block], rank = x->rank[block], found = 0, from;
    const struct rpi_snapshot *snapshot =
        &near->snapshots.data[near->snapshot[near->lane_start[lane] + rank]];
    const uint32_t *held = near->held.data + snapshot->first;
    for (uint32_t i = 0; i < snapshot->count; i++)
        if (first_of(x, held[i], lane) > rank)
            out_blocks[found++] = held[i];
    for (uint32_t other = snapshot->host; other < block; other++)
        if (first_of(x, other, lane) > rank)
            out_blocks[found++] = other;
    for (uint32_t l = 0; l < x->lanes; l++) {
        uint32_t count = held_back(near, block, l, &from);
        for (uint32_t i = 0; i < count; i++)
            out_blocks[found++] = near->at[near->lane_start[l] + from + i];
    }
    return found;
}
