/* SPDX-License-Identifier: MIT */
#include "graph/objects/reads.h"

#include "base/held.h"
#include "base/hostmem.h"
#include "graph/objects/blocks.h"
#include "graph/objects/objects.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Stands where a capture into the group will: behind all that the group has. */
static struct rpi_pool_node place_in(const struct rp_pool *pool)
{
    const struct rpi_pool_node *group = &pool->group.node;
    return (struct rpi_pool_node){.kind = RPI_COMPOSE_CAPTURE,
                                  .parent = (struct rpi_pool_node *)group,
                                  .depth = group->depth + 1,
                                  .place = UINT64_MAX};
}

static bool is_before(const struct rpi_pool_node *a, const struct rpi_pool_node *b)
{
    bool first;
    return rpi_pool_relation(a, b, &first) == RPI_COMPOSE_SEQUENCE && first;
}

/* ---- What an address is -------------------------------------------------------------------- */

/* The next member after m, NULL to begin with, that comes earlier in the sequence and keeps a block
 * there. Several do only where they are alternatives. */
static const struct rpi_pool_member *next_keeper(const struct rp_pool *pool,
                                                 const struct rpi_pool_member *m, uint64_t offset)
{
    rpi_assert_held(&pool->core->lock);
    const struct rpi_pool_node *top = &pool->core->memory.root->node, here = place_in(pool);
    while ((m = rpi_pool_next(top, m)))
        if (!m->held && !m->released && rpi_ranges_overlap(&m->kept, offset, offset + 1) &&
            is_before(&m->node, &here))
            return m;
    return NULL;
}

/* Where a block is kept that the offset lies in, or else ends; UINT64_MAX: nowhere. */
static uint64_t find_kept(const struct rp_pool *pool, uint64_t offset)
{
    if (next_keeper(pool, NULL, offset))
        return offset;
    return offset && next_keeper(pool, NULL, offset - 1) ? offset - 1 : UINT64_MAX;
}

/* Has the program the address in its hands? Where a block of its ends another graph's may begin,
 * and is meant then. With the core's lock held. */
static bool is_held(const struct rp_pool *pool, uint64_t address, uint64_t offset)
{
    rpi_assert_held(&pool->core->lock);
    const struct rpi_pool_node *top = &pool->core->memory.root->node;
    if (rpi_address_is_held(pool->device, address))
        return true;
    if (!rpi_address_ends_held(pool->device, address))
        return false;
    for (const struct rpi_pool_member *m = rpi_pool_next(top, NULL); m; m = rpi_pool_next(top, m))
        if (rpi_ranges_overlap(&m->all, offset, offset + 1))
            return false;
    return true;
}

/* The same of an address that lies in the pool that is captured into. */
static void find_own(const struct rp_pool *pool, uint64_t address, struct rpi_foreign *out_foreign)
{
    uint64_t offset = address - pool->core->memory.arena.base;
    pthread_mutex_lock(&pool->core->lock);
    if (find_kept(pool, offset) != UINT64_MAX)
        out_foreign->kind = RPI_FOREIGN_KEPT;
    else if (!is_held(pool, address, offset)) {
        out_foreign->kind = RPI_FOREIGN_REFUSED;
        rpi_blocks_describe(pool, offset, out_foreign->text, sizeof out_foreign->text);
    }
    pthread_mutex_unlock(&pool->core->lock);
}

void rpi_reads_find(const struct rp_pool *pool, uint64_t address, struct rpi_foreign *out_foreign)
{
    struct rpi_owner owner = rpi_address_owner(pool, address);
    *out_foreign = (struct rpi_foreign){.kind = RPI_FOREIGN_UNKNOWN};
    switch (owner.kind) {
    case RPI_OWNER_SELF:
        find_own(pool, address, out_foreign);
        return;
    case RPI_OWNER_STAGING:
        out_foreign->kind = RPI_FOREIGN_REFUSED;
        snprintf(out_foreign->text, sizeof out_foreign->text,
                 "memory that arguments of the pool's graphs are copied to");
        return;
    case RPI_OWNER_EAGER:
    case RPI_OWNER_OTHER:
        if (rpi_address_is_held(pool->device, address) ||
            rpi_address_ends_held(pool->device, address))
            return;
        out_foreign->kind = RPI_FOREIGN_REFUSED;
        rpi_owner_describe(&owner, out_foreign->text, sizeof out_foreign->text);
        return;
    case RPI_OWNER_REHEARSAL:
    case RPI_OWNER_NONE:
        return;
    }
}

/* ---- Sources ------------------------------------------------------------------------------- */

static int by_offset(const void *left, const void *right)
{
    const struct rpi_foreign_use *a = left, *b = right;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

/* Each offset once. */
static void join_uses(struct rpi_foreign_uses *uses)
{
    size_t last = 0;
    if (!uses->count)
        return;
    qsort(uses->data, uses->count, sizeof *uses->data, by_offset);
    for (size_t i = 1; i < uses->count; i++) {
        struct rpi_foreign_use *use = &uses->data[i], *before = &uses->data[last];
        if (use->offset == before->offset)
            before->touch = before->touch > use->touch ? before->touch : use->touch;
        else
            uses->data[++last] = *use;
    }
    uses->count = last + 1;
}

static bool changes(const struct rp_graph *reader, const struct rp_graph *writer, uint32_t block,
                    bool strict)
{
    enum rpi_touch least = strict ? RPI_TOUCH_UNKNOWN : RPI_TOUCH_WRITES;
    const struct rpi_reads *reads = &reader->reads;
    for (size_t i = 0; i < reads->blocks.count; i++) {
        const struct rpi_reads_block *b = &reads->blocks.data[i];
        if (b->touch >= least && b->block == block &&
            reads->sources.data[b->source].writer.graph == writer)
            return true;
    }
    return false;
}

/* Appends the block's changers: earlier readers that change it, none of them before another. */
static bool add_changers(struct rp_graph *graph, const struct rp_graph *writer, uint32_t block)
{
    rpi_assert_held(&graph->pool->core->lock);
    assert(block < writer->block_count && writer->blocks[block].kept);
    struct rpi_reads *reads = &graph->reads;
    const struct rpi_pool_node here = place_in(graph->pool);
    size_t first = reads->changers.count;
    for (struct rp_graph *r = graph->pool->core->readers.first; r; r = r->reads.next) {
        if (!r->member.node.parent || !is_before(&r->member.node, &here) ||
            !changes(r, writer, block, graph->pool->strict_order))
            continue;
        bool followed = false;
        size_t kept = first;
        for (size_t i = first; i < reads->changers.count; i++) {
            struct rpi_reads_party other = reads->changers.data[i];
            followed |= is_before(&r->member.node, &other.graph->member.node);
            if (!is_before(&other.graph->member.node, &r->member.node))
                reads->changers.data[kept++] = other;
        }
        reads->changers.count = kept;
        if (!followed && !rpi_vec_push(&reads->changers, (struct rpi_reads_party){.graph = r}))
            return false;
    }
    return true;
}

/* Do the changers of the last source equal those from `first` on? */
static bool same_changers(const struct rpi_reads *reads, const struct rpi_source *source,
                          size_t first)
{
    if (reads->changers.count - first != source->changer_count)
        return false;
    for (size_t i = 0; i < source->changer_count; i++)
        if (reads->changers.data[source->first_changer + i].graph !=
            reads->changers.data[first + i].graph)
            return false;
    return true;
}

/* Is it the last block of the last source? Then that is used once more. */
static bool use_again(struct rpi_reads *reads, const struct rp_graph *writer, uint32_t block,
                      const struct rpi_foreign_use *use)
{
    assert(block < writer->block_count);
    if (!reads->sources.count ||
        reads->sources.data[reads->sources.count - 1].writer.graph != writer)
        return false;
    struct rpi_reads_block *last = &reads->blocks.data[reads->blocks.count - 1];
    if (last->block != block)
        return false;
    last->touch = last->touch > use->touch ? last->touch : use->touch;
    return true;
}

/* Uses come by address, so what lies side by side comes one after the other. `joins`: the block may
 * become part of the last source. */
static bool add_block(struct rp_graph *graph, struct rp_graph *writer, uint32_t block,
                      const struct rpi_foreign_use *use, bool joins)
{
    struct rpi_reads *reads = &graph->reads;
    struct rpi_range range = rpi_block_range(writer, block);
    size_t first = reads->changers.count, count = reads->sources.count;
    if (!rpi_vec_reserve(&reads->sources, count + 1) ||
        !rpi_vec_reserve(&reads->blocks, reads->blocks.count + 1) ||
        !add_changers(graph, writer, block))
        return false;
    assert(reads->sources.data && reads->blocks.data);
    struct rpi_source *last = joins && count ? &reads->sources.data[count - 1] : NULL;
    if (last && last->writer.graph == writer && last->range.to == range.from &&
        same_changers(reads, last, first)) {
        last->range.to = range.to;
        last->block_count++;
        reads->changers.count = first;
    } else {
        reads->sources.data[reads->sources.count++] =
            (struct rpi_source){.writer = {.graph = writer},
                                .range = range,
                                .first_block = (uint32_t)reads->blocks.count,
                                .block_count = 1,
                                .first_changer = (uint32_t)first,
                                .changer_count = (uint32_t)(reads->changers.count - first)};
    }
    reads->blocks.data[reads->blocks.count++] =
        (struct rpi_reads_block){block, use->node, (uint32_t)reads->sources.count - 1, use->touch};
    return true;
}

static rp_status add_use(struct rp_graph *graph, const struct rpi_foreign_use *use,
                         struct rp_error *err)
{
    rpi_assert_held(&graph->pool->core->lock);
    const struct rp_pool *pool = graph->pool;
    struct rpi_reads *reads = &graph->reads;
    uint64_t offset = find_kept(pool, use->offset);
    if (offset == UINT64_MAX)
        return rpi_error(err, RP_ERROR_CAPTURE, "rp_graph_capture",
                         "'%.60s' reads a block of a graph that was destroyed while it was "
                         "captured",
                         graph->name);
    const struct rpi_pool_member *m = next_keeper(pool, NULL, offset);
    bool only = !next_keeper(pool, m, offset), before_only = true;
    if (reads->sources.count > 1)
        before_only = !reads->sources.data[reads->sources.count - 2].or_next;
    for (bool first = true; m; m = next_keeper(pool, m, offset), first = false) {
        struct rp_graph *writer = rpi_graph_of(m);
        uint32_t block = rpi_blocks_at(writer, offset, true);
        if (only && before_only && use_again(reads, writer, block, use))
            return RP_OK;
        if (!add_block(graph, writer, block, use, only && before_only))
            return rpi_error_host_memory(err, "rp_graph_capture", sizeof(struct rpi_source));
        if (!first)
            reads->sources.data[reads->sources.count - 2].or_next = true;
    }
    return RP_OK;
}

static void enlist(struct rp_graph *graph)
{
    rpi_assert_held(&graph->pool->core->lock);
    assert(!graph->reads.listed);
    struct rpi_readers *readers = &graph->pool->core->readers;
    graph->reads.next = readers->first;
    if (readers->first)
        readers->first->reads.previous = graph;
    readers->first = graph;
    readers->stale = true;
    graph->reads.listed = true;
}

rp_status rpi_reads_take(struct rp_graph *graph, struct rpi_foreign_uses *uses,
                         struct rp_error *err)
{
    assert(!graph->reads.listed && !graph->member.node.parent);
    struct rpi_pool_core *core = graph->pool->core;
    rp_status status = RP_OK;
    join_uses(uses);
    if (!uses->count)
        return RP_OK;
    pthread_mutex_lock(&core->lock);
    for (size_t i = 0; status == RP_OK && i < uses->count; i++)
        status = add_use(graph, &uses->data[i], err);
    if (status == RP_OK)
        enlist(graph);
    assert(rpi_readers_are_valid(graph->pool));
    pthread_mutex_unlock(&core->lock);
    return status;
}

void rpi_reads_delist(struct rp_graph *graph)
{
    rpi_assert_held(&graph->pool->core->lock);
    struct rpi_readers *readers = &graph->pool->core->readers;
    struct rpi_reads *reads = &graph->reads;
    if (!reads->listed)
        return;
    if (reads->previous)
        reads->previous->reads.next = reads->next;
    else
        readers->first = reads->next;
    if (reads->next)
        reads->next->reads.previous = reads->previous;
    reads->previous = reads->next = NULL;
    reads->listed = false;
}

void rpi_reads_finish(struct rp_graph *graph)
{
    struct rpi_reads *reads = &graph->reads;
    if (reads->listed) {
        pthread_mutex_lock(&graph->pool->core->lock);
        rpi_reads_delist(graph);
        pthread_mutex_unlock(&graph->pool->core->lock);
    }
    for (size_t i = 0; i < reads->sources.count; i++)
        rpi_free(reads->sources.data[i].writer.name);
    for (size_t i = 0; i < reads->changers.count; i++)
        rpi_free(reads->changers.data[i].name);
    rpi_vec_finish(&reads->sources);
    rpi_vec_finish(&reads->blocks);
    rpi_vec_finish(&reads->changers);
    rpi_vec_finish(&reads->covers);
    rpi_free(reads->overwriter);
    reads->overwriter = NULL;
}

void rpi_readers_finish(struct rpi_readers *readers)
{
    rpi_write_stamps_finish(&readers->stamps);
}
