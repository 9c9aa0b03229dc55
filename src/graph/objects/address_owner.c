/* SPDX-License-Identifier: MIT */
#include "graph/objects/address_owner.h"

#include "base/refuse.h"

#include "graph/objects/objects.h"
#include "reprise_framework.h"

#include <stdio.h>

rp_status rpi_address_owner_add(struct rp_device *device, const struct rpi_address_owner *owner,
                                struct rp_error *err)
{
    struct rpi_address_owners *all = &device->address_owners;
    pthread_mutex_lock(&all->lock);
    bool added = rpi_vec_push(all, *owner);
    pthread_mutex_unlock(&all->lock);
    return added ? RP_OK : rpi_error_host_memory(err, "rp_pool_create", sizeof *owner);
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

static bool find(struct rp_device *device, uint64_t address, bool eager_only, char *out_text,
                 size_t bytes)
{
    struct rpi_address_owners *all = &device->address_owners;
    bool found = false;
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; !found && i < all->count; i++) {
        const struct rpi_address_owner *owner = &all->data[i];
        found = address - owner->base < owner->reserved && (owner->eager || !eager_only);
        if (found)
            snprintf(out_text, bytes, "memory of %spool '%.60s'",
                     owner->eager ? "eager runs of " : "", owner->pool);
    }
    pthread_mutex_unlock(&all->lock);
    return found;
}

bool rpi_address_owner_find(struct rp_device *device, uint64_t address, char *out_text,
                            size_t bytes)
{
    return find(device, address, false, out_text, bytes);
}

bool rpi_address_owner_find_eager(struct rp_device *device, uint64_t address, char *out_text,
                                  size_t bytes)
{
    return find(device, address, true, out_text, bytes);
}

int rp_device_gives(struct rp_device *device, uint64_t address)
{
    if (rpi_is_forked() || !device)
        return 0;
    char whose[128];
    return rpi_rehearsal_range_holds(&device->rehearsal_range, address) ||
           rpi_address_owner_find(device, address, whose, sizeof whose);
}
