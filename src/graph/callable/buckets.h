/* SPDX-License-Identifier: MIT
 *
 * Buckets: named dimensions whose sizes are rounded up, so that calls of several sizes share a
 * graph, and the staging that arguments of smaller sizes are padded in.
 *
 *     caller's argument      [ true rows ]
 *     staging                [ true rows | padding ]      what the graph is given
 *
 * Each argument with such a dimension has a place in the callable's staging, which lies beside the
 * pool: memory of the size of the largest bucket's arguments. In and inout arguments are copied in,
 * out and inout ones back, within the true sizes. The padding is filled when it is not what it was:
 * after a call of the same bucket, only where an argument became smaller. Whatever the stream,
 * calls wait for the staging's last use.
 */
#ifndef REPRISE_GRAPH_CALLABLE_BUCKETS_H
#define REPRISE_GRAPH_CALLABLE_BUCKETS_H

#include "graph/callable/shapes.h"
#include "memory/range/arena.h"

struct rpi_dim {
    char *name;
    struct rp_axis *axes;
    size_t axis_count;
    enum rp_bucket_rule rule;
    int64_t *sizes;
    size_t size_count;
};

struct rpi_buckets {
    struct rpi_dim *dims;
    size_t dim_count;
    struct rp_fill *fills;
    size_t fill_count;
    /* Of the call that was looked at last, by argument: */
    struct rpi_padded *padded;
    int64_t *sizes; /* RP_MOST_RANK for each: the bucket's */
    size_t room;
    bool any;        /* an argument is padded, or goes through staging for its strides */
    uint64_t height; /* of the staging that its bucket takes */
    /* The staging. */
    const struct rp_driver *driver;
    struct rpi_arena arena;
    CUevent used; /* recorded behind its last use .. */
    CUstream stream;
    bool busy;                    /* .. if there was one */
    const struct rpi_shape *last; /* that the last call padded for; NULL: unknown what is there */
    int64_t *last_sizes;          /* RP_MOST_RANK for each argument: the true ones of the last call
                                     of that shape that padded it, if one did (rpi_padded) */
};

/* Is any dimension to be rounded up? */
static inline bool rpi_buckets_wanted(const struct rpi_buckets *buckets)
{
    return buckets->dim_count != 0;
}

/* Copies what the options say. Reserves addresses and takes no memory. The context is current. */
rp_status rpi_buckets_init(struct rpi_buckets *buckets, const struct rp_callable_options *options,
                           const struct rp_device *device, struct rp_error *err);
/* Waits for the staging's last use. The context is current. Allowed on a zeroed one. */
void rpi_buckets_finish(struct rpi_buckets *buckets);

/* Puts buckets in place of the arguments that have such dimensions; args: what look->args were
 * copied from. */
rp_status rpi_buckets_look(struct rpi_buckets *buckets, struct rpi_look *look,
                           const struct rp_arg *args, struct rp_error *err);

/* Takes the memory that the bucket of the last call needs. The context is current. */
rp_status rpi_buckets_reserve(struct rpi_buckets *buckets, struct rp_error *err);
/* Before and after the graph: the copies of the last call, whose own arguments args are. The
 * context is current. */
rp_status rpi_buckets_copy_in(struct rpi_buckets *buckets, const struct rpi_shape *shape,
                              const struct rp_arg *args, CUstream stream, struct rp_error *err);
rp_status rpi_buckets_copy_out(struct rpi_buckets *buckets, const struct rpi_shape *shape,
                               const struct rp_arg *args, CUstream stream, struct rp_error *err);
/* The call's work is enqueued, whole or not. The context is current. */
void rpi_buckets_used(struct rpi_buckets *buckets, CUstream stream);

#endif
