/* SPDX-License-Identifier: MIT
 *
 * The observer of a check: looks at each driver call that a callable makes while it is captured.
 *
 *     refused    the capture answered 900 to 908. Such a call is noted and, in the next attempt,
 *                kept from the driver (or made in the relaxed mode, where it returns something that
 *                is needed), so that what comes after it is seen too
 *     outside    work on a stream that takes no part in the capture: it would run once, now, and
 *                not in any replay. Kept from the driver
 *     unjoined   a stream that was forked and that nothing waits for at the end, found by counting
 *                what each stream has seen of the others (vector clocks), joined by the check
 *     freed      a launch that is given the address of a block after its rp_call_free
 */
#ifndef REPRISE_CHECK_OBSERVE_H
#define REPRISE_CHECK_OBSERVE_H

#include "check/findings.h"
#include "driver/watch.h"
#include "graph/ground/call.h"

enum { RPI_SEEN_STREAMS = 16, RPI_SEEN_EVENTS = 64 };

/* A call in the program whose effect the capture does not take. */
struct rpi_kept_back {
    const char *function;
    const void *caller;
    enum rpi_watch_way way;
};

struct rpi_seen_stream {
    CUstream stream;
    uint32_t clock[RPI_SEEN_STREAMS]; /* of each stream: how much of its work came before */
    struct rpi_stack last;            /* where its latest work was enqueued */
};

struct rpi_block_seen {
    uint64_t address, bytes;
    bool freed;
};

struct rpi_observe {
    struct rpi_watch_observer observer; /* first */
    const struct rp_driver *driver;
    struct rp_findings *findings;
    bool active;  /* a callable is being captured */
    bool refused; /* a call was, in this attempt */
    struct {
        RPI_VEC(struct rpi_kept_back);
    } kept_back;
    struct rpi_seen_stream streams[RPI_SEEN_STREAMS]; /* the origin first */
    size_t stream_count;
    struct {
        CUevent event;
        uint32_t clock[RPI_SEEN_STREAMS];
    } events[RPI_SEEN_EVENTS];
    size_t event_count;
    struct {
        RPI_VEC(struct rpi_block_seen);
    } blocks;
    const struct rpi_call_functions *inner; /* of the call under way */
};

void rpi_observe_init(struct rpi_observe *observe, const struct rp_driver *driver,
                      struct rp_findings *findings);
void rpi_observe_finish(struct rpi_observe *observe);

/* Around the callable, within a capture. end joins what was not. */
void rpi_observe_begin(struct rpi_observe *observe, struct rp_call *call);
void rpi_observe_end(struct rpi_observe *observe, struct rp_call *call);

#endif
