/* SPDX-License-Identifier: MIT
 *
 * A template and its nodes, as executable graphs are made from it: kept while its graph or an exec
 * that was made from it is there, as the driver names an exec's nodes by the template that it was
 * instantiated from.
 */
#ifndef REPRISE_GRAPH_EXEC_EXEC_SOURCE_H
#define REPRISE_GRAPH_EXEC_EXEC_SOURCE_H

#include "graph/template/topology.h"

struct rpi_exec_source {
    CUgraph template;
    struct rpi_topology topology; /* its words lie in the class */
    size_t holders;               /* guarded by the lock of the cache */
};

/* Reads a template, which is the source's on success. */
rp_status rpi_exec_source_create(struct rpi_exec_source **out_source,
                                 const struct rp_driver *driver, CUgraph template,
                                 struct rp_error *err);
/* Nodes were added to the template, which are at its outermost level: reads it once more. The nodes
 * that it had keep their numbers, whatever order the driver has them in now; the others follow in
 * the order that they are given in. */
rp_status rpi_exec_source_extend(struct rpi_exec_source *source, const struct rp_driver *driver,
                                 const CUgraphNode *added, size_t count, struct rp_error *err);
/* With its template; no client has it. NULL is allowed. */
void rpi_exec_source_destroy(struct rpi_exec_source *source, const struct rp_driver *driver);

#endif
