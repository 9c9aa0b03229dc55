/* SPDX-License-Identifier: MIT
 *
 * libcuda.so.1 on the host driver: what its files share, and what libcudart.so.13 calls.
 */
#ifndef HOST_LIBCUDA_LIBCUDA_H
#define HOST_LIBCUDA_LIBCUDA_H

#include "driver/driver.h"

#include <stdbool.h>

#define RPI_EXPORT __attribute__((visibility("default")))

/* The driver's functions, as libcuda.so.1 exports them. */
#define X(need, name, version, params, args) RPI_EXPORT CUresult name params;
#include "driver/symbols.def"
#undef X

/* Those that the library asks of no driver, but PyTorch does. */
RPI_EXPORT CUresult cuStreamGetPriority(CUstream stream, int *priority);
RPI_EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest);
RPI_EXPORT CUresult cuDeviceGetUuid(unsigned char uuid[16], CUdevice device);
RPI_EXPORT CUresult cuDeviceGetUuid_v2(unsigned char uuid[16], CUdevice device);
RPI_EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer);
RPI_EXPORT CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *bytes, CUdeviceptr address);
RPI_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address);
RPI_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                                       CUjit_option *options, void **values);
RPI_EXPORT CUresult cuFuncSetCacheConfig(CUfunction function, int config);
RPI_EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                              unsigned grid_z, unsigned block_x, unsigned block_y,
                                              unsigned block_z, unsigned shared_bytes,
                                              CUstream stream, void **params);
RPI_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                                int block_threads,
                                                                size_t shared_bytes);
RPI_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, CUfunction function, int block_threads, size_t shared_bytes, unsigned flags);
RPI_EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version,
                                     cuuint64_t flags);
RPI_EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version,
                                        cuuint64_t flags, CUdriverProcAddressQueryResult *status);

/* usage.c: notes that a function, or a library's kernel by the same parameter, is launched or
 * captured. At the end of the process those that do nothing are told on standard error. */
void rpi_usage_note(CUfunction function);

#endif
