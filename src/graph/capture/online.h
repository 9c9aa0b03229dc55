/* SPDX-License-Identifier: MIT
 *
 * A capture's blocks in its pool while the capture goes on: placed online (memory/place/place.h)
 * around what others of the pool hold, with memory mapped behind them.
 */
#ifndef REPRISE_GRAPH_CAPTURE_ONLINE_H
#define REPRISE_GRAPH_CAPTURE_ONLINE_H

#include "graph/objects/objects.h"
#include "memory/place/place.h"

struct rpi_online {
    struct rp_pool *pool;   /* unowned */
    struct rpi_place place; /* block i of the capture is block obstacles + i */
    uint32_t obstacles;
    struct rpi_frontier frontier;
};

/* Memory up to `height` is mapped, and preferred; nothing goes where the obstacles are, which are
 * joined. After a failure too rpi_online_finish frees what was made. What the pool grew by stays
 * until it is settled. */
rp_status rpi_online_begin(struct rpi_online *online, struct rp_pool *pool,
                           const struct rpi_order *order, uint64_t height,
                           const struct rpi_ranges *obstacles, struct rp_error *err);
/* Puts memory behind [from, to). */
rp_status rpi_online_back(struct rpi_online *online, uint64_t from, uint64_t to,
                          struct rp_error *err);
void rpi_online_finish(struct rpi_online *online);

/* The next two are asked for an allocation on the stream of that number, which sees these nodes. */
rp_status rpi_online_look(struct rpi_online *online, uint32_t stream, const uint32_t *nodes,
                          size_t count, struct rp_error *err);
bool rpi_online_fits(const struct rpi_online *online, uint64_t offset, uint64_t bytes);
uint64_t rpi_online_find(const struct rpi_online *online, uint64_t bytes);
/* Lays the next block there, UINT64_MAX being nowhere, and puts memory behind it. */
rp_status rpi_online_take(struct rpi_online *online, uint64_t offset, uint64_t bytes,
                          uint64_t *out_address, struct rp_error *err);
/* The capture's block is dead for whoever comes after the nodes. */
rp_status rpi_online_free(struct rpi_online *online, uint32_t block, const uint32_t *nodes,
                          size_t count, struct rp_error *err);

#endif
