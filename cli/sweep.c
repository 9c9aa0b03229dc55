/* SPDX-License-Identifier: MIT */
#define RP_UNSTABLE /* rp_compare_placements */
#include "sweep.h"

#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

static const uint64_t sizes[] = {1 * MIB, 3 * MIB, 5 * MIB, 8 * MIB, 16 * MIB};
enum { SIZES = sizeof sizes / sizeof *sizes };
#define MOST_BYTES (16 * MIB)

struct alive {
    uint64_t address, bytes;
};

/* One capture under way. */
struct program {
    struct sweep *sweep;
    const struct sweep_case *which;
    struct rp_call *call;
    uint64_t random;
    struct alive *alive; /* [steps] */
    size_t count;
};

/* ---- The shared part ----------------------------------------------------------------------- */

static rp_status make_objects(struct sweep *sweep, struct rp_error *err)
{
    const struct gpu *gpu = &sweep->gpu;
    rp_status status = gpu_check(gpu, gpu->cuMemAlloc(&sweep->sink, MOST_BYTES), "cuMemAlloc", err);
    for (int s = 0; status == RP_OK && s < SWEEP_MOST_STREAMS; s++) {
        status = gpu_check(gpu, gpu->cuEventCreate(&sweep->events[s], GPU_EVENT_DISABLE_TIMING),
                           "cuEventCreate", err);
        if (status == RP_OK && s > 0)
            status =
                gpu_check(gpu, gpu->cuStreamCreate(&sweep->streams[s], GPU_STREAM_NON_BLOCKING),
                          "cuStreamCreate", err);
    }
    return status;
}

rp_status sweep_init(struct sweep *sweep, struct rp_device *device, unsigned budget_ms,
                     struct rp_error *err)
{
    memset(sweep, 0, sizeof *sweep);
    sweep->device = device;
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    options.name = "sweep";
    options.plan_budget_ms = budget_ms;
    rp_status status = gpu_init(&sweep->gpu, device, err);
    if (status == RP_OK)
        status = rp_pool_create(device, &options, &sweep->pool, err);
    if (status == RP_OK)
        status = rp_device_push(device, err);
    if (status == RP_OK) {
        status = make_objects(sweep, err);
        rp_device_pop(device);
    }
    return status;
}

void sweep_finish(struct sweep *sweep)
{
    if (!sweep->pool)
        return;
    if (rp_device_push(sweep->device, NULL) == RP_OK) {
        for (int s = 0; s < SWEEP_MOST_STREAMS; s++) {
            if (sweep->events[s])
                sweep->gpu.cuEventDestroy(sweep->events[s]);
            if (s > 0 && sweep->streams[s])
                sweep->gpu.cuStreamDestroy(sweep->streams[s]);
        }
        if (sweep->sink)
            sweep->gpu.cuMemFree(sweep->sink);
        rp_device_pop(sweep->device);
    }
    rp_pool_destroy(sweep->pool);
    memset(sweep, 0, sizeof *sweep);
}

/* ---- One capture --------------------------------------------------------------------------- */

/* Steele, Lea and Flood's SplitMix64. */
static uint64_t next(struct program *p)
{
    uint64_t z = p->random += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static unsigned below(struct program *p, size_t count)
{
    return (unsigned)((next(p) >> 32) * count >> 32);
}

static double uniform(struct program *p)
{
    return (double)(next(p) >> 11) * 0x1p-53;
}

/* A stream that is not this one. */
static unsigned another(struct program *p, unsigned stream)
{
    unsigned other = below(p, p->which->streams - 1);
    return other + (other >= stream);
}

/* What `waiter` does from now on comes after all that `other` was given. */
static rp_status join(struct program *p, unsigned waiter, unsigned other, struct rp_error *err)
{
    struct sweep *sweep = p->sweep;
    const struct gpu *gpu = &sweep->gpu;
    rp_status status = gpu_check(
        gpu, gpu->cuEventRecord(sweep->events[other], sweep->streams[other]), "cuEventRecord", err);
    if (status == RP_OK)
        status =
            gpu_check(gpu, gpu->cuStreamWaitEvent(sweep->streams[waiter], sweep->events[other], 0),
                      "cuStreamWaitEvent", err);
    return status;
}

static rp_status free_one(struct program *p, struct rp_error *err)
{
    if (!p->count)
        return RP_OK;
    size_t victim = below(p, p->count);
    rp_status status = rp_call_free(p->call, p->alive[victim].address, err);
    p->alive[victim] = p->alive[--p->count];
    return status;
}

static rp_status write_and_read(struct program *p, unsigned writer, struct rp_error *err)
{
    const struct gpu *gpu = &p->sweep->gpu;
    struct CUstream_st **streams = p->sweep->streams;
    struct alive made = {.bytes = sizes[below(p, SIZES)]};
    unsigned reader = another(p, writer);
    rp_status status = rp_call_alloc(p->call, made.bytes, streams[writer], &made.address, err);
    if (status != RP_OK)
        return status;
    p->alive[p->count++] = made;
    status = gpu_check(gpu, gpu->cuMemsetD8Async(made.address, 1, made.bytes, streams[writer]),
                       "cuMemsetD8Async", err);
    if (status == RP_OK)
        status = join(p, reader, writer, err);
    if (status == RP_OK)
        status = gpu_check(
            gpu, gpu->cuMemcpyDtoDAsync(p->sweep->sink, made.address, made.bytes, streams[reader]),
            "cuMemcpyDtoDAsync", err);
    if (status == RP_OK)
        status = rp_call_use(p->call, made.address, streams[reader], err);
    return status;
}

static rp_status step(struct program *p, struct rp_error *err)
{
    unsigned stream = below(p, p->which->streams);
    double what = uniform(p);
    if (what < p->which->p_free)
        return free_one(p, err);
    if (what < p->which->p_free + p->which->p_join)
        return join(p, stream, another(p, stream), err);
    return write_and_read(p, stream, err);
}

static rp_status run_program(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    rp_status status = RP_OK;
    p->call = call;
    p->random = p->which->seed;
    p->count = 0;
    p->sweep->streams[0] = rp_call_stream(call);
    for (unsigned s = 1; status == RP_OK && s < p->which->streams; s++)
        status = join(p, s, 0, err);
    for (unsigned i = 0; status == RP_OK && i < p->which->steps; i++)
        status = step(p, err);
    while (status == RP_OK && p->count)
        status = free_one(p, err);
    for (unsigned s = 1; status == RP_OK && s < p->which->streams; s++)
        status = join(p, 0, s, err);
    return status;
}

rp_status sweep_run(struct sweep *sweep, const struct sweep_case *which, struct rp_placements *out,
                    struct rp_error *err)
{
    struct program program = {.sweep = sweep, .which = which};
    program.alive = calloc(which->steps, sizeof *program.alive);
    if (!program.alive)
        return cli_error(err, RP_ERROR_OUT_OF_HOST_MEMORY, "bench sweep",
                         "%zu bytes of host memory could not be allocated",
                         which->steps * sizeof *program.alive);
    rp_status status = rp_device_push(sweep->device, err);
    if (status == RP_OK) {
        status = rp_compare_placements(sweep->pool, run_program, &program, NULL, 0, out, err);
        rp_device_pop(sweep->device);
    }
    free(program.alive);
    return status;
}
