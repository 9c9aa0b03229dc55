/* SPDX-License-Identifier: MIT
 *
 * Buckets: boxes copied and filled at random strides against plain loops; calls of random sizes
 * give what they give without a graph, see padding of the right value, and write nothing beyond
 * their own elements.
 */
#include "graph_fixture.h"

#include "graph/callable/strided_copy.h"
#include "reprise_heap.h"

enum { MOST_BYTES = 1 << 16, FLOATS = 4096 };

static uint64_t seed;

static int64_t below(int64_t limit)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((seed >> 33) % (uint64_t)limit);
}

static uint64_t device_bytes(struct rpt_fixture *f, unsigned char value)
{
    CUdeviceptr address = 0;
    assert_int_equal(f->driver->cuMemAlloc(&address, MOST_BYTES), 0);
    assert_int_equal(f->driver->cuMemsetD8(address, value, MOST_BYTES), 0);
    assert_int_equal(f->driver->cuCtxSynchronize(), 0);
    return address;
}

static void read_bytes(struct rpt_fixture *f, uint64_t address, void *out, size_t bytes)
{
    assert_int_equal(f->driver->cuCtxSynchronize(), 0);
    assert_int_equal(f->driver->cuMemcpyDtoH(out, address, bytes), 0);
}

/* ---- Boxes --------------------------------------------------------------------------------- */

/* Sizes of 0 to 5 and strides that keep elements apart, in any order of the dimensions. */
static uint32_t random_box(int64_t *sizes, int64_t *a, int64_t *b)
{
    uint32_t rank = (uint32_t)below(5);
    int64_t step_a = 1, step_b = 1;
    for (uint32_t i = 0; i < rank; i++)
        sizes[i] = below(20) ? 1 + below(5) : 0;
    for (uint32_t i = rank; i-- > 0;) {
        step_a *= 1 + below(2);
        a[i] = step_a;
        b[i] = step_b;
        step_a *= sizes[i] ? sizes[i] : 1;
        step_b *= sizes[i] ? sizes[i] : 1;
    }
    if (rank > 1 && below(3) == 0) { /* transposed, or the source repeats a row */
        int64_t other = a[0];
        a[0] = a[rank - 1];
        a[rank - 1] = other;
        sizes[0] = sizes[rank - 1];
    } else if (rank > 1 && below(3) == 0) {
        b[0] = 0;
    }
    return rank;
}

/* Calls visit(index) for each element of the box. */
static bool next_index(int64_t *index, const int64_t *sizes, uint32_t rank)
{
    for (uint32_t i = rank; i-- > 0;) {
        if (++index[i] < sizes[i])
            return true;
        index[i] = 0;
    }
    return false;
}

static int64_t place(const int64_t *index, const int64_t *strides, uint32_t rank)
{
    int64_t at = 0;
    for (uint32_t i = 0; i < rank; i++)
        at += index[i] * strides[i];
    return at;
}

static bool is_empty(const int64_t *sizes, uint32_t rank)
{
    for (uint32_t i = 0; i < rank; i++)
        if (!sizes[i])
            return true;
    return false;
}

static void boxes_are_copied(void **state)
{
    (void)state;
    static unsigned char source[MOST_BYTES], expected[MOST_BYTES], got[MOST_BYTES];
    struct rpt_fixture f;
    rpt_open(&f);
    uint64_t from = device_bytes(&f, 0), to = device_bytes(&f, 0);
    for (int i = 0; i < MOST_BYTES; i++)
        source[i] = (unsigned char)(i * 7 + i / 256);
    assert_int_equal(f.driver->cuMemcpyHtoD(from, source, MOST_BYTES), 0);
    for (seed = 1; seed < 4000; seed += 3) {
        uint64_t again = seed;
        int64_t sizes[8], a[8], b[8], index[8] = {0};
        uint32_t rank = random_box(sizes, a, b), element = 1u << below(4);
        struct rpi_strided out = {to, a}, in = {from, b};
        memset(expected, 0xee, MOST_BYTES);
        assert_int_equal(f.driver->cuMemsetD8(to, 0xee, MOST_BYTES), 0);
        assert_int_equal(f.driver->cuCtxSynchronize(), 0);
        RPT_OK(&f,
               rpi_strided_copy(f.driver, &out, &in, sizes, rank, element, f.streams[0], &f.err));
        if (!is_empty(sizes, rank))
            do {
                memcpy(expected + place(index, a, rank) * element,
                       source + place(index, b, rank) * element, element);
            } while (next_index(index, sizes, rank));
        read_bytes(&f, to, got, MOST_BYTES);
        assert_memory_equal(got, expected, MOST_BYTES);
        seed = again;
    }
    assert_int_equal(f.driver->cuMemFree(from), 0);
    assert_int_equal(f.driver->cuMemFree(to), 0);
    rpt_close(&f);
}

static void boxes_are_filled_beyond(void **state)
{
    (void)state;
    static unsigned char expected[MOST_BYTES], got[MOST_BYTES];
    struct rpt_fixture f;
    rpt_open(&f);
    uint64_t to = device_bytes(&f, 0);
    for (seed = 1; seed < 4000; seed += 3) {
        uint64_t again = seed, bits = below(3) ? 0x8070605040302010u * (uint64_t)below(9) : 0;
        int64_t inner[8], outer[8], strides[8], index[8] = {0}, step = 1;
        uint32_t rank = 1 + (uint32_t)below(4), element = 1u << below(5);
        for (uint32_t i = rank; i-- > 0;) {
            outer[i] = 1 + below(6);
            inner[i] = below(outer[i] + 2);
            step *= 1 + (below(3) == 0);
            strides[i] = step;
            step *= outer[i];
        }
        struct rpi_strided box = {to, strides};
        memset(expected, 0xee, MOST_BYTES);
        assert_int_equal(f.driver->cuMemsetD8(to, 0xee, MOST_BYTES), 0);
        assert_int_equal(f.driver->cuCtxSynchronize(), 0);
        if (element < 8)
            bits &= ((uint64_t)1 << (8 * element)) - 1;
        RPT_OK(&f, rpi_strided_fill_beyond(f.driver, &box, inner, outer, rank, element, bits,
                                           f.streams[0], &f.err));
        do {
            bool within = true;
            for (uint32_t i = 0; i < rank; i++)
                within &= index[i] < inner[i];
            uint64_t wide[2] = {bits, 0};
            if (!within)
                memcpy(expected + place(index, strides, rank) * element, wide, element);
        } while (next_index(index, outer, rank));
        read_bytes(&f, to, got, MOST_BYTES);
        assert_memory_equal(got, expected, MOST_BYTES);
        seed = again;
    }
    assert_int_equal(f.driver->cuMemFree(to), 0);
    rpt_close(&f);
}

/* ---- Calls --------------------------------------------------------------------------------- */

enum { IN, INOUT, OUT, ECHO, ARGS };

struct fixture {
    struct rpt_fixture f;
    struct rp_heap *heap;
    struct rp_callable *callable;
    uint64_t buffers[ARGS];
    float before[ARGS][FLOATS], after[ARGS][FLOATS];
    uint64_t seen; /* elements of the last run's `in` */
};

/* out = 2 in, inout += 3 in, echo = the bytes of in, padding and all. */
static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    struct fixture *t = user;
    CUstream stream = rp_call_stream(call);
    struct rp_arg in;
    rp_call_tensor(call, IN, &in);
    assert_true(!in.strides);
    uint32_t count = (uint32_t)(in.shape[0] * in.shape[1]);
    t->seen = count;
    if (!count)
        return RP_OK;
    rp_status status = rpt_scale(&t->f, stream, rp_call_arg(call, OUT), in.address, 2, count, err);
    if (status == RP_OK)
        status = rpt_saxpy(&t->f, stream, rp_call_arg(call, INOUT), in.address, 3, count, err);
    if (status == RP_OK && t->f.driver->cuMemcpyDtoDAsync(rp_call_arg(call, ECHO), in.address,
                                                          count * sizeof(float), stream))
        status = RP_ERROR_DRIVER;
    return status;
}

static const struct rp_axis batch_axes[] = {{IN, 0}, {INOUT, 0}, {OUT, 0}};
static const struct rp_axis length_axes[] = {{IN, 1}, {INOUT, 1}, {OUT, 1}};
static const int64_t batches[] = {1, 2, 4, 12, 16}, eights[] = {8};
static const struct rp_dim dims[] = {
    {"batch", batch_axes, 3, RP_BUCKET_LIST, 0, batches, 5},
    {"length", length_axes, 3, RP_BUCKET_MULTIPLES, 0, eights, 1},
};

static void start(struct fixture *t, const struct rp_dim *with, size_t count)
{
    static const struct rp_fill fills[] = {{.arg = IN, .bits = 0x40e00000}}; /* 7.0 */
    struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
    memset(t, 0, sizeof *t);
    rpt_open(&t->f);
    RPT_OK(&t->f, rp_heap_create(t->f.device, NULL, &t->heap, &t->f.err));
    options.dims = with;
    options.dim_count = count;
    options.fills = fills;
    options.fill_count = 1;
    options.heap = t->heap;
    RPT_OK(&t->f, rp_callable_create(t->f.device, &options, work, t, &t->callable, &t->f.err));
    for (int i = 0; i < ARGS; i++)
        t->buffers[i] = rpt_buffer(&t->f, FLOATS, (float)(100 * i));
}

static void finish(struct fixture *t)
{
    rp_callable_destroy(t->callable);
    rp_heap_destroy(t->heap);
    for (int i = 0; i < ARGS; i++)
        assert_int_equal(t->f.driver->cuMemFree(t->buffers[i]), 0);
    rpt_close(&t->f);
}

struct sizes {
    int64_t shape[2], strides[3][2];
};

static void random_strides(struct sizes *s, bool plain)
{
    for (int k = 0; k < 3; k++) {
        int64_t gap = plain ? 0 : below(3);
        bool transposed = !plain && below(4) == 0;
        s->strides[k][0] = transposed ? 1 : s->shape[1] + gap;
        s->strides[k][1] = transposed ? s->shape[0] + gap : 1;
    }
}

static void make_args(struct fixture *t, const struct sizes *s, bool plain,
                      struct rp_arg args[ARGS])
{
    static const enum rp_arg_role roles[] = {RP_ARG_IN, RP_ARG_INOUT, RP_ARG_OUT};
    for (int k = 0; k < 3; k++) {
        int64_t last = (s->shape[0] - 1) * s->strides[k][0] + (s->shape[1] - 1) * s->strides[k][1];
        args[k] = (struct rp_arg){.address = t->buffers[k],
                                  .bytes = (uint64_t)(last + 1) * sizeof(float),
                                  .role = roles[k],
                                  .dtype = RP_DTYPE_FLOAT32,
                                  .rank = 2,
                                  .shape = s->shape,
                                  .strides = plain ? NULL : s->strides[k]};
        if (!s->shape[0] || !s->shape[1])
            args[k].bytes = 0;
    }
    args[ECHO] = rpt_arg(t->buffers[ECHO], FLOATS, RP_ARG_OUT);
}

static void read_all(struct fixture *t, float into[ARGS][FLOATS])
{
    for (int k = 0; k < ARGS; k++)
        rpt_read(&t->f, t->buffers[k], into[k], FLOATS);
}

/* What was called gave what the function gives, and touched nothing else. */
static void check_call(struct fixture *t, const struct sizes *s)
{
    for (int64_t i = 0; i < s->shape[0]; i++) {
        for (int64_t j = 0; j < s->shape[1]; j++) {
            int64_t at[3];
            for (int k = 0; k < 3; k++)
                at[k] = i * s->strides[k][0] + j * s->strides[k][1];
            t->before[OUT][at[OUT]] = 2 * t->before[IN][at[IN]];
            t->before[INOUT][at[INOUT]] += 3 * t->before[IN][at[IN]];
        }
    }
    for (int k = 0; k < ECHO; k++)
        assert_memory_equal(t->before[k], t->after[k], sizeof t->before[k]);
}

static int64_t bucket_of(int64_t size, bool batch)
{
    if (!batch)
        return (size + 7) / 8 * 8;
    for (int i = 0; i < 5; i++)
        if (size && batches[i] >= size)
            return batches[i];
    return size;
}

/* The graph saw the true elements and the fill around them. */
static void check_echo(struct fixture *t, const struct sizes *s, int64_t rows, int64_t length)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < length; j++) {
            bool within = i < s->shape[0] && j < s->shape[1];
            int64_t at = i * s->strides[IN][0] + j * s->strides[IN][1];
            assert_float_equal(t->after[ECHO][i * length + j], within ? t->before[IN][at] : 7, 0);
        }
}

static void one_call(struct fixture *t, struct sizes *s, bool plain)
{
    struct rp_arg args[ARGS];
    random_strides(s, plain);
    make_args(t, s, plain, args);
    struct rp_inputs inputs = {.args = args, .arg_count = ARGS};
    read_all(t, t->before);
    CUstream stream = t->f.streams[below(RPT_STREAMS)];
    RPT_OK(&t->f, rp_callable_call(t->callable, &inputs, stream, &t->f.err));
    read_all(t, t->after);
    check_call(t, s);
}

static void random_sizes_equal_eager(void **state)
{
    (void)state;
    struct fixture t;
    struct rp_callable_info info = {.size = sizeof info};
    struct sizes s = {.shape = {3, 5}};
    seed = 5;
    start(&t, dims, 2);
    one_call(&t, &s, true); /* the first is eager */
    assert_int_equal(t.seen, 15);
    for (int i = 0; i < 600; i++) {
        bool same = below(2);
        s.shape[0] = same ? s.shape[0] : below(20);
        s.shape[1] = same && below(2) ? s.shape[1] : below(60);
        one_call(&t, &s, below(2));
        if (s.shape[0] && s.shape[1])
            check_echo(&t, &s, bucket_of(s.shape[0], true), bucket_of(s.shape[1], false));
    }
    rp_callable_info(t.callable, &info);
    assert_int_equal(info.eager_runs, 1);
    assert_int_equal(info.eager_shapes, 0);
    assert_true(info.padded_calls > 300 && info.padded_calls < 600);
    assert_true(info.graphs <= 9 * 8 + 20);
    assert_true(info.staging_bytes > 0);
    finish(&t);
}

/* Padding is filled anew only where the last call of the bucket had more. */
static void padding_that_is_there_stays(void **state)
{
    (void)state;
    static const int64_t rows[] = {16, 13, 14, 13, 9, 16, 12};
    struct fixture t;
    struct sizes s = {.shape = {16, 8}};
    start(&t, dims, 2);
    one_call(&t, &s, true);
    for (int i = 0; i < 7; i++) {
        s.shape[0] = rows[i];
        one_call(&t, &s, true);
        check_echo(&t, &s, bucket_of(rows[i], true), 8);
    }
    finish(&t);
}

/* Calls on several streams, nothing waited for in between: each finds the staging its own. */
static void streams_take_turns(void **state)
{
    (void)state;
    enum { CALLS = 24, ROWS = 3, LENGTH = 5, COUNT = 16 };
    struct fixture t;
    struct sizes s = {.shape = {ROWS, LENGTH}};
    uint64_t buffers[CALLS][ARGS];
    start(&t, dims, 2);
    one_call(&t, &s, true);
    for (int i = 0; i < CALLS; i++)
        for (int k = 0; k < ARGS; k++)
            buffers[i][k] = rpt_buffer(&t.f, k == ECHO ? FLOATS : COUNT, (float)(i + 100 * k));
    for (int i = 0; i < CALLS; i++) {
        struct rp_arg args[ARGS];
        random_strides(&s, true);
        make_args(&t, &s, true, args);
        for (int k = 0; k < ARGS; k++)
            args[k].address = buffers[i][k];
        struct rp_inputs inputs = {.args = args, .arg_count = ARGS};
        CUstream stream = t.f.streams[i % RPT_STREAMS];
        RPT_OK(&t.f, rp_callable_call(t.callable, &inputs, stream, &t.f.err));
    }
    for (int i = 0; i < CALLS; i++) {
        float in[COUNT], out[COUNT];
        rpt_read(&t.f, buffers[i][IN], in, COUNT);
        rpt_read(&t.f, buffers[i][OUT], out, COUNT);
        for (int j = 0; j < ROWS * LENGTH; j++)
            assert_float_equal(out[j], 2 * in[j], 0);
        assert_float_equal(out[COUNT - 1], i + 100 * OUT + (COUNT - 1) % 7, 0);
        for (int k = 0; k < ARGS; k++)
            assert_int_equal(t.f.driver->cuMemFree(buffers[i][k]), 0);
    }
    finish(&t);
}

static void fresh_outputs(void **state)
{
    (void)state;
    struct fixture t;
    struct rp_arg args[ARGS];
    struct sizes s = {.shape = {3, 5}};
    int64_t live;
    start(&t, dims, 2);
    for (int round = 0; round < 4; round++) {
        s.shape[1] = round < 3 ? 5 : 8;
        random_strides(&s, true);
        make_args(&t, &s, true, args);
        args[OUT].address = 0;
        struct rp_inputs inputs = {.args = args, .arg_count = ARGS};
        read_all(&t, t.before);
        RPT_OK(&t.f, rp_callable_call(t.callable, &inputs, t.f.streams[0], &t.f.err));
        assert_true(args[OUT].address != 0);
        float out[FLOATS];
        rpt_read(&t.f, args[OUT].address, out, (uint32_t)(args[OUT].bytes / sizeof *out));
        int64_t step = args[OUT].strides ? args[OUT].strides[0] : s.shape[1];
        assert_int_equal(args[OUT].bytes, round ? 4 * 8 * sizeof(float) : 60);
        assert_int_equal(step, round ? 8 : 5);
        assert_int_equal(!args[OUT].strides, round == 0 || round == 3);
        for (int64_t i = 0; i < s.shape[0]; i++)
            for (int64_t j = 0; j < s.shape[1]; j++)
                assert_float_equal(out[i * step + j], 2 * t.before[IN][i * s.shape[1] + j], 0);
        RPT_OK(&t.f, rp_heap_free(t.heap, args[OUT].address, &t.f.err));
    }
    RPT_OK(&t.f, rp_heap_stat(t.heap, "allocated_bytes.all.current", &live, &t.f.err));
    assert_int_equal(live, 0);
    finish(&t);
}

/* What is written into itself runs as it would eagerly, as a shape of its own. */
static void overlapping_arguments_are_not_padded(void **state)
{
    (void)state;
    struct fixture t;
    struct rp_arg args[ARGS];
    struct rp_callable_info info = {.size = sizeof info};
    struct sizes s = {.shape = {3, 5}};
    start(&t, dims, 2);
    one_call(&t, &s, true);
    for (int round = 0; round < 2; round++) {
        make_args(&t, &s, true, args);
        args[OUT].address = args[IN].address; /* in = 2 in, then inout += 3 in */
        struct rp_inputs inputs = {.args = args, .arg_count = ARGS};
        read_all(&t, t.before);
        RPT_OK(&t.f, rp_callable_call(t.callable, &inputs, t.f.streams[0], &t.f.err));
        read_all(&t, t.after);
        for (int i = 0; i < 15; i++) {
            assert_float_equal(t.after[IN][i], 2 * t.before[IN][i], 0);
            assert_float_equal(t.after[INOUT][i], t.before[INOUT][i] + 6 * t.before[IN][i], 0);
        }
    }
    rp_callable_info(t.callable, &info);
    assert_int_equal(info.padded_calls, 0);
    assert_int_equal(info.replays, 2);
    finish(&t);
}

static void captured_into_buckets(void **state)
{
    (void)state;
    struct fixture t;
    struct rp_arg args[3][ARGS];
    struct rp_inputs inputs[3];
    struct rp_callable *callables[3];
    struct sizes s[3] = {{.shape = {3, 5}}, {.shape = {4, 8}}, {.shape = {9, 17}}};
    struct rp_estimate *estimate;
    struct rp_estimate_info estimated = {.size = sizeof estimated};
    struct rp_callable_info info = {.size = sizeof info};
    struct rp_shape_info shape = {.size = sizeof shape};
    start(&t, dims, 2);
    for (int i = 0; i < 3; i++) {
        random_strides(&s[i], true);
        make_args(&t, &s[i], true, args[i]);
        for (int k = 0; k < ARGS; k++)
            args[i][k].address = 0;
        inputs[i] = (struct rp_inputs){.args = args[i], .arg_count = ARGS};
        callables[i] = t.callable;
    }
    RPT_OK(&t.f, rp_estimate(callables, inputs, 3, &estimate, &t.f.err));
    rp_estimate_info(estimate, &estimated);
    rp_estimate_destroy(estimate);
    RPT_OK(&t.f, rp_callable_capture(t.callable, inputs, 3, NULL, NULL, NULL, &t.f.err));
    rp_callable_info(t.callable, &info);
    assert_int_equal(info.graphs, 2);
    assert_int_equal(estimated.shapes, 2);
    assert_int_equal(estimated.staging_bytes, info.staging_bytes);
    assert_true(info.staging_bytes > 0);
    assert_int_equal(rp_callable_shape_info(t.callable, 0, &shape), 1);
    assert_non_null(strstr(shape.text, "float32[12,24]"));
    one_call(&t, &s[0], true);
    assert_int_equal(shape.state, RP_SHAPE_GRAPH);
    rp_callable_info(t.callable, &info);
    assert_int_equal(info.padded_calls, 1);
    finish(&t);
}

static void powers_of_two(void **state)
{
    (void)state;
    static const struct rp_dim dim = {
        .name = "batch", .axes = batch_axes, .axis_count = 3, .rule = RP_BUCKET_POWERS_OF_TWO};
    struct fixture t;
    struct rp_callable_info info = {.size = sizeof info};
    start(&t, &dim, 1);
    for (int64_t rows = 0; rows <= 40; rows++) {
        struct sizes s = {.shape = {rows, 6}};
        one_call(&t, &s, true);
    }
    rp_callable_info(t.callable, &info);
    assert_int_equal(info.shapes, 8); /* 0, 1, 2, 4 .. 64 */
    finish(&t);
}

static void misuse_is_refused(void **state)
{
    (void)state;
    static const int64_t falling[] = {4, 2};
    struct fixture t;
    struct rp_arg args[ARGS];
    struct sizes s = {.shape = {3, 5}};
    struct rp_callable *other;
    start(&t, dims, 2);
    const struct rp_dim bad[] = {
        {NULL, batch_axes, 1, RP_BUCKET_POWERS_OF_TWO, 0, NULL, 0},
        {"x", NULL, 1, RP_BUCKET_POWERS_OF_TWO, 0, NULL, 0},
        {"x", batch_axes, 0, RP_BUCKET_POWERS_OF_TWO, 0, NULL, 0},
        {"x", batch_axes, 1, (enum rp_bucket_rule)3, 0, NULL, 0},
        {"x", batch_axes, 1, RP_BUCKET_LIST, 0, NULL, 0},
        {"x", batch_axes, 1, RP_BUCKET_LIST, 0, falling, 2},
        {"x", batch_axes, 1, RP_BUCKET_MULTIPLES, 0, batches, 2},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
        options.dims = &bad[i];
        options.dim_count = 1;
        assert_int_equal(rp_callable_create(t.f.device, &options, work, &t, &other, &t.f.err),
                         RP_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(t.f.err.message, "dimension"));
    }
    random_strides(&s, true);
    make_args(&t, &s, true, args);
    struct rp_inputs inputs = {.args = args, .arg_count = 2};
    assert_int_equal(rp_callable_call(t.callable, &inputs, NULL, &t.f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(t.f.err.message, "'batch'"));
    const int64_t longer[2] = {3, 6};
    inputs.arg_count = ARGS;
    args[INOUT].shape = longer;
    args[INOUT].bytes += 100;
    assert_int_equal(rp_callable_call(t.callable, &inputs, NULL, &t.f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(t.f.err.message, "'length' is 5 in argument 0 and 6 in argument 1"));
    const int64_t huge[2] = {1, INT64_MAX / 8};
    for (int k = 0; k < 3; k++) {
        args[k].shape = huge;
        args[k].bytes = (uint64_t)huge[1] * sizeof(float);
        args[k].address = 0;
    }
    assert_int_equal(rp_callable_capture(t.callable, &inputs, 1, NULL, NULL, NULL, &t.f.err),
                     RP_ERROR_LIMIT);
    finish(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boxes_are_copied),
        cmocka_unit_test(boxes_are_filled_beyond),
        cmocka_unit_test(random_sizes_equal_eager),
        cmocka_unit_test(padding_that_is_there_stays),
        cmocka_unit_test(streams_take_turns),
        cmocka_unit_test(fresh_outputs),
        cmocka_unit_test(overlapping_arguments_are_not_padded),
        cmocka_unit_test(captured_into_buckets),
        cmocka_unit_test(powers_of_two),
        cmocka_unit_test(misuse_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
