/* SPDX-License-Identifier: MIT
 *
 * A small transformer decoder whose single step is the work that the demo captures: embedding, then
 * in each layer RMSNorm, attention over a KV cache with rotary positions and grouped heads, and a
 * gated MLP, each added to the residual; RMSNorm and logits at the end.
 *
 * Weights and cache are state: allocated once, reached by plain addresses, weights from a seed.
 * Tokens, positions and logits are arguments of the step. Everything between is memory of the run.
 */
#ifndef REPRISE_CLI_DECODER_H
#define REPRISE_CLI_DECODER_H

#include "gpu.h"

/* hidden = heads * dim. heads is a multiple of cached_heads. All widths are multiples of 16. */
struct decoder_shape {
    uint32_t layers, hidden, heads, cached_heads, dim, inner, vocab;
    uint32_t context; /* positions of the cache, for each row */
    uint32_t rows;    /* largest batch */
};
extern const struct decoder_shape decoder_shape_demo;

/* Device addresses of one layer's weights, [inputs][outputs], and of its part of the cache,
 * [rows][context][cached_heads][dim]. */
struct decoder_layer {
    float *attention_gain, *query, *key, *value, *output;
    float *mlp_gain, *gate, *up, *down;
    float *keys, *values;
};

enum { DECODER_MOST_LAYERS = 8, DECODER_KERNEL_COUNT = 10 };

struct decoder {
    struct decoder_shape shape;
    struct gpu gpu;
    struct rp_device *device;
    struct CUmod_st *module;
    struct CUfunc_st *kernels[DECODER_KERNEL_COUNT];
    struct CUstream_st *side; /* forked from the step's stream and joined again */
    struct CUevent_st *forked, *joined;
    uint64_t state; /* the one allocation that holds all of the following */
    size_t state_floats;
    float *embedding, *angles, *final_gain, *logits;
    struct decoder_layer layers[DECODER_MOST_LAYERS];
};

/* Loads the kernels and fills weights and cache from the seed. The device outlives the decoder. */
rp_status decoder_create(struct rp_device *device, const struct decoder_shape *shape, uint64_t seed,
                         struct decoder **out_decoder, struct rp_error *err);
/* NULL is allowed. Work of the decoder must have ended. */
void decoder_destroy(struct decoder *decoder);

/* A step for the first `rows` sequences. */
struct decoder_batch {
    const struct decoder *decoder;
    uint32_t rows;
};

/* Arguments of decoder_step: int32 tokens[rows] and positions[rows], float logits[rows][vocab]. */
enum { DECODER_TOKENS, DECODER_POSITIONS, DECODER_LOGITS, DECODER_ARGS };
void decoder_args(const struct decoder_batch *batch, uint64_t tokens, uint64_t positions,
                  uint64_t logits, struct rp_arg out_args[DECODER_ARGS]);

/* The callable; user is a struct decoder_batch. Writes the keys and values of each row at its
 * position into the cache, and the logits. The same step twice leaves the same state. */
rp_status decoder_step(struct rp_call *call, void *user, struct rp_error *err);

#endif
