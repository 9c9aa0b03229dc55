/* SPDX-License-Identifier: MIT
 *
 * What happens to memory while one capture is recorded (reprise.record): each allocation, use and
 * free that PyTorch's hooks tell of, with the terminals of the capture's streams at that moment.
 * Where PyTorch's own allocator is at work its history tells of memory, and moments are all that is
 * noted here. One recording at a time. Any thread.
 */
#ifndef REPRISE_PYTHON_ALLOC_TAP_H
#define REPRISE_PYTHON_ALLOC_TAP_H

#include "base/state.h"

enum rpp_tap_kind { RPP_TAP_ALLOC, RPP_TAP_USE, RPP_TAP_FREE, RPP_TAP_MOMENT };

struct rpp_tap_event {
    enum rpp_tap_kind kind;
    uint64_t address, bytes;
    struct CUstream_st *stream; /* NULL for a free */
    size_t first, count;        /* of its terminals */
};

/* A stream of the capture, and a node that its next one will depend on; NULL: it begins with none.
 */
struct rpp_tap_terminal {
    struct CUstream_st *stream;
    void *node;
};

struct rpp_tap {
    struct rpp_tap_event *events;
    size_t event_count, event_room;
    struct rpp_tap_terminal *terminals;
    size_t terminal_count, terminal_room;
    struct CUstream_st **streams; /* that were met so far */
    size_t stream_count, stream_room;
    int ordinal;
    unsigned long long capture; /* the driver's id */
    bool failed;                /* no host memory: what is here is not all */
};

/* The stream's capture is recorded from here on. Errors: it does not capture, or another is. */
rp_status rpp_tap_begin(int ordinal, struct CUstream_st *stream, struct rp_error *err);
/* Ends it; what was noted is the caller's then, and is finished by it. */
void rpp_tap_end(struct rpp_tap *out_tap);
void rpp_tap_finish(struct rpp_tap *tap);

/* Notes nothing where no recording is under way, or of streams that are not in its capture. */
void rpp_tap_note(enum rpp_tap_kind kind, uint64_t address, uint64_t bytes, int ordinal,
                  struct CUstream_st *stream);
/* A moment of the recording that is under way; -1 where there is none. Its number otherwise. */
long rpp_tap_moment(struct CUstream_st *stream);

#endif
