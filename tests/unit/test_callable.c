/* SPDX-License-Identifier: MIT
 *
 * Callables: which calls share a shape, when a graph is captured, what happens where it cannot be,
 * and that calls give what eager runs give.
 */
#include "graph_fixture.h"

#include "graph/callable/callable.h"
#include "reprise_heap.h"

#include <jansson.h>

enum { MOST = 1024 };

struct fixture {
    struct rpt_fixture f;
    struct rp_callable *callable;
    uint64_t buffers[4]; /* of MOST floats each */
    int runs;
    int refuse_captures; /* so many captures fail, then no more */
    int refuse_eager;
};

#define OK(t, call) RPT_OK(&(t)->f, call)

static int allocations;

static void *counted_malloc(size_t bytes, void *user)
{
    (void)user;
    allocations++;
    return malloc(bytes);
}
static void *counted_realloc(void *pointer, size_t bytes, void *user)
{
    (void)user;
    allocations++;
    return realloc(pointer, bytes);
}
static void counted_free(void *pointer, void *user)
{
    (void)user;
    free(pointer);
}

static bool is_capturing(const struct fixture *t, CUstream stream)
{
    CUstreamCaptureStatus status;
    assert_int_equal(t->f.driver->cuStreamIsCapturing(stream, &status), 0);
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* out = 0, then out += in * factor through scratch memory; the key, where there is one, is the
 * factor. How many floats it is says the shape, or the bytes. */
static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    struct fixture *t = user;
    CUstream stream = rp_call_stream(call);
    struct rp_arg in, out;
    size_t key_bytes;
    float factor = 2;
    const void *key = rp_call_key(call, &key_bytes);
    if (key_bytes == sizeof factor)
        memcpy(&factor, key, sizeof factor);
    t->runs++;
    if (is_capturing(t, stream) && t->refuse_captures && t->refuse_captures--)
        return rpi_error(err, RP_ERROR_CALLABLE, "work", "it synchronises");
    if (!rp_call_tensor(call, 0, &in) || !rp_call_tensor(call, 1, &out) ||
        rp_call_tensor(call, 9, &out))
        return RP_ERROR_INTERNAL;
    assert_int_equal(in.address, rp_call_arg(call, 0));
    uint32_t count = (uint32_t)(in.rank ? in.shape[0] : (int64_t)(in.bytes / sizeof(float)));
    uint64_t scratch = 0;
    rp_status status = rp_call_alloc(call, count * sizeof(float), stream, &scratch, err);
    if (status == RP_OK)
        status = rpt_fill(&t->f, stream, out.address, 0, count, err);
    if (status == RP_OK)
        status = rpt_scale(&t->f, stream, scratch, in.address, factor, count, err);
    if (status == RP_OK)
        status = rpt_add(&t->f, stream, out.address, out.address, scratch, count, err);
    if (status == RP_OK && t->refuse_eager)
        return RP_ERROR_IO;
    return status == RP_OK ? rp_call_free(call, scratch, err) : status;
}

static void start_with(struct fixture *t, const struct rp_callable_options *options)
{
    memset(t, 0, sizeof *t);
    rpt_open(&t->f);
    OK(t, rp_callable_create(t->f.device, options, work, t, &t->callable, &t->f.err));
    for (int i = 0; i < 4; i++)
        t->buffers[i] = rpt_buffer(&t->f, MOST, (float)(10 * i));
}

static void start(struct fixture *t)
{
    start_with(t, NULL);
}

static void finish(struct fixture *t)
{
    rp_callable_destroy(t->callable);
    for (int i = 0; i < 4; i++)
        assert_int_equal(t->f.driver->cuMemFree(t->buffers[i]), 0);
    rpt_close(&t->f);
}

static struct rp_arg vector(uint64_t address, const int64_t *count, enum rp_arg_role role)
{
    return (struct rp_arg){.address = address,
                           .bytes = (uint64_t)*count * sizeof(float),
                           .role = role,
                           .dtype = RP_DTYPE_FLOAT32,
                           .rank = 1,
                           .shape = count};
}

/* Calls with `count` floats from buffer a to buffer b and checks the result. */
static void call_and_check(struct fixture *t, int64_t count, int a, int b)
{
    float in[MOST], out[MOST];
    struct rp_arg args[] = {vector(t->buffers[a], &count, RP_ARG_IN),
                            vector(t->buffers[b], &count, RP_ARG_OUT)};
    struct rp_inputs inputs = {.args = args, .arg_count = 2};
    rpt_read(&t->f, t->buffers[a], in, (uint32_t)count);
    OK(t, rp_callable_call(t->callable, &inputs, t->f.streams[0], &t->f.err));
    rpt_read(&t->f, t->buffers[b], out, (uint32_t)count);
    for (int64_t i = 0; i < count; i++)
        assert_float_equal(out[i], a == b ? 0 : 2 * in[i], 0);
}

static struct rp_callable_info info_of(struct fixture *t)
{
    struct rp_callable_info info = {.size = sizeof info};
    rp_callable_info(t->callable, &info);
    return info;
}

static struct rp_shape_info shape_of(struct fixture *t, size_t index)
{
    struct rp_shape_info info = {.size = sizeof info};
    assert_int_equal(rp_callable_shape_info(t->callable, index, &info), 1);
    return info;
}

static void first_call_is_eager(void **state)
{
    (void)state;
    struct fixture t;
    start(&t);
    call_and_check(&t, 100, 0, 1);
    assert_int_equal(t.runs, 1);
    assert_int_equal(shape_of(&t, 0).state, RP_SHAPE_NEW);
    call_and_check(&t, 100, 1, 2);
    assert_int_equal(t.runs, 3);
    assert_int_equal(shape_of(&t, 0).state, RP_SHAPE_GRAPH);
    call_and_check(&t, 100, 2, 3);
    call_and_check(&t, 64, 3, 0); /* another shape: captured on first use */
    call_and_check(&t, 64, 0, 1);
    assert_int_equal(t.runs, 5);
    struct rp_callable_info info = info_of(&t);
    assert_int_equal(info.calls, 5);
    assert_int_equal(info.eager_runs, 1);
    assert_int_equal(info.replays, 4);
    assert_int_equal(info.graphs, 2);
    assert_int_equal(info.shapes, 2);
    struct rp_shape_info shape = shape_of(&t, 1);
    assert_string_equal(shape.text, "float32[64], float32[64]");
    assert_null(shape.reason);
    assert_int_equal(shape.replays, 2);
    assert_int_equal(shape.nodes, 3);
    struct rp_graph_info graph = {.size = sizeof graph};
    rp_graph_info(shape.graph, &graph);
    assert_int_equal(graph.copied_args, 0);
    assert_int_equal(rp_callable_shape_info(t.callable, 2, &shape), 0);
    finish(&t);
}

static size_t shapes_after(struct fixture *t, struct rp_arg *args, size_t count, const char *key)
{
    struct rp_inputs inputs = {
        .args = args, .arg_count = count, .key = key, .key_bytes = key ? strlen(key) : 0};
    OK(t, rp_callable_capture(t->callable, &inputs, 1, NULL, NULL, NULL, &t->f.err));
    return info_of(t).shapes;
}

static void what_makes_a_shape(void **state)
{
    (void)state;
    static const int64_t ten[] = {10, 2, 1}, strides[] = {2, 1, 1}, far[] = {4, 1, 1},
                         odd[] = {2, 1, 77};
    struct fixture t;
    start(&t);
    struct rp_arg args[] = {{.bytes = 400, .role = RP_ARG_IN, .dtype = RP_DTYPE_FLOAT32, .rank = 3},
                            {.bytes = 400, .role = RP_ARG_OUT}};
    args[0].shape = ten;
    assert_int_equal(shapes_after(&t, args, 2, NULL), 1);
    args[0].strides = strides;
    args[0].address = t.buffers[0];
    assert_int_equal(shapes_after(&t, args, 2, NULL), 1);
    args[0].strides = odd; /* along an axis of size 1: says nothing */
    assert_int_equal(shapes_after(&t, args, 2, NULL), 1);
    args[0].strides = far;
    assert_int_equal(shapes_after(&t, args, 2, NULL), 2);
    args[0].dtype = RP_DTYPE_INT32;
    assert_int_equal(shapes_after(&t, args, 2, NULL), 3);
    args[0].bytes = 480;
    assert_int_equal(shapes_after(&t, args, 2, NULL), 4);
    args[0].role = RP_ARG_INOUT;
    assert_int_equal(shapes_after(&t, args, 2, NULL), 5);
    assert_int_equal(shapes_after(&t, args, 2, "key"), 6);
    assert_int_equal(shapes_after(&t, args, 2, "kez"), 7);
    assert_int_equal(shapes_after(&t, args, 2, "a key longer than a word"), 8);
    assert_int_equal(shapes_after(&t, args, 2, "a key longer than a wor"), 9);
    args[1].address = t.buffers[0] + 400; /* overlaps the last 80 bytes */
    assert_int_equal(shapes_after(&t, args, 2, NULL), 10);
    args[1].address = t.buffers[0] + 480;
    assert_int_equal(shapes_after(&t, args, 2, NULL), 10);
    args[1].address = t.buffers[0] - 400;
    assert_int_equal(shapes_after(&t, args, 2, NULL), 10);
    args[1].address = t.buffers[0] - 396;
    assert_int_equal(shapes_after(&t, args, 2, NULL), 11);
    args[1].address = t.buffers[0] + 396;
    assert_int_equal(shapes_after(&t, args, 2, NULL), 12);
    finish(&t);
}

/* What overlaps in the call overlaps in the graph, wherever it lies. */
static void overlaps_are_kept(void **state)
{
    (void)state;
    struct fixture t;
    start(&t);
    call_and_check(&t, 100, 0, 1);
    call_and_check(&t, 100, 2, 2);
    call_and_check(&t, 100, 3, 3);
    call_and_check(&t, 100, 2, 3);
    call_and_check(&t, 100, 1, 2);
    assert_int_equal(info_of(&t).graphs, 2);
    assert_int_equal(info_of(&t).replays, 4);
    finish(&t);
}

static void part_of_an_argument(void **state)
{
    (void)state;
    enum { COUNT = 64, SHIFT = 16 };
    static const int64_t count = COUNT;
    struct fixture t;
    start(&t);
    call_and_check(&t, 1, 0, 1);
    for (int round = 0; round < 3; round++) {
        float in[2 * COUNT], out[2 * COUNT];
        uint64_t at = t.buffers[2] + 256 * (unsigned)round;
        rpt_read(&t.f, at, in, 2 * COUNT);
        struct rp_arg args[] = {vector(at, &count, RP_ARG_IN),
                                vector(at + SHIFT * sizeof(float), &count, RP_ARG_OUT)};
        struct rp_inputs inputs = {.args = args, .arg_count = 2};
        OK(&t, rp_callable_call(t.callable, &inputs, t.f.streams[0], &t.f.err));
        rpt_read(&t.f, at, out, 2 * COUNT);
        for (int i = 0; i < 2 * COUNT; i++) {
            float expected = in[i];
            if (i >= SHIFT && i < SHIFT + COUNT) /* in is 0 from SHIFT on when it is read */
                expected = i - SHIFT < SHIFT ? 2 * in[i - SHIFT] : 0;
            assert_float_equal(out[i], expected, 0);
        }
    }
    assert_int_equal(info_of(&t).graphs, 1);
    assert_int_equal(info_of(&t).replays, 3);
    finish(&t);
}

static void keys_reach_the_function(void **state)
{
    (void)state;
    static const int64_t count = 50;
    struct fixture t;
    start(&t);
    for (int i = 0; i < 6; i++) {
        float factor = (float)(1 + i % 2), in[50], out[50];
        struct rp_arg args[] = {vector(t.buffers[0], &count, RP_ARG_IN),
                                vector(t.buffers[1], &count, RP_ARG_OUT)};
        struct rp_inputs inputs = {
            .args = args, .arg_count = 2, .key = &factor, .key_bytes = sizeof factor};
        OK(&t, rp_callable_call(t.callable, &inputs, t.f.streams[0], &t.f.err));
        rpt_read(&t.f, t.buffers[0], in, 50);
        rpt_read(&t.f, t.buffers[1], out, 50);
        for (int j = 0; j < 50; j++)
            assert_float_equal(out[j], factor * in[j], 0);
    }
    assert_int_equal(info_of(&t).graphs, 2);
    finish(&t);
}

static void capture_that_fails_once(void **state)
{
    (void)state;
    struct fixture t;
    start(&t);
    call_and_check(&t, 10, 0, 1);
    t.refuse_captures = 1;
    call_and_check(&t, 20, 1, 2); /* fails, runs eagerly, is captured */
    assert_int_equal(shape_of(&t, 1).state, RP_SHAPE_GRAPH);
    assert_int_equal(shape_of(&t, 1).eager_runs, 1);
    assert_null(shape_of(&t, 1).reason);
    call_and_check(&t, 20, 2, 3);
    assert_int_equal(info_of(&t).replays, 1);
    finish(&t);
}

static void capture_that_always_fails(void **state)
{
    (void)state;
    struct fixture t;
    start(&t);
    call_and_check(&t, 10, 0, 1);
    t.refuse_captures = 2;
    call_and_check(&t, 20, 1, 2);
    struct rp_shape_info shape = shape_of(&t, 1);
    assert_int_equal(shape.state, RP_SHAPE_EAGER);
    assert_non_null(strstr(shape.reason, "it synchronises"));
    call_and_check(&t, 20, 2, 3);
    assert_int_equal(info_of(&t).eager_shapes, 1);
    call_and_check(&t, 30, 2, 3); /* others are captured all the same */
    assert_int_equal(shape_of(&t, 2).state, RP_SHAPE_GRAPH);
    finish(&t);
}

static void failing_runs_change_nothing(void **state)
{
    (void)state;
    static const int64_t count = 10;
    struct fixture t;
    start(&t);
    struct rp_arg args[] = {vector(t.buffers[0], &count, RP_ARG_IN),
                            vector(t.buffers[1], &count, RP_ARG_OUT)};
    struct rp_inputs inputs = {.args = args, .arg_count = 2};
    t.refuse_eager = 1;
    assert_int_equal(rp_callable_call(t.callable, &inputs, NULL, &t.f.err), RP_ERROR_CALLABLE);
    t.refuse_eager = 0;
    call_and_check(&t, 10, 0, 1);
    assert_int_equal(info_of(&t).calls, 1);
    assert_int_equal(shape_of(&t, 0).state, RP_SHAPE_NEW);
    t.refuse_eager = 1;
    assert_int_equal(rp_callable_call(t.callable, &inputs, NULL, &t.f.err), RP_ERROR_CALLABLE);
    assert_int_equal(shape_of(&t, 0).state, RP_SHAPE_RETRY);
    t.refuse_eager = 0;
    call_and_check(&t, 10, 0, 1);
    call_and_check(&t, 10, 1, 2);
    assert_int_equal(info_of(&t).replays, 1);
    finish(&t);
}

struct seen {
    size_t calls;
    int64_t bytes[8];
    enum rp_shape_state states[8];
};

static void note(size_t done, size_t count, const struct rp_shape_info *shape, void *user)
{
    struct seen *seen = user;
    assert_int_equal(count, 5);
    assert_int_equal(done, seen->calls + 1);
    seen->bytes[seen->calls] = strtol(shape->text + strlen("float32["), NULL, 10);
    seen->states[seen->calls++] = shape->state;
}

static void shapes_ahead_of_time(void **state)
{
    (void)state;
    static const int64_t counts[5] = {3, 50, 7, 1000, 50};
    struct fixture t;
    struct rp_arg args[5][2];
    struct rp_inputs inputs[5];
    struct seen seen = {0};
    size_t failed = 99;
    start(&t);
    for (int i = 0; i < 5; i++) {
        args[i][0] = vector(0, &counts[i], RP_ARG_IN);
        args[i][1] = vector(0, &counts[i], RP_ARG_OUT);
        inputs[i] = (struct rp_inputs){.args = args[i], .arg_count = 2};
    }
    t.refuse_captures = 1; /* the first and largest */
    OK(&t, rp_callable_capture(t.callable, inputs, 5, note, &seen, &failed, &t.f.err));
    static const int64_t order[] = {1000, 50, 50, 7, 3};
    assert_int_equal(seen.calls, 5);
    assert_int_equal(failed, 1);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(seen.bytes[i], order[i]);
        assert_int_equal(seen.states[i], i ? RP_SHAPE_GRAPH : RP_SHAPE_RETRY);
    }
    assert_non_null(shape_of(&t, 0).reason);
    call_and_check(&t, 50, 0, 1);
    call_and_check(&t, 3, 1, 2);
    assert_int_equal(info_of(&t).eager_runs, 0);
    call_and_check(&t, 1000, 2, 3); /* eagerly, then captured */
    call_and_check(&t, 1000, 3, 0);
    assert_int_equal(info_of(&t).eager_runs, 1);
    assert_int_equal(info_of(&t).graphs, 4);
    finish(&t);
}

static void at_most_so_many_graphs(void **state)
{
    (void)state;
    struct fixture t;
    struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
    options.most_graphs = 2;
    start_with(&t, &options);
    for (int round = 0; round < 2; round++)
        for (int64_t count = 1; count <= 5; count++)
            call_and_check(&t, count, 0, 1);
    assert_int_equal(info_of(&t).graphs, 2);
    assert_int_equal(info_of(&t).eager_shapes, 3);
    assert_non_null(strstr(shape_of(&t, 4).reason, "most_graphs"));
    finish(&t);
}

/* 512 shapes take what the largest takes. */
static void memory_stays_constant(void **state)
{
    (void)state;
    struct fixture t;
    struct rp_pool_info first = {.size = sizeof first}, last = {.size = sizeof last};
    struct rpi_host_statistics before, after;
    start(&t);
    call_and_check(&t, 1, 0, 1);
    call_and_check(&t, 512, 0, 1);
    rp_pool_info(info_of(&t).pool, &first);
    rpi_host_statistics(&before);
    assert_true(first.planned_bytes > 0);
    for (int64_t count = 511; count > 0; count--)
        call_and_check(&t, count, 1, 2);
    rp_pool_info(info_of(&t).pool, &last);
    rpi_host_statistics(&after);
    assert_int_equal(last.graphs, 512);
    assert_int_equal(last.planned_bytes, first.planned_bytes);
    assert_int_equal(last.mapped_bytes, first.mapped_bytes);
    assert_true(rpi_shapes_are_valid(&t.callable->shapes));
    assert_int_equal(after.physical_bytes, before.physical_bytes);
    finish(&t);
}

static void hits_allocate_nothing(void **state)
{
    (void)state;
    static const struct rp_host_memory counted = {counted_malloc, counted_realloc, counted_free,
                                                  NULL};
    struct fixture t;
    rp_set_host_memory(&counted);
    start(&t);
    for (int64_t count = 1; count <= 40; count++)
        call_and_check(&t, count, 0, 1);
    int64_t count = 20;
    for (int i = 0; i < 2; i++) {
        struct rp_arg args[] = {vector(t.buffers[i], &count, RP_ARG_IN),
                                vector(t.buffers[i + 1], &count, RP_ARG_OUT)};
        struct rp_inputs inputs = {.args = args, .arg_count = 2};
        int before = allocations;
        struct rpi_look *look = &t.callable->look;
        memcpy(look->args, args, sizeof args);
        look->arg_count = 2;
        rpi_look_at(look);
        assert_non_null(rpi_shapes_find(&t.callable->shapes, look));
        assert_int_equal(allocations, before);
        OK(&t, rp_callable_call(t.callable, &inputs, t.f.streams[0], &t.f.err));
    }
    finish(&t);
    rp_set_host_memory(NULL);
}

static void eager_runs_on_a_heap(void **state)
{
    (void)state;
    struct fixture t;
    struct rp_heap *heap;
    int64_t live;
    struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
    memset(&t, 0, sizeof t);
    rpt_open(&t.f);
    OK(&t, rp_heap_create(t.f.device, NULL, &heap, &t.f.err));
    options.heap = heap;
    options.most_graphs = 1;
    OK(&t, rp_callable_create(t.f.device, &options, work, &t, &t.callable, &t.f.err));
    for (int i = 0; i < 4; i++)
        t.buffers[i] = rpt_buffer(&t.f, MOST, (float)(10 * i));
    call_and_check(&t, 100, 0, 1);
    call_and_check(&t, 100, 1, 2);
    for (int64_t count = 1; count < 8; count++)
        call_and_check(&t, count, 2, 3);
    assert_int_equal(info_of(&t).eager_runs, 8);
    t.refuse_eager = 1; /* returns with its scratch memory not freed */
    int64_t count = 5;
    struct rp_arg args[] = {vector(t.buffers[0], &count, RP_ARG_IN),
                            vector(t.buffers[1], &count, RP_ARG_OUT)};
    struct rp_inputs inputs = {.args = args, .arg_count = 2};
    assert_int_equal(rp_callable_call(t.callable, &inputs, NULL, &t.f.err), RP_ERROR_CALLABLE);
    OK(&t, rp_heap_stat(heap, "allocated_bytes.all.current", &live, &t.f.err));
    assert_int_equal(live, 0);
    rp_callable_destroy(t.callable);
    t.callable = NULL;
    rp_heap_destroy(heap);
    finish(&t);
}

static rp_status call_itself(struct rp_call *call, void *user, struct rp_error *err)
{
    (void)call;
    struct fixture *t = user;
    struct rp_inputs none = {0};
    struct rp_callable_info info = {.size = sizeof info};
    rp_callable_info(t->callable, &info); /* asking is allowed */
    assert_int_equal(rp_callable_call(t->callable, &none, NULL, err), RP_ERROR_INVALID_ARGUMENT);
    return RP_OK;
}

static void misuse_is_refused(void **state)
{
    (void)state;
    struct fixture t;
    struct rp_callable *other;
    struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
    start(&t);
    struct rp_error *err = &t.f.err;
    struct rp_inputs none = {0}, bad = {.arg_count = 1};
    assert_int_equal(rp_callable_create(NULL, NULL, work, NULL, &other, err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_callable_create(t.f.device, NULL, NULL, NULL, &other, err),
                     RP_ERROR_INVALID_ARGUMENT);
    options.size = 3;
    assert_int_equal(rp_callable_create(t.f.device, &options, work, NULL, &other, err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_callable_call(NULL, &none, NULL, err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_callable_call(t.callable, NULL, NULL, err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_callable_call(t.callable, &bad, NULL, err), RP_ERROR_INVALID_ARGUMENT);
    bad = (struct rp_inputs){.key_bytes = 4};
    assert_int_equal(rp_callable_call(t.callable, &bad, NULL, err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(info_of(&t).shapes, 0);
    rp_callable_destroy(t.callable);
    OK(&t, rp_callable_create(t.f.device, NULL, call_itself, &t, &t.callable, err));
    for (int i = 0; i < 3; i++)
        OK(&t, rp_callable_call(t.callable, &none, t.f.streams[0], err));
    rp_callable_destroy(NULL);
    finish(&t);
}

static void reports(void **state)
{
    (void)state;
    struct fixture t;
    const char *text, *again;
    start(&t);
    call_and_check(&t, 100, 0, 1);
    call_and_check(&t, 100, 1, 2);
    t.refuse_captures = 2;
    call_and_check(&t, 30, 2, 3);
    OK(&t, rp_callable_report(t.callable, RP_REPORT_TEXT, &text, &t.f.err));
    assert_non_null(strstr(text, "callable: 2 shapes, of which 1 are graphs and 1 stay eager"));
    assert_non_null(strstr(text, "3 calls: 1 replays (0 padded), 2 eager"));
    assert_non_null(strstr(text, "float32[100], float32[100]"));
    assert_non_null(strstr(text, "it synchronises"));
    OK(&t, rp_callable_report(t.callable, RP_REPORT_JSON, &again, &t.f.err));
    json_error_t error;
    json_t *json = json_loads(again, 0, &error);
    assert_non_null(json);
    json_t *shapes = json_object_get(json, "shapes");
    assert_int_equal(json_array_size(shapes), 2);
    json_t *graph = json_array_get(shapes, 0), *eager = json_array_get(shapes, 1);
    assert_string_equal(json_string_value(json_object_get(graph, "state")), "graph");
    assert_int_equal(json_integer_value(json_object_get(graph, "replays")), 1);
    assert_true(json_integer_value(json_object_get(graph, "planned_bytes")) >= 400);
    assert_true(json_is_null(json_object_get(graph, "reason")));
    assert_string_equal(json_string_value(json_object_get(eager, "state")), "eager");
    assert_true(json_is_string(json_object_get(eager, "reason")));
    assert_int_equal(json_integer_value(json_object_get(json, "calls")), 3);
    json_decref(json);
    assert_int_equal(rp_callable_report(t.callable, (enum rp_report_format)2, &text, &t.f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_callable_report(NULL, RP_REPORT_TEXT, &text, &t.f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    finish(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_call_is_eager),       cmocka_unit_test(what_makes_a_shape),
        cmocka_unit_test(overlaps_are_kept),         cmocka_unit_test(part_of_an_argument),
        cmocka_unit_test(keys_reach_the_function),   cmocka_unit_test(capture_that_fails_once),
        cmocka_unit_test(capture_that_always_fails), cmocka_unit_test(failing_runs_change_nothing),
        cmocka_unit_test(shapes_ahead_of_time),      cmocka_unit_test(at_most_so_many_graphs),
        cmocka_unit_test(memory_stays_constant),     cmocka_unit_test(hits_allocate_nothing),
        cmocka_unit_test(eager_runs_on_a_heap),      cmocka_unit_test(reports),
        cmocka_unit_test(misuse_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
