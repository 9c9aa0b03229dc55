/* SPDX-License-Identifier: MIT */
#include "graph/ground/byte_probe.h"

#include "base/clock.h"
#include "base/hostmem.h"
#include "base/vec.h"

#include <assert.h>
#include <string.h>

/* An exec's size is known to its share of what a series takes, so the execs are small: of a chain
 * whose nodes take about what its path takes, and of the least fork. */
enum { CHAIN = 48, BRANCHES = 2, COPY_BYTES = 64 };

struct probe {
    const struct rp_driver *driver;
    CUdevice device;
    CUcontext context; /* its own */
    CUstream stream;
    CUdeviceptr scratch; /* two places that copies go between */
    CUgraph graphs[RPI_EXEC_FIT_GRAPHS];
    struct {
        RPI_VEC(CUgraphExec);
    } execs;
};

/* ---- Graphs -------------------------------------------------------------------------------- */

static CUresult add_copy(const struct probe *probe, CUgraph graph, const CUgraphNode *after,
                         size_t count, CUgraphNode *out_node)
{
    assert(probe->context && probe->scratch);
    const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = probe->scratch,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = probe->scratch + COPY_BYTES,
                                .WidthInBytes = COPY_BYTES,
                                .Height = 1,
                                .Depth = 1};
    return probe->driver->cuGraphAddMemcpyNode(out_node, graph, count ? after : NULL, count, &copy,
                                               probe->context);
}

static CUresult add_chain(const struct probe *probe, CUgraph graph)
{
    CUgraphNode last = NULL;
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; result == CUDA_SUCCESS && i < CHAIN; i++) {
        CUgraphNode after = last;
        result = add_copy(probe, graph, &after, i > 0, &last);
    }
    return result;
}

static CUresult add_fork(const struct probe *probe, CUgraph graph)
{
    CUgraphNode head, branches[BRANCHES], tail;
    CUresult result = add_copy(probe, graph, NULL, 0, &head);
    for (int i = 0; result == CUDA_SUCCESS && i < BRANCHES; i++)
        result = add_copy(probe, graph, &head, 1, &branches[i]);
    if (result == CUDA_SUCCESS)
        result = add_copy(probe, graph, branches, BRANCHES, &tail);
    return result;
}

static const struct {
    CUresult (*add)(const struct probe *probe, CUgraph graph);
    size_t charged, paths;
} shapes[RPI_EXEC_FIT_GRAPHS] = {{add_chain, CHAIN, 1}, {add_fork, BRANCHES + 2, BRANCHES}};

static CUresult make_objects(struct probe *probe)
{
    const struct rp_driver *driver = probe->driver;
    CUresult result = driver->cuCtxCreate(&probe->context, 0, probe->device); /* and is current */
    if (result == CUDA_SUCCESS)
        result = driver->cuStreamCreate(&probe->stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemAlloc(&probe->scratch, (size_t)2 * COPY_BYTES);
    for (int g = 0; result == CUDA_SUCCESS && g < RPI_EXEC_FIT_GRAPHS; g++) {
        result = driver->cuGraphCreate(&probe->graphs[g], 0);
        if (result == CUDA_SUCCESS)
            result = shapes[g].add(probe, probe->graphs[g]);
    }
    return result;
}

static void finish(struct probe *probe)
{
    assert(!probe->execs.count || probe->context);
    const struct rp_driver *driver = probe->driver;
    for (size_t i = 0; i < probe->execs.count; i++)
        driver->cuGraphExecDestroy(probe->execs.data[i]);
    rpi_vec_finish(&probe->execs);
    for (int g = 0; g < RPI_EXEC_FIT_GRAPHS; g++)
        if (probe->graphs[g])
            driver->cuGraphDestroy(probe->graphs[g]);
    if (probe->scratch)
        driver->cuMemFree(probe->scratch);
    if (probe->stream)
        driver->cuStreamDestroy(probe->stream);
    if (probe->context)
        driver->cuCtxDestroy(probe->context); /* what was current before is again */
}

/* ---- Measuring ----------------------------------------------------------------------------- */

static CUresult free_bytes(const struct probe *probe, uint64_t *out_bytes)
{
    size_t free = 0, total = 0;
    CUresult result = probe->driver->cuMemGetInfo(&free, &total);
    *out_bytes = free;
    return result;
}

/* As the cache makes its own (exec_cache.c): what an exec takes is taken by then. */
static CUresult make_exec(struct probe *probe, CUgraph graph)
{
    assert(probe->stream);
    const struct rp_driver *driver = probe->driver;
    if (!rpi_vec_reserve(&probe->execs, probe->execs.count + 1))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUgraphExec exec = NULL;
    CUresult result = driver->cuGraphInstantiateWithFlags(&exec, graph, 0);
    if (result != CUDA_SUCCESS)
        return result;
    probe->execs.data[probe->execs.count++] = exec;
    result = driver->cuGraphUpload(exec, probe->stream);
    return result == CUDA_SUCCESS ? driver->cuStreamSynchronize(probe->stream) : result;
}

/* Behind one exec more, as a driver may take what it needs once with the first of a graph. */
static CUresult measure_series(struct probe *probe, CUgraph graph, enum rpi_exec_way way,
                               struct rpi_exec_series *series)
{
    uint64_t bytes = 0;
    CUresult result = make_exec(probe, graph);
    if (result == CUDA_SUCCESS)
        result = free_bytes(probe, &bytes);
    bool told = false;
    rpi_exec_series_begin(series, way, bytes);
    while (result == CUDA_SUCCESS && !told) {
        result = make_exec(probe, graph);
        if (result == CUDA_SUCCESS)
            result = free_bytes(probe, &bytes);
        if (result == CUDA_SUCCESS)
            told = rpi_exec_series_add(series, bytes);
    }
    return result;
}

/* The graphs take turns. A series that tells nothing is the last; *out_latest is that. */
static CUresult measure(struct probe *probe, enum rpi_exec_way way, struct rpi_exec_fit_graph *fits,
                        const struct rpi_exec_series **out_latest)
{
    CUresult result = CUDA_SUCCESS;
    for (int i = 0; i < RPI_EXEC_FIT_TURNS * RPI_EXEC_FIT_GRAPHS; i++) {
        int g = i % RPI_EXEC_FIT_GRAPHS;
        struct rpi_exec_series *series = &fits[g].turns[i / RPI_EXEC_FIT_GRAPHS];
        *out_latest = series;
        result = measure_series(probe, probe->graphs[g], way, series);
        if (result != CUDA_SUCCESS || rpi_exec_series_each(series) <= 0)
            break;
    }
    return result;
}

/* In one way, and in the other where steps are not even. */
static CUresult measure_and_fit(struct probe *probe, const struct rpi_byte_prices *like,
                                struct rpi_byte_probe *made)
{
    struct rpi_exec_fit_graph *fits = rpi_malloc(RPI_EXEC_FIT_GRAPHS * sizeof *fits);
    CUresult result = fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    bool again = true;
    for (int way = RPI_EXEC_STEPS; result == CUDA_SUCCESS && again && way < RPI_EXEC_WAYS; way++) {
        const struct rpi_exec_series *latest = NULL;
        memset(fits, 0, RPI_EXEC_FIT_GRAPHS * sizeof *fits);
        for (int g = 0; g < RPI_EXEC_FIT_GRAPHS; g++) {
            fits[g].charged = shapes[g].charged;
            fits[g].paths = shapes[g].paths;
        }
        result = measure(probe, (enum rpi_exec_way)way, fits, &latest);
        if (result == CUDA_SUCCESS)
            made->reason = rpi_exec_fit(fits, like, &made->prices);
        again = made->reason && latest && rpi_exec_series_may_be_line(latest);
    }
    rpi_free(fits);
    return result;
}

void rpi_byte_probe(const struct rp_driver *driver, CUdevice device,
                    const struct rpi_byte_prices *like, struct rpi_byte_probe *out_probe)
{
    struct probe probe = {.driver = driver, .device = device};
    struct rpi_byte_probe made = {0};
    uint64_t start = rpi_clock_ns(), before = 0, after = 0;
    CUresult result = make_objects(&probe);
    if (result == CUDA_SUCCESS)
        result = free_bytes(&probe, &before);
    if (result == CUDA_SUCCESS)
        result = measure_and_fit(&probe, like, &made);
    if (result == CUDA_SUCCESS)
        result = free_bytes(&probe, &after);
    made.refused = result != CUDA_SUCCESS;
    if (made.refused)
        made.reason = "executable graphs to measure could not be made";
    made.taken = after < before ? before - after : 0;
    made.execs = probe.execs.count;
    finish(&probe);
    made.ms = rpi_ms_since(start);
    *out_probe = made;
}
