/* SPDX-License-Identifier: MIT
 *
 * Replays the chain (chain.h) with every argument at a new address on every call, compares what
 * comes out with an eager run to the bit, and times the host side of a call, from the call to its
 * return, the device idle before it:
 *
 *     bound   rp_graph_replay
 *     bare    SetParams for each node that holds an argument, from parameters made beforehand, and
 *             cuGraphLaunch: no checks, nothing computed
 *     copies  fixed buffers: a copy in for each input, cuGraphLaunch, a copy out for each output
 *
 * The three take turns, call by call. Arguments lie in sets; call i uses set i mod SETS. Prints
 * JSON, times in microseconds, medians; exits 1 when a result differs.
 *
 *     bench_chain [--driver cuda|host] [--calls N] [--cublas FILE]
 */
#include "base/clock.h"
#include "chain.h"
#include "driver/driver.h"
#include "graph/exec/exec.h"
#include "graph/objects/objects.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

enum { SETS = 24, MOST_NODES = 64, WAYS = 3, WARM_UP = 20, ALIGNMENT = 512 };
enum { FIXED = SETS, REFERENCE, PLACES }; /* sets that are no call's */

struct bench {
    const struct rp_driver *driver;
    struct rp_device *device;
    struct chain chain;
    CUstream stream;
    size_t calls;
    CUdeviceptr slab, temp_memory;
    uint64_t set_bytes;
    uint64_t at[PLACES][CHAIN_ARGS], temps[CHAIN_TEMPS];
    struct rp_arg list[SETS][CHAIN_ARGS];
    unsigned char *inputs[CHAIN_ARGS], *expected[SETS][CHAIN_ARGS];
    struct rp_pool *pool;
    struct rp_graph *graph;
    CUgraph bare_graph, fixed_graph;
    CUgraphExec bare, fixed;
    CUgraphNode nodes[MOST_NODES];
    struct rpi_node_image *images[SETS][MOST_NODES]; /* of nodes that hold arguments; else NULL */
    size_t node_count, bare_patched;
};

static void check(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "bench_chain: %s: %s\n", what, rpi_result_name(result));
    exit(2);
}

static void check_rp(rp_status status, const struct rp_error *err)
{
    if (status == RP_OK)
        return;
    fprintf(stderr, "bench_chain: %s\n", err->message);
    exit(2);
}

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        check(CUDA_ERROR_OUT_OF_MEMORY, "host memory");
    return memory;
}

static void enqueue(const struct bench *b, size_t set)
{
    const char *what;
    CUresult result = chain_enqueue(&b->chain, b->stream, b->at[set], b->temps, &what);
    check(result, what);
}

static void synchronize(const struct bench *b)
{
    check(b->driver->cuStreamSynchronize(b->stream), "cuStreamSynchronize");
}

/* ---- Buffers ------------------------------------------------------------------------------- */

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void place_buffers(struct bench *b)
{
    for (size_t k = 0; k < CHAIN_ARGS; k++)
        b->set_bytes += round_up(chain_args[k].bytes);
    check(b->driver->cuMemAlloc(&b->slab, PLACES * b->set_bytes), "cuMemAlloc");
    uint64_t at = b->slab, temps = 0;
    for (size_t set = 0; set < PLACES; set++)
        for (size_t k = 0; k < CHAIN_ARGS; at += round_up(chain_args[k++].bytes)) {
            b->at[set][k] = at;
            if (set < SETS)
                b->list[set][k] = (struct rp_arg){
                    .address = at, .bytes = chain_args[k].bytes, .role = chain_args[k].role};
        }
    for (size_t t = 0; t < CHAIN_TEMPS; t++)
        temps += round_up(chain_temps[t]);
    check(b->driver->cuMemAlloc(&b->temp_memory, temps), "cuMemAlloc");
    b->temps[0] = b->temp_memory;
    for (size_t t = 1; t < CHAIN_TEMPS; t++)
        b->temps[t] = b->temps[t - 1] + round_up(chain_temps[t - 1]);
}

/* Bytes that are small numbers, as floats and as pairs of bfloat16. */
static void make_inputs(struct bench *b, unsigned seed)
{
    for (size_t k = 0; k < CHAIN_ARGS; k++) {
        uint32_t *words = (uint32_t *)(void *)b->inputs[k];
        for (size_t i = 0; i < chain_args[k].bytes / 4; i++) {
            seed = seed * 1664525u + 1013904223u;
            words[i] = 0x3e003e00u | (seed >> 8 & 0x00ff00ffu) | (seed & 0x80008000u);
        }
    }
}

/* Writes a set: its inputs, and outputs that no run computes. */
static void fill_set(struct bench *b, size_t set, unsigned seed)
{
    make_inputs(b, seed);
    for (size_t k = 0; k < CHAIN_ARGS; k++) {
        uint64_t to = b->at[set][k];
        if (chain_args[k].role == RP_ARG_OUT)
            check(b->driver->cuMemsetD8(to, 0xa5, chain_args[k].bytes), "cuMemsetD8");
        else
            check(b->driver->cuMemcpyHtoD(to, b->inputs[k], chain_args[k].bytes), "cuMemcpyHtoD");
    }
    check(b->driver->cuCtxSynchronize(), "cuCtxSynchronize");
}

static void read_set(const struct bench *b, size_t set, unsigned char *const *to)
{
    check(b->driver->cuCtxSynchronize(), "cuCtxSynchronize");
    for (size_t k = 0; k < CHAIN_ARGS; k++)
        check(b->driver->cuMemcpyDtoH(to[k], b->at[set][k], chain_args[k].bytes), "cuMemcpyDtoH");
}

/* What an eager run makes of each set's inputs. */
static void run_eagerly(struct bench *b)
{
    for (size_t k = 0; k < CHAIN_ARGS; k++)
        b->inputs[k] = allocate(chain_args[k].bytes);
    for (size_t set = 0; set < SETS; set++) {
        for (size_t k = 0; k < CHAIN_ARGS; k++)
            b->expected[set][k] = allocate(chain_args[k].bytes);
        fill_set(b, REFERENCE, (unsigned)set + 1);
        enqueue(b, REFERENCE);
        read_set(b, REFERENCE, b->expected[set]);
    }
}

/* ---- The ways ------------------------------------------------------------------------------ */

static CUgraph capture_by_hand(struct bench *b, size_t set)
{
    CUgraph graph;
    check(b->driver->cuStreamBeginCapture(b->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "begin");
    enqueue(b, set);
    check(b->driver->cuStreamEndCapture(b->stream, &graph), "end");
    return graph;
}

static CUgraphExec instantiate(struct bench *b, CUgraph graph)
{
    CUgraphExec exec;
    check(b->driver->cuGraphInstantiateWithFlags(&exec, graph, 0), "instantiate");
    check(b->driver->cuGraphUpload(exec, b->stream), "upload");
    synchronize(b);
    return exec;
}

/* Does a word of the node's parameters lie in the set? */
static bool holds_argument(const struct bench *b, const struct rpi_params *params, size_t set)
{
    uint64_t first = b->slab + set * b->set_bytes;
    for (size_t offset = 0; offset + 8 <= params->image.count; offset += 4) {
        uint64_t word;
        memcpy(&word, params->image.data + offset, sizeof word);
        if (word - first < b->set_bytes)
            return true;
    }
    return false;
}

/* The parameters of each node that holds an argument, for one set. */
static void prepare_images(struct bench *b, size_t set, CUgraph graph)
{
    struct rpi_params params = {0};
    struct rp_error err;
    CUgraphNode nodes[MOST_NODES];
    size_t count = MOST_NODES;
    check(b->driver->cuGraphGetNodes(graph, nodes, &count), "cuGraphGetNodes");
    if (count != b->node_count)
        check(CUDA_ERROR_UNKNOWN, "two captures of the chain have not the same nodes");
    b->bare_patched = 0;
    for (size_t j = 0; j < count; j++) {
        check_rp(rpi_params_read(&params, b->driver, nodes[j], &err), &err);
        if (!params.image.count || !holds_argument(b, &params, set))
            continue;
        void *memory = allocate(rpi_node_image_bytes(&params) + 16);
        memory = (unsigned char *)memory + (16 - (uintptr_t)memory % 16) % 16;
        b->images[set][j] = rpi_node_image_make(memory, &params);
        b->bare_patched++;
    }
    rpi_params_finish(&params);
}

static void prepare(struct bench *b)
{
    struct rp_error err;
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    options.name = "chain";
    check_rp(rp_pool_create(b->device, NULL, &b->pool, &err), &err);
    check_rp(rp_graph_capture(b->pool, &options, chain_callable, &b->chain, b->list[0], CHAIN_ARGS,
                              &b->graph, &err),
             &err);
    b->fixed_graph = capture_by_hand(b, FIXED);
    b->fixed = instantiate(b, b->fixed_graph);
    b->bare_graph = capture_by_hand(b, 0);
    b->bare = instantiate(b, b->bare_graph);
    b->node_count = MOST_NODES;
    check(b->driver->cuGraphGetNodes(b->bare_graph, b->nodes, &b->node_count), "cuGraphGetNodes");
    prepare_images(b, 0, b->bare_graph);
    for (size_t set = 1; set < SETS; set++) {
        CUgraph graph = capture_by_hand(b, set);
        prepare_images(b, set, graph);
        /* Kept: the images hold what the driver told, functions and all, and nothing of the graph.
         */
        check(b->driver->cuGraphDestroy(graph), "cuGraphDestroy");
    }
}

static CUresult replay_bare(struct bench *b, size_t set)
{
    const char *function;
    CUresult result = CUDA_SUCCESS;
    for (size_t j = 0; j < b->node_count && !result; j++)
        if (b->images[set][j])
            result = rpi_node_image_set(b->images[set][j], b->driver, b->bare, b->nodes[j],
                                        b->device->context, &function);
    return result ? result : b->driver->cuGraphLaunch(b->bare, b->stream);
}

static CUresult copy(struct bench *b, size_t set, enum rp_arg_role role)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t k = 0; k < CHAIN_ARGS && !result; k++) {
        uint64_t fixed = b->at[FIXED][k], given = b->at[set][k];
        if (chain_args[k].role & role)
            result = b->driver->cuMemcpyDtoDAsync(role == RP_ARG_IN ? fixed : given,
                                                  role == RP_ARG_IN ? given : fixed,
                                                  chain_args[k].bytes, b->stream);
    }
    return result;
}

static CUresult replay_with_copies(struct bench *b, size_t set)
{
    CUresult result = copy(b, set, RP_ARG_IN);
    if (!result)
        result = b->driver->cuGraphLaunch(b->fixed, b->stream);
    return result ? result : copy(b, set, RP_ARG_OUT);
}

static double replay(struct bench *b, int way, size_t set)
{
    struct rp_error err = {0};
    CUresult result = CUDA_SUCCESS;
    synchronize(b);
    uint64_t start = rpi_clock_ns();
    if (way == 0)
        check_rp(rp_graph_replay(b->graph, b->list[set], CHAIN_ARGS, b->stream, &err), &err);
    else
        result = way == 1 ? replay_bare(b, set) : replay_with_copies(b, set);
    double us = rpi_ms_since(start) * 1000.0;
    check(result, "replay");
    return us;
}

/* ---- Results ------------------------------------------------------------------------------- */

/* Replays every set in one way on fresh inputs and compares with the eager run; how many arguments
 * differ. */
static size_t compare(struct bench *b, int way)
{
    size_t different = 0;
    unsigned char *got[CHAIN_ARGS];
    for (size_t k = 0; k < CHAIN_ARGS; k++)
        got[k] = allocate(chain_args[k].bytes);
    for (size_t set = 0; set < SETS; set++)
        fill_set(b, set, (unsigned)set + 1);
    for (size_t set = 0; set < SETS; set++)
        replay(b, way, set);
    for (size_t set = 0; set < SETS; set++) {
        read_set(b, set, got);
        for (size_t k = 0; k < CHAIN_ARGS; k++)
            different += memcmp(got[k], b->expected[set][k], chain_args[k].bytes) != 0;
    }
    for (size_t k = 0; k < CHAIN_ARGS; k++)
        free(got[k]);
    return different;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void measure(struct bench *b, double medians[WAYS])
{
    double *times = allocate(WAYS * b->calls * sizeof *times);
    for (size_t i = 0; i < b->calls + WARM_UP; i++)
        for (int way = 0; way < WAYS; way++) {
            double us = replay(b, way, i % SETS);
            if (i >= WARM_UP)
                times[(size_t)way * b->calls + i - WARM_UP] = us;
        }
    for (int way = 0; way < WAYS; way++) {
        double *first = times + (size_t)way * b->calls;
        qsort(first, b->calls, sizeof *first, ascending);
        medians[way] = first[b->calls / 2];
    }
    free(times);
}

static void print_args(const struct bench *b)
{
    struct rp_error err;
    for (size_t k = 0; k < CHAIN_ARGS; k++) {
        struct rp_graph_arg_info info = {.size = sizeof info};
        check_rp(rp_graph_arg_info(b->graph, k, &info, &err), &err);
        printf("%s\n  {\"name\":\"%s\",\"sites\":%zu,\"bound\":%s,\"reason\":%s%s%s}", k ? "," : "",
               chain_args[k].name, info.sites, info.bound ? "true" : "false",
               info.reason ? "\"" : "", info.reason ? info.reason : "null",
               info.reason ? "\"" : "");
    }
}

static void print(const struct bench *b, const double medians[WAYS], const size_t different[WAYS])
{
    struct rp_device_info device = {.size = sizeof device};
    struct rp_graph_info graph = {.size = sizeof graph};
    double limit = 1.1 * medians[1] + 0.5;
    const struct libraries *libraries = &b->chain.libraries;
    rp_device_info(b->device, &device);
    rp_graph_info(b->graph, &graph);
    printf("{\"driver\":\"%s\",\"device\":\"%s\",\"calls\":%zu,\"sets\":%d,", device.driver,
           device.name, b->calls, SETS);
    printf("\"cublas\":%d,\"no_cublas\":%s%s%s,\"tensor_map_encoded\":%s,", libraries->blas_version,
           libraries->no_blas ? "\"" : "", libraries->no_blas ? libraries->no_blas : "null",
           libraries->no_blas ? "\"" : "", libraries->encode ? "true" : "false");
    printf("\"nodes\":%zu,\"args\":%d,\"bound_args\":%zu,\"copied_args\":%zu,"
           "\"nodes_patched_a_replay\":%.2f,\"nodes_patched_bare\":%zu,",
           graph.nodes, CHAIN_ARGS, graph.bound_args, graph.copied_args,
           (double)graph.patched_nodes / (double)graph.replays, b->bare_patched);
    printf("\"different\":{\"bound\":%zu,\"bare\":%zu,\"copies\":%zu},", different[0], different[1],
           different[2]);
    printf("\"bound_us\":%.3f,\"bare_us\":%.3f,\"copies_us\":%.3f,\"limit_us\":%.3f,"
           "\"within_limit\":%s,\"arguments\":[",
           medians[0], medians[1], medians[2], limit, medians[0] <= limit ? "true" : "false");
    print_args(b);
    printf("\n]}\n");
}

/* ---- The program --------------------------------------------------------------------------- */

static void open_bench(struct bench *b, const char *driver, const char *cublas)
{
    struct rp_error err;
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    struct rp_device_info info = {.size = sizeof info};
    options.driver = driver;
    options.host_check_races = 0;
    check_rp(rp_device_open(&options, &b->device, &err), &err);
    assert(b->device);
    b->driver = b->device->driver;
    rp_device_info(b->device, &info);
    if (strcmp(info.driver, "cuda") == 0 && info.compute_major < 9) {
        fprintf(stderr, "bench_chain: clusters and tensor maps need compute capability 9.0\n");
        exit(2);
    }
    check_rp(rp_device_push(b->device, &err), &err);
    check(chain_init(&b->chain, b->driver, cublas), "loading the chain");
    check(b->driver->cuStreamCreate(&b->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

int main(int argc, char **argv)
{
    static struct bench b = {.calls = 1000};
    const char *driver = NULL, *cublas = NULL;
    for (int i = 1; i < argc; i++) {
        if (i + 1 < argc && !strcmp(argv[i], "--driver"))
            driver = argv[++i];
        else if (i + 1 < argc && !strcmp(argv[i], "--cublas"))
            cublas = argv[++i];
        else if (i + 1 < argc && !strcmp(argv[i], "--calls") && atoi(argv[i + 1]) > 0)
            b.calls = (size_t)atoi(argv[++i]);
        else {
            fprintf(stderr,
                    "usage: bench_chain [--driver cuda|host] [--calls N] [--cublas FILE]\n");
            return 2;
        }
    }
    open_bench(&b, driver, cublas);
    place_buffers(&b);
    run_eagerly(&b);
    prepare(&b);
    double medians[WAYS];
    size_t different[WAYS] = {0}, sum = 0;
    measure(&b, medians);
    for (int way = 0; way < WAYS; way++)
        sum += different[way] = compare(&b, way);
    print(&b, medians, different);
    rp_graph_destroy(b.graph);
    rp_pool_destroy(b.pool);
    return sum ? 1 : 0;
}
