/* SPDX-License-Identifier: MIT */
#include "report/writer.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void rpi_write(struct rpi_writer *w, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int bytes = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (w->failed || bytes < 0 || !rpi_vec_reserve(w, w->count + (size_t)bytes + 1)) {
        w->failed = true;
    } else {
        vsnprintf(w->data + w->count, (size_t)bytes + 1, format, again);
        w->count += (size_t)bytes;
    }
    va_end(again);
}

static void put(struct rpi_writer *w, const char *bytes, size_t count)
{
    if (w->failed || !rpi_vec_reserve(w, w->count + count + 1)) {
        w->failed = true;
        return;
    }
    memcpy(w->data + w->count, bytes, count);
    w->count += count;
    w->data[w->count] = '\0';
}

void rpi_write_json(struct rpi_writer *w, const char *text)
{
    char letter[RPI_MOST_LETTER];
    put(w, "\"", 1);
    while (*text) {
        size_t bytes = rpi_text_json_letter(&text, letter);
        put(w, letter, bytes);
    }
    put(w, "\"", 1);
}

void rpi_write_html(struct rpi_writer *w, const char *text)
{
    char letter[RPI_MOST_LETTER];
    while (*text) {
        size_t bytes = rpi_text_xml_letter(&text, letter);
        put(w, letter, bytes);
    }
}
