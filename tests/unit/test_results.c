/* SPDX-License-Identifier: MIT
 *
 * Results that a callable names while it is rehearsed (rp_call_result), on the host driver: the
 * graph is the one that is captured where they are given as arguments, one run earlier.
 */
#include "graph/handles/device.h"
#include "graph_fixture.h"

#include "fault_loop.h"
#include "reprise_framework.h"

#include <stdbool.h>
#include <stdio.h>

enum { COUNT = 300 };
enum { BYTES = COUNT * sizeof(float) };
enum { X, Y, Z, ARGS };

enum habit {
    HONEST,
    NAMES_TWICE,
    NAMES_FREED,
    NAMES_A_PART,
    FREES_IT,
    NAMES_LATE, /* in a run that was not asked */
    TAKES_MORE, /* in the first run than in the others */
};

struct subject {
    const struct rpt_fixture *f;
    enum habit habit;
    int runs, asked;
    rp_status refuses; /* what asking for memory comes to */
    uint64_t too_much; /* bytes that it adds to each */
    uint64_t y, z;     /* memory for the results; 0: none */
};

static struct rpt_fixture outer;

static int open_fixture(void **state)
{
    rpt_open(&outer);
    *state = &outer;
    return 0;
}

static int close_fixture(void **state)
{
    rpt_close(*state);
    return 0;
}

/* ---- The callable ---------------------------------------------------------------------------*/

static rp_status misuse(struct rp_call *call, const struct subject *subject, uint64_t y,
                        struct rp_error *err)
{
    uint64_t unused, block;
    rp_status status = RP_OK;
    switch (subject->habit) {
    case NAMES_TWICE:
        return rp_call_result(call, BYTES, y, &unused, err);
    case FREES_IT:
        return rp_call_free(call, y, err);
    case NAMES_FREED:
    case NAMES_A_PART:
        status = rp_call_alloc(call, BYTES, rp_call_stream(call), &block, err);
        if (status == RP_OK && subject->habit == NAMES_FREED)
            status = rp_call_free(call, block, err);
        return status == RP_OK ? rp_call_result(call, BYTES - 4, block, &unused, err) : status;
    default:
        return RP_OK;
    }
}

/* Where the results go: y is allocated, z has to be asked for. `asked`: is this the run that finds
 * them? */
static rp_status find_z(struct rp_call *call, const struct subject *subject, bool asked, uint64_t y,
                        uint64_t *out_z, struct rp_error *err)
{
    uint64_t found = 0;
    rp_status status = RP_OK;
    *out_z = rp_call_arg(call, Z);
    if (!asked)
        return subject->habit == NAMES_LATE ? rp_call_result(call, BYTES, 0, &found, err) : RP_OK;
    status = rp_call_result(call, BYTES, y, &found, err);
    assert_true(status != RP_OK || found == y);
    if (status == RP_OK)
        status = rp_call_result(call, BYTES, 0, out_z, err);
    return status == RP_OK ? misuse(call, subject, y, err) : status;
}

/* y = 3 x on another stream, which no other block names before; z = 5 x + y, through two blocks
 * that can lie in the same place. */
static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    struct subject *subject = user;
    const struct rpt_fixture *f = subject->f;
    CUstream s = rp_call_stream(call), t = f->streams[0];
    uint64_t x = rp_call_arg(call, X), y = rp_call_arg(call, Y), a, b, c, z, more;
    bool asked = !y;
    rp_status status = rpt_join(f, s, t, err);
    subject->runs++;
    if (status == RP_OK && asked)
        status = rp_call_alloc(call, BYTES, t, &y, err);
    if (status == RP_OK && subject->habit == TAKES_MORE && subject->runs == 1)
        status = rp_call_alloc(call, BYTES, s, &more, err);
    if (status == RP_OK && subject->habit == TAKES_MORE && subject->runs == 1)
        status = rpt_scale(f, s, more, x, 4, COUNT, err);
    if (status != RP_OK || (status = rp_call_alloc(call, BYTES, s, &a, err)) != RP_OK ||
        (status = rpt_scale(f, s, a, x, 2, COUNT, err)) != RP_OK ||
        (status = rp_call_alloc(call, BYTES, f->streams[1], &b, err)) != RP_OK ||
        (status = rpt_scale(f, t, y, x, 3, COUNT, err)) != RP_OK ||
        (status = rpt_join(f, t, s, err)) != RP_OK ||
        (asked && (status = rp_call_use(call, y, s, err)) != RP_OK) ||
        (status = rp_call_use(call, b, s, err)) != RP_OK ||
        (status = rpt_add(f, s, b, a, y, COUNT, err)) != RP_OK ||
        (status = rp_call_free(call, a, err)) != RP_OK ||
        (status = rp_call_alloc(call, BYTES, s, &c, err)) != RP_OK ||
        (status = rpt_scale(f, s, c, b, 1, COUNT, err)) != RP_OK ||
        (status = rp_call_free(call, b, err)) != RP_OK ||
        (status = find_z(call, subject, asked, y, &z, err)) != RP_OK ||
        (status = rpt_add(f, s, z, c, y, COUNT, err)) != RP_OK)
        return status;
    return rp_call_free(call, c, err);
}

static rp_status give_memory(struct rp_arg *results, size_t count, void *user, struct rp_error *err)
{
    struct subject *subject = user;
    assert_int_equal(count, 2);
    subject->asked++;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(results[i].bytes, BYTES);
        assert_int_equal(results[i].role, RP_ARG_OUT);
        results[i].address = i ? subject->z : subject->y;
        results[i].bytes += subject->too_much;
    }
    if (subject->refuses != RP_OK)
        snprintf(err->message, sizeof err->message, "refused on purpose");
    return subject->refuses;
}

/* ---- Capturing ------------------------------------------------------------------------------*/

static struct rp_capture_options finding(void)
{
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    options.results = give_memory;
    return options;
}

/* Buffers of a call: x as given, the others with something else in them. */
struct buffers {
    struct rp_arg args[ARGS];
};

static struct buffers new_buffers(float value)
{
    struct buffers b;
    for (size_t k = 0; k < ARGS; k++)
        b.args[k] =
            rpt_arg(rpt_buffer(&outer, COUNT, k ? -1 : value), COUNT, k ? RP_ARG_OUT : RP_ARG_IN);
    return b;
}

static void drop_buffers(const struct buffers *b)
{
    for (size_t k = 0; k < ARGS; k++)
        outer.driver->cuMemFree(b->args[k].address);
}

static struct subject subject_of(const struct buffers *b, enum habit habit)
{
    return (struct subject){
        .f = &outer, .habit = habit, .y = b->args[Y].address, .z = b->args[Z].address};
}

static void replays_right(struct rp_graph *graph)
{
    float y[COUNT], z[COUNT];
    for (int i = 0; i < 3; i++) {
        struct buffers b = new_buffers((float)(i + 1));
        RPT_OK(&outer, rp_graph_replay(graph, b.args, ARGS, outer.streams[i], &outer.err));
        rpt_read(&outer, b.args[Y].address, y, COUNT);
        rpt_read(&outer, b.args[Z].address, z, COUNT);
        for (uint32_t n = 0; n < COUNT; n++) {
            float x = (float)(i + 1) + (float)(n % 7);
            assert_true(y[n] == 3 * x);
            assert_true(z[n] == 8 * x);
        }
        drop_buffers(&b);
    }
}

static void results_are_bound(const struct rp_graph *graph)
{
    for (size_t k = 0; k < ARGS; k++) {
        struct rp_graph_arg_info info = {.size = sizeof info};
        RPT_OK(&outer, rp_graph_arg_info(graph, k, &info, &outer.err));
        assert_true(info.bound);
        assert_true(info.sites > 0);
    }
}

/* ---- Tests ----------------------------------------------------------------------------------*/

/* Streams are named in another order where y is a block, and the order of nodes is asked for at
 * other moments: the record is the same, so what is planned is what it takes. */
static void named_results_are_given_ones(void **state)
{
    struct buffers b = new_buffers(1);
    struct subject named = subject_of(&b, HONEST), given = named;
    struct rp_capture_options options = finding();
    struct rp_graph *graphs[2] = {NULL, NULL};
    struct rp_graph_info infos[2];
    (void)state;
    RPT_OK(&outer,
           rp_graph_capture(outer.pool, &options, work, &named, b.args, 1, &graphs[0], &outer.err));
    RPT_OK(&outer,
           rp_graph_capture(outer.pool, NULL, work, &given, b.args, ARGS, &graphs[1], &outer.err));
    assert_int_equal(named.asked, 1);
    assert_int_equal(named.runs, 2);
    assert_int_equal(given.runs, 2);
    for (int i = 0; i < 2; i++) {
        replays_right(graphs[i]);
        results_are_bound(graphs[i]);
        infos[i].size = sizeof infos[i];
        rp_graph_info(graphs[i], &infos[i]);
        assert_int_equal(infos[i].diverged_blocks, 0);
        assert_int_equal(infos[i].rehearsals, 1);
    }
    assert_int_equal(infos[0].blocks, 3);
    assert_int_equal(infos[0].blocks, infos[1].blocks);
    assert_int_equal(infos[0].nodes, infos[1].nodes);
    assert_int_equal(infos[0].sites, infos[1].sites);
    assert_int_equal(infos[0].planned_bytes, infos[1].planned_bytes);
    assert_int_equal(infos[0].lower_bound_bytes, infos[1].lower_bound_bytes);
    assert_int_equal(infos[0].peak_bytes, infos[1].peak_bytes);
    rp_graph_destroy(graphs[0]);
    rp_graph_destroy(graphs[1]);
    drop_buffers(&b);
}

static void a_capture_that_is_taken_again_knows_them(void **state)
{
    struct buffers b = new_buffers(1);
    struct subject subject = subject_of(&b, TAKES_MORE);
    struct rp_capture_options options = finding();
    struct rp_graph *graph = NULL;
    struct rp_graph_info info = {.size = sizeof info};
    (void)state;
    RPT_OK(&outer,
           rp_graph_capture(outer.pool, &options, work, &subject, b.args, 1, &graph, &outer.err));
    rp_graph_info(graph, &info);
    assert_int_equal(info.rehearsals, 2);
    assert_int_equal(subject.asked, 1);
    assert_int_equal(subject.runs, 4);
    replays_right(graph);
    rp_graph_destroy(graph);
    drop_buffers(&b);
}

static void bindings_of_results_are_verified(void **state)
{
    static const enum rp_verify ways[] = {RP_VERIFY_CAPTURE, RP_VERIFY_RUN};
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct buffers b = new_buffers(1);
        struct subject subject = subject_of(&b, HONEST);
        struct rp_capture_options options = finding();
        struct rp_graph *graph = NULL;
        struct rp_graph_info info = {.size = sizeof info};
        options.verify = ways[i];
        options.stream = outer.streams[2];
        RPT_OK(&outer, rp_graph_capture(outer.pool, &options, work, &subject, b.args, 1, &graph,
                                        &outer.err));
        rp_graph_info(graph, &info);
        assert_int_equal(info.verified, ways[i]);
        assert_null(info.not_run);
        assert_int_equal(info.unverified_args, 0);
        assert_int_equal(subject.asked, 1);
        replays_right(graph);
        rp_graph_destroy(graph);
        drop_buffers(&b);
    }
}

static void estimates_are_what_captures_take(void **state)
{
    struct buffers b = new_buffers(1);
    struct subject subject = subject_of(&b, HONEST);
    struct rp_capture_options options = finding();
    struct rp_estimate *estimate = NULL;
    struct rp_estimate_info foreseen = {.size = sizeof foreseen};
    struct rp_graph *graph = NULL;
    struct rp_pool_info info = {.size = sizeof info};
    const struct rp_arg without = {.bytes = BYTES, .role = RP_ARG_IN};
    (void)state;
    subject.y = subject.z = 0; /* nothing runs, so no memory is needed */
    RPT_OK(&outer, rp_estimate_create(&estimate, &outer.err));
    RPT_OK(&outer, rp_estimate_add(estimate, outer.pool, &options, work, &subject, &without, 1,
                                   &outer.err));
    rp_estimate_info(estimate, &foreseen);
    subject = subject_of(&b, HONEST);
    RPT_OK(&outer,
           rp_graph_capture(outer.pool, &options, work, &subject, b.args, 1, &graph, &outer.err));
    rp_pool_info(outer.pool, &info);
    assert_true(foreseen.planned_bytes > 0);
    assert_int_equal(foreseen.planned_bytes, info.planned_bytes);
    rp_estimate_destroy(estimate);
    rp_graph_destroy(graph);
    drop_buffers(&b);
}

static void refused(struct subject *subject, const struct buffers *b, size_t arg_count,
                    rp_status expected, const char *text)
{
    struct rp_capture_options options = finding();
    struct rp_graph *graph = NULL;
    rp_status status = rp_graph_capture(outer.pool, arg_count == 1 ? &options : NULL, work, subject,
                                        b->args, arg_count, &graph, &outer.err);
    assert_int_equal(status, expected);
    assert_null(graph);
    if (!strstr(outer.err.message, text))
        fail_msg("'%s' has no '%s'", outer.err.message, text);
}

static void misuse_is_told(void **state)
{
    struct buffers b = new_buffers(1);
    static const struct {
        enum habit habit;
        const char *text;
    } cases[] = {{NAMES_TWICE, "not the address of a block"},
                 {NAMES_FREED, "not the address of a block"},
                 {FREES_IT, "not the address of a block"},
                 {NAMES_A_PART, "name the whole block"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct subject subject = subject_of(&b, cases[i].habit);
        refused(&subject, &b, 1, RP_ERROR_INVALID_ARGUMENT, cases[i].text);
        assert_int_equal(subject.runs, 1);
    }
    struct subject late = subject_of(&b, NAMES_LATE), never = late;
    refused(&late, &b, 1, RP_ERROR_INVALID_ARGUMENT, "was not asked for results");
    assert_int_equal(late.runs, 2);
    refused(&never, &b, ARGS, RP_ERROR_INVALID_ARGUMENT, "was not asked for results");
    assert_int_equal(rp_run(outer.pool, work, &never, b.args, ARGS, outer.streams[0], &outer.err),
                     RP_ERROR_INVALID_ARGUMENT);
    drop_buffers(&b);
}

static void memory_that_is_not_given_ends_the_capture(void **state)
{
    struct buffers b = new_buffers(1);
    struct subject without = subject_of(&b, HONEST), other = without;
    (void)state;
    without.refuses = RP_ERROR_OUT_OF_DEVICE_MEMORY;
    refused(&without, &b, 1, RP_ERROR_OUT_OF_DEVICE_MEMORY, "refused on purpose");
    assert_int_equal(outer.err.status, RP_ERROR_OUT_OF_DEVICE_MEMORY);
    other.too_much = 4;
    refused(&other, &b, 1, RP_ERROR_INVALID_ARGUMENT, "named with 1200 bytes");
    assert_int_equal(other.runs, 1);
    drop_buffers(&b);
}

/* ---- Faults ---------------------------------------------------------------------------------*/

static struct buffers fault_buffers;
static struct rpi_host_statistics held;

static bool capture_all(const struct rp_driver *driver, void *user)
{
    struct rp_device *device = NULL;
    struct rp_pool *pool = NULL;
    struct rp_graph *graph = NULL;
    struct rp_estimate *estimate = NULL;
    struct rp_error err;
    struct subject subject = subject_of(&fault_buffers, HONEST);
    struct rp_capture_options options = finding();
    (void)user;
    options.verify = RP_VERIFY_RUN;
    options.stream = outer.streams[2];
    rp_status status = rpi_device_open_on(driver, 0, &device, &err);
    if (status == RP_OK)
        status = rp_pool_create(device, NULL, &pool, &err);
    if (status == RP_OK)
        status = rp_estimate_create(&estimate, &err);
    if (status == RP_OK)
        status =
            rp_estimate_add(estimate, pool, &options, work, &subject, fault_buffers.args, 1, &err);
    if (status == RP_OK)
        status =
            rp_graph_capture(pool, &options, work, &subject, fault_buffers.args, 1, &graph, &err);
    if (status != RP_OK)
        assert_true(err.message[0] != '\0');
    rp_graph_destroy(graph);
    rp_estimate_destroy(estimate);
    rp_pool_destroy(pool);
    rp_device_destroy(device);
    return status == RP_OK;
}

static const char *what_is_left(void *user)
{
    struct rpi_host_statistics now;
    (void)user;
    rpi_host_statistics(&now);
    if (now.physical_bytes != held.physical_bytes || now.mappings != held.mappings)
        return "device memory";
    return now.graphs != held.graphs || now.execs != held.execs ? "graphs" : NULL;
}

static void calls_fail_in_turn(void **state)
{
    static const struct rpt_scenario scenario = {
        .run = capture_all, .left = what_is_left, .step = RPT_LONG_LOOP_STEP};
    (void)state;
    fault_buffers = new_buffers(1);
    rpi_host_statistics(&held);
    assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_OUT_OF_MEMORY) > 50);
    struct rpi_host_options before, options; /* the race check keeps what it saw */
    rpi_host_options(&before);
    options = before;
    options.check_races = false;
    rpi_host_configure(&options);
    assert_true(rpt_memory_fault_loop(rpi_driver_host(), &scenario) > 50);
    rpi_host_configure(&before);
    drop_buffers(&fault_buffers);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, open_fixture, close_fixture)
    const struct CMUnitTest tests[] = {
        TEST(named_results_are_given_ones),
        TEST(a_capture_that_is_taken_again_knows_them),
        TEST(bindings_of_results_are_verified),
        TEST(estimates_are_what_captures_take),
        TEST(misuse_is_told),
        TEST(memory_that_is_not_given_ends_the_capture),
        TEST(calls_fail_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
