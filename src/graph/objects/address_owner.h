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
struct rp_pool;

/* A range of addresses that a pool has reserved. */
struct rpi_reserved {
    uint64_t base, bytes;
    const struct rp_pool *pool; /* the outermost, which outlives this; unowned */
    enum { RPI_RESERVED_BLOCKS, RPI_RESERVED_EAGER, RPI_RESERVED_STAGING } use;
};

struct rpi_address_owners {
    pthread_mutex_t lock;
    RPI_VEC(struct rpi_reserved);
    struct rpi_ranges held; /* addresses in pools that the program has in its hands, in no order */
};

/* Adds a range; fails for want of host memory only. */
rp_status rpi_address_owner_add(struct rp_device *device, const struct rpi_reserved *range,
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

enum rpi_owner_kind {
    RPI_OWNER_NONE,      /* nobody here: the driver may know more */
    RPI_OWNER_SELF,      /* memory of the pool that asks, where its graphs' blocks lie */
    RPI_OWNER_STAGING,   /* where arguments of its graphs are copied to */
    RPI_OWNER_REHEARSAL, /* an address that a rehearsal gave out */
    RPI_OWNER_EAGER,     /* memory of eager runs of a pool, that one or another */
    RPI_OWNER_OTHER      /* memory of another pool, blocks or staging */
};

struct rpi_owner {
    enum rpi_owner_kind kind;
    char pool[64]; /* EAGER, OTHER: the name of the outermost pool, cut short where it is long */
};

/* Whose is the address, for graphs of this pool? Takes no lock for memory of the pool itself. */
struct rpi_owner rpi_address_owner(const struct rp_pool *pool, uint64_t address);
/* "memory of pool 'a'", of EAGER and OTHER. */
void rpi_owner_describe(const struct rpi_owner *owner, char *text, size_t bytes);

#endif
