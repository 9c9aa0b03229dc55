/* SPDX-License-Identifier: MIT
 *
 * Several devices in one process: graphs, pools, execs and rehearsals of each are its own,
 * whichever is current, and what belongs to another device is refused by name before anything is
 * launched.
 */
#include "graph/handles/device.h"
#include "graph_fixture.h"

#include <pthread.h>

enum { DEVICES = 2, COUNT = 256, BYTES = COUNT * 4, FOREIGN = 11 };

static struct rpt_fixture on[DEVICES];

static int open_devices(void **state)
{
    struct rpi_host_options options = RPI_HOST_OPTIONS_INIT;
    (void)state;
    options.devices = DEVICES;
    rpi_host_configure(&options);
    for (int i = 0; i < DEVICES; i++)
        rpt_open_device(&on[i], rpi_driver_host(), i, NULL);
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    rpt_leave(&on[1]);
    rpt_close(&on[0]);
    rpi_host_configure(NULL);
    return 0;
}

#define DEVICE_TEST(name) cmocka_unit_test_setup_teardown(name, open_devices, close_devices)

/* out = factor * in, by way of a block of its own. */
struct task {
    const struct rpt_fixture *f;
    float factor, first; /* what its input begins with */
    uint64_t foreign;    /* an address of the program's that is read too; 0: none */
    struct rp_arg args[2];
    struct rp_graph *graph;
};

static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct task *t = user;
    CUstream stream = rp_call_stream(call);
    uint64_t block;
    rp_status status = rp_call_alloc(call, BYTES, stream, &block, err);
    if (status == RP_OK)
        status = rpt_scale(t->f, stream, block, rp_call_arg(call, 0), t->factor, COUNT, err);
    if (status == RP_OK && t->foreign &&
        t->f->driver->cuMemcpyDtoDAsync(block, t->foreign, BYTES / 2, stream))
        status = RP_ERROR_DRIVER;
    if (status == RP_OK)
        status = rpt_scale(t->f, stream, rp_call_arg(call, 1), block, 1, COUNT, err);
    return status == RP_OK ? rp_call_free(call, block, err) : status;
}

static void use(int device)
{
    RPT_OK(&on[device], rp_device_push(on[device].device, &on[device].err));
}

static void leave(int device)
{
    rp_device_pop(on[device].device);
}

static struct task new_task(int device, float factor)
{
    struct task t = {.f = &on[device], .factor = factor, .first = (float)(3 + device)};
    use(device);
    t.args[0] = rpt_arg(rpt_buffer(t.f, COUNT, t.first), COUNT, RP_ARG_IN);
    t.args[1] = rpt_arg(rpt_buffer(t.f, COUNT, 0), COUNT, RP_ARG_OUT);
    leave(device);
    return t;
}

static bool try_capture(struct task *t)
{
    struct rp_error err;
    rp_status status = rp_graph_capture(t->f->pool, NULL, work, t, t->args, 2, &t->graph, &err);
    if (status != RP_OK)
        print_error("%s\n", err.message);
    return status == RP_OK;
}

static void capture(struct task *t)
{
    assert_true(try_capture(t));
}

static void finish(struct task *t)
{
    rp_graph_destroy(t->graph);
    for (int i = 0; i < 2; i++)
        t->f->driver->cuMemFree(t->args[i].address);
}

/* Replays it and looks at all of its output; any thread. */
static bool is_right(struct task *t, CUstream stream)
{
    struct rp_error err = {0};
    float seen[COUNT];
    if (rp_graph_replay(t->graph, t->args, 2, stream, &err) != RP_OK) {
        print_error("%s\n", err.message);
        return false;
    }
    if (t->f->driver->cuStreamSynchronize(stream) != CUDA_SUCCESS ||
        t->f->driver->cuMemcpyDtoH(seen, t->args[1].address, BYTES) != CUDA_SUCCESS)
        return false;
    bool right = true;
    for (int i = 0; i < COUNT; i++) {
        bool copied = t->foreign && i < COUNT / 2;
        float in = (float)(i % 7);
        right = right && seen[i] == (copied ? FOREIGN + in : t->factor * (t->first + in));
    }
    return right;
}

/* ---- Side by side ---------------------------------------------------------------------------*/

static void graphs_run_where_their_pool_is(void **state)
{
    (void)state;
    struct task tasks[DEVICES];
    for (int i = 0; i < DEVICES; i++) {
        tasks[i] = new_task(i, 2);
        use(1 - i); /* the other one is current */
        struct rp_error err = {0};
        assert_int_equal(
            rp_run(on[i].pool, work, &tasks[i], tasks[i].args, 2, on[i].streams[0], &err), RP_OK);
        capture(&tasks[i]);
        leave(1 - i);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < DEVICES; i++) {
            use(round % DEVICES);
            assert_true(is_right(&tasks[i], on[i].streams[round]));
            leave(round % DEVICES);
        }
    }
    for (int i = 0; i < DEVICES; i++)
        finish(&tasks[i]);
}

static uint64_t used(int device)
{
    size_t available = 0, total = 0;
    use(device);
    assert_int_equal(on[device].driver->cuMemGetInfo(&available, &total), 0);
    leave(device);
    return total - available;
}

/* Rehearsals, pools and execs of one device take nothing of the other, and are not counted there.
 */
static void memory_is_taken_where_it_is_used(void **state)
{
    (void)state;
    struct rp_pool_info pool = {.size = sizeof pool};
    struct rp_device_exec_info execs = {.size = sizeof execs};
    struct task t = new_task(1, 2);
    uint64_t before[DEVICES] = {used(0), used(1)};
    use(0);
    capture(&t);
    assert_true(is_right(&t, on[1].streams[0]));
    leave(0);
    assert_int_equal(used(0), before[0]);
    assert_true(used(1) > before[1]);
    rp_pool_info(on[0].pool, &pool);
    assert_int_equal(pool.rehearsal_bytes, 0);
    assert_int_equal(pool.mapped_bytes, 0);
    rp_device_exec_info(on[0].device, &execs);
    assert_int_equal(execs.execs, 0);
    rp_pool_info(on[1].pool, &pool);
    assert_true(pool.rehearsal_bytes > 0 && pool.mapped_bytes > 0);
    rp_device_exec_info(on[1].device, &execs);
    assert_int_equal(execs.execs, 1);
    finish(&t);
}

struct worker {
    int device;
    bool right;
};

static void *capture_and_replay(void *user)
{
    struct worker *w = user;
    struct rp_error err;
    w->right = rp_device_push(on[w->device].device, &err) == RP_OK;
    for (int i = 0; w->right && i < 20; i++) {
        struct task t = new_task(w->device, (float)(1 + i));
        w->right = try_capture(&t);
        for (int k = 0; w->right && k < 3; k++)
            w->right = is_right(&t, on[w->device].streams[0]);
        finish(&t);
    }
    rp_device_pop(on[w->device].device);
    return NULL;
}

static void threads_capture_on_both_at_once(void **state)
{
    (void)state;
    pthread_t threads[DEVICES];
    struct worker workers[DEVICES] = {{0, false}, {1, false}};
    for (int i = 0; i < DEVICES; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, capture_and_replay, &workers[i]), 0);
    for (int i = 0; i < DEVICES; i++)
        pthread_join(threads[i], NULL);
    assert_true(workers[0].right && workers[1].right);
}

/* One device closes while graphs of the other live. */
static void a_device_goes_alone(void **state)
{
    (void)state;
    struct rp_device *third;
    struct rp_pool *pool;
    struct rp_error err;
    struct task t = new_task(0, 2), other = new_task(1, 3);
    capture(&t);
    assert_true(is_right(&t, on[0].streams[0]));
    RPT_OK(&on[1], rpi_device_open_on(rpi_driver_host(), 1, &third, &on[1].err));
    assert_int_equal(rp_pool_create(third, NULL, &pool, &err), RP_OK);
    assert_int_equal(rp_graph_capture(pool, NULL, work, &other, other.args, 2, &other.graph, &err),
                     RP_OK);
    assert_true(is_right(&other, on[1].streams[0]));
    finish(&other);
    rp_pool_destroy(pool);
    rp_device_destroy(third);
    assert_true(is_right(&t, on[0].streams[0]));
    finish(&t);
}

/* ---- What belongs to the other ---------------------------------------------------------------*/

static void refused(struct task *t, CUstream stream, rp_status status, const char *what)
{
    struct rp_graph_info before = {.size = sizeof before}, after = {.size = sizeof after};
    rp_graph_info(t->graph, &before);
    assert_int_equal(rp_graph_replay(t->graph, t->args, 2, stream, &on[0].err), status);
    rpt_says(&on[0], what);
    rp_graph_info(t->graph, &after);
    assert_int_equal(after.replays, before.replays);
}

static void arguments_of_the_other_device_are_refused(void **state)
{
    (void)state;
    struct task t = new_task(0, 2), other = new_task(1, 2);
    uint64_t own = t.args[0].address;
    capture(&t);
    capture(&other);
    for (int replayed = 0; replayed < 2; replayed++) {
        t.args[0].address = other.args[0].address;
        refused(&t, on[0].streams[0], RP_ERROR_CONTRACT,
                "is memory of device 1, but the graph runs on device 0");
        t.args[0].address = own;
        assert_true(is_right(&t, on[0].streams[0]));
    }
    finish(&t);
    finish(&other);
}

static void streams_of_the_other_device_are_refused(void **state)
{
    (void)state;
    struct task t = new_task(0, 2);
    capture(&t);
    assert_true(is_right(&t, on[0].streams[0]));
    for (int i = 0; i < DEVICES; i++) {
        use(i);
        refused(&t, on[1].streams[0], RP_ERROR_INVALID_ARGUMENT,
                "the stream is of device 1, and this is of device 0");
        leave(i);
    }
    assert_int_equal(rp_run(on[0].pool, work, &t, t.args, 2, on[1].streams[0], &on[0].err),
                     RP_ERROR_INVALID_ARGUMENT);
    rpt_says(&on[0], "the stream is of device 1, and this is of device 0");
    use(1);
    assert_true(is_right(&t, on[0].streams[1]));
    assert_int_equal(rp_graph_replay(t.graph, t.args, 2, NULL, &on[0].err), RP_OK); /* its own */
    leave(1);
    assert_int_equal(on[0].driver->cuCtxSynchronize(), 0);
    use(0);
    assert_int_equal(on[0].driver->cuCtxSynchronize(), 0);
    leave(0);
    finish(&t);
}

/* A copy from another device's memory is a node like any other. */
static void copies_between_devices_are_captured(void **state)
{
    (void)state;
    struct task t = new_task(0, 2);
    use(1);
    t.foreign = rpt_buffer(&on[1], COUNT, FOREIGN);
    leave(1);
    capture(&t);
    for (int i = 0; i < 3; i++)
        assert_true(is_right(&t, on[0].streams[i]));
    on[1].driver->cuMemFree(t.foreign);
    finish(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DEVICE_TEST(graphs_run_where_their_pool_is),
        DEVICE_TEST(memory_is_taken_where_it_is_used),
        DEVICE_TEST(threads_capture_on_both_at_once),
        DEVICE_TEST(a_device_goes_alone),
        DEVICE_TEST(arguments_of_the_other_device_are_refused),
        DEVICE_TEST(streams_of_the_other_device_are_refused),
        DEVICE_TEST(copies_between_devices_are_captured),
    };
    return cmocka_run_group_tests_name("devices", tests, NULL, NULL);
}
