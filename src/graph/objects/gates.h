/* SPDX-License-Identifier: MIT
 *
 * Who may run or capture a callable now: the gates of objects.h, and a pool's capture that somebody
 * else has under way.
 */
#ifndef REPRISE_GRAPH_OBJECTS_GATES_H
#define REPRISE_GRAPH_OBJECTS_GATES_H

#include "graph/objects/objects.h"

/* Takes the gate for `function`, which is to run a callable or to wait for one; `name` is whose
 * gate it is. RP_ERROR_INVALID_ARGUMENT where that could never be: this thread holds it, or its
 * holder waits for this thread. */
rp_status rpi_gate_for_callable(struct rpi_gate *gate, const char *function, const char *name,
                                struct rp_error *err);

/* The same for what runs or captures a callable at once: refused also to a callable that is being
 * captured, whatever the pools. */
rp_status rpi_gate_for_work(struct rpi_gate *gate, const char *function, const char *name,
                            struct rp_error *err);

/* RP_ERROR_INVALID_ARGUMENT, said to be `function`'s, while a capture into the pool that was
 * adopted is under way. With the capture lock held, under which none begins. */
rp_status rpi_adoption_check(const struct rp_pool *pool, const char *function,
                             struct rp_error *err);

#endif
