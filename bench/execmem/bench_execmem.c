/* SPDX-License-Identifier: MIT
 *
 * What executable graphs take of device memory, beside what they are estimated to take
 * (policy/exec_bytes.h): the graphs of dags.h, and a step of the demo's decoder as a capture
 * records it.
 *
 * Of each graph execs are made, uploaded, launched once and kept, until so much memory is gone or
 * so many are there. A driver takes memory in steps, and first uses what it has in hand: so what
 * one exec takes is what free memory fell by from its first fall to its last, divided by the execs
 * between these two. All are kept to the end, as a driver uses the memory of destroyed ones again.
 * Nothing else may run on the device.
 *
 * Prints JSON; exits with 77 where the driver is not there. On the host driver execs take nothing.
 *
 * usage: bench_execmem [--driver cuda|host] [--quick]
 */
#include "dags.h"
#include "decoder.h"
#include "graph/exec/exec_cache.h"
#include "kernels/kernels.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOT = 128, WORDS = 16 }; /* bytes of memory for each node; words that a fill or copy has */
enum { LEAST_EXECS = 64, MOST_EXECS = 1024, LEAST_FALLS = 8 };
static const uint64_t ENOUGH_BYTES = (uint64_t)96 << 20;

struct bench {
    struct rp_device *device;
    const struct rp_driver *driver;
    CUcontext context;
    CUmodule module;
    CUfunction mix;
    CUstream stream;
    CUdeviceptr memory; /* a slot for each node */
    bool quick;
    double *errors; /* of the shapes that showed enough */
    size_t error_count;
};

static void fail(const char *what, int code)
{
    fprintf(stderr, "bench_execmem: %s (%d)\n", what, code);
    exit(1);
}

static void must(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS)
        fail(what, (int)result);
}

static void must_be(rp_status status, const struct rp_error *err)
{
    if (status != RP_OK)
        fail(err->message, (int)status);
}

/* ---- Graphs -------------------------------------------------------------------------------- */

static CUgraphNode add_kernel(struct bench *b, CUgraph graph, const CUgraphNode *after,
                              size_t count, CUdeviceptr at, enum dag_kind kind)
{
    static struct rpi_copy_table_144 table; /* of no copies, the smaller ones begin alike */
    const bool wide = kind != DAG_KERNEL;
    uint32_t value = 1;
    void *mix[] = {&at, &value}, *none[] = {&table};
    const CUDA_KERNEL_NODE_PARAMS params = {
        .func = wide ? b->device->copier.functions[kind - DAG_WIDE] : b->mix,
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = wide ? RPI_COPY_THREADS : 1,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = wide ? none : mix};
    CUgraphNode node;
    must(b->driver->cuGraphAddKernelNode(&node, graph, after, count, &params),
         "cuGraphAddKernelNode");
    return node;
}

static CUgraphNode add_transfer(struct bench *b, CUgraph graph, const CUgraphNode *after,
                                size_t count, CUdeviceptr at, bool copy)
{
    const size_t bytes = WORDS * sizeof(uint32_t);
    const CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = at, .value = 1, .elementSize = sizeof(uint32_t), .width = WORDS, .height = 1};
    const CUDA_MEMCPY3D move = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = at,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = at + bytes,
                                .WidthInBytes = bytes,
                                .Height = 1,
                                .Depth = 1};
    CUgraphNode node;
    if (copy)
        must(b->driver->cuGraphAddMemcpyNode(&node, graph, after, count, &move, b->context),
             "cuGraphAddMemcpyNode");
    else
        must(b->driver->cuGraphAddMemsetNode(&node, graph, after, count, &fill, b->context),
             "cuGraphAddMemsetNode");
    return node;
}

static CUgraphNode add_node(struct bench *b, CUgraph graph, const CUgraphNode *after, size_t count,
                            CUdeviceptr at, enum dag_kind kind, CUgraph child)
{
    CUgraphNode node = NULL;
    switch (kind) {
    case DAG_KERNEL:
    case DAG_WIDE:
    case DAG_WIDER:
    case DAG_WIDEST:
        return add_kernel(b, graph, after, count, at, kind);
    case DAG_FILL:
    case DAG_COPY:
        return add_transfer(b, graph, after, count, at, kind == DAG_COPY);
    case DAG_EMPTY:
        must(b->driver->cuGraphAddEmptyNode(&node, graph, after, count), "cuGraphAddEmptyNode");
        return node;
    case DAG_CHILD:
        must(b->driver->cuGraphAddChildGraphNode(&node, graph, after, count, child),
             "cuGraphAddChildGraphNode");
        return node;
    }
    return node;
}

/* Ahead of all that nothing is ahead of. */
static void add_head(struct bench *b, CUgraph graph, const struct dag *dag,
                     const CUgraphNode *nodes)
{
    CUgraphNode head = add_kernel(b, graph, NULL, 0, 0, DAG_WIDE);
    size_t edge = 0;
    for (size_t i = 0; i < dag->node_count; i++) {
        bool root = edge == dag->edge_count || dag->edges[edge].to != i;
        while (edge < dag->edge_count && dag->edges[edge].to == i)
            edge++;
        if (root)
            must(b->driver->cuGraphAddDependencies(graph, &head, &nodes[i], NULL, 1),
                 "cuGraphAddDependencies");
    }
}

/* Nodes use slots from the first on, those of each child graph their own: child graphs may run at
 * the same time. */
static CUgraph build(struct bench *b, const struct dag *dag, size_t first)
{
    CUgraphNode *nodes = calloc(dag->node_count, sizeof(CUgraphNode));
    CUgraphNode *after = calloc(dag->node_count, sizeof(CUgraphNode));
    CUgraph graph;
    size_t free_slot = first + dag->node_count;
    if (!nodes || !after)
        fail("out of host memory", 0);
    must(b->driver->cuGraphCreate(&graph, 0), "cuGraphCreate");
    size_t edge = 0;
    for (size_t i = 0; i < dag->node_count; i++) {
        size_t count = 0;
        for (; edge < dag->edge_count && dag->edges[edge].to == i; edge++)
            after[count++] = nodes[dag->edges[edge].from];
        CUgraph child = NULL;
        if (dag->kinds[i] == DAG_CHILD) {
            child = build(b, dag->child, free_slot);
            free_slot += dag->child->node_count;
        }
        nodes[i] = add_node(b, graph, count ? after : NULL, count, b->memory + (first + i) * SLOT,
                            dag->kinds[i], child);
        if (child)
            must(b->driver->cuGraphDestroy(child), "cuGraphDestroy");
    }
    if (dag->headed)
        add_head(b, graph, dag, nodes);
    free(nodes);
    free(after);
    return graph;
}

/* ---- Measuring ----------------------------------------------------------------------------- */

/* Free memory when so many execs were there. */
struct reading {
    size_t execs;
    uint64_t free;
};

struct measured {
    struct reading first, last; /* falls */
    size_t execs, falls;
    uint64_t taken; /* in all */
};

static uint64_t free_bytes(const struct bench *b)
{
    size_t free = 0, total = 0;
    must(b->driver->cuMemGetInfo(&free, &total), "cuMemGetInfo");
    return free;
}

static CUgraphExec make(struct bench *b, CUgraph graph)
{
    CUgraphExec exec;
    must(b->driver->cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
    must(b->driver->cuGraphUpload(exec, b->stream), "cuGraphUpload");
    must(b->driver->cuGraphLaunch(exec, b->stream), "cuGraphLaunch");
    must(b->driver->cuStreamSynchronize(b->stream), "cuStreamSynchronize");
    return exec;
}

static struct measured measure(struct bench *b, CUgraph graph, CUgraphExec *out_execs)
{
    struct measured m = {0};
    size_t most = b->quick ? 2 : MOST_EXECS;
    uint64_t before = free_bytes(b), lowest = before;
    while (m.execs < most && (m.execs < LEAST_EXECS || m.taken < ENOUGH_BYTES)) {
        out_execs[m.execs++] = make(b, graph);
        uint64_t now = free_bytes(b);
        if (now >= lowest)
            continue;
        m.last = (struct reading){m.execs, now};
        if (!m.falls++)
            m.first = m.last;
        m.taken = before - now;
        lowest = now;
    }
    return m;
}

/* ---- The decoder --------------------------------------------------------------------------- */

static struct decoder_shape decoder_shape_of(bool small)
{
    struct decoder_shape shape = decoder_shape_demo;
    shape.layers = 2;
    if (small) { /* a CPU takes its time */
        shape.hidden = shape.inner = shape.vocab = 32;
        shape.heads = shape.cached_heads = 2;
        shape.dim = shape.context = 16;
    }
    shape.rows = 4;
    return shape;
}

struct captured {
    struct decoder *decoder;
    struct rp_pool *pool;
    struct rp_graph *graph;
    CUdeviceptr arguments;
};

static CUgraph capture_decoder(struct bench *b, bool small, struct captured *out)
{
    enum { APART = 256 };
    const struct decoder_shape shape = decoder_shape_of(small);
    struct rp_arg args[DECODER_ARGS];
    struct rp_error err;
    must_be(decoder_create(b->device, &shape, 1, &out->decoder, &err), &err);
    must_be(rp_pool_create(b->device, NULL, &out->pool, &err), &err);
    size_t bytes = 2 * (size_t)APART + (size_t)shape.rows * shape.vocab * sizeof(float);
    must(b->driver->cuMemAlloc(&out->arguments, bytes), "cuMemAlloc");
    must(b->driver->cuMemsetD8Async(out->arguments, 0, bytes, b->stream), "cuMemsetD8Async");
    struct decoder_batch batch = {out->decoder, shape.rows};
    decoder_args(&batch, out->arguments, out->arguments + APART, out->arguments + (size_t)2 * APART,
                 args);
    must_be(rp_run(out->pool, decoder_step, &batch, args, DECODER_ARGS, b->stream, &err), &err);
    must_be(rp_graph_capture(out->pool, NULL, decoder_step, &batch, args, DECODER_ARGS, &out->graph,
                             &err),
            &err);
    return out->graph->client->source->template;
}

static void captured_finish(struct bench *b, struct captured *captured)
{
    rp_graph_destroy(captured->graph);
    rp_pool_destroy(captured->pool);
    must(b->driver->cuMemFree(captured->arguments), "cuMemFree");
    decoder_destroy(captured->decoder);
}

/* ---- Showing ------------------------------------------------------------------------------- */

static void print_shape(struct bench *b, const char *name, const struct rpi_topology *topology,
                        const struct measured *m)
{
    static bool started;
    const struct rpi_priced priced = rpi_device_prices(b->device);
    double estimated = (double)rpi_exec_bytes(&priced.bytes, topology->charged, topology->paths);
    printf("%s\n  {\"shape\":\"%s\",\"nodes\":%zu,\"charged\":%zu,\"paths\":%zu,\"execs\":%zu,"
           "\"falls\":%zu,\"taken_kib\":%.0f,\"estimated_kib\":%.1f",
           started ? "," : "", name, topology->nodes, topology->charged, topology->paths, m->execs,
           m->falls, (double)m->taken / 1024, estimated / 1024);
    started = true;
    if (m->falls < LEAST_FALLS) {
        printf(",\"measured_kib\":null,\"error\":null}");
        return;
    }
    double each = (double)(m->first.free - m->last.free) / (double)(m->last.execs - m->first.execs);
    double error = estimated / each - 1;
    printf(",\"measured_kib\":%.1f,\"error\":%.3f}", each / 1024, error);
    b->errors[b->error_count++] = fabs(error);
    fflush(stdout);
}

static void show(struct bench *b, const char *name, CUgraph graph, CUgraphExec *out_execs,
                 size_t *out_count)
{
    struct rpi_topology topology;
    struct rp_error err;
    must_be(rpi_topology_read(&topology, b->driver, graph, &err), &err);
    struct measured m = measure(b, graph, out_execs);
    print_shape(b, name, &topology, &m);
    *out_count = m.execs;
    rpi_topology_finish(&topology);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void show_errors(struct bench *b)
{
    qsort(b->errors, b->error_count, sizeof *b->errors, by_size);
    if (b->error_count)
        printf("],\n \"median_error\":%.3f,\"worst_error\":%.3f}\n", b->errors[b->error_count / 2],
               b->errors[b->error_count - 1]);
    else
        printf("],\n \"median_error\":null,\"worst_error\":null}\n");
}

static void show_all(struct bench *b, bool small)
{
    size_t shapes = dag_shape_count + 1;
    CUgraphExec *execs = calloc(shapes * MOST_EXECS, sizeof *execs);
    size_t *counts = calloc(shapes, sizeof *counts);
    b->errors = calloc(shapes, sizeof *b->errors);
    struct captured captured = {0};
    if (!execs || !counts || !b->errors)
        fail("out of host memory", 0);
    CUgraph decoder = capture_decoder(b, small, &captured);
    must(b->driver->cuStreamSynchronize(b->stream), "cuStreamSynchronize");
    show(b, "decoder of 2 layers, captured", decoder, execs, counts);
    for (size_t i = 1; i < shapes; i++) {
        struct dag *dag = dag_create(&dag_shapes[i - 1]);
        if (!dag)
            fail("out of host memory", 0);
        CUgraph graph = build(b, dag, 0);
        show(b, dag_shapes[i - 1].name, graph, execs + i * MOST_EXECS, &counts[i]);
        must(b->driver->cuGraphDestroy(graph), "cuGraphDestroy");
        dag_destroy(dag);
    }
    show_errors(b);
    for (size_t i = 0; i < shapes; i++)
        for (size_t k = 0; k < counts[i]; k++)
            must(b->driver->cuGraphExecDestroy(execs[i * MOST_EXECS + k]), "cuGraphExecDestroy");
    captured_finish(b, &captured);
    free(b->errors);
    free(counts);
    free(execs);
}

static void open_device(struct bench *b, const char *driver)
{
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    struct rp_error err;
    options.driver = driver;
    if (rp_device_open(&options, &b->device, &err) != RP_OK) {
        fprintf(stderr, "bench_execmem: %s\n", err.message);
        exit(77);
    }
    must_be(rp_device_push(b->device, &err), &err);
    b->driver = b->device->driver;
    must(b->driver->cuCtxGetCurrent(&b->context), "cuCtxGetCurrent");
    must(b->driver->cuModuleLoadData(&b->module, rpt_kernel_image(b->driver)), "cuModuleLoadData");
    must(b->driver->cuModuleGetFunction(&b->mix, b->module, "rpt_mix"), "cuModuleGetFunction");
    rpi_copier_load(&b->device->copier);
    if (b->device->copier.state != RPI_COPIER_LOADED)
        fail("the driver did not load the kernel of copies", 0);
    must(b->driver->cuStreamCreate(&b->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    must(b->driver->cuMemAlloc(&b->memory, (size_t)2 * DAG_MOST_NODES * SLOT), "cuMemAlloc");
    must(b->driver->cuMemsetD8Async(b->memory, 0, (size_t)2 * DAG_MOST_NODES * SLOT, b->stream),
         "cuMemsetD8Async");
}

static void close_device(struct bench *b)
{
    must(b->driver->cuMemFree(b->memory), "cuMemFree");
    must(b->driver->cuStreamDestroy(b->stream), "cuStreamDestroy");
    must(b->driver->cuModuleUnload(b->module), "cuModuleUnload");
    rp_device_pop(b->device);
    rp_device_destroy(b->device);
}

int main(int argc, char **argv)
{
    const char *driver = "cuda";
    static struct bench bench;
    struct rp_device_info info = {.size = sizeof info};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            bench.quick = true;
        else if (strcmp(argv[i], "--driver") == 0 && i + 1 < argc)
            driver = argv[++i];
        else
            fail("usage: bench_execmem [--driver cuda|host] [--quick]", argc);
    }
    open_device(&bench, driver);
    rp_device_info(bench.device, &info);
    printf("{\"driver\":\"%s\",\"device\":\"%s\",\"graphs\":[", info.driver, info.name);
    show_all(&bench, strcmp(info.driver, "host") == 0);
    close_device(&bench);
    return 0;
}
