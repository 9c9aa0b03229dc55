/* SPDX-License-Identifier: MIT
 *
 * Records that follow their rehearsal, and such that stray from it: as long as events and order are
 * the same blocks lie as planned, and from where they are not each is looked at, with all that came
 * before known.
 */
#include "graph_fixture.h"

#include <stdbool.h>

enum { COUNT = 256, BYTES = COUNT * 4 };

struct subject {
    const struct rpt_fixture *f;
    int runs;
    bool frees_late, takes_more, uses_more; /* in the second run */
    int joined_runs;                        /* how many runs join before the second block */
    uint64_t first, second, third;          /* addresses of the latest run's blocks */
    uint64_t overlaid;                      /* runs in which the second block lay over the first */
};

static struct rpt_fixture fixture;

static int open_fixture(void **state)
{
    rpt_open(&fixture);
    *state = &fixture;
    return 0;
}

static int close_fixture(void **state)
{
    rpt_close(*state);
    return 0;
}

static struct rp_graph *capture(struct subject *subject, rp_callable_fn work,
                                struct rp_graph_info *out_info)
{
    struct rpt_fixture *f = &fixture;
    struct rp_graph *graph = NULL;
    struct rp_arg arg = rpt_arg(rpt_buffer(f, COUNT, 1), COUNT, RP_ARG_INOUT);
    subject->f = f;
    RPT_OK(f, rp_graph_capture(f->pool, NULL, work, subject, &arg, 1, &graph, &f->err));
    rp_graph_info(graph, out_info);
    f->driver->cuMemFree(arg.address);
    return graph;
}

/* Three blocks one after the other, each freed before the next. The order of what is not as in the
 * first run is that of the flags. */
static rp_status chain(struct rp_call *call, void *user, struct rp_error *err)
{
    struct subject *subject = user;
    const struct rpt_fixture *f = subject->f;
    CUstream s = rp_call_stream(call);
    uint64_t x = rp_call_arg(call, 0), extra;
    bool again = ++subject->runs == 2;
    rp_status status;
    if ((status = rp_call_alloc(call, BYTES, s, &subject->first, err)) != RP_OK ||
        (status = rpt_scale(f, s, subject->first, x, 2, COUNT, err)) != RP_OK ||
        (again && subject->uses_more &&
         (status = rp_call_use(call, subject->first, s, err)) != RP_OK) ||
        (!(again && subject->frees_late) &&
         (status = rp_call_free(call, subject->first, err)) != RP_OK) ||
        (status = rp_call_alloc(call, BYTES, s, &subject->second, err)) != RP_OK ||
        (status = rpt_scale(f, s, subject->second, x, 3, COUNT, err)) != RP_OK ||
        (again && subject->frees_late &&
         (status = rp_call_free(call, subject->first, err)) != RP_OK) ||
        (status = rp_call_free(call, subject->second, err)) != RP_OK ||
        (again && subject->takes_more &&
         ((status = rp_call_alloc(call, 2 * BYTES, s, &extra, err)) != RP_OK ||
          (status = rp_call_free(call, extra, err)) != RP_OK)) ||
        (status = rp_call_alloc(call, BYTES, s, &subject->third, err)) != RP_OK ||
        (status = rpt_scale(f, s, subject->third, x, 4, COUNT, err)) != RP_OK ||
        (status = rp_call_free(call, subject->third, err)) != RP_OK)
        return status;
    return rpt_scale(f, s, x, x, 1, COUNT, err);
}

static void what_is_the_same_lies_as_planned(void **state)
{
    struct subject subject = {0};
    struct rp_graph_info info = {.size = sizeof info};
    (void)state;
    rp_graph_destroy(capture(&subject, chain, &info));
    assert_int_equal(info.rehearsals, 1);
    assert_int_equal(info.diverged_blocks, 0);
    assert_int_equal(info.planned_bytes, BYTES);
    assert_int_equal(subject.first, subject.second);
    assert_int_equal(subject.first, subject.third);
}

/* The first block is alive where the plan has the second: that one lies beside it, and the third is
 * where it was planned, as both are known to be over. */
static void a_late_free_moves_one_block(void **state)
{
    struct subject subject = {.frees_late = true};
    struct rp_graph_info info = {.size = sizeof info};
    (void)state;
    rp_graph_destroy(capture(&subject, chain, &info));
    assert_int_equal(info.rehearsals, 1);
    assert_int_equal(info.diverged_blocks, 1);
    assert_int_equal(info.planned_bytes, 2 * BYTES);
    assert_int_equal(subject.second, subject.first + BYTES);
    assert_int_equal(subject.third, subject.first);
}

/* Where an allocation came that was not planned, the blocks that were freed before are known to be:
 * it takes their place, and grows the pool by what it has more. */
static void what_was_freed_before_is_known(void **state)
{
    struct subject subject = {.takes_more = true};
    struct rp_graph_info info = {.size = sizeof info};
    (void)state;
    rp_graph_destroy(capture(&subject, chain, &info));
    assert_int_equal(info.blocks, 4);
    assert_int_equal(info.planned_bytes, 2 * BYTES);
    assert_int_equal(subject.third, subject.first);
    assert_true(info.diverged_blocks >= 1);
}

/* A use on the block's own stream changes nothing but the events. */
static void another_use_is_harmless(void **state)
{
    struct subject subject = {.uses_more = true};
    struct rp_graph_info info = {.size = sizeof info};
    (void)state;
    rp_graph_destroy(capture(&subject, chain, &info));
    assert_int_equal(info.diverged_blocks, 0);
    assert_int_equal(info.planned_bytes, BYTES);
}

/* A block on each of two streams. In runs that join, the node before the second block's allocation
 * is behind the first's free; in others it is not, and nothing else is another. */
static rp_status fork(struct rp_call *call, void *user, struct rp_error *err)
{
    struct subject *subject = user;
    const struct rpt_fixture *f = subject->f;
    CUstream s = rp_call_stream(call), t = f->streams[0];
    uint64_t x = rp_call_arg(call, 0);
    bool joins = subject->runs++ < subject->joined_runs;
    rp_status status;
    if ((status = rpt_scale(f, s, x, x, 1, COUNT, err)) != RP_OK ||
        (status = rpt_join(f, s, t, err)) != RP_OK ||
        (status = rp_call_alloc(call, BYTES, t, &subject->first, err)) != RP_OK ||
        (status = rpt_fill(f, t, subject->first, 2, COUNT, err)) != RP_OK ||
        (status = rp_call_free(call, subject->first, err)) != RP_OK ||
        (joins && (status = rpt_join(f, t, s, err)) != RP_OK) ||
        (status = rpt_launch(f, f->nothing, s, NULL, err)) != RP_OK ||
        (status = rp_call_alloc(call, BYTES, s, &subject->second, err)) != RP_OK ||
        (status = rpt_fill(f, s, subject->second, 3, COUNT, err)) != RP_OK ||
        (status = rp_call_free(call, subject->second, err)) != RP_OK)
        return status;
    subject->overlaid |= (uint64_t)(subject->first == subject->second) << subject->runs;
    return rpt_join(f, t, s, err);
}

static void another_order_is_noticed(void **state)
{
    struct subject joined = {.joined_runs = 4}, once = {.joined_runs = 1};
    struct rp_graph_info info = {.size = sizeof info};
    (void)state;
    rp_graph_destroy(capture(&joined, fork, &info));
    assert_int_equal(joined.runs, 2);
    assert_int_equal(joined.overlaid, 1 << 2);
    rp_graph_destroy(capture(&once, fork, &info));
    assert_int_equal(once.runs, 4); /* the second had other edges: both are taken once more */
    assert_int_equal(once.overlaid, 0);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, open_fixture, close_fixture)
    const struct CMUnitTest tests[] = {
        TEST(what_is_the_same_lies_as_planned), TEST(a_late_free_moves_one_block),
        TEST(what_was_freed_before_is_known),   TEST(another_use_is_harmless),
        TEST(another_order_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
