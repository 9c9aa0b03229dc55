/* SPDX-License-Identifier: MIT */
#include "graph/capture/share.h"

#include "base/hostmem.h"
#include "graph/capture/plans.h"
#include "memory/pool/pool_plan.h"

#include <assert.h>
#include <string.h>

/* A block that is not freed outlives its capture. */
static bool is_kept(const struct rpi_capture_record *record, uint32_t block)
{
    return record->blocks.data[block].free_event == RPI_NO_EVENT;
}

/* ---- Before -------------------------------------------------------------------------------- */

static rp_status place_blocks(const struct rp_pool *pool, const struct rpi_capture_record *record,
                              const struct rpi_lifetimes *lifetimes, struct rpi_share_plan *plan,
                              struct rp_error *err)
{
    struct rpi_plan_options options = {.alignment = pool->core->memory.alignment, .threads = 1};
    rpi_plan_set_budget(&options, pool->plan_budget_ms);
    struct rpi_plan_result result = {0};
    uint64_t *offsets = rpi_calloc(lifetimes->count, sizeof *offsets);
    bool *kept = rpi_calloc(lifetimes->count, sizeof *kept);
    rp_status status = RP_OK;
    if (!offsets || !kept)
        status = rpi_error_host_memory(err, "rp_graph_capture", lifetimes->count * sizeof *offsets);
    for (uint32_t i = 0; status == RP_OK && i < lifetimes->count; i++)
        kept[i] = is_kept(record, lifetimes->block[i]);
    const struct rpi_problem problem = {lifetimes, kept, &plan->obstacles};
    bool known = status == RP_OK && rpi_plans_find(pool->core->plans, &problem, offsets, &result);
    if (status == RP_OK && !known)
        status = rpi_pool_plan(lifetimes, kept, &plan->obstacles, &options, offsets, &result, err);
    if (status == RP_OK && !known && pool->core->keeps_plans)
        rpi_plans_keep(pool->core->plans, &problem, offsets, &result);
    for (uint32_t i = 0; status == RP_OK && i < lifetimes->count; i++)
        plan->offsets[lifetimes->block[i]] = offsets[i];
    plan->height = result.height;
    plan->lower_bound = result.lower_bound;
    plan->stopped = result.stopped;
    rpi_free(offsets);
    rpi_free(kept);
    return status;
}

rp_status rpi_share_obstacles(const struct rp_pool *pool, bool cautious,
                              struct rpi_pool_obstacles *out_obstacles, struct rp_error *err)
{
    struct rpi_pool_obstacles made = {0};
    pthread_mutex_lock(&pool->core->lock); /* graphs may be destroyed meanwhile */
    rp_status status = rpi_pool_obstacles(&pool->core->memory, &pool->group, &made, err);
    pthread_mutex_unlock(&pool->core->lock);
    if (status == RP_OK && cautious)
        status = rpi_pool_obstacles_widen(&made, err);
    if (status == RP_OK)
        *out_obstacles = made;
    else
        rpi_pool_obstacles_finish(&made);
    return status;
}

rp_status rpi_share_plan(const struct rp_pool *pool, const struct rpi_rehearsal *rehearsal,
                         bool cautious, uint64_t lead, struct rpi_share_plan *out_plan,
                         struct rp_error *err)
{
    const struct rpi_capture_record *record = &rehearsal->record;
    struct rpi_share_plan plan = {0};
    struct rpi_lifetimes lifetimes = {0};
    rp_status status = RP_OK;
    plan.offsets = rpi_calloc(record->blocks.count + 1, sizeof *plan.offsets);
    if (!plan.offsets)
        status = rpi_error_host_memory(err, "rp_graph_capture", record->blocks.count * 8);
    if (status == RP_OK)
        status = rpi_share_obstacles(pool, cautious, &plan.obstacles, err);
    if (status == RP_OK)
        status = rpi_pool_obstacles_lead(&plan.obstacles,
                                         rpi_round_up(lead, pool->core->memory.alignment), err);
    if (status == RP_OK && record->blocks.count) {
        status = rpi_lifetimes_from_record(record, pool->core->memory.alignment, &lifetimes, err);
        assert(status != RP_OK || lifetimes.count == record->blocks.count); /* none has 0 bytes */
        if (status == RP_OK)
            status = place_blocks(pool, record, &lifetimes, &plan, err);
        rpi_lifetimes_finish(&lifetimes);
    }
    if (status == RP_OK)
        *out_plan = plan;
    else
        rpi_share_plan_finish(&plan);
    return status;
}

void rpi_share_plan_finish(struct rpi_share_plan *plan)
{
    rpi_pool_obstacles_finish(&plan->obstacles);
    rpi_free(plan->offsets);
    *plan = (struct rpi_share_plan){0};
}

bool rpi_share_planned(struct rpi_pool_member *member, const struct rpi_rehearsal *rehearsal,
                       const struct rpi_share_plan *plan, const struct rpi_pool_core *core)
{
    assert(!member->all.count && !member->kept.count);
    const struct rpi_capture_record *record = &rehearsal->record;
    member->lower_bound = plan->lower_bound;
    member->stopped = plan->stopped;
    for (uint32_t i = 0; i < record->blocks.count; i++) {
        uint64_t rounded = rpi_round_up(record->blocks.data[i].bytes, core->memory.alignment);
        struct rpi_range range = {plan->offsets[i], plan->offsets[i] + rounded};
        bool kept = is_kept(record, i);
        member->kept_bytes += kept ? rounded : 0;
        if (!rpi_vec_push(&member->all, range) || (kept && !rpi_vec_push(&member->kept, range)))
            return false;
    }
    rpi_ranges_join(&member->all);
    rpi_ranges_join(&member->kept);
    return true;
}

/* ---- After --------------------------------------------------------------------------------- */

/* Did it go as it was rehearsed, to the event? */
static bool is_same(const struct rpi_capture_record *a, const struct rpi_capture_record *b)
{
    if (a->blocks.count != b->blocks.count || a->events.count != b->events.count ||
        a->event_nodes.count != b->event_nodes.count)
        return false;
    for (size_t i = 0; i < a->blocks.count; i++)
        if (a->blocks.data[i].bytes != b->blocks.data[i].bytes)
            return false;
    return !a->events.count ||
           (memcmp(a->events.data, b->events.data, a->events.count * sizeof *a->events.data) == 0 &&
            memcmp(a->event_nodes.data, b->event_nodes.data,
                   a->event_nodes.count * sizeof *a->event_nodes.data) == 0);
}

static rp_status find_bound(const struct rp_pool *pool, const struct rpi_capture_record *record,
                            uint64_t *out_bound, struct rp_error *err)
{
    struct rpi_lifetimes lifetimes = {0};
    rp_status status =
        rpi_lifetimes_from_record(record, pool->core->memory.alignment, &lifetimes, err);
    if (status == RP_OK)
        status = rpi_bound(&lifetimes, out_bound, NULL, NULL, err);
    rpi_lifetimes_finish(&lifetimes);
    return status;
}

static rp_status no_blocks(size_t count, struct rp_error *err)
{
    return rpi_error_host_memory(err, "rp_graph_capture", count * sizeof(struct rpi_graph_block));
}

static rp_status take_down_blocks(struct rp_graph *graph, const struct rpi_recorded *recorded,
                                  struct rp_error *err)
{
    assert(!graph->blocks &&
           recorded->addresses.count >= graph->arg_count + recorded->record.blocks.count);
    const struct rpi_capture_record *record = &recorded->record;
    const struct rpi_pool *memory = &graph->pool->core->memory;
    struct rpi_pool_member *member = &graph->member;
    size_t count = record->blocks.count;
    graph->blocks = rpi_calloc(count + 1, sizeof *graph->blocks);
    if (!graph->blocks)
        return no_blocks(count, err);
    graph->block_count = count;
    graph->events = (uint32_t)record->events.count;
    for (uint32_t i = 0; i < count; i++) {
        const struct rpi_block *block = &record->blocks.data[i];
        uint64_t offset = recorded->addresses.data[graph->arg_count + i] - memory->arena.base;
        uint64_t rounded = rpi_round_up(block->bytes, memory->alignment);
        struct rpi_range range = {offset, offset + rounded};
        bool kept = is_kept(record, i);
        graph->blocks[i] = (struct rpi_graph_block){
            .offset = offset,
            .bytes = block->bytes,
            .first = block->alloc_event,
            .last = block->free_event == RPI_NO_EVENT ? graph->events : block->free_event,
            .stream = block->stream,
            .kept = kept};
        member->kept_bytes += kept ? rounded : 0;
        if (!rpi_vec_push(&member->all, range) || (kept && !rpi_vec_push(&member->kept, range)))
            return no_blocks(count, err);
    }
    rpi_ranges_join(&member->all);
    rpi_ranges_join(&member->kept);
    return RP_OK;
}

rp_status rpi_share_take_down(struct rp_graph *graph, const struct rpi_rehearsal *rehearsal,
                              const struct rpi_recorded *recorded,
                              const struct rpi_share_plan *plan, struct rp_error *err)
{
    struct rpi_pool_member *member = &graph->member;
    rp_status status = take_down_blocks(graph, recorded, err);
    if (status != RP_OK)
        return status;
    for (size_t i = 0; i < member->kept.count; i++)
        if (rpi_ranges_overlap(&plan->obstacles.later, member->kept.data[i].from,
                               member->kept.data[i].to))
            return rpi_error(err, RP_ERROR_DIVERGED, "rp_graph_capture",
                             "graph '%s' freed a block when it was rehearsed and kept it when it "
                             "was recorded, where a later graph of its sequence has memory",
                             graph->name);
    member->lower_bound = plan->lower_bound;
    member->stopped = plan->stopped;
    if (!recorded->record.blocks.count || is_same(&rehearsal->record, &recorded->record))
        return RP_OK;
    return find_bound(graph->pool, &recorded->record, &member->lower_bound, err);
}

rp_status rpi_share_take_down_alone(struct rp_graph *graph, const struct rpi_recorded *recorded,
                                    struct rp_error *err)
{
    rp_status status = take_down_blocks(graph, recorded, err);
    if (status != RP_OK || !recorded->record.blocks.count)
        return status;
    return find_bound(graph->pool, &recorded->record, &graph->member.lower_bound, err);
}
