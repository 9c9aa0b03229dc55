/* SPDX-License-Identifier: MIT
 *
 * Devices and their properties.
 */
#include "cudart/properties.h"
#include "cudart/runtime.h"

#include <stdio.h>

RPI_EXPORT cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaGetDeviceCount(int *count)
{
    CUresult result = cuInit(0);
    return rpi_runtime_result(result ? result : cuDeviceGetCount(count));
}

RPI_EXPORT cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDevice(int *device)
{
    CUcontext context = NULL;
    if (!device)
        return rpi_runtime_result(CUDA_ERROR_INVALID_VALUE);
    *device = 0;
    if (cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context)
        return cudaSuccess;
    return rpi_runtime_result(cuCtxGetDevice(device));
}

RPI_EXPORT cudaError_t cudaSetDevice(int device);
cudaError_t cudaSetDevice(int device)
{
    CUcontext context;
    CUdevice current;
    CUresult result = cuInit(0);
    if (!result && cuCtxGetCurrent(&context) == CUDA_SUCCESS && context &&
        cuCtxGetDevice(&current) == CUDA_SUCCESS && current == device)
        return cudaSuccess;
    unsigned flags;
    int active;
    if (!result)
        result = cuDevicePrimaryCtxGetState(device, &flags, &active);
    if (!result)
        result = cuDevicePrimaryCtxRetain(&context, device);
    if (!result)
        result = cuCtxSetCurrent(context);
    if (!result && active) /* one retain for a device is enough */
        result = cuDevicePrimaryCtxRelease(device);
    return rpi_runtime_result(result);
}

RPI_EXPORT cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceSynchronize(void)
{
    return RPI_WITH_CONTEXT(cuCtxSynchronize());
}

RPI_EXPORT cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device);
cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    CUresult result = cuInit(0);
    return rpi_runtime_result(
        result ? result : cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, device));
}

RPI_EXPORT cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device);
cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device)
{
    if (!text || length < 13)
        return rpi_runtime_result(CUDA_ERROR_INVALID_VALUE);
    snprintf(text, (size_t)length, "0000:%02X:00.0", (unsigned)(device + 1) & 0xff);
    return cudaSuccess;
}

RPI_EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    return RPI_WITH_CONTEXT(cuCtxGetStreamPriorityRange(least, greatest));
}

RPI_EXPORT cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    return rpi_runtime_result(cuDeviceCanAccessPeer(can, device, peer));
}

RPI_EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    (void)peer, (void)flags;
    return rpi_runtime_result(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
}

static int attribute(CUdevice device, int which)
{
    int value = 0;
    return cuDeviceGetAttribute(&value, (CUdevice_attribute)which, device) ? 0 : value;
}

static void fill_limits(struct rpi_device_properties *p, CUdevice device)
{
    p->sharedMemPerBlock = (size_t)attribute(device, 8);
    p->regsPerBlock = attribute(device, 12);
    p->warpSize = attribute(device, 10);
    p->memPitch = (size_t)attribute(device, 11);
    p->maxThreadsPerBlock = attribute(device, 1);
    for (int i = 0; i < 3; i++) {
        p->maxThreadsDim[i] = attribute(device, 2 + i);
        p->maxGridSize[i] = attribute(device, 5 + i);
    }
    p->totalConstMem = (size_t)attribute(device, 9);
    p->memoryBusWidth = attribute(device, 37);
    p->l2CacheSize = attribute(device, 38);
    p->maxThreadsPerMultiProcessor = attribute(device, 39);
    p->sharedMemPerMultiprocessor = (size_t)attribute(device, 81);
    p->regsPerMultiprocessor = attribute(device, 82);
    p->sharedMemPerBlockOptin = (size_t)attribute(device, 97);
    p->maxBlocksPerMultiProcessor = attribute(device, 106);
    p->reservedSharedMemPerBlock = (size_t)attribute(device, 111);
}

RPI_EXPORT cudaError_t cudaGetDeviceProperties(struct rpi_device_properties *properties,
                                               int device);
cudaError_t cudaGetDeviceProperties(struct rpi_device_properties *properties, int device)
{
    struct rpi_device_properties p;
    memset(&p, 0, sizeof p);
    CUresult result = cuInit(0);
    if (!result)
        result = cuDeviceGetName(p.name, sizeof p.name, device);
    if (!result)
        result = cuDeviceTotalMem(&p.totalGlobalMem, device);
    if (!result)
        result = cuDeviceGetUuid(p.uuid, device);
    if (result)
        return rpi_runtime_result(result);
    fill_limits(&p, device);
    p.major = attribute(device, 75);
    p.minor = attribute(device, 76);
    p.multiProcessorCount = attribute(device, 16);
    p.textureAlignment = (size_t)attribute(device, 14);
    p.canMapHostMemory = attribute(device, 19);
    p.concurrentKernels = attribute(device, 31);
    p.asyncEngineCount = attribute(device, 40);
    p.unifiedAddressing = attribute(device, 41);
    p.streamPrioritiesSupported = attribute(device, 78);
    p.cooperativeLaunch = attribute(device, 95);
    p.clusterLaunch = attribute(device, 120);
    p.pciBusID = device + 1;
    *properties = p;
    return cudaSuccess;
}
