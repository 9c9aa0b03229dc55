/* SPDX-License-Identifier: MIT
 *
 * The reader of static allocation problems as CSV: a header with the columns id, lower, upper and
 * size in any order, then one block a line. Lifetimes are half-open, [lower, upper). Ids are any
 * text without commas, quotes and control characters; a refusal names file, line and column.
 */
#include "base/text.h"
#include "recording/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum column { ID, LOWER, UPPER, SIZE, COLUMNS };
static const char *const column_names[COLUMNS] = {"id", "lower", "upper", "size"};

struct field {
    const char *text;
    size_t length;
};

struct reader {
    const char *file;
    struct rp_error *err;
    const char *next, *end;
    size_t line;
    int place[COLUMNS]; /* which field of a line is which column */
    struct field fields[COLUMNS];
    size_t id_bytes;
    uint64_t total_bytes;
    struct rpi_intervals *rows;
    size_t capacity;
};

static rp_status refuse(const struct reader *reader, const char *what, struct field field)
{
    int shown = field.length > 40 ? 40 : (int)field.length;
    return rpi_error(reader->err, RP_ERROR_FORMAT, "recording", "%s: line %zu: %s%s%.*s%s",
                     reader->file, reader->line, what, field.text ? " '" : "", shown,
                     field.text ? field.text : "", field.text ? "'" : "");
}

static const struct field no_field = {NULL, 0};

/* Takes the next line apart; true when it has exactly the four fields. */
static bool split_line(struct reader *reader)
{
    const char *end = memchr(reader->next, '\n', (size_t)(reader->end - reader->next));
    const char *at = reader->next, *stop = end ? end : reader->end;
    reader->next = end ? end + 1 : reader->end;
    reader->line++;
    if (stop > at && stop[-1] == '\r')
        stop--;
    for (size_t count = 0;; count++) {
        const char *comma = memchr(at, ',', (size_t)(stop - at));
        if (count < COLUMNS)
            reader->fields[count] = (struct field){at, (size_t)((comma ? comma : stop) - at)};
        if (!comma)
            return count + 1 == COLUMNS;
        at = comma + 1;
    }
}

/* Passes over an empty line, as files often end with one. */
static bool skip_blank(struct reader *reader)
{
    const char *at = reader->next;
    if (at < reader->end && *at == '\r')
        at++;
    if (at < reader->end && *at != '\n')
        return false;
    reader->next = at < reader->end ? at + 1 : at;
    reader->line++;
    return true;
}

static rp_status read_header(struct reader *reader)
{
    bool whole = split_line(reader);
    for (int c = 0; c < COLUMNS; c++)
        reader->place[c] = -1;
    for (int f = 0; whole && f < COLUMNS; f++)
        for (int c = 0; c < COLUMNS; c++)
            if (reader->fields[f].length == strlen(column_names[c]) &&
                !memcmp(reader->fields[f].text, column_names[c], reader->fields[f].length))
                reader->place[c] = f;
    for (int c = 0; c < COLUMNS; c++)
        if (reader->place[c] < 0)
            return refuse(reader,
                          "the file is neither reprise-capture/1 nor CSV with the header "
                          "id,lower,upper,size",
                          no_field);
    return RP_OK;
}

/* A decimal integer that fits, and nothing else. */
static bool to_number(struct field field, int64_t *out)
{
    char text[24];
    if (!field.length || field.length >= sizeof text)
        return false;
    memcpy(text, field.text, field.length);
    text[field.length] = 0;
    const char *digits = text + (*text == '-');
    if (!*digits || strspn(digits, "0123456789") != strlen(digits))
        return false;
    errno = 0;
    *out = strtoll(text, NULL, 10);
    return errno == 0;
}

static bool grow(struct reader *reader)
{
    struct rpi_intervals *rows = reader->rows;
    if (rows->count < reader->capacity)
        return true;
    size_t capacity = reader->capacity ? reader->capacity * 2 : 64;
    size_t *id = rpi_reallocarray(rows->id, capacity, sizeof *id);
    rows->id = id ? id : rows->id;
    int64_t *lower = rpi_reallocarray(rows->lower, capacity, sizeof *lower);
    rows->lower = lower ? lower : rows->lower;
    int64_t *upper = rpi_reallocarray(rows->upper, capacity, sizeof *upper);
    rows->upper = upper ? upper : rows->upper;
    uint64_t *bytes = rpi_reallocarray(rows->bytes, capacity, sizeof *bytes);
    rows->bytes = bytes ? bytes : rows->bytes;
    if (!id || !lower || !upper || !bytes)
        return false;
    reader->capacity = capacity;
    return true;
}

static bool id_is_valid(struct field id)
{
    return id.length && rpi_text_is_plain(id.text, id.length) && !memchr(id.text, '"', id.length);
}

static rp_status read_row(struct reader *reader)
{
    struct rpi_intervals *rows = reader->rows;
    if (!split_line(reader))
        return refuse(reader, "must have the four fields of the header", no_field);
    struct field id = reader->fields[reader->place[ID]];
    struct field lower = reader->fields[reader->place[LOWER]];
    struct field upper = reader->fields[reader->place[UPPER]];
    struct field size = reader->fields[reader->place[SIZE]];
    int64_t bytes, from, to;
    if (!id_is_valid(id))
        return refuse(reader, "id must be UTF-8 without quotes and control characters:", id);
    if (!to_number(lower, &from))
        return refuse(reader, "lower must be a 64-bit integer, not", lower);
    if (!to_number(upper, &to))
        return refuse(reader, "upper must be a 64-bit integer, not", upper);
    if (from >= to)
        return refuse(reader, "lower must be below upper; the block is", id);
    if (!to_number(size, &bytes) || bytes < 1)
        return refuse(reader, "size must be an integer from 1 to 2^63 - 1, not", size);
    reader->total_bytes += (uint64_t)bytes;
    if (reader->total_bytes > RPI_MOST_BYTES)
        return refuse(reader, "the sizes add up to more than 2^62", no_field);
    if (rows->count == UINT32_MAX - 1 || !grow(reader))
        return rpi_error_host_memory(reader->err, "recording", reader->capacity * 2);
    memcpy(rows->text + reader->id_bytes, id.text, id.length);
    rows->text[reader->id_bytes + id.length] = 0;
    rows->id[rows->count] = reader->id_bytes;
    reader->id_bytes += id.length + 1;
    rows->lower[rows->count] = from;
    rows->upper[rows->count] = to;
    rows->bytes[rows->count++] = (uint64_t)bytes;
    return RP_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static rp_status check_ids(const struct reader *reader)
{
    const struct rpi_intervals *rows = reader->rows;
    const char **ids = rpi_reallocarray(NULL, rows->count, sizeof *ids);
    if (!ids)
        return rpi_error_host_memory(reader->err, "recording", rows->count * sizeof *ids);
    for (uint32_t i = 0; i < rows->count; i++)
        ids[i] = rows->text + rows->id[i];
    qsort(ids, rows->count, sizeof *ids, by_text);
    rp_status status = RP_OK;
    for (uint32_t i = 1; status == RP_OK && i < rows->count; i++)
        if (!strcmp(ids[i - 1], ids[i]))
            status = rpi_error(reader->err, RP_ERROR_FORMAT, "recording",
                               "%s: two blocks have the id '%.40s'", reader->file, ids[i]);
    rpi_free(ids);
    return status;
}

rp_status rpi_recording_parse_csv(struct rp_recording *recording, const char *text, size_t bytes,
                                  struct rp_error *err)
{
    struct reader reader = {.file = recording->file,
                            .err = err,
                            .next = text,
                            .end = text + bytes,
                            .rows = &recording->intervals};
    recording->csv = true;
    recording->intervals.text = rpi_malloc(bytes + 1); /* ids with their NULs are shorter */
    if (!recording->intervals.text)
        return rpi_error_host_memory(err, "recording", bytes + 1);
    rp_status status = read_header(&reader);
    while (status == RP_OK && reader.next < reader.end)
        if (!skip_blank(&reader))
            status = read_row(&reader);
    if (status == RP_OK && !recording->intervals.count)
        status = refuse(&reader, "no blocks follow the header", no_field);
    if (status == RP_OK)
        status = check_ids(&reader);
    return status;
}
