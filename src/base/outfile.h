/* SPDX-License-Identifier: MIT
 *
 * Files that are written. A file appears whole under its name or not at all: a temporary file of a
 * name of its own is made in the same folder, written, synced and renamed.
 */
#ifndef REPRISE_BASE_OUTFILE_H
#define REPRISE_BASE_OUTFILE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdio.h>

/* Writes a file. A symbolic link stays, and what it leads to is replaced; the new file has the mode
 * of the one that it replaces, and its owner where that is allowed. Devices, pipes and what lies
 * under /proc, as /dev/stdout does, can't be renamed over: they are written where they are.
 *
 * write gets an open stream; whether the stream took everything is seen from the stream. operation
 * is the function that errors name. On an error the file is as it was. Errors: RP_ERROR_IO,
 * RP_ERROR_OUT_OF_HOST_MEMORY. */
rp_status rpi_output_file(const char *path, const char *operation,
                          void (*write)(FILE *out, const void *user), const void *user,
                          struct rp_error *err);

/* Do both paths lead to one file, or would they once it is written? Devices and pipes that both
 * name count too, /dev/null and terminals do not. */
bool rpi_output_same(const char *a, const char *b);

#endif
