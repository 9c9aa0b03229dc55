/* SPDX-License-Identifier: MIT
 *
 * Copy nodes: kernel nodes of ours at the ends of a template, which make a replay's copies within
 * its graph. One stands ahead of all roots, for copies in, one behind all leaves, for copies out:
 *
 *     copy node in -> roots ... leaves -> copy node out
 *
 * What is enqueued beside a graph costs the host a call and the device some microseconds between
 * the two (torch-decode.json: what PyTorch's replay takes with copies and without). A node that is
 * in the graph costs the device less than one, and the host one node more to change, where
 * addresses changed. Their tables are empty in the template, and an exec has them empty when a
 * graph is seated in it.
 *
 * The one ahead of all roots also sets the words that replays are given values for (rp_call_value):
 * they stand first in its table, as copies without bytes.
 *
 * A template gets one where replays have to copy in that direction, or may choose to
 * (copy_choice.h) what several nodes use, and the copy kernel could be loaded. There is room for every argument, up
 * to the most that a launch copies. Copies beyond that, copies out that overlap, and directions in
 * which a large copy is better off otherwise, go beside the graph, by the copier.
 *
 * Guarded by the core's lock, once the graph is there.
 */
#ifndef REPRISE_GRAPH_BIND_COPY_NODES_H
#define REPRISE_GRAPH_BIND_COPY_NODES_H

#include "graph/bind/bind.h"
#include "graph/ground/copier.h"

struct rpi_copy_node {
    CUgraphNode node; /* of the template */
    uint32_t number;  /* of the node, in templates of this topology */
    uint32_t most;    /* copies in its table; 0: there is no copy node */
    bool unknown;     /* what the exec has */
    size_t count;     /* or else these */
    struct rpi_copy *given;
};

enum rpi_copy_node_end { RPI_COPY_NODE_IN, RPI_COPY_NODE_OUT, RPI_COPY_NODE_ENDS };

struct rpi_copy_nodes {
    struct rpi_copier *copier; /* unowned */
    struct rpi_copy_node ends[RPI_COPY_NODE_ENDS];
    uint64_t tables; /* given to an exec so far */
};

/* Adds to the template the copy nodes that the binding's replays may have a use for; there may be
 * none. Whatever comes back is to be finished. The context is current. */
rp_status rpi_copy_nodes_add(struct rpi_copy_nodes *copy_nodes, const struct rpi_binding *binding,
                             struct rpi_copier *copier, CUgraph template, struct rp_error *err);
void rpi_copy_nodes_finish(struct rpi_copy_nodes *copy_nodes); /* allowed on zeroed ones */

/* The exec is another, or has been updated: its tables are empty. */
static inline void rpi_copy_nodes_seat(struct rpi_copy_nodes *copy_nodes)
{
    for (int end = 0; end < RPI_COPY_NODE_ENDS; end++) {
        copy_nodes->ends[end].count = 0;
        copy_nodes->ends[end].unknown = false;
    }
}

/* Has the exec make these copies at that end in its next launches, the first of them as far as the
 * table has room, and no others. *out_carried: how many. nodes: of the graph that the exec was
 * instantiated from. On failure the exec must not be launched before this was successful. */
CUresult rpi_copy_nodes_give(struct rpi_copy_nodes *copy_nodes, enum rpi_copy_node_end end,
                             CUgraphExec exec, const CUgraphNode *nodes,
                             const struct rpi_copy *copies, size_t count, size_t *out_carried);

#endif
