/* SPDX-License-Identifier: MIT
 *
 * Judges and choices for callers that run and replay by themselves: what calls are measured, on the
 * host driver, where the test sets how long they take; what cannot be measured; and that neither
 * faults nor shapes that go leave anything behind.
 */
#include "graph_fixture.h"

#include "base/clock.h"
#include "fault_loop.h"
#include "graph/callable/way_judge.h"
#include "graph/handles/device.h"

#include <math.h>

struct fixture {
    struct rpt_fixture f;
    struct rp_way_judge *judge;
    struct rp_way_choice *choice;
};

static void start(struct fixture *t)
{
    memset(t, 0, sizeof *t);
    rpt_open(&t->f);
    RPT_OK(&t->f, rp_way_judge_create(t->f.device, &t->judge, &t->f.err));
    RPT_OK(&t->f, rp_way_choice_create(t->judge, &t->choice, &t->f.err));
}

static void finish(struct fixture *t)
{
    rp_way_choice_destroy(t->choice);
    rp_way_judge_destroy(t->judge);
    rpt_close(&t->f);
}

static void spend_us(double us)
{
    uint64_t begin = rpi_clock_ns();
    while ((double)(rpi_clock_ns() - begin) < us * 1e3)
        ;
}

static void spend_on_stream(void *us)
{
    spend_us(*(double *)us);
}

/* How long the host and the device need for a call, at least, and the host until the next one. */
struct pace {
    double host_us, device_us, between_us;
};

static struct rp_way_turn call(struct fixture *t, const struct pace *eager,
                               const struct pace *graph, CUstream stream)
{
    struct rp_way_turn turn;
    rp_way_choice_begin(t->choice, stream, 0, &turn);
    if (turn.way == RP_WAY_CAPTURE) {
        rp_way_choice_captured(t->choice, 1, 0.1);
        rp_way_choice_begin(t->choice, stream, 0, &turn);
    }
    const struct pace *pace = turn.way == RP_WAY_GRAPH ? graph : eager;
    spend_us(pace->host_us);
    if (pace->device_us > 0)
        assert_int_equal(
            t->f.driver->cuLaunchHostFunc(stream, spend_on_stream, (void *)&pace->device_us), 0);
    rp_way_choice_end(t->choice, &turn, 1);
    spend_us(pace->between_us);
    return turn;
}

static struct rp_way_choice_info calls(struct fixture *t, int count, struct pace eager,
                                       struct pace graph)
{
    struct rp_way_choice_info info = {.size = sizeof info};
    for (int i = 0; i < count; i++) {
        call(t, &eager, &graph, t->f.streams[0]);
        if (i % 40 == 39) /* what is measured comes in */
            assert_int_equal(t->f.driver->cuStreamSynchronize(t->f.streams[0]), 0);
    }
    assert_int_equal(t->f.driver->cuStreamSynchronize(t->f.streams[0]), 0);
    rp_way_choice_info(t->choice, &info);
    return info;
}

/* In a row of calls the host's time and the device's hide behind each other: a call costs the
 * longer of the two. Times are at least those set; only what a busy machine cannot turn round is
 * asked. */
static void a_row_of_calls_costs_the_longer(void **state)
{
    (void)state;
    struct fixture t;
    start(&t);
    struct rp_way_choice_info info =
        calls(&t, 600, (struct pace){.host_us = 4000, .device_us = 300},
              (struct pace){.host_us = 20, .device_us = 300});
    assert_string_equal(info.choice, "graph");
    assert_int_equal(info.way, RP_WAY_GRAPH);
    assert_true(info.eager_us >= 4000 && info.graph_us >= 290 && info.graph_us < info.eager_us);
    assert_true(info.capture_ms > 0);
    assert_int_equal(info.calls, 600);
    assert_true(info.measured_calls >= 20 && info.measured_calls < 300);
    finish(&t);
}

/* Where other work comes between calls, it is no part of them. */
static void calls_apart_are_measured_alone(void **state)
{
    (void)state;
    struct fixture t;
    start(&t);
    struct rp_way_choice_info info =
        calls(&t, 100, (struct pace){.host_us = 50, .between_us = 5000},
              (struct pace){.host_us = 40, .between_us = 5000});
    assert_true(info.measured_calls > 0);
    assert_true(info.eager_us >= 50 && info.eager_us < 4000);
    assert_true(t.choice->judge->timing.slots[0].each);
    finish(&t);
}

/* What calls of the way that is chosen took, once the device has passed all that was measured. */
static double measured_us(struct fixture *t)
{
    struct rp_way_choice_info info = {.size = sizeof info};
    assert_int_equal(t->f.driver->cuStreamSynchronize(t->f.streams[0]), 0);
    spend_us(1000);
    rp_way_choice_rest(t->choice, 0);
    rp_way_choice_info(t->choice, &info);
    assert_true(info.measured_calls > 0);
    return info.way == RP_WAY_GRAPH ? info.graph_us : info.eager_us;
}

/* Gaps that come within a block spoil it; where they go on, blocks are measured call by call, and
 * where they end, in a row again. */
static void uneven_calls_are_measured_alone(void **state)
{
    (void)state;
    struct fixture t;
    start(&t);
    const struct pace pace = {.host_us = 5};
    int more = 100;
    for (int i = 0; more > 0; i++) {
        assert_true(i < 2000);
        call(&t, &pace, &pace, t.f.streams[0]);
        if (i % 3 == 2)
            spend_us(20000);
        if (t.choice->block.gaps == RPI_MANY_GAPS && more == 100)
            assert_true(measured_us(&t) < 1000);
        more -= t.choice->block.gaps >= RPI_MANY_GAPS;
    }
    assert_true(measured_us(&t) < 1000);
    for (int i = 0; t.choice->block.gaps; i++) {
        assert_true(i < 100000);
        call(&t, &pace, &pace, t.f.streams[0]);
    }
    finish(&t);
}

/* Calls on changing streams are measured, calls within each other or that failed are not. */
static void blocks_are_lost_or_kept(void **state)
{
    (void)state;
    struct fixture t;
    struct rp_way_choice_info info = {.size = sizeof info};
    struct rp_way_turn first, second;
    const struct pace pace = {.host_us = 5};
    start(&t);
    for (int i = 0; i < 20; i++)
        call(&t, &pace, &pace, t.f.streams[i % 2]);
    assert_int_equal(t.f.driver->cuStreamSynchronize(t.f.streams[0]), 0);
    assert_int_equal(t.f.driver->cuStreamSynchronize(t.f.streams[1]), 0);
    rp_way_choice_rest(t.choice, 0);
    rp_way_choice_info(t.choice, &info);
    assert_true(info.measured_calls > 0);
    finish(&t);

    start(&t);
    for (int i = 0; i < 50; i++) {
        rp_way_choice_begin(t.choice, t.f.streams[0], 0, &first);
        rp_way_choice_begin(t.choice, t.f.streams[0], 0, &second);
        rp_way_choice_end(t.choice, &second, 1);
        rp_way_choice_end(t.choice, &first, 1);
    }
    for (int i = 0; i < 50; i++) {
        rp_way_choice_begin(t.choice, t.f.streams[0], 0, &first);
        rp_way_choice_end(t.choice, &first, i % 2);
    }
    assert_int_equal(t.f.driver->cuStreamSynchronize(t.f.streams[0]), 0);
    rp_way_choice_rest(t.choice, 0);
    rp_way_choice_info(t.choice, &info);
    assert_int_equal(info.measured_calls, 0);
    assert_string_equal(info.choice, "eager");
    finish(&t);
}

/* A capture on the stream meanwhile: nothing is recorded into it. */
static void calls_into_a_capture_are_not_measured(void **state)
{
    (void)state;
    struct fixture t;
    CUgraph graph;
    size_t nodes = 9;
    start(&t);
    assert_int_equal(
        t.f.driver->cuStreamBeginCapture(t.f.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
    const struct pace pace = {.host_us = 1};
    for (int i = 0; i < 12; i++)
        call(&t, &pace, &pace, t.f.streams[0]);
    assert_int_equal(t.f.driver->cuStreamEndCapture(t.f.streams[0], &graph), 0);
    assert_int_equal(t.f.driver->cuGraphGetNodes(graph, NULL, &nodes), 0);
    assert_int_equal(nodes, 0);
    assert_int_equal(t.f.driver->cuGraphDestroy(graph), 0);
    finish(&t);
}

/* Shapes that are called once leave their blocks open: later ones take the place of these. */
static void shapes_called_once_do_not_keep_others_from_being_measured(void **state)
{
    (void)state;
    struct fixture t;
    struct rp_way_choice *once[20];
    struct rp_way_turn turn;
    start(&t);
    for (int i = 0; i < 20; i++) {
        RPT_OK(&t.f, rp_way_choice_create(t.judge, &once[i], &t.f.err));
        rp_way_choice_begin(once[i], t.f.streams[0], 0, &turn);
        rp_way_choice_end(once[i], &turn, 1);
    }
    const struct pace pace = {.host_us = 5};
    assert_true(calls(&t, 60, pace, pace).measured_calls > 0);
    for (int i = 0; i < 20; i++) {
        rp_way_choice_begin(once[i], t.f.streams[0], 0, &turn);
        rp_way_choice_end(once[i], &turn, 1);
        rp_way_choice_destroy(once[i]);
    }
    assert_true(calls(&t, 60, pace, pace).measured_calls > 0);
    finish(&t);
}

/* A shape that goes while the device has yet to pass its events. */
static void a_choice_may_go_while_it_is_measured(void **state)
{
    (void)state;
    struct fixture t;
    start(&t);
    const struct pace pace = {.device_us = 2000};
    for (int i = 0; i < 5; i++)
        call(&t, &pace, &pace, t.f.streams[0]);
    assert_true(t.judge->timing.waiting > 0);
    rp_way_choice_destroy(t.choice);
    assert_int_equal(t.judge->timing.waiting, 0);
    RPT_OK(&t.f, rp_way_choice_create(t.judge, &t.choice, &t.f.err));
    calls(&t, 40, pace, pace);
    finish(&t);
    struct rp_error err;
    assert_int_equal(rp_way_judge_create(NULL, &t.judge, &err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_way_choice_create(NULL, &t.choice, &err), RP_ERROR_INVALID_ARGUMENT);
    rp_way_choice_destroy(NULL);
    rp_way_judge_destroy(NULL);
}

/* Faults cost measurements, and nothing else: there is one, so what fails works when it is tried
 * again. */
static bool judge_a_shape(const struct rp_driver *driver, void *user)
{
    struct rp_device *device;
    struct rp_way_judge *judge = NULL;
    struct rp_way_choice *choice = NULL;
    (void)user;
    if (rpi_device_open_on(driver, 0, &device, NULL) != RP_OK &&
        rpi_device_open_on(driver, 0, &device, NULL) != RP_OK)
        return false;
    bool made = (rp_way_judge_create(device, &judge, NULL) == RP_OK ||
                 rp_way_judge_create(device, &judge, NULL) == RP_OK) &&
                (rp_way_choice_create(judge, &choice, NULL) == RP_OK ||
                 rp_way_choice_create(judge, &choice, NULL) == RP_OK);
    for (int i = 0; made && i < 60; i++) {
        struct rp_way_turn turn;
        rp_way_choice_begin(choice, NULL, 0, &turn);
        if (turn.way == RP_WAY_CAPTURE)
            rp_way_choice_captured(choice, i % 2, 0.1);
        else
            rp_way_choice_end(choice, &turn, 1);
    }
    rp_way_choice_destroy(choice);
    rp_way_judge_destroy(judge);
    rp_device_destroy(device);
    return made;
}

static struct rpi_host_statistics held;

static const char *what_is_left(void *user)
{
    struct rpi_host_statistics now;
    (void)user;
    rpi_host_statistics(&now);
    return now.events != held.events || now.streams != held.streams ? "events" : NULL;
}

static void faults_leave_nothing(void **state)
{
    (void)state;
    const struct rpt_scenario scenario = {.run = judge_a_shape, .left = what_is_left};
    assert_true(judge_a_shape(rpi_driver_host(), NULL));
    rpi_host_statistics(&held);
    assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_UNKNOWN) > 20);
    assert_true(rpt_memory_fault_loop(rpi_driver_host(), &scenario) > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_of_calls_costs_the_longer),
        cmocka_unit_test(calls_apart_are_measured_alone),
        cmocka_unit_test(uneven_calls_are_measured_alone),
        cmocka_unit_test(blocks_are_lost_or_kept),
        cmocka_unit_test(calls_into_a_capture_are_not_measured),
        cmocka_unit_test(shapes_called_once_do_not_keep_others_from_being_measured),
        cmocka_unit_test(a_choice_may_go_while_it_is_measured),
        cmocka_unit_test(faults_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
