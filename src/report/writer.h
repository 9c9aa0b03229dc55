/* SPDX-License-Identifier: MIT
 *
 * A text that grows, for reports that are kept in memory.
 */
#ifndef REPRISE_REPORT_WRITER_H
#define REPRISE_REPORT_WRITER_H

#include "base/vec.h"

/* Appending after a failure does nothing; `failed` is looked at once, in the
 * end. */
struct rpi_writer {
    RPI_VEC(char);
    bool failed; /* no host memory */
};

void rpi_write(struct rpi_writer *writer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A JSON string, quoted; base/text.h says what becomes of controls and of what is no UTF-8. */
void rpi_write_json(struct rpi_writer *writer, const char *text);
/* Text for HTML, in elements and in quoted attributes. */
void rpi_write_html(struct rpi_writer *writer, const char *text);

#endif
