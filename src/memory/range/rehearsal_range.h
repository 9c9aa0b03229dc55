/* SPDX-License-Identifier: MIT
 *
 * The arena of rehearsals: as many addresses as a program asks for, all on one physical chunk.
 *
 *     addresses  | gap | block 0 | gap |  block 1   | gap | ...
 *     memory     [chunk][chunk][chunk][chunk][chunk] ...           the same one every time
 *
 * A capture runs nothing, so what lies behind the addresses does not matter, only that something
 * does: memcpy and memset nodes refuse addresses that are not mapped. Each block has an address of
 * its own and a gap on both sides, so that a pointer to its end, or a little before its start,
 * still tells whose it is. Blocks have exactly the alignment that is promised, never more by
 * chance, so that a library chooses the same kernels as for any address so aligned.
 *
 * Addresses are not used twice in one rehearsal, and the next rehearsal starts elsewhere. What was
 * mapped stays mapped for it, and the ones after it take turns in that: what many rehearsals map is
 * some eight times what the longest takes, and no more than a few calls map. Mapping costs a call
 * for each chunk's length of addresses: after a rehearsal that took more than 1 GiB of them the
 * chunk is 32 MiB instead of 2. The small one is kept besides where others may have mapped it too
 * (rpi_rehearsal_range_small_chunk).
 *
 * One rehearsal at a time; the device's lock guards it. A context is current at every call.
 */
#ifndef REPRISE_MEMORY_RANGE_REHEARSAL_RANGE_H
#define REPRISE_MEMORY_RANGE_REHEARSAL_RANGE_H

#include "driver/driver.h"

#include <stdatomic.h>
#include <stdbool.h>

struct rpi_rehearsal_range {
    const struct rp_driver *driver;
    CUdevice device;
    uint64_t base, reserved;
    uint64_t mapped; /* bytes from base that lie on the chunk */
    CUmemGenericAllocationHandle chunk;
    _Atomic uint64_t chunk_bytes;       /* 0: no chunk; read by any thread */
    CUmemGenericAllocationHandle spare; /* the small chunk while it is not `chunk` */
    _Atomic uint64_t spare_bytes;       /* as chunk_bytes */
    bool shared;                        /* somebody asked for the small chunk */
    uint64_t start, cursor;             /* of this rehearsal, as offsets */
    uint64_t expected;                  /* addresses that it will take: as many as the last one */
    _Atomic uint64_t used; /* the highest end of any block, of all rehearsals; read by any thread */
    unsigned wraps;        /* how often a rehearsal began at the front again */
};

/* Reserves addresses; takes no memory. */
rp_status rpi_rehearsal_range_init(struct rpi_rehearsal_range *range,
                                   const struct rp_driver *driver, CUdevice device,
                                   struct rp_error *err);
/* Gives all back. Allowed on a zeroed one. */
void rpi_rehearsal_range_finish(struct rpi_rehearsal_range *range);

/* Gives back the chunk, between two rehearsals; the small one only where nobody else may have
 * mapped it. */
void rpi_rehearsal_range_trim(struct rpi_rehearsal_range *range);

/* Begins a rehearsal: chooses where it starts, and the size of the chunk. */
void rpi_rehearsal_range_begin(struct rpi_rehearsal_range *range);
/* An address for `bytes`, which may be 0: a multiple of alignment, a power of two, and not of twice
 * that. RP_ERROR_LIMIT when the addresses are used up. */
rp_status rpi_rehearsal_range_take(struct rpi_rehearsal_range *range, uint64_t bytes,
                                   uint64_t alignment, uint64_t *out_address, struct rp_error *err);
/* The same as far from a multiple of its size (4 KiB at least, 2 MiB at most) as `like` is: what is
 * computed from the one address by rounding it is computed from the other too. */
rp_status rpi_rehearsal_range_take_like(struct rpi_rehearsal_range *range, uint64_t bytes,
                                        uint64_t like, uint64_t *out_address, struct rp_error *err);
/* The small chunk, 2 MiB, for addresses that have to be mapped and are not used. It belongs to the
 * range, which is made where it was not. */
rp_status rpi_rehearsal_range_small_chunk(struct rpi_rehearsal_range *range,
                                          const struct rp_driver *driver, CUdevice device,
                                          CUmemGenericAllocationHandle *out_chunk,
                                          struct rp_error *err);
/* Device memory that it holds. Any thread. */
static inline uint64_t rpi_rehearsal_range_bytes(const struct rpi_rehearsal_range *range)
{
    return atomic_load(&range->chunk_bytes) + atomic_load(&range->spare_bytes);
}
/* Did any rehearsal give out addresses up to this one? */
bool rpi_rehearsal_range_holds(const struct rpi_rehearsal_range *range, uint64_t address);

#endif
