/* SPDX-License-Identifier: MIT
 *
 * What the host driver does not have: memory pools, sharing between processes, registered host
 * memory, drawings of graphs. These answer cudaErrorNotSupported. The profiler's two calls are
 * obeyed by doing nothing.
 */
#include "cudart/runtime.h"

#define X(name)                                                                                    \
    RPI_EXPORT cudaError_t name(void);                                                             \
    cudaError_t name(void)                                                                         \
    {                                                                                              \
        return rpi_runtime_result(CUDA_ERROR_NOT_SUPPORTED);                                       \
    }
X(cudaDeviceGetDefaultMemPool)
X(cudaFreeAsync)
X(cudaGraphDebugDotPrint)
X(cudaHostRegister)
X(cudaHostUnregister)
X(cudaIpcCloseMemHandle)
X(cudaIpcGetEventHandle)
X(cudaIpcGetMemHandle)
X(cudaIpcOpenEventHandle)
X(cudaIpcOpenMemHandle)
X(cudaMallocAsync)
X(cudaMemPoolGetAttribute)
X(cudaMemPoolSetAccess)
X(cudaMemPoolSetAttribute)
X(cudaMemPoolTrimTo)
#undef X

RPI_EXPORT cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStart(void)
{
    return cudaSuccess;
}

RPI_EXPORT cudaError_t cudaProfilerStop(void);
cudaError_t cudaProfilerStop(void)
{
    return cudaSuccess;
}
