/* SPDX-License-Identifier: MIT
 *
 * A captured graph for Python. With the GIL.
 */
#ifndef REPRISE_PYTHON_GRAPH_H
#define REPRISE_PYTHON_GRAPH_H

#include "capture/draws.h"

/* The graph, and the pool it lies in. */
struct rpp_graph {
    PyObject_HEAD struct rp_graph *graph;
    PyObject *pool;
    size_t arg_count;
    struct rp_arg *args; /* sizes and roles of the capture; addresses of the last replay */
    bool lends;          /* tensors of PyTorch's lie in memory that goes with the graph */
    struct rpp_draws draws;
    bool writes;        /* each replay writes to tensors that are no arguments of it */
    PyObject *scalars;  /* a Scalars that tells it what its scalars are; NULL: it has none */
    PyObject *expected; /* bytes that each replay is to leave in memory of the host; or NULL */
    const void *found;  /* where; `keeper` keeps it */
    PyObject *keeper;
};

extern PyTypeObject *rpp_graph_type;
/* Makes the type and adds it to the module; -1 with an exception set. */
int rpp_add_graph_type(PyObject *module);

/* Replays the graph for the addresses in its args and the values in its draws, with the scalars
 * that hold now. */
rp_status rpp_graph_enqueue(struct rpp_graph *graph, struct CUstream_st *stream,
                            struct rp_error *err);

/* Was memory freed that it uses, or did a replay leave other bytes than it is to? */
bool rpp_graph_is_stale(const struct rpp_graph *graph);

/* writing_replays(): a count that each replay moves which writes to tensors beside its arguments. */
PyObject *rpp_writing_replays(PyObject *module, PyObject *unused);

/* Destroys the graphs that were dropped while tensors were alive in their memory, and that are not
 * any more; returns how many are left. */
size_t rpp_sweep_graphs(void);

#endif
