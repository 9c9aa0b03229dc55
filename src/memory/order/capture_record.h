/* SPDX-License-Identifier: MIT
 *
 * What a capture allocated: the graph's order and the events alloc, use, free in host order, each
 * with the terminals of that moment. A rehearsal writes one, the reader of `reprise-capture/1`
 * writes one, and lifetimes, the bound, the planner and the models of c10 read it.
 *
 * Block B may take the memory of block A when A's free comes before B's alloc in host order and
 * every node of A's free is before or equal to a node of B's alloc. An A that is never freed, or
 * whose free has no nodes, gives its memory to nobody in its own capture.
 */
#ifndef REPRISE_MEMORY_ORDER_CAPTURE_RECORD_H
#define REPRISE_MEMORY_ORDER_CAPTURE_RECORD_H

#include "base/status.h"
#include "base/vec.h"
#include "memory/order/order.h"

enum rpi_event_kind { RPI_EVENT_ALLOC, RPI_EVENT_USE, RPI_EVENT_FREE };

struct rpi_event {
    enum rpi_event_kind kind;
    uint32_t block; /* index into blocks */
    uint32_t stream;
    uint32_t first_node, node_count; /* slice of event_nodes; empty for USE */
};

#define RPI_NO_EVENT UINT32_MAX

struct rpi_block {
    int64_t id;           /* the name it has in a file; its index in a rehearsal */
    uint64_t bytes;       /* as asked for */
    uint32_t stream;      /* of its allocation */
    uint32_t alloc_event; /* index into events */
    uint32_t free_event;  /* or RPI_NO_EVENT */
};

/* The direct predecessors of each node, one node's after the other's. */
struct rpi_predecessors {
    struct {
        RPI_VEC(uint32_t);
    } nodes;
    struct {
        RPI_VEC(uint32_t); /* of node i: where its slice of nodes ends */
    } ends;
};

struct rpi_capture_record {
    char *name;              /* owned */
    struct rpi_order *order; /* owned; node i of the graph is node i of the order */
    uint32_t edges;          /* how many the graph has */
    uint32_t streams;
    struct {
        RPI_VEC(uint8_t);
    } node_kinds;                         /* CUgraphNodeType of node i; may be empty */
    struct rpi_predecessors predecessors; /* may be empty; those of captures are not */
    struct {
        RPI_VEC(struct rpi_block);
    } blocks;
    struct {
        RPI_VEC(struct rpi_event);
    } events;
    struct {
        RPI_VEC(uint32_t);
    } event_nodes;
};

rp_status rpi_capture_record_init(struct rpi_capture_record *record, const char *name,
                                  struct rp_error *err);
void rpi_capture_record_finish(struct rpi_capture_record *record);

/* Append one event. nodes are terminals, all in the order already. out_block is the new index. */
rp_status rpi_capture_record_alloc(struct rpi_capture_record *record, int64_t id, uint64_t bytes,
                                   uint32_t stream, const uint32_t *nodes, size_t count,
                                   uint32_t *out_block, struct rp_error *err);
rp_status rpi_capture_record_use(struct rpi_capture_record *record, uint32_t block, uint32_t stream,
                                 struct rp_error *err);
rp_status rpi_capture_record_free(struct rpi_capture_record *record, uint32_t block,
                                  const uint32_t *nodes, size_t count, struct rp_error *err);

/* Takes blocks out with their events, as if they had not been allocated; gone is one for each
 * block. What stays is numbered as a record that never had them would number it: blocks and events
 * by their order, ids with them, and streams, but for the first, which is the capture's own, by the
 * first event that names them. The order keeps all nodes. */
rp_status rpi_capture_record_take_out(struct rpi_capture_record *record, const bool *gone,
                                      struct rp_error *err);

/* Sum of the rounded sizes, and the most that is alive at once in host order. alignment >= 1. */
uint64_t rpi_capture_record_total(const struct rpi_capture_record *record, uint64_t alignment);
uint64_t rpi_capture_record_peak(const struct rpi_capture_record *record, uint64_t alignment);

/* How captures of one pool relate, nested. Leaves name a capture by index. */
enum rpi_compose_kind {
    RPI_COMPOSE_CAPTURE,
    RPI_COMPOSE_ALTERNATIVES, /* never live together: may overlay */
    RPI_COMPOSE_SEQUENCE,     /* run in order: a block freed in one is free for later ones, a
                                 block not freed conflicts with everything after it */
    RPI_COMPOSE_CONCURRENT    /* may overlap in time: never overlay */
};
struct rpi_compose {
    enum rpi_compose_kind kind;
    uint32_t capture;             /* for RPI_COMPOSE_CAPTURE */
    struct rpi_compose *children; /* owned */
    size_t child_count;
};
void rpi_compose_finish(struct rpi_compose *compose);

#endif
