/* SPDX-License-Identifier: MIT
 *
 * Memory, copies and fills.
 */
#include "cudart/runtime.h"

enum { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_ADDRESS };

RPI_EXPORT cudaError_t cudaMalloc(void **address, size_t bytes);
cudaError_t cudaMalloc(void **address, size_t bytes)
{
    CUdeviceptr made = 0;
    if (!address)
        return rpi_runtime_result(CUDA_ERROR_INVALID_VALUE);
    cudaError_t error = bytes ? RPI_WITH_CONTEXT(cuMemAlloc(&made, bytes)) : cudaSuccess;
    if (!error)
        *address = (void *)(uintptr_t)made;
    return error;
}

RPI_EXPORT cudaError_t cudaFree(void *address);
cudaError_t cudaFree(void *address)
{
    return RPI_WITH_CONTEXT(cuMemFree((uintptr_t)address));
}

RPI_EXPORT cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags);
cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    (void)flags;
    return RPI_WITH_CONTEXT(cuMemAllocHost(pointer, bytes));
}

RPI_EXPORT cudaError_t cudaMallocHost(void **pointer, size_t bytes);
cudaError_t cudaMallocHost(void **pointer, size_t bytes)
{
    return cudaHostAlloc(pointer, bytes, 0);
}

RPI_EXPORT cudaError_t cudaFreeHost(void *pointer);
cudaError_t cudaFreeHost(void *pointer)
{
    return RPI_WITH_CONTEXT(cuMemFreeHost(pointer));
}

RPI_EXPORT cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    return RPI_WITH_CONTEXT(cuMemGetInfo(free_bytes, total_bytes));
}

struct pointer_attributes {
    int type, device;
    void *devicePointer, *hostPointer;
#if RPI_CUDA >= 13
    long reserved[8];
#endif
};

RPI_EXPORT cudaError_t cudaPointerGetAttributes(struct pointer_attributes *attributes,
                                                const void *pointer);
cudaError_t cudaPointerGetAttributes(struct pointer_attributes *attributes, const void *pointer)
{
    enum { UNREGISTERED, HOST, DEVICE };
    unsigned type;
    int device = 0;
    CUresult result = rpi_runtime_ready();
    if (result || !attributes)
        return rpi_runtime_result(result ? result : CUDA_ERROR_INVALID_VALUE);
    *attributes = (struct pointer_attributes){.type = UNREGISTERED, .device = -2};
    if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)pointer) ||
        cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (uintptr_t)pointer))
        return cudaSuccess;
    attributes->type = type == CU_MEMORYTYPE_HOST ? HOST : DEVICE;
    attributes->device = device;
    attributes->devicePointer = (void *)(uintptr_t)pointer;
    attributes->hostPointer = type == CU_MEMORYTYPE_HOST ? (void *)(uintptr_t)pointer : NULL;
    return cudaSuccess;
}

static bool is_device(const void *pointer)
{
    unsigned type;
    return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)pointer) ==
               CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE;
}

/* The kind that the addresses have, where the caller leaves it to them. */
static int settle(int kind, const void *to, const void *from)
{
    if (kind != BY_ADDRESS)
        return kind;
    if (is_device(to))
        return is_device(from) ? DEVICE_TO_DEVICE : HOST_TO_DEVICE;
    return is_device(from) ? DEVICE_TO_HOST : HOST_TO_HOST;
}

static CUresult copy(void *to, const void *from, size_t bytes, int kind)
{
    switch (settle(kind, to, from)) {
    case HOST_TO_DEVICE:
        return cuMemcpyHtoD((uintptr_t)to, from, bytes);
    case DEVICE_TO_HOST:
        return cuMemcpyDtoH(to, (uintptr_t)from, bytes);
    case DEVICE_TO_DEVICE:
        return cuMemcpyDtoD((uintptr_t)to, (uintptr_t)from, bytes);
    case HOST_TO_HOST:
        return cuMemcpy((uintptr_t)to, (uintptr_t)from, bytes);
    default:
        return (CUresult)cudaErrorInvalidMemcpyDirection;
    }
}

RPI_EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, int kind)
{
    return RPI_WITH_CONTEXT(copy(to, from, bytes, kind));
}

static CUresult copy_on(void *to, const void *from, size_t bytes, int kind, CUstream stream)
{
    switch (settle(kind, to, from)) {
    case HOST_TO_DEVICE:
        return cuMemcpyHtoDAsync((uintptr_t)to, from, bytes, stream);
    case DEVICE_TO_HOST:
        return cuMemcpyDtoHAsync(to, (uintptr_t)from, bytes, stream);
    case DEVICE_TO_DEVICE:
        return cuMemcpyDtoDAsync((uintptr_t)to, (uintptr_t)from, bytes, stream);
    case HOST_TO_HOST:
        return cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, stream);
    default:
        return (CUresult)cudaErrorInvalidMemcpyDirection;
    }
}

RPI_EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind,
                                       CUstream stream);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, CUstream stream)
{
    return RPI_WITH_CONTEXT(copy_on(to, from, bytes, kind, stream));
}

static void set_side(CUmemorytype *type, const void **host, CUdeviceptr *device,
                     const void *pointer, bool on_device)
{
    *type = on_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    if (on_device)
        *device = (uintptr_t)pointer;
    else
        *host = pointer;
}

RPI_EXPORT cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from,
                                         size_t from_pitch, size_t width, size_t height, int kind,
                                         CUstream stream);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, int kind, CUstream stream)
{
    CUDA_MEMCPY2D all = {
        .srcPitch = from_pitch, .dstPitch = to_pitch, .WidthInBytes = width, .Height = height};
    const void *host = NULL;
    kind = settle(kind, to, from);
    set_side(&all.srcMemoryType, &all.srcHost, &all.srcDevice, from,
             kind == DEVICE_TO_HOST || kind == DEVICE_TO_DEVICE);
    set_side(&all.dstMemoryType, &host, &all.dstDevice, to,
             kind == HOST_TO_DEVICE || kind == DEVICE_TO_DEVICE);
    all.dstHost = (void *)(uintptr_t)host;
    return RPI_WITH_CONTEXT(cuMemcpy2DAsync(&all, stream));
}

RPI_EXPORT cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from,
                                           int from_device, size_t bytes, CUstream stream);
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, CUstream stream)
{
    (void)to_device, (void)from_device;
    return RPI_WITH_CONTEXT(cuMemcpyDtoDAsync((uintptr_t)to, (uintptr_t)from, bytes, stream));
}

RPI_EXPORT cudaError_t cudaMemset(void *to, int value, size_t bytes);
cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    return RPI_WITH_CONTEXT(cuMemsetD8((uintptr_t)to, (unsigned char)value, bytes));
}

RPI_EXPORT cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, CUstream stream);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, CUstream stream)
{
    return RPI_WITH_CONTEXT(cuMemsetD8Async((uintptr_t)to, (unsigned char)value, bytes, stream));
}
