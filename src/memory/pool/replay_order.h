/* SPDX-License-Identifier: MIT
 *
 * Whose replay must be over before another may begin. Members that are concurrent need not wait for
 * each other; any other two may lie over each other, or one reads what the other wrote.
 *
 * In a group of alternatives or a sequence one child is current: the one that was replayed last.
 *
 *     since    turn at which it became current; turns of its members from then on are after all
 *              that the other children did
 *     before   members that whoever is replayed below it must wait for: together they are after
 *              everything that was replayed below the other children
 *
 * So a replay looks at the groups above it only: those where it stays in the current child have
 * their `before` ready; where the current child changes, the last turns below the old one, since it
 * became current, are the new `before` (kept in `next` until the replay is enqueued). With
 * alternatives alone that is one member, however many there are.
 */
#ifndef REPRISE_MEMORY_POOL_REPLAY_ORDER_H
#define REPRISE_MEMORY_POOL_REPLAY_ORDER_H

#include "memory/pool/pool.h"

/* Lists in pool->ahead whose last replays must be over before the member is replayed again, itself
 * left out. Changes no turns. Fails for want of host memory only. */
rp_status rpi_replay_order_ahead(struct rpi_pool *pool, struct rpi_pool_member *member,
                                 struct rp_error *err);
/* The member's replay is enqueued behind those of the rpi_replay_order_ahead just before. */
void rpi_replay_order_take(struct rpi_pool *pool, struct rpi_pool_member *member);
/* A node is removed; its replays are over, and so is all that they waited for. */
void rpi_replay_order_forget(struct rpi_pool *pool, const struct rpi_pool_node *node);

#endif
