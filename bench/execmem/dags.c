/* SPDX-License-Identifier: MIT */
#include "dags.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* ---- Pieces -------------------------------------------------------------------------------- */

static size_t add(struct dag *dag, enum dag_kind kind, const size_t *after, size_t count)
{
    size_t node = dag->node_count++;
    assert(node < DAG_MOST_NODES && dag->edge_count + count <= DAG_MOST_EDGES);
    dag->kinds[node] = kind;
    for (size_t i = 0; i < count; i++) {
        dag->edges[dag->edge_count].from = after[i];
        dag->edges[dag->edge_count++].to = node;
    }
    return node;
}

/* So many nodes behind one; NULL: behind nothing. The last one's number. */
static size_t add_chain(struct dag *dag, enum dag_kind kind, int count, const size_t *behind)
{
    assert(count > 0);
    size_t last = add(dag, kind, behind, behind != NULL);
    for (int i = 1; i < count; i++)
        last = add(dag, kind, &last, 1);
    return last;
}

enum { MOST_BRANCHES = 64 };

/* A fork behind a node into branches of so many nodes each, and the join. */
static size_t add_fork(struct dag *dag, enum dag_kind kind, int branches, int each, size_t behind)
{
    size_t ends[MOST_BRANCHES];
    for (int i = 0; i < branches; i++)
        ends[i] = add_chain(dag, kind, each, &behind);
    return add(dag, DAG_KERNEL, ends, (size_t)branches);
}

static unsigned next(uint64_t *random, unsigned below)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*random >> 33) % below;
}

/* ---- Shapes -------------------------------------------------------------------------------- */

/* a nodes, one behind the other. */
static void chain(struct dag *dag, const struct dag_shape *shape)
{
    add_chain(dag, shape->kind, shape->a, NULL);
}

/* a nodes, every second a kernel. */
static void alternating(struct dag *dag, const struct dag_shape *shape)
{
    size_t last = add(dag, DAG_KERNEL, NULL, 0);
    for (int i = 1; i < shape->a; i++)
        last = add(dag, i % 2 ? shape->kind : DAG_KERNEL, &last, 1);
}

/* a branches of b nodes. */
static void fork_and_join(struct dag *dag, const struct dag_shape *shape)
{
    add_fork(dag, shape->kind, shape->a, shape->b, add(dag, DAG_KERNEL, NULL, 0));
}

/* The same, one branch of kernels and the others not. */
static void mixed_fork(struct dag *dag, const struct dag_shape *shape)
{
    size_t ends[MOST_BRANCHES], first = add(dag, DAG_KERNEL, NULL, 0);
    for (int i = 0; i < shape->a; i++)
        ends[i] = add_chain(dag, i ? shape->kind : DAG_KERNEL, shape->b, &first);
    add(dag, DAG_KERNEL, ends, (size_t)shape->a);
}

/* a branches of b nodes that nothing joins. */
static void open_fork(struct dag *dag, const struct dag_shape *shape)
{
    size_t first = add(dag, DAG_KERNEL, NULL, 0);
    for (int i = 0; i < shape->a; i++)
        add_chain(dag, shape->kind, shape->b, &first);
}

/* a chains of b nodes that have nothing to do with each other. */
static void apart(struct dag *dag, const struct dag_shape *shape)
{
    for (int i = 0; i < shape->a; i++)
        add_chain(dag, shape->kind, shape->b, NULL);
}

/* As the library adds a node that copies arguments. */
static void headed_chain(struct dag *dag, const struct dag_shape *shape)
{
    chain(dag, shape);
    dag->headed = true;
}

static void headed_apart(struct dag *dag, const struct dag_shape *shape)
{
    apart(dag, shape);
    dag->headed = true;
}

/* a forks into b branches of one node, each behind the other's join. */
static void diamonds(struct dag *dag, const struct dag_shape *shape)
{
    size_t last = add(dag, DAG_KERNEL, NULL, 0);
    for (int i = 0; i < shape->a; i++)
        last = add_fork(dag, shape->kind, shape->b, 1, last);
}

/* The same with five nodes between join and fork, as layers of a network have them. */
static void spaced_diamonds(struct dag *dag, const struct dag_shape *shape)
{
    size_t last = add(dag, DAG_KERNEL, NULL, 0);
    for (int i = 0; i < shape->a; i++) {
        last = add_fork(dag, shape->kind, shape->b, 2, last);
        last = add_chain(dag, shape->kind, 5, &last);
    }
}

/* a diamonds of two, as captured work on two streams makes them: what the second stream does next
 * is behind what it did last, too, though the join was. b: the second stream is first. */
static void stream_diamonds(struct dag *dag, const struct dag_shape *shape)
{
    size_t main = add(dag, DAG_KERNEL, NULL, 0), side = main;
    for (int i = 0; i < shape->a; i++) {
        const size_t fork[] = {side, main};
        if (!shape->b)
            main = add_chain(dag, shape->kind, 2, &fork[1]);
        side = add(dag, shape->kind, i ? fork : &fork[1], i ? 2 : 1);
        if (shape->b)
            main = add_chain(dag, shape->kind, 2, &fork[1]);
        const size_t join[] = {main, side};
        main = add(dag, shape->kind, join, 2);
    }
}

/* A tree in which every node has b behind it, a deep, and the joins of it backwards. */
static size_t add_tree(struct dag *dag, enum dag_kind kind, int deep, int branches, size_t behind)
{
    size_t ends[MOST_BRANCHES], first = add(dag, kind, &behind, 1);
    if (!deep)
        return first;
    for (int i = 0; i < branches; i++)
        ends[i] = add_tree(dag, kind, deep - 1, branches, first);
    return add(dag, kind, ends, (size_t)branches);
}

static void tree(struct dag *dag, const struct dag_shape *shape)
{
    add_tree(dag, shape->kind, shape->a, shape->b, add(dag, DAG_KERNEL, NULL, 0));
}

/* a layers of b nodes, each behind all of the layer before. */
static void layers(struct dag *dag, const struct dag_shape *shape)
{
    size_t before[MOST_BRANCHES], now[MOST_BRANCHES];
    for (int i = 0; i < shape->a; i++) {
        for (int j = 0; j < shape->b; j++)
            now[j] = add(dag, shape->kind, before, i ? (size_t)shape->b : 0);
        for (int j = 0; j < shape->b; j++)
            before[j] = now[j];
    }
}

/* A chain of a nodes whose nodes are also behind the one b before: no more order than a chain. */
static void shortcuts(struct dag *dag, const struct dag_shape *shape)
{
    for (int i = 0; i < shape->a; i++) {
        const size_t after[] = {(size_t)i - 1, (size_t)(i - shape->b)};
        add(dag, shape->kind, after, (size_t)(i > 0) + (size_t)(i >= shape->b));
    }
}

/* Two chains of a nodes, the second of which waits for the first at every step. */
static void ladder(struct dag *dag, const struct dag_shape *shape)
{
    size_t last[2] = {add(dag, shape->kind, NULL, 0), 0};
    last[1] = add(dag, shape->kind, last, 1);
    for (int i = 1; i < shape->a; i++) {
        last[0] = add(dag, shape->kind, last, 1);
        last[1] = add(dag, shape->kind, last, 2);
    }
}

/* a launches on b streams, in any order; before every third the stream waits for another. */
static void streams(struct dag *dag, const struct dag_shape *shape)
{
    size_t last[MOST_BRANCHES];
    uint64_t random = (uint64_t)shape->a * 31 + (uint64_t)shape->b;
    size_t first = add(dag, shape->kind, NULL, 0);
    for (int i = 0; i < shape->b; i++)
        last[i] = first;
    for (int i = 2; i < shape->a; i++) {
        unsigned on = next(&random, (unsigned)shape->b), other = next(&random, (unsigned)shape->b);
        const size_t after[] = {last[on], last[other]};
        bool waits = next(&random, 3) == 0 && after[0] != after[1];
        last[on] = add(dag, shape->kind, after, waits ? 2 : 1);
    }
    size_t ends[MOST_BRANCHES], count = 0;
    for (int i = 0; i < shape->b; i++)
        if (last[i] != first)
            ends[count++] = last[i];
    add(dag, shape->kind, ends, count);
}

/* a nodes, each behind any before it with a chance of b in 1,000. */
static void any_edges(struct dag *dag, const struct dag_shape *shape)
{
    size_t after[DAG_MOST_NODES];
    uint64_t random = (uint64_t)shape->a * 37 + (uint64_t)shape->b;
    for (size_t i = 0; i < (size_t)shape->a; i++) {
        size_t count = 0;
        for (size_t j = 0; j < i; j++)
            if (next(&random, 1000) < (unsigned)shape->b)
                after[count++] = j;
        add(dag, shape->kind, after, count);
    }
}

/* b kernels around a child graph: a fork into a branches of 4, a chain where a is 1. */
static void child(struct dag *dag, const struct dag_shape *shape)
{
    size_t last = add_chain(dag, DAG_KERNEL, shape->b, NULL);
    dag->child = calloc(1, sizeof *dag->child);
    if (!dag->child)
        return;
    if (shape->a > 1)
        add_fork(dag->child, DAG_KERNEL, shape->a, 4, add(dag->child, DAG_KERNEL, NULL, 0));
    else
        add_chain(dag->child, DAG_KERNEL, 38, NULL);
    last = add(dag, DAG_CHILD, &last, 1);
    add_chain(dag, DAG_KERNEL, shape->b, &last);
}

/* a branches, each a child graph that is a chain of b. */
static void children(struct dag *dag, const struct dag_shape *shape)
{
    size_t ends[MOST_BRANCHES], first = add(dag, DAG_KERNEL, NULL, 0);
    dag->child = calloc(1, sizeof *dag->child);
    if (!dag->child)
        return;
    add_chain(dag->child, DAG_KERNEL, shape->b, NULL);
    for (int i = 0; i < shape->a; i++)
        ends[i] = add(dag, DAG_CHILD, &first, 1);
    add(dag, DAG_KERNEL, ends, (size_t)shape->a);
}

const struct dag_shape dag_shapes[] = {
    {"chain of 1", chain, 1, 0, DAG_KERNEL},
    {"chain of 10", chain, 10, 0, DAG_KERNEL},
    {"chain of 38", chain, 38, 0, DAG_KERNEL},
    {"chain of 100", chain, 100, 0, DAG_KERNEL},
    {"chain of 200", chain, 200, 0, DAG_KERNEL},
    {"chain of 400", chain, 400, 0, DAG_KERNEL},
    {"chain of 700", chain, 700, 0, DAG_KERNEL},
    {"chain of 1,000", chain, 1000, 0, DAG_KERNEL},
    {"chain of 38, 232 bytes of parameters each", chain, 38, 0, DAG_WIDE},
    {"chain of 38, 904 bytes of parameters each", chain, 38, 0, DAG_WIDER},
    {"chain of 38, 4 KiB of parameters each", chain, 38, 0, DAG_WIDEST},
    {"chain of 38 fills", chain, 38, 0, DAG_FILL},
    {"chain of 38 copies", chain, 38, 0, DAG_COPY},
    {"chain of 100, every second a fill", alternating, 100, 0, DAG_FILL},
    {"chain of 100, every second a copy", alternating, 100, 0, DAG_COPY},
    {"chain of 100, every second empty", alternating, 100, 0, DAG_EMPTY},
    {"fork into 2 of 4", fork_and_join, 2, 4, DAG_KERNEL},
    {"fork into 3 of 4", fork_and_join, 3, 4, DAG_KERNEL},
    {"fork into 4 of 4", fork_and_join, 4, 4, DAG_KERNEL},
    {"fork into 8 of 4", fork_and_join, 8, 4, DAG_KERNEL},
    {"fork into 16 of 4", fork_and_join, 16, 4, DAG_KERNEL},
    {"fork into 32 of 4", fork_and_join, 32, 4, DAG_KERNEL},
    {"fork into 2 of 18", fork_and_join, 2, 18, DAG_KERNEL},
    {"fork into 2 of 75", fork_and_join, 2, 75, DAG_KERNEL},
    {"fork into 8 of 4 fills", fork_and_join, 8, 4, DAG_FILL},
    {"fork into 8 of 4 copies", fork_and_join, 8, 4, DAG_COPY},
    {"fork into 8 of 1 fill", fork_and_join, 8, 1, DAG_FILL},
    {"fork into 4 kernels and 28 fills", mixed_fork, 8, 4, DAG_FILL},
    {"fork into 8 of 4, not joined", open_fork, 8, 4, DAG_KERNEL},
    {"8 chains of 4 apart", apart, 8, 4, DAG_KERNEL},
    {"chain of 10 behind a node that was added last", headed_chain, 10, 0, DAG_KERNEL},
    {"chain of 38 behind a node that was added last", headed_chain, 38, 0, DAG_KERNEL},
    {"8 chains of 4 behind a node that was added last", headed_apart, 8, 4, DAG_KERNEL},
    {"1 diamond of 2", diamonds, 1, 2, DAG_KERNEL},
    {"2 diamonds of 2", diamonds, 2, 2, DAG_KERNEL},
    {"4 diamonds of 2", diamonds, 4, 2, DAG_KERNEL},
    {"8 diamonds of 2", diamonds, 8, 2, DAG_KERNEL},
    {"16 diamonds of 2", diamonds, 16, 2, DAG_KERNEL},
    {"64 diamonds of 2", diamonds, 64, 2, DAG_KERNEL},
    {"4 diamonds of 4", diamonds, 4, 4, DAG_KERNEL},
    {"8 diamonds of 8", diamonds, 8, 8, DAG_KERNEL},
    {"12 spaced diamonds of 2", spaced_diamonds, 12, 2, DAG_KERNEL},
    {"12 spaced diamonds of 3", spaced_diamonds, 12, 3, DAG_KERNEL},
    {"8 diamonds on 2 streams", stream_diamonds, 8, 0, DAG_KERNEL},
    {"8 diamonds on 2 streams, the second first", stream_diamonds, 8, 1, DAG_KERNEL},
    {"tree of forks into 2, 4 deep", tree, 4, 2, DAG_KERNEL},
    {"tree of forks into 4, 2 deep", tree, 2, 4, DAG_KERNEL},
    {"4 layers of 4, each behind all", layers, 4, 4, DAG_KERNEL},
    {"8 layers of 2, each behind all", layers, 8, 2, DAG_KERNEL},
    {"chain of 38 with shortcuts", shortcuts, 38, 3, DAG_KERNEL},
    {"two chains of 19, one waiting", ladder, 19, 0, DAG_KERNEL},
    {"60 on 2 streams", streams, 60, 2, DAG_KERNEL},
    {"60 on 4 streams", streams, 60, 4, DAG_KERNEL},
    {"200 on 8 streams", streams, 200, 8, DAG_KERNEL},
    {"40 nodes, 2 % of all edges", any_edges, 40, 20, DAG_KERNEL},
    {"40 nodes, 5 % of all edges", any_edges, 40, 50, DAG_KERNEL},
    {"40 nodes, 20 % of all edges", any_edges, 40, 200, DAG_KERNEL},
    {"200 nodes, 1 % of all edges", any_edges, 200, 10, DAG_KERNEL},
    {"chain of 38 in a child graph", child, 1, 1, DAG_KERNEL},
    {"fork into 8 of 4 in a child graph", child, 8, 4, DAG_KERNEL},
    {"fork into 4 child graphs of 4", children, 4, 4, DAG_KERNEL},
};
const size_t dag_shape_count = sizeof dag_shapes / sizeof *dag_shapes;

struct dag *dag_create(const struct dag_shape *shape)
{
    struct dag *dag = calloc(1, sizeof *dag);
    if (!dag)
        return NULL;
    shape->make(dag, shape);
    for (size_t i = 0; i < dag->node_count; i++)
        if (dag->kinds[i] == DAG_CHILD && !dag->child) {
            dag_destroy(dag);
            return NULL;
        }
    return dag;
}

void dag_destroy(struct dag *dag)
{
    if (dag)
        dag_destroy(dag->child);
    free(dag);
}
