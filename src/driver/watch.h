/* SPDX-License-Identifier: MIT
 *
 * The watch wrapper: the table that callables are given. While a capture runs a callable on a
 * thread, that thread's calls are counted, the first that a capture refused is kept with the place
 * it came from, and an observer may look at each call and keep it from the driver. Outside of that
 * a call costs one read of a thread-local pointer more.
 */
#ifndef REPRISE_DRIVER_WATCH_H
#define REPRISE_DRIVER_WATCH_H

#include "driver/driver.h"

#include <stdbool.h>
#include <stddef.h>

struct rpi_watch_call {
    const char *function; /* static text */
    const char *names;    /* of the arguments, as they stand in symbols.def: "(to, from, bytes)" */
    const uint64_t *values; /* of the arguments; valid during the call */
    const void *caller;     /* where the call returns to */
    size_t number;          /* from 1, counted since the watch began */
};

enum rpi_watch_way {
    RPI_WATCH_CALL, /* make the call */
    RPI_WATCH_SKIP, /* do not make it; it succeeds and writes no outputs */
    RPI_WATCH_RELAX /* make it with this thread in the relaxed capture mode */
};

struct rpi_watch_observer {
    enum rpi_watch_way (*before)(struct rpi_watch_observer *observer,
                                 const struct rpi_watch_call *call);
    void (*after)(struct rpi_watch_observer *observer, const struct rpi_watch_call *call,
                  CUresult result);
};

struct rpi_watch {
    struct rpi_watch_observer *observer; /* unowned; NULL: none */
    struct rpi_watch *outer;             /* what the thread was watched by before */
    CUstreamCaptureMode mode; /* the thread's own, while a call is made in the relaxed one */
    size_t calls;
    bool eager; /* the thread runs a callable and captures nothing */
    struct rpi_failed_call {
        const char *function; /* NULL: none */
        const void *caller;
        CUresult result;
        size_t number;
    } first,  /* that returned 900 to 908 */
        last; /* that failed in whatever way; 600, not ready, is an answer */
};

/* Wraps inner. Each inner has one such table in a process; when there are no more to be had, inner
 * comes back as it is. Any thread. */
const struct rp_driver *rpi_driver_watch(const struct rp_driver *inner);

/* Watches this thread until rpi_watch_end, which must come on the same thread; they nest, and an
 * inner watch without an observer has the outer one's. */
void rpi_watch_begin(struct rpi_watch *watch);
void rpi_watch_end(struct rpi_watch *watch);
/* Is this thread watched by one that is not eager, which is to say, does it capture? */
bool rpi_watch_is_on(void);
/* The thread's innermost watch, or NULL. */
const struct rpi_watch *rpi_watch_innermost(void);

/* The value of the argument `name`, or 0 where the function has none of that name. */
uint64_t rpi_watch_value(const struct rpi_watch_call *call, const char *name);
bool rpi_watch_has(const struct rpi_watch_call *call, const char *name);

#endif
