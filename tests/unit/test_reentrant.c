/* SPDX-License-Identifier: MIT
 *
 * Callables that run, capture and call others, on two threads that want what the other has: each
 * ends with what was asked for or with an error that says why not, and none waits forever.
 */
#include "graph_fixture.h"

#include <pthread.h>
#include <unistd.h>

enum { ROUNDS = 20, COUNT = 64 };

struct scene {
    struct rpt_fixture *f;
    pthread_barrier_t both;
    struct rp_callable *callables[2];
    struct rp_error inner[2]; /* of the inner calls; status RP_OK: none */
};

struct part {
    struct scene *scene;
    int index;
    bool inner; /* the callable is the one inside */
    int runs;
    rp_status status;
    struct rp_error err;
};

static rp_status fill(struct rp_call *call, void *user, struct rp_error *err)
{
    struct part *part = user;
    uint64_t block;
    rp_status status =
        rp_call_alloc(call, COUNT * sizeof(float), rp_call_stream(call), &block, err);
    if (status == RP_OK)
        status = rpt_fill(part->scene->f, rp_call_stream(call), block, 1, COUNT, err);
    return status;
}

static struct rp_error no_error(void)
{
    return (struct rp_error){.status = RP_OK};
}

/* In a capture, a run on the same pool, on another stream. It is refused: what is inside is called
 * directly instead. */
static rp_status run_inside(struct rp_call *call, void *user, struct rp_error *err)
{
    struct part *part = user;
    struct scene *scene = part->scene;
    struct rp_error inner = no_error();
    if (part->runs++ == 0)
        pthread_barrier_wait(&scene->both);
    inner.status =
        rp_run(scene->f->pool, fill, part, NULL, 0, scene->f->streams[part->index], &inner);
    scene->inner[part->index] = inner;
    return fill(call, part, err);
}

/* In a run, a capture into the same pool: it is made, before the capture of the other or after. */
static rp_status capture_inside(struct rp_call *call, void *user, struct rp_error *err)
{
    struct part *part = user;
    struct rp_graph *graph = NULL;
    (void)call;
    pthread_barrier_wait(&part->scene->both);
    rp_status status =
        rp_graph_capture(part->scene->f->pool, NULL, fill, part, NULL, 0, &graph, err);
    rp_graph_destroy(graph);
    return status;
}

static void *capture_that_runs(void *argument)
{
    struct part *part = argument;
    struct rp_graph *graph = NULL;
    part->status =
        rp_graph_capture(part->scene->f->pool, NULL, run_inside, part, NULL, 0, &graph, &part->err);
    rp_graph_destroy(graph);
    return NULL;
}

static void *run_that_captures(void *argument)
{
    struct part *part = argument;
    part->status = rp_run(part->scene->f->pool, capture_inside, part, NULL, 0,
                          part->scene->f->streams[part->index], &part->err);
    return NULL;
}

static void in_two_threads(void *(*first)(void *), void *(*second)(void *), struct part *parts)
{
    pthread_t thread;
    alarm(120); /* a deadlock is a failure, not a test that never ends */
    assert_int_equal(pthread_create(&thread, NULL, first, &parts[0]), 0);
    second(&parts[1]);
    pthread_join(thread, NULL);
    alarm(0);
}

static void runs_and_captures_cross(void **state)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct scene scene = {.f = *state};
        struct part parts[2] = {{.scene = &scene, .index = 0}, {.scene = &scene, .index = 1}};
        assert_int_equal(pthread_barrier_init(&scene.both, NULL, 2), 0);
        in_two_threads(capture_that_runs, run_that_captures, parts);
        pthread_barrier_destroy(&scene.both);
        for (int i = 0; i < 2; i++)
            if (parts[i].status != RP_OK)
                print_error("%s\n", parts[i].err.message);
        assert_int_equal(parts[0].status, RP_OK);
        assert_int_equal(parts[1].status, RP_OK);
        assert_int_equal(scene.inner[0].status, RP_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(scene.inner[0].message, "rp_run was called by a callable"));
    }
}

/* Each callable's function calls the other callable, where it is not that which is inside. */
static rp_status call_other(struct rp_call *call, void *user, struct rp_error *err)
{
    struct part *part = user;
    struct scene *scene = part->scene;
    struct rp_error inner = no_error();
    struct rp_inputs inputs = {.arg_count = 0};
    if (part->inner)
        return RP_OK;
    part->inner = true;
    pthread_barrier_wait(&scene->both);
    inner.status = rp_callable_call(scene->callables[!part->index], &inputs,
                                    scene->f->streams[2 + part->index], &inner);
    scene->inner[part->index] = inner;
    (void)call;
    (void)err;
    return RP_OK;
}

static void *call_own(void *argument)
{
    struct part *part = argument;
    struct rp_inputs inputs = {.arg_count = 0};
    part->status = rp_callable_call(part->scene->callables[part->index], &inputs,
                                    part->scene->f->streams[part->index], &part->err);
    return NULL;
}

static void callables_that_call_each_other(void **state)
{
    struct rpt_fixture *f = *state;
    for (int round = 0; round < ROUNDS; round++) {
        struct scene scene = {.f = f};
        struct part parts[2] = {{.scene = &scene, .index = 0}, {.scene = &scene, .index = 1}};
        assert_int_equal(pthread_barrier_init(&scene.both, NULL, 2), 0);
        for (int i = 0; i < 2; i++)
            RPT_OK(f, rp_callable_create(f->device, NULL, call_other, &parts[i],
                                         &scene.callables[i], &f->err));
        in_two_threads(call_own, call_own, parts);
        int refused = 0;
        for (int i = 0; i < 2; i++) {
            assert_int_equal(parts[i].status, RP_OK);
            refused += scene.inner[i].status == RP_ERROR_INVALID_ARGUMENT &&
                       strstr(scene.inner[i].message, "would wait for") != NULL;
            rp_callable_destroy(scene.callables[i]);
        }
        assert_true(refused >= 1);
        pthread_barrier_destroy(&scene.both);
    }
}

static rp_status run_on_another(struct rp_call *call, void *user, struct rp_error *err)
{
    struct part *part = user;
    struct rp_pool *other;
    rp_status status = rp_pool_create(part->scene->f->device, NULL, &other, err);
    if (status != RP_OK)
        return status;
    status = rp_run(other, fill, part, NULL, 0, part->scene->f->streams[0], err);
    rp_pool_destroy(other);
    return rp_call_is_captured(call) ? status : RP_OK;
}

/* Another pool makes no difference: or it would work until two threads did it the other way round.
 */
static void captures_refuse_runs_on_any_pool(void **state)
{
    struct rpt_fixture *f = *state;
    struct scene scene = {.f = f};
    struct part part = {.scene = &scene};
    struct rp_graph *graph;
    RPT_OK(f, rp_run(f->pool, run_on_another, &part, NULL, 0, f->streams[1], &f->err));
    assert_int_equal(
        rp_graph_capture(f->pool, NULL, run_on_another, &part, NULL, 0, &graph, &f->err),
        RP_ERROR_CALLABLE);
    rpt_says(f, "whose run is capturing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RPT_TEST(runs_and_captures_cross),
        RPT_TEST(callables_that_call_each_other),
        RPT_TEST(captures_refuse_runs_on_any_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
