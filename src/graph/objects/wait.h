/* SPDX-License-Identifier: MIT
 *
 * Waiting for replays.
 */
#ifndef REPRISE_GRAPH_OBJECTS_WAIT_H
#define REPRISE_GRAPH_OBJECTS_WAIT_H

#include "graph/objects/objects.h"

/* Waits until a member's last replay is over: for its event, or its stream where that says nothing.
 */
void rpi_wait_for_member(const struct rp_driver *driver, const struct rpi_pool_member *member);

#endif
