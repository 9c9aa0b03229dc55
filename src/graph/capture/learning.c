/* SPDX-License-Identifier: MIT */
#include "graph/capture/learning.h"

#include "graph/objects/arguments.h"
#include "reprise_framework.h"

#include <assert.h>
#include <math.h>

static rp_status learn_alloc(struct rp_call *call, uint64_t bytes, CUstream stream,
                             uint64_t *out_address, struct rp_error *err)
{
    struct rpi_learning *learning = (struct rpi_learning *)call;
    struct rpi_capture_record *record = learning->record;
    uint32_t index, block;
    bool capturing;
    uint64_t address;
    learning->nodes.count = 0;
    rp_status status = rpi_run_blocks_stream(&learning->run_blocks, stream, &index, err);
    if (status == RP_OK)
        status =
            rpi_capture_terminals(&learning->capture, stream, &learning->nodes, &capturing, err);
    if (status == RP_OK)
        status = learning->steps->place(learning, rpi_block_bytes(bytes), index, &address, err);
    if (status == RP_OK)
        status = rpi_capture_record_alloc(record, (int64_t)record->blocks.count,
                                          rpi_block_bytes(bytes), index, learning->nodes.data,
                                          learning->nodes.count, &block, err);
    if (status == RP_OK)
        status = rpi_run_blocks_add(&learning->run_blocks, address, stream, err);
    if (status == RP_OK)
        *out_address = address;
    return status;
}

static rp_status learn_use(struct rp_call *call, uint64_t address, CUstream stream,
                           struct rp_error *err)
{
    struct rpi_learning *learning = (struct rpi_learning *)call;
    uint32_t block, index;
    rp_status status =
        rpi_run_blocks_find(&learning->run_blocks, address, "rp_call_use", &block, err);
    if (status == RP_OK)
        status = rpi_run_blocks_stream(&learning->run_blocks, stream, &index, err);
    if (status == RP_OK)
        status = rpi_run_blocks_use(&learning->run_blocks, block, stream, err);
    if (status == RP_OK)
        status = rpi_capture_record_use(learning->record, block, index, err);
    return status;
}

static rp_status learn_free(struct rp_call *call, uint64_t address, struct rp_error *err)
{
    struct rpi_learning *learning = (struct rpi_learning *)call;
    struct rpi_capture_record *record = learning->record;
    uint32_t block;
    rp_status status =
        rpi_run_blocks_find(&learning->run_blocks, address, "rp_call_free", &block, err);
    if (status != RP_OK)
        return status;
    const struct rpi_event *alloc = &record->events.data[record->blocks.data[block].alloc_event];
    status = rpi_capture_free_nodes(&learning->capture, &learning->run_blocks, block,
                                    record->event_nodes.data + alloc->first_node, alloc->node_count,
                                    &learning->nodes, err);
    if (status == RP_OK && learning->steps->give_back)
        status = learning->steps->give_back(learning, block, err);
    if (status == RP_OK)
        status = rpi_capture_record_free(record, block, learning->nodes.data, learning->nodes.count,
                                         err);
    if (status == RP_OK)
        rpi_run_blocks_remove(&learning->run_blocks, block);
    return status;
}

static rp_status find_result(struct rp_call *call, uint64_t bytes, uint64_t address,
                             uint64_t *out_address, struct rp_error *err)
{
    assert(((struct rpi_learning *)call)->steps->result);
    struct rpi_learning *learning = (struct rpi_learning *)call;
    uint32_t block = RPI_ABSENT;
    rp_status status = RP_OK;
    if (address)
        status = rpi_run_blocks_find(&learning->run_blocks, address, "rp_call_result", &block, err);
    if (status == RP_OK)
        status = learning->steps->result(learning, bytes, block, out_address, err);
    if (status == RP_OK && address)
        rpi_run_blocks_remove(&learning->run_blocks, block);
    return status;
}

static bool is_named(const struct rpi_learning *learning, uint64_t address)
{
    bool named = false;
    for (size_t i = 0; !named && i < learning->values.count; i++)
        named = learning->values.data[i] == address;
    return named;
}

static rp_status name_value(struct rp_call *call, uint64_t address, struct rp_error *err)
{
    struct rpi_learning *learning = (struct rpi_learning *)call;
    struct rp_device *device = learning->pool->device;
    if (!address || address % sizeof(uint64_t))
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_call_value",
                         "0x%llx is no address of a word of 8 bytes", (unsigned long long)address);
    if (is_named(learning, address))
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_call_value",
                         "the value at 0x%llx was named before", (unsigned long long)address);
    if (rp_device_gives(device, address))
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_call_value",
                         "0x%llx lies in memory of captures: a value is a word of the caller's "
                         "own, which lives as long as the graph",
                         (unsigned long long)address);
    if (!rpi_vec_push(&learning->values, address))
        return rpi_error_host_memory(err, "rp_call_value", sizeof address);
    return RP_OK;
}

static rp_status name_scalar(struct rp_call *call, double value, struct rp_error *err)
{
    struct rpi_learning *learning = (struct rpi_learning *)call;
    if (!isfinite(value))
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_call_scalar", "%g is no finite number",
                         value);
    if (!rpi_vec_push(&learning->scalars, value))
        return rpi_error_host_memory(err, "rp_call_scalar", sizeof value);
    return RP_OK;
}

static rp_status take_over(struct rp_call *call, struct rp_error *err)
{
    return rpi_capture_take_over(&((struct rpi_learning *)call)->capture, err);
}

static rp_status begun(struct rp_call *call, struct rp_error *err)
{
    return rpi_capture_begun(&((struct rpi_learning *)call)->capture, err);
}

static rp_status ended(struct rp_call *call, CUgraph graph, struct rp_error *err)
{
    return rpi_capture_ended(&((struct rpi_learning *)call)->capture, graph, err);
}

const struct rpi_call_functions rpi_learning_functions = {.alloc = learn_alloc,
                                                          .use = learn_use,
                                                          .free = learn_free,
                                                          .value = name_value,
                                                          .scalar = name_scalar,
                                                          .take_over = take_over,
                                                          .begun = begun,
                                                          .ended = ended};
const struct rpi_call_functions rpi_finding_functions = {.alloc = learn_alloc,
                                                         .use = learn_use,
                                                         .free = learn_free,
                                                         .result = find_result,
                                                         .value = name_value,
                                                         .scalar = name_scalar,
                                                         .take_over = take_over,
                                                         .begun = begun,
                                                         .ended = ended};

rp_status rpi_learn(struct rpi_learning *learning, const char *what, rp_callable_fn callable,
                    void *user, const struct rp_arg *args, const uint64_t *addresses,
                    size_t arg_count, CUgraph *out_template, struct rp_error *err)
{
    assert(!learning->values.count && !learning->scalars.count);
    struct rp_pool *pool = learning->pool;
    uint32_t origin;
    learning->call = (struct rp_call){
        .functions = learning->steps->result ? &rpi_finding_functions : &rpi_learning_functions,
        .stream = pool->core->stream,
        .args = addresses,
        .given = args,
        .arg_count = arg_count,
        .captures = true};
    rp_status status =
        rpi_run_blocks_stream(&learning->run_blocks, learning->call.stream, &origin, err);
    if (status == RP_OK)
        status = rpi_capture_begin(&learning->capture, pool->device->driver, learning->call.stream,
                                   learning->record->order, what, err);
    if (status != RP_OK)
        return status;
    learning->capture.kept_predecessors = &learning->record->predecessors;
    status = rpi_call_run(&learning->call, callable, user, what, err);
    if (status == RP_OK)
        status = rpi_capture_end(&learning->capture, out_template, err);
    if (status == RP_OK)
        status = rpi_host_data_read(&learning->host_data, pool->device->driver, *out_template, err);
    return rpi_capture_blame(&learning->capture, status, err);
}

void rpi_learning_finish(struct rpi_learning *learning)
{
    rpi_capture_finish(&learning->capture);
    rpi_run_blocks_finish(&learning->run_blocks);
    rpi_vec_finish(&learning->nodes);
    rpi_vec_finish(&learning->values);
    rpi_vec_finish(&learning->scalars);
    rpi_host_data_finish(&learning->host_data);
}
