/* SPDX-License-Identifier: MIT
 *
 * Replaying, for those who compare its two ways; rp_graph_replay is in reprise.h.
 */
#ifndef REPRISE_GRAPH_REPLAY_REPLAY_H
#define REPRISE_GRAPH_REPLAY_REPLAY_H

#include "graph/objects/objects.h"

/* Replays from the next on copy every argument that they could bind, but for those that copy nodes
 * use, or bind them again. Where there is no memory to copy to they bind. For callers inside the
 * library that compare the two ways; any thread. */
void rpi_graph_copy_args(struct rp_graph *graph, bool copies);

#endif
