/* SPDX-License-Identifier: MIT
 *
 * What a graph is launched with: an exec, its own or one that it shares (exec_cache.h), what its
 * arguments are bound to there, and what the nodes copy that carry arguments (copy_nodes.h).
 *
 * Binding marks the nodes that hold an address or a scalar which changed, then gives each of these
 * nodes to the driver once, in their order, however many of its words changed. The driver applies
 * them to later launches: those in flight keep theirs. Where the driver fails, the nodes that it
 * has not taken stay marked and are given before the next launch, so an exec is never launched with
 * parameters of two calls. A graph that is seated in another exec finds it as it was recorded.
 *
 * Not synchronised: the pool's lock guards it.
 */
#ifndef REPRISE_GRAPH_EXEC_EXEC_H
#define REPRISE_GRAPH_EXEC_EXEC_H

#include "graph/bind/bind.h"
#include "graph/bind/copy_nodes.h"

struct rpi_exec {
    const struct rp_driver *driver;
    CUcontext context;
    CUgraphExec handle;       /* borrowed; NULL: none yet. May be gone: only a replay that has taken
                                 its exec from the cache uses it */
    const CUgraphNode *nodes; /* of the graph that it was instantiated from, by number (sites.h) */
    uint64_t *bound;          /* of each argument, its target when its images were marked last */
    uint64_t *scalars;        /* of each slot of the binding's scalars, its word then */
    uint64_t *stale;          /* a bit for each image: the driver does not have it yet */
    size_t stale_count;
    bool renewed;     /* in this replay: made again, for other memory */
    uint64_t patched; /* nodes given to the driver so far */
    struct rpi_copy_nodes copy_nodes;
};

/* binding has been initialised. */
rp_status rpi_exec_init(struct rpi_exec *exec, const struct rp_device *device,
                        const struct rpi_binding *binding, struct rp_error *err);
void rpi_exec_finish(struct rpi_exec *exec); /* allowed on a zeroed one */

/* From now on the graph is launched with this exec, which holds its template as it was recorded. */
void rpi_exec_seat(struct rpi_exec *exec, const struct rpi_binding *binding, CUgraphExec handle,
                   const CUgraphNode *nodes);

enum rpi_bind_answer {
    RPI_BIND_BOUND,        /* it may be launched */
    RPI_BIND_NEEDS_MEMORY, /* arguments are copied now that were bound: once their staging is backed,
                              it is to be bound again */
    RPI_BIND_NEEDS_EXEC    /* the copies need an exec that was made for the call's memory: once the
                              graph is seated in it, it is to be bound again */
};

/* Binds each argument to its target. Where the driver refuses to change a copy, it asks for an exec,
 * once a replay; when that was tried often enough the copy's arguments are demoted: their targets
 * and reasons change. */
rp_status rpi_exec_bind(struct rpi_exec *exec, struct rpi_binding *binding, const char *name,
                        enum rpi_bind_answer *out_answer, struct rp_error *err);

#endif
