/* SPDX-License-Identifier: MIT
 *
 * A range of device addresses with memory behind its first part.
 *
 *     base                     mapped                              reserved
 *     |-- chunk --|-- chunk --|-- reserved addresses, no memory --|
 *
 * The range is reserved once and never moves, so an address stays good while the arena grows.
 * Memory is taken late, in physical chunks of the driver's granularity, and given back from the
 * end. A chunk is mapped in one piece and can only be unmapped in one piece, so shrinking stops at
 * the first chunk that is still needed. Chunks further down that nobody needs can be released,
 * which leaves a hole of the same size, and filled again.
 *
 * Not synchronised: one thread at a time. A context is current at every call. The caller sees to it
 * that no work uses what it gives back.
 */
#ifndef REPRISE_MEMORY_RANGE_ARENA_H
#define REPRISE_MEMORY_RANGE_ARENA_H

#include "base/vec.h"
#include "driver/driver.h"
#include "memory/range/peers.h"

#include <stdbool.h>

struct rpi_chunk {
    CUmemGenericAllocationHandle handle;
    uint64_t bytes;
    bool hole;   /* no memory is behind it, and there is no handle */
    bool filled; /* was a hole before the last rpi_arena_fill */
};

struct rpi_arena {
    const struct rp_driver *driver;
    CUdevice device;
    const struct rpi_peers *peers;   /* who else may use the memory; NULL: nobody */
    uint64_t granularity;            /* of chunks and mappings */
    uint64_t base, reserved, mapped; /* mapped: holes included */
    uint64_t holes;                  /* bytes of them */
    struct {
        RPI_VEC(struct rpi_chunk);
    } chunks;
};

/* Between the two, the thread may make calls that a capture forbids to its thread or to all: for
 * the library's own calls, which touch no capturing stream. begin returns what end puts back; where
 * the driver refuses, the mode stays as it was. */
int rpi_relax_begin(const struct rp_driver *driver);
void rpi_relax_end(const struct rp_driver *driver, int before);

/* Properties of memory on the device, for cuMemCreate and the granularity. */
CUmemAllocationProp rpi_device_memory(CUdevice device);

/* The value rounded up to a multiple of a power of two; UINT64_MAX when that overflows. */
uint64_t rpi_round_up(uint64_t value, uint64_t multiple);

/* Unmaps memory that is being given back; asks again when the driver fails, as it may for a moment
 * while work of others runs. */
CUresult rpi_unmap(const struct rp_driver *driver, CUdeviceptr address, size_t bytes);

/* Reserves addresses, taking no memory. Where the driver allows, they lie where few pairs of small
 * integers, read as one word, look like one of them: kernels have such pairs among their
 * parameters. They go back by rpi_free_addresses. Any thread.
 */
CUresult rpi_reserve_addresses(const struct rp_driver *driver, uint64_t bytes,
                               CUdeviceptr *out_base);
void rpi_free_addresses(const struct rp_driver *driver, CUdeviceptr base, uint64_t bytes);

/* Reserves at least `bytes` of addresses; takes no memory. */
rp_status rpi_arena_init(struct rpi_arena *arena, const struct rp_driver *driver, CUdevice device,
                         uint64_t bytes, struct rp_error *err);
/* Gives memory and addresses back. Allowed on a zeroed arena. */
void rpi_arena_finish(struct rpi_arena *arena);
/* Lets another device in to what is mapped. */
void rpi_arena_let_in(const struct rpi_arena *arena, CUdevice peer);

/* Puts memory behind the first `height` bytes. On failure the arena is as it was; out of device
 * memory tells what was asked for and what is free. */
rp_status rpi_arena_grow(struct rpi_arena *arena, uint64_t height, struct rp_error *err);
/* Gives back every chunk that lies wholly at or above `height`. */
void rpi_arena_shrink(struct rpi_arena *arena, uint64_t height);

/* Do the chunks add up to what is mapped, and to its holes? A walker, for tests and debug builds.
 */
bool rpi_arena_is_valid(const struct rpi_arena *arena);
/* Bytes of the holes that rpi_arena_fill would fill. */
uint64_t rpi_arena_missing(const struct rpi_arena *arena, uint64_t from, uint64_t to);
/* Puts memory behind the holes under [from, to). On failure some may be filled: release them. */
rp_status rpi_arena_fill(struct rpi_arena *arena, uint64_t from, uint64_t to, struct rp_error *err);
/* Gives back the chunks, or only those that were filled since the last release, of which `needed`
 * says that nothing between their ends is. */
void rpi_arena_release(struct rpi_arena *arena, bool only_filled,
                       bool (*needed)(const void *user, uint64_t from, uint64_t to),
                       const void *user);

#endif
