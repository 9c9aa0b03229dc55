/* SPDX-License-Identifier: MIT
 *
 * The kernels of the demo's decoder: one source for two worlds. nvcc makes PTX of it
 * (scripts/make_kernels.sh, kept in decoder_ptx.c), the C compiler makes functions for the host driver
 * (decoder_host.c), and cli/decoder.c fills the argument structs below to launch either.
 *
 * Each kernel computes `count` outputs, and NAME_at computes number i of them, so that any grid and
 * any order of threads give the same result: every sum runs in one thread, in ascending order, and
 * nothing is atomic. That is what makes eager work and replays equal to the bit. Tensors are
 * 32-bit floats, row-major; a row is one sequence of the batch. No token or position that is out of
 * range makes an address: such a token is a row of zeros, such a position is the last one.
 */
#ifndef REPRISE_KERNELS_DECODER_H
#define REPRISE_KERNELS_DECODER_H

/* X(name, outputs that one thread computes) */
#define DECODER_KERNELS(X)                                                                         \
    X(embed, 1)                                                                                    \
    X(rms, 1)                                                                                      \
    X(normalize, 1)                                                                                \
    X(matmul, DECODER_TILE)                                                                        \
    X(rotate, 1)                                                                                   \
    X(store, 1)                                                                                    \
    X(scores, 1)                                                                                   \
    X(softmax, 1)                                                                                  \
    X(mix, 1)                                                                                      \
    X(swiglu, 1)

/* On a GPU neighbouring threads take neighbouring columns, one each. A CPU has one thread for all:
 * it takes as many columns at once as fill a cache line, which changes no sum. */
#ifdef __CUDACC__
#define DECODER_TILE   1
#define DECODER_AT     static __device__ __forceinline__ void
#define DECODER_FN     static __device__ __forceinline__
#define DECODER_UNROLL _Pragma("unroll 16")
typedef int int32_t;
typedef unsigned uint32_t;
#else
#include <math.h>
#include <stdint.h>
#define DECODER_TILE 16
#define DECODER_AT   static inline void
#define DECODER_FN   static inline
#define DECODER_UNROLL
#endif

/* out[row][hidden] = table[tokens[row]][hidden] */
struct decoder_embed {
    float *out;
    const float *table;    /* [vocab][hidden] */
    const int32_t *tokens; /* [rows] */
    uint32_t vocab, hidden, count;
};

DECODER_AT embed_at(const struct decoder_embed *a, uint32_t i)
{
    uint32_t token = (uint32_t)a->tokens[i / a->hidden];
    a->out[i] = token < a->vocab ? a->table[token * a->hidden + i % a->hidden] : 0.0f;
}

/* out[row] = 1 / root mean square of in[row] */
struct decoder_rms {
    float *out;
    const float *in; /* [rows][hidden] */
    float epsilon;
    uint32_t hidden, count;
};

DECODER_AT rms_at(const struct decoder_rms *a, uint32_t i)
{
    uint32_t from = i * a->hidden;
    const float *row = a->in + from;
    float sum = 0.0f;
    DECODER_UNROLL
    for (uint32_t k = 0; k < a->hidden; k++)
        sum += row[k] * row[k];
    a->out[i] = 1.0f / sqrtf(sum / (float)a->hidden + a->epsilon);
}

/* out[row][hidden] = in[row][hidden] * inverse[row] * gain[hidden]: with rms, RMSNorm */
struct decoder_normalize {
    float *out;
    const float *in, *inverse, *gain;
    uint32_t hidden, count;
};

DECODER_AT normalize_at(const struct decoder_normalize *a, uint32_t i)
{
    a->out[i] = a->in[i] * a->inverse[i / a->hidden] * a->gain[i % a->hidden];
}

/* out[row][column] = in[row] . weight[][column] + residual[row][column]; columns is a multiple of
 * DECODER_TILE */
struct decoder_matmul {
    float *out;
    const float *in;       /* [rows][inner] */
    const float *weight;   /* [inner][columns] */
    const float *residual; /* NULL: nothing is added */
    uint32_t inner, columns, count;
};

DECODER_AT matmul_at(const struct decoder_matmul *a, uint32_t i)
{
    uint32_t first = i * DECODER_TILE, from = first / a->columns * a->inner;
    const float *in = a->in + from;
    const float *weight = a->weight + first % a->columns;
    float sum[DECODER_TILE] = {0};
    DECODER_UNROLL
    for (uint32_t k = 0; k < a->inner; k++)
        for (uint32_t j = 0; j < DECODER_TILE; j++)
            sum[j] += in[k] * weight[k * a->columns + j];
    for (uint32_t j = 0; j < DECODER_TILE; j++)
        a->out[first + j] = a->residual ? a->residual[first + j] + sum[j] : sum[j];
}

/* The position of a row, as an index below context. */
DECODER_FN uint32_t decoder_position(const int32_t *positions, uint32_t row, uint32_t context)
{
    uint32_t position = (uint32_t)positions[row];
    return position < context ? position : context - 1;
}

/* The rotary turn of (x[pair], x[pair + dim / 2]) at a position: a complex product. */
DECODER_AT decoder_turn(float *out, const float *in, const float *angles, uint32_t half)
{
    float cosine = angles[0], sine = angles[1];
    float low = in[0], high = in[half];
    out[0] = low * cosine - high * sine;
    out[half] = high * cosine + low * sine;
}

/* Turns x[row][head][dim] by its row's position, in place; an output is a pair. */
struct decoder_rotate {
    float *x;
    const float *angles;      /* [context][dim / 2][cosine, sine] */
    const int32_t *positions; /* [rows] */
    uint32_t heads, dim, context, count;
};

DECODER_AT rotate_at(const struct decoder_rotate *a, uint32_t i)
{
    uint32_t half = a->dim / 2, pair = i % half, head = i / half;
    uint32_t position = decoder_position(a->positions, head / a->heads, a->context);
    uint32_t at = head * a->dim + pair, angle = (position * half + pair) * 2;
    decoder_turn(a->x + at, a->x + at, a->angles + angle, half);
}

/* Turns key[row][head][dim] and puts it and value[row][head][dim] into the cache at the row's
 * position; an output is a pair. */
struct decoder_store {
    float *keys, *values; /* [rows or more][context][heads][dim] */
    const float *key, *value;
    const float *angles;
    const int32_t *positions;
    uint32_t heads, dim, context, count;
};

DECODER_AT store_at(const struct decoder_store *a, uint32_t i)
{
    uint32_t half = a->dim / 2, pair = i % half, head = i / half % a->heads;
    uint32_t row = i / half / a->heads;
    uint32_t position = decoder_position(a->positions, row, a->context);
    uint32_t from = (row * a->heads + head) * a->dim + pair;
    uint32_t to = ((row * a->context + position) * a->heads + head) * a->dim + pair;
    uint32_t angle = (position * half + pair) * 2;
    decoder_turn(a->keys + to, a->key + from, a->angles + angle, half);
    a->values[to] = a->value[from];
    a->values[to + half] = a->value[from + half];
}

/* out[row][head][t] = scale * (query[row][head] . keys[row][t][head / group]) up to the row's
 * position, -infinity after it. `group` query heads share one head of the cache. */
struct decoder_scores {
    float *out;
    const float *query; /* [rows][heads][dim] */
    const float *keys;  /* [rows or more][context][heads / group][dim] */
    const int32_t *positions;
    float scale;
    uint32_t heads, group, dim, context, count;
};

DECODER_AT scores_at(const struct decoder_scores *a, uint32_t i)
{
    uint32_t t = i % a->context, head = i / a->context % a->heads;
    uint32_t row = i / a->context / a->heads, cached = a->heads / a->group;
    if (t > decoder_position(a->positions, row, a->context)) {
        a->out[i] = -INFINITY;
        return;
    }
    uint32_t at = (row * a->heads + head) * a->dim;
    uint32_t from = ((row * a->context + t) * cached + head / a->group) * a->dim;
    const float *query = a->query + at, *key = a->keys + from;
    float sum = 0.0f;
    DECODER_UNROLL
    for (uint32_t k = 0; k < a->dim; k++)
        sum += query[k] * key[k];
    a->out[i] = sum * a->scale;
}

/* out[row][head][t] = softmax over t of in[row][head][t]; an output is the whole of a (row, head).
 */
struct decoder_softmax {
    float *out;
    const float *in;
    const int32_t *positions;
    uint32_t heads, context, count;
};

DECODER_AT softmax_at(const struct decoder_softmax *a, uint32_t i)
{
    uint32_t first = i * a->context;
    const float *in = a->in + first;
    float *out = a->out + first;
    uint32_t last = decoder_position(a->positions, i / a->heads, a->context);
    float most = in[0], sum = 0.0f;
    DECODER_UNROLL
    for (uint32_t t = 1; t <= last; t++)
        most = fmaxf(most, in[t]);
    DECODER_UNROLL
    for (uint32_t t = 0; t <= last; t++) {
        out[t] = expf(in[t] - most);
        sum += out[t];
    }
    DECODER_UNROLL
    for (uint32_t t = 0; t <= last; t++)
        out[t] /= sum;
    for (uint32_t t = last + 1; t < a->context; t++)
        out[t] = 0.0f;
}

/* out[row][head][dim] = sum over t of weights[row][head][t] * values[row][t][head / group][dim] */
struct decoder_mix {
    float *out;
    const float *weights;
    const float *values;
    const int32_t *positions;
    uint32_t heads, group, dim, context, count;
};

DECODER_AT mix_at(const struct decoder_mix *a, uint32_t i)
{
    uint32_t head = i / a->dim % a->heads, row = i / a->dim / a->heads;
    uint32_t cached = a->heads / a->group, stride = cached * a->dim;
    uint32_t first = (row * a->heads + head) * a->context;
    uint32_t at = row * a->context * stride + head / a->group * a->dim + i % a->dim;
    const float *weights = a->weights + first;
    uint32_t last = decoder_position(a->positions, row, a->context);
    float sum = 0.0f;
    DECODER_UNROLL
    for (uint32_t t = 0; t <= last; t++, at += stride)
        sum += weights[t] * a->values[at];
    a->out[i] = sum;
}

/* out = gate * sigmoid(gate) * up */
struct decoder_swiglu {
    float *out;
    const float *gate, *up;
    uint32_t count;
};

DECODER_AT swiglu_at(const struct decoder_swiglu *a, uint32_t i)
{
    float gate = a->gate[i];
    a->out[i] = gate / (1.0f + expf(-gate)) * a->up[i];
}

#ifdef __CUDACC__
#define X(name, each)                                                                              \
    extern "C" __global__ void decoder_##name(const struct decoder_##name args)                    \
    {                                                                                              \
        uint32_t step = gridDim.x * blockDim.x;                                                    \
        for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < args.count / (each);          \
             i += step)                                                                            \
            name##_at(&args, i);                                                                   \
    }
DECODER_KERNELS(X)
#undef X
#endif

#endif
