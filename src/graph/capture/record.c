/* SPDX-License-Identifier: MIT */
#include "graph/capture/record.h"

#include "graph/capture/learning.h"
#include "graph/capture/online.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct recording {
    struct rpi_learning learning; /* first, for casts */
    const struct rpi_rehearsal *rehearsal;
    const uint64_t *offsets;
    struct rpi_recorded *made;
    struct rpi_online online;
    bool strayed;        /* it went otherwise than it was rehearsed: blocks are placed online */
    uint32_t same_nodes; /* of the order; these have the predecessors that they had then */
    size_t same_events;  /* and these events are the same */
};

/* ---- Following the rehearsal --------------------------------------------------------------- */

/* Whose memory a block may take is decided by the events so far and by which nodes are before
 * which. As long as all of that is as it was rehearsed, the plan, which was made for it, says what
 * a look at each earlier block would. */

static size_t end_of(const struct rpi_predecessors *of, uint32_t node)
{
    assert(node < of->ends.count);
    return of->ends.data[node];
}

/* Do the nodes so far have the predecessors that they had in the rehearsal? */
static bool nodes_are_same(struct recording *run)
{
    const struct rpi_predecessors *before = &run->rehearsal->record.predecessors,
                                  *now = &run->made->record.predecessors;
    if (now->ends.count > before->ends.count)
        return false;
    for (; run->same_nodes < now->ends.count; run->same_nodes++) {
        size_t first = run->same_nodes ? end_of(now, run->same_nodes - 1) : 0;
        size_t end = end_of(now, run->same_nodes);
        if (end != end_of(before, run->same_nodes) ||
            (end > first && memcmp(now->nodes.data + first, before->nodes.data + first,
                                   (end - first) * sizeof *now->nodes.data) != 0))
            return false;
    }
    return true;
}

static bool is_same_event(const struct recording *run, size_t index, const struct rpi_event *event,
                          const uint32_t *nodes)
{
    const struct rpi_capture_record *rehearsed = &run->rehearsal->record;
    if (index >= rehearsed->events.count)
        return false;
    const struct rpi_event *then = &rehearsed->events.data[index];
    return then->kind == event->kind && then->block == event->block &&
           then->stream == event->stream && then->node_count == event->node_count &&
           (!event->node_count || memcmp(rehearsed->event_nodes.data + then->first_node, nodes,
                                         event->node_count * sizeof *nodes) == 0);
}

/* Is what happens now, and what happened since the last look, as it was rehearsed? nodes of `event`
 * are the learning's. */
static bool follows(struct recording *run, struct rpi_event event)
{
    const struct rpi_capture_record *record = &run->made->record;
    if (run->strayed || !nodes_are_same(run))
        return false;
    for (; run->same_events < record->events.count; run->same_events++) {
        const struct rpi_event *past = &record->events.data[run->same_events];
        if (!is_same_event(run, run->same_events, past,
                           record->event_nodes.data + past->first_node))
            return false;
    }
    event.node_count = (uint32_t)run->learning.nodes.count;
    return is_same_event(run, record->events.count, &event, run->learning.nodes.data);
}

/* Lays the blocks so far where they are, and ends those that were freed. */
static rp_status place_so_far(struct recording *run, struct rp_error *err)
{
    assert(run->strayed);
    const struct rpi_capture_record *record = &run->made->record;
    uint64_t alignment = run->learning.pool->core->memory.alignment, unused;
    rp_status status = RP_OK;
    for (size_t i = 0; status == RP_OK && i < record->events.count; i++) {
        const struct rpi_event *event = &record->events.data[i];
        const uint32_t *nodes = record->event_nodes.data + event->first_node;
        uint64_t bytes = rpi_round_up(record->blocks.data[event->block].bytes, alignment);
        if (event->kind == RPI_EVENT_FREE)
            status = rpi_online_free(&run->online, event->block, nodes, event->node_count, err);
        if (event->kind != RPI_EVENT_ALLOC)
            continue;
        status = rpi_online_look(&run->online, event->stream, nodes, event->node_count, err);
        if (status == RP_OK)
            status = rpi_online_take(&run->online, run->offsets[event->block], bytes, &unused, err);
    }
    return status;
}

/* From now on each block is looked at. */
static rp_status stray(struct recording *run, struct rp_error *err)
{
    if (run->strayed)
        return RP_OK;
    run->strayed = true;
    return place_so_far(run, err);
}

/* ---- Placing ------------------------------------------------------------------------------- */

/* Is the next block the rehearsal's: the same size on the same stream? */
static bool is_planned(const struct recording *run, uint64_t bytes, uint32_t stream)
{
    size_t k = run->made->record.blocks.count;
    if (k >= run->rehearsal->record.blocks.count)
        return false;
    const struct rpi_block *block = &run->rehearsal->record.blocks.data[k];
    return block->bytes == bytes && block->stream == stream;
}

/* Where the next block goes; counts it where that is not as planned. */
static uint64_t choose_offset(struct recording *run, uint64_t bytes, uint32_t stream,
                              uint64_t rounded)
{
    assert(rounded >= bytes && rounded % run->learning.pool->core->memory.alignment == 0);
    size_t k = run->made->record.blocks.count;
    if (is_planned(run, bytes, stream) && rpi_online_fits(&run->online, run->offsets[k], rounded))
        return run->offsets[k];
    run->made->diverged++;
    return rpi_online_find(&run->online, rounded);
}

static rp_status place_online(struct recording *run, uint64_t bytes, uint32_t stream,
                              uint64_t *out_address, struct rp_error *err)
{
    uint64_t rounded = rpi_round_up(bytes, run->learning.pool->core->memory.alignment);
    rp_status status = stray(run, err);
    if (status == RP_OK)
        status = rpi_online_look(&run->online, stream, run->learning.nodes.data,
                                 run->learning.nodes.count, err);
    if (status == RP_OK)
        status = rpi_online_take(&run->online, choose_offset(run, bytes, stream, rounded), rounded,
                                 out_address, err);
    return status;
}

static rp_status place(struct rpi_learning *learning, uint64_t bytes, uint32_t stream,
                       uint64_t *out_address, struct rp_error *err)
{
    struct recording *run = (struct recording *)learning;
    uint32_t k = (uint32_t)run->made->record.blocks.count;
    const struct rpi_event event = {.kind = RPI_EVENT_ALLOC, .block = k, .stream = stream};
    rp_status status = RP_OK;
    uint64_t address;
    if (is_planned(run, bytes, stream) && follows(run, event))
        address = learning->pool->core->memory.arena.base + run->offsets[k];
    else
        status = place_online(run, bytes, stream, &address, err);
    if (status == RP_OK && !rpi_vec_push(&run->made->addresses, address))
        status = rpi_error_host_memory(err, "rp_call_alloc", sizeof address);
    if (status == RP_OK)
        *out_address = address;
    return status;
}

static rp_status give_back(struct rpi_learning *learning, uint32_t block, struct rp_error *err)
{
    assert(block < ((struct recording *)learning)->made->record.blocks.count);
    struct recording *run = (struct recording *)learning;
    const struct rpi_event event = {.kind = RPI_EVENT_FREE,
                                    .block = block,
                                    .stream = run->made->record.blocks.data[block].stream};
    if (follows(run, event))
        return RP_OK;
    rp_status status = stray(run, err);
    if (status != RP_OK)
        return status;
    return rpi_online_free(&run->online, block, learning->nodes.data, learning->nodes.count, err);
}

/* Memory behind all that is planned. */
static rp_status back_plan(struct recording *run, struct rp_error *err)
{
    assert(!run->made->record.blocks.count);
    const struct rpi_capture_record *record = &run->rehearsal->record;
    uint64_t alignment = run->learning.pool->core->memory.alignment;
    struct rpi_ranges planned = {0};
    rp_status status = RP_OK;
    for (size_t k = 0; status == RP_OK && k < record->blocks.count; k++) {
        uint64_t bytes = rpi_round_up(record->blocks.data[k].bytes, alignment);
        const struct rpi_range range = {run->offsets[k], run->offsets[k] + bytes};
        if (!rpi_vec_push(&planned, range))
            status = rpi_error_host_memory(err, "rp_graph_capture", sizeof range);
    }
    rpi_ranges_join(&planned);
    for (size_t i = 0; status == RP_OK && i < planned.count; i++)
        status = rpi_online_back(&run->online, planned.data[i].from, planned.data[i].to, err);
    rpi_vec_finish(&planned);
    return status;
}

/* ---- The run ------------------------------------------------------------------------------- */

/* Everything made lies in run and run->made, whatever happens. */
static rp_status record(struct recording *run, const char *name, rp_callable_fn callable,
                        void *user, const struct rp_arg *args, const uint64_t *staging,
                        size_t arg_count, const struct rpi_record_plan *plan, struct rp_error *err)
{
    static const struct rpi_learning_steps steps = {.place = place, .give_back = give_back};
    char what[96];
    snprintf(what, sizeof what, "recording '%.60s'", name);
    run->learning.steps = &steps;
    run->learning.record = &run->made->record;
    rp_status status = rpi_online_begin(&run->online, run->learning.pool, run->made->record.order,
                                        plan->height, &plan->obstacles->always, err);
    if (status == RP_OK)
        status = back_plan(run, err);
    for (size_t k = 0; status == RP_OK && k < arg_count; k++)
        if (!rpi_vec_push(&run->made->addresses, staging[k]))
            status = rpi_error_host_memory(err, "rp_graph_capture", sizeof *staging);
    if (status == RP_OK)
        status = rpi_learn(&run->learning, what, callable, user, args, staging, arg_count,
                           &run->made->template, err);
    run->made->values = run->learning.values;
    run->learning.values = (struct rpi_addresses){0};
    run->made->scalars = run->learning.scalars;
    run->learning.scalars = (struct rpi_scalars){0};
    run->made->host_data = run->learning.host_data;
    run->learning.host_data = (struct rpi_host_data){0};
    rpi_learning_finish(&run->learning);
    rpi_online_finish(&run->online);
    return status;
}

rp_status rpi_record(struct rp_pool *pool, const char *name, rp_callable_fn callable, void *user,
                     const struct rp_arg *args, const uint64_t *staging, size_t arg_count,
                     const struct rpi_rehearsal *rehearsal, const struct rpi_record_plan *plan,
                     struct rpi_recorded *out_recorded, struct rp_error *err)
{
    struct rpi_recorded made = {0};
    struct recording run = {
        .learning.pool = pool, .rehearsal = rehearsal, .offsets = plan->offsets, .made = &made};
    rp_status status = rpi_capture_record_init(&made.record, name, err);
    if (status == RP_OK)
        status = record(&run, name, callable, user, args, staging, arg_count, plan, err);
    if (status == RP_OK)
        *out_recorded = made;
    else
        rpi_recorded_finish(&made, pool->device->driver);
    return status;
}

void rpi_recorded_finish(struct rpi_recorded *recorded, const struct rp_driver *driver)
{
    if (recorded->template)
        driver->cuGraphDestroy(recorded->template);
    rpi_capture_record_finish(&recorded->record);
    rpi_vec_finish(&recorded->addresses);
    rpi_vec_finish(&recorded->values);
    rpi_vec_finish(&recorded->scalars);
    rpi_host_data_finish(&recorded->host_data);
    *recorded = (struct rpi_recorded){0};
}
