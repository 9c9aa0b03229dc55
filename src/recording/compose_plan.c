/* SPDX-License-Identifier: MIT
 *
 * Planning compositions; compose_plan.h has the method. The tree is walked as a flat array of nodes
 * with parents, so that the relation of two captures is found by climbing to where they meet.
 */
#include "recording/compose_plan.h"

#include "base/clock.h"
#include "base/hostmem.h"
#include "memory/pool/compose_sum.h"
#include "memory/pool/pool_plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct node {
    enum rpi_compose_kind kind;
    uint32_t capture;
    uint32_t parent, depth;
    uint32_t first_child, next; /* NONE at the end; siblings in their order */
    uint32_t chosen;            /* of alternatives: the heaviest child */
    uint32_t problems;          /* at most so many calls of the planner */
    struct rpi_compose_sum sum;
};

/* A capture in a problem of several: its lanes begin at `lane`. */
struct member {
    uint32_t capture, lane;
    uint32_t *start; /* [lanes of the capture]: rank of its first allocation on each lane */
};

/* Where a placed capture lies, joined: all of its blocks, and those that it never frees. */
struct footprint {
    bool made;
    struct rpi_ranges all, kept;
};

struct planner {
    struct rpi_part *parts;
    struct footprint *footprints; /* [captures]: made when first asked for */
    struct {
        RPI_VEC(struct node);
    } nodes;
    uint32_t *leaf; /* [captures]: its node */
    bool *placed;   /* [captures] */
    const struct rpi_plan_options *options;
    uint64_t start_ns;
    struct rpi_meter *meter;
    uint64_t end; /* the meter's reading at which to stop */
    uint32_t problems_left;
    bool stopped;     /* by the budget, in a problem that might have been laid lower */
    bool impossible;  /* a problem that the whole contains does not fit the capacity */
    uint64_t optimum; /* highest proved least height of such a problem */
    struct rp_error *err;
};

static rp_status no_memory(const struct planner *p, size_t bytes)
{
    rpi_error_host_memory(p->err, "plan", bytes);
    return RP_ERROR_OUT_OF_HOST_MEMORY;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- The tree ------------------------------------------------------------------------------ */

/* Bound, kept bytes and number of problems of a node whose children are done. */
static void sum_up(struct planner *p, uint32_t index)
{
    struct node *node = &p->nodes.data[index];
    if (node->kind == RPI_COMPOSE_CAPTURE) {
        const struct rpi_part *part = &p->parts[node->capture];
        node->sum = (struct rpi_compose_sum){part->bound, part->kept_bytes};
        node->problems = 1;
        return;
    }
    node->chosen = node->first_child;
    for (uint32_t c = node->first_child; c != NONE; c = p->nodes.data[c].next) {
        const struct node *child = &p->nodes.data[c];
        node->problems += child->problems;
        rpi_compose_sum_add(&node->sum, node->kind, child->sum);
        if (child->sum.bound > p->nodes.data[node->chosen].sum.bound)
            node->chosen = c;
    }
}

static rp_status add_tree(struct planner *p, const struct rpi_compose *compose, uint32_t parent,
                          uint32_t depth, uint32_t *out_index)
{
    struct node added = {.kind = compose->kind,
                         .capture = compose->capture,
                         .parent = parent,
                         .depth = depth,
                         .first_child = NONE,
                         .next = NONE};
    uint32_t index = (uint32_t)p->nodes.count, last = NONE;
    if (!rpi_vec_push(&p->nodes, added))
        return no_memory(p, sizeof added);
    if (compose->kind == RPI_COMPOSE_CAPTURE)
        p->leaf[compose->capture] = index;
    for (size_t i = 0; i < compose->child_count; i++) {
        uint32_t child;
        rp_status status = add_tree(p, &compose->children[i], index, depth + 1, &child);
        if (status != RP_OK)
            return status;
        if (last == NONE)
            p->nodes.data[index].first_child = child;
        else
            p->nodes.data[last].next = child;
        last = child;
    }
    sum_up(p, index);
    *out_index = index;
    return RP_OK;
}

/* How captures a and b relate; *out_first: a comes first in its sequence. */
static enum rpi_compose_kind relation(const struct planner *p, uint32_t a, uint32_t b,
                                      bool *out_first)
{
    const struct node *nodes = p->nodes.data;
    uint32_t x = p->leaf[a], y = p->leaf[b];
    while (nodes[x].parent != nodes[y].parent) {
        if (nodes[x].depth >= nodes[y].depth)
            x = nodes[x].parent;
        else
            y = nodes[y].parent;
    }
    *out_first = x < y; /* siblings were added in their order */
    return nodes[nodes[x].parent].kind;
}

/* a's blocks, where freed, come before all of b's. */
static bool comes_before(const struct planner *p, uint32_t a, uint32_t b)
{
    bool first = false;
    return a != b && relation(p, a, b, &first) == RPI_COMPOSE_SEQUENCE && first;
}

/* ---- What is in the way -------------------------------------------------------------------- */

static bool add_blocks(struct rpi_ranges *ranges, const struct rpi_part *part, bool only_kept)
{
    for (uint32_t i = 0; i < part->lifetimes.count; i++) {
        struct rpi_range range = {part->offsets[i], part->offsets[i] + part->lifetimes.bytes[i]};
        if ((!only_kept || part->kept[i]) && !rpi_vec_push(ranges, range))
            return false;
    }
    rpi_ranges_join(ranges);
    return true;
}

/* Adds where a placed capture lies to ranges. */
static bool add_footprint(struct planner *p, uint32_t capture, bool only_kept,
                          struct rpi_ranges *ranges)
{
    struct footprint *footprint = &p->footprints[capture];
    if (!footprint->made && (!add_blocks(&footprint->all, &p->parts[capture], false) ||
                             !add_blocks(&footprint->kept, &p->parts[capture], true)))
        return false;
    footprint->made = true;
    return rpi_ranges_append(ranges, only_kept ? &footprint->kept : &footprint->all);
}

/* What is placed under `top` and in the way of `capture`: of everything it has, or (later) of its
 * kept blocks only. The two do not overlap. */
static rp_status find_obstacles(struct planner *p, size_t part_count, uint32_t top,
                                uint32_t capture, struct rpi_pool_obstacles *obstacles)
{
    struct rpi_ranges after = {0}, *always = &obstacles->always;
    bool done = true;
    for (uint32_t other = 0; done && other < part_count; other++) {
        bool first = false;
        if (!p->placed[other] || other == capture)
            continue;
        uint32_t at = p->leaf[other];
        while (p->nodes.data[at].depth > p->nodes.data[top].depth)
            at = p->nodes.data[at].parent;
        enum rpi_compose_kind kind = relation(p, other, capture, &first);
        if (at != top || kind == RPI_COMPOSE_ALTERNATIVES)
            continue;
        if (kind == RPI_COMPOSE_SEQUENCE && !first)
            done = add_footprint(p, other, false, &after);
        else
            done = add_footprint(p, other, kind == RPI_COMPOSE_SEQUENCE, always);
    }
    rpi_ranges_join(always);
    rpi_ranges_join(&after);
    done = done && rpi_ranges_append_without(&obstacles->later, &after, always);
    rpi_vec_finish(&after);
    return done ? RP_OK : no_memory(p, sizeof(struct rpi_range));
}

/* ---- One problem --------------------------------------------------------------------------- */

struct problem {
    struct {
        RPI_VEC(struct member);
    } members;
    uint32_t lanes; /* of the members */
    struct rpi_pool_obstacles obstacles;
};

static void problem_finish(struct problem *problem)
{
    for (size_t i = 0; i < problem->members.count; i++)
        rpi_free(problem->members.data[i].start);
    rpi_vec_finish(&problem->members);
    rpi_pool_obstacles_finish(&problem->obstacles);
}

/* Adds the captures below a node, the heaviest of alternatives. Parts of a sequence use the same
 * lanes one after the other, concurrent ones use lanes of their own. */
static rp_status add_members(const struct planner *p, uint32_t index, uint32_t lane,
                             struct problem *problem, uint32_t *out_lanes)
{
    const struct node *node = &p->nodes.data[index];
    if (node->kind == RPI_COMPOSE_CAPTURE) {
        uint32_t lanes = p->parts[node->capture].lifetimes.lanes;
        struct member member = {node->capture, lane, rpi_calloc(lanes, sizeof *member.start)};
        *out_lanes = lanes;
        if (member.start && rpi_vec_push(&problem->members, member))
            return RP_OK;
        rpi_free(member.start);
        return no_memory(p, lanes * sizeof *member.start);
    }
    if (node->kind == RPI_COMPOSE_ALTERNATIVES)
        return add_members(p, node->chosen, lane, problem, out_lanes);
    uint32_t widest = 0, sum = 0;
    for (uint32_t c = node->first_child; c != NONE; c = p->nodes.data[c].next) {
        uint32_t lanes;
        bool apart = node->kind == RPI_COMPOSE_CONCURRENT;
        rp_status status = add_members(p, c, lane + (apart ? sum : 0), problem, &lanes);
        if (status != RP_OK)
            return status;
        sum += lanes;
        widest = (uint32_t)most(widest, lanes);
    }
    *out_lanes = node->kind == RPI_COMPOSE_CONCURRENT ? sum : widest;
    return RP_OK;
}

/* Lays a member's blocks on the problem's lanes, behind what is there. next[l] is how many
 * allocations lane l has. */
static void lay_member(const struct planner *p, struct member *member, struct rpi_lifetimes *x,
                       uint32_t at, uint32_t *next)
{
    const struct rpi_lifetimes *own = &p->parts[member->capture].lifetimes;
    memcpy(member->start, next + member->lane, own->lanes * sizeof *next);
    for (uint32_t i = 0; i < own->count; i++) {
        uint32_t lane = member->lane + own->lane[i];
        x->bytes[at + i] = own->bytes[i];
        x->lane[at + i] = lane;
        x->rank[at + i] = next[lane]++;
        x->block[at + i] = i;
    }
}

/* For each lane, the first rank of a capture that comes after the member's. */
static void find_later(const struct planner *p, const struct problem *problem, size_t member,
                       const uint32_t *lane_count, uint32_t *out_later)
{
    for (uint32_t l = 0; l < problem->lanes; l++)
        out_later[l] = RPI_NEVER;
    for (size_t m = member + 1; m < problem->members.count; m++) {
        const struct member *other = &problem->members.data[m];
        if (!comes_before(p, problem->members.data[member].capture, other->capture))
            continue;
        uint32_t lanes = p->parts[other->capture].lifetimes.lanes;
        for (uint32_t l = 0; l < lanes; l++)
            if (out_later[other->lane + l] == RPI_NEVER &&
                other->start[l] < lane_count[other->lane + l])
                out_later[other->lane + l] = other->start[l];
    }
}

/* first[] of a member's blocks: within its own capture as there, then all that comes after it. */
static void order_member(const struct planner *p, const struct problem *problem, size_t index,
                         const uint32_t *later, struct rpi_lifetimes *x, uint32_t at)
{
    const struct member *member = &problem->members.data[index];
    const struct rpi_part *part = &p->parts[member->capture];
    uint32_t own_lanes = part->lifetimes.lanes;
    for (uint32_t i = 0; i < part->lifetimes.count; i++) {
        uint32_t *first = x->first + (size_t)(at + i) * x->lanes;
        for (uint32_t l = 0; l < x->lanes; l++)
            first[l] = part->kept[i] ? RPI_NEVER : later[l];
        for (uint32_t l = 0; l < own_lanes; l++) {
            uint32_t own = part->lifetimes.first[(size_t)i * own_lanes + l];
            if (own != RPI_NEVER)
                first[member->lane + l] = member->start[l] + own;
        }
    }
}

/* scratch has room for two numbers a lane, all 0. fixed is NULL without obstacles. */
static void fill_problem(const struct planner *p, struct problem *problem, struct rpi_lifetimes *x,
                         uint64_t *fixed, uint32_t *scratch)
{
    uint32_t *next = scratch, *later = scratch + x->lanes, at = 0;
    for (size_t m = 0; m < problem->members.count; m++) {
        struct member *member = &problem->members.data[m];
        lay_member(p, member, x, at, next);
        at += p->parts[member->capture].lifetimes.count;
    }
    uint32_t own = at;
    at = 0;
    for (size_t m = 0; m < problem->members.count; m++) {
        find_later(p, problem, m, next, later);
        if (fixed)
            rpi_pool_order_obstacles(later + problem->lanes, false);
        order_member(p, problem, m, later, x, at);
        at += p->parts[problem->members.data[m].capture].lifetimes.count;
    }
    for (uint32_t i = 0; fixed && i < own; i++)
        fixed[i] = RPI_UNPLACED;
    if (fixed)
        rpi_pool_lay_obstacles(&problem->obstacles, problem->lanes, own, x, fixed);
}

/* ---- Solving ------------------------------------------------------------------------------- */

/* Half of the budget that is left, and all of it for the last: heavy problems come first. */
static double next_budget(struct planner *p)
{
    double left = rpi_meter_left_ms(p->meter, p->end);
    if (p->problems_left)
        p->problems_left--;
    return p->problems_left ? left / 2 : left;
}

static rp_status solve(struct planner *p, const struct rpi_lifetimes *x, const uint64_t *fixed,
                       uint64_t capacity, uint64_t *offsets, struct rpi_plan_result *out)
{
    memset(out, 0, sizeof *out);
    if (!x->count) {
        out->proof = RPI_PROOF_BOUND;
        out->fits = 1;
        return RP_OK;
    }
    struct rpi_plan_options options = *p->options;
    options.capacity = capacity;
    options.budget_ms = next_budget(p);
    options.fixed = fixed;
    options.meter = p->meter;
    rp_status status = rpi_plan(x, &options, offsets, out, p->err);
    p->stopped = p->stopped || (status == RP_OK && out->stopped);
    return status;
}

static void place_members(struct planner *p, const struct problem *problem, const uint64_t *offsets)
{
    for (size_t m = 0; m < problem->members.count; m++) {
        uint32_t capture = problem->members.data[m].capture,
                 count = p->parts[capture].lifetimes.count;
        if (count)
            memcpy(p->parts[capture].offsets, offsets, count * sizeof *offsets);
        p->placed[capture] = true;
        offsets += count;
    }
}

static rp_status solve_joint(struct planner *p, struct problem *problem, uint64_t capacity,
                             struct rpi_plan_result *out)
{
    assert(problem->members.count && problem->lanes);
    size_t obstacles = problem->obstacles.always.count + problem->obstacles.later.count;
    size_t count = obstacles;
    for (size_t m = 0; m < problem->members.count; m++)
        count += p->parts[problem->members.data[m].capture].lifetimes.count;
    uint32_t lanes = problem->lanes + (obstacles ? RPI_OBSTACLE_LANES : 0);
    if (count >= RPI_NEVER)
        return rpi_error(p->err, RP_ERROR_LIMIT, "plan", "%zu blocks in one sequence are too many",
                         count);
    struct rpi_lifetimes x = {0};
    uint64_t *offsets = rpi_reallocarray(NULL, count, sizeof *offsets);
    uint64_t *fixed = obstacles ? rpi_reallocarray(NULL, count, sizeof *fixed) : NULL;
    uint32_t *scratch = rpi_calloc((size_t)lanes * 2, sizeof *scratch);
    rp_status status = RP_OK;
    if (!offsets || !scratch || (obstacles && !fixed))
        status = no_memory(p, count * sizeof *offsets);
    if (status == RP_OK)
        status = rpi_lifetimes_init(&x, (uint32_t)count, lanes, p->err);
    if (status == RP_OK) {
        fill_problem(p, problem, &x, fixed, scratch);
        status = solve(p, &x, fixed, capacity, offsets, out);
    }
    if (status == RP_OK)
        place_members(p, problem, offsets);
    rpi_lifetimes_finish(&x);
    rpi_free(offsets);
    rpi_free(fixed);
    rpi_free(scratch);
    return status;
}

/* Plans the captures below a node, the heaviest of alternatives, around what is placed under top.
 */
static rp_status solve_node(struct planner *p, size_t part_count, uint32_t top, uint32_t index,
                            uint64_t capacity, struct rpi_plan_result *out)
{
    struct problem problem = {0};
    rp_status status = add_members(p, index, 0, &problem, &problem.lanes);
    if (status == RP_OK && top != index)
        status =
            find_obstacles(p, part_count, top, problem.members.data[0].capture, &problem.obstacles);
    bool alone = problem.members.count == 1 && !problem.obstacles.always.count &&
                 !problem.obstacles.later.count;
    if (status == RP_OK && alone) {
        uint32_t capture = problem.members.data[0].capture;
        status =
            solve(p, &p->parts[capture].lifetimes, NULL, capacity, p->parts[capture].offsets, out);
        p->placed[capture] = status == RP_OK;
    } else if (status == RP_OK) {
        status = solve_joint(p, &problem, capacity, out);
    }
    problem_finish(&problem);
    return status;
}

/* Fits in the alternatives that the heaviest choice left out, below a node. */
static rp_status place_rest(struct planner *p, size_t part_count, uint32_t top, uint32_t index,
                            uint64_t capacity, uint64_t *io_height)
{
    const struct node *node = &p->nodes.data[index];
    rp_status status = RP_OK;
    for (uint32_t c = node->first_child; status == RP_OK && c != NONE; c = p->nodes.data[c].next) {
        struct rpi_plan_result result = {0};
        if (node->kind == RPI_COMPOSE_ALTERNATIVES && c != node->chosen)
            status = solve_node(p, part_count, top, c, capacity, &result);
        *io_height = most(*io_height, result.height);
        if (status == RP_OK)
            status = place_rest(p, part_count, top, c, capacity, io_height);
    }
    return status;
}

/* Moves everything below a node up. */
static void raise(struct planner *p, uint32_t index, uint64_t base)
{
    const struct node *node = &p->nodes.data[index];
    if (node->kind == RPI_COMPOSE_CAPTURE)
        for (uint32_t i = 0; i < p->parts[node->capture].lifetimes.count; i++)
            p->parts[node->capture].offsets[i] += base;
    for (uint32_t c = node->first_child; c != NONE; c = p->nodes.data[c].next)
        raise(p, c, base);
}

/* A capture or a sequence. whole: the pool is at least as high as its least layout. */
static rp_status plan_sequence(struct planner *p, size_t part_count, uint32_t index,
                               uint64_t capacity, bool whole, uint64_t *out_height)
{
    struct rpi_plan_result result;
    rp_status status = solve_node(p, part_count, index, index, capacity, &result);
    if (status != RP_OK)
        return status;
    if (whole && !p->options->capacity && result.proof != RPI_PROOF_NONE)
        p->optimum = most(p->optimum, result.height);
    if (whole && p->options->capacity && result.fits == 0)
        p->impossible = true;
    *out_height = result.height;
    return place_rest(p, part_count, index, index, capacity, out_height);
}

static rp_status plan_node(struct planner *p, size_t part_count, uint32_t index, uint64_t capacity,
                           bool whole, uint64_t *out_height);

/* One on top of the other, each with the room that the bounds of those behind it leave. */
static rp_status plan_concurrent(struct planner *p, size_t part_count, uint32_t index,
                                 uint64_t capacity, uint64_t *out_height)
{
    assert(p->nodes.data[index].kind == RPI_COMPOSE_CONCURRENT);
    uint64_t base = 0, behind = p->nodes.data[index].sum.bound;
    for (uint32_t c = p->nodes.data[index].first_child; c != NONE; c = p->nodes.data[c].next) {
        uint64_t height = 0;
        assert(behind >= p->nodes.data[c].sum.bound);
        behind -= p->nodes.data[c].sum.bound;
        uint64_t room = capacity > base + behind ? capacity - base - behind : 0;
        rp_status status = plan_node(p, part_count, c, room, false, &height);
        if (status != RP_OK)
            return status;
        raise(p, c, base);
        base += height;
    }
    *out_height = base;
    return RP_OK;
}

/* All from the same base, the heaviest first. */
static rp_status plan_alternatives(struct planner *p, size_t part_count, uint32_t index,
                                   uint64_t capacity, bool whole, uint64_t *out_height)
{
    assert(p->nodes.data[index].kind == RPI_COMPOSE_ALTERNATIVES &&
           p->nodes.data[index].chosen != NONE);
    uint32_t chosen = p->nodes.data[index].chosen;
    rp_status status = plan_node(p, part_count, chosen, capacity, whole, out_height);
    uint32_t c = p->nodes.data[index].first_child;
    for (; status == RP_OK && c != NONE; c = p->nodes.data[c].next) {
        uint64_t height = 0;
        if (c != chosen)
            status = plan_node(p, part_count, c, capacity, whole, &height);
        *out_height = most(*out_height, height);
    }
    return status;
}

static rp_status plan_node(struct planner *p, size_t part_count, uint32_t index, uint64_t capacity,
                           bool whole, uint64_t *out_height)
{
    switch (p->nodes.data[index].kind) {
    case RPI_COMPOSE_ALTERNATIVES:
        return plan_alternatives(p, part_count, index, capacity, whole, out_height);
    case RPI_COMPOSE_CONCURRENT:
        return plan_concurrent(p, part_count, index, capacity, out_height);
    case RPI_COMPOSE_CAPTURE:
    case RPI_COMPOSE_SEQUENCE:
        break;
    }
    return plan_sequence(p, part_count, index, capacity, whole, out_height);
}

static void conclude(const struct planner *p, uint64_t height, struct rpi_plan_result *out)
{
    assert(height >= p->nodes.data[0].sum.bound);
    uint64_t bound = p->nodes.data[0].sum.bound, capacity = p->options->capacity;
    *out = (struct rpi_plan_result){.height = height, .lower_bound = bound};
    if (height == bound)
        out->proof = RPI_PROOF_BOUND;
    else if (height == p->optimum)
        out->proof = RPI_PROOF_SEARCH;
    if (capacity)
        out->fits = height <= capacity ? 1 : bound > capacity || p->impossible ? 0 : -1;
    out->stopped = p->stopped && out->proof == RPI_PROOF_NONE && (!capacity || out->fits < 0);
    out->ms = rpi_ms_since(p->start_ns);
}

static rp_status plan_tree(struct planner *p, const struct rpi_compose *compose, size_t part_count,
                           struct rpi_plan_result *out_result)
{
    assert(!p->nodes.count);
    uint32_t root;
    uint64_t height = 0;
    if (!p->leaf || !p->placed || !p->footprints)
        return no_memory(p, part_count * sizeof *p->footprints);
    rp_status status = add_tree(p, compose, NONE, 0, &root);
    if (status != RP_OK)
        return status;
    p->problems_left = p->nodes.data[root].problems;
    status = plan_node(p, part_count, root, p->options->capacity, true, &height);
    if (status == RP_OK)
        conclude(p, height, out_result);
    return status;
}

rp_status rpi_compose_plan(const struct rpi_compose *compose, struct rpi_part *parts,
                           size_t part_count, const struct rpi_plan_options *options,
                           struct rpi_plan_result *out_result, struct rp_error *err)
{
    assert(!options->fixed);
    struct rpi_meter own = rpi_meter_start(options->timed);
    struct planner p = {.parts = parts,
                        .footprints = rpi_calloc(part_count, sizeof *p.footprints),
                        .leaf = rpi_calloc(part_count, sizeof *p.leaf),
                        .placed = rpi_calloc(part_count, sizeof *p.placed),
                        .options = options,
                        .start_ns = rpi_clock_ns(),
                        .meter = options->meter ? options->meter : &own,
                        .err = err};
    p.end = rpi_meter_end(p.meter, options->budget_ms);
    rp_status status = plan_tree(&p, compose, part_count, out_result);
    for (size_t i = 0; p.footprints && i < part_count; i++) {
        rpi_vec_finish(&p.footprints[i].all);
        rpi_vec_finish(&p.footprints[i].kept);
    }
    rpi_vec_finish(&p.nodes);
    rpi_free(p.footprints);
    rpi_free(p.leaf);
    rpi_free(p.placed);
    return status;
}
