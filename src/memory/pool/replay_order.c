/* SPDX-License-Identifier: MIT */
#include "memory/pool/replay_order.h"

#include <assert.h>

static struct rpi_pool_group *group_above(const struct rpi_pool_node *node)
{
    assert(node->parent && node->parent->kind != RPI_COMPOSE_CAPTURE);
    return (struct rpi_pool_group *)node->parent;
}

static bool orders(const struct rpi_pool_group *group)
{
    return group->node.kind != RPI_COMPOSE_CONCURRENT;
}

/* Appends members whose turns, from `since` on, are together after all such turns below the node.
 */
static bool list_last(struct rpi_pool_node *node, uint64_t since, struct rpi_pool_members *list)
{
    assert(node->kind == RPI_COMPOSE_CAPTURE || !((struct rpi_pool_group *)node)->current ||
           ((struct rpi_pool_group *)node)->current->parent == node);
    if (node->kind == RPI_COMPOSE_CAPTURE) {
        struct rpi_pool_member *member = (struct rpi_pool_member *)node;
        return !member->turn || member->turn < since || rpi_vec_push(list, member);
    }
    const struct rpi_pool_group *group = (const struct rpi_pool_group *)node;
    if (orders(group))
        return !group->current ||
               list_last(group->current, since > group->since ? since : group->since, list);
    for (struct rpi_pool_node *child = node->first; child; child = child->next)
        if (!list_last(child, since, list))
            return false;
    return true;
}

rp_status rpi_replay_order_ahead(struct rpi_pool *pool, struct rpi_pool_member *member,
                                 struct rp_error *err)
{
    assert(member->node.parent && member->turn <= pool->turns);
    bool done = true;
    pool->ahead.count = 0;
    for (struct rpi_pool_node *node = &member->node; done && node->parent; node = node->parent) {
        struct rpi_pool_group *group = group_above(node);
        if (!orders(group))
            continue;
        group->next.count = 0;
        if (group->current && group->current != node)
            done = list_last(group->current, group->since, &group->next);
        const struct rpi_pool_members *list =
            group->current == node ? &group->before : &group->next;
        done = done && rpi_vec_reserve(&pool->ahead, pool->ahead.count + list->count);
        for (size_t i = 0; done && i < list->count; i++)
            pool->ahead.data[pool->ahead.count++] = list->data[i];
    }
    return done ? RP_OK : rpi_error_host_memory(err, "rp_graph_replay", sizeof member);
}

void rpi_replay_order_take(struct rpi_pool *pool, struct rpi_pool_member *member)
{
    assert(member->node.parent);
    member->turn = ++pool->turns;
    for (struct rpi_pool_node *node = &member->node; node->parent; node = node->parent) {
        struct rpi_pool_group *group = group_above(node);
        if (!orders(group) || group->current == node)
            continue;
        assert(group->since < member->turn);
        struct rpi_pool_members before = group->before;
        group->before = group->next;
        group->next = before;
        group->current = node;
        group->since = member->turn;
    }
}

static void drop(struct rpi_pool_members *list, const struct rpi_pool_node *node)
{
    assert(node->parent);
    for (size_t i = 0; i < list->count; i++)
        if (&list->data[i]->node == node)
            list->data[i--] = list->data[--list->count];
}

static void forget_below(struct rpi_pool_node *top, const struct rpi_pool_node *node)
{
    if (top->kind == RPI_COMPOSE_CAPTURE)
        return;
    struct rpi_pool_group *group = (struct rpi_pool_group *)top;
    if (group->current == node) {
        group->current = NULL;
        group->before.count = 0;
    }
    drop(&group->before, node);
    drop(&group->next, node);
    for (struct rpi_pool_node *child = top->first; child; child = child->next)
        forget_below(child, node);
}

void rpi_replay_order_forget(struct rpi_pool *pool, const struct rpi_pool_node *node)
{
    assert(node->parent);
    forget_below(&pool->root->node, node);
}
