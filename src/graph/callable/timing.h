/* SPDX-License-Identifier: MIT
 *
 * What calls take, measured without waiting: events that are read later, when the device has passed
 * them. Measured are blocks of calls in a row (policy/choose.h), in one of two ways:
 *
 *     in a row     call | B call call call call E |    what a row of calls takes each: launching
 *                                                      one hides behind the work of the one before
 *     each alone   call | B call E   B call E   ..|    where other things happen between calls, or
 *                                                      the stream is waited for
 *
 * Which one is seen by the gap behind the block's first call, and by the streams. A block is lost
 * when its calls do not follow each other, when one fails or is captured, where the driver refuses
 * an event or the slot is taken by a block that began later; the chooser is told.
 *
 * Whoever owns a timing keeps other threads from it, and makes the context current for each call.
 */
#ifndef REPRISE_GRAPH_CALLABLE_TIMING_H
#define REPRISE_GRAPH_CALLABLE_TIMING_H

#include "driver/driver.h"
#include "policy/choose.h"

enum { RPI_MANY_GAPS = 2 };
enum rpi_timing_state { RPI_TIMING_FREE, RPI_TIMING_OPEN, RPI_TIMING_WAITING };

struct rpi_timing_block;

struct rpi_timing_slot {
    CUevent events[2 * RPI_MEASURED]; /* NULL until they are used for the first time */
    struct rpi_chooser *chooser;
    struct rpi_timing_block *block; /* that is open in it */
    struct rpi_plan_of_call plan;   /* of the block's latest call */
    enum rpi_timing_state state;
    uint64_t number; /* of the block: samples are given in this order */
    CUstream stream;
    uint32_t recorded; /* events, of this block */
    bool each;         /* alone */
    bool in_call;
    uint64_t mark_ns;         /* when the latest call began or ended */
    double host_ns, apart_ns; /* in the measured calls, and between them */
};

struct rpi_timing {
    const struct rp_driver *driver;
    struct rpi_timing_slot slots[8];
    uint64_t blocks; /* begun */
    uint32_t waiting;
    uint64_t pause_ns, look_ns; /* while the device is behind: between looks, and of the next */
};

/* The block that calls of one shape are in. */
struct rpi_timing_block {
    struct rpi_timing_slot *slot; /* NULL: none is measured now */
    uint32_t gaps;                /* blocks with gaps between their calls, less those without: from
                                     RPI_MANY_GAPS on each call is measured alone */
};

/* Gives what has been measured by now to the choosers. */
void rpi_timing_collect(struct rpi_timing *timing);
/* Around one call on `stream`. ahead_ns: host time that the caller spent on this call before, which
 * it spends in every call that goes this way. `worked`: the call was made whole. */
void rpi_timing_begin(struct rpi_timing *timing, struct rpi_timing_block *block,
                      struct rpi_chooser *chooser, const struct rpi_plan_of_call *plan,
                      CUstream stream, double ahead_ns);
void rpi_timing_end(struct rpi_timing *timing, struct rpi_timing_block *block,
                    const struct rpi_plan_of_call *plan, bool worked);
/* A call that is not measured begins: where it lies within one that is, their block is lost. */
void rpi_timing_pass(struct rpi_timing_block *block);
/* Forgets the blocks of a chooser that is going. */
void rpi_timing_forget(struct rpi_timing *timing, const struct rpi_chooser *chooser);
/* Destroys the events; allowed on one that was only given its driver. */
void rpi_timing_finish(struct rpi_timing *timing);

#endif
