/* SPDX-License-Identifier: MIT
 *
 * Verification by a third capture, on the host driver: a callable that does in its third capture
 * what it did in none of the others costs the arguments that it lied about their binding, and no
 * others; results stay those of the honest callable.
 */
#include "graph_fixture.h"

#include "fault_loop.h"
#include "graph/bind/bind.h"
#include "reprise_tools.h"

#include <stdbool.h>
#include <stdio.h>

enum { COUNT = 200 };
enum { BYTES = COUNT * sizeof(float) };

/* ---- A kernel whose parameters are one struct ------------------------------------------------ */

/* to[i] = from[i] + other[i], or, where other is NULL, from[i] + from[distance + i] */
struct far_params {
    uint64_t to, from, other;
    int64_t distance; /* in elements */
    uint64_t spare;   /* means nothing */
    uint64_t count;
};

static void run_far(const struct rp_host_launch *launch)
{
    const struct far_params *p = launch->params[0];
    float *to = (float *)(uintptr_t)p->to;
    const float *from = (const float *)(uintptr_t)p->from;
    const float *other = (const float *)(uintptr_t)p->other;
    if (!other)
        other = from + p->distance;
    for (uint32_t i = 0; i < p->count; i++)
        to[i] = from[i] + other[i];
}

static const struct rp_host_param far_layout[] = {{0, sizeof(struct far_params)}};
static const struct rp_host_kernel far_kernels[] = {{"far", run_far, NULL, far_layout, 1, 0}};
static const struct rp_host_image far_image = {RP_HOST_IMAGE_MAGIC, 1, 0, far_kernels};

/* ---- The callable ---------------------------------------------------------------------------*/

enum { A, B, C, D, Y, Z, ARGS };

enum lie {
    NO_LIE,
    SWAPPED,      /* A and B in each other's place */
    MOVED,        /* A from its second quarter on */
    BLOCK_FOR_A,  /* a block where A should be */
    A_FOR_C,      /* A where C should be */
    B_FOR_BLOCK,  /* B where a block should be */
    SPARE_A,      /* A where nothing was */
    OTHER_BLOCK,  /* another block */
    OTHER_FACTOR, /* values */
    OTHER_BYTES,
    OTHER_GRID, /* nodes */
    OTHER_KERNEL,
    OTHER_TYPE, /* graphs */
    MORE_NODES,
    OTHER_EDGE,
    LIES
};

/* Who is copied for it, a bit each; those of whom nobody is bound are all. */
enum { ALL = (1 << ARGS) - 1, REFUSED = -1 };
static const int blamed[LIES] = {
    [SWAPPED] = 1 << A | 1 << B, [MOVED] = 1 << A,       [BLOCK_FOR_A] = 1 << A,
    [A_FOR_C] = 1 << A | 1 << C, [B_FOR_BLOCK] = ALL,    [SPARE_A] = 1 << A,
    [OTHER_BLOCK] = ALL,         [OTHER_FACTOR] = ALL,   [OTHER_BYTES] = ALL,
    [OTHER_GRID] = ALL,          [OTHER_KERNEL] = ALL,   [OTHER_TYPE] = REFUSED,
    [MORE_NODES] = REFUSED,      [OTHER_EDGE] = REFUSED,
};
static const char *const words[LIES] = {
    [SWAPPED] = "argument 0 is copied",
    [MOVED] = "node 0 at byte 8 of its parameters: its address was not where it should be",
    [BLOCK_FOR_A] = "argument 0 is copied",
    [A_FOR_C] = "argument 2 is copied",
    [B_FOR_BLOCK] = "held another address in place of a block's",
    [SPARE_A] = "its address stood where none was expected",
    [OTHER_BLOCK] = "all arguments are copied",
    [OTHER_FACTOR] = "held another value",
    [OTHER_BYTES] = "held another value",
    [OTHER_GRID] = "its grid changed",
    [OTHER_KERNEL] = "it was another kernel",
    [OTHER_TYPE] = "it was of another type in a third capture",
    [MORE_NODES] = "6 nodes and",
    [OTHER_EDGE] = "the edge from node",
};

struct subject {
    struct rpt_fixture f;
    CUmodule module;
    CUfunction far;
    enum lie lie;
    unsigned lies_until; /* it lies in its second run of three up to this one */
    unsigned runs;
    bool computes;          /* D by its distance from C */
    bool has_rubbish;       /* that moves as C and D do */
    uint64_t seen[3][ARGS]; /* addresses in the runs */
    char warnings[2048];
};

static rp_status launch_far(const struct subject *subject, CUstream s, struct far_params params,
                            struct rp_error *err)
{
    void *list[] = {&params};
    return rpt_launch(&subject->f, subject->far, s, list, err);
}

static rp_status launch_scale(const struct rpt_fixture *f, CUstream s, uint64_t to, uint64_t from,
                              float factor, enum lie lie, struct rp_error *err)
{
    uint32_t count = COUNT;
    void *params[] = {&to, &from, &factor, &count};
    CUresult result = lie == OTHER_TYPE
                          ? f->driver->cuMemsetD32Async(to, 0, COUNT, s)
                          : f->driver->cuLaunchKernel(lie == OTHER_KERNEL ? f->saxpy : f->scale,
                                                      lie == OTHER_GRID ? 2 : 1, 1, 1, 32, 1, 1, 0,
                                                      s, params, NULL);
    return result == CUDA_SUCCESS ? RP_OK
                                  : rpi_error_driver(err, result, "cuLaunchKernel", "scaling");
}

/* Two kernels, one of them on another stream: behind the node before, or behind the other one. */
static rp_status fork_and_join(const struct rpt_fixture *f, CUstream s, enum lie lie,
                               struct rp_error *err)
{
    CUstream other = f->streams[0];
    rp_status status = lie == OTHER_EDGE ? RP_OK : rpt_join(f, s, other, err);
    if (status == RP_OK)
        status = rpt_launch(f, f->nothing, s, NULL, err);
    if (status == RP_OK && lie == OTHER_EDGE)
        status = rpt_join(f, s, other, err);
    if (status == RP_OK)
        status = rpt_launch(f, f->nothing, other, NULL, err);
    return status == RP_OK ? rpt_join(f, other, s, err) : status;
}

/* y = 2 a + b, by way of a block */
static rp_status compute_y(const struct rpt_fixture *f, struct rp_call *call, const uint64_t *x,
                           enum lie lie, struct rp_error *err)
{
    CUstream s = rp_call_stream(call);
    uint64_t t, u;
    rp_status status;
    if ((status = rp_call_alloc(call, BYTES, s, &t, err)) != RP_OK ||
        (status = rp_call_alloc(call, BYTES, s, &u, err)) != RP_OK)
        return status;
    uint64_t a = lie == MOVED ? x[A] + BYTES / 4 : lie == BLOCK_FOR_A ? u : x[A];
    float factor = lie == OTHER_FACTOR ? 3 : 2;
    uint32_t count = lie == OTHER_BYTES ? COUNT - 1 : COUNT;
    if ((status = launch_scale(f, s, lie == OTHER_BLOCK ? u : t, a, factor, lie, err)) != RP_OK ||
        (status = fork_and_join(f, s, lie, err)) != RP_OK ||
        (status = rpt_add(f, s, x[Y], lie == B_FOR_BLOCK ? x[B] : t, x[B], count, err)) != RP_OK ||
        (status = rp_call_free(call, t, err)) != RP_OK)
        return status;
    return rp_call_free(call, u, err);
}

/* z = c + d, and y */
static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    struct subject *subject = user;
    bool lies = subject->runs % 3 == 1 && subject->runs < subject->lies_until;
    enum lie lie = lies ? subject->lie : NO_LIE;
    uint64_t x[ARGS];
    for (size_t k = 0; k < ARGS; k++)
        x[k] = subject->seen[subject->runs % 3][k] = rp_call_arg(call, k);
    subject->runs++;
    struct far_params far = {.to = x[Z],
                             .from = lie == A_FOR_C ? x[A] : x[C],
                             .other = x[D],
                             .spare = lie == SPARE_A ? x[A] : 0,
                             .count = COUNT};
    if (subject->computes) {
        far.other = 0;
        far.distance = (int64_t)(x[D] - x[C]) / (int64_t)sizeof(float);
    }
    if (subject->has_rubbish)
        far.spare = ((uint64_t)0x7f << 40) + (x[D] - x[C]) / 16;
    if (lie == SWAPPED) {
        x[A] = rp_call_arg(call, B);
        x[B] = rp_call_arg(call, A);
    }
    rp_status status = compute_y(&subject->f, call, x, lie, err);
    if (status == RP_OK)
        status = launch_far(subject, rp_call_stream(call), far, err);
    if (status == RP_OK && lie == MORE_NODES)
        status = rpt_launch(&subject->f, subject->f.nothing, rp_call_stream(call), NULL, err);
    return status;
}

/* ---- Around it ------------------------------------------------------------------------------*/

static void keep_warning(enum rp_log_level level, const char *message, void *user)
{
    struct subject *subject = user;
    size_t used = strlen(subject->warnings);
    if (level == RP_LOG_WARNING)
        snprintf(subject->warnings + used, sizeof subject->warnings - used, "%s\n", message);
}

static void open_subject(struct subject *subject)
{
    *subject = (struct subject){.lies_until = 1000};
    rpt_open(&subject->f);
    const struct rp_driver *d = subject->f.driver;
    assert_int_equal(d->cuModuleLoadData(&subject->module, &far_image), 0);
    assert_int_equal(d->cuModuleGetFunction(&subject->far, subject->module, "far"), 0);
    rp_set_log(keep_warning, subject, RP_LOG_WARNING);
}

static void close_subject(struct subject *subject)
{
    rp_set_log(NULL, NULL, RP_LOG_ERROR);
    subject->f.driver->cuModuleUnload(subject->module);
    rpt_close(&subject->f);
}

static void make_args(const struct rpt_fixture *f, struct rp_arg args[ARGS], float seed)
{
    for (size_t k = 0; k < ARGS; k++)
        args[k] = rpt_arg(rpt_buffer(f, COUNT, k < Y ? seed + 10 * (float)k : -1000), COUNT,
                          k < Y ? RP_ARG_IN : RP_ARG_OUT);
}

static void free_args(const struct rpt_fixture *f, const struct rp_arg args[ARGS])
{
    for (size_t k = 0; k < ARGS; k++)
        f->driver->cuMemFree(args[k].address);
}

static rp_status try_capture(struct subject *subject, const struct rp_arg *args,
                             enum rp_verify verify, struct rp_graph **graph)
{
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    options.name = "lies";
    options.verify = verify;
    subject->runs = 0;
    subject->warnings[0] = '\0';
    return rp_graph_capture(subject->f.pool, &options, work, subject, args, ARGS, graph,
                            &subject->f.err);
}

/* Replays on buffers of their own; true when the results are right. */
static bool replay_is_right(struct subject *subject, struct rp_graph *graph, float seed)
{
    struct rpt_fixture *f = &subject->f;
    struct rp_arg args[ARGS];
    float y[COUNT], z[COUNT];
    bool right = true;
    make_args(f, args, seed);
    RPT_OK(f, rp_graph_replay(graph, args, ARGS, f->streams[1], &f->err));
    rpt_read(f, args[Y].address, y, COUNT);
    rpt_read(f, args[Z].address, z, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        float at = (float)(i % 7);
        right &= y[i] == 2 * (seed + at) + (seed + 10 + at);
        right &= z[i] == (seed + 20 + at) + (seed + 30 + at);
    }
    free_args(f, args);
    return right;
}

/* Are these, a bit each, the arguments that are copied? Each with the reason. */
static void expect_copied(struct subject *subject, const struct rp_graph *graph, int copied)
{
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(graph, &info);
    assert_int_equal(info.verified, RP_VERIFY_CAPTURE);
    assert_int_equal(info.unverified_args, __builtin_popcount((unsigned)copied));
    assert_int_equal(info.copied_args, __builtin_popcount((unsigned)copied));
    for (size_t k = 0; k < ARGS; k++) {
        struct rp_graph_arg_info arg = {.size = sizeof arg};
        RPT_OK(&subject->f, rp_graph_arg_info(graph, k, &arg, &subject->f.err));
        assert_int_equal(arg.bound, !(copied >> k & 1));
        if (!arg.bound)
            assert_string_equal(arg.reason, rpi_copy_reason_text(RPI_COPY_UNVERIFIED));
    }
}

/* ---- Lies -----------------------------------------------------------------------------------*/

static void each_lie_costs_those_it_is_about(void **state)
{
    struct subject subject;
    struct rp_arg args[ARGS];
    (void)state;
    open_subject(&subject);
    make_args(&subject.f, args, 1);
    for (subject.lie = NO_LIE; subject.lie < LIES; subject.lie++) {
        struct rp_graph *graph = NULL;
        int copied = blamed[subject.lie];
        rp_status status = try_capture(&subject, args, RP_VERIFY_CAPTURE, &graph);
        const char *said = copied == REFUSED ? subject.f.err.message : subject.warnings;
        if (words[subject.lie] && !strstr(said, words[subject.lie]))
            fail_msg("lie %d: %s", (int)subject.lie, said);
        assert_int_equal(status, copied == REFUSED ? RP_ERROR_DIVERGED : RP_OK);
        if (status != RP_OK)
            continue;
        for (int call = 0; call < 3; call++)
            assert_true(replay_is_right(&subject, graph, (float)call));
        expect_copied(&subject, graph, copied);
        assert_int_equal(subject.warnings[0] != '\0', copied != 0);
        rp_graph_destroy(graph);
    }
    free_args(&subject.f, args);
    close_subject(&subject);
}

/* A struct holds what lay on the stack: an address of the host's, or a length. What moves as two
 * arguments do, and is not how far they are apart, is rubbish; and no two move by so little as
 * lengths do. */
static void rubbish_that_moves_is_not_computed(void **state)
{
    enum { SHORT = 16 << 10 };
    struct subject subject;
    struct rp_arg args[ARGS];
    (void)state;
    open_subject(&subject);
    subject.has_rubbish = true;
    make_args(&subject.f, args, 1);
    struct rp_graph *graph = NULL;
    assert_int_equal(try_capture(&subject, args, RP_VERIFY_CAPTURE, &graph), RP_OK);
    assert_string_equal(subject.warnings, "");
    for (size_t k = 0; k < ARGS; k++)
        for (size_t j = 0; j < k; j++) {
            int64_t moved = (int64_t)(subject.seen[1][k] - subject.seen[1][j]) -
                            (int64_t)(subject.seen[0][k] - subject.seen[0][j]);
            assert_true(moved >= SHORT || moved <= -SHORT);
        }
    rp_graph_destroy(graph);
    free_args(&subject.f, args);
    close_subject(&subject);
}

/* What is computed from addresses in the middle of a struct is the same kind of word as what the
 * stack held: two captures cannot tell, and replays compute something else. */
static void computed_words_are_found(void **state)
{
    struct subject subject;
    struct rp_arg args[ARGS];
    (void)state;
    open_subject(&subject);
    subject.computes = true;
    make_args(&subject.f, args, 1);
    struct rp_graph *graph = NULL;
    assert_int_equal(try_capture(&subject, args, RP_VERIFY_CAPTURE, &graph), RP_OK);
    assert_non_null(strstr(subject.warnings, "a word was computed from its address"));
    for (int call = 0; call < 3; call++)
        assert_true(replay_is_right(&subject, graph, (float)call));
    struct rp_graph_arg_info arg = {.size = sizeof arg};
    for (size_t k = 0; k < ARGS; k++) {
        RPT_OK(&subject.f, rp_graph_arg_info(graph, k, &arg, &subject.f.err));
        assert_int_equal(arg.bound, k != C && k != D);
    }
    rp_graph_destroy(graph);
    free_args(&subject.f, args);
    close_subject(&subject);
}

/* ---- Beside them ----------------------------------------------------------------------------*/

static void a_graph_that_settles_is_captured(void **state)
{
    struct subject subject;
    struct rp_graph_info info = {.size = sizeof info};
    struct rp_arg args[ARGS];
    (void)state;
    open_subject(&subject);
    make_args(&subject.f, args, 1);
    subject.lie = MORE_NODES;
    subject.lies_until = 3;
    struct rp_graph *graph = NULL;
    assert_int_equal(try_capture(&subject, args, RP_VERIFY_CAPTURE, &graph), RP_OK);
    assert_int_equal(subject.runs, 6);
    assert_true(replay_is_right(&subject, graph, 3));
    expect_copied(&subject, graph, 0);
    rp_graph_info(graph, &info);
    assert_int_equal(info.rehearsals, 2);
    rp_graph_destroy(graph);
    free_args(&subject.f, args);
    close_subject(&subject);
}

static void it_takes_no_device_memory(void **state)
{
    struct subject subject;
    struct rp_arg args[ARGS];
    struct rp_pool_info before = {.size = sizeof before}, after = {.size = sizeof after};
    (void)state;
    open_subject(&subject);
    make_args(&subject.f, args, 1);
    struct rp_graph *graph = NULL;
    assert_int_equal(try_capture(&subject, args, RP_VERIFY_NONE, &graph), RP_OK);
    assert_int_equal(subject.runs, 2);
    rp_pool_info(subject.f.pool, &before);
    struct rpi_host_statistics plain, verified;
    rpi_host_statistics(&plain);
    rp_graph_destroy(graph);
    assert_int_equal(try_capture(&subject, args, RP_VERIFY_CAPTURE, &graph), RP_OK);
    assert_int_equal(subject.runs, 3);
    rpi_host_statistics(&verified);
    rp_pool_info(subject.f.pool, &after);
    assert_int_equal(verified.physical_bytes, plain.physical_bytes);
    assert_int_equal(after.mapped_bytes, before.mapped_bytes);
    assert_int_equal(after.rehearsal_bytes, before.rehearsal_bytes);
    assert_int_equal(after.staging_bytes, 0);
    rp_graph_destroy(graph);
    free_args(&subject.f, args);
    close_subject(&subject);
}

static void copied_arguments_need_none(void **state)
{
    struct subject subject;
    struct rp_graph_info info = {.size = sizeof info};
    struct rp_arg args[ARGS];
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    (void)state;
    open_subject(&subject);
    make_args(&subject.f, args, 1);
    options.copy_args = 1;
    options.verify = RP_VERIFY_CAPTURE;
    struct rp_graph *graph = NULL;
    RPT_OK(&subject.f, rp_graph_capture(subject.f.pool, &options, work, &subject, args, ARGS,
                                        &graph, &subject.f.err));
    assert_int_equal(subject.runs, 2);
    rp_graph_info(graph, &info);
    assert_int_equal(info.verified, RP_VERIFY_NONE);
    rp_graph_destroy(graph);
    options.verify = (enum rp_verify)77;
    assert_int_equal(rp_graph_capture(subject.f.pool, &options, work, &subject, args, ARGS, &graph,
                                      &subject.f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    free_args(&subject.f, args);
    close_subject(&subject);
}

static void callables_verify_each_shape(void **state)
{
    struct subject subject;
    struct rp_arg args[ARGS];
    struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
    struct rp_callable *callable = NULL;
    struct rp_shape_info shape = {.size = sizeof shape};
    (void)state;
    open_subject(&subject);
    struct rpt_fixture *f = &subject.f;
    make_args(f, args, 1);
    const struct rp_inputs inputs = {.args = args, .arg_count = ARGS};
    options.verify = (enum rp_verify)77;
    assert_int_equal(rp_callable_create(f->device, &options, work, &subject, &callable, &f->err),
                     RP_ERROR_INVALID_ARGUMENT);
    options.verify = RP_VERIFY_CAPTURE;
    RPT_OK(f, rp_callable_create(f->device, &options, work, &subject, &callable, &f->err));
    subject.lie = MOVED;
    RPT_OK(f, rp_callable_capture(callable, &inputs, 1, NULL, NULL, NULL, &f->err));
    assert_true(rp_callable_shape_info(callable, 0, &shape));
    assert_int_equal(shape.state, RP_SHAPE_GRAPH);
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(shape.graph, &info);
    assert_int_equal(info.verified, RP_VERIFY_CAPTURE);
    assert_int_equal(info.unverified_args, 1);
    rp_callable_destroy(callable);
    free_args(f, args);
    close_subject(&subject);
}

/* ---- Faults ---------------------------------------------------------------------------------*/

static struct subject outer; /* on the driver itself, whose calls do not fail by the wrapper */
static struct rp_arg outer_args[ARGS];
static struct rpi_host_statistics held;

/* A capture that demotes an argument, and a replay of it. */
static bool capture_and_replay(const struct rp_driver *driver, void *user)
{
    struct subject *subject = user;
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct rpt_scene scene;
    options.verify = RP_VERIFY_CAPTURE;
    subject->lie = MOVED;
    subject->runs = 0;
    bool worked = rpt_scene_open(&scene, driver);
    if (worked) {
        rp_status status = rp_graph_capture(scene.pool, &options, work, subject, outer_args, ARGS,
                                            &scene.graph, &scene.err);
        if (status != RP_OK)
            assert_true(scene.err.status == status && scene.err.message[0]);
        worked = status == RP_OK && rp_graph_replay(scene.graph, outer_args, ARGS,
                                                    subject->f.streams[1], &scene.err) == RP_OK;
    }
    rpt_scene_close(&scene);
    return worked;
}

static const char *what_is_left(void *user)
{
    struct rpi_host_statistics now;
    (void)user;
    if (outer.f.driver->cuCtxSynchronize() != CUDA_SUCCESS)
        return "a driver that does not work";
    rpi_host_statistics(&now);
    return now.physical_bytes != held.physical_bytes ? "device memory"
           : now.mappings != held.mappings           ? "mappings"
           : now.reservations != held.reservations   ? "reserved addresses"
           : now.graphs != held.graphs               ? "graphs"
           : now.execs != held.execs                 ? "execs"
           : now.captures != held.captures           ? "captures"
                                                     : NULL;
}

static void any_call_may_fail(void **state)
{
    const struct rpt_scenario scenario = {.run = capture_and_replay,
                                          .left = what_is_left,
                                          .user = &outer,
                                          .step = RPT_LONG_LOOP_STEP};
    (void)state;
    open_subject(&outer);
    make_args(&outer.f, outer_args, 1);
    rp_set_log(NULL, NULL, RP_LOG_ERROR);
    struct rpi_host_options before = rpt_ignore_races();
    rpi_host_statistics(&held);
    assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_OUT_OF_MEMORY) > 0);
    assert_true(rpt_memory_fault_loop(rpi_driver_host(), &scenario) > 0);
    rpi_host_configure(&before);
    free_args(&outer.f, outer_args);
    close_subject(&outer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_lie_costs_those_it_is_about),
        cmocka_unit_test(rubbish_that_moves_is_not_computed),
        cmocka_unit_test(computed_words_are_found),
        cmocka_unit_test(a_graph_that_settles_is_captured),
        cmocka_unit_test(it_takes_no_device_memory),
        cmocka_unit_test(copied_arguments_need_none),
        cmocka_unit_test(callables_verify_each_shape),
        cmocka_unit_test(any_call_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
