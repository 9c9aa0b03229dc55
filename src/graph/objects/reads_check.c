/* SPDX-License-Identifier: MIT
 *
 * Before and after a replay: do the blocks that it reads hold what their writers' last replays
 * left there?
 */
#include "graph/objects/reads.h"

#include "base/held.h"
#include "base/hostmem.h"
#include "base/log.h"
#include "graph/objects/blocks.h"
#include "graph/objects/objects.h"
#include "graph/objects/wait.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const struct rpi_pool_member *next_member(const struct rp_graph *graph,
                                                 const struct rpi_pool_member *member)
{
    return rpi_pool_next(&graph->pool->core->memory.root->node, member);
}

/* ---- Stamps -------------------------------------------------------------------------------- */

struct writing {
    uint64_t turn;
    struct rpi_write_span span;
};
struct writings {
    RPI_VEC(struct writing);
};

static int by_turn(const void *left, const void *right)
{
    const struct writing *a = left, *b = right;
    return a->turn < b->turn ? -1 : a->turn > b->turn;
}

static bool find_watched(const struct rpi_readers *readers, struct rpi_ranges *watched)
{
    for (const struct rp_graph *r = readers->first; r; r = r->reads.next)
        for (size_t i = 0; i < r->reads.sources.count; i++)
            if (!rpi_vec_push(watched, r->reads.sources.data[i].range))
                return false;
    return true;
}

static void set_spans(struct rpi_readers *readers)
{
    for (struct rp_graph *r = readers->first; r; r = r->reads.next)
        for (size_t i = 0; i < r->reads.sources.count; i++) {
            struct rpi_source *source = &r->reads.sources.data[i];
            source->span = rpi_write_stamps_span(&readers->stamps, source->range);
        }
}

/* The segments that a graph's memory lies on, and what it is known to have written. */
static bool cover(struct rp_graph *graph, const struct rpi_write_stamps *stamps,
                  struct writings *writings)
{
    struct rpi_reads *reads = &graph->reads;
    reads->covers.count = 0;
    for (size_t i = 0; i < graph->member.all.count; i++) {
        struct writing writing = {graph->member.turn,
                                  rpi_write_stamps_span(stamps, graph->member.all.data[i])};
        if (writing.span.first == writing.span.end)
            continue;
        if (!rpi_vec_push(&reads->covers, writing.span) ||
            (writing.turn && !rpi_vec_push(writings, writing)))
            return false;
    }
    /* What graphs wrote there that are no more. */
    for (uint32_t i = 0; reads->spoiled && i < graph->block_count; i++) {
        struct writing writing = {graph->blocks[i].overwritten,
                                  rpi_write_stamps_span(stamps, rpi_block_range(graph, i))};
        if (writing.turn && !rpi_vec_push(writings, writing))
            return false;
    }
    return true;
}

/* Graphs were added, or read others anew: cuts the segments again and stamps them from what each
 * graph remembers. */
static rp_status renew_stamps(const struct rp_graph *graph, struct rp_error *err)
{
    struct rpi_readers *readers = &graph->pool->core->readers;
    struct rpi_ranges watched = {0};
    struct writings writings = {0};
    bool done =
        find_watched(readers, &watched) && rpi_write_stamps_build(&readers->stamps, &watched);
    for (const struct rpi_pool_member *m = next_member(graph, NULL); done && m;
         m = next_member(graph, m))
        done = cover(rpi_graph_of(m), &readers->stamps, &writings);
    if (done) {
        set_spans(readers);
        if (writings.count)
            qsort(writings.data, writings.count, sizeof *writings.data, by_turn);
        for (size_t i = 0; i < writings.count; i++)
            rpi_write_stamps_write(&readers->stamps, writings.data[i].span, writings.data[i].turn);
        readers->stale = false;
    }
    rpi_vec_finish(&watched);
    rpi_vec_finish(&writings);
    return done ? RP_OK : rpi_error_host_memory(err, "rp_graph_replay", sizeof(struct writing));
}

void rpi_reads_done(struct rp_graph *graph, bool whole)
{
    rpi_assert_held(&graph->pool->core->lock);
    struct rpi_readers *readers = &graph->pool->core->readers;
    uint64_t turn = graph->member.turn;
    if (whole)
        graph->reads.written = turn;
    if (!readers->first || readers->stale)
        return; /* renewed stamps begin with what the graphs remember */
    for (size_t i = 0; i < graph->reads.covers.count; i++)
        rpi_write_stamps_write(&readers->stamps, graph->reads.covers.data[i], turn);
}

/* ---- Graphs that come and go --------------------------------------------------------------- */

void rpi_reads_added(struct rp_graph *graph)
{
    rpi_assert_held(&graph->pool->core->lock);
    graph->pool->core->readers.stale = true;
}

static bool reads_of(const struct rp_graph *reader, const struct rp_graph *graph)
{
    for (size_t i = 0; i < reader->reads.sources.count; i++)
        if (reader->reads.sources.data[i].writer.graph == graph)
            return true;
    return false;
}

static void forget_party(struct rpi_reads_party *party, const struct rp_graph *graph)
{
    if (party->graph != graph)
        return;
    party->graph = NULL;
    party->name = rpi_strdup(graph->name);
    party->written = graph->reads.written;
}

/* The other's kept blocks that the graph wrote over last remember it. */
static void leave_mark(struct rp_graph *other, const struct rp_graph *graph)
{
    bool marked = false;
    if (other == graph || graph->member.turn <= other->reads.written)
        return;
    for (uint32_t i = 0; i < other->block_count; i++) {
        struct rpi_range range = rpi_block_range(other, i);
        if (other->blocks[i].kept && rpi_ranges_overlap(&graph->member.all, range.from, range.to)) {
            other->blocks[i].overwritten = graph->member.turn;
            marked = true;
        }
    }
    if (!marked)
        return;
    other->reads.spoiled = true;
    char *name = rpi_strdup(graph->name);
    rpi_free(other->reads.overwriter);
    other->reads.overwriter = name;
}

void rpi_reads_removed(struct rp_graph *graph)
{
    rpi_assert_held(&graph->pool->core->lock);
    for (struct rp_graph *r = graph->pool->core->readers.first; r; r = r->reads.next) {
        if (reads_of(r, graph)) /* in memory that is about to be another's */
            rpi_wait_for_member(r->pool->device->driver, &r->member);
        for (size_t i = 0; i < r->reads.sources.count; i++)
            forget_party(&r->reads.sources.data[i].writer, graph);
        for (size_t i = 0; i < r->reads.changers.count; i++)
            forget_party(&r->reads.changers.data[i], graph);
    }
    for (const struct rpi_pool_member *m = next_member(graph, NULL); m; m = next_member(graph, m))
        leave_mark(rpi_graph_of(m), graph);
    rpi_reads_delist(graph); /* its event goes before it does */
}

/* ---- Refusing ------------------------------------------------------------------------------ */

static const char *name_of(const struct rpi_reads_party *party)
{
    if (party->graph)
        return party->graph->name;
    return party->name ? party->name : "one that was destroyed";
}

/* "block 3 (512 bytes) of graph 'a'". */
static void name_block(const struct rpi_source *source, uint32_t block, char *text, size_t bytes)
{
    const struct rp_graph *writer = source->writer.graph;
    snprintf(text, bytes, "block %" PRIu32 " (%" PRIu64 " bytes) of graph '%.60s'", block,
             writer->blocks[block].bytes, writer->name);
}

static rp_status refuse(const struct rp_graph *graph, const char *block, const char *why,
                        struct rp_error *err)
{
    if (graph->pool->contract == RP_CONTRACT_WARN) {
        rpi_log(RP_LOG_WARNING, "graph '%.60s' reads %s, %s", graph->name, block, why);
        return RP_OK;
    }
    return rpi_error(err, RP_ERROR_CONTRACT, "rp_graph_replay", "graph '%.60s' reads %s, %s",
                     graph->name, block, why);
}

/* Which of the source's blocks was written over, and by whom. */
static rp_status refuse_overwritten(const struct rp_graph *graph, const struct rpi_source *source,
                                    struct rp_error *err)
{
    const struct rp_graph *writer = source->writer.graph, *by = NULL;
    const struct rpi_reads_block *blocks = graph->reads.blocks.data + source->first_block;
    uint32_t block = blocks[0].block;
    for (uint32_t i = 0; !by && i < source->block_count; i++) {
        by = rpi_blocks_overwriter(writer, blocks[i].block);
        if (by || writer->blocks[blocks[i].block].overwritten > writer->reads.written)
            block = blocks[i].block;
    }
    char text[128], why[320];
    const char *destroyed = writer->reads.overwriter;
    name_block(source, block, text, sizeof text);
    if (by == writer)
        snprintf(why, sizeof why, "whose last replay failed: replay '%.60s' again before '%.60s'",
                 writer->name, graph->name);
    else
        snprintf(why, sizeof why,
                 "which a replay of '%.60s'%s has overwritten: replay '%.60s' again before "
                 "'%.60s', or keep the order in which they were captured",
                 by          ? by->name
                 : destroyed ? destroyed
                             : "another graph",
                 by ? "" : ", destroyed since,", writer->name, graph->name);
    return refuse(graph, text, why, err);
}

/* An error always: there may be no memory any more. */
static rp_status refuse_lost(const struct rp_graph *graph, const struct rpi_source *source,
                             struct rp_error *err)
{
    return rpi_error(err, RP_ERROR_CONTRACT, "rp_graph_replay",
                     "graph '%.60s' reads a block of graph '%.60s', which was destroyed: capture "
                     "'%.60s' again from a graph that lives, and destroy it before what it reads",
                     graph->name, name_of(&source->writer), graph->name);
}

static rp_status refuse_unwritten(const struct rp_graph *graph, const struct rpi_source *source,
                                  struct rp_error *err)
{
    char text[128], why[320];
    const struct rp_graph *writer = source->writer.graph;
    name_block(source, graph->reads.blocks.data[source->first_block].block, text, sizeof text);
    snprintf(why, sizeof why, "which has not been replayed%s: replay '%.60s' before '%.60s'",
             writer->member.turn ? " without an error" : " yet", writer->name, graph->name);
    return refuse(graph, text, why, err);
}

static rp_status refuse_unchanged(const struct rp_graph *graph, const struct rpi_source *source,
                                  const struct rpi_reads_party *changer, struct rp_error *err)
{
    char text[128], why[400];
    const char *name = name_of(changer), *writer = source->writer.graph->name;
    name_block(source, graph->reads.blocks.data[source->first_block].block, text, sizeof text);
    snprintf(why, sizeof why,
             "as '%.60s' leaves it, which was %s after '%.60s': %s '%.60s' before '%.60s'", name,
             changer->graph ? "not replayed" : "destroyed and not replayed", writer,
             changer->graph ? "replay" : "capture again", changer->graph ? name : graph->name,
             changer->graph ? graph->name : "it is replayed");
    return refuse(graph, text, why, err);
}

/* ---- Checking ------------------------------------------------------------------------------ */

static uint64_t written_by(const struct rpi_reads_party *party)
{
    return party->graph ? party->graph->reads.written : party->written;
}

/* Has it been replayed since the turn, or an alternative to it? */
static bool has_run(const struct rpi_reads_party *changer, uint64_t since)
{
    if (written_by(changer) > since)
        return true;
    const struct rp_graph *graph = changer->graph;
    if (!graph)
        return false;
    for (const struct rpi_pool_member *m = next_member(graph, NULL); m; m = next_member(graph, m)) {
        bool first;
        if (m != &graph->member && rpi_graph_of(m)->reads.written > since &&
            rpi_pool_relation(&m->node, &graph->member.node, &first) == RPI_COMPOSE_ALTERNATIVES)
            return true;
    }
    return false;
}

/* What is wrong with a source, and the changer that is missing. */
enum fault { NO_FAULT, LOST, UNWRITTEN, OVERWRITTEN, UNCHANGED };

static enum fault judge(const struct rp_graph *graph, const struct rpi_source *source,
                        const struct rpi_reads_party **out_changer)
{
    const struct rp_graph *writer = source->writer.graph;
    if (!writer)
        return LOST;
    uint64_t written = writer->reads.written;
    if (!written)
        return UNWRITTEN;
    if (rpi_write_stamps_latest(&graph->pool->core->readers.stamps, source->span) != written)
        return OVERWRITTEN;
    for (uint32_t i = 0; i < source->changer_count; i++) {
        *out_changer = &graph->reads.changers.data[source->first_changer + i];
        if (!has_run(*out_changer, written))
            return UNCHANGED;
    }
    return NO_FAULT;
}

static rp_status refuse_source(const struct rp_graph *graph, const struct rpi_source *source,
                               enum fault fault, const struct rpi_reads_party *changer,
                               struct rp_error *err)
{
    switch (fault) {
    case LOST:
        return refuse_lost(graph, source, err);
    case UNWRITTEN:
        return refuse_unwritten(graph, source, err);
    case OVERWRITTEN:
        return refuse_overwritten(graph, source, err);
    case UNCHANGED:
        return refuse_unchanged(graph, source, changer, err);
    case NO_FAULT:
        break;
    }
    return RP_OK;
}

/* Sources from *io_index on of which one has to be right; *io_index becomes the last of them. Of
 * the wrong ones the latest written is told of. */
static rp_status check_sources(const struct rp_graph *graph, size_t *io_index, struct rp_error *err)
{
    const struct rpi_source *told = NULL;
    const struct rpi_reads_party *changer = NULL, *missing = NULL;
    enum fault fault = NO_FAULT;
    bool right = false, more = true;
    for (size_t i = *io_index; more; i++) {
        const struct rpi_source *source = &graph->reads.sources.data[i];
        enum fault found = judge(graph, source, &changer);
        right |= found == NO_FAULT;
        if (!told || written_by(&source->writer) > written_by(&told->writer)) {
            told = source;
            fault = found;
            missing = changer;
        }
        more = source->or_next;
        *io_index = i;
    }
    return right ? RP_OK : refuse_source(graph, told, fault, missing, err);
}

rp_status rpi_reads_check(struct rp_graph *graph, struct rp_error *err)
{
    rpi_assert_held(&graph->pool->core->lock);
    const struct rpi_reads *reads = &graph->reads;
    rp_status status = RP_OK;
    if (reads->sources.count && graph->pool->core->readers.stale)
        status = renew_stamps(graph, err);
    for (size_t i = 0; status == RP_OK && i < reads->sources.count; i++)
        status = check_sources(graph, &i, err);
    return status;
}
