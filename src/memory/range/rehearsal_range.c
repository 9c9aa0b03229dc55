/* SPDX-License-Identifier: MIT */
#include "memory/range/rehearsal_range.h"

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

rp_status rpi_rehearsal_range_init(struct rpi_rehearsal_range *range,
                                   const struct rp_driver *driver, CUdevice device,
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
    *range = (struct rpi_rehearsal_range){
        .driver = driver, .device = device, .base = base, .reserved = bytes};
    return RP_OK;
}

static void unmap(struct rpi_rehearsal_range *range, uint64_t from)
{
    uint64_t chunk = atomic_load(&range->chunk_bytes);
    while (range->mapped > from) {
        range->mapped -= chunk;
        rpi_unmap(range->driver, range->base + range->mapped, chunk);
    }
}

static void drop_chunk(struct rpi_rehearsal_range *range)
{
    if (!atomic_load(&range->chunk_bytes))
        return;
    int mode = rpi_relax_begin(range->driver);
    unmap(range, 0);
    if (range->shared && atomic_load(&range->chunk_bytes) == small_chunk) {
        range->spare = range->chunk;
        atomic_store(&range->spare_bytes, small_chunk);
    } else {
        range->driver->cuMemRelease(range->chunk);
    }
    rpi_relax_end(range->driver, mode);
    atomic_store(&range->chunk_bytes, 0);
}

void rpi_rehearsal_range_trim(struct rpi_rehearsal_range *range)
{
    drop_chunk(range);
}

void rpi_rehearsal_range_finish(struct rpi_rehearsal_range *range)
{
    if (!range->driver)
        return;
    drop_chunk(range);
    if (atomic_load(&range->spare_bytes))
        range->driver->cuMemRelease(range->spare);
    atomic_store(&range->spare_bytes, 0);
    rpi_free_addresses(range->driver, range->base, range->reserved);
    range->driver = NULL;
}

void rpi_rehearsal_range_begin(struct rpi_rehearsal_range *range)
{
    range->expected = range->cursor - range->start;
    if (range->expected > much && atomic_load(&range->chunk_bytes) == small_chunk)
        drop_chunk(range);
    /* Go on behind the last one while that is near, within what the chunk maps in few calls and
     * what is mapped already, otherwise from the front again, a little further on each time. */
    uint64_t soft_end = 512 * (range->expected > much ? large_chunk : small_chunk);
    if (soft_end > NEAR * range->expected)
        soft_end = NEAR * range->expected;
    if (soft_end < range->mapped)
        soft_end = range->mapped;
    range->start = range->cursor;
    if (range->start + range->expected > soft_end)
        range->start = (uint64_t)(++range->wraps % WRAPS) * WRAP_STRIDE;
    range->cursor = range->start;
}

static rp_status create_chunk(const struct rpi_rehearsal_range *range, uint64_t bytes,
                              CUmemGenericAllocationHandle *out_chunk, struct rp_error *err)
{
    CUmemAllocationProp properties = rpi_device_memory(range->device);
    CUresult result = range->driver->cuMemCreate(out_chunk, bytes, &properties, 0);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuMemCreate",
                                "taking the %llu MiB chunk that rehearsals lie on",
                                (unsigned long long)(bytes / MIB));
    return RP_OK;
}

rp_status rpi_rehearsal_range_small_chunk(struct rpi_rehearsal_range *range,
                                          const struct rp_driver *driver, CUdevice device,
                                          CUmemGenericAllocationHandle *out_chunk,
                                          struct rp_error *err)
{
    rp_status status = range->driver ? RP_OK : rpi_rehearsal_range_init(range, driver, device, err);
    if (status != RP_OK)
        return status;
    if (atomic_load(&range->chunk_bytes) == small_chunk) {
        *out_chunk = range->chunk;
        range->shared = true;
        return RP_OK;
    }
    if (!atomic_load(&range->spare_bytes)) {
        int mode = rpi_relax_begin(range->driver);
        status = create_chunk(range, small_chunk, &range->spare, err);
        rpi_relax_end(range->driver, mode);
        if (status != RP_OK)
            return status;
        atomic_store(&range->spare_bytes, small_chunk);
    }
    *out_chunk = range->spare;
    range->shared = true;
    return RP_OK;
}

static rp_status make_chunk(struct rpi_rehearsal_range *range, uint64_t height,
                            struct rp_error *err)
{
    bool large = range->expected > much || height - range->start > much;
    uint64_t bytes = large ? large_chunk : small_chunk;
    rp_status status = RP_OK;
    if (!large && atomic_load(&range->spare_bytes)) {
        range->chunk = range->spare;
        atomic_store(&range->spare_bytes, 0);
    } else {
        status = create_chunk(range, bytes, &range->chunk, err);
    }
    if (status == RP_OK)
        atomic_store(&range->chunk_bytes, bytes);
    return status;
}

/* Maps the chunk over and over until `height`; on failure maps nothing more than before. */
static rp_status map_until(struct rpi_rehearsal_range *range, uint64_t height, struct rp_error *err)
{
    uint64_t before = range->mapped, chunk = atomic_load(&range->chunk_bytes);
    const char *function = "cuMemMap";
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && range->mapped < height) {
        result = range->driver->cuMemMap(range->base + range->mapped, chunk, 0, range->chunk, 0);
        if (result == CUDA_SUCCESS)
            range->mapped += chunk;
    }
    if (result == CUDA_SUCCESS) {
        CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, range->device},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        function = "cuMemSetAccess";
        result =
            range->driver->cuMemSetAccess(range->base + before, range->mapped - before, &access, 1);
    }
    if (result == CUDA_SUCCESS)
        return RP_OK;
    unmap(range, before);
    return rpi_error_driver(err, result, function, "mapping addresses for a rehearsal");
}

static rp_status grow(struct rpi_rehearsal_range *range, uint64_t height, struct rp_error *err)
{
    int mode = rpi_relax_begin(range->driver);
    rp_status status = RP_OK;
    if (!atomic_load(&range->chunk_bytes))
        status = make_chunk(range, height, err);
    if (status == RP_OK) {
        uint64_t chunk = atomic_load(&range->chunk_bytes);
        uint64_t wanted = rpi_round_up(height, chunk * STEP_CHUNKS);
        status = map_until(range, wanted < range->reserved ? wanted : range->reserved, err);
    }
    rpi_relax_end(range->driver, mode);
    return status;
}

/* An address behind the last one that is `rest` more than a multiple of the step. The gap before it
 * is as wide as that makes it: kernels are given addresses before and behind what they use. */
static rp_status take(struct rpi_rehearsal_range *range, uint64_t bytes, uint64_t step,
                      uint64_t rest, uint64_t *out_address, struct rp_error *err)
{
    uint64_t from = range->base + range->cursor + GAP;
    uint64_t offset = rpi_round_up(from, step) + (rest & (step - 1)) - range->base;
    if (offset + GAP > range->reserved || bytes > range->reserved - offset - GAP) {
        rpi_error(err, RP_ERROR_LIMIT, "rp_call_alloc",
                  "the run allocates more than the %llu GiB of addresses that a rehearsal has",
                  (unsigned long long)(range->reserved / GIB));
        if (err) {
            err->requested = bytes;
            err->available = range->reserved;
        }
        return RP_ERROR_LIMIT;
    }
    uint64_t end = offset + bytes + GAP;
    if (end > range->mapped) {
        rp_status status = grow(range, end, err);
        if (status != RP_OK)
            return status;
    }
    range->cursor = offset + bytes;
    if (atomic_load(&range->used) < range->cursor)
        atomic_store(&range->used, range->cursor);
    *out_address = range->base + offset;
    return RP_OK;
}

rp_status rpi_rehearsal_range_take(struct rpi_rehearsal_range *range, uint64_t bytes,
                                   uint64_t alignment, uint64_t *out_address, struct rp_error *err)
{
    assert(alignment && (alignment & (alignment - 1)) == 0);
    return take(range, bytes, 2 * alignment, alignment, out_address, err);
}

rp_status rpi_rehearsal_range_take_like(struct rpi_rehearsal_range *range, uint64_t bytes,
                                        uint64_t like, uint64_t *out_address, struct rp_error *err)
{
    uint64_t step = LEAST_STEP;
    while (step < bytes && step < MOST_STEP)
        step *= 2;
    return take(range, bytes, step, like, out_address, err);
}

bool rpi_rehearsal_range_holds(const struct rpi_rehearsal_range *range, uint64_t address)
{
    return address - range->base <= atomic_load(&range->used);
}
