/* SPDX-License-Identifier: MIT */
#include "graph/objects/address_owner.h"

#include "base/held.h"
#include "base/refuse.h"
#include "graph/objects/objects.h"
#include "reprise_framework.h"

#include <assert.h>
#include <stdio.h>

rp_status rpi_address_owner_add(struct rp_device *device, const struct rpi_reserved *range,
                                struct rp_error *err)
{
    assert(range->bytes && !range->pool->parent);
    struct rpi_address_owners *all = &device->address_owners;
    pthread_mutex_lock(&all->lock);
    bool added = rpi_vec_push(all, *range);
    pthread_mutex_unlock(&all->lock);
    return added ? RP_OK : rpi_error_host_memory(err, "rp_pool_create", sizeof *range);
}

void rpi_address_owner_remove(struct rp_device *device, uint64_t base)
{
    struct rpi_address_owners *all = &device->address_owners;
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->count; i++) {
        if (all->data[i].base == base) {
            all->data[i] = all->data[--all->count];
            break;
        }
    }
    pthread_mutex_unlock(&all->lock);
}

rp_status rpi_address_hold(struct rp_device *device, struct rpi_range range, struct rp_error *err)
{
    assert(range.from < range.to && !rpi_address_is_held(device, range.from));
    struct rpi_address_owners *all = &device->address_owners;
    pthread_mutex_lock(&all->lock);
    bool added = rpi_vec_push(&all->held, range);
    pthread_mutex_unlock(&all->lock);
    return added ? RP_OK : rpi_error_host_memory(err, "rp_graph_adopt_end", sizeof range);
}

void rpi_address_let_go(struct rp_device *device, uint64_t from)
{
    struct rpi_address_owners *all = &device->address_owners;
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->held.count; i++) {
        if (all->held.data[i].from == from) {
            all->held.data[i] = all->held.data[--all->held.count];
            break;
        }
    }
    pthread_mutex_unlock(&all->lock);
}

static bool look_among_held(struct rp_device *device, uint64_t address, bool end)
{
    struct rpi_address_owners *all = &device->address_owners;
    bool found = false;
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; !found && i < all->held.count; i++) {
        struct rpi_range range = all->held.data[i];
        found = end ? address == range.to : range.from <= address && address < range.to;
    }
    pthread_mutex_unlock(&all->lock);
    return found;
}

bool rpi_address_is_held(struct rp_device *device, uint64_t address)
{
    return look_among_held(device, address, false);
}

bool rpi_address_ends_held(struct rp_device *device, uint64_t address)
{
    return look_among_held(device, address, true);
}

/* The range that holds the address, NULL when none does. With the owners' lock held. */
static const struct rpi_reserved *find(const struct rpi_address_owners *all, uint64_t address)
{
    rpi_assert_held(&all->lock);
    for (size_t i = 0; i < all->count; i++)
        if (address - all->data[i].base < all->data[i].bytes)
            return &all->data[i];
    return NULL;
}

static enum rpi_owner_kind kind_of(const struct rpi_reserved *range, const struct rp_pool *pool)
{
    bool own = range->pool->core == pool->core;
    switch (range->use) {
    case RPI_RESERVED_BLOCKS:
        break;
    case RPI_RESERVED_EAGER:
        return RPI_OWNER_EAGER;
    case RPI_RESERVED_STAGING:
        return own ? RPI_OWNER_STAGING : RPI_OWNER_OTHER;
    }
    return own ? RPI_OWNER_SELF : RPI_OWNER_OTHER;
}

struct rpi_owner rpi_address_owner(const struct rp_pool *pool, uint64_t address)
{
    const struct rpi_arena *own = &pool->core->memory.arena;
    struct rpi_owner owner = {.kind = RPI_OWNER_SELF};
    if (address - own->base < own->reserved)
        return owner;
    struct rpi_address_owners *all = &pool->device->address_owners;
    pthread_mutex_lock(&all->lock);
    const struct rpi_reserved *range = find(all, address);
    owner.kind = range ? kind_of(range, pool) : RPI_OWNER_NONE;
    if (range) /* its pool may be gone once the lock is */
        snprintf(owner.pool, sizeof owner.pool, "%.60s", range->pool->name);
    pthread_mutex_unlock(&all->lock);
    assert(owner.kind != RPI_OWNER_SELF);
    if (!range && rpi_rehearsal_range_holds(&pool->device->rehearsal_range, address))
        owner.kind = RPI_OWNER_REHEARSAL;
    return owner;
}

void rpi_owner_describe(const struct rpi_owner *owner, char *text, size_t bytes)
{
    assert(owner->kind == RPI_OWNER_EAGER || owner->kind == RPI_OWNER_OTHER);
    const char *of_runs = owner->kind == RPI_OWNER_EAGER ? "eager runs of " : "";
    snprintf(text, bytes, "memory of %spool '%s'", of_runs, owner->pool);
}

int rp_device_gives(struct rp_device *device, uint64_t address)
{
    if (rpi_is_forked() || !device)
        return 0;
    struct rpi_address_owners *all = &device->address_owners;
    pthread_mutex_lock(&all->lock);
    bool reserved = find(all, address) != NULL;
    pthread_mutex_unlock(&all->lock);
    return reserved || rpi_rehearsal_range_holds(&device->rehearsal_range, address);
}
