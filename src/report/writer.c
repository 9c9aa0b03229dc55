/* SPDX-License-Identifier: MIT */
#include "report/writer.h"

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

/* How many bytes the UTF-8 character at p has; 0: it is none. */
static size_t utf8_bytes(const unsigned char *p)
{
    size_t count = p[0] < 0x80                   ? 1
                   : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
                   : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
                   : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                                 : 0;
    for (size_t i = 1; i < count; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return count;
}

void rpi_write_json(struct rpi_writer *w, const char *text)
{
    put(w, "\"", 1);
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        size_t bytes = utf8_bytes(p);
        if (*p == '"' || *p == '\\')
            rpi_write(w, "\\%c", *p);
        else if (*p < 0x20)
            rpi_write(w, "\\u%04x", *p);
        else if (!bytes)
            put(w, "\\ufffd", 6);
        else
            put(w, (const char *)p, bytes);
        p += bytes ? bytes : 1;
    }
    put(w, "\"", 1);
}

void rpi_write_html(struct rpi_writer *w, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        size_t bytes = utf8_bytes(p);
        const char *entity = *p == '<'             ? "&lt;"
                             : *p == '>'           ? "&gt;"
                             : *p == '&'           ? "&amp;"
                             : *p == '"'           ? "&quot;"
                             : !bytes || *p < 0x20 ? "&#65533;"
                                                   : NULL;
        put(w, entity ? entity : (const char *)p, entity ? strlen(entity) : bytes);
        p += bytes ? bytes : 1;
    }
}
