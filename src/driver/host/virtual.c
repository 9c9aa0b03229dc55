/* SPDX-License-Identifier: MIT
 *
 * Virtual memory: reservations are address ranges that nothing may touch, mappings put chunks into
 * them, and access is granted separately. A chunk lives until its handle is released and its last
 * mapping is gone.
 */
#include "base/held.h"
#include "driver/host/state.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static bool is_multiple(uint64_t value)
{
    return value % RPI_HOST_GRANULARITY == 0;
}

/* Index of the first reservation that ends after address. */
static size_t reservation_at(uint64_t address)
{
    rpi_assert_held(&rpi_host.lock);
    const struct rpi_host_memory *memory = &rpi_host.memory;
    size_t low = 0, high = memory->reservations.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct rpi_host_reservation *r = &memory->reservations.data[middle];
        if (r->address + r->bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool rpi_host_reserved(uint64_t address)
{
    rpi_assert_held(&rpi_host.lock);
    const struct rpi_host_memory *memory = &rpi_host.memory;
    size_t i = reservation_at(address);
    return i < memory->reservations.count && memory->reservations.data[i].address <= address;
}

static void *map_nothing(void *hint, uint64_t bytes, int flags)
{
    return mmap(hint, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

/* An aligned range of addresses: more is taken and the edges given back. */
static void *take_addresses(uint64_t bytes, uint64_t alignment, uint64_t hint)
{
    assert(bytes && alignment && (alignment & (alignment - 1)) == 0);
    if (hint && hint % alignment == 0) {
        void *wanted = (void *)(uintptr_t)hint;
        /* Not MAP_FIXED_NOREPLACE: a thread sanitizer that drops the hint would leave address 0. */
        void *place = map_nothing(wanted, bytes, 0);
        if (place == wanted)
            return place;
        if (place != MAP_FAILED)
            munmap(place, bytes);
    }
    if (bytes > UINT64_MAX - alignment)
        return NULL;
    char *place = map_nothing(NULL, bytes + alignment, 0);
    if (place == MAP_FAILED)
        return NULL;
    uint64_t before = (alignment - (uintptr_t)place % alignment) % alignment;
    if (before)
        munmap(place, before);
    if (alignment > before)
        munmap(place + before + bytes, alignment - before);
    assert(((uintptr_t)place + before) % alignment == 0);
    return place + before;
}

CUresult rpi_host_cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment,
                                      CUdeviceptr hint, unsigned long long flags)
{
    struct rpi_host_memory *memory = &rpi_host.memory;
    if (!address || flags || bytes == 0 || !is_multiple(bytes) || (alignment & (alignment - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    if (alignment < RPI_HOST_GRANULARITY)
        alignment = RPI_HOST_GRANULARITY;
    if (!rpi_vec_reserve(&memory->reservations, memory->reservations.count + 1))
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *place = take_addresses(bytes, alignment, hint);
    if (!place)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t i = reservation_at((uintptr_t)place);
    memmove(memory->reservations.data + i + 1, memory->reservations.data + i,
            (memory->reservations.count - i) * sizeof *memory->reservations.data);
    memory->reservations.data[i] = (struct rpi_host_reservation){(uintptr_t)place, bytes};
    memory->reservations.count++;
    memory->reserved += bytes;
    *address = (uintptr_t)place;
    return CUDA_SUCCESS;
}

/* Whether a mapping lies anywhere in the range. */
static bool any_mapped(uint64_t address, uint64_t bytes)
{
    assert(bytes);
    size_t i = rpi_host_span_at(address);
    return i < rpi_host.memory.spans.count &&
           rpi_host.memory.spans.data[i].address < address + bytes;
}

CUresult rpi_host_cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    struct rpi_host_memory *memory = &rpi_host.memory;
    size_t i = reservation_at(address);
    if (bytes == 0 || i == memory->reservations.count ||
        memory->reservations.data[i].address != address ||
        memory->reservations.data[i].bytes != bytes || any_mapped(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    munmap((void *)(uintptr_t)address, bytes);
    memory->reservations.count--;
    memmove(memory->reservations.data + i, memory->reservations.data + i + 1,
            (memory->reservations.count - i) * sizeof *memory->reservations.data);
    assert(memory->reserved >= bytes);
    memory->reserved -= bytes;
    return CUDA_SUCCESS;
}

static bool is_device(int ordinal)
{
    return ordinal >= 0 && ordinal < rpi_host_devices();
}

static CUresult check_properties(const CUmemAllocationProp *properties)
{
    if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
        properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    return is_device(properties->location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult hand_out(struct rpi_host_chunk *chunk, CUmemGenericAllocationHandle *out_handle)
{
    rpi_assert_held(&rpi_host.lock);
    if (!rpi_host_handle_add(chunk, RPI_HOST_CHUNK)) {
        rpi_host_chunk_destroy(chunk);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    chunk->held = true;
    rpi_host.memory.created++;
    *out_handle = (uintptr_t)chunk;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                              const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUresult result = check_properties(properties);
    if (result)
        return result;
    if (!handle || flags || bytes == 0 || !is_multiple(bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_chunk *chunk;
    result = rpi_host_chunk_create(properties->location.id, bytes, &chunk);
    if (result)
        return result;
    chunk->shareable = properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
    return hand_out(chunk, handle);
}

static int protection_of(CUmemAccess_flags flags)
{
    int protection = flags & CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ : PROT_NONE;
    return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? protection | PROT_WRITE : protection;
}

static struct rpi_host_chunk *chunk_of(CUmemGenericAllocationHandle handle)
{
    struct rpi_host_chunk *chunk = (void *)(uintptr_t)handle;
    return rpi_host_handle_is(chunk, RPI_HOST_CHUNK) ? chunk : NULL;
}

static void let_go(struct rpi_host_chunk *chunk)
{
    rpi_assert_held(&rpi_host.lock);
    if (chunk->held || chunk->mappings)
        return;
    rpi_host_chunk_destroy(chunk);
    rpi_host.memory.created--;
}

CUresult rpi_host_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct rpi_host_chunk *chunk = chunk_of(handle);
    if (!chunk)
        return CUDA_ERROR_INVALID_VALUE;
    rpi_host_handle_remove(chunk);
    chunk->held = false;
    let_go(chunk);
    return CUDA_SUCCESS;
}

/* Every mapping of the chunk, on the file that it is in now. */
static CUresult map_again(const struct rpi_host_chunk *chunk)
{
    assert(chunk->file >= 0);
    const struct rpi_host_memory *memory = &rpi_host.memory;
    for (size_t i = 0; i < memory->spans.count; i++) {
        const struct rpi_host_span *span = &memory->spans.data[i];
        if (span->chunk == chunk && !rpi_host_chunk_map(chunk, (void *)(uintptr_t)span->address,
                                                        protection_of(span->access)))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle,
                                               CUmemAllocationHandleType type,
                                               unsigned long long flags)
{
    const struct rpi_host_chunk *there = chunk_of(handle);
    if (!shared || !there || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !there->shareable)
        return CUDA_ERROR_INVALID_VALUE;
    /* Its bytes move to a file of its own. */
    CUresult result = there->file < 0 ? rpi_host_wait_all(NULL) : CUDA_SUCCESS;
    struct rpi_host_chunk *chunk = chunk_of(handle);
    if (result == CUDA_SUCCESS && !chunk)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && chunk->file < 0) {
        result = rpi_host_chunk_share(chunk);
        if (result == CUDA_SUCCESS)
            result = map_again(chunk);
    }
    if (result != CUDA_SUCCESS)
        return result;
    int file = fcntl(chunk->file, F_DUPFD_CLOEXEC, 0);
    if (file < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)shared = file;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared,
                                                 CUmemAllocationHandleType type)
{
    struct rpi_host_chunk *chunk;
    if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    int file = fcntl((int)(uintptr_t)shared, F_DUPFD_CLOEXEC, 0);
    CUresult result = file < 0 ? CUDA_ERROR_INVALID_VALUE : rpi_host_chunk_open(file, &chunk);
    if (result == CUDA_SUCCESS)
        return hand_out(chunk, handle);
    if (file >= 0)
        close(file);
    return result;
}

CUresult rpi_host_cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                           CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct rpi_host_memory *memory = &rpi_host.memory;
    struct rpi_host_chunk *chunk = chunk_of(handle);
    if (!chunk || flags || bytes == 0 || !is_multiple(address))
        return CUDA_ERROR_INVALID_VALUE;
    if (offset != 0 || bytes != chunk->bytes) /* a chunk is mapped whole */
        return CUDA_ERROR_NOT_SUPPORTED;
    size_t i = reservation_at(address);
    if (i == memory->reservations.count || memory->reservations.data[i].address > address ||
        address - memory->reservations.data[i].address + bytes >
            memory->reservations.data[i].bytes ||
        any_mapped(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_span span = {.address = address,
                                 .bytes = bytes,
                                 .kind = RPI_HOST_SPAN_MAPPING,
                                 .device = chunk->device,
                                 .access = CU_MEM_ACCESS_FLAGS_PROT_NONE,
                                 .chunk = chunk,
                                 .size = bytes};
    if (!rpi_vec_reserve(&memory->spans, memory->spans.count + 1))
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* The system limits the mappings of a process; beyond it this fails and changes nothing. */
    if (!rpi_host_chunk_map(chunk, (void *)(uintptr_t)address, PROT_NONE))
        return CUDA_ERROR_OUT_OF_MEMORY;
    rpi_host_span_add(&span);
    chunk->mappings++;
    memory->mapped++;
    return CUDA_SUCCESS;
}

/* Whether the range consists of whole mappings without a gap. Writes the first span's index and one
 * past the last's. */
static bool whole_mappings(uint64_t address, uint64_t bytes, size_t *out_first, size_t *out_end)
{
    const struct rpi_host_memory *memory = &rpi_host.memory;
    if (bytes == 0 || address > UINT64_MAX - bytes)
        return false;
    uint64_t end = address + bytes;
    size_t i = rpi_host_span_at(address);
    *out_first = i;
    while (address < end && i < memory->spans.count) {
        const struct rpi_host_span *span = &memory->spans.data[i++];
        if (span->address != address || span->kind != RPI_HOST_SPAN_MAPPING)
            return false;
        address += span->bytes;
    }
    *out_end = i;
    return address == end;
}

CUresult rpi_host_cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    struct rpi_host_memory *memory = &rpi_host.memory;
    size_t first, end;
    if (!whole_mappings(address, bytes, &first, &end))
        return CUDA_ERROR_INVALID_VALUE;
    rpi_host_race_gone(address, bytes, "cuMemUnmap");
    /* Taking memory from under running work would end the process. */
    CUresult result = rpi_host_wait_all(NULL);
    if (result)
        return result;
    if (!whole_mappings(address, bytes, &first, &end))
        return CUDA_ERROR_INVALID_VALUE;
    if (map_nothing((void *)(uintptr_t)address, bytes, MAP_FIXED) == MAP_FAILED)
        return CUDA_ERROR_UNMAP_FAILED;
    for (size_t i = first; i < end; i++) {
        struct rpi_host_chunk *chunk = memory->spans.data[i].chunk;
        assert(chunk->mappings);
        chunk->mappings--;
        let_go(chunk);
    }
    assert(memory->mapped >= end - first);
    memory->mapped -= end - first;
    memmove(memory->spans.data + first, memory->spans.data + end,
            (memory->spans.count - end) * sizeof *memory->spans.data);
    memory->spans.count -= end - first;
    memory->generation++;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                                 size_t count)
{
    size_t first, end;
    if (!access || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUmemAccess_flags flags = access[i].flags;
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
             flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
            return CUDA_ERROR_INVALID_VALUE;
        if (!is_device(access[i].location.id))
            return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!whole_mappings(address, bytes, &first, &end))
        return CUDA_ERROR_INVALID_VALUE;
    CUmemAccess_flags flags = access[count - 1].flags;
    if (mprotect((void *)(uintptr_t)address, bytes, protection_of(flags)) != 0)
        return errno == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_OPERATING_SYSTEM;
    for (size_t i = first; i < end; i++)
        rpi_host.memory.spans.data[i].access = flags;
    rpi_host.memory.generation++;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuMemGetAllocationGranularity(size_t *bytes,
                                                const CUmemAllocationProp *properties,
                                                CUmemAllocationGranularity_flags option)
{
    CUresult result = check_properties(properties);
    if (result)
        return result;
    if (!bytes || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                   option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = RPI_HOST_GRANULARITY;
    return CUDA_SUCCESS;
}
