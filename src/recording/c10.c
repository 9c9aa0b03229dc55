/* SPDX-License-Identifier: MIT
 *
 * The model of c10's private pools; c10.h has its rules.
 *
 * A segment is a doubly linked list of pieces. Free pieces lie in one sorted array for each stream
 * and pool, by size and then address, so that best fit is a binary search and the first hit.
 */
#include "recording/c10.h"

#include "recording/c10_walk.h"

#include <assert.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

static const uint64_t granule = 512;
static const uint64_t most_small = 1 * MIB;
static const uint64_t small_segment = 2 * MIB;
static const uint64_t large_segment = 20 * MIB;
static const uint64_t least_own_segment = 10 * MIB;
static const uint64_t round_large = 2 * MIB;

#define NONE UINT32_MAX

struct piece {
    uint64_t bytes, address;
    uint32_t prev, next; /* in the segment, or NONE */
    uint32_t stream;
    bool small;
    bool taken; /* allocated, or freed and kept back */
};

struct free_piece {
    uint64_t bytes, address;
    uint32_t piece;
};

struct deferred {
    uint32_t piece;
    uint32_t event; /* the free, with its terminals */
};

struct stream {
    struct {
        RPI_VEC(struct free_piece);
    } free[2]; /* large, small */
    struct {
        RPI_VEC(struct deferred);
    } deferred;
};

struct rpi_c10 {
    enum rpi_c10_policy policy;
    uint64_t reserved;
    uint64_t next_address;
    struct {
        RPI_VEC(struct piece);
    } pieces;
    struct {
        RPI_VEC(struct stream);
    } streams;
    struct rpi_frontier frontier;
    struct rpi_c10_walk walk; /* of the capture under way; predecessors NULL: the order answers */
};

/* A capture on its way through the model, by block. */
struct run {
    const struct rpi_capture_record *record;
    uint32_t *piece; /* NONE: not allocated now */
    bool *shared;    /* used by a stream that is not its own */
};

static rp_status no_memory(struct rp_error *err, size_t bytes)
{
    rpi_error_host_memory(err, "c10", bytes);
    return RP_ERROR_OUT_OF_HOST_MEMORY;
}

rp_status rpi_c10_create(enum rpi_c10_policy policy, struct rpi_c10 **out_c10, struct rp_error *err)
{
    struct rpi_c10 *c10 = rpi_calloc(1, sizeof *c10);
    if (!c10)
        return no_memory(err, sizeof *c10);
    c10->policy = policy;
    *out_c10 = c10;
    return RP_OK;
}

void rpi_c10_destroy(struct rpi_c10 *c10)
{
    if (!c10)
        return;
    for (size_t i = 0; i < c10->streams.count; i++) {
        struct stream *stream = &c10->streams.data[i];
        rpi_vec_finish(&stream->free[0]);
        rpi_vec_finish(&stream->free[1]);
        rpi_vec_finish(&stream->deferred);
    }
    rpi_vec_finish(&c10->streams);
    rpi_vec_finish(&c10->pieces);
    rpi_frontier_finish(&c10->frontier);
    rpi_c10_walk_finish(&c10->walk);
    rpi_free(c10);
}

uint64_t rpi_c10_reserved(const struct rpi_c10 *c10)
{
    return c10->reserved;
}

static uint64_t round_up(uint64_t bytes, uint64_t to)
{
    return bytes > UINT64_MAX - to ? UINT64_MAX / to * to : (bytes + to - 1) / to * to;
}

/* The first place whose piece is not below (bytes, address). */
static size_t find_place(const struct free_piece *pieces, size_t count, uint64_t bytes,
                         uint64_t address)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct free_piece *at = &pieces[middle];
        if (at->bytes < bytes || (at->bytes == bytes && at->address < address))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool insert_free(struct rpi_c10 *c10, uint32_t piece)
{
    const struct piece *p = &c10->pieces.data[piece];
    struct stream *stream = &c10->streams.data[p->stream];
    struct free_piece added = {p->bytes, p->address, piece};
    if (!rpi_vec_push(&stream->free[p->small], added))
        return false;
    struct free_piece *list = stream->free[p->small].data;
    size_t last = stream->free[p->small].count - 1;
    size_t place = find_place(list, last, p->bytes, p->address);
    memmove(&list[place + 1], &list[place], (last - place) * sizeof *list);
    list[place] = added;
    return true;
}

static void remove_free_at(struct stream *stream, bool small, size_t place)
{
    struct free_piece *list = stream->free[small].data;
    size_t count = --stream->free[small].count;
    memmove(&list[place], &list[place + 1], (count - place) * sizeof *list);
}

static void remove_free(struct rpi_c10 *c10, uint32_t piece)
{
    const struct piece *p = &c10->pieces.data[piece];
    struct stream *stream = &c10->streams.data[p->stream];
    size_t place =
        find_place(stream->free[p->small].data, stream->free[p->small].count, p->bytes, p->address);
    assert(stream->free[p->small].data[place].piece == piece);
    remove_free_at(stream, p->small, place);
}

/* `gone` becomes part of `into`, its neighbour. */
static void absorb(struct rpi_c10 *c10, uint32_t into, uint32_t gone)
{
    struct piece *pieces = c10->pieces.data;
    struct piece *a = &pieces[into], *b = &pieces[gone];
    remove_free(c10, gone);
    if (a->prev == gone) {
        a->address = b->address;
        a->prev = b->prev;
        if (a->prev != NONE)
            pieces[a->prev].next = into;
    } else {
        a->next = b->next;
        if (a->next != NONE)
            pieces[a->next].prev = into;
    }
    a->bytes += b->bytes;
}

static bool free_piece(struct rpi_c10 *c10, uint32_t piece)
{
    struct piece *p = &c10->pieces.data[piece];
    p->taken = false;
    if (p->prev != NONE && !c10->pieces.data[p->prev].taken)
        absorb(c10, piece, p->prev);
    if (p->next != NONE && !c10->pieces.data[p->next].taken)
        absorb(c10, piece, p->next);
    return insert_free(c10, piece);
}

/* A segment of its own for a request; NONE when there is no host memory. */
static uint32_t take_segment(struct rpi_c10 *c10, uint32_t stream, uint64_t bytes, bool small)
{
    uint64_t segment = small                       ? small_segment
                       : bytes < least_own_segment ? large_segment
                                                   : round_up(bytes, round_large);
    struct piece p = {segment, c10->next_address, NONE, NONE, stream, small, true};
    if (!rpi_vec_push(&c10->pieces, p))
        return NONE;
    c10->next_address += segment;
    c10->reserved = c10->reserved > UINT64_MAX - segment ? UINT64_MAX : c10->reserved + segment;
    return (uint32_t)c10->pieces.count - 1;
}

/* Gives what a request leaves of its piece back, where that is enough to be worth it. */
static bool split(struct rpi_c10 *c10, uint32_t piece, uint64_t bytes)
{
    struct piece rest = c10->pieces.data[piece];
    rest.bytes -= bytes;
    if (rest.small ? rest.bytes < granule : rest.bytes <= most_small)
        return true;
    rest.address += bytes;
    rest.prev = piece;
    rest.taken = false;
    if (!rpi_vec_push(&c10->pieces, rest))
        return false;
    uint32_t added = (uint32_t)c10->pieces.count - 1;
    if (rest.next != NONE)
        c10->pieces.data[rest.next].prev = added;
    c10->pieces.data[piece].next = added;
    c10->pieces.data[piece].bytes = bytes;
    return insert_free(c10, added);
}

/* From now on is_reusable is asked for what comes after these terminals of the stream. */
static rp_status look_from(struct rpi_c10 *c10, const struct run *run,
                           const struct rpi_event *alloc, struct rp_error *err)
{
    const uint32_t *nodes = run->record->event_nodes.data + alloc->first_node;
    if (!c10->walk.predecessors)
        return rpi_frontier_set(&c10->frontier, run->record->order, nodes, alloc->node_count, err);
    return rpi_c10_walk_extend(&c10->walk, alloc->stream, nodes, alloc->node_count)
               ? RP_OK
               : rpi_error_host_memory(err, "c10", sizeof *nodes);
}

static bool is_reusable(const struct rpi_c10 *c10, const struct run *run, uint32_t stream,
                        const struct rpi_event *freed)
{
    const uint32_t *nodes = run->record->event_nodes.data + freed->first_node;
    bool reusable = freed->node_count > 0;
    for (uint32_t n = 0; reusable && n < freed->node_count; n++)
        reusable = c10->walk.predecessors
                       ? rpi_c10_walk_holds(&c10->walk, stream, nodes[n])
                       : rpi_frontier_holds(&c10->frontier, run->record->order, nodes[n]);
    return reusable;
}

/* With the reuse flag: frees what the stream kept back and now comes after. The walk is extended
 * whether anything was kept back or not, as c10 does. */
static rp_status free_reusable(struct rpi_c10 *c10, const struct run *run,
                               const struct rpi_event *alloc, struct rp_error *err)
{
    struct stream *stream = &c10->streams.data[alloc->stream];
    if (!stream->deferred.count && !c10->walk.predecessors)
        return RP_OK;
    rp_status status = look_from(c10, run, alloc, err);
    size_t kept = 0;
    for (size_t i = 0; status == RP_OK && i < stream->deferred.count; i++) {
        struct deferred d = stream->deferred.data[i];
        if (!is_reusable(c10, run, alloc->stream, &run->record->events.data[d.event]))
            stream->deferred.data[kept++] = d;
        else if (!free_piece(c10, d.piece))
            status = rpi_error_host_memory(err, "c10", sizeof(struct free_piece));
    }
    stream->deferred.count = kept;
    return status;
}

static rp_status allocate(struct rpi_c10 *c10, struct run *run, const struct rpi_event *event,
                          struct rp_error *err)
{
    if (c10->policy == RPI_C10_REUSE) {
        rp_status status = free_reusable(c10, run, event, err);
        if (status != RP_OK)
            return status;
    }
    uint64_t bytes = run->record->blocks.data[event->block].bytes;
    if (!bytes)
        return RP_OK; /* PyTorch never asks its allocator for nothing */
    bytes = round_up(bytes, granule);
    bool small = bytes <= most_small;
    struct stream *stream = &c10->streams.data[event->stream];
    size_t place = find_place(stream->free[small].data, stream->free[small].count, bytes, 0);
    uint32_t piece;
    if (place < stream->free[small].count) {
        piece = stream->free[small].data[place].piece;
        remove_free_at(stream, small, place);
        c10->pieces.data[piece].taken = true;
    } else {
        piece = take_segment(c10, event->stream, bytes, small);
    }
    if (piece == NONE || !split(c10, piece, bytes))
        return no_memory(err, sizeof(struct piece));
    run->piece[event->block] = piece;
    return RP_OK;
}

static rp_status release(struct rpi_c10 *c10, struct run *run, uint32_t index, struct rp_error *err)
{
    uint32_t block = run->record->events.data[index].block;
    uint32_t piece = run->piece[block];
    if (piece == NONE)
        return RP_OK;
    run->piece[block] = NONE;
    bool kept_back = run->shared[block];
    struct stream *stream = &c10->streams.data[c10->pieces.data[piece].stream];
    struct deferred deferred = {piece, index};
    bool done = kept_back ? rpi_vec_push(&stream->deferred, deferred) : free_piece(c10, piece);
    return done ? RP_OK : no_memory(err, sizeof deferred);
}

static rp_status take_event(struct rpi_c10 *c10, struct run *run, uint32_t index,
                            struct rp_error *err)
{
    const struct rpi_event *event = &run->record->events.data[index];
    switch (event->kind) {
    case RPI_EVENT_ALLOC:
        return allocate(c10, run, event, err);
    case RPI_EVENT_USE:
        run->shared[event->block] |= event->stream != run->record->blocks.data[event->block].stream;
        return RP_OK;
    case RPI_EVENT_FREE:
        return release(c10, run, index, err);
    }
    return RP_OK;
}

/* The capture has ended: what was kept back is free, and so are the results unless they stay. */
static rp_status end_capture(struct rpi_c10 *c10, struct run *run, bool keep_results,
                             struct rp_error *err)
{
    bool done = true;
    for (size_t s = 0; s < c10->streams.count; s++) {
        struct stream *stream = &c10->streams.data[s];
        for (size_t i = 0; i < stream->deferred.count; i++)
            done = done && free_piece(c10, stream->deferred.data[i].piece);
        stream->deferred.count = 0;
    }
    for (size_t b = 0; !keep_results && b < run->record->blocks.count; b++)
        if (run->piece[b] != NONE)
            done = done && free_piece(c10, run->piece[b]);
    return done ? RP_OK : no_memory(err, sizeof(struct free_piece));
}

static rp_status open_streams(struct rpi_c10 *c10, uint32_t count, struct rp_error *err)
{
    struct stream none = {0};
    while (c10->streams.count < count)
        if (!rpi_vec_push(&c10->streams, none))
            return no_memory(err, count * sizeof none);
    return RP_OK;
}

rp_status rpi_c10_capture(struct rpi_c10 *c10, const struct rpi_capture_record *record,
                          bool keep_results, struct rp_error *err)
{
    size_t blocks = record->blocks.count;
    struct run run = {record, rpi_reallocarray(NULL, blocks, sizeof *run.piece),
                      rpi_calloc(blocks, sizeof *run.shared)};
    rp_status status = run.piece && run.shared ? open_streams(c10, record->streams, err)
                                               : no_memory(err, blocks * sizeof *run.piece);
    rpi_c10_walk_finish(&c10->walk);
    bool walks = rpi_order_nodes(record->order) == record->predecessors.ends.count;
    c10->walk = (struct rpi_c10_walk){.predecessors = walks ? &record->predecessors : NULL};
    if (status == RP_OK && blocks)
        memset(run.piece, 0xff, blocks * sizeof *run.piece);
    for (uint32_t i = 0; status == RP_OK && i < record->events.count; i++)
        status = take_event(c10, &run, i, err);
    if (status == RP_OK)
        status = end_capture(c10, &run, keep_results, err);
    rpi_free(run.piece);
    rpi_free(run.shared);
    return status;
}
