/* SPDX-License-Identifier: MIT
 *
 * Graphs that use blocks of a heap beside their arguments: a replay is refused, with the block
 * named, once one of them was freed, whatever is there then, and whoever goes first; frees of
 * others change nothing. Callables capture such shapes anew, until it becomes a habit.
 */
#include "graph_fixture.h"

#include "fault_loop.h"
#include "graph/callable/callable.h"
#include "memory/heap/heap.h"

#include <pthread.h>

enum { COUNT = 64, BYTES = COUNT * sizeof(float), ARGS = 2 };

/* How the work uses what it holds. */
enum way { BY_KERNEL, BY_COPY, BY_FILL, IN_STRUCT, IN_TABLE, UNUSED };

struct fixture {
    struct rpt_fixture f;
    struct rp_heap *heap;
    uint64_t held; /* what the work uses beside its arguments */
    enum way way;
    int depth; /* of child graphs around the work */
    struct rp_arg args[ARGS];
};

#define OK(t, call) RPT_OK(&(t)->f, call)

struct places {
    const struct fixture *t;
    uint64_t in, out;
};

static rp_status enqueue(const struct rpt_fixture *f, CUstream stream, const void *data,
                         struct rp_error *err)
{
    const struct places *p = data;
    uint64_t held = p->t->held;
    struct rpt_padded_param param;
    void *params[] = {&param};
    CUresult result = CUDA_SUCCESS;
    switch (p->t->way) {
    case BY_KERNEL:
        return rpt_add(f, stream, p->out, p->in, held, COUNT, err);
    case BY_COPY:
        result = f->driver->cuMemcpyDtoDAsync(p->out, held, BYTES, stream);
        break;
    case BY_FILL:
        result = f->driver->cuMemsetD32Async(held, 0, COUNT, stream);
        break;
    case IN_STRUCT:
        memset(&param, 0, sizeof param);
        param.to = (uint32_t *)(uintptr_t)held;
        return rpt_launch(f, f->padded, stream, params, err);
    case IN_TABLE: /* copied from the host */
        result = f->driver->cuMemcpyHtoDAsync(p->out, &p->t->held, sizeof held, stream);
        break;
    case UNUSED:
        break;
    }
    return result == CUDA_SUCCESS ? RP_OK : rpi_error_driver(err, result, "driver", "enqueuing");
}

static rp_status work(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct fixture *t = user;
    const struct places places = {t, rp_call_arg(call, 0), rp_call_arg(call, 1)};
    CUstream stream = rp_call_stream(call);
    rp_status status = rpt_within(&t->f, stream, t->depth, enqueue, &places, err);
    if (status == RP_OK && t->way != BY_KERNEL)
        status = rpt_scale(&t->f, stream, places.out, places.in, 2, COUNT, err);
    return status;
}

static uint64_t take(struct fixture *t, uint64_t bytes)
{
    uint64_t address = 0;
    OK(t, rp_heap_alloc(t->heap, bytes, NULL, &address, &t->f.err));
    return address;
}

static void give(struct fixture *t, uint64_t address)
{
    OK(t, rp_heap_free(t->heap, address, &t->f.err));
}

static int setup(void **state)
{
    static struct fixture t;
    memset(&t, 0, sizeof t);
    rpt_open(&t.f);
    OK(&t, rp_heap_create(t.f.device, NULL, &t.heap, &t.f.err));
    t.args[0] = rpt_arg(rpt_buffer(&t.f, COUNT, 1), COUNT, RP_ARG_IN);
    t.args[1] = rpt_arg(rpt_buffer(&t.f, COUNT, 0), COUNT, RP_ARG_OUT);
    t.held = take(&t, BYTES);
    *state = &t;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *t = *state;
    if (t->heap)
        assert_true(rpi_heap_is_valid(t->heap));
    rp_heap_destroy(t->heap);
    for (size_t k = 0; k < ARGS; k++)
        t->f.driver->cuMemFree(t->args[k].address);
    rpt_close(&t->f);
    return 0;
}

static struct rp_graph *capture(struct fixture *t)
{
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    struct rp_graph *graph = NULL;
    options.name = "step";
    OK(t, rp_graph_capture(t->f.pool, &options, work, t, t->args, ARGS, &graph, &t->f.err));
    return graph;
}

static size_t outside(const struct rp_graph *graph)
{
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(graph, &info);
    return info.outside_blocks;
}

static void replays(struct fixture *t, struct rp_graph *graph)
{
    assert_false(rp_graph_is_stale(graph));
    OK(t, rp_graph_replay(graph, t->args, ARGS, NULL, &t->f.err));
}

static void is_refused(struct fixture *t, struct rp_graph *graph, uint64_t address, uint64_t bytes)
{
    struct rp_graph_info before = {.size = sizeof before}, info = {.size = sizeof info};
    char text[80];
    rp_graph_info(graph, &before);
    assert_true(rp_graph_is_stale(graph));
    assert_int_equal(rp_graph_replay(graph, t->args, ARGS, NULL, &t->f.err), RP_ERROR_CONTRACT);
    rpt_says(&t->f, "graph 'step'");
    rpt_says(&t->f, "freed after the capture");
    snprintf(text, sizeof text, "uses %llu bytes at 0x%llx beside", (unsigned long long)bytes,
             (unsigned long long)address);
    rpt_says(&t->f, text);
    rp_graph_info(graph, &info);
    assert_int_equal(info.lost_address, address);
    assert_int_equal(info.lost_bytes, bytes);
    assert_int_equal(info.replays, before.replays);
}

/* ---- One block ------------------------------------------------------------------------------*/

static void freed_and_given_out_again(void **state)
{
    struct fixture *t = *state;
    uint64_t other = take(t, BYTES), before = t->held;
    struct rp_graph *graph = capture(t);
    assert_int_equal(outside(graph), 1);
    replays(t, graph);
    give(t, other);
    give(t, take(t, BYTES));
    replays(t, graph);
    give(t, t->held);
    is_refused(t, graph, before, BYTES);
    t->held = take(t, BYTES);
    assert_int_equal(t->held, before); /* the same address, another block */
    is_refused(t, graph, before, BYTES);
    struct rp_graph *again = capture(t);
    replays(t, again);
    is_refused(t, graph, before, BYTES);
    rp_graph_destroy(graph);
    replays(t, again);
    rp_graph_destroy(again);
}

/* A block that another stream uses waits after its free; who owned it does not. */
static void freed_while_in_use(void **state)
{
    struct fixture *t = *state;
    OK(t, rp_heap_use(t->heap, t->held, t->f.streams[0], &t->f.err));
    struct rp_graph *graph = capture(t);
    replays(t, graph);
    give(t, t->held);
    is_refused(t, graph, t->held, BYTES);
    rp_graph_destroy(graph);
}

/* In the midst of blocks, small and large, with others before and behind. */
static void named_by_an_address_within(void **state)
{
    struct fixture *t = *state;
    static const uint64_t sizes[] = {512, 4096, (uint64_t)1 << 20, (uint64_t)5 << 20,
                                     (uint64_t)50 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const uint64_t offsets[] = {0, 256, sizes[i] / 2, sizes[i] - BYTES};
        for (size_t k = 0; k < sizeof offsets / sizeof *offsets; k++) {
            uint64_t first = take(t, sizes[i]), block = take(t, sizes[i]), last = take(t, sizes[i]);
            t->held = block + offsets[k];
            struct rp_graph *graph = capture(t);
            assert_int_equal(outside(graph), 1);
            give(t, first);
            give(t, last);
            replays(t, graph);
            give(t, block);
            is_refused(t, graph, block, sizes[i]);
            rp_graph_destroy(graph);
        }
    }
}

static void named_in_every_way(void **state)
{
    struct fixture *t = *state;
    for (t->depth = 0; t->depth < 3; t->depth++)
        for (t->way = BY_KERNEL; t->way < UNUSED; t->way++) {
            t->held = take(t, BYTES);
            struct rp_graph *graph = capture(t);
            assert_int_equal(outside(graph), 1);
            replays(t, graph);
            give(t, t->held);
            is_refused(t, graph, t->held, BYTES);
            rp_graph_destroy(graph);
        }
}

/* Arguments are where the call has them; memory of other allocators is nobody's to watch. */
static void what_is_not_watched(void **state)
{
    struct fixture *t = *state;
    const uint64_t allocated = t->args[0].address, block = t->held;
    t->way = UNUSED;
    t->args[0].address = block;
    struct rp_graph *graph = capture(t);
    assert_int_equal(outside(graph), 0);
    t->args[0].address = allocated;
    give(t, block);
    replays(t, graph);
    rp_graph_destroy(graph);
    t->way = BY_KERNEL;
    t->held = rpt_buffer(&t->f, COUNT, 3);
    graph = capture(t);
    assert_int_equal(outside(graph), 0);
    replays(t, graph);
    rp_graph_destroy(graph);
    t->f.driver->cuMemFree(t->held);
}

/* What was free when the capture ended is watched by nobody, and its next owner frees in peace. */
static void free_before_the_capture(void **state)
{
    struct fixture *t = *state;
    give(t, t->held);
    struct rp_graph *graph = capture(t);
    assert_int_equal(outside(graph), 0);
    give(t, take(t, BYTES));
    replays(t, graph);
    rp_graph_destroy(graph);
}

/* ---- Ranges that somebody asks for -----------------------------------------------------------*/

/* The node that names the block, and the byte of a kernel's parameters. */
static void tells_where(struct fixture *t, const struct rp_graph *graph, uint64_t address)
{
    static const char *const kinds[] = {"kernel ", "memcpy",      "memset",
                                        "kernel ", "a copy from", ""};
    const struct rp_memory range = {address, BYTES}, nowhere = {UINT64_MAX - 512, 512};
    char where[128], cut[5];
    OK(t, rp_graph_where_named(graph, &range, where, sizeof where, &t->f.err));
    assert_int_equal(strncmp(where, kinds[t->way], strlen(kinds[t->way])), 0);
    assert_int_equal(where[0] != 0, t->way != UNUSED);
    assert_int_equal(strstr(where, "of its parameters") != NULL,
                     t->way == BY_KERNEL || t->way == IN_STRUCT);
    OK(t, rp_graph_where_named(graph, &range, cut, sizeof cut, &t->f.err));
    assert_int_equal(strlen(cut), t->way == UNUSED ? 0 : sizeof cut - 1);
    OK(t, rp_graph_where_named(graph, &nowhere, where, sizeof where, &t->f.err));
    assert_string_equal(where, "");
}

/* Whose memory it is makes no difference, nor where in a range the address lies. */
static void ranges_that_nodes_name(void **state)
{
    struct fixture *t = *state;
    const uint64_t foreign = rpt_buffer(&t->f, COUNT, 3), held[] = {t->held, foreign};
    for (t->depth = 0; t->depth < 3; t->depth += 2)
        for (t->way = BY_KERNEL; t->way <= UNUSED; t->way++)
            for (int i = 0; i < 2; i++) {
                const uint64_t at = t->held = held[i];
                const struct rp_memory ranges[] = {
                    {at, BYTES},   {at + 1, BYTES},        {at - BYTES, BYTES},
                    {at, 0},       {at - 512, 1 << 20},    {at, 1},
                    {at, BYTES},   {at - 1024, 1024 + 1},  {held[!i], BYTES},
                    {0, 1u << 20}, {UINT64_MAX - 512, 512}};
                enum { RANGES = sizeof ranges / sizeof *ranges };
                const unsigned char used[RANGES] = {1, 0, 0, 0, 1, 1, 1, 1};
                unsigned char named[RANGES];
                struct rp_graph *graph = capture(t);
                memset(named, 7, sizeof named);
                OK(t, rp_graph_names(graph, ranges, RANGES, named, &t->f.err));
                for (size_t k = 0; k < RANGES - 2; k++) /* small numbers are no addresses */
                    assert_int_equal(named[k], t->way == UNUSED ? 0 : used[k]);
                assert_int_equal(named[RANGES - 1], 0);
                tells_where(t, graph, at);
                replays(t, graph);
                rp_graph_destroy(graph);
            }
    t->held = held[0];
    t->f.driver->cuMemFree(foreign);
}

struct keeper {
    const struct fixture *t;
    uint64_t kept; /* in the latest run */
};

static rp_status keep(struct rp_call *call, void *user, struct rp_error *err)
{
    struct keeper *k = user;
    CUstream stream = rp_call_stream(call);
    rp_status status = rp_call_alloc(call, BYTES, stream, &k->kept, err);
    if (status == RP_OK)
        status = rpt_scale(&k->t->f, stream, k->kept, rp_call_arg(call, 0), 2, COUNT, err);
    return status == RP_OK
               ? rpt_scale(&k->t->f, stream, rp_call_arg(call, 1), k->kept, 3, COUNT, err)
               : status;
}

static int named(struct fixture *t, struct rp_pool *pool, rp_callable_fn callable, void *user,
                 uint64_t address)
{
    const struct rp_memory range = {address, BYTES};
    struct rp_graph *graph;
    unsigned char bits = 7;
    OK(t, rp_graph_capture(pool, NULL, callable, user, t->args, ARGS, &graph, &t->f.err));
    OK(t, rp_graph_names(graph, &range, 1, &bits, &t->f.err));
    rp_graph_destroy(graph);
    return bits;
}

/* What an earlier graph keeps: later ones of a sequence may use it, alternatives lie over it, which
 * is no use of it. A struct may hold an address by chance, so the capture is not refused. */
static void ranges_in_the_pool(void **state)
{
    struct fixture *t = *state;
    const uint64_t held = t->held;
    for (int sequence = 0; sequence < 2; sequence++) {
        struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
        struct keeper first = {.t = t}, second = {.t = t};
        struct rp_pool *pool;
        struct rp_graph *graph;
        options.kind = sequence ? RP_POOL_SEQUENCE : RP_POOL_ALTERNATIVES;
        OK(t, rp_pool_create(t->f.device, &options, &pool, &t->f.err));
        OK(t, rp_graph_capture(pool, NULL, keep, &first, t->args, ARGS, &graph, &t->f.err));
        assert_int_equal(named(t, pool, keep, &second, first.kept), 0);
        assert_int_equal(second.kept == first.kept, !sequence);
        t->held = first.kept;
        t->way = IN_STRUCT;
        assert_int_equal(named(t, pool, work, t, first.kept),
                         sequence ? RP_NAMED : RP_NAMED | RP_MISUSED);
        rp_graph_destroy(graph);
        rp_pool_destroy(pool);
    }
    t->held = held;
}

static void ranges_that_cannot_be_looked_for(void **state)
{
    struct fixture *t = *state;
    const struct rp_memory range = {t->held, BYTES};
    unsigned char named = 7;
    struct rp_graph *graph = capture(t);
    OK(t, rp_graph_names(graph, NULL, 0, NULL, &t->f.err));
    assert_int_equal(rp_graph_names(NULL, &range, 1, &named, &t->f.err), RP_ERROR_INVALID_ARGUMENT);
    rpt_says(&t->f, "graph is NULL");
    assert_int_equal(rp_graph_names(graph, NULL, 1, &named, &t->f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_graph_names(graph, &range, 1, NULL, &t->f.err), RP_ERROR_INVALID_ARGUMENT);
    rpt_says(&t->f, "out_named is NULL");
    assert_int_equal(named, 7);
    char where[8] = "as it is";
    assert_int_equal(rp_graph_where_named(graph, NULL, where, sizeof where, &t->f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    rpt_says(&t->f, "range is NULL");
    assert_int_equal(rp_graph_where_named(graph, &range, NULL, sizeof where, &t->f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_graph_where_named(graph, &range, where, 0, &t->f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_memory_equal(where, "as it is", sizeof where);
    rp_graph_destroy(graph);
}

/* ---- Many of both ---------------------------------------------------------------------------*/

/* Graphs that go before the block leave the others watching, from wherever they were in its list.
 */
static void many_graphs_watch_one_block(void **state)
{
    enum { GRAPHS = 7 };
    struct fixture *t = *state;
    for (unsigned gone = 0; gone < 1u << GRAPHS; gone += 13) {
        struct rp_graph *graphs[GRAPHS];
        t->held = take(t, BYTES);
        for (int i = 0; i < GRAPHS; i++)
            graphs[i] = capture(t);
        for (int i = 0; i < GRAPHS; i++)
            if (gone & 1u << i)
                rp_graph_destroy(graphs[i]);
        assert_true(rpi_heap_is_valid(t->heap));
        give(t, t->held);
        for (int i = 0; i < GRAPHS; i++)
            if (!(gone & 1u << i)) {
                is_refused(t, graphs[i], t->held, BYTES);
                rp_graph_destroy(graphs[i]);
            }
    }
}

/* The first block that went is the one that is named. */
static rp_status sum(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct fixture *t = user;
    CUstream stream = rp_call_stream(call);
    rp_status status = RP_OK;
    for (uint64_t i = 0; status == RP_OK && i < 8; i++)
        status = rpt_add(&t->f, stream, rp_call_arg(call, 1), rp_call_arg(call, 0),
                         t->held + i * 512 + (i & 1) * 64, COUNT / 2, err);
    return status;
}

static void one_graph_watches_many_blocks(void **state)
{
    struct fixture *t = *state;
    uint64_t blocks[8];
    struct rp_graph *graph = NULL;
    struct rp_graph_info info = {.size = sizeof info};
    for (int i = 0; i < 8; i++)
        blocks[i] = take(t, 512);
    t->held = blocks[0];
    for (int i = 0; i < 8; i++)
        assert_int_equal(blocks[i], blocks[0] + (uint64_t)i * 512);
    OK(t, rp_graph_capture(t->f.pool, NULL, sum, t, t->args, ARGS, &graph, &t->f.err));
    assert_int_equal(outside(graph), 8);
    give(t, blocks[5]);
    give(t, blocks[2]);
    rp_graph_info(graph, &info);
    assert_int_equal(info.lost_address, blocks[5]);
    rp_graph_destroy(graph);
}

static void several_heaps(void **state)
{
    struct fixture *t = *state;
    struct rp_heap *other = NULL, *third = NULL, *first = t->heap;
    uint64_t in_first = t->held, in_other = 0;
    OK(t, rp_heap_create(t->f.device, NULL, &other, &t->f.err));
    OK(t, rp_heap_create(t->f.device, NULL, &third, &t->f.err));
    OK(t, rp_heap_alloc(other, BYTES, NULL, &in_other, &t->f.err));
    struct rp_graph *of_first = capture(t);
    t->held = in_other;
    struct rp_graph *of_other = capture(t);
    rp_heap_destroy(third);
    replays(t, of_first);
    replays(t, of_other);
    rp_heap_destroy(other); /* with all that it has */
    is_refused(t, of_other, in_other, BYTES);
    replays(t, of_first);
    rp_graph_destroy(of_other); /* after its heap */
    rp_heap_destroy(first);
    t->heap = NULL;
    is_refused(t, of_first, in_first, BYTES);
    rp_graph_destroy(of_first);
}

/* Lost before its heap goes: the watch leads to no block any more, nor may it lead to the heap. */
static void a_graph_outlives_block_and_heap(void **state)
{
    struct fixture *t = *state;
    struct rp_graph *graph = capture(t);
    give(t, t->held);
    rp_heap_destroy(t->heap);
    t->heap = NULL;
    OK(t, rp_heap_create(t->f.device, NULL, &t->heap, &t->f.err));
    is_refused(t, graph, t->held, BYTES);
    rp_graph_destroy(graph);
}

/* ---- What it costs --------------------------------------------------------------------------*/

/* Allocating and freeing on a hit makes no driver call and takes no host memory, watched or not. */
static void a_free_of_what_is_watched_calls_nobody(void **state)
{
    (void)state;
    struct rpt_scene scene;
    const struct rp_driver *driver = rpi_driver_fault(rpi_driver_host());
    struct rpi_heap_watches watches[3] = {{0}};
    struct rp_heap *heap = NULL;
    uint64_t address = 0;
    assert_true(rpt_scene_open(&scene, driver));
    assert_int_equal(rp_heap_create(scene.device, NULL, &heap, NULL), RP_OK);
    assert_int_equal(rp_heap_alloc(heap, BYTES, NULL, &address, NULL), RP_OK);
    for (int i = 0; i < 3; i++) {
        uint64_t named[] = {address, address + 8};
        assert_int_equal(rpi_heap_watches_take(&watches[i], &scene.device->heaps, named, 2, NULL),
                         RP_OK);
        assert_int_equal(watches[i].count, 1);
    }
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(rp_heap_free(heap, address, NULL), RP_OK);
        assert_int_equal(rp_heap_alloc(heap, BYTES, NULL, &address, NULL), RP_OK);
    }
    assert_int_equal(rpi_driver_fault_calls(), 0);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(rpi_heap_watches_lost(&watches[i]), watches[i].all);
        rpi_heap_watches_finish(&watches[i]);
    }
    rp_heap_destroy(heap);
    rpt_scene_close(&scene);
}

/* ---- Failures -------------------------------------------------------------------------------*/

static struct fixture
    outer; /* what the work launches with; its driver never fails by the wrapper */

/* A capture that fails watches nothing; one that works tells of the free. */
static bool capture_and_free(const struct rp_driver *driver, void *user)
{
    (void)user;
    struct rpt_scene scene;
    struct rp_heap *heap = NULL;
    bool worked = rpt_scene_open(&scene, driver) &&
                  rp_heap_create(scene.device, NULL, &heap, &scene.err) == RP_OK &&
                  rp_heap_alloc(heap, BYTES, NULL, &outer.held, &scene.err) == RP_OK;
    if (worked) {
        worked = rp_graph_capture(scene.pool, NULL, work, &outer, outer.args, ARGS, &scene.graph,
                                  &scene.err) == RP_OK;
        const struct rp_memory range = {outer.held, BYTES};
        unsigned char named = 0;
        bool told = worked && rp_graph_names(scene.graph, &range, 1, &named, &scene.err) == RP_OK;
        assert_int_equal(named, told);
        assert_true(rpi_heap_is_valid(heap));
        assert_int_equal(rp_heap_free(heap, outer.held, NULL), RP_OK);
        assert_int_equal(worked, scene.graph && rp_graph_is_stale(scene.graph));
        worked = told;
    }
    if (worked)
        assert_true(rp_graph_is_stale(scene.graph));
    else
        assert_true(scene.err.message[0]);
    rp_heap_destroy(heap);
    rpt_scene_close(&scene);
    return worked;
}

static void every_failure(void **state)
{
    (void)state;
    const struct rpt_scenario scenario = {.run = capture_and_free, .step = RPT_LONG_LOOP_STEP};
    memset(&outer, 0, sizeof outer);
    rpt_open(&outer.f);
    outer.args[0] = rpt_arg(rpt_buffer(&outer.f, COUNT, 1), COUNT, RP_ARG_IN);
    outer.args[1] = rpt_arg(rpt_buffer(&outer.f, COUNT, 0), COUNT, RP_ARG_OUT);
    struct rpi_host_options before = rpt_ignore_races();
    assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_OUT_OF_MEMORY) > 0);
    assert_true(rpt_memory_fault_loop(rpi_driver_host(), &scenario) > 0);
    rpi_host_configure(&before);
    for (size_t k = 0; k < ARGS; k++)
        outer.f.driver->cuMemFree(outer.args[k].address);
    rpt_close(&outer.f);
}

/* ---- Threads --------------------------------------------------------------------------------*/

enum { BLOCKS = 16, ROUNDS = 400 };

struct race {
    struct fixture *t;
    _Atomic uint64_t blocks[BLOCKS];
};

/* Frees blocks and takes others, in an order of its own. */
static void *free_blocks(void *user)
{
    struct race *race = user;
    for (unsigned i = 0; i < ROUNDS * BLOCKS; i++) {
        unsigned k = i * 7 % BLOCKS;
        uint64_t address = 0;
        rp_heap_free(race->t->heap, atomic_load(&race->blocks[k]), NULL);
        rp_heap_alloc(race->t->heap, BYTES, NULL, &address, NULL);
        atomic_store(&race->blocks[k], address);
    }
    return NULL;
}

static void *watch_blocks(void *user)
{
    struct race *race = user;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct rpi_heap_watches watches = {0};
        uint64_t named[BLOCKS];
        for (int k = 0; k < BLOCKS; k++)
            named[k] = atomic_load(&race->blocks[k]);
        if (rpi_heap_watches_take(&watches, &race->t->f.device->heaps, named, BLOCKS, NULL) !=
            RP_OK)
            return race;
        const struct rpi_heap_watch *lost = rpi_heap_watches_lost(&watches);
        bool named_one = !lost || lost->bytes == BYTES;
        rpi_heap_watches_finish(&watches);
        if (!named_one)
            return race;
    }
    return NULL;
}

/* Watches come and go while blocks do; a replay on one thread meets a free on another, and is
 * refused from then on. */
static void threads(void **state)
{
    struct fixture *t = *state;
    static struct race race;
    pthread_t freeing, watching[2];
    void *failed = NULL;
    race.t = t;
    for (int k = 0; k < BLOCKS; k++)
        atomic_store(&race.blocks[k], take(t, BYTES));
    t->held = atomic_load(&race.blocks[0]);
    struct rp_graph *graph = capture(t);
    assert_int_equal(pthread_create(&freeing, NULL, free_blocks, &race), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&watching[i], NULL, watch_blocks, &race), 0);
    rp_status status = RP_OK;
    for (int i = 0; i < 100 && status == RP_OK; i++)
        status = rp_graph_replay(graph, t->args, ARGS, NULL, &t->f.err);
    assert_true(status == RP_OK || status == RP_ERROR_CONTRACT);
    pthread_join(freeing, NULL);
    for (int i = 0; i < 2; i++) {
        pthread_join(watching[i], &failed);
        assert_null(failed);
    }
    is_refused(t, graph, t->held, BYTES);
    rp_graph_destroy(graph);
}

#define STALE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STALE_TEST(freed_and_given_out_again),
        STALE_TEST(freed_while_in_use),
        STALE_TEST(named_by_an_address_within),
        STALE_TEST(named_in_every_way),
        STALE_TEST(what_is_not_watched),
        STALE_TEST(free_before_the_capture),
        STALE_TEST(ranges_that_nodes_name),
        STALE_TEST(ranges_in_the_pool),
        STALE_TEST(ranges_that_cannot_be_looked_for),
        STALE_TEST(many_graphs_watch_one_block),
        STALE_TEST(one_graph_watches_many_blocks),
        STALE_TEST(several_heaps),
        STALE_TEST(a_graph_outlives_block_and_heap),
        cmocka_unit_test(a_free_of_what_is_watched_calls_nobody),
        cmocka_unit_test(every_failure),
        STALE_TEST(threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
