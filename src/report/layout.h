/* SPDX-License-Identifier: MIT
 *
 * A layout keeps all that it needs, so that it outlives its recording.
 */
#ifndef REPRISE_REPORT_LAYOUT_H
#define REPRISE_REPORT_LAYOUT_H

#include "report/recording_file.h"

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
    struct rp_layout_info info;
};

#endif
