/* SPDX-License-Identifier: MIT */
#include "memory/place.h"

#include "memory/arena.h"

#include <assert.h>
#include <string.h>

void rpi_place_init(struct rpi_place *place, const struct rpi_order *order, uint64_t alignment,
                    uint64_t height)
{
    *place = (struct rpi_place){.order = order, .alignment = alignment, .height = height};
}

void rpi_place_finish(struct rpi_place *place)
{
    rpi_vec_finish(&place->blocks);
    rpi_vec_finish(&place->segments);
    rpi_vec_finish(&place->nodes);
}

static bool is_dead(const struct rpi_place *place, uint32_t block,
                    const struct rpi_frontier *frontier)
{
    const struct rpi_place_block *b = &place->blocks.data[block];
    if (!b->freed || !b->node_count)
        return false;
    for (uint32_t i = 0; i < b->node_count; i++)
        if (!rpi_frontier_holds(frontier, place->order, place->nodes.data[b->first_node + i]))
            return false;
    return true;
}

/* Index of the first segment that ends above offset. */
static size_t first_above(const struct rpi_place *place, uint64_t offset)
{
    size_t low = 0, high = place->segments.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (place->segments.data[middle].end > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bool rpi_place_fits(const struct rpi_place *place, uint64_t offset, uint64_t bytes,
                    const struct rpi_frontier *frontier)
{
    const struct rpi_place_segment *segments = place->segments.data;
    for (size_t i = first_above(place, offset);
         i < place->segments.count && segments[i].offset < offset + bytes; i++)
        if (!is_dead(place, segments[i].block, frontier))
            return false;
    return true;
}

uint64_t rpi_place_find(const struct rpi_place *place, uint64_t bytes,
                        const struct rpi_frontier *frontier)
{
    uint64_t best = UINT64_MAX, best_gap = UINT64_MAX, start = 0;
    for (size_t i = 0; i <= place->segments.count; i++) {
        const struct rpi_place_segment *segment =
            i < place->segments.count ? &place->segments.data[i] : NULL;
        if (segment && is_dead(place, segment->block, frontier))
            continue;
        uint64_t end = segment ? segment->offset : place->height;
        if (end >= start && end - start >= bytes && end - start < best_gap) {
            best = start;
            best_gap = end - start;
        }
        if (segment)
            start = rpi_round_up(segment->end, place->alignment);
    }
    if (best != UINT64_MAX)
        return best;
    return start <= UINT64_MAX - bytes ? start : UINT64_MAX;
}

rp_status rpi_place_take(struct rpi_place *place, uint64_t offset, uint64_t bytes,
                         uint32_t *out_block, struct rp_error *err)
{
    assert(bytes && offset <= UINT64_MAX - bytes);
    uint64_t end = offset + bytes;
    /* A segment that the block lies within falls into two, and the block adds one. */
    if (!rpi_vec_reserve(&place->segments, place->segments.count + 2) ||
        !rpi_vec_reserve(&place->blocks, place->blocks.count + 1))
        return rpi_error_host_memory(err, "rpi_place_take", sizeof(struct rpi_place_segment));
    struct rpi_place_segment *segments = place->segments.data;
    size_t first = first_above(place, offset), last = first;
    while (last < place->segments.count && segments[last].offset < end)
        last++;

    uint32_t block = (uint32_t)place->blocks.count;
    struct rpi_place_segment instead[3];
    size_t count = 0;
    if (first < last && segments[first].offset < offset)
        instead[count++] =
            (struct rpi_place_segment){segments[first].offset, offset, segments[first].block};
    instead[count++] = (struct rpi_place_segment){offset, end, block};
    if (first < last && segments[last - 1].end > end)
        instead[count++] =
            (struct rpi_place_segment){end, segments[last - 1].end, segments[last - 1].block};

    memmove(segments + first + count, segments + last,
            (place->segments.count - last) * sizeof *segments);
    memcpy(segments + first, instead, count * sizeof *segments);
    place->segments.count = place->segments.count - (last - first) + count;
    place->blocks.data[place->blocks.count++] = (struct rpi_place_block){0};
    if (place->height < end)
        place->height = end;
    *out_block = block;
    return RP_OK;
}

rp_status rpi_place_free(struct rpi_place *place, uint32_t block, const uint32_t *nodes,
                         size_t count, struct rp_error *err)
{
    assert(block < place->blocks.count && !place->blocks.data[block].freed);
    if (!rpi_vec_reserve(&place->nodes, place->nodes.count + count))
        return rpi_error_host_memory(err, "rpi_place_free", count * sizeof *nodes);
    struct rpi_place_block *freed = &place->blocks.data[block];
    freed->freed = true;
    freed->first_node = (uint32_t)place->nodes.count;
    freed->node_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++)
        place->nodes.data[place->nodes.count++] = nodes[i];
    return RP_OK;
}

bool rpi_place_is_valid(const struct rpi_place *place)
{
    uint64_t end = 0;
    for (size_t i = 0; i < place->segments.count; i++) {
        const struct rpi_place_segment *segment = &place->segments.data[i];
        if (segment->offset < end || segment->end <= segment->offset ||
            segment->end > place->height || segment->block >= place->blocks.count)
            return false;
        end = segment->end;
    }
    return true;
}
