/* SPDX-License-Identifier: MIT */
#include "memory/pool.h"

rp_status rpi_pool_init(struct rpi_pool *pool, const struct rp_driver *driver, CUdevice device,
                        uint64_t most_bytes, uint64_t limit, uint64_t alignment,
                        struct rp_error *err)
{
    *pool = (struct rpi_pool){.limit = limit, .alignment = alignment};
    return rpi_arena_init(&pool->arena, driver, device, most_bytes, err);
}

void rpi_pool_finish(struct rpi_pool *pool)
{
    rpi_arena_finish(&pool->arena);
    rpi_vec_finish(&pool->members);
}

rp_status rpi_pool_grow(struct rpi_pool *pool, uint64_t height, struct rp_error *err)
{
    uint64_t bytes = rpi_round_up(height, pool->arena.granularity);
    if (pool->limit && bytes > pool->limit && bytes > pool->arena.mapped) {
        rpi_error(err, RP_ERROR_LIMIT, "rpi_pool_grow",
                  "the pool would need %llu bytes, but its limit is %llu: raise limit_bytes or "
                  "capture smaller work",
                  (unsigned long long)bytes, (unsigned long long)pool->limit);
        if (err) {
            err->requested = bytes;
            err->available = pool->limit;
        }
        return RP_ERROR_LIMIT;
    }
    rp_status status = rpi_arena_grow(&pool->arena, height, err);
    if (status == RP_OK && pool->underway < height)
        pool->underway = height;
    return status;
}

static void trim(struct rpi_pool *pool)
{
    uint64_t height = rpi_pool_height(pool);
    rpi_arena_shrink(&pool->arena, height > pool->underway ? height : pool->underway);
}

void rpi_pool_settle(struct rpi_pool *pool)
{
    pool->underway = 0;
    trim(pool);
}

rp_status rpi_pool_add(struct rpi_pool *pool, struct rpi_pool_member *member, struct rp_error *err)
{
    if (!rpi_vec_push(&pool->members, member))
        return rpi_error_host_memory(err, "rpi_pool_add", sizeof member);
    return RP_OK;
}

void rpi_pool_remove(struct rpi_pool *pool, const struct rpi_pool_member *member)
{
    for (size_t i = 0; i < pool->members.count; i++) {
        if (pool->members.data[i] != member)
            continue;
        pool->members.data[i] = pool->members.data[--pool->members.count];
        trim(pool);
        return;
    }
}

uint64_t rpi_pool_height(const struct rpi_pool *pool)
{
    uint64_t height = 0;
    for (size_t i = 0; i < pool->members.count; i++)
        if (height < pool->members.data[i]->height)
            height = pool->members.data[i]->height;
    return height;
}

uint64_t rpi_pool_lower_bound(const struct rpi_pool *pool)
{
    uint64_t bound = 0;
    for (size_t i = 0; i < pool->members.count; i++)
        if (bound < pool->members.data[i]->lower_bound)
            bound = pool->members.data[i]->lower_bound;
    return bound;
}
