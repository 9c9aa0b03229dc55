/* SPDX-License-Identifier: MIT
 *
 * Host time of one replay of a chain of kernels whose arguments are all at other addresses than in
 * the call before, from the call to its return, the device idle before it:
 *
 *     bound   rp_graph_replay
 *     bare    cuGraphExecKernelNodeSetParams for each node, cuGraphLaunch: no checks at all
 *     copies  a copy into a fixed buffer for each argument, cuGraphLaunch, a copy out for each
 *
 * Kernel j adds argument (j + 1) mod A to argument j mod A, all in and out. The three take turns,
 * call by call. Prints JSON with medians in microseconds.
 *
 *     bench_replay [--driver cuda|host] [--calls N]
 */
#include "base/clock.h"
#include "driver/driver.h"
#include "graph/objects.h"
#include "kernels/kernels.h"
#include "reprise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLOATS = 1024, MOST_ARGS = 100, MOST_KERNELS = 1000, WAYS = 3 };

struct bench {
    const struct rp_driver *driver;
    struct rp_device *device;
    CUmodule module;
    CUfunction saxpy;
    CUstream stream;
    size_t kernels, args, calls;
    uint64_t sets[2][MOST_ARGS], fixed[MOST_ARGS];
    struct rp_arg list[2][MOST_ARGS];
    struct rp_pool *pool;
    struct rp_graph *graph;
    CUgraph bare_graph, fixed_graph;
    CUgraphExec bare, with_copies;
    CUgraphNode nodes[MOST_KERNELS];
    CUDA_KERNEL_NODE_PARAMS params[MOST_KERNELS];
};

static void check(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "bench_replay: %s: %s\n", what, rpi_result_name(result));
    exit(2);
}

static void check_rp(rp_status status, const struct rp_error *err)
{
    if (status == RP_OK)
        return;
    fprintf(stderr, "bench_replay: %s\n", err->message);
    exit(2);
}

static CUresult enqueue(const struct bench *b, const uint64_t *args, CUstream stream)
{
    float factor = 0.5f;
    uint32_t count = FLOATS;
    CUresult result = CUDA_SUCCESS;
    for (size_t j = 0; j < b->kernels && !result; j++) {
        uint64_t y = args[j % b->args], x = args[(j + 1) % b->args];
        void *params[] = {&y, &x, &factor, &count};
        result = b->driver->cuLaunchKernel(b->saxpy, 1, 1, 1, 128, 1, 1, 0, stream, params, NULL);
    }
    return result;
}

static rp_status callable(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct bench *b = user;
    uint64_t args[MOST_ARGS];
    for (size_t k = 0; k < b->args; k++)
        args[k] = rp_call_arg(call, k);
    CUresult result = enqueue(b, args, rp_call_stream(call));
    return result ? rpi_error_driver(err, result, "cuLaunchKernel", "launching the chain") : RP_OK;
}

static CUgraphExec capture_by_hand(struct bench *b, const uint64_t *args, CUgraph *out_graph)
{
    CUgraphExec exec;
    check(b->driver->cuStreamBeginCapture(b->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "begin");
    check(enqueue(b, args, b->stream), "launch");
    check(b->driver->cuStreamEndCapture(b->stream, out_graph), "end");
    check(b->driver->cuGraphInstantiateWithFlags(&exec, *out_graph, 0), "instantiate");
    check(b->driver->cuGraphUpload(exec, b->stream), "upload");
    check(b->driver->cuStreamSynchronize(b->stream), "synchronize");
    return exec;
}

static void prepare(struct bench *b)
{
    struct rp_error err;
    for (size_t k = 0; k < b->args; k++) {
        for (int set = 0; set < 2; set++) {
            CUdeviceptr memory;
            check(b->driver->cuMemAlloc(&memory, FLOATS * 4), "cuMemAlloc");
            b->sets[set][k] = memory;
            b->list[set][k] =
                (struct rp_arg){.address = memory, .bytes = FLOATS * 4, .role = RP_ARG_INOUT};
        }
        CUdeviceptr memory;
        check(b->driver->cuMemAlloc(&memory, FLOATS * 4), "cuMemAlloc");
        b->fixed[k] = memory;
    }
    check_rp(rp_pool_create(b->device, NULL, &b->pool, &err), &err);
    check_rp(rp_graph_capture(b->pool, NULL, callable, b, b->list[0], b->args, &b->graph, &err),
             &err);
    b->bare = capture_by_hand(b, b->sets[0], &b->bare_graph);
    b->with_copies = capture_by_hand(b, b->fixed, &b->fixed_graph);
    size_t count = b->kernels;
    check(b->driver->cuGraphGetNodes(b->bare_graph, b->nodes, &count), "cuGraphGetNodes");
    for (size_t j = 0; j < count; j++)
        check(b->driver->cuGraphKernelNodeGetParams(b->nodes[j], &b->params[j]), "params");
}

static void finish(struct bench *b)
{
    rp_graph_destroy(b->graph);
    rp_pool_destroy(b->pool);
    b->driver->cuGraphExecDestroy(b->bare);
    b->driver->cuGraphExecDestroy(b->with_copies);
    b->driver->cuGraphDestroy(b->bare_graph);
    b->driver->cuGraphDestroy(b->fixed_graph);
    for (size_t k = 0; k < b->args; k++) {
        b->driver->cuMemFree(b->sets[0][k]);
        b->driver->cuMemFree(b->sets[1][k]);
        b->driver->cuMemFree(b->fixed[k]);
    }
}

/* Nodes come in the order of the chain. */
static CUresult replay_bare(struct bench *b, int set)
{
    float factor = 0.5f;
    uint32_t count = FLOATS;
    CUresult result = CUDA_SUCCESS;
    for (size_t j = 0; j < b->kernels && !result; j++) {
        void *params[] = {&b->sets[set][j % b->args], &b->sets[set][(j + 1) % b->args], &factor,
                          &count};
        b->params[j].kernelParams = params;
        result = b->driver->cuGraphExecKernelNodeSetParams(b->bare, b->nodes[j], &b->params[j]);
    }
    return result ? result : b->driver->cuGraphLaunch(b->bare, b->stream);
}

static CUresult replay_with_copies(struct bench *b, int set)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t k = 0; k < b->args && !result; k++)
        result = b->driver->cuMemcpyDtoDAsync(b->fixed[k], b->sets[set][k], FLOATS * 4, b->stream);
    if (!result)
        result = b->driver->cuGraphLaunch(b->with_copies, b->stream);
    for (size_t k = 0; k < b->args && !result; k++)
        result = b->driver->cuMemcpyDtoDAsync(b->sets[set][k], b->fixed[k], FLOATS * 4, b->stream);
    return result;
}

static double time_one(struct bench *b, int way, int set)
{
    struct rp_error err = {0};
    CUresult result = CUDA_SUCCESS;
    check(b->driver->cuStreamSynchronize(b->stream), "cuStreamSynchronize");
    uint64_t start = rpi_clock_ns();
    if (way == 0)
        check_rp(rp_graph_replay(b->graph, b->list[set], b->args, b->stream, &err), &err);
    else
        result = way == 1 ? replay_bare(b, set) : replay_with_copies(b, set);
    double us = rpi_ms_since(start) * 1000.0;
    check(result, "replay");
    return us;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void measure(struct bench *b, double medians[WAYS])
{
    double *times = calloc(WAYS * b->calls, sizeof *times);
    if (!times)
        check(CUDA_ERROR_OUT_OF_MEMORY, "host memory");
    for (size_t i = 0; i < b->calls + 20; i++)
        for (int way = 0; way < WAYS; way++) {
            double us = time_one(b, way, (int)(i % 2));
            if (i >= 20) /* those before warm up */
                times[(size_t)way * b->calls + i - 20] = us;
        }
    for (int way = 0; way < WAYS; way++) {
        double *first = times + (size_t)way * b->calls;
        qsort(first, b->calls, sizeof *first, ascending);
        medians[way] = first[b->calls / 2];
    }
    free(times);
}

static void run(struct bench *b, size_t kernels, size_t args, const char *separator)
{
    double medians[WAYS];
    struct rp_graph_info info;
    b->kernels = kernels;
    b->args = args;
    prepare(b);
    measure(b, medians);
    rp_graph_info(b->graph, &info);
    printf("%s\n  {\"kernels\":%zu,\"args\":%zu,\"bound_args\":%zu,\"copied_args\":%zu,"
           "\"nodes_patched_a_replay\":%.2f,\"bound_us\":%.3f,\"bare_us\":%.3f,\"copies_us\":%.3f,"
           "\"bound_over_bare\":%.3f}",
           separator, kernels, args, info.bound_args, info.copied_args,
           (double)info.patched_nodes / (double)info.replays, medians[0], medians[1], medians[2],
           medians[0] / medians[1]);
    finish(b);
}

static void open_bench(struct bench *b, const char *driver)
{
    struct rp_error err;
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    options.driver = driver;
    options.host_check_races = 0;
    check_rp(rp_device_open(&options, &b->device, &err), &err);
    b->driver = b->device->driver;
    check_rp(rp_device_push(b->device, &err), &err);
    check(b->driver->cuModuleLoadData(&b->module, rpt_kernel_image(b->driver)), "cuModuleLoadData");
    check(b->driver->cuModuleGetFunction(&b->saxpy, b->module, "rpt_saxpy"), "rpt_saxpy");
    check(b->driver->cuStreamCreate(&b->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

int main(int argc, char **argv)
{
    static const size_t shapes[][2] = {{1, 1}, {10, 4}, {100, 8}, {100, 100}, {1000, 8}};
    static struct bench b = {.calls = 500};
    const char *driver = NULL;
    for (int i = 1; i < argc; i++) {
        if (i + 1 < argc && !strcmp(argv[i], "--driver"))
            driver = argv[++i];
        else if (i + 1 < argc && !strcmp(argv[i], "--calls") && atoi(argv[i + 1]) > 0)
            b.calls = (size_t)atoi(argv[++i]);
        else {
            fprintf(stderr, "usage: bench_replay [--driver cuda|host] [--calls N]\n");
            return 2;
        }
    }
    open_bench(&b, driver);
    struct rp_device_info info;
    rp_device_info(b.device, &info);
    printf("{\"driver\":\"%s\",\"device\":\"%s\",\"calls\":%zu,\"replays\":[", info.driver,
           info.name, b.calls);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        run(&b, shapes[i][0], shapes[i][1], i ? "," : "");
    printf("\n]}\n");
    b.driver->cuStreamDestroy(b.stream);
    b.driver->cuModuleUnload(b.module);
    rp_device_pop(b.device);
    rp_device_destroy(b.device);
    return 0;
}
