/* SPDX-License-Identifier: MIT
 *
 * Memory of the heap that other processes are given: a descriptor for each mapping that a block
 * lies in. They are made when they are asked for, so a heap that nobody shares pays one property of
 * what it maps.
 */
#include "memory/heap/heap.h"

#include "base/refuse.h"

#include <assert.h>
#include <unistd.h>

void rpi_heap_ask_shareable(struct rp_heap *heap)
{
    int value = 0;
    heap->shareable = (heap->driver->capabilities & RPI_CAP_SHARE) &&
                      heap->driver->cuDeviceGetAttribute(
                          &value, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                          heap->device) == CUDA_SUCCESS &&
                      value;
}

CUmemAllocationProp rpi_heap_memory(const struct rp_heap *heap)
{
    CUmemAllocationProp properties = rpi_device_memory(heap->device);
    if (heap->shareable)
        properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return properties;
}

/* Are all bytes those of live blocks? The shelf's lock is held. */
static bool all_live(const struct rpi_heap_range *range, uint64_t address, uint64_t bytes)
{
    assert(rpi_heap_is_locked(&range->shelf->lock));
    assert(bytes && address - range->base < range->bytes);
    const struct rpi_heap_block *block = rpi_heap_block_of(range, address);
    while (block && block->state == RPI_HEAP_LIVE) {
        uint64_t end = block->address + block->bytes;
        if (end - address >= bytes)
            return true;
        block = block->after;
    }
    return false;
}

/* The mappings that the bytes lie in: the first of them, and how many. */
struct mappings {
    const struct rpi_heap_range *range;
    size_t first, count;
    uint64_t chunk_bytes, span, offset; /* span: chunks of each */
};

static struct mappings find_mappings(const struct rpi_heap_range *range, uint64_t address,
                                     uint64_t bytes)
{
    assert(rpi_heap_is_locked(&range->shelf->lock));
    struct mappings found = {.range = range, .chunk_bytes = range->shelf->chunk_bytes};
    found.first = rpi_shelf_chunk(range->shelf, address - range->base);
    while (!range->chunks.data[found.first].span)
        found.first--;
    found.span = range->chunks.data[found.first].span;
    found.offset = address - range->base - found.first * found.chunk_bytes;
    found.count = (found.offset + bytes - 1) / (found.span * found.chunk_bytes) + 1;
    assert(found.span && found.first + (found.count - 1) * found.span < range->chunks.count);
    return found;
}

static rp_status export_each(const struct rp_heap *heap, const struct mappings *mappings,
                             int *out_files, struct rp_error *err)
{
    assert(mappings->count && !mappings->range->shelf->sourced);
    struct rpi_heap_scope scope;
    CUresult result = rpi_heap_enter(heap, &scope);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuCtxPushCurrent",
                                "making the device's context current");
    size_t done = 0;
    for (; done < mappings->count; done++) {
        const struct rpi_heap_chunk *chunk =
            &mappings->range->chunks.data[mappings->first + done * mappings->span];
        result = heap->driver->cuMemExportToShareableHandle(
            &out_files[done], chunk->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        if (result != CUDA_SUCCESS)
            break;
    }
    rpi_heap_leave(heap, &scope);
    if (result == CUDA_SUCCESS)
        return RP_OK;
    while (done)
        close(out_files[--done]);
    return rpi_error_driver(err, result, "cuMemExportToShareableHandle",
                            "sharing memory with another process");
}

rp_status rp_heap_share(struct rp_heap *heap, uint64_t address, uint64_t bytes, size_t capacity,
                        int *out_files, size_t *out_count, uint64_t *out_file_bytes,
                        uint64_t *out_offset, struct rp_error *err)
{
    if (rpi_is_forked() || !heap || !out_count || !out_file_bytes || !out_offset ||
        (capacity && !out_files))
        return rpi_refuse(err, "rp_heap_share",
                          !heap             ? "heap"
                          : !out_count      ? "out_count"
                          : !out_file_bytes ? "out_file_bytes"
                          : !out_offset     ? "out_offset"
                                            : "out_files");
    if (!heap->shareable)
        return rpi_error(err, RP_ERROR_UNSUPPORTED, "rp_heap_share",
                         "this device or its driver gives no file descriptors of its memory");
    struct rpi_heap_range *range = rpi_heap_range_of(heap, address);
    rp_status status = RP_OK;
    bool live = false;
    if (range) {
        if (range->shelf->sourced)
            return rpi_error(err, RP_ERROR_UNSUPPORTED, "rp_heap_share",
                             "this memory came from a pool's own source, which alone can share it");
        rpi_heap_lock(&range->shelf->lock);
        live = bytes && all_live(range, address, bytes);
        if (live) {
            struct mappings mappings = find_mappings(range, address, bytes);
            if (mappings.count <= capacity)
                status = export_each(heap, &mappings, out_files, err);
            if (status == RP_OK) {
                *out_count = mappings.count;
                *out_file_bytes = mappings.span * mappings.chunk_bytes;
                *out_offset = mappings.offset;
            }
        }
        rpi_heap_unlock(&range->shelf->lock);
    }
    if (!live)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_heap_share",
                         "%llu bytes at 0x%llx are not all of live blocks of the heap",
                         (unsigned long long)bytes, (unsigned long long)address);
    return status;
}
