/* SPDX-License-Identifier: MIT
 *
 * Random programs on the heap beside a model that knows nothing of how the heap works: what is
 * live, what was asked for, and which freed blocks another stream may still use. No two of these
 * overlap, what is written into one stays there, the statistics equal a recount to the byte, peaks
 * included; with and without oversize blocks and coarser rounding; from one thread and from
 * several.
 */
#include "heap_fixture.h"

#include <stdbool.h>
#include <stdio.h>

enum { MOST_LIVE = 400, THREADS = 4 };

static struct heap_fixture f;

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

struct live {
    uint64_t address, requested, bytes, mark;
    int pool; /* RPI_HEAP_SMALL_POOL, LARGE_POOL or OVERSIZE_POOL */
    bool used;
};

/* What the statistics have to be. */
struct figure {
    int64_t now, peak, up, down;
};
enum { COUNT, BYTES, ACTIVE_COUNT, ACTIVE_BYTES, REQUESTED, FIGURES };

/* Blocks that streams[USER] uses are freed while the gate keeps that stream from going on: they are
 * `waiting` until it is opened, and nobody may have their memory. */
enum { USER = HEAP_STREAMS - 1 };

struct model {
    struct live live[MOST_LIVE], waiting[MOST_LIVE];
    size_t count, waiting_count;
    struct figure figures[FIGURES][RPI_HEAP_POOLS];
    struct heap_gate gate;
    bool held; /* the gate is closed */
    bool oversize, rounds;
};

static void change(struct figure *figure, int64_t by)
{
    figure->now += by;
    figure->up += by > 0 ? by : 0;
    figure->down -= by < 0 ? by : 0;
    if (figure->now > figure->peak)
        figure->peak = figure->now;
}

/* Changes figures `from` to before `to`. */
static void count(struct model *model, const struct live *live, int from, int to, int sign)
{
    const int64_t by[FIGURES] = {1, (int64_t)live->bytes, 1, (int64_t)live->bytes,
                                 (int64_t)live->requested};
    for (int i = from; i < to; i++) {
        change(&model->figures[i][RPI_HEAP_ALL], sign * by[i]);
        change(&model->figures[i][live->pool], sign * by[i]);
        if (live->pool == RPI_HEAP_OVERSIZE_POOL)
            change(&model->figures[i][RPI_HEAP_LARGE_POOL], sign * by[i]);
    }
}

static void same_figure(const char *name, const struct figure *want)
{
    static const char *const parts[] = {"current", "peak", "allocated", "freed"};
    const int64_t values[] = {want->now, want->peak, want->up, want->down};
    for (int part = 0; part < 4; part++) {
        char whole[80];
        snprintf(whole, sizeof whole, "%s.%s", name, parts[part]);
        if (heap_stat(&f, whole) != values[part])
            print_error("%s\n", whole);
        assert_int_equal(heap_stat(&f, whole), values[part]);
    }
}

static void same_figures(const struct model *model)
{
    static const char *const names[FIGURES] = {"allocation", "allocated_bytes", "active",
                                               "active_bytes", "requested_bytes"};
    static const char *const pools[] = {"all", "large_pool", "small_pool"};
    for (int i = 0; i < FIGURES; i++) {
        for (int pool = 0; pool < 3; pool++) {
            char name[64];
            snprintf(name, sizeof name, "%s.%s", names[i], pools[pool]);
            same_figure(name, &model->figures[i][pool]);
        }
    }
    same_figure("oversize_allocations", &model->figures[COUNT][RPI_HEAP_OVERSIZE_POOL]);
}

static uint64_t random_bytes(uint64_t r)
{
    switch (r % 8) {
    case 0:
        return 1 + (r >> 8) % (30 * MIB);
    case 1:
    case 2:
        return 1 + (r >> 8) % (2 * MIB);
    case 3:
        return 512;
    default:
        return 1 + (r >> 8) % 20000;
    }
}

static void apart(const struct live *a, const struct live *b)
{
    assert_true(a->address + a->bytes <= b->address || b->address + b->bytes <= a->address);
}

static void no_overlap(const struct model *model, const struct live *new)
{
    for (size_t i = 0; i < model->count; i++)
        apart(new, &model->live[i]);
    for (size_t i = 0; i < model->waiting_count; i++)
        apart(new, &model->waiting[i]);
}

/* With OVERSIZE_FROM and DIVISIONS of each power of two, where the program has them. */
#define OVERSIZE_FROM (24 * MIB)
#define DIVISIONS     4

static uint64_t round_up(const struct model *model, uint64_t bytes)
{
    uint64_t part = 512, power = 1;
    while (2 * power <= bytes)
        power *= 2;
    if (model->rounds && bytes > 512 * DIVISIONS)
        part = power / DIVISIONS;
    return (bytes + part - 1) / part * part;
}

static void add(struct model *model, uint64_t requested, CUstream stream, uint64_t mark)
{
    uint64_t rounded = round_up(model, requested);
    struct live new = {heap_take(&f, requested, stream),
                       requested,
                       rounded,
                       mark,
                       rounded <= MIB ? RPI_HEAP_SMALL_POOL : RPI_HEAP_LARGE_POOL,
                       false};
    struct rp_heap_block block = {.size = sizeof block};
    HEAP_OK(&f, rp_heap_find(f.heap, new.address + requested - 1, &block, &f.err));
    assert_int_equal(block.address, new.address);
    assert_int_equal(block.requested, requested);
    if (model->oversize && rounded >= OVERSIZE_FROM) {
        new.pool = RPI_HEAP_OVERSIZE_POOL;
        new.bytes = block.bytes;
        assert_true(block.bytes >= rounded && block.bytes < rounded + 20 * MIB);
        assert_int_equal(block.bytes % (2 * MIB), 0);
    }
    assert_int_equal(block.bytes, new.bytes);
    assert_int_equal(new.address % 512, 0);
    no_overlap(model, &new);
    *(volatile uint64_t *)new.address = mark;
    *(volatile uint64_t *)(new.address + new.bytes - 8) = mark;
    model->live[model->count++] = new;
    count(model, &new, 0, FIGURES, 1);
}

static void same_marks(const struct live *old)
{
    assert_int_equal(*(volatile uint64_t *)old->address, old->mark);
    assert_int_equal(*(volatile uint64_t *)(old->address + old->bytes - 8), old->mark);
}

static void open_gate(struct model *model)
{
    if (model->held) {
        heap_gate_open(&model->gate);
        assert_int_equal(f.driver->cuStreamSynchronize(f.streams[USER]), 0);
    }
    model->held = false;
    HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err)); /* waits for all that is not over */
    for (; model->waiting_count; model->waiting_count--) {
        struct live *old = &model->waiting[model->waiting_count - 1];
        count(model, old, ACTIVE_COUNT, FIGURES, -1);
    }
}

static void close_gate(struct model *model)
{
    if (model->held)
        return;
    model->gate.open = 0;
    model->held = true;
    heap_hold(&f, f.streams[USER], &model->gate);
}

/* Does so much wait that a stream may follow, and a block be given out that waits here? */
static bool is_followed(const struct model *model)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < model->waiting_count; i++)
        bytes += model->waiting[i].bytes;
    return bytes > 64 * MIB;
}

static void drop(struct model *model, size_t i)
{
    struct live old = model->live[i];
    same_marks(&old);
    heap_give(&f, old.address);
    model->live[i] = model->live[--model->count];
    count(model, &old, COUNT, ACTIVE_COUNT, -1);
    if (old.used)
        model->waiting[model->waiting_count++] = old;
    else
        count(model, &old, ACTIVE_COUNT, FIGURES, -1);
    if (old.used && (!model->held || model->waiting_count == MOST_LIVE || is_followed(model)))
        open_gate(model);
}

static void use(struct model *model, uint64_t r)
{
    struct live *block = &model->live[r % model->count];
    HEAP_OK(&f, rp_heap_use(f.heap, block->address, f.streams[USER], &f.err));
    block->used = true;
}

static void look(struct model *model, uint64_t r)
{
    if (r % 512 == 7)
        open_gate(model);
    if (r % 256 == 3)
        close_gate(model);
    if (r % 128 == 9)
        assert_true(rpi_heap_is_valid(f.heap));
    if (r % 256 == 11)
        same_figures(model);
    if (r % 64 == 5)
        for (size_t i = 0; i < model->waiting_count; i++)
            same_marks(&model->waiting[i]);
    if (r % 1024 == 13) {
        rp_heap_reset_peak(f.heap);
        for (int i = 0; i < RPI_HEAP_POOLS * FIGURES; i++)
            (&model->figures[0][0])[i].peak = (&model->figures[0][0])[i].now;
    }
    if (r % 1024 == 15) {
        rp_heap_reset_accumulated(f.heap);
        for (int i = 0; i < RPI_HEAP_POOLS * FIGURES; i++)
            (&model->figures[0][0])[i].up = (&model->figures[0][0])[i].down = 0;
    }
}

static void open_program(struct model *model, uint64_t seed)
{
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    *model =
        (struct model){.gate = HEAP_GATE_INIT, .oversize = seed % 3 == 1, .rounds = seed % 4 >= 2};
    if (model->oversize)
        options.max_split_bytes = OVERSIZE_FROM;
    for (int i = 0; model->rounds && i < RP_HEAP_ROUNDINGS; i++)
        options.roundup_power2_divisions[i] = DIVISIONS;
    heap_open(&f, rpi_driver_host(), &options, 16384 * MIB);
}

static void random_program(uint64_t seed, int steps)
{
    static struct model model;
    uint64_t random = seed * 0x9e3779b97f4a7c15u + 1;
    open_program(&model, seed);
    for (int step = 0; step < steps; step++) {
        uint64_t r = next_random(&random);
        bool grow = model.count < MOST_LIVE && (r % 16 < 9 || model.count == 0);
        if (grow)
            add(&model, random_bytes(next_random(&random)), f.streams[r / 16 % USER], r | 1);
        else if (model.held && r % 16 < 12)
            use(&model, r / 16);
        else
            drop(&model, r / 16 % model.count);
        look(&model, r);
    }
    same_figures(&model);
    while (model.count)
        drop(&model, model.count - 1);
    same_figures(&model);
    open_gate(&model);
    same_figures(&model);
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 0);
    assert_int_equal(heap_stat(&f, "segment.all.current"), 0);
    struct rpi_host_statistics held;
    rpi_host_statistics(&held);
    assert_int_equal(held.physical_bytes, 0);
    heap_close(&f);
}

static void random_programs_keep_the_books(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++)
        random_program(seed, 3000);
}

/* ---- Several threads -------------------------------------------------------------------------*/

struct worker {
    pthread_t id;
    uint64_t seed;
    CUstream stream;
    const char *failed;
    uint64_t live[64], bytes[64]; /* what is left at the end */
};

/* Blocks that other threads allocated and this one frees: a slot each, exchanged. */
static _Atomic uint64_t passed_on[32];

static void check(struct worker *w, bool holds, const char *what)
{
    if (!holds && !w->failed)
        w->failed = what;
}

static void step(struct worker *w, uint64_t *random)
{
    uint64_t r = next_random(random), i = r % 64;
    if (!w->live[i]) {
        w->bytes[i] = r % 32 == 5 ? 1 + (r >> 20) % (3 * MIB) : 8 + (r >> 20) % 9000;
        check(w, rp_heap_alloc(f.heap, w->bytes[i], w->stream, &w->live[i], NULL) == RP_OK,
              "alloc");
        if (w->failed)
            return;
        *(volatile uint64_t *)w->live[i] = w->live[i] ^ w->seed;
        return;
    }
    check(w, *(volatile uint64_t *)w->live[i] == (w->live[i] ^ w->seed), "overwritten");
    uint64_t address = w->live[i];
    w->live[i] = 0;
    if (r >> 60 == 1)
        address = atomic_exchange(&passed_on[(r >> 32) % 32], address);
    check(w, rp_heap_free(f.heap, address, NULL) == RP_OK, "free");
}

static void *work(void *argument)
{
    struct worker *w = argument;
    uint64_t random = w->seed;
    for (int i = 0; i < 40000 && !w->failed; i++) {
        step(w, &random);
        if (i % 5000 == 4999)
            check(w, rp_heap_empty_cache(f.heap, NULL) == RP_OK, "empty_cache");
        if (i % 3000 == 2999)
            check(w, rpi_heap_is_valid(f.heap), "not valid");
    }
    return NULL;
}

static void threads_keep_the_books(void **state)
{
    (void)state;
    static struct worker workers[THREADS];
    heap_open(&f, rpi_driver_host(), NULL, 8192 * MIB);
    memset(workers, 0, sizeof workers);
    /* Two threads share a stream. The last has the legacy one. */
    for (int i = 0; i < THREADS; i++) {
        workers[i].seed = 1000003u * (unsigned)(i + 1);
        workers[i].stream = i == THREADS - 1 ? NULL : f.streams[i / 2];
        assert_int_equal(pthread_create(&workers[i].id, NULL, work, &workers[i]), 0);
    }
    int64_t bytes = 0, blocks = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].id, NULL);
        if (workers[i].failed)
            print_error("%s\n", workers[i].failed);
        assert_null(workers[i].failed);
        for (int k = 0; k < 64; k++) {
            bytes += workers[i].live[k] ? (int64_t)workers[i].bytes[k] : 0;
            blocks += workers[i].live[k] != 0;
        }
    }
    for (int i = 0; i < 32; i++)
        heap_give(&f, atomic_exchange(&passed_on[i], 0));
    assert_true(rpi_heap_is_valid(f.heap));
    assert_int_equal(heap_stat(&f, "requested_bytes.all.current"), bytes);
    assert_int_equal(heap_stat(&f, "allocation.all.current"), blocks);
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < 64; k++)
            heap_give(&f, workers[i].live[k]);
    assert_int_equal(heap_stat(&f, "active_bytes.all.current"), 0);
    assert_int_equal(heap_stat(&f, "allocation.all.allocated"),
                     heap_stat(&f, "allocation.all.freed"));
    HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 0);
    heap_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_keep_the_books),
        cmocka_unit_test(threads_keep_the_books),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
