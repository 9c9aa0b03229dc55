/* SPDX-License-Identifier: MIT
 *
 * Whose is an address? The ranges that a device's pools have reserved, for captures and for eager
 * runs. Ranges are reserved once and never move, so that a list of them is all it takes. Guarded by
 * its own lock, which is taken last.
 */
#ifndef REPRISE_GRAPH_TERRITORY_H
#define REPRISE_GRAPH_TERRITORY_H

#include "base/status.h"
#include "base/vec.h"

#include <pthread.h>

struct rp_device;

struct rpi_territory {
    uint64_t base, reserved;
    const char *pool; /* name of the outermost pool, which outlives this; unowned */
    bool eager;       /* of eager runs */
};

struct rpi_territories {
    pthread_mutex_t lock;
    RPI_VEC(struct rpi_territory);
};

/* Adds a range; fails for want of host memory only. */
rp_status rpi_territory_add(struct rp_device *device, const struct rpi_territory *territory,
                            struct rp_error *err);
/* Removes the range that begins there, if there is one. */
void rpi_territory_remove(struct rp_device *device, uint64_t base);

/* False when the address is in none; otherwise tells whose it is: "memory of pool 'a'". */
bool rpi_territory_find(struct rp_device *device, uint64_t address, char *out_text, size_t bytes);
/* The same among the ranges of eager runs. */
bool rpi_territory_find_eager(struct rp_device *device, uint64_t address, char *out_text,
                              size_t bytes);

#endif
