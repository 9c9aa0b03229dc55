/* SPDX-License-Identifier: MIT
 *
 * Random programs of several graphs that read and change each other's blocks, in trees of pools of
 * every kind, replayed in random orders, legal and illegal, on any stream and without waiting.
 *
 * What is legal is decided here by other means than in the library: a map of the pool's memory, 512
 * bytes a cell, holds who wrote each cell last, as the blocks' places have it; a block is whole
 * when all its cells are of the last replay of its graph. Every legal replay must give what the
 * programs give on a plain processor where each block has memory of its own; every illegal one must
 * be refused by name and leave its output as it was.
 *
 *     replay_orders [--programs N] [--first SEED] [--seed SEED] [--driver host|cuda]
 *
 * Before that the two errors that pass silently elsewhere: graphs of one pool in swapped order, and
 * forward and backward graphs of several layers interleaved. --seed repeats one program.
 */
#include "graph_fixture.h"
#include "walkers.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

enum {
    GROUPS = 5,
    GRAPHS = 10,
    OPS = 7,
    STEPS = 28,
    WIDTH = 300,
    CELL = 512, /* the pool's alignment */
    CELLS = 4096,
    PROGRAMS_A_DEVICE = 50,
    NOBODY = -1
};
static const float POISON = -7777;

enum op_kind { OP_TEMPORARY, OP_KEEP, OP_READ, OP_READ_BY_COPY, OP_CHANGE, OP_FILL };

struct op {
    enum op_kind kind;
    int graph, source; /* whose block, and by which of its ops it was made */
    int count;         /* floats */
    float value;
    uint64_t address; /* of a kept block, in the last run */
    int block;        /* its number in the graph */
};

struct graph {
    struct run *run;
    char name[16];
    int group, op_count;
    uint64_t stamp; /* grows along siblings */
    struct op ops[OPS];
    struct rp_graph *handle;  /* NULL: not captured, or destroyed */
    uint64_t ended;           /* stamp of its end; UINT64_MAX: it lives */
    uint64_t replayed;        /* number of its last replay; 0: none */
    float memory[OPS][WIDTH]; /* what its kept blocks hold where nothing shares memory */
};

struct group {
    struct rp_pool *pool;
    enum rp_pool_kind kind;
    int parent, depth;
    uint64_t stamp;
};

struct step {
    int graph;
    bool legal;
    float expected[WIDTH];
};

struct totals {
    uint64_t programs, legal, illegal, reads, destroyed;
};

struct run {
    struct rpt_fixture f;
    CUdeviceptr buffers; /* of each step its input and its output */
    uint64_t seed, random, stamps, replays;
    bool strict;
    struct group groups[GROUPS];
    int group_count;
    struct graph graphs[GRAPHS];
    int graph_count;
    struct step steps[STEPS];
    uint64_t cells[CELLS]; /* replay << 16 | graph << 8 | op + 1; 0: nobody's */
};

static uint64_t below(struct run *r, uint64_t limit)
{
    uint64_t z = (r->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % limit;
}

__attribute__((format(printf, 3, 4))) static bool holds(bool condition, const struct run *r,
                                                        const char *format, ...)
{
    if (condition)
        return true;
    va_list values;
    fprintf(stderr, "program %" PRIu64 ": ", r->seed);
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fprintf(stderr, "\nrepeat it with --seed %" PRIu64 "\n", r->seed);
    return false;
}

/* ---- How graphs relate ---------------------------------------------------------------------- */

static enum rp_pool_kind relation(const struct run *r, int a, int b, bool *out_first)
{
    int ga = r->graphs[a].group, gb = r->graphs[b].group;
    uint64_t sa = r->graphs[a].stamp, sb = r->graphs[b].stamp;
    while (ga != gb) {
        if (r->groups[ga].depth >= r->groups[gb].depth) {
            sa = r->groups[ga].stamp;
            ga = r->groups[ga].parent;
        } else {
            sb = r->groups[gb].stamp;
            gb = r->groups[gb].parent;
        }
    }
    *out_first = sa < sb;
    return r->groups[ga].kind;
}

static bool comes_before(const struct run *r, int a, int b)
{
    bool first;
    return a != b && relation(r, a, b, &first) == RP_POOL_SEQUENCE && first;
}

static bool are_alternatives(const struct run *r, int a, int b)
{
    bool first;
    return a != b && relation(r, a, b, &first) == RP_POOL_ALTERNATIVES;
}

/* ---- What the oracle knows ------------------------------------------------------------------ */

static const struct rpi_graph_block *block_of(const struct run *r, int graph, int op)
{
    const struct graph *g = &r->graphs[graph];
    return &g->handle->blocks[g->ops[op].block];
}

static void set_cells(struct run *r, const struct rpi_graph_block *block, uint64_t token)
{
    uint64_t end = (block->offset + block->bytes + CELL - 1) / CELL;
    assert_true(end <= CELLS);
    for (uint64_t cell = block->offset / CELL; cell < end; cell++)
        r->cells[cell] = token;
}

static uint64_t token(const struct run *r, int graph, int op)
{
    return r->graphs[graph].replayed << 16 | (uint64_t)graph << 8 | (uint64_t)(op + 1);
}

/* All of a graph's blocks are written, what it keeps last. */
static void write_cells(struct run *r, int graph)
{
    const struct graph *g = &r->graphs[graph];
    for (size_t i = 0; i < g->handle->block_count; i++)
        set_cells(r, &g->handle->blocks[i], token(r, graph, NOBODY));
    for (int i = 0; i < g->op_count; i++)
        if (g->ops[i].kind == OP_KEEP)
            set_cells(r, block_of(r, graph, i), token(r, graph, i));
}

static bool is_whole(const struct run *r, int graph, int op)
{
    const struct rpi_graph_block *block = block_of(r, graph, op);
    uint64_t end = (block->offset + block->bytes + CELL - 1) / CELL;
    for (uint64_t cell = block->offset / CELL; cell < end; cell++)
        if (!r->graphs[graph].replayed || r->cells[cell] != token(r, graph, op))
            return false;
    return true;
}

/* Does the graph count as changing the block, for a reader that is captured when it is there? */
static bool changes(const struct run *r, int graph, int reader, int writer, int source)
{
    const struct graph *g = &r->graphs[graph];
    if (!comes_before(r, graph, reader) || g->ended < r->graphs[reader].stamp)
        return false;
    for (int i = 0; i < g->op_count; i++) {
        const struct op *op = &g->ops[i];
        bool by_kernel = op->kind == OP_READ || op->kind == OP_CHANGE;
        if (op->kind >= OP_READ && op->graph == writer && op->source == source &&
            (op->kind == OP_FILL || (r->strict && by_kernel)))
            return true;
    }
    return false;
}

/* Graphs that change the block, and before no other such: each must have run since the writer, or
 * an alternative of it. */
static bool is_changed(const struct run *r, int reader, int writer, int source)
{
    uint64_t since = r->graphs[writer].replayed;
    for (int i = 0; i < reader; i++) {
        if (!changes(r, i, reader, writer, source))
            continue;
        bool followed = false, ran = r->graphs[i].replayed > since;
        for (int k = 0; k < reader; k++)
            followed |= comes_before(r, i, k) && changes(r, k, reader, writer, source);
        for (int k = 0; k < r->graph_count && r->graphs[i].handle; k++)
            ran |=
                r->graphs[k].handle && are_alternatives(r, i, k) && r->graphs[k].replayed > since;
        if (!followed && !ran)
            return false;
    }
    return true;
}

static bool is_legal(const struct run *r, int graph)
{
    const struct graph *g = &r->graphs[graph];
    for (int i = 0; i < g->op_count; i++) {
        const struct op *op = &g->ops[i];
        if (op->kind < OP_READ)
            continue;
        if (!r->graphs[op->graph].handle || !is_whole(r, op->graph, op->source) ||
            !is_changed(r, graph, op->graph, op->source))
            return false;
    }
    return true;
}

/* ---- What a graph does, here ---------------------------------------------------------------- */

static void compute(struct run *r, int graph, float x, float *sum)
{
    struct graph *g = &r->graphs[graph];
    for (int k = 0; k < WIDTH; k++)
        sum[k] = x;
    for (int i = 0; i < g->op_count; i++) {
        const struct op *op = &g->ops[i];
        float *other = op->kind >= OP_READ ? r->graphs[op->graph].memory[op->source] : NULL;
        for (int k = 0; k < op->count; k++) {
            if (op->kind == OP_KEEP)
                g->memory[i][k] = sum[k];
            else if (op->kind == OP_CHANGE)
                other[k] += op->value * x;
            else if (op->kind == OP_FILL)
                other[k] = op->value;
            else if (other)
                sum[k] += op->value * other[k];
        }
    }
}

/* ---- And on the device ---------------------------------------------------------------------- */

static rp_status copy_and_read(struct graph *g, const struct op *op, struct rp_call *call,
                               uint64_t from, uint64_t sum, struct rp_error *err)
{
    const struct rpt_fixture *f = &g->run->f;
    CUstream stream = rp_call_stream(call);
    size_t bytes = (size_t)op->count * sizeof(float);
    uint64_t copy;
    rp_status status = rp_call_alloc(call, bytes, stream, &copy, err);
    if (status == RP_OK && f->driver->cuMemcpyDtoDAsync(copy, from, bytes, stream) != 0)
        return RP_ERROR_DRIVER;
    if (status == RP_OK)
        status = rpt_saxpy(f, stream, sum, copy, op->value, (uint32_t)op->count, err);
    return status == RP_OK ? rp_call_free(call, copy, err) : status;
}

static rp_status run_op(struct graph *g, struct op *op, struct rp_call *call, uint64_t sum,
                        struct rp_error *err)
{
    const struct rpt_fixture *f = &g->run->f;
    CUstream stream = rp_call_stream(call);
    uint32_t count = (uint32_t)op->count, bits;
    uint64_t other = 0, address;
    rp_status status = RP_OK;
    if (op->kind >= OP_READ)
        other = g->run->graphs[op->graph].ops[op->source].address;
    memcpy(&bits, &op->value, sizeof bits);
    switch (op->kind) {
    case OP_TEMPORARY:
    case OP_KEEP:
        status = rp_call_alloc(call, count * sizeof(float), stream, &address, err);
        if (status == RP_OK)
            status = rpt_scale(f, stream, address, sum, 1, count, err);
        op->address = address;
        return status == RP_OK && op->kind == OP_TEMPORARY ? rp_call_free(call, address, err)
                                                           : status;
    case OP_READ:
        return rpt_saxpy(f, stream, sum, other, op->value, count, err);
    case OP_READ_BY_COPY:
        return copy_and_read(g, op, call, other, sum, err);
    case OP_CHANGE:
        return rpt_saxpy(f, stream, other, rp_call_arg(call, 0), op->value, count, err);
    case OP_FILL:
        return f->driver->cuMemsetD32Async(other, bits, count, stream) == 0 ? RP_OK
                                                                            : RP_ERROR_DRIVER;
    }
    return RP_OK;
}

static rp_status run_graph(struct rp_call *call, void *user, struct rp_error *err)
{
    struct graph *g = user;
    const struct rpt_fixture *f = &g->run->f;
    CUstream stream = rp_call_stream(call);
    uint64_t sum;
    rp_status status = rp_call_alloc(call, WIDTH * sizeof(float), stream, &sum, err);
    if (status == RP_OK)
        status = rpt_scale(f, stream, sum, rp_call_arg(call, 0), 1, WIDTH, err);
    for (int i = 0; i < g->op_count && status == RP_OK; i++)
        status = run_op(g, &g->ops[i], call, sum, err);
    if (status == RP_OK)
        status = rpt_scale(f, stream, rp_call_arg(call, 1), sum, 1, WIDTH, err);
    return status == RP_OK ? rp_call_free(call, sum, err) : status;
}

/* ---- Programs ------------------------------------------------------------------------------- */

static bool add_group(struct run *r, int parent)
{
    struct group *group = &r->groups[r->group_count];
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    static const enum rp_pool_kind kinds[] = {RP_POOL_SEQUENCE,     RP_POOL_SEQUENCE,
                                              RP_POOL_SEQUENCE,     RP_POOL_ALTERNATIVES,
                                              RP_POOL_ALTERNATIVES, RP_POOL_CONCURRENT};
    *group = (struct group){.kind = kinds[below(r, 6)], .parent = parent, .stamp = ++r->stamps};
    options.kind = group->kind;
    options.plan_budget_ms = 1;
    options.strict_order = r->strict && parent == NOBODY;
    if (parent != NOBODY) {
        options.parent = r->groups[parent].pool;
        group->depth = r->groups[parent].depth + 1;
    }
    r->group_count++;
    struct rp_error err;
    return holds(rp_pool_create(r->f.device, &options, &group->pool, &err) == RP_OK, r, "%s",
                 err.message);
}

/* Do kept blocks of two graphs that come before the reader lie over each other there? Then it could
 * not be told which it reads. */
static bool is_ambiguous(const struct run *r, int reader, int writer, int op)
{
    const struct rpi_graph_block *a = block_of(r, writer, op);
    for (int i = 0; i < r->graph_count; i++)
        for (int k = 0; r->graphs[i].handle && k < r->graphs[i].op_count; k++) {
            if (i == writer || r->graphs[i].ops[k].kind != OP_KEEP || !comes_before(r, i, reader))
                continue;
            const struct rpi_graph_block *b = block_of(r, i, k);
            if (a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes)
                return true;
        }
    return false;
}

/* Concurrent graphs may read a block of an earlier one; that none of them changes it is up to them.
 */
static bool would_race(const struct run *r, int reader, int writer, int source, bool changing)
{
    for (int i = 0; i < reader; i++)
        for (int k = 0; k < r->graphs[i].op_count; k++) {
            const struct op *op = &r->graphs[i].ops[k];
            bool first, same = op->kind >= OP_READ && op->graph == writer && op->source == source;
            if (same && (changing || op->kind >= OP_CHANGE) &&
                relation(r, i, reader, &first) == RP_POOL_CONCURRENT)
                return true;
        }
    return false;
}

/* A kept block of an earlier graph, for an op that reads or changes it. */
static bool pick_source(struct run *r, int reader, struct op *op)
{
    for (int attempt = 0; attempt < 12; attempt++) {
        int writer = (int)below(r, (uint64_t)reader + 1), source = (int)below(r, OPS);
        const struct graph *g = &r->graphs[writer];
        if (!g->handle || !comes_before(r, writer, reader) || source >= g->op_count ||
            g->ops[source].kind != OP_KEEP || is_ambiguous(r, reader, writer, source) ||
            would_race(r, reader, writer, source, op->kind >= OP_CHANGE))
            continue;
        op->graph = writer;
        op->source = source;
        op->count = g->ops[source].count;
        return true;
    }
    return false;
}

static void generate(struct run *r, int index)
{
    struct graph *g = &r->graphs[index];
    int blocks = 1; /* behind the sum */
    int ops = 4 + (int)below(r, OPS - 3);
    while (g->op_count < ops) {
        static const enum op_kind kinds[] = {OP_TEMPORARY, OP_TEMPORARY, OP_KEEP, OP_KEEP,
                                             OP_READ,      OP_READ,      OP_READ, OP_READ_BY_COPY,
                                             OP_CHANGE,    OP_FILL};
        struct op op = {.kind = kinds[below(r, sizeof kinds / sizeof *kinds)],
                        .value = (float)(1 + below(r, 2)),
                        .count = 1 + (int)below(r, WIDTH)};
        if (op.kind >= OP_READ && !pick_source(r, index, &op))
            op.kind = OP_TEMPORARY;
        op.block = blocks;
        blocks += op.kind <= OP_KEEP || op.kind == OP_READ_BY_COPY;
        g->ops[g->op_count++] = op;
    }
}

static bool capture(struct run *r)
{
    int index = r->graph_count++;
    struct graph *g = &r->graphs[index];
    *g = (struct graph){
        .run = r, .group = (int)below(r, (uint64_t)r->group_count), .stamp = ++r->stamps};
    snprintf(g->name, sizeof g->name, "g%d", index);
    generate(r, index);
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    options.name = g->name;
    options.verify = index % 2 ? RP_VERIFY_CAPTURE : RP_VERIFY_NONE;
    struct rp_arg args[] = {rpt_arg(r->buffers, WIDTH, RP_ARG_IN),
                            rpt_arg(r->buffers + WIDTH * 4, WIDTH, RP_ARG_OUT)};
    struct rp_error err = {0};
    struct rp_graph_info info = {.size = sizeof info};
    rp_status status = rp_graph_capture(r->groups[g->group].pool, &options, run_graph, g, args, 2,
                                        &g->handle, &err);
    g->ended = UINT64_MAX;
    if (status == RP_OK)
        rp_graph_info(g->handle, &info);
    return holds(status == RP_OK, r, "capturing %s: %s", g->name, err.message) &&
           holds(!info.unverified_args, r, "%zu arguments of %s were not verified",
                 info.unverified_args, g->name);
}

/* ---- Replays -------------------------------------------------------------------------------- */

static uint64_t input_of(const struct run *r, int step)
{
    return r->buffers + (uint64_t)step * 2 * WIDTH * sizeof(float);
}

static uint64_t output_of(const struct run *r, int step)
{
    return input_of(r, step) + WIDTH * sizeof(float);
}

/* Mostly the next graph of the order in which they were captured. */
static int choose(struct run *r, int last)
{
    int graph = last;
    if (below(r, 2))
        graph = (int)below(r, (uint64_t)r->graph_count) - 1;
    for (int i = 0; i < r->graph_count; i++) {
        graph = (graph + 1) % r->graph_count;
        if (r->graphs[graph].handle)
            return graph;
    }
    return NOBODY;
}

static bool check_refusal(struct run *r, int graph, rp_status status, const struct rp_error *err)
{
    char name[32];
    snprintf(name, sizeof name, "graph '%s' reads", r->graphs[graph].name);
    return holds(status == RP_ERROR_CONTRACT, r, "an illegal replay of %s gave %s",
                 r->graphs[graph].name, rp_status_name(status)) &&
           holds(strstr(err->message, name) != NULL, r, "'%s' does not name the graph",
                 err->message);
}

static bool replay(struct run *r, int number, int graph, struct totals *totals)
{
    struct step *step = &r->steps[number];
    struct graph *g = &r->graphs[graph];
    float x = (float)(1 + below(r, 4));
    struct rp_arg args[] = {rpt_arg(input_of(r, number), WIDTH, RP_ARG_IN),
                            rpt_arg(output_of(r, number), WIDTH, RP_ARG_OUT)};
    float values[WIDTH];
    for (int k = 0; k < WIDTH; k++)
        values[k] = x;
    assert_int_equal(r->f.driver->cuMemcpyHtoD(args[0].address, values, sizeof values), 0);
    step->graph = graph;
    step->legal = is_legal(r, graph);
    struct rp_error err = {0};
    rp_status status =
        rp_graph_replay(g->handle, args, 2, r->f.streams[below(r, RPT_STREAMS)], &err);
    if (!step->legal) {
        totals->illegal++;
        return check_refusal(r, graph, status, &err);
    }
    totals->legal++;
    compute(r, graph, x, step->expected);
    g->replayed = ++r->replays;
    write_cells(r, graph);
    return holds(status == RP_OK, r, "a legal replay of %s: %s", g->name, err.message);
}

static bool check_step(const struct run *r, int number)
{
    const struct step *step = &r->steps[number];
    float out[WIDTH];
    rpt_read(&r->f, output_of(r, number), out, WIDTH);
    if (step->graph == NOBODY)
        return true;
    for (int k = 0; k < WIDTH; k++) {
        float due = step->legal ? step->expected[k] : POISON;
        if (!holds(out[k] == due, r, "step %d, %s replay of %s: out[%d] is %g, not %g", number,
                   step->legal ? "a legal" : "an illegal", r->graphs[step->graph].name, k,
                   (double)out[k], (double)due))
            return false;
    }
    return true;
}

static void destroy_one(struct run *r, struct totals *totals)
{
    struct graph *g = &r->graphs[below(r, (uint64_t)r->graph_count)];
    totals->destroyed += g->handle != NULL;
    rp_graph_destroy(g->handle);
    g->handle = NULL;
    if (g->ended == UINT64_MAX)
        g->ended = ++r->stamps;
}

static bool run_steps(struct run *r, struct totals *totals)
{
    int last = NOBODY;
    bool fine = true;
    for (int i = 0; i < STEPS && fine; i++) {
        r->steps[i].graph = NOBODY;
        uint64_t what = below(r, 20);
        if (what == 0)
            destroy_one(r, totals);
        if (what <= 1 && r->graph_count < GRAPHS)
            fine = capture(r);
        last = choose(r, last);
        if (last != NOBODY && fine)
            fine = replay(r, i, last, totals);
        const char *wrong = fine ? rpt_walk(r->groups[0].pool) : NULL;
        fine = fine && holds(!wrong, r, "step %d: %s does not hold", i, wrong ? wrong : "");
    }
    for (int i = 0; i < STEPS && fine; i++)
        fine = check_step(r, i);
    return fine;
}

static void poison(struct run *r)
{
    uint32_t bits;
    memcpy(&bits, &POISON, sizeof bits);
    assert_int_equal(
        r->f.driver->cuMemsetD32Async(r->buffers, bits, (size_t)STEPS * 2 * WIDTH, NULL), 0);
    assert_int_equal(r->f.driver->cuCtxSynchronize(), 0);
}

/* What the host driver saw: two accesses to the same bytes that nothing puts in order. */
static bool check_races(const struct run *r)
{
    struct rpi_host_race race;
    if (strcmp(r->f.driver->provider, "host") != 0 || !rpi_host_races(&race, 1))
        return true;
    return holds(false, r, "a race: %s (%s) and %s (%s) at 0x%" PRIx64 ", %" PRIu64 " bytes",
                 race.first, race.first_writes ? "writes" : "reads", race.second,
                 race.second_writes ? "writes" : "reads", race.address, race.bytes);
}

static bool run_program(struct run *r, uint64_t seed, struct totals *totals)
{
    r->seed = seed;
    r->random = seed * 0x632be59bd9b4e019u;
    r->group_count = r->graph_count = 0;
    r->replays = 0;
    memset(r->cells, 0, sizeof r->cells);
    r->strict = below(r, 3) == 0;
    poison(r);
    int groups = 1 + (int)below(r, GROUPS), graphs = 4 + (int)below(r, GRAPHS - 5);
    bool fine = add_group(r, NOBODY);
    for (int i = 1; i < groups && fine; i++)
        fine = add_group(r, (int)below(r, (uint64_t)i));
    for (int i = 0; i < graphs && fine; i++)
        fine = capture(r);
    fine = fine && run_steps(r, totals) && check_races(r);
    for (int i = 0; i < r->graph_count; i++) {
        for (int k = 0; k < r->graphs[i].op_count; k++)
            totals->reads += r->graphs[i].ops[k].kind >= OP_READ;
        rp_graph_destroy(r->graphs[i].handle);
    }
    for (int i = r->group_count; i-- > 0;)
        rp_pool_destroy(r->groups[i].pool);
    totals->programs++;
    return fine;
}

/* ---- The two silent errors ------------------------------------------------------------------ */

static struct graph *add(struct run *r, int group, struct op *ops, int count)
{
    struct graph *g = &r->graphs[r->graph_count];
    *g = (struct graph){.run = r, .group = group, .op_count = count};
    snprintf(g->name, sizeof g->name, "g%d", r->graph_count++);
    memcpy(g->ops, ops, (size_t)count * sizeof *ops);
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    options.name = g->name;
    struct rp_arg args[] = {rpt_arg(input_of(r, 0), WIDTH, RP_ARG_IN),
                            rpt_arg(output_of(r, 0), WIDTH, RP_ARG_OUT)};
    RPT_OK(&r->f, rp_graph_capture(r->groups[group].pool, &options, run_graph, g, args, 2,
                                   &g->handle, &r->f.err));
    return g;
}

/* What a replay of it with x gives, NAN when it is refused. */
static float give(struct run *r, struct graph *g, float x)
{
    float values[WIDTH];
    for (int k = 0; k < WIDTH; k++)
        values[k] = x;
    struct rp_arg args[] = {rpt_arg(input_of(r, 0), WIDTH, RP_ARG_IN),
                            rpt_arg(output_of(r, 0), WIDTH, RP_ARG_OUT)};
    assert_int_equal(r->f.driver->cuMemcpyHtoD(args[0].address, values, sizeof values), 0);
    rp_status status = rp_graph_replay(g->handle, args, 2, r->f.streams[0], &r->f.err);
    if (status == RP_ERROR_CONTRACT) {
        printf("    refused: %s\n", r->f.err.message);
        return -1;
    }
    RPT_OK(&r->f, status);
    rpt_read(&r->f, args[1].address, values, WIDTH);
    return values[0];
}

static void make_group(struct run *r, enum rp_pool_kind kind, int parent)
{
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    options.kind = kind;
    options.parent = parent == NOBODY ? NULL : r->groups[parent].pool;
    RPT_OK(&r->f,
           rp_pool_create(r->f.device, &options, &r->groups[r->group_count++].pool, &r->f.err));
}

static void clear(struct run *r)
{
    while (r->graph_count)
        rp_graph_destroy(r->graphs[--r->graph_count].handle);
    while (r->group_count)
        rp_pool_destroy(r->groups[--r->group_count].pool);
}

/* The second graph reads what the first keeps: 2 x + 2 x = 4 at x = 1. The first has its temporary
 * block where the second keeps its result, which a third reads. */
static bool swapped_order(struct run *r)
{
    struct op keeps[] = {{.kind = OP_TEMPORARY, .count = WIDTH},
                         {.kind = OP_TEMPORARY, .count = WIDTH},
                         {.kind = OP_KEEP, .count = WIDTH}};
    struct op reads[] = {{.kind = OP_READ, .graph = 0, .source = 2, .count = WIDTH, .value = 3},
                         {.kind = OP_KEEP, .count = WIDTH}};
    struct op looks[] = {{.kind = OP_READ, .graph = 1, .source = 1, .count = WIDTH, .value = 1}};
    make_group(r, RP_POOL_SEQUENCE, NOBODY);
    struct graph *first = add(r, 0, keeps, 3), *second = add(r, 0, reads, 2);
    struct graph *third = add(r, 0, looks, 1);
    printf("swapped order: the second graph before the first\n");
    bool fine = give(r, second, 1) == -1;
    fine = fine && give(r, first, 1) == 1 && give(r, second, 1) == 4 && give(r, third, 0) == 4;
    printf("swapped order: the first graph again, then who reads the second's result\n");
    fine = fine && give(r, first, 1) == 1 && give(r, third, 0) == -1;
    fine = fine && give(r, second, 1) == 4 && give(r, third, 0) == 4;
    clear(r);
    return fine;
}

/* Forward keeps x, backward gives 2 of it: 4, 6 and 8 for x = 2, 3, 4. */
static bool interleaved_layers(struct run *r)
{
    struct graph *forward[3], *backward[3];
    make_group(r, RP_POOL_ALTERNATIVES, NOBODY);
    for (int i = 0; i < 3; i++) {
        struct op keeps[] = {{.kind = OP_KEEP, .count = WIDTH}};
        struct op reads[] = {
            {.kind = OP_READ, .graph = 2 * i, .source = 0, .count = WIDTH, .value = 2}};
        make_group(r, RP_POOL_SEQUENCE, 0);
        forward[i] = add(r, i + 1, keeps, 1);
        backward[i] = add(r, i + 1, reads, 1);
    }
    bool fine = true;
    for (int i = 0; i < 3; i++)
        fine = fine && give(r, forward[i], (float)i + 2) == (float)i + 2 &&
               give(r, backward[i], 0) == 2 * ((float)i + 2);
    printf("interleaved layers: all forward, then all backward\n");
    for (int i = 0; i < 3; i++)
        give(r, forward[i], (float)i + 2);
    fine = fine && give(r, backward[2], 0) == 8 && give(r, backward[1], 0) == -1 &&
           give(r, backward[0], 0) == -1;
    clear(r);
    return fine;
}

/* ---- Many programs -------------------------------------------------------------------------- */

struct request {
    const struct rp_driver *driver;
    uint64_t programs, first;
};

static void open_device(struct run *r, const struct request *request)
{
    rpt_open_on(&r->f, request->driver, NULL);
    assert_int_equal(r->f.driver->cuMemAlloc(&r->buffers, STEPS * 2 * WIDTH * sizeof(float)), 0);
}

static void close_device(struct run *r)
{
    r->f.driver->cuMemFree(r->buffers);
    rpt_close(&r->f); /* and nothing is left */
}

static bool run_all(const struct request *request, struct totals *totals)
{
    static struct run r;
    open_device(&r, request);
    bool fine = swapped_order(&r) && interleaved_layers(&r);
    close_device(&r);
    for (uint64_t i = 0; i < request->programs && fine; i++) {
        if (i % PROGRAMS_A_DEVICE == 0)
            open_device(&r, request);
        fine = run_program(&r, request->first + i, totals);
        if ((i + 1) % PROGRAMS_A_DEVICE == 0 || i + 1 == request->programs)
            close_device(&r);
    }
    return fine;
}

static bool read_request(int argc, char **argv, struct request *request)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        char *end = NULL;
        uint64_t number = strtoull(argv[i + 1], &end, 10);
        struct rp_error err;
        if (!strcmp(argv[i], "--driver") && !strcmp(argv[i + 1], "host"))
            request->driver = rpi_driver_host();
        else if (!strcmp(argv[i], "--driver") && !strcmp(argv[i + 1], "cuda")) {
            if (rpi_driver_libcuda(&request->driver, &err) != RP_OK) {
                fprintf(stderr, "%s\n", err.message);
                exit(77);
            }
        } else if (!*end && !strcmp(argv[i], "--programs"))
            request->programs = number;
        else if (!*end && !strcmp(argv[i], "--first"))
            request->first = number;
        else if (!*end && !strcmp(argv[i], "--seed")) {
            request->first = number;
            request->programs = 1;
        } else
            return false;
    }
    return argc % 2 == 1;
}

int main(int argc, char **argv)
{
    struct request request = {rpi_driver_host(), 500, 1};
    struct totals totals = {0};
    if (!read_request(argc, argv, &request)) {
        fprintf(stderr, "usage: replay_orders [--programs N] [--first SEED] [--seed SEED] "
                        "[--driver host|cuda]\n");
        return 2;
    }
    bool fine = run_all(&request, &totals);
    printf("%" PRIu64 " programs on %s: %" PRIu64 " legal replays equal their reference, %" PRIu64
           " illegal ones refused; %" PRIu64 " uses of others' blocks, %" PRIu64
           " graphs destroyed on the way\n",
           totals.programs, request.driver->provider, totals.legal, totals.illegal, totals.reads,
           totals.destroyed);
    bool sense = totals.programs < 100 ||
                 (totals.legal * 4 > totals.illegal && totals.illegal * 8 > totals.legal);
    if (!sense)
        fprintf(stderr, "these programs do not test what they are meant to\n");
    return fine && sense ? 0 : 1;
}
