/* SPDX-License-Identifier: MIT
 *
 * Verification by running, on the host driver: what replays give is compared with what eager runs
 * give, on buffers that are not the caller's. A callable that hides an argument's address where no
 * capture sees it has that argument copied, and no other; where running would change more than the
 * arguments nothing runs.
 */
#include "graph_fixture.h"

#include "fault_loop.h"
#include "graph/bind/bind.h"
#include "reprise_heap.h"
#include "reprise_tools.h"

#include <stdbool.h>
#include <stdio.h>

enum { COUNT = 200 };
enum { BYTES = COUNT * sizeof(float) };

/* ---- A kernel that computes addresses from memory ---------------------------------------------*/

/* to[i] = a[i] + 2 b[i]. The table has both inverted, so that none is found in it. */
static void run_through_table(const struct rp_host_launch *launch)
{
    float *to = (float *)(uintptr_t) * (const uint64_t *)launch->params[0];
    const uint64_t *table = (const uint64_t *)(uintptr_t) * (const uint64_t *)launch->params[1];
    const float *a = (const float *)(uintptr_t)~table[0], *b = (const float *)(uintptr_t)~table[1];
    for (uint32_t i = 0; i < *(const uint32_t *)launch->params[2]; i++)
        to[i] = a[i] + 2 * b[i];
}

static const struct rp_host_param table_layout[] = {{0, 8}, {8, 8}, {16, 4}};
static const struct rp_host_kernel table_kernels[] = {
    {"through_table", run_through_table, NULL, table_layout, 3, 0}};
static const struct rp_host_image table_image = {RP_HOST_IMAGE_MAGIC, 1, 0, table_kernels};

/* ---- The callable ---------------------------------------------------------------------------*/

enum { A, B, X, Y, Z, ARGS };
static const enum rp_arg_role roles[ARGS] = {RP_ARG_IN, RP_ARG_IN, RP_ARG_IN, RP_ARG_OUT,
                                             RP_ARG_INOUT};

enum habit {
    HONEST,
    HIDES_A, /* behind a table that is copied from the host */
    HIDES_A_AND_B,
    OTHER_EAGERLY,   /* a factor that is another without a capture */
    OTHER_EACH_TIME, /* the same, and another in each run */
    CALLS_HOST,
    FILLS_OUTSIDE,
    COPIES_TO_HOST,
    KEEPS_B,        /* where the first eager run had it */
    WRITES_EAGERLY, /* y */
};

struct subject {
    struct rpt_fixture f;
    CUmodule module;
    CUfunction through_table;
    enum habit habit;
    unsigned runs, eager_runs;
    uint64_t table[2]; /* as the last run left it */
    uint64_t outside;  /* memory that is no argument */
    uint64_t kept;     /* B of the first eager run */
    float to_host;
    int host_calls;
};

static void count_call(void *user)
{
    ++*(int *)user;
}

static rp_status driver_status(CUresult result, struct rp_error *err)
{
    return result == CUDA_SUCCESS ? RP_OK : rpi_error_driver(err, result, "driver", "enqueuing");
}

static rp_status have_effect(struct subject *subject, CUstream s, struct rp_error *err)
{
    const struct rp_driver *d = subject->f.driver;
    switch (subject->habit) {
    case CALLS_HOST:
        return driver_status(d->cuLaunchHostFunc(s, count_call, &subject->host_calls), err);
    case FILLS_OUTSIDE:
        return driver_status(d->cuMemsetD32Async(subject->outside, 7, 1, s), err);
    case COPIES_TO_HOST:
        return driver_status(d->cuMemcpyDtoHAsync(&subject->to_host, subject->outside, 4, s), err);
    default:
        return RP_OK;
    }
}

static bool is_eager(const struct subject *subject, CUstream s)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    subject->f.driver->cuStreamIsCapturing(s, &capturing);
    return capturing == CU_STREAM_CAPTURE_STATUS_NONE;
}

static float factor_of(const struct subject *subject, bool eager)
{
    if (subject->habit == OTHER_EAGERLY && eager)
        return 3;
    return subject->habit == OTHER_EACH_TIME && eager ? (float)subject->eager_runs : 1;
}

/* y = a + 2 b + x, by way of a table of addresses, and z += y */
static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    struct subject *subject = user;
    const struct rpt_fixture *f = &subject->f;
    CUstream s = rp_call_stream(call);
    uint64_t x[ARGS], table, t, a, b;
    struct rp_arg tensor;
    rp_status status;
    bool eager = is_eager(subject, s);
    rp_call_tensor(call, A, &tensor);
    uint32_t count = (uint32_t)(tensor.bytes / sizeof(float));
    subject->runs++;
    subject->eager_runs += eager;
    for (size_t k = 0; k < ARGS; k++)
        x[k] = rp_call_arg(call, k);
    if ((status = rp_call_alloc(call, 16, s, &table, err)) != RP_OK ||
        (status = rp_call_alloc(call, BYTES, s, &a, err)) != RP_OK ||
        (status = rp_call_alloc(call, BYTES, s, &b, err)) != RP_OK ||
        (status = rp_call_alloc(call, BYTES, s, &t, err)) != RP_OK)
        return status;
    bool hides_b = subject->habit == HIDES_A_AND_B, hides_a = hides_b || subject->habit == HIDES_A;
    subject->table[0] = ~(hides_a ? x[A] : a);
    subject->table[1] = ~(hides_b ? x[B] : b);
    const struct rp_driver *d = f->driver;
    void *params[] = {&t, &table, &count};
    float factor = factor_of(subject, eager);
    if (eager && !subject->kept)
        subject->kept = x[B];
    uint64_t y = subject->habit == WRITES_EAGERLY && !eager ? b : x[Y];
    uint64_t from = subject->habit == KEEPS_B && !eager ? subject->kept : x[B];
    if ((status = driver_status(d->cuMemcpyHtoDAsync(table, subject->table, 16, s), err)) !=
            RP_OK ||
        (status = driver_status(d->cuMemcpyDtoDAsync(a, x[A], tensor.bytes, s), err)) != RP_OK ||
        (status = rpt_scale(f, s, b, from, 1, count, err)) != RP_OK ||
        (status = rpt_launch(f, subject->through_table, s, params, err)) != RP_OK ||
        (status = rpt_scale(f, s, t, t, factor, count, err)) != RP_OK ||
        (status = rpt_add(f, s, y, t, x[X], count, err)) != RP_OK ||
        (status = rpt_saxpy(f, s, x[Z], x[Y], 1, count, err)) != RP_OK)
        return status;
    return have_effect(subject, s, err);
}

/* ---- Around it ------------------------------------------------------------------------------*/

static void open_subject(struct subject *subject)
{
    *subject = (struct subject){0};
    rpt_open(&subject->f);
    const struct rp_driver *d = subject->f.driver;
    assert_int_equal(d->cuModuleLoadData(&subject->module, &table_image), 0);
    assert_int_equal(
        d->cuModuleGetFunction(&subject->through_table, subject->module, "through_table"), 0);
    subject->outside = rpt_buffer(&subject->f, COUNT, 5);
}

static void close_subject(struct subject *subject)
{
    subject->f.driver->cuMemFree(subject->outside);
    subject->f.driver->cuModuleUnload(subject->module);
    rpt_close(&subject->f);
}

static void make_args(const struct rpt_fixture *f, struct rp_arg args[ARGS], float seed)
{
    for (size_t k = 0; k < ARGS; k++)
        args[k] = rpt_arg(rpt_buffer(f, COUNT, seed + 10 * (float)k), COUNT, roles[k]);
}

static void free_args(const struct rpt_fixture *f, const struct rp_arg args[ARGS])
{
    for (size_t k = 0; k < ARGS; k++)
        f->driver->cuMemFree(args[k].address);
}

/* What argument k holds at the start, and after so many runs. */
static float expected(size_t k, float seed, uint32_t i, int runs)
{
    float at = (float)(i % 7), before = seed + 10 * (float)k + at;
    float y = (seed + at) + 2 * (seed + 10 + at) + (seed + 20 + at);
    if (!runs || k < Y)
        return before;
    return k == Y ? y : before + (float)runs * y;
}

static void expect_args(const struct rpt_fixture *f, const struct rp_arg args[ARGS], float seed,
                        int runs)
{
    float values[COUNT];
    for (size_t k = 0; k < ARGS; k++) {
        uint32_t count = (uint32_t)(args[k].bytes / sizeof(float));
        rpt_read(f, args[k].address, values, count);
        for (uint32_t i = 0; i < count; i++)
            if (values[i] != expected(k, seed, i, runs))
                fail_msg("argument %zu [%u] is %g, not %g", k, i, (double)values[i],
                         (double)expected(k, seed, i, runs));
    }
}

static rp_status try_capture(struct subject *subject, const struct rp_arg *args,
                             struct rp_graph **graph)
{
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    options.verify = RP_VERIFY_RUN;
    options.stream = subject->f.streams[1];
    subject->runs = subject->eager_runs = 0;
    return rp_graph_capture(subject->f.pool, &options, work, subject, args, ARGS, graph,
                            &subject->f.err);
}

static void expect_replays(struct subject *subject, struct rp_graph *graph)
{
    struct rpt_fixture *f = &subject->f;
    for (int call = 0; call < 3; call++) {
        struct rp_arg args[ARGS];
        make_args(f, args, (float)call);
        RPT_OK(f, rp_graph_replay(graph, args, ARGS, f->streams[call], &f->err));
        expect_args(f, args, (float)call, 1);
        free_args(f, args);
    }
}

static void expect_copied(struct subject *subject, const struct rp_graph *graph, int copied)
{
    for (size_t k = 0; k < ARGS; k++) {
        struct rp_graph_arg_info arg = {.size = sizeof arg};
        RPT_OK(&subject->f, rp_graph_arg_info(graph, k, &arg, &subject->f.err));
        assert_int_equal(arg.bound, !(copied >> k & 1));
        if (!arg.bound)
            assert_string_equal(arg.reason, rpi_copy_reason_text(RPI_COPY_WRONG));
    }
}

/* ---- What runs ------------------------------------------------------------------------------*/

static void the_caller_sees_nothing_of_it(void **state)
{
    struct subject subject;
    struct rp_arg args[ARGS];
    struct rp_graph_info info = {.size = sizeof info};
    struct rpi_host_statistics before, after;
    struct rp_graph *graph = NULL;
    (void)state;
    open_subject(&subject);
    make_args(&subject.f, args, 1);
    RPT_OK(&subject.f, rp_graph_capture(subject.f.pool, NULL, work, &subject, args, ARGS, &graph,
                                        &subject.f.err));
    rpi_host_statistics(&before);
    rp_graph_destroy(graph);
    assert_int_equal(try_capture(&subject, args, &graph), RP_OK);
    rpi_host_statistics(&after);
    assert_int_equal(subject.runs, 6); /* a look, two eager runs, three captures */
    assert_int_equal(subject.eager_runs, 2);
    assert_int_equal(after.physical_bytes, before.physical_bytes);
    assert_int_equal(after.allocations, before.allocations);
    assert_int_equal(after.reservations, before.reservations);
    expect_args(&subject.f, args, 1, 0);
    rp_graph_info(graph, &info);
    assert_int_equal(info.verified, RP_VERIFY_RUN);
    assert_null(info.not_run);
    assert_int_equal(info.unverified_args, 0);
    assert_int_equal(info.replays, 0);
    expect_replays(&subject, graph);
    expect_copied(&subject, graph, 0);
    rp_graph_destroy(graph);
    free_args(&subject.f, args);
    close_subject(&subject);
}

static void hidden_addresses_are_found(void **state)
{
    static const struct {
        enum habit habit;
        int copied;
    } cases[] = {{HIDES_A, 1 << A}, {HIDES_A_AND_B, 1 << A | 1 << B}};
    struct subject subject;
    struct rp_arg args[ARGS];
    struct rp_graph_info info = {.size = sizeof info};
    (void)state;
    open_subject(&subject);
    make_args(&subject.f, args, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rp_graph *graph = NULL;
        subject.habit = cases[i].habit;
        RPT_OK(&subject.f, try_capture(&subject, args, &graph));
        rp_graph_info(graph, &info);
        assert_int_equal(info.verified, RP_VERIFY_RUN);
        assert_int_equal(info.unverified_args, __builtin_popcount((unsigned)cases[i].copied));
        expect_args(&subject.f, args, 1, 0);
        expect_replays(&subject, graph);
        expect_copied(&subject, graph, cases[i].copied);
        rp_graph_destroy(graph);
    }
    free_args(&subject.f, args);
    close_subject(&subject);
}

/* However the arguments come to it: the outputs hold already what the callable gives. */
static void other_results_refuse_the_graph(void **state)
{
    static const enum habit habits[] = {OTHER_EAGERLY, KEEPS_B, WRITES_EAGERLY};
    struct subject subject;
    struct rp_arg args[ARGS];
    struct rp_pool_info info = {.size = sizeof info};
    (void)state;
    open_subject(&subject);
    struct rpt_fixture *f = &subject.f;
    make_args(f, args, 1);
    RPT_OK(f, rp_run(f->pool, work, &subject, args, ARGS, f->streams[1], &f->err));
    expect_args(f, args, 1, 1);
    for (size_t i = 0; i < sizeof habits / sizeof *habits; i++) {
        struct rp_graph *graph = NULL;
        subject.habit = habits[i];
        subject.kept = 0;
        assert_int_equal(try_capture(&subject, args, &graph), RP_ERROR_CAPTURE);
        assert_null(graph);
        assert_non_null(strstr(f->err.message, "argument 3 differs from byte"));
        rp_pool_info(f->pool, &info);
        assert_int_equal(info.graphs, 0);
        expect_args(f, args, 1, 1);
    }
    free_args(f, args);
    close_subject(&subject);
}

/* Copy nodes move among mapped memory only: so the buffers of a trial are mapped memory too. */
static void mapped_memory_is_tried_as_such(void **state)
{
    struct subject subject;
    struct rp_arg args[ARGS], buffers[ARGS];
    struct rp_graph_info info = {.size = sizeof info};
    struct rp_heap *heap = NULL;
    struct rp_graph *graph = NULL;
    (void)state;
    open_subject(&subject);
    struct rpt_fixture *f = &subject.f;
    RPT_OK(f, rp_heap_create(f->device, NULL, &heap, &f->err));
    make_args(f, buffers, 1);
    memcpy(args, buffers, sizeof args);
    for (size_t k = 0; k < ARGS; k++) {
        RPT_OK(f, rp_heap_alloc(heap, BYTES, f->streams[1], &args[k].address, &f->err));
        assert_int_equal(f->driver->cuMemcpyDtoD(args[k].address, buffers[k].address, BYTES), 0);
    }
    RPT_OK(f, try_capture(&subject, args, &graph));
    RPT_OK(f, rp_graph_replay(graph, args, ARGS, f->streams[1], &f->err));
    expect_args(f, args, 1, 1);
    rp_graph_info(graph, &info);
    assert_int_equal(info.verified, RP_VERIFY_RUN);
    assert_int_equal(info.bound_args, ARGS);
    assert_int_equal(info.execs_made, 1);
    rp_graph_destroy(graph);
    for (size_t k = 0; k < ARGS; k++)
        RPT_OK(f, rp_heap_free(heap, args[k].address, &f->err));
    rp_heap_destroy(heap);
    free_args(f, buffers);
    close_subject(&subject);
}

/* ---- What does not --------------------------------------------------------------------------*/

static void expect_not_run(struct subject *subject, const struct rp_arg *args, unsigned eager_runs,
                           const char *why)
{
    struct rp_graph *graph = NULL;
    struct rp_graph_info info = {.size = sizeof info};
    RPT_OK(&subject->f, try_capture(subject, args, &graph));
    assert_int_equal(subject->eager_runs, eager_runs);
    rp_graph_info(graph, &info);
    assert_int_equal(info.verified, RP_VERIFY_CAPTURE);
    assert_non_null(info.not_run);
    if (!strstr(info.not_run, why))
        fail_msg("not run as %s", info.not_run);
    rp_graph_destroy(graph);
}

static void effects_are_left_alone(void **state)
{
    struct subject subject;
    struct rp_arg args[ARGS];
    (void)state;
    open_subject(&subject);
    make_args(&subject.f, args, 1);
    subject.habit = CALLS_HOST;
    expect_not_run(&subject, args, 0, "called on the host");
    assert_int_equal(subject.host_calls, 0);
    subject.habit = FILLS_OUTSIDE;
    expect_not_run(&subject, args, 0, "memory that is no argument");
    subject.habit = COPIES_TO_HOST;
    expect_not_run(&subject, args, 0, "memory that is no argument");
    subject.habit = OTHER_EACH_TIME;
    expect_not_run(&subject, args, 2, "give different results");
    subject.habit = HONEST;
    uint64_t address = args[B].address;
    args[B].address = 0;
    expect_not_run(&subject, args, 0, "has no address");
    float host[COUNT];
    args[B].address = (uintptr_t)host;
    expect_not_run(&subject, args, 0, "is no device memory");
    args[B].address = address;
    free_args(&subject.f, args);
    close_subject(&subject);
}

/* Without memory for three more sets of the arguments. */
static void a_full_device_is_not_filled(void **state)
{
    struct subject subject;
    struct rp_arg args[ARGS];
    struct rpi_host_options options, before;
    struct rpi_host_statistics now;
    (void)state;
    open_subject(&subject);
    make_args(&subject.f, args, 1);
    struct rp_graph *graph = NULL; /* so that the pool has what a graph takes */
    RPT_OK(&subject.f, rp_graph_capture(subject.f.pool, NULL, work, &subject, args, ARGS, &graph,
                                        &subject.f.err));
    rpi_host_options(&before);
    options = before;
    rpi_host_statistics(&now);
    options.total_bytes = now.physical_bytes;
    rpi_host_configure(&options);
    expect_not_run(&subject, args, 0, "no device memory");
    rpi_host_configure(&before);
    rp_graph_destroy(graph);
    free_args(&subject.f, args);
    close_subject(&subject);
}

/* ---- Others of the pool ---------------------------------------------------------------------*/

struct part {
    const struct rpt_fixture *f;
    uint64_t *kept; /* its block, as the record had it */
    bool reads;     /* the block of another, else it makes one */
    uint32_t count;
};

static rp_status part_work(struct rp_call *call, void *user, struct rp_error *err)
{
    struct part *part = user;
    CUstream s = rp_call_stream(call);
    uint64_t in = rp_call_arg(call, 0), out = rp_call_arg(call, 1);
    if (part->reads)
        return rpt_scale(part->f, s, out, *part->kept, 2, part->count, err);
    rp_status status = rp_call_alloc(call, part->count * sizeof(float), s, part->kept, err);
    if (status == RP_OK)
        status = rpt_scale(part->f, s, *part->kept, in, 3, part->count, err);
    return status == RP_OK ? rpt_scale(part->f, s, out, *part->kept, 1, part->count, err) : status;
}

static void others_keep_their_blocks(void **state)
{
    struct rpt_fixture f;
    struct rp_pool *sequence, *trunks;
    struct rp_pool_options pool = RP_POOL_OPTIONS_INIT;
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct rp_graph *trunk, *head, *other;
    struct rp_graph_info info = {.size = sizeof info};
    uint64_t kept, unused;
    float values[COUNT];
    (void)state;
    rpt_open(&f);
    pool.kind = RP_POOL_SEQUENCE;
    pool.parent = f.pool;
    RPT_OK(&f, rp_pool_create(f.device, &pool, &sequence, &f.err));
    pool.kind = RP_POOL_ALTERNATIVES;
    pool.parent = sequence;
    RPT_OK(&f, rp_pool_create(f.device, &pool, &trunks, &f.err));
    struct rp_arg args[2] = {rpt_arg(rpt_buffer(&f, COUNT, 1), COUNT, RP_ARG_IN),
                             rpt_arg(rpt_buffer(&f, COUNT, 0), COUNT, RP_ARG_OUT)};
    struct part makes = {&f, &kept, false, COUNT}, reads = {&f, &kept, true, COUNT};
    struct part alternative = {&f, &unused, false, COUNT};
    options.verify = RP_VERIFY_RUN;
    options.stream = f.streams[0];
    RPT_OK(&f, rp_graph_capture(trunks, &options, part_work, &makes, args, 2, &trunk, &f.err));
    rp_graph_info(trunk, &info);
    assert_int_equal(info.verified, RP_VERIFY_RUN);
    RPT_OK(&f, rp_graph_capture(sequence, &options, part_work, &reads, args, 2, &head, &f.err));
    rp_graph_info(head, &info);
    assert_non_null(strstr(info.not_run, "uses blocks of other graphs"));
    /* What it was verified with is nothing that others may read. */
    assert_int_equal(rp_graph_replay(head, args, 2, f.streams[0], &f.err), RP_ERROR_CONTRACT);
    RPT_OK(&f, rp_graph_replay(trunk, args, 2, f.streams[0], &f.err));
    RPT_OK(&f,
           rp_graph_capture(trunks, &options, part_work, &alternative, args, 2, &other, &f.err));
    rp_graph_info(other, &info);
    assert_non_null(strstr(info.not_run, "overwrite a block that another graph reads"));
    RPT_OK(&f, rp_graph_replay(head, args, 2, f.streams[0], &f.err));
    rpt_read(&f, args[1].address, values, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(values[i] == 6 * (1 + (float)(i % 7)));
    rp_graph_destroy(other);
    rp_graph_destroy(head);
    rp_graph_destroy(trunk);
    rp_pool_destroy(trunks);
    rp_pool_destroy(sequence);
    f.driver->cuMemFree(args[0].address);
    f.driver->cuMemFree(args[1].address);
    rpt_close(&f);
}

/* ---- Callables ------------------------------------------------------------------------------*/

static void expect_verified(struct rp_callable *callable, enum rp_verify verified, size_t copied)
{
    struct rp_shape_info shape = {.size = sizeof shape};
    struct rp_graph_info info = {.size = sizeof info};
    assert_true(rp_callable_shape_info(callable, 0, &shape));
    assert_int_equal(shape.state, RP_SHAPE_GRAPH);
    rp_graph_info(shape.graph, &info);
    assert_int_equal(info.verified, verified);
    assert_int_equal(info.unverified_args, copied);
    assert_null(info.not_run);
}

/* Calls of fewer elements than the bucket has, or of as many without one. */
static void callables_verify_with_the_calls_contents(void **state)
{
    enum { LESS = COUNT - 50 };
    const struct rp_axis axes[] = {{A, 0}, {B, 0}, {X, 0}, {Y, 0}, {Z, 0}};
    const int64_t bucket = COUNT, shapes[2][1] = {{COUNT}, {LESS}};
    const struct rp_dim dim = {.name = "count",
                               .axes = axes,
                               .axis_count = ARGS,
                               .rule = RP_BUCKET_LIST,
                               .buckets = &bucket,
                               .bucket_count = 1};
    (void)state;
    for (int padded = 0; padded < 2; padded++) {
        struct subject subject;
        struct rp_arg args[ARGS];
        struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
        struct rp_callable *callable = NULL;
        open_subject(&subject);
        struct rpt_fixture *f = &subject.f;
        options.verify = RP_VERIFY_RUN;
        options.dims = &dim;
        options.dim_count = (size_t)padded;
        subject.habit = HIDES_A;
        RPT_OK(f, rp_callable_create(f->device, &options, work, &subject, &callable, &f->err));
        for (int call = 0; call < 4; call++) {
            make_args(f, args, (float)call);
            for (size_t k = 0; k < ARGS; k++) {
                args[k].dtype = RP_DTYPE_FLOAT32;
                args[k].rank = 1;
                args[k].shape = shapes[padded];
                args[k].bytes = (uint64_t)shapes[padded][0] * sizeof(float);
            }
            const struct rp_inputs inputs = {.args = args, .arg_count = ARGS};
            RPT_OK(f, rp_callable_call(callable, &inputs, f->streams[0], &f->err));
            expect_args(f, args, (float)call, 1);
            free_args(f, args);
        }
        expect_verified(callable, RP_VERIFY_RUN, 1);
        assert_int_equal(subject.eager_runs, 3); /* the first call, and two to verify */
        rp_callable_destroy(callable);
        close_subject(&subject);
    }
}

static void nothing_runs_ahead_of_time(void **state)
{
    struct subject subject;
    struct rp_arg args[ARGS];
    struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
    struct rp_callable *callable = NULL;
    (void)state;
    open_subject(&subject);
    make_args(&subject.f, args, 1);
    const struct rp_inputs inputs = {.args = args, .arg_count = ARGS};
    options.verify = RP_VERIFY_RUN;
    RPT_OK(&subject.f, rp_callable_create(subject.f.device, &options, work, &subject, &callable,
                                          &subject.f.err));
    RPT_OK(&subject.f, rp_callable_capture(callable, &inputs, 1, NULL, NULL, NULL, &subject.f.err));
    assert_int_equal(subject.eager_runs, 0);
    expect_verified(callable, RP_VERIFY_CAPTURE, 0);
    rp_callable_destroy(callable);
    free_args(&subject.f, args);
    close_subject(&subject);
}

/* ---- Faults ---------------------------------------------------------------------------------*/

static struct subject outer; /* on the driver itself, whose calls do not fail by the wrapper */
static struct rp_arg outer_args[ARGS];
static struct rpi_host_statistics held;

/* A capture that has to find an argument, and a replay of it. */
static bool capture_and_replay(const struct rp_driver *driver, void *user)
{
    struct subject *subject = user;
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct rpt_scene scene;
    options.verify = RP_VERIFY_RUN;
    options.stream = subject->f.streams[1];
    subject->habit = HIDES_A;
    bool worked = rpt_scene_open(&scene, driver);
    if (worked) {
        rp_status status = rp_graph_capture(scene.pool, &options, work, subject, outer_args, ARGS,
                                            &scene.graph, &scene.err);
        if (status != RP_OK)
            assert_true(scene.err.status == status && scene.err.message[0]);
        worked = status == RP_OK && rp_graph_replay(scene.graph, outer_args, ARGS,
                                                    subject->f.streams[1], &scene.err) == RP_OK;
    }
    rpt_scene_close(&scene);
    return worked;
}

static const char *what_is_left(void *user)
{
    struct rpi_host_statistics now;
    (void)user;
    if (outer.f.driver->cuCtxSynchronize() != CUDA_SUCCESS)
        return "a driver that does not work";
    rpi_host_statistics(&now);
    return now.physical_bytes != held.physical_bytes ? "device memory"
           : now.allocations != held.allocations     ? "allocations"
           : now.mappings != held.mappings           ? "mappings"
           : now.reservations != held.reservations   ? "reserved addresses"
           : now.graphs != held.graphs               ? "graphs"
           : now.execs != held.execs                 ? "execs"
           : now.captures != held.captures           ? "captures"
                                                     : NULL;
}

static void any_call_may_fail(void **state)
{
    const struct rpt_scenario scenario = {.run = capture_and_replay,
                                          .left = what_is_left,
                                          .user = &outer,
                                          .step = RPT_LONG_LOOP_STEP};
    (void)state;
    open_subject(&outer);
    make_args(&outer.f, outer_args, 1);
    struct rpi_host_options before = rpt_ignore_races();
    rpi_host_statistics(&held);
    assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_OUT_OF_MEMORY) >
                100 / RPT_LONG_LOOP_STEP);
    assert_true(rpt_memory_fault_loop(rpi_driver_host(), &scenario) > 100 / RPT_LONG_LOOP_STEP);
    rpi_host_configure(&before);
    free_args(&outer.f, outer_args);
    close_subject(&outer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_caller_sees_nothing_of_it),
        cmocka_unit_test(hidden_addresses_are_found),
        cmocka_unit_test(other_results_refuse_the_graph),
        cmocka_unit_test(mapped_memory_is_tried_as_such),
        cmocka_unit_test(effects_are_left_alone),
        cmocka_unit_test(a_full_device_is_not_filled),
        cmocka_unit_test(others_keep_their_blocks),
        cmocka_unit_test(callables_verify_with_the_calls_contents),
        cmocka_unit_test(nothing_runs_ahead_of_time),
        cmocka_unit_test(any_call_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
