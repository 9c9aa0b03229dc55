/* SPDX-License-Identifier: MIT */
#include "graph/rehearse.h"

#include "graph/call.h"
#include "graph/capture.h"

#include <stdio.h>

struct rehearsing {
    struct rp_call call; /* first: the callable's handle is a pointer to it */
    struct rp_pool *pool;
    struct rpi_rehearsal *made;
    struct rpi_capture capture;
    struct rpi_live live; /* block i of the run is block arg_count + i of the record */
    struct rpi_node_list nodes;
};

uint64_t rpi_block_bytes(uint64_t bytes)
{
    return bytes ? bytes : 1;
}

/* An address of its own, and the block in the record. */
static rp_status add_block(struct rehearsing *run, uint64_t bytes, uint32_t stream,
                           uint64_t *out_address, struct rp_error *err)
{
    struct rpi_rehearsal *made = run->made;
    uint64_t address;
    rp_status status = rpi_alias_take(&run->pool->device->alias, rpi_block_bytes(bytes),
                                      run->pool->core->memory.alignment, &address, err);
    if (status != RP_OK)
        return status;
    if (!rpi_vec_reserve(&made->addresses, made->addresses.count + 1))
        return rpi_error_host_memory(err, "rp_call_alloc", sizeof address);
    uint32_t block;
    status = rpi_capture_record_alloc(&made->record, (int64_t)made->record.blocks.count,
                                      rpi_block_bytes(bytes), stream, run->nodes.data,
                                      run->nodes.count, &block, err);
    if (status != RP_OK)
        return status;
    made->addresses.data[made->addresses.count++] = address;
    *out_address = address;
    return RP_OK;
}

static rp_status rehearse_alloc(struct rp_call *call, uint64_t bytes, CUstream stream,
                                uint64_t *out_address, struct rp_error *err)
{
    struct rehearsing *run = (struct rehearsing *)call;
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

static rp_status rehearse_use(struct rp_call *call, uint64_t address, CUstream stream,
                              struct rp_error *err)
{
    struct rehearsing *run = (struct rehearsing *)call;
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

static rp_status rehearse_free(struct rp_call *call, uint64_t address, struct rp_error *err)
{
    struct rehearsing *run = (struct rehearsing *)call;
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
        status = rpi_capture_record_free(record, recorded, run->nodes.data, run->nodes.count, err);
    if (status == RP_OK)
        rpi_live_remove(&run->live, block);
    return status;
}

static const struct rpi_call_functions functions = {rehearse_alloc, rehearse_use, rehearse_free};

/* Captures; everything made lies in run and run->made, whatever happens. */
static rp_status capture(struct rehearsing *run, const char *what, rp_callable_fn callable,
                         void *user, const struct rp_arg *args, struct rp_error *err)
{
    struct rpi_rehearsal *made = run->made;
    uint32_t origin;
    rp_status status = rpi_live_stream(&run->live, run->call.stream, &origin, err);
    for (size_t i = 0; status == RP_OK && i < run->call.arg_count; i++) {
        uint64_t address;
        status = add_block(run, args[i].bytes, origin, &address, err);
    }
    if (status != RP_OK)
        return status;
    /* Copied, as the addresses of blocks to come may move the array. */
    uint64_t *addresses = rpi_reallocarray(NULL, run->call.arg_count + 1, sizeof *addresses);
    if (!addresses)
        return rpi_error_host_memory(err, what, (run->call.arg_count + 1) * sizeof *addresses);
    for (size_t i = 0; i < run->call.arg_count; i++)
        addresses[i] = made->addresses.data[i];
    run->call.args = addresses;
    status = rpi_capture_begin(&run->capture, run->pool->device->driver, run->call.stream,
                               made->record.order, what, err);
    run->capture.kept_predecessors = &made->record.predecessors;
    if (status == RP_OK)
        status = rpi_call_run(&run->call, callable, user, what, err);
    if (status == RP_OK)
        status = rpi_capture_end(&run->capture, &made->template, err);
    status = rpi_capture_blame(&run->capture, status, err);
    rpi_free(addresses);
    return status;
}

static rp_status begin_addresses(struct rp_device *device, struct rp_error *err)
{
    if (!device->alias.driver) {
        rp_status status = rpi_alias_init(&device->alias, device->driver, device->handle, err);
        if (status != RP_OK)
            return status;
    }
    rpi_alias_begin(&device->alias);
    return RP_OK;
}

rp_status rpi_rehearse(struct rp_pool *pool, const char *name, rp_callable_fn callable, void *user,
                       const struct rp_arg *args, size_t arg_count,
                       struct rpi_rehearsal *out_rehearsal, struct rp_error *err)
{
    struct rp_device *device = pool->device;
    char what[96];
    snprintf(what, sizeof what, "rehearsing '%.60s'", name);
    struct rpi_rehearsal made = {0};
    rp_status status = rpi_capture_record_init(&made.record, name, err);
    if (status != RP_OK)
        return status;
    status = rpi_lock_for_callable(&device->rehearsal_lock, "rp_graph_capture", pool->name, err);
    if (status != RP_OK) {
        rpi_rehearsal_finish(&made, device->driver);
        return status;
    }
    struct rehearsing run = {.call = {.functions = &functions,
                                      .stream = pool->core->stream,
                                      .given = args,
                                      .arg_count = arg_count,
                                      .captures = true},
                             .pool = pool,
                             .made = &made};
    status = begin_addresses(device, err);
    if (status == RP_OK)
        status = capture(&run, what, callable, user, args, err);
    rpi_capture_finish(&run.capture);
    rpi_live_finish(&run.live);
    rpi_vec_finish(&run.nodes);
    pthread_mutex_unlock(&device->rehearsal_lock);
    if (status == RP_OK)
        *out_rehearsal = made;
    else
        rpi_rehearsal_finish(&made, device->driver);
    return status;
}

void rpi_rehearsal_finish(struct rpi_rehearsal *rehearsal, const struct rp_driver *driver)
{
    if (rehearsal->template)
        driver->cuGraphDestroy(rehearsal->template);
    rpi_capture_record_finish(&rehearsal->record);
    rpi_vec_finish(&rehearsal->addresses);
    *rehearsal = (struct rpi_rehearsal){0};
}
