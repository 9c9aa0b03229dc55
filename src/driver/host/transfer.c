/* SPDX-License-Identifier: MIT
 *
 * Copies and fills on streams. As NVIDIA's driver does: bytes that come from pageable memory are
 * taken before the call returns, a copy to pageable memory returns once it is done, and a copy of
 * nothing is nothing.
 */
#include "base/held.h"
#include "driver/host/state.h"

#include <assert.h>

/* Whether the driver did not allocate this memory: it may be freed once the call returns. */
static bool is_pageable(CUmemorytype type, uint64_t address)
{
    return type == CU_MEMORYTYPE_HOST && !rpi_host_span_of(address);
}

static bool take_source(struct rpi_host_op *op)
{
    assert(!op->staging && op->copy.WidthInBytes && op->copy.Height && op->copy.Depth);
    const CUDA_MEMCPY3D *c = &op->copy;
    unsigned char *staging = rpi_malloc(c->WidthInBytes * c->Height * c->Depth);
    if (!staging)
        return false;
    const unsigned char *from = (const unsigned char *)c->srcHost + c->srcXInBytes;
    unsigned char *to = staging;
    for (size_t z = 0; z < c->Depth; z++) {
        for (size_t y = 0; y < c->Height; y++) {
            size_t row = (z + c->srcZ) * c->srcHeight + y + c->srcY;
            memcpy(to, from + row * c->srcPitch, c->WidthInBytes);
            to += c->WidthInBytes;
        }
    }
    op->staging = staging;
    return true;
}

static CUresult enqueue_copy(CUstream stream, struct rpi_host_op *op, bool wait)
{
    rpi_assert_held(&rpi_host.lock);
    bool capturing = stream->capture != NULL;
    if (!capturing && is_pageable(op->copy.srcMemoryType, (uintptr_t)op->copy.srcHost) &&
        !take_source(op))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rpi_host_task *task;
    CUresult result = rpi_host_enqueue(stream, op, &task);
    if (result)
        return result;
    if (task && (wait || is_pageable(op->copy.dstMemoryType, (uintptr_t)op->copy.dstHost))) {
        struct rpi_host_clock clock = stream->clock;
        rpi_host_task_wait(task);
        rpi_host_race_settle(&clock);
    }
    rpi_host_task_drop(task);
    return CUDA_SUCCESS;
}

static CUresult copy_on(CUstream handle, const CUDA_MEMCPY3D *copy, bool wait)
{
    CUstream stream = rpi_host_stream_of(handle);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = rpi_host_capture_check(stream);
    if (result)
        return result;
    if (copy->WidthInBytes == 0 || copy->Height == 0 || copy->Depth == 0)
        return CUDA_SUCCESS;
    struct rpi_host_op *op;
    result = rpi_host_copy_op(copy, &op);
    if (result)
        return result;
    result = enqueue_copy(stream, op, wait);
    rpi_host_op_drop(op);
    return result;
}

static CUDA_MEMCPY3D linear(CUmemorytype to_type, uint64_t to, CUmemorytype from_type,
                            uint64_t from, size_t bytes)
{
    CUDA_MEMCPY3D copy = {.srcMemoryType = from_type,
                          .dstMemoryType = to_type,
                          .WidthInBytes = bytes,
                          .Height = 1,
                          .Depth = 1};
    if (from_type == CU_MEMORYTYPE_HOST)
        copy.srcHost = (const void *)(uintptr_t)from;
    else
        copy.srcDevice = from;
    if (to_type == CU_MEMORYTYPE_HOST)
        copy.dstHost = (void *)(uintptr_t)to;
    else
        copy.dstDevice = to;
    return copy;
}

/* The forms without a stream go to the legacy stream and wait. They do not count as unsafe beside a
 * capture, unlike other calls that wait: only a capture that the legacy stream orders minds. */
static CUresult copy_now(CUDA_MEMCPY3D copy)
{
    return rpi_host_stream_of(NULL) ? copy_on(NULL, &copy, true) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult rpi_host_cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_now(linear(CU_MEMORYTYPE_UNIFIED, to, CU_MEMORYTYPE_UNIFIED, from, bytes));
}

CUresult rpi_host_cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes)
{
    return copy_now(linear(CU_MEMORYTYPE_DEVICE, to, CU_MEMORYTYPE_HOST, (uintptr_t)from, bytes));
}

CUresult rpi_host_cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes)
{
    return copy_now(linear(CU_MEMORYTYPE_HOST, (uintptr_t)to, CU_MEMORYTYPE_DEVICE, from, bytes));
}

CUresult rpi_host_cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_now(linear(CU_MEMORYTYPE_DEVICE, to, CU_MEMORYTYPE_DEVICE, from, bytes));
}

CUresult rpi_host_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    CUDA_MEMCPY3D copy = linear(CU_MEMORYTYPE_UNIFIED, to, CU_MEMORYTYPE_UNIFIED, from, bytes);
    return copy_on(stream, &copy, false);
}

CUresult rpi_host_cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    CUDA_MEMCPY3D copy =
        linear(CU_MEMORYTYPE_DEVICE, to, CU_MEMORYTYPE_HOST, (uintptr_t)from, bytes);
    return copy_on(stream, &copy, false);
}

CUresult rpi_host_cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    CUDA_MEMCPY3D copy =
        linear(CU_MEMORYTYPE_HOST, (uintptr_t)to, CU_MEMORYTYPE_DEVICE, from, bytes);
    return copy_on(stream, &copy, false);
}

CUresult rpi_host_cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    CUDA_MEMCPY3D copy = linear(CU_MEMORYTYPE_DEVICE, to, CU_MEMORYTYPE_DEVICE, from, bytes);
    return copy_on(stream, &copy, false);
}

CUresult rpi_host_cuMemcpy2DAsync(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D whole = {
        .srcXInBytes = copy->srcXInBytes,
        .srcY = copy->srcY,
        .srcMemoryType = copy->srcMemoryType,
        .srcHost = copy->srcHost,
        .srcDevice = copy->srcDevice,
        .srcArray = copy->srcArray,
        .srcPitch = copy->srcPitch,
        .srcHeight = copy->Height,
        .dstXInBytes = copy->dstXInBytes,
        .dstY = copy->dstY,
        .dstMemoryType = copy->dstMemoryType,
        .dstHost = copy->dstHost,
        .dstDevice = copy->dstDevice,
        .dstArray = copy->dstArray,
        .dstPitch = copy->dstPitch,
        .dstHeight = copy->Height,
        .WidthInBytes = copy->WidthInBytes,
        .Height = copy->Height,
        .Depth = 1,
    };
    return copy_on(stream, &whole, false);
}

CUresult rpi_host_cuMemcpy3DAsync(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    return copy ? copy_on(stream, copy, false) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fill_on(CUstream handle, const CUDA_MEMSET_NODE_PARAMS *fill)
{
    CUstream stream = rpi_host_stream_of(handle);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = rpi_host_capture_check(stream);
    if (result)
        return result;
    if (fill->width == 0 || fill->height == 0)
        return CUDA_SUCCESS;
    struct rpi_host_op *op;
    result = rpi_host_fill_op(fill, stream->capture != NULL, &op);
    if (result)
        return result;
    result = rpi_host_enqueue(stream, op, NULL);
    rpi_host_op_drop(op);
    return result;
}

static CUresult fill_row_on(CUstream stream, CUdeviceptr to, unsigned value, unsigned element,
                            size_t count)
{
    assert(element == 1 || element == 2 || element == 4);
    CUDA_MEMSET_NODE_PARAMS fill = {
        .dst = to, .value = value, .elementSize = element, .width = count, .height = 1};
    return fill_on(stream, &fill);
}

static CUresult fill_legacy(CUdeviceptr to, unsigned value, unsigned element, size_t count)
{
    return rpi_host_stream_of(NULL) ? fill_row_on(NULL, to, value, element, count)
                                    : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult rpi_host_cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count)
{
    return fill_legacy(to, value, 1, count);
}

CUresult rpi_host_cuMemsetD32(CUdeviceptr to, unsigned value, size_t count)
{
    return fill_legacy(to, value, 4, count);
}

CUresult rpi_host_cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count,
                                  CUstream stream)
{
    return fill_row_on(stream, to, value, 1, count);
}

CUresult rpi_host_cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count,
                                   CUstream stream)
{
    return fill_row_on(stream, to, value, 2, count);
}

CUresult rpi_host_cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    return fill_row_on(stream, to, value, 4, count);
}

CUresult rpi_host_cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                                    size_t height, CUstream stream)
{
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = to,
                                    .pitch = pitch,
                                    .value = value,
                                    .elementSize = 1,
                                    .width = width,
                                    .height = height};
    return fill_on(stream, &fill);
}
