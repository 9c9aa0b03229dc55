/* SPDX-License-Identifier: MIT
 *
 * The order of replays that read each other's blocks: what is legal gives what eager runs in that
 * order give, all else is refused before anything is launched, with both graphs, the block and what
 * overwrote it. Among them the two errors that pass silently elsewhere: graphs of one pool replayed
 * in swapped order, and the forward and backward graphs of several layers interleaved. And at
 * capture: addresses that were kept from another call are refused, padding is not.
 */
#include "graph/handles/device.h"
#include "graph_fixture.h"

#include "fault_loop.h"
#include "reprise_heap.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

enum { COUNT = 256, BYTES = COUNT * 4, MOST_READS = 3 };

/* ---- Steps ----------------------------------------------------------------------------------*/

enum change { CHANGE_NOTHING, CHANGE_BY_KERNEL, CHANGE_BY_FILL };

/* out = value * in + what it reads, in a temporary block before; a kept block holds the same. */
struct step {
    struct rpt_fixture *f;
    const char *name;
    float value;
    int room; /* the temporary block is so many times larger */
    const struct step *reads[MOST_READS];
    bool keeps;
    enum change change;        /* what it does to the first block that it reads */
    const uint64_t *stolen;    /* an address that is not from the call, and is written */
    const struct step *tabled; /* its kept block is named in a table, copied from the host */
    uint64_t kept, temporary, table;
    struct rp_graph *graph;
    struct rp_arg args[2];
};

static rp_status change(const struct step *s, CUstream stream, struct rp_error *err)
{
    if (s->change == CHANGE_NOTHING)
        return RP_OK;
    assert(s->reads[0]);
    uint64_t kept = s->reads[0]->kept;
    if (s->change == CHANGE_BY_KERNEL)
        return rpt_fill(s->f, stream, kept, 50, COUNT, err);
    return s->f->driver->cuMemsetD32Async(kept, 0x42480000, COUNT, stream) ? RP_ERROR_DRIVER
                                                                           : RP_OK;
}

static rp_status run_step(struct rp_call *call, void *user, struct rp_error *err)
{
    struct step *s = user;
    CUstream stream = rp_call_stream(call);
    uint64_t temporary, in = rp_call_arg(call, 0), out = rp_call_arg(call, 1);
    rp_status status = rp_call_alloc(call, (size_t)(1 + s->room) * BYTES, stream, &temporary, err);
    s->table = s->tabled ? s->tabled->kept : 0;
    if (status == RP_OK && s->tabled)
        status = s->f->driver->cuMemcpyHtoDAsync(temporary, &s->table, sizeof s->table, stream)
                     ? RP_ERROR_DRIVER
                     : RP_OK;
    if (status == RP_OK)
        status = rpt_scale(s->f, stream, temporary, in, s->value, COUNT, err);
    for (int i = 0; i < MOST_READS && s->reads[i] && status == RP_OK; i++)
        status = rpt_saxpy(s->f, stream, temporary, s->reads[i]->kept, 1, COUNT, err);
    if (status == RP_OK)
        status = rpt_scale(s->f, stream, out, temporary, 1, COUNT, err);
    if (status == RP_OK)
        status = change(s, stream, err);
    if (status == RP_OK && s->stolen)
        status = rpt_fill(s->f, stream, *s->stolen, 9, COUNT, err);
    if (status == RP_OK && s->keeps)
        status = rp_call_alloc(call, BYTES, stream, &s->kept, err);
    if (status == RP_OK && s->keeps)
        status = rpt_scale(s->f, stream, s->kept, temporary, 1, COUNT, err);
    s->temporary = temporary;
    return status == RP_OK ? rp_call_free(call, temporary, err) : status;
}

static void set_buffers(struct step *s)
{
    if (s->args[0].bytes)
        return;
    s->args[0] = rpt_arg(rpt_buffer(s->f, COUNT, 1), COUNT, RP_ARG_IN);
    s->args[1] = rpt_arg(rpt_buffer(s->f, COUNT, 0), COUNT, RP_ARG_OUT);
}

static rp_status try_capture(struct rp_pool *pool, struct step *s)
{
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    options.name = s->name;
    set_buffers(s);
    return rp_graph_capture(pool, &options, run_step, s, s->args, 2, &s->graph, &s->f->err);
}

static void capture(struct rp_pool *pool, struct step *s)
{
    RPT_OK(s->f, try_capture(pool, s));
}

static void finish(struct step *s)
{
    rp_graph_destroy(s->graph);
    s->graph = NULL;
    if (s->args[0].bytes) {
        s->f->driver->cuMemFree(s->args[0].address);
        s->f->driver->cuMemFree(s->args[1].address);
    }
}

/* The first number of its output, when its input begins with x. */
static float replay(struct step *s, float x)
{
    float first;
    assert_int_equal(s->f->driver->cuCtxSynchronize(), 0);
    assert_int_equal(s->f->driver->cuMemcpyHtoD(s->args[0].address, &x, sizeof x), 0);
    RPT_OK(s->f, rp_graph_replay(s->graph, s->args, 2, NULL, &s->f->err));
    rpt_read(s->f, s->args[1].address, &first, 1);
    return first;
}

/* The replay is refused, says this, and launches nothing. */
static void refused(struct step *s, const char *first, const char *second)
{
    float before, after;
    struct rp_graph_info info = {.size = sizeof info};
    rpt_read(s->f, s->args[1].address, &before, 1);
    rp_graph_info(s->graph, &info);
    uint64_t replays = info.replays;
    assert_int_equal(rp_graph_replay(s->graph, s->args, 2, NULL, &s->f->err), RP_ERROR_CONTRACT);
    rpt_says(s->f, first);
    rpt_says(s->f, second);
    rpt_read(s->f, s->args[1].address, &after, 1);
    rp_graph_info(s->graph, &info);
    assert_true(before == after);
    assert_int_equal(info.replays, replays);
}

static struct rp_pool *make_pool(struct rpt_fixture *f, enum rp_pool_kind kind,
                                 struct rp_pool *parent)
{
    struct rp_pool *pool;
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    options.kind = kind;
    options.parent = parent;
    options.name = "inner";
    RPT_OK(f, rp_pool_create(f->device, &options, &pool, &f->err));
    return pool;
}

/* ---- The two silent errors ------------------------------------------------------------------*/

/* b = a + 2 x and a = x + x, at x = 1: 4. Before a was replayed, or after its memory was lost, b
 * would be something else. */
static void test_swapped_order(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool *pool = make_pool(f, RP_POOL_SEQUENCE, NULL);
    struct step a = {.f = f, .name = "a", .value = 2, .keeps = true, .room = 3};
    struct step b = {.f = f, .name = "b", .value = 2, .keeps = true, .reads = {&a}};
    struct step c = {.f = f, .name = "c", .value = 0, .reads = {&b}};
    capture(pool, &a);
    capture(pool, &b);
    capture(pool, &c);
    refused(&b, "graph 'b' reads block 1 (1024 bytes) of graph 'a'", "not been replayed yet");
    assert_true(replay(&a, 1) == 2);
    refused(&c, "graph 'c' reads block 1 (1024 bytes) of graph 'b'", "not been replayed yet");
    assert_true(replay(&b, 1) == 4);
    assert_true(replay(&c, 1) == 4);
    assert_true(replay(&b, 2) == 6); /* any number of times */
    assert_true(replay(&c, 1) == 6);
    assert_true(replay(&a, 3) == 6); /* a next iteration, in its temporary what b keeps */
    uint64_t kept = b.kept - pool->core->memory.arena.base;
    assert_true(rpi_ranges_overlap(&a.graph->member.all, kept, kept + BYTES));
    refused(&c, "graph 'c' reads block 1 (1024 bytes) of graph 'b'",
            "which a replay of 'a' has overwritten: replay 'b' again before 'c'");
    assert_true(replay(&b, 3) == 12);
    assert_true(replay(&c, 3) == 12);
    finish(&c);
    finish(&b);
    finish(&a);
    rp_pool_destroy(pool);
}

/* A kernel may go by the address that it finds in a table: nobody sees it do so. */
static void test_named_in_a_table(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool *pool = make_pool(f, RP_POOL_SEQUENCE, NULL);
    struct step a = {.f = f, .name = "a", .value = 2, .keeps = true};
    struct step b = {.f = f, .name = "b", .value = 2, .tabled = &a};
    capture(pool, &a);
    capture(pool, &b);
    refused(&b, "graph 'b' reads block 1 (1024 bytes) of graph 'a'", "not been replayed yet");
    assert_true(replay(&a, 1) == 2);
    assert_true(replay(&b, 1) == 2);
    finish(&b);
    finish(&a);
    rp_pool_destroy(pool);
}

/* Gradients of three layers, each 2 x what its forward pass saved: 4, 6, 8. */
static void test_interleaved_layers(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool *pool = make_pool(f, RP_POOL_ALTERNATIVES, NULL);
    struct rp_pool *layers[3];
    struct step forward[3], backward[3];
    static const char *const names[] = {"forward 1", "forward 2", "forward 3"};
    for (int i = 0; i < 3; i++) {
        layers[i] = make_pool(f, RP_POOL_SEQUENCE, pool);
        forward[i] = (struct step){.f = f, .name = names[i], .value = 2, .keeps = true};
        backward[i] = (struct step){.f = f, .name = "backward", .value = 0, .reads = {&forward[i]}};
        capture(layers[i], &forward[i]);
        capture(layers[i], &backward[i]);
    }
    for (int i = 0; i < 3; i++) { /* layer by layer is right */
        replay(&forward[i], (float)i + 2);
        assert_true(replay(&backward[i], 0) == 2 * ((float)i + 2));
    }
    for (int i = 0; i < 3; i++)
        replay(&forward[i], (float)i + 2);
    assert_true(replay(&backward[2], 0) == 8);
    refused(&backward[1], "'backward' reads block 1 (1024 bytes) of graph 'forward 2'",
            "a replay of 'forward 3' has overwritten");
    refused(&backward[0], "of graph 'forward 1'", "a replay of 'forward 3' has overwritten");
    for (int i = 0; i < 3; i++) {
        finish(&backward[i]);
        finish(&forward[i]);
        rp_pool_destroy(layers[i]);
    }
    rp_pool_destroy(pool);
}

/* ---- Blocks that were released --------------------------------------------------------------*/

/* Microbatches, one after the other: each lies over the one before, and its block over the one that
 * that was done with. */
static void test_released(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool *pool = make_pool(f, RP_POOL_SEQUENCE, NULL);
    struct step forward[] = {{.f = f, .name = "forward 1", .value = 2, .keeps = true},
                             {.f = f, .name = "forward 2", .value = 3, .keeps = true},
                             {.f = f, .name = "forward 3", .value = 4, .keeps = true}};
    struct step backward[] = {{.f = f, .name = "backward 1", .reads = {&forward[0]}},
                              {.f = f, .name = "backward 2", .reads = {&forward[1]}},
                              {.f = f, .name = "backward 3", .reads = {&forward[2]}}};
    struct step gone = {.f = f, .name = "gone"}; /* its place in the sequence stays empty */
    struct step late = {.f = f, .name = "late", .reads = {&forward[0]}};
    struct rp_pool_info one = {.size = sizeof one}, two = {.size = sizeof two};
    capture(pool, &gone);
    finish(&gone);
    for (int i = 0; i < 3; i++) {
        struct rp_estimate *estimate;
        struct rp_estimate_info foreseen = {.size = sizeof foreseen};
        set_buffers(&forward[i]);
        RPT_OK(f, rp_estimate_create(&estimate, &f->err));
        RPT_OK(f, rp_estimate_add(estimate, pool, NULL, run_step, &forward[i], forward[i].args, 2,
                                  &f->err));
        rp_estimate_info(estimate, &foreseen);
        rp_estimate_destroy(estimate);
        capture(pool, &forward[i]);
        rp_pool_info(pool, &two);
        assert_int_equal(foreseen.planned_bytes, two.planned_bytes);
        assert_int_equal(foreseen.lower_bound_bytes, two.lower_bound_bytes);
        capture(pool, &backward[i]);
        RPT_OK(f, rp_graph_release(forward[i].graph, &f->err));
        rp_pool_info(pool, i ? &two : &one);
    }
    assert_true(forward[0].kept == forward[1].kept && forward[0].kept == forward[2].kept);
    assert_int_equal(two.planned_bytes, one.planned_bytes);
    assert_int_equal(two.lower_bound_bytes, one.lower_bound_bytes);
    for (int i = 0; i < 6; i++) { /* as they were captured, again and again */
        replay(&forward[i % 3], (float)i);
        assert_true(replay(&backward[i % 3], 0) == (float)((2 + i % 3) * i));
    }
    replay(&forward[0], 1);
    replay(&forward[1], 1);
    refused(&backward[0], "'backward 1' reads block 1 (1024 bytes) of graph 'forward 1'",
            "which a replay of 'forward 2' has overwritten: replay 'forward 1' again");
    assert_true(replay(&backward[1], 0) == 3);
    assert_int_equal(try_capture(pool, &late), RP_ERROR_CAPTURE);
    rpt_says(f, "of graph 'forward 1', which was released");
    assert_int_equal(rp_graph_release(NULL, &f->err), RP_ERROR_INVALID_ARGUMENT);
    finish(&late);
    for (int i = 0; i < 3; i++) {
        finish(&backward[i]);
        finish(&forward[i]);
    }
    rp_pool_destroy(pool);
}

/* ---- Graphs that are destroyed --------------------------------------------------------------*/

static void test_destroyed_writer(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool *pool = make_pool(f, RP_POOL_SEQUENCE, NULL);
    struct step a = {.f = f, .name = "a", .value = 2, .keeps = true};
    struct step b = {.f = f, .name = "b", .value = 1, .reads = {&a}};
    struct step c = {.f = f, .name = "c", .value = 7, .keeps = true};
    capture(pool, &a);
    capture(pool, &b);
    replay(&a, 1);
    assert_true(replay(&b, 1) == 3);
    finish(&a);
    refused(&b, "of graph 'a', which was destroyed", "capture 'b' again");
    capture(pool, &c); /* over what a kept */
    replay(&c, 1);
    refused(&b, "of graph 'a', which was destroyed", "capture 'b' again");
    finish(&c);
    finish(&b);
    rp_pool_destroy(pool);
}

/* What a graph overwrote stays overwritten when it is gone, also for who is captured after that. */
static void test_destroyed_overwriter(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool *pool = make_pool(f, RP_POOL_ALTERNATIVES, NULL);
    struct rp_pool *sequence = make_pool(f, RP_POOL_SEQUENCE, pool);
    struct step a = {.f = f, .name = "a", .value = 2, .keeps = true};
    struct step b = {.f = f, .name = "b", .value = 1, .reads = {&a}};
    struct step late = {.f = f, .name = "late", .value = 1, .reads = {&a}};
    struct step other = {.f = f, .name = "other", .value = 7, .keeps = true};
    capture(sequence, &a);
    capture(sequence, &b);
    capture(pool, &other);
    replay(&a, 1);
    replay(&b, 1);
    replay(&other, 1);
    finish(&other);
    refused(&b, "of graph 'a'", "a replay of 'other', destroyed since, has overwritten");
    finish(&b);
    capture(sequence, &late);
    refused(&late, "of graph 'a'", "a replay of 'other', destroyed since, has overwritten");
    replay(&a, 3);
    assert_true(replay(&late, 1) == 7);
    finish(&late);
    finish(&a);
    rp_pool_destroy(sequence);
    rp_pool_destroy(pool);
}

/* ---- Graphs that change what others keep ----------------------------------------------------*/

static void check_changes(struct rpt_fixture *f, enum change change, bool strict)
{
    struct rp_pool *pool;
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    options.kind = RP_POOL_SEQUENCE;
    options.strict_order = strict;
    RPT_OK(f, rp_pool_create(f->device, &options, &pool, &f->err));
    bool demanded = change == CHANGE_BY_FILL || strict;
    struct step a = {.f = f, .name = "a", .value = 2, .keeps = true};
    struct step b = {.f = f, .name = "b", .value = 1, .reads = {&a}, .change = change};
    struct step c = {.f = f, .name = "c", .value = 0, .reads = {&a}};
    capture(pool, &a);
    capture(pool, &b);
    capture(pool, &c);
    float changed = change == CHANGE_NOTHING ? 2 : 50;
    replay(&a, 1);
    if (demanded)
        refused(&c, "graph 'c' reads block 1 (1024 bytes) of graph 'a', as 'b' leaves it",
                "replay 'b' before 'c'");
    else
        assert_true(replay(&c, 1) == 2);
    replay(&b, 1);
    assert_true(replay(&c, 1) == changed);
    assert_true(replay(&b, 1) == 1 + changed); /* again without a: it goes on from there */
    assert_true(replay(&c, 1) == changed);
    replay(&a, 4);
    if (demanded)
        refused(&c, "as 'b' leaves it", "not replayed after 'a'");
    else
        assert_true(replay(&c, 1) == 8);
    finish(&b);
    if (demanded)
        refused(&c, "as 'b' leaves it", "destroyed and not replayed after 'a'");
    finish(&c);
    finish(&a);
    rp_pool_destroy(pool);
}

static void test_changed_blocks(void **state)
{
    check_changes(*state, CHANGE_NOTHING, false);
    check_changes(*state, CHANGE_NOTHING, true);
    check_changes(*state, CHANGE_BY_KERNEL, false);
    check_changes(*state, CHANGE_BY_KERNEL, true);
    check_changes(*state, CHANGE_BY_FILL, false);
}

/* Either of two alternatives that change a block will do, and one that does not as well. */
static void test_changed_by_alternatives(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool *pool = make_pool(f, RP_POOL_SEQUENCE, NULL);
    struct step a = {.f = f, .name = "a", .value = 2, .keeps = true};
    struct step one = {.f = f, .name = "one", .reads = {&a}, .change = CHANGE_BY_FILL};
    struct step two = {.f = f, .name = "two", .reads = {&a}, .change = CHANGE_BY_FILL};
    struct step none = {.f = f, .name = "none", .value = 1};
    struct step c = {.f = f, .name = "c", .value = 0, .reads = {&a}};
    capture(pool, &a);
    struct rp_pool *inner = make_pool(f, RP_POOL_ALTERNATIVES, pool);
    capture(inner, &one);
    capture(inner, &two);
    capture(inner, &none);
    capture(pool, &c);
    replay(&a, 1);
    refused(&c, "of graph 'a', as '", "not replayed after 'a'");
    replay(&two, 1);
    assert_true(replay(&c, 1) == 50);
    replay(&a, 1);
    replay(&none, 1);
    assert_true(replay(&c, 1) == 2);
    struct step *all[] = {&c, &none, &two, &one, &a};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        finish(all[i]);
    rp_pool_destroy(inner);
    rp_pool_destroy(pool);
}

/* ---- Addresses that outlived their block ----------------------------------------------------*/

/* Alternatives read nothing of each other. */
static void test_kept_of_an_alternative(void **state)
{
    struct rpt_fixture *f = *state;
    struct step a = {.f = f, .name = "a", .value = 2, .keeps = true};
    struct step b = {.f = f, .name = "b", .value = 1, .keeps = true, .stolen = &a.kept};
    capture(f->pool, &a);
    assert_int_equal(try_capture(f->pool, &b), RP_ERROR_CAPTURE);
    rpt_says(f, "'b': node 2 (kernel rpt_fill) uses 0x");
    rpt_says(f, "block 1 of graph 'a', which comes before it in no sequence");
    finish(&b);
    finish(&a);
}

static void test_freed_of_an_earlier_graph(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool *pool = make_pool(f, RP_POOL_SEQUENCE, NULL);
    struct step a = {.f = f, .name = "a", .value = 2};
    struct step b = {.f = f, .name = "b", .value = 1, .keeps = true, .stolen = &a.temporary};
    capture(pool, &a);
    assert_int_equal(try_capture(pool, &b), RP_ERROR_CAPTURE);
    rpt_says(f, "block 0 of graph 'a', which frees it");
    finish(&a);
    assert_int_equal(try_capture(pool, &b), RP_ERROR_CAPTURE);
    rpt_says(f, "memory of the pool that no graph has now");
    finish(&b);
    rp_pool_destroy(pool);
}

static void test_of_another_pool(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool *pool = make_pool(f, RP_POOL_SEQUENCE, NULL);
    struct step a = {.f = f, .name = "a", .value = 2, .keeps = true};
    struct step b = {.f = f, .name = "b", .value = 1, .stolen = &a.kept};
    capture(f->pool, &a);
    assert_int_equal(try_capture(pool, &b), RP_ERROR_CAPTURE);
    rpt_says(f, "memory of pool 'pool'");
    RPT_OK(f, rp_run(f->pool, run_step, &a, a.args, 2, NULL, &f->err));
    assert_int_equal(try_capture(pool, &b), RP_ERROR_CAPTURE);
    rpt_says(f, "memory of eager runs of pool 'pool'");
    finish(&b);
    finish(&a);
    rp_pool_destroy(pool);
}

/* A word among padding that looks like such an address: it may be what an earlier call left on the
 * stack, so it is no reason to refuse. One that is a kept block of an earlier graph counts as use.
 */
struct padded_step {
    struct rpt_fixture *f;
    const uint64_t *rubbish;
    CUdeviceptr target;
};

static rp_status run_padded(struct rp_call *call, void *user, struct rp_error *err)
{
    struct padded_step *s = user;
    union {
        struct rpt_padded_param param;
        unsigned char bytes[sizeof(struct rpt_padded_param)];
    } padded;
    uint64_t to = rp_call_arg(call, 0);
    uint64_t word = *s->rubbish;
    memset(&padded, 0, sizeof padded);
    memcpy(padded.bytes + 16, &word, sizeof word); /* index is 2 bytes of it, the rest padding */
    memcpy(padded.bytes + offsetof(struct rpt_padded_param, to), &to, sizeof to);
    void *params[] = {&padded};
    return rpt_launch(s->f, s->f->padded, rp_call_stream(call), params, err);
}

static void test_padding(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool *pool = make_pool(f, RP_POOL_SEQUENCE, NULL);
    struct step a = {.f = f, .name = "a", .value = 2, .keeps = true};
    capture(pool, &a);
    uint64_t in = rpt_buffer(f, 65536, 1);
    const uint64_t inside = a.temporary + 64; /* it may begin where the kept block ends */
    const uint64_t *words[] = {&inside, &a.kept};
    for (int i = 0; i < 2; i++) {
        struct padded_step p = {.f = f, .rubbish = words[i]};
        struct rp_arg arg = rpt_arg(in, 65536, RP_ARG_INOUT);
        struct rp_graph *graph;
        RPT_OK(f, rp_graph_capture(pool, NULL, run_padded, &p, &arg, 1, &graph, &f->err));
        if (i == 1)
            assert_int_equal(rp_graph_replay(graph, &arg, 1, NULL, &f->err), RP_ERROR_CONTRACT);
        else
            RPT_OK(f, rp_graph_replay(graph, &arg, 1, NULL, &f->err));
        rp_graph_destroy(graph);
    }
    finish(&a);
    f->driver->cuMemFree(in);
    rp_pool_destroy(pool);
}

/* Kept blocks of alternatives at one address: whichever was replayed last is what is read. */
static void test_alternative_writers(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool *pool = make_pool(f, RP_POOL_SEQUENCE, NULL);
    struct rp_pool *inner = make_pool(f, RP_POOL_ALTERNATIVES, pool);
    struct step one = {.f = f, .name = "one", .value = 2, .keeps = true};
    struct step two = {.f = f, .name = "two", .value = 3, .keeps = true};
    struct step c = {.f = f, .name = "c", .value = 0, .reads = {&one}};
    capture(inner, &one);
    capture(inner, &two);
    assert_true(one.kept == two.kept);
    capture(pool, &c);
    refused(&c, "graph 'c' reads block 1 (1024 bytes) of graph 'one'", "not been replayed");
    replay(&one, 1);
    assert_true(replay(&c, 1) == 2);
    replay(&two, 1);
    assert_true(replay(&c, 1) == 3);
    finish(&two);
    replay(&one, 5);
    assert_true(replay(&c, 1) == 10);
    finish(&c);
    finish(&one);
    rp_pool_destroy(inner);
    rp_pool_destroy(pool);
}

/* ---- Kept blocks as arguments ---------------------------------------------------------------*/

static void test_kept_block_as_argument(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool *pool = make_pool(f, RP_POOL_ALTERNATIVES, NULL);
    struct rp_pool *sequence = make_pool(f, RP_POOL_SEQUENCE, pool);
    struct step a = {.f = f, .name = "a", .value = 2, .keeps = true};
    struct step look = {.f = f, .name = "look", .value = 1};
    struct step other = {.f = f, .name = "other", .value = 7, .keeps = true};
    capture(sequence, &a);
    capture(sequence, &look);
    capture(pool, &other);
    struct rp_arg args[] = {look.args[0], look.args[1]};
    args[0].address = a.kept;
    assert_int_equal(rp_graph_replay(look.graph, args, 2, NULL, &f->err), RP_ERROR_CONTRACT);
    rpt_says(f, "lies in block 1 of graph 'a', which does not hold what that wrote");
    replay(&a, 3);
    float first;
    for (int i = 0; i < 2; i++) { /* out of the block as often as one likes */
        RPT_OK(f, rp_graph_replay(look.graph, args, 2, NULL, &f->err));
        rpt_read(f, args[1].address, &first, 1);
        assert_true(first == 6);
    }
    replay(&other, 1);
    assert_int_equal(rp_graph_replay(look.graph, args, 2, NULL, &f->err), RP_ERROR_CONTRACT);
    rpt_says(f, "or another replay has overwritten it");
    args[0].address = a.temporary;
    assert_int_equal(rp_graph_replay(other.graph, args, 2, NULL, &f->err), RP_OK); /* its own */
    finish(&other);
    finish(&look);
    finish(&a);
    rp_pool_destroy(sequence);
    rp_pool_destroy(pool);
}

/* ---- Others at work -------------------------------------------------------------------------*/

struct bystander {
    struct rpt_fixture *f;
    struct rp_pool *pool;
    struct rp_heap *heap;
    struct rp_graph *graph;
};

static void *destroy_all(void *user)
{
    struct bystander *b = user;
    rp_graph_destroy(b->graph);
    rp_pool_destroy(b->pool);
    rp_heap_destroy(b->heap);
    return NULL;
}

/* While it is captured another thread destroys a graph, a pool and a heap. */
static rp_status run_disturbed(struct rp_call *call, void *user, struct rp_error *err)
{
    struct bystander *b = user;
    pthread_t thread;
    rp_status status = rpt_scale(b->f, rp_call_stream(call), rp_call_arg(call, 1),
                                 rp_call_arg(call, 0), 2, COUNT, err);
    if (b->pool) {
        assert_int_equal(pthread_create(&thread, NULL, destroy_all, b), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        b->pool = NULL;
    }
    return status;
}

static void test_captures_are_not_disturbed(void **state)
{
    struct rpt_fixture *f = *state;
    struct bystander b = {.f = f, .pool = make_pool(f, RP_POOL_ALTERNATIVES, NULL)};
    struct step a = {.f = f, .name = "a", .value = 2};
    struct rp_graph *graph;
    uint64_t block;
    capture(b.pool, &a);
    replay(&a, 1);
    b.graph = a.graph;
    RPT_OK(f, rp_heap_create(f->device, NULL, &b.heap, &f->err));
    RPT_OK(f, rp_heap_alloc(b.heap, 1000, f->streams[0], &block, &f->err));
    RPT_OK(f, rp_graph_capture(f->pool, NULL, run_disturbed, &b, a.args, 2, &graph, &f->err));
    assert_null(b.pool);
    rp_graph_destroy(graph);
    a.graph = NULL;
    finish(&a);
}

static _Atomic bool may_go;

static void block_stream(void *user)
{
    (void)user;
    while (!atomic_load(&may_go))
        sched_yield();
}

static _Atomic bool is_over;

static void take_time(void *user)
{
    const struct timespec pause = {.tv_nsec = 30000000};
    block_stream(user);
    nanosleep(&pause, NULL);
    atomic_store(&is_over, true);
}

/* A block's memory is given away when its graph is destroyed: not while a reader is at work. */
static void test_destroying_waits_for_readers(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool *pool = make_pool(f, RP_POOL_SEQUENCE, NULL);
    struct step a = {.f = f, .name = "a", .value = 2, .keeps = true};
    struct step b = {.f = f, .name = "b", .value = 1, .reads = {&a}};
    capture(pool, &a);
    capture(pool, &b);
    replay(&a, 1);
    atomic_store(&may_go, false);
    atomic_store(&is_over, false);
    assert_int_equal(f->driver->cuLaunchHostFunc(f->streams[0], take_time, NULL), 0);
    RPT_OK(f, rp_graph_replay(b.graph, b.args, 2, f->streams[0], &f->err));
    atomic_store(&may_go, true);
    rp_graph_destroy(a.graph);
    assert_true(atomic_load(&is_over));
    a.graph = NULL;
    finish(&b);
    finish(&a);
    rp_pool_destroy(pool);
}

/* What the program enqueued behind the last replay may use what the graph keeps. */
static void test_waiting_for_what_is_behind_a_replay(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool *pool = make_pool(f, RP_POOL_SEQUENCE, NULL);
    struct step a = {.f = f, .name = "a", .value = 2, .keeps = true};
    CUgraph graph = NULL;
    capture(pool, &a);
    RPT_OK(f, rp_graph_wait(a.graph, &f->err)); /* for nothing */
    RPT_OK(f, rp_graph_replay(a.graph, a.args, 2, f->streams[0], &f->err));
    atomic_store(&may_go, true);
    atomic_store(&is_over, false);
    assert_int_equal(f->driver->cuLaunchHostFunc(f->streams[0], take_time, NULL), 0);
    RPT_OK(f, rp_graph_wait(a.graph, &f->err));
    assert_true(atomic_load(&is_over));
    assert_int_equal(f->driver->cuStreamBeginCapture(f->streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL),
                     0);
    RPT_OK(f, rp_graph_wait(a.graph, &f->err));
    assert_int_equal(f->driver->cuStreamEndCapture(f->streams[0], &graph), 0);
    assert_int_equal(f->driver->cuGraphDestroy(graph), 0);
    assert_int_equal(rp_graph_wait(NULL, &f->err), RP_ERROR_INVALID_ARGUMENT);
    rpt_says(f, "graph is NULL");
    finish(&a);
    rp_pool_destroy(pool);
}

static void test_strict_overlap(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool *pool;
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    options.strict_overlap = 1;
    options.name = "careful";
    RPT_OK(f, rp_pool_create(f->device, &options, &pool, &f->err));
    struct step a = {.f = f, .name = "a", .value = 2};
    struct step b = {.f = f, .name = "b", .value = 3};
    capture(pool, &a);
    capture(pool, &b);
    atomic_store(&may_go, false);
    assert_int_equal(f->driver->cuLaunchHostFunc(f->streams[0], block_stream, NULL), 0);
    RPT_OK(f, rp_graph_replay(a.graph, a.args, 2, f->streams[0], &f->err));
    assert_int_equal(rp_graph_replay(b.graph, b.args, 2, f->streams[1], &f->err),
                     RP_ERROR_CONTRACT);
    rpt_says(f, "'b' would run while a replay of 'a' on another stream is not over");
    RPT_OK(f, rp_graph_replay(b.graph, b.args, 2, f->streams[0], &f->err)); /* behind it */
    atomic_store(&may_go, true);
    assert_int_equal(f->driver->cuStreamSynchronize(f->streams[0]), 0);
    RPT_OK(f, rp_graph_replay(a.graph, a.args, 2, f->streams[1], &f->err));
    assert_int_equal(f->driver->cuStreamSynchronize(f->streams[1]), 0);
    finish(&b);
    finish(&a);
    rp_pool_destroy(pool);
}

/* ---- Faults ---------------------------------------------------------------------------------*/

/* Two graphs of which one reads the other, on a device of their own; each step is done again where
 * it fails. */
static bool read_across(const struct rp_driver *driver, void *user)
{
    const struct step *lender = user; /* of its buffers */
    struct rpt_fixture *f = lender->f;
    struct rp_device *device = NULL;
    struct rp_pool *pool = NULL;
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    struct step a = {.f = f, .name = "a", .value = 2, .keeps = true};
    struct step b = {.f = f, .name = "b", .value = 1, .reads = {&a}};
    struct step *steps[] = {&a, &b};
    bool fine = true;
    memcpy(a.args, lender->args, sizeof a.args);
    memcpy(b.args, lender->args, sizeof b.args);
    options.kind = RP_POOL_SEQUENCE;
    if (rpi_device_open_on(driver, 0, &device, &f->err) != RP_OK)
        RPT_OK(f, rpi_device_open_on(driver, 0, &device, &f->err));
    if (rp_pool_create(device, &options, &pool, &f->err) != RP_OK)
        RPT_OK(f, rp_pool_create(device, &options, &pool, &f->err));
    for (int i = 0; i < 2; i++)
        if (try_capture(pool, steps[i]) != RP_OK)
            capture(pool, steps[i]);
    for (int i = 0; i < 4; i++) {
        struct step *s = steps[i % 2];
        if (rp_graph_replay(s->graph, s->args, 2, f->streams[0], &f->err) == RP_OK)
            continue;
        assert_int_not_equal(f->err.status, RP_ERROR_INTERNAL);
        if (i % 2) /* nobody reads what was written by half */
            fine &= f->err.status != RP_ERROR_CONTRACT;
        RPT_OK(f, rp_graph_replay(s->graph, s->args, 2, f->streams[0], &f->err));
    }
    float first = 0;
    fine &= f->driver->cuCtxSynchronize() == CUDA_SUCCESS &&
            f->driver->cuMemcpyDtoH(&first, b.args[1].address, sizeof first) == CUDA_SUCCESS &&
            first == 3;
    rp_graph_destroy(a.graph);
    rp_graph_destroy(b.graph);
    rp_pool_destroy(pool);
    rp_device_destroy(device);
    return fine;
}

static void test_faults(void **state)
{
    struct rpt_fixture *f = *state;
    struct step lender = {.f = f};
    struct rpt_scenario scenario = {.run = read_across, .user = &lender};
    set_buffers(&lender);
    assert_true(rpt_fault_loop(f->driver, &scenario, CUDA_ERROR_UNKNOWN) > 50);
    struct rpi_host_options before = rpt_ignore_races();
    int64_t faults = rpt_memory_fault_loop(f->driver, &scenario);
    rpi_host_configure(&before);
    assert_true(faults > 50);
    finish(&lender);
}

/* ---- Modes ----------------------------------------------------------------------------------*/

static void count_warnings(enum rp_log_level level, const char *message, void *user)
{
    if (level == RP_LOG_WARNING && strstr(message, "reads block 1 (1024 bytes) of graph 'a'"))
        ++*(int *)user;
}

static void test_warn(void **state)
{
    struct rpt_fixture *f = *state;
    struct rp_pool *outer, *pool;
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    options.contract = RP_CONTRACT_WARN;
    RPT_OK(f, rp_pool_create(f->device, &options, &outer, &f->err));
    pool = make_pool(f, RP_POOL_SEQUENCE, outer); /* warns too */
    struct step a = {.f = f, .name = "a", .value = 2, .keeps = true};
    struct step b = {.f = f, .name = "b", .value = 1, .reads = {&a}};
    capture(pool, &a);
    capture(pool, &b);
    int warnings = 0;
    rp_set_log(count_warnings, &warnings, RP_LOG_WARNING);
    RPT_OK(f, rp_graph_replay(b.graph, b.args, 2, NULL, &f->err));
    assert_int_equal(warnings, 1);
    replay(&a, 1);
    assert_true(replay(&b, 1) == 3);
    assert_int_equal(warnings, 1);
    rp_set_log(NULL, NULL, RP_LOG_ERROR);
    finish(&b);
    finish(&a);
    rp_pool_destroy(pool);
    rp_pool_destroy(outer);
    options.contract = (enum rp_contract)2;
    assert_int_equal(rp_pool_create(f->device, &options, &pool, &f->err),
                     RP_ERROR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RPT_TEST(test_swapped_order),
        RPT_TEST(test_named_in_a_table),
        RPT_TEST(test_interleaved_layers),
        RPT_TEST(test_released),
        RPT_TEST(test_destroyed_writer),
        RPT_TEST(test_destroyed_overwriter),
        RPT_TEST(test_changed_blocks),
        RPT_TEST(test_changed_by_alternatives),
        RPT_TEST(test_kept_of_an_alternative),
        RPT_TEST(test_freed_of_an_earlier_graph),
        RPT_TEST(test_of_another_pool),
        RPT_TEST(test_padding),
        RPT_TEST(test_alternative_writers),
        RPT_TEST(test_kept_block_as_argument),
        RPT_TEST(test_captures_are_not_disturbed),
        RPT_TEST(test_destroying_waits_for_readers),
        RPT_TEST(test_waiting_for_what_is_behind_a_replay),
        RPT_TEST(test_strict_overlap),
        RPT_TEST(test_faults),
        RPT_TEST(test_warn),
    };
    return cmocka_run_group_tests_name("contract order", tests, NULL, NULL);
}
