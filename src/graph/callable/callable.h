/* SPDX-License-Identifier: MIT
 *
 * rp_callable: a C function, the shapes that it was called with, and a graph for each of them.
 *
 *     call     look at the arguments, find their shape, choose graph or eager, run
 *     capture  the same without a run, for a list of shapes
 *
 * The function is always run through rpi_callable_run, which gives it its own arguments back: a
 * graph knows storages only.
 */
#ifndef REPRISE_GRAPH_CALLABLE_CALLABLE_H
#define REPRISE_GRAPH_CALLABLE_CALLABLE_H

#include "graph/callable/buckets.h"
#include "graph/callable/shapes.h"
#include "graph/callable/way_judge.h"
#include "graph/objects/objects.h"
#include "reprise_framework.h"

struct rp_callable {
    struct rp_device *device; /* unowned */
    struct rp_pool *pool;     /* owned; of alternatives */
    struct rp_heap *heap;     /* unowned; may be NULL */
    char *name;
    rp_callable_fn function;
    void *user;
    size_t most_graphs;
    bool copy_args;
    enum rp_bind bind;
    enum rp_policy policy;
    enum rp_verify verify;
    struct rpi_gate gate; /* of a whole call; guards what follows */
    bool warm;            /* the function ran once */
    struct rpi_shapes shapes;
    struct rpi_look look;
    struct rpi_buckets buckets;
    struct rp_way_judge judge;    /* of RP_POLICY_AUTO */
    struct rp_callable_info info; /* counters */
    char *rendered;               /* the last report; NULL: none */
};

/* Checks inputs that `function` was given, and takes the gate. */
rp_status rpi_callable_begin(struct rp_callable *callable, const struct rp_inputs *inputs,
                             size_t count, const char *function, struct rp_error *err);
/* With the gate held: looks at a call, which callable->look tells of until the next one. */
rp_status rpi_callable_look(struct rp_callable *callable, const struct rp_inputs *inputs,
                            struct rp_error *err);

/* What a run of the function is given beside its call; the user of rpi_callable_run. */
struct rpi_callable_run {
    rp_callable_fn function;
    void *user;
    const struct rp_arg *args; /* as the function sees them, but for their addresses */
    size_t arg_count;
    const struct rpi_place_in_storage *places; /* of each argument in the call's; NULL: one each */
    const void *key;
    size_t key_bytes;
    uint64_t *addresses; /* room for arg_count */
};

rp_status rpi_callable_run(struct rp_call *call, void *user, struct rp_error *err);
/* The function as the call that was looked at last has it run in a graph. */
struct rpi_callable_run rpi_callable_run_of(struct rp_callable *callable);

/* Runs eagerly with memory of the heap; waits for nothing. */
rp_status rpi_run_on_heap(struct rp_heap *heap, const char *name, struct rpi_callable_run *run,
                          CUstream stream, struct rp_error *err);

#endif
