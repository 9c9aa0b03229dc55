/* SPDX-License-Identifier: MIT
 *
 * How c10 asks "does this node come before what the stream does next": for each stream a hash set
 * of the nodes seen so far, extended at each allocation by a walk back from the stream's terminals
 * that stops at nodes in the set (PyTorch's pull request 162186). A model, written here, of the
 * method alone: c10 asks the driver for each node's dependencies, this reads them from an array.
 *
 * Cost: every node is visited once for each stream that comes after it, and so is every edge.
 */
#ifndef REPRISE_RECORDING_C10_WALK_H
#define REPRISE_RECORDING_C10_WALK_H

#include "base/idmap.h"
#include "memory/order/capture_record.h"

struct rpi_c10_walk {
    const struct rpi_predecessors *predecessors; /* unowned */
    struct {
        RPI_VEC(struct rpi_idmap); /* of each stream; only the keys matter */
    } visited;
    struct {
        RPI_VEC(uint32_t);
    } stack;
};

/* A zeroed walk with its predecessors set is ready. */
void rpi_c10_walk_finish(struct rpi_c10_walk *walk);
/* The stream has these terminals now; false: no host memory. */
bool rpi_c10_walk_extend(struct rpi_c10_walk *walk, uint32_t stream, const uint32_t *terminals,
                         size_t count);
/* Was the node before or equal to a terminal when the stream's set was last extended? */
bool rpi_c10_walk_holds(const struct rpi_c10_walk *walk, uint32_t stream, uint32_t node);

#endif
