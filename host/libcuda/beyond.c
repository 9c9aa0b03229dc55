/* SPDX-License-Identifier: MIT
 *
 * Functions of the driver that the library asks of no driver, on what the host driver knows.
 */
#include "libcuda/libcuda.h"

#include "driver/host/state.h"

CUresult cuStreamGetPriority(CUstream handle, int *priority)
{
    if (!priority)
        return CUDA_ERROR_INVALID_VALUE;
    rpi_host_lock();
    CUstream stream = rpi_host_current() ? rpi_host_stream_of(handle) : NULL;
    if (stream)
        *priority = stream->priority;
    rpi_host_unlock();
    return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(unsigned char uuid[16], CUdevice device)
{
    CUdevice found;
    CUresult result = cuDeviceGet(&found, device);
    if (result)
        return result;
    memcpy(uuid, "Reprise host \0\0", 16);
    uuid[15] = (unsigned char)(found + 1);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(unsigned char uuid[16], CUdevice device)
{
    return cuDeviceGetUuid(uuid, device);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    CUdevice found;
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    if (cuDeviceGet(&found, device) || cuDeviceGet(&found, peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *can = 0;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    CUdeviceptr start;
    size_t size;
    CUresult result = cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address);
    if (!result)
        result = cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address);
    if (result)
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = start;
    if (bytes)
        *bytes = size;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    return cuMemGetAddressRange(base, bytes, address);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                            CUjit_option *options, void **values)
{
    (void)count, (void)options, (void)values; /* of code that is compiled: there is none */
    return cuModuleLoadData(module, image);
}

CUresult cuFuncSetCacheConfig(CUfunction function, int config)
{
    int value;
    (void)config; /* a preference */
    return cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared_bytes, CUstream stream,
                                   void **params)
{
    CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    CUlaunchConfig config = {grid_x,  grid_y,       grid_z, block_x,      block_y,
                             block_z, shared_bytes, stream, &cooperative, 1};
    return cuLaunchKernelEx(&config, function, params, NULL);
}

/* By threads and shared memory, as registers are not known. */
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                     int block_threads, size_t shared_bytes)
{
    enum { THREADS = 2048, BLOCKS = 32, SHARED = 228 << 10, KEPT = 1 << 10 };
    (void)function;
    if (!blocks || block_threads <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    int by_threads = THREADS / block_threads;
    int by_memory = (int)(SHARED / (shared_bytes + KEPT));
    *blocks = by_threads < by_memory ? by_threads : by_memory;
    if (*blocks > BLOCKS)
        *blocks = BLOCKS;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function,
                                                              int block_threads,
                                                              size_t shared_bytes, unsigned flags)
{
    (void)flags;
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, block_threads,
                                                       shared_bytes);
}
