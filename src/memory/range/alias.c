/* SPDX-License-Identifier: MIT */
#include "memory/range/alias.h"

#include "memory/range/arena.h"

#include <assert.h>

#define MIB 1048576ull
#define GIB (1024 * MIB)

enum { GAP = 512, STEP_CHUNKS = 16, WRAP_STRIDE = 8192, WRAPS = 1024 };
/* Rehearsals until addresses are given out again: what is left of one in padding, which the three
 * captures of a verification may be told, is to be no address of another. */
enum { NEAR = 8 };
/* By which addresses are rounded, in libraries: no more than a block of theirs holds. */
enum { LEAST_STEP = 4096, MOST_STEP = 2097152 };
static const uint64_t reserve_most = 1024 * GIB, reserve_least = 8 * GIB;
static const uint64_t small_chunk = 2 * MIB, large_chunk = 32 * MIB;
static const uint64_t much = GIB; /* addresses of one rehearsal that call for the large chunk */

rp_status rpi_alias_init(struct rpi_alias *alias, const struct rp_driver *driver, CUdevice device,
                         struct rp_error *err)
{
    CUdeviceptr base = 0;
    uint64_t bytes = reserve_most;
    CUresult result;
    for (;; bytes /= 2) {
        result = rpi_reserve_addresses(driver, bytes, &base);
        if (result == CUDA_SUCCESS || bytes / 2 < reserve_least)
            break;
    }
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuMemAddressReserve",
                                "reserving %llu GiB of addresses for rehearsals",
                                (unsigned long long)(bytes / GIB));
    *alias =
        (struct rpi_alias){.driver = driver, .device = device, .base = base, .reserved = bytes};
    return RP_OK;
}

static void unmap(struct rpi_alias *alias, uint64_t from)
{
    uint64_t chunk = atomic_load(&alias->chunk_bytes);
    while (alias->mapped > from) {
        alias->mapped -= chunk;
        rpi_unmap(alias->driver, alias->base + alias->mapped, chunk);
    }
}

static void drop_chunk(struct rpi_alias *alias)
{
    if (!atomic_load(&alias->chunk_bytes))
        return;
    int mode = rpi_relax_begin(alias->driver);
    unmap(alias, 0);
    if (alias->shared && atomic_load(&alias->chunk_bytes) == small_chunk) {
        alias->spare = alias->chunk;
        atomic_store(&alias->spare_bytes, small_chunk);
    } else {
        alias->driver->cuMemRelease(alias->chunk);
    }
    rpi_relax_end(alias->driver, mode);
    atomic_store(&alias->chunk_bytes, 0);
}

void rpi_alias_trim(struct rpi_alias *alias)
{
    drop_chunk(alias);
}

void rpi_alias_finish(struct rpi_alias *alias)
{
    if (!alias->driver)
        return;
    drop_chunk(alias);
    if (atomic_load(&alias->spare_bytes))
        alias->driver->cuMemRelease(alias->spare);
    atomic_store(&alias->spare_bytes, 0);
    alias->driver->cuMemAddressFree(alias->base, alias->reserved);
    alias->driver = NULL;
}

void rpi_alias_begin(struct rpi_alias *alias)
{
    alias->expected = alias->cursor - alias->start;
    if (alias->expected > much && atomic_load(&alias->chunk_bytes) == small_chunk)
        drop_chunk(alias);
    /* Go on behind the last one while that is near, within what the chunk maps in few calls and
     * what is mapped already, otherwise from the front again, a little further on each time. */
    uint64_t soft_end = 512 * (alias->expected > much ? large_chunk : small_chunk);
    if (soft_end > NEAR * alias->expected)
        soft_end = NEAR * alias->expected;
    if (soft_end < alias->mapped)
        soft_end = alias->mapped;
    alias->start = alias->cursor;
    if (alias->start + alias->expected > soft_end)
        alias->start = (uint64_t)(++alias->wraps % WRAPS) * WRAP_STRIDE;
    alias->cursor = alias->start;
}

static rp_status create_chunk(const struct rpi_alias *alias, uint64_t bytes,
                              CUmemGenericAllocationHandle *out_chunk, struct rp_error *err)
{
    CUmemAllocationProp properties = rpi_device_memory(alias->device);
    CUresult result = alias->driver->cuMemCreate(out_chunk, bytes, &properties, 0);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuMemCreate",
                                "taking the %llu MiB chunk that rehearsals lie on",
                                (unsigned long long)(bytes / MIB));
    return RP_OK;
}

rp_status rpi_alias_small_chunk(struct rpi_alias *alias, const struct rp_driver *driver,
                                CUdevice device, CUmemGenericAllocationHandle *out_chunk,
                                struct rp_error *err)
{
    rp_status status = alias->driver ? RP_OK : rpi_alias_init(alias, driver, device, err);
    if (status != RP_OK)
        return status;
    if (atomic_load(&alias->chunk_bytes) == small_chunk) {
        *out_chunk = alias->chunk;
        alias->shared = true;
        return RP_OK;
    }
    if (!atomic_load(&alias->spare_bytes)) {
        int mode = rpi_relax_begin(alias->driver);
        status = create_chunk(alias, small_chunk, &alias->spare, err);
        rpi_relax_end(alias->driver, mode);
        if (status != RP_OK)
            return status;
        atomic_store(&alias->spare_bytes, small_chunk);
    }
    *out_chunk = alias->spare;
    alias->shared = true;
    return RP_OK;
}

static rp_status make_chunk(struct rpi_alias *alias, uint64_t height, struct rp_error *err)
{
    bool large = alias->expected > much || height - alias->start > much;
    uint64_t bytes = large ? large_chunk : small_chunk;
    rp_status status = RP_OK;
    if (!large && atomic_load(&alias->spare_bytes)) {
        alias->chunk = alias->spare;
        atomic_store(&alias->spare_bytes, 0);
    } else {
        status = create_chunk(alias, bytes, &alias->chunk, err);
    }
    if (status == RP_OK)
        atomic_store(&alias->chunk_bytes, bytes);
    return status;
}

/* Maps the chunk over and over until `height`; on failure maps nothing more than before. */
static rp_status map_until(struct rpi_alias *alias, uint64_t height, struct rp_error *err)
{
    uint64_t before = alias->mapped, chunk = atomic_load(&alias->chunk_bytes);
    const char *function = "cuMemMap";
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && alias->mapped < height) {
        result = alias->driver->cuMemMap(alias->base + alias->mapped, chunk, 0, alias->chunk, 0);
        if (result == CUDA_SUCCESS)
            alias->mapped += chunk;
    }
    if (result == CUDA_SUCCESS) {
        CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, alias->device},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        function = "cuMemSetAccess";
        result =
            alias->driver->cuMemSetAccess(alias->base + before, alias->mapped - before, &access, 1);
    }
    if (result == CUDA_SUCCESS)
        return RP_OK;
    unmap(alias, before);
    return rpi_error_driver(err, result, function, "mapping addresses for a rehearsal");
}

static rp_status grow(struct rpi_alias *alias, uint64_t height, struct rp_error *err)
{
    int mode = rpi_relax_begin(alias->driver);
    rp_status status = RP_OK;
    if (!atomic_load(&alias->chunk_bytes))
        status = make_chunk(alias, height, err);
    if (status == RP_OK) {
        uint64_t chunk = atomic_load(&alias->chunk_bytes);
        uint64_t wanted = rpi_round_up(height, chunk * STEP_CHUNKS);
        status = map_until(alias, wanted < alias->reserved ? wanted : alias->reserved, err);
    }
    rpi_relax_end(alias->driver, mode);
    return status;
}

/* An address behind the last one that is `rest` more than a multiple of the step. The gap before it
 * is as wide as that makes it: kernels are given addresses before and behind what they use. */
static rp_status take(struct rpi_alias *alias, uint64_t bytes, uint64_t step, uint64_t rest,
                      uint64_t *out_address, struct rp_error *err)
{
    uint64_t from = alias->base + alias->cursor + GAP;
    uint64_t offset = rpi_round_up(from, step) + (rest & (step - 1)) - alias->base;
    if (offset + GAP > alias->reserved || bytes > alias->reserved - offset - GAP) {
        rpi_error(err, RP_ERROR_LIMIT, "rp_call_alloc",
                  "the run allocates more than the %llu GiB of addresses that a rehearsal has",
                  (unsigned long long)(alias->reserved / GIB));
        if (err) {
            err->requested = bytes;
            err->available = alias->reserved;
        }
        return RP_ERROR_LIMIT;
    }
    uint64_t end = offset + bytes + GAP;
    if (end > alias->mapped) {
        rp_status status = grow(alias, end, err);
        if (status != RP_OK)
            return status;
    }
    alias->cursor = offset + bytes;
    if (atomic_load(&alias->used) < alias->cursor)
        atomic_store(&alias->used, alias->cursor);
    *out_address = alias->base + offset;
    return RP_OK;
}

rp_status rpi_alias_take(struct rpi_alias *alias, uint64_t bytes, uint64_t alignment,
                         uint64_t *out_address, struct rp_error *err)
{
    assert(alignment && (alignment & (alignment - 1)) == 0);
    return take(alias, bytes, 2 * alignment, alignment, out_address, err);
}

rp_status rpi_alias_take_like(struct rpi_alias *alias, uint64_t bytes, uint64_t like,
                              uint64_t *out_address, struct rp_error *err)
{
    uint64_t step = LEAST_STEP;
    while (step < bytes && step < MOST_STEP)
        step *= 2;
    return take(alias, bytes, step, like, out_address, err);
}

bool rpi_alias_holds(const struct rpi_alias *alias, uint64_t address)
{
    return address - alias->base <= atomic_load(&alias->used);
}
