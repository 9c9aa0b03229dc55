/* SPDX-License-Identifier: MIT
 *
 * The host driver: graphs, their execs, updates, orders of execution, and races inside a launch.
 */
#include "host_kernels.h"

static struct host_fixture f;
static CUstream a;
static CUdeviceptr x;

enum { WORDS = 1024 };

static int open_driver(void **state)
{
    (void)state;
    host_open(&f);
    OK(f.d->cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    OK(f.d->cuMemAlloc(&x, WORDS * 4));
    OK(f.d->cuMemsetD32(x, 0, WORDS));
    OK(f.d->cuCtxSynchronize()); /* a fill does not wait, and stream a not for the legacy one */
    return 0;
}

static int close_driver(void **state)
{
    (void)state;
    rpi_host_reset();
    rpi_host_configure(NULL);
    return 0;
}

static CUgraphNode add_node(CUgraph graph, const CUgraphNode *before, size_t count, CUdeviceptr out,
                            CUdeviceptr in, uint32_t value)
{
    uint32_t one = 1;
    void *params[] = {&out, &in, &value, &one};
    CUDA_KERNEL_NODE_PARAMS all = {.func = f.add,
                                   .gridDimX = 1,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = 1,
                                   .blockDimY = 1,
                                   .blockDimZ = 1,
                                   .kernelParams = params};
    CUgraphNode node;
    OK(f.d->cuGraphAddKernelNode(&node, graph, before, count, &all));
    return node;
}

static uint32_t word(size_t index)
{
    uint32_t value;
    OK(f.d->cuMemcpyDtoH(&value, x + index * 4, 4));
    return value;
}

static void run(CUgraphExec exec)
{
    OK(f.d->cuGraphLaunch(exec, a));
    OK(f.d->cuStreamSynchronize(a));
}

static size_t races(void)
{
    struct rpi_host_race kept[64];
    return rpi_host_races(kept, 64);
}

static void nodes_set_in_the_exec(void **state)
{
    (void)state;
    CUgraph graph;
    CUgraphExec exec;
    OK(f.d->cuGraphCreate(&graph, 0));
    CUgraphNode first = add_node(graph, NULL, 0, x, x, 1);
    CUgraphNode second = add_node(graph, &first, 1, x + 4, x, 10);
    OK(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    run(exec);
    assert_int_equal(word(1), 11);
    CUDA_KERNEL_NODE_PARAMS params;
    OK(f.d->cuGraphKernelNodeGetParams(second, &params));
    assert_ptr_equal(params.func, f.add);
    assert_int_equal(*(uint32_t *)params.kernelParams[2], 10);
    assert_null(params.extra);
    CUdeviceptr out = x + 8;
    void *changed[] = {&out, params.kernelParams[1], params.kernelParams[2],
                       params.kernelParams[3]};
    params.kernelParams = changed;
    OK(f.d->cuGraphExecKernelNodeSetParams(exec, second, &params));
    run(exec);
    assert_int_equal(word(0), 2);
    assert_int_equal(word(1), 11);
    assert_int_equal(word(2), 12);
    /* The template still has the former parameters, and a node of another graph is refused. */
    OK(f.d->cuGraphKernelNodeGetParams(second, &params));
    assert_int_equal(*(CUdeviceptr *)params.kernelParams[0], x + 4);
    CUgraph clone;
    CUgraphNode cloned;
    OK(f.d->cuGraphClone(&clone, graph));
    OK(f.d->cuGraphNodeFindInClone(&cloned, second, clone));
    assert_int_equal(f.d->cuGraphExecKernelNodeSetParams(exec, cloned, &params),
                     CUDA_ERROR_INVALID_VALUE);
    OK(f.d->cuGraphDestroy(graph));
    assert_int_equal(f.d->cuGraphExecKernelNodeSetParams(exec, second, &params),
                     CUDA_ERROR_INVALID_VALUE);
    run(exec);
    assert_int_equal(word(2), 13);
}

static void a_child_node_is_set_in_the_exec(void **state)
{
    (void)state;
    CUgraph inner, outer, child;
    CUgraphNode node, first, holder;
    CUgraphExec exec;
    size_t count = 1;
    OK(f.d->cuGraphCreate(&inner, 0));
    add_node(inner, NULL, 0, x, x, 1);
    OK(f.d->cuGraphCreate(&outer, 0));
    OK(f.d->cuGraphAddEmptyNode(&first, outer, NULL, 0));
    OK(f.d->cuGraphAddChildGraphNode(&holder, outer, &first, 1, inner));
    OK(f.d->cuGraphChildGraphNodeGetGraph(holder, &child));
    OK(f.d->cuGraphGetNodes(child, &node, &count));
    OK(f.d->cuGraphInstantiateWithFlags(&exec, outer, 0));
    CUDA_KERNEL_NODE_PARAMS params;
    OK(f.d->cuGraphKernelNodeGetParams(node, &params));
    uint32_t value = 5;
    void *changed[] = {params.kernelParams[0], params.kernelParams[1], &value,
                       params.kernelParams[3]};
    params.kernelParams = changed;
    OK(f.d->cuGraphExecKernelNodeSetParams(exec, node, &params));
    run(exec);
    assert_int_equal(word(0), 5);
    assert_int_equal(f.d->cuGraphAddChildGraphNode(&node, outer, NULL, 0, outer),
                     CUDA_ERROR_INVALID_VALUE);
}

static CUgraph diamond(uint32_t value, bool flat)
{
    CUgraph graph;
    OK(f.d->cuGraphCreate(&graph, 0));
    CUgraphNode top = add_node(graph, NULL, 0, x, x + 400, value);
    CUgraphNode both[2];
    both[0] = add_node(graph, &top, 1, x + 4, x, value);
    both[1] = add_node(graph, &top, 1, x + 8, x, value);
    add_node(graph, both, flat ? 1 : 2, x + 12, x + 4, value);
    return graph;
}

static void updates_follow_the_topology(void **state)
{
    (void)state;
    CUgraph graph = diamond(1, false), other = diamond(5, false), flat = diamond(5, true);
    CUgraph fewer;
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    OK(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(f.d->cuGraphExecUpdate(exec, other, &info));
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    run(exec);
    assert_int_equal(word(3), 15);
    assert_int_equal(f.d->cuGraphExecUpdate(exec, flat, &info),
                     CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    OK(f.d->cuGraphCreate(&fewer, 0));
    assert_int_equal(f.d->cuGraphExecUpdate(exec, fewer, &info),
                     CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    assert_null(info.errorNode);
    run(exec);
    assert_int_equal(word(3), 15);
}

static void updates_refuse_other_types(void **state)
{
    (void)state;
    CUgraph one, two;
    CUgraphNode node;
    CUgraphExec exec;
    CUgraphExecUpdateResultInfo info;
    CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = x, .pitch = 64, .elementSize = 1, .width = 8, .height = 4};
    OK(f.d->cuGraphCreate(&one, 0));
    OK(f.d->cuGraphCreate(&two, 0));
    OK(f.d->cuGraphAddMemsetNode(&node, one, NULL, 0, &fill, f.context));
    OK(f.d->cuGraphInstantiateWithFlags(&exec, one, 0));
    fill.dst = x + 512;
    OK(f.d->cuGraphExecMemsetNodeSetParams(exec, node, &fill, f.context));
    fill.width = 9;
    assert_int_equal(f.d->cuGraphExecMemsetNodeSetParams(exec, node, &fill, f.context),
                     CUDA_ERROR_INVALID_VALUE);
    OK(f.d->cuGraphAddMemsetNode(&node, two, NULL, 0, &fill, f.context));
    assert_int_equal(f.d->cuGraphExecUpdate(exec, two, &info),
                     CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
    assert_ptr_equal(info.errorNode, node);
    OK(f.d->cuGraphDestroyNode(node));
    OK(f.d->cuGraphAddEmptyNode(&node, two, NULL, 0));
    assert_int_equal(f.d->cuGraphExecUpdate(exec, two, &info),
                     CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    fill.dst = 4096;
    assert_int_equal(f.d->cuGraphAddMemsetNode(&node, two, NULL, 0, &fill, f.context),
                     CUDA_ERROR_INVALID_VALUE);
}

static void edges_are_checked(void **state)
{
    (void)state;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode n[3];
    size_t count;
    OK(f.d->cuGraphCreate(&graph, 0));
    for (int i = 0; i < 3; i++)
        OK(f.d->cuGraphAddEmptyNode(&n[i], graph, NULL, 0));
    const CUgraphNode from[] = {n[0], n[1], n[2]}, to[] = {n[1], n[2], n[0]};
    const CUgraphNode from_twice[] = {n[0], n[0]}, to_twice[] = {n[1], n[1]};
    assert_int_equal(f.d->cuGraphAddDependencies(graph, from_twice, to_twice, NULL, 2),
                     CUDA_ERROR_INVALID_VALUE);
    OK(f.d->cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
    assert_int_equal(count, 0);
    OK(f.d->cuGraphAddDependencies(graph, from, to, NULL, 3));
    assert_int_equal(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    OK(f.d->cuGraphRemoveDependencies(graph, &from[2], &to[2], NULL, 1));
    OK(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    assert_int_equal(f.d->cuGraphRemoveDependencies(graph, &from[2], &to[2], NULL, 1),
                     CUDA_ERROR_INVALID_VALUE);
    run(exec);
    OK(f.d->cuGraphDestroyNode(n[1]));
    OK(f.d->cuGraphGetEdges(graph, NULL, NULL, NULL, &count));
    assert_int_equal(count, 0);
    assert_int_equal(f.d->cuGraphDestroyNode(n[1]), CUDA_ERROR_INVALID_VALUE);
}

/* ---- orders -------------------------------------------------------------------------------- */

static unsigned char order[8];
static unsigned order_count;
static unsigned char seen[256];

static void note(void *user)
{
    order[order_count++] = (unsigned char)(uintptr_t)user;
}

/* Three unordered nodes on one thread: over seeds, all six orders are taken. Host functions would
 * not count as the one operation that runs, so kernels note themselves. */
static void run_note(const struct rp_host_launch *launch)
{
    note((void *)*(uintptr_t *)launch->params[0]);
}

static void every_order_is_taken(void **state)
{
    (void)state;
    static const struct rp_host_param param = {0, 8};
    static const struct rp_host_kernel kernel = {"note", run_note, NULL, &param, 1, 0};
    static const struct rp_host_image image = {RP_HOST_IMAGE_MAGIC, 1, 0, &kernel};
    struct rpi_host_options former, options;
    rpi_host_options(&former);
    options = former;
    options.threads = 1;
    CUmodule module;
    CUfunction function;
    CUgraph graph;
    CUgraphExec exec;
    OK(f.d->cuModuleLoadData(&module, &image));
    OK(f.d->cuModuleGetFunction(&function, module, "note"));
    OK(f.d->cuGraphCreate(&graph, 0));
    for (uintptr_t i = 1; i <= 3; i++) {
        void *params[] = {&i};
        CUDA_KERNEL_NODE_PARAMS all = {.func = function,
                                       .gridDimX = 1,
                                       .gridDimY = 1,
                                       .gridDimZ = 1,
                                       .blockDimX = 1,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .kernelParams = params};
        CUgraphNode node;
        OK(f.d->cuGraphAddKernelNode(&node, graph, NULL, 0, &all));
    }
    OK(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    memset(seen, 0, sizeof seen);
    int kinds = 0;
    for (uint64_t seed = 1; seed <= 64; seed++) {
        unsigned first = 0;
        for (int again = 0; again < 2; again++) {
            options.seed = seed;
            rpi_host_configure(&options);
            order_count = 0;
            run(exec);
            assert_int_equal(order_count, 3);
            unsigned key = order[0] | (unsigned)order[1] << 2 | (unsigned)order[2] << 4;
            if (again)
                assert_int_equal(key, first); /* a seed gives one order */
            first = key;
            kinds += !seen[key];
            seen[key] = 1;
        }
    }
    assert_int_equal(kinds, 6);
    rpi_host_configure(&former);
}

static void launches_of_one_exec_are_ordered(void **state)
{
    (void)state;
    struct gate gate = GATE_INIT;
    CUstream b;
    CUgraph graph;
    CUgraphExec exec;
    OK(f.d->cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(f.d->cuGraphCreate(&graph, 0));
    add_node(graph, NULL, 0, x, x, 1);
    OK(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(f.d->cuGraphDestroy(graph));
    OK(f.d->cuLaunchHostFunc(a, gate_wait, &gate));
    OK(f.d->cuGraphLaunch(exec, a));
    OK(f.d->cuGraphLaunch(exec, b));
    assert_int_equal(f.d->cuStreamQuery(b), CUDA_ERROR_NOT_READY);
    OK(f.d->cuGraphExecDestroy(exec)); /* launches in flight go on */
    gate_open(&gate);
    OK(f.d->cuStreamSynchronize(b));
    assert_int_equal(word(0), 2);
    assert_int_equal(races(), 0);
}

/* ---- races --------------------------------------------------------------------------------- */

/* So that what races does so for the check alone, not as the compiler means it. */
static void one_at_a_time(void)
{
    struct rpi_host_options options = RPI_HOST_OPTIONS_INIT;
    options.threads = 1;
    rpi_host_configure(&options);
}

static void unordered_nodes_race(void **state)
{
    (void)state;
    one_at_a_time();
    CUgraph graph = diamond(1, false);
    CUgraphExec exec;
    OK(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    run(exec);
    assert_int_equal(races(), 0);
    CUgraphNode nodes[4], last;
    size_t count = 4;
    OK(f.d->cuGraphGetNodes(graph, nodes, &count));
    /* Writes what node 2 writes, and only node 1 comes before it. */
    last = add_node(graph, &nodes[1], 1, x + 8, x + 500, 1);
    (void)last;
    OK(f.d->cuGraphExecDestroy(exec));
    OK(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(f.d->cuGraphLaunch(exec, a));
    struct rpi_host_race race[2];
    assert_int_equal(rpi_host_races(race, 2), 1);
    assert_int_equal(race[0].address, x + 8);
    assert_int_equal(race[0].bytes, 4);
    assert_true(race[0].first_writes && race[0].second_writes);
    OK(f.d->cuStreamSynchronize(a));
}

static int told;
static char last_told[512];

static void listen(enum rp_log_level level, const char *message, void *user)
{
    struct rpi_host_statistics now;
    (void)user;
    assert_int_equal(level, RP_LOG_WARNING);
    told++;
    snprintf(last_told, sizeof last_told, "%s", message);
    rpi_host_statistics(&now); /* the callback may call the driver */
}

/* Each pair of names once, however often it races. */
static void races_are_told_once(void **state)
{
    (void)state;
    CUstream b;
    one_at_a_time();
    told = 0;
    rp_set_log(listen, NULL, RP_LOG_WARNING);
    OK(f.d->cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(host_touch(&f, f.touch, a, x, 64));
    assert_int_equal(told, 0);
    OK(host_touch(&f, f.touch, b, x, 64));
    OK(host_touch(&f, f.touch, a, x, 64));
    OK(host_touch(&f, f.touch, b, x, 64));
    assert_true(races() > 1);
    assert_int_equal(told, 1);
    assert_non_null(strstr(last_told, "64 bytes at 0x"));
    OK(f.d->cuMemsetD8Async(x, 0, 8, a));
    assert_int_equal(told, 2);
    assert_non_null(strstr(last_told, "'memset' writes"));
    rp_set_log(NULL, NULL, RP_LOG_ERROR);
}

static void aliases_race(void **state)
{
    (void)state;
    const size_t bytes = 2 << 20;
    const CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle chunk;
    CUdeviceptr base;
    CUstream b;
    OK(f.d->cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(f.d->cuMemCreate(&chunk, bytes, &property, 0));
    OK(f.d->cuMemAddressReserve(&base, 2 * bytes, 0, 0, 0));
    OK(f.d->cuMemMap(base, bytes, 0, chunk, 0));
    OK(f.d->cuMemMap(base + bytes, bytes, 0, chunk, 0));
    OK(f.d->cuMemSetAccess(base, 2 * bytes, &access, 1));
    OK(host_touch(&f, f.touch, a, base + 64, 64));
    OK(host_touch(&f, f.touch, b, base + bytes, 64));
    assert_int_equal(races(), 0);
    OK(host_touch(&f, f.touch, b, base + bytes, 65));
    assert_int_equal(races(), 1);
    rpi_host_races_clear();
    OK(f.d->cuMemUnmap(base, 2 * bytes)); /* nobody has waited for the work on it */
    assert_int_equal(races(), 2 + 1);
}

static void launches_on_two_streams_race(void **state)
{
    (void)state;
    one_at_a_time();
    CUstream b;
    CUgraph graph;
    CUgraphExec one, two;
    CUevent event;
    OK(f.d->cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(f.d->cuEventCreate(&event, 0));
    OK(f.d->cuGraphCreate(&graph, 0));
    add_node(graph, NULL, 0, x, x + 8, 1);
    OK(f.d->cuGraphInstantiateWithFlags(&one, graph, 0));
    OK(f.d->cuGraphInstantiateWithFlags(&two, graph, 0));
    OK(f.d->cuGraphLaunch(one, a));
    OK(f.d->cuEventRecord(event, a));
    OK(f.d->cuStreamWaitEvent(b, event, 0));
    OK(f.d->cuGraphLaunch(two, b));
    assert_int_equal(races(), 0);
    OK(f.d->cuGraphLaunch(one, a)); /* after its own launch, not after two's */
    assert_int_equal(races(), 1);
    OK(f.d->cuCtxSynchronize());
}

/* More operations than are remembered, and the newest are: the last one's race is seen. */
static void the_log_keeps_the_newest(void **state)
{
    (void)state;
    CUstream b;
    OK(f.d->cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 5000; i++)
        OK(host_touch(&f, f.touch, a, x, 4));
    OK(host_touch(&f, f.touch, a, x + 64, 4));
    OK(host_touch(&f, f.touch, b, x + 64, 4));
    assert_int_equal(races(), 1);
    OK(f.d->cuCtxSynchronize());
}

static void work_on_a_large_graph(void **state)
{
    (void)state;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode row[WORDS / 4], next;
    OK(f.d->cuGraphCreate(&graph, 0));
    for (int i = 0; i < WORDS / 4; i++)
        row[i] = add_node(graph, NULL, 0, x + (CUdeviceptr)i * 4, x + (CUdeviceptr)i * 4, 1);
    for (int step = 0; step < 4; step++)
        for (int i = 0; i < WORDS / 4; i++) {
            CUgraphNode before = row[i];
            row[i] = add_node(graph, &before, 1, x + (CUdeviceptr)i * 4, x + (CUdeviceptr)i * 4, 1);
        }
    OK(f.d->cuGraphAddEmptyNode(&next, graph, row, WORDS / 4));
    OK(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(f.d->cuGraphUpload(exec, a));
    for (int i = 0; i < 5; i++)
        OK(f.d->cuGraphLaunch(exec, a));
    OK(f.d->cuStreamSynchronize(a));
    for (size_t i = 0; i < WORDS / 4; i++)
        assert_int_equal(word(i), 25);
    assert_int_equal(races(), 0);
}

static void event_nodes_reach_outside(void **state)
{
    (void)state;
    struct gate gate = GATE_INIT;
    CUstream b;
    CUevent start, done;
    CUgraph graph;
    CUgraphExec exec;
    OK(f.d->cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    OK(f.d->cuEventCreate(&start, 0));
    OK(f.d->cuEventCreate(&done, 0));
    assert_int_equal(f.d->cuEventRecordWithFlags(done, a, CU_EVENT_RECORD_EXTERNAL),
                     CUDA_ERROR_INVALID_VALUE);
    OK(f.d->cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(f.d->cuStreamWaitEvent(a, start, CU_EVENT_WAIT_EXTERNAL));
    OK(host_add(&f, a, x, x, 1, 1));
    OK(f.d->cuEventRecordWithFlags(done, a, CU_EVENT_RECORD_EXTERNAL));
    OK(f.d->cuStreamEndCapture(a, &graph));
    OK(f.d->cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(f.d->cuLaunchHostFunc(b, gate_wait, &gate));
    OK(f.d->cuMemsetD32Async(x, 41, 1, b));
    OK(f.d->cuEventRecord(start, b));
    OK(f.d->cuGraphLaunch(exec, a));
    assert_int_equal(f.d->cuEventQuery(done), CUDA_ERROR_NOT_READY);
    gate_open(&gate);
    OK(f.d->cuEventSynchronize(done));
    assert_int_equal(word(0), 42);
    assert_int_equal(races(), 0);
}

/* Free memory of the device, in bytes. */
static size_t free_memory(void)
{
    size_t free_bytes, total;
    OK(f.d->cuMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

static CUgraph fork_of(int branches)
{
    CUgraph graph;
    CUgraphNode head, node;
    const CUDA_MEMSET_NODE_PARAMS fill = {.dst = x, .elementSize = 4, .width = 1, .height = 1};
    OK(f.d->cuGraphCreate(&graph, 0));
    OK(f.d->cuGraphAddEmptyNode(&head, graph, NULL, 0));
    for (int i = 0; i < branches; i++)
        OK(f.d->cuGraphAddMemsetNode(&node, graph, &head, 1, &fill, f.context));
    return graph;
}

static void execs_take_memory_where_they_have_a_price(void **state)
{
    (void)state;
    enum { PATH = 1 << 20, STEP = 4 << 20 };
    struct rpi_host_options before, options;
    CUgraph graph = fork_of(3);
    CUgraphExec execs[3];
    size_t at_first = free_memory();
    OK(f.d->cuGraphInstantiateWithFlags(&execs[0], graph, 0));
    assert_int_equal(free_memory(), at_first); /* none, where nothing says else */
    rpi_host_options(&before);
    options = before;
    options.exec_path_bytes = PATH;
    options.exec_step_bytes = STEP;
    rpi_host_configure(&options);
    OK(f.d->cuGraphInstantiateWithFlags(&execs[1], graph, 0));
    assert_int_equal(free_memory(), at_first - STEP); /* three paths */
    OK(f.d->cuGraphInstantiateWithFlags(&execs[2], graph, 0));
    assert_int_equal(free_memory(), at_first - 2 * STEP);
    OK(f.d->cuGraphExecDestroy(execs[1]));
    assert_int_equal(free_memory(), at_first - 2 * STEP); /* kept, */
    OK(f.d->cuGraphInstantiateWithFlags(&execs[1], graph, 0));
    assert_int_equal(free_memory(), at_first - 2 * STEP); /* and used again */
    options.total_bytes = options.total_bytes - free_memory() + STEP - 1;
    rpi_host_configure(&options);
    assert_int_equal(f.d->cuGraphExecDestroy(execs[0]), 0);
    OK(f.d->cuGraphInstantiateWithFlags(&execs[0], fork_of(2), 0)); /* to the brim */
    CUgraphExec none;
    assert_int_equal(f.d->cuGraphInstantiateWithFlags(&none, graph, 0), CUDA_ERROR_OUT_OF_MEMORY);
    rpi_host_configure(&before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_driver, close_driver)
        TEST(nodes_set_in_the_exec),
        TEST(a_child_node_is_set_in_the_exec),
        TEST(updates_follow_the_topology),
        TEST(updates_refuse_other_types),
        TEST(edges_are_checked),
        TEST(every_order_is_taken),
        TEST(launches_of_one_exec_are_ordered),
        TEST(unordered_nodes_race),
        TEST(aliases_race),
        TEST(races_are_told_once),
        TEST(launches_on_two_streams_race),
        TEST(the_log_keeps_the_newest),
        TEST(work_on_a_large_graph),
        TEST(event_nodes_reach_outside),
        TEST(execs_take_memory_where_they_have_a_price),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
