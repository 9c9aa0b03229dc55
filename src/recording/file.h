/* SPDX-License-Identifier: MIT
 *
 * A recording as it was read from a file; docs/formats.md defines the formats. Whatever a reader
 * returns has been checked: ids exist and are freed at most once, edges and terminals are in range,
 * the graph has no cycle, sizes are from 1 to 2^63 - 1 and add up to at most RPI_MOST_BYTES, and
 * the relation between blocks is a strict partial order.
 */
#ifndef REPRISE_RECORDING_FILE_H
#define REPRISE_RECORDING_FILE_H

#include "memory/order/capture_record.h"
#include "reprise_tools.h"

/* A file, and what it decompresses to, may have this many bytes. */
#define RPI_MOST_FILE_BYTES ((size_t)256 << 20)
/* Sizes of a file add up to at most this: sums of them stay far from wrapping. */
#define RPI_MOST_BYTES   ((uint64_t)1 << 62)
#define RPI_MOST_STREAMS 65536
#define RPI_MOST_DEPTH   100 /* of compose */

/* The rows of a CSV file, in its order. */
struct rpi_intervals {
    uint32_t count;
    char *text; /* the ids, each ended by NUL */
    size_t *id; /* where row i's id begins in text */
    int64_t *lower, *upper;
    uint64_t *bytes;
};

struct rp_recording {
    char *file; /* as given */
    bool csv;
    struct {
        RPI_VEC(struct rpi_capture_record);
    } captures;                     /* empty for CSV */
    struct rpi_compose compose;     /* of captures; unused for CSV */
    struct rpi_intervals intervals; /* for CSV */
};

/* Reads a recording from memory, gzip or not. file is for messages. */
rp_status rpi_recording_parse(const char *file, const void *data, size_t bytes,
                              struct rp_recording **out_recording, struct rp_error *err);

/* The two formats; recording has its file and nothing else yet, and belongs to the caller also
 * after a failure. */
rp_status rpi_recording_parse_json(struct rp_recording *recording, const char *text, size_t bytes,
                                   struct rp_error *err);
rp_status rpi_recording_parse_csv(struct rp_recording *recording, const char *text, size_t bytes,
                                  struct rp_error *err);

#endif
