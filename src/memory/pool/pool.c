/* SPDX-License-Identifier: MIT */
#include "memory/pool/pool.h"

#include "memory/pool/compose_sum.h"
#include "memory/pool/replay_order.h"

#include <assert.h>

rp_status rpi_pool_init(struct rpi_pool *pool, struct rpi_pool_group *root,
                        const struct rp_driver *driver, CUdevice device, uint64_t most_bytes,
                        uint64_t limit, uint64_t alignment, struct rp_error *err)
{
    assert(root->node.kind != RPI_COMPOSE_CAPTURE && !root->node.first);
    assert(alignment && (alignment & (alignment - 1)) == 0);
    *pool = (struct rpi_pool){.limit = limit, .alignment = alignment, .root = root};
    return rpi_arena_init(&pool->arena, driver, device, most_bytes, err);
}

void rpi_pool_finish(struct rpi_pool *pool)
{
    rpi_arena_finish(&pool->arena);
    rpi_vec_finish(&pool->ahead);
}

/* ---- Memory -------------------------------------------------------------------------------- */

rp_status rpi_pool_check_limit(const struct rpi_pool *pool, uint64_t more, struct rp_error *err)
{
    assert(pool->arena.holes <= pool->arena.mapped);
    uint64_t held = pool->arena.mapped - pool->arena.holes + pool->beside;
    if (!pool->limit || !more || (held <= pool->limit && more <= pool->limit - held))
        return RP_OK;
    rpi_error(err, RP_ERROR_LIMIT, "rp_graph_capture",
              "the pool would need %llu bytes, but its limit is %llu: raise limit_bytes or "
              "capture smaller work",
              (unsigned long long)(held + more), (unsigned long long)pool->limit);
    if (err) {
        err->requested = held + more;
        err->available = pool->limit;
    }
    return RP_ERROR_LIMIT;
}

rp_status rpi_pool_grow(struct rpi_pool *pool, uint64_t height, struct rp_error *err)
{
    uint64_t bytes = rpi_round_up(height, pool->arena.granularity), mapped = pool->arena.mapped;
    rp_status status = rpi_pool_check_limit(pool, bytes > mapped ? bytes - mapped : 0, err);
    if (status == RP_OK)
        status = rpi_arena_grow(&pool->arena, height, err);
    assert(status != RP_OK || pool->arena.mapped >= height);
    if (status == RP_OK && pool->underway < height)
        pool->underway = height;
    return status;
}

rp_status rpi_pool_fill(struct rpi_pool *pool, uint64_t from, uint64_t to, struct rp_error *err)
{
    assert(from <= to);
    rp_status status = rpi_pool_check_limit(pool, rpi_arena_missing(&pool->arena, from, to), err);
    return status == RP_OK ? rpi_arena_fill(&pool->arena, from, to, err) : status;
}

static bool is_needed(const void *user, uint64_t from, uint64_t to)
{
    assert(from < to);
    const struct rpi_pool *pool = user;
    const struct rpi_pool_node *top = &pool->root->node;
    for (const struct rpi_pool_member *m = rpi_pool_next(top, NULL); m; m = rpi_pool_next(top, m))
        if (rpi_ranges_overlap(&m->all, from, to))
            return true;
    return false;
}

static void shrink(struct rpi_pool *pool)
{
    uint64_t height = rpi_pool_height(&pool->root->node);
    rpi_arena_shrink(&pool->arena, height > pool->underway ? height : pool->underway);
}

void rpi_pool_settle(struct rpi_pool *pool)
{
    pool->underway = 0;
    rpi_arena_release(&pool->arena, true, is_needed, pool);
    shrink(pool);
}

void rpi_pool_trim(struct rpi_pool *pool)
{
    assert(!pool->underway);
    shrink(pool);
    rpi_arena_release(&pool->arena, false, is_needed, pool);
}

/* ---- The tree ------------------------------------------------------------------------------ */

void rpi_pool_add(struct rpi_pool *pool, struct rpi_pool_group *group, struct rpi_pool_node *node)
{
    struct rpi_pool_node *parent = &group->node;
    assert(!node->parent && !node->first && parent->kind != RPI_COMPOSE_CAPTURE);
    node->parent = parent;
    node->depth = parent->depth + 1;
    node->place = ++pool->places;
    node->previous = parent->last;
    if (parent->last)
        parent->last->next = node;
    else
        parent->first = node;
    parent->last = node;
}

void rpi_pool_remove(struct rpi_pool *pool, struct rpi_pool_node *node)
{
    struct rpi_pool_node *parent = node->parent;
    if (!parent)
        return;
    assert(!node->first);
    assert(node->previous ? node->previous->next == node : parent->first == node);
    assert(node->next ? node->next->previous == node : parent->last == node);
    rpi_replay_order_forget(pool, node);
    if (node->previous)
        node->previous->next = node->next;
    else
        parent->first = node->next;
    if (node->next)
        node->next->previous = node->previous;
    else
        parent->last = node->previous;
    node->parent = node->previous = node->next = NULL;
    shrink(pool);
}

void rpi_pool_release(struct rpi_pool *pool, struct rpi_pool_member *member)
{
    assert(member->node.parent);
    if (!member->released)
        member->released = pool->places;
    pool->releases = true;
}

void rpi_pool_member_finish(struct rpi_pool_member *member)
{
    rpi_vec_finish(&member->all);
    rpi_vec_finish(&member->kept);
}

void rpi_pool_group_finish(struct rpi_pool_group *group)
{
    rpi_vec_finish(&group->before);
    rpi_vec_finish(&group->next);
}

const struct rpi_pool_member *rpi_pool_next(const struct rpi_pool_node *top,
                                            const struct rpi_pool_member *member)
{
    const struct rpi_pool_node *node = member ? &member->node : top;
    for (;;) {
        if (node->first && !(member && node == &member->node)) {
            node = node->first;
        } else {
            while (node != top && !node->next)
                node = node->parent;
            if (node == top)
                return NULL;
            node = node->next;
        }
        if (node->kind == RPI_COMPOSE_CAPTURE)
            return (const struct rpi_pool_member *)node;
    }
}

enum rpi_compose_kind rpi_pool_relation(const struct rpi_pool_node *a,
                                        const struct rpi_pool_node *b, bool *out_a_first)
{
    while (a->parent != b->parent) {
        if (a->depth >= b->depth)
            a = a->parent;
        else
            b = b->parent;
    }
    assert(a != b);
    *out_a_first = a->place < b->place;
    return a->parent->kind;
}

/* ---- Sums ---------------------------------------------------------------------------------- */

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What of a node is kept and not released yet when a member is added at the place. */
static uint64_t kept_at(const struct rpi_pool_node *node, uint64_t place)
{
    assert(node->kind != RPI_COMPOSE_CAPTURE || !node->first);
    uint64_t kept = 0;
    if (node->kind == RPI_COMPOSE_CAPTURE) {
        const struct rpi_pool_member *member = (const struct rpi_pool_member *)node;
        return member->released && member->released < place ? 0 : member->kept_bytes;
    }
    for (const struct rpi_pool_node *child = node->first; child; child = child->next) {
        uint64_t part = kept_at(child, place);
        kept = node->kind == RPI_COMPOSE_ALTERNATIVES ? most(kept, part) : kept + part;
    }
    return kept;
}

/* The place of the member of a node that was added last; 0: there is none. */
static uint64_t last_place(const struct rpi_pool_node *node)
{
    uint64_t place = 0;
    if (node->kind == RPI_COMPOSE_CAPTURE)
        return node->place;
    for (const struct rpi_pool_node *child = node->first; child; child = child->next)
        place = most(place, last_place(child));
    return place;
}

/* What was in the way of all of a sequence's part. Where something was released while members of
 * the part were being added this is less than some of them met: still no layout takes less. */
static uint64_t kept_before(const struct rpi_pool_node *part)
{
    assert(part->parent && part->parent->kind == RPI_COMPOSE_SEQUENCE);
    uint64_t kept = 0, place = last_place(part);
    for (const struct rpi_pool_node *node = part->previous; node; node = node->previous)
        kept += kept_at(node, place);
    return kept;
}

static struct rpi_compose_sum sum_up(const struct rpi_pool *pool, const struct rpi_pool_node *node)
{
    struct rpi_compose_sum sum = {0, 0};
    if (node->kind == RPI_COMPOSE_CAPTURE) {
        const struct rpi_pool_member *member = (const struct rpi_pool_member *)node;
        return (struct rpi_compose_sum){member->lower_bound, member->kept_bytes};
    }
    for (const struct rpi_pool_node *child = node->first; child; child = child->next) {
        if (pool->releases && node->kind == RPI_COMPOSE_SEQUENCE)
            sum.kept = kept_before(child);
        rpi_compose_sum_add(&sum, node->kind, sum_up(pool, child));
    }
    return sum;
}

uint64_t rpi_pool_lower_bound(const struct rpi_pool *pool, const struct rpi_pool_node *top)
{
    return sum_up(pool, top).bound;
}

uint64_t rpi_pool_height(const struct rpi_pool_node *top)
{
    uint64_t height = 0;
    for (const struct rpi_pool_member *m = rpi_pool_next(top, NULL); m; m = rpi_pool_next(top, m))
        height = most(height, rpi_ranges_top(&m->all));
    return height;
}

size_t rpi_pool_count(const struct rpi_pool_node *top)
{
    size_t count = 0;
    for (const struct rpi_pool_member *m = rpi_pool_next(top, NULL); m; m = rpi_pool_next(top, m))
        count++;
    return count;
}
