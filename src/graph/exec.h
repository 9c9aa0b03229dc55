/* SPDX-License-Identifier: MIT
 *
 * An exec: a template made launchable, and what its arguments are bound to.
 *
 * Binding marks the nodes that hold an address which changed, then gives each of these nodes to the
 * driver once, in their order, however many of its addresses changed. The driver applies them to
 * later launches: those in flight keep theirs. Where the driver fails, the nodes that it has not
 * taken stay marked and are given before the next launch, so an exec is never launched with
 * parameters of two calls.
 *
 * Not synchronised: the pool's lock guards it.
 */
#ifndef REPRISE_GRAPH_EXEC_H
#define REPRISE_GRAPH_EXEC_H

#include "graph/bind.h"

struct rpi_exec {
    const struct rp_driver *driver;
    CUcontext context;
    CUgraphExec handle;
    CUgraphNode *nodes; /* of the graph that it was instantiated from, by number (sites.h); NULL for
                           those in child graphs, which cannot be changed */
    uint64_t *bound;    /* of each argument, its target when its images were marked last */
    uint64_t *stale;    /* a bit for each image: the driver does not have it yet */
    size_t stale_count;
    uint64_t patched; /* nodes given to the driver so far */
};

/* The nodes of a template by number, NULL for those in child graphs. The caller's to free. */
rp_status rpi_exec_nodes(const struct rp_driver *driver, CUgraph template, CUgraphNode **out_nodes,
                         struct rp_error *err);

/* Instantiates the template, uploads it through the stream and waits for that. nodes is the exec's
 * on success. binding has been initialised for the same template. */
rp_status rpi_exec_create(struct rpi_exec *exec, const struct rp_device *device, CUgraph template,
                          CUgraphNode *nodes, const struct rpi_binding *binding, const char *name,
                          CUstream stream, struct rp_error *err);
void rpi_exec_destroy(struct rpi_exec *exec); /* allowed on a zeroed one */

/* Binds each argument to its target. A copy or fill that the driver refuses to change demotes the
 * arguments that it uses: their targets and reasons change. */
rp_status rpi_exec_bind(struct rpi_exec *exec, struct rpi_binding *binding, const char *name,
                        struct rp_error *err);

#endif
