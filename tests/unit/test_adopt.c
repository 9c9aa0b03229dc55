/* SPDX-License-Identifier: MIT
 *
 * Captures that somebody else makes: begun, ended and launched by the driver here, their blocks
 * from a pool, on the host driver with the race check on. What is replayed is right, blocks that
 * are alive are nobody else's, and nothing is left over whatever fails.
 */
#include "graph_fixture.h"

#include "fault_loop.h"
#include "reprise_framework.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

enum { COUNT = 700, BYTES = COUNT * 4, ROUNDED = 3072 /* of BYTES, to 512 */ };

/* A capture of somebody else's: its graph, what is in the pool for it, and a block that it keeps.
 */
struct theirs {
    CUstream stream;
    struct rp_graph *graph;
    struct rp_call *call;
    CUgraph template;
    CUgraphExec exec;
    uint64_t kept;
};

static struct rpt_fixture fixture;
static uint64_t input;

static int open_fixture(void **state)
{
    rpt_open(&fixture);
    input = rpt_buffer(&fixture, COUNT, 1);
    *state = &fixture;
    return 0;
}

static int close_fixture(void **state)
{
    fixture.driver->cuMemFree(input);
    rpt_close(*state);
    return 0;
}

static struct rp_pool *make_pool(enum rp_pool_kind kind)
{
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    struct rp_pool *pool = NULL;
    options.kind = kind;
    RPT_OK(&fixture, rp_pool_create(fixture.device, &options, &pool, &fixture.err));
    return pool;
}

static void begin(struct theirs *t, struct rp_pool *pool, const char *name, CUstream stream)
{
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    options.name = name;
    *t = (struct theirs){.stream = stream};
    assert_int_equal(fixture.driver->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                     0);
    RPT_OK(&fixture, rp_graph_adopt(pool, &options, stream, &t->graph, &t->call, &fixture.err));
}

static void end(struct theirs *t)
{
    assert_int_equal(fixture.driver->cuStreamEndCapture(t->stream, &t->template), 0);
    RPT_OK(&fixture, rp_graph_adopt_end(t->graph, &fixture.err));
    assert_int_equal(fixture.driver->cuGraphInstantiateWithFlags(&t->exec, t->template, 0), 0);
}

static uint64_t take(const struct theirs *t, CUstream stream)
{
    uint64_t address = 0;
    RPT_OK(&fixture, rp_call_alloc(t->call, BYTES, stream, &address, &fixture.err));
    return address;
}

static void drop(const struct theirs *t, uint64_t address)
{
    RPT_OK(&fixture, rp_call_free(t->call, address, &fixture.err));
}

static void finish(struct theirs *t)
{
    if (t->exec)
        fixture.driver->cuGraphExecDestroy(t->exec);
    if (t->template)
        fixture.driver->cuGraphDestroy(t->template);
    rp_graph_destroy(t->graph);
}

/* kept = factor * (2 from + from), through two blocks that it frees. */
static void capture_chain(struct theirs *t, struct rp_pool *pool, const char *name, uint64_t from,
                          float factor)
{
    CUstream s = fixture.streams[0];
    begin(t, pool, name, s);
    uint64_t a = take(t, s);
    RPT_OK(&fixture, rpt_scale(&fixture, s, a, from, 2, COUNT, &fixture.err));
    uint64_t b = take(t, s);
    RPT_OK(&fixture, rpt_add(&fixture, s, b, a, from, COUNT, &fixture.err));
    drop(t, a);
    t->kept = take(t, s);
    RPT_OK(&fixture, rpt_scale(&fixture, s, t->kept, b, factor, COUNT, &fixture.err));
    drop(t, b);
    end(t);
}

static void launch(const struct theirs *t)
{
    assert_int_equal(fixture.driver->cuGraphLaunch(t->exec, fixture.streams[1]), 0);
}

/* Each value there is that of the input times the factor. */
static void check(uint64_t address, float factor)
{
    float values[COUNT];
    rpt_read(&fixture, address, values, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(values[i] == factor * (1.0f + (float)(i % 7)));
}

static uint64_t height(const struct rp_pool *pool)
{
    struct rp_pool_info info = {.size = sizeof info};
    rp_pool_info(pool, &info);
    return info.planned_bytes;
}

/* ---- What is captured ----------------------------------------------------------------------- */

static void dead_blocks_are_used_again(void **state)
{
    struct rpt_fixture *f = *state;
    struct theirs t;
    struct rp_graph_info info = {.size = sizeof info};
    struct rp_pool_info pool = {.size = sizeof pool};
    capture_chain(&t, f->pool, "chain", input, 5);
    launch(&t);
    check(t.kept, 15);
    rp_graph_info(t.graph, &info);
    assert_string_equal(info.name, "chain");
    assert_int_equal(info.blocks, 3);
    assert_int_equal(info.total_bytes, 3 * ROUNDED);
    assert_int_equal(info.lower_bound_bytes, 2 * ROUNDED);
    assert_int_equal(info.planned_bytes, 2 * ROUNDED);
    rp_pool_info(f->pool, &pool);
    assert_int_equal(pool.graphs, 1);
    assert_int_equal(pool.lower_bound_bytes, 2 * ROUNDED);
    assert_int_equal(pool.planned_bytes, 2 * ROUNDED);
    assert_true(pool.mapped_bytes >= 2 * ROUNDED);
    finish(&t);
    rp_pool_info(f->pool, &pool);
    assert_int_equal(pool.graphs, 0);
    assert_int_equal(pool.mapped_bytes, 0);
}

/* A block on a second stream, which the first uses too. */
static void streams_that_use_a_block_are_waited_for(void **state)
{
    struct rpt_fixture *f = *state;
    CUstream s = f->streams[0], side = f->streams[2];
    struct theirs t;
    begin(&t, f->pool, "fork", s);
    RPT_OK(f, rpt_join(f, s, side, &f->err));
    uint64_t a = take(&t, side);
    RPT_OK(f, rpt_scale(f, side, a, input, 2, COUNT, &f->err));
    RPT_OK(f, rpt_join(f, side, s, &f->err));
    RPT_OK(f, rp_call_use(t.call, a, s, &f->err));
    t.kept = take(&t, s);
    RPT_OK(f, rpt_add(f, s, t.kept, a, input, COUNT, &f->err));
    drop(&t, a);
    uint64_t b = take(&t, side); /* comes not after the use on s */
    assert_int_not_equal(b, a);
    RPT_OK(f, rpt_scale(f, side, b, input, 7, COUNT, &f->err));
    RPT_OK(f, rpt_join(f, side, s, &f->err));
    uint64_t c = take(&t, s);
    assert_int_equal(c, a);
    RPT_OK(f, rpt_scale(f, s, c, b, 7, COUNT, &f->err));
    end(&t);
    for (int i = 0; i < 3; i++)
        launch(&t);
    check(t.kept, 3);
    finish(&t);
}

static void a_stream_that_is_not_captured_shares_nothing(void **state)
{
    struct rpt_fixture *f = *state;
    struct theirs t;
    begin(&t, f->pool, "beside", f->streams[0]);
    uint64_t a = take(&t, f->streams[3]);
    drop(&t, a);
    uint64_t b = take(&t, f->streams[0]), c = take(&t, f->streams[3]);
    assert_int_not_equal(b, a);
    assert_int_not_equal(c, a);
    RPT_OK(f, rpt_fill(f, f->streams[0], b, 1, COUNT, &f->err));
    end(&t);
    finish(&t);
}

struct worker {
    const struct theirs *t;
    uint64_t taken[64];
    rp_status status;
};

static void *take_and_drop(void *user)
{
    struct worker *w = user;
    struct rp_error err;
    for (size_t i = 0; w->status == RP_OK && i < 64; i++)
        w->status = rp_call_alloc(w->t->call, BYTES, w->t->stream, &w->taken[i], &err);
    for (size_t i = 0; w->status == RP_OK && i < 64; i++)
        w->status = rp_call_free(w->t->call, w->taken[i], &err);
    return NULL;
}

static void any_thread_may_take_blocks(void **state)
{
    struct rpt_fixture *f = *state;
    struct theirs t;
    begin(&t, f->pool, "threads", f->streams[0]);
    RPT_OK(f, rpt_fill(f, f->streams[0], take(&t, f->streams[0]), 1, COUNT, &f->err));
    struct worker workers[2] = {{.t = &t}, {.t = &t}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_drop, &workers[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        assert_int_equal(workers[i].status, RP_OK);
    end(&t);
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(t.graph, &info);
    assert_int_equal(info.blocks, 129);
    finish(&t);
}

/* ---- Who lies where ------------------------------------------------------------------------- */

/* In a sequence and among alternatives alike. */
static void what_is_alive_stays(void **state)
{
    (void)state;
    for (int kind = RP_POOL_ALTERNATIVES; kind <= RP_POOL_SEQUENCE; kind++) {
        struct rp_pool *pool = make_pool((enum rp_pool_kind)kind);
        struct theirs a, b, c;
        capture_chain(&a, pool, "a", input, 5);
        capture_chain(&b, pool, "b", a.kept, 1);
        assert_int_not_equal(a.kept, b.kept);
        launch(&a);
        launch(&b);
        check(a.kept, 15);
        check(b.kept, 45);
        assert_int_equal(height(pool), 3 * ROUNDED); /* two kept, and the scratch of either */
        RPT_OK(&fixture, rp_graph_let_go(a.graph, a.kept, &fixture.err));
        capture_chain(&c, pool, "c", input, 2);
        assert_int_equal(height(pool), 3 * ROUNDED);
        assert_int_not_equal(c.kept, b.kept);
        launch(&c);
        check(c.kept, 6);
        check(b.kept, 45);
        finish(&a);
        finish(&b);
        finish(&c);
        rp_pool_destroy(pool);
    }
}

static void concurrent_captures_share_nothing(void **state)
{
    (void)state;
    struct rp_pool *pool = make_pool(RP_POOL_CONCURRENT);
    struct theirs a, b;
    capture_chain(&a, pool, "a", input, 5);
    RPT_OK(&fixture, rp_graph_let_go(a.graph, a.kept, &fixture.err));
    capture_chain(&b, pool, "b", input, 2);
    assert_int_equal(height(pool), 4 * ROUNDED);
    finish(&a);
    finish(&b);
    rp_pool_destroy(pool);
}

/* y = 2 x + what somebody's graph kept, through a block. */
struct reader {
    uint64_t constant;
};

static rp_status read_constant(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct reader *reader = user;
    CUstream s = rp_call_stream(call);
    uint64_t block;
    rp_status status = rp_call_alloc(call, BYTES, s, &block, err);
    if (status == RP_OK)
        status = rpt_scale(&fixture, s, block, rp_call_arg(call, 0), 2, COUNT, err);
    if (status == RP_OK)
        status = rpt_add(&fixture, s, rp_call_arg(call, 1), block, reader->constant, COUNT, err);
    return status == RP_OK ? rp_call_free(call, block, err) : status;
}

static rp_status leave(struct rp_call *call, void *user, struct rp_error *err)
{
    uint64_t *left = user;
    CUstream s = rp_call_stream(call);
    rp_status status = rp_call_alloc(call, BYTES, s, left, err);
    return status == RP_OK ? rpt_scale(&fixture, s, *left, rp_call_arg(call, 0), 5, COUNT, err)
                           : status;
}

/* A block that an alternative keeps begins where what the program has in its hands ends. */
static void what_lies_behind_it_is_not_meant(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool *pool = make_pool(RP_POOL_ALTERNATIVES);
    struct theirs t;
    struct rp_graph *graph = NULL, *refused = NULL;
    uint64_t left = 0, out = rpt_buffer(f, COUNT, 0);
    struct rp_arg args[2] = {rpt_arg(input, COUNT, RP_ARG_IN), rpt_arg(out, COUNT, RP_ARG_OUT)};
    begin(&t, pool, "theirs", f->streams[0]);
    t.kept = take(&t, f->streams[0]);
    RPT_OK(f, rpt_scale(f, f->streams[0], t.kept, input, 2, COUNT, &f->err));
    end(&t);
    struct reader reader = {t.kept + ROUNDED}; /* nothing is there yet */
    RPT_OK(f, rp_graph_capture(pool, NULL, read_constant, &reader, args, 2, &graph, &f->err));
    rp_graph_destroy(graph);
    RPT_OK(f, rp_graph_capture(pool, NULL, leave, &left, args, 2, &graph, &f->err));
    assert_int_equal(left, t.kept + ROUNDED);
    assert_int_equal(
        rp_graph_capture(pool, NULL, read_constant, &reader, args, 2, &refused, &f->err),
        RP_ERROR_CAPTURE);
    rpt_says(f, "the callable kept an address from another call");
    rp_graph_destroy(graph);
    finish(&t);
    rp_pool_destroy(pool);
    f->driver->cuMemFree(out);
}

/* By address and as an argument, from the pool that it lies in and from another. */
static void captured_callables_may_use_what_it_keeps(void **state)
{
    struct rpt_fixture *f = *state;
    uint64_t out = rpt_buffer(f, COUNT, 0);
    for (int own = 0; own < 2; own++) {
        struct rp_pool *other = make_pool(RP_POOL_SEQUENCE);
        struct theirs t;
        struct rp_graph *graph = NULL;
        capture_chain(&t, other, "theirs", input, 1);
        launch(&t);
        assert_int_equal(f->driver->cuCtxSynchronize(), 0);
        struct reader reader = {t.kept};
        struct rp_arg args[2] = {rpt_arg(input, COUNT, RP_ARG_IN), rpt_arg(out, COUNT, RP_ARG_OUT)};
        RPT_OK(f, rp_graph_capture(own ? other : f->pool, NULL, read_constant, &reader, args, 2,
                                   &graph, &f->err));
        RPT_OK(f, rp_graph_replay(graph, args, 2, f->streams[1], &f->err));
        check(out, 5);
        const struct rp_memory range = {t.kept, BYTES};
        unsigned char named;
        RPT_OK(f, rp_graph_names(graph, &range, 1, &named, &f->err));
        assert_int_equal(named, RP_NAMED);
        assert_int_equal(rp_graph_names(t.graph, &range, 1, &named, &f->err),
                         RP_ERROR_INVALID_ARGUMENT);
        rpt_says(f, "the program captured it");
        args[0].address = t.kept;
        RPT_OK(f, rp_graph_replay(graph, args, 2, f->streams[1], &f->err));
        check(out, 9);
        launch(&t); /* the callable's block is not where it keeps anything */
        check(t.kept, 3);
        rp_graph_destroy(graph);
        finish(&t);
        rp_pool_destroy(other);
    }
    f->driver->cuMemFree(out);
}

static void what_it_let_go_is_no_memory_of_the_programs(void **state)
{
    struct rpt_fixture *f = *state;
    struct theirs t;
    struct rp_graph *graph = NULL;
    capture_chain(&t, f->pool, "theirs", input, 1);
    struct reader reader = {t.kept};
    struct rp_arg args[2] = {rpt_arg(input, COUNT, RP_ARG_IN), rpt_arg(input, COUNT, RP_ARG_OUT)};
    RPT_OK(f, rp_graph_let_go(t.graph, t.kept, &f->err));
    assert_int_equal(
        rp_graph_capture(f->pool, NULL, read_constant, &reader, args, 1, &graph, &f->err),
        RP_ERROR_CAPTURE);
    finish(&t);
}

static void what_it_holds_again_stays(void **state)
{
    struct rpt_fixture *f = *state;
    struct theirs a, b, c;
    capture_chain(&a, f->pool, "a", input, 5);
    RPT_OK(f, rp_graph_let_go(a.graph, a.kept, &f->err));
    RPT_OK(f, rp_graph_hold(a.graph, a.kept, &f->err));
    capture_chain(&b, f->pool, "b", input, 2);
    assert_int_not_equal(a.kept, b.kept);
    launch(&a);
    launch(&b);
    check(a.kept, 15);
    check(b.kept, 6);
    assert_int_equal(rp_graph_hold(a.graph, a.kept, &f->err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_graph_hold(a.graph, b.kept, &f->err), RP_ERROR_INVALID_ARGUMENT);
    RPT_OK(f, rp_graph_let_go(a.graph, a.kept, &f->err)); /* as before */
    uint64_t before = height(f->pool);
    capture_chain(&c, f->pool, "c", input, 3);
    assert_int_equal(height(f->pool), before);
    finish(&a);
    finish(&b);
    finish(&c);
}

/* ---- Misuse and failures -------------------------------------------------------------------- */

static void refused(rp_status status, const char *why)
{
    if (status != RP_ERROR_INVALID_ARGUMENT || !strstr(fixture.err.message, why))
        print_error("%s: %s\n", rp_status_name(status), fixture.err.message);
    assert_int_equal(status, RP_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(fixture.err.message, why));
}

static void misuse_is_refused(void **state)
{
    struct rpt_fixture *f = *state;
    struct theirs t;
    struct rp_graph *graph = NULL;
    struct rp_call *call = NULL;
    CUstream s = f->streams[0];
    refused(rp_graph_adopt(f->pool, NULL, s, &graph, &call, &f->err), "is not capturing");
    refused(rp_graph_adopt(f->pool, NULL, NULL, &graph, &call, &f->err), "legacy stream");
    refused(rp_graph_adopt(NULL, NULL, s, &graph, &call, &f->err), "pool is NULL");
    refused(rp_graph_adopt_end(NULL, &f->err), "graph is NULL");
    begin(&t, f->pool, "theirs", s);
    uint64_t kept = take(&t, s);
    refused(rp_graph_adopt(f->pool, NULL, s, &graph, &call, &f->err), "'theirs'");
    refused(rp_graph_let_go(t.graph, kept, &f->err), "rp_call_free");
    refused(rp_pool_trim(f->pool, NULL, &f->err), "end it first");
    struct reader reader = {input};
    struct rp_arg args[2] = {rpt_arg(input, COUNT, RP_ARG_IN), rpt_arg(input, COUNT, RP_ARG_OUT)};
    refused(rp_graph_capture(f->pool, NULL, read_constant, &reader, args, 2, &graph, &f->err),
            "end it first");
    refused(rp_call_free(t.call, input, &f->err), "not the address");
    RPT_OK(f, rpt_fill(f, s, kept, 1, COUNT, &f->err));
    end(&t);
    refused(rp_graph_adopt_end(t.graph, &f->err), "has ended already");
    refused(rp_graph_let_go(t.graph, kept + 512, &f->err), "keeps");
    assert_int_equal(rp_graph_replay(t.graph, NULL, 0, s, &f->err), RP_ERROR_UNSUPPORTED);
    assert_null(graph);
    finish(&t);
    RPT_OK(f, rp_graph_capture(f->pool, NULL, read_constant, &reader, args, 2, &graph, &f->err));
    refused(rp_graph_adopt_end(graph, &f->err), "rp_graph_capture");
    rp_graph_destroy(graph);
}

/* A call that a capture refuses breaks it: no more blocks, and it ends like any other. */
static void a_broken_capture_ends_too(void **state)
{
    struct rpt_fixture *f = *state;
    CUstream s = f->streams[0];
    struct theirs t, again;
    uint64_t address;
    begin(&t, f->pool, "broken", s);
    take(&t, s);
    assert_int_not_equal(f->driver->cuStreamSynchronize(s), 0);
    assert_int_equal(rp_call_alloc(t.call, BYTES, s, &address, &f->err), RP_ERROR_CAPTURE);
    assert_int_not_equal(f->driver->cuStreamEndCapture(s, &t.template), 0);
    t.template = NULL;
    RPT_OK(f, rp_graph_adopt_end(t.graph, &f->err));
    capture_chain(&again, f->pool, "again", input, 2);
    launch(&again);
    check(again.kept, 6);
    finish(&again);
    finish(&t);
}

static void it_may_be_dropped_half_way(void **state)
{
    struct rpt_fixture *f = *state;
    struct theirs t;
    struct rp_pool_info info = {.size = sizeof info};
    begin(&t, f->pool, "dropped", f->streams[0]);
    take(&t, f->streams[0]);
    rp_graph_destroy(t.graph);
    t.graph = NULL;
    assert_int_equal(f->driver->cuStreamEndCapture(t.stream, &t.template), 0);
    rp_pool_info(f->pool, &info);
    assert_int_equal(info.mapped_bytes, 0);
    finish(&t);
}

static void a_limit_holds(void **state)
{
    (void)state;
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    struct rp_pool *pool = NULL;
    struct theirs t;
    uint64_t address;
    options.limit_bytes = 4 << 20;
    RPT_OK(&fixture, rp_pool_create(fixture.device, &options, &pool, &fixture.err));
    begin(&t, pool, "limited", fixture.streams[0]);
    assert_int_equal(rp_call_alloc(t.call, 8 << 20, fixture.streams[0], &address, &fixture.err),
                     RP_ERROR_LIMIT);
    take(&t, fixture.streams[0]); /* a smaller one fits still */
    end(&t);
    finish(&t);
    rp_pool_destroy(pool);
}

/* ---- Faults --------------------------------------------------------------------------------- */

static struct rpi_host_statistics held;

/* Work of somebody else's on another pool's memory: what fails is left out, as an allocator's
 * caller would. */
static bool adopt_once(struct rp_pool *pool, struct rp_device *device)
{
    const struct rp_driver *plain = fixture.driver;
    struct rp_error err;
    struct rp_graph *graph = NULL;
    struct rp_call *call = NULL;
    CUgraph template = NULL;
    CUstream s = fixture.streams[0];
    uint64_t a = 0, b = 0;
    (void)device;
    if (plain->cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS)
        return false;
    bool worked = rp_graph_adopt(pool, NULL, s, &graph, &call, &err) == RP_OK;
    if (worked) {
        worked &= rp_call_alloc(call, BYTES, s, &a, &err) == RP_OK;
        worked &= a && rpt_fill(&fixture, s, a, 3, COUNT, &err) == RP_OK;
        worked &= rp_call_alloc(call, 3 << 20, s, &b, &err) == RP_OK;
        worked &= b && rpt_fill(&fixture, s, b, 4, COUNT, &err) == RP_OK;
        worked &= !b || rp_call_use(call, b, fixture.streams[2], &err) == RP_OK;
        worked &= !a || rp_call_free(call, a, &err) == RP_OK;
        worked &= rp_call_alloc(call, BYTES, s, &a, &err) == RP_OK;
        worked &= a && rpt_fill(&fixture, s, a, 5, COUNT, &err) == RP_OK;
    }
    plain->cuStreamEndCapture(s, &template);
    worked &= graph && rp_graph_adopt_end(graph, &err) == RP_OK;
    worked &= worked && rp_graph_let_go(graph, a, &err) == RP_OK;
    rp_graph_destroy(graph);
    if (template)
        plain->cuGraphDestroy(template);
    return worked;
}

static bool adopt_twice(const struct rp_driver *driver, void *user)
{
    struct rpt_scene scene;
    (void)user;
    bool worked = rpt_scene_open(&scene, driver);
    for (int i = 0; i < 2 && scene.pool; i++)
        worked &= adopt_once(scene.pool, scene.device);
    struct rp_pool_info info = {.size = sizeof info};
    if (scene.pool)
        rp_pool_info(scene.pool, &info);
    worked &= info.graphs == 0 && info.planned_bytes == 0;
    rpt_scene_close(&scene);
    return worked;
}

static const char *what_is_left(void *user)
{
    struct rpi_host_statistics now;
    (void)user;
    rpi_host_statistics(&now);
    return now.physical_bytes != held.physical_bytes ? "device memory"
           : now.mappings != held.mappings           ? "mappings"
           : now.reservations != held.reservations   ? "reserved addresses"
           : now.captures != held.captures           ? "a capture"
           : now.graphs != held.graphs               ? "graphs"
           : now.races                               ? "races"
                                                     : NULL;
}

static const struct rpt_scenario scenario = {.run = adopt_twice, .left = what_is_left};

static void driver_calls_fail(void **state)
{
    (void)state;
    rpi_host_statistics(&held);
    assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_OUT_OF_MEMORY) > 50);
    assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_UNKNOWN) > 50);
}

static void host_memory_fails(void **state)
{
    (void)state;
    rpi_host_statistics(&held);
    assert_true(rpt_memory_fault_loop(rpi_driver_host(), &scenario) > 20);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)
    const struct CMUnitTest tests[] = {
        TEST(dead_blocks_are_used_again),
        TEST(streams_that_use_a_block_are_waited_for),
        TEST(a_stream_that_is_not_captured_shares_nothing),
        TEST(any_thread_may_take_blocks),
        TEST(what_is_alive_stays),
        TEST(concurrent_captures_share_nothing),
        TEST(captured_callables_may_use_what_it_keeps),
        TEST(what_lies_behind_it_is_not_meant),
        TEST(what_it_let_go_is_no_memory_of_the_programs),
        TEST(what_it_holds_again_stays),
        TEST(misuse_is_refused),
        TEST(a_broken_capture_ends_too),
        TEST(it_may_be_dropped_half_way),
        TEST(a_limit_holds),
        TEST(driver_calls_fail),
        TEST(host_memory_fails),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
