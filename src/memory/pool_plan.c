/* SPDX-License-Identifier: MIT */
#include "memory/pool_plan.h"

#include "base/clock.h"
#include "base/hostmem.h"

#include <assert.h>
#include <string.h>

/* ---- Obstacles ----------------------------------------------------------------------------- */

rp_status rpi_pool_obstacles(const struct rpi_pool *pool, const struct rpi_pool_group *group,
                             struct rpi_pool_obstacles *out_obstacles, struct rp_error *err)
{
    /* Stands where the new member will: behind all that the group has. */
    const struct rpi_pool_node added = {.kind = RPI_COMPOSE_CAPTURE,
                                        .parent = (struct rpi_pool_node *)&group->node,
                                        .depth = group->node.depth + 1,
                                        .place = UINT64_MAX};
    const struct rpi_pool_node *top = &pool->root->node;
    struct rpi_pool_obstacles made = {0};
    struct rpi_ranges later = {0};
    bool done = true;
    for (const struct rpi_pool_member *m = rpi_pool_next(top, NULL); done && m;
         m = rpi_pool_next(top, m)) {
        bool first;
        enum rpi_compose_kind kind = rpi_pool_relation(&m->node, &added, &first);
        if (kind == RPI_COMPOSE_CONCURRENT)
            done = rpi_ranges_append(&made.always, &m->all);
        else if (kind == RPI_COMPOSE_SEQUENCE && first)
            done = rpi_ranges_append(&made.always, &m->kept);
        else if (kind == RPI_COMPOSE_SEQUENCE)
            done = rpi_ranges_append(&later, &m->all);
    }
    rpi_ranges_join(&made.always);
    rpi_ranges_join(&later);
    done = done && rpi_ranges_append_without(&made.later, &later, &made.always);
    rpi_vec_finish(&later);
    if (done) {
        *out_obstacles = made;
        return RP_OK;
    }
    rpi_pool_obstacles_finish(&made);
    return rpi_error_host_memory(err, "rp_graph_capture", sizeof(struct rpi_range));
}

rp_status rpi_pool_obstacles_widen(struct rpi_pool_obstacles *obstacles, struct rp_error *err)
{
    if (!rpi_ranges_append(&obstacles->always, &obstacles->later))
        return rpi_error_host_memory(err, "rp_graph_capture", sizeof(struct rpi_range));
    rpi_ranges_join(&obstacles->always);
    obstacles->later.count = 0;
    return RP_OK;
}

void rpi_pool_obstacles_finish(struct rpi_pool_obstacles *obstacles)
{
    rpi_vec_finish(&obstacles->always);
    rpi_vec_finish(&obstacles->later);
}

/* ---- The capture whole --------------------------------------------------------------------- */

/* The start of the lowest gap that is high enough; the last one, above all, always is. */
static uint64_t find_gap(const struct rpi_ranges *ranges, uint64_t height)
{
    uint64_t start = 0;
    for (size_t i = 0; i < ranges->count; i++) {
        if (ranges->data[i].from - start >= height)
            return start;
        start = ranges->data[i].to;
    }
    return start;
}

/* ---- Block by block around the obstacles --------------------------------------------------- */

/* Lanes behind the capture's own: obstacles that are in the way always, after nothing and before
 * nothing, and later ones, after every block that is freed. */
enum { OBSTACLE_LANES = 2 };

static void lay_own(const struct rpi_lifetimes *own, const bool *kept, struct rpi_lifetimes *x,
                    uint64_t *fixed)
{
    for (uint32_t i = 0; i < own->count; i++) {
        uint32_t *first = x->first + (size_t)i * x->lanes;
        x->bytes[i] = own->bytes[i];
        x->lane[i] = own->lane[i];
        x->rank[i] = own->rank[i];
        x->block[i] = i;
        memcpy(first, own->first + (size_t)i * own->lanes, own->lanes * sizeof *first);
        first[own->lanes] = RPI_NEVER;
        first[own->lanes + 1] = kept[i] ? RPI_NEVER : 0;
        fixed[i] = RPI_UNPLACED;
    }
}

static void lay_obstacles(const struct rpi_ranges *ranges, uint32_t lane, uint32_t at,
                          struct rpi_lifetimes *x, uint64_t *fixed)
{
    for (size_t i = 0; i < ranges->count; i++, at++) {
        x->bytes[at] = ranges->data[i].to - ranges->data[i].from;
        x->lane[at] = lane;
        x->rank[at] = (uint32_t)i;
        x->block[at] = at;
        fixed[at] = ranges->data[i].from;
        for (uint32_t l = 0; l < x->lanes; l++)
            x->first[(size_t)at * x->lanes + l] = RPI_NEVER;
    }
}

/* out_offsets and the result's height are written only where this is below `height`. */
static rp_status plan_around(const struct rpi_lifetimes *own, const bool *kept,
                             const struct rpi_pool_obstacles *obstacles,
                             const struct rpi_plan_options *given, uint64_t *out_offsets,
                             uint64_t *io_height, struct rp_error *err)
{
    size_t always = obstacles->always.count, count = own->count + always + obstacles->later.count;
    if (count >= RPI_NEVER)
        return RP_OK;
    struct rpi_lifetimes x = {0};
    struct rpi_plan_result result;
    uint64_t *fixed = rpi_reallocarray(NULL, count, sizeof *fixed);
    uint64_t *offsets = rpi_reallocarray(NULL, count, sizeof *offsets);
    rp_status status = fixed && offsets
                           ? RP_OK
                           : rpi_error_host_memory(err, "rp_graph_capture", count * sizeof *fixed);
    if (status == RP_OK)
        status = rpi_lifetimes_init(&x, (uint32_t)count, own->lanes + OBSTACLE_LANES, err);
    if (status == RP_OK) {
        struct rpi_plan_options options = *given;
        options.fixed = fixed;
        lay_own(own, kept, &x, fixed);
        lay_obstacles(&obstacles->always, own->lanes, own->count, &x, fixed);
        lay_obstacles(&obstacles->later, own->lanes + 1, own->count + (uint32_t)always, &x, fixed);
        status = rpi_plan(&x, &options, offsets, &result, err);
    }
    uint64_t height = 0;
    for (uint32_t i = 0; status == RP_OK && i < own->count; i++)
        if (height < offsets[i] + own->bytes[i])
            height = offsets[i] + own->bytes[i];
    if (status == RP_OK && height < *io_height) {
        memcpy(out_offsets, offsets, own->count * sizeof *offsets);
        *io_height = height;
    }
    rpi_lifetimes_finish(&x);
    rpi_free(fixed);
    rpi_free(offsets);
    return status;
}

/* Where nothing is in the way but one range from 0 on, no layout is lower than one on top of it. */
static bool is_solid(const struct rpi_pool_obstacles *obstacles)
{
    return !obstacles->later.count && obstacles->always.count == 1 &&
           obstacles->always.data[0].from == 0;
}

rp_status rpi_pool_plan(const struct rpi_lifetimes *lifetimes, const bool *kept,
                        const struct rpi_pool_obstacles *obstacles,
                        const struct rpi_plan_options *options, uint64_t *out_offsets,
                        struct rpi_plan_result *out_result, struct rp_error *err)
{
    assert(!options->fixed && !options->capacity && lifetimes->count);
    uint64_t start = rpi_clock_ns();
    bool obstructed = obstacles->always.count || obstacles->later.count;
    struct rpi_plan_options half = *options;
    if (obstructed && !is_solid(obstacles))
        half.budget_ms /= 2;
    struct rpi_plan_result result;
    rp_status status = rpi_plan(lifetimes, &half, out_offsets, &result, err);
    if (status != RP_OK || !obstructed) {
        if (status == RP_OK)
            *out_result = result;
        return status;
    }
    struct rpi_pool_obstacles whole = {0};
    if (!rpi_ranges_append(&whole.always, &obstacles->always) ||
        !rpi_ranges_append(&whole.later, &obstacles->later))
        status = rpi_error_host_memory(err, "rp_graph_capture", sizeof(struct rpi_range));
    if (status == RP_OK)
        status = rpi_pool_obstacles_widen(&whole, err);
    if (status == RP_OK) {
        uint64_t top = rpi_ranges_top(&whole.always), base = find_gap(&whole.always, result.height);
        for (uint32_t i = 0; i < lifetimes->count; i++)
            out_offsets[i] += base;
        result.height += base;
        half.capacity = top;
        half.budget_ms = options->budget_ms - rpi_ms_since(start);
        if (result.height > top && !is_solid(obstacles))
            status =
                plan_around(lifetimes, kept, obstacles, &half, out_offsets, &result.height, err);
    }
    rpi_pool_obstacles_finish(&whole);
    if (status != RP_OK)
        return status;
    result.proof = result.height == result.lower_bound ? RPI_PROOF_BOUND : RPI_PROOF_NONE;
    result.ms = rpi_ms_since(start);
    *out_result = result;
    return RP_OK;
}
