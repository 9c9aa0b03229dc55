/* SPDX-License-Identifier: MIT
 *
 * Whose is an address? The ranges that a device's pools have reserved, for captures and for eager
 * runs. Ranges are reserved once and never move, so that a list of them is all it takes. Guarded by
 * its own lock, which is taken last.
 */
#ifndef REPRISE_GRAPH_OBJECTS_ADDRESS_OWNER_H
#define REPRISE_GRAPH_OBJECTS_ADDRESS_OWNER_H

#include "base/status.h"
#include "memory/range/ranges.h"

#include <pthread.h>

struct rp_device;

struct rpi_address_owner {
    uint64_t base, reserved;
    const char *pool; /* name of the outermost pool, which outlives this; unowned */
    bool eager;       /* of eager runs */
};

struct rpi_address_owners {
    pthread_mutex_t lock;
    RPI_VEC(struct rpi_address_owner);
    struct rpi_ranges held; /* addresses in pools that the program has in its hands, in no order */
};

/* Adds a range; fails for want of host memory only. */
rp_status rpi_address_owner_add(struct rp_device *device, const struct rpi_address_owner *owner,
                                struct rp_error *err);
/* Removes the range that begins there, if there is one. */
void rpi_address_owner_remove(struct rp_device *device, uint64_t base);

/* The program has these addresses of a pool in its hands until it lets them go; they do not overlap
 * any others. Fails for want of host memory only. */
rp_status rpi_address_hold(struct rp_device *device, struct rpi_range range, struct rp_error *err);
/* Does nothing where none that are held begin there. */
void rpi_address_let_go(struct rp_device *device, uint64_t from);
/* Is the address in such a range? */
bool rpi_address_is_held(struct rp_device *device, uint64_t address);
/* Or the end of one? */
bool rpi_address_ends_held(struct rp_device *device, uint64_t address);

/* False when the address is in none; otherwise tells whose it is: "memory of pool 'a'". */
bool rpi_address_owner_find(struct rp_device *device, uint64_t address, char *out_text,
                            size_t bytes);
/* The same among the ranges of eager runs. */
bool rpi_address_owner_find_eager(struct rp_device *device, uint64_t address, char *out_text,
                                  size_t bytes);

#endif
