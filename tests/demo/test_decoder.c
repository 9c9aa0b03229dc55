/* SPDX-License-Identifier: MIT
 *
 * The decoder's step on the host driver: against a plain model in double precision, and replayed
 * from graphs that share a pool, in the orders of several seeds, against itself to the bit.
 */
#include "decoder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    LAYERS = 2,
    HEADS = 4,
    CACHED = 2,
    DIM = 8,
    HIDDEN = HEADS * DIM,
    WIDTH = CACHED * DIM,
    INNER = 48,
    VOCAB = 64,
    CONTEXT = 10,
    ROWS = 6
};

static const struct decoder_shape shape = {LAYERS, HIDDEN, HEADS,   CACHED, DIM,
                                           INNER,  VOCAB,  CONTEXT, ROWS};

static const int32_t tokens[ROWS] = {3, 63, 0, 17, 17, 40};
static const int32_t positions[ROWS] = {0, 9, 4, 4, 1, 7};

struct fixture {
    struct rp_device *device;
    struct decoder *decoder;
    struct rp_pool *pool;
    struct CUstream_st *stream;
    uint64_t buffers[2][DECODER_ARGS];
    float *state; /* as it is on the device */
};

#define OK(call)                                                                                   \
    do {                                                                                           \
        struct rp_error ok_err = {RP_OK, 0, "", "", 0, 0, ""};                                     \
        rp_status ok_status = (call);                                                              \
        if (ok_status)                                                                             \
            fail_msg("%s: %s", ok_err.operation, ok_err.message);                                  \
    } while (0)

static void start(struct fixture *f, uint64_t seed)
{
    struct rp_device_options options = RP_DEVICE_OPTIONS_INIT;
    options.driver = "host";
    options.host_seed = seed;
    memset(f, 0, sizeof *f);
    OK(rp_device_open(&options, &f->device, &ok_err));
    OK(rp_device_push(f->device, &ok_err));
    OK(decoder_create(f->device, &shape, 5, &f->decoder, &ok_err));
    OK(rp_pool_create(f->device, NULL, &f->pool, &ok_err));
    const struct gpu *gpu = &f->decoder->gpu;
    assert_int_equal(gpu->cuStreamCreate(&f->stream, GPU_STREAM_NON_BLOCKING), 0);
    for (int set = 0; set < 2; set++)
        for (int i = 0; i < DECODER_ARGS; i++)
            assert_int_equal(gpu->cuMemAlloc(&f->buffers[set][i], ROWS * VOCAB * sizeof(float)), 0);
    f->state = calloc(f->decoder->state_floats, sizeof(float));
    assert_non_null(f->state);
}

static void finish(struct fixture *f)
{
    const struct gpu *gpu = &f->decoder->gpu;
    for (int set = 0; set < 2; set++)
        for (int i = 0; i < DECODER_ARGS; i++)
            gpu->cuMemFree(f->buffers[set][i]);
    gpu->cuStreamDestroy(f->stream);
    rp_pool_destroy(f->pool);
    decoder_destroy(f->decoder);
    rp_device_pop(f->device);
    rp_device_destroy(f->device);
    free(f->state);
}

static void copy_out(struct fixture *f, void *to, uint64_t from, size_t bytes)
{
    const struct gpu *gpu = &f->decoder->gpu;
    assert_int_equal(gpu->cuMemcpyDtoHAsync(to, from, bytes, f->stream), 0);
    assert_int_equal(gpu->cuStreamSynchronize(f->stream), 0);
}

static void copy_in(struct fixture *f, uint64_t to, const void *from, size_t bytes)
{
    const struct gpu *gpu = &f->decoder->gpu;
    assert_int_equal(gpu->cuMemcpyHtoDAsync(to, from, bytes, f->stream), 0);
    assert_int_equal(gpu->cuStreamSynchronize(f->stream), 0);
}

static void read_state(struct fixture *f)
{
    copy_out(f, f->state, f->decoder->state, f->decoder->state_floats * sizeof(float));
}

static void write_state(struct fixture *f)
{
    copy_in(f, f->decoder->state, f->state, f->decoder->state_floats * sizeof(float));
}

/* The host copy of a device address in the state. */
static float *host(const struct fixture *f, const float *device)
{
    return f->state + ((uint64_t)(uintptr_t)device - f->decoder->state) / sizeof(float);
}

/* ---- The model, row by row, in double precision ---- */

static void model_norm(double *out, const double *x, const float *gain)
{
    double squares = 0;
    for (int i = 0; i < HIDDEN; i++)
        squares += x[i] * x[i];
    for (int i = 0; i < HIDDEN; i++)
        out[i] = x[i] / sqrt(squares / HIDDEN + 1e-5) * gain[i];
}

static void model_matmul(double *out, const double *x, const float *weight, int inputs, int outputs)
{
    for (int o = 0; o < outputs; o++) {
        out[o] = 0;
        for (int i = 0; i < inputs; i++)
            out[o] += x[i] * weight[i * outputs + o];
    }
}

/* The rotation by its definition: pair j turns by position * 10000^(-2j / DIM). */
static void model_turn(double *x, int heads, int position)
{
    for (int head = 0; head < heads; head++)
        for (int j = 0; j < DIM / 2; j++) {
            double angle = position * pow(10000.0, -2.0 * j / DIM);
            double *low = x + head * DIM + j, *high = low + DIM / 2, was = *low;
            *low = was * cos(angle) - *high * sin(angle);
            *high = *high * cos(angle) + was * sin(angle);
        }
}

static void model_attention(const struct fixture *f, const struct decoder_layer *w, int row,
                            double *x)
{
    double normed[HIDDEN], q[HIDDEN], k[WIDTH], v[WIDTH], mixed[HIDDEN] = {0}, out[HIDDEN];
    int position = positions[row];
    float *keys = host(f, w->keys) + row * CONTEXT * WIDTH;
    float *values = host(f, w->values) + row * CONTEXT * WIDTH;
    model_norm(normed, x, host(f, w->attention_gain));
    model_matmul(q, normed, host(f, w->query), HIDDEN, HIDDEN);
    model_matmul(k, normed, host(f, w->key), HIDDEN, WIDTH);
    model_matmul(v, normed, host(f, w->value), HIDDEN, WIDTH);
    model_turn(q, HEADS, position);
    model_turn(k, CACHED, position);
    for (int i = 0; i < WIDTH; i++) {
        keys[position * WIDTH + i] = (float)k[i];
        values[position * WIDTH + i] = (float)v[i];
    }
    for (int head = 0; head < HEADS; head++) {
        int at = head / (HEADS / CACHED) * DIM;
        double weights[CONTEXT], sum = 0;
        for (int t = 0; t <= position; t++) {
            double dot = 0;
            for (int d = 0; d < DIM; d++)
                dot += q[head * DIM + d] * keys[t * WIDTH + at + d];
            sum += weights[t] = exp(dot / sqrt(DIM));
        }
        for (int t = 0; t <= position; t++)
            for (int d = 0; d < DIM; d++)
                mixed[head * DIM + d] += weights[t] / sum * values[t * WIDTH + at + d];
    }
    model_matmul(out, mixed, host(f, w->output), HIDDEN, HIDDEN);
    for (int i = 0; i < HIDDEN; i++)
        x[i] += out[i];
}

static void model_mlp(const struct fixture *f, const struct decoder_layer *w, double *x)
{
    double normed[HIDDEN], gate[INNER], up[INNER], out[HIDDEN];
    model_norm(normed, x, host(f, w->mlp_gain));
    model_matmul(gate, normed, host(f, w->gate), HIDDEN, INNER);
    model_matmul(up, normed, host(f, w->up), HIDDEN, INNER);
    for (int i = 0; i < INNER; i++)
        gate[i] *= up[i] / (1 + exp(-gate[i]));
    model_matmul(out, gate, host(f, w->down), INNER, HIDDEN);
    for (int i = 0; i < HIDDEN; i++)
        x[i] += out[i];
}

/* A step of the model on the host copy of the state. */
static void model_step(const struct fixture *f, double logits[ROWS][VOCAB])
{
    const struct decoder *d = f->decoder;
    for (int row = 0; row < ROWS; row++) {
        double x[HIDDEN], normed[HIDDEN];
        for (int i = 0; i < HIDDEN; i++)
            x[i] = host(f, d->embedding)[tokens[row] * HIDDEN + i];
        for (int layer = 0; layer < LAYERS; layer++) {
            model_attention(f, &d->layers[layer], row, x);
            model_mlp(f, &d->layers[layer], x);
        }
        model_norm(normed, x, host(f, d->final_gain));
        model_matmul(logits[row], normed, host(f, d->logits), HIDDEN, VOCAB);
    }
}

/* ---- Tests ---- */

static void args_of(struct fixture *f, const struct decoder_batch *batch, int set,
                    struct rp_arg args[DECODER_ARGS])
{
    const uint64_t *at = f->buffers[set];
    copy_in(f, at[DECODER_TOKENS], tokens, batch->rows * sizeof(int32_t));
    copy_in(f, at[DECODER_POSITIONS], positions, batch->rows * sizeof(int32_t));
    assert_int_equal(f->decoder->gpu.cuMemsetD8Async(
                         at[DECODER_LOGITS], 0xff, batch->rows * VOCAB * sizeof(float), f->stream),
                     0);
    decoder_args(batch, at[DECODER_TOKENS], at[DECODER_POSITIONS], at[DECODER_LOGITS], args);
}

static void near(double value, double reference)
{
    if (!(fabs(value - reference) <= 1e-4 + 1e-4 * fabs(reference)))
        fail_msg("%.9g instead of %.9g", value, reference);
}

static void test_step_is_the_model(void **state)
{
    (void)state;
    struct fixture f;
    struct rp_arg args[DECODER_ARGS];
    static float logits[ROWS][VOCAB];
    static double expected[ROWS][VOCAB];
    start(&f, 0);
    struct decoder_batch batch = {f.decoder, ROWS};
    size_t bytes = f.decoder->state_floats * sizeof(float);
    float *before = malloc(bytes);
    assert_non_null(before);
    read_state(&f);
    memcpy(before, f.state, bytes);
    model_step(&f, expected);

    args_of(&f, &batch, 0, args);
    OK(rp_run(f.pool, decoder_step, &batch, args, DECODER_ARGS, f.stream, &ok_err));
    copy_out(&f, logits, f.buffers[0][DECODER_LOGITS], sizeof logits);
    for (int i = 0; i < ROWS * VOCAB; i++)
        near(logits[i / VOCAB][i % VOCAB], expected[i / VOCAB][i % VOCAB]);

    /* The state is what it was, but for the cache at each row's position. */
    float *modelled = f.state;
    f.state = malloc(bytes);
    assert_non_null(f.state);
    read_state(&f);
    size_t written = 0;
    for (size_t i = 0; i < f.decoder->state_floats; i++) {
        near(f.state[i], modelled[i]);
        written += f.state[i] != before[i];
    }
    assert_int_equal(written, LAYERS * 2 * ROWS * WIDTH);
    free(modelled);
    free(before);
    finish(&f);
}

/* Replays graph i at the second set of buffers and compares with an eager run at the first. */
static void check_replay(struct fixture *f, struct decoder_batch *batch, struct rp_graph *graph,
                         const float *state)
{
    struct rp_arg args[DECODER_ARGS];
    float eager[ROWS * VOCAB], replayed[ROWS * VOCAB];
    size_t logit_bytes = batch->rows * VOCAB * sizeof(float);
    size_t bytes = f->decoder->state_floats * sizeof(float);
    float *after = malloc(bytes);
    assert_non_null(after);

    memcpy(f->state, state, bytes);
    write_state(f);
    args_of(f, batch, 0, args);
    OK(rp_run(f->pool, decoder_step, batch, args, DECODER_ARGS, f->stream, &ok_err));
    copy_out(f, eager, f->buffers[0][DECODER_LOGITS], logit_bytes);
    read_state(f);
    memcpy(after, f->state, bytes);

    memcpy(f->state, state, bytes);
    write_state(f);
    args_of(f, batch, 1, args);
    OK(rp_graph_replay(graph, args, DECODER_ARGS, f->stream, &ok_err));
    copy_out(f, replayed, f->buffers[1][DECODER_LOGITS], logit_bytes);
    read_state(f);
    assert_memory_equal(eager, replayed, logit_bytes);
    assert_memory_equal(after, f->state, bytes);
    free(after);
}

static void check_replays(uint64_t seed)
{
    enum { GRAPHS = 3, TURNS = 3 };
    static const uint32_t rows[GRAPHS] = {ROWS, 3, 1};
    struct fixture f;
    struct rp_arg args[DECODER_ARGS];
    struct decoder_batch batches[GRAPHS];
    struct rp_graph *graphs[GRAPHS];
    struct rp_pool_info first = {.size = sizeof first}, last = {.size = sizeof last};
    start(&f, seed);
    read_state(&f);
    size_t bytes = f.decoder->state_floats * sizeof(float);
    float *state = malloc(bytes);
    assert_non_null(state);
    memcpy(state, f.state, bytes);
    for (int i = 0; i < GRAPHS; i++) {
        batches[i] = (struct decoder_batch){f.decoder, rows[i]};
        args_of(&f, &batches[i], 0, args);
        OK(rp_run(f.pool, decoder_step, &batches[i], args, DECODER_ARGS, f.stream, &ok_err));
        OK(rp_graph_capture(f.pool, NULL, decoder_step, &batches[i], args, DECODER_ARGS, &graphs[i],
                            &ok_err));
        rp_pool_info(f.pool, i ? &last : &first);
    }
    assert_int_equal(first.planned_bytes, last.planned_bytes);
    assert_true(first.planned_bytes >= first.lower_bound_bytes);
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < GRAPHS; i++)
            check_replay(&f, &batches[i], graphs[i], state);
    for (int i = 0; i < GRAPHS; i++)
        rp_graph_destroy(graphs[i]);
    free(state);
    finish(&f);
}

static void test_replays_equal_eager(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++)
        check_replays(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_is_the_model),
        cmocka_unit_test(test_replays_equal_eager),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
