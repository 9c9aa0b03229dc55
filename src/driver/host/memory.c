/* SPDX-License-Identifier: MIT
 *
 * Spans: every range of addresses with memory behind it, sorted, found by bisection. Plain device
 * allocations and pinned host memory; virtual.c adds mappings.
 */
#include "driver/host/state.h"

#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u

size_t rpi_host_span_at(uint64_t address)
{
    rpi_assert_held(&rpi_host.lock);
    const struct rpi_host_memory *memory = &rpi_host.memory;
    size_t low = 0, high = memory->spans.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct rpi_host_span *span = &memory->spans.data[middle];
        if (span->address + span->bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct rpi_host_span *rpi_host_span_of(uint64_t address)
{
    rpi_assert_held(&rpi_host.lock);
    size_t i = rpi_host_span_at(address);
    if (i == rpi_host.memory.spans.count || rpi_host.memory.spans.data[i].address > address)
        return NULL;
    return &rpi_host.memory.spans.data[i];
}

bool rpi_host_span_add(const struct rpi_host_span *span)
{
    rpi_assert_held(&rpi_host.lock);
    struct rpi_host_memory *memory = &rpi_host.memory;
    if (!rpi_vec_reserve(&memory->spans, memory->spans.count + 1))
        return false;
    size_t i = rpi_host_span_at(span->address);
    memmove(memory->spans.data + i + 1, memory->spans.data + i,
            (memory->spans.count - i) * sizeof *memory->spans.data);
    memory->spans.data[i] = *span;
    memory->spans.count++;
    memory->generation++;
    return true;
}

void rpi_host_span_remove(size_t index)
{
    rpi_assert_held(&rpi_host.lock);
    struct rpi_host_memory *memory = &rpi_host.memory;
    memory->spans.count--;
    memmove(memory->spans.data + index, memory->spans.data + index + 1,
            (memory->spans.count - index) * sizeof *memory->spans.data);
    memory->generation++;
}

bool rpi_host_accessible(uint64_t address, uint64_t bytes, bool write)
{
    rpi_assert_held(&rpi_host.lock);
    const struct rpi_host_memory *memory = &rpi_host.memory;
    CUmemAccess_flags wanted =
        write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
    if (bytes == 0)
        bytes = 1;
    if (address > UINT64_MAX - bytes)
        return false;
    uint64_t end = address + bytes;
    for (size_t i = rpi_host_span_at(address); i < memory->spans.count; i++) {
        const struct rpi_host_span *span = &memory->spans.data[i];
        if (span->address > address || (span->access & wanted) != wanted)
            return false;
        address = span->address + span->bytes;
        if (address >= end)
            return true;
    }
    return false;
}

CUresult rpi_host_cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    uint64_t total = rpi_host.options.total_bytes;
    uint64_t used = rpi_host_memory_used(rpi_host_current()->device);
    if (!free_bytes || !total_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *free_bytes = used < total ? total - used : 0;
    *total_bytes = total;
    return CUDA_SUCCESS;
}

/* Where allocations lie: above the address sanitizer's heap. The thread sanitizer takes no wish
 * that it has no shadow of, and has one only below where libraries and stacks lie. */
#ifdef __SANITIZE_THREAD__
#define LOWEST_ADDRESS  ((uint64_t)0x7e90 << 32)
#define HIGHEST_ADDRESS ((uint64_t)0x7ef0 << 32)
#else
#define LOWEST_ADDRESS  ((uint64_t)0x65 << 40)
#define HIGHEST_ADDRESS ((uint64_t)0x70 << 40)
#endif

/* Memory for the chunk at addresses that ascend from allocation to allocation, as NVIDIA's driver
 * gives them: allocators that take the lowest of equal blocks then choose as they do there. The
 * addresses are a wish; MAP_FAILED where there are none at all. */
static void *map_ascending(const struct rpi_host_chunk *chunk)
{
    struct rpi_host_memory *memory = &rpi_host.memory;
    if (memory->next < LOWEST_ADDRESS || memory->next > HIGHEST_ADDRESS - chunk->bytes)
        memory->next = LOWEST_ADDRESS;
    void *place = mmap((void *)(uintptr_t)memory->next, chunk->bytes, PROT_READ | PROT_WRITE,
                       MAP_SHARED, rpi_host_memory_fd(), (off_t)chunk->offset);
    memory->next +=
        (chunk->bytes + RPI_HOST_GRANULARITY - 1) / RPI_HOST_GRANULARITY * RPI_HOST_GRANULARITY;
    return place;
}

CUresult rpi_host_cuMemAlloc(CUdeviceptr *address, size_t bytes)
{
    if (!address || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > rpi_host.options.total_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t rounded = (bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
    struct rpi_host_chunk *chunk;
    CUresult result = rpi_host_chunk_create(rpi_host_current()->device, rounded, &chunk);
    if (result)
        return result;
    void *place = map_ascending(chunk);
    struct rpi_host_span span = {.address = (uintptr_t)place,
                                 .bytes = rounded,
                                 .kind = RPI_HOST_SPAN_ALLOC,
                                 .device = chunk->device,
                                 .context = rpi_host_current(),
                                 .access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                                 .chunk = chunk,
                                 .size = bytes};
    if (place == MAP_FAILED || !rpi_host_span_add(&span)) {
        if (place != MAP_FAILED)
            munmap(place, rounded);
        rpi_host_chunk_destroy(chunk);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    rpi_host.memory.allocations++;
    *address = span.address;
    return CUDA_SUCCESS;
}

static void drop_span(size_t index)
{
    struct rpi_host_memory *memory = &rpi_host.memory;
    struct rpi_host_span span = memory->spans.data[index];
    munmap((void *)(uintptr_t)span.address, span.bytes);
    if (span.kind == RPI_HOST_SPAN_ALLOC) {
        rpi_host_chunk_destroy(span.chunk);
        memory->allocations--;
    } else {
        memory->pinned -= span.bytes;
    }
    rpi_host_span_remove(index);
}

CUresult rpi_host_cuMemFree(CUdeviceptr address)
{
    if (address == 0)
        return CUDA_SUCCESS;
    const struct rpi_host_span *span = rpi_host_span_of(address);
    if (!span || span->address != address || span->kind != RPI_HOST_SPAN_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    /* Freeing waits for the devices, as NVIDIA's driver does; the span may have moved meanwhile. */
    CUresult result = rpi_host_wait_all(NULL);
    if (result)
        return result;
    span = rpi_host_span_of(address);
    if (!span || span->address != address || span->kind != RPI_HOST_SPAN_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    drop_span(rpi_host_span_at(address));
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuMemAllocHost(void **pointer, size_t bytes)
{
    if (!pointer || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > SIZE_MAX / 2)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t rounded = (bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
    void *place = mmap(NULL, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rpi_host_span span = {.address = (uintptr_t)place,
                                 .bytes = rounded,
                                 .kind = RPI_HOST_SPAN_PINNED,
                                 .device = rpi_host_current()->device,
                                 .context = rpi_host_current(),
                                 .access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                                 .size = bytes};
    if (!rpi_host_span_add(&span)) {
        munmap(place, rounded);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    rpi_host.memory.pinned += rounded;
    *pointer = place;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuMemFreeHost(void *pointer)
{
    if (!pointer)
        return CUDA_SUCCESS;
    const struct rpi_host_span *span = rpi_host_span_of((uintptr_t)pointer);
    if (!span || span->address != (uintptr_t)pointer || span->kind != RPI_HOST_SPAN_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = rpi_host_wait_all(NULL);
    if (result)
        return result;
    span = rpi_host_span_of((uintptr_t)pointer);
    if (!span || span->address != (uintptr_t)pointer || span->kind != RPI_HOST_SPAN_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    drop_span(rpi_host_span_at((uintptr_t)pointer));
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuPointerGetAttribute(void *value, CUpointer_attribute attribute,
                                        CUdeviceptr address)
{
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    const struct rpi_host_span *span = rpi_host_span_of(address);
    if (attribute == CU_POINTER_ATTRIBUTE_MAPPED) {
        int mapped = span != NULL;
        memcpy(value, &mapped, sizeof mapped);
        return CUDA_SUCCESS;
    }
    if (!span)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: {
        /* Virtual memory belongs to a device, not to a context. */
        memcpy(value, &span->context, sizeof span->context);
        return CUDA_SUCCESS;
    }
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: {
        unsigned type =
            span->kind == RPI_HOST_SPAN_PINNED ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        memcpy(value, &type, sizeof type);
        return CUDA_SUCCESS;
    }
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: {
        int ordinal = span->device;
        memcpy(value, &ordinal, sizeof ordinal);
        return CUDA_SUCCESS;
    }
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: {
        CUdeviceptr start = span->address;
        memcpy(value, &start, sizeof start);
        return CUDA_SUCCESS;
    }
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: {
        size_t size = span->size;
        memcpy(value, &size, sizeof size);
        return CUDA_SUCCESS;
    }
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

void rpi_host_memory_leave(CUcontext context)
{
    rpi_assert_held(&rpi_host.lock);
    const struct rpi_host_memory *memory = &rpi_host.memory;
    for (size_t i = memory->spans.count; i-- > 0;)
        if (memory->spans.data[i].context == context)
            drop_span(i);
}

void rpi_host_memory_finish(void)
{
    rpi_assert_held(&rpi_host.lock);
    struct rpi_host_memory *memory = &rpi_host.memory;
    for (size_t i = 0; i < memory->spans.count; i++)
        munmap((void *)(uintptr_t)memory->spans.data[i].address, memory->spans.data[i].bytes);
    for (size_t i = 0; i < memory->reservations.count; i++)
        munmap((void *)(uintptr_t)memory->reservations.data[i].address,
               memory->reservations.data[i].bytes);
    for (size_t i = 0; i < memory->chunks.count; i++) {
        rpi_host_handle_remove(memory->chunks.data[i]);
        if (memory->chunks.data[i]->file >= 0)
            close(memory->chunks.data[i]->file);
        rpi_free(memory->chunks.data[i]);
    }
    rpi_vec_finish(&memory->spans);
    rpi_vec_finish(&memory->reservations);
    rpi_vec_finish(&memory->chunks);
    if (memory->fd >= 0)
        close(memory->fd);
    *memory = (struct rpi_host_memory){.fd = -1, .generation = memory->generation + 1};
}
