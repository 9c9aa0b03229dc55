/* SPDX-License-Identifier: MIT
 *
 * Random trees of pools, and random programs of several streams captured into them at random times:
 * into groups that have later parts of a sequence already, after others were destroyed, some of
 * them freeing less when they are recorded than when they were rehearsed. Replayed in legal orders
 * on random streams without waiting in between, with adversarial orders of nodes and the race check
 * on, they must give what they give on a plain processor, where nothing shares memory. An
 * independent check compares every pair of blocks.
 *
 *     kept(i) = value * x                  blocks that a program does not free, x its input
 *     out     = sum of value * block       over its own blocks that it reads, and those that
 *                                          earlier programs of its sequence kept
 */
#include "graph_fixture.h"

#include <stdbool.h>

enum {
    TREES = 250,
    GROUPS = 7,
    PROGRAMS = 9,
    STEPS = 24,
    STREAMS = 3,
    WIDTH = 400,
    ROUNDS = 3,
    ALIGNMENT = 512,
    NOBODY = -1
};

enum op_kind { OP_MAKE, OP_READ, OP_FREE, OP_JOIN, OP_READ_OTHER };

struct program;

struct op {
    enum op_kind kind;
    int stream, other;            /* other: the stream that a join waits for */
    const struct program *source; /* of OP_READ and OP_READ_OTHER: whose block it is */
    uint64_t stamp;               /* that the source had: it may be another one by now */
    int block;
    float value;
    bool late; /* a free that is left out when it is recorded */
};

struct program {
    struct rpt_fixture *f;
    struct rp_graph *graph; /* NULL: not captured, or destroyed */
    int group;
    uint64_t stamp; /* grows along siblings */
    struct op ops[STEPS];
    int count, streams, blocks, calls;
    uint32_t counts[STEPS]; /* floats of each block */
    float values[STEPS];
    bool kept[STEPS];
    uint64_t addresses[STEPS]; /* of the last run: the record */
    struct rp_arg args[2];     /* x, out */
};

struct group {
    struct rp_pool *pool;
    enum rp_pool_kind kind;
    int parent, depth;
    uint64_t stamp;
};

struct tree {
    struct rpt_fixture *f;
    struct group groups[GROUPS];
    struct program programs[PROGRAMS];
    int group_count;
    uint64_t random, stamps;
    float x[WIDTH];
    uint64_t x_address;
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

/* ---- How programs relate --------------------------------------------------------------------*/

/* The kind of the lowest group above both; *out_first: a's part was there first. */
static enum rp_pool_kind relation(const struct tree *t, int a, int b, bool *out_first)
{
    int ga = t->programs[a].group, gb = t->programs[b].group;
    uint64_t sa = t->programs[a].stamp, sb = t->programs[b].stamp;
    while (ga != gb) {
        if (t->groups[ga].depth >= t->groups[gb].depth) {
            sa = t->groups[ga].stamp;
            ga = t->groups[ga].parent;
        } else {
            sb = t->groups[gb].stamp;
            gb = t->groups[gb].parent;
        }
    }
    *out_first = sa < sb;
    return t->groups[ga].kind;
}

static bool comes_before(const struct tree *t, int a, int b)
{
    bool first;
    return relation(t, a, b, &first) == RP_POOL_SEQUENCE && first;
}

/* ---- Programs -------------------------------------------------------------------------------*/

static int pick_kept(struct tree *t, const struct program *source)
{
    int block = below(&t->random, source->blocks);
    return source->kept[block] ? block : NOBODY;
}

static void generate(struct tree *t, int index)
{
    uint64_t *random = &t->random;
    struct program *p = &t->programs[index];
    int live[STEPS], alive = 0;
    bool diverges = below(random, 4) == 0;
    p->streams = 1 + below(random, STREAMS);
    while (p->count < STEPS) {
        struct op op = {.stream = below(random, p->streams),
                        .value = (float)(1 + below(random, 5))};
        int what = below(random, 12), source = below(random, PROGRAMS);
        if (what < 4 || !p->blocks) {
            op.kind = OP_MAKE;
            op.block = p->blocks++;
            p->counts[op.block] = 1 + (uint32_t)below(random, WIDTH);
            p->values[op.block] = op.value;
            p->kept[op.block] = true;
            live[alive++] = op.block;
        } else if (what < 7 && alive) {
            op.kind = OP_READ;
            op.source = p;
            op.block = live[below(random, alive)];
        } else if (what < 9 && alive) {
            int victim = below(random, alive);
            op.kind = OP_FREE;
            op.block = live[victim];
            op.late = diverges && below(random, 3) == 0;
            p->kept[op.block] = op.late;
            live[victim] = live[--alive];
        } else if (what < 10) {
            op.kind = OP_JOIN;
            op.other = below(random, p->streams);
        } else if (source != index && t->programs[source].graph && comes_before(t, source, index)) {
            op.kind = OP_READ_OTHER;
            op.source = &t->programs[source];
            op.stamp = op.source->stamp;
            op.block = pick_kept(t, &t->programs[source]);
            if (op.block == NOBODY)
                continue;
        } else {
            continue;
        }
        p->ops[p->count++] = op;
    }
    for (int i = 0; i < alive; i++) /* most of what is left is freed by the end */
        p->kept[live[i]] = below(random, 3) == 0;
}

static void expect(const struct tree *t, const struct program *p, float *out)
{
    memset(out, 0, WIDTH * sizeof *out);
    for (int i = 0; i < p->count; i++) {
        const struct op *op = &p->ops[i];
        const struct program *from = op->source;
        if (!from)
            continue;
        for (uint32_t k = 0; k < from->counts[op->block]; k++)
            out[k] += op->value * from->values[op->block] * t->x[k];
    }
}

struct running {
    struct program *p;
    struct rp_call *call;
    CUstream streams[STREAMS];
    uint64_t sums[STREAMS];
    int writer[STEPS];
};

static rp_status reach(struct running *r, int block, int stream, struct rp_error *err)
{
    if (r->writer[block] == stream)
        return RP_OK;
    rp_status status = rpt_join(r->p->f, r->streams[r->writer[block]], r->streams[stream], err);
    if (status == RP_OK)
        status = rp_call_use(r->call, r->p->addresses[block], r->streams[stream], err);
    return status;
}

static rp_status step(struct running *r, const struct op *op, struct rp_error *err)
{
    struct program *p = r->p;
    CUstream s = r->streams[op->stream];
    rp_status status = RP_OK;
    switch (op->kind) {
    case OP_MAKE:
        status = rp_call_alloc(r->call, p->counts[op->block] * sizeof(float), s,
                               &p->addresses[op->block], err);
        r->writer[op->block] = op->stream;
        if (status != RP_OK)
            return status;
        return rpt_scale(p->f, s, p->addresses[op->block], rp_call_arg(r->call, 0), op->value,
                         p->counts[op->block], err);
    case OP_READ:
        status = reach(r, op->block, op->stream, err);
        if (status != RP_OK)
            return status;
        __attribute__((fallthrough));
    case OP_READ_OTHER:
        return rpt_saxpy(p->f, s, r->sums[op->stream], op->source->addresses[op->block], op->value,
                         op->source->counts[op->block], err);
    case OP_FREE:
        return op->late && p->calls ? RP_OK : rp_call_free(r->call, p->addresses[op->block], err);
    case OP_JOIN:
        return op->other == op->stream ? RP_OK : rpt_join(p->f, r->streams[op->other], s, err);
    }
    return RP_OK;
}

static rp_status begin(struct running *r, struct rp_error *err)
{
    const struct rpt_fixture *f = r->p->f;
    rp_status status = RP_OK;
    r->streams[0] = rp_call_stream(r->call);
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

/* Sums up, and frees what is left and not kept. */
static rp_status end(struct running *r, struct rp_error *err)
{
    const struct program *p = r->p;
    uint64_t out = rp_call_arg(r->call, 1);
    rp_status status = rpt_fill(p->f, r->streams[0], out, 0, WIDTH, err);
    for (int s = 0; s < p->streams && status == RP_OK; s++) {
        if (s > 0 && (status = rpt_join(p->f, r->streams[s], r->streams[0], err)) == RP_OK)
            status = rp_call_use(r->call, r->sums[s], r->streams[0], err);
        if (status == RP_OK)
            status = rpt_saxpy(p->f, r->streams[0], out, r->sums[s], 1, WIDTH, err);
        if (status == RP_OK)
            status = rp_call_free(r->call, r->sums[s], err);
    }
    bool freed[STEPS] = {false};
    for (int i = 0; i < p->count; i++)
        if (p->ops[i].kind == OP_FREE)
            freed[p->ops[i].block] = true;
    for (int b = 0; b < p->blocks && status == RP_OK; b++)
        if (!p->kept[b] && !freed[b])
            status = rp_call_free(r->call, p->addresses[b], err);
    return status;
}

static rp_status interpret(struct rp_call *call, void *user, struct rp_error *err)
{
    struct program *p = user;
    struct running r = {.p = p, .call = call};
    rp_status status = begin(&r, err);
    for (int i = 0; i < p->count && status == RP_OK; i++)
        status = step(&r, &p->ops[i], err);
    if (status == RP_OK)
        status = end(&r, err);
    p->calls++;
    return status;
}

/* ---- The independent check ------------------------------------------------------------------*/

static bool apart(const struct rpi_graph_block *a, const struct rpi_graph_block *b)
{
    uint64_t a_end = a->offset + (a->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    uint64_t b_end = b->offset + (b->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return a_end <= b->offset || b_end <= a->offset;
}

/* May block i of graph a share memory with any of a later one that is related so? */
static bool may_share(const struct rp_graph *a, size_t i, enum rp_pool_kind kind)
{
    if (kind == RP_POOL_ALTERNATIVES)
        return true;
    return kind == RP_POOL_SEQUENCE && (i < a->arg_count || !a->blocks[i].kept);
}

/* Returns how many pairs do share. */
static uint64_t check_pairs(const struct tree *t)
{
    uint64_t shared = 0;
    for (int a = 0; a < PROGRAMS; a++) {
        for (int b = 0; b < PROGRAMS; b++) {
            const struct rp_graph *ga = t->programs[a].graph, *gb = t->programs[b].graph;
            bool first = true;
            if (a == b || !ga || !gb)
                continue;
            enum rp_pool_kind kind = relation(t, a, b, &first);
            for (size_t i = 0; i < ga->block_count && first; i++)
                for (size_t k = 0; k < gb->block_count; k++) {
                    bool overlay = !apart(&ga->blocks[i], &gb->blocks[k]);
                    assert_true(!overlay || may_share(ga, i, kind));
                    shared += overlay;
                }
        }
    }
    return shared;
}

/* Within one graph host order says enough: who overlaps in it must lie apart. */
static void check_graph(const struct rp_graph *graph)
{
    for (size_t i = 0; i < graph->block_count; i++)
        for (size_t k = i + 1; k < graph->block_count; k++) {
            const struct rpi_graph_block *a = &graph->blocks[i], *b = &graph->blocks[k];
            assert_true(a->last <= b->first || b->last <= a->first || apart(a, b));
        }
}

/* ---- Trees ----------------------------------------------------------------------------------*/

static void add_group(struct tree *t, int parent)
{
    struct group *group = &t->groups[t->group_count];
    struct rp_pool_options options = RP_POOL_OPTIONS_INIT;
    group->kind = (enum rp_pool_kind)below(&t->random, 3);
    group->parent = parent;
    options.kind = group->kind;
    options.plan_budget_ms = 1;
    if (parent != NOBODY) {
        options.parent = t->groups[parent].pool;
        group->depth = t->groups[parent].depth + 1;
        group->stamp = ++t->stamps;
    }
    RPT_OK(t->f, rp_pool_create(t->f->device, &options, &group->pool, &t->f->err));
    t->group_count++;
}

static void capture(struct tree *t, int index)
{
    struct program *p = &t->programs[index];
    struct rp_arg args[2] = {p->args[0], p->args[1]};
    struct rp_pool_info before = {.size = sizeof before}, after = {.size = sizeof after};
    *p = (struct program){.f = t->f,
                          .group = below(&t->random, t->group_count),
                          .stamp = ++t->stamps,
                          .args = {args[0], args[1]}};
    generate(t, index);
    rp_pool_info(t->groups[0].pool, &before);
    RPT_OK(t->f, rp_graph_capture(t->groups[p->group].pool, NULL, interpret, p, p->args, 2,
                                  &p->graph, &t->f->err));
    rp_pool_info(t->groups[0].pool, &after);
    struct rp_graph_info info = {.size = sizeof info};
    rp_graph_info(p->graph, &info);
    bool late = false;
    for (int i = 0; i < p->count; i++)
        late |= p->ops[i].late;
    assert_true(late || info.rehearsals == 1); /* a plan is never found to be wrong */
    assert_int_equal(after.graphs, before.graphs + 1);
    assert_true(after.planned_bytes >= before.planned_bytes);
    assert_true(after.planned_bytes >= after.lower_bound_bytes);
    assert_true(after.lower_bound_bytes >= before.lower_bound_bytes);
    check_graph(p->graph);
}

static void destroy(struct tree *t, int index)
{
    rp_graph_destroy(t->programs[index].graph);
    t->programs[index].graph = NULL;
}

static void trim(struct tree *t)
{
    struct rp_pool_info before = {.size = sizeof before}, after = {.size = sizeof after};
    uint64_t bytes = 0;
    rp_pool_info(t->groups[0].pool, &before);
    RPT_OK(t->f,
           rp_pool_trim(t->groups[below(&t->random, t->group_count)].pool, &bytes, &t->f->err));
    rp_pool_info(t->groups[0].pool, &after);
    assert_int_equal(after.mapped_bytes, before.mapped_bytes - bytes);
    assert_int_equal(after.planned_bytes, before.planned_bytes);
}

/* ---- Legal orders ---------------------------------------------------------------------------*/

/* A program runs when all that it reads did run in this round. */
static bool can_run(const struct tree *t, const struct program *p, const bool *ran)
{
    for (int i = 0; i < p->count; i++) {
        const struct op *op = &p->ops[i];
        if (op->kind == OP_READ_OTHER &&
            (!ran[op->source - t->programs] || op->source->stamp != op->stamp))
            return false;
    }
    return p->graph != NULL;
}

static void replay(struct tree *t, int index, bool *ran)
{
    struct program *p = &t->programs[index];
    if (!can_run(t, p, ran))
        return;
    CUstream stream = t->f->streams[below(&t->random, RPT_STREAMS)];
    for (int times = 1 + (below(&t->random, 4) == 0); times > 0; times--)
        RPT_OK(t->f, rp_graph_replay(p->graph, p->args, 2, stream, &t->f->err));
    ran[index] = true;
}

/* Children of a group in the order of their stamps; negative: program ~child. */
static int list_children(const struct tree *t, int group, int *children)
{
    uint64_t stamps[GROUPS + PROGRAMS];
    int count = 0;
    for (int i = 0; i < t->group_count + PROGRAMS; i++) {
        int program = i - t->group_count;
        bool mine = program < 0 ? t->groups[i].parent == group
                                : t->programs[program].graph && t->programs[program].group == group;
        uint64_t stamp = program < 0 ? t->groups[i].stamp : t->programs[program].stamp;
        int at = count;
        if (!mine)
            continue;
        for (; at > 0 && stamps[at - 1] > stamp; at--) {
            stamps[at] = stamps[at - 1];
            children[at] = children[at - 1];
        }
        stamps[at] = stamp;
        children[at] = program < 0 ? i : ~program;
        count++;
    }
    return count;
}

static void run_group(struct tree *t, int group, bool *ran)
{
    int children[GROUPS + PROGRAMS], count = list_children(t, group, children);
    if (t->groups[group].kind == RP_POOL_ALTERNATIVES && count) {
        children[0] = children[below(&t->random, count)];
        count = 1;
    }
    for (int i = count - 1; t->groups[group].kind == RP_POOL_CONCURRENT && i > 0; i--) {
        int other = below(&t->random, i + 1), child = children[i];
        children[i] = children[other];
        children[other] = child;
    }
    for (int i = 0; i < count; i++) {
        if (children[i] < 0)
            replay(t, ~children[i], ran);
        else
            run_group(t, children[i], ran);
    }
}

static void reseed(uint64_t seed)
{
    struct rpi_host_options options;
    rpi_host_options(&options);
    options.seed = seed;
    options.check_races = true;
    rpi_host_configure(&options);
}

static int run_round(struct tree *t)
{
    bool ran[PROGRAMS] = {false};
    float expected[WIDTH], seen[WIDTH];
    int runs = 0;
    for (int k = 0; k < WIDTH; k++)
        t->x[k] = (float)(1 + below(&t->random, 9));
    assert_int_equal(t->f->driver->cuMemcpyHtoD(t->x_address, t->x, sizeof t->x), 0);
    reseed(next_random(&t->random));
    run_group(t, 0, ran);
    for (int i = 0; i < PROGRAMS; i++) {
        if (!ran[i])
            continue;
        expect(t, &t->programs[i], expected);
        rpt_read(t->f, t->programs[i].args[1].address, seen, WIDTH);
        assert_memory_equal(seen, expected, sizeof seen);
        runs++;
    }
    struct rpi_host_statistics statistics;
    rpi_host_statistics(&statistics);
    assert_int_equal(statistics.races, 0);
    return runs;
}

struct totals {
    uint64_t graphs, replays, shared, planned, bound;
};

static void check_tree(struct rpt_fixture *f, uint64_t seed, struct totals *totals)
{
    static struct tree tree;
    struct tree *t = &tree;
    *t = (struct tree){.f = f, .random = seed};
    t->x_address = rpt_buffer(f, WIDTH, 0);
    add_group(t, NOBODY);
    for (int i = 0; i < PROGRAMS; i++) {
        t->programs[i].args[0] = rpt_arg(t->x_address, WIDTH, RP_ARG_IN);
        t->programs[i].args[1] = rpt_arg(rpt_buffer(f, WIDTH, 0), WIDTH, RP_ARG_OUT);
    }
    for (int i = 0; i < PROGRAMS; i++) {
        while (t->group_count < GROUPS && below(&t->random, 2))
            add_group(t, below(&t->random, t->group_count));
        capture(t, i);
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct rp_pool_info info = {.size = sizeof info};
        totals->shared += check_pairs(t);
        totals->replays += (uint64_t)(run_round(t) + run_round(t));
        rp_pool_info(t->groups[0].pool, &info);
        totals->graphs += info.graphs;
        totals->planned += info.planned_bytes;
        totals->bound += info.lower_bound_bytes;
        for (int i = 0; i < PROGRAMS; i++)
            if (below(&t->random, 3) == 0)
                destroy(t, i);
        if (below(&t->random, 2))
            trim(t);
        for (int i = 0; i < PROGRAMS; i++)
            if (!t->programs[i].graph && below(&t->random, 3))
                capture(t, i);
    }
    for (int i = 0; i < PROGRAMS; i++) {
        destroy(t, i);
        f->driver->cuMemFree(t->programs[i].args[1].address);
    }
    struct rp_pool_info info = {.size = sizeof info};
    rp_pool_info(t->groups[0].pool, &info);
    assert_int_equal(info.mapped_bytes, 0);
    while (t->group_count > 0)
        rp_pool_destroy(t->groups[--t->group_count].pool);
    f->driver->cuMemFree(t->x_address);
}

static void random_trees_replay_what_they_mean(void **state)
{
    struct rpt_fixture f;
    struct totals totals = {0};
    (void)state;
    rpt_open(&f);
    for (uint64_t seed = 0; seed < TREES; seed++)
        check_tree(&f, seed, &totals);
    rpt_close(&f);
    assert_true(totals.shared > totals.graphs * 10);
    assert_true(totals.replays > totals.graphs / 2);
    assert_true(totals.planned < totals.bound * 5 / 4);
    print_message(
        "%llu graphs at rest, %llu replays, %llu pairs of blocks over each other; planned "
        "%.3f of the bound\n",
        (unsigned long long)totals.graphs, (unsigned long long)totals.replays,
        (unsigned long long)totals.shared, (double)totals.planned / (double)totals.bound);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_trees_replay_what_they_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
