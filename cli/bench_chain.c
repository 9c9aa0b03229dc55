/* SPDX-License-Identifier: MIT */
#include "bench_chain.h"

#include "bench_time.h"
#include "gpu.h"
#include "kernels/decoder.h"
#include "kernels/images.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>

enum { FLOATS = 1024, BYTES = FLOATS * 4, MOST_ARGS = 100, MOST_KERNELS = 1000 };

static const size_t sizes[BENCH_CHAINS][2] = {{1, 1}, {10, 4}, {100, 8}, {100, 100}, {1000, 8}};

struct hand_made {
    struct CUgraph_st *graph;
    struct CUgraphExec_st *exec;
};

struct chain {
    struct gpu gpu;
    struct CUmod_st *module;
    struct CUfunc_st *kernel;
    struct CUstream_st *stream;
    size_t kernels, args;
    uint64_t memory; /* behind all buffers */
    uint64_t sets[2][MOST_ARGS], fixed[MOST_ARGS];
    struct rp_arg list[2][MOST_ARGS];
    struct rp_pool *pool;
    struct rp_graph *bound, *chosen;
    struct hand_made bare, copies;
    struct CUgraphNode_st *nodes[MOST_KERNELS];
    struct gpu_kernel_params params[MOST_KERNELS];
    double *times[BENCH_CHAIN_WAYS], *done[BENCH_CHAIN_WAYS];
};

static struct decoder_swiglu arguments(const struct chain *c, const uint64_t *args, size_t j)
{
    const float *from = (const float *)(uintptr_t)args[(j + 1) % c->args];
    return (struct decoder_swiglu){
        .out = (float *)(uintptr_t)args[j % c->args], .gate = from, .up = from, .count = FLOATS};
}

static rp_status enqueue(const struct chain *c, const uint64_t *args, struct CUstream_st *stream,
                         struct rp_error *err)
{
    rp_status status = RP_OK;
    for (size_t j = 0; j < c->kernels && !status; j++) {
        struct decoder_swiglu one = arguments(c, args, j);
        status = gpu_check(&c->gpu,
                           c->gpu.cuLaunchKernel(c->kernel, FLOATS / 128, 1, 1, 128, 1, 1, 0,
                                                 stream, (void *[]){&one}, NULL),
                           "cuLaunchKernel", err);
    }
    return status;
}

static rp_status callable(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct chain *c = user;
    uint64_t args[MOST_ARGS];
    for (size_t k = 0; k < c->args; k++)
        args[k] = rp_call_arg(call, k);
    return enqueue(c, args, rp_call_stream(call), err);
}

/* ---- Setting up ---------------------------------------------------------------------------- */

static rp_status capture_by_hand(struct chain *c, const uint64_t *args, struct hand_made *out,
                                 struct rp_error *err)
{
    const struct gpu *gpu = &c->gpu;
    rp_status status =
        gpu_check(gpu, gpu->cuStreamBeginCapture(c->stream, GPU_CAPTURE_THREAD_LOCAL),
                  "cuStreamBeginCapture", err);
    if (status)
        return status;
    status = enqueue(c, args, c->stream, err);
    rp_status ended = gpu_check(gpu, gpu->cuStreamEndCapture(c->stream, &out->graph),
                                "cuStreamEndCapture", status ? NULL : err);
    if (!status)
        status = ended;
    if (!status)
        status = gpu_check(gpu, gpu->cuGraphInstantiateWithFlags(&out->exec, out->graph, 0),
                           "cuGraphInstantiateWithFlags", err);
    if (!status)
        status = gpu_check(gpu, gpu->cuGraphUpload(out->exec, c->stream), "cuGraphUpload", err);
    return status ? status
                  : gpu_check(gpu, gpu->cuStreamSynchronize(c->stream), "cuStreamSynchronize", err);
}

static void drop(struct chain *c, struct hand_made *made)
{
    if (made->exec)
        c->gpu.cuGraphExecDestroy(made->exec);
    if (made->graph)
        c->gpu.cuGraphDestroy(made->graph);
    *made = (struct hand_made){NULL, NULL};
}

static void place_buffers(struct chain *c)
{
    for (size_t k = 0; k < c->args; k++) {
        c->fixed[k] = c->memory + k * BYTES;
        for (size_t set = 0; set < 2; set++) {
            c->sets[set][k] = c->memory + ((set + 1) * MOST_ARGS + k) * BYTES;
            c->list[set][k] =
                (struct rp_arg){.address = c->sets[set][k], .bytes = BYTES, .role = RP_ARG_INOUT};
        }
    }
}

/* Four graphs of a chain: two by Reprise, and by hand with arguments in the first set and fixed. */
static rp_status prepare(struct chain *c, struct rp_error *err)
{
    const struct gpu *gpu = &c->gpu;
    struct rp_capture_options bind = RP_CAPTURE_OPTIONS_INIT;
    bind.bind = RP_BIND_ALWAYS;
    place_buffers(c);
    rp_status status =
        rp_graph_capture(c->pool, &bind, callable, c, c->list[0], c->args, &c->bound, err);
    if (!status)
        status = rp_graph_capture(c->pool, NULL, callable, c, c->list[0], c->args, &c->chosen, err);
    if (!status)
        status = capture_by_hand(c, c->sets[0], &c->bare, err);
    if (!status)
        status = capture_by_hand(c, c->fixed, &c->copies, err);
    size_t count = c->kernels;
    if (!status)
        status = gpu_check(gpu, gpu->cuGraphGetNodes(c->bare.graph, c->nodes, &count),
                           "cuGraphGetNodes", err);
    for (size_t j = 0; !status && j < count; j++)
        status = gpu_check(gpu, gpu->cuGraphKernelNodeGetParams(c->nodes[j], &c->params[j]),
                           "cuGraphKernelNodeGetParams", err);
    return status;
}

static void put_away(struct chain *c)
{
    rp_graph_destroy(c->bound);
    rp_graph_destroy(c->chosen);
    c->bound = c->chosen = NULL;
    drop(c, &c->bare);
    drop(c, &c->copies);
}

/* ---- Measuring ----------------------------------------------------------------------------- */

/* Nodes come in the order of the chain. */
static unsigned replay_bare(struct chain *c, int set)
{
    unsigned result = 0;
    for (size_t j = 0; j < c->kernels && !result; j++) {
        struct decoder_swiglu one = arguments(c, c->sets[set], j);
        void *params[] = {&one};
        c->params[j].params = params;
        result = c->gpu.cuGraphExecKernelNodeSetParams(c->bare.exec, c->nodes[j], &c->params[j]);
    }
    return result ? result : c->gpu.cuGraphLaunch(c->bare.exec, c->stream);
}

static unsigned replay_with_copies(struct chain *c, int set)
{
    unsigned result = 0;
    for (size_t k = 0; k < c->args && !result; k++)
        result = c->gpu.cuMemcpyDtoDAsync(c->fixed[k], c->sets[set][k], BYTES, c->stream);
    if (!result)
        result = c->gpu.cuGraphLaunch(c->copies.exec, c->stream);
    for (size_t k = 0; k < c->args && !result; k++)
        result = c->gpu.cuMemcpyDtoDAsync(c->sets[set][k], c->fixed[k], BYTES, c->stream);
    return result;
}

static rp_status synchronize(const struct chain *c, struct rp_error *err)
{
    return gpu_check(&c->gpu, c->gpu.cuStreamSynchronize(c->stream), "cuStreamSynchronize", err);
}

static rp_status replay(struct chain *c, enum bench_chain_way way, int set, struct rp_error *err)
{
    if (way == BENCH_BOUND || way == BENCH_CHOSEN)
        return rp_graph_replay(way == BENCH_BOUND ? c->bound : c->chosen, c->list[set], c->args,
                               c->stream, err);
    return gpu_check(&c->gpu, way == BENCH_BARE ? replay_bare(c, set) : replay_with_copies(c, set),
                     "a replay by hand", err);
}

static rp_status time_one(struct chain *c, enum bench_chain_way way, int set, double *out_us,
                          double *out_done_us, struct rp_error *err)
{
    rp_status status = synchronize(c, err);
    if (status)
        return status;
    double start = bench_now_us();
    status = replay(c, way, set, err);
    *out_us = bench_now_us() - start;
    if (!status)
        status = synchronize(c, err);
    *out_done_us = bench_now_us() - start;
    return status;
}

/* Replays until nothing has changed in what is copied for a while. */
static rp_status settle(struct chain *c, size_t *out_replays, struct rp_error *err)
{
    enum { WHILE = 40, MOST = 400 };
    size_t copied = 0;
    *out_replays = 0;
    for (size_t i = 0; i < *out_replays + WHILE && i < MOST; i++) {
        struct rp_graph_info info = {.size = sizeof info};
        double us, done_us;
        rp_status status = time_one(c, BENCH_CHOSEN, (int)(i % 2), &us, &done_us, err);
        if (status)
            return status;
        rp_graph_info(c->chosen, &info);
        if (info.copied_args != copied)
            *out_replays = i;
        copied = info.copied_args;
    }
    return RP_OK;
}

static rp_status measure(struct chain *c, size_t calls, struct bench_chain *out,
                         struct rp_error *err)
{
    enum { WARM = 20 };
    struct rp_graph_info info = {.size = sizeof info};
    size_t chosen_after = 0;
    rp_status status = settle(c, &chosen_after, err);
    for (size_t i = 0; i < calls + WARM && !status; i++)
        for (enum bench_chain_way way = 0; way < BENCH_CHAIN_WAYS && !status; way++) {
            double us = 0, done_us = 0;
            status = time_one(c, way, (int)(i % 2), &us, &done_us, err);
            if (i < WARM)
                continue;
            c->times[way][i - WARM] = us;
            c->done[way][i - WARM] = done_us;
        }
    if (status)
        return status;
    rp_graph_info(c->bound, &info);
    *out = (struct bench_chain){.kernels = c->kernels,
                                .args = c->args,
                                .chosen_after = chosen_after,
                                .patched = (double)info.patched_nodes / (double)info.replays};
    rp_graph_info(c->chosen, &info);
    out->bound_args = info.bound_args;
    out->copied_args = info.copied_args;
    for (int way = 0; way < BENCH_CHAIN_WAYS; way++) {
        out->us[way] = bench_median(c->times[way], calls);
        out->done_us[way] = bench_median(c->done[way], calls);
    }
    return RP_OK;
}

static rp_status start(struct chain *c, struct rp_device *device, size_t calls,
                       struct rp_error *err)
{
    struct rp_device_info info = {.size = sizeof info};
    rp_device_info(device, &info);
    const void *image = !strcmp(info.driver, "host") ? (const void *)&decoder_host_image
                                                     : (const void *)decoder_ptx;
    rp_status status = gpu_init(&c->gpu, device, err);
    for (int way = 0; way < BENCH_CHAIN_WAYS && !status; way++) {
        c->times[way] = calloc(calls, sizeof(double));
        c->done[way] = calloc(calls, sizeof(double));
        if (!c->times[way] || !c->done[way])
            status = cli_error(err, RP_ERROR_OUT_OF_HOST_MEMORY, "bench", "out of host memory");
    }
    if (!status)
        status =
            gpu_check(&c->gpu, c->gpu.cuModuleLoadData(&c->module, image), "cuModuleLoadData", err);
    if (!status)
        status =
            gpu_check(&c->gpu, c->gpu.cuModuleGetFunction(&c->kernel, c->module, "decoder_swiglu"),
                      "cuModuleGetFunction", err);
    if (!status)
        status = gpu_check(&c->gpu, c->gpu.cuStreamCreate(&c->stream, GPU_STREAM_NON_BLOCKING),
                           "cuStreamCreate", err);
    if (!status)
        status = gpu_check(&c->gpu, c->gpu.cuMemAlloc(&c->memory, (size_t)3 * MOST_ARGS * BYTES),
                           "cuMemAlloc", err);
    if (!status)
        status = gpu_check(
            &c->gpu, c->gpu.cuMemsetD8Async(c->memory, 0, (size_t)3 * MOST_ARGS * BYTES, c->stream),
            "cuMemsetD8Async", err);
    return status ? status : rp_pool_create(device, NULL, &c->pool, err);
}

static void finish(struct chain *c)
{
    put_away(c);
    rp_pool_destroy(c->pool);
    if (c->stream) {
        c->gpu.cuStreamSynchronize(c->stream);
        c->gpu.cuStreamDestroy(c->stream);
    }
    if (c->memory)
        c->gpu.cuMemFree(c->memory);
    if (c->module)
        c->gpu.cuModuleUnload(c->module);
    for (int way = 0; way < BENCH_CHAIN_WAYS; way++) {
        free(c->times[way]);
        free(c->done[way]);
    }
}

rp_status bench_chain_run(struct rp_device *device, size_t calls,
                          struct bench_chain out_chains[BENCH_CHAINS], struct rp_error *err)
{
    struct chain *c = calloc(1, sizeof *c);
    if (!c)
        return cli_error(err, RP_ERROR_OUT_OF_HOST_MEMORY, "bench", "out of host memory");
    rp_status status = rp_device_push(device, err);
    if (status) {
        free(c);
        return status;
    }
    status = start(c, device, calls, err);
    for (size_t i = 0; i < BENCH_CHAINS && !status; i++) {
        c->kernels = sizes[i][0];
        c->args = sizes[i][1];
        cli_progress(true, "a chain of %zu kernels with %zu arguments", c->kernels, c->args);
        status = prepare(c, err);
        if (!status)
            status = measure(c, calls, &out_chains[i], err);
        if (!status)
            status = synchronize(c, err);
        put_away(c);
    }
    finish(c);
    rp_device_pop(device);
    free(c);
    return status;
}
