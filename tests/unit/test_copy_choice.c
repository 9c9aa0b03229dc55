/* SPDX-License-Identifier: MIT
 *
 * Arguments that could be bound and are copied by choice: by a caller within the library, for all
 * of a graph; and where that was found to cost less, for each.
 */
#include "graph_fixture.h"

#include "fault_loop.h"
#include "graph/bind/copy_choice.h"
#include "graph/exec/exec.h"
#include "graph/replay/replay.h"

#include <pthread.h>

enum { COUNT = 256, BYTES = COUNT * sizeof(float), SETS = 3, ARGS = 3 };

/* y = 2 x, z += x. */
static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct rpt_fixture *f = user;
    CUstream s = rp_call_stream(call);
    rp_status status = rpt_scale(f, s, rp_call_arg(call, 1), rp_call_arg(call, 0), 2, COUNT, err);
    if (status != RP_OK)
        return status;
    return rpt_saxpy(f, s, rp_call_arg(call, 2), rp_call_arg(call, 0), 1, COUNT, err);
}

struct buffers {
    CUdeviceptr memory;
    struct rp_arg args[SETS][ARGS];
    unsigned replays[SETS];
};

static void buffers_init(const struct rpt_fixture *f, struct buffers *b)
{
    static const enum rp_arg_role roles[] = {RP_ARG_IN, RP_ARG_OUT, RP_ARG_INOUT};
    memset(b, 0, sizeof *b);
    assert_int_equal(f->driver->cuMemAlloc(&b->memory, (size_t)SETS * ARGS * BYTES), 0);
    for (uint32_t i = 0; i < SETS * ARGS; i++) {
        uint64_t address = b->memory + (uint64_t)i * BYTES;
        b->args[i / ARGS][i % ARGS] = rpt_arg(address, COUNT, roles[i % ARGS]);
        assert_int_equal(f->driver->cuMemsetD32(address, 0x3f800000, COUNT), 0);
    }
    assert_int_equal(f->driver->cuCtxSynchronize(), 0);
}

static void replay(struct rpt_fixture *f, struct rp_graph *graph, struct buffers *b, size_t set)
{
    RPT_OK(f, rp_graph_replay(graph, b->args[set], ARGS, NULL, &f->err));
    b->replays[set]++;
}

static void buffers_finish(const struct rpt_fixture *f, struct buffers *b)
{
    float values[COUNT];
    assert_int_equal(f->driver->cuCtxSynchronize(), 0);
    for (size_t set = 0; set < SETS; set++) {
        const float expected[ARGS] = {1, b->replays[set] ? 2 : 1, 1 + (float)b->replays[set]};
        for (size_t k = 0; k < ARGS; k++) {
            uint64_t from = b->args[set][k].address;
            assert_int_equal(f->driver->cuMemcpyDtoH(values, from, BYTES), 0);
            for (size_t i = 0; i < COUNT; i++)
                assert_true(values[i] == expected[k]);
        }
    }
    f->driver->cuMemFree(b->memory);
}

static void check_args(const struct rpt_fixture *f, const struct rp_graph *graph, size_t copied)
{
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(graph, &info);
    assert_int_equal(info.bindable_args, ARGS);
    assert_int_equal(info.copied_args, copied);
    assert_int_equal(info.bound_args, ARGS - copied);
    for (size_t k = 0; k < ARGS; k++) {
        struct rp_graph_arg_info arg = {.size = sizeof arg};
        RPT_OK(f, rp_graph_arg_info(graph, k, &arg, NULL));
        assert_true(arg.bindable);
        assert_int_equal(arg.bound, !copied);
        assert_true(!arg.reason == !copied);
        if (copied)
            assert_string_equal(arg.reason, rpi_copy_reason_text(RPI_COPY_CHOSEN));
    }
}

static void all_are_copied_where_a_caller_says_so(void **state)
{
    struct rpt_fixture *f = *state;
    struct buffers b;
    struct rp_graph *graph;
    buffers_init(f, &b);
    RPT_OK(f, rp_graph_capture(f->pool, NULL, work, f, b.args[0], ARGS, &graph, &f->err));
    replay(f, graph, &b, 0);
    check_args(f, graph, 0);
    uint64_t before = graph->exec->patched;
    rpi_graph_copy_args(graph, true);
    replay(f, graph, &b, 0); /* the addresses of the last call, which are let go of */
    check_args(f, graph, ARGS);
    assert_int_equal(graph->exec->patched, before + 2);
    for (size_t i = 0; i < 6; i++)
        replay(f, graph, &b, i % SETS);
    check_args(f, graph, ARGS);
    assert_int_equal(graph->exec->patched, before + 2); /* nothing is changed any more */
    rpi_graph_copy_args(graph, false);
    replay(f, graph, &b, 1);
    check_args(f, graph, 0);
    assert_int_equal(graph->exec->patched, before + 4);
    rp_graph_destroy(graph);
    buffers_finish(f, &b);
}

static void all_are_bound_where_there_is_no_memory_to_copy_to(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    struct buffers b;
    struct rp_pool *small;
    struct rp_graph *graph;
    options.limit_bytes = BYTES;
    buffers_init(f, &b);
    RPT_OK(f, rp_pool_create(f->device, &options, &small, &f->err));
    RPT_OK(f, rp_graph_capture(small, NULL, work, f, b.args[0], ARGS, &graph, &f->err));
    rpi_graph_copy_args(graph, true);
    for (size_t i = 0; i < 6; i++) {
        replay(f, graph, &b, i % SETS);
        check_args(f, graph, 0);
    }
    rp_graph_destroy(graph);
    rp_pool_destroy(small);
    buffers_finish(f, &b);
}

/* ---- Where it costs less ------------------------------------------------------------------- */

enum { CHAIN_ARGS = 4, CHAIN_COUNT = 64, CHAIN_BYTES = CHAIN_COUNT * sizeof(float) };

/* A launch beside a graph costs as much as twelve nodes, and one that the graph makes as two. */
static const struct rpi_copy_prices fixed_prices = {
    .launch = 12, .entry = 0.1, .single = 8, .byte = 1e-6, .single_byte = 1e-6};

/* Kernel j adds argument (j + 1) mod 4, times a power of two, to argument j mod 4. */
struct chain {
    struct rpt_fixture *f;
    size_t kernels;
    CUdeviceptr memory;
    struct rp_arg args[SETS][CHAIN_ARGS];
    float expected[SETS][CHAIN_ARGS];
    struct rp_pool *pool;
    struct rp_graph *graph;
    CUstream stream; /* of its replays */
};

static rp_status run_chain(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct chain *c = user;
    rp_status status = RP_OK;
    for (size_t j = 0; status == RP_OK && j < c->kernels; j++)
        status =
            rpt_saxpy(c->f, rp_call_stream(call), rp_call_arg(call, j % CHAIN_ARGS),
                      rp_call_arg(call, (j + 1) % CHAIN_ARGS), 0.0009765625f, CHAIN_COUNT, err);
    return status;
}

static void chain_init(struct chain *c, struct rpt_fixture *f, size_t kernels, enum rp_bind bind,
                       uint64_t limit)
{
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct rp_pool_options pool = RP_POOL_OPTIONS_INIT;
    *c = (struct chain){.f = f, .kernels = kernels};
    assert_int_equal(f->driver->cuMemAlloc(&c->memory, (size_t)SETS * CHAIN_ARGS * CHAIN_BYTES), 0);
    for (uint32_t i = 0; i < SETS * CHAIN_ARGS; i++) {
        uint64_t address = c->memory + (uint64_t)i * CHAIN_BYTES;
        c->args[i / CHAIN_ARGS][i % CHAIN_ARGS] = rpt_arg(address, CHAIN_COUNT, RP_ARG_INOUT);
        c->expected[i / CHAIN_ARGS][i % CHAIN_ARGS] = 1;
        assert_int_equal(f->driver->cuMemsetD32(address, 0x3f800000, CHAIN_COUNT), 0);
    }
    assert_int_equal(f->driver->cuCtxSynchronize(), 0);
    pool.limit_bytes = limit;
    options.bind = bind;
    RPT_OK(f, rp_pool_create(f->device, &pool, &c->pool, &f->err));
    RPT_OK(f, rp_graph_capture(c->pool, &options, run_chain, c, c->args[0], CHAIN_ARGS, &c->graph,
                               &f->err));
    rpi_copier_fix_prices(&f->device->copier, &fixed_prices);
    rpi_copier_load(&f->device->copier);
    if (c->graph->binding->choice) {
        c->graph->binding->choice->node.us = 1;
        c->graph->binding->choice->fixed_node = true;
    }
}

static void replay_args(struct chain *c, const struct rp_arg *args)
{
    float *values[CHAIN_ARGS];
    for (size_t k = 0; k < CHAIN_ARGS; k++)
        values[k] = &c->expected[0][0] + (args[k].address - c->memory) / CHAIN_BYTES;
    for (size_t j = 0; j < c->kernels; j++)
        *values[j % CHAIN_ARGS] += 0.0009765625f * *values[(j + 1) % CHAIN_ARGS];
    RPT_OK(c->f, rp_graph_replay(c->graph, args, CHAIN_ARGS, c->stream, NULL));
}

static void chain_finish(struct chain *c)
{
    float values[CHAIN_COUNT];
    const struct rpt_fixture *f = c->f;
    assert_int_equal(f->driver->cuCtxSynchronize(), 0);
    for (size_t i = 0; i < SETS * CHAIN_ARGS; i++) {
        assert_int_equal(f->driver->cuMemcpyDtoH(values, c->memory + i * CHAIN_BYTES, CHAIN_BYTES),
                         0);
        for (size_t n = 0; n < CHAIN_COUNT; n++)
            assert_memory_equal(&values[n], &c->expected[i / CHAIN_ARGS][i % CHAIN_ARGS],
                                sizeof *values);
    }
    rp_graph_destroy(c->graph);
    rp_pool_destroy(c->pool);
    f->driver->cuMemFree(c->memory);
}

static size_t copied(const struct chain *c)
{
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(c->graph, &info);
    assert_int_equal(info.bindable_args, CHAIN_ARGS);
    assert_int_equal(info.bound_args + info.copied_args, CHAIN_ARGS);
    return info.copied_args;
}

/* Replays with all addresses new until that is as many, and no more than `most` times. */
static void move_until(struct chain *c, size_t copied_args, unsigned most)
{
    for (unsigned i = 0; i < most && copied(c) != copied_args; i++)
        replay_args(c, c->args[i % SETS]);
    assert_int_equal(copied(c), copied_args);
}

/* As where the copy kernel cannot be had for the graph. */
static void without_carriers(struct chain *c)
{
    for (int end = 0; end < RPI_COPY_NODE_ENDS; end++)
        c->graph->exec->copy_nodes.ends[end].most = 0;
    c->graph->binding->choice->carried = false;
}

static void check_many_nodes(struct rpt_fixture *f, bool carried)
{
    struct chain c;
    chain_init(&c, f, 100, RP_BIND_AUTO, 0);
    if (!carried)
        without_carriers(&c);
    assert_non_null(c.graph->binding->choice);
    assert_int_equal(c.graph->binding->choice->rule.group_count, CHAIN_ARGS);
    replay_args(&c, c.args[0]);
    move_until(&c, CHAIN_ARGS, 12);
    for (size_t k = 0; k < CHAIN_ARGS; k++) {
        struct rp_graph_arg_info info = {.size = sizeof info};
        RPT_OK(c.f, rp_graph_arg_info(c.graph, k, &info, NULL));
        assert_true(info.bindable && !info.bound);
        assert_string_equal(info.reason,
                            "copying it costs less than changing the nodes that use it");
        assert_int_equal(info.nodes, 50);
    }
    uint64_t patched = c.graph->exec->patched;
    for (unsigned i = 0; i < 30; i++)
        replay_args(&c, c.args[i % SETS]);
    assert_int_equal(c.graph->exec->patched, patched);
    assert_true(carried ? c.graph->exec->copy_nodes.tables >= 60
                        : f->device->copier.launches >= 60);
    assert_true(!carried || !f->device->copier.launches);
    /* They stay where they are: bound again, as that costs nothing. */
    for (unsigned i = 0; i < 200; i++)
        replay_args(&c, c.args[0]);
    assert_int_equal(copied(&c), 0);
    assert_int_equal(c.graph->exec->patched, patched + 100);
    move_until(&c, CHAIN_ARGS, 40);
    chain_finish(&c);
}

static void many_nodes_are_let_alone_and_few_arguments_copied(void **state)
{
    check_many_nodes(*state, true);
}

static void or_copied_beside_the_graph(void **state)
{
    check_many_nodes(*state, false);
}

static void only_what_moves_is_copied(void **state)
{
    struct chain c;
    struct rp_arg args[CHAIN_ARGS];
    chain_init(&c, *state, 100, RP_BIND_AUTO, 0);
    memcpy(args, c.args[0], sizeof args);
    for (unsigned i = 0; i < 40; i++) {
        args[1] = c.args[i % SETS][1];
        replay_args(&c, args);
    }
    assert_int_equal(copied(&c), 1);
    for (size_t k = 0; k < CHAIN_ARGS; k++)
        assert_int_equal(rpi_binding_copies(c.graph->binding, k), k == 1);
    chain_finish(&c);
}

static void graphs_of_few_nodes_never_ask(void **state)
{
    struct chain c;
    chain_init(&c, *state, RPI_COPY_CHOICE_LEAST_NODES - 1, RP_BIND_AUTO, 0);
    assert_null(c.graph->binding->choice);
    for (unsigned i = 0; i < 20; i++)
        replay_args(&c, c.args[i % SETS]);
    assert_int_equal(copied(&c), 0);
    chain_finish(&c);
    chain_init(&c, *state, RPI_COPY_CHOICE_LEAST_NODES, RP_BIND_AUTO, 0);
    assert_non_null(c.graph->binding->choice);
    c.graph->binding->choice->node.us = 0.2;
    for (unsigned i = 0; i < 20; i++)
        replay_args(&c, c.args[i % SETS]);
    assert_int_equal(copied(&c), 0); /* it costs more */
    assert_int_equal(c.graph->binding->choice->asked, 20);
    assert_int_equal(c.graph->binding->choice->rule.solved, 2);
    chain_finish(&c);
}

static void binding_can_be_insisted_on(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct rp_graph *graph;
    struct chain c;
    chain_init(&c, f, 100, RP_BIND_ALWAYS, 0);
    assert_null(c.graph->binding->choice);
    for (unsigned i = 0; i < 40; i++)
        replay_args(&c, c.args[i % SETS]);
    assert_int_equal(copied(&c), 0);
    options.bind = (enum rp_bind)7;
    assert_int_equal(
        rp_graph_capture(f->pool, &options, run_chain, &c, c.args[0], CHAIN_ARGS, &graph, &f->err),
        RP_ERROR_INVALID_ARGUMENT);
    chain_finish(&c);
}

static void without_memory_to_copy_to_they_stay_bound(void **state)
{
    struct chain c;
    chain_init(&c, *state, 100, RP_BIND_AUTO, CHAIN_BYTES);
    for (unsigned i = 0; i < 40; i++)
        replay_args(&c, c.args[i % SETS]);
    assert_int_equal(copied(&c), 0);
    assert_null(c.graph->binding->choice); /* and it is not tried again */
    chain_finish(&c);
}

/* What it does with prices of its own is its own business; what comes out is not. */
static void measured_prices_change_no_result(void **state)
{
    struct chain c;
    chain_init(&c, *state, 200, RP_BIND_AUTO, 0);
    c.f->device->copier.knowledge = RPI_COPIER_UNKNOWN;
    c.graph->binding->choice->fixed_node = false;
    c.graph->binding->choice->node.samples = 0;
    for (unsigned i = 0; i < 300; i++)
        replay_args(&c, c.args[i / 50 % 2 ? 0 : i % SETS]);
    assert_true(c.graph->binding->choice->node.samples > 0);
    chain_finish(&c);
}

static CUstream replayed_on;
static unsigned enqueued, elsewhere;

static void note(CUstream stream)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    assert_int_equal(rpi_driver_host()->cuStreamIsCapturing(stream, &capturing), 0);
    enqueued += capturing == CU_STREAM_CAPTURE_STATUS_NONE;
    elsewhere += capturing == CU_STREAM_CAPTURE_STATUS_NONE && stream != replayed_on;
}

static CUresult note_launch(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z,
                            unsigned shared_bytes, CUstream stream, void **params, void **extra)
{
    note(stream);
    return rpi_driver_host()->cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y,
                                             block_z, shared_bytes, stream, params, extra);
}

static CUresult note_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    note(stream);
    return rpi_driver_host()->cuMemcpyDtoDAsync(to, from, bytes, stream);
}

/* Launches on a stream beside would slow all graphs of the process down (pace.c). What the graph
 * copies by itself is launched nowhere. */
static void check_streams(bool carried)
{
    static struct rpt_fixture f;
    struct rp_driver table = *rpi_driver_host();
    struct chain c;
    table.cuLaunchKernel = note_launch;
    table.cuMemcpyDtoDAsync = note_copy;
    rpt_open_on(&f, &table, NULL);
    chain_init(&c, &f, 200, RP_BIND_AUTO, 0);
    if (!carried)
        without_carriers(&c);
    f.device->copier.knowledge = RPI_COPIER_UNKNOWN;
    c.graph->binding->choice->node.us = 1e6; /* copies cost less, whatever is measured */
    replayed_on = c.stream = f.streams[1];
    enqueued = elsewhere = 0;
    for (unsigned i = 0; i < 100; i++) {
        replay_args(&c, c.args[i % SETS]);
        f.driver->cuStreamSynchronize(c.stream);
    }
    assert_int_equal(copied(&c), CHAIN_ARGS);
    assert_int_equal(f.device->copier.knowledge == RPI_COPIER_KNOWN, !carried);
    assert_true(carried ? !enqueued : enqueued > 100); /* copies, and what they take */
    assert_int_equal(elsewhere, 0);
    chain_finish(&c);
    rpt_close(&f);
}

static void nothing_is_launched_on_other_streams(void **state)
{
    (void)state;
    check_streams(false);
    check_streams(true);
}

/* Threads share the device's copier: one measures while others copy. */
static void *replay_by_itself(void *user)
{
    struct chain *c = user;
    for (unsigned i = 0; i < 60; i++)
        replay_args(c, c->args[i % SETS]);
    return NULL;
}

static void threads_share_what_copies_take(void **state)
{
    enum { THREADS = 4 };
    struct chain chains[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        chain_init(&chains[i], *state, 100, RP_BIND_AUTO, 0);
        chains[i].stream = chains[i].f->streams[i];
    }
    chains[0].f->device->copier.knowledge = RPI_COPIER_UNKNOWN;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, replay_by_itself, &chains[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++)
        chain_finish(&chains[i]);
}

static void outputs_that_overlap_are_copied_in_order(void **state)
{
    struct rpt_fixture *f = *state;
    struct chain c;
    struct rp_arg args[CHAIN_ARGS];
    float values[CHAIN_COUNT];
    chain_init(&c, f, 100, RP_BIND_AUTO, 0);
    replay_args(&c, c.args[0]);
    move_until(&c, CHAIN_ARGS, 12);
    assert_false(c.graph->binding->outs_overlap);
    memcpy(args, c.args[0], sizeof args);
    args[2].address = args[1].address;
    RPT_OK(f, rp_graph_replay(c.graph, args, CHAIN_ARGS, NULL, &f->err));
    assert_true(c.graph->binding->outs_overlap);
    assert_int_equal(f->driver->cuCtxSynchronize(), 0);
    /* As a run on copies of the arguments has it, the later one last. */
    float *e = c.expected[0], second = e[1], third = second;
    for (size_t j = 0; j < c.kernels; j++) {
        float *list[] = {&e[0], &second, &third, &e[3]};
        *list[j % CHAIN_ARGS] += 0.0009765625f * *list[(j + 1) % CHAIN_ARGS];
    }
    e[1] = third;
    assert_int_equal(f->driver->cuMemcpyDtoH(values, args[1].address, CHAIN_BYTES), 0);
    assert_memory_equal(&values[5], &third, sizeof third);
    chain_finish(&c);
}

/* ---- What a graph copies by itself --------------------------------------------------------- */

enum { READS = 20, WRITES = 4 };

/* y is READS times x, by way of a block, and written more than once. */
static rp_status read_often(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct rpt_fixture *f = user;
    CUstream s = rp_call_stream(call);
    uint64_t sum = 0;
    rp_status status = rp_call_alloc(call, BYTES, s, &sum, err);
    if (status == RP_OK)
        status = rpt_fill(f, s, sum, 0, COUNT, err);
    for (int i = 0; status == RP_OK && i < READS; i++)
        status = rpt_saxpy(f, s, sum, rp_call_arg(call, 0), 1, COUNT, err);
    for (int i = 0; status == RP_OK && i < WRITES; i++)
        status = rpt_scale(f, s, rp_call_arg(call, 1), sum, 1, COUNT, err);
    rp_status freed = sum ? rp_call_free(call, sum, err) : RP_OK;
    return status == RP_OK ? freed : status;
}

/* A result that few nodes write has no copy node: copied beside the graph it would cost more. */
static void results_of_few_nodes_stay_bound(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_graph *graph;
    CUdeviceptr memory;
    float values[COUNT];
    assert_int_equal(f->driver->cuMemAlloc(&memory, (size_t)2 * SETS * BYTES), 0);
    struct rp_arg args[SETS][2];
    for (size_t i = 0; i < SETS; i++)
        for (size_t k = 0; k < 2; k++)
            args[i][k] = rpt_arg(memory + (2 * i + k) * BYTES, COUNT, k ? RP_ARG_OUT : RP_ARG_IN);
    assert_int_equal(f->driver->cuMemsetD32(memory, 0x3f800000, (size_t)2 * SETS * COUNT), 0);
    RPT_OK(f, rp_graph_capture(f->pool, NULL, read_often, f, args[0], 2, &graph, &f->err));
    assert_true(graph->exec->copy_nodes.ends[RPI_COPY_NODE_IN].most > 0);
    assert_int_equal(graph->exec->copy_nodes.ends[RPI_COPY_NODE_OUT].most, 0);
    rpi_copier_fix_prices(&f->device->copier, &fixed_prices);
    graph->binding->choice->node.us = 2;
    graph->binding->choice->fixed_node = true;
    for (size_t i = 0; i < 30; i++)
        RPT_OK(f, rp_graph_replay(graph, args[i % SETS], 2, NULL, &f->err));
    assert_true(rpi_binding_copies(graph->binding, 0));
    assert_false(rpi_binding_copies(graph->binding, 1));
    assert_int_equal(f->device->copier.launches, 0);
    assert_int_equal(f->driver->cuCtxSynchronize(), 0);
    for (size_t i = 0; i < SETS; i++) {
        assert_int_equal(f->driver->cuMemcpyDtoH(values, args[i][1].address, BYTES), 0);
        assert_true(values[0] == READS && values[COUNT - 1] == READS);
    }
    rp_graph_destroy(graph);
    f->driver->cuMemFree(memory);
}

/* Copies of so much are made beside the graph until it is known what a byte takes. */
static void large_copies_tell_what_a_byte_takes(void **state)
{
    enum { LARGE = 9 << 20 };
    const struct rpi_copy_prices free_of_charge = {.launch = 0.5, .entry = 0.1, .single = 1};
    struct rpt_fixture *f = *state;
    struct rp_graph *graph;
    CUdeviceptr memory[2];
    CUdeviceptr result;
    for (size_t k = 0; k < 2; k++)
        assert_int_equal(f->driver->cuMemAlloc(&memory[k], LARGE * sizeof(float)), 0);
    assert_int_equal(f->driver->cuMemAlloc(&result, BYTES), 0);
    struct rp_arg args[] = {rpt_arg(memory[0], LARGE, RP_ARG_IN),
                            rpt_arg(result, COUNT, RP_ARG_OUT)};
    RPT_OK(f, rp_graph_capture(f->pool, NULL, read_often, f, args, 2, &graph, &f->err));
    rpi_copier_fix_prices(&f->device->copier, &free_of_charge);
    memset(f->device->copier.probe.samples, 0, sizeof f->device->copier.probe.samples);
    graph->binding->choice->node.us = 0.5;
    graph->binding->choice->fixed_node = true;
    bool copied = false;
    for (size_t i = 0; i < 60; i++) {
        args[0].address = memory[i % 2];
        RPT_OK(f, rp_graph_replay(graph, args, 2, NULL, &f->err));
        assert_int_equal(f->driver->cuCtxSynchronize(), 0);
        copied |= rpi_binding_copies(graph->binding, 0);
    }
    const unsigned *samples = f->device->copier.probe.samples;
    assert_true(copied && samples[0] + samples[1] > 0);
    assert_false(rpi_binding_copies(graph->binding, 0)); /* as that is dear */
    rp_graph_destroy(graph);
    for (size_t k = 0; k < 2; k++)
        f->driver->cuMemFree(memory[k]);
    f->driver->cuMemFree(result);
}

/* ---- Any call may fail --------------------------------------------------------------------- */

enum { FAULTY_NODES = 14, FAULTY_REPLAYS = 12 };

static struct rp_arg faulty[SETS][2];

/* y = 2 x, again and again: many nodes, and no effect of doing it twice. */
static rp_status double_often(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct rpt_fixture *f = user;
    rp_status status = RP_OK;
    for (int i = 0; status == RP_OK && i < FAULTY_NODES; i++)
        status = rpt_scale(f, rp_call_stream(call), rp_call_arg(call, 1), rp_call_arg(call, 0), 2,
                           COUNT, err);
    return status;
}

/* A replay that failed is tried again; then it works, and gives what it should. */
static bool replay_faulty(const struct rpt_fixture *f, struct rp_graph *graph, size_t set)
{
    float values[COUNT];
    uint64_t y = faulty[set][1].address;
    if (f->driver->cuMemsetD8(y, 0xff, BYTES) != CUDA_SUCCESS ||
        f->driver->cuCtxSynchronize() != CUDA_SUCCESS)
        return false;
    if (rp_graph_replay(graph, faulty[set], 2, f->streams[0], NULL) != RP_OK &&
        rp_graph_replay(graph, faulty[set], 2, f->streams[0], NULL) != RP_OK)
        return false;
    if (f->driver->cuCtxSynchronize() != CUDA_SUCCESS ||
        f->driver->cuMemcpyDtoH(values, y, BYTES) != CUDA_SUCCESS)
        return false;
    for (size_t i = 0; i < COUNT; i++)
        assert_true(values[i] == 2 * (float)(set + 1));
    return true;
}

/* Bound at first, copied by the end: single copies where the kernel could not be loaded. */
static bool choose_and_replay(const struct rp_driver *driver, void *user)
{
    const struct rpi_copy_prices cheap = {.launch = 0.5, .entry = 0.1, .single = 1};
    const struct rpt_fixture *f = user;
    struct rpt_scene scene;
    bool works = rpt_scene_open(&scene, driver) &&
                 rp_graph_capture(scene.pool, NULL, double_often, user, faulty[0], 2, &scene.graph,
                                  &scene.err) == RP_OK;
    const struct rpi_binding *binding = works ? scene.graph->binding : NULL;
    if (works) {
        rpi_copier_fix_prices(&scene.device->copier, &cheap);
        binding->choice->node.us = 1;
        binding->choice->fixed_node = true;
        works = rp_device_push(scene.device, &scene.err) == RP_OK;
        if (works) {
            rpi_copier_load(&scene.device->copier);
            rp_device_pop(scene.device);
        }
    }
    for (size_t i = 0; works && i < FAULTY_REPLAYS; i++)
        works = replay_faulty(f, scene.graph, i % SETS);
    if (works && binding->choice)
        assert_true(rpi_binding_copies(binding, 0) && rpi_binding_copies(binding, 1));
    rpt_scene_close(&scene);
    return works;
}

static void any_call_may_fail(void **state)
{
    struct rpt_fixture *f = *state;
    const struct rpt_scenario scenario = {
        .run = choose_and_replay, .user = f, .step = RPT_LONG_LOOP_STEP};
    for (uint32_t i = 0; i < SETS; i++)
        for (size_t k = 0; k < 2; k++) {
            const float value = (float)(i + 1);
            uint32_t bits;
            memcpy(&bits, &value, sizeof bits);
            CUdeviceptr memory;
            assert_int_equal(f->driver->cuMemAlloc(&memory, BYTES), 0);
            assert_int_equal(f->driver->cuMemsetD32(memory, bits, COUNT), 0);
            faulty[i][k] = rpt_arg(memory, COUNT, k ? RP_ARG_OUT : RP_ARG_IN);
        }
    assert_int_equal(f->driver->cuCtxSynchronize(), 0);
    assert_true(rpt_fault_loop(f->driver, &scenario, CUDA_ERROR_OUT_OF_MEMORY) > 20);
    struct rpi_host_options before = rpt_ignore_races();
    assert_true(rpt_memory_fault_loop(f->driver, &scenario) > 20);
    rpi_host_configure(&before);
    for (size_t i = 0; i < SETS; i++)
        for (size_t k = 0; k < 2; k++)
            f->driver->cuMemFree(faulty[i][k].address);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RPT_TEST(all_are_copied_where_a_caller_says_so),
        RPT_TEST(all_are_bound_where_there_is_no_memory_to_copy_to),
        RPT_TEST(many_nodes_are_let_alone_and_few_arguments_copied),
        RPT_TEST(or_copied_beside_the_graph),
        RPT_TEST(only_what_moves_is_copied),
        RPT_TEST(graphs_of_few_nodes_never_ask),
        RPT_TEST(binding_can_be_insisted_on),
        RPT_TEST(without_memory_to_copy_to_they_stay_bound),
        RPT_TEST(measured_prices_change_no_result),
        cmocka_unit_test(nothing_is_launched_on_other_streams),
        RPT_TEST(threads_share_what_copies_take),
        RPT_TEST(outputs_that_overlap_are_copied_in_order),
        RPT_TEST(results_of_few_nodes_stay_bound),
        RPT_TEST(large_copies_tell_what_a_byte_takes),
        RPT_TEST(any_call_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
