/* SPDX-License-Identifier: MIT
 *
 * "Is node u before node v?" in constant time, while a graph grows.
 *
 * Nodes arrive in a topological order, each with its direct predecessors, and are laid on chains: a
 * node continues the chain of one of its predecessors when that is the chain's last node, otherwise
 * any chain that ends before it (so forks after a join use old chains again), otherwise it opens a
 * chain. Each node knows, for every chain, the last position that lies before it (a vector clock,
 * Fidge and Mattern 1988), so u is before v exactly when v's clock has reached u's position on u's
 * chain. A node whose one last predecessor ends its chain shares that predecessor's clock; only
 * forks and joins make a new one. Memory: 8 bytes a node and 4 bytes a chain for each fork or join.
 * Adding a node costs the chains times its predecessors beyond the first; nothing is walked twice.
 *
 *   node      dense index in the order of adding
 *   frontier  the set of all nodes before or equal to some given nodes, as a clock
 */
#ifndef REPRISE_MEMORY_ORDER_ORDER_H
#define REPRISE_MEMORY_ORDER_ORDER_H

#include "base/status.h"

#include <stdbool.h>

struct rpi_order;

rp_status rpi_order_create(struct rpi_order **out_order, struct rp_error *err);
void rpi_order_destroy(struct rpi_order *order);

/* Adds a node after `count` distinct or repeated predecessors, all added before (asserted).
 * RP_ERROR_LIMIT when clocks would take more than 512 MiB in all: forks and joins times chains. */
rp_status rpi_order_add(struct rpi_order *order, const uint32_t *predecessors, size_t count,
                        uint32_t *out_node, struct rp_error *err);

uint32_t rpi_order_nodes(const struct rpi_order *order);
uint32_t rpi_order_chains(const struct rpi_order *order);
uint32_t rpi_order_chain_of(const struct rpi_order *order, uint32_t node);
uint32_t rpi_order_position_of(const struct rpi_order *order, uint32_t node); /* from 1 */

/* u == v, or u is before v. Constant time. */
bool rpi_order_reaches(const struct rpi_order *order, uint32_t u, uint32_t v);

/* A frontier is an array of at least rpi_order_chains() positions, owned by the caller; chains that
 * were opened after it was made count as 0. Position p on chain c is inside when clock[c] >= p. */
struct rpi_frontier {
    uint32_t *clock;
    uint32_t chains;
};
/* Sets the frontier to all that lies before or is one of `nodes`; grows it as needed. */
rp_status rpi_frontier_set(struct rpi_frontier *frontier, const struct rpi_order *order,
                           const uint32_t *nodes, size_t count, struct rp_error *err);
void rpi_frontier_finish(struct rpi_frontier *frontier);
bool rpi_frontier_holds(const struct rpi_frontier *frontier, const struct rpi_order *order,
                        uint32_t node);

#endif
