/* SPDX-License-Identifier: MIT
 *
 * One capture under way: begun on a stream, its graph's order learned as it grows, ended.
 *
 * The order is extended when it is asked for: from a stream's terminals back along dependencies to
 * nodes that are known already, each node once. Programmatic edges count as full ones: a kernel
 * launched so is taken to wait before it writes, as eager allocators take it.
 */
#ifndef REPRISE_GRAPH_CAPTURE_CAPTURE_H
#define REPRISE_GRAPH_CAPTURE_CAPTURE_H

#include "base/idmap.h"
#include "base/vec.h"
#include "driver/driver.h"
#include "driver/watch.h"
#include "graph/ground/run_blocks.h"
#include "memory/order/capture_record.h"

struct rpi_node_list {
    RPI_VEC(uint32_t);
};

struct rpi_capture {
    const struct rp_driver *driver;
    const char *what; /* for errors: "rehearsing 'decode'"; borrowed */
    CUstream stream;
    CUcontext context; /* current where the capture began */
    cuuint64_t id;
    bool active;
    /* The callable begins and ends the capture (rp_call_take_over): */
    bool taken_over;
    CUgraph ended;          /* a clone of what it captured; NULL: it has not ended it */
    struct rpi_watch watch; /* of this thread's calls, from begin to finish; outer ones too */
    bool watching;
    struct rpi_order *order; /* borrowed */
    struct rpi_idmap known;  /* CUgraphNode to node of the order */
    /* Borrowed; NULL: nobody wants them. Set after rpi_capture_begin. */
    struct rpi_predecessors *kept_predecessors;
    struct {
        RPI_VEC(struct rpi_walk);
    } stack;
    struct {
        RPI_VEC(CUgraphNode);
    } dependencies;
    struct rpi_node_list predecessors;
};

/* Begins a thread-local capture on stream; order is empty and outlives the capture. */
rp_status rpi_capture_begin(struct rpi_capture *capture, const struct rp_driver *driver,
                            CUstream stream, struct rpi_order *order, const char *what,
                            struct rp_error *err);

/* The same for a capture that somebody else began on the stream and will end: nothing is watched,
 * and finish ends nothing. RP_ERROR_INVALID_ARGUMENT where the stream is not capturing. */
rp_status rpi_capture_adopt(struct rpi_capture *capture, const struct rp_driver *driver,
                            CUstream stream, struct rpi_order *order, const char *what,
                            struct rp_error *err);

/* Appends the stream's terminals to nodes. *out_capturing is false, and nothing is appended, when
 * the stream takes no part in this capture. RP_ERROR_CAPTURE once the capture is invalidated. */
rp_status rpi_capture_terminals(struct rpi_capture *capture, CUstream stream,
                                struct rpi_node_list *nodes, bool *out_capturing,
                                struct rp_error *err);

/* What must have run before the block's memory is free again: the terminals of its own stream and
 * of each that used it, and what its allocation saw where they do not hold that already (a stream
 * whose dependencies were set by hand can forget). Empty when one of the streams does not take part
 * in the capture: then nobody may have it. */
rp_status rpi_capture_free_nodes(struct rpi_capture *capture, const struct rpi_run_blocks *blocks,
                                 uint32_t block, const uint32_t *alloc_nodes, size_t alloc_count,
                                 struct rpi_node_list *nodes, struct rp_error *err);

/* The callable begins and ends a capture of its own in place of this one, in which nothing was
 * enqueued: ends this one; reads the one that it began; takes a clone of what it captured. In this
 * order. RP_ERROR_INVALID_ARGUMENT in another. */
rp_status rpi_capture_take_over(struct rpi_capture *capture, struct rp_error *err);
rp_status rpi_capture_begun(struct rpi_capture *capture, struct rp_error *err);
rp_status rpi_capture_ended(struct rpi_capture *capture, CUgraph graph, struct rp_error *err);

/* Ends the capture, also a broken one. The template belongs to the caller. */
rp_status rpi_capture_end(struct rpi_capture *capture, CUgraph *out_graph, struct rp_error *err);
/* The status and error of a capture that failed, after the first driver call that it refused where
 * one did: what comes later (901, an error that the callable returned) follows from that. */
rp_status rpi_capture_blame(const struct rpi_capture *capture, rp_status status,
                            struct rp_error *err);
/* Frees the host memory; ends the capture and drops its graph where it is still under way. */
void rpi_capture_finish(struct rpi_capture *capture);

#endif
