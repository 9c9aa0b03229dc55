/* SPDX-License-Identifier: MIT
 *
 * Which arguments of a graph are copied though they could be bound: what the rule
 * (policy/bind_or_copy.h) is asked, and what it is asked with.
 *
 * Only graphs whose arguments are used by RPI_COPY_CHOICE_LEAST_NODES nodes or more have a choice:
 * below, changing all of them costs less than one launch that copies. Arguments that copy nodes use
 * are always bound, as such a node does not move to all kinds of memory.
 *
 * What a node costs is learned for each graph from its replays: the time in which nodes were given
 * to the driver and the launch after it, by the nodes. What copies cost is the device's (copier.h);
 * those that the graph makes itself cost a node to change and one to run in each direction.
 *
 * Guarded by the core's lock.
 */
#ifndef REPRISE_GRAPH_BIND_COPY_CHOICE_H
#define REPRISE_GRAPH_BIND_COPY_CHOICE_H

#include "graph/bind/bind.h"
#include "graph/ground/copier.h"
#include "policy/bind_or_copy.h"

enum { RPI_COPY_CHOICE_LEAST_NODES = 12 };

struct rpi_copy_choice {
    struct rpi_bind_choice rule;
    struct rpi_copier *copier; /* unowned */
    struct rpi_bind_price node;
    unsigned char *changed; /* arguments that have another address than in the last call */
    bool carried;           /* the graph itself makes the copies (copy_nodes.h) */
    bool fixed_node;        /* its price is not learned: for tests */
    uint64_t asked;         /* calls that asked the rule */
};

/* Of a binding that is complete. *out_choice is NULL where there is nothing to choose. */
rp_status rpi_copy_choice_create(struct rpi_copy_choice **out_choice,
                                 const struct rpi_binding *binding, struct rpi_copier *copier,
                                 struct rp_error *err);
void rpi_copy_choice_destroy(struct rpi_copy_choice *choice); /* NULL is allowed */

/* The graph makes copies of these directions by itself: arguments that would be copied in another
 * one are bound from now on. */
void rpi_copy_choice_carry(struct rpi_copy_choice *choice, bool in, bool out);

/* A call comes on the stream; `changed` says which addresses are new. True: other arguments are
 * copied from now on. */
bool rpi_copy_choice_next(struct rpi_copy_choice *choice, CUstream stream);

/* Is the time that binding and launching take worth knowing, when so many nodes are given? */
static inline bool rpi_copy_choice_wants_time(const struct rpi_copy_choice *choice, uint64_t nodes)
{
    enum { SAMPLES = 8, ASKED_EVERY = 16 };
    return choice && !choice->fixed_node && nodes >= RPI_COPY_CHOICE_LEAST_NODES &&
           (choice->node.samples < SAMPLES || choice->asked % ASKED_EVERY == 0);
}
void rpi_copy_choice_learn(struct rpi_copy_choice *choice, uint64_t nodes, double us);

#endif
