/* SPDX-License-Identifier: MIT
 *
 * The walker of a pool's readers: their list, and what each of them says that it reads.
 */
#include "graph/objects/objects.h"

#include "base/held.h"

static bool is_covered(const struct rpi_ranges *ranges, struct rpi_range part)
{
    for (size_t i = 0; i < ranges->count; i++)
        if (ranges->data[i].from <= part.from && part.to <= ranges->data[i].to)
            return true;
    return false;
}

/* The source `index`, whose blocks and changers begin where those of the source before end. */
static bool is_source_valid(const struct rpi_reads *reads, size_t index, size_t blocks,
                            size_t changers)
{
    const struct rpi_source *source = &reads->sources.data[index];
    const struct rp_graph *writer = source->writer.graph;
    if (source->range.from >= source->range.to || source->first_block != blocks ||
        !source->block_count || source->first_changer != changers ||
        source->block_count > reads->blocks.count - blocks ||
        source->changer_count > reads->changers.count - changers)
        return false;
    if (source->or_next && index + 1 == reads->sources.count)
        return false;
    for (size_t i = 0; i < source->block_count; i++)
        if (reads->blocks.data[blocks + i].source != index)
            return false;
    return !writer ||
           (writer->member.node.parent && is_covered(&writer->member.kept, source->range));
}

static bool is_reader_valid(const struct rp_graph *graph)
{
    const struct rpi_reads *reads = &graph->reads;
    size_t blocks = 0, changers = 0;
    for (size_t i = 0; i < reads->sources.count; i++) {
        if (!is_source_valid(reads, i, blocks, changers))
            return false;
        blocks += reads->sources.data[i].block_count;
        changers += reads->sources.data[i].changer_count;
    }
    return blocks == reads->blocks.count && changers == reads->changers.count &&
           reads->sources.count;
}

bool rpi_readers_are_valid(const struct rp_pool *pool)
{
    const struct rp_graph *before = NULL;
    rpi_assert_held(&pool->core->lock);
    for (const struct rp_graph *r = pool->core->readers.first; r; before = r, r = r->reads.next)
        if (!r->reads.listed || r->reads.previous != before || r->pool->core != pool->core ||
            r->reads.written > pool->core->memory.turns || !is_reader_valid(r))
            return false;
    return true;
}
