/* SPDX-License-Identifier: MIT
 *
 * Files that the library writes. A file appears whole under its name or not at all: it is written
 * beside it and renamed. Devices and pipes can't be renamed over: they are written where they are.
 */
#ifndef REPRISE_REPORT_OUTPUT_H
#define REPRISE_REPORT_OUTPUT_H

#include "base/status.h"

#include <stdio.h>

/* write gets an open stream; whether the stream took everything is seen from the stream. operation
 * is the function that errors name. */
rp_status rpi_output_file(const char *path, const char *operation,
                          void (*write)(FILE *out, const void *user), const void *user,
                          struct rp_error *err);

/* The text as a JSON string, quotes included. */
void rpi_output_json_text(FILE *out, const char *text);
/* The text between XML tags or quotes. Control characters become spaces. */
void rpi_output_xml_text(FILE *out, const char *text);

#endif
