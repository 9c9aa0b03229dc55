/* SPDX-License-Identifier: MIT
 *
 * What calls take, measured without waiting: an event before and one behind, read later, when the
 * device has passed both. For the policy of a callable, whose lock guards it; the context is
 * current at every call.
 *
 *     calls    begin .. end   begin .. end
 *     slots   [b0 e0 | plan] [b1 e1 | plan] ...   a ring: taken in order, read in order
 *
 * A call for which no slot is free, or for which the driver refuses an event, is not measured.
 */
#ifndef REPRISE_GRAPH_TIMING_H
#define REPRISE_GRAPH_TIMING_H

#include "driver/driver.h"
#include "policy/choose.h"

struct rpi_timing_slot {
    CUevent begin, end; /* NULL until the slot is used for the first time */
    struct rpi_chooser *chooser;
    struct rpi_plan_of_call plan;
    uint64_t start_ns;
    double host_ns;
};

struct rpi_timing {
    const struct rp_driver *driver;
    struct rpi_timing_slot slots[32];
    uint32_t oldest, busy; /* slots [oldest, oldest + busy) wait for the device */
    bool open;             /* between begin and end */
};

/* Gives what has been measured by now to the choosers. */
void rpi_timing_collect(struct rpi_timing *timing);
/* Around one call on `stream`. end without a begin that found a slot does nothing; `worked`: the
 * call was made whole. */
void rpi_timing_begin(struct rpi_timing *timing, struct rpi_chooser *chooser,
                      const struct rpi_plan_of_call *plan, CUstream stream);
void rpi_timing_end(struct rpi_timing *timing, CUstream stream, bool worked);
/* Destroys the events; allowed on one that was only given its driver. */
void rpi_timing_finish(struct rpi_timing *timing);

#endif
