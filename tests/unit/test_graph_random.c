/* SPDX-License-Identifier: MIT
 *
 * Random programs on several streams: blocks are allocated, written, read from other streams,
 * freed; streams wait for each other; all is joined at the end. Each program is captured and
 * replayed under adversarial orders with the race check on, and must give what it gives on a plain
 * processor, where nothing shares memory. Some free later when they are recorded than when they
 * were rehearsed. Several programs share a pool of alternatives.
 *
 *     each stream has an accumulator of its own; reading a block adds it to the reader's
 *     accumulator; the output is the sum of all. Values are small integers: sums are exact.
 */
#include "graph_fixture.h"

#include <stdbool.h>
#include <stdio.h>

enum { PROGRAMS = 1200, STEPS = 60, BLOCKS_MOST = STEPS, WIDTH = 64, ALTERNATIVES = 3 };

enum op_kind { OP_FILL, OP_DERIVE, OP_READ, OP_FREE, OP_JOIN };

struct op {
    enum op_kind kind;
    int stream, other; /* other: that a join waits for */
    int block, source; /* source: that a derived block is computed from */
    uint32_t count;    /* floats of the block */
    float value;
    bool late; /* a free that comes later, or not at all, when it is recorded */
};

struct program {
    struct rpt_fixture *f;
    struct op ops[STEPS];
    int count, streams;
    int calls; /* 0: rehearsal; 1: record */
};

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int below(uint64_t *state, int limit)
{
    return (int)(next_random(state) % (uint64_t)limit);
}

static void generate(struct program *p, struct rpt_fixture *f, uint64_t seed)
{
    int live[BLOCKS_MOST], alive = 0, blocks = 0;
    uint32_t counts[BLOCKS_MOST];
    *p = (struct program){.f = f, .streams = 1 + below(&seed, RPT_STREAMS)};
    bool diverges = below(&seed, 4) == 0;
    while (p->count < STEPS) {
        struct op op = {.stream = below(&seed, p->streams), .value = (float)(1 + below(&seed, 9))};
        int what = below(&seed, 10);
        if (what < 4 || !alive) {
            op.kind = alive && what < 2 ? OP_DERIVE : OP_FILL;
            op.block = blocks;
            op.count = 1 + (uint32_t)below(&seed, WIDTH);
            if (op.kind == OP_DERIVE) {
                op.source = live[below(&seed, alive)];
                op.count = 1 + (uint32_t)below(&seed, (int)counts[op.source]);
            }
            counts[blocks] = op.count;
            live[alive++] = blocks++;
        } else if (what < 6) {
            op.kind = OP_READ;
            op.block = live[below(&seed, alive)];
            op.count = counts[op.block];
        } else if (what < 9) {
            int victim = below(&seed, alive);
            op.kind = OP_FREE;
            op.block = live[victim];
            op.late = diverges && below(&seed, 3) == 0;
            live[victim] = live[--alive];
        } else {
            op.kind = OP_JOIN;
            op.other = below(&seed, p->streams);
        }
        p->ops[p->count++] = op;
    }
}

/* ---- On the processor -----------------------------------------------------------------------*/

static void expect(const struct program *p, float *out)
{
    static float blocks[BLOCKS_MOST][WIDTH], sums[RPT_STREAMS + 1][WIDTH];
    memset(sums, 0, sizeof sums);
    for (int i = 0; i < p->count; i++) {
        const struct op *op = &p->ops[i];
        for (uint32_t k = 0; k < op->count; k++) {
            if (op->kind == OP_FILL)
                blocks[op->block][k] = op->value;
            else if (op->kind == OP_DERIVE)
                blocks[op->block][k] = blocks[op->source][k] * -1.0f;
            else if (op->kind == OP_READ)
                sums[op->stream][k] += op->value * blocks[op->block][k];
        }
    }
    for (uint32_t k = 0; k < WIDTH; k++) {
        out[k] = 0;
        for (int s = 0; s < p->streams; s++)
            out[k] += sums[s][k];
    }
}

/* ---- As a callable --------------------------------------------------------------------------*/

struct running {
    struct program *p;
    struct rp_call *call;
    CUstream streams[RPT_STREAMS + 1];
    uint64_t sums[RPT_STREAMS + 1];
    uint64_t blocks[BLOCKS_MOST];
    int writer[BLOCKS_MOST]; /* the stream that wrote it */
};

/* Lets the stream see and use a block that another one wrote. */
static rp_status reach(struct running *r, int block, int stream, struct rp_error *err)
{
    if (r->writer[block] == stream)
        return RP_OK;
    rp_status status = rpt_join(r->p->f, r->streams[r->writer[block]], r->streams[stream], err);
    if (status == RP_OK)
        status = rp_call_use(r->call, r->blocks[block], r->streams[stream], err);
    return status;
}

static rp_status step(struct running *r, const struct op *op, struct rp_error *err)
{
    const struct rpt_fixture *f = r->p->f;
    CUstream s = r->streams[op->stream];
    rp_status status = RP_OK;
    switch (op->kind) {
    case OP_FILL:
    case OP_DERIVE:
        if (op->kind == OP_DERIVE)
            status = reach(r, op->source, op->stream, err);
        if (status == RP_OK)
            status =
                rp_call_alloc(r->call, op->count * sizeof(float), s, &r->blocks[op->block], err);
        r->writer[op->block] = op->stream;
        if (status != RP_OK)
            return status;
        if (op->kind == OP_FILL)
            return rpt_fill(f, s, r->blocks[op->block], op->value, op->count, err);
        return rpt_scale(f, s, r->blocks[op->block], r->blocks[op->source], -1, op->count, err);
    case OP_READ:
        status = reach(r, op->block, op->stream, err);
        if (status != RP_OK)
            return status;
        return rpt_saxpy(f, s, r->sums[op->stream], r->blocks[op->block], op->value, op->count,
                         err);
    case OP_FREE:
        if (op->late && r->p->calls > 0)
            return RP_OK;
        return rp_call_free(r->call, r->blocks[op->block], err);
    case OP_JOIN:
        return op->other == op->stream ? RP_OK : rpt_join(f, r->streams[op->other], s, err);
    }
    return RP_OK;
}

static rp_status begin(struct running *r, struct rp_error *err)
{
    const struct rpt_fixture *f = r->p->f;
    r->streams[0] = rp_call_stream(r->call);
    rp_status status = RP_OK;
    for (int s = 0; s < r->p->streams && status == RP_OK; s++) {
        if (s > 0) {
            r->streams[s] = f->streams[s - 1];
            status = rpt_join(f, r->streams[0], r->streams[s], err);
        }
        if (status == RP_OK)
            status = rp_call_alloc(r->call, WIDTH * sizeof(float), r->streams[s], &r->sums[s], err);
        if (status == RP_OK)
            status = rpt_fill(f, r->streams[s], r->sums[s], 0, WIDTH, err);
    }
    return status;
}

static rp_status interpret(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    struct running r = {.p = p, .call = call};
    rp_status status = begin(&r, err);
    for (int i = 0; i < p->count && status == RP_OK; i++)
        status = step(&r, &p->ops[i], err);
    uint64_t out = rp_call_arg(call, 0);
    if (status == RP_OK)
        status = rpt_fill(p->f, r.streams[0], out, 0, WIDTH, err);
    for (int s = 0; s < p->streams && status == RP_OK; s++) {
        if (s > 0)
            status = rpt_join(p->f, r.streams[s], r.streams[0], err);
        if (status == RP_OK)
            status = rpt_saxpy(p->f, r.streams[0], out, r.sums[s], 1, WIDTH, err);
    }
    p->calls++;
    return status;
}

/* ---- The test -------------------------------------------------------------------------------*/

static void reseed(uint64_t seed)
{
    struct rpi_host_options options;
    rpi_host_options(&options);
    options.seed = seed;
    options.check_races = true;
    rpi_host_configure(&options);
}

struct totals {
    uint64_t blocks, diverged, total_bytes, planned_bytes, bound_bytes;
};

static void check_group(struct rpt_fixture *f, uint64_t seed, struct totals *totals)
{
    static struct program programs[ALTERNATIVES];
    struct rp_graph *graphs[ALTERNATIVES];
    float expected[ALTERNATIVES][WIDTH], seen[WIDTH];
    struct rp_arg out = rpt_arg(rpt_buffer(f, WIDTH, -1), WIDTH, RP_ARG_OUT);
    for (int i = 0; i < ALTERNATIVES; i++) {
        generate(&programs[i], f, seed * ALTERNATIVES + (uint64_t)i);
        expect(&programs[i], expected[i]);
        RPT_OK(f, rp_graph_capture(f->pool, NULL, interpret, &programs[i], &out, 1, &graphs[i],
                                   &f->err));
        struct rp_graph_info info;
        rp_graph_info(graphs[i], &info);
        assert_int_equal(info.rehearsals, 1);
        totals->blocks += info.blocks;
        totals->diverged += info.diverged_blocks;
        totals->total_bytes += info.total_bytes;
        totals->planned_bytes += info.planned_bytes;
        totals->bound_bytes += info.lower_bound_bytes;
    }
    for (int replay = 0; replay < 3 * ALTERNATIVES; replay++) {
        int i = (int)((seed + (uint64_t)replay) % ALTERNATIVES);
        reseed(seed * 1000 + (uint64_t)replay);
        RPT_OK(f, rp_graph_replay(graphs[i], &out, 1, f->streams[replay % RPT_STREAMS], &f->err));
        rpt_read(f, out.address, seen, WIDTH);
        assert_memory_equal(seen, expected[i], sizeof seen);
    }
    RPT_OK(f, rp_run(f->pool, interpret, &programs[0], &out, 1, NULL, &f->err));
    rpt_read(f, out.address, seen, WIDTH);
    assert_memory_equal(seen, expected[0], sizeof seen);
    for (int i = 0; i < ALTERNATIVES; i++)
        rp_graph_destroy(graphs[i]);
    f->driver->cuMemFree(out.address);
    struct rpi_host_statistics statistics;
    rpi_host_statistics(&statistics);
    assert_int_equal(statistics.races, 0);
}

static void random_programs_replay_what_they_mean(void **state)
{
    struct rpt_fixture f;
    struct totals totals = {0};
    (void)state;
    rpt_open(&f);
    for (uint64_t seed = 0; seed < PROGRAMS / ALTERNATIVES; seed++)
        check_group(&f, seed, &totals);
    rpt_close(&f);
    /* The programs are such that memory is shared, and that some do diverge. */
    assert_true(totals.planned_bytes * 10 < totals.total_bytes * 9);
    assert_true(totals.planned_bytes < totals.bound_bytes * 11 / 10);
    assert_true(totals.diverged > 20);
    print_message("%llu blocks, %llu placed online; total %llu, planned %llu, bound %llu bytes\n",
                  (unsigned long long)totals.blocks, (unsigned long long)totals.diverged,
                  (unsigned long long)totals.total_bytes, (unsigned long long)totals.planned_bytes,
                  (unsigned long long)totals.bound_bytes);
}

/* The test can fail: a program that frees a block before its last read is caught. */
static rp_status frees_too_early(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct rpt_fixture *f = user;
    CUstream s = rp_call_stream(call), t = f->streams[0];
    uint64_t a, b;
    rp_status status;
    if ((status = rpt_join(f, s, t, err)) != RP_OK ||
        (status = rp_call_alloc(call, 256, s, &a, err)) != RP_OK ||
        (status = rpt_fill(f, s, a, 1, 64, err)) != RP_OK ||
        (status = rpt_join(f, s, t, err)) != RP_OK ||
        (status = rpt_add(f, t, rp_call_arg(call, 0), a, a, 64, err)) != RP_OK ||
        (status = rp_call_free(call, a, err)) != RP_OK || /* and t was never named */
        (status = rp_call_alloc(call, 256, s, &b, err)) != RP_OK ||
        (status = rpt_fill(f, s, b, 7, 64, err)) != RP_OK)
        return status;
    return rpt_join(f, t, s, err);
}

static void wrong_programs_are_seen(void **state)
{
    struct rpt_fixture f;
    (void)state;
    rpt_open(&f);
    struct rp_arg out = rpt_arg(rpt_buffer(&f, WIDTH, -1), WIDTH, RP_ARG_OUT);
    struct rp_graph *graph = NULL;
    RPT_OK(&f, rp_graph_capture(f.pool, NULL, frees_too_early, &f, &out, 1, &graph, &f.err));
    RPT_OK(&f, rp_graph_replay(graph, &out, 1, NULL, &f.err));
    assert_int_equal(f.driver->cuCtxSynchronize(), 0);
    struct rpi_host_statistics statistics;
    rpi_host_statistics(&statistics);
    assert_true(statistics.races > 0);
    rpi_host_races_clear();
    rp_graph_destroy(graph);
    f.driver->cuMemFree(out.address);
    rpt_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_replay_what_they_mean),
        cmocka_unit_test(wrong_programs_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
