/* SPDX-License-Identifier: MIT
 *
 * The path from a callable to its replay, on the host driver with the race check on: what is
 * captured replays to the bit what rp_run computes, in memory that stays constant over
 * alternatives; and every way in which it can go wrong ends in an error that says so.
 */
#include "graph/handles/device.h"
#include "graph_fixture.h"

#include "graph/capture/rehearse.h"
#include "reprise_tools.h"

#include <pthread.h>
#include <stdbool.h>

#define MIB 1048576ull

struct program {
    struct rpt_fixture *f;
    uint32_t count; /* floats in each argument and block */
    int calls;      /* how often the callable ran */
    int variant;
    uint64_t kept; /* an address that a callable kept */
};

/* ---- Running a callable both ways -----------------------------------------------------------*/

struct both {
    uint64_t in, out;
    struct rp_arg args[2];
    float *eager, *replayed;
};

static void both_init(struct both *b, const struct program *p)
{
    b->in = rpt_buffer(p->f, p->count, 1.0f);
    b->out = rpt_buffer(p->f, p->count, -1.0f);
    b->args[0] = rpt_arg(b->in, p->count, RP_ARG_IN);
    b->args[1] = rpt_arg(b->out, p->count, RP_ARG_OUT);
    b->eager = calloc(p->count, sizeof(float));
    b->replayed = calloc(p->count, sizeof(float));
    assert_non_null(b->eager);
    assert_non_null(b->replayed);
}

static void both_finish(struct both *b, const struct program *p)
{
    p->f->driver->cuMemFree(b->in);
    p->f->driver->cuMemFree(b->out);
    free(b->eager);
    free(b->replayed);
}

/* Runs eagerly, captures, replays twice, the second time at new addresses; all outputs are equal.
 */
static void check_replay(struct program *p, rp_callable_fn callable, struct rp_graph_info *out_info)
{
    struct rpt_fixture *f = p->f;
    struct both b;
    both_init(&b, p);
    RPT_OK(f, rp_run(f->pool, callable, p, b.args, 2, f->streams[3], &f->err));
    rpt_read(f, b.out, b.eager, p->count);
    struct rp_graph *graph = NULL;
    RPT_OK(f, rp_graph_capture(f->pool, NULL, callable, p, b.args, 2, &graph, &f->err));
    for (int replay = 0; replay < 2; replay++) {
        struct both fresh;
        both_init(&fresh, p);
        RPT_OK(f, rp_graph_replay(graph, fresh.args, 2, f->streams[replay], &f->err));
        rpt_read(f, fresh.out, b.replayed, p->count);
        assert_memory_equal(b.eager, b.replayed, p->count * sizeof(float));
        both_finish(&fresh, p);
    }
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(graph, &info);
    assert_int_equal(info.replays, 2);
    assert_true(info.planned_bytes >= info.lower_bound_bytes);
    assert_true(info.total_bytes >= info.peak_bytes);
    if (out_info)
        *out_info = info;
    rp_graph_destroy(graph);
    both_finish(&b, p);
}

static void check_refused(struct program *p, rp_callable_fn callable, rp_status expected)
{
    struct rpt_fixture *f = p->f;
    struct both b;
    struct rp_pool_info before = {.size = sizeof before}, after = {.size = sizeof after};
    both_init(&b, p);
    rp_pool_info(f->pool, &before);
    struct rp_graph *graph = NULL;
    rp_status status = rp_graph_capture(f->pool, NULL, callable, p, b.args, 2, &graph, &f->err);
    if (status != expected)
        print_error("%s: %s\n", rp_status_name(status), status == RP_OK ? "" : f->err.message);
    assert_int_equal(status, expected);
    assert_int_equal(f->err.status, expected);
    assert_null(graph);
    rp_pool_info(f->pool, &after);
    assert_int_equal(after.mapped_bytes, before.mapped_bytes);
    assert_int_equal(after.planned_bytes, before.planned_bytes);
    assert_int_equal(after.graphs, before.graphs);
    both_finish(&b, p);
}

/* ---- Callables ------------------------------------------------------------------------------*/

/* y = ((2 x + x) 3) + x through three blocks on one stream. */
static rp_status chain(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    const struct rpt_fixture *f = p->f;
    CUstream s = rp_call_stream(call);
    uint64_t x = rp_call_arg(call, 0), y = rp_call_arg(call, 1), a, b, c;
    size_t bytes = p->count * sizeof(float);
    rp_status status;
    p->calls++;
    if ((status = rp_call_alloc(call, bytes, s, &a, err)) != RP_OK ||
        (status = rpt_scale(f, s, a, x, 2, p->count, err)) != RP_OK ||
        (status = rp_call_alloc(call, bytes, s, &b, err)) != RP_OK ||
        (status = rpt_add(f, s, b, a, x, p->count, err)) != RP_OK ||
        (status = rp_call_free(call, a, err)) != RP_OK ||
        (status = rp_call_alloc(call, bytes, s, &c, err)) != RP_OK ||
        (status = rpt_scale(f, s, c, b, 3, p->count, err)) != RP_OK ||
        (status = rp_call_free(call, b, err)) != RP_OK ||
        (status = rpt_add(f, s, y, c, x, p->count, err)) != RP_OK ||
        (status = rp_call_free(call, c, err)) != RP_OK)
        return status;
    return RP_OK;
}

/* Two streams side by side, each with a block of its own; one block is freed from the other. */
static rp_status fork_join(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    const struct rpt_fixture *f = p->f;
    CUstream s = rp_call_stream(call), t = f->streams[0];
    uint64_t x = rp_call_arg(call, 0), y = rp_call_arg(call, 1), a, b, c;
    size_t bytes = p->count * sizeof(float);
    rp_status status;
    if ((status = rpt_join(f, s, t, err)) != RP_OK ||
        (status = rp_call_alloc(call, bytes, s, &a, err)) != RP_OK ||
        (status = rp_call_alloc(call, bytes, t, &b, err)) != RP_OK ||
        (status = rpt_scale(f, s, a, x, 2, p->count, err)) != RP_OK ||
        (status = rpt_scale(f, t, b, x, 5, p->count, err)) != RP_OK ||
        (status = rpt_join(f, t, s, err)) != RP_OK ||
        (status = rp_call_use(call, b, s, err)) != RP_OK ||
        (status = rpt_add(f, s, y, a, b, p->count, err)) != RP_OK ||
        (status = rp_call_free(call, b, err)) != RP_OK ||
        (status = rp_call_free(call, a, err)) != RP_OK)
        return status;
    /* t has not seen the add: on t nothing may lie over b. On s it may. */
    if ((status = rp_call_alloc(call, bytes, t, &c, err)) != RP_OK ||
        (status = rpt_fill(f, t, c, 99, p->count, err)) != RP_OK ||
        (status = rp_call_free(call, c, err)) != RP_OK ||
        (status = rp_call_alloc(call, bytes, s, &c, err)) != RP_OK ||
        (status = rpt_scale(f, s, c, y, 7, p->count, err)) != RP_OK ||
        (status = rpt_add(f, s, y, c, x, p->count, err)) != RP_OK ||
        (status = rp_call_free(call, c, err)) != RP_OK)
        return status;
    return rpt_join(f, t, s, err);
}

static void count_up(void *user)
{
    __atomic_fetch_add((int *)user, 1, __ATOMIC_RELAXED);
}

static int host_calls;

/* A fill, a copy, a two-dimensional fill, a host function and kernels in the packed form. */
static rp_status many_kinds(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    const struct rpt_fixture *f = p->f;
    const struct rp_driver *d = f->driver;
    CUstream s = rp_call_stream(call);
    uint64_t x = rp_call_arg(call, 0), y = rp_call_arg(call, 1), a;
    size_t bytes = p->count * sizeof(float);
    rp_status status = rp_call_alloc(call, bytes, s, &a, err);
    if (status != RP_OK)
        return status;
    CUresult result = d->cuMemsetD32Async(a, 0, p->count, s);
    if (result == CUDA_SUCCESS)
        result = d->cuMemcpyDtoDAsync(y, x, bytes, s);
    if (result == CUDA_SUCCESS)
        result = d->cuMemsetD2D8Async(a, 64, 0, 8, 4, s);
    if (result == CUDA_SUCCESS)
        result = d->cuLaunchHostFunc(s, count_up, &host_calls);
    struct {
        uint64_t to, a, b;
        uint32_t count;
    } packed = {y, y, a, p->count};
    size_t packed_bytes = 28;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &packed_bytes, CU_LAUNCH_PARAM_END};
    if (result == CUDA_SUCCESS)
        result = d->cuLaunchKernel(f->add, 1, 1, 1, 32, 1, 1, 0, s, NULL, extra);
    struct rpt_padded_param padded;
    memset(&padded, 0, sizeof padded);
    padded.tag = 3;
    padded.to = (uint32_t *)(uintptr_t)y;
    padded.index = 1;
    void *params[] = {&padded};
    size_t padded_bytes = sizeof padded;
    void *in_one[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &padded, CU_LAUNCH_PARAM_BUFFER_SIZE,
                      &padded_bytes, CU_LAUNCH_PARAM_END};
    bool pack = p->variant == 1; /* this kernel too */
    if (result == CUDA_SUCCESS)
        result = d->cuLaunchKernel(f->padded, 1, 1, 1, 1, 1, 1, 0, s, pack ? NULL : params,
                                   pack ? in_one : NULL);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "many_kinds", "enqueuing");
    return rp_call_free(call, a, err);
}

/* ---- What works -----------------------------------------------------------------------------*/

static void chain_replays_what_it_computes(void **state)
{
    struct program p = {.f = *state, .count = 5000};
    struct rp_graph_info info = {.size = sizeof info};
    check_replay(&p, chain, &info);
    assert_int_equal(info.nodes, 4);
    assert_int_equal(info.edges, 3);
    assert_int_equal(info.blocks, 3);
    assert_int_equal(info.diverged_blocks, 0);
    assert_int_equal(info.rehearsals, 1);
    assert_int_equal(info.sites, 2 + 3 + 2 + 3);
    /* two blocks at a time; 20000 bytes are 20480 after rounding */
    assert_int_equal(info.lower_bound_bytes, 2 * 20480);
    assert_int_equal(info.planned_bytes, 2 * 20480);
    assert_int_equal(p.calls, 3); /* eager, rehearsal, record */
}

static void forks_and_joins_replay(void **state)
{
    struct program p = {.f = *state, .count = 3000};
    check_replay(&p, fork_join, NULL);
}

static void all_kinds_of_nodes_replay(void **state)
{
    struct program p = {.f = *state, .count = 1024};
    struct rp_graph_info info = {.size = sizeof info};
    host_calls = 0;
    check_replay(&p, many_kinds, &info);
    assert_int_equal(info.nodes, 6);
    assert_int_equal(info.sites, 1 + 2 + 1 + 3 + 1);
    assert_int_equal(host_calls, 3); /* one eager run and two replays */
}

static void alternatives_share_one_pool(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_graph *graphs[7];
    struct program programs[7];
    struct both b[7];
    uint64_t planned = 0;
    for (int i = 0; i < 7; i++) {
        programs[i] = (struct program){.f = f, .count = 40000u >> i};
        both_init(&b[i], &programs[i]);
        RPT_OK(f, rp_graph_capture(f->pool, NULL, chain, &programs[i], b[i].args, 2, &graphs[i],
                                   &f->err));
        struct rp_pool_info info = {.size = sizeof info};
        rp_pool_info(f->pool, &info);
        if (i == 0)
            planned = info.planned_bytes;
        assert_int_equal(info.planned_bytes, planned);
        assert_int_equal(info.mapped_bytes, (planned + 2 * MIB - 1) / (2 * MIB) * 2 * MIB);
        assert_int_equal(info.rehearsal_bytes, 2 * MIB);
        assert_int_equal(info.graphs, i + 1);
        assert_true(info.lower_bound_bytes <= info.planned_bytes);
    }
    for (int round = 0; round < 3; round++)
        for (int i = 6; i >= 0; i--)
            RPT_OK(f,
                   rp_graph_replay(graphs[i], b[i].args, 2, f->streams[(i + round) % 4], &f->err));
    for (int i = 0; i < 7; i++) {
        rpt_read(f, b[i].out, b[i].replayed, programs[i].count);
        for (uint32_t k = 0; k < programs[i].count; k++)
            assert_true(b[i].replayed[k] == 10.0f * (1.0f + (float)(k % 7)));
    }
    for (int i = 0; i < 7; i++) { /* the largest first: the others live on */
        rp_graph_destroy(graphs[i]);
        if (i < 6)
            RPT_OK(f, rp_graph_replay(graphs[i + 1], b[i + 1].args, 2, NULL, &f->err));
        both_finish(&b[i], &programs[i]);
    }
    struct rp_pool_info info = {.size = sizeof info};
    rp_pool_info(f->pool, &info);
    assert_int_equal(info.planned_bytes, 0);
    assert_int_equal(info.mapped_bytes, 0);
}

/* Nothing else changes, and estimates know. */
static void layouts_lie_behind_their_lead(void **state)
{
    struct rpt_fixture *f = *state;
    static const uint64_t leads[] = {0, 1, 512, 4096, 20480, 3 * MIB};
    enum { LEADS = sizeof leads / sizeof *leads };
    struct program p = {.f = f, .count = 5000};
    struct rp_graph *graphs[LEADS];
    struct both b;
    both_init(&b, &p);
    RPT_OK(f, rp_run(f->pool, chain, &p, b.args, 2, NULL, &f->err));
    rpt_read(f, b.out, b.eager, p.count);
    for (size_t i = 0; i < LEADS; i++) {
        struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
        struct rp_estimate *estimate = NULL;
        struct rp_estimate_shape foreseen = {.size = sizeof foreseen};
        struct rp_graph_info info = {.size = sizeof info};
        options.lead_bytes = leads[i];
        RPT_OK(f, rp_estimate_create(&estimate, &f->err));
        RPT_OK(f, rp_estimate_add(estimate, f->pool, &options, chain, &p, b.args, 2, &f->err));
        assert_int_equal(rp_estimate_shape(estimate, 0, &foreseen), 1);
        RPT_OK(f, rp_graph_capture(f->pool, &options, chain, &p, b.args, 2, &graphs[i], &f->err));
        rp_graph_info(graphs[i], &info);
        assert_int_equal(info.planned_bytes, 2 * 20480 + (leads[i] + 511) / 512 * 512);
        assert_int_equal(foreseen.planned_bytes, info.planned_bytes);
        assert_int_equal(info.lower_bound_bytes, 2 * 20480);
        assert_true(graphs[i]->member.all.data[0].from >= leads[i]);
        rp_estimate_destroy(estimate);
    }
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < LEADS; i++) {
            RPT_OK(f, rp_graph_replay(graphs[i], b.args, 2, NULL, &f->err));
            rpt_read(f, b.out, b.replayed, p.count);
            assert_memory_equal(b.eager, b.replayed, p.count * sizeof(float));
        }
    for (size_t i = 0; i < LEADS; i++)
        rp_graph_destroy(graphs[i]);
    both_finish(&b, &p);
}

static void leads_without_memory_are_refused(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct program p = {.f = f, .count = 64};
    struct both b;
    struct rp_graph *graph = NULL;
    struct rp_pool_info before = {.size = sizeof before}, after = {.size = sizeof after};
    both_init(&b, &p);
    const uint64_t reserved = f->pool->core->memory.arena.reserved;
    const struct {
        uint64_t bytes;
        rp_status status;
    } leads[] = {{reserved - 2 * MIB, RP_ERROR_OUT_OF_DEVICE_MEMORY},
                 {reserved + 1, RP_ERROR_LIMIT},
                 {UINT64_MAX, RP_ERROR_LIMIT}};
    rp_pool_info(f->pool, &before);
    for (size_t i = 0; i < sizeof leads / sizeof *leads; i++) {
        options.lead_bytes = leads[i].bytes;
        assert_int_equal(rp_graph_capture(f->pool, &options, chain, &p, b.args, 2, &graph, &f->err),
                         leads[i].status);
        assert_null(graph);
    }
    rpt_says(f, "lead_bytes is 18446744073709551615");
    rp_pool_info(f->pool, &after);
    assert_int_equal(after.mapped_bytes, before.mapped_bytes);
    assert_int_equal(after.graphs, 0);
    both_finish(&b, &p);
}

static rp_status doubling(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    uint64_t x = rp_call_arg(call, 0);
    return rpt_add(p->f, rp_call_stream(call), x, x, x, p->count, err);
}

static void inout_arguments_are_copied_back(void **state)
{
    struct rpt_fixture *f = *state;
    struct program p = {.f = f, .count = 100};
    uint64_t x = rpt_buffer(f, p.count, 1.0f);
    struct rp_arg arg = rpt_arg(x, p.count, RP_ARG_INOUT);
    struct rp_graph *graph = NULL;
    RPT_OK(f, rp_graph_capture(f->pool, NULL, doubling, &p, &arg, 1, &graph, &f->err));
    for (int i = 0; i < 3; i++)
        RPT_OK(f, rp_graph_replay(graph, &arg, 1, f->streams[i], &f->err));
    float values[100];
    rpt_read(f, x, values, p.count);
    for (uint32_t k = 0; k < p.count; k++)
        assert_true(values[k] == 8.0f * (1.0f + (float)(k % 7)));
    rp_graph_destroy(graph);
    f->driver->cuMemFree(x);
}

struct block_of_thread {
    struct rp_call *call;
    uint64_t bytes, address;
    rp_status status;
    struct rp_error *err;
};

static void *take_on_thread(void *user)
{
    struct block_of_thread *block = user;
    block->status = rp_call_alloc(block->call, block->bytes, rp_call_stream(block->call),
                                  &block->address, block->err);
    return NULL;
}

static void *drop_on_thread(void *user)
{
    struct block_of_thread *block = user;
    block->status = rp_call_free(block->call, block->address, block->err);
    return NULL;
}

static rp_status on_thread(void *(*function)(void *), struct block_of_thread *block)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, block), 0);
    pthread_join(thread, NULL);
    return block->status;
}

/* y = 4 x through a block that a new thread takes, and another frees, as autograd's do. */
static rp_status takes_on_threads(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct program *p = user;
    CUstream s = rp_call_stream(call);
    struct block_of_thread block = {call, p->count * sizeof(float), 0, RP_OK, err};
    rp_status status = on_thread(take_on_thread, &block);
    if (status == RP_OK)
        status = rpt_scale(p->f, s, block.address, rp_call_arg(call, 0), 2, p->count, err);
    if (status == RP_OK)
        status = rpt_scale(p->f, s, rp_call_arg(call, 1), block.address, 2, p->count, err);
    return status == RP_OK ? on_thread(drop_on_thread, &block) : status;
}

static void threads_without_a_context_take_blocks(void **state)
{
    struct program p = {.f = *state, .count = 300};
    check_replay(&p, takes_on_threads, NULL);
}

static rp_status empty(struct rp_call *call, void *user, struct rp_error *err)
{
    (void)user;
    uint64_t a, b;
    rp_status status = rp_call_alloc(call, 0, rp_call_stream(call), &a, err);
    if (status == RP_OK)
        status = rp_call_alloc(call, 0, rp_call_stream(call), &b, err);
    if (status != RP_OK)
        return status;
    assert_int_not_equal(a, 0);
    assert_int_not_equal(a, b);
    assert_int_equal(rp_call_arg(call, 0), 0);
    return rp_call_free(call, a, err);
}

static void empty_work_and_empty_blocks(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_graph *graph = NULL;
    RPT_OK(f, rp_run(f->pool, empty, NULL, NULL, 0, NULL, &f->err));
    RPT_OK(f, rp_graph_capture(f->pool, NULL, empty, NULL, NULL, 0, &graph, &f->err));
    RPT_OK(f, rp_graph_replay(graph, NULL, 0, NULL, &f->err));
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(graph, &info);
    assert_int_equal(info.nodes, 0);
    assert_int_equal(info.blocks, 2);
    assert_string_equal(info.name, "graph");
    rp_graph_destroy(graph);
}

/* ---- Memory of rehearsals -------------------------------------------------------------------*/

static rp_status large_blocks(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    rp_status status = RP_OK;
    for (int i = 0; i < p->variant && status == RP_OK; i++) {
        uint64_t a;
        status = rp_call_alloc(call, 100 * MIB, rp_call_stream(call), &a, err);
        if (status == RP_OK)
            status = rpt_fill(p->f, rp_call_stream(call), a + 100 * MIB - 400, 1, 100, err);
    }
    return status;
}

static void rehearse_large(struct rpt_fixture *f, int blocks, uint64_t most_bytes)
{
    struct program p = {.f = f, .variant = blocks};
    struct rpi_rehearsal rehearsal = {0};
    struct rpi_host_statistics before, after;
    struct rp_pool_info info = {.size = sizeof info};
    rpi_host_statistics(&before);
    rp_pool_info(f->pool, &info);
    uint64_t chunk_before = info.rehearsal_bytes;
    rpi_host_peak_reset();
    RPT_OK(f, rpi_rehearse(f->pool, "large", large_blocks, &p, NULL, 0, &rehearsal, &f->err));
    rpi_host_statistics(&after);
    rp_pool_info(f->pool, &info);
    assert_int_equal(before.physical_bytes - chunk_before, 0); /* there is nothing else */
    assert_true(after.peak_physical_bytes <= most_bytes);
    assert_true(info.rehearsal_bytes <= most_bytes);
    assert_int_equal(after.physical_bytes, info.rehearsal_bytes);
    rpi_rehearsal_finish(&rehearsal, f->driver);
}

static void rehearsals_take_one_chunk(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool_info info = {.size = sizeof info};
    rehearse_large(f, 5, 2 * MIB);
    rehearse_large(f, 15, 2 * MIB); /* more than a GiB of addresses, found out on the way */
    rehearse_large(f, 15, 32 * MIB);
    rp_pool_info(f->pool, &info);
    assert_int_equal(info.rehearsal_bytes, 32 * MIB);
    rehearse_large(f, 40, 32 * MIB);
    rehearse_large(f, 1, 32 * MIB);
    assert_int_equal(info.mapped_bytes, 0);
}

static rp_status trims(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    uint64_t bytes = 1, a;
    rp_status status = rp_call_alloc(call, MIB, rp_call_stream(call), &a, err);
    if (status == RP_OK)
        status = rp_device_trim(p->f->device, &bytes, err);
    assert_int_equal(bytes, 0);
    return status == RP_OK ? rpt_fill(p->f, rp_call_stream(call), a, 1, 100, err) : status;
}

static void what_rehearsals_keep_is_given_back(void **state)
{
    struct rpt_fixture *f = *state;
    struct rpi_host_statistics after;
    struct program p = {.f = f};
    struct rpi_rehearsal rehearsal = {0};
    uint64_t bytes = 1;
    RPT_OK(f, rp_device_trim(f->device, &bytes, &f->err)); /* nothing was rehearsed */
    assert_int_equal(bytes, 0);
    for (int round = 0; round < 2; round++) {
        rehearse_large(f, 15, 32 * MIB);
        rehearse_large(f, 15, 32 * MIB);
        RPT_OK(f, rp_device_trim(f->device, &bytes, &f->err));
        assert_int_equal(bytes, 32 * MIB);
        rpi_host_statistics(&after);
        assert_int_equal(after.physical_bytes, 0);
    }
    RPT_OK(f, rpi_rehearse(f->pool, "trims", trims, &p, NULL, 0, &rehearsal, &f->err));
    rpi_rehearsal_finish(&rehearsal, f->driver);
    RPT_OK(f, rp_device_trim(f->device, NULL, &f->err));
    rpi_host_statistics(&after);
    assert_int_equal(after.physical_bytes, 0);
    assert_int_equal(rp_device_trim(NULL, NULL, &f->err), RP_ERROR_INVALID_ARGUMENT);
}

/* ---- Divergence -----------------------------------------------------------------------------*/

/* Frees its first block before or after allocating the second, as it is told for this call. */
static rp_status frees_later(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    const struct rpt_fixture *f = p->f;
    CUstream s = rp_call_stream(call);
    uint64_t x = rp_call_arg(call, 0), y = rp_call_arg(call, 1), a, b, c;
    size_t bytes = p->count * sizeof(float);
    bool late = p->calls++ >= p->variant;
    rp_status status;
    if ((status = rp_call_alloc(call, bytes, s, &a, err)) != RP_OK ||
        (status = rp_call_alloc(call, bytes, s, &b, err)) != RP_OK ||
        (status = rpt_scale(f, s, a, x, 2, p->count, err)) != RP_OK ||
        (status = rpt_add(f, s, b, a, x, p->count, err)) != RP_OK ||
        (!late && (status = rp_call_free(call, a, err)) != RP_OK) ||
        (status = rp_call_alloc(call, bytes, s, &c, err)) != RP_OK ||
        (late && (status = rp_call_free(call, a, err)) != RP_OK) ||
        (status = rpt_scale(f, s, c, b, 4, p->count, err)) != RP_OK ||
        (status = rpt_add(f, s, y, c, b, p->count, err)) != RP_OK)
        return status;
    return RP_OK;
}

static void later_frees_cost_memory_only(void **state)
{
    struct program p = {.f = *state, .count = 2000, .variant = 2};
    struct rp_graph_info info = {.size = sizeof info};
    check_replay(&p, frees_later, &info); /* late from the record on */
    assert_int_equal(info.diverged_blocks, 1);
    assert_int_equal(info.rehearsals, 1);
    p = (struct program){.f = *state, .count = 2000, .variant = 100};
    struct rp_graph_info followed = {.size = sizeof followed};
    check_replay(&p, frees_later, &followed);
    assert_int_equal(followed.diverged_blocks, 0);
    assert_int_equal(info.planned_bytes, followed.planned_bytes + 8192);
}

/* The first capture makes something that later ones find made. */
static rp_status lazy(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    if (p->calls == p->variant) {
        uint64_t extra;
        rp_status status = rp_call_alloc(call, 100, rp_call_stream(call), &extra, err);
        if (status == RP_OK)
            status = rpt_fill(p->f, rp_call_stream(call), extra, 1, 25, err);
        if (status != RP_OK)
            return status;
    }
    return chain(call, user, err);
}

static void lazy_work_is_rehearsed_again(void **state)
{
    struct program p = {.f = *state, .count = 2000, .variant = 1};
    struct rp_graph_info info = {.size = sizeof info};
    check_replay(&p, lazy, &info);
    assert_int_equal(info.rehearsals, 2);
    assert_int_equal(info.diverged_blocks, 0);
    assert_int_equal(info.nodes, 4);
}

/* Works where a block holds the first multiple of the variant, as libraries do with workspaces. */
static rp_status rounds_up(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    uint64_t x = rp_call_arg(call, 0), round = (uint64_t)p->variant, block;
    CUstream s = rp_call_stream(call);
    rp_status status = rp_call_alloc(call, p->count * sizeof(float) + round, s, &block, err);
    if (status != RP_OK)
        return status;
    uint64_t at = (block + round - 1) / round * round;
    status = rpt_scale(p->f, s, at, x, 2, p->count, err);
    return status == RP_OK ? rpt_add(p->f, s, rp_call_arg(call, 1), at, x, p->count, err) : status;
}

static void addresses_may_be_rounded(void **state)
{
    struct rp_graph_info info = {.size = sizeof info};
    for (int round = 256; round <= 2 << 20; round *= 8) {
        struct program p = {.f = *state, .count = 2000, .variant = round};
        check_replay(&p, rounds_up, &info);
        assert_int_equal(info.rehearsals, round == 256 ? 1 : 2);
        assert_int_equal(info.planned_bytes, info.lower_bound_bytes);
    }
}

/* Tells a kernel of a place behind a block, or behind an argument, that it does not use. */
static rp_status points_behind(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    CUstream s = rp_call_stream(call);
    uint64_t small, large;
    rp_status status = rp_call_alloc(call, 8, s, &small, err);
    if (status == RP_OK)
        status = rp_call_alloc(call, 40000, s, &large, err);
    if (status == RP_OK)
        status = rpt_fill(p->f, s, small, 1, 2, err);
    if (status == RP_OK)
        status = rpt_fill(p->f, s, large, 1, 10000, err);
    uint64_t from = p->variant ? rp_call_arg(call, 0) : small;
    if (status == RP_OK)
        status = rpt_fill(p->f, s, from + p->kept, 1, 0, err);
    return status == RP_OK ? chain(call, user, err) : status;
}

static void places_behind_blocks_are_let_alone(void **state)
{
    for (int variant = 0; variant < 2; variant++)
        for (uint64_t behind = 3000; behind < 4 * MIB; behind *= 7) {
            struct program p = {
                .f = *state, .count = 200, .variant = variant, .kept = behind & ~7ull};
            struct rp_graph_info info = {.size = sizeof info};
            check_replay(&p, points_behind, &info);
            assert_int_equal(info.rehearsals, 1);
        }
}

/* It may be used: who knows what is behind an argument? So that one is not bound. */
static void places_behind_arguments_hold_them(void **state)
{
    struct program p = {.f = *state, .count = 200, .variant = 1, .kept = 34304};
    struct rp_graph_arg_info info = {.size = sizeof info};
    struct rp_graph *graph = NULL;
    struct both b;
    both_init(&b, &p);
    RPT_OK(p.f, rp_graph_capture(p.f->pool, NULL, points_behind, &p, b.args, 2, &graph, &p.f->err));
    RPT_OK(p.f, rp_graph_arg_info(graph, 0, &info, &p.f->err));
    assert_false(info.bindable);
    RPT_OK(p.f, rp_graph_arg_info(graph, 1, &info, &p.f->err));
    assert_true(info.bindable);
    rp_graph_destroy(graph);
    both_finish(&b, &p);
}

/* Two places within one block, in turn. */
static rp_status places_in_turn(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    uint64_t block, round = 2ull << 20;
    rp_status status = rp_call_alloc(call, 3 * round, rp_call_stream(call), &block, err);
    if (status != RP_OK)
        return status;
    uint64_t at = block + (p->calls++ % 2 ? round : 0);
    return rpt_scale(p->f, rp_call_stream(call), at, rp_call_arg(call, 0), 2, p->count, err);
}

/* The record, and only it, allocates other sizes; its nodes are the same. */
static rp_status larger_blocks(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    uint64_t a;
    bool recording = p->calls == 2;
    rp_status status = rp_call_alloc(call, recording ? 90000 : 800, rp_call_stream(call), &a, err);
    return status == RP_OK ? chain(call, user, err) : status;
}

static void other_sizes_are_placed_online(void **state)
{
    struct program p = {.f = *state, .count = 200};
    struct rp_graph_info info = {.size = sizeof info};
    check_replay(&p, larger_blocks, &info);
    assert_true(info.diverged_blocks >= 1);
    assert_int_equal(info.rehearsals, 1);
}

static rp_status never_the_same(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    return rpt_fill(p->f, rp_call_stream(call), rp_call_arg(call, 1), (float)p->calls++, 4, err);
}

static rp_status more_each_time(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    p->calls++;
    for (int i = 0; i < p->calls; i++) {
        rp_status status = rpt_fill(p->f, rp_call_stream(call), rp_call_arg(call, 1), 1, 4, err);
        if (status != RP_OK)
            return status;
    }
    return RP_OK;
}

/* Writes to one of two blocks of a size, and to the other the next time. */
static rp_status takes_turns(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    CUstream s = rp_call_stream(call);
    uint64_t blocks[2];
    rp_status status = rp_call_alloc(call, 400, s, &blocks[0], err);
    if (status == RP_OK)
        status = rp_call_alloc(call, 400, s, &blocks[1], err);
    return status == RP_OK ? rpt_fill(p->f, s, blocks[p->calls++ % 2], 1, 100, err) : status;
}

/* The same three nodes and two edges, but the last node after another one the next time. */
static rp_status orders_differently(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    const struct rpt_fixture *f = p->f;
    CUstream s = rp_call_stream(call), t = f->streams[0];
    uint64_t y = rp_call_arg(call, 1);
    bool forked = p->calls++ % 2;
    rp_status status;
    if ((status = rpt_fill(f, s, y, 1, 4, err)) != RP_OK ||
        (forked && (status = rpt_join(f, s, t, err)) != RP_OK) ||
        (status = rpt_fill(f, s, y + 64, 1, 4, err)) != RP_OK ||
        (!forked && (status = rpt_join(f, s, t, err)) != RP_OK) ||
        (status = rpt_fill(f, t, y + 128, 1, 4, err)) != RP_OK)
        return status;
    return rpt_join(f, t, s, err);
}

/* A launch that is a cluster of another size each time. */
static rp_status clusters_differently(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    CUfunction cluster;
    uint64_t y = rp_call_arg(call, 1);
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    attribute.value.clusterDim.x = 1 + (unsigned)(p->calls++ % 2);
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
    CUlaunchConfig config = {2, 1, 1, 32, 1, 1, 0, rp_call_stream(call), &attribute, 1};
    void *params[] = {&y};
    CUresult result = p->f->driver->cuModuleGetFunction(&cluster, p->f->module, "rpt_cluster");
    if (result == CUDA_SUCCESS)
        result = p->f->driver->cuLaunchKernelEx(&config, cluster, params, NULL);
    return result == CUDA_SUCCESS ? RP_OK
                                  : rpi_error_driver(err, result, "cuLaunchKernelEx", "launching");
}

/* Events that work outside of the graph is ordered by. */
struct outside {
    struct rpt_fixture *f;
    CUevent before, after, other;
    bool turns; /* `after` and `other` change places with each call */
};

static rp_status keeps_to_events_outside(struct rp_call *call, void *user, struct rp_error *err)
{
    struct outside *o = user;
    const struct rp_driver *d = o->f->driver;
    CUstream s = rp_call_stream(call);
    CUevent after = o->after;
    if (o->turns) { /* in turn one and the other */
        o->after = o->other;
        o->other = after;
    }
    CUresult result = d->cuStreamWaitEvent(s, o->before, CU_EVENT_WAIT_EXTERNAL);
    rp_status status = rpt_scale(o->f, s, rp_call_arg(call, 1), rp_call_arg(call, 0), 2, 100, err);
    if (result == CUDA_SUCCESS)
        result = d->cuEventRecordWithFlags(after, s, CU_EVENT_RECORD_EXTERNAL);
    return result == CUDA_SUCCESS ? status
                                  : rpi_error_driver(err, result, "cuStreamWaitEvent", "waiting");
}

/* One stream writes what the graph reads, another reads what it writes; the host driver takes any
 * order that the events allow, and calls what they do not order a race. */
static void events_outside_order_replays(void **state)
{
    struct outside o = {.f = *state};
    struct rpt_fixture *f = o.f;
    const struct rp_driver *d = f->driver;
    uint64_t x = rpt_buffer(f, 100, 1), y = rpt_buffer(f, 100, 0), z = rpt_buffer(f, 100, 0);
    struct rp_arg args[] = {rpt_arg(x, 100, RP_ARG_IN), rpt_arg(y, 100, RP_ARG_OUT)};
    float seen[100];
    struct rp_graph *graph = NULL;
    assert_int_equal(d->cuEventCreate(&o.before, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    assert_int_equal(d->cuEventCreate(&o.after, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    assert_int_equal(d->cuEventCreate(&o.other, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    RPT_OK(f,
           rp_graph_capture(f->pool, NULL, keeps_to_events_outside, &o, args, 2, &graph, &f->err));
    for (int i = 0; i < 4; i++) {
        RPT_OK(f, rpt_fill(f, f->streams[1], x, (float)i, 100, &f->err));
        assert_int_equal(d->cuEventRecord(o.before, f->streams[1]), CUDA_SUCCESS);
        RPT_OK(f, rp_graph_replay(graph, args, 2, f->streams[0], &f->err));
        assert_int_equal(d->cuStreamWaitEvent(f->streams[2], o.after, 0), CUDA_SUCCESS);
        RPT_OK(f, rpt_scale(f, f->streams[2], z, y, 3, 100, &f->err));
        rpt_read(f, z, seen, 100);
        assert_float_equal(seen[99], 6.0f * (float)i, 0);
    }
    rp_graph_destroy(graph);
    o.turns = true;
    graph = NULL;
    assert_int_equal(
        rp_graph_capture(f->pool, NULL, keeps_to_events_outside, &o, args, 2, &graph, &f->err),
        RP_ERROR_DIVERGED);
    rpt_says(f, "node 2 (event record)");
    rpt_says(f, "it was another event");
    d->cuEventDestroy(o.before);
    d->cuEventDestroy(o.after);
    d->cuEventDestroy(o.other);
    d->cuMemFree(x);
    d->cuMemFree(y);
    d->cuMemFree(z);
}

static void different_graphs_are_refused(void **state)
{
    struct program p = {.f = *state, .count = 100};
    check_refused(&p, takes_turns, RP_ERROR_DIVERGED);
    assert_non_null(strstr(p.f->err.message, "was of block 0 (400 bytes)"));
    p.calls = 0;
    check_refused(&p, places_in_turn, RP_ERROR_DIVERGED);
    assert_non_null(strstr(p.f->err.message, "was 0x0 bytes into block 0 (6291456 bytes), and is "
                                             "0x200000 bytes into it now"));
    check_refused(&p, orders_differently, RP_ERROR_DIVERGED);
    assert_non_null(strstr(p.f->err.message, "edge from node 0 to node 2"));
    p.calls = 0;
    check_refused(&p, never_the_same, RP_ERROR_DIVERGED);
    assert_non_null(strstr(p.f->err.message, "node 0 (kernel rpt_fill)"));
    assert_int_equal(p.calls, 4); /* tried twice */
    check_refused(&p, clusters_differently, RP_ERROR_DIVERGED);
    assert_non_null(strstr(p.f->err.message, "its cluster size changed"));
    p.calls = 0;
    check_refused(&p, more_each_time, RP_ERROR_DIVERGED);
    assert_non_null(strstr(p.f->err.message, "3 nodes, the second 4"));
}

static rp_status keeps_an_address(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    rp_status status = RP_OK;
    if (!p->kept)
        status = rp_call_alloc(call, 400, rp_call_stream(call), &p->kept, err);
    if (status == RP_OK)
        status = rpt_fill(p->f, rp_call_stream(call), p->kept, 1, 100, err);
    return status;
}

/* Keeps an address of its eager run. */
static rp_status keeps_an_eager_address(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    if (p->calls++ == 0)
        return keeps_an_address(call, user, err);
    return rpt_fill(p->f, rp_call_stream(call), p->kept, 1, 100, err);
}

static void kept_eager_addresses_are_refused(void **state)
{
    struct program p = {.f = *state, .count = 100};
    RPT_OK(p.f, rp_run(p.f->pool, keeps_an_eager_address, &p, NULL, 0, NULL, &p.f->err));
    check_refused(&p, keeps_an_eager_address, RP_ERROR_CAPTURE);
    assert_non_null(strstr(p.f->err.message, "an earlier run"));
}

static void kept_addresses_are_refused(void **state)
{
    struct program p = {.f = *state, .count = 100};
    check_refused(&p, keeps_an_address, RP_ERROR_CAPTURE);
    assert_non_null(strstr(p.f->err.message, "node 0 (kernel rpt_fill)"));
    assert_non_null(strstr(p.f->err.message, "block 0 (400 bytes)"));
    check_refused(&p, keeps_an_address, RP_ERROR_CAPTURE); /* of an earlier rehearsal by now */
}

/* ---- Sites ----------------------------------------------------------------------------------*/

/* Padding that holds something else each time: bytes of its own, and the upper half of an address
 * near the argument, so that the word it stands in lies in the rehearsal's range but in no block.
 */
static rp_status leaves_rubbish(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    uint64_t y = rp_call_arg(call, 1);
    struct rpt_padded_param padded;
    memset(&padded, ++p->calls, sizeof padded);
    padded.tag = 3;
    padded.to = (uint32_t *)(uintptr_t)y;
    padded.index = 1;
    uint64_t near = y + ((uint64_t)p->calls << 16);
    memcpy((char *)&padded + 18, (const char *)&near + 2, 6);
    void *params[] = {&padded};
    CUresult result = p->f->driver->cuMemsetD8Async(y, 0, p->count * 4, rp_call_stream(call));
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuMemsetD8Async", "filling");
    return rpt_launch(p->f, p->f->padded, rp_call_stream(call), params, err);
}

static void rubbish_in_padding_is_no_site(void **state)
{
    struct program p = {.f = *state, .count = 100};
    struct rp_graph_info info = {.size = sizeof info};
    check_replay(&p, leaves_rubbish, &info);
    assert_int_equal(info.sites, 2);
    assert_int_equal(info.rehearsals, 1);
}

/* A small number beside what an earlier address left in the padding: the upper half of a stand-in.
 */
static rp_status leaves_half_an_address(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    uint64_t y = rp_call_arg(call, 1), half = y & 0xffffffff00000000u;
    struct rpt_padded_param padded;
    memset(&padded, 0, sizeof padded);
    memcpy((char *)&padded + offsetof(struct rpt_padded_param, index), &half, sizeof half);
    padded.tag = 3;
    padded.to = (uint32_t *)(uintptr_t)y;
    padded.index = 64;
    void *params[] = {&padded};
    CUresult result = p->f->driver->cuMemsetD8Async(y, 0, p->count * 4, rp_call_stream(call));
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuMemsetD8Async", "filling");
    return rpt_launch(p->f, p->f->padded, rp_call_stream(call), params, err);
}

static void half_an_address_in_padding_is_no_site(void **state)
{
    struct program p = {.f = *state, .count = 100};
    struct rp_graph_info info = {.size = sizeof info};
    check_replay(&p, leaves_half_an_address, &info);
    assert_int_equal(info.sites, 2);
    assert_int_equal(info.rehearsals, 1);
}

/* What the rehearsal left in the padding is an address of a block; in the record it is none. */
static rp_status leaves_an_address(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    uint64_t y = rp_call_arg(call, 1);
    bool rehearses = ++p->calls == 2;
    struct rpt_padded_param padded;
    memset(&padded, 0, sizeof padded);
    padded.tag = 3;
    padded.to = (uint32_t *)(uintptr_t)y;
    padded.index = 1;
    if (rehearses)
        memcpy((char *)&padded + offsetof(struct rpt_padded_param, index), &y, sizeof y);
    void *params[] = {&padded};
    CUresult result = p->f->driver->cuMemsetD8Async(y, 0, p->count * 4, rp_call_stream(call));
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuMemsetD8Async", "filling");
    return rpt_launch(p->f, p->f->padded, rp_call_stream(call), params, err);
}

static void an_address_left_in_padding_is_no_site(void **state)
{
    struct program p = {.f = *state, .count = 100};
    struct rp_graph_info info = {.size = sizeof info};
    check_replay(&p, leaves_an_address, &info);
    assert_int_equal(info.sites, 2);
    assert_int_equal(info.rehearsals, 1);
}

static void sites_tell_node_block_and_distance(void **state)
{
    struct rpt_fixture *f = *state;
    struct program p = {.f = f, .count = 100};
    struct both b;
    both_init(&b, &p);
    struct rp_graph *graph = NULL;
    RPT_OK(f, rp_graph_capture(f->pool, NULL, leaves_rubbish, &p, b.args, 2, &graph, &f->err));
    assert_int_equal(graph->sites.count, 2);
    const struct rpi_site *fill = &graph->sites.data[0], *padded = &graph->sites.data[1];
    assert_int_equal(fill->node, 0);
    assert_int_equal(fill->offset, offsetof(CUDA_MEMSET_NODE_PARAMS, dst));
    assert_int_equal(fill->block, 1);
    assert_int_equal(padded->node, 1);
    assert_int_equal(padded->offset, offsetof(struct rpt_padded_param, to));
    assert_int_equal(padded->block, 1);
    assert_int_equal(padded->delta, 0);
    assert_true(graph->sites.rubbish >= 1);
    rp_graph_destroy(graph);
    both_finish(&b, &p);
}

/* Pointers to a block's end and into its middle are the block's. */
static rp_status points_all_over(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    CUstream s = rp_call_stream(call);
    uint64_t a, b, y = rp_call_arg(call, 1);
    rp_status status = rp_call_alloc(call, 512, s, &a, err);
    if (status == RP_OK)
        status = rp_call_alloc(call, 512, s, &b, err);
    if (status == RP_OK)
        status = rpt_fill(p->f, s, a + 512, 1, 0, err); /* nothing, at the end */
    if (status == RP_OK)
        status = rpt_fill(p->f, s, b + 100, 1, 4, err);
    return status == RP_OK ? rpt_fill(p->f, s, y, 4, p->count, err) : status;
}

static void ends_of_blocks_are_theirs(void **state)
{
    struct rpt_fixture *f = *state;
    struct program p = {.f = f, .count = 100};
    struct both b;
    both_init(&b, &p);
    struct rp_graph *graph = NULL;
    RPT_OK(f, rp_graph_capture(f->pool, NULL, points_all_over, &p, b.args, 2, &graph, &f->err));
    assert_int_equal(graph->sites.count, 3);
    assert_int_equal(graph->sites.data[0].block, 2);
    assert_int_equal(graph->sites.data[0].delta, 512);
    assert_int_equal(graph->sites.data[1].block, 3);
    assert_int_equal(graph->sites.data[1].delta, 100);
    rp_graph_destroy(graph);
    both_finish(&b, &p);
}

/* A parameter with a pointer where no compiler would align one. */
struct tight {
    uint32_t value;
    uint32_t *to;
    uint64_t rest;
} __attribute__((packed));

static void run_tight(const struct rp_host_launch *launch)
{
    struct tight param;
    memcpy(&param, launch->params[0], sizeof param);
    *param.to = param.value;
}

static const struct rp_host_param tight_param = {0, sizeof(struct tight)};
static const struct rp_host_kernel tight_kernel = {
    .name = "tight", .run = run_tight, .params = &tight_param, .param_count = 1};
static const struct rp_host_image tight_image = {
    .magic = RP_HOST_IMAGE_MAGIC, .kernel_count = 1, .kernels = &tight_kernel};

static rp_status launches_tight(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    CUfunction function;
    struct tight tight = {77, (uint32_t *)(uintptr_t)rp_call_arg(call, 1), 5};
    void *params[] = {&tight};
    CUmodule module = (CUmodule)(uintptr_t)p->kept;
    if (p->f->driver->cuModuleGetFunction(&function, module, "tight") != CUDA_SUCCESS)
        return rpi_error(err, RP_ERROR_DRIVER, "tight", "no kernel");
    return rpt_launch(p->f, function, rp_call_stream(call), params, err);
}

static void pointers_at_multiples_of_four_are_sites(void **state)
{
    struct rpt_fixture *f = *state;
    struct program p = {.f = f, .count = 1};
    CUmodule module = NULL;
    assert_int_equal(f->driver->cuModuleLoadData(&module, &tight_image), 0);
    p.kept = (uint64_t)(uintptr_t)module;
    struct rp_graph_info info = {.size = sizeof info};
    check_replay(&p, launches_tight, &info);
    assert_int_equal(info.sites, 1);
    f->driver->cuModuleUnload(module);
}

static void drivers_without_parameter_sizes_take_packed_ones(void **state)
{
    struct rpt_fixture *f = *state, plain = *f;
    struct rp_driver limited = *f->driver;
    limited.capabilities = 0;
    limited.cuFuncGetParamInfo = NULL;
    limited.cuFuncGetName = NULL;
    struct program p = {.f = &plain, .count = 1000};
    RPT_OK(f, rpi_device_open_on(&limited, 0, &plain.device, &f->err));
    RPT_OK(f, rp_pool_create(plain.device, NULL, &plain.pool, &f->err));
    struct rp_graph_info info = {.size = sizeof info};
    check_refused(&p, chain, RP_ERROR_UNSUPPORTED);
    assert_non_null(strstr(plain.err.message, "CUDA 12.4"));
    p.variant = 1;
    check_replay(&p, many_kinds, &info);
    assert_int_equal(info.sites, 1 + 2 + 1 + 3 + 1);
    rp_pool_destroy(plain.pool);
    rp_device_destroy(plain.device);
}

/* A kernel that may start before the one before it has ended, and one launched as a cluster. */
static rp_status launches_programmatically(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    const struct rp_driver *d = p->f->driver;
    CUstream s = rp_call_stream(call);
    CUfunction first, second, cluster;
    CUresult result = d->cuModuleGetFunction(&first, p->f->module, "rpt_pdl_first");
    if (result == CUDA_SUCCESS)
        result = d->cuModuleGetFunction(&second, p->f->module, "rpt_pdl_second");
    if (result == CUDA_SUCCESS)
        result = d->cuModuleGetFunction(&cluster, p->f->module, "rpt_cluster");
    uint64_t a, shape, y = rp_call_arg(call, 1), nanoseconds = 1000;
    float value = 21;
    uint32_t count = p->count;
    rp_status status = rp_call_alloc(call, count * sizeof(float), s, &a, err);
    if (status == RP_OK)
        status = rp_call_alloc(call, 12, s, &shape, err);
    if (status != RP_OK)
        return status;
    CUlaunchAttribute attributes[1] = {{.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION}};
    attributes[0].value.clusterDim.x = 2;
    attributes[0].value.clusterDim.y = attributes[0].value.clusterDim.z = 1;
    CUlaunchConfig config = {2, 1, 1, 32, 1, 1, 0, s, attributes, 1};
    void *shape_params[] = {&shape};
    if (result == CUDA_SUCCESS)
        result = d->cuLaunchKernelEx(&config, cluster, shape_params, NULL);
    void *first_params[] = {&a, &value, &count, &nanoseconds};
    if (result == CUDA_SUCCESS)
        result = d->cuLaunchKernel(first, 1, 1, 1, 32, 1, 1, 0, s, first_params, NULL);
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    memset(&attributes[0].value, 0, sizeof attributes[0].value);
    attributes[0].value.programmaticStreamSerializationAllowed = 1;
    void *second_params[] = {&y, &a, &count};
    if (result == CUDA_SUCCESS)
        result = d->cuLaunchKernelEx(&config, second, second_params, NULL);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuLaunchKernelEx", "launching");
    return rp_call_free(call, a, err);
}

static void programmatic_edges_and_clusters_replay(void **state)
{
    struct program p = {.f = *state, .count = 500};
    struct rp_graph_info info = {.size = sizeof info};
    check_replay(&p, launches_programmatically, &info);
    assert_int_equal(info.nodes, 3);
    assert_int_equal(info.edges, 2);
    assert_int_equal(info.sites, 4);
}

/* ---- Streams that take no part --------------------------------------------------------------*/

static rp_status uses_elsewhere(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    CUstream s = rp_call_stream(call);
    uint64_t a, b;
    rp_status status = rp_call_alloc(call, 4096, s, &a, err);
    if (status == RP_OK)
        status = rpt_fill(p->f, s, a, 1, 1024, err);
    if (status == RP_OK && p->variant)
        status = rp_call_use(call, a, p->variant == 1 ? p->f->streams[2] : NULL, err);
    if (status == RP_OK)
        status = rp_call_free(call, a, err);
    if (status == RP_OK)
        status = rp_call_alloc(call, 4096, s, &b, err);
    if (status == RP_OK)
        status = rpt_fill(p->f, s, b, 2, 1024, err);
    return status == RP_OK ? rpt_fill(p->f, s, rp_call_arg(call, 1), 4, p->count, err) : status;
}

static void blocks_used_elsewhere_are_not_shared(void **state)
{
    struct rp_graph_info info = {.size = sizeof info};
    for (int variant = 0; variant < 3; variant++) {
        struct program p = {.f = *state, .count = 1024, .variant = variant};
        check_replay(&p, uses_elsewhere, &info);
        assert_int_equal(info.planned_bytes, variant ? 2 * 4096 : 4096);
        assert_int_equal(info.diverged_blocks, 0);
    }
}

/* ---- Dependencies set by hand ---------------------------------------------------------------*/

/* What the stream comes after from now on: nothing, or one node more. */
static CUresult set_order(const struct program *p, CUstream s, CUgraphNode node, unsigned how)
{
    CUgraphEdgeData edge = {0};
    return p->f->driver->cuStreamUpdateCaptureDependencies(s, &node, &edge, node != NULL, how);
}

static CUgraphNode last_node(const struct program *p, CUstream s)
{
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id;
    CUgraph graph;
    const CUgraphNode *nodes = NULL;
    const CUgraphEdgeData *edges = NULL;
    size_t count = 0;
    CUresult result =
        p->f->driver->cuStreamGetCaptureInfo(s, &state, &id, &graph, &nodes, &edges, &count);
    return result == CUDA_SUCCESS && state == CU_STREAM_CAPTURE_STATUS_ACTIVE && count ? nodes[0]
                                                                                       : NULL;
}

/* The stream forgets that it wrote the first block, so the second one may not lie over it. */
static rp_status forgets(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    CUstream s = rp_call_stream(call);
    uint64_t a, b, x = rp_call_arg(call, 0), y = rp_call_arg(call, 1);
    size_t bytes = p->count * sizeof(float);
    rp_status status;
    if ((status = rp_call_alloc(call, bytes, s, &a, err)) != RP_OK ||
        (status = rpt_scale(p->f, s, a, x, 2, p->count, err)) != RP_OK ||
        (status = rpt_add(p->f, s, y, a, x, p->count, err)) != RP_OK ||
        (status = rp_call_free(call, a, err)) != RP_OK)
        return status;
    CUgraphNode reader = last_node(p, s);
    if (reader && set_order(p, s, NULL, CU_STREAM_SET_CAPTURE_DEPENDENCIES) != CUDA_SUCCESS)
        return rpi_error(err, RP_ERROR_DRIVER, "forgets", "setting the order");
    if ((status = rp_call_alloc(call, bytes, s, &b, err)) != RP_OK ||
        (status = rpt_scale(p->f, s, b, x, 9, p->count, err)) != RP_OK)
        return status;
    if (reader && set_order(p, s, reader, CU_STREAM_ADD_CAPTURE_DEPENDENCIES) != CUDA_SUCCESS)
        return rpi_error(err, RP_ERROR_DRIVER, "forgets", "setting the order");
    if ((status = rpt_add(p->f, s, y, y, b, p->count, err)) != RP_OK)
        return status;
    return rp_call_free(call, b, err);
}

/* b lies over a. Then the stream forgets that a was, and writes b's last node: c comes after b's
 * end, but not after a's reader. */
static rp_status forgets_twice(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    CUstream s = rp_call_stream(call);
    uint64_t a, b, c, x = rp_call_arg(call, 0), y = rp_call_arg(call, 1);
    size_t bytes = p->count * sizeof(float);
    rp_status status;
    if ((status = rp_call_alloc(call, bytes, s, &a, err)) != RP_OK ||
        (status = rpt_scale(p->f, s, a, x, 2, p->count, err)) != RP_OK ||
        (status = rpt_add(p->f, s, y, a, x, p->count, err)) != RP_OK ||
        (status = rp_call_free(call, a, err)) != RP_OK ||
        (status = rp_call_alloc(call, bytes, s, &b, err)) != RP_OK)
        return status;
    CUgraphNode reader = last_node(p, s);
    if (reader && set_order(p, s, NULL, CU_STREAM_SET_CAPTURE_DEPENDENCIES) != CUDA_SUCCESS)
        return rpi_error(err, RP_ERROR_DRIVER, "forgets_twice", "setting the order");
    if ((status = rpt_launch(p->f, p->f->nothing, s, NULL, err)) != RP_OK ||
        (status = rp_call_free(call, b, err)) != RP_OK ||
        (status = rp_call_alloc(call, bytes, s, &c, err)) != RP_OK ||
        (status = rpt_scale(p->f, s, c, x, 9, p->count, err)) != RP_OK)
        return status;
    if (reader && set_order(p, s, reader, CU_STREAM_ADD_CAPTURE_DEPENDENCIES) != CUDA_SUCCESS)
        return rpi_error(err, RP_ERROR_DRIVER, "forgets_twice", "setting the order");
    if ((status = rpt_add(p->f, s, y, y, c, p->count, err)) != RP_OK)
        return status;
    return rp_call_free(call, c, err);
}

static void forgotten_work_keeps_its_memory(void **state)
{
    struct program p = {.f = *state, .count = 1024};
    struct rp_graph_info info = {.size = sizeof info};
    check_replay(&p, forgets, &info);
    assert_int_equal(info.planned_bytes, 2 * 4096);
    assert_int_equal(info.edges, 3);
    check_replay(&p, forgets_twice, &info);
    assert_int_equal(info.planned_bytes, 2 * 4096);
    assert_int_equal(info.diverged_blocks, 0);
}

/* ---- What goes wrong in a capture -----------------------------------------------------------*/

static rp_status gives_up(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    rp_status status = chain(call, user, err);
    if (status == RP_OK && p->calls > p->variant)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "gives_up", "nothing left to add");
    return status;
}

static void callable_errors_come_through(void **state)
{
    for (int calls = 0; calls < 2; calls++) { /* in the rehearsal, in the record */
        struct program p = {.f = *state, .count = 100, .variant = calls};
        check_refused(&p, gives_up, RP_ERROR_CALLABLE);
        assert_non_null(strstr(p.f->err.message, "nothing left to add"));
        assert_non_null(strstr(p.f->err.message, calls ? "recording" : "rehearsing"));
    }
    struct program p = {.f = *state, .count = 100};
    struct both b;
    both_init(&b, &p);
    assert_int_equal(rp_run(p.f->pool, gives_up, &p, b.args, 2, NULL, &p.f->err),
                     RP_ERROR_CALLABLE);
    both_finish(&b, &p);
}

static rp_status leaves_a_stream(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    rp_status status = rpt_join(p->f, rp_call_stream(call), p->f->streams[0], err);
    if (status == RP_OK)
        status = rpt_fill(p->f, p->f->streams[0], rp_call_arg(call, 1), 1, 10, err);
    return status;
}

static rp_status allocates_in_the_driver(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    CUdeviceptr address;
    CUresult result = p->f->driver->cuMemAlloc(&address, 100);
    if (result == CUDA_SUCCESS)
        p->f->driver->cuMemFree(address);
    if (p->variant == 0)
        return RP_OK; /* as if nothing had happened */
    uint64_t a;
    return rp_call_alloc(call, 100, rp_call_stream(call), &a, err);
}

/* Ends the capture that it runs in, and begins another. */
static rp_status swaps_the_capture(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    const struct rp_driver *d = p->f->driver;
    CUstream s = rp_call_stream(call);
    CUgraph graph = NULL;
    rp_status status = rpt_fill(p->f, s, rp_call_arg(call, 1), 1, p->count, err);
    if (status == RP_OK && d->cuStreamEndCapture(s, &graph) == CUDA_SUCCESS)
        d->cuGraphDestroy(graph);
    if (status == RP_OK && p->variant == 1)
        d->cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    return status;
}

static void captures_that_the_callable_ends_are_refused(void **state)
{
    struct program p = {.f = *state, .count = 100};
    for (p.variant = 0; p.variant < 2; p.variant++) {
        check_refused(&p, swaps_the_capture, RP_ERROR_CAPTURE);
        assert_non_null(strstr(p.f->err.message, "the callable ended the capture"));
    }
    check_replay(&p, chain, NULL);
}

static void broken_captures_say_why(void **state)
{
    struct program p = {.f = *state, .count = 100};
    check_refused(&p, leaves_a_stream, RP_ERROR_CAPTURE);
    assert_int_equal(p.f->err.driver_code, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    assert_string_equal(p.f->err.driver_name, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED");
    assert_non_null(strstr(p.f->err.message, rpi_result_meaning(904)));
    assert_non_null(strstr(p.f->err.message, "rehearsing 'graph'"));
    for (p.variant = 0; p.variant < 2; p.variant++) {
        check_refused(&p, allocates_in_the_driver, RP_ERROR_CAPTURE);
        assert_int_equal(p.f->err.driver_code, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    check_replay(&p, chain, NULL); /* and the pool is as good as before */
}

static rp_status frees_wrongly(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    uint64_t a;
    rp_status status = rp_call_alloc(call, 64, rp_call_stream(call), &a, err);
    if (status == RP_OK)
        status = rp_call_free(call, a, err);
    if (status == RP_OK)
        status = rpt_fill(p->f, rp_call_stream(call), rp_call_arg(call, 1), 5, p->count, err);
    if (status != RP_OK)
        return status;
    struct rp_error own;
    assert_int_equal(rp_call_free(call, a, &own), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_call_use(call, a, rp_call_stream(call), NULL), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_call_free(call, rp_call_arg(call, 0), &own), RP_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(own.message, "not the address of a block"));
    return p->variant ? rp_call_free(call, a, err) : RP_OK;
}

static void wrong_frees_are_the_callables_errors(void **state)
{
    struct program p = {.f = *state, .count = 100};
    check_replay(&p, frees_wrongly, NULL); /* told, and ignored: nothing is broken */
    p.variant = 1;
    check_refused(&p, frees_wrongly, RP_ERROR_INVALID_ARGUMENT);
}

static rp_status captures_inside(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    struct rp_graph *graph;
    if (p->variant)
        return rp_run(p->f->pool, chain, p, NULL, 0, rp_call_stream(call), err);
    return rp_graph_capture(p->f->pool, NULL, chain, p, NULL, 0, &graph, err);
}

static void captures_do_not_nest(void **state)
{
    struct program p = {.f = *state, .count = 100};
    check_refused(&p, captures_inside, RP_ERROR_CALLABLE);
    assert_non_null(strstr(p.f->err.message, "call the inner callable directly"));
    p.variant = 1;
    check_refused(&p, captures_inside, RP_ERROR_CALLABLE);
    assert_non_null(strstr(p.f->err.message, "capturing"));
}

static void limits_are_kept(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    options.limit_bytes = 4 * MIB;
    options.name = "small";
    struct rpt_fixture limited = *f;
    RPT_OK(f, rp_pool_create(f->device, &options, &limited.pool, &f->err));
    struct program p = {.f = &limited, .count = 600000}; /* twice 2.4 MB */
    check_refused(&p, chain, RP_ERROR_LIMIT);
    assert_int_equal(limited.err.requested, 6 * MIB);
    assert_int_equal(limited.err.available, 4 * MIB);
    p.count = 400000;
    check_replay(&p, chain, NULL);
    rp_pool_destroy(limited.pool);
}

static void too_little_device_memory_is_said(void **state)
{
    struct rpt_fixture *f = *state;
    struct rpi_host_options options, before;
    struct program p = {.f = f, .count = 3 * 1048576}; /* twice 12 MiB */
    struct both b;
    rpi_host_options(&before);
    options = before;
    struct rpi_host_statistics held;
    both_init(&b, &p);
    rpi_host_statistics(&held);
    options.total_bytes = held.physical_bytes + 20 * MIB;
    rpi_host_configure(&options);
    struct rp_graph *graph = NULL;
    assert_int_equal(rp_graph_capture(f->pool, NULL, chain, &p, b.args, 2, &graph, &f->err),
                     RP_ERROR_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(f->err.requested, 24 * MIB);
    assert_true(f->err.available < 24 * MIB);
    assert_int_equal(f->err.driver_code, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(rp_run(f->pool, chain, &p, b.args, 2, NULL, &f->err),
                     RP_ERROR_OUT_OF_DEVICE_MEMORY);
    rpi_host_configure(&before);
    struct rp_pool_info info = {.size = sizeof info};
    rp_pool_info(f->pool, &info);
    assert_int_equal(info.mapped_bytes, 0);
    both_finish(&b, &p);
    check_replay(&p, chain, NULL);
}

/* ---- Replays --------------------------------------------------------------------------------*/

static void contract_is_checked(void **state)
{
    struct rpt_fixture *f = *state;
    struct program p = {.f = f, .count = 100};
    struct both b;
    both_init(&b, &p);
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    options.name = "decode";
    struct rp_graph *graph = NULL;
    RPT_OK(f, rp_graph_capture(f->pool, &options, chain, &p, b.args, 2, &graph, &f->err));
    struct rp_arg args[2];
    const struct {
        int arg;
        uint64_t bytes;
        enum rp_arg_role role;
        bool no_address;
        const char *says[2];
    } breaches[] = {{0, 404, RP_ARG_IN, false, {"400 bytes", "404"}},
                    {1, 400, RP_ARG_INOUT, false, {"'out'", "'inout'"}},
                    {1, 400, RP_ARG_OUT, true, {"argument 1", "no address"}}};
    for (size_t i = 0; i < sizeof breaches / sizeof *breaches; i++) {
        memcpy(args, b.args, sizeof args);
        struct rp_arg *arg = &args[breaches[i].arg];
        *arg = (struct rp_arg){.address = breaches[i].no_address ? 0 : arg->address,
                               .bytes = breaches[i].bytes,
                               .role = breaches[i].role};
        assert_int_equal(rp_graph_replay(graph, args, 2, NULL, &f->err), RP_ERROR_CONTRACT);
        assert_non_null(strstr(f->err.message, "decode"));
        assert_non_null(strstr(f->err.message, breaches[i].says[0]));
        assert_non_null(strstr(f->err.message, breaches[i].says[1]));
    }
    assert_int_equal(rp_graph_replay(graph, b.args, 1, NULL, &f->err), RP_ERROR_CONTRACT);
    assert_int_equal(rp_graph_replay(graph, NULL, 2, NULL, &f->err), RP_ERROR_CONTRACT);
    assert_int_equal(rp_graph_replay(NULL, b.args, 2, NULL, &f->err), RP_ERROR_INVALID_ARGUMENT);
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(graph, &info);
    assert_int_equal(info.replays, 0);
    rp_graph_destroy(graph);
    both_finish(&b, &p);
}

static CUresult fails_to_launch(CUgraphExec exec, CUstream stream)
{
    (void)exec;
    (void)stream;
    return CUDA_ERROR_LAUNCH_FAILED;
}

static void replays_that_fail_are_not_counted(void **state)
{
    struct rpt_fixture *f = *state, failing = *f;
    struct rp_driver driver = *f->driver;
    struct program p = {.f = f, .count = 100};
    struct rp_graph *graph = NULL;
    struct rp_graph_info info = {.size = sizeof info};
    struct both b;
    both_init(&b, &p);
    driver.cuGraphLaunch = fails_to_launch;
    RPT_OK(f, rpi_device_open_on(&driver, 0, &failing.device, &f->err));
    RPT_OK(f, rp_pool_create(failing.device, NULL, &failing.pool, &f->err));
    RPT_OK(f, rp_graph_capture(failing.pool, NULL, chain, &p, b.args, 2, &graph, &f->err));
    assert_int_equal(rp_graph_replay(graph, b.args, 2, f->streams[0], &f->err), RP_ERROR_DRIVER);
    assert_string_equal(f->err.driver_name, "CUDA_ERROR_LAUNCH_FAILED");
    rp_graph_info(graph, &info);
    assert_int_equal(info.replays, 0);
    rp_graph_destroy(graph);
    rp_pool_destroy(failing.pool);
    rp_device_destroy(failing.device);
    both_finish(&b, &p);
}

static void replays_do_not_go_into_captures(void **state)
{
    struct rpt_fixture *f = *state;
    struct program p = {.f = f, .count = 100};
    struct both b;
    both_init(&b, &p);
    struct rp_graph *graph = NULL;
    RPT_OK(f, rp_graph_capture(f->pool, NULL, chain, &p, b.args, 2, &graph, &f->err));
    CUgraph captured = NULL;
    assert_int_equal(f->driver->cuStreamBeginCapture(f->streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL),
                     0);
    assert_int_equal(rp_graph_replay(graph, b.args, 2, f->streams[0], &f->err),
                     RP_ERROR_UNSUPPORTED);
    assert_int_equal(rp_run(f->pool, chain, &p, b.args, 2, f->streams[0], &f->err),
                     RP_ERROR_INVALID_ARGUMENT);
    /* Another capture leaves a global one alone. */
    struct rp_graph *second = NULL;
    RPT_OK(f, rp_graph_capture(f->pool, NULL, chain, &p, b.args, 2, &second, &f->err));
    rp_graph_destroy(second);
    assert_int_equal(f->driver->cuStreamEndCapture(f->streams[0], &captured), 0);
    f->driver->cuGraphDestroy(captured);
    RPT_OK(f, rp_graph_replay(graph, b.args, 2, f->streams[0], &f->err));
    rp_graph_destroy(graph);
    both_finish(&b, &p);
}

/* Launches the graph, or makes it a child of the graph that the stream is captured into: a launch
 * cannot be captured. */
static CUresult launch_or_add(const struct rpt_fixture *f, CUgraph graph, CUstream stream)
{
    CUgraphExec exec = NULL;
    if (rpt_is_capturing(f, stream))
        return rpt_add_child(f, stream, graph);
    CUresult result = f->driver->cuGraphInstantiateWithFlags(&exec, graph, 0);
    if (result == CUDA_SUCCESS)
        result = f->driver->cuGraphLaunch(exec, stream);
    if (exec)
        f->driver->cuGraphExecDestroy(exec);
    return result;
}

/* A graph of the callable's own becomes a child graph node. */
static rp_status launches_a_graph(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    const struct rp_driver *d = p->f->driver;
    CUgraph graph = NULL;
    CUgraphNode node = NULL;
    uint64_t to = rp_call_arg(call, 1), from = rp_call_arg(call, 0);
    uint32_t count = p->count;
    void *params[] = {&to, &from, &count};
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = p->f->copy,
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 32,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = params};
    CUresult result = d->cuGraphCreate(&graph, 0);
    if (result == CUDA_SUCCESS)
        result = d->cuGraphAddKernelNode(&node, graph, NULL, 0, &kernel);
    if (result == CUDA_SUCCESS)
        result = launch_or_add(p->f, graph, rp_call_stream(call));
    if (graph)
        d->cuGraphDestroy(graph);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphLaunch", "launching a graph");
    return rpt_scale(p->f, rp_call_stream(call), to, to, 3, p->count, err);
}

static void child_graphs_are_compared_and_replayed(void **state)
{
    struct program p = {.f = *state, .count = 1000};
    struct rp_graph_info info = {.size = sizeof info};
    check_replay(&p, launches_a_graph, &info);
    assert_int_equal(info.nodes, 2);
    assert_int_equal(info.sites, 4); /* two in the child */
}

/* ---- Threads --------------------------------------------------------------------------------*/

/* Asserts belong to the test's own thread: others report. */
struct capturing {
    struct rpt_fixture f;
    const char *wrong;
};

static const char *capture_and_replay(struct program *p, struct both *b)
{
    struct rpt_fixture *f = p->f;
    struct rp_graph *graph = NULL;
    if (rp_run(f->pool, chain, p, b->args, 2, f->streams[0], &f->err) != RP_OK)
        return "run";
    if (rp_graph_capture(f->pool, NULL, chain, p, b->args, 2, &graph, &f->err) != RP_OK)
        return "capture";
    rp_status status = rp_graph_replay(graph, b->args, 2, f->streams[1], &f->err);
    f->driver->cuStreamSynchronize(f->streams[1]);
    f->driver->cuMemcpyDtoH(b->replayed, b->out, p->count * sizeof(float));
    rp_graph_destroy(graph);
    if (status != RP_OK)
        return "replay";
    for (uint32_t k = 0; k < p->count; k++)
        if (b->replayed[k] != 10.0f * (1.0f + (float)(k % 7)))
            return "output";
    return NULL;
}

static void *capture_in_a_thread(void *user)
{
    struct capturing *job = user;
    job->wrong = "push";
    if (rp_device_push(job->f.device, NULL) != RP_OK)
        return NULL;
    job->wrong = NULL;
    for (uint32_t i = 0; i < 20 && !job->wrong; i++) {
        struct program p = {.f = &job->f, .count = 1000 + 100 * i};
        struct both b;
        both_init(&b, &p);
        job->wrong = capture_and_replay(&p, &b);
        both_finish(&b, &p);
    }
    rp_device_pop(job->f.device);
    return NULL;
}

static void capture_in_two_threads(struct rpt_fixture *f, bool one_pool)
{
    struct capturing jobs[2] = {{*f, NULL}, {*f, NULL}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        struct rpt_fixture *own = &jobs[i].f;
        if (!one_pool)
            RPT_OK(f, rp_pool_create(f->device, NULL, &own->pool, &f->err));
        for (int s = 0; s < RPT_STREAMS; s++)
            assert_int_equal(f->driver->cuStreamCreate(&own->streams[s], CU_STREAM_NON_BLOCKING),
                             0);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, capture_in_a_thread, &jobs[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        if (jobs[i].wrong)
            print_error("%s: %s\n", jobs[i].wrong, jobs[i].f.err.message);
        assert_null(jobs[i].wrong);
        if (!one_pool)
            rp_pool_destroy(jobs[i].f.pool);
        for (int s = 0; s < RPT_STREAMS; s++)
            f->driver->cuStreamDestroy(jobs[i].f.streams[s]);
    }
}

static void threads_capture_side_by_side(void **state)
{
    capture_in_two_threads(*state, false);
    capture_in_two_threads(*state, true);
}

struct replaying {
    struct rpt_fixture *f;
    struct rp_graph *graph;
    CUstream stream;
    uint32_t count;
    bool wrong;
};

static void *replay_in_a_thread(void *user)
{
    struct replaying *r = user;
    struct program p = {.f = r->f, .count = r->count};
    struct both b;
    if (rp_device_push(r->f->device, NULL) != RP_OK)
        return NULL;
    both_init(&b, &p);
    for (int i = 0; i < 50; i++)
        r->wrong |= rp_graph_replay(r->graph, b.args, 2, r->stream, NULL) != RP_OK;
    r->f->driver->cuStreamSynchronize(r->stream);
    r->f->driver->cuMemcpyDtoH(b.replayed, b.out, r->count * sizeof(float));
    for (uint32_t k = 0; k < r->count; k++)
        r->wrong |= b.replayed[k] != 10.0f * (1.0f + (float)(k % 7));
    both_finish(&b, &p);
    rp_device_pop(r->f->device);
    return NULL;
}

static void threads_replay_one_pool_in_turn(void **state)
{
    struct rpt_fixture *f = *state;
    struct program p = {.f = f, .count = 4000};
    struct both b;
    struct rp_graph *graphs[2];
    struct replaying jobs[4];
    pthread_t threads[4];
    for (int i = 0; i < 2; i++) {
        p.count = i ? 1500 : 4000;
        both_init(&b, &p);
        RPT_OK(f, rp_graph_capture(f->pool, NULL, chain, &p, b.args, 2, &graphs[i], &f->err));
        both_finish(&b, &p);
    }
    for (int i = 0; i < 4; i++) {
        jobs[i] = (struct replaying){f, graphs[i % 2], f->streams[i], i % 2 ? 1500 : 4000, false};
        assert_int_equal(pthread_create(&threads[i], NULL, replay_in_a_thread, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_false(jobs[i].wrong);
    }
    rp_graph_destroy(graphs[0]);
    rp_graph_destroy(graphs[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RPT_TEST(chain_replays_what_it_computes),
        RPT_TEST(forks_and_joins_replay),
        RPT_TEST(all_kinds_of_nodes_replay),
        RPT_TEST(alternatives_share_one_pool),
        RPT_TEST(layouts_lie_behind_their_lead),
        RPT_TEST(leads_without_memory_are_refused),
        RPT_TEST(inout_arguments_are_copied_back),
        RPT_TEST(threads_without_a_context_take_blocks),
        RPT_TEST(empty_work_and_empty_blocks),
        RPT_TEST(rehearsals_take_one_chunk),
        RPT_TEST(what_rehearsals_keep_is_given_back),
        RPT_TEST(later_frees_cost_memory_only),
        RPT_TEST(lazy_work_is_rehearsed_again),
        RPT_TEST(addresses_may_be_rounded),
        RPT_TEST(places_behind_blocks_are_let_alone),
        RPT_TEST(places_behind_arguments_hold_them),
        RPT_TEST(other_sizes_are_placed_online),
        RPT_TEST(different_graphs_are_refused),
        RPT_TEST(events_outside_order_replays),
        RPT_TEST(kept_addresses_are_refused),
        RPT_TEST(kept_eager_addresses_are_refused),
        RPT_TEST(rubbish_in_padding_is_no_site),
        RPT_TEST(an_address_left_in_padding_is_no_site),
        RPT_TEST(half_an_address_in_padding_is_no_site),
        RPT_TEST(sites_tell_node_block_and_distance),
        RPT_TEST(ends_of_blocks_are_theirs),
        RPT_TEST(pointers_at_multiples_of_four_are_sites),
        RPT_TEST(drivers_without_parameter_sizes_take_packed_ones),
        RPT_TEST(programmatic_edges_and_clusters_replay),
        RPT_TEST(blocks_used_elsewhere_are_not_shared),
        RPT_TEST(forgotten_work_keeps_its_memory),
        RPT_TEST(callable_errors_come_through),
        RPT_TEST(broken_captures_say_why),
        RPT_TEST(captures_that_the_callable_ends_are_refused),
        RPT_TEST(wrong_frees_are_the_callables_errors),
        RPT_TEST(captures_do_not_nest),
        RPT_TEST(limits_are_kept),
        RPT_TEST(too_little_device_memory_is_said),
        RPT_TEST(contract_is_checked),
        RPT_TEST(replays_do_not_go_into_captures),
        RPT_TEST(replays_that_fail_are_not_counted),
        RPT_TEST(child_graphs_are_compared_and_replayed),
        RPT_TEST(threads_capture_side_by_side),
        RPT_TEST(threads_replay_one_pool_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
