/* SPDX-License-Identifier: MIT
 *
 * What is drawn of a layout: captures with their blocks, and how they relate. report/layout_svg.h
 * draws it.
 */
#ifndef REPRISE_RECORDING_DRAWING_H
#define REPRISE_RECORDING_DRAWING_H

#include "memory/order/capture_record.h"

struct rpi_drawn_block {
    uint64_t offset, bytes;
    double first, last; /* it is alive from first until before last, from 0 to the span */
    uint32_t stream;
    bool kept; /* outlives the capture */
};

struct rpi_drawn_capture {
    char *name;                     /* owned */
    struct rpi_drawn_block *blocks; /* owned */
    size_t count;
    double span;
    double origin; /* what the left end is called: the first time of CSV, 0 otherwise */
    uint64_t lower_bound;
    uint64_t peak;  /* most bytes alive at once, in the order that is drawn */
    double peak_at; /* when first, from the left end */
};

/* A part of a composition, before its children. */
struct rpi_drawn_part {
    enum rpi_compose_kind kind;
    uint32_t depth;   /* the whole has 0 */
    uint32_t capture; /* for RPI_COMPOSE_CAPTURE */
    char *name;       /* of a group; owned; may be NULL */
};

/* Zeroed and finished by its owner. */
struct rpi_drawing {
    char *title; /* owned */
    struct {
        RPI_VEC(struct rpi_drawn_capture);
    } captures; /* in the order of their parts */
    struct {
        RPI_VEC(struct rpi_drawn_part);
    } parts;
    uint64_t alignment; /* sizes are rounded up to it */
    uint64_t height, lower_bound;
    const char *order;  /* what is counted to the right: "allocations and frees in host order" */
    const char *moment; /* one of what is counted: "event" */
};

void rpi_drawing_finish(struct rpi_drawing *drawing);

/* Fills peak and peak_at of each capture, from its blocks. Errors: out of host memory. */
rp_status rpi_drawing_find_peaks(struct rpi_drawing *drawing, uint64_t alignment,
                                 struct rp_error *err);

#endif
