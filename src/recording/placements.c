/* SPDX-License-Identifier: MIT
 *
 * One recording, placed in four ways: what each takes, and what it costs the host. The driver is
 * left out: each way is given the recording's events and nodes from memory, as it would meet them
 * in a capture. Time is that of the thread. A small recording is replayed several times, and the
 * median counts.
 *
 *     c10 default, c10 reuse   the model of PyTorch's allocator (recording/c10.h), with its own
 * walk place                    the order's chains built node by node, and online placement plan
 * the same order, then lifetimes, bound and plan
 */
#define RP_UNSTABLE
#include "recording/placements.h"

#include "base/clock.h"
#include "base/refuse.h"
#include "graph/capture/rehearse.h"
#include "graph/objects/arguments.h"
#include "graph/objects/gates.h"
#include "memory/place/place.h"
#include "memory/range/arena.h"
#include "recording/c10.h"
#include "reprise_tools.h"

#include <assert.h>
#include <stdlib.h>

enum { MOST_RUNS = 101 };
static const double enough_ns = 20e6; /* of one way's runs together */

/* ---- Replaying ----------------------------------------------------------------------------- */

/* An order that grows as the capture's did. */
struct growing {
    const struct rpi_capture_record *record;
    struct rpi_order *order;
    struct rpi_frontier frontier;
};

static void growing_finish(struct growing *g)
{
    rpi_order_destroy(g->order);
    rpi_frontier_finish(&g->frontier);
}

/* Adds the nodes that the event was the first to see. */
static rp_status grow_to(struct growing *g, const struct rpi_event *event, struct rp_error *err)
{
    const struct rpi_predecessors *all = &g->record->predecessors;
    const uint32_t *nodes = g->record->event_nodes.data + event->first_node;
    for (uint32_t n = 0; n < event->node_count; n++) {
        while (rpi_order_nodes(g->order) <= nodes[n]) {
            uint32_t node = rpi_order_nodes(g->order), first = node ? all->ends.data[node - 1] : 0;
            rp_status status = rpi_order_add(g->order, all->nodes.data + first,
                                             all->ends.data[node] - first, &node, err);
            if (status != RP_OK)
                return status;
        }
    }
    return RP_OK;
}

static rp_status place_block(struct growing *g, struct rpi_place *place,
                             const struct rpi_event *event, uint64_t *out_offset,
                             uint32_t *out_block, struct rp_error *err)
{
    assert(event->kind == RPI_EVENT_ALLOC);
    uint64_t bytes = g->record->blocks.data[event->block].bytes;
    rp_status status =
        rpi_frontier_set(&g->frontier, g->order, g->record->event_nodes.data + event->first_node,
                         event->node_count, err);
    if (status == RP_OK)
        status = rpi_place_look(place, event->stream, &g->frontier, err);
    if (status != RP_OK)
        return status;
    uint64_t offset = rpi_place_find(place, bytes);
    if (offset == UINT64_MAX)
        return rpi_error(err, RP_ERROR_LIMIT, "placing blocks", "the blocks fit no range");
    *out_offset = offset;
    return rpi_place_take(place, offset, bytes, out_block, err);
}

static rp_status replay(struct growing *g, struct rpi_place *place, uint32_t *placed,
                        uint64_t *out_offsets, struct rp_error *err)
{
    const struct rpi_capture_record *record = g->record;
    rp_status status = RP_OK;
    for (size_t i = 0; status == RP_OK && i < record->events.count; i++) {
        const struct rpi_event *event = &record->events.data[i];
        if (event->kind == RPI_EVENT_USE || !record->blocks.data[event->block].bytes)
            continue;
        status = grow_to(g, event, err);
        if (status == RP_OK && event->kind == RPI_EVENT_ALLOC)
            status = place_block(g, place, event, &out_offsets[event->block], &placed[event->block],
                                 err);
        else if (status == RP_OK)
            status = rpi_place_free(place, placed[event->block],
                                    record->event_nodes.data + event->first_node, event->node_count,
                                    err);
    }
    return status;
}

rp_status rpi_placement_online(const struct rpi_capture_record *record, uint64_t alignment,
                               uint64_t *out_offsets, struct rpi_placement *out,
                               struct rp_error *err)
{
    assert(record->predecessors.ends.count == rpi_order_nodes(record->order));
    uint32_t *placed = rpi_calloc(record->blocks.count, sizeof *placed);
    if (!placed)
        return rpi_error_host_memory(err, "placing blocks", record->blocks.count * sizeof *placed);
    uint64_t start = rpi_clock_thread_ns();
    struct growing growing = {.record = record};
    struct rpi_place place;
    rp_status status = rpi_order_create(&growing.order, err);
    rpi_place_init(&place, growing.order, alignment, 0);
    if (status == RP_OK)
        status = replay(&growing, &place, placed, out_offsets, err);
    uint64_t height = place.height;
    rpi_place_finish(&place);
    growing_finish(&growing);
    if (status == RP_OK)
        *out = (struct rpi_placement){height, (double)(rpi_clock_thread_ns() - start)};
    rpi_free(placed);
    return status;
}

/* The order alone, as a rehearsal builds it. */
static rp_status build_order(const struct rpi_capture_record *record, struct rp_error *err)
{
    struct growing growing = {.record = record};
    rp_status status = rpi_order_create(&growing.order, err);
    for (size_t i = 0; status == RP_OK && i < record->events.count; i++)
        status = grow_to(&growing, &record->events.data[i], err);
    growing_finish(&growing);
    return status;
}

static rp_status plan(const struct rpi_capture_record *record,
                      const struct rpi_plan_options *options, uint64_t *out_offsets,
                      struct rpi_plan_result *out_result, struct rp_error *err)
{
    struct rpi_lifetimes lifetimes;
    rp_status status = build_order(record, err);
    if (status == RP_OK)
        status = rpi_lifetimes_from_record(record, options->alignment, &lifetimes, err);
    if (status != RP_OK)
        return status;
    *out_result = (struct rpi_plan_result){0};
    uint64_t *offsets = rpi_calloc(lifetimes.count, sizeof *offsets);
    if (!offsets)
        status = rpi_error_host_memory(err, "plan", lifetimes.count * sizeof *offsets);
    else if (lifetimes.count)
        status = rpi_plan(&lifetimes, options, offsets, out_result, err);
    for (uint32_t i = 0; status == RP_OK && i < lifetimes.count; i++)
        out_offsets[lifetimes.block[i]] = offsets[i];
    rpi_free(offsets);
    rpi_lifetimes_finish(&lifetimes);
    return status;
}

rp_status rpi_placement_planned(const struct rpi_capture_record *record,
                                const struct rpi_plan_options *options, uint64_t *out_offsets,
                                uint64_t *out_bound, struct rpi_placement *out,
                                struct rp_error *err)
{
    struct rpi_plan_result result;
    uint64_t start = rpi_clock_thread_ns();
    rp_status status = plan(record, options, out_offsets, &result, err);
    if (status != RP_OK)
        return status;
    *out_bound = result.lower_bound;
    *out = (struct rpi_placement){result.height, (double)(rpi_clock_thread_ns() - start)};
    return RP_OK;
}

static rp_status hold_in_c10(const struct rpi_capture_record *record, enum rpi_c10_policy policy,
                             struct rpi_placement *out, struct rp_error *err)
{
    struct rpi_c10 *c10 = NULL;
    uint64_t start = rpi_clock_thread_ns(), bytes = 0;
    rp_status status = rpi_c10_create(policy, &c10, err);
    if (status == RP_OK)
        status = rpi_c10_capture(c10, record, false, err);
    if (status == RP_OK)
        bytes = rpi_c10_reserved(c10);
    rpi_c10_destroy(c10);
    if (status == RP_OK)
        *out = (struct rpi_placement){bytes, (double)(rpi_clock_thread_ns() - start)};
    return status;
}

/* ---- Checking ------------------------------------------------------------------------------ */

/* Do all nodes of the block's free come before the frontier, after a free in host order? */
static bool is_over(const struct rpi_capture_record *record, const struct rpi_block *block,
                    uint32_t alloc_event, const struct rpi_frontier *frontier)
{
    if (block->free_event == RPI_NO_EVENT || block->free_event > alloc_event)
        return false;
    const struct rpi_event *freed = &record->events.data[block->free_event];
    for (uint32_t n = 0; n < freed->node_count; n++)
        if (!rpi_frontier_holds(frontier, record->order,
                                record->event_nodes.data[freed->first_node + n]))
            return false;
    return freed->node_count > 0;
}

/* The first earlier block that overlaps this one and may be alive with it; RPI_NO_BLOCK: none. */
static uint32_t find_conflict(const struct rpi_capture_record *record, const uint64_t *offsets,
                              uint64_t alignment, uint32_t later,
                              const struct rpi_frontier *frontier)
{
    assert(later < record->blocks.count && record->blocks.data[later].bytes);
    const struct rpi_block *blocks = record->blocks.data;
    uint64_t end = offsets[later] + rpi_round_up(blocks[later].bytes, alignment);
    for (uint32_t earlier = 0; earlier < later; earlier++) {
        uint64_t earlier_end = offsets[earlier] + rpi_round_up(blocks[earlier].bytes, alignment);
        if (blocks[earlier].bytes && offsets[earlier] < end && offsets[later] < earlier_end &&
            !is_over(record, &blocks[earlier], blocks[later].alloc_event, frontier))
            return earlier;
    }
    return RPI_NO_BLOCK;
}

rp_status rpi_placement_check(const struct rpi_capture_record *record, const uint64_t *offsets,
                              uint64_t alignment, const char *what, struct rp_error *err)
{
    struct rpi_frontier frontier = {0};
    rp_status status = RP_OK;
    for (uint32_t b = 0; status == RP_OK && b < record->blocks.count; b++) {
        const struct rpi_event *alloc = &record->events.data[record->blocks.data[b].alloc_event];
        status =
            rpi_frontier_set(&frontier, record->order, record->event_nodes.data + alloc->first_node,
                             alloc->node_count, err);
        if (status != RP_OK || !record->blocks.data[b].bytes)
            continue;
        uint32_t other = find_conflict(record, offsets, alignment, b, &frontier);
        if (other != RPI_NO_BLOCK)
            status = rpi_error(err, RP_ERROR_INTERNAL, what,
                               "%s laid blocks %u and %u over each other, at %llu and %llu, though "
                               "they may be alive together: please report it",
                               what, other, b, (unsigned long long)offsets[other],
                               (unsigned long long)offsets[b]);
    }
    rpi_frontier_finish(&frontier);
    return status;
}

/* ---- Measuring ----------------------------------------------------------------------------- */

struct measuring {
    const struct rpi_capture_record *record;
    struct rpi_plan_options options;
    uint64_t *offsets;
    struct rp_placements found;
    size_t operations;
};

typedef rp_status (*way)(struct measuring *m, struct rpi_placement *out, struct rp_error *err);

static rp_status way_c10_default(struct measuring *m, struct rpi_placement *out,
                                 struct rp_error *err)
{
    return hold_in_c10(m->record, RPI_C10_DEFAULT, out, err);
}

static rp_status way_c10_reuse(struct measuring *m, struct rpi_placement *out, struct rp_error *err)
{
    return hold_in_c10(m->record, RPI_C10_REUSE, out, err);
}

static rp_status way_place(struct measuring *m, struct rpi_placement *out, struct rp_error *err)
{
    return rpi_placement_online(m->record, m->options.alignment, m->offsets, out, err);
}

static rp_status way_plan(struct measuring *m, struct rpi_placement *out, struct rp_error *err)
{
    return rpi_placement_planned(m->record, &m->options, m->offsets, &m->found.lower_bound_bytes,
                                 out, err);
}

static int compare_times(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static rp_status measure(struct measuring *m, way run, size_t most_runs, struct rp_placement *out,
                         struct rp_error *err)
{
    assert(most_runs && most_runs <= MOST_RUNS);
    double times[MOST_RUNS] = {0}, sum = 0;
    size_t runs = 0;
    struct rpi_placement placement = {0};
    while (runs < most_runs && sum < enough_ns) {
        rp_status status = run(m, &placement, err);
        if (status != RP_OK)
            return status;
        times[runs++] = placement.ns;
        sum += placement.ns;
    }
    qsort(times, runs, sizeof *times, compare_times);
    out->bytes = placement.bytes;
    out->ns_per_op = m->operations ? times[runs / 2] / (double)m->operations : 0;
    return RP_OK;
}

static rp_status compare(struct measuring *m, struct rp_error *err)
{
    rp_status status = measure(m, way_c10_default, MOST_RUNS, &m->found.c10_default, err);
    if (status == RP_OK)
        status = measure(m, way_c10_reuse, MOST_RUNS, &m->found.c10_reuse, err);
    if (status == RP_OK)
        status = measure(m, way_place, MOST_RUNS, &m->found.place, err);
    if (status == RP_OK)
        status = rpi_placement_check(m->record, m->offsets, m->options.alignment, "place", err);
    if (status == RP_OK)
        status = measure(m, way_plan, 1, &m->found.plan, err);
    if (status == RP_OK)
        status = rpi_placement_check(m->record, m->offsets, m->options.alignment, "plan", err);
    return status;
}

static rp_status compare_rehearsal(const struct rp_pool *pool,
                                   const struct rpi_rehearsal *rehearsal, struct rp_placements *out,
                                   struct rp_error *err)
{
    const struct rpi_capture_record *record = &rehearsal->record;
    struct measuring m = {.record = record,
                          .options = {.alignment = pool->core->memory.alignment, .threads = 1}};
    rpi_plan_set_budget(&m.options, pool->plan_budget_ms);
    for (size_t i = 0; i < record->events.count; i++)
        m.operations += record->events.data[i].kind != RPI_EVENT_USE;
    m.found.nodes = rpi_order_nodes(record->order);
    m.found.blocks = record->blocks.count;
    m.found.operations = m.operations;
    m.offsets = rpi_calloc(record->blocks.count, sizeof *m.offsets);
    if (!m.offsets)
        return rpi_error_host_memory(err, "rp_compare_placements",
                                     record->blocks.count * sizeof *m.offsets);
    rp_status status = compare(&m, err);
    if (status == RP_OK)
        *out = m.found;
    rpi_free(m.offsets);
    return status;
}

rp_status rp_compare_placements(struct rp_pool *pool, rp_callable_fn callable, void *user,
                                const struct rp_arg *args, size_t arg_count,
                                struct rp_placements *out_placements, struct rp_error *err)
{
    if (rpi_is_forked() || !pool || !callable || !out_placements)
        return rpi_refuse(err, "rp_compare_placements",
                          !pool       ? "pool"
                          : !callable ? "callable"
                                      : "out_placements");
    rp_status status = rpi_check_args("rp_compare_placements", args, arg_count, err);
    if (status == RP_OK)
        status =
            rpi_gate_for_work(&pool->core->capture_gate, "rp_compare_placements", pool->name, err);
    if (status != RP_OK)
        return status;
    struct rpi_rehearsal rehearsal = {0};
    status = rp_device_push(pool->device, err);
    if (status == RP_OK) {
        status = rpi_rehearse(pool, "placements", callable, user, args, arg_count, &rehearsal, err);
        if (status == RP_OK)
            status = compare_rehearsal(pool, &rehearsal, out_placements, err);
        rpi_rehearsal_finish(&rehearsal, pool->device->driver);
        rp_device_pop(pool->device);
    }
    rpi_gate_leave(&pool->core->capture_gate);
    return status;
}
