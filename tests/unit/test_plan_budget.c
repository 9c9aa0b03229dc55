/* SPDX-License-Identifier: MIT
 *
 * A capture whose plan is hard: by the default, in steps, it is stopped at the same layout each
 * time, and says so; so does one that is stopped by time.
 */
#include "graph_fixture.h"

#include "recording/file.h"

enum { MOST_ROWS = 500 };

struct rows {
    struct rpt_fixture *f;
    const struct rpi_intervals *intervals;
    uint64_t addresses[MOST_ROWS];
};

/* The next moment after `now` at which a row begins or ends; INT64_MAX: none does. */
static int64_t next_moment(const struct rpi_intervals *rows, int64_t now)
{
    int64_t next = INT64_MAX;
    for (size_t i = 0; i < rows->count; i++) {
        if (rows->lower[i] > now && rows->lower[i] < next)
            next = rows->lower[i];
        if (rows->upper[i] > now && rows->upper[i] < next)
            next = rows->upper[i];
    }
    return next;
}

static rp_status live_through(struct rp_call *call, void *user, struct rp_error *err)
{
    struct rows *r = user;
    const struct rpi_intervals *rows = r->intervals;
    CUstream stream = rp_call_stream(call);
    rp_status status = RP_OK;
    for (int64_t now = next_moment(rows, INT64_MIN); status == RP_OK && now != INT64_MAX;
         now = next_moment(rows, now)) {
        for (size_t i = 0; status == RP_OK && i < rows->count; i++)
            if (rows->upper[i] == now)
                status = rp_call_free(call, r->addresses[i], err);
        for (size_t i = 0; status == RP_OK && i < rows->count; i++)
            if (rows->lower[i] == now)
                status = rp_call_alloc(call, rows->bytes[i], stream, &r->addresses[i], err);
        if (status == RP_OK)
            status = rpt_launch(r->f, r->f->nothing, stream, NULL, err);
    }
    return status;
}

static struct rp_graph_info capture(struct rows *r, unsigned budget_ms)
{
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    struct rp_pool *pool;
    struct rp_graph *graph;
    struct rp_graph_info info = {.size = sizeof info};
    options.alignment = 1;
    options.plan_budget_ms = budget_ms;
    RPT_OK(r->f, rp_pool_create(r->f->device, &options, &pool, &r->f->err));
    RPT_OK(r->f, rp_graph_capture(pool, NULL, live_through, r, NULL, 0, &graph, &r->f->err));
    rp_graph_info(graph, &info);
    assert_int_equal(info.blocks, r->intervals->count);
    rp_graph_destroy(graph);
    rp_pool_destroy(pool);
    info.name = NULL; /* the graph's */
    return info;
}

static struct rp_recording *load(const char *name)
{
    struct rp_recording *recording;
    char path[512];
    snprintf(path, sizeof path, "%s/tests/data/dsa/%s.1048576.csv", SOURCE_DIR, name);
    assert_int_equal(rp_recording_load(path, &recording, NULL), RP_OK);
    assert_true(recording->intervals.count <= MOST_ROWS);
    return recording;
}

static void plans_are_stopped_at_the_same_layout(void **state)
{
    struct rp_recording *recording = load("K");
    static struct rows rows;
    rows = (struct rows){.f = *state, .intervals = &recording->intervals};
    struct rp_graph_info first = capture(&rows, 0), second = capture(&rows, 0);
    assert_int_equal(first.plan_stopped, 1);
    assert_true(first.planned_bytes > first.lower_bound_bytes);
    assert_int_equal(second.planned_bytes, first.planned_bytes);
    assert_int_equal(second.plan_stopped, 1);
    assert_int_equal(capture(&rows, 1).plan_stopped, 1);
    rp_recording_destroy(recording);
}

static void plans_at_the_bound_are_not_stopped(void **state)
{
    struct rp_recording *recording = load("A");
    static struct rows rows;
    rows = (struct rows){.f = *state, .intervals = &recording->intervals};
    struct rp_graph_info info = capture(&rows, 0);
    assert_int_equal(info.plan_stopped, 0);
    assert_int_equal(info.planned_bytes, info.lower_bound_bytes);
    rp_recording_destroy(recording);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RPT_TEST(plans_are_stopped_at_the_same_layout),
        RPT_TEST(plans_at_the_bound_are_not_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
