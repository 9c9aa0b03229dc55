/* SPDX-License-Identifier: MIT
 *
 * The hooks that PyTorch calls around its own graphs, on the host driver: a capture is begun and
 * ended here in the order in which torch.cuda.CUDAGraph does it. Memory comes from one pool for
 * each of PyTorch's, what tensors lie in is nobody else's, and all is given back in the end,
 * whatever fails between.
 */
#include "graph_fixture.h"

#include "../../python/csrc/alloc/hooks.h"
#include "../../python/csrc/alloc/raise.h"

#include <stdbool.h>
#include <stdio.h>

enum { COUNT = 700, BYTES = COUNT * 4, ROUNDED = 3072 };

static struct rpt_fixture fixture;
static jmp_buf thrown; /* where a hook that throws goes */
static char said[768];

_Noreturn void rpp_raise_out_of_memory(const char *message)
{
    snprintf(said, sizeof said, "memory: %s", message);
    longjmp(thrown, 1);
}

_Noreturn void rpp_raise_error(const char *message)
{
    snprintf(said, sizeof said, "error: %s", message);
    longjmp(thrown, 1);
}

/* What torch.cuda.CUDAGraph has of its own. */
struct graph {
    struct rpp_pool_id pool;
    CUstream stream;
    CUgraph template;
    CUgraphExec exec;
};

static int open_fixture(void **state)
{
    rpt_open(&fixture);
    rpp_device_set(&rpp_state.devices[0], fixture.device);
    *state = &fixture;
    return 0;
}

static int close_fixture(void **state)
{
    assert_null(rpp_state.leases);
    assert_int_equal(rpp_state.call.blocks.count, 0);
    assert_int_equal(atomic_load(&rpp_state.begun), 0);
    rp_heap_destroy(atomic_load(&rpp_state.devices[0].heap));
    atomic_store(&rpp_state.devices[0].heap, NULL);
    free(rpp_state.call.blocks.slots);
    memset(&rpp_state.call.blocks, 0, sizeof rpp_state.call.blocks);
    rpt_close(*state);
    return 0;
}

static struct graph begin(uint64_t id, CUstream stream)
{
    struct graph g = {.pool = {{id, 0}}, .stream = stream};
    rpp_hook_begin_pool(0, g.pool, NULL);
    assert_int_equal(fixture.driver->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                     0);
    return g;
}

static void end(struct graph *g)
{
    assert_int_equal(fixture.driver->cuStreamEndCapture(g->stream, &g->template), 0);
    rpp_hook_end_pool(0, g->pool);
    assert_int_equal(fixture.driver->cuGraphInstantiateWithFlags(&g->exec, g->template, 0), 0);
}

static void reset(struct graph *g)
{
    rpp_hook_release_pool(0, g->pool);
    fixture.driver->cuGraphExecDestroy(g->exec);
    fixture.driver->cuGraphDestroy(g->template);
}

static uint64_t take(CUstream stream)
{
    void *pointer = rpp_hook_alloc(BYTES, 0, stream);
    assert_non_null(pointer);
    return (uintptr_t)pointer;
}

static void drop(uint64_t address, CUstream stream)
{
    rpp_hook_free((void *)(uintptr_t)address, BYTES, 0, stream);
}

/* Fills a block that it frees and returns one that it fills with the value. */
static uint64_t capture(struct graph *g, uint64_t id, float value)
{
    CUstream s = fixture.streams[0];
    *g = begin(id, s);
    uint64_t a = take(s), kept;
    RPT_OK(&fixture, rpt_fill(&fixture, s, a, value, COUNT, &fixture.err));
    kept = take(s);
    RPT_OK(&fixture, rpt_scale(&fixture, s, kept, a, 2, COUNT, &fixture.err));
    drop(a, s);
    end(g);
    return kept;
}

static void launch_and_check(const struct graph *g, uint64_t address, float value)
{
    float values[COUNT];
    assert_int_equal(fixture.driver->cuGraphLaunch(g->exec, fixture.streams[1]), 0);
    rpt_read(&fixture, address, values, COUNT);
    for (int i = 0; i < COUNT; i++)
        assert_true(values[i] == value);
}

static struct rpp_once_facts facts_of(size_t index, size_t expected)
{
    size_t count;
    struct rpp_once_facts *all = rpp_once_facts(&count), facts = {0};
    assert_int_equal(count, expected);
    if (index < count)
        facts = all[index];
    free(all);
    return facts;
}

/* ---- Tests ---------------------------------------------------------------------------------- */

static void a_graph_has_memory_of_its_own_until_it_is_released(void **state)
{
    struct rpt_fixture *f = *state;
    struct graph g;
    uint64_t eager = take(f->streams[0]), kept = capture(&g, 7, 3);
    struct rpp_once_facts facts = facts_of(0, 1);
    assert_int_equal(facts.pool.planned_bytes, 2 * ROUNDED);
    assert_int_equal(facts.alive_bytes, BYTES);
    assert_string_equal(facts.name, "graph 1");
    uint64_t other = take(f->streams[0]);
    RPT_OK(f, rpt_fill(f, f->streams[0], other, 1, COUNT, &f->err));
    launch_and_check(&g, kept, 6);
    rpp_hook_reset(); /* torch.cuda.empty_cache: the graph needs its memory */
    launch_and_check(&g, kept, 6);
    drop(kept, f->streams[0]);
    assert_int_equal(facts_of(0, 1).alive_bytes, 0);
    reset(&g);
    drop(eager, f->streams[0]);
    drop(other, f->streams[0]);
    rpp_hook_reset();
}

static void a_tensor_outlives_its_graph(void **state)
{
    (void)state;
    struct graph g;
    uint64_t kept = capture(&g, 7, 3);
    launch_and_check(&g, kept, 6);
    reset(&g);
    rpp_hook_reset();
    float value;
    rpt_read(&fixture, kept, &value, 1);
    assert_true(value == 6);
    assert_int_equal(facts_of(0, 1).alive_bytes, BYTES);
    drop(kept, fixture.streams[0]);
    rpp_hook_reset();
    facts_of(0, 0);
}

/* In one pool: what is alive stays, what is dropped makes room. */
static void graphs_share_a_pool(void **state)
{
    struct rpt_fixture *f = *state;
    struct graph a, b, c;
    uint64_t first = capture(&a, 5, 3), second = capture(&b, 5, 4);
    assert_int_not_equal(first, second);
    launch_and_check(&a, first, 6);
    launch_and_check(&b, second, 8);
    float value;
    rpt_read(f, first, &value, 1);
    assert_true(value == 6);
    drop(first, f->streams[0]);
    uint64_t third = capture(&c, 5, 5);
    assert_int_equal(facts_of(0, 3).pool.planned_bytes, 3 * ROUNDED);
    reset(&a);
    rpp_hook_reset(); /* which of the three is gone PyTorch does not say */
    launch_and_check(&c, third, 10);
    launch_and_check(&b, second, 8);
    reset(&b);
    reset(&c);
    drop(second, f->streams[0]);
    drop(third, f->streams[0]);
    rpp_hook_reset();
}

static void pools_are_apart(void **state)
{
    (void)state;
    struct graph a, b;
    uint64_t first = capture(&a, 1, 3), second = capture(&b, 2, 4);
    launch_and_check(&a, first, 6);
    launch_and_check(&b, second, 8);
    assert_int_equal(facts_of(0, 2).pool.graphs, 1);
    reset(&a);
    drop(first, fixture.streams[0]);
    rpp_hook_reset();
    facts_of(0, 1);
    launch_and_check(&b, second, 8);
    reset(&b);
    drop(second, fixture.streams[0]);
    rpp_hook_reset();
}

static void blocks_on_side_streams_are_waited_for(void **state)
{
    struct rpt_fixture *f = *state;
    CUstream s = f->streams[0], side = f->streams[2];
    struct graph g = begin(7, s);
    RPT_OK(f, rpt_join(f, s, side, &f->err));
    uint64_t a = take(side);
    RPT_OK(f, rpt_fill(f, side, a, 3, COUNT, &f->err));
    RPT_OK(f, rpt_join(f, side, s, &f->err));
    rpp_hook_use((void *)(uintptr_t)a, s);
    uint64_t kept = take(s);
    RPT_OK(f, rpt_scale(f, s, kept, a, 2, COUNT, &f->err));
    drop(a, side);
    uint64_t b = take(side);
    assert_int_not_equal(b, a);
    RPT_OK(f, rpt_fill(f, side, b, 9, COUNT, &f->err));
    RPT_OK(f, rpt_join(f, side, s, &f->err));
    drop(b, side);
    end(&g);
    launch_and_check(&g, kept, 6);
    reset(&g);
    drop(kept, s);
    rpp_hook_reset();
}

static void eager_work_meanwhile_has_the_heap(void **state)
{
    struct rpt_fixture *f = *state;
    struct graph g = begin(7, f->streams[0]);
    uint64_t eager = take(f->streams[2]), captured = take(f->streams[0]);
    struct rp_heap_block block = {.size = sizeof block};
    struct rp_heap *heap = atomic_load(&rpp_state.devices[0].heap);
    assert_int_equal(rp_heap_find(heap, eager, &block, NULL), RP_OK);
    assert_int_not_equal(rp_heap_find(heap, captured, &block, NULL), RP_OK);
    RPT_OK(f, rpt_fill(f, f->streams[0], captured, 1, COUNT, &f->err));
    end(&g);
    reset(&g);
    drop(eager, f->streams[2]);
    drop(captured, f->streams[0]);
    rpp_hook_reset();
}

struct taken {
    CUstream stream;
    uint64_t address;
};

static void *take_on_thread(void *user)
{
    struct taken *taken = user;
    taken->address = take(taken->stream);
    return NULL;
}

/* Autograd's threads have none when they allocate first. */
static void a_thread_without_a_context_has_memory_of_the_graph(void **state)
{
    struct rpt_fixture *f = *state;
    struct graph g = begin(7, f->streams[0]);
    struct taken taken = {.stream = f->streams[0]};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, take_on_thread, &taken), 0);
    pthread_join(thread, NULL);
    RPT_OK(f, rpt_fill(f, f->streams[0], taken.address, 1, COUNT, &f->err));
    end(&g);
    assert_int_equal(facts_of(0, 1).alive_bytes, BYTES);
    launch_and_check(&g, taken.address, 1);
    reset(&g);
    drop(taken.address, f->streams[0]);
    rpp_hook_reset();
}

static bool throws(size_t bytes, CUstream stream)
{
    if (setjmp(thrown) != 0)
        return true;
    rpp_hook_alloc(bytes, 0, stream);
    return false;
}

static void a_good_graph_after_it(uint64_t id)
{
    struct graph good;
    uint64_t kept = capture(&good, id, 3);
    launch_and_check(&good, kept, 6);
    reset(&good);
    drop(kept, fixture.streams[0]);
    rpp_hook_reset();
}

/* PyTorch tells of the beginning of a capture that fails, and of nothing after that. */
static void a_failed_capture_ends_at_the_next_beginning(void **state)
{
    struct rpt_fixture *f = *state;
    CUstream s = f->streams[0];
    struct graph g = begin(7, s);
    uint64_t a = take(s);
    assert_int_not_equal(f->driver->cuStreamSynchronize(s), 0);
    drop(take(s), s); /* of the heap: the next launch has the error to tell */
    assert_int_equal(facts_of(0, 1).alive_bytes, BYTES);
    assert_int_not_equal(f->driver->cuStreamEndCapture(s, &g.template), 0);
    drop(take(s), s); /* eager work as ever */
    a_good_graph_after_it(7);
    assert_int_equal(facts_of(0, 1).alive_bytes, BYTES);
    drop(a, s); /* a traceback held it */
    rpp_hook_reset();
}

static void a_failed_capture_without_memory_is_abandoned(void **state)
{
    struct rpt_fixture *f = *state;
    struct graph g = begin(7, f->streams[0]);
    assert_int_equal(f->driver->cuStreamEndCapture(g.stream, &g.template), 0);
    a_good_graph_after_it(8);
    assert_int_equal(atomic_load(&rpp_state.begun), 1); /* nobody can know */
    rpp_once_abandon();
    assert_int_equal(atomic_load(&rpp_state.begun), 0);
    f->driver->cuGraphDestroy(g.template);
    rpp_hook_reset();
}

static void no_memory_is_what_users_catch(void **state)
{
    struct rpt_fixture *f = *state;
    CUstream s = f->streams[0];
    struct graph g = begin(7, s);
    assert_true(throws((size_t)1 << 50, s));
    assert_non_null(strstr(said, "memory: CUDA out of memory"));
    uint64_t a = take(s); /* a smaller one */
    RPT_OK(f, rpt_fill(f, s, a, 1, COUNT, &f->err));
    end(&g);
    launch_and_check(&g, a, 1);
    drop(a, s);
    reset(&g);
    rpp_hook_reset();
}

static void a_bound_pool_is_used_and_let_go(void **state)
{
    struct rpt_fixture *f = *state;
    struct rpp_pool_id id = {{0, 9}};
    struct graph g = {.pool = id, .stream = f->streams[0]};
    int keeper;
    assert_true(rpp_once_bind(0, id, f->pool, &keeper));
    assert_false(rpp_once_bind(0, id, f->pool, &keeper));
    assert_null(rpp_once_unbind()); /* bound for a capture to come */
    rpp_hook_begin_pool(0, id, NULL);
    assert_int_equal(f->driver->cuStreamBeginCapture(g.stream, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
    uint64_t kept = take(g.stream);
    RPT_OK(f, rpt_fill(f, g.stream, kept, 4, COUNT, &f->err));
    end(&g);
    launch_and_check(&g, kept, 4);
    struct rp_pool_info info = {.size = sizeof info};
    rp_pool_info(f->pool, &info);
    assert_int_equal(info.graphs, 1);
    assert_true(facts_of(0, 1).bound);
    reset(&g);
    drop(kept, g.stream);
    assert_null(rpp_once_unbind());
    rpp_hook_reset();
    assert_ptr_equal(rpp_once_unbind(), &keeper);
}

static void what_leases_hold_is_told(void **state)
{
    (void)state;
    struct graph g;
    int64_t allocated, reserved;
    uint64_t kept = capture(&g, 7, 3);
    rpp_once_totals(0, &allocated, &reserved);
    assert_int_equal(allocated, BYTES);
    assert_true(reserved >= 2 * ROUNDED);
    rpp_once_totals(1, &allocated, &reserved);
    assert_int_equal(allocated + reserved, 0);
    drop(kept, fixture.streams[0]);
    reset(&g);
    rpp_hook_reset();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)
    const struct CMUnitTest tests[] = {
        TEST(a_graph_has_memory_of_its_own_until_it_is_released),
        TEST(a_tensor_outlives_its_graph),
        TEST(graphs_share_a_pool),
        TEST(pools_are_apart),
        TEST(blocks_on_side_streams_are_waited_for),
        TEST(eager_work_meanwhile_has_the_heap),
        TEST(a_thread_without_a_context_has_memory_of_the_graph),
        TEST(a_failed_capture_ends_at_the_next_beginning),
        TEST(a_failed_capture_without_memory_is_abandoned),
        TEST(no_memory_is_what_users_catch),
        TEST(a_bound_pool_is_used_and_let_go),
        TEST(what_leases_hold_is_told),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
