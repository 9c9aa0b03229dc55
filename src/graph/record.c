/* SPDX-License-Identifier: MIT */
#include "graph/record.h"

#include "graph/call.h"
#include "graph/capture.h"
#include "memory/place.h"

#include <stdio.h>

struct recording {
    struct rp_call call; /* first: the callable's handle is a pointer to it */
    struct rp_pool *pool;
    const struct rpi_rehearsal *rehearsal;
    const uint64_t *offsets;
    struct rpi_recorded *made;
    struct rpi_capture capture;
    struct rpi_live live;   /* block i of the run is block arg_count + i everywhere else */
    struct rpi_place place; /* block i of the run is block obstacles + arg_count + i */
    uint32_t obstacles;
    struct rpi_frontier frontier;
    struct rpi_node_list nodes;
};

/* Does the next block follow the rehearsal so far: the same size on the same stream? */
static bool follows(const struct recording *run, uint64_t bytes, uint32_t stream)
{
    size_t k = run->made->addresses.count;
    if (k >= run->rehearsal->record.blocks.count)
        return false;
    const struct rpi_block *block = &run->rehearsal->record.blocks.data[k];
    return block->bytes == bytes && block->stream == stream;
}

/* Where the next block goes; counts it where that is not as planned. */
static uint64_t choose_offset(struct recording *run, uint64_t bytes, uint32_t stream,
                              uint64_t rounded)
{
    size_t k = run->made->addresses.count;
    if (follows(run, bytes, stream) && rpi_place_fits(&run->place, run->offsets[k], rounded))
        return run->offsets[k];
    run->made->diverged++;
    return rpi_place_find(&run->place, rounded);
}

/* Memory behind [from, to), and addresses mapped up to there. */
static rp_status grow_pool(struct rp_pool *pool, uint64_t from, uint64_t to, struct rp_error *err)
{
    struct rpi_pool *memory = &pool->core->memory;
    pthread_mutex_lock(&pool->core->lock);
    rp_status status = rpi_pool_grow(memory, to, err);
    if (status == RP_OK)
        status = rpi_pool_fill(memory, from, to, err);
    pthread_mutex_unlock(&pool->core->lock);
    return status;
}

/* Places a block that sees the run's nodes. */
static rp_status add_block(struct recording *run, uint64_t asked, uint32_t stream,
                           uint64_t *out_address, struct rp_error *err)
{
    struct rpi_pool *memory = &run->pool->core->memory;
    struct rpi_capture_record *record = &run->made->record;
    uint64_t bytes = rpi_block_bytes(asked), rounded = rpi_round_up(bytes, memory->alignment);
    rp_status status =
        rpi_frontier_set(&run->frontier, record->order, run->nodes.data, run->nodes.count, err);
    if (status == RP_OK)
        status = rpi_place_look(&run->place, stream, &run->frontier, err);
    if (status != RP_OK)
        return status;
    uint64_t offset = choose_offset(run, bytes, stream, rounded);
    if (offset == UINT64_MAX)
        return rpi_error(err, RP_ERROR_LIMIT, "rp_call_alloc",
                         "a block of %llu bytes fits no range of addresses",
                         (unsigned long long)asked);
    status = grow_pool(run->pool, offset, offset + rounded, err);
    if (status != RP_OK)
        return status;
    if (!rpi_vec_reserve(&run->made->addresses, run->made->addresses.count + 1))
        return rpi_error_host_memory(err, "rp_call_alloc", sizeof offset);
    uint32_t block;
    status = rpi_place_take(&run->place, offset, rounded, &block, err);
    if (status == RP_OK)
        status = rpi_capture_record_alloc(record, (int64_t)record->blocks.count, bytes, stream,
                                          run->nodes.data, run->nodes.count, &block, err);
    if (status != RP_OK)
        return status;
    *out_address = memory->arena.base + offset;
    run->made->addresses.data[run->made->addresses.count++] = *out_address;
    return RP_OK;
}

static rp_status record_alloc(struct rp_call *call, uint64_t bytes, CUstream stream,
                              uint64_t *out_address, struct rp_error *err)
{
    struct recording *run = (struct recording *)call;
    uint32_t index;
    bool capturing;
    uint64_t address;
    run->nodes.count = 0;
    rp_status status = rpi_live_stream(&run->live, stream, &index, err);
    if (status == RP_OK)
        status = rpi_capture_terminals(&run->capture, stream, &run->nodes, &capturing, err);
    if (status == RP_OK)
        status = add_block(run, bytes, index, &address, err);
    if (status == RP_OK)
        status = rpi_live_add(&run->live, address, stream, err);
    if (status == RP_OK)
        *out_address = address;
    return status;
}

static rp_status record_use(struct rp_call *call, uint64_t address, CUstream stream,
                            struct rp_error *err)
{
    struct recording *run = (struct recording *)call;
    uint32_t block, index;
    rp_status status = rpi_live_find(&run->live, address, "rp_call_use", &block, err);
    if (status == RP_OK)
        status = rpi_live_stream(&run->live, stream, &index, err);
    if (status == RP_OK)
        status = rpi_live_use(&run->live, block, stream, err);
    if (status == RP_OK)
        status = rpi_capture_record_use(&run->made->record, (uint32_t)call->arg_count + block,
                                        index, err);
    return status;
}

static rp_status record_free(struct rp_call *call, uint64_t address, struct rp_error *err)
{
    struct recording *run = (struct recording *)call;
    struct rpi_capture_record *record = &run->made->record;
    uint32_t block;
    rp_status status = rpi_live_find(&run->live, address, "rp_call_free", &block, err);
    if (status != RP_OK)
        return status;
    uint32_t recorded = (uint32_t)call->arg_count + block;
    const struct rpi_event *alloc = &record->events.data[record->blocks.data[recorded].alloc_event];
    status = rpi_capture_free_nodes(&run->capture, &run->live, block,
                                    record->event_nodes.data + alloc->first_node, alloc->node_count,
                                    &run->nodes, err);
    if (status == RP_OK)
        status = rpi_place_free(&run->place, run->obstacles + recorded, run->nodes.data,
                                run->nodes.count, err);
    if (status == RP_OK)
        status = rpi_capture_record_free(record, recorded, run->nodes.data, run->nodes.count, err);
    if (status == RP_OK)
        rpi_live_remove(&run->live, block);
    return status;
}

static const struct rpi_call_functions functions = {record_alloc, record_use, record_free};

/* Captures; everything made lies in run and run->made, whatever happens. */
static rp_status capture(struct recording *run, const char *what, rp_callable_fn callable,
                         void *user, const struct rp_arg *args, struct rp_error *err)
{
    uint64_t *addresses = rpi_reallocarray(NULL, run->call.arg_count + 1, sizeof *addresses);
    if (!addresses)
        return rpi_error_host_memory(err, what, (run->call.arg_count + 1) * sizeof *addresses);
    uint32_t origin;
    rp_status status = rpi_live_stream(&run->live, run->call.stream, &origin, err);
    for (size_t i = 0; status == RP_OK && i < run->call.arg_count; i++)
        status = add_block(run, args[i].bytes, origin, &addresses[i], err);
    run->call.args = addresses;
    if (status == RP_OK)
        status = rpi_capture_begin(&run->capture, run->pool->device->driver, run->call.stream,
                                   run->made->record.order, what, err);
    if (status == RP_OK)
        status = rpi_call_run(&run->call, callable, user, what, err);
    if (status == RP_OK)
        status = rpi_capture_end(&run->capture, &run->made->template, err);
    status = rpi_capture_blame(&run->capture, status, err);
    rpi_free(addresses);
    return status;
}

/* Nothing online goes where others of the pool hold memory. */
static rp_status place_obstacles(struct recording *run, const struct rpi_ranges *obstacles,
                                 struct rp_error *err)
{
    rp_status status = RP_OK;
    for (size_t i = 0; i < obstacles->count && status == RP_OK; i++) {
        const struct rpi_range *range = &obstacles->data[i];
        uint32_t block;
        status = rpi_place_take(&run->place, range->from, range->to - range->from, &block, err);
    }
    run->obstacles = (uint32_t)obstacles->count;
    return status;
}

static void finish(struct recording *run)
{
    rpi_capture_finish(&run->capture);
    rpi_live_finish(&run->live);
    rpi_place_finish(&run->place);
    rpi_frontier_finish(&run->frontier);
    rpi_vec_finish(&run->nodes);
}

rp_status rpi_record(struct rp_pool *pool, const char *name, rp_callable_fn callable, void *user,
                     const struct rp_arg *args, size_t arg_count,
                     const struct rpi_rehearsal *rehearsal, const struct rpi_record_plan *plan,
                     struct rpi_recorded *out_recorded, struct rp_error *err)
{
    char what[96];
    snprintf(what, sizeof what, "recording '%.60s'", name);
    struct rpi_recorded made = {0};
    struct recording run = {.call = {.functions = &functions,
                                     .stream = pool->core->stream,
                                     .given = args,
                                     .arg_count = arg_count,
                                     .captures = true},
                            .pool = pool,
                            .rehearsal = rehearsal,
                            .offsets = plan->offsets,
                            .made = &made};
    rp_status status = grow_pool(pool, plan->height, plan->height, err);
    if (status == RP_OK)
        status = rpi_capture_record_init(&made.record, name, err);
    if (status == RP_OK) {
        rpi_place_init(&run.place, made.record.order, pool->core->memory.alignment, plan->height);
        status = place_obstacles(&run, &plan->obstacles->always, err);
    }
    if (status == RP_OK)
        status = capture(&run, what, callable, user, args, err);
    finish(&run);
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
    *recorded = (struct rpi_recorded){0};
}
