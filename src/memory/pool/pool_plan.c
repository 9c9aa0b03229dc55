/* SPDX-License-Identifier: MIT */
#include "memory/pool/pool_plan.h"

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
        else if (m->held || (kind == RPI_COMPOSE_SEQUENCE && first && !m->released))
            done = rpi_ranges_append(&made.always, &m->kept);
        if (kind == RPI_COMPOSE_SEQUENCE && !first)
            done = done && rpi_ranges_append(&later, &m->all);
    }
    rpi_ranges_join(&made.always);
    rpi_ranges_join(&later);
    for (const struct rpi_pool_node *above = &group->node; above; above = above->parent)
        made.followed |= above->kind == RPI_COMPOSE_SEQUENCE;
    done = done && rpi_ranges_append_without(&made.later, &later, &made.always);
    rpi_vec_finish(&later);
    if (done) {
        assert(rpi_ranges_are_joined(&made.always) && rpi_ranges_are_joined(&made.later));
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

rp_status rpi_pool_obstacles_lead(struct rpi_pool_obstacles *obstacles, uint64_t bytes,
                                  struct rp_error *err)
{
    struct rpi_ranges later = {0};
    const struct rpi_range lead = {0, bytes};
    if (!bytes)
        return RP_OK;
    bool done = rpi_vec_push(&obstacles->always, lead);
    if (done) {
        rpi_ranges_join(&obstacles->always);
        done = rpi_ranges_append_without(&later, &obstacles->later, &obstacles->always);
    }
    if (!done) {
        rpi_vec_finish(&later);
        return rpi_error_host_memory(err, "rp_graph_capture", sizeof lead);
    }
    rpi_vec_finish(&obstacles->later);
    obstacles->later = later;
    return RP_OK;
}

void rpi_pool_obstacles_finish(struct rpi_pool_obstacles *obstacles)
{
    rpi_vec_finish(&obstacles->always);
    rpi_vec_finish(&obstacles->later);
}

static void lay_ranges(const struct rpi_ranges *ranges, uint32_t lane, uint32_t at,
                       struct rpi_lifetimes *x, uint64_t *fixed)
{
    assert(lane < x->lanes && at + ranges->count <= x->count);
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

void rpi_pool_lay_obstacles(const struct rpi_pool_obstacles *obstacles, uint32_t lane, uint32_t at,
                            struct rpi_lifetimes *x, uint64_t *fixed)
{
    lay_ranges(&obstacles->always, lane, at, x, fixed);
    lay_ranges(&obstacles->later, lane + 1, at + (uint32_t)obstacles->always.count, x, fixed);
}

/* ---- What is planned ------------------------------------------------------------------------ */

/* Share of the budget for the layout with a pile. */
#define PILED_SHARE 0.3

/* One call of the planner after another, on what is left of the budget. */
struct planning {
    const struct rpi_lifetimes *own;
    const bool *kept;
    const struct rpi_pool_obstacles *obstacles;
    struct rpi_ranges whole; /* all obstacles, joined */
    const struct rpi_plan_options *options;
    uint64_t start_ns;
    struct rpi_meter *meter;
    uint64_t end;    /* the meter's reading at which to stop */
    uint64_t *piled; /* [own->count]: the layout with the kept blocks in one pile, or NULL */
    uint64_t piled_height;
    bool piled_stopped;
};

/* A share of what is left. */
static struct rpi_plan_options share(const struct planning *p, double part, uint64_t capacity)
{
    assert(part > 0 && part <= 1);
    struct rpi_plan_options options = *p->options;
    options.meter = p->meter;
    options.budget_ms = rpi_meter_left_ms(p->meter, p->end) * part;
    options.capacity = capacity;
    return options;
}

static bool is_obstructed(const struct planning *p)
{
    return p->whole.count != 0;
}

/* Where nothing is in the way but one range from 0 on, no layout is lower than one on top of it. */
static bool is_solid(const struct planning *p)
{
    return !p->obstacles->later.count && p->whole.count == 1 && p->whole.data[0].from == 0;
}

/* The start of the lowest gap that is high enough; the last one, above all, always is. */
static uint64_t find_gap(const struct rpi_ranges *ranges, uint64_t height)
{
    assert(rpi_ranges_are_joined(ranges));
    uint64_t start = 0;
    for (size_t i = 0; i < ranges->count; i++) {
        if (ranges->data[i].from - start >= height)
            return start;
        start = ranges->data[i].to;
    }
    return start;
}

static uint64_t height_of(const struct rpi_lifetimes *own, const uint64_t *offsets)
{
    uint64_t height = 0;
    for (uint32_t i = 0; i < own->count; i++)
        if (height < offsets[i] + own->bytes[i])
            height = offsets[i] + own->bytes[i];
    return height;
}

/* ---- Block by block around the obstacles --------------------------------------------------- */

static void lay_own(const struct planning *p, const uint64_t *given, struct rpi_lifetimes *x,
                    uint64_t *fixed)
{
    assert(x->lanes == p->own->lanes + RPI_OBSTACLE_LANES);
    const struct rpi_lifetimes *own = p->own;
    for (uint32_t i = 0; i < own->count; i++) {
        uint32_t *first = x->first + (size_t)i * x->lanes;
        x->bytes[i] = own->bytes[i];
        x->lane[i] = own->lane[i];
        x->rank[i] = own->rank[i];
        x->block[i] = i;
        memcpy(first, own->first + (size_t)i * own->lanes, own->lanes * sizeof *first);
        rpi_pool_order_obstacles(first + own->lanes, p->kept[i]);
        fixed[i] = given ? given[i] : RPI_UNPLACED;
    }
}

/* given: offsets of the capture's own blocks that are fixed, or NULL. */
static rp_status plan_around(const struct planning *p, const uint64_t *given,
                             struct rpi_plan_options options, uint64_t *out_offsets,
                             uint64_t *out_height, bool *out_stopped, struct rp_error *err)
{
    const struct rpi_lifetimes *own = p->own;
    const struct rpi_pool_obstacles *obstacles = p->obstacles;
    size_t count = own->count + obstacles->always.count + obstacles->later.count;
    *out_height = UINT64_MAX;
    *out_stopped = false;
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
        status = rpi_lifetimes_init(&x, (uint32_t)count, own->lanes + RPI_OBSTACLE_LANES, err);
    if (status == RP_OK) {
        options.fixed = fixed;
        lay_own(p, given, &x, fixed);
        rpi_pool_lay_obstacles(obstacles, own->lanes, own->count, &x, fixed);
        status = rpi_plan(&x, &options, offsets, &result, err);
    }
    if (status == RP_OK) {
        memcpy(out_offsets, offsets, own->count * sizeof *offsets);
        *out_height = height_of(own, offsets);
        *out_stopped = result.stopped;
    }
    rpi_lifetimes_finish(&x);
    rpi_free(fixed);
    rpi_free(offsets);
    return status;
}

/* ---- With the kept blocks in one pile ------------------------------------------------------- */

/* Offsets above `base` of kept blocks, one on top of the other in the order of their allocation: so
 * what lies above those allocated so far is in one piece for the others. */
static void lay_pile(const struct planning *p, uint64_t base, uint64_t *out_fixed)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->own->count; i++)
        bytes += p->kept[i] ? p->own->bytes[i] : 0;
    uint64_t at = find_gap(&p->whole, bytes) - base;
    for (uint32_t i = 0; i < p->own->count; i++) {
        out_fixed[i] = p->kept[i] ? at : RPI_UNPLACED;
        at += p->kept[i] ? p->own->bytes[i] : 0;
    }
}

/* Stops at a height of `enough`. */
static rp_status plan_piled(struct planning *p, uint64_t enough, struct rp_error *err)
{
    assert(!p->piled);
    bool apart = is_obstructed(p) && !is_solid(p);
    uint64_t base = apart ? 0 : rpi_ranges_top(&p->whole);
    size_t bytes = p->own->count * sizeof *p->piled;
    uint64_t *fixed = rpi_malloc(bytes);
    p->piled = rpi_malloc(bytes);
    if (!fixed || !p->piled) {
        rpi_free(fixed);
        return rpi_error_host_memory(err, "rp_graph_capture", bytes);
    }
    struct rpi_plan_options options = share(p, PILED_SHARE, enough - base);
    struct rpi_plan_result result;
    rp_status status;
    lay_pile(p, base, fixed);
    if (apart) {
        status = plan_around(p, fixed, options, p->piled, &p->piled_height, &p->piled_stopped, err);
    } else {
        options.fixed = fixed;
        status = rpi_plan(p->own, &options, p->piled, &result, err);
        for (uint32_t i = 0; status == RP_OK && i < p->own->count; i++)
            p->piled[i] += base;
        p->piled_height = base + result.height;
        p->piled_stopped = !status && result.stopped;
    }
    rpi_free(fixed);
    return status;
}

/* ---- Loosely: wherever it is lowest --------------------------------------------------------- */

/* The capture planned alone, in the lowest gap that holds it whole; where that makes the pool
 * higher, block by block around the obstacles too. */
static rp_status plan_loosely(const struct planning *p, uint64_t *out_offsets,
                              struct rpi_plan_result *out_result, struct rp_error *err)
{
    const struct rpi_lifetimes *own = p->own;
    bool apart = is_obstructed(p) && !is_solid(p);
    struct rpi_plan_options options = share(p, apart ? 0.5 : 1, 0);
    rp_status status = rpi_plan(own, &options, out_offsets, out_result, err);
    if (status != RP_OK || !is_obstructed(p))
        return status;
    uint64_t top = rpi_ranges_top(&p->whole), base = find_gap(&p->whole, out_result->height);
    uint64_t height;
    bool stopped;
    for (uint32_t i = 0; i < own->count; i++)
        out_offsets[i] += base;
    out_result->height += base;
    out_result->proof = RPI_PROOF_NONE;
    if (out_result->height <= top)
        out_result->stopped = false; /* the pool gets no higher by it */
    if (out_result->height <= top || !apart)
        return RP_OK;
    uint64_t *offsets = rpi_reallocarray(NULL, own->count, sizeof *offsets);
    if (!offsets)
        return rpi_error_host_memory(err, "rp_graph_capture", own->count * sizeof *offsets);
    status = plan_around(p, NULL, share(p, 1, top), offsets, &height, &stopped, err);
    if (status == RP_OK)
        out_result->stopped = stopped;
    if (status == RP_OK && height < out_result->height) {
        memcpy(out_offsets, offsets, own->count * sizeof *offsets);
        out_result->height = height;
    }
    rpi_free(offsets);
    return status;
}

/* ---- Which of the two ----------------------------------------------------------------------- */

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void take_piled(const struct planning *p, uint64_t *out_offsets,
                       struct rpi_plan_result *out_result)
{
    assert(p->piled && p->piled_height != UINT64_MAX);
    memcpy(out_offsets, p->piled, p->own->count * sizeof *out_offsets);
    if (out_result->height != p->piled_height)
        out_result->proof = RPI_PROOF_NONE;
    if (out_result->height != p->piled_height)
        out_result->stopped = p->piled_stopped;
    out_result->height = p->piled_height;
}

/* Piled where that makes the pool no higher than loosely. */
static rp_status choose(struct planning *p, uint64_t *out_offsets,
                        struct rpi_plan_result *out_result, struct rp_error *err)
{
    uint64_t top = rpi_ranges_top(&p->whole), bound = 0;
    rp_status status = rpi_bound(p->own, &bound, NULL, NULL, err);
    uint64_t enough = most(top, bound + (is_solid(p) ? top : 0));
    if (status == RP_OK)
        status = plan_piled(p, enough, err);
    if (status != RP_OK)
        return status;
    *out_result = (struct rpi_plan_result){.lower_bound = bound};
    if (p->piled_height > enough)
        status = plan_loosely(p, out_offsets, out_result, err);
    if (status == RP_OK && p->piled_height <= most(enough, out_result->height))
        take_piled(p, out_offsets, out_result);
    return status;
}

static rp_status join_obstacles(const struct rpi_pool_obstacles *obstacles,
                                struct rpi_ranges *out_whole, struct rp_error *err)
{
    struct rpi_pool_obstacles whole = {0};
    rp_status status = RP_OK;
    if (!rpi_ranges_append(&whole.always, &obstacles->always) ||
        !rpi_ranges_append(&whole.later, &obstacles->later))
        status = rpi_error_host_memory(err, "rp_graph_capture", sizeof(struct rpi_range));
    if (status == RP_OK)
        status = rpi_pool_obstacles_widen(&whole, err);
    if (status == RP_OK) {
        *out_whole = whole.always;
        whole.always = (struct rpi_ranges){0};
    }
    rpi_pool_obstacles_finish(&whole);
    return status;
}

static bool any_kept(const bool *kept, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (kept[i])
            return true;
    return false;
}

rp_status rpi_pool_plan(const struct rpi_lifetimes *lifetimes, const bool *kept,
                        const struct rpi_pool_obstacles *obstacles,
                        const struct rpi_plan_options *options, uint64_t *out_offsets,
                        struct rpi_plan_result *out_result, struct rp_error *err)
{
    assert(!options->fixed && !options->capacity && lifetimes->count);
    struct rpi_meter own = rpi_meter_start(options->timed);
    struct planning p = {.own = lifetimes,
                         .kept = kept,
                         .obstacles = obstacles,
                         .options = options,
                         .start_ns = rpi_clock_ns(),
                         .meter = options->meter ? options->meter : &own};
    p.end = rpi_meter_end(p.meter, options->budget_ms);
    struct rpi_plan_result result;
    bool pile = obstacles->followed && any_kept(kept, lifetimes->count);
    rp_status status = join_obstacles(obstacles, &p.whole, err);
    if (status == RP_OK)
        status = pile ? choose(&p, out_offsets, &result, err)
                      : plan_loosely(&p, out_offsets, &result, err);
    rpi_vec_finish(&p.whole);
    rpi_free(p.piled);
    if (status != RP_OK)
        return status;
    if (result.height == result.lower_bound)
        result.proof = RPI_PROOF_BOUND;
    result.stopped = result.stopped && result.proof == RPI_PROOF_NONE;
    result.ms = rpi_ms_since(p.start_ns);
    *out_result = result;
    return RP_OK;
}
