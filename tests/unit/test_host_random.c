/* SPDX-License-Identifier: MIT
 *
 * The host driver under load: random graphs whose results must not depend on the order taken, races
 * planted in them that must be found and no others, host memory that fails at every point, and
 * several threads at once.
 */
#include "host_kernels.h"

#include <stdatomic.h>

static struct host_fixture f;

static int open_driver(void **state)
{
    (void)state;
    host_open(&f);
    return 0;
}

static int close_driver(void **state)
{
    (void)state;
    rpi_host_reset();
    return 0;
}

static uint64_t random_state;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % below;
}

/* ---- random graphs ------------------------------------------------------------------------- */

enum { CELLS = 6, MOST = 40 };

/* A random program: node i adds value[i] to cell in[i] and writes cell out[i]. */
struct program {
    int count;
    int in[MOST], out[MOST];
    uint32_t value[MOST];
    bool edge[MOST][MOST];    /* [from][to] */
    bool reaches[MOST][MOST]; /* the closure */
};

static bool conflict(const struct program *p, int i, int j)
{
    return p->out[i] == p->out[j] || p->out[i] == p->in[j] || p->in[i] == p->out[j];
}

static void close_program(struct program *p)
{
    memcpy(p->reaches, p->edge, sizeof p->edge);
    for (int k = 0; k < p->count; k++)
        for (int i = 0; i < p->count; i++)
            for (int j = 0; j < p->count; j++)
                p->reaches[i][j] |= p->reaches[i][k] && p->reaches[k][j];
}

/* Edges between conflicting nodes that are not ordered yet, and some more. */
static void make_program(struct program *p)
{
    memset(p, 0, sizeof *p);
    p->count = 2 + (int)draw(MOST - 1);
    if (p->count > MOST)
        p->count = MOST;
    for (int i = 0; i < p->count; i++) {
        p->in[i] = (int)draw(CELLS);
        p->out[i] = (int)draw(CELLS);
        p->value[i] = draw(1000);
        for (int j = i - 1; j >= 0; j--) {
            bool known = false;
            for (int k = j + 1; k < i && !known; k++)
                known = p->reaches[j][k] && p->edge[k][i];
            if (!known && (conflict(p, i, j) || draw(20) == 0))
                p->edge[j][i] = true;
        }
        close_program(p);
    }
}

static CUgraphExec build(const struct program *p, CUdeviceptr cells)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode nodes[MOST], before[MOST];
    uint32_t one = 1;
    OK(f.d->cuGraphCreate(&graph, 0));
    for (int i = 0; i < p->count; i++) {
        size_t count = 0;
        for (int j = 0; j < i; j++)
            if (p->edge[j][i])
                before[count++] = nodes[j];
        CUdeviceptr out = cells + 4 * (CUdeviceptr)p->out[i];
        CUdeviceptr in = cells + 4 * (CUdeviceptr)p->in[i];
        uint32_t value = p->value[i];
        void *params[] = {&out, &in, &value, &one};
        CUDA_KERNEL_NODE_PARAMS all = {.func = f.add,
                                       .gridDimX = 1,
                                       .gridDimY = 1,
                                       .gridDimZ = 1,
                                       .blockDimX = 1,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .kernelParams = params};
        OK(f.d->cuGraphAddKernelNode(&nodes[i], graph, before, count, &all));
    }
    OK(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(f.d->cuGraphDestroy(graph));
    return exec;
}

static void ordered_programs_give_one_result(void **state)
{
    (void)state;
    CUdeviceptr cells;
    CUstream stream;
    OK(f.d->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(f.d->cuMemAlloc(&cells, CELLS * 4));
    random_state = 1;
    for (int round = 0; round < 300; round++) {
        struct program p;
        uint32_t expected[CELLS] = {0}, found[CELLS];
        make_program(&p);
        CUgraphExec exec = build(&p, cells);
        for (int launch = 0; launch < 3; launch++)
            for (int i = 0; i < p.count; i++)
                expected[p.out[i]] = expected[p.in[i]] + p.value[i];
        OK(f.d->cuMemsetD32Async(cells, 0, CELLS, stream));
        for (int launch = 0; launch < 3; launch++)
            OK(f.d->cuGraphLaunch(exec, stream));
        OK(f.d->cuMemcpyDtoHAsync(found, cells, sizeof found, stream));
        assert_memory_equal(found, expected, sizeof found);
        OK(f.d->cuGraphExecDestroy(exec));
    }
    struct rpi_host_statistics s;
    rpi_host_statistics(&s);
    assert_int_equal(s.races, 0);
    assert_int_equal(s.graphs, 0);
    assert_int_equal(s.execs, 0);
}

static CUgraphExec build_touching(const struct program *p, CUdeviceptr cells)
{
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode nodes[MOST];
    uint32_t bytes = 4;
    OK(f.d->cuGraphCreate(&graph, 0));
    for (int i = 0; i < p->count; i++) {
        CUgraphNode before[MOST];
        size_t count = 0;
        for (int j = 0; j < i; j++)
            if (p->edge[j][i])
                before[count++] = nodes[j];
        CUdeviceptr out = cells + 4 * (CUdeviceptr)p->out[i];
        void *params[] = {&out, &bytes};
        CUDA_KERNEL_NODE_PARAMS all = {.func = f.touch,
                                       .gridDimX = 1,
                                       .gridDimY = 1,
                                       .gridDimZ = 1,
                                       .blockDimX = 1,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .kernelParams = params};
        OK(f.d->cuGraphAddKernelNode(&nodes[i], graph, before, count, &all));
    }
    OK(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(f.d->cuGraphDestroy(graph));
    return exec;
}

/* As many races as pairs of unordered nodes that write one cell, no more and no fewer. */
static void races_are_counted_exactly(void **state)
{
    (void)state;
    CUdeviceptr cells;
    OK(f.d->cuMemAlloc(&cells, CELLS * 4));
    random_state = 2;
    uint64_t all = 0;
    for (int round = 0; round < 300; round++) {
        struct program p;
        make_program(&p);
        for (int drops = 0; drops < 3; drops++)
            p.edge[draw((uint32_t)p.count)][draw((uint32_t)p.count)] = false;
        close_program(&p);
        uint64_t expected = 0;
        for (int i = 0; i < p.count; i++)
            for (int j = 0; j < i; j++)
                expected += p.out[i] == p.out[j] && !p.reaches[j][i];
        CUgraphExec exec = build_touching(&p, cells);
        rpi_host_races_clear();
        OK(f.d->cuGraphLaunch(exec, NULL));
        struct rpi_host_statistics s;
        rpi_host_statistics(&s);
        assert_int_equal(s.races, expected);
        all += expected;
        OK(f.d->cuGraphExecDestroy(exec));
    }
    assert_true(all > 0);
}

/* ---- failing host memory ------------------------------------------------------------------- */

static atomic_long allocations_left;

static void *failing_malloc(size_t bytes, void *user)
{
    (void)user;
    return atomic_fetch_sub(&allocations_left, 1) > 0 ? malloc(bytes) : NULL;
}

static void *failing_realloc(void *pointer, size_t bytes, void *user)
{
    (void)user;
    return atomic_fetch_sub(&allocations_left, 1) > 0 ? realloc(pointer, bytes) : NULL;
}

static void plain_free(void *pointer, void *user)
{
    (void)user;
    free(pointer);
}

/* Runs until the first call that fails, which must be for want of memory; true: all succeeded. */
static bool scenario(CUgraphExec *exec, CUgraph graphs[2], CUstream streams[2], CUevent *event,
                     CUdeviceptr *memory)
{
    CUresult r = CUDA_SUCCESS;
    CUgraphExecUpdateResultInfo info;
#define TRY(call)                                                                                  \
    if ((r = (call)) != CUDA_SUCCESS)                                                              \
        goto failed;
    for (int i = 0; i < 2; i++)
        TRY(f.d->cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING))
    TRY(f.d->cuEventCreate(event, 0))
    TRY(f.d->cuMemAlloc(memory, 4096))
    TRY(f.d->cuMemsetD8Async(*memory, 0, 64, streams[0]))
    TRY(f.d->cuEventRecord(*event, streams[0]))
    TRY(f.d->cuStreamWaitEvent(streams[1], *event, 0))
    TRY(host_add(&f, streams[1], *memory, *memory, 1, 1))
    for (int i = 0; i < 2; i++) {
        TRY(f.d->cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED))
        TRY(host_add(&f, streams[0], *memory, *memory, 1, 4))
        TRY(f.d->cuEventRecord(*event, streams[0]))
        TRY(f.d->cuStreamWaitEvent(streams[1], *event, 0))
        TRY(host_add(&f, streams[1], *memory + 64, *memory, 1, 4))
        TRY(f.d->cuEventRecord(*event, streams[1]))
        TRY(f.d->cuStreamWaitEvent(streams[0], *event, 0))
        TRY(f.d->cuMemsetD8Async(*memory + 64, 0, 64, streams[0]))
        TRY(f.d->cuStreamEndCapture(streams[0], &graphs[i]))
    }
    TRY(f.d->cuGraphInstantiateWithFlags(exec, graphs[0], 0))
    TRY(f.d->cuGraphLaunch(*exec, streams[1]))
    r = f.d->cuGraphExecUpdate(*exec, graphs[1], &info);
    if (r == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE && info.result == CU_GRAPH_EXEC_UPDATE_ERROR)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    TRY(r)
    TRY(f.d->cuGraphLaunch(*exec, streams[0]))
    TRY(f.d->cuCtxSynchronize())
#undef TRY
failed:
    assert_true(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY);
    return r == CUDA_SUCCESS;
}

static void host_memory_fails_everywhere(void **state)
{
    (void)state;
    static const struct rp_host_memory failing = {failing_malloc, failing_realloc, plain_free,
                                                  NULL};
    bool done = false;
    for (long limit = 0; !done; limit++) {
        host_open(&f);
        CUgraphExec exec = NULL;
        CUgraph graphs[2] = {NULL, NULL};
        CUstream streams[2] = {NULL, NULL};
        CUevent event = NULL;
        CUdeviceptr memory = 0;
        atomic_store(&allocations_left, limit);
        rp_set_host_memory(&failing);
        done = scenario(&exec, graphs, streams, &event, &memory);
        atomic_store(&allocations_left, 1 << 30);
        /* What exists can be given back, and then nothing is left. */
        if (exec)
            OK(f.d->cuGraphExecDestroy(exec));
        for (int i = 0; i < 2; i++) {
            if (graphs[i])
                OK(f.d->cuGraphDestroy(graphs[i]));
            if (streams[i])
                OK(f.d->cuStreamDestroy(streams[i]));
        }
        if (event)
            OK(f.d->cuEventDestroy(event));
        OK(f.d->cuCtxSynchronize());
        OK(f.d->cuMemFree(memory));
        struct rpi_host_statistics s;
        rpi_host_statistics(&s);
        assert_int_equal(s.graphs + s.execs + s.streams + s.events + s.captures + s.pending, 0);
        assert_int_equal(s.physical_bytes, 0);
        assert_int_equal(s.races, 0);
        rpi_host_reset();
        rp_set_host_memory(NULL);
        assert_true(limit < 2000);
    }
}

/* ---- threads ------------------------------------------------------------------------------- */

static void *capture_and_launch(void *argument)
{
    uint32_t *out = argument;
    CUstream stream, side;
    CUevent event;
    CUdeviceptr x;
    OK(f.d->cuCtxSetCurrent(f.context));
    OK(f.d->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(f.d->cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
    OK(f.d->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(f.d->cuMemAlloc(&x, 256));
    OK(f.d->cuMemsetD32Async(x, 0, 64, stream));
    for (int i = 0; i < 30; i++) {
        CUgraph graph;
        CUgraphExec exec;
        OK(f.d->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        OK(host_add(&f, stream, x, x, 1, 1));
        OK(f.d->cuEventRecord(event, stream));
        OK(f.d->cuStreamWaitEvent(side, event, 0));
        OK(host_add(&f, side, x + 4, x, 1, 1));
        OK(host_add(&f, stream, x + 8, x, 1, 1));
        OK(f.d->cuEventRecord(event, side));
        OK(f.d->cuStreamWaitEvent(stream, event, 0));
        OK(f.d->cuStreamEndCapture(stream, &graph));
        OK(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0));
        OK(f.d->cuGraphDestroy(graph));
        OK(f.d->cuGraphLaunch(exec, stream));
        OK(f.d->cuGraphExecDestroy(exec));
    }
    OK(f.d->cuStreamSynchronize(stream));
    OK(f.d->cuMemcpyDtoHAsync(out, x + 8, 4, stream));
    OK(f.d->cuMemFree(x));
    OK(f.d->cuStreamDestroy(stream));
    OK(f.d->cuStreamDestroy(side));
    OK(f.d->cuEventDestroy(event));
    return NULL;
}

static void threads_work_apart(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    uint32_t out[THREADS] = {0};
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, capture_and_launch, &out[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(out[i], 31);
    struct rpi_host_statistics s;
    rpi_host_statistics(&s);
    assert_int_equal(s.streams + s.events + s.graphs + s.execs + s.races, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_driver, close_driver)
        TEST(ordered_programs_give_one_result),
        TEST(races_are_counted_exactly),
        TEST(host_memory_fails_everywhere),
        TEST(threads_work_apart),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
