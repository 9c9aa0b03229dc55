/* SPDX-License-Identifier: MIT
 *
 * rp_run: the callable, now, without a graph. Each block gets memory of its own from a range that
 * grows with the run and is given back after it: what the run takes is the sum of its blocks. A
 * block that is freed is not handed out again, so streams need no care.
 */
#include "graph/ground/call.h"
#include "graph/ground/run_blocks.h"
#include "graph/objects/objects.h"

#include "base/hostmem.h"
#include "base/refuse.h"
#include "graph/objects/arguments.h"
#include "graph/objects/device_context.h"
#include "graph/objects/gates.h"

#include <assert.h>
#include <stdio.h>

struct running {
    struct rp_call call; /* first: the callable's handle is a pointer to it */
    struct rp_pool *pool;
    struct rpi_run_blocks run_blocks;
    uint64_t cursor; /* offset in the eager arena */
};

static rp_status run_alloc(struct rp_call *call, uint64_t bytes, CUstream stream,
                           uint64_t *out_address, struct rp_error *err)
{
    struct running *run = (struct running *)call;
    struct rpi_arena *arena = &run->pool->core->eager;
    uint64_t offset = rpi_round_up(run->cursor, run->pool->core->memory.alignment);
    uint64_t taken = bytes ? bytes : 1;
    if (taken > UINT64_MAX - offset)
        return rpi_error(err, RP_ERROR_LIMIT, "rp_call_alloc",
                         "a block of %llu bytes fits no range of addresses",
                         (unsigned long long)bytes);
    uint32_t index;
    rp_status status = rpi_run_blocks_stream(&run->run_blocks, stream, &index, err);
    if (status == RP_OK)
        status = rpi_arena_grow(arena, offset + taken, err);
    if (status == RP_OK)
        status = rpi_run_blocks_add(&run->run_blocks, arena->base + offset, stream, err);
    if (status != RP_OK)
        return status;
    run->cursor = offset + taken;
    *out_address = arena->base + offset;
    return RP_OK;
}

static rp_status run_use(struct rp_call *call, uint64_t address, CUstream stream,
                         struct rp_error *err)
{
    struct running *run = (struct running *)call;
    uint32_t block, index;
    rp_status status = rpi_run_blocks_find(&run->run_blocks, address, "rp_call_use", &block, err);
    if (status == RP_OK)
        status = rpi_run_blocks_stream(&run->run_blocks, stream, &index, err);
    return status;
}

static rp_status run_free(struct rp_call *call, uint64_t address, struct rp_error *err)
{
    struct running *run = (struct running *)call;
    uint32_t block;
    rp_status status = rpi_run_blocks_find(&run->run_blocks, address, "rp_call_free", &block, err);
    if (status == RP_OK)
        rpi_run_blocks_remove(&run->run_blocks, block);
    return status;
}

static const struct rpi_call_functions functions = {
    .alloc = run_alloc, .use = run_use, .free = run_free};

/* Asks again when it fails: nothing may run in memory that is about to go. Synchronising the
 * context would break captures elsewhere. */
static CUresult wait_for(const struct rp_driver *driver, CUstream stream)
{
    CUresult result = driver->cuStreamSynchronize(stream);
    if (result != CUDA_SUCCESS)
        driver->cuStreamSynchronize(stream);
    return result;
}

/* Waits for the run's stream and every stream that its blocks named. */
static rp_status wait_for_streams(struct running *run, struct rp_error *err)
{
    const struct rp_driver *driver = run->pool->device->driver;
    CUresult failed = wait_for(driver, run->call.stream);
    for (size_t i = 0; i < run->run_blocks.streams.count; i++) {
        CUstream stream = run->run_blocks.streams.data[i];
        if (stream == run->call.stream)
            continue;
        CUresult result = wait_for(driver, stream);
        if (failed == CUDA_SUCCESS)
            failed = result;
    }
    if (failed == CUDA_SUCCESS)
        return RP_OK;
    return rpi_error_driver(err, failed, "cuStreamSynchronize", "running work eagerly");
}

static rp_status check_stream(const struct rp_device *device, CUstream stream, struct rp_error *err)
{
    const struct rp_driver *driver = device->driver;
    rp_status status = rpi_device_check_stream(device, stream, "rp_run", err);
    if (status != RP_OK)
        return status;
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = driver->cuStreamIsCapturing(stream, &capturing);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuStreamIsCapturing", "running work eagerly");
    if (capturing != CU_STREAM_CAPTURE_STATUS_NONE)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_run",
                         "the stream is capturing, and a run waits for its work to finish");
    return RP_OK;
}

/* With the eager lock held and the context current. */
static rp_status run_locked(struct running *run, rp_callable_fn callable, void *user,
                            struct rp_error *err)
{
    assert(rpi_gate_is_own(&run->pool->core->eager_gate));
    const struct rp_driver *driver = run->pool->device->driver;
    char what[96];
    snprintf(what, sizeof what, "running eagerly in '%.60s'", run->pool->name);
    rp_status status = check_stream(run->pool->device, run->call.stream, err);
    if (status != RP_OK)
        return status;
    status = rpi_call_run(&run->call, callable, user, what, err);
    int mode = rpi_relax_begin(driver);
    rp_status waited = wait_for_streams(run, status == RP_OK ? err : NULL);
    rpi_relax_end(driver, mode);
    rpi_arena_shrink(&run->pool->core->eager, 0);
    rpi_run_blocks_finish(&run->run_blocks);
    return status == RP_OK ? waited : status;
}

rp_status rp_run(struct rp_pool *pool, rp_callable_fn callable, void *user,
                 const struct rp_arg *args, size_t arg_count, struct CUstream_st *stream,
                 struct rp_error *err)
{
    if (rpi_is_forked() || !pool || !callable)
        return rpi_refuse(err, "rp_run", !pool ? "pool" : "callable");
    rp_status status = rpi_check_args("rp_run", args, arg_count, err);
    if (status != RP_OK)
        return status;
    uint64_t *addresses = rpi_reallocarray(NULL, arg_count + 1, sizeof *addresses);
    if (!addresses)
        return rpi_error_host_memory(err, "rp_run", (arg_count + 1) * sizeof *addresses);
    for (size_t i = 0; i < arg_count; i++)
        addresses[i] = args[i].address;
    status = rpi_gate_for_work(&pool->core->eager_gate, "rp_run", pool->name, err);
    if (status == RP_OK) {
        struct running run = {.call = {.functions = &functions,
                                       .stream = stream,
                                       .args = addresses,
                                       .given = args,
                                       .arg_count = arg_count},
                              .pool = pool};
        status = rp_device_push(pool->device, err);
        if (status == RP_OK) {
            status = run_locked(&run, callable, user, err);
            rp_device_pop(pool->device);
        }
        rpi_gate_leave(&pool->core->eager_gate);
    }
    rpi_free(addresses);
    return status;
}
