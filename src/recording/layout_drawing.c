/* SPDX-License-Identifier: MIT
 *
 * What a recording's layout looks like: its drawing without offsets, which the plan fills in.
 */
#include "base/refuse.h"
#include "recording/layout.h"

#include <math.h>

static rp_status no_memory(size_t bytes, struct rp_error *err)
{
    return rpi_error_host_memory(err, "plan", bytes);
}

/* A capture with room for its blocks, added to the drawing. */
static rp_status add_capture(struct rpi_drawing *drawing, const char *name, size_t count,
                             struct rpi_drawn_capture **out_capture, struct rp_error *err)
{
    struct rpi_drawn_capture made = {.name = rpi_strdup(name),
                                     .blocks = rpi_calloc(count + 1, sizeof *made.blocks),
                                     .count = count};
    if (!made.name || !made.blocks || !rpi_vec_push(&drawing->captures, made)) {
        rpi_free(made.name);
        rpi_free(made.blocks);
        return no_memory(count * sizeof *made.blocks, err);
    }
    *out_capture = &drawing->captures.data[drawing->captures.count - 1];
    return RP_OK;
}

static rp_status add_record(struct rpi_drawing *drawing, const struct rpi_capture_record *record,
                            struct rp_error *err)
{
    struct rpi_drawn_capture *capture;
    rp_status status = add_capture(drawing, record->name, record->blocks.count, &capture, err);
    if (status != RP_OK)
        return status;
    capture->span = (double)record->events.count;
    for (size_t i = 0; i < record->blocks.count; i++) {
        const struct rpi_block *block = &record->blocks.data[i];
        bool kept = block->free_event == RPI_NO_EVENT;
        capture->blocks[i] =
            (struct rpi_drawn_block){.bytes = block->bytes,
                                     .first = block->alloc_event,
                                     .last = kept ? capture->span : block->free_event,
                                     .stream = block->stream,
                                     .kept = kept};
    }
    return RP_OK;
}

static rp_status add_intervals(struct rpi_drawing *drawing, const struct rpi_intervals *rows,
                               const char *name, struct rp_error *err)
{
    struct rpi_drawn_capture *capture;
    rp_status status = add_capture(drawing, name, rows->count, &capture, err);
    if (status != RP_OK)
        return status;
    double from = INFINITY, to = -INFINITY;
    for (uint32_t i = 0; i < rows->count; i++) {
        from = fmin(from, (double)rows->lower[i]);
        to = fmax(to, (double)rows->upper[i]);
    }
    capture->span = rows->count ? to - from : 0;
    capture->origin = rows->count ? from : 0;
    for (uint32_t i = 0; i < rows->count; i++)
        capture->blocks[i] = (struct rpi_drawn_block){.bytes = rows->bytes[i],
                                                      .first = (double)rows->lower[i] - from,
                                                      .last = (double)rows->upper[i] - from};
    return RP_OK;
}

/* Adds the parts, and the captures in their order. */
static rp_status add_parts(struct rpi_drawing *drawing, const struct rp_recording *recording,
                           const struct rpi_compose *compose, uint32_t depth, struct rp_error *err)
{
    struct rpi_drawn_part part = {compose->kind, depth, compose->capture, NULL};
    if (!rpi_vec_push(&drawing->parts, part))
        return no_memory(sizeof part, err);
    if (compose->kind == RPI_COMPOSE_CAPTURE)
        return add_record(drawing, &recording->captures.data[compose->capture], err);
    rp_status status = RP_OK;
    for (size_t i = 0; status == RP_OK && i < compose->child_count; i++)
        status = add_parts(drawing, recording, &compose->children[i], depth + 1, err);
    return status;
}

rp_status rpi_layout_describe(struct rpi_drawing *drawing, const struct rp_recording *recording,
                              const char *name, struct rp_error *err)
{
    drawing->title = rpi_strdup(name);
    if (!drawing->title)
        return no_memory(1, err);
    drawing->order = recording->csv ? "time" : "allocations and frees in host order";
    drawing->moment = recording->csv ? "time" : "event";
    if (recording->csv)
        return add_intervals(drawing, &recording->intervals, name, err);
    /* A lone capture needs no bracket. */
    const struct rpi_compose *whole = &recording->compose;
    while (whole->kind != RPI_COMPOSE_CAPTURE && whole->child_count == 1)
        whole = &whole->children[0];
    return add_parts(drawing, recording, whole, 0, err);
}

void rpi_layout_place(struct rp_layout *layout)
{
    struct rpi_drawing *drawing = &layout->drawing;
    size_t next = 0;
    drawing->alignment = layout->alignment;
    drawing->height = layout->info.pool_bytes;
    drawing->lower_bound = layout->info.lower_bound_bytes;
    for (size_t c = 0; c < drawing->captures.count; c++) {
        struct rpi_drawn_capture *drawn = &drawing->captures.data[c];
        uint32_t index = 0;
        while (next < drawing->parts.count && drawing->parts.data[next].kind != RPI_COMPOSE_CAPTURE)
            next++;
        if (next < drawing->parts.count)
            index = drawing->parts.data[next++].capture;
        const struct rpi_layout_capture *capture = &layout->captures[index];
        drawn->lower_bound = capture->info.lower_bound_bytes;
        for (size_t i = 0; i < drawn->count; i++)
            drawn->blocks[i].offset = capture->offsets[i];
    }
}
