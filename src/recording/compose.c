/* SPDX-License-Identifier: MIT
 *
 * Reading `compose`: a capture's name, or an object of one key, "alternatives", "sequence" or
 * "concurrent", with the list of its parts.
 */
#include "recording/compose.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct named {
    const char *name;
    uint32_t capture;
};

struct reader {
    const char *file;
    struct rp_error *err;
    struct named *names; /* [count], by name */
    size_t count;
    bool *seen; /* [count], by capture */
};

static rp_status refuse(const struct reader *reader, const char *reason, const char *name)
{
    return rpi_error(reader->err, RP_ERROR_FORMAT, "recording", "%s: compose: %s%s%s%s",
                     reader->file, reason, name ? " '" : "", name ? name : "", name ? "'" : "");
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static rp_status read_name(struct reader *reader, const char *name, struct rpi_compose *out)
{
    struct named key = {name, 0};
    const struct named *found = bsearch(&key, reader->names, reader->count, sizeof key, by_name);
    if (!found)
        return refuse(reader, "there is no capture", name);
    if (reader->seen[found->capture])
        return refuse(reader, "names a capture twice:", name);
    reader->seen[found->capture] = true;
    out->kind = RPI_COMPOSE_CAPTURE;
    out->capture = found->capture;
    return RP_OK;
}

static bool kind_of(const char *key, enum rpi_compose_kind *out)
{
    static const struct {
        const char *key;
        enum rpi_compose_kind kind;
    } table[] = {{"alternatives", RPI_COMPOSE_ALTERNATIVES},
                 {"sequence", RPI_COMPOSE_SEQUENCE},
                 {"concurrent", RPI_COMPOSE_CONCURRENT}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(key, table[i].key)) {
            *out = table[i].kind;
            return true;
        }
    return false;
}

/* Fills *out, which the caller finishes also after a failure. */
static rp_status read_part(struct reader *reader, json_t *json, int depth, struct rpi_compose *out)
{
    assert(depth > 0 && !out->child_count);
    if (depth > RPI_MOST_DEPTH)
        return refuse(reader, "is nested too deeply (at most 100 levels)", NULL);
    if (json_is_string(json))
        return read_name(reader, json_string_value(json), out);
    void *entry = json_object_size(json) == 1 ? json_object_iter(json) : NULL;
    const json_t *parts = entry ? json_object_iter_value(entry) : NULL;
    if (!entry || !kind_of(json_object_iter_key(entry), &out->kind) || !json_is_array(parts) ||
        !json_array_size(parts))
        return refuse(reader,
                      "each part must be a capture's name or an object of one key, "
                      "\"alternatives\", \"sequence\" or \"concurrent\", with a list of parts",
                      NULL);
    size_t count = json_array_size(parts);
    out->children = rpi_calloc(count, sizeof *out->children);
    if (!out->children)
        return rpi_error_host_memory(reader->err, "recording", count * sizeof *out->children);
    rp_status status = RP_OK;
    while (status == RP_OK && out->child_count < count) {
        struct rpi_compose *child = &out->children[out->child_count++];
        status = read_part(reader, json_array_get(parts, out->child_count - 1), depth + 1, child);
    }
    return status;
}

/* What a file without compose means. */
static rp_status all_alternatives(struct rp_recording *recording, struct rp_error *err)
{
    size_t count = recording->captures.count;
    struct rpi_compose *children = rpi_calloc(count, sizeof *children);
    if (!children)
        return rpi_error_host_memory(err, "recording", count * sizeof *children);
    for (size_t i = 0; i < count; i++) {
        children[i].kind = RPI_COMPOSE_CAPTURE;
        children[i].capture = (uint32_t)i;
    }
    recording->compose = (struct rpi_compose){RPI_COMPOSE_ALTERNATIVES, 0, children, count};
    return RP_OK;
}

/* Sorts the captures by name, so that the same name twice is found. */
static rp_status sort_names(struct reader *reader, const struct rp_recording *recording)
{
    assert(reader->count == recording->captures.count);
    for (size_t i = 0; i < reader->count; i++)
        reader->names[i] = (struct named){recording->captures.data[i].name, (uint32_t)i};
    qsort(reader->names, reader->count, sizeof *reader->names, by_name);
    for (size_t i = 1; i < reader->count; i++)
        if (!strcmp(reader->names[i - 1].name, reader->names[i].name))
            return rpi_error(reader->err, RP_ERROR_FORMAT, "recording",
                             "%s: captures: two have the name '%s'", reader->file,
                             reader->names[i].name);
    return RP_OK;
}

static rp_status read_all(struct reader *reader, json_t *json, struct rp_recording *recording)
{
    rp_status status = sort_names(reader, recording);
    if (status != RP_OK)
        return status;
    if (!json)
        return all_alternatives(recording, reader->err);
    status = read_part(reader, json, 1, &recording->compose);
    for (size_t i = 0; status == RP_OK && i < reader->count; i++)
        if (!reader->seen[i])
            status = refuse(reader, "leaves out the capture", recording->captures.data[i].name);
    return status;
}

rp_status rpi_compose_read(struct rp_recording *recording, json_t *json, struct rp_error *err)
{
    struct reader reader = {recording->file, err, NULL, recording->captures.count, NULL};
    reader.names = rpi_calloc(reader.count, sizeof *reader.names);
    reader.seen = rpi_calloc(reader.count, sizeof *reader.seen);
    rp_status status =
        reader.names && reader.seen
            ? read_all(&reader, json, recording)
            : rpi_error_host_memory(err, "recording", reader.count * sizeof *reader.names);
    rpi_free(reader.names);
    rpi_free(reader.seen);
    return status;
}
