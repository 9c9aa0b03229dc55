/* SPDX-License-Identifier: MIT
 *
 * Lifetimes of a recorded capture.
 *
 * An allocation sees the nodes before its terminals: a frontier. A lane is a sequence of
 * allocations whose frontiers only grow, so along a lane every node comes into sight once, at one
 * rank; walking what the frontier gained since the lane's last allocation finds it. The first rank
 * that may take a block's memory is then the last at which one of the nodes of its free comes into
 * sight, or the first after the free in host order, whichever is later.
 *
 * Cost: allocations times chains for the frontiers, nodes times lanes for the sight. No pair of
 * blocks is looked at.
 */
#include "memory/order/lifetimes.h"

#include "base/hostmem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct lane {
    uint32_t *clock; /* frontier of the lane's last allocation, one position a chain */
    uint32_t *seen;  /* [nodes]: rank at which the node came into sight, or RPI_NEVER */
    uint32_t count;  /* allocations laid on the lane so far */
};

struct build {
    const struct rpi_capture_record *record;
    uint32_t chains, nodes;
    uint32_t *chain_start; /* [chains + 1]: slices of chain_node */
    uint32_t *chain_node;  /* [nodes]: nodes by chain, then by position */
    struct rpi_frontier frontier;
    uint32_t *stream_lane; /* [streams]: lane of the stream's last allocation */
    uint32_t *place;       /* [blocks]: index in the lifetimes, or RPI_NEVER for 0 bytes */
    uint32_t *lane, *rank; /* [blocks] */
    uint32_t kept;
    struct {
        RPI_VEC(struct lane);
    } lanes;
};

static void build_finish(struct build *b)
{
    for (size_t i = 0; i < b->lanes.count; i++) {
        rpi_free(b->lanes.data[i].clock);
        rpi_free(b->lanes.data[i].seen);
    }
    rpi_vec_finish(&b->lanes);
    rpi_frontier_finish(&b->frontier);
    rpi_free(b->chain_start);
    rpi_free(b->chain_node);
    rpi_free(b->stream_lane);
    rpi_free(b->place);
    rpi_free(b->lane);
    rpi_free(b->rank);
}

/* Sorts the nodes by chain and position. */
static void index_chains(struct build *b)
{
    const struct rpi_order *order = b->record->order;
    memset(b->chain_start, 0, ((size_t)b->chains + 1) * sizeof *b->chain_start);
    for (uint32_t node = 0; node < b->nodes; node++)
        b->chain_start[rpi_order_chain_of(order, node) + 1]++;
    for (uint32_t chain = 0; chain < b->chains; chain++)
        b->chain_start[chain + 1] += b->chain_start[chain];
    for (uint32_t node = 0; node < b->nodes; node++) {
        uint32_t at = b->chain_start[rpi_order_chain_of(order, node)];
        b->chain_node[at + rpi_order_position_of(order, node) - 1] = node;
    }
}

static rp_status build_init(struct build *b, const struct rpi_capture_record *record,
                            struct rp_error *err)
{
    size_t blocks = record->blocks.count;
    b->record = record;
    b->chains = rpi_order_chains(record->order);
    b->nodes = rpi_order_nodes(record->order);
    b->chain_start = rpi_reallocarray(NULL, (size_t)b->chains + 1, sizeof *b->chain_start);
    b->chain_node = rpi_reallocarray(NULL, b->nodes, sizeof *b->chain_node);
    b->stream_lane = rpi_reallocarray(NULL, record->streams, sizeof *b->stream_lane);
    b->place = rpi_reallocarray(NULL, blocks, sizeof *b->place);
    b->lane = rpi_reallocarray(NULL, blocks, sizeof *b->lane);
    b->rank = rpi_reallocarray(NULL, blocks, sizeof *b->rank);
    if (!b->chain_start || !b->chain_node || !b->stream_lane || !b->place || !b->lane || !b->rank)
        return rpi_error_host_memory(err, "lifetimes", blocks * 12 + (size_t)b->nodes * 4);
    for (uint32_t stream = 0; stream < record->streams; stream++)
        b->stream_lane[stream] = RPI_NEVER;
    for (size_t block = 0; block < blocks; block++)
        b->place[block] = RPI_NEVER;
    index_chains(b);
    return RP_OK;
}

static uint32_t clock_at(const struct rpi_frontier *frontier, uint32_t chain)
{
    return chain < frontier->chains ? frontier->clock[chain] : 0;
}

/* Does the frontier hold all that the lane's last allocation saw? */
static bool lane_takes(const struct build *b, const struct lane *lane)
{
    assert(b->frontier.chains <= b->chains);
    for (uint32_t chain = 0; chain < b->chains; chain++)
        if (clock_at(&b->frontier, chain) < lane->clock[chain])
            return false;
    return true;
}

/* Numbers that lanes may take in all, 256 MiB: lanes times nodes, chains and blocks. Captures of
 * streams stay far below. */
#define MOST_NUMBERS ((size_t)1 << 26)

static rp_status open_lane(struct build *b, struct rp_error *err)
{
    size_t a_lane = (size_t)b->nodes + b->chains + b->record->blocks.count;
    if (b->lanes.count >= MOST_NUMBERS / a_lane)
        return rpi_error(err, RP_ERROR_LIMIT, "lifetimes",
                         "capture \"%s\": %zu nodes and %zu blocks on more than %zu independent "
                         "lanes would take more than 256 MiB of host memory",
                         b->record->name, (size_t)b->nodes, b->record->blocks.count,
                         b->lanes.count);
    struct lane lane = {0};
    lane.clock = rpi_calloc(b->chains, sizeof *lane.clock);
    lane.seen = rpi_reallocarray(NULL, b->nodes, sizeof *lane.seen);
    if (!lane.clock || !lane.seen || !rpi_vec_push(&b->lanes, lane)) {
        rpi_free(lane.clock);
        rpi_free(lane.seen);
        return rpi_error_host_memory(err, "lifetimes", ((size_t)b->chains + b->nodes) * 4);
    }
    for (uint32_t node = 0; node < b->nodes; node++)
        lane.seen[node] = RPI_NEVER;
    return RP_OK;
}

/* The lane that the allocation whose frontier is set goes on: its stream's, else any that takes it,
 * else a new one. */
static rp_status choose_lane(struct build *b, uint32_t stream, uint32_t *out_lane,
                             struct rp_error *err)
{
    assert(stream < b->record->streams);
    uint32_t lane = b->stream_lane[stream];
    bool takes = lane != RPI_NEVER && lane_takes(b, &b->lanes.data[lane]);
    bool own = lane != RPI_NEVER;
    for (uint32_t other = 0; own && !takes && other < b->lanes.count; other++) {
        lane = other;
        takes = lane_takes(b, &b->lanes.data[other]);
    }
    if (!takes) {
        lane = (uint32_t)b->lanes.count;
        rp_status status = open_lane(b, err);
        if (status)
            return status;
    }
    b->stream_lane[stream] = lane;
    assert(lane < b->lanes.count && lane_takes(b, &b->lanes.data[lane]));
    *out_lane = lane;
    return RP_OK;
}

/* Notes the rank at which each node that the frontier adds to the lane's comes into sight. */
static void advance_lane(struct build *b, struct lane *lane)
{
    assert(lane->count != RPI_NEVER && lane_takes(b, lane));
    for (uint32_t chain = 0; chain < b->chains; chain++) {
        uint32_t reached = clock_at(&b->frontier, chain);
        for (uint32_t position = lane->clock[chain]; position < reached; position++)
            lane->seen[b->chain_node[b->chain_start[chain] + position]] = lane->count;
        lane->clock[chain] = reached;
    }
    lane->count++;
}

static rp_status lay_block(struct build *b, uint32_t block, struct rp_error *err)
{
    assert(b->place[block] == RPI_NEVER && b->record->blocks.data[block].bytes);
    const struct rpi_capture_record *record = b->record;
    const struct rpi_event *event = &record->events.data[record->blocks.data[block].alloc_event];
    const uint32_t *nodes = record->event_nodes.data + event->first_node;
    rp_status status = rpi_frontier_set(&b->frontier, record->order, nodes, event->node_count, err);
    uint32_t lane;
    if (!status)
        status = choose_lane(b, event->stream, &lane, err);
    if (status)
        return status;
    b->place[block] = b->kept++;
    b->lane[block] = lane;
    b->rank[block] = b->lanes.data[lane].count;
    advance_lane(b, &b->lanes.data[lane]);
    return RP_OK;
}

static rp_status lay_blocks(struct build *b, struct rp_error *err)
{
    const struct rpi_capture_record *record = b->record;
    for (size_t i = 0; i < record->events.count; i++) {
        const struct rpi_event *event = &record->events.data[i];
        if (event->kind != RPI_EVENT_ALLOC || record->blocks.data[event->block].bytes == 0)
            continue;
        rp_status status = lay_block(b, event->block, err);
        if (status)
            return status;
    }
    return RP_OK;
}

/* first[] of the block that `event` frees. reached[l] is how many allocations of lane l came before
 * it in host order. */
static void fill_first(const struct build *b, const struct rpi_event *event,
                       const uint32_t *reached, uint32_t *first)
{
    const uint32_t *nodes = b->record->event_nodes.data + event->first_node;
    for (uint32_t l = 0; event->node_count && l < b->lanes.count; l++) {
        const struct lane *lane = &b->lanes.data[l];
        uint32_t rank = reached[l];
        for (uint32_t i = 0; i < event->node_count; i++)
            if (lane->seen[nodes[i]] > rank)
                rank = lane->seen[nodes[i]];
        first[l] = rank < lane->count ? rank : RPI_NEVER;
    }
}

/* Walks the events in host order; reached has room for the lanes, all 0. */
static void fill(const struct build *b, struct rpi_lifetimes *out, uint32_t *reached)
{
    assert(out->count == b->kept && out->lanes >= b->lanes.count);
    const struct rpi_capture_record *record = b->record;
    for (size_t i = 0; i < (size_t)out->count * out->lanes; i++)
        out->first[i] = RPI_NEVER;
    for (size_t i = 0; i < record->events.count; i++) {
        const struct rpi_event *event = &record->events.data[i];
        uint32_t place = b->place[event->block];
        if (place == RPI_NEVER || event->kind == RPI_EVENT_USE)
            continue;
        if (event->kind == RPI_EVENT_ALLOC) {
            out->bytes[place] = record->blocks.data[event->block].bytes;
            out->lane[place] = b->lane[event->block];
            out->rank[place] = b->rank[event->block];
            out->block[place] = event->block;
            reached[out->lane[place]]++;
        } else {
            fill_first(b, event, reached, out->first + (size_t)place * out->lanes);
        }
    }
}

/* The blocks before one on lane m at rank r are those with first[m] <= r, so the relation is
 * transitive when none of them has a later first[l] than that one has, for any l. limit[r * lanes +
 * l] is the latest first[l] of them: filled by rank, then summed up along the lane. */
static uint32_t find_intransitive(const struct rpi_lifetimes *x, uint32_t lane, uint32_t ranks,
                                  uint32_t *limit)
{
    assert(lane < x->lanes && ranks);
    memset(limit, 0, (size_t)ranks * x->lanes * sizeof *limit);
    for (uint32_t a = 0; a < x->count; a++) {
        const uint32_t *first = x->first + (size_t)a * x->lanes;
        for (uint32_t l = 0; first[lane] != RPI_NEVER && l < x->lanes; l++) {
            uint32_t *at = &limit[(size_t)first[lane] * x->lanes + l];
            *at = first[l] > *at ? first[l] : *at;
        }
    }
    for (size_t i = x->lanes; i < (size_t)ranks * x->lanes; i++)
        if (limit[i - x->lanes] > limit[i])
            limit[i] = limit[i - x->lanes];
    for (uint32_t b = 0; b < x->count; b++)
        for (uint32_t l = 0; x->lane[b] == lane && l < x->lanes; l++)
            if (limit[(size_t)x->rank[b] * x->lanes + l] > x->first[(size_t)b * x->lanes + l])
                return b;
    return RPI_NEVER;
}

static rp_status check_order(const struct build *b, const struct rpi_lifetimes *x,
                             struct rp_error *err)
{
    uint32_t most = 0;
    for (uint32_t l = 0; l < x->lanes; l++)
        if (l < b->lanes.count && b->lanes.data[l].count > most)
            most = b->lanes.data[l].count;
    uint32_t *limit = rpi_reallocarray(NULL, (size_t)most * x->lanes, sizeof *limit);
    if (!limit)
        return rpi_error_host_memory(err, "lifetimes", (size_t)most * x->lanes * sizeof *limit);
    uint32_t bad = RPI_NEVER;
    for (uint32_t l = 0; bad == RPI_NEVER && l < b->lanes.count; l++)
        bad = find_intransitive(x, l, b->lanes.data[l].count, limit);
    rpi_free(limit);
    if (bad == RPI_NEVER)
        return RP_OK;
    return rpi_error(err, RP_ERROR_FORMAT, "lifetimes",
                     "capture \"%s\": block %lld is free for an allocation that an earlier user of "
                     "its memory is not free for; the nodes of a free must come after those of "
                     "the alloc",
                     b->record->name ? b->record->name : "",
                     (long long)b->record->blocks.data[x->block[bad]].id);
}

static rp_status build_lifetimes(struct build *b, uint64_t alignment, struct rpi_lifetimes *out,
                                 struct rp_error *err)
{
    rp_status status = lay_blocks(b, err);
    if (status)
        return status;
    uint32_t lanes = b->lanes.count ? (uint32_t)b->lanes.count : 1;
    uint32_t *reached = rpi_calloc(lanes, sizeof *reached);
    if (!reached)
        return rpi_error_host_memory(err, "lifetimes", lanes * sizeof *reached);
    struct rpi_lifetimes made;
    status = rpi_lifetimes_init(&made, b->kept, lanes, err);
    if (!status) {
        fill(b, &made, reached);
        status = rpi_lifetimes_round(&made, alignment, err);
        if (!status)
            status = check_order(b, &made, err);
        if (status)
            rpi_lifetimes_finish(&made);
        else
            *out = made;
    }
    rpi_free(reached);
    return status;
}

rp_status rpi_lifetimes_from_record(const struct rpi_capture_record *record, uint64_t alignment,
                                    struct rpi_lifetimes *out, struct rp_error *err)
{
    struct build b = {0};
    rp_status status = build_init(&b, record, err);
    if (!status)
        status = build_lifetimes(&b, alignment, out, err);
    build_finish(&b);
    return status;
}
