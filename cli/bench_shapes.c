/* SPDX-License-Identifier: MIT */
#define RP_UNSTABLE /* rp_device_exec_reset */
#include "bench_shapes.h"

#include "bench_time.h"
#include "decoder.h"
#include "output.h"
#include "reprise_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB       ((uint64_t)1 << 20)
#define HOLDS_ALL ((uint64_t)1 << 40)

const char *const bench_way_names[BENCH_WAYS] = {"one_each", "always_update", "holds_all", "small",
                                                 "one_exec"};

/* A device under one budget, with the decoder and its graphs. */
struct session {
    struct rp_device *device;
    struct gpu gpu;
    struct decoder *decoder;
    struct rp_pool *pool;
    struct CUstream_st *stream;
    struct CUevent_st *start, *end;
    uint64_t arguments;
    bool pushed;
    size_t shapes;
    struct decoder_batch *batches; /* [shapes], of 1 to shapes rows */
    struct rp_graph **graphs;
};

/* ---- Sessions ------------------------------------------------------------------------------ */

static struct decoder_shape decoder_for(const struct rp_device_info *info, size_t shapes)
{
    struct decoder_shape shape = {.layers = 2,
                                  .hidden = 128,
                                  .heads = 4,
                                  .cached_heads = 2,
                                  .dim = 32,
                                  .inner = 256,
                                  .vocab = 256,
                                  .context = 64,
                                  .rows = (uint32_t)shapes};
    if (!strcmp(info->driver, "host")) { /* a CPU takes its time */
        shape.layers = 1;
        shape.hidden = shape.inner = shape.vocab = 32;
        shape.heads = shape.cached_heads = 2;
        shape.dim = shape.context = 16;
    }
    return shape;
}

static void session_close(struct session *s)
{
    if (s->stream)
        s->gpu.cuStreamSynchronize(s->stream);
    for (size_t i = 0; s->graphs && i < s->shapes; i++)
        rp_graph_destroy(s->graphs[i]);
    rp_pool_destroy(s->pool);
    decoder_destroy(s->decoder);
    if (s->arguments)
        s->gpu.cuMemFree(s->arguments);
    if (s->start)
        s->gpu.cuEventDestroy(s->start);
    if (s->end)
        s->gpu.cuEventDestroy(s->end);
    if (s->stream)
        s->gpu.cuStreamDestroy(s->stream);
    if (s->pushed)
        rp_device_pop(s->device);
    rp_device_destroy(s->device);
    free(s->batches);
    free(s->graphs);
    *s = (struct session){0};
}

static rp_status make_objects(struct session *s, struct rp_error *err)
{
    const struct decoder_shape *shape = &s->decoder->shape;
    size_t bytes = (size_t)shape->rows * (2 * (size_t)256 + shape->vocab * sizeof(float));
    const struct gpu *gpu = &s->gpu;
    rp_status status = gpu_check(gpu, gpu->cuStreamCreate(&s->stream, GPU_STREAM_NON_BLOCKING),
                                 "cuStreamCreate", err);
    if (!status)
        status = gpu_check(gpu, gpu->cuEventCreate(&s->start, 0), "cuEventCreate", err);
    if (!status)
        status = gpu_check(gpu, gpu->cuEventCreate(&s->end, 0), "cuEventCreate", err);
    if (!status)
        status = gpu_check(gpu, gpu->cuMemAlloc(&s->arguments, bytes), "cuMemAlloc", err);
    if (!status)
        status = gpu_check(gpu, gpu->cuMemsetD8Async(s->arguments, 0, bytes, s->stream),
                           "cuMemsetD8Async", err);
    return status;
}

static rp_status session_open(struct session *s, const char *driver, uint64_t budget, size_t shapes,
                              struct rp_error *err)
{
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    struct rp_pool_options pool = RP_POOL_OPTIONS_INIT;
    struct rp_device_info info = {.size = sizeof info};
    options.driver = driver;
    options.host_check_races = 0;
    options.exec_budget_bytes = budget;
    pool.plan_budget_ms = 5;
    *s = (struct session){.shapes = shapes};
    s->batches = calloc(shapes, sizeof *s->batches);
    s->graphs = calloc(shapes, sizeof(struct rp_graph *));
    rp_status status = s->batches && s->graphs ? RP_OK
                                               : cli_error(err, RP_ERROR_OUT_OF_HOST_MEMORY,
                                                           "bench", "out of host memory");
    if (!status)
        status = rp_device_open(&options, &s->device, err);
    if (!status)
        status = gpu_init(&s->gpu, s->device, err);
    if (!status)
        status = rp_device_push(s->device, err);
    s->pushed = !status;
    if (!status) {
        rp_device_info(s->device, &info);
        const struct decoder_shape shape = decoder_for(&info, shapes);
        status = decoder_create(s->device, &shape, 1, &s->decoder, err);
    }
    if (!status)
        status = make_objects(s, err);
    if (!status)
        status = rp_pool_create(s->device, &pool, &s->pool, err);
    for (size_t i = 0; i < shapes && !status; i++)
        s->batches[i] = (struct decoder_batch){s->decoder, (uint32_t)i + 1};
    return status;
}

static void arguments_of(const struct session *s, size_t shape, struct rp_arg *out_args)
{
    size_t row = 256 * (size_t)s->decoder->shape.rows; /* keeps each on 256 bytes */
    decoder_args(&s->batches[shape], s->arguments, s->arguments + row, s->arguments + 2 * row,
                 out_args);
}

static rp_status synchronize(struct session *s, struct rp_error *err)
{
    return gpu_check(&s->gpu, s->gpu.cuStreamSynchronize(s->stream), "cuStreamSynchronize", err);
}

static rp_status capture(struct session *s, size_t shape, struct rp_error *err)
{
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct rp_arg args[DECODER_ARGS];
    char name[32];
    snprintf(name, sizeof name, "batch %u", s->batches[shape].rows);
    options.name = name;
    arguments_of(s, shape, args);
    return rp_graph_capture(s->pool, &options, decoder_step, &s->batches[shape], args, DECODER_ARGS,
                            &s->graphs[shape], err);
}

static rp_status replay(struct session *s, size_t shape, struct rp_error *err)
{
    struct rp_arg args[DECODER_ARGS];
    arguments_of(s, shape, args);
    return rp_graph_replay(s->graphs[shape], args, DECODER_ARGS, s->stream, err);
}

/* Runs eagerly once, so that what is made lazily is there. */
static rp_status warm_up(struct session *s, size_t shape, struct rp_error *err)
{
    struct rp_arg args[DECODER_ARGS];
    arguments_of(s, shape, args);
    rp_status status =
        rp_run(s->pool, decoder_step, &s->batches[shape], args, DECODER_ARGS, s->stream, err);
    return status ? status : synchronize(s, err);
}

/* ---- Memory -------------------------------------------------------------------------------- */

static rp_status free_bytes(struct session *s, uint64_t *out_bytes, struct rp_error *err)
{
    size_t free = 0, total = 0;
    rp_status status = gpu_check(&s->gpu, s->gpu.cuMemGetInfo(&free, &total), "cuMemGetInfo", err);
    *out_bytes = free;
    return status;
}

static uint64_t taken(uint64_t before, uint64_t after)
{
    return before > after ? before - after : 0;
}

/* Captures all, the largest first, and replays each once. */
static rp_status fill(struct session *s, struct bench_memory *memory, struct rp_error *err)
{
    uint64_t before = 0, after = 0;
    rp_status status = warm_up(s, s->shapes - 1, err);
    if (!status)
        status = free_bytes(s, &before, err);
    double start = bench_now_us();
    if (!status)
        status = capture(s, s->shapes - 1, err);
    double first_us = bench_now_us() - start;
    if (!status)
        status = replay(s, s->shapes - 1, err);
    if (!status)
        status = synchronize(s, err);
    if (!status)
        status = free_bytes(s, &after, err);
    memory->largest_bytes = taken(before, after);
    start = bench_now_us();
    for (size_t i = s->shapes - 1; i-- > 0 && !status;) {
        cli_progress(true, "%s: capturing batch size %zu", memory->budget, i + 1);
        status = capture(s, i, err);
    }
    memory->capture_ms = (first_us + bench_now_us() - start) / 1000;
    for (size_t i = s->shapes; i-- > 0 && !status;)
        status = replay(s, i, err);
    if (!status)
        status = synchronize(s, err);
    if (!status)
        status = free_bytes(s, &after, err);
    memory->all_bytes = taken(before, after);
    struct rp_pool_info pool = {.size = sizeof pool};
    rp_pool_info(s->pool, &pool);
    memory->pool_bytes = pool.mapped_bytes;
    memory->execs.size = sizeof memory->execs;
    rp_device_exec_info(s->device, &memory->execs);
    return status;
}

static void describe_budget(struct bench_memory *memory, uint64_t budget, size_t shapes)
{
    uint64_t one = memory->execs.execs ? memory->execs.bytes / memory->execs.execs : 0;
    memory->budget_bytes = budget == 1 ? one : budget == RP_EXEC_ONE_EACH ? one * shapes : budget;
}

/* ---- A hot shape --------------------------------------------------------------------------- */

static rp_status time_replay(struct session *s, size_t shape, double *out_us, struct rp_error *err)
{
    float ms = 0;
    const struct gpu *gpu = &s->gpu;
    rp_status status =
        gpu_check(gpu, gpu->cuEventRecord(s->start, s->stream), "cuEventRecord", err);
    if (!status)
        status = replay(s, shape, err);
    if (!status)
        status = gpu_check(gpu, gpu->cuEventRecord(s->end, s->stream), "cuEventRecord", err);
    if (!status)
        status = synchronize(s, err);
    if (!status)
        status = gpu_check(gpu, gpu->cuEventElapsedTime(&ms, s->start, s->end),
                           "cuEventElapsedTime", err);
    *out_us = (double)ms * 1000;
    return status;
}

/* Replays the shape until it has an exec of its own. */
static rp_status heat_up(struct session *s, size_t shape, struct bench_hot *hot,
                         struct rp_error *err)
{
    enum { MOST = 20000 };
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(s->graphs[shape], &info);
    rp_status status = RP_OK;
    for (; !info.own_exec && hot->replays_until_own < MOST && !status; hot->replays_until_own++) {
        status = replay(s, shape, err);
        if (!status)
            status = synchronize(s, err);
        rp_graph_info(s->graphs[shape], &info);
    }
    hot->nodes = info.nodes;
    return status;
}

static rp_status measure_hot(struct session *own, struct session *fresh, struct session *updated,
                             size_t shape, struct bench_hot *hot, struct rp_error *err)
{
    enum { SAMPLES = 300, SIDES = 3, WARM = 10 };
    struct session *sides[SIDES] = {own, fresh, updated};
    double *times = calloc((size_t)SIDES * SAMPLES, sizeof *times);
    if (!times)
        return cli_error(err, RP_ERROR_OUT_OF_HOST_MEMORY, "bench", "out of host memory");
    rp_status status = RP_OK;
    for (size_t i = 0; i < SAMPLES + WARM && !status; i++)
        for (size_t side = 0; side < SIDES && !status; side++) {
            double us = 0;
            status = time_replay(sides[side], shape, &us, err);
            if (i >= WARM)
                times[side * SAMPLES + i - WARM] = us;
        }
    if (!status) {
        hot->own_us = bench_median(times, SAMPLES);
        hot->fresh_us = bench_median(times + SAMPLES, SAMPLES);
        hot->updated_us = bench_median(times + (size_t)2 * SAMPLES, SAMPLES);
    }
    free(times);
    return status;
}

/* `own` holds all shapes under the default budget. Two more devices in its context hold the hot
 * shape in an exec that was never shared, and in one that was made for the largest. */
static rp_status run_hot(struct session *own, const char *driver, struct bench_hot *hot,
                         struct rp_error *err)
{
    size_t shape = own->shapes / 2;
    struct session fresh = {0}, updated = {0};
    cli_progress(true, "a hot shape");
    hot->rows = (uint32_t)shape + 1;
    rp_status status = heat_up(own, shape, hot, err);
    if (!status)
        status = session_open(&fresh, driver, RP_EXEC_ONE_EACH, own->shapes, err);
    if (!status)
        status = capture(&fresh, shape, err);
    if (!status)
        status = session_open(&updated, driver, 1, own->shapes, err);
    if (!status)
        status = rp_device_exec_reset(updated.device, 1, 1, err);
    if (!status)
        status = capture(&updated, own->shapes - 1, err);
    if (!status)
        status = capture(&updated, shape, err);
    if (!status)
        status = measure_hot(own, &fresh, &updated, shape, hot, err);
    session_close(&updated);
    session_close(&fresh);
    return status;
}

/* ---- Walks --------------------------------------------------------------------------------- */

static rp_status walk_once(struct session *s, const uint32_t *steps, size_t count, double *out_us,
                           struct rp_error *err)
{
    rp_status status = RP_OK;
    double start = bench_now_us();
    for (size_t i = 0; i < count && !status; i++) {
        status = replay(s, steps[i], err);
        if (!status)
            status = synchronize(s, err);
    }
    *out_us = bench_now_us() - start;
    return status;
}

static uint64_t budget_of(const struct bench_shapes *bench, enum bench_way way)
{
    switch (way) {
    case WAY_EACH:
        return RP_EXEC_ONE_EACH;
    case WAY_HOLDS_ALL:
        return HOLDS_ALL;
    case WAY_SMALL:
        return bench->small_bytes;
    default:
        return 1;
    }
}

/* One round: each way from nothing, and the walk once more where all have their own. */
static rp_status walk_round(struct session *s, const struct bench_shapes *bench,
                            const uint32_t *steps, double *out_plain_us, double *out_us,
                            struct bench_walk_costs *costs, struct rp_error *err)
{
    rp_status status = RP_OK;
    for (int way = 0; way < BENCH_WAYS && !status; way++) {
        struct rp_device_exec_info before = {.size = sizeof before}, after = {.size = sizeof after};
        status = rp_device_exec_reset(s->device, budget_of(bench, (enum bench_way)way),
                                      way == WAY_ALWAYS, err);
        rp_device_exec_info(s->device, &before);
        if (!status)
            status = walk_once(s, steps, bench->steps, &out_us[way], err);
        rp_device_exec_info(s->device, &after);
        costs->instantiated[way] = after.instantiated - before.instantiated;
        costs->updates[way] = after.updates - before.updates;
        if (!status && way == WAY_EACH)
            status = walk_once(s, steps, bench->steps, out_plain_us, err);
    }
    return status;
}

static rp_status run_walk(struct session *s, const struct bench_shapes *bench, uint32_t *steps,
                          double *room, struct bench_walk_costs *costs, struct rp_error *err)
{
    size_t rounds = bench->rounds;
    double *plain = room + BENCH_WAYS * rounds;
    rp_status status = RP_OK;
    bench_walk_fill(costs->walk, bench->shapes, bench->steps, steps);
    for (size_t r = 0; r < rounds && !status; r++) {
        double us[BENCH_WAYS];
        cli_progress(true, "walk %s, round %zu of %zu", bench_walk_names[costs->walk], r + 1,
                     rounds);
        status = walk_round(s, bench, steps, &plain[r], us, costs, err);
        for (int way = 0; way < BENCH_WAYS && !status; way++)
            room[(size_t)way * rounds + r] = us[way] - plain[r];
    }
    if (status)
        return status;
    costs->plain_us = bench_median(plain, rounds);
    for (int way = 0; way < BENCH_WAYS; way++)
        costs->cost_us[way] = bench_median(room + (size_t)way * rounds, rounds);
    return RP_OK;
}

/* Each shape once in each way, so that prices are known and nothing is made for the first time. */
static rp_status learn(struct session *s, struct rp_error *err)
{
    static const uint64_t budgets[] = {RP_EXEC_ONE_EACH, 1};
    rp_status status = RP_OK;
    for (size_t b = 0; b < 2 && !status; b++) {
        status = rp_device_exec_reset(s->device, budgets[b], budgets[b] == 1, err);
        for (size_t i = 0; i < 3 * s->shapes && !status; i++) {
            status = replay(s, i / 3, err);
            if (!status)
                status = synchronize(s, err);
        }
    }
    return status;
}

static rp_status run_walks(struct session *s, struct bench_shapes *bench, struct rp_error *err)
{
    uint32_t *steps = calloc(bench->steps, sizeof *steps);
    double *room = calloc((BENCH_WAYS + 1) * bench->rounds, sizeof *room);
    if (!steps || !room) {
        free(steps);
        free(room);
        return cli_error(err, RP_ERROR_OUT_OF_HOST_MEMORY, "bench", "out of host memory");
    }
    rp_status status = learn(s, err);
    uint64_t all = bench->memory[BENCH_BUDGETS - 1].execs.bytes;
    bench->small_bytes = all / 2 < 64 * MIB ? all / 2 : 64 * MIB;
    for (int walk = 0; walk < BENCH_WALK_COUNT && !status; walk++) {
        bench->walks[walk].walk = (enum bench_walk)walk;
        status = run_walk(s, bench, steps, room, &bench->walks[walk], err);
    }
    free(steps);
    free(room);
    return status;
}

/* ---- All of it ----------------------------------------------------------------------------- */

rp_status bench_shapes_run(const char *driver, struct bench_shapes *bench, struct rp_error *err)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } budgets[BENCH_BUDGETS] = {
        {"one exec", 1}, {"64 MiB", 64 * MIB}, {"one each", RP_EXEC_ONE_EACH}};
    rp_status status = RP_OK;
    for (size_t b = 0; b < BENCH_BUDGETS && !status; b++) {
        struct session s = {0};
        struct bench_memory *memory = &bench->memory[b];
        memory->budget = budgets[b].name;
        status = session_open(&s, driver, budgets[b].bytes, bench->shapes, err);
        if (!status)
            status = fill(&s, memory, err);
        describe_budget(memory, budgets[b].bytes, bench->shapes);
        if (!status && budgets[b].bytes == 64 * MIB)
            status = run_hot(&s, driver, &bench->hot, err);
        if (!status && b == BENCH_BUDGETS - 1)
            status = run_walks(&s, bench, err);
        session_close(&s);
    }
    return status;
}
