/* SPDX-License-Identifier: MIT
 *
 * A mapper that reads the count just before a device is added has the lock that the adding thread
 * waits for in let_in: what it maps meanwhile is found there. One that begins later reads the new
 * count.
 */
#include "memory/range/peers.h"

bool rpi_peers_init(struct rpi_peers *peers)
{
    return pthread_mutex_init(&peers->lock, NULL) == 0;
}

void rpi_peers_finish(struct rpi_peers *peers)
{
    pthread_mutex_destroy(&peers->lock);
}

void rpi_peers_join(struct rpi_peers *peers, struct rpi_mapper *mapper)
{
    pthread_mutex_lock(&peers->lock);
    mapper->next = peers->mappers;
    peers->mappers = mapper;
    pthread_mutex_unlock(&peers->lock);
}

void rpi_peers_leave(struct rpi_peers *peers, struct rpi_mapper *mapper)
{
    pthread_mutex_lock(&peers->lock);
    struct rpi_mapper **link = &peers->mappers;
    while (*link && *link != mapper)
        link = &(*link)->next;
    if (*link)
        *link = mapper->next;
    pthread_mutex_unlock(&peers->lock);
}

static bool has(const struct rpi_peers *peers, CUdevice peer)
{
    for (size_t i = 0; i < atomic_load(&peers->count); i++)
        if (peers->devices[i] == peer)
            return true;
    return false;
}

void rpi_peers_add(struct rpi_peers *peers, CUdevice peer)
{
    pthread_mutex_lock(&peers->lock);
    size_t count = atomic_load(&peers->count);
    if (count < RPI_MOST_PEERS && !has(peers, peer)) {
        peers->devices[count] = peer;
        atomic_store(&peers->count, count + 1);
        for (struct rpi_mapper *mapper = peers->mappers; mapper; mapper = mapper->next)
            mapper->let_in(mapper, peer);
    }
    pthread_mutex_unlock(&peers->lock);
}

void rpi_peer_let_in(const struct rp_driver *driver, CUdevice peer, uint64_t address,
                     uint64_t bytes)
{
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, peer},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    driver->cuMemSetAccess(address, bytes, &access, 1);
}

void rpi_peers_let_in(const struct rpi_peers *peers, const struct rp_driver *driver,
                      uint64_t address, uint64_t bytes)
{
    for (size_t i = 0; peers && i < atomic_load(&peers->count); i++)
        rpi_peer_let_in(driver, peers->devices[i], address, bytes);
}
