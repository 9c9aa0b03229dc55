/* SPDX-License-Identifier: MIT
 *
 * Arguments bound at replay, on the host driver with the race check on: whatever mix of bound and
 * copied a call comes to, it computes what the callable does from the arguments as they were, with
 * any number of earlier replays in flight on other buffers, and after any failure of the driver.
 */
#include "graph_fixture.h"

#include "fault_loop.h"
#include "graph/exec/exec.h"
#include "graph/handles/device.h"
#include "reprise_tools.h"

#include <stdbool.h>
#include <stdio.h>

enum { COUNT = 300 };
enum { BYTES = COUNT * sizeof(float) };

/* The arguments of `everything`, in each role and each kind of node. */
enum { A, B, Y, Z, W, V, UNUSED, EMPTY, ARGS };
static const enum rp_arg_role roles[ARGS] = {RP_ARG_IN,  RP_ARG_IN,  RP_ARG_OUT, RP_ARG_INOUT,
                                             RP_ARG_OUT, RP_ARG_OUT, RP_ARG_IN,  RP_ARG_IN};

static int nesting; /* of the child graph that the work of `everything` lies in */

static int open_fixture(void **state)
{
    nesting = 0;
    return rpt_setup(state);
}

static int open_child(void **state)
{
    open_fixture(state);
    nesting = 1;
    return 0;
}

static int open_grandchild(void **state)
{
    open_fixture(state);
    nesting = 2;
    return 0;
}

/* ---- The callable ---------------------------------------------------------------------------*/

static rp_status driver_status(CUresult result, struct rp_error *err)
{
    return result == CUDA_SUCCESS ? RP_OK : rpi_error_driver(err, result, "driver", "enqueuing");
}

struct scale_params {
    uint64_t to, from;
    float factor;
    uint32_t count;
};

static rp_status packed_scale(const struct rpt_fixture *f, CUstream s, uint64_t to, uint64_t from,
                              float factor, struct rp_error *err)
{
    struct scale_params params = {to, from, factor, COUNT};
    size_t bytes = sizeof params;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &params, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    return driver_status(f->driver->cuLaunchKernel(f->scale, 1, 1, 1, 32, 1, 1, 0, s, NULL, extra),
                         err);
}

struct places {
    uint64_t x[ARGS], t, u; /* the arguments, and two blocks */
};

/* y = 3 a + b, z += 2 a, w = 1, v = y: through a memcpy node, a packed kernel, kernels, a fill, a
 * pointer into the middle of an argument, and a memcpy node between two arguments. */
static rp_status enqueue(const struct rpt_fixture *f, CUstream s, const void *data,
                         struct rp_error *err)
{
    const struct rp_driver *d = f->driver;
    const struct places *p = data;
    const uint64_t *x = p->x;
    rp_status status;
    if ((status = driver_status(d->cuMemcpyDtoDAsync(p->t, x[A], BYTES, s), err)) != RP_OK ||
        (status = packed_scale(f, s, p->u, p->t, 3, err)) != RP_OK ||
        (status = rpt_add(f, s, x[Y], p->u, x[B], COUNT, err)) != RP_OK ||
        (status = rpt_saxpy(f, s, x[Z], x[A], 2, COUNT, err)) != RP_OK ||
        (status = driver_status(d->cuMemsetD32Async(x[W], 0x3f800000, COUNT / 2, s), err)) !=
            RP_OK ||
        (status = rpt_fill(f, s, x[W] + BYTES / 2, 1, COUNT / 2, err)) != RP_OK)
        return status;
    return driver_status(d->cuMemcpyDtoDAsync(x[V], x[Y], BYTES, s), err);
}

static rp_status everything(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct rpt_fixture *f = user;
    CUstream s = rp_call_stream(call);
    struct places p;
    for (size_t i = 0; i < ARGS; i++)
        p.x[i] = rp_call_arg(call, i);
    rp_status status;
    if ((status = rp_call_alloc(call, BYTES, s, &p.t, err)) != RP_OK ||
        (status = rp_call_alloc(call, BYTES, s, &p.u, err)) != RP_OK ||
        (status = rpt_within(f, s, nesting, enqueue, &p, err)) != RP_OK ||
        (status = rp_call_free(call, p.t, err)) != RP_OK)
        return status;
    return rp_call_free(call, p.u, err);
}

/* ---- Buffers for a call ---------------------------------------------------------------------*/

struct buffers {
    uint64_t memory[ARGS]; /* allocations, each with room to shift in */
    struct rp_arg args[ARGS];
    float seed;
};

static void buffers_write(const struct rpt_fixture *f, const struct buffers *b, size_t k, float v)
{
    float values[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        values[i] = v + (float)(i % 7);
    assert_int_equal(f->driver->cuMemcpyHtoD(b->args[k].address, values, BYTES), 0);
}

/* Fills all arguments: afterwards the outputs hold what no run computes. */
static void buffers_fill(const struct rpt_fixture *f, const struct buffers *b)
{
    for (size_t k = 0; k < EMPTY; k++)
        buffers_write(f, b, k, roles[k] == RP_ARG_OUT ? -1000 : b->seed + (float)k);
}

/* shift: bytes that every address lies behind its allocation. */
static void buffers_init(const struct rpt_fixture *f, struct buffers *b, float seed, uint64_t shift)
{
    *b = (struct buffers){.seed = seed};
    for (size_t k = 0; k < EMPTY; k++) {
        CUdeviceptr memory = 0;
        assert_int_equal(f->driver->cuMemAlloc(&memory, BYTES + 4096), 0);
        b->memory[k] = memory;
        b->args[k] = rpt_arg(memory + shift, COUNT, roles[k]);
    }
    b->args[EMPTY] = (struct rp_arg){.role = roles[EMPTY]};
    buffers_fill(f, b);
}

static void buffers_finish(const struct rpt_fixture *f, struct buffers *b)
{
    for (size_t k = 0; k < EMPTY; k++)
        f->driver->cuMemFree(b->memory[k]);
}

/* What argument k holds after `runs` runs, and in element i. */
static float expected(const struct buffers *b, size_t k, uint32_t i, int runs)
{
    float at = (float)(i % 7), a = b->seed + (float)A + at;
    switch (k) {
    case Y:
    case V:
        return 3 * a + (b->seed + (float)B + at);
    case Z:
        return b->seed + (float)Z + at + (float)runs * 2 * a;
    case W:
        return 1;
    default:
        return b->seed + (float)k + at;
    }
}

static void buffers_check(const struct rpt_fixture *f, const struct buffers *b, int runs)
{
    float values[COUNT];
    for (size_t k = 0; k < EMPTY; k++) {
        rpt_read(f, b->args[k].address, values, COUNT);
        for (uint32_t i = 0; i < COUNT; i++)
            if (values[i] != expected(b, k, i, runs))
                fail_msg("argument %zu [%u] is %g, not %g", k, i, (double)values[i],
                         (double)expected(b, k, i, runs));
    }
}

static struct rp_graph *capture(struct rpt_fixture *f, struct buffers *b)
{
    struct rp_graph *graph = NULL;
    RPT_OK(f, rp_graph_capture(f->pool, NULL, everything, f, b->args, ARGS, &graph, &f->err));
    return graph;
}

static void expect_counts(const struct rp_graph *graph, size_t bound, size_t copied)
{
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(graph, &info);
    assert_int_equal(info.bound_args, bound);
    assert_int_equal(info.copied_args, copied);
}

/* Argument k is copied because of this; NULL: it is bound. */
static void expect_reason(const struct rp_graph *graph, size_t k, enum rpi_copy_reason reason)
{
    struct rp_graph_arg_info info = {.size = sizeof info};
    assert_int_equal(rp_graph_arg_info(graph, k, &info, NULL), RP_OK);
    struct rp_graph_info graph_info = {.size = sizeof graph_info};
    rp_graph_info(graph, &graph_info);
    assert_int_equal(info.bound, reason == RPI_COPY_NOT && graph_info.replays);
    if (reason == RPI_COPY_NOT)
        assert_null(info.reason);
    else
        assert_string_equal(info.reason, rpi_copy_reason_text(reason));
}

/* ---- New buffers on every call --------------------------------------------------------------*/

static void every_role_moves_on_every_call(void **state)
{
    struct rpt_fixture *f = *state;
    struct buffers b;
    buffers_init(f, &b, 1, 0);
    struct rp_graph *graph = capture(f, &b);
    expect_reason(graph, UNUSED, RPI_COPY_UNUSED);
    buffers_finish(f, &b);
    for (int call = 0; call < 8; call++) {
        buffers_init(f, &b, (float)(call + 2), 256 * (uint64_t)(call % 3));
        RPT_OK(f, rp_graph_replay(graph, b.args, ARGS, f->streams[call % 3], &f->err));
        buffers_check(f, &b, 1);
        expect_counts(graph, 6, 1);
        for (size_t k = A; k <= V; k++)
            expect_reason(graph, k, RPI_COPY_NOT);
        expect_reason(graph, UNUSED, RPI_COPY_UNUSED);
        expect_reason(graph, EMPTY, RPI_COPY_EMPTY);
        buffers_finish(f, &b); /* the next call's nodes are changed with these gone */
    }
    rp_graph_destroy(graph);
}

static void only_what_changed_is_patched(void **state)
{
    struct rpt_fixture *f = *state;
    struct buffers b, c;
    struct rp_graph_info info = {.size = sizeof info};
    buffers_init(f, &b, 1, 0);
    buffers_init(f, &c, 2, 0);
    struct rp_graph *graph = capture(f, &b);
    rp_graph_info(graph, &info);
    assert_int_equal(info.patched_nodes, 0);
    assert_int_equal(info.bindable_args, 6);
    RPT_OK(f, rp_graph_replay(graph, b.args, ARGS, f->streams[0], &f->err));
    rp_graph_info(graph, &info);
    assert_int_equal(info.patched_nodes, 6); /* all nodes with an argument, each once */
    RPT_OK(f, rp_graph_replay(graph, b.args, ARGS, f->streams[0], &f->err));
    rp_graph_info(graph, &info);
    assert_int_equal(info.patched_nodes, 6);
    buffers_check(f, &b, 2);
    struct rp_arg mixed[ARGS];
    memcpy(mixed, b.args, sizeof mixed);
    mixed[A].address = c.args[A].address; /* in the first copy and in saxpy */
    buffers_write(f, &c, A, b.seed + (float)A);
    RPT_OK(f, rp_graph_replay(graph, mixed, ARGS, f->streams[0], &f->err));
    rp_graph_info(graph, &info);
    assert_int_equal(info.patched_nodes, 8);
    buffers_check(f, &b, 3);
    mixed[Y] = c.args[Y]; /* in add and the second copy */
    mixed[B] = c.args[B]; /* in add */
    RPT_OK(f, rp_graph_replay(graph, mixed, ARGS, f->streams[0], &f->err));
    rp_graph_info(graph, &info);
    assert_int_equal(info.patched_nodes, 10);
    rp_graph_destroy(graph);
    buffers_finish(f, &b);
    buffers_finish(f, &c);
}

static void former_buffers_are_let_alone(void **state)
{
    struct rpt_fixture *f = *state;
    struct buffers first, second;
    buffers_init(f, &first, 1, 0);
    struct rp_graph *graph = capture(f, &first);
    RPT_OK(f, rp_graph_replay(graph, first.args, ARGS, f->streams[0], &f->err));
    buffers_check(f, &first, 1);
    for (size_t k = 0; k < EMPTY; k++) {
        assert_int_equal(f->driver->cuMemsetD8(first.memory[k], 0xff, BYTES + 4096), 0);
        assert_int_equal(f->driver->cuCtxSynchronize(), 0);
    }
    buffers_init(f, &second, 5, 512);
    RPT_OK(f, rp_graph_replay(graph, second.args, ARGS, f->streams[1], &f->err));
    buffers_check(f, &second, 1);
    for (size_t k = 0; k < EMPTY; k++) {
        unsigned char bytes[BYTES];
        assert_int_equal(f->driver->cuMemcpyDtoH(bytes, first.memory[k], BYTES), 0);
        for (size_t i = 0; i < BYTES; i++)
            assert_int_equal(bytes[i], 0xff);
    }
    rp_graph_destroy(graph);
    buffers_finish(f, &first);
    buffers_finish(f, &second);
}

/* Replays in flight on buffers of their own, streams and order of nodes by the seed. */
static void replays_in_flight_keep_their_buffers(void **state)
{
    enum { SEEDS = 12, REPLAYS = 24 };
    struct rpt_fixture *f = *state;
    struct rpi_host_options before, options;
    static struct buffers all[REPLAYS];
    rpi_host_options(&before);
    options = before;
    for (int i = 0; i < REPLAYS; i++)
        buffers_init(f, &all[i], (float)i, i % 5 == 4 ? 64 : 0); /* some are copied */
    struct rp_graph *graph = capture(f, &all[0]);
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        options.seed = seed;
        rpi_host_configure(&options);
        for (int i = 0; i < REPLAYS; i++)
            buffers_fill(f, &all[i]);
        for (uint64_t i = 0; i < REPLAYS; i++)
            RPT_OK(f, rp_graph_replay(graph, all[i].args, ARGS,
                                      f->streams[(seed * 7 + i * i) % RPT_STREAMS], &f->err));
        for (int i = 0; i < REPLAYS; i++)
            buffers_check(f, &all[i], 1);
    }
    rpi_host_configure(&before);
    rp_graph_destroy(graph);
    for (int i = 0; i < REPLAYS; i++)
        buffers_finish(f, &all[i]);
}

/* ---- What cannot be bound in a call ---------------------------------------------------------*/

static void unaligned_arguments_are_copied(void **state)
{
    struct rpt_fixture *f = *state;
    struct buffers b;
    buffers_init(f, &b, 1, 0);
    struct rp_graph *graph = capture(f, &b);
    for (uint32_t mask = 0; mask < 1u << (V + 1); mask += 5) {
        buffers_finish(f, &b);
        buffers_init(f, &b, 3, 0);
        size_t copied = 1;
        for (size_t k = A; k <= V; k++) {
            if (!(mask >> k & 1))
                continue;
            b.args[k].address += 128;
            copied++;
        }
        buffers_fill(f, &b);
        RPT_OK(f, rp_graph_replay(graph, b.args, ARGS, f->streams[0], &f->err));
        buffers_check(f, &b, 1);
        expect_counts(graph, 7 - copied, copied);
        for (size_t k = A; k <= V; k++)
            expect_reason(graph, k, mask >> k & 1 ? RPI_COPY_UNALIGNED : RPI_COPY_NOT);
    }
    rp_graph_destroy(graph);
    buffers_finish(f, &b);
}

static void a_pools_alignment_is_enough(void **state)
{
    struct rpt_fixture *f = *state, plain = *f;
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    options.alignment = 64;
    RPT_OK(f, rp_pool_create(f->device, &options, &plain.pool, &f->err));
    struct buffers b;
    buffers_init(f, &b, 1, 64);
    struct rp_graph *graph = capture(&plain, &b);
    RPT_OK(f, rp_graph_replay(graph, b.args, ARGS, f->streams[0], &f->err));
    buffers_check(f, &b, 1);
    expect_counts(graph, 6, 1);
    rp_graph_destroy(graph);
    rp_pool_destroy(plain.pool);
    buffers_finish(f, &b);
}

/* y = 2 a, then y += a + b: wrong as soon as y is a. */
static rp_status writes_before_it_reads(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct rpt_fixture *f = user;
    CUstream s = rp_call_stream(call);
    uint64_t a = rp_call_arg(call, 0), b = rp_call_arg(call, 1), y = rp_call_arg(call, 2);
    rp_status status = rpt_scale(f, s, y, a, 2, COUNT, err);
    if (status == RP_OK)
        status = rpt_add(f, s, y, y, a, COUNT, err);
    return status == RP_OK ? rpt_add(f, s, y, y, b, COUNT, err) : status;
}

/* Arguments at these bytes of one buffer of values i: y is as if they lay apart. bound: how many
 * are; 0: that depends on how equal addresses are sorted. */
static void overlap(struct rpt_fixture *f, struct rp_graph *graph, const uint64_t offsets[3],
                    size_t bound)
{
    enum { TOTAL = 4 * COUNT };
    float values[TOTAL], result[COUNT];
    CUdeviceptr memory = 0;
    for (uint32_t i = 0; i < TOTAL; i++)
        values[i] = (float)i;
    assert_int_equal(f->driver->cuMemAlloc(&memory, sizeof values), 0);
    assert_int_equal(f->driver->cuMemcpyHtoD(memory, values, sizeof values), 0);
    struct rp_arg args[3];
    for (size_t k = 0; k < 3; k++)
        args[k] = rpt_arg(memory + offsets[k], COUNT, k == 2 ? RP_ARG_OUT : RP_ARG_IN);
    RPT_OK(f, rp_graph_replay(graph, args, 3, f->streams[0], &f->err));
    rpt_read(f, args[2].address, result, COUNT);
    const uint64_t x = offsets[0] / sizeof(float), y = offsets[1] / sizeof(float);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(result[i] == 3 * (float)(x + i) + (float)(y + i));
    if (bound)
        expect_counts(graph, bound, 3 - bound);
    f->driver->cuMemFree(memory);
}

static void overlapping_arguments_are_taken_apart(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_arg args[3];
    for (size_t k = 0; k < 3; k++)
        args[k] = rpt_arg(0, COUNT, k == 2 ? RP_ARG_OUT : RP_ARG_IN);
    struct rp_graph *graph = NULL;
    RPT_OK(f, rp_graph_capture(f->pool, NULL, writes_before_it_reads, f, args, 3, &graph, &f->err));
    overlap(f, graph, (uint64_t[]){0, 1536, 3072}, 3);
    overlap(f, graph, (uint64_t[]){0, 0, 1536}, 3);   /* two that are read */
    overlap(f, graph, (uint64_t[]){0, 256, 1536}, 3); /* the same, in part */
    overlap(f, graph, (uint64_t[]){0, 1536, 0}, 2);   /* in place */
    overlap(f, graph, (uint64_t[]){256, 1536, 0}, 2);
    overlap(f, graph, (uint64_t[]){0, 1536, 256}, 2);
    overlap(f, graph, (uint64_t[]){0, 0, 0}, 0);
    overlap(f, graph, (uint64_t[]){0, 1280, 1024}, 2);
    overlap(f, graph, (uint64_t[]){1024, 0, 256}, 2);
    rp_graph_destroy(graph);
}

/* Two outputs in one place: what they hold is not defined, but nothing else is touched. */
static void overlapping_outputs_are_not_both_bound(void **state)
{
    struct rpt_fixture *f = *state;
    struct buffers b;
    buffers_init(f, &b, 1, 0);
    struct rp_graph *graph = capture(f, &b);
    struct rp_arg args[ARGS];
    memcpy(args, b.args, sizeof args);
    args[W].address = b.args[Y].address;
    RPT_OK(f, rp_graph_replay(graph, args, ARGS, f->streams[0], &f->err));
    expect_counts(graph, 5, 2);
    assert_int_equal(f->driver->cuCtxSynchronize(), 0);
    buffers_write(f, &b, Y, -1000);
    buffers_write(f, &b, Z, b.seed + Z);
    RPT_OK(f, rp_graph_replay(graph, b.args, ARGS, f->streams[0], &f->err));
    buffers_check(f, &b, 1);
    rp_graph_destroy(graph);
    buffers_finish(f, &b);
}

/* An address where a block of the graph lies is not bound. */
static void arguments_among_the_graphs_blocks_are_copied(void **state)
{
    struct rpt_fixture *f = *state;
    struct buffers b;
    buffers_init(f, &b, 1, 0);
    struct rp_graph *graph = capture(f, &b);
    struct rp_arg args[ARGS];
    memcpy(args, b.args, sizeof args);
    args[A].address = f->pool->core->memory.arena.base;
    RPT_OK(f, rp_graph_replay(graph, args, ARGS, f->streams[0], &f->err));
    expect_reason(graph, A, RPI_COPY_OWN);
    expect_counts(graph, 5, 2);
    rp_graph_destroy(graph);
    buffers_finish(f, &b);
}

/* ---- What no call binds ---------------------------------------------------------------------*/

/* Captures with arguments in, out; replays at new addresses; out = factor * in; both are copied. */
static void expect_copied(struct rpt_fixture *f, rp_callable_fn callable, void *user, float factor,
                          const struct rp_capture_options *options, enum rpi_copy_reason in,
                          enum rpi_copy_reason out)
{
    struct rp_graph *graph = NULL;
    struct rp_arg args[2] = {rpt_arg(0, COUNT, RP_ARG_IN), rpt_arg(0, COUNT, RP_ARG_OUT)};
    RPT_OK(f, rp_graph_capture(f->pool, options, callable, user, args, 2, &graph, &f->err));
    expect_reason(graph, 0, in);
    expect_reason(graph, 1, out);
    for (int replay = 0; replay < 2; replay++) {
        float values[COUNT];
        args[0].address = rpt_buffer(f, COUNT, 1);
        args[1].address = rpt_buffer(f, COUNT, -1);
        RPT_OK(f, rp_graph_replay(graph, args, 2, f->streams[replay], &f->err));
        rpt_read(f, args[1].address, values, COUNT);
        for (uint32_t i = 0; i < COUNT; i++)
            assert_true(values[i] == factor * (1 + (float)(i % 7)));
        expect_reason(graph, 0, in);
        expect_reason(graph, 1, out);
        f->driver->cuMemFree(args[0].address);
        f->driver->cuMemFree(args[1].address);
    }
    rp_graph_destroy(graph);
}

static rp_status doubles(struct rp_call *call, void *user, struct rp_error *err)
{
    return rpt_scale(user, rp_call_stream(call), rp_call_arg(call, 1), rp_call_arg(call, 0), 2,
                     COUNT, err);
}

static void copies_can_be_asked_for(void **state)
{
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    options.copy_args = 1;
    expect_copied(*state, doubles, *state, 2, &options, RPI_COPY_ASKED, RPI_COPY_ASKED);
}

static void unreadable_parameters_are_refused(void **state)
{
    struct rpt_fixture *f = *state, plain = *f;
    struct rp_driver limited = *f->driver;
    limited.capabilities = 0;
    limited.cuFuncGetParamInfo = NULL;
    limited.cuFuncGetName = NULL;
    RPT_OK(f, rpi_device_open_on(&limited, 0, &plain.device, &f->err));
    RPT_OK(f, rp_pool_create(plain.device, NULL, &plain.pool, &f->err));
    struct rp_arg args[2] = {rpt_arg(0, COUNT, RP_ARG_IN), rpt_arg(0, COUNT, RP_ARG_OUT)};
    struct rp_graph *graph = NULL;
    assert_int_equal(rp_graph_capture(plain.pool, NULL, doubles, f, args, 2, &graph, &f->err),
                     RP_ERROR_UNSUPPORTED);
    rp_pool_destroy(plain.pool);
    rp_device_destroy(plain.device);
}

/* The input goes through a copy of rows; the output is a kernel's. */
static rp_status copies_rows(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct rpt_fixture *f = user;
    CUstream s = rp_call_stream(call);
    uint64_t t;
    rp_status status = rp_call_alloc(call, BYTES, s, &t, err);
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = rp_call_arg(call, 0),
                          .dstDevice = t,
                          .srcPitch = BYTES / 2,
                          .dstPitch = BYTES / 2,
                          .WidthInBytes = BYTES / 2,
                          .Height = 2};
    if (status == RP_OK)
        status = driver_status(f->driver->cuMemcpy2DAsync(&rows, s), err);
    return status == RP_OK ? rpt_scale(f, s, rp_call_arg(call, 1), t, 5, COUNT, err) : status;
}

static void copies_of_rows_are_let_alone(void **state)
{
    expect_copied(*state, copies_rows, *state, 5, NULL, RPI_COPY_ROWS, RPI_COPY_NOT);
}

/* A parameter with a word that is an address in the record only. */
struct junk {
    uint64_t junk;
    float *to;
    const float *from;
};

static void run_junk(const struct rp_host_launch *launch)
{
    struct junk param;
    memcpy(&param, launch->params[0], sizeof param);
    for (uint32_t i = 0; i < COUNT; i++)
        param.to[i] = param.from[i] * 6;
}

static const struct rp_host_param junk_param = {0, sizeof(struct junk)};
static const struct rp_host_kernel junk_kernel = {
    .name = "junk", .run = run_junk, .params = &junk_param, .param_count = 1};
static const struct rp_host_image junk_image = {
    .magic = RP_HOST_IMAGE_MAGIC, .kernel_count = 1, .kernels = &junk_kernel};

struct junk_user {
    struct rpt_fixture *f;
    CUmodule module;
    int calls;
};

static rp_status leaves_an_address(struct rp_call *call, void *user, struct rp_error *err)
{
    struct junk_user *junk = user;
    CUfunction function;
    uint64_t to = rp_call_arg(call, 1), from = rp_call_arg(call, 0);
    struct junk param = {junk->calls++ % 2 ? to + 8 : 0, (float *)(uintptr_t)to,
                         (const float *)(uintptr_t)from};
    void *params[] = {&param};
    if (junk->f->driver->cuModuleGetFunction(&function, junk->module, "junk") != CUDA_SUCCESS)
        return rpi_error(err, RP_ERROR_DRIVER, "junk", "no kernel");
    return rpt_launch(junk->f, function, rp_call_stream(call), params, err);
}

static void words_that_may_be_addresses_keep_an_argument_copied(void **state)
{
    struct junk_user junk = {.f = *state};
    assert_int_equal(junk.f->driver->cuModuleLoadData(&junk.module, &junk_image), 0);
    expect_copied(junk.f, leaves_an_address, &junk, 6, NULL, RPI_COPY_NOT, RPI_COPY_DOUBTFUL);
    junk.f->driver->cuModuleUnload(junk.module);
}

/* A kernel that finds its output in a table, which is copied from the host. */
struct tabled {
    const struct rpt_fixture *f;
    CUmodule module;
    unsigned calls;
    float *tables[8]; /* one for each call: a graph reads its own as long as it lives */
};

static void run_tabled(const struct rp_host_launch *launch)
{
    float *const *table;
    const float *from;
    memcpy(&table, launch->params[0], sizeof table);
    memcpy(&from, launch->params[1], sizeof from);
    for (uint32_t i = 0; i < COUNT; i++)
        table[0][i] = from[i] * 3;
}

static const struct rp_host_param tabled_params[] = {{0, sizeof(void *)}, {8, sizeof(void *)}};
static const struct rp_host_kernel tabled_kernel = {
    .name = "tabled", .run = run_tabled, .params = tabled_params, .param_count = 2};
static const struct rp_host_image tabled_image = {
    .magic = RP_HOST_IMAGE_MAGIC, .kernel_count = 1, .kernels = &tabled_kernel};

static rp_status goes_by_a_table(struct rp_call *call, void *user, struct rp_error *err)
{
    struct tabled *tabled = user;
    const struct rpt_fixture *f = tabled->f;
    CUstream s = rp_call_stream(call);
    uint64_t table, from = rp_call_arg(call, 0), to = rp_call_arg(call, 1);
    void *params[] = {&table, &from};
    CUfunction function;
    rp_status status = rp_call_alloc(call, sizeof to, s, &table, err);
    assert_true(tabled->calls < sizeof tabled->tables / sizeof *tabled->tables);
    float **host = &tabled->tables[tabled->calls++];
    *host = (float *)(uintptr_t)to;
    if (status == RP_OK)
        status = driver_status(f->driver->cuMemcpyHtoDAsync(table, host, sizeof *host, s), err);
    if (status == RP_OK)
        status =
            driver_status(f->driver->cuModuleGetFunction(&function, tabled->module, "tabled"), err);
    if (status == RP_OK)
        status = rpt_launch(f, function, s, params, err);
    return status == RP_OK ? rpt_scale(f, s, to, to, 2, COUNT, err) : status;
}

static void addresses_in_a_table_keep_an_argument_copied(void **state)
{
    struct tabled tabled = {.f = *state};
    assert_int_equal(tabled.f->driver->cuModuleLoadData(&tabled.module, &tabled_image), 0);
    expect_copied(*state, goes_by_a_table, &tabled, 6, NULL, RPI_COPY_NOT, RPI_COPY_DOUBTFUL);
    tabled.f->driver->cuModuleUnload(tabled.module);
}

/* ---- The driver's calls ---------------------------------------------------------------------*/

/* A driver of which one SetParams call fails, and which looks at packed buffers. */
static struct {
    struct rp_driver table;
    const struct rp_driver *inner;
    int calls, fail_at;
    CUresult result;
    int packed;
    bool wrong_size;
} seen;

static bool fails(void)
{
    return seen.calls++ == seen.fail_at;
}

static CUresult set_kernel(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
    if (p->extra) {
        seen.packed++;
        for (void **word = p->extra; *word != CU_LAUNCH_PARAM_END; word += 2)
            if (*word == CU_LAUNCH_PARAM_BUFFER_SIZE)
                seen.wrong_size |= *(size_t *)word[1] != sizeof(struct scale_params);
    }
    return fails() ? seen.result : seen.inner->cuGraphExecKernelNodeSetParams(exec, node, p);
}

static CUresult set_copy(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *p, CUcontext c)
{
    return fails() ? seen.result : seen.inner->cuGraphExecMemcpyNodeSetParams(exec, node, p, c);
}

static CUresult set_fill(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *p,
                         CUcontext c)
{
    return fails() ? seen.result : seen.inner->cuGraphExecMemsetNodeSetParams(exec, node, p, c);
}

static void open_seen(struct rpt_fixture *f, struct rpt_fixture *out)
{
    memset(&seen, 0, sizeof seen);
    seen.inner = f->driver;
    seen.table = *f->driver;
    seen.table.cuGraphExecKernelNodeSetParams = set_kernel;
    seen.table.cuGraphExecMemcpyNodeSetParams = set_copy;
    seen.table.cuGraphExecMemsetNodeSetParams = set_fill;
    seen.fail_at = -1;
    *out = *f;
    RPT_OK(f, rpi_device_open_on(&seen.table, 0, &out->device, &f->err));
    RPT_OK(f, rp_pool_create(out->device, NULL, &out->pool, &f->err));
}

static void close_seen(struct rpt_fixture *f)
{
    rp_pool_destroy(f->pool);
    rp_device_destroy(f->device);
}

static rp_status packed_doubles(struct rp_call *call, void *user, struct rp_error *err)
{
    return packed_scale(user, rp_call_stream(call), rp_call_arg(call, 1), rp_call_arg(call, 0), 2,
                        err);
}

static void packed_parameters_keep_their_length(void **state)
{
    struct rpt_fixture *f = *state, own;
    open_seen(f, &own);
    expect_copied(&own, packed_doubles, f, 2, NULL, RPI_COPY_NOT, RPI_COPY_NOT);
    assert_true(seen.packed > 0);
    assert_false(seen.wrong_size);
    close_seen(&own);
}

/* Each call fails in its turn; the replay says so, or copies from then on, and every one after it
 * is right, on the same buffers and on others. */
static void a_failed_change_is_made_up_for(void **state)
{
    struct rpt_fixture *f = *state, own;
    static const CUresult results[] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_INVALID_VALUE};
    open_seen(f, &own);
    struct buffers b[3];
    for (int i = 0; i < 3; i++)
        buffers_init(f, &b[i], (float)i, 0);
    for (size_t r = 0; r < 2; r++) {
        for (int at = 0; at < 6; at++) {
            struct rp_error err;
            struct rp_graph *graph = capture(&own, &b[0]);
            for (int i = 0; i < 3; i++)
                buffers_fill(f, &b[i]);
            RPT_OK(f, rp_graph_replay(graph, b[0].args, ARGS, f->streams[0], &f->err));
            seen.calls = 0;
            seen.fail_at = at;
            seen.result = results[r];
            rp_status status = rp_graph_replay(graph, b[1].args, ARGS, f->streams[0], &err);
            seen.fail_at = -1;
            assert_true(seen.calls > at);
            if (status != RP_OK) {
                assert_int_equal(err.driver_code, results[r]);
                assert_non_null(strstr(err.operation, "SetParams"));
            } else {
                assert_int_equal(results[r], CUDA_ERROR_INVALID_VALUE);
                buffers_check(f, &b[1], 1);
            }
            struct buffers *next = &b[at % 2 ? 2 : 1];
            RPT_OK(f, rp_graph_replay(graph, next->args, ARGS, f->streams[0], &f->err));
            buffers_check(f, next, status == RP_OK && next == &b[1] ? 2 : 1);
            RPT_OK(f, rp_graph_replay(graph, b[0].args, ARGS, f->streams[0], &f->err));
            buffers_check(f, &b[0], 2);
            rp_graph_destroy(graph);
        }
    }
    for (int i = 0; i < 3; i++)
        buffers_finish(f, &b[i]);
    close_seen(&own);
}

/* Memory of another kind than the exec was made for: it is made anew a few times, then the argument
 * is copied. */
static void copies_follow_other_memory_for_a_while(void **state)
{
    struct rpt_fixture *f = *state;
    struct buffers b;
    buffers_init(f, &b, 1, 0);
    struct rp_graph *graph = capture(f, &b);
    void *pinned = NULL;
    assert_int_equal(f->driver->cuMemAllocHost(&pinned, BYTES + 256), 0);
    uint64_t device = b.args[V].address, host = ((uintptr_t)pinned + 255) & ~(uintptr_t)255;
    for (int i = 0; i < 8; i++) {
        b.args[V].address = i % 2 ? device : host;
        RPT_OK(f, rp_graph_replay(graph, b.args, ARGS, f->streams[0], &f->err));
        buffers_check(f, &b, i + 1);
        expect_reason(graph, V, i < 4 ? RPI_COPY_NOT : RPI_COPY_REFUSED);
        expect_reason(graph, B, RPI_COPY_NOT);
    }
    rp_graph_destroy(graph);
    f->driver->cuMemFreeHost(pinned);
    buffers_finish(f, &b);
}

static void arguments_that_are_not_there_are_errors(void **state)
{
    struct rpt_fixture *f = *state;
    struct buffers b;
    struct rp_graph_arg_info info = {.size = sizeof info};
    buffers_init(f, &b, 1, 0);
    struct rp_graph *graph = capture(f, &b);
    assert_int_equal(rp_graph_arg_info(graph, ARGS, &info, &f->err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_graph_arg_info(NULL, 0, &info, &f->err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_graph_arg_info(graph, 0, NULL, &f->err), RP_ERROR_INVALID_ARGUMENT);
    rp_graph_destroy(graph);
    buffers_finish(f, &b);
}

/* ---- Failures of everything -----------------------------------------------------------------*/

static struct buffers many[4];

/* Not measured: each run makes the same calls. */
static const struct rpi_copy_prices fixed_prices = {
    .launch = 7, .entry = 0.05, .single = 6, .byte = 1e-6, .single_byte = 1e-6};

static bool replays_at_many_addresses(const struct rp_driver *driver, void *user)
{
    struct rpt_fixture *f = user;
    struct rpt_scene scene;
    bool worked = rpt_scene_open(&scene, driver) &&
                  rp_graph_capture(scene.pool, NULL, everything, f, many[0].args, ARGS,
                                   &scene.graph, NULL) == RP_OK;
    if (worked)
        rpi_copier_fix_prices(&scene.device->copier, &fixed_prices);
    for (int i = 0; worked && i < 8; i++) {
        const struct buffers *b = &many[i % 4];
        const uint64_t y = b->args[Y].address;
        worked = f->driver->cuMemsetD8(y, 0xff, BYTES) == CUDA_SUCCESS &&
                 f->driver->cuCtxSynchronize() == CUDA_SUCCESS; /* a fill does not wait */
        if (!worked)
            break; /* no memory to wait with: the fill may still run */
        /* A replay that failed is tried again: then it works, and so do the others. */
        CUstream stream = f->streams[i % 3];
        bool first = rp_graph_replay(scene.graph, b->args, ARGS, stream, NULL) == RP_OK;
        if (!first)
            worked &= rp_graph_replay(scene.graph, b->args, ARGS, stream, NULL) == RP_OK;
        float values[COUNT];
        worked &= f->driver->cuCtxSynchronize() == CUDA_SUCCESS &&
                  f->driver->cuMemcpyDtoH(values, y, BYTES) == CUDA_SUCCESS;
        for (uint32_t k = 0; worked && k < COUNT; k++)
            assert_true(values[k] == expected(b, Y, k, 1));
    }
    rpt_scene_close(&scene);
    return worked;
}

static void any_call_may_fail(void **state)
{
    struct rpt_fixture *f = *state;
    for (int i = 0; i < 4; i++)
        buffers_init(f, &many[i], (float)i, i == 2 ? 16 : 0);
    const struct rpt_scenario scenario = {.run = replays_at_many_addresses, .user = f};
    assert_true(rpt_fault_loop(f->driver, &scenario, CUDA_ERROR_UNKNOWN) > 50);
    struct rpi_host_options before = rpt_ignore_races();
    assert_true(rpt_memory_fault_loop(f->driver, &scenario) > 50);
    rpi_host_configure(&before);
    for (int i = 0; i < 4; i++)
        buffers_finish(f, &many[i]);
}

#define TEST(name)       cmocka_unit_test_setup_teardown(name, open_fixture, rpt_teardown)
#define CHILD(name)      cmocka_unit_test_setup_teardown(name, open_child, rpt_teardown)
#define GRANDCHILD(name) cmocka_unit_test_setup_teardown(name, open_grandchild, rpt_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_role_moves_on_every_call),
        TEST(only_what_changed_is_patched),
        TEST(former_buffers_are_let_alone),
        TEST(replays_in_flight_keep_their_buffers),
        TEST(unaligned_arguments_are_copied),
        TEST(a_pools_alignment_is_enough),
        TEST(overlapping_arguments_are_taken_apart),
        TEST(overlapping_outputs_are_not_both_bound),
        TEST(arguments_among_the_graphs_blocks_are_copied),
        TEST(copies_can_be_asked_for),
        TEST(unreadable_parameters_are_refused),
        TEST(copies_of_rows_are_let_alone),
        TEST(words_that_may_be_addresses_keep_an_argument_copied),
        TEST(addresses_in_a_table_keep_an_argument_copied),
        TEST(packed_parameters_keep_their_length),
        TEST(a_failed_change_is_made_up_for),
        TEST(copies_follow_other_memory_for_a_while),
        TEST(arguments_that_are_not_there_are_errors),
        TEST(any_call_may_fail),
        CHILD(every_role_moves_on_every_call),
        CHILD(only_what_changed_is_patched),
        CHILD(unaligned_arguments_are_copied),
        CHILD(any_call_may_fail),
        GRANDCHILD(every_role_moves_on_every_call),
        GRANDCHILD(former_buffers_are_let_alone),
        GRANDCHILD(replays_in_flight_keep_their_buffers),
        GRANDCHILD(a_failed_change_is_made_up_for),
        GRANDCHILD(copies_follow_other_memory_for_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
