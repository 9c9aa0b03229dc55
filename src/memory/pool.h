/* SPDX-License-Identifier: MIT
 *
 * The memory of captures that are alternatives of each other. Every one is laid out from offset 0,
 * so they lie over each other, and the memory behind the range reaches as high as the highest.
 *
 *     member   one capture's share: the height of its layout and the lower bound of its blocks
 *
 * Not synchronised; see the arena for contexts and for what may still run.
 */
#ifndef REPRISE_MEMORY_POOL_H
#define REPRISE_MEMORY_POOL_H

#include "memory/arena.h"

struct rpi_pool_member {
    uint64_t height, lower_bound;
};

struct rpi_pool {
    struct rpi_arena arena;
    uint64_t limit;     /* most bytes to map; 0: none */
    uint64_t alignment; /* of every block */
    uint64_t underway;  /* height that a capture under way has reached; 0: none is */
    struct {
        RPI_VEC(struct rpi_pool_member *); /* unowned: each lies in its graph */
    } members;
};

rp_status rpi_pool_init(struct rpi_pool *pool, const struct rp_driver *driver, CUdevice device,
                        uint64_t most_bytes, uint64_t limit, uint64_t alignment,
                        struct rp_error *err);
/* Allowed on a zeroed pool. */
void rpi_pool_finish(struct rpi_pool *pool);

/* Puts memory behind [0, height) for a capture under way, which keeps it until rpi_pool_settle.
 * Fails with RP_ERROR_LIMIT above the limit, or for want of device memory; then the pool is as it
 * was. */
rp_status rpi_pool_grow(struct rpi_pool *pool, uint64_t height, struct rp_error *err);
/* The capture is over, its member added or not: gives back what no member reaches. */
void rpi_pool_settle(struct rpi_pool *pool);

/* The member is borrowed until it is removed; memory that only it reached is given back then. */
rp_status rpi_pool_add(struct rpi_pool *pool, struct rpi_pool_member *member, struct rp_error *err);
void rpi_pool_remove(struct rpi_pool *pool, const struct rpi_pool_member *member);

/* Over the members: what alternatives need is what the neediest needs. */
uint64_t rpi_pool_height(const struct rpi_pool *pool);
uint64_t rpi_pool_lower_bound(const struct rpi_pool *pool);

#endif
