/* SPDX-License-Identifier: MIT
 *
 * Estimates: what captures then take, to the byte, with nothing taken but the chunk of rehearsals.
 */
#include "graph_fixture.h"

#include "graph/capture/plans.h"
#include "graph/exec/exec_cache.h"
#include "graph/objects/objects.h"

enum { CALLABLES = 4, SHAPES = 6 };

struct fixture {
    struct rpt_fixture f;
    struct rp_pool *pool; /* that the callables lie in */
    struct work {
        struct fixture *t;
        int kept; /* so many blocks are not freed */
        bool refuse;
    } works[CALLABLES];
    struct rp_callable *callables[CALLABLES];
};

/* A ladder of blocks on two streams, as many as the key says, of sizes that follow from the
 * argument's. */
static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct work *w = user;
    const struct rpt_fixture *f = &w->t->f;
    CUstream main = rp_call_stream(call), side = f->streams[0];
    struct rp_arg in;
    uint64_t blocks[16];
    size_t key_bytes;
    const unsigned char *key = rp_call_key(call, &key_bytes);
    int count = key_bytes ? *key : 8;
    if (w->refuse)
        return RP_ERROR_IO;
    rp_call_tensor(call, 0, &in);
    rp_status status = rpt_join(f, main, side, err);
    for (int i = 0; status == RP_OK && i < count; i++) {
        uint64_t bytes = in.bytes * (uint64_t)(1 + i % 3) / (uint64_t)(1 + i % 2);
        CUstream stream = i % 4 == 3 ? side : main;
        status = rp_call_alloc(call, bytes, stream, &blocks[i], err);
        if (status == RP_OK)
            status = rpt_fill(f, stream, blocks[i], (float)i, 1, err);
        if (status == RP_OK && i >= 2 + w->kept)
            status = rp_call_free(call, blocks[i - 2], err);
    }
    if (status == RP_OK)
        status = rpt_join(f, side, main, err);
    return status == RP_OK ? rpt_scale(f, main, rp_call_arg(call, 1), in.address, 2, 4, err)
                           : status;
}

static void start(struct fixture *t, enum rp_pool_kind kind, int kept)
{
    struct rp_pool_options pool = RP_POOL_OPTIONS_INIT;
    struct rp_callable_options options = RP_CALLABLE_OPTIONS_INIT;
    memset(t, 0, sizeof *t);
    rpt_open(&t->f);
    pool.kind = kind;
    pool.plan_budget_ms = 5;
    RPT_OK(&t->f, rp_pool_create(t->f.device, &pool, &t->pool, &t->f.err));
    options.pool = t->pool;
    for (int i = 0; i < CALLABLES; i++) {
        t->works[i] = (struct work){.t = t, .kept = kept};
        RPT_OK(&t->f, rp_callable_create(t->f.device, &options, work, &t->works[i],
                                         &t->callables[i], &t->f.err));
    }
}

static void finish(struct fixture *t)
{
    for (int i = 0; i < CALLABLES; i++)
        rp_callable_destroy(t->callables[i]);
    rp_pool_destroy(t->pool);
    rpt_close(&t->f);
}

struct wanted {
    struct rp_callable *callables[CALLABLES * SHAPES];
    struct rp_inputs inputs[CALLABLES * SHAPES];
    struct rp_arg args[CALLABLES * SHAPES][2];
    unsigned char keys[CALLABLES * SHAPES];
};

/* Shape s of callable c at c * SHAPES + s. */
static void want(struct fixture *t, struct wanted *w)
{
    for (int i = 0; i < CALLABLES * SHAPES; i++) {
        uint64_t bytes = 256 * (uint64_t)(1 + (i * 37 + 11) % 200);
        w->callables[i] = t->callables[i / SHAPES];
        w->keys[i] = (unsigned char)(3 + i % 11);
        w->args[i][0] = (struct rp_arg){.bytes = bytes, .role = RP_ARG_IN};
        w->args[i][1] = (struct rp_arg){.bytes = bytes, .role = RP_ARG_OUT};
        w->inputs[i] = (struct rp_inputs){
            .args = w->args[i], .arg_count = 2, .key = &w->keys[i], .key_bytes = 1};
    }
}

static struct rp_estimate_info estimate(struct fixture *t, struct wanted *w, size_t count,
                                        struct rp_estimate_shape *shapes)
{
    struct rp_estimate *made;
    struct rp_estimate_info info = {.size = sizeof info};
    RPT_OK(&t->f, rp_estimate(w->callables, w->inputs, count, &made, &t->f.err));
    rp_estimate_info(made, &info);
    assert_int_equal(info.shapes, count);
    for (size_t i = 0; i < count; i++) {
        shapes[i].size = sizeof shapes[i];
        assert_int_equal(rp_estimate_shape(made, i, &shapes[i]), 1);
    }
    assert_int_equal(rp_estimate_shape(made, count, &shapes[0]), 0);
    for (size_t i = 0; i < count; i++)
        shapes[i].text = shapes[i].reason = NULL; /* gone with the estimate */
    rp_estimate_destroy(made);
    return info;
}

static void capture(struct fixture *t, struct wanted *w, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        size_t failed = 1;
        RPT_OK(&t->f, rp_callable_capture(w->callables[i], &w->inputs[i], 1, NULL, NULL, &failed,
                                          &t->f.err));
        assert_int_equal(failed, 0);
    }
}

static void check_taken(struct fixture *t, const struct rp_estimate_info *info)
{
    struct rp_pool_info taken = {.size = sizeof taken};
    rp_pool_info(t->pool, &taken);
    assert_int_equal(info->failed, 0);
    assert_int_equal(info->planned_bytes, taken.planned_bytes);
    assert_int_equal(info->mapped_bytes, taken.mapped_bytes);
    assert_int_equal(info->lower_bound_bytes, taken.lower_bound_bytes);
}

static void estimates_are_what_captures_take(void **state)
{
    (void)state;
    for (int kind = RP_POOL_ALTERNATIVES; kind <= RP_POOL_CONCURRENT; kind++)
        for (int kept = 0; kept < 3; kept++) {
            struct fixture t;
            struct wanted w;
            struct rp_estimate_shape shapes[CALLABLES * SHAPES];
            struct rpi_host_statistics before, after;
            start(&t, (enum rp_pool_kind)kind, kept);
            want(&t, &w);
            rpi_host_statistics(&before);
            struct rp_estimate_info info = estimate(&t, &w, CALLABLES * SHAPES, shapes);
            rpi_host_statistics(&after);
            assert_int_equal(after.physical_bytes - before.physical_bytes, info.rehearsal_bytes);
            struct rp_pool_info taken = {.size = sizeof taken};
            rp_pool_info(t.pool, &taken);
            assert_int_equal(taken.mapped_bytes, 0);
            assert_int_equal(taken.graphs, 0);
            assert_true(info.planned_bytes > 0 &&
                        info.exec_bytes >=
                            info.shapes * rpi_exec_bytes(&rpi_h200_byte_prices, 1, 1));
            /* The planner may find another layout in the same time: captures find these plans. */
            size_t plans = t.pool->core->plans->made.count;
            assert_true(plans > 0);
            capture(&t, &w, 0, CALLABLES * SHAPES);
            assert_int_equal(t.pool->core->plans->made.count, plans);
            check_taken(&t, &info);
            for (int i = 0; i < CALLABLES * SHAPES; i++) {
                struct rp_shape_info shape = {.size = sizeof shape};
                assert_int_equal(
                    rp_callable_shape_info(w.callables[i], (size_t)(i % SHAPES), &shape), 1);
                assert_int_equal(shapes[i].planned_bytes, shape.planned_bytes);
                assert_int_equal(shapes[i].lower_bound_bytes, shape.lower_bound_bytes);
                assert_int_equal(shapes[i].nodes, shape.nodes);
            }
            finish(&t);
        }
}

/* What was captured is counted, and obstructs what comes. */
static void estimates_beside_captures(void **state)
{
    (void)state;
    struct fixture t;
    struct wanted w;
    struct rp_estimate_shape shapes[CALLABLES * SHAPES];
    start(&t, RP_POOL_SEQUENCE, 2);
    want(&t, &w);
    capture(&t, &w, 4, 7);
    struct rp_estimate_info info = estimate(&t, &w, CALLABLES * SHAPES, shapes);
    struct rp_estimate_info again = estimate(&t, &w, CALLABLES * SHAPES, shapes);
    assert_int_equal(again.planned_bytes, info.planned_bytes);
    for (int i = 0; i < CALLABLES * SHAPES; i++)
        assert_int_equal(shapes[i].captured, i >= 4 && i < 11);
    capture(&t, &w, 0, CALLABLES * SHAPES);
    check_taken(&t, &info);
    info = estimate(&t, &w, CALLABLES * SHAPES, shapes);
    check_taken(&t, &info);
    finish(&t);
}

static void shapes_that_fail_are_left_out(void **state)
{
    (void)state;
    struct fixture t;
    struct wanted w;
    struct rp_estimate *made;
    struct rp_estimate_info info = {.size = sizeof info};
    struct rp_estimate_shape shape = {.size = sizeof shape};
    start(&t, RP_POOL_ALTERNATIVES, 0);
    want(&t, &w);
    t.works[1].refuse = true;
    w.inputs[2] = w.inputs[0]; /* the same again counts once */
    RPT_OK(&t.f, rp_estimate(w.callables, w.inputs, 2 * SHAPES, &made, &t.f.err));
    rp_estimate_info(made, &info);
    assert_int_equal(info.shapes, 2 * SHAPES - 1);
    assert_int_equal(info.failed, SHAPES);
    assert_int_equal(rp_estimate_shape(made, SHAPES - 1, &shape), 1);
    assert_int_equal(shape.status, RP_ERROR_CALLABLE);
    assert_non_null(strstr(shape.reason, "RP_ERROR_IO"));
    assert_ptr_equal(shape.callable, t.callables[1]);
    rp_estimate_destroy(made);
    rp_estimate_destroy(NULL);
    assert_int_equal(rp_estimate(NULL, w.inputs, 1, &made, &t.f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_estimate(w.callables, w.inputs, 1, NULL, &t.f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    w.inputs[0].args = NULL;
    assert_int_equal(rp_estimate(w.callables, w.inputs, 1, &made, &t.f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    finish(&t);
}

/* ---- One after the other ---------------------------------------------------------------------*/

enum { STEPS = 5 };

/* A sequence within the pool: a part that keeps blocks, and one behind it. */
struct step {
    struct rp_pool *pool;
    struct rp_arg args[2];
    struct rp_graph *graphs[2];
};

static void start_step(struct fixture *t, struct step *step, int index)
{
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    uint64_t bytes = 256 * (uint64_t)(1 + (index * 37 + 11) % 200);
    *step = (struct step){
        .args = {{.bytes = bytes, .role = RP_ARG_IN}, {.bytes = bytes, .role = RP_ARG_OUT}}};
    options.kind = RP_POOL_SEQUENCE;
    options.parent = t->pool;
    RPT_OK(&t->f, rp_pool_create(t->f.device, &options, &step->pool, &t->f.err));
}

static void name_part(struct rp_capture_options *options, int part)
{
    options->name = part ? "behind" : "before";
}

static void captures_are_added_one_after_the_other(void **state)
{
    (void)state;
    for (int kind = RP_POOL_ALTERNATIVES; kind <= RP_POOL_CONCURRENT; kind++) {
        struct fixture t;
        struct step estimated[STEPS], captured[STEPS];
        struct rp_estimate *made;
        struct rp_estimate_info info = {.size = sizeof info};
        struct rp_estimate_shape shapes[2 * STEPS];
        struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
        struct rpi_host_statistics before, after;
        start(&t, (enum rp_pool_kind)kind, 2);
        RPT_OK(&t.f, rp_estimate_create(&made, &t.f.err));
        rp_estimate_info(made, &info);
        assert_int_equal(info.shapes + info.planned_bytes, 0);
        rpi_host_statistics(&before);
        for (int i = 0; i < 2 * STEPS; i++) {
            if (i % 2 == 0)
                start_step(&t, &estimated[i / 2], i / 2);
            name_part(&options, i % 2);
            RPT_OK(&t.f, rp_estimate_add(made, estimated[i / 2].pool, &options, work,
                                         &t.works[i % 2], estimated[i / 2].args, 2, &t.f.err));
        }
        rpi_host_statistics(&after);
        rp_estimate_info(made, &info);
        assert_int_equal(info.shapes, 2 * STEPS);
        assert_int_equal(after.physical_bytes - before.physical_bytes, info.rehearsal_bytes);
        for (int i = 0; i < 2 * STEPS; i++) {
            shapes[i].size = sizeof shapes[i];
            assert_int_equal(rp_estimate_shape(made, (size_t)i, &shapes[i]), 1);
        }
        assert_string_equal(shapes[3].text, "behind");
        assert_null(shapes[0].callable);
        rp_estimate_destroy(made);
        for (int i = 0; i < STEPS; i++)
            rp_pool_destroy(estimated[i].pool);
        for (int i = 0; i < 2 * STEPS; i++) {
            struct rp_graph_info graph = {.size = sizeof graph};
            struct step *step = &captured[i / 2];
            if (i % 2 == 0)
                start_step(&t, step, i / 2);
            name_part(&options, i % 2);
            RPT_OK(&t.f, rp_graph_capture(step->pool, &options, work, &t.works[i % 2], step->args,
                                          2, &step->graphs[i % 2], &t.f.err));
            rp_graph_info(step->graphs[i % 2], &graph);
            assert_int_equal(shapes[i].planned_bytes, graph.planned_bytes);
            assert_int_equal(shapes[i].lower_bound_bytes, graph.lower_bound_bytes);
            assert_int_equal(shapes[i].nodes, graph.nodes);
        }
        check_taken(&t, &info);
        for (int i = 0; i < 2 * STEPS; i++)
            rp_graph_destroy(captured[i / 2].graphs[i % 2]);
        for (int i = 0; i < STEPS; i++)
            rp_pool_destroy(captured[i].pool);
        finish(&t);
    }
}

static void a_capture_that_fails_adds_nothing(void **state)
{
    (void)state;
    struct fixture t;
    struct rp_estimate *made;
    struct rp_estimate_info info = {.size = sizeof info}, again = {.size = sizeof again};
    struct rp_arg args[2] = {{.bytes = 512, .role = RP_ARG_IN}, {.bytes = 512, .role = RP_ARG_OUT}};
    start(&t, RP_POOL_SEQUENCE, 1);
    RPT_OK(&t.f, rp_estimate_create(&made, &t.f.err));
    RPT_OK(&t.f, rp_estimate_add(made, t.pool, NULL, work, &t.works[0], args, 2, &t.f.err));
    rp_estimate_info(made, &info);
    t.works[1].refuse = true;
    assert_int_equal(rp_estimate_add(made, t.pool, NULL, work, &t.works[1], args, 2, &t.f.err),
                     RP_ERROR_CALLABLE);
    args[0].role = (enum rp_arg_role)9;
    assert_int_equal(rp_estimate_add(made, t.pool, NULL, work, &t.works[0], args, 2, &t.f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_estimate_add(made, NULL, NULL, work, &t.works[0], args, 2, &t.f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_estimate_create(NULL, &t.f.err), RP_ERROR_INVALID_ARGUMENT);
    rp_estimate_info(made, &again);
    assert_int_equal(again.shapes, 1);
    assert_int_equal(again.planned_bytes, info.planned_bytes);
    rp_estimate_destroy(made);
    finish(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(estimates_are_what_captures_take),
        cmocka_unit_test(estimates_beside_captures),
        cmocka_unit_test(shapes_that_fail_are_left_out),
        cmocka_unit_test(captures_are_added_one_after_the_other),
        cmocka_unit_test(a_capture_that_fails_adds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
