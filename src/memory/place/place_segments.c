/* SPDX-License-Identifier: MIT */
#include "memory/place/place_segments.h"

#include <assert.h>

void rpi_segments_init(struct rpi_segments *segments)
{
    *segments = (struct rpi_segments){
        .first = RPI_NO_SEGMENT, .last = RPI_NO_SEGMENT, .unused = RPI_NO_SEGMENT};
}

void rpi_segments_finish(struct rpi_segments *segments)
{
    rpi_vec_finish(&segments->all);
    rpi_gap_set_finish(&segments->by_offset);
}

/* Unused ids are not counted: at most `count` ids more than needed. */
bool rpi_segments_reserve(struct rpi_segments *segments, size_t count)
{
    return rpi_vec_reserve(&segments->all, segments->all.count + count) &&
           rpi_gap_set_reserve(&segments->by_offset, count);
}

static uint32_t new_id(struct rpi_segments *segments)
{
    uint32_t id = segments->unused;
    if (id == RPI_NO_SEGMENT)
        return (uint32_t)segments->all.count++;
    assert(segments->unused < segments->all.count);
    segments->unused = segments->all.data[id].next;
    return id;
}

/* Links a new segment behind prev. */
static void link_behind(struct rpi_segments *segments, uint32_t id, uint32_t prev)
{
    assert(id < segments->all.count && segments->all.data[id].offset < segments->all.data[id].end);
    struct rpi_segment *all = segments->all.data;
    uint32_t next = prev == RPI_NO_SEGMENT ? segments->first : all[prev].next;
    all[id].prev = prev;
    all[id].next = next;
    if (prev == RPI_NO_SEGMENT)
        segments->first = id;
    else
        all[prev].next = id;
    if (next == RPI_NO_SEGMENT)
        segments->last = id;
    else
        all[next].prev = id;
    rpi_gap_set_insert(&segments->by_offset, (struct rpi_gap){0, all[id].offset, id});
}

uint32_t rpi_segments_append(struct rpi_segments *segments, uint64_t end)
{
    uint32_t last = segments->last, id = new_id(segments);
    uint64_t offset = last == RPI_NO_SEGMENT ? 0 : segments->all.data[last].end;
    assert(offset < end);
    segments->all.data[id] = (struct rpi_segment){.offset = offset,
                                                  .end = end,
                                                  .block = RPI_NO_BLOCK,
                                                  .piece_prev = RPI_NO_SEGMENT,
                                                  .piece_next = RPI_NO_SEGMENT};
    link_behind(segments, id, last);
    return id;
}

uint32_t rpi_segments_split(struct rpi_segments *segments, uint32_t segment, uint64_t offset)
{
    uint32_t id = new_id(segments);
    struct rpi_segment *all = segments->all.data;
    assert(all[segment].offset < offset && offset < all[segment].end);
    all[id] = all[segment];
    all[id].offset = offset;
    all[segment].end = offset;
    if (all[segment].block != RPI_NO_BLOCK) {
        all[id].piece_prev = segment;
        if (all[id].piece_next != RPI_NO_SEGMENT)
            all[all[id].piece_next].piece_prev = id;
        all[segment].piece_next = id;
    }
    link_behind(segments, id, segment);
    return id;
}

void rpi_segments_join(struct rpi_segments *segments, uint32_t first, uint32_t last)
{
    struct rpi_segment *all = segments->all.data;
    while (first != last) {
        uint32_t gone = all[first].next;
        rpi_gap_set_remove(&segments->by_offset, 0, all[gone].offset);
        all[first].end = all[gone].end;
        all[first].next = all[gone].next;
        if (all[first].next == RPI_NO_SEGMENT)
            segments->last = first;
        else
            all[all[first].next].prev = first;
        all[gone].next = segments->unused;
        segments->unused = gone;
        if (gone == last)
            break;
    }
    all[first].block = RPI_NO_BLOCK;
    all[first].dead = 0;
    all[first].piece_prev = all[first].piece_next = RPI_NO_SEGMENT;
}

uint32_t rpi_segments_at(const struct rpi_segments *segments, uint64_t offset)
{
    const struct rpi_gap *found = rpi_gap_set_last_to(&segments->by_offset, 0, offset);
    assert(found);
    return found->segment;
}
