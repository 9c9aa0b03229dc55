/* SPDX-License-Identifier: MIT
 *
 * Pools: what each kind lets lie over each other, capturing beside recorded graphs, holes, growth,
 * trimming, limits, whose replay waits for whose, the layout that is written, and every failure.
 */
#include "graph_fixture.h"

#include "base/text.h"
#include "fault_loop.h"
#include "graph/handles/device.h"
#include "memory/pool/replay_order.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define MIB 1048576ull

static struct rp_pool *make_pool(struct rpt_fixture *f, enum rp_pool_kind kind,
                                 struct rp_pool *parent)
{
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    struct rp_pool *pool = NULL;
    options.kind = kind;
    options.parent = parent;
    options.plan_budget_ms = 5;
    RPT_OK(f, rp_pool_create(f->device, &options, &pool, &f->err));
    return pool;
}

static struct rp_pool_info info_of(const struct rp_pool *pool)
{
    struct rp_pool_info info = {.size = sizeof info};
    rp_pool_info(pool, &info);
    return info;
}

/* Work with one block that is freed and one that is not, each of whole MiB; 0: none. */
struct work {
    const struct rpt_fixture *f;
    uint64_t freed, kept;       /* MiB */
    uint64_t freed_at, kept_at; /* addresses, of the last run */
    struct rp_graph *graph;
};

static rp_status run_work(struct rp_call *call, void *user, struct rp_error *err)
{
    struct work *w = user;
    CUstream s = rp_call_stream(call);
    rp_status status = RP_OK;
    if (w->kept && (status = rp_call_alloc(call, w->kept * MIB, s, &w->kept_at, err)) == RP_OK)
        status = rpt_fill(w->f, s, w->kept_at, 1, 64, err);
    if (status == RP_OK && w->freed &&
        (status = rp_call_alloc(call, w->freed * MIB, s, &w->freed_at, err)) == RP_OK &&
        (status = rpt_fill(w->f, s, w->freed_at, 2, 64, err)) == RP_OK)
        status = rp_call_free(call, w->freed_at, err);
    return status;
}

static struct work capture(struct rpt_fixture *f, struct rp_pool *pool, uint64_t freed,
                           uint64_t kept)
{
    struct work w = {.f = f, .freed = freed, .kept = kept};
    RPT_OK(f, rp_graph_capture(pool, NULL, run_work, &w, NULL, 0, &w.graph, &f->err));
    w.freed_at -= pool->core->memory.arena.base;
    w.kept_at -= pool->core->memory.arena.base;
    return w;
}

/* ---- Kinds ----------------------------------------------------------------------------------*/

static void sequences_keep_what_is_not_freed(void **state)
{
    (void)state;
    struct rpt_fixture f;
    rpt_open(&f);
    struct rp_pool *pool = make_pool(&f, RP_POOL_SEQUENCE, NULL);
    struct work a = capture(&f, pool, 6, 2), b = capture(&f, pool, 4, 2),
                c = capture(&f, pool, 6, 0);
    assert_int_equal(info_of(pool).lower_bound_bytes, 10 * MIB); /* 2 + 2 kept, and 6 */
    assert_int_equal(info_of(pool).planned_bytes, 10 * MIB);
    assert_true(info_of(pool).bound_exact);
    assert_true(a.kept_at >= b.kept_at + 2 * MIB || b.kept_at >= a.kept_at + 2 * MIB);
    assert_int_equal(info_of(pool).graphs, 3);
    rp_graph_destroy(b.graph);
    assert_int_equal(info_of(pool).lower_bound_bytes, 8 * MIB);
    rp_graph_destroy(a.graph);
    rp_graph_destroy(c.graph);
    assert_int_equal(info_of(pool).mapped_bytes, 0);
    rp_pool_destroy(pool);
    rpt_close(&f);
}

static void concurrent_graphs_add_up(void **state)
{
    (void)state;
    struct rpt_fixture f;
    rpt_open(&f);
    struct rp_pool *pool = make_pool(&f, RP_POOL_CONCURRENT, NULL);
    struct work a = capture(&f, pool, 6, 2), b = capture(&f, pool, 4, 0);
    assert_int_equal(info_of(pool).lower_bound_bytes, 12 * MIB);
    assert_int_equal(info_of(pool).planned_bytes, 12 * MIB);
    rp_graph_destroy(a.graph);
    /* a's share is for later captures: the device gets back only what lies above all others. */
    assert_int_equal(info_of(pool).mapped_bytes, 12 * MIB);
    struct work c = capture(&f, pool, 5, 3);
    assert_int_equal(info_of(pool).planned_bytes, 12 * MIB);
    rp_graph_destroy(c.graph);
    rp_graph_destroy(b.graph);
    rp_pool_destroy(pool);
    rpt_close(&f);
}

/* A forward and a backward for two batch sizes, captured shape by shape. */
static void alternatives_nest_in_a_sequence(void **state)
{
    (void)state;
    struct rpt_fixture f;
    rpt_open(&f);
    struct rp_pool *whole = make_pool(&f, RP_POOL_SEQUENCE, NULL);
    struct rp_pool *forward = make_pool(&f, RP_POOL_ALTERNATIVES, whole);
    struct rp_pool *backward = make_pool(&f, RP_POOL_ALTERNATIVES, whole);
    struct work f1 = capture(&f, forward, 6, 4), b1 = capture(&f, backward, 8, 0);
    assert_int_equal(info_of(whole).planned_bytes, 12 * MIB);
    /* Captured after b1, but running before it: what it frees may lie under b1. */
    struct work f2 = capture(&f, forward, 8, 2);
    assert_int_equal(info_of(whole).planned_bytes, 12 * MIB);
    assert_true(f2.kept_at < 4 * MIB); /* but not what it keeps */
    struct work b2 = capture(&f, backward, 4, 0);
    assert_int_equal(info_of(whole).planned_bytes, 12 * MIB);
    assert_int_equal(info_of(whole).lower_bound_bytes, 12 * MIB);
    assert_int_equal(info_of(forward).lower_bound_bytes, 10 * MIB);
    assert_int_equal(info_of(forward).graphs, 2);
    struct rp_graph *graphs[] = {f1.graph, b1.graph, f2.graph, b2.graph};
    for (int i = 0; i < 4; i++)
        rp_graph_destroy(graphs[i]);
    rp_pool_destroy(backward);
    rp_pool_destroy(forward);
    rp_pool_destroy(whole);
    rpt_close(&f);
}

/* ---- Holes, trimming, limits ----------------------------------------------------------------*/

static void trimming_gives_holes_back(void **state)
{
    (void)state;
    struct rpt_fixture f;
    rpt_open(&f);
    struct rp_pool *pool = make_pool(&f, RP_POOL_CONCURRENT, NULL);
    struct work a = capture(&f, pool, 4, 0), b = capture(&f, pool, 6, 0),
                c = capture(&f, pool, 2, 0);
    uint64_t bytes = 1;
    RPT_OK(&f, rp_pool_trim(pool, &bytes, &f.err));
    assert_int_equal(bytes, 0);
    rp_graph_destroy(b.graph);
    RPT_OK(&f, rp_pool_trim(pool, &bytes, &f.err));
    assert_int_equal(bytes, 6 * MIB);
    assert_int_equal(info_of(pool).mapped_bytes, 6 * MIB);
    assert_int_equal(info_of(pool).planned_bytes, 12 * MIB);
    struct work d = capture(&f, pool, 3, 0); /* into the hole, which is mapped again */
    assert_int_equal(d.freed_at, 4 * MIB);
    assert_int_equal(info_of(pool).mapped_bytes, 12 * MIB);
    RPT_OK(&f, rp_graph_replay(d.graph, NULL, 0, NULL, &f.err));
    RPT_OK(&f, rp_graph_replay(a.graph, NULL, 0, NULL, &f.err));
    rp_graph_destroy(c.graph);
    assert_int_equal(info_of(pool).mapped_bytes, 10 * MIB);
    rp_graph_destroy(d.graph);
    rp_graph_destroy(a.graph);
    assert_int_equal(info_of(pool).mapped_bytes, 0);
    rp_pool_destroy(pool);
    rpt_close(&f);
}

static void a_limit_counts_what_is_mapped(void **state)
{
    (void)state;
    struct rpt_fixture f;
    rpt_open(&f);
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    struct rp_pool *pool = NULL;
    options.kind = RP_POOL_CONCURRENT;
    options.limit_bytes = 8 * MIB;
    RPT_OK(&f, rp_pool_create(f.device, &options, &pool, &f.err));
    struct work a = capture(&f, pool, 4, 0), b = capture(&f, pool, 2, 0);
    struct work big = {.f = &f, .freed = 4};
    assert_int_equal(rp_graph_capture(pool, NULL, run_work, &big, NULL, 0, &big.graph, &f.err),
                     RP_ERROR_LIMIT);
    assert_int_equal(f.err.requested, 10 * MIB);
    assert_int_equal(info_of(pool).mapped_bytes, 6 * MIB);
    rp_graph_destroy(a.graph);
    RPT_OK(&f, rp_pool_trim(pool, NULL, &f.err));
    struct work c = capture(&f, pool, 6, 0); /* above b: the hole is too small, but not mapped */
    assert_int_equal(c.freed_at, 6 * MIB);
    assert_int_equal(info_of(pool).mapped_bytes, 8 * MIB);
    struct work d = {.f = &f, .freed = 3};
    assert_int_equal(rp_graph_capture(pool, NULL, run_work, &d, NULL, 0, &d.graph, &f.err),
                     RP_ERROR_LIMIT); /* it would fit into the hole */
    assert_int_equal(info_of(pool).mapped_bytes, 8 * MIB);
    rp_graph_destroy(c.graph);
    rp_graph_destroy(b.graph);
    rp_pool_destroy(pool);
    rpt_close(&f);
}

static void inner_pools_are_checked(void **state)
{
    (void)state;
    struct rpt_fixture f;
    rpt_open(&f);
    struct rp_pool *outer = make_pool(&f, RP_POOL_SEQUENCE, NULL), *pool = NULL;
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    options.parent = outer;
    options.limit_bytes = MIB;
    assert_int_equal(rp_pool_create(f.device, &options, &pool, &f.err), RP_ERROR_INVALID_ARGUMENT);
    options.limit_bytes = 0;
    options.alignment = 256;
    assert_int_equal(rp_pool_create(f.device, &options, &pool, &f.err), RP_ERROR_INVALID_ARGUMENT);
    options.alignment = 512; /* the outer one's */
    options.kind = (enum rp_pool_kind)3;
    assert_int_equal(rp_pool_create(f.device, &options, &pool, &f.err), RP_ERROR_INVALID_ARGUMENT);
    options.kind = RP_POOL_CONCURRENT;
    struct rp_pool *pools[RPI_POOL_MOST_DEPTH];
    for (int i = 0; i < RPI_POOL_MOST_DEPTH; i++) {
        RPT_OK(&f, rp_pool_create(f.device, &options, &pools[i], &f.err));
        options.parent = pools[i];
    }
    assert_int_equal(rp_pool_create(f.device, &options, &pool, &f.err), RP_ERROR_INVALID_ARGUMENT);
    struct work w = capture(&f, pools[RPI_POOL_MOST_DEPTH - 1], 1, 1);
    assert_int_equal(info_of(outer).lower_bound_bytes, 2 * MIB);
    rp_graph_destroy(w.graph);
    for (int i = RPI_POOL_MOST_DEPTH; i-- > 0;)
        rp_pool_destroy(pools[i]);
    assert_int_equal(rp_pool_trim(NULL, NULL, &f.err), RP_ERROR_INVALID_ARGUMENT);
    rp_pool_destroy(outer);
    rpt_close(&f);
}

/* ---- Turns ----------------------------------------------------------------------------------*/

/* Takes a turn and tells whom it waited for, as a set of bits: bit i is members[i]. */
static unsigned turn(struct rpi_pool *pool, struct rpi_pool_member *members, int count, int index)
{
    unsigned waits = 0;
    assert_int_equal(rpi_replay_order_ahead(pool, &members[index], NULL), RP_OK);
    for (size_t i = 0; i < pool->ahead.count; i++)
        for (int m = 0; m < count; m++)
            waits |= (unsigned)(pool->ahead.data[i] == &members[m]) << m;
    rpi_replay_order_take(pool, &members[index]);
    return waits;
}

static void only_who_shares_waits(void **state)
{
    (void)state;
    /* sequence(0, concurrent(1, alternatives(2, 3)), 4) */
    struct rpi_pool_group root = {.node.kind = RPI_COMPOSE_SEQUENCE},
                          both = {.node.kind = RPI_COMPOSE_CONCURRENT},
                          either = {.node.kind = RPI_COMPOSE_ALTERNATIVES};
    struct rpi_pool_member m[5] = {0};
    struct rpi_pool pool = {.root = &root};
    rpi_pool_add(&pool, &root, &m[0].node);
    rpi_pool_add(&pool, &root, &both.node);
    rpi_pool_add(&pool, &both, &m[1].node);
    rpi_pool_add(&pool, &both, &either.node);
    rpi_pool_add(&pool, &either, &m[2].node);
    rpi_pool_add(&pool, &either, &m[3].node);
    rpi_pool_add(&pool, &root, &m[4].node);
    assert_int_equal(turn(&pool, m, 5, 0), 0);
    assert_int_equal(turn(&pool, m, 5, 2), 1 << 0);
    assert_int_equal(turn(&pool, m, 5, 1), 1 << 0); /* not for 2 */
    assert_int_equal(turn(&pool, m, 5, 3), 1 << 2 | 1 << 0);
    assert_int_equal(turn(&pool, m, 5, 4), 1 << 1 | 1 << 3); /* 3 was after 2 */
    assert_int_equal(turn(&pool, m, 5, 4), 1 << 1 | 1 << 3);
    assert_int_equal(turn(&pool, m, 5, 1), 1 << 4);
    assert_int_equal(turn(&pool, m, 5, 0), 1 << 1); /* 1 was after 4, and 4 after all else */
    rpi_pool_remove(&pool, &m[1].node);             /* its replays are over, and so all before */
    assert_int_equal(turn(&pool, m, 5, 0), 0);
    assert_int_equal(turn(&pool, m, 5, 2) & ~(1u << 3), 1 << 0);
    rpi_pool_remove(&pool, &m[2].node);
    assert_int_equal(turn(&pool, m, 5, 3) & ~(1u << 0), 0);
    rpi_pool_group_finish(&root);
    rpi_pool_group_finish(&both);
    rpi_pool_group_finish(&either);
    rpi_pool_finish(&pool);
}

/* ---- Layout ---------------------------------------------------------------------------------*/

/* The whole file, ended by NUL; freed by the caller. */
static char *whole_file(const char *path)
{
    FILE *in = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);
    assert_non_null(in);
    assert_non_null(text);
    fread(text, 1, (1 << 20) - 1, in);
    fclose(in);
    return text;
}

/* A name is any bytes; what is written is JSON, and XML of characters that XML has. */
static void names_that_are_no_text_are_written_as_text(void **state)
{
    (void)state;
    static const char name[] = "a\xff<\x1b[2J\xef\xbf\xbe\xe2\x80\xae&b";
    struct rpt_fixture f;
    rpt_open(&f);
    struct rp_pool *pool = make_pool(&f, RP_POOL_SEQUENCE, NULL);
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    options.name = name;
    struct work w = {.f = &f, .freed = 6, .kept = 2};
    RPT_OK(&f, rp_graph_capture(pool, &options, run_work, &w, NULL, 0, &w.graph, &f.err));
    char path[] = "/tmp/reprise-pool-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    RPT_OK(&f, rp_pool_write(pool, path, &f.err));
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    const json_t *part =
        json_array_get(json_object_get(json_object_get(root, "layout"), "parts"), 0);
    assert_string_equal(json_string_value(json_object_get(part, "graph")),
                        "a\xef\xbf\xbd<\x1b[2J\xef\xbf\xbe\xe2\x80\xae&b");
    json_decref(root);
    RPT_OK(&f, rp_pool_draw(pool, path, &f.err));
    char *text = whole_file(path);
    assert_non_null(strstr(text, "a\xef\xbf\xbd&lt;\xef\xbf\xbd[2J"));
    for (char *end, *line = text; *line; line = end + (*end != '\0')) {
        end = line + strcspn(line, "\n");
        assert_true(rpi_text_is_plain(line, (size_t)(end - line)));
    }
    free(text);
    unlink(path);
    rp_graph_destroy(w.graph);
    rp_pool_destroy(pool);
    rpt_close(&f);
}

static void the_layout_is_written_and_drawn(void **state)
{
    (void)state;
    struct rpt_fixture f;
    rpt_open(&f);
    struct rp_pool *pool = make_pool(&f, RP_POOL_SEQUENCE, NULL);
    struct rp_pool *inner = make_pool(&f, RP_POOL_CONCURRENT, pool);
    struct work a = capture(&f, inner, 6, 2), b = capture(&f, inner, 4, 0),
                c = capture(&f, pool, 2, 0);
    char path[] = "/tmp/reprise-pool-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    RPT_OK(&f, rp_pool_write(pool, path, &f.err));
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    const char *format, *kind, *inner_kind;
    json_int_t planned, bound, offset, bytes, first, last, positions;
    json_t *parts, *graphs, *blocks;
    int kept;
    assert_int_equal(json_unpack(root, "{s:s,s:I,s:I,s:{s:s,s:o}}", "format", &format,
                                 "planned_bytes", &planned, "lower_bound_bytes", &bound, "layout",
                                 "kind", &kind, "parts", &parts),
                     0);
    assert_string_equal(format, "reprise-pool/1");
    assert_string_equal(kind, "sequence");
    assert_int_equal(planned, 12 * MIB);
    assert_int_equal(bound, 12 * MIB);
    assert_int_equal(json_array_size(parts), 2);
    assert_int_equal(
        json_unpack(json_array_get(parts, 0), "{s:s,s:o}", "kind", &inner_kind, "parts", &graphs),
        0);
    assert_string_equal(inner_kind, "concurrent");
    assert_int_equal(json_array_size(graphs), 2);
    assert_int_equal(json_unpack(json_array_get(graphs, 0), "{s:I,s:o}", "positions", &positions,
                                 "blocks", &blocks),
                     0);
    assert_int_equal(positions, 3);
    assert_int_equal(json_unpack(json_array_get(blocks, 0), "{s:I,s:I,s:I,s:I,s:b}", "offset",
                                 &offset, "bytes", &bytes, "first", &first, "last", &last, "kept",
                                 &kept),
                     0);
    assert_int_equal(offset, a.kept_at);
    assert_int_equal(bytes, 2 * MIB);
    assert_int_equal(first, 0);
    assert_int_equal(last, 3);
    assert_true(kept);
    json_decref(root);
    RPT_OK(&f, rp_pool_draw(pool, path, &f.err));
    char text[6] = "";
    FILE *drawn = fopen(path, "r");
    assert_non_null(drawn);
    assert_int_equal(fread(text, 1, 5, drawn), 5);
    fclose(drawn);
    assert_string_equal(text, "<svg ");
    assert_int_equal(rp_pool_draw(pool, "/nowhere/at/all", &f.err), RP_ERROR_IO);
    assert_int_equal(rp_pool_write(NULL, path, &f.err), RP_ERROR_INVALID_ARGUMENT);
    unlink(path);
    rp_graph_destroy(a.graph);
    rp_graph_destroy(b.graph);
    rp_graph_destroy(c.graph);
    rp_pool_destroy(inner);
    rp_pool_destroy(pool);
    rpt_close(&f);
}

/* ---- Threads --------------------------------------------------------------------------------*/

struct thread {
    struct rpt_fixture *f;
    struct rp_pool *pool;
    CUevent event;
    CUstream stream;
    uint64_t out;
};

static rp_status run_thread_work(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct thread *t = user;
    CUstream s = rp_call_stream(call);
    uint64_t block;
    rp_status status = rp_call_alloc(call, 3 * MIB, s, &block, err);
    if (status == RP_OK)
        status = rpt_fill(t->f, s, block, 3, 64, err);
    if (status == RP_OK)
        status = rpt_scale(t->f, s, rp_call_arg(call, 0), block, 2, 64, err);
    return status == RP_OK ? rp_call_free(call, block, err) : status;
}

/* Captures, replays and destroys in an inner pool of its own. */
static void *use_inner_pool(void *user)
{
    struct thread *t = user;
    struct rp_error err;
    struct rp_arg out = rpt_arg(t->out, 64, RP_ARG_OUT);
    for (int i = 0; i < 12; i++) {
        struct rp_graph *graph = NULL;
        if (rp_graph_capture(t->pool, NULL, run_thread_work, t, &out, 1, &graph, &err) != RP_OK)
            return &t->out;
        for (int k = 0; k < 3; k++)
            if (rp_graph_replay(graph, &out, 1, t->stream, &err) != RP_OK)
                return &t->out;
        if (i % 4 == 0 && rp_pool_trim(t->pool, NULL, &err) != RP_OK)
            return &t->out;
        rp_graph_destroy(graph);
    }
    return NULL;
}

static void threads_share_a_tree(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    struct rpt_fixture f;
    rpt_open(&f);
    struct rp_pool *pool = make_pool(&f, RP_POOL_CONCURRENT, NULL);
    struct thread threads[THREADS];
    pthread_t ids[THREADS];
    for (int i = 0; i < THREADS; i++) {
        enum rp_pool_kind kind = i % 2 ? RP_POOL_ALTERNATIVES : RP_POOL_SEQUENCE;
        threads[i] = (struct thread){.f = &f,
                                     .pool = make_pool(&f, kind, pool),
                                     .stream = f.streams[i],
                                     .out = rpt_buffer(&f, 64, 0)};
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, use_inner_pool, &threads[i]), 0);
    bool failed = false;
    for (int i = 0; i < THREADS; i++) { /* all of them: a read ends captures that are under way */
        void *out;
        pthread_join(ids[i], &out);
        failed |= out != NULL;
    }
    assert_false(failed);
    for (int i = 0; i < THREADS; i++) {
        float seen[64];
        rpt_read(&f, threads[i].out, seen, 64);
        for (int k = 0; k < 64; k++)
            assert_true(seen[k] == 6);
        f.driver->cuMemFree(threads[i].out);
        rp_pool_destroy(threads[i].pool);
    }
    assert_int_equal(info_of(pool).mapped_bytes, 0);
    rp_pool_destroy(pool);
    rpt_close(&f);
}

/* ---- Failures -------------------------------------------------------------------------------*/

struct faults {
    struct rpt_fixture f;
    struct rpi_host_statistics held;
    bool differed; /* a failure left the pool other than it was */
};

static bool same_pool(const struct rp_pool_info *a, const struct rp_pool_info *b)
{
    return a->planned_bytes == b->planned_bytes && a->mapped_bytes == b->mapped_bytes &&
           a->lower_bound_bytes == b->lower_bound_bytes && a->graphs == b->graphs;
}

static bool try_capture(struct faults *x, struct rp_pool *whole, struct rp_pool *pool,
                        struct work *w)
{
    struct rp_pool_info before = info_of(whole), after;
    struct rp_error err;
    if (rp_graph_capture(pool, NULL, run_work, w, NULL, 0, &w->graph, &err) == RP_OK)
        return true;
    after = info_of(whole);
    x->differed |= !same_pool(&before, &after) || w->graph;
    return false;
}

static bool use_tree(struct faults *x, struct rp_pool *whole, struct rp_pool *part,
                     struct work *works)
{
    struct rp_error err;
    if (!try_capture(x, whole, part, &works[0]) || !try_capture(x, whole, whole, &works[1]) ||
        !try_capture(x, whole, part, &works[2]))
        return false;
    rp_graph_destroy(works[0].graph);
    works[0].graph = NULL;
    if (rp_pool_trim(whole, NULL, &err) != RP_OK || !try_capture(x, whole, part, &works[3]))
        return false;
    for (int i = 1; i < 4; i++)
        if (rp_graph_replay(works[i].graph, NULL, 0, x->f.streams[i], &err) != RP_OK)
            return false;
    return rp_pool_write(whole, "/dev/null", &err) == RP_OK &&
           rp_pool_draw(whole, "/dev/null", &err) == RP_OK;
}

static bool make_tree(const struct rp_driver *driver, void *user)
{
    struct faults *x = user;
    struct rp_error err;
    struct rp_device *device = NULL;
    struct rp_pool *whole = NULL, *part = NULL;
    struct work works[4] = {{.f = &x->f, .freed = 2, .kept = 4},
                            {.f = &x->f, .freed = 4},
                            {.f = &x->f, .freed = 4, .kept = 2},
                            {.f = &x->f, .freed = 2, .kept = 2}};
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    options.kind = RP_POOL_SEQUENCE;
    bool worked = rpi_device_open_on(driver, 0, &device, &err) == RP_OK &&
                  rp_pool_create(device, &options, &whole, &err) == RP_OK;
    options.kind = RP_POOL_CONCURRENT;
    options.parent = whole;
    worked = worked && rp_pool_create(device, &options, &part, &err) == RP_OK &&
             use_tree(x, whole, part, works);
    for (int i = 0; i < 4; i++)
        rp_graph_destroy(works[i].graph);
    rp_pool_destroy(part);
    rp_pool_destroy(whole);
    rp_device_destroy(device);
    return worked;
}

static const char *what_is_left(void *user)
{
    struct faults *x = user;
    struct rpi_host_statistics now;
    x->f.driver->cuCtxSynchronize();
    rpi_host_statistics(&now);
    if (x->differed)
        return "a pool that is not as it was";
    if (now.races)
        return "a race";
    bool same = now.physical_bytes == x->held.physical_bytes && now.chunks == x->held.chunks &&
                now.mappings == x->held.mappings && now.reservations == x->held.reservations &&
                now.streams == x->held.streams && now.events == x->held.events &&
                now.graphs == x->held.graphs && now.execs == x->held.execs &&
                now.captures == x->held.captures;
    return same ? NULL : "something of the driver's";
}

static void every_failure_leaves_the_pool_as_it_was(void **state)
{
    (void)state;
    struct faults x = {.differed = false};
    rpt_open(&x.f);
    struct rpi_host_options before = rpt_ignore_races();
    rpi_host_statistics(&x.held);
    struct rpt_scenario scenario = {
        .run = make_tree, .left = what_is_left, .user = &x, .step = RPT_LONG_LOOP_STEP};
    const int64_t least = 100 / RPT_LONG_LOOP_STEP;
    assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_OUT_OF_MEMORY) > least);
    assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_UNKNOWN) > least);
    assert_true(rpt_memory_fault_loop(rpi_driver_host(), &scenario) > least);
    rpi_host_configure(&before);
    rpt_close(&x.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_keep_what_is_not_freed),
        cmocka_unit_test(concurrent_graphs_add_up),
        cmocka_unit_test(alternatives_nest_in_a_sequence),
        cmocka_unit_test(trimming_gives_holes_back),
        cmocka_unit_test(a_limit_counts_what_is_mapped),
        cmocka_unit_test(inner_pools_are_checked),
        cmocka_unit_test(only_who_shares_waits),
        cmocka_unit_test(names_that_are_no_text_are_written_as_text),
        cmocka_unit_test(the_layout_is_written_and_drawn),
        cmocka_unit_test(threads_share_a_tree),
        cmocka_unit_test(every_failure_leaves_the_pool_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
