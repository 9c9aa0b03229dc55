/* SPDX-License-Identifier: MIT
 *
 * Planning a capture that is added to a pool with others: what they hold is in its way, and nothing
 * of theirs can move.
 *
 *     always   of concurrent members all, of earlier ones of a sequence what they keep and have not
 *              released
 *              and of those that others replay what the program has in its hands, however they
 *              relate
 *     later    of later ones of a sequence (captured first all the same) all, but only for blocks
 *              that the new capture keeps
 *
 * The capture is planned alone and put into the lowest gap that holds it whole; where that makes
 * the pool higher than it is, the obstacles become blocks at fixed offsets of one problem, and the
 * lower of the two layouts is taken. In a sequence the kept blocks are in the way of all that comes
 * after, and scattered ones more than a pile: so a layout with all of them in one pile, in the
 * lowest gap that holds it, is tried first, and taken where the pool is no higher with it.
 */
#ifndef REPRISE_MEMORY_POOL_POOL_PLAN_H
#define REPRISE_MEMORY_POOL_POOL_PLAN_H

#include "memory/pool/pool.h"

struct rpi_pool_obstacles {
    struct rpi_ranges always, later; /* joined; disjoint */
    bool followed; /* in a sequence: what the new member keeps is in the way of others */
};

/* What is in the way of a member that is added to the group next. */
rp_status rpi_pool_obstacles(const struct rpi_pool *pool, const struct rpi_pool_group *group,
                             struct rpi_pool_obstacles *out_obstacles, struct rp_error *err);
/* Puts what is in the way of kept blocks in the way of all. */
rp_status rpi_pool_obstacles_widen(struct rpi_pool_obstacles *obstacles, struct rp_error *err);
/* Puts the first bytes of the pool in the way of all. */
rp_status rpi_pool_obstacles_lead(struct rpi_pool_obstacles *obstacles, uint64_t bytes,
                                  struct rp_error *err);
void rpi_pool_obstacles_finish(struct rpi_pool_obstacles *obstacles);

/* Obstacles as blocks of a problem, at fixed offsets on two lanes of their own: those that are in
 * the way always after nothing and before nothing, later ones after every block that is freed. */
enum { RPI_OBSTACLE_LANES = 2 };
/* What a block of the problem, freed or kept, has as first[] on those two lanes. */
static inline void rpi_pool_order_obstacles(uint32_t first[RPI_OBSTACLE_LANES], bool kept)
{
    first[0] = RPI_NEVER;
    first[1] = kept ? RPI_NEVER : 0;
}
/* Fills in blocks `at` and following. */
void rpi_pool_lay_obstacles(const struct rpi_pool_obstacles *obstacles, uint32_t lane, uint32_t at,
                            struct rpi_lifetimes *x, uint64_t *fixed);

/* kept[i]: block i of the lifetimes is kept. options->fixed and capacity must be unset. The result
 * has the highest end of these blocks, and their own bound. */
rp_status rpi_pool_plan(const struct rpi_lifetimes *lifetimes, const bool *kept,
                        const struct rpi_pool_obstacles *obstacles,
                        const struct rpi_plan_options *options, uint64_t *out_offsets,
                        struct rpi_plan_result *out_result, struct rp_error *err);

#endif
