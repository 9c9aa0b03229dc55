/* SPDX-License-Identifier: MIT */
#include "decoder.h"

#include "kernels/decoder.h"
#include "kernels/images.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

const struct decoder_shape decoder_shape_demo = {.layers = 4,
                                                 .hidden = 256,
                                                 .heads = 8,
                                                 .cached_heads = 2,
                                                 .dim = 32,
                                                 .inner = 512,
                                                 .vocab = 1024,
                                                 .context = 128,
                                                 .rows = 64};

enum kernel {
#define X(name, each) KERNEL_##name,
    DECODER_KERNELS(X)
#undef X
        KERNEL_COUNT
};
_Static_assert((int)KERNEL_COUNT == (int)DECODER_KERNEL_COUNT, "decoder.h holds them all");

/* ---- State ---- */

enum fill { FILL_WEIGHTS, FILL_GAINS, FILL_ANGLES };

/* Walks the state in order. Without a mirror it only gives out addresses and adds up sizes; with
 * one, the contents are written to the host copy at `mirror` too. */
struct layout {
    uint64_t base; /* device address of the state */
    float *mirror;
    size_t floats;
    uint64_t seed;
    const struct decoder_shape *shape;
};

/* splitmix64; uniform in [-1, 1) */
static float next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (float)(z >> 40) / (float)(1 << 23) - 1.0f;
}

/* Angles of the rotary positions, in the order that kernels/decoder.h reads them. */
static void fill_angles(const struct decoder_shape *shape, float *out)
{
    uint32_t half = shape->dim / 2;
    for (uint32_t position = 0; position < shape->context; position++)
        for (uint32_t pair = 0; pair < half; pair++) {
            double angle = position * pow(10000.0, -(double)pair / half);
            *out++ = (float)cos(angle);
            *out++ = (float)sin(angle);
        }
}

/* Weights are uniform with the variance 1 / inputs, so that activations keep their size. */
static float *take(struct layout *layout, size_t inputs, size_t outputs, enum fill fill)
{
    enum { ALIGN = 64 };
    size_t at = layout->floats, count = inputs * outputs;
    layout->floats += (count + ALIGN - 1) / ALIGN * ALIGN;
    if (layout->mirror && fill == FILL_ANGLES)
        fill_angles(layout->shape, layout->mirror + at);
    for (size_t i = 0; layout->mirror && fill != FILL_ANGLES && i < count; i++) {
        float x = next_random(&layout->seed);
        layout->mirror[at + i] =
            fill == FILL_GAINS ? 1.0f + 0.1f * x : x * sqrtf(3.0f / (float)inputs);
    }
    return (float *)(uintptr_t)(layout->base + at * sizeof(float));
}

static void lay_out(struct decoder *d, struct layout *layout)
{
    const struct decoder_shape *s = layout->shape;
    size_t cached = (size_t)s->cached_heads * s->dim, cache = (size_t)s->rows * s->context * cached;
    d->embedding = take(layout, 1, (size_t)s->vocab * s->hidden, FILL_WEIGHTS);
    d->angles = take(layout, s->context, s->dim, FILL_ANGLES);
    d->final_gain = take(layout, s->hidden, 1, FILL_GAINS);
    d->logits = take(layout, s->hidden, s->vocab, FILL_WEIGHTS);
    for (uint32_t i = 0; i < s->layers; i++) {
        struct decoder_layer *w = &d->layers[i];
        w->attention_gain = take(layout, s->hidden, 1, FILL_GAINS);
        w->query = take(layout, s->hidden, s->hidden, FILL_WEIGHTS);
        w->key = take(layout, s->hidden, cached, FILL_WEIGHTS);
        w->value = take(layout, s->hidden, cached, FILL_WEIGHTS);
        w->output = take(layout, s->hidden, s->hidden, FILL_WEIGHTS);
        w->mlp_gain = take(layout, s->hidden, 1, FILL_GAINS);
        w->gate = take(layout, s->hidden, s->inner, FILL_WEIGHTS);
        w->up = take(layout, s->hidden, s->inner, FILL_WEIGHTS);
        w->down = take(layout, s->inner, s->hidden, FILL_WEIGHTS);
        w->keys = take(layout, 1, cache, FILL_WEIGHTS);
        w->values = take(layout, 1, cache, FILL_WEIGHTS);
    }
    d->state_floats = layout->floats;
}

static rp_status create_state(struct decoder *d, uint64_t seed, struct rp_error *err)
{
    struct layout layout = {.shape = &d->shape};
    lay_out(d, &layout);
    size_t bytes = layout.floats * sizeof(float);
    float *mirror = calloc(layout.floats, sizeof(float));
    if (!mirror)
        return cli_error(err, RP_ERROR_OUT_OF_HOST_MEMORY, "decoder_create",
                         "%zu bytes of host memory for the decoder's weights", bytes);
    rp_status status = gpu_check(&d->gpu, d->gpu.cuMemAlloc(&d->state, bytes), "cuMemAlloc", err);
    if (!status) {
        layout =
            (struct layout){.base = d->state, .mirror = mirror, .seed = seed, .shape = &d->shape};
        lay_out(d, &layout);
        status = gpu_check(&d->gpu, d->gpu.cuMemcpyHtoDAsync(d->state, mirror, bytes, d->side),
                           "cuMemcpyHtoDAsync", err);
        if (!status)
            status =
                gpu_check(&d->gpu, d->gpu.cuStreamSynchronize(d->side), "cuStreamSynchronize", err);
    }
    free(mirror);
    return status;
}

/* ---- Create and destroy ---- */

static rp_status load_kernels(struct decoder *d, struct rp_error *err)
{
#define X(name, each) "decoder_" #name,
    static const char *const names[] = {DECODER_KERNELS(X)};
#undef X
    struct rp_device_info info = {.size = sizeof info};
    rp_device_info(d->device, &info);
    const void *image = !strcmp(info.driver, "host") ? (const void *)&decoder_host_image
                                                     : (const void *)decoder_ptx;
    rp_status status =
        gpu_check(&d->gpu, d->gpu.cuModuleLoadData(&d->module, image), "cuModuleLoadData", err);
    for (size_t i = 0; !status && i < KERNEL_COUNT; i++)
        status = gpu_check(&d->gpu, d->gpu.cuModuleGetFunction(&d->kernels[i], d->module, names[i]),
                           "cuModuleGetFunction", err);
    return status;
}

static rp_status create_streams(struct decoder *d, struct rp_error *err)
{
    const struct gpu *gpu = &d->gpu;
    rp_status status = gpu_check(gpu, gpu->cuStreamCreate(&d->side, GPU_STREAM_NON_BLOCKING),
                                 "cuStreamCreate", err);
    if (!status)
        status = gpu_check(gpu, gpu->cuEventCreate(&d->forked, GPU_EVENT_DISABLE_TIMING),
                           "cuEventCreate", err);
    if (!status)
        status = gpu_check(gpu, gpu->cuEventCreate(&d->joined, GPU_EVENT_DISABLE_TIMING),
                           "cuEventCreate", err);
    return status;
}

rp_status decoder_create(struct rp_device *device, const struct decoder_shape *shape, uint64_t seed,
                         struct decoder **out_decoder, struct rp_error *err)
{
    assert(shape->layers <= DECODER_MOST_LAYERS && shape->hidden == shape->heads * shape->dim);
    assert(shape->hidden % 16 == 0 && shape->inner % 16 == 0 && shape->vocab % 16 == 0);
    assert(shape->heads % shape->cached_heads == 0 && shape->cached_heads * shape->dim % 16 == 0);
    struct decoder *d = calloc(1, sizeof *d);
    if (!d)
        return cli_error(err, RP_ERROR_OUT_OF_HOST_MEMORY, "decoder_create",
                         "%zu bytes of host memory for the decoder", sizeof *d);
    d->device = device;
    d->shape = *shape;
    rp_status status = rp_device_push(device, err);
    if (!status) {
        status = gpu_init(&d->gpu, device, err);
        if (!status)
            status = load_kernels(d, err);
        if (!status)
            status = create_streams(d, err);
        if (!status)
            status = create_state(d, seed, err);
        rp_device_pop(device);
    }
    if (status) {
        decoder_destroy(d);
        return status;
    }
    *out_decoder = d;
    return RP_OK;
}

void decoder_destroy(struct decoder *d)
{
    if (!d)
        return;
    if (!rp_device_push(d->device, NULL)) {
        if (d->state)
            d->gpu.cuMemFree(d->state);
        if (d->joined)
            d->gpu.cuEventDestroy(d->joined);
        if (d->forked)
            d->gpu.cuEventDestroy(d->forked);
        if (d->side)
            d->gpu.cuStreamDestroy(d->side);
        if (d->module)
            d->gpu.cuModuleUnload(d->module);
        rp_device_pop(d->device);
    }
    free(d);
}

/* ---- The step ---- */

/* A step being enqueued. The first failure is kept and everything after it does nothing, so that
 * the step below reads as the mathematics that it is. */
struct step {
    const struct decoder *d;
    struct rp_call *call;
    struct CUstream_st *main;
    uint32_t rows;
    const int32_t *positions;
    rp_status status;
    struct rp_error *err;
};

static float *block(struct step *s, size_t floats, struct CUstream_st *stream)
{
    uint64_t address = 0;
    if (!s->status)
        s->status = rp_call_alloc(s->call, floats * sizeof(float), stream, &address, s->err);
    return (float *)(uintptr_t)address;
}

static void done(struct step *s, float *block)
{
    if (!s->status)
        s->status = rp_call_free(s->call, (uintptr_t)block, s->err);
}

static void used(struct step *s, float *block, struct CUstream_st *stream)
{
    if (!s->status)
        s->status = rp_call_use(s->call, (uintptr_t)block, stream, s->err);
}

static void launch(struct step *s, enum kernel kernel, void *args, uint32_t count,
                   struct CUstream_st *stream)
{
    enum { THREADS = 128 };
    if (s->status)
        return;
    const struct gpu *gpu = &s->d->gpu;
    s->status =
        gpu_check(gpu,
                  gpu->cuLaunchKernel(s->d->kernels[kernel], (count + THREADS - 1) / THREADS, 1, 1,
                                      THREADS, 1, 1, 0, stream, (void *[]){args}, NULL),
                  "cuLaunchKernel", s->err);
}

/* Work on `second` from here on runs after the work on `first` so far. */
static void order(struct step *s, struct CUstream_st *first, struct CUstream_st *second,
                  struct CUevent_st *event)
{
    const struct gpu *gpu = &s->d->gpu;
    if (!s->status)
        s->status = gpu_check(gpu, gpu->cuEventRecord(event, first), "cuEventRecord", s->err);
    if (!s->status)
        s->status =
            gpu_check(gpu, gpu->cuStreamWaitEvent(second, event, 0), "cuStreamWaitEvent", s->err);
}

static void matmul_to(struct step *s, float *out, const float *in, const float *weight,
                      uint32_t inputs, uint32_t outputs, const float *residual,
                      struct CUstream_st *stream)
{
    struct decoder_matmul args = {.out = out,
                                  .in = in,
                                  .weight = weight,
                                  .residual = residual,
                                  .inner = inputs,
                                  .columns = outputs,
                                  .count = s->rows * outputs};
    launch(s, KERNEL_matmul, &args, args.count, stream);
}

static float *matmul(struct step *s, const float *in, const float *weight, uint32_t inputs,
                     uint32_t outputs, const float *residual, struct CUstream_st *stream)
{
    float *out = block(s, (size_t)s->rows * outputs, stream);
    matmul_to(s, out, in, weight, inputs, outputs, residual, stream);
    return out;
}

static float *embed(struct step *s, const int32_t *tokens)
{
    const struct decoder_shape *shape = &s->d->shape;
    struct decoder_embed args = {.out = block(s, (size_t)s->rows * shape->hidden, s->main),
                                 .table = s->d->embedding,
                                 .tokens = tokens,
                                 .vocab = shape->vocab,
                                 .hidden = shape->hidden,
                                 .count = s->rows * shape->hidden};
    launch(s, KERNEL_embed, &args, args.count, s->main);
    return args.out;
}

static float *norm(struct step *s, const float *x, const float *gain)
{
    uint32_t hidden = s->d->shape.hidden;
    struct decoder_rms rms = {.out = block(s, s->rows, s->main),
                              .in = x,
                              .epsilon = 1e-5f,
                              .hidden = hidden,
                              .count = s->rows};
    launch(s, KERNEL_rms, &rms, rms.count, s->main);
    struct decoder_normalize args = {.out = block(s, (size_t)s->rows * hidden, s->main),
                                     .in = x,
                                     .inverse = rms.out,
                                     .gain = gain,
                                     .hidden = hidden,
                                     .count = s->rows * hidden};
    launch(s, KERNEL_normalize, &args, args.count, s->main);
    done(s, rms.out);
    return args.out;
}

/* Keys and values of this position, on the side stream, into the cache. */
static void extend_cache(struct step *s, const struct decoder_layer *w, const float *x)
{
    const struct decoder_shape *shape = &s->d->shape;
    uint32_t cached = shape->cached_heads * shape->dim;
    struct CUstream_st *side = s->d->side;
    float *key = matmul(s, x, w->key, shape->hidden, cached, NULL, side);
    float *value = matmul(s, x, w->value, shape->hidden, cached, NULL, side);
    struct decoder_store args = {.keys = w->keys,
                                 .values = w->values,
                                 .key = key,
                                 .value = value,
                                 .angles = s->d->angles,
                                 .positions = s->positions,
                                 .heads = shape->cached_heads,
                                 .dim = shape->dim,
                                 .context = shape->context,
                                 .count = s->rows * cached / 2};
    launch(s, KERNEL_store, &args, args.count, side);
    done(s, key);
    done(s, value);
}

/* Queries of this position, turned by it. */
static float *project_query(struct step *s, const struct decoder_layer *w, const float *x)
{
    const struct decoder_shape *shape = &s->d->shape;
    struct decoder_rotate args = {
        .x = matmul(s, x, w->query, shape->hidden, shape->hidden, NULL, s->main),
        .angles = s->d->angles,
        .positions = s->positions,
        .heads = shape->heads,
        .dim = shape->dim,
        .context = shape->context,
        .count = s->rows * shape->hidden / 2};
    launch(s, KERNEL_rotate, &args, args.count, s->main);
    return args.x;
}

/* Each query against the cache: scores, softmax, the mix of values. Frees the query. */
static float *attend(struct step *s, const struct decoder_layer *w, float *query)
{
    const struct decoder_shape *shape = &s->d->shape;
    uint32_t pairs = s->rows * shape->heads, group = shape->heads / shape->cached_heads;
    struct decoder_scores scores = {.out = block(s, (size_t)pairs * shape->context, s->main),
                                    .query = query,
                                    .keys = w->keys,
                                    .positions = s->positions,
                                    .scale = 1.0f / sqrtf((float)shape->dim),
                                    .heads = shape->heads,
                                    .group = group,
                                    .dim = shape->dim,
                                    .context = shape->context,
                                    .count = pairs * shape->context};
    launch(s, KERNEL_scores, &scores, scores.count, s->main);
    done(s, query);
    struct decoder_softmax softmax = {.out = block(s, (size_t)pairs * shape->context, s->main),
                                      .in = scores.out,
                                      .positions = s->positions,
                                      .heads = shape->heads,
                                      .context = shape->context,
                                      .count = pairs};
    launch(s, KERNEL_softmax, &softmax, softmax.count, s->main);
    done(s, scores.out);
    struct decoder_mix mix = {.out = block(s, (size_t)s->rows * shape->hidden, s->main),
                              .weights = softmax.out,
                              .values = w->values,
                              .positions = s->positions,
                              .heads = shape->heads,
                              .group = group,
                              .dim = shape->dim,
                              .context = shape->context,
                              .count = s->rows * shape->hidden};
    launch(s, KERNEL_mix, &mix, mix.count, s->main);
    done(s, softmax.out);
    return mix.out;
}

/* x + attention(norm(x)). Keys and values are made on the side stream while queries are on the
 * main one. */
static float *attention(struct step *s, const struct decoder_layer *w, const float *x)
{
    uint32_t hidden = s->d->shape.hidden;
    float *normed = norm(s, x, w->attention_gain);
    order(s, s->main, s->d->side, s->d->forked);
    used(s, normed, s->d->side);
    extend_cache(s, w, normed);
    float *query = project_query(s, w, normed);
    order(s, s->d->side, s->main, s->d->joined);
    done(s, normed);
    float *mixed = attend(s, w, query);
    float *out = matmul(s, mixed, w->output, hidden, hidden, x, s->main);
    done(s, mixed);
    return out;
}

/* x + down(silu(gate(norm(x))) * up(norm(x))), gate and up on a stream each. */
static float *mlp(struct step *s, const struct decoder_layer *w, const float *x)
{
    uint32_t hidden = s->d->shape.hidden, inner = s->d->shape.inner;
    float *normed = norm(s, x, w->mlp_gain);
    order(s, s->main, s->d->side, s->d->forked);
    used(s, normed, s->d->side);
    float *up = matmul(s, normed, w->up, hidden, inner, NULL, s->d->side);
    float *gate = matmul(s, normed, w->gate, hidden, inner, NULL, s->main);
    order(s, s->d->side, s->main, s->d->joined);
    done(s, normed);
    used(s, up, s->main);
    struct decoder_swiglu args = {.out = block(s, (size_t)s->rows * inner, s->main),
                                  .gate = gate,
                                  .up = up,
                                  .count = s->rows * inner};
    launch(s, KERNEL_swiglu, &args, args.count, s->main);
    done(s, gate);
    done(s, up);
    float *out = matmul(s, args.out, w->down, inner, hidden, x, s->main);
    done(s, args.out);
    return out;
}

void decoder_args(const struct decoder_batch *batch, uint64_t tokens, uint64_t positions,
                  uint64_t logits, struct rp_arg out_args[DECODER_ARGS])
{
    uint64_t rows = batch->rows, vocab = batch->decoder->shape.vocab;
    out_args[DECODER_TOKENS] =
        (struct rp_arg){.address = tokens, .bytes = rows * sizeof(int32_t), .role = RP_ARG_IN};
    out_args[DECODER_POSITIONS] =
        (struct rp_arg){.address = positions, .bytes = rows * sizeof(int32_t), .role = RP_ARG_IN};
    out_args[DECODER_LOGITS] = (struct rp_arg){
        .address = logits, .bytes = rows * vocab * sizeof(float), .role = RP_ARG_OUT};
}

rp_status decoder_step(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct decoder_batch *batch = user;
    const struct decoder *d = batch->decoder;
    struct step s = {.d = d,
                     .call = call,
                     .main = rp_call_stream(call),
                     .rows = batch->rows,
                     .positions = (const int32_t *)(uintptr_t)rp_call_arg(call, DECODER_POSITIONS),
                     .err = err};
    float *x = embed(&s, (const int32_t *)(uintptr_t)rp_call_arg(call, DECODER_TOKENS));
    for (uint32_t i = 0; i < d->shape.layers; i++) {
        float *attended = attention(&s, &d->layers[i], x);
        done(&s, x);
        x = mlp(&s, &d->layers[i], attended);
        done(&s, attended);
    }
    float *normed = norm(&s, x, d->final_gain);
    done(&s, x);
    matmul_to(&s, (float *)(uintptr_t)rp_call_arg(call, DECODER_LOGITS), normed, d->logits,
              d->shape.hidden, d->shape.vocab, NULL, s.main);
    done(&s, normed);
    return s.status;
}
