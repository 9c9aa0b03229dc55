/* SPDX-License-Identifier: MIT */
#include "graph/capture/shadow.h"

#include "base/hostmem.h"

#include <stddef.h>

/* A group of the copy, and the pool that it stands for. */
struct rpi_shadow_pool {
    const struct rp_pool *of;
    struct rp_pool pool;
};

static rp_status no_memory(struct rp_error *err)
{
    return rpi_error_host_memory(err, "rp_estimate", sizeof(struct rpi_shadow_pool));
}

static struct rpi_pool_member *add_member(struct rpi_shadow *shadow)
{
    struct rpi_pool_member *member = rpi_calloc(1, sizeof *member);
    if (!member || !rpi_vec_push(&shadow->members, member)) {
        rpi_free(member);
        return NULL;
    }
    member->node.kind = RPI_COMPOSE_CAPTURE;
    return member;
}

static bool copy_member(struct rpi_shadow *shadow, const struct rpi_pool_member *from,
                        struct rpi_pool_group *parent)
{
    struct rpi_pool_member *member = add_member(shadow);
    if (!member || !rpi_ranges_append(&member->all, &from->all) ||
        !rpi_ranges_append(&member->kept, &from->kept))
        return false;
    member->lower_bound = from->lower_bound;
    member->stopped = from->stopped;
    member->kept_bytes = from->kept_bytes;
    member->held = from->held;
    member->released = from->released;
    rpi_pool_add(&shadow->core->memory, parent, &member->node);
    member->node.place = from->node.place; /* places tell what was released before what */
    return true;
}

/* The copy of a group, without what is in it; NULL for want of memory. */
static struct rpi_shadow_pool *copy_group(struct rpi_shadow *shadow, const struct rp_pool *from,
                                          struct rpi_pool_group *parent)
{
    struct rpi_shadow_pool *copy = rpi_calloc(1, sizeof *copy);
    if (!copy || !rpi_vec_push(&shadow->pools, copy)) {
        rpi_free(copy);
        return NULL;
    }
    copy->of = from;
    copy->pool.device = from->device;
    copy->pool.core = shadow->core;
    copy->pool.name = from->name;
    copy->pool.plan_budget_ms = from->plan_budget_ms;
    copy->pool.group.node.kind = from->group.node.kind;
    if (parent)
        rpi_pool_add(&shadow->core->memory, parent, &copy->pool.group.node);
    copy->pool.group.node.place = from->group.node.place;
    return copy;
}

static const struct rp_pool *pool_of(const struct rpi_pool_node *node)
{
    return (const struct rp_pool *)(const void *)((const char *)node -
                                                  offsetof(struct rp_pool, group));
}

/* Depth is limited by RPI_POOL_MOST_DEPTH. */
static bool copy_children(struct rpi_shadow *shadow, const struct rpi_pool_node *from,
                          struct rpi_pool_group *to)
{
    for (const struct rpi_pool_node *child = from->first; child; child = child->next) {
        if (child->kind == RPI_COMPOSE_CAPTURE) {
            if (!copy_member(shadow, (const struct rpi_pool_member *)child, to))
                return false;
            continue;
        }
        struct rpi_shadow_pool *copy = copy_group(shadow, pool_of(child), to);
        if (!copy || !copy_children(shadow, child, &copy->pool.group))
            return false;
    }
    return true;
}

static bool copy_tree(struct rpi_shadow *shadow)
{
    struct rpi_pool_core *of = shadow->of, *core = shadow->core;
    const struct rp_pool *root = pool_of(&of->memory.root->node);
    struct rpi_shadow_pool *copy = copy_group(shadow, root, NULL);
    if (!copy)
        return false;
    core->memory.root = &copy->pool.group;
    core->memory.alignment = of->memory.alignment;
    core->memory.releases = of->memory.releases;
    bool copied = copy_children(shadow, &root->group.node, &copy->pool.group);
    core->memory.places = of->memory.places;
    return copied;
}

rp_status rpi_shadow_init(struct rpi_shadow *shadow, struct rp_pool *pool, struct rp_error *err)
{
    struct rpi_shadow made = {.of = pool->core, .core = rpi_calloc(1, sizeof *made.core)};
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
        rpi_shadow_finish(&made);
        return no_memory(err);
    }
    *shadow = made;
    return RP_OK;
}

void rpi_shadow_finish(struct rpi_shadow *shadow)
{
    for (size_t i = 0; i < shadow->members.count; i++) {
        rpi_pool_member_finish(shadow->members.data[i]);
        rpi_free(shadow->members.data[i]);
    }
    for (size_t i = 0; i < shadow->pools.count; i++) {
        rpi_pool_group_finish(&shadow->pools.data[i]->pool.group);
        rpi_free(shadow->pools.data[i]);
    }
    rpi_vec_finish(&shadow->members);
    rpi_vec_finish(&shadow->pools);
    if (shadow->core)
        pthread_mutex_destroy(&shadow->core->lock);
    rpi_free(shadow->core);
    *shadow = (struct rpi_shadow){0};
}

/* ---- Planning ------------------------------------------------------------------------------ */

/* The copy of the pool; one that was made since the tree was copied is added as the last in its
 * parent, as it was there. NULL for want of memory. */
static struct rp_pool *copy_of(struct rpi_shadow *shadow, const struct rp_pool *pool)
{
    for (size_t i = 0; i < shadow->pools.count; i++)
        if (shadow->pools.data[i]->of == pool)
            return &shadow->pools.data[i]->pool;
    struct rp_pool *parent = copy_of(shadow, pool->parent); /* the root was copied */
    struct rpi_shadow_pool *copy = parent ? copy_group(shadow, pool, &parent->group) : NULL;
    return copy ? &copy->pool : NULL;
}

rp_status rpi_shadow_plan(struct rpi_shadow *shadow, const struct rp_pool *pool,
                          const struct rpi_rehearsal *rehearsal, uint64_t lead,
                          const struct rpi_pool_member **out_member, struct rp_error *err)
{
    struct rp_pool *copy = copy_of(shadow, pool);
    struct rpi_share_plan plan;
    if (!copy)
        return no_memory(err);
    rp_status status = rpi_share_plan(copy, rehearsal, false, lead, &plan, err);
    if (status != RP_OK)
        return status;
    struct rpi_pool_member *member = add_member(shadow);
    if (member && rpi_share_planned(member, rehearsal, &plan, shadow->core)) {
        rpi_pool_add(&shadow->core->memory, &copy->group, &member->node);
        *out_member = member;
    } else {
        status = no_memory(err);
    }
    rpi_share_plan_finish(&plan);
    return status;
}

uint64_t rpi_shadow_height(const struct rpi_shadow *shadow)
{
    return rpi_pool_height(&shadow->core->memory.root->node);
}

uint64_t rpi_shadow_lower_bound(const struct rpi_shadow *shadow)
{
    return rpi_pool_lower_bound(&shadow->core->memory, &shadow->core->memory.root->node);
}
