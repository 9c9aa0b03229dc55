/* SPDX-License-Identifier: MIT
 *
 * What two templates must have in common so that an exec of one can be updated to the other, node
 * by node: both put down as words, equal where they have it. Nodes stand in the order of
 * cuGraphGetNodes, child graphs entered where they stand, and each with
 *
 *     its type
 *     its dependencies, in the order that the driver lists them, with their edge data
 *     what cuGraphExecUpdate does not change: a kernel's cluster and whether it is cooperative, the
 *     sides of a copy, the rows of a copy or fill that has several
 *
 * The driver pairs the nodes of an update by the order of exits and dependencies. In templates with
 * equal words that order is the same, so node i of one is paired with node i of the other: that is
 * the node map of a borrowed exec. What else the driver wants it says itself, by refusing.
 *
 * What an exec takes of device memory follows from the same reading (policy/exec_bytes.h): the
 * kernel and copy nodes, and the paths that the driver lays the nodes out on (paths.h). A child
 * graph's first path is that of its node.
 */
#ifndef REPRISE_GRAPH_TEMPLATE_TOPOLOGY_H
#define REPRISE_GRAPH_TEMPLATE_TOPOLOGY_H

#include "base/vec.h"
#include "driver/driver.h"

#include <stdbool.h>

struct rpi_node_kind {
    CUgraphNodeType type;
    CUfunction function; /* of a kernel */
};

struct rpi_topology {
    struct {
        RPI_VEC(uint64_t);
    } words;
    uint64_t hash;     /* of the words */
    uint64_t launches; /* hash of functions, grids and sizes: what an update may change at a cost */
    size_t nodes;      /* those of child graphs too */
    size_t charged;    /* of those, kernels and copies: an exec takes memory for each */
    size_t paths;      /* that nodes lie on */
    struct {
        RPI_VEC(CUgraphNode); /* by number (sites.h) */
    } handles;
    struct {
        RPI_VEC(struct rpi_node_kind); /* by number */
    } kinds;
};

/* Reads a template; out_topology is written on success and the caller's to finish. */
rp_status rpi_topology_read(struct rpi_topology *out_topology, const struct rp_driver *driver,
                            CUgraph template, struct rp_error *err);
void rpi_topology_finish(struct rpi_topology *topology); /* allowed on a zeroed one */

/* `whole` was read after nodes were added at the outermost level: what it tells becomes the
 * topology's, whose nodes keep their numbers, and the added ones follow. Where the driver lists
 * these, and others that it lists elsewhere than before, is put down in the words: where they are
 * equal, nodes of one number are still paired.
 * `whole` is still to be finished. */
rp_status rpi_topology_extend(struct rpi_topology *topology, struct rpi_topology *whole,
                              const CUgraphNode *added, size_t count, struct rp_error *err);

bool rpi_topology_equal(const struct rpi_topology *a, const struct rpi_topology *b);

#endif
