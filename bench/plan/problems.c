/* SPDX-License-Identifier: MIT */
#include "problems.h"

#include "base/clock.h"
#include "memory/order/capture_record.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const intervals_names[INTERVALS_KINDS] = {"uniform", "short", "medium", "mixed"};

static uint64_t random_next(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint32_t random_below(uint64_t *seed, uint32_t limit)
{
    assert(limit > 0);
    return (uint32_t)(random_next(seed) % limit);
}

void *must(void *memory)
{
    if (!memory) {
        fputs("bench_plan: out of memory\n", stderr);
        exit(1);
    }
    return memory;
}

static void expect(rp_status status, const struct rp_error *err)
{
    if (status) {
        fprintf(stderr, "bench_plan: %s\n", err->message);
        exit(1);
    }
}

/* ---- Intervals ----------------------------------------------------------------------------- */

#define HORIZON 2000000000u

static void random_interval(enum intervals kind, uint64_t *seed, uint32_t count, int64_t *lower,
                            int64_t *upper)
{
    int64_t begin = random_below(seed, HORIZON), end = random_below(seed, HORIZON);
    uint32_t step = HORIZON / count; /* about one block begins in it */
    if (kind == INTERVALS_SHORT)
        end = begin + random_below(seed, 1000 * step);
    else if (kind == INTERVALS_MEDIUM)
        end = begin + random_below(seed, 10000 * step);
    else if (kind == INTERVALS_MIXED)
        end = begin + random_below(seed, random_below(seed, 20) ? 200 * step : HORIZON / 5);
    *lower = begin < end ? begin : end;
    *upper = (begin < end ? end : begin) + 1;
}

double random_intervals(enum intervals kind, uint32_t count, uint64_t alignment, uint64_t seed,
                        struct rpi_lifetimes *out)
{
    int64_t *lower = must(malloc(count * sizeof *lower));
    int64_t *upper = must(malloc(count * sizeof *upper));
    uint64_t *bytes = must(malloc(count * sizeof *bytes));
    struct rp_error err;
    for (uint32_t i = 0; i < count; i++) {
        random_interval(kind, &seed, count, &lower[i], &upper[i]);
        bytes[i] = kind == INTERVALS_MIXED ? (uint64_t)512 << random_below(&seed, 12)
                                           : 1 + random_below(&seed, 1 << 20);
    }
    uint64_t start = rpi_clock_ns();
    expect(rpi_lifetimes_from_intervals(lower, upper, bytes, count, alignment, out, &err), &err);
    double ms = rpi_ms_since(start);
    free(lower);
    free(upper);
    free(bytes);
    return ms;
}

/* ---- Streams ------------------------------------------------------------------------------- */

#define MOST_STREAMS 16

struct live {
    uint32_t block, stream, reader;
};

struct run {
    const struct program *program;
    struct rpi_capture_record record;
    uint64_t seed;
    uint32_t last[MOST_STREAMS]; /* node that each stream ends in */
    struct live *live;
    uint32_t live_count;
};

static void wait_for(struct run *r, uint32_t stream, uint32_t other)
{
    struct rp_error err;
    const uint32_t nodes[] = {r->last[stream], r->last[other]};
    expect(rpi_order_add(r->record.order, nodes, stream == other ? 1 : 2, &r->last[stream], &err),
           &err);
}

static void free_one(struct run *r)
{
    struct rp_error err;
    uint32_t at = random_below(&r->seed, r->live_count);
    struct live live = r->live[at];
    const uint32_t nodes[] = {r->last[live.stream], r->last[live.reader]};
    expect(rpi_capture_record_free(&r->record, live.block, nodes,
                                   live.stream == live.reader ? 1 : 2, &err),
           &err);
    r->live[at] = r->live[--r->live_count];
}

static void allocate(struct run *r, uint32_t stream)
{
    static const uint64_t mib[] = {1, 3, 5, 8, 16};
    struct rp_error err;
    struct live live = {.stream = stream, .reader = random_below(&r->seed, r->program->streams)};
    expect(rpi_capture_record_alloc(&r->record, (int64_t)r->record.blocks.count,
                                    mib[random_below(&r->seed, 5)] << 20, stream, &r->last[stream],
                                    1, &live.block, &err),
           &err);
    wait_for(r, stream, stream);
    if (live.reader != stream)
        wait_for(r, live.reader, stream);
    double p_keep = r->program->p_keep;
    if (p_keep <= 0 || (double)random_below(&r->seed, 1000000) * 1e-6 >= p_keep)
        r->live[r->live_count++] = live;
}

static void make_record(struct run *r)
{
    struct rp_error err;
    uint32_t root;
    expect(rpi_capture_record_init(&r->record, "random", &err), &err);
    expect(rpi_order_add(r->record.order, NULL, 0, &root, &err), &err);
    for (uint32_t s = 0; s < r->program->streams; s++)
        expect(rpi_order_add(r->record.order, &root, 1, &r->last[s], &err), &err);
    while (r->record.blocks.count < r->program->blocks) {
        uint32_t stream = random_below(&r->seed, r->program->streams);
        double dice = (double)random_below(&r->seed, 1000000) * 1e-6;
        if (dice >= r->program->p_free + r->program->p_join)
            allocate(r, stream);
        else if (dice >= r->program->p_free)
            wait_for(r, stream, random_below(&r->seed, r->program->streams));
        else if (r->live_count)
            free_one(r);
    }
    while (r->program->p_keep > 0 && r->live_count)
        free_one(r);
}

double random_streams(const struct program *program, uint64_t alignment, struct rpi_lifetimes *out)
{
    return random_capture(program, alignment, out, NULL);
}

double random_capture(const struct program *program, uint64_t alignment, struct rpi_lifetimes *out,
                      bool *out_kept)
{
    struct run run = {.program = program, .seed = program->seed};
    struct rp_error err;
    run.live = must(malloc(program->blocks * sizeof *run.live));
    make_record(&run);
    uint64_t start = rpi_clock_ns();
    expect(rpi_lifetimes_from_record(&run.record, alignment, out, &err), &err);
    double ms = rpi_ms_since(start);
    for (uint32_t i = 0; out_kept && i < out->count; i++)
        out_kept[i] = run.record.blocks.data[out->block[i]].free_event == RPI_NO_EVENT;
    rpi_capture_record_finish(&run.record);
    free(run.live);
    return ms;
}

/* ---- Checking ------------------------------------------------------------------------------ */

#define BARE  UINT32_MAX       /* nothing has painted there */
#define MIXED (UINT32_MAX - 1) /* several blocks have */

/* A segment tree over the addresses at which blocks begin or end. */
struct canvas {
    const struct rpi_lifetimes *x;
    uint64_t *edges; /* sorted, distinct */
    uint32_t edge_count;
    uint32_t *paint; /* [4 * edge_count]: by tree node, the block that covers all of it */
    bool valid;
};

static int compare_edges(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* Paints the part of [low, high) that lies in [from, to), all in edges, with `block`. */
static void paint(struct canvas *c, uint32_t node, uint32_t from, uint32_t to, uint32_t low,
                  uint32_t high, uint32_t block)
{
    uint32_t *here = &c->paint[node];
    if (high <= from || to <= low || !c->valid)
        return;
    if (*here != MIXED) {
        if (*here != BARE && !rpi_lifetimes_before(c->x, *here, block)) {
            c->valid = false;
            return;
        }
        if (low <= from && to <= high) {
            *here = block;
            return;
        }
        c->paint[2 * (size_t)node] = c->paint[2 * (size_t)node + 1] = *here;
    }
    uint32_t middle = from + (to - from) / 2;
    paint(c, 2 * node, from, middle, low, high, block);
    paint(c, 2 * node + 1, middle, to, low, high, block);
    *here = low <= from && to <= high ? block : MIXED;
}

static uint32_t edge_at(const struct canvas *c, uint64_t address)
{
    const uint64_t *found =
        bsearch(&address, c->edges, c->edge_count, sizeof *c->edges, compare_edges);
    return (uint32_t)(found - c->edges);
}

static void find_edges(struct canvas *c, const uint64_t *offsets)
{
    uint32_t count = c->x->count, kept = 0;
    c->edges = must(calloc(2 * (size_t)count + 1, sizeof *c->edges));
    for (uint32_t i = 0; i < count; i++) {
        c->edges[2 * (size_t)i] = offsets[i];
        c->edges[2 * (size_t)i + 1] = offsets[i] + c->x->bytes[i];
    }
    qsort(c->edges, 2 * (size_t)count, sizeof *c->edges, compare_edges);
    for (uint32_t i = 0; i < 2 * count; i++)
        if (i == 0 || c->edges[i] != c->edges[kept - 1])
            c->edges[kept++] = c->edges[i];
    c->edge_count = kept;
}

bool layout_is_valid(const struct rpi_lifetimes *x, const uint64_t *offsets, uint64_t height)
{
    struct canvas c = {.x = x, .valid = true};
    find_edges(&c, offsets);
    c.paint = must(malloc(4 * ((size_t)c.edge_count + 1) * sizeof *c.paint));
    memset(c.paint, 0xff, 4 * ((size_t)c.edge_count + 1) * sizeof *c.paint); /* BARE */
    for (uint32_t i = 0; i < x->count && c.valid; i++)
        paint(&c, 1, 0, c.edge_count, edge_at(&c, offsets[i]),
              edge_at(&c, offsets[i] + x->bytes[i]), i);
    bool valid = c.valid && (c.edge_count == 0 || c.edges[c.edge_count - 1] == height);
    free(c.edges);
    free(c.paint);
    return valid;
}
