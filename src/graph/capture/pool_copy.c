/* SPDX-License-Identifier: MIT */
#include "graph/capture/pool_copy.h"

#include "base/held.h"
#include "base/hostmem.h"

#include <assert.h>
#include <stddef.h>

/* A group of the copy, and the pool that it stands for. */
struct rpi_pool_copy_group {
    const struct rp_pool *of;
    struct rp_pool pool;
};

static rp_status no_memory(struct rp_error *err)
{
    return rpi_error_host_memory(err, "rp_estimate", sizeof(struct rpi_pool_copy_group));
}

static struct rpi_pool_member *add_member(struct rpi_pool_copy *tree)
{
    struct rpi_pool_member *member = rpi_calloc(1, sizeof *member);
    if (!member || !rpi_vec_push(&tree->members, member)) {
        rpi_free(member);
        return NULL;
    }
    member->node.kind = RPI_COMPOSE_CAPTURE;
    return member;
}

static bool copy_member(struct rpi_pool_copy *tree, const struct rpi_pool_member *from,
                        struct rpi_pool_group *parent)
{
    rpi_assert_held(&tree->of->lock);
    struct rpi_pool_member *member = add_member(tree);
    if (!member || !rpi_ranges_append(&member->all, &from->all) ||
        !rpi_ranges_append(&member->kept, &from->kept))
        return false;
    member->lower_bound = from->lower_bound;
    member->stopped = from->stopped;
    member->kept_bytes = from->kept_bytes;
    member->held = from->held;
    member->released = from->released;
    rpi_pool_add(&tree->core->memory, parent, &member->node);
    member->node.place = from->node.place; /* places tell what was released before what */
    return true;
}

/* The copy of a group, without what is in it; NULL for want of memory. */
static struct rpi_pool_copy_group *
copy_group(struct rpi_pool_copy *tree, const struct rp_pool *from, struct rpi_pool_group *parent)
{
    struct rpi_pool_copy_group *copy = rpi_calloc(1, sizeof *copy);
    if (!copy || !rpi_vec_push(&tree->pools, copy)) {
        rpi_free(copy);
        return NULL;
    }
    copy->of = from;
    copy->pool.device = from->device;
    copy->pool.core = tree->core;
    copy->pool.name = from->name;
    copy->pool.plan_budget_ms = from->plan_budget_ms;
    copy->pool.group.node.kind = from->group.node.kind;
    if (parent)
        rpi_pool_add(&tree->core->memory, parent, &copy->pool.group.node);
    copy->pool.group.node.place = from->group.node.place;
    return copy;
}

static const struct rp_pool *pool_of(const struct rpi_pool_node *node)
{
    return (const struct rp_pool *)(const void *)((const char *)node -
                                                  offsetof(struct rp_pool, group));
}

/* Depth is limited by RPI_POOL_MOST_DEPTH. */
static bool copy_children(struct rpi_pool_copy *tree, const struct rpi_pool_node *from,
                          struct rpi_pool_group *to)
{
    for (const struct rpi_pool_node *child = from->first; child; child = child->next) {
        if (child->kind == RPI_COMPOSE_CAPTURE) {
            if (!copy_member(tree, (const struct rpi_pool_member *)child, to))
                return false;
            continue;
        }
        struct rpi_pool_copy_group *copy = copy_group(tree, pool_of(child), to);
        if (!copy || !copy_children(tree, child, &copy->pool.group))
            return false;
    }
    return true;
}

static bool copy_tree(struct rpi_pool_copy *tree)
{
    rpi_assert_held(&tree->of->lock);
    assert(!tree->pools.count && !tree->members.count);
    struct rpi_pool_core *of = tree->of, *core = tree->core;
    const struct rp_pool *root = pool_of(&of->memory.root->node);
    struct rpi_pool_copy_group *copy = copy_group(tree, root, NULL);
    if (!copy)
        return false;
    core->memory.root = &copy->pool.group;
    core->memory.alignment = of->memory.alignment;
    core->memory.releases = of->memory.releases;
    bool copied = copy_children(tree, &root->group.node, &copy->pool.group);
    core->memory.places = of->memory.places;
    return copied;
}

rp_status rpi_pool_copy_init(struct rpi_pool_copy *tree, struct rp_pool *pool, struct rp_error *err)
{
    struct rpi_pool_copy made = {.of = pool->core, .core = rpi_calloc(1, sizeof *made.core)};
    if (!made.core)
        return no_memory(err);
    if (pthread_mutex_init(&made.core->lock, NULL) != 0) {
        rpi_free(made.core);
        return no_memory(err);
    }
    made.core->plans = pool->core->plans;
    made.core->keeps_plans = true;
    pthread_mutex_lock(&pool->core->lock);
    bool copied = copy_tree(&made);
    pthread_mutex_unlock(&pool->core->lock);
    if (!copied) {
        rpi_pool_copy_finish(&made);
        return no_memory(err);
    }
    *tree = made;
    return RP_OK;
}

void rpi_pool_copy_finish(struct rpi_pool_copy *tree)
{
    for (size_t i = 0; i < tree->members.count; i++) {
        rpi_pool_member_finish(tree->members.data[i]);
        rpi_free(tree->members.data[i]);
    }
    for (size_t i = 0; i < tree->pools.count; i++) {
        rpi_pool_group_finish(&tree->pools.data[i]->pool.group);
        rpi_free(tree->pools.data[i]);
    }
    rpi_vec_finish(&tree->members);
    rpi_vec_finish(&tree->pools);
    if (tree->core)
        pthread_mutex_destroy(&tree->core->lock);
    rpi_free(tree->core);
    *tree = (struct rpi_pool_copy){0};
}

/* ---- Planning ------------------------------------------------------------------------------ */

/* The copy of the pool; one that was made since the tree was copied is added as the last in its
 * parent, as it was there. NULL for want of memory. */
static struct rp_pool *copy_of(struct rpi_pool_copy *tree, const struct rp_pool *pool)
{
    for (size_t i = 0; i < tree->pools.count; i++)
        if (tree->pools.data[i]->of == pool)
            return &tree->pools.data[i]->pool;
    struct rp_pool *parent = copy_of(tree, pool->parent); /* the root was copied */
    struct rpi_pool_copy_group *copy = parent ? copy_group(tree, pool, &parent->group) : NULL;
    return copy ? &copy->pool : NULL;
}

rp_status rpi_pool_copy_plan(struct rpi_pool_copy *tree, const struct rp_pool *pool,
                             const struct rpi_rehearsal *rehearsal, uint64_t lead,
                             const struct rpi_pool_member **out_member, struct rp_error *err)
{
    struct rp_pool *copy = copy_of(tree, pool);
    struct rpi_share_plan plan;
    if (!copy)
        return no_memory(err);
    rp_status status = rpi_share_plan(copy, rehearsal, false, lead, &plan, err);
    if (status != RP_OK)
        return status;
    struct rpi_pool_member *member = add_member(tree);
    if (member && rpi_share_planned(member, rehearsal, &plan, tree->core)) {
        rpi_pool_add(&tree->core->memory, &copy->group, &member->node);
        *out_member = member;
    } else {
        status = no_memory(err);
    }
    rpi_share_plan_finish(&plan);
    return status;
}

uint64_t rpi_pool_copy_height(const struct rpi_pool_copy *tree)
{
    return rpi_pool_height(&tree->core->memory.root->node);
}

uint64_t rpi_pool_copy_lower_bound(const struct rpi_pool_copy *tree)
{
    return rpi_pool_lower_bound(&tree->core->memory, &tree->core->memory.root->node);
}
