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
    struct rpi_order *order;
    struct rpi_capture capture;
    struct rpi_live live; /* block i of the run is block arg_count + i everywhere else */
    struct rpi_place place;
    struct rpi_frontier frontier;
    struct rpi_node_list nodes;
    struct {
        RPI_VEC(uint32_t); /* where each block's alloc nodes end in alloc_nodes */
    } alloc_ends;
    struct rpi_node_list alloc_nodes;
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

static rp_status grow_pool(struct rp_pool *pool, uint64_t height, struct rp_error *err)
{
    pthread_mutex_lock(&pool->lock);
    rp_status status = rpi_pool_grow(&pool->memory, height, err);
    pthread_mutex_unlock(&pool->lock);
    return status;
}

/* Remembers what the allocation saw, for its free. */
static bool keep_alloc_nodes(struct recording *run)
{
    if (!rpi_vec_reserve(&run->alloc_ends, run->alloc_ends.count + 1) ||
        !rpi_vec_reserve(&run->alloc_nodes, run->alloc_nodes.count + run->nodes.count))
        return false;
    for (size_t i = 0; i < run->nodes.count; i++)
        run->alloc_nodes.data[run->alloc_nodes.count++] = run->nodes.data[i];
    run->alloc_ends.data[run->alloc_ends.count++] = (uint32_t)run->alloc_nodes.count;
    return true;
}

/* Places a block that sees the run's nodes. */
static rp_status add_block(struct recording *run, uint64_t asked, uint32_t stream,
                           uint64_t *out_address, struct rp_error *err)
{
    struct rpi_pool *memory = &run->pool->memory;
    uint64_t bytes = rpi_block_bytes(asked), rounded = rpi_round_up(bytes, memory->alignment);
    rp_status status =
        rpi_frontier_set(&run->frontier, run->order, run->nodes.data, run->nodes.count, err);
    if (status == RP_OK)
        status = rpi_place_look(&run->place, stream, &run->frontier, err);
    if (status != RP_OK)
        return status;
    uint64_t offset = choose_offset(run, bytes, stream, rounded);
    if (offset == UINT64_MAX)
        return rpi_error(err, RP_ERROR_LIMIT, "rp_call_alloc",
                         "a block of %llu bytes fits no range of addresses",
                         (unsigned long long)asked);
    status = grow_pool(run->pool, offset + rounded, err);
    if (status != RP_OK)
        return status;
    if (!rpi_vec_reserve(&run->made->addresses, run->made->addresses.count + 1) ||
        !keep_alloc_nodes(run))
        return rpi_error_host_memory(err, "rp_call_alloc", sizeof offset);
    uint32_t block;
    status = rpi_place_take(&run->place, offset, rounded, &block, err);
    if (status != RP_OK)
        return status;
    *out_address = memory->arena.base + offset;
    run->made->addresses.data[run->made->addresses.count++] = *out_address;
    if (run->made->height < offset + rounded)
        run->made->height = offset + rounded;
    return RP_OK;
}

static rp_status record_alloc(struct rp_call *call, size_t bytes, CUstream stream,
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
    return status;
}

static rp_status record_free(struct rp_call *call, uint64_t address, struct rp_error *err)
{
    struct recording *run = (struct recording *)call;
    uint32_t block;
    rp_status status = rpi_live_find(&run->live, address, "rp_call_free", &block, err);
    if (status != RP_OK)
        return status;
    uint32_t placed = (uint32_t)call->arg_count + block;
    uint32_t first = placed ? run->alloc_ends.data[placed - 1] : 0;
    status = rpi_capture_free_nodes(&run->capture, &run->live, block, run->alloc_nodes.data + first,
                                    run->alloc_ends.data[placed] - first, &run->nodes, err);
    if (status == RP_OK)
        status = rpi_place_free(&run->place, placed, run->nodes.data, run->nodes.count, err);
    if (status == RP_OK)
        rpi_live_remove(&run->live, block);
    return status;
}

static const struct rpi_call_functions functions = {record_alloc, record_use, record_free};

/* Captures; everything made lies in run and run->made, whatever happens. */
static rp_status capture(struct recording *run, const char *what, rp_callable callable, void *user,
                         const struct rp_arg *args, struct rp_error *err)
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
                                   run->order, what, err);
    if (status == RP_OK)
        status = rpi_call_run(&run->call, callable, user, what, err);
    if (status == RP_OK)
        status = rpi_capture_end(&run->capture, &run->made->template, err);
    rpi_free(addresses);
    return status;
}

static void finish(struct recording *run)
{
    rpi_capture_finish(&run->capture);
    rpi_live_finish(&run->live);
    rpi_place_finish(&run->place);
    rpi_frontier_finish(&run->frontier);
    rpi_vec_finish(&run->nodes);
    rpi_vec_finish(&run->alloc_ends);
    rpi_vec_finish(&run->alloc_nodes);
    rpi_order_destroy(run->order);
}

rp_status rpi_record(struct rp_pool *pool, const char *name, rp_callable callable, void *user,
                     const struct rp_arg *args, size_t arg_count,
                     const struct rpi_rehearsal *rehearsal, const uint64_t *offsets,
                     uint64_t planned_height, struct rpi_recorded *out_recorded,
                     struct rp_error *err)
{
    char what[96];
    snprintf(what, sizeof what, "recording '%.60s'", name);
    struct rpi_recorded made = {0};
    struct recording run = {.call = {.functions = &functions,
                                     .stream = pool->stream,
                                     .arg_count = arg_count,
                                     .captures = true},
                            .pool = pool,
                            .rehearsal = rehearsal,
                            .offsets = offsets,
                            .made = &made};
    rp_status status = grow_pool(pool, planned_height, err);
    if (status == RP_OK)
        status = rpi_order_create(&run.order, err);
    if (status == RP_OK) {
        rpi_place_init(&run.place, run.order, pool->memory.alignment, planned_height);
        status = capture(&run, what, callable, user, args, err);
    }
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
    rpi_vec_finish(&recorded->addresses);
    *recorded = (struct rpi_recorded){0};
}
