/* SPDX-License-Identifier: MIT
 *
 * The prices that the cache of execs decides by, learned on this device from what it does anyway:
 * the host's time for making an exec and for an update, by how much a launch after an update takes
 * longer, and the device's time of replays by a changed exec and by a fresh one. All with the
 * cache's lock held.
 */
#ifndef REPRISE_GRAPH_EXEC_EXEC_PRICES_H
#define REPRISE_GRAPH_EXEC_EXEC_PRICES_H

#include "graph/exec/exec_cache.h"

/* Takes a sample in; one far above the others counts as four times what is known. */
void rpi_exec_time_add(struct rpi_exec_time *time, double us);

/* Puts what is known into the prices of the rule. */
void rpi_exec_price_class(struct rpi_exec_cache *cache, struct rpi_exec_class *class);
void rpi_exec_price_client(struct rpi_exec_cache *cache, struct rpi_exec_client *client);

void rpi_exec_learn_make(struct rpi_exec_cache *cache, struct rpi_exec_class *class, double us);
void rpi_exec_learn_update(struct rpi_exec_cache *cache, struct rpi_exec_class *class, double us);
void rpi_exec_learn_launch(struct rpi_exec_cache *cache, struct rpi_exec_client *client, double us);
/* The device's time of a replay of the client. */
void rpi_exec_learn_replay(struct rpi_exec_cache *cache, struct rpi_exec_client *client,
                           bool changed, double us);

/* What the replay under way, by the exec that was taken, is to measure. */
void rpi_exec_choose_samples(struct rpi_exec_cache *cache, struct rpi_exec_client *client);

#endif
