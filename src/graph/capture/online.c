/* SPDX-License-Identifier: MIT */
#include "graph/capture/online.h"

#include <assert.h>

/* Memory behind [from, to), and addresses mapped up to there. */
static rp_status grow_pool(struct rp_pool *pool, uint64_t from, uint64_t to, struct rp_error *err)
{
    struct rpi_pool *memory = &pool->core->memory;
    pthread_mutex_lock(&pool->core->lock);
    rp_status status = rpi_pool_grow(memory, to, err);
    if (status == RP_OK)
        status = rpi_pool_fill(memory, from, to, err);
    pthread_mutex_unlock(&pool->core->lock);
    return status;
}

rp_status rpi_online_begin(struct rpi_online *online, struct rp_pool *pool,
                           const struct rpi_order *order, uint64_t height,
                           const struct rpi_ranges *obstacles, struct rp_error *err)
{
    assert(rpi_ranges_are_joined(obstacles));
    *online = (struct rpi_online){.pool = pool, .obstacles = (uint32_t)obstacles->count};
    rpi_place_init(&online->place, order, pool->core->memory.alignment, height);
    rp_status status = grow_pool(pool, height, height, err);
    for (size_t i = 0; i < obstacles->count && status == RP_OK; i++) {
        const struct rpi_range *range = &obstacles->data[i];
        uint32_t block;
        status = rpi_place_take(&online->place, range->from, range->to - range->from, &block, err);
    }
    return status;
}

rp_status rpi_online_back(struct rpi_online *online, uint64_t from, uint64_t to,
                          struct rp_error *err)
{
    return grow_pool(online->pool, from, to, err);
}

void rpi_online_finish(struct rpi_online *online)
{
    rpi_place_finish(&online->place);
    rpi_frontier_finish(&online->frontier);
}

rp_status rpi_online_look(struct rpi_online *online, uint32_t stream, const uint32_t *nodes,
                          size_t count, struct rp_error *err)
{
    rp_status status = rpi_frontier_set(&online->frontier, online->place.order, nodes, count, err);
    return status == RP_OK ? rpi_place_look(&online->place, stream, &online->frontier, err)
                           : status;
}

bool rpi_online_fits(const struct rpi_online *online, uint64_t offset, uint64_t bytes)
{
    return rpi_place_fits(&online->place, offset, bytes);
}

uint64_t rpi_online_find(const struct rpi_online *online, uint64_t bytes)
{
    return rpi_place_find(&online->place, bytes);
}

rp_status rpi_online_take(struct rpi_online *online, uint64_t offset, uint64_t bytes,
                          uint64_t *out_address, struct rp_error *err)
{
    if (offset == UINT64_MAX)
        return rpi_error(err, RP_ERROR_LIMIT, "rp_call_alloc",
                         "a block of %llu bytes fits no range of addresses",
                         (unsigned long long)bytes);
    uint32_t block;
    rp_status status = grow_pool(online->pool, offset, offset + bytes, err);
    if (status == RP_OK)
        status = rpi_place_take(&online->place, offset, bytes, &block, err);
    if (status == RP_OK)
        *out_address = online->pool->core->memory.arena.base + offset;
    return status;
}

rp_status rpi_online_free(struct rpi_online *online, uint32_t block, const uint32_t *nodes,
                          size_t count, struct rp_error *err)
{
    return rpi_place_free(&online->place, online->obstacles + block, nodes, count, err);
}
