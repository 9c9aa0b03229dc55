/* SPDX-License-Identifier: MIT
 *
 * A layout keeps all that it needs, so that it outlives its recording.
 */
#ifndef REPRISE_RECORDING_LAYOUT_H
#define REPRISE_RECORDING_LAYOUT_H

#include "recording/drawing.h"
#include "recording/file.h"

/* One capture's blocks in the recording's order; for CSV the only one, its rows. */
struct rpi_layout_capture {
    char *name;
    int64_t *ids; /* NULL for CSV */
    uint64_t *offsets;
    struct rp_layout_capture info;
};

struct rp_layout {
    char *file; /* the recording's */
    bool csv;
    uint64_t alignment;
    struct rpi_layout_capture *captures;
    size_t capture_count;
    struct rpi_intervals intervals; /* for CSV: a copy */
    struct rpi_drawing drawing;
    struct rp_layout_info info;
};

/* Fills a zeroed drawing, but for what a plan says. name: the file's. */
rp_status rpi_layout_describe(struct rpi_drawing *drawing, const struct rp_recording *recording,
                              const char *name, struct rp_error *err);
/* Fills in the rest, from a layout that is complete. */
void rpi_layout_place(struct rp_layout *layout);

#endif
