/* SPDX-License-Identifier: MIT
 *
 * That random programs can fail: what a program does wrong is seen as a race, whatever order its
 * replay took.
 */
#include "property/callable.h"

struct wrong {
    struct rpt_fixture f;
    CUevent events[BLOCKS_MOST];
    uint64_t args;
};

static void open_wrong(struct wrong *w)
{
    rpt_open(&w->f);
    struct rpi_host_options options;
    rpi_host_options(&options);
    options.threads = 1; /* what races here does so on purpose: for the host's check alone */
    rpi_host_configure(&options);
    for (int i = 0; i < BLOCKS_MOST; i++)
        assert_int_equal(w->f.driver->cuEventCreate(&w->events[i], CU_EVENT_DISABLE_TIMING), 0);
    w->args = rpt_buffer(&w->f, 3 * WIDTH, 1);
}

static void close_wrong(struct wrong *w)
{
    w->f.driver->cuMemFree(w->args);
    for (int i = 0; i < BLOCKS_MOST; i++)
        w->f.driver->cuEventDestroy(w->events[i]);
    rpt_close(&w->f);
}

/* Captures and replays once; the races seen, which are forgotten. */
static uint64_t races_of(struct wrong *w, rp_callable_fn callable, void *user)
{
    struct rp_arg args[3];
    for (int i = 0; i < 3; i++)
        args[i] = rpt_arg(w->args + (uint64_t)i * WIDTH * sizeof(float), WIDTH,
                          i == 0   ? RP_ARG_IN
                          : i == 1 ? RP_ARG_INOUT
                                   : RP_ARG_OUT);
    struct rp_graph *graph = NULL;
    RPT_OK(&w->f, rp_graph_capture(w->f.pool, NULL, callable, user, args, 3, &graph, &w->f.err));
    RPT_OK(&w->f, rp_graph_replay(graph, args, 3, NULL, &w->f.err));
    assert_int_equal(w->f.driver->cuCtxSynchronize(), 0);
    struct rpi_host_statistics statistics;
    rpi_host_statistics(&statistics);
    rpi_host_races_clear();
    rp_graph_destroy(graph);
    return statistics.races;
}

/* One block, read by a stream that was never named to the library, then freed and taken again. */
static rp_status frees_too_early(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct rpt_fixture *f = user;
    CUstream s = rp_call_stream(call), t = f->streams[0];
    uint64_t a, b;
    rp_status status;
    if ((status = rpt_join(f, s, t, err)) != RP_OK ||
        (status = rp_call_alloc(call, 256, s, &a, err)) != RP_OK ||
        (status = rpt_fill(f, s, a, 1, 64, err)) != RP_OK ||
        (status = rpt_join(f, s, t, err)) != RP_OK ||
        (status = rpt_add(f, t, rp_call_arg(call, 2), a, a, 64, err)) != RP_OK ||
        (status = rp_call_free(call, a, err)) != RP_OK || /* and t was never named */
        (status = rp_call_alloc(call, 256, s, &b, err)) != RP_OK ||
        (status = rpt_fill(f, s, b, 7, 64, err)) != RP_OK)
        return status;
    return rpt_join(f, t, s, err);
}

static void a_stream_that_was_not_named_is_seen(void **state)
{
    struct wrong w;
    (void)state;
    open_wrong(&w);
    assert_true(races_of(&w, frees_too_early, &w.f) > 0);
    close_wrong(&w);
}

enum { PROGRAMS = 200 };

/* How many of the programs race when they forget something. */
static int count_racing(bool forgets_use, bool forgets_join)
{
    struct wrong w;
    int racing = 0;
    open_wrong(&w);
    for (uint64_t seed = 0; seed < PROGRAMS; seed++) {
        static struct program program;
        program_generate(&program, seed);
        program.events = false;
        struct subject subject = {.program = &program,
                                  .f = &w.f,
                                  .events = w.events,
                                  .alignment = 512,
                                  .forgets_use = forgets_use,
                                  .forgets_join = forgets_join};
        racing += races_of(&w, subject_run, &subject) > 0;
    }
    close_wrong(&w);
    return racing;
}

static void random_programs_race_when_they_are_wrong(void **state)
{
    (void)state;
    assert_int_equal(count_racing(false, false), 0);
    int unnamed = count_racing(true, false), unjoined = count_racing(false, true);
    print_message("of %d programs %d race where no use is named, %d where no stream waits\n",
                  PROGRAMS, unnamed, unjoined);
    assert_true(unnamed > PROGRAMS / 10);
    assert_true(unjoined > PROGRAMS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_that_was_not_named_is_seen),
        cmocka_unit_test(random_programs_race_when_they_are_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
