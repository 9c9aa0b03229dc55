/* SPDX-License-Identifier: MIT */
#include "memory/range/arena.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>

#define MIB(bytes) ((double)(bytes) / 1048576.0)

enum { MODE_UNCHANGED = -1 };

int rpi_relax_begin(const struct rp_driver *driver)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (driver->cuThreadExchangeStreamCaptureMode(&mode) != CUDA_SUCCESS)
        return MODE_UNCHANGED;
    return (int)mode;
}

void rpi_relax_end(const struct rp_driver *driver, int before)
{
    if (before == MODE_UNCHANGED)
        return;
    /* The caller's mode must come back even from a driver that fails once. */
    for (int attempt = 0; attempt < 2; attempt++) {
        CUstreamCaptureMode mode = (CUstreamCaptureMode)before;
        if (driver->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS)
            return;
    }
}

CUresult rpi_unmap(const struct rp_driver *driver, CUdeviceptr address, size_t bytes)
{
    CUresult result = driver->cuMemUnmap(address, bytes);
    return result == CUDA_SUCCESS ? result : driver->cuMemUnmap(address, bytes);
}

CUmemAllocationProp rpi_device_memory(CUdevice device)
{
    CUmemAllocationProp properties = {0};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    return properties;
}

uint64_t rpi_round_up(uint64_t value, uint64_t multiple)
{
    assert(multiple && (multiple & (multiple - 1)) == 0);
    uint64_t rounded = (value + multiple - 1) & ~(multiple - 1);
    return rounded < value ? UINT64_MAX : rounded;
}

/* Where addresses are reserved. As integers the upper halves of these, 20125 and up, are seldom sizes
 * or counts, and the lower halves are no small ones: those stand beside what a caller's stack left in
 * padding, often the upper half of another address. As floats they are beyond 8e9. A place is 64 GiB;
 * a range takes as many as it needs. The search goes on where the last one ended: pools come and go,
 * and a driver asked for a place that is taken gives low addresses. So no place is asked for that is
 * known to be. */
static const uint64_t rare = 0x4e9d50000000, place_bytes = 0x1000000000;
enum { PLACES = 768, TRIES = 128 };

static struct {
    pthread_mutex_t lock;     /* guards the rest */
    size_t next;              /* where the search goes on */
    bool taken[PLACES];       /* by a range of ours */
    uint64_t refused[PLACES]; /* least bytes that the driver had no room for there; 0: none */
} places = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The places that a range lies in, where it lies in any: [first, end). */
static void places_of(uint64_t base, uint64_t bytes, size_t *out_first, size_t *out_end)
{
    uint64_t first = base - rare < PLACES * place_bytes ? (base - rare) / place_bytes : PLACES;
    uint64_t end = first < PLACES ? first + 1 + (bytes ? bytes - 1 : 0) / place_bytes : PLACES;
    *out_first = (size_t)first;
    *out_end = end < PLACES ? (size_t)end : PLACES;
}

static bool may_have_room(size_t place, uint64_t bytes)
{
    size_t first, end;
    places_of(rare + place * place_bytes, bytes, &first, &end);
    for (size_t i = first; i < end; i++)
        if (places.taken[i])
            return false;
    return !places.refused[place] || bytes < places.refused[place];
}

static void set_taken(uint64_t base, uint64_t bytes, bool taken)
{
    size_t first, end;
    places_of(base, bytes, &first, &end);
    for (size_t i = first; i < end; i++)
        places.taken[i] = taken;
}

/* At the place, or not at all: then *out_base is 0. */
static CUresult reserve_at(const struct rp_driver *driver, size_t place, uint64_t bytes,
                           CUdeviceptr *out_base)
{
    uint64_t hint = rare + place * place_bytes;
    CUdeviceptr base = 0;
    CUresult result = driver->cuMemAddressReserve(&base, bytes, 0, hint, 0);
    if (result != CUDA_SUCCESS)
        return result;
    if (base - hint < place_bytes) {
        set_taken(base, bytes, true);
        places_of(base, bytes, &place, &places.next);
        *out_base = base;
        return CUDA_SUCCESS;
    }
    places.refused[place] = bytes;
    driver->cuMemAddressFree(base, bytes);
    *out_base = 0;
    return CUDA_SUCCESS;
}

CUresult rpi_reserve_addresses(const struct rp_driver *driver, uint64_t bytes,
                               CUdeviceptr *out_base)
{
    CUresult result = CUDA_SUCCESS;
    CUdeviceptr base = 0;
    pthread_mutex_lock(&places.lock);
    size_t first = places.next, tries = 0;
    for (size_t i = 0; i < PLACES && tries < TRIES && !base && result == CUDA_SUCCESS; i++) {
        size_t place = (first + i) % PLACES, end;
        if (!may_have_room(place, bytes))
            continue;
        tries++;
        result = reserve_at(driver, place, bytes, &base);
        places_of(rare + place * place_bytes, bytes, &place, &end);
        i += end - place - 1; /* somebody's memory lies in one of them, mostly not in the first */
    }
    pthread_mutex_unlock(&places.lock);
    if (!base)
        return driver->cuMemAddressReserve(out_base, bytes, 0, 0, 0);
    *out_base = base;
    return CUDA_SUCCESS;
}

void rpi_free_addresses(const struct rp_driver *driver, CUdeviceptr base, uint64_t bytes)
{
    pthread_mutex_lock(&places.lock);
    driver->cuMemAddressFree(base, bytes);
    set_taken(base, bytes, false);
    pthread_mutex_unlock(&places.lock);
}

rp_status rpi_arena_init(struct rpi_arena *arena, const struct rp_driver *driver, CUdevice device,
                         uint64_t bytes, struct rp_error *err)
{
    struct rpi_arena made = {.driver = driver, .device = device};
    CUmemAllocationProp properties = rpi_device_memory(device);
    size_t granularity = 0;
    CUresult result = driver->cuMemGetAllocationGranularity(&granularity, &properties,
                                                            CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuMemGetAllocationGranularity",
                                "asking for the granularity of device memory");
    made.granularity = granularity;
    made.reserved = rpi_round_up(bytes ? bytes : 1, granularity);
    CUdeviceptr base = 0;
    result = rpi_reserve_addresses(driver, made.reserved, &base);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuMemAddressReserve",
                                "reserving %.0f MiB of addresses", MIB(made.reserved));
    made.base = base;
    *arena = made;
    return RP_OK;
}

void rpi_arena_finish(struct rpi_arena *arena)
{
    rpi_arena_shrink(arena, 0);
    if (arena->base)
        rpi_free_addresses(arena->driver, arena->base, arena->reserved);
    rpi_vec_finish(&arena->chunks);
    *arena = (struct rpi_arena){0};
}

void rpi_arena_let_in(const struct rpi_arena *arena, CUdevice peer)
{
    uint64_t address = arena->base;
    int mode = rpi_relax_begin(arena->driver);
    for (size_t i = 0; i < arena->chunks.count; i++) {
        if (!arena->chunks.data[i].hole)
            rpi_peer_let_in(arena->driver, peer, address, arena->chunks.data[i].bytes);
        address += arena->chunks.data[i].bytes;
    }
    rpi_relax_end(arena->driver, mode);
}

static rp_status out_of_memory(const struct rpi_arena *arena, uint64_t height, uint64_t step,
                               struct rp_error *err)
{
    size_t available = 0, total = 0;
    arena->driver->cuMemGetInfo(&available, &total);
    rpi_error_driver(err, CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate",
                     "growing device memory from %.1f to %.1f MiB (%.1f MiB more, %.1f MiB free)",
                     MIB(arena->mapped), MIB(height), MIB(step), MIB(available));
    if (err) {
        err->requested = step;
        err->available = available;
    }
    return RP_ERROR_OUT_OF_DEVICE_MEMORY;
}

/* Maps a chunk at an offset; on failure nothing is mapped there. */
static rp_status map_chunk(const struct rpi_arena *arena, const struct rpi_chunk *chunk,
                           uint64_t offset, struct rp_error *err)
{
    assert(chunk->bytes && !chunk->hole && offset % arena->granularity == 0);
    const struct rp_driver *driver = arena->driver;
    uint64_t address = arena->base + offset;
    CUresult result = driver->cuMemMap(address, chunk->bytes, 0, chunk->handle, 0);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuMemMap", "mapping %.1f MiB of device memory",
                                MIB(chunk->bytes));
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, arena->device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    result = driver->cuMemSetAccess(address, chunk->bytes, &access, 1);
    if (result == CUDA_SUCCESS) {
        rpi_peers_let_in(arena->peers, driver, address, chunk->bytes);
        return RP_OK;
    }
    rpi_unmap(driver, address, chunk->bytes);
    return rpi_error_driver(err, result, "cuMemSetAccess",
                            "allowing access to %.1f MiB of device memory", MIB(chunk->bytes));
}

/* A chunk of memory at an offset. height: of the mapped part then, for errors. */
static rp_status make_chunk(const struct rpi_arena *arena, uint64_t offset, uint64_t bytes,
                            uint64_t height, struct rpi_chunk *out_chunk, struct rp_error *err)
{
    assert(bytes && bytes % arena->granularity == 0 && offset + bytes <= height);
    CUmemAllocationProp properties = rpi_device_memory(arena->device);
    struct rpi_chunk chunk = {.bytes = bytes};
    CUresult result = arena->driver->cuMemCreate(&chunk.handle, bytes, &properties, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return out_of_memory(arena, height, bytes, err);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuMemCreate", "taking %.1f MiB of device memory",
                                MIB(bytes));
    rp_status status = map_chunk(arena, &chunk, offset, err);
    if (status != RP_OK)
        arena->driver->cuMemRelease(chunk.handle);
    else
        *out_chunk = chunk;
    return status;
}

static void drop_chunk(const struct rpi_arena *arena, const struct rpi_chunk *chunk,
                       uint64_t offset)
{
    assert(offset + chunk->bytes <= arena->reserved);
    if (chunk->hole)
        return;
    rpi_unmap(arena->driver, arena->base + offset, chunk->bytes);
    arena->driver->cuMemRelease(chunk->handle);
}

rp_status rpi_arena_grow(struct rpi_arena *arena, uint64_t height, struct rp_error *err)
{
    if (height <= arena->mapped)
        return RP_OK;
    uint64_t wanted = rpi_round_up(height, arena->granularity);
    if (wanted > arena->reserved) {
        rpi_error(err, RP_ERROR_OUT_OF_DEVICE_MEMORY, "mapping device memory",
                  "%.1f MiB were asked for, but the range is %.1f MiB, all that the device has",
                  MIB(height), MIB(arena->reserved));
        if (err) {
            err->requested = height;
            err->available = arena->reserved;
        }
        return RP_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    if (!rpi_vec_reserve(&arena->chunks, arena->chunks.count + 1))
        return rpi_error_host_memory(err, "mapping device memory", sizeof(struct rpi_chunk));
    int mode = rpi_relax_begin(arena->driver);
    uint64_t bytes = wanted - arena->mapped;
    rp_status status = make_chunk(arena, arena->mapped, bytes, wanted,
                                  &arena->chunks.data[arena->chunks.count], err);
    rpi_relax_end(arena->driver, mode);
    if (status != RP_OK)
        return status;
    assert(arena->mapped + bytes <= arena->reserved);
    arena->chunks.count++;
    arena->mapped += bytes;
    return RP_OK;
}

void rpi_arena_shrink(struct rpi_arena *arena, uint64_t height)
{
    assert(rpi_arena_is_valid(arena));
    if (!arena->chunks.count)
        return;
    int mode = rpi_relax_begin(arena->driver);
    while (arena->chunks.count) {
        const struct rpi_chunk *last = &arena->chunks.data[arena->chunks.count - 1];
        if (arena->mapped - last->bytes < height)
            break;
        arena->mapped -= last->bytes;
        arena->holes -= last->hole ? last->bytes : 0;
        drop_chunk(arena, last, arena->mapped);
        arena->chunks.count--;
    }
    rpi_relax_end(arena->driver, mode);
}

bool rpi_arena_is_valid(const struct rpi_arena *arena)
{
    uint64_t mapped = 0, holes = 0;
    for (size_t i = 0; i < arena->chunks.count; i++) {
        const struct rpi_chunk *chunk = &arena->chunks.data[i];
        if (!chunk->bytes || chunk->bytes % arena->granularity || (chunk->hole && chunk->filled))
            return false;
        mapped += chunk->bytes;
        holes += chunk->hole ? chunk->bytes : 0;
    }
    return mapped == arena->mapped && holes == arena->holes && mapped <= arena->reserved;
}

uint64_t rpi_arena_missing(const struct rpi_arena *arena, uint64_t from, uint64_t to)
{
    assert(from <= to);
    uint64_t offset = 0, missing = 0;
    for (size_t i = 0; arena->holes && i < arena->chunks.count; i++) {
        const struct rpi_chunk *chunk = &arena->chunks.data[i];
        if (chunk->hole && offset < to && offset + chunk->bytes > from)
            missing += chunk->bytes;
        offset += chunk->bytes;
    }
    return missing;
}

rp_status rpi_arena_fill(struct rpi_arena *arena, uint64_t from, uint64_t to, struct rp_error *err)
{
    assert(from <= to && to <= arena->mapped);
    if (!rpi_arena_missing(arena, from, to))
        return RP_OK;
    uint64_t offset = 0;
    rp_status status = RP_OK;
    int mode = rpi_relax_begin(arena->driver);
    for (size_t i = 0; status == RP_OK && i < arena->chunks.count; i++) {
        struct rpi_chunk *chunk = &arena->chunks.data[i];
        uint64_t bytes = chunk->bytes;
        if (chunk->hole && offset < to && offset + bytes > from) {
            status = make_chunk(arena, offset, bytes, arena->mapped, chunk, err);
            if (status == RP_OK) {
                chunk->filled = true;
                arena->holes -= bytes;
            }
        }
        offset += bytes;
    }
    rpi_relax_end(arena->driver, mode);
    return status;
}

void rpi_arena_release(struct rpi_arena *arena, bool only_filled,
                       bool (*needed)(const void *user, uint64_t from, uint64_t to),
                       const void *user)
{
    assert(rpi_arena_is_valid(arena));
    uint64_t offset = 0;
    int mode = rpi_relax_begin(arena->driver);
    for (size_t i = 0; i < arena->chunks.count; i++) {
        struct rpi_chunk *chunk = &arena->chunks.data[i];
        uint64_t bytes = chunk->bytes;
        if (!chunk->hole && (chunk->filled || !only_filled) &&
            !needed(user, offset, offset + bytes)) {
            drop_chunk(arena, chunk, offset);
            *chunk = (struct rpi_chunk){.bytes = bytes, .hole = true};
            arena->holes += bytes;
        }
        chunk->filled = false;
        offset += bytes;
    }
    rpi_relax_end(arena->driver, mode);
}
