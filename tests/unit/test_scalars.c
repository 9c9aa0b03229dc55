/* SPDX-License-Identifier: MIT
 *
 * Scalars that replays change in kernels' parameters (rp_call_scalar, rp_graph_set_scalars): two
 * captures prove where they stand, whoever shares the exec, and what they do not prove is refused.
 */
#include "graph_fixture.h"

#include "fault_loop.h"
#include "graph/template/scalars.h"
#include "reprise_framework.h"

#include <math.h>
#include <sys/mman.h>

/* Argument 0 times a factor, in argument 1; that once more, in argument 2. Each run of a capture
 * has another factor. */
struct subject {
    const struct rpt_fixture *f;
    CUdeviceptr memory;
    unsigned runs;
    bool names_more; /* than the run before */
    float (*given)(double factor);
    struct rp_arg args[3];
};

static const double factors[] = {0.377381, 0.683914, 0.412937, 0.717133, 0.355519,
                                 0.618353, 0.391127, 0.655371, 0.443771, 0.702259};

static float itself(double factor)
{
    return (float)factor;
}

static float negated(double factor)
{
    return (float)-factor;
}

static float inverted(double factor)
{
    return (float)(1.0 / factor);
}

static float inverted_float(double factor)
{
    return 1.0f / (float)factor;
}

static float squared(double factor)
{
    return (float)(factor * factor);
}

static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    struct subject *subject = user;
    double factor = factors[subject->runs % (sizeof factors / sizeof *factors)];
    const struct rpt_fixture *f = subject->f;
    CUstream stream = rp_call_stream(call);
    rp_status status = rpt_scale(f, stream, rp_call_arg(call, 1), rp_call_arg(call, 0),
                                 subject->given(factor), 1, err);
    if (status == RP_OK)
        status = rpt_scale(f, stream, rp_call_arg(call, 2), rp_call_arg(call, 1),
                           subject->given(factor), 1, err);
    if (status == RP_OK)
        status = rp_call_scalar(call, 0.5 * factor, err);
    for (unsigned i = 0; status == RP_OK && i < 1 + subject->runs * subject->names_more; i++)
        status = rp_call_scalar(call, factor, err);
    subject->runs++;
    return status;
}

static void init(struct subject *subject, const struct rpt_fixture *f, float (*given)(double))
{
    enum { APART = 256 };
    *subject = (struct subject){.f = f, .given = given};
    assert_int_equal(f->driver->cuMemAlloc(&subject->memory, 3 * APART), 0);
    for (size_t i = 0; i < 3; i++)
        subject->args[i] = rpt_arg(subject->memory + i * APART, 1, i ? RP_ARG_OUT : RP_ARG_IN);
}

static void finish(struct subject *subject)
{
    subject->f->driver->cuMemFree(subject->memory);
}

static rp_status capture(struct subject *subject, struct rp_graph **out_graph, struct rp_error *err)
{
    *out_graph = NULL;
    return rp_graph_capture(subject->f->pool, NULL, work, subject, subject->args, 3, out_graph,
                            err);
}

/* What comes out for 3, with this factor. */
static void replay(const struct subject *subject, struct rp_graph *graph, double factor)
{
    const struct rp_driver *driver = subject->f->driver;
    const double scalars[] = {NAN, factor};
    struct rp_error err = {0};
    float x = 3, by = subject->given(factor), y;
    assert_int_equal(driver->cuMemcpyHtoD(subject->args[0].address, &x, sizeof x), 0);
    assert_int_equal(rp_graph_set_scalars(graph, scalars, 2, &err), RP_OK);
    assert_int_equal(rp_graph_replay(graph, subject->args, 3, subject->f->streams[1], &err), RP_OK);
    assert_int_equal(driver->cuCtxSynchronize(), 0);
    assert_int_equal(driver->cuMemcpyDtoH(&y, subject->args[2].address, sizeof y), 0);
    assert_true(y == x * by * by);
}

static void each_form_is_found(void **state)
{
    static float (*const forms[])(double) = {itself, negated, inverted, inverted_float};
    struct rpt_fixture *f = *state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct subject subject;
        struct rp_graph *graph;
        size_t places;
        init(&subject, f, forms[i]);
        RPT_OK(f, capture(&subject, &graph, &f->err));
        RPT_OK(f, rp_graph_scalar_info(graph, 0, &places, &f->err));
        assert_int_equal(places, 0);
        RPT_OK(f, rp_graph_scalar_info(graph, 1, &places, &f->err));
        assert_int_equal(places, 2);
        double factor = 0.001;
        for (unsigned step = 0; step < 11; step++, factor *= 3.7)
            replay(&subject, graph, factor);
        rp_graph_destroy(graph);
        finish(&subject);
    }
}

/* Nodes are given to the driver where a number changed, and not otherwise. */
static void only_what_changed_is_given(void **state)
{
    struct rpt_fixture *f = *state;
    struct subject subject;
    struct rp_graph *graph;
    struct rp_graph_info before = {.size = sizeof before}, after = {.size = sizeof after};
    init(&subject, f, itself);
    RPT_OK(f, capture(&subject, &graph, &f->err));
    replay(&subject, graph, 0.7);
    rp_graph_info(graph, &before);
    replay(&subject, graph, 0.7);
    rp_graph_info(graph, &after);
    assert_int_equal(after.patched_nodes, before.patched_nodes);
    replay(&subject, graph, 0.8);
    rp_graph_info(graph, &after);
    assert_int_equal(after.patched_nodes, before.patched_nodes + 2);
    rp_graph_destroy(graph);
    finish(&subject);
}

static void what_is_computed_otherwise_is_refused(void **state)
{
    struct rpt_fixture *f = *state;
    struct subject subject;
    struct rp_graph *graph;
    init(&subject, f, squared);
    assert_int_equal(capture(&subject, &graph, &f->err), RP_ERROR_DIVERGED);
    finish(&subject);
}

static void each_run_names_as_many(void **state)
{
    struct rpt_fixture *f = *state;
    struct subject subject;
    struct rp_graph *graph;
    init(&subject, f, itself);
    subject.names_more = true;
    assert_int_equal(capture(&subject, &graph, &f->err), RP_ERROR_DIVERGED);
    rpt_says(f, "scalars (rp_call_scalar), and");
    rpt_says(f, "in its rehearsal. It must name the same in each run");
    finish(&subject);
}

static void numbers_are_told_before_a_replay(void **state)
{
    struct rpt_fixture *f = *state;
    const double scalars[3] = {1, 2, 3};
    struct subject subject;
    struct rp_graph *graph;
    size_t places;
    init(&subject, f, itself);
    RPT_OK(f, capture(&subject, &graph, &f->err));
    assert_int_equal(rp_graph_replay(graph, subject.args, 3, NULL, &f->err), RP_ERROR_CONTRACT);
    rpt_says(f, "was not told what they are");
    assert_int_equal(rp_graph_set_scalars(graph, scalars, 3, &f->err), RP_ERROR_CONTRACT);
    rpt_says(f, "is given 3 scalars and has 2");
    assert_int_equal(rp_graph_set_scalars(graph, NULL, 2, &f->err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_graph_set_scalars(NULL, scalars, 2, &f->err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_graph_scalar_info(graph, 2, &places, &f->err), RP_ERROR_INVALID_ARGUMENT);
    rp_graph_destroy(graph);
    finish(&subject);
}

/* What a run copies from the host to argument 1: 12 bytes in a page of their own. */
struct copied {
    struct subject subject;
    void (*fill)(char *data, const struct rp_call *call, double factor);
    bool goes; /* the memory does, as the run ends */
    void *pages[8];
};

enum { COPIED_BYTES = 12, PAGE = 4096 };

static rp_status copy_from_host(struct rp_call *call, void *user, struct rp_error *err)
{
    struct copied *copied = user;
    unsigned run = copied->subject.runs++;
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED && run < sizeof copied->pages / sizeof *copied->pages);
    copied->pages[run] = page;
    copied->fill(page, call, factors[run]);
    rp_status status = rp_call_scalar(call, factors[run], err);
    if (status == RP_OK && copied->subject.f->driver->cuMemcpyHtoDAsync(
                               rp_call_arg(call, 1), page, COPIED_BYTES, rp_call_stream(call)) != 0)
        status = RP_ERROR_DRIVER;
    if (copied->goes)
        munmap(page, PAGE);
    return status;
}

static void constants(char *data, const struct rp_call *call, double factor)
{
    static const uint32_t numbers[] = {7, 11, 13};
    (void)call, (void)factor;
    memcpy(data, numbers, sizeof numbers);
}

static void addresses(char *data, const struct rp_call *call, double factor)
{
    uint64_t address = rp_call_arg(call, 2) + 4;
    (void)factor;
    memcpy(data, &address, sizeof address);
}

static void numbers(char *data, const struct rp_call *call, double factor)
{
    float number = (float)factor;
    constants(data, call, factor);
    memcpy(data, &number, sizeof number);
}

/* Behind the last whole word. */
static void numbers_at_the_end(char *data, const struct rp_call *call, double factor)
{
    float number = (float)factor;
    constants(data, call, factor);
    memcpy(data + 8, &number, sizeof number);
}

static rp_status capture_copied(struct rpt_fixture *f, bool goes,
                                void (*fill)(char *, const struct rp_call *, double))
{
    struct copied copied = {.fill = fill, .goes = goes};
    struct rp_graph *graph = NULL;
    init(&copied.subject, f, itself);
    for (size_t i = 0; i < 3; i++)
        copied.subject.args[i] = rpt_arg(copied.subject.memory + i * 256, 4, RP_ARG_OUT);
    rp_status status = rp_graph_capture(f->pool, NULL, copy_from_host, &copied, copied.subject.args,
                                        3, &graph, &f->err);
    rp_graph_destroy(graph);
    for (size_t i = 0; !goes && i < copied.subject.runs; i++)
        munmap(copied.pages[i], PAGE);
    finish(&copied.subject);
    return status;
}

/* A number that was computed from a scalar may lie in memory of the host: not where two runs with
 * other scalars copied the same. */
static void copies_from_the_host_that_may_hold_numbers_are_refused(void **state)
{
    struct rpt_fixture *f = *state;
    RPT_OK(f, capture_copied(f, false, constants));
    RPT_OK(f, capture_copied(f, false, addresses));
    assert_int_equal(capture_copied(f, false, numbers), RP_ERROR_DIVERGED);
    rpt_says(f, "copies from the host");
    assert_int_equal(capture_copied(f, false, numbers_at_the_end), RP_ERROR_DIVERGED);
    rpt_says(f, "copies from the host");
    assert_int_equal(capture_copied(f, true, constants), RP_ERROR_DIVERGED);
    rpt_says(f, "copies from the host");
}

/* One kernel, with a word behind `index` that may be padding; and its numbers, one for each run. */
struct padded {
    const struct rpt_fixture *f;
    CUdeviceptr memory;
    unsigned runs, period; /* the numbers come again after so many runs */
    float (*left)(unsigned run, double factor);
};

static float in_turn(unsigned run, double factor)
{
    (void)factor;
    return run % 2 ? 185.35f : 17.64f;
}

static float another(unsigned run, double factor)
{
    (void)factor;
    return 17.64f + 3.719f * (float)(run * run);
}

/* The fourth run has what the first had, as the numbers have. */
static float follows_once(unsigned run, double factor)
{
    return another(run == 3 ? 0 : run, factor);
}

static float computed(unsigned run, double factor)
{
    (void)run;
    return squared(factor);
}

static rp_status leave(struct rp_call *call, void *user, struct rp_error *err)
{
    enum { BEHIND_INDEX = 4 };
    struct padded *padded = user;
    double factor = factors[padded->runs % padded->period];
    float left = padded->left(padded->runs++, factor);
    struct rpt_padded_param param;
    void *params[] = {&param};
    memset(&param, 0, sizeof param);
    param.to = (uint32_t *)(uintptr_t)rp_call_arg(call, 0);
    memcpy((char *)&param + offsetof(struct rpt_padded_param, index) + BEHIND_INDEX, &left,
           sizeof left);
    rp_status status = rpt_launch(padded->f, padded->f->padded, rp_call_stream(call), params, err);
    return status == RP_OK ? rp_call_scalar(call, factor, err) : status;
}

static rp_status capture_padded(struct rpt_fixture *f, unsigned period,
                                float (*left)(unsigned, double), size_t *out_rehearsals)
{
    struct padded padded = {.f = f, .period = period, .left = left};
    struct rp_graph_info info = {.size = sizeof info};
    struct rp_graph *graph = NULL;
    assert_int_equal(f->driver->cuMemAlloc(&padded.memory, 256), 0);
    struct rp_arg arg = rpt_arg(padded.memory, 1, RP_ARG_OUT);
    rp_status status = rp_graph_capture(f->pool, NULL, leave, &padded, &arg, 1, &graph, &f->err);
    if (status == RP_OK)
        rp_graph_info(graph, &info);
    *out_rehearsals = info.rehearsals;
    rp_graph_destroy(graph);
    f->driver->cuMemFree(padded.memory);
    return status;
}

/* Padding does not follow the numbers, where these come again. */
static void padding_is_told_from_numbers(void **state)
{
    static float (*const paddings[])(unsigned, double) = {in_turn, another, follows_once};
    static const size_t attempts[] = {2, 2, 3};
    struct rpt_fixture *f = *state;
    size_t rehearsals;
    for (size_t i = 0; i < sizeof paddings / sizeof *paddings; i++) {
        RPT_OK(f, capture_padded(f, 3, paddings[i], &rehearsals));
        assert_int_equal(rehearsals, attempts[i]);
    }
    assert_int_equal(capture_padded(f, 3, computed, &rehearsals), RP_ERROR_DIVERGED);
    rpt_says(f, "no form of a scalar");
    /* Numbers that never come again prove nothing. */
    assert_int_equal(capture_padded(f, 10, another, &rehearsals), RP_ERROR_DIVERGED);
    rpt_says(f, "no form of a scalar");
}

static void captures_with_scalars_are_not_verified(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct subject subject;
    struct rp_graph *graph = NULL;
    init(&subject, f, itself);
    options.verify = RP_VERIFY_CAPTURE;
    assert_int_equal(
        rp_graph_capture(f->pool, &options, work, &subject, subject.args, 3, &graph, &f->err),
        RP_ERROR_UNSUPPORTED);
    rpt_says(f, "names scalars");
    finish(&subject);
}

static rp_status name_no_number(struct rp_call *call, void *user, struct rp_error *err)
{
    return rp_call_scalar(call, *(const double *)user, err);
}

static void only_numbers_of_captured_runs_are_named(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_graph *graph = NULL;
    double number = INFINITY;
    assert_int_equal(
        rp_graph_capture(f->pool, NULL, name_no_number, &number, NULL, 0, &graph, &f->err),
        RP_ERROR_INVALID_ARGUMENT);
    rpt_says(f, "no finite number");
    number = 1;
    assert_int_equal(rp_run(f->pool, name_no_number, &number, NULL, 0, NULL, &f->err),
                     RP_ERROR_INVALID_ARGUMENT);
    rpt_says(f, "not captured");
}

/* ---- Failing calls ------------------------------------------------------------------------- */

static bool capture_and_replay(const struct rp_driver *driver, void *user)
{
    struct subject *subject = user;
    struct rpt_scene scene;
    const double scalars[] = {1, 0.5};
    bool works =
        rpt_scene_open(&scene, driver) &&
        rp_graph_capture(scene.pool, NULL, work, subject, subject->args, 3, &scene.graph,
                         &scene.err) == RP_OK &&
        rp_graph_set_scalars(scene.graph, scalars, 2, NULL) == RP_OK &&
        rp_graph_replay(scene.graph, subject->args, 3, subject->f->streams[1], NULL) == RP_OK;
    works &= subject->f->driver->cuCtxSynchronize() == CUDA_SUCCESS;
    rpt_scene_close(&scene);
    return works;
}

static void any_call_may_fail(void **state)
{
    const struct rpt_fixture *f = *state;
    struct subject subject;
    init(&subject, f, itself);
    const struct rpt_scenario scenario = {.run = capture_and_replay, .user = &subject};
    assert_true(rpt_fault_loop(f->driver, &scenario, CUDA_ERROR_UNKNOWN) > 50);
    struct rpi_host_options before = rpt_ignore_races();
    assert_true(rpt_memory_fault_loop(f->driver, &scenario) > 50);
    rpi_host_configure(&before);
    finish(&subject);
}

/* ---- The table ------------------------------------------------------------------------------ */

static void roundings_that_are_alike_are_no_proof(void **state)
{
    (void)state;
    double alike = 0.32126357948983847, apart = 0.6705892310465236; /* 1 / x as a float */
    struct rpi_scalars before = {.data = &alike, .count = 1}, after = before;
    struct rpi_scalar_table table;
    uint32_t scalar;
    enum rpi_scalar_form form;
    double other = 0.7586821582277979; /* alike too */
    after.data = &other;
    assert_int_equal(rpi_scalar_table_init(&table, &before, &after, NULL), RP_OK);
    assert_false(
        rpi_scalar_table_find(&table, 4, rpi_scalar_bits(alike, RPI_SCALAR_INVERSE_ROUNDED),
                              rpi_scalar_bits(other, RPI_SCALAR_INVERSE_ROUNDED), &scalar, &form));
    rpi_scalar_table_finish(&table);
    after.data = &apart;
    assert_int_equal(rpi_scalar_table_init(&table, &before, &after, NULL), RP_OK);
    assert_true(rpi_scalar_table_find(&table, 4, rpi_scalar_bits(alike, RPI_SCALAR_INVERSE_ROUNDED),
                                      rpi_scalar_bits(apart, RPI_SCALAR_INVERSE_ROUNDED), &scalar,
                                      &form));
    assert_int_equal(form, RPI_SCALAR_INVERSE_ROUNDED);
    rpi_scalar_table_finish(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RPT_TEST(each_form_is_found),
        RPT_TEST(only_what_changed_is_given),
        RPT_TEST(what_is_computed_otherwise_is_refused),
        RPT_TEST(each_run_names_as_many),
        RPT_TEST(numbers_are_told_before_a_replay),
        RPT_TEST(copies_from_the_host_that_may_hold_numbers_are_refused),
        RPT_TEST(padding_is_told_from_numbers),
        RPT_TEST(captures_with_scalars_are_not_verified),
        RPT_TEST(only_numbers_of_captured_runs_are_named),
        RPT_TEST(any_call_may_fail),
        cmocka_unit_test(roundings_that_are_alike_are_no_proof),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
