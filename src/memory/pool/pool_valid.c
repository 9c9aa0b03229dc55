/* SPDX-License-Identifier: MIT
 *
 * The walker of a pool: what must hold of its tree and of the memory behind it between two calls.
 */
#include "memory/pool/pool.h"

static bool lists_only_members(const struct rpi_pool *pool, const struct rpi_pool_members *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (!list->data[i]->node.parent || list->data[i]->turn > pool->turns)
            return false;
    return true;
}

static bool is_group_valid(const struct rpi_pool *pool, const struct rpi_pool_group *group)
{
    if (group->current && group->current->parent != &group->node)
        return false;
    if (group->node.kind == RPI_COMPOSE_CONCURRENT && group->current)
        return false;
    return group->since <= pool->turns && lists_only_members(pool, &group->before);
}

static bool is_covered(const struct rpi_ranges *ranges, struct rpi_range part)
{
    for (size_t i = 0; i < ranges->count; i++)
        if (ranges->data[i].from <= part.from && part.to <= ranges->data[i].to)
            return true;
    return false;
}

static bool is_member_valid(const struct rpi_pool *pool, const struct rpi_pool_member *member)
{
    if (!rpi_ranges_are_joined(&member->all) || !rpi_ranges_are_joined(&member->kept))
        return false;
    for (size_t i = 0; i < member->kept.count; i++)
        if (!is_covered(&member->all, member->kept.data[i]))
            return false;
    for (size_t i = 0; i < member->all.count; i++) {
        struct rpi_range range = member->all.data[i];
        if (range.to > pool->arena.mapped || rpi_arena_missing(&pool->arena, range.from, range.to))
            return false;
    }
    return member->turn <= pool->turns && member->released <= pool->places;
}

static bool is_node_valid(const struct rpi_pool *pool, const struct rpi_pool_node *node)
{
    const struct rpi_pool_node *before = NULL;
    for (const struct rpi_pool_node *child = node->first; child; child = child->next) {
        if (child->parent != node || child->previous != before || child->depth != node->depth + 1 ||
            child->place > pool->places || (before && child->place <= before->place) ||
            !is_node_valid(pool, child))
            return false;
        before = child;
    }
    if (node->last != before)
        return false;
    if (node->kind == RPI_COMPOSE_CAPTURE)
        return !node->first && is_member_valid(pool, (const struct rpi_pool_member *)node);
    return is_group_valid(pool, (const struct rpi_pool_group *)node);
}

static bool overlap(const struct rpi_ranges *a, const struct rpi_ranges *b)
{
    for (size_t i = 0; i < a->count; i++)
        if (rpi_ranges_overlap(b, a->data[i].from, a->data[i].to))
            return true;
    return false;
}

/* May what `first` keeps be under blocks of `later`, which comes behind it in a sequence? */
static bool may_lie_over(const struct rpi_pool_member *first, const struct rpi_pool_member *later)
{
    return first->held || (first->released && first->released < later->node.place);
}

static bool are_apart(const struct rpi_pool_member *a, const struct rpi_pool_member *b)
{
    bool a_first;
    enum rpi_compose_kind kind = rpi_pool_relation(&a->node, &b->node, &a_first);
    if (kind == RPI_COMPOSE_CONCURRENT)
        return !overlap(&a->all, &b->all);
    if (kind != RPI_COMPOSE_SEQUENCE)
        return true;
    const struct rpi_pool_member *first = a_first ? a : b, *later = a_first ? b : a;
    return may_lie_over(first, later) || !overlap(&first->kept, &later->all);
}

bool rpi_pool_is_valid(const struct rpi_pool *pool)
{
    const struct rpi_pool_node *top = &pool->root->node;
    if (!rpi_arena_is_valid(&pool->arena) || !is_node_valid(pool, top))
        return false;
    for (const struct rpi_pool_member *a = rpi_pool_next(top, NULL); a; a = rpi_pool_next(top, a))
        for (const struct rpi_pool_member *b = rpi_pool_next(top, a); b; b = rpi_pool_next(top, b))
            if (!are_apart(a, b))
                return false;
    return true;
}
