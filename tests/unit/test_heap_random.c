/* SPDX-License-Identifier: MIT
 *
 * Random programs on the heap beside a model that knows nothing of how the heap works: what is
 * live, and what was asked for. No two live blocks overlap, what is written into one stays there,
 * the statistics equal a recount to the byte, peaks included; from one thread and from several.
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
    bool small;
};

/* What the statistics have to be. */
struct figure {
    int64_t now, peak, up, down;
};
enum { COUNT, BYTES, REQUESTED, FIGURES };

struct model {
    struct live live[MOST_LIVE];
    size_t count;
    struct figure figures[FIGURES][3]; /* all, large, small */
};

static void change(struct figure *figure, int64_t by)
{
    figure->now += by;
    figure->up += by > 0 ? by : 0;
    figure->down -= by < 0 ? by : 0;
    if (figure->now > figure->peak)
        figure->peak = figure->now;
}

static void count(struct model *model, const struct live *live, int sign)
{
    const int64_t by[FIGURES] = {1, (int64_t)live->bytes, (int64_t)live->requested};
    for (int i = 0; i < FIGURES; i++) {
        change(&model->figures[i][0], sign * by[i]);
        change(&model->figures[i][live->small ? 2 : 1], sign * by[i]);
    }
}

static void same_figures(const struct model *model)
{
    static const char *const names[FIGURES][2] = {{"allocation", "active"},
                                                  {"allocated_bytes", "active_bytes"},
                                                  {"requested_bytes", "requested_bytes"}};
    static const char *const pools[] = {"all", "large_pool", "small_pool"};
    for (int i = 0; i < FIGURES; i++) {
        for (int pool = 0; pool < 3; pool++) {
            for (int alias = 0; alias < 2; alias++) {
                const struct figure *want = &model->figures[i][pool];
                const int64_t values[] = {want->now, want->peak, want->up, want->down};
                const char *const parts[] = {"current", "peak", "allocated", "freed"};
                for (int part = 0; part < 4; part++) {
                    char name[64];
                    snprintf(name, sizeof name, "%s.%s.%s", names[i][alias], pools[pool],
                             parts[part]);
                    if (heap_stat(&f, name) != values[part])
                        print_error("%s\n", name);
                    assert_int_equal(heap_stat(&f, name), values[part]);
                }
            }
        }
    }
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

static void no_overlap(const struct model *model, const struct live *new)
{
    for (size_t i = 0; i < model->count; i++) {
        const struct live *old = &model->live[i];
        assert_true(new->address + new->bytes <= old->address ||
                    old->address + old->bytes <= new->address);
    }
}

static void add(struct model *model, uint64_t requested, CUstream stream, uint64_t mark)
{
    struct live new = {heap_take(&f, requested, stream), requested, (requested + 511) / 512 * 512,
                       mark, (requested + 511) / 512 * 512 <= MIB};
    assert_int_equal(new.address % 512, 0);
    no_overlap(model, &new);
    *(volatile uint64_t *)new.address = mark;
    *(volatile uint64_t *)(new.address + new.bytes - 8) = mark;
    model->live[model->count++] = new;
    count(model, &new, 1);
}

static void drop(struct model *model, size_t i)
{
    struct live old = model->live[i];
    assert_int_equal(*(volatile uint64_t *)old.address, old.mark);
    assert_int_equal(*(volatile uint64_t *)(old.address + old.bytes - 8), old.mark);
    heap_give(&f, old.address);
    model->live[i] = model->live[--model->count];
    count(model, &old, -1);
}

static void random_program(uint64_t seed, int steps)
{
    static struct model model;
    uint64_t random = seed * 0x9e3779b97f4a7c15u + 1;
    memset(&model, 0, sizeof model);
    heap_open(&f, rpi_driver_host(), NULL, 8192 * MIB);
    for (int step = 0; step < steps; step++) {
        uint64_t r = next_random(&random);
        bool grow = model.count < MOST_LIVE && (r % 16 < 9 || model.count == 0);
        if (grow)
            add(&model, random_bytes(next_random(&random)), f.streams[r / 16 % 3], r | 1);
        else
            drop(&model, r / 16 % model.count);
        if (r % 512 == 7)
            HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
        if (r % 128 == 9)
            assert_true(rpi_heap_is_valid(f.heap));
        if (r % 256 == 11)
            same_figures(&model);
        if (r % 1024 == 13) {
            rp_heap_reset_peak(f.heap);
            for (int i = 0; i < 3 * FIGURES; i++)
                (&model.figures[0][0])[i].peak = (&model.figures[0][0])[i].now;
        }
        if (r % 1024 == 15) {
            rp_heap_reset_accumulated(f.heap);
            for (int i = 0; i < 3 * FIGURES; i++)
                (&model.figures[0][0])[i].up = (&model.figures[0][0])[i].down = 0;
        }
    }
    same_figures(&model);
    while (model.count)
        drop(&model, model.count - 1);
    same_figures(&model);
    HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
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
