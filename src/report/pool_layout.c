/* SPDX-License-Identifier: MIT
 *
 * The layout of a pool with graphs in it, as JSON and drawn. Everything is copied with the pool's
 * lock held, and written without it.
 */
#include "base/outfile.h"
#include "base/text.h"
#include "graph/objects/objects.h"
#include "recording/drawing.h"
#include "report/layout_svg.h"

#include "base/hostmem.h"
#include "base/refuse.h"

#include <inttypes.h>

struct picture {
    struct rpi_drawing drawing;
    uint64_t mapped;
};

static const struct rp_graph *graph_of(const struct rpi_pool_node *node)
{
    return (const struct rp_graph *)((const char *)node - offsetof(struct rp_graph, member.node));
}

static const struct rp_pool *pool_of(const struct rpi_pool_node *node)
{
    return (const struct rp_pool *)((const char *)node - offsetof(struct rp_pool, group.node));
}

/* ---- Copying ------------------------------------------------------------------------------- */

static bool add_graph(struct rpi_drawing *drawing, const struct rp_graph *graph)
{
    struct rpi_drawn_capture made = {.name = rpi_strdup(graph->name),
                                     .blocks =
                                         rpi_calloc(graph->block_count + 1, sizeof *made.blocks),
                                     .count = graph->block_count,
                                     .span = graph->events,
                                     .lower_bound = graph->member.lower_bound};
    if (!made.name || !made.blocks || !rpi_vec_push(&drawing->captures, made)) {
        rpi_free(made.name);
        rpi_free(made.blocks);
        return false;
    }
    for (size_t i = 0; i < made.count; i++) {
        const struct rpi_graph_block *block = &graph->blocks[i];
        made.blocks[i] = (struct rpi_drawn_block){.offset = block->offset,
                                                  .bytes = block->bytes,
                                                  .first = block->first,
                                                  .last = block->last,
                                                  .stream = block->stream,
                                                  .kept = block->kept};
    }
    return true;
}

static bool add_node(struct rpi_drawing *drawing, const struct rpi_pool_node *node, uint32_t depth)
{
    struct rpi_drawn_part part = {node->kind, depth, (uint32_t)drawing->captures.count, NULL};
    if (node->kind == RPI_COMPOSE_CAPTURE)
        return rpi_vec_push(&drawing->parts, part) && add_graph(drawing, graph_of(node));
    part.name = rpi_strdup(pool_of(node)->name);
    if (!part.name || !rpi_vec_push(&drawing->parts, part)) {
        rpi_free(part.name);
        return false;
    }
    for (const struct rpi_pool_node *child = node->first; child; child = child->next)
        if (!add_node(drawing, child, depth + 1))
            return false;
    return true;
}

static rp_status take_picture(const struct rp_pool *pool, const char *function,
                              struct picture *out_picture, struct rp_error *err)
{
    if (!pool)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function, "pool is NULL");
    const struct rpi_pool_node *top = &pool->group.node;
    struct picture made = {.drawing.order = "allocations and frees in host order",
                           .drawing.moment = "event"};
    made.drawing.title = rpi_strdup(pool->name);
    pthread_mutex_lock(&pool->core->lock);
    made.mapped = rpi_pool_held(&pool->core->memory);
    made.drawing.alignment = pool->core->memory.alignment;
    made.drawing.height = rpi_pool_height(top);
    made.drawing.lower_bound = rpi_pool_lower_bound(&pool->core->memory, top);
    bool done = made.drawing.title && add_node(&made.drawing, top, 0);
    pthread_mutex_unlock(&pool->core->lock);
    rp_status status = done ? rpi_drawing_find_peaks(&made.drawing, made.drawing.alignment, err)
                            : rpi_error_host_memory(err, function, sizeof(struct rpi_drawn_block));
    if (status == RP_OK)
        *out_picture = made;
    else
        rpi_drawing_finish(&made.drawing);
    return status;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void write_graph(FILE *out, const struct rpi_drawn_capture *capture)
{
    fputs("{\"graph\":", out);
    rpi_text_json(out, capture->name);
    fprintf(out, ",\"lower_bound_bytes\":%" PRIu64 ",\"positions\":%.0f,\"blocks\":[",
            capture->lower_bound, capture->span);
    for (size_t i = 0; i < capture->count; i++) {
        const struct rpi_drawn_block *block = &capture->blocks[i];
        fprintf(out,
                "%s\n{\"offset\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"first\":%.0f,\"last\":%.0f,"
                "\"stream\":%u,\"kept\":%s}",
                i ? "," : "", block->offset, block->bytes, block->first, block->last, block->stream,
                block->kept ? "true" : "false");
    }
    fputs("]}", out);
}

static void write_parts(FILE *out, const struct rpi_drawing *drawing)
{
    static const char *const kinds[] = {[RPI_COMPOSE_ALTERNATIVES] = "alternatives",
                                        [RPI_COMPOSE_SEQUENCE] = "sequence",
                                        [RPI_COMPOSE_CONCURRENT] = "concurrent"};
    const struct rpi_drawn_part *parts = drawing->parts.data;
    uint32_t open = 0; /* groups that are not closed yet */
    for (size_t i = 0; i < drawing->parts.count; i++) {
        bool first = i == 0 || parts[i].depth > parts[i - 1].depth;
        for (; open > parts[i].depth; open--)
            fputs("]}", out);
        fputs(first ? "\n" : ",\n", out);
        if (parts[i].kind == RPI_COMPOSE_CAPTURE) {
            write_graph(out, &drawing->captures.data[parts[i].capture]);
            continue;
        }
        fputs("{\"pool\":", out);
        rpi_text_json(out, parts[i].name);
        fprintf(out, ",\"kind\":\"%s\",\"parts\":[", kinds[parts[i].kind]);
        open++;
    }
    for (; open > 0; open--)
        fputs("]}", out);
}

static void write_json(FILE *out, const void *user)
{
    const struct picture *picture = user;
    const struct rpi_drawing *drawing = &picture->drawing;
    fprintf(out,
            "{\"format\":\"reprise-pool/1\",\"alignment\":%" PRIu64 ",\"planned_bytes\":%" PRIu64
            ",\"mapped_bytes\":%" PRIu64 ",\"lower_bound_bytes\":%" PRIu64 ",\"layout\":",
            drawing->alignment, drawing->height, picture->mapped, drawing->lower_bound);
    write_parts(out, drawing);
    fputs("}\n", out);
}

static void write_svg(FILE *out, const void *user)
{
    const struct picture *picture = user;
    rpi_layout_svg_write(out, &picture->drawing);
}

rp_status rp_pool_write(const struct rp_pool *pool, const char *path, struct rp_error *err)
{
    if (rpi_is_forked() || !pool || !path)
        return rpi_refuse(err, "rp_pool_write", !pool ? "pool" : "path");
    struct picture picture;
    rp_status status = take_picture(pool, "rp_pool_write", &picture, err);
    if (status != RP_OK)
        return status;
    status = rpi_output_file(path, "rp_pool_write", write_json, &picture, err);
    rpi_drawing_finish(&picture.drawing);
    return status;
}

rp_status rp_pool_draw(const struct rp_pool *pool, const char *path, struct rp_error *err)
{
    if (rpi_is_forked() || !pool || !path)
        return rpi_refuse(err, "rp_pool_draw", !pool ? "pool" : "path");
    struct picture picture;
    rp_status status = take_picture(pool, "rp_pool_draw", &picture, err);
    if (status != RP_OK)
        return status;
    status = rpi_output_file(path, "rp_pool_draw", write_svg, &picture, err);
    rpi_drawing_finish(&picture.drawing);
    return status;
}
