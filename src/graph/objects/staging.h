/* SPDX-License-Identifier: MIT
 *
 * Staging: where arguments that are not bound are copied to, which is where they were recorded.
 *
 * Its addresses are apart from the blocks', and memory comes behind them when a call copies there
 * for the first time: an argument that is always bound takes none. Until then the rehearsals' chunk
 * is mapped there, page for page, as copies and fills cannot be captured, nor instantiated, at
 * addresses that are not mapped. Graphs that never run at the same time share the addresses, as an
 * argument is copied and used within one replay.
 *
 *     addresses   | graph a: arg 0 | arg 1 |      |
 *                 | graph b, an alternative: arg 0 | graph c, concurrent: arg 0 |
 *     pages       [   real   ][   chunk   ][   chunk   ][   nothing yet   ] ...
 *
 * Guarded by the core's lock. A context is current where the driver is called.
 */
#ifndef REPRISE_GRAPH_OBJECTS_STAGING_H
#define REPRISE_GRAPH_OBJECTS_STAGING_H

#include "driver/driver.h"
#include "memory/range/ranges.h"

#include <stdbool.h>

struct rp_pool;
struct rp_graph;
struct rpi_pool_core;

struct rpi_staging_page {
    CUmemGenericAllocationHandle memory; /* of a real page */
    bool mapped, real;
};

struct rpi_staging {
    const struct rp_driver *driver; /* NULL: no graph needed it yet */
    CUdevice device;
    uint64_t base, reserved;
    uint64_t page_bytes;
    struct {
        RPI_VEC(struct rpi_staging_page);
    } pages;
    uint64_t bytes;     /* device memory behind it */
    uint64_t allocated; /* and beside it, by rpi_staging_allocate */
};

/* Addresses for a graph in the making of this pool: of each argument, with exactly its alignment,
 * in out_addresses, and the range that they take. Takes the locks that it needs; the capture lock
 * is held, and keeps others from the same range until the graph is added with its range. */
rp_status rpi_staging_place(struct rp_pool *pool, const struct rp_arg *args, size_t arg_count,
                            const uint64_t *alignments, uint64_t *out_addresses,
                            struct rpi_range *out_range, struct rp_error *err);

/* Puts memory behind [from, from + bytes) of the staging. Fails with RP_ERROR_LIMIT above the
 * pool's limit, or for want of device memory; pages that were made stay. With the core's lock held.
 */
rp_status rpi_staging_back(struct rpi_pool_core *core, uint64_t from, uint64_t bytes,
                           struct rp_error *err);

/* Memory of the kind that cuMemAlloc gives, within the pool's limit. With the core's lock held,
 * both.
 */
rp_status rpi_staging_allocate(struct rpi_pool_core *core, uint64_t bytes, CUdeviceptr *out_memory,
                               struct rp_error *err);
void rpi_staging_free(struct rpi_pool_core *core, uint64_t bytes, CUdeviceptr memory);

/* A graph is gone: gives back what no other one has addresses in. With the core's lock held. */
void rpi_staging_settle(struct rpi_pool_core *core);
void rpi_staging_finish(struct rpi_staging *staging); /* allowed on a zeroed one */

/* Is this an address of the staging? */
static inline bool rpi_staging_holds(const struct rpi_staging *staging, uint64_t address)
{
    return address - staging->base < staging->reserved;
}

#endif
