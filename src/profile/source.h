/* SPDX-License-Identifier: MIT
 *
 * The bytes of a file in order, decompressed when the file is gzip. The file is opened once and
 * read from its beginning to its end, so that a pipe will do. Memory: one block of compressed bytes
 * and zlib's window, whatever the file's size.
 */
#ifndef REPRISE_PROFILE_SOURCE_H
#define REPRISE_PROFILE_SOURCE_H

#include "reprise.h"

#include <stdbool.h>

struct rpi_source;

/* The path must outlive the source. */
rp_status rpi_source_open(const char *path, struct rpi_source **out_source, struct rp_error *err);
/* Is the file a plain one, not gzip, that begins with these bytes? */
bool rpi_source_begins(const struct rpi_source *source, const void *bytes, size_t count);
/* Can the file be opened again, by its path, and give the same? A pipe can't. */
bool rpi_source_is_file(const struct rpi_source *source);
/* At least one byte into `to`, or *out_count = 0 at the end. A gzip file that ends before its data
 * does is an error. */
rp_status rpi_source_read(struct rpi_source *source, char *to, size_t room, size_t *out_count,
                          struct rp_error *err);
void rpi_source_destroy(struct rpi_source *source);

#endif
