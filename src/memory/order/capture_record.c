/* SPDX-License-Identifier: MIT
 *
 * Building and summing up what a capture allocated; recording.h has the meaning.
 */
#include "memory/order/capture_record.h"

#include <assert.h>
#include <string.h>

rp_status rpi_capture_record_init(struct rpi_capture_record *record, const char *name,
                                  struct rp_error *err)
{
    memset(record, 0, sizeof *record);
    record->name = rpi_strdup(name);
    if (!record->name)
        return rpi_error_host_memory(err, "recording", strlen(name) + 1);
    rp_status status = rpi_order_create(&record->order, err);
    if (status != RP_OK)
        rpi_capture_record_finish(record);
    return status;
}

void rpi_capture_record_finish(struct rpi_capture_record *record)
{
    rpi_free(record->name);
    rpi_order_destroy(record->order);
    rpi_vec_finish(&record->node_kinds);
    rpi_vec_finish(&record->predecessors.nodes);
    rpi_vec_finish(&record->predecessors.ends);
    rpi_vec_finish(&record->blocks);
    rpi_vec_finish(&record->events);
    rpi_vec_finish(&record->event_nodes);
    memset(record, 0, sizeof *record);
}

/* Makes room for one event with its nodes, and for `blocks` blocks, so that appending cannot fail.
 * One node more, so that slices of no nodes have an array to point into. */
static rp_status reserve(struct rpi_capture_record *record, size_t blocks, size_t nodes,
                         struct rp_error *err)
{
    if (record->events.count + 1 >= RPI_NO_EVENT ||
        record->event_nodes.count + nodes >= RPI_NO_EVENT)
        return rpi_error(err, RP_ERROR_LIMIT, "recording",
                         "capture '%s' has more than %u events or terminals", record->name,
                         RPI_NO_EVENT - 1);
    if (!rpi_vec_reserve(&record->blocks, record->blocks.count + blocks) ||
        !rpi_vec_reserve(&record->events, record->events.count + 1) ||
        !rpi_vec_reserve(&record->event_nodes, record->event_nodes.count + nodes + 1))
        return rpi_error_host_memory(err, "recording",
                                     (record->events.count + 1) * sizeof(struct rpi_event));
    return RP_OK;
}

/* Appends an event for which reserve() made room; returns its index. */
static uint32_t append(struct rpi_capture_record *record, enum rpi_event_kind kind, uint32_t block,
                       uint32_t stream, const uint32_t *nodes, size_t count)
{
    struct rpi_event event = {kind, block, stream, (uint32_t)record->event_nodes.count,
                              (uint32_t)count};
    for (size_t i = 0; i < count; i++) {
        assert(nodes[i] < rpi_order_nodes(record->order));
        record->event_nodes.data[record->event_nodes.count++] = nodes[i];
    }
    if (record->streams <= stream)
        record->streams = stream + 1;
    record->events.data[record->events.count] = event;
    return (uint32_t)record->events.count++;
}

rp_status rpi_capture_record_alloc(struct rpi_capture_record *record, int64_t id, uint64_t bytes,
                                   uint32_t stream, const uint32_t *nodes, size_t count,
                                   uint32_t *out_block, struct rp_error *err)
{
    rp_status status = reserve(record, 1, count, err);
    if (status != RP_OK)
        return status;
    uint32_t block = (uint32_t)record->blocks.count;
    struct rpi_block added = {id, bytes, stream, 0, RPI_NO_EVENT};
    added.alloc_event = append(record, RPI_EVENT_ALLOC, block, stream, nodes, count);
    record->blocks.data[record->blocks.count++] = added;
    *out_block = block;
    return RP_OK;
}

rp_status rpi_capture_record_use(struct rpi_capture_record *record, uint32_t block, uint32_t stream,
                                 struct rp_error *err)
{
    assert(block < record->blocks.count);
    rp_status status = reserve(record, 0, 0, err);
    if (status == RP_OK)
        append(record, RPI_EVENT_USE, block, stream, NULL, 0);
    return status;
}

rp_status rpi_capture_record_free(struct rpi_capture_record *record, uint32_t block,
                                  const uint32_t *nodes, size_t count, struct rp_error *err)
{
    assert(block < record->blocks.count);
    assert(record->blocks.data[block].free_event == RPI_NO_EVENT);
    assert(block < record->blocks.count);
    assert(record->blocks.data[block].free_event == RPI_NO_EVENT);
    rp_status status = reserve(record, 0, count, err);
    if (status != RP_OK)
        return status;
    struct rpi_block *freed = &record->blocks.data[block];
    freed->free_event = append(record, RPI_EVENT_FREE, block, freed->stream, nodes, count);
    return RP_OK;
}

/* ---- Taking out ---------------------------------------------------------------------------- */

#define NO_NUMBER UINT32_MAX

/* New numbers for old ones. */
struct renumbering {
    uint32_t *blocks, *streams; /* [blocks], [streams]; NO_NUMBER: gone, or not met yet */
};

static void number_blocks(struct rpi_capture_record *record, const bool *gone,
                          const struct renumbering *to)
{
    uint32_t stay = 0;
    for (uint32_t i = 0; i < record->blocks.count; i++) {
        to->blocks[i] = gone[i] ? NO_NUMBER : stay;
        if (gone[i])
            continue;
        record->blocks.data[stay] = record->blocks.data[i];
        record->blocks.data[stay].id = stay;
        stay++;
    }
    record->blocks.count = stay;
}

static uint32_t number_stream(struct rpi_capture_record *record, const struct renumbering *to,
                              uint32_t stream)
{
    if (to->streams[stream] == NO_NUMBER)
        to->streams[stream] = record->streams++;
    return to->streams[stream];
}

/* Appends the event, whose block stays, to those that were moved already. */
static void move_event(struct rpi_capture_record *record, struct rpi_event event,
                       const struct renumbering *to)
{
    uint32_t index = (uint32_t)record->events.count++;
    uint32_t first = (uint32_t)record->event_nodes.count;
    for (uint32_t i = 0; i < event.node_count; i++)
        record->event_nodes.data[record->event_nodes.count++] =
            record->event_nodes.data[event.first_node + i];
    event.first_node = first;
    event.block = to->blocks[event.block];
    event.stream = number_stream(record, to, event.stream);
    struct rpi_block *block = &record->blocks.data[event.block];
    if (event.kind == RPI_EVENT_ALLOC) {
        block->alloc_event = index;
        block->stream = event.stream;
    } else if (event.kind == RPI_EVENT_FREE) {
        block->free_event = index;
    }
    record->events.data[index] = event;
}

static void move_events(struct rpi_capture_record *record, const struct renumbering *to)
{
    size_t events = record->events.count;
    uint32_t streams = record->streams;
    for (uint32_t i = 0; i < streams; i++)
        to->streams[i] = NO_NUMBER;
    record->streams = 0;
    if (streams)
        number_stream(record, to, 0);
    record->events.count = record->event_nodes.count = 0;
    for (size_t i = 0; i < events; i++)
        if (to->blocks[record->events.data[i].block] != NO_NUMBER)
            move_event(record, record->events.data[i], to);
}

rp_status rpi_capture_record_take_out(struct rpi_capture_record *record, const bool *gone,
                                      struct rp_error *err)
{
    size_t blocks = record->blocks.count, numbers = blocks + record->streams;
    struct renumbering to = {.blocks = rpi_reallocarray(NULL, numbers + 1, sizeof *to.blocks)};
    if (!to.blocks)
        return rpi_error_host_memory(err, "recording", numbers * sizeof *to.blocks);
    to.streams = to.blocks + blocks;
    number_blocks(record, gone, &to);
    move_events(record, &to);
    rpi_free(to.blocks);
    return RP_OK;
}

/* ---- Sums ---------------------------------------------------------------------------------- */

/* Sums that would overflow stay at the top: no caller takes that for a size that fits. */
static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t round_up(uint64_t bytes, uint64_t alignment)
{
    uint64_t over = bytes % alignment;
    return over ? add_saturated(bytes, alignment - over) : bytes;
}

uint64_t rpi_capture_record_total(const struct rpi_capture_record *record, uint64_t alignment)
{
    assert(alignment);
    uint64_t total = 0;
    for (size_t i = 0; i < record->blocks.count; i++)
        total = add_saturated(total, round_up(record->blocks.data[i].bytes, alignment));
    return total;
}

uint64_t rpi_capture_record_peak(const struct rpi_capture_record *record, uint64_t alignment)
{
    assert(alignment);
    uint64_t alive = 0, peak = 0;
    for (size_t i = 0; i < record->events.count; i++) {
        const struct rpi_event *event = &record->events.data[i];
        uint64_t bytes = round_up(record->blocks.data[event->block].bytes, alignment);
        if (event->kind == RPI_EVENT_ALLOC)
            alive = add_saturated(alive, bytes);
        else if (event->kind == RPI_EVENT_FREE)
            alive -= bytes;
        peak = peak < alive ? alive : peak;
    }
    return peak;
}

void rpi_compose_finish(struct rpi_compose *compose)
{
    for (size_t i = 0; i < compose->child_count; i++)
        rpi_compose_finish(&compose->children[i]);
    rpi_free(compose->children);
    memset(compose, 0, sizeof *compose);
}
