/* SPDX-License-Identifier: MIT
 *
 * Does an argument lie in memory that a replay may use? Asked of each address that a graph has not
 * been replayed with before. Addresses in the pools' own memory are told from what the pool knows;
 * of all others the driver is asked once for each allocation, or piece of mapped memory, and its
 * answer is kept: memory that the caller gives back later is not found out.
 */
#ifndef REPRISE_GRAPH_REPLAY_ARGUMENT_MEMORY_H
#define REPRISE_GRAPH_REPLAY_ARGUMENT_MEMORY_H

#include "base/status.h"

struct rp_graph;

/* RP_ERROR_CONTRACT for memory that is not the device's, not mapped, too short, another graph's
 * own, or whose contents another replay has overwritten. With the core's lock held and the context
 * current; args were checked. */
rp_status rpi_check_memory(struct rp_graph *graph, const struct rp_arg *args, struct rp_error *err);

#endif
