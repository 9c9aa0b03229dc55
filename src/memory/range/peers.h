/* SPDX-License-Identifier: MIT
 *
 * Which other devices may use a device's memory. What is mapped is its own device's alone: a kernel
 * of another that reads it ends in an illegal access, and a copy between the two is refused, though
 * both work with memory of cuMemAlloc. So whoever maps memory that programs get (heaps, pools) lets
 * the peers in, and those that are added later are let in to what is mapped by then.
 *
 * Where two devices cannot reach each other the driver refuses, and nothing changes.
 */
#ifndef REPRISE_MEMORY_RANGE_PEERS_H
#define REPRISE_MEMORY_RANGE_PEERS_H

#include "driver/driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RPI_MOST_PEERS = 63 };

/* Whoever maps memory of the device. */
struct rpi_mapper {
    /* Lets the peer in to all that is mapped; takes the mapper's own locks. */
    void (*let_in)(struct rpi_mapper *mapper, CUdevice peer);
    struct rpi_mapper *next;
};

struct rpi_peers {
    pthread_mutex_t lock; /* guards mappers and adding; taken before any lock of theirs */
    struct rpi_mapper *mappers;
    _Atomic size_t count; /* read without the lock: devices below it stay as they are */
    CUdevice devices[RPI_MOST_PEERS];
};

bool rpi_peers_init(struct rpi_peers *peers); /* false: there is no memory for a lock */
void rpi_peers_finish(struct rpi_peers *peers);

void rpi_peers_join(struct rpi_peers *peers, struct rpi_mapper *mapper);
void rpi_peers_leave(struct rpi_peers *peers, struct rpi_mapper *mapper);

/* Adds a device, and lets it in everywhere. Does nothing where it is one already, or there are as
 * many as there can be. */
void rpi_peers_add(struct rpi_peers *peers, CUdevice peer);

/* Lets one device, or all peers, in to whole mappings. A context is current; peers may be NULL. */
void rpi_peer_let_in(const struct rp_driver *driver, CUdevice peer, uint64_t address,
                     uint64_t bytes);
void rpi_peers_let_in(const struct rpi_peers *peers, const struct rp_driver *driver,
                      uint64_t address, uint64_t bytes);

#endif
