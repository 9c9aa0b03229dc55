/* SPDX-License-Identifier: MIT
 *
 * Graphs of every shape that what an executable one takes may depend on, without a driver: chains,
 * forks, diamonds one behind the other, trees, layers, work on streams that wait for each other,
 * random edges, nodes of other types, child graphs. The same at every run.
 */
#ifndef REPRISE_BENCH_DAGS_H
#define REPRISE_BENCH_DAGS_H

#include <stdbool.h>
#include <stddef.h>

enum { DAG_MOST_NODES = 1024, DAG_MOST_EDGES = 4096 };

enum dag_kind {
    DAG_KERNEL, /* with 12 bytes of parameters */
    DAG_WIDE,   /* 232 */
    DAG_WIDER,  /* 904 */
    DAG_WIDEST, /* 4,040 */
    DAG_FILL,
    DAG_COPY,
    DAG_EMPTY,
    DAG_CHILD /* the graph's child */
};

struct dag {
    size_t node_count, edge_count;
    enum dag_kind kinds[DAG_MOST_NODES];
    struct {
        size_t from, to; /* in the order of `to`; from < to */
    } edges[DAG_MOST_EDGES];
    struct dag *child; /* owned; NULL where no node is one */
    bool headed; /* once all is made a node of 232 bytes of parameters is added, ahead of all */
};

struct dag_shape {
    const char *name;
    void (*make)(struct dag *dag, const struct dag_shape *shape);
    int a, b; /* what the maker makes of them */
    enum dag_kind kind;
};

extern const struct dag_shape dag_shapes[];
extern const size_t dag_shape_count;

/* NULL: no host memory. */
struct dag *dag_create(const struct dag_shape *shape);
void dag_destroy(struct dag *dag); /* NULL is allowed */

#endif
