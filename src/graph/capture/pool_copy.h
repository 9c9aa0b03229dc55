/* SPDX-License-Identifier: MIT
 *
 * A copy of a pool's tree in which captures can be planned that are never recorded: who lies where,
 * without memory, addresses or graphs. What is planned in it takes its place there, so that what
 * comes next is planned as it would be after the captures themselves.
 */
#ifndef REPRISE_GRAPH_CAPTURE_POOL_COPY_H
#define REPRISE_GRAPH_CAPTURE_POOL_COPY_H

#include "graph/capture/share.h"

struct rpi_pool_copy {
    struct rpi_pool_core *of;   /* unowned; what it was copied from */
    struct rpi_pool_core *core; /* has what planning reads: tree, alignment, lock, plans */
    struct {
        RPI_VEC(struct rpi_pool_copy_group *); /* the root first */
    } pools;
    struct {
        RPI_VEC(struct rpi_pool_member *);
    } members;
};

rp_status rpi_pool_copy_init(struct rpi_pool_copy *tree, struct rp_pool *pool,
                             struct rp_error *err);
void rpi_pool_copy_finish(struct rpi_pool_copy *tree); /* allowed on a zeroed one */

/* Plans the rehearsal as rp_graph_capture into the pool would, with `lead` bytes of the pool left
 * alone, and adds it there. With the capture
 * lock of the pool held. out_member belongs to the tree. */
rp_status rpi_pool_copy_plan(struct rpi_pool_copy *tree, const struct rp_pool *pool,
                             const struct rpi_rehearsal *rehearsal, uint64_t lead,
                             const struct rpi_pool_member **out_member, struct rp_error *err);

/* Of all that is in it: the highest end of a block, and the bound. */
uint64_t rpi_pool_copy_height(const struct rpi_pool_copy *tree);
uint64_t rpi_pool_copy_lower_bound(const struct rpi_pool_copy *tree);

#endif
