/* SPDX-License-Identifier: MIT */
#include "graph/objects/blocks.h"

#include "base/held.h"
#include "graph/objects/objects.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

static const struct rpi_pool_member *next_member(const struct rp_pool *pool,
                                                 const struct rpi_pool_member *member)
{
    return rpi_pool_next(&pool->core->memory.root->node, member);
}

uint32_t rpi_blocks_at(const struct rp_graph *graph, uint64_t offset, bool kept)
{
    rpi_assert_held(&graph->pool->core->lock);
    for (uint32_t i = 0; i < graph->block_count; i++) {
        struct rpi_range range = rpi_block_range(graph, i);
        if (graph->blocks[i].kept == kept && range.from <= offset && offset < range.to)
            return i;
    }
    return UINT32_MAX;
}

void rpi_blocks_describe(const struct rp_pool *pool, uint64_t offset, char *text, size_t bytes)
{
    rpi_assert_held(&pool->core->lock);
    assert(offset < pool->core->memory.arena.reserved);
    for (const struct rpi_pool_member *m = next_member(pool, NULL); m; m = next_member(pool, m)) {
        if (!rpi_ranges_overlap(&m->all, offset, offset + 1))
            continue;
        const struct rp_graph *graph = rpi_graph_of(m);
        bool kept = rpi_ranges_overlap(&m->kept, offset, offset + 1);
        uint32_t block = rpi_blocks_at(graph, offset, kept);
        if (block != UINT32_MAX)
            snprintf(text, bytes, "block %" PRIu32 " of graph '%.60s', which %s", block,
                     graph->name,
                     !kept         ? "frees it"
                     : m->released ? "was released"
                                   : "comes before it in no sequence");
        return;
    }
    snprintf(text, bytes, "memory of the pool that no graph has now");
}

const struct rp_graph *rpi_blocks_overwriter(const struct rp_graph *writer, uint32_t block)
{
    rpi_assert_held(&writer->pool->core->lock);
    assert(block < writer->block_count);
    const struct rp_graph *found = NULL;
    struct rpi_range range = rpi_block_range(writer, block);
    uint64_t latest = writer->reads.written;
    for (const struct rpi_pool_member *m = next_member(writer->pool, NULL); m;
         m = next_member(writer->pool, m)) {
        if (m->turn > latest && rpi_ranges_overlap(&m->all, range.from, range.to)) {
            latest = m->turn;
            found = rpi_graph_of(m);
        }
    }
    return found;
}

/* Does the kept block hold what its graph's last replay wrote? */
static bool is_whole(const struct rp_graph *writer, uint32_t block)
{
    assert(block < writer->block_count && writer->blocks[block].kept);
    uint64_t written = writer->reads.written;
    return written && writer->blocks[block].overwritten <= written &&
           !rpi_blocks_overwriter(writer, block);
}

/* The kept block that holds the range, UINT32_MAX when none does. */
static uint32_t find_kept(const struct rp_graph *graph, struct rpi_range range)
{
    if (!rpi_ranges_overlap(&graph->member.kept, range.from, range.to))
        return UINT32_MAX;
    uint32_t block = rpi_blocks_at(graph, range.from, true);
    return block != UINT32_MAX && range.to <= rpi_block_range(graph, block).to ? block : UINT32_MAX;
}

enum rpi_block_state rpi_blocks_look(const struct rp_pool *pool, struct rpi_range range, bool read,
                                     struct rpi_block_place *out_place)
{
    rpi_assert_held(&pool->core->lock);
    assert(range.from < range.to);
    enum rpi_block_state state = RPI_BLOCK_NONE;
    for (const struct rpi_pool_member *m = next_member(pool, NULL); m && state != RPI_BLOCK_WHOLE;
         m = next_member(pool, m)) {
        const struct rp_graph *graph = rpi_graph_of(m);
        uint32_t block = find_kept(graph, range);
        if (block == UINT32_MAX)
            continue;
        /* What graphs that others replay keep holds what the program knows. */
        bool good = m->held || !read || is_whole(graph, block);
        state = good ? RPI_BLOCK_WHOLE : RPI_BLOCK_STALE;
        *out_place = (struct rpi_block_place){graph, block};
    }
    return state;
}
