/* SPDX-License-Identifier: MIT
 *
 * Shapes: what a call of a callable must have in common with an earlier one to be served by the
 * same graph, and the table of those that were met.
 *
 *     storage    device memory that a graph takes as one argument: one argument of the callable, or
 *                several that overlap where one of them is written. Views of one storage go on
 *                overlapping in the same way wherever a replay has it.
 *
 *     arguments   a: [0, 64)   b: [32, 96), written   c: [128, 192)
 *     storages    0: [0, 96), inout                    1: [128, 192)
 *
 * A call is looked at in a time linear in its arguments, but for their sorting by address, for
 * which the order of the last call is the start. Nothing is allocated but for more arguments than
 * any call before had. A shape is found by a hash of all that is compared.
 *
 * Not synchronised: the callable's lock guards it.
 */
#ifndef REPRISE_GRAPH_CALLABLE_SHAPES_H
#define REPRISE_GRAPH_CALLABLE_SHAPES_H

#include "base/idmap.h"
#include "base/vec.h"
#include "graph/ground/tensor.h"
#include "reprise_framework.h"

/* Where an argument lies: a storage's number, and the distance from its start. */
struct rpi_place_in_storage {
    uint32_t storage;
    uint64_t offset;
};

/* A call that was looked at. Arrays have room for `room` arguments. */
struct rpi_look {
    struct rp_arg *args; /* what the graph is for: the caller's, or buckets. Filled by the caller of
                            rpi_look_at */
    size_t arg_count;
    const void *key;
    size_t key_bytes;
    struct rpi_place_in_storage *places; /* of each argument */
    struct rp_arg *storages;             /* what the graph is given */
    size_t storage_count;
    uint64_t hash;
    uint32_t *order;     /* arguments by address, as of the last call .. */
    size_t ordered;      /* .. that had so many */
    uint64_t *addresses; /* for whoever runs the function */
    bool *fresh;         /* outputs whose memory the call took itself */
    size_t room;
    bool joined; /* arguments share a storage */
};

struct rpi_shape {
    struct rpi_tensor *tensors; /* of each argument */
    enum rp_arg_role *roles;
    struct rpi_place_in_storage *places;
    size_t arg_count;
    void *key;
    size_t key_bytes;
    char *text;
    uint32_t next; /* of the same hash; RPI_ABSENT: none */
    /* What became of it; the callable's. */
    enum rp_shape_state state;
    char *reason;
    struct rp_graph *graph;
    uint64_t replays, eager_runs, padded_calls;
    double capture_ms;
    unsigned stale_graphs;        /* dropped (rp_graph_is_stale) */
    struct rp_way_choice *choice; /* of RP_POLICY_AUTO, from the first judged call on; owned by the
                                 callable */
};

struct rpi_shapes {
    struct {
        RPI_VEC(struct rpi_shape *); /* in the order in which they were met */
    } all;
    struct rpi_idmap by_hash; /* the latest of each hash */
};

/* Makes room for so many arguments; what was in the arrays is lost. */
rp_status rpi_look_reserve(struct rpi_look *look, size_t arg_count, struct rp_error *err);
void rpi_look_finish(struct rpi_look *look); /* allowed on a zeroed one */
/* Fills everything below args, arg_count, key and key_bytes, which are set. */
void rpi_look_at(struct rpi_look *look);

/* NULL when it was not met. */
struct rpi_shape *rpi_shapes_find(const struct rpi_shapes *shapes, const struct rpi_look *look);
rp_status rpi_shapes_add(struct rpi_shapes *shapes, const struct rpi_look *look,
                         struct rpi_shape **out_shape, struct rp_error *err);
/* A walker, for tests and debug builds: is each shape in one chain, and a graph where its state
 * says so? */
bool rpi_shapes_are_valid(const struct rpi_shapes *shapes);
/* Graphs are gone. */
void rpi_shapes_finish(struct rpi_shapes *shapes);

#endif
