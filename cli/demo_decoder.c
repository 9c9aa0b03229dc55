/* SPDX-License-Identifier: MIT
 *
 * The decoder as a callable: its memory at all batch sizes is estimated, each is captured, then
 * measured. A sample is an eager run and a call of the same step: same tokens, same positions, same
 * cache before it; the arguments lie at addresses that no capture had. Logits and the whole cache
 * after both are compared to the bit. Samples go through the batch sizes in turn, so that each
 * replay finds the shared memory as another graph left it.
 */
#include "decoder.h"
#include "demo.h"
#include "output.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SETS = 2, EAGER = 0, REPLAY = 1, SAMPLES_HOST = 5, SAMPLES_GPU = 25 };

/* What a step leaves behind, on the host: logits, then each layer's keys and values. */
struct outcome {
    float *floats;
};

/* A set of argument buffers on the device. */
struct buffers {
    uint64_t tokens, positions, logits;
};

struct session {
    struct rp_device *device;
    struct decoder *decoder;
    struct gpu gpu;
    struct rp_callable *callable;
    struct rp_pool *pool; /* the callable's */
    struct CUstream_st *stream;
    uint64_t arguments; /* the one allocation behind both sets */
    struct buffers sets[SETS];
    int32_t *tokens, *positions; /* of the sample in hand */
    float *cache;                /* as it was in the beginning, all layers */
    struct outcome outcomes[SETS];
    struct decoder_batch batches[DEMO_MOST_BATCHES];
    int64_t shapes[DEMO_MOST_BATCHES][2]; /* rows, vocabulary: of logits, and of rows alone */
    double *times[SETS];                  /* [batch][sample] */
    size_t samples;
    uint64_t random;
};

static size_t samples_on(const struct rp_device_info *info)
{
    return !strcmp(info->driver, "host") ? SAMPLES_HOST : SAMPLES_GPU;
}

/* ---- Host and device copies ---- */

/* Floats of one layer's keys, or values, for so many rows. */
static size_t cache_floats(const struct decoder_shape *shape, uint32_t rows)
{
    return (size_t)rows * shape->context * shape->cached_heads * shape->dim;
}

static size_t outcome_floats(const struct decoder_shape *shape, uint32_t rows)
{
    return (size_t)rows * shape->vocab + (size_t)2 * shape->layers * cache_floats(shape, rows);
}

static rp_status copy_in(struct session *s, uint64_t to, const void *from, size_t bytes,
                         struct rp_error *err)
{
    return gpu_check(&s->gpu, s->gpu.cuMemcpyHtoDAsync(to, from, bytes, s->stream),
                     "cuMemcpyHtoDAsync", err);
}

static rp_status copy_out(struct session *s, void *to, uint64_t from, size_t bytes,
                          struct rp_error *err)
{
    return gpu_check(&s->gpu, s->gpu.cuMemcpyDtoHAsync(to, from, bytes, s->stream),
                     "cuMemcpyDtoHAsync", err);
}

static rp_status synchronize(struct session *s, struct rp_error *err)
{
    return gpu_check(&s->gpu, s->gpu.cuStreamSynchronize(s->stream), "cuStreamSynchronize", err);
}

/* Address of cache number i: a layer's keys, then its values. */
static uint64_t cache_address(const struct decoder *d, uint32_t i)
{
    const struct decoder_layer *layer = &d->layers[i / 2];
    return (uint64_t)(uintptr_t)(i % 2 ? layer->values : layer->keys);
}

static rp_status read_cache(struct session *s, float *to, uint32_t rows, struct rp_error *err)
{
    const struct decoder *d = s->decoder;
    size_t floats = cache_floats(&d->shape, rows);
    rp_status status = RP_OK;
    for (uint32_t i = 0; !status && i < 2 * d->shape.layers; i++)
        status = copy_out(s, to + i * floats, cache_address(d, i), floats * sizeof(float), err);
    return status;
}

/* Puts tokens, positions and the cache in place and spoils the logits, for one side of a sample. */
static rp_status prepare(struct session *s, const struct buffers *set, uint32_t rows,
                         struct rp_error *err)
{
    const struct decoder *d = s->decoder;
    size_t whole = cache_floats(&d->shape, d->shape.rows);
    size_t bytes = cache_floats(&d->shape, rows) * sizeof(float);
    rp_status status = copy_in(s, set->tokens, s->tokens, rows * sizeof(int32_t), err);
    if (!status)
        status = copy_in(s, set->positions, s->positions, rows * sizeof(int32_t), err);
    for (uint32_t i = 0; !status && i < 2 * d->shape.layers; i++)
        status = copy_in(s, cache_address(d, i), s->cache + i * whole, bytes, err);
    if (!status)
        status = gpu_check(&s->gpu,
                           s->gpu.cuMemsetD8Async(set->logits, 0xff,
                                                  (size_t)rows * d->shape.vocab * sizeof(float),
                                                  s->stream),
                           "cuMemsetD8Async", err);
    return status ? status : synchronize(s, err);
}

static rp_status read_outcome(struct session *s, const struct buffers *set, uint32_t rows,
                              struct outcome *to, struct rp_error *err)
{
    size_t logits = (size_t)rows * s->decoder->shape.vocab;
    rp_status status = copy_out(s, to->floats, set->logits, logits * sizeof(float), err);
    if (!status)
        status = read_cache(s, to->floats + logits, rows, err);
    return status ? status : synchronize(s, err);
}

/* ---- Setting up ---- */

static void *host_array(size_t count, size_t size, rp_status *status, struct rp_error *err)
{
    void *at = *status ? NULL : calloc(count, size);
    if (!*status && !at)
        *status = cli_error(err, RP_ERROR_OUT_OF_HOST_MEMORY, "demo_decoder",
                            "%zu bytes of host memory for the demo", count * size);
    return at;
}

static rp_status create_host_side(struct session *s, size_t batch_count, struct rp_error *err)
{
    const struct decoder_shape *shape = &s->decoder->shape;
    rp_status status = RP_OK;
    s->tokens = host_array(shape->rows, sizeof(int32_t), &status, err);
    s->positions = host_array(shape->rows, sizeof(int32_t), &status, err);
    s->cache = host_array((size_t)2 * shape->layers * cache_floats(shape, shape->rows),
                          sizeof(float), &status, err);
    for (int i = 0; i < SETS; i++) {
        s->outcomes[i].floats =
            host_array(outcome_floats(shape, shape->rows), sizeof(float), &status, err);
        s->times[i] = host_array(batch_count * s->samples, sizeof(double), &status, err);
    }
    return status;
}

static rp_status create_arguments(struct session *s, struct rp_error *err)
{
    enum { ALIGN = 256 };
    const struct decoder_shape *shape = &s->decoder->shape;
    uint64_t index_bytes = (shape->rows * sizeof(int32_t) + ALIGN - 1) / ALIGN * ALIGN;
    uint64_t logit_bytes = (uint64_t)shape->rows * shape->vocab * sizeof(float);
    uint64_t set_bytes = 2 * index_bytes + (logit_bytes + ALIGN - 1) / ALIGN * ALIGN;
    rp_status status =
        gpu_check(&s->gpu, s->gpu.cuMemAlloc(&s->arguments, SETS * set_bytes), "cuMemAlloc", err);
    for (uint64_t i = 0; !status && i < SETS; i++) {
        uint64_t at = s->arguments + i * set_bytes;
        s->sets[i] = (struct buffers){at, at + index_bytes, at + 2 * index_bytes};
    }
    return status;
}

/* The step for as many rows as it is called with. */
static rp_status step(struct rp_call *call, void *user, struct rp_error *err)
{
    struct rp_arg tokens;
    if (!rp_call_tensor(call, DECODER_TOKENS, &tokens))
        return RP_ERROR_INVALID_ARGUMENT;
    struct decoder_batch batch = {user, (uint32_t)tokens.shape[0]};
    return decoder_step(call, &batch, err);
}

/* Batch size i with this set of buffers; NULL: no addresses. */
static void args_of(const struct session *s, size_t i, const struct buffers *set,
                    struct rp_arg args[DECODER_ARGS])
{
    static const struct buffers nowhere = {0, 0, 0};
    set = set ? set : &nowhere;
    decoder_args(&s->batches[i], set->tokens, set->positions, set->logits, args);
    for (int k = 0; k < DECODER_ARGS; k++) {
        args[k].dtype = k == DECODER_LOGITS ? RP_DTYPE_FLOAT32 : RP_DTYPE_INT32;
        args[k].rank = k == DECODER_LOGITS ? 2 : 1;
        args[k].shape = s->shapes[i];
        args[k].strides = NULL;
    }
}

static rp_status create(struct session *s, const struct demo_options *options, struct rp_error *err)
{
    enum { SEED = 20 };
    struct decoder_shape shape = decoder_shape_demo;
    assert(options->batch_count > 0);
    shape.rows = 0;
    for (size_t i = 0; i < options->batch_count; i++)
        shape.rows = options->batches[i] > shape.rows ? options->batches[i] : shape.rows;
    struct rp_callable_options callable_options = RP_CALLABLE_OPTIONS_INIT;
    struct rp_callable_info info = {.size = sizeof info};
    callable_options.name = "decoder";
    rp_status status = gpu_init(&s->gpu, s->device, err);
    if (!status)
        status = decoder_create(s->device, &shape, SEED, &s->decoder, err);
    if (!status)
        status = create_host_side(s, options->batch_count, err);
    if (!status)
        status = create_arguments(s, err);
    if (!status)
        status = gpu_check(&s->gpu, s->gpu.cuStreamCreate(&s->stream, GPU_STREAM_NON_BLOCKING),
                           "cuStreamCreate", err);
    if (!status)
        status = read_cache(s, s->cache, shape.rows, err);
    if (!status)
        status = synchronize(s, err);
    if (!status)
        status =
            rp_callable_create(s->device, &callable_options, step, s->decoder, &s->callable, err);
    if (status)
        return status;
    rp_callable_info(s->callable, &info);
    s->pool = info.pool;
    return RP_OK;
}

static void destroy(struct session *s)
{
    rp_callable_destroy(s->callable);
    if (s->stream)
        s->gpu.cuStreamDestroy(s->stream);
    if (s->arguments)
        s->gpu.cuMemFree(s->arguments);
    decoder_destroy(s->decoder);
    for (int i = 0; i < SETS; i++) {
        free(s->outcomes[i].floats);
        free(s->times[i]);
    }
    free(s->cache);
    free(s->positions);
    free(s->tokens);
}

/* ---- Estimate and capture ---- */

static rp_status estimate(struct session *s, size_t count, struct demo_facts *facts,
                          struct rp_error *err)
{
    struct rp_arg args[DEMO_MOST_BATCHES][DECODER_ARGS];
    struct rp_inputs inputs[DEMO_MOST_BATCHES];
    struct rp_callable *callables[DEMO_MOST_BATCHES];
    struct rp_estimate *estimate;
    for (size_t i = 0; i < count; i++) {
        args_of(s, i, NULL, args[i]);
        inputs[i] = (struct rp_inputs){.args = args[i], .arg_count = DECODER_ARGS};
        callables[i] = s->callable;
    }
    rp_status status = rp_estimate(callables, inputs, count, &estimate, err);
    if (status)
        return status;
    facts->estimate.size = sizeof facts->estimate;
    rp_estimate_info(estimate, &facts->estimate);
    rp_estimate_destroy(estimate);
    return RP_OK;
}

static rp_status graph_info(const struct session *s, size_t i, struct rp_graph_info *out_info,
                            struct rp_error *err)
{
    struct rp_shape_info shape = {.size = sizeof shape};
    if (!rp_callable_shape_info(s->callable, i, &shape) || !shape.graph)
        return cli_error(err, RP_ERROR_CAPTURE, "rp_callable_capture",
                         "batch %u was not captured: %s", s->batches[i].rows,
                         shape.reason ? shape.reason : "no reason");
    rp_graph_info(shape.graph, out_info);
    return RP_OK;
}

static rp_status capture(struct session *s, size_t i, struct demo_facts *facts,
                         struct rp_error *err)
{
    struct rp_arg args[DECODER_ARGS];
    struct rp_inputs inputs = {.args = args, .arg_count = DECODER_ARGS};
    struct rp_pool_info pool = {.size = sizeof pool};
    struct rp_graph_info graph = {.size = sizeof graph};
    struct demo_capture *out = &facts->captures[i];
    args_of(s, i, NULL, args);
    rp_status status = rp_callable_capture(s->callable, &inputs, 1, NULL, NULL, NULL, err);
    if (!status)
        status = graph_info(s, i, &graph, err);
    if (status)
        return status;
    rp_pool_info(s->pool, &pool);
    *out = (struct demo_capture){.rows = s->batches[i].rows,
                                 .nodes = graph.nodes,
                                 .pool_bytes_after = pool.planned_bytes,
                                 .lower_bound_bytes = pool.lower_bound_bytes,
                                 .mapped_bytes_after = pool.mapped_bytes,
                                 .graph_planned_bytes = graph.planned_bytes,
                                 .graph_bound_bytes = graph.lower_bound_bytes};
    snprintf(out->name, sizeof out->name, "batch %u", out->rows);
    facts->capture_count++;
    return RP_OK;
}

/* ---- Measure ---- */

static uint32_t next_random(struct session *s, uint32_t limit)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(s->random >> 33) % limit;
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* One side of a sample: prepare, run until the work is done, read what it left. */
static rp_status one_side(struct session *s, size_t i, int side, double *out_us,
                          struct rp_error *err)
{
    uint32_t rows = s->batches[i].rows;
    const struct buffers *set = &s->sets[side];
    struct rp_arg args[DECODER_ARGS];
    struct rp_inputs inputs = {.args = args, .arg_count = DECODER_ARGS};
    args_of(s, i, set, args);
    rp_status status = prepare(s, set, rows, err);
    if (status)
        return status;
    double start = now_us();
    if (side == EAGER) {
        status = rp_run(s->pool, step, s->decoder, args, DECODER_ARGS, s->stream, err);
    } else {
        status = rp_callable_call(s->callable, &inputs, s->stream, err);
        if (!status)
            status = synchronize(s, err);
    }
    double end = now_us();
    if (!status)
        status = read_outcome(s, set, rows, &s->outcomes[side], err);
    if (!status)
        *out_us = end - start;
    return status;
}

static rp_status sample(struct session *s, size_t i, struct demo_capture *fact,
                        struct rp_error *err)
{
    const struct decoder_shape *shape = &s->decoder->shape;
    for (uint32_t row = 0; row < s->batches[i].rows; row++) {
        s->tokens[row] = (int32_t)next_random(s, shape->vocab);
        s->positions[row] = (int32_t)next_random(s, shape->context);
    }
    rp_status status = RP_OK;
    for (int side = EAGER; !status && side <= REPLAY; side++)
        status = one_side(s, i, side, &s->times[side][i * s->samples + fact->samples], err);
    if (status)
        return status;
    size_t bytes = outcome_floats(shape, s->batches[i].rows) * sizeof(float);
    fact->samples++;
    fact->equal += !memcmp(s->outcomes[EAGER].floats, s->outcomes[REPLAY].floats, bytes);
    return RP_OK;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare_doubles);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static rp_status run_session(struct session *s, const struct demo_options *options,
                             struct demo_facts *facts, struct rp_error *err)
{
    rp_status status = create(s, options, err);
    for (size_t i = 0; !status && i < options->batch_count; i++) {
        s->batches[i] = (struct decoder_batch){s->decoder, options->batches[i]};
        s->shapes[i][0] = options->batches[i];
        s->shapes[i][1] = s->decoder->shape.vocab;
    }
    if (!status)
        status = estimate(s, options->batch_count, facts, err);
    for (size_t i = 0; !status && i < options->batch_count; i++) {
        cli_progress(true, "capturing batch %u", options->batches[i]);
        status = capture(s, i, facts, err);
    }
    for (size_t n = 0; !status && n < s->samples; n++)
        for (size_t i = 0; !status && i < options->batch_count; i++) {
            cli_progress(true, "replaying batch %u, round %zu of %zu", options->batches[i], n + 1,
                         s->samples);
            status = sample(s, i, &facts->captures[i], err);
        }
    if (status)
        return status;
    for (size_t i = 0; i < options->batch_count; i++) {
        facts->captures[i].eager_us = median(s->times[EAGER] + i * s->samples, s->samples);
        facts->captures[i].replay_us = median(s->times[REPLAY] + i * s->samples, s->samples);
        struct rp_graph_info graph = {.size = sizeof graph};
        status = graph_info(s, i, &graph, err);
        if (status)
            return status;
        facts->captures[i].bound_args = graph.bound_args;
        facts->captures[i].copied_args = graph.copied_args;
    }
    facts->taken.size = sizeof facts->taken;
    rp_pool_info(s->pool, &facts->taken);
    facts->rehearsal_bytes = facts->taken.rehearsal_bytes;
    facts->state_bytes = s->decoder->state_floats * sizeof(float);
    facts->execs.size = sizeof facts->execs;
    rp_device_exec_info(s->device, &facts->execs);
    return RP_OK;
}

rp_status demo_decoder(const struct demo_options *options, struct rp_device *device,
                       struct demo_facts *facts, struct rp_error *err)
{
    struct session session = {.device = device, .samples = samples_on(&facts->device)};
    rp_status status = rp_device_push(device, err);
    if (status)
        return status;
    status = run_session(&session, options, facts, err);
    destroy(&session);
    rp_device_pop(device);
    return status;
}

bool demo_estimate_right(const struct demo_facts *facts)
{
    return facts->estimate.planned_bytes == facts->taken.planned_bytes &&
           facts->estimate.mapped_bytes == facts->taken.mapped_bytes;
}

bool demo_all_equal(const struct demo_facts *facts)
{
    for (size_t i = 0; i < facts->capture_count; i++)
        if (facts->captures[i].equal != facts->captures[i].samples)
            return false;
    return true;
}
