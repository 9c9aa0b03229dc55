/* SPDX-License-Identifier: MIT
 *
 * Sites: the places in a template's node parameters that hold an address of the capture, proved by
 * two captures.
 *
 *     node     number of the node, counted through the template in the order of cuGraphGetNodes, a
 *              child graph's nodes right after the node that holds them
 *     offset   byte in the node's parameter image (params.h)
 *     block    index of the block in the capture; blocks 0 .. arg_count - 1 are the arguments
 *     delta    distance of the address from the block's start; its end belongs to the block, and a
 *              little before the start may be meant
 */
#ifndef REPRISE_GRAPH_GROUND_SITES_H
#define REPRISE_GRAPH_GROUND_SITES_H

#include "base/status.h"
#include "base/vec.h"

struct rpi_site {
    uint32_t node;
    uint32_t offset;
    uint32_t block;
    int64_t delta;
};

struct rpi_sites {
    RPI_VEC(struct rpi_site); /* by node */
    size_t rubbish; /* words that differed and hold no address: padding, stack leftovers */
};

struct rpi_addresses {
    RPI_VEC(uint64_t); /* on the device */
};

#endif
