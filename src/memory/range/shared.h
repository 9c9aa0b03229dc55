/* SPDX-License-Identifier: MIT
 *
 * Memory that another process shares, mapped here: file descriptors, each of one mapping there, at
 * consecutive addresses. Nobody but the caller knows of it. A context is current at every call.
 */
#ifndef REPRISE_MEMORY_SHARED_H
#define REPRISE_MEMORY_SHARED_H

#include "memory/range/peers.h"

#include <reprise.h>

/* On failure nothing is mapped or reserved. peers: who else may use it; NULL: nobody. */
rp_status rpi_shared_map(const struct rp_driver *driver, CUdevice device,
                         const struct rpi_peers *peers, const int *files, size_t count,
                         uint64_t file_bytes, uint64_t *out_address, struct rp_error *err);
/* The driver forgets the memory with its last mapping, in whatever process. */
rp_status rpi_shared_unmap(const struct rp_driver *driver, uint64_t address, uint64_t bytes,
                           struct rp_error *err);

#endif
