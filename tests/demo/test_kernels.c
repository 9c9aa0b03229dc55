/* SPDX-License-Identifier: MIT
 *
 * The decoder's kernels, called as the host driver calls them, against a plain reference in double
 * precision; and their declared accesses against what they do: nothing that is not declared is
 * read or written.
 */
#include "kernels/decoder.h"
#include "kernels/images.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Every buffer of a test comes from here, so that a stray access hits a neighbour and is seen. */
enum { ARENA_WORDS = 1 << 16, POISON = 0x7fc0dead, GAP = 8 };
static uint32_t arena[ARENA_WORDS], before[ARENA_WORDS], first[ARENA_WORDS];
static unsigned char read_declared[ARENA_WORDS], write_declared[ARENA_WORDS];
static size_t arena_used;
static uint32_t random_state;

static uint32_t next_random(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

static void *buffer(size_t words)
{
    assert_true(arena_used + words + GAP <= ARENA_WORDS);
    void *at = arena + arena_used;
    arena_used += words + GAP;
    return at;
}

static float *random_floats(size_t count)
{
    float *at = buffer(count);
    for (size_t i = 0; i < count; i++)
        at[i] = (float)(next_random() % 2001) / 1000.0f - 1.0f;
    return at;
}

/* Below limit, but for the last row, which is out of range. */
static int32_t *random_indices(size_t count, uint32_t limit)
{
    int32_t *at = buffer(count);
    for (size_t i = 0; i < count; i++)
        at[i] = (int32_t)(next_random() % limit);
    at[count - 1] = -1;
    return at;
}

static int start(void **state)
{
    (void)state;
    random_state = 7;
    arena_used = GAP;
    for (size_t i = 0; i < ARENA_WORDS; i++)
        arena[i] = POISON;
    return 0;
}

static void declare(void *context, uint64_t address, uint64_t bytes, int is_write)
{
    (void)context;
    size_t word = (size_t)((const uint32_t *)(uintptr_t)address - arena);
    assert_true(word + bytes / 4 <= ARENA_WORDS);
    memset((is_write ? write_declared : read_declared) + word, 1, bytes / 4);
}

static const struct rp_host_kernel *find_kernel(const char *name)
{
    for (uint32_t i = 0; i < decoder_host_image.kernel_count; i++)
        if (!strcmp(decoder_host_image.kernels[i].name, name))
            return &decoder_host_image.kernels[i];
    fail_msg("the image has no kernel %s", name);
    return NULL;
}

/* Runs a kernel twice, the second time with everything poisoned that it does not declare as read,
 * and leaves the arena as the first run made it. */
static void launch(const char *name, void *args, size_t args_bytes)
{
    const struct rp_host_kernel *kernel = find_kernel(name);
    assert_int_equal(kernel->param_count, 1);
    assert_int_equal(kernel->params[0].bytes, args_bytes);
    void *params[] = {args};
    struct rp_host_launch one = {.params = params};
    memset(read_declared, 0, sizeof read_declared);
    memset(write_declared, 0, sizeof write_declared);
    kernel->access(&one, declare, NULL);

    memcpy(before, arena, sizeof arena);
    kernel->run(&one);
    memcpy(first, arena, sizeof arena);
    for (size_t i = 0; i < ARENA_WORDS; i++)
        if (first[i] != before[i])
            assert_true(write_declared[i]);

    for (size_t i = 0; i < ARENA_WORDS; i++)
        arena[i] = read_declared[i] ? before[i] : POISON;
    kernel->run(&one);
    for (size_t i = 0; i < ARENA_WORDS; i++)
        if (write_declared[i] && arena[i] != first[i])
            assert_true(arena[i] == POISON && first[i] == before[i]);
    memcpy(arena, first, sizeof arena);
}

static void near(double value, double reference)
{
    double allowed = 1e-5 + 1e-5 * fabs(reference);
    if (!(fabs(value - reference) <= allowed))
        fail_msg("%.9g instead of %.9g", value, reference);
}

static void test_embed(void **state)
{
    (void)state;
    enum { ROWS = 5, VOCAB = 11, HIDDEN = 24 };
    struct decoder_embed a = {.out = buffer(ROWS * HIDDEN),
                              .table = random_floats(VOCAB * HIDDEN),
                              .tokens = random_indices(ROWS, VOCAB),
                              .vocab = VOCAB,
                              .hidden = HIDDEN,
                              .count = ROWS * HIDDEN};
    launch("decoder_embed", &a, sizeof a);
    for (int row = 0; row < ROWS; row++)
        for (int h = 0; h < HIDDEN; h++)
            near(a.out[row * HIDDEN + h],
                 row == ROWS - 1 ? 0.0 : a.table[a.tokens[row] * HIDDEN + h]);
}

static void test_norm(void **state)
{
    (void)state;
    enum { ROWS = 5, HIDDEN = 24 };
    struct decoder_rms rms = {.out = buffer(ROWS),
                              .in = random_floats(ROWS * HIDDEN),
                              .epsilon = 1e-5f,
                              .hidden = HIDDEN,
                              .count = ROWS};
    struct decoder_normalize a = {.out = buffer(ROWS * HIDDEN),
                                  .in = rms.in,
                                  .inverse = rms.out,
                                  .gain = random_floats(HIDDEN),
                                  .hidden = HIDDEN,
                                  .count = ROWS * HIDDEN};
    launch("decoder_rms", &rms, sizeof rms);
    launch("decoder_normalize", &a, sizeof a);
    for (int row = 0; row < ROWS; row++) {
        double squares = 0;
        for (int h = 0; h < HIDDEN; h++)
            squares += (double)a.in[row * HIDDEN + h] * a.in[row * HIDDEN + h];
        for (int h = 0; h < HIDDEN; h++)
            near(a.out[row * HIDDEN + h],
                 a.in[row * HIDDEN + h] / sqrt(squares / HIDDEN + 1e-5) * a.gain[h]);
    }
}

static void check_matmul(const float *residual)
{
    enum { ROWS = 5, INNER = 24, COLUMNS = 3 * DECODER_TILE };
    struct decoder_matmul a = {.out = buffer(ROWS * COLUMNS),
                               .in = random_floats(ROWS * INNER),
                               .weight = random_floats(INNER * COLUMNS),
                               .residual = residual,
                               .inner = INNER,
                               .columns = COLUMNS,
                               .count = ROWS * COLUMNS};
    launch("decoder_matmul", &a, sizeof a);
    for (int row = 0; row < ROWS; row++)
        for (int c = 0; c < COLUMNS; c++) {
            double sum = residual ? residual[row * COLUMNS + c] : 0.0;
            for (int k = 0; k < INNER; k++)
                sum += (double)a.in[row * INNER + k] * a.weight[k * COLUMNS + c];
            near(a.out[row * COLUMNS + c], sum);
        }
}

static void test_matmul(void **state)
{
    (void)state;
    check_matmul(NULL);
    check_matmul(random_floats(5 * 3 * DECODER_TILE));
}

/* Position p of a row, the out of range one as the kernels take it: the last. */
static int position_of(const int32_t *positions, int row, int context)
{
    return positions[row] < 0 ? context - 1 : positions[row];
}

enum { ROWS = 5, CONTEXT = 9, DIM = 8, HEADS = 6, GROUP = 3, CACHED = HEADS / GROUP };

static double turned(const float *x, const float *angles, int position, int d)
{
    int half = DIM / 2, pair = d % half;
    double cosine = angles[(position * half + pair) * 2];
    double sine = angles[(position * half + pair) * 2 + 1];
    return d < half ? x[d] * cosine - x[d + half] * sine : x[d] * cosine + x[d - half] * sine;
}

static void test_rotate(void **state)
{
    (void)state;
    struct decoder_rotate a = {.x = random_floats(ROWS * HEADS * DIM),
                               .angles = random_floats(CONTEXT * DIM),
                               .positions = random_indices(ROWS, CONTEXT),
                               .heads = HEADS,
                               .dim = DIM,
                               .context = CONTEXT,
                               .count = ROWS * HEADS * DIM / 2};
    float original[ROWS * HEADS * DIM];
    memcpy(original, a.x, sizeof original);
    launch("decoder_rotate", &a, sizeof a);
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < HEADS * DIM; i++)
            near(a.x[row * HEADS * DIM + i],
                 turned(original + row * HEADS * DIM + i / DIM * DIM, a.angles,
                        position_of(a.positions, row, CONTEXT), i % DIM));
}

static void test_store(void **state)
{
    (void)state;
    enum { WIDTH = CACHED * DIM };
    struct decoder_store a = {.keys = random_floats(ROWS * CONTEXT * WIDTH),
                              .values = random_floats(ROWS * CONTEXT * WIDTH),
                              .key = random_floats(ROWS * WIDTH),
                              .value = random_floats(ROWS * WIDTH),
                              .angles = random_floats(CONTEXT * DIM),
                              .positions = random_indices(ROWS, CONTEXT),
                              .heads = CACHED,
                              .dim = DIM,
                              .context = CONTEXT,
                              .count = ROWS * WIDTH / 2};
    float keys[ROWS * CONTEXT * WIDTH], values[ROWS * CONTEXT * WIDTH];
    memcpy(keys, a.keys, sizeof keys);
    memcpy(values, a.values, sizeof values);
    launch("decoder_store", &a, sizeof a);
    for (int i = 0; i < ROWS * CONTEXT * WIDTH; i++) {
        int row = i / WIDTH / CONTEXT, t = i / WIDTH % CONTEXT, c = i % WIDTH;
        int here = t == position_of(a.positions, row, CONTEXT);
        const float *key = a.key + row * WIDTH + c / DIM * DIM;
        near(a.keys[i], here ? turned(key, a.angles, t, c % DIM) : keys[i]);
        near(a.values[i], here ? a.value[row * WIDTH + c] : values[i]);
    }
}

/* Attention of one row and head, the plain way: weights over the positions, then the mix. */
static void reference_attention(const float *query, const float *keys, const float *values, int row,
                                int head, int last, double *weights, double *mixed)
{
    double sum = 0;
    int stride = CACHED * DIM, at = row * CONTEXT * stride + head / GROUP * DIM;
    for (int t = 0; t <= last; t++) {
        double dot = 0;
        for (int d = 0; d < DIM; d++)
            dot += (double)query[(row * HEADS + head) * DIM + d] * keys[at + t * stride + d];
        weights[t] = exp(dot * 0.25);
        sum += weights[t];
    }
    for (int t = 0; t < CONTEXT; t++)
        weights[t] = t <= last ? weights[t] / sum : 0.0;
    for (int d = 0; d < DIM; d++) {
        mixed[d] = 0;
        for (int t = 0; t <= last; t++)
            mixed[d] += weights[t] * values[at + t * stride + d];
    }
}

static void test_attention(void **state)
{
    (void)state;
    struct decoder_scores scores = {.out = buffer(ROWS * HEADS * CONTEXT),
                                    .query = random_floats(ROWS * HEADS * DIM),
                                    .keys = random_floats(ROWS * CONTEXT * CACHED * DIM),
                                    .positions = random_indices(ROWS, CONTEXT),
                                    .scale = 0.25f,
                                    .heads = HEADS,
                                    .group = GROUP,
                                    .dim = DIM,
                                    .context = CONTEXT,
                                    .count = ROWS * HEADS * CONTEXT};
    struct decoder_softmax softmax = {.out = buffer(ROWS * HEADS * CONTEXT),
                                      .in = scores.out,
                                      .positions = scores.positions,
                                      .heads = HEADS,
                                      .context = CONTEXT,
                                      .count = ROWS * HEADS};
    struct decoder_mix mix = {.out = buffer(ROWS * HEADS * DIM),
                              .weights = softmax.out,
                              .values = random_floats(ROWS * CONTEXT * CACHED * DIM),
                              .positions = scores.positions,
                              .heads = HEADS,
                              .group = GROUP,
                              .dim = DIM,
                              .context = CONTEXT,
                              .count = ROWS * HEADS * DIM};
    launch("decoder_scores", &scores, sizeof scores);
    launch("decoder_softmax", &softmax, sizeof softmax);
    launch("decoder_mix", &mix, sizeof mix);
    for (int i = 0; i < ROWS * HEADS; i++) {
        double weights[CONTEXT], mixed[DIM];
        int last = position_of(scores.positions, i / HEADS, CONTEXT);
        reference_attention(scores.query, scores.keys, mix.values, i / HEADS, i % HEADS, last,
                            weights, mixed);
        for (int t = 0; t < CONTEXT; t++)
            near(softmax.out[i * CONTEXT + t], weights[t]);
        for (int d = 0; d < DIM; d++)
            near(mix.out[i * DIM + d], mixed[d]);
    }
}

static void test_swiglu(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    struct decoder_swiglu a = {.out = buffer(COUNT),
                               .gate = random_floats(COUNT),
                               .up = random_floats(COUNT),
                               .count = COUNT};
    launch("decoder_swiglu", &a, sizeof a);
    for (int i = 0; i < COUNT; i++)
        near(a.out[i], a.gate[i] / (1.0 + exp(-(double)a.gate[i])) * a.up[i]);
}

/* The PTX has an entry for each kernel of the image, under the same name. */
static void test_ptx_names(void **state)
{
    (void)state;
    assert_memory_equal(decoder_host_image.magic, RP_HOST_IMAGE_MAGIC, 8);
    for (uint32_t i = 0; i < decoder_host_image.kernel_count; i++) {
        char entry[64];
        snprintf(entry, sizeof entry, ".entry %s(", decoder_host_image.kernels[i].name);
        assert_non_null(strstr(decoder_ptx, entry));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_embed, start),  cmocka_unit_test_setup(test_norm, start),
        cmocka_unit_test_setup(test_matmul, start), cmocka_unit_test_setup(test_rotate, start),
        cmocka_unit_test_setup(test_store, start),  cmocka_unit_test_setup(test_attention, start),
        cmocka_unit_test_setup(test_swiglu, start), cmocka_unit_test(test_ptx_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
