/* SPDX-License-Identifier: MIT
 *
 * What conformance cases are written with: expectations, tracked objects, small pieces of work.
 */
#include "conformance.h"

#include "kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* ---- Expectations -------------------------------------------------------------------------- */

static void case_failed(struct rpt *t, const char *file, int line)
{
    t->outcome = CASE_FAILED;
    print_error("%s\n", t->reason);
    _fail(file, line);
}

static const char *base_name(const char *file)
{
    const char *slash = strrchr(file, '/');
    return slash ? slash + 1 : file;
}

void rpt_expect(struct rpt *t, const char *file, int line, const char *call, CUresult result,
                CUresult expected)
{
    if (result == expected)
        return;
    snprintf(t->reason, sizeof t->reason, "%s:%d: %s returned %s (%d), not %s (%d)",
             base_name(file), line, call, rpi_result_name(result), (int)result,
             rpi_result_name(expected), (int)expected);
    case_failed(t, file, line);
}

void rpt_require(struct rpt *t, const char *file, int line, const char *text, bool holds)
{
    if (holds)
        return;
    snprintf(t->reason, sizeof t->reason, "%s:%d: does not hold: %s", base_name(file), line, text);
    case_failed(t, file, line);
}

void rpt_equal(struct rpt *t, const char *file, int line, const char *text, uint64_t value,
               uint64_t expected)
{
    if (value == expected)
        return;
    snprintf(t->reason, sizeof t->reason, "%s:%d: %s is %llu (0x%llx), not %llu (0x%llx)",
             base_name(file), line, text, (unsigned long long)value, (unsigned long long)value,
             (unsigned long long)expected, (unsigned long long)expected);
    case_failed(t, file, line);
}

void rpt_skip(struct rpt *t, const char *reason)
{
    snprintf(t->reason, sizeof t->reason, "%s", reason);
    t->outcome = CASE_SKIPPED;
    print_message("skipped: %s\n", reason);
    skip();
}

/* ---- Tracked objects ----------------------------------------------------------------------- */

void rpt_track(struct rpt *t, enum tracked_kind kind, uint64_t handle, uint64_t bytes)
{
    REQUIRE(t->tracked_count < sizeof t->tracked / sizeof *t->tracked);
    t->tracked[t->tracked_count++] = (struct tracked){kind, handle, bytes};
}

void rpt_forget(struct rpt *t, enum tracked_kind kind, uint64_t handle)
{
    for (size_t i = t->tracked_count; i-- > 0;) {
        if (t->tracked[i].kind != kind || t->tracked[i].handle != handle)
            continue;
        memmove(&t->tracked[i], &t->tracked[i + 1],
                (t->tracked_count - i - 1) * sizeof *t->tracked);
        t->tracked_count--;
        return;
    }
}

static CUstream make_stream(struct rpt *t, unsigned flags)
{
    CUstream stream;
    OK(cuStreamCreate(&stream, flags));
    rpt_track(t, TRACKED_STREAM, HANDLE_OF(stream), 0);
    return stream;
}

CUstream rpt_stream(struct rpt *t)
{
    return make_stream(t, CU_STREAM_NON_BLOCKING);
}

CUstream rpt_blocking_stream(struct rpt *t)
{
    return make_stream(t, CU_STREAM_DEFAULT);
}

CUevent rpt_event(struct rpt *t)
{
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    rpt_track(t, TRACKED_EVENT, HANDLE_OF(event), 0);
    return event;
}

CUdeviceptr rpt_memory(struct rpt *t, size_t bytes)
{
    CUdeviceptr address;
    OK(cuMemAlloc(&address, bytes));
    rpt_track(t, TRACKED_MEMORY, address, bytes);
    OK(cuMemsetD8(address, 0, bytes));
    OK(cuCtxSynchronize());
    return address;
}

void *rpt_pinned(struct rpt *t, size_t bytes)
{
    void *pointer;
    OK(cuMemAllocHost(&pointer, bytes));
    rpt_track(t, TRACKED_PINNED, HANDLE_OF(pointer), bytes);
    memset(pointer, 0, bytes);
    return pointer;
}

CUgraph rpt_graph(struct rpt *t)
{
    CUgraph graph;
    OK(cuGraphCreate(&graph, 0));
    rpt_track(t, TRACKED_GRAPH, HANDLE_OF(graph), 0);
    return graph;
}

CUgraphExec rpt_instantiate(struct rpt *t, CUgraph graph)
{
    CUgraphExec exec;
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    rpt_track(t, TRACKED_EXEC, HANDLE_OF(exec), 0);
    return exec;
}

static void end_captures(struct rpt *t)
{
    for (size_t i = 0; i < t->tracked_count; i++) {
        if (t->tracked[i].kind != TRACKED_STREAM)
            continue;
        CUstream stream = (CUstream)(uintptr_t)t->tracked[i].handle;
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        CUgraph graph = NULL;
        if (t->d->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
            status != CU_STREAM_CAPTURE_STATUS_NONE)
            t->d->cuStreamEndCapture(stream, &graph);
        if (graph)
            t->d->cuGraphDestroy(graph);
    }
}

static void give_back(struct rpt *t, const struct tracked *object)
{
    void *handle = (void *)(uintptr_t)object->handle;
    switch (object->kind) {
    case TRACKED_STREAM:
        t->d->cuStreamDestroy(handle);
        break;
    case TRACKED_EVENT:
        t->d->cuEventDestroy(handle);
        break;
    case TRACKED_MEMORY:
        t->d->cuMemFree(object->handle);
        break;
    case TRACKED_PINNED:
        t->d->cuMemFreeHost(handle);
        break;
    case TRACKED_GRAPH:
        t->d->cuGraphDestroy(handle);
        break;
    case TRACKED_EXEC:
        t->d->cuGraphExecDestroy(handle);
        break;
    case TRACKED_CHUNK:
        t->d->cuMemRelease(object->handle);
        break;
    case TRACKED_RESERVATION:
        t->d->cuMemAddressFree(object->handle, object->bytes);
        break;
    case TRACKED_MAPPING:
        t->d->cuMemUnmap(object->handle, object->bytes);
        break;
    case TRACKED_LIBRARY:
        t->d->cuLibraryUnload(handle);
        break;
    }
}

void rpt_clean(struct rpt *t)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    rpt_open(t);
    t->d->cuCtxSetCurrent(t->context);
    /* Twice: ending a forked stream's capture is an error, its origin may come later. */
    end_captures(t);
    end_captures(t);
    t->d->cuThreadExchangeStreamCaptureMode(&mode);
    t->d->cuCtxSynchronize();
    while (t->tracked_count)
        give_back(t, &t->tracked[--t->tracked_count]);
}

/* ---- Work ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    bool needs_90;
} kernels[] = {
#define X(name, needs_90) {#name, needs_90},
    RPT_KERNEL_LIST(X)
#undef X
};

CUresult rpt_load_kernels(struct rpt *t)
{
    int major = 0, value;
    CUresult result =
        t->d->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, t->device);
    if (result == CUDA_SUCCESS)
        result = t->d->cuModuleLoadData(&t->module, rpt_kernel_image(t->d));
    if (result == CUDA_SUCCESS && major >= 9)
        result = t->d->cuModuleLoadData(&t->module90, rpt_kernel_image_sm90(t->d));
    for (int i = 0; i < RPT_KERNELS && result == CUDA_SUCCESS; i++) {
        CUmodule module = kernels[i].needs_90 ? t->module90 : t->module;
        if (!module)
            continue;
        result = t->d->cuModuleGetFunction(&t->functions[i], module, kernels[i].name);
        /* Asking for an attribute loads a function that would be loaded lazily. */
        if (result == CUDA_SUCCESS)
            result = t->d->cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, t->functions[i]);
    }
    return result;
}

CUfunction rpt_function(struct rpt *t, const char *name)
{
    for (int i = 0; i < RPT_KERNELS; i++) {
        if (strcmp(kernels[i].name, name) != 0)
            continue;
        if (!t->functions[i])
            rpt_skip(t, "the device's compute capability is below 9.0");
        return t->functions[i];
    }
    REQUIRE(!"a kernel of that name");
    return NULL;
}

void rpt_fill(struct rpt *t, CUstream stream, CUdeviceptr to, float value, uint32_t count)
{
    void *params[] = {&to, &value, &count};
    OK(cuLaunchKernel(rpt_function(t, "rpt_fill"), 1, 1, 1, 64, 1, 1, 0, stream, params, NULL));
}

void rpt_mix(struct rpt *t, CUstream stream, CUdeviceptr to, uint32_t value)
{
    void *params[] = {&to, &value};
    OK(cuLaunchKernel(rpt_function(t, "rpt_mix"), 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

void rpt_scale(struct rpt *t, CUstream stream, CUdeviceptr to, CUdeviceptr from, float factor,
               uint32_t count)
{
    void *params[] = {&to, &from, &factor, &count};
    OK(cuLaunchKernel(rpt_function(t, "rpt_scale"), 1, 1, 1, 64, 1, 1, 0, stream, params, NULL));
}

uint32_t rpt_mixed(size_t count, const uint32_t *values)
{
    uint32_t word = 0;
    for (size_t i = 0; i < count; i++)
        word = word * 31u + values[i];
    return word;
}

uint32_t rpt_word(struct rpt *t, CUdeviceptr address)
{
    uint32_t word = 0;
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(&word, address, sizeof word));
    return word;
}

float rpt_float(struct rpt *t, CUdeviceptr address)
{
    uint32_t word = rpt_word(t, address);
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

static void wait_for_gate(void *data)
{
    struct rpt *t = data;
    pthread_mutex_lock(&t->gate.lock);
    while (t->gate.closed)
        pthread_cond_wait(&t->gate.opened, &t->gate.lock);
    pthread_mutex_unlock(&t->gate.lock);
}

void rpt_hold(struct rpt *t, CUstream stream)
{
    pthread_mutex_lock(&t->gate.lock);
    t->gate.closed = true;
    pthread_mutex_unlock(&t->gate.lock);
    OK(cuLaunchHostFunc(stream, wait_for_gate, t));
}

void rpt_open(struct rpt *t)
{
    pthread_mutex_lock(&t->gate.lock);
    t->gate.closed = false;
    pthread_cond_broadcast(&t->gate.opened);
    pthread_mutex_unlock(&t->gate.lock);
}

/* Other work is done first, and then a moment passes: what was free to run has run by then. When it
 * has not, the case passes all the same. */
void rpt_expect_pending(struct rpt *t, CUstream stream)
{
    CUstream other = rpt_stream(t);
    CUfunction function = rpt_function(t, "rpt_nothing");
    for (int i = 0; i < 10; i++)
        OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, other, NULL, NULL));
    OK(cuStreamSynchronize(other));
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
}

struct thread_work {
    struct rpt *t;
    void (*work)(struct rpt *t, void *data);
    void *data;
    bool with_context;
};

static void *thread_main(void *data)
{
    struct thread_work *work = data;
    if (work->with_context)
        work->t->d->cuCtxSetCurrent(work->t->context);
    work->work(work->t, work->data);
    if (work->with_context)
        work->t->d->cuCtxSetCurrent(NULL);
    return NULL;
}

void rpt_on_thread(struct rpt *t, void (*work)(struct rpt *t, void *data), void *data,
                   bool with_context)
{
    struct thread_work thread_work = {t, work, data, with_context};
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, thread_main, &thread_work) == 0);
    pthread_join(thread, NULL);
}

void rpt_usable(struct rpt *t, CUstream stream)
{
    EQUAL(rpt_status(t, stream), CU_STREAM_CAPTURE_STATUS_NONE);
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_mix(t, stream, word, 7);
    OK(cuStreamSynchronize(stream));
    EQUAL(rpt_word(t, word), 7);
}

/* ---- Capture ------------------------------------------------------------------------------- */

void rpt_begin(struct rpt *t, CUstream stream, CUstreamCaptureMode mode)
{
    OK(cuStreamBeginCapture(stream, mode));
}

CUgraph rpt_end(struct rpt *t, CUstream stream)
{
    CUgraph graph = NULL;
    OK(cuStreamEndCapture(stream, &graph));
    REQUIRE(graph != NULL);
    rpt_track(t, TRACKED_GRAPH, HANDLE_OF(graph), 0);
    return graph;
}

CUstreamCaptureStatus rpt_status(struct rpt *t, CUstream stream)
{
    CUstreamCaptureStatus status;
    OK(cuStreamIsCapturing(stream, &status));
    return status;
}

size_t rpt_terminals(struct rpt *t, CUstream stream, CUgraphNode out_nodes[8])
{
    CUstreamCaptureStatus status;
    const CUgraphNode *nodes = NULL;
    const CUgraphEdgeData *edges = NULL;
    size_t count = 0;
    OK(cuStreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, &edges, &count));
    EQUAL(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    REQUIRE(count <= 8);
    if (count)
        memcpy(out_nodes, nodes, count * sizeof *nodes);
    return count;
}

void rpt_fork(struct rpt *t, CUstream from, CUstream to)
{
    CUevent event = rpt_event(t);
    OK(cuEventRecord(event, from));
    OK(cuStreamWaitEvent(to, event, 0));
}

void rpt_expect_invalidated(struct rpt *t, CUstream stream)
{
    EQUAL(rpt_status(t, stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    CUfunction function = rpt_function(t, "rpt_nothing");
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
           cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    CUgraph graph = (CUgraph)(uintptr_t)1;
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &graph));
    REQUIRE(graph == NULL);
    rpt_usable(t, stream);
}

void rpt_expect_intact(struct rpt *t, CUstream stream)
{
    EQUAL(rpt_status(t, stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    rpt_end(t, stream);
    rpt_usable(t, stream);
}

/* ---- Graphs -------------------------------------------------------------------------------- */

size_t rpt_node_count(struct rpt *t, CUgraph graph)
{
    size_t count = 0;
    OK(cuGraphGetNodes(graph, NULL, &count));
    return count;
}

size_t rpt_edge_count(struct rpt *t, CUgraph graph)
{
    size_t count = 0;
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
    return count;
}

CUgraphNode rpt_node(struct rpt *t, CUgraph graph, size_t index)
{
    CUgraphNode nodes[64];
    size_t count = 64;
    OK(cuGraphGetNodes(graph, nodes, &count));
    REQUIRE(index < count);
    return nodes[index];
}

CUgraphNode rpt_node_of_type(struct rpt *t, CUgraph graph, CUgraphNodeType type)
{
    size_t count = rpt_node_count(t, graph);
    for (size_t i = 0; i < count; i++) {
        CUgraphNode node = rpt_node(t, graph, i);
        CUgraphNodeType node_type;
        OK(cuGraphNodeGetType(node, &node_type));
        if (node_type == type)
            return node;
    }
    REQUIRE(!"a node of the type");
    return NULL;
}

bool rpt_has_edge(struct rpt *t, CUgraph graph, CUgraphNode from, CUgraphNode to)
{
    CUgraphNode froms[64], tos[64];
    CUgraphEdgeData edges[64];
    size_t count = 64;
    OK(cuGraphGetEdges(graph, froms, tos, edges, &count));
    for (size_t i = 0; i < count; i++)
        if (froms[i] == from && tos[i] == to)
            return true;
    return false;
}

CUDA_KERNEL_NODE_PARAMS rpt_kernel_params(CUfunction function, unsigned grid, unsigned block,
                                          void **params)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = function,
                                     .gridDimX = grid,
                                     .gridDimY = 1,
                                     .gridDimZ = 1,
                                     .blockDimX = block,
                                     .blockDimY = 1,
                                     .blockDimZ = 1,
                                     .kernelParams = params};
}

CUgraphNode rpt_mix_node(struct rpt *t, CUgraph graph, CUgraphNode after, CUdeviceptr to,
                         uint32_t value)
{
    void *args[] = {&to, &value};
    CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(rpt_function(t, "rpt_mix"), 1, 1, args);
    CUgraphNode node;
    OK(cuGraphAddKernelNode(&node, graph, &after, after != NULL, &params));
    return node;
}

CUgraphNode rpt_fill_node(struct rpt *t, CUgraph graph, CUgraphNode after, CUdeviceptr to,
                          float value, uint32_t count)
{
    void *args[] = {&to, &value, &count};
    CUDA_KERNEL_NODE_PARAMS params = rpt_kernel_params(rpt_function(t, "rpt_fill"), 1, 64, args);
    CUgraphNode node;
    OK(cuGraphAddKernelNode(&node, graph, &after, after != NULL, &params));
    return node;
}

CUDA_MEMCPY3D rpt_copy_params(CUdeviceptr to_device, void *to_host, CUdeviceptr from_device,
                              const void *from_host, size_t bytes)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = from_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
                           .srcHost = from_host,
                           .srcDevice = from_device,
                           .srcPitch = bytes,
                           .srcHeight = 1,
                           .dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
                           .dstHost = to_host,
                           .dstDevice = to_device,
                           .dstPitch = bytes,
                           .dstHeight = 1,
                           .WidthInBytes = bytes,
                           .Height = 1,
                           .Depth = 1};
}

CUDA_MEMSET_NODE_PARAMS rpt_memset_params(CUdeviceptr to, unsigned value, unsigned element_bytes,
                                          size_t width, size_t height, size_t pitch)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = to,
                                     .pitch = pitch,
                                     .value = value,
                                     .elementSize = element_bytes,
                                     .width = width,
                                     .height = height};
}

void rpt_run(struct rpt *t, CUgraphExec exec, CUstream stream)
{
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
}
