/* SPDX-License-Identifier: MIT
 *
 * The CUDA runtime as far as PyTorch asks for it (symbols/cudart.txt), over the driver. Names,
 * values and layouts are NVIDIA's, of CUDA 13, or of CUDA 12 where RPI_CUDA is 12: it is built as
 * both. Codes of the runtime that come from the driver have the driver's numbers.
 *
 * A thread that has no context gets the primary one of device 0 with its first call that needs one.
 */
#ifndef HOST_CUDART_RUNTIME_H
#define HOST_CUDART_RUNTIME_H

#include "libcuda/libcuda.h"

#include <stdbool.h>

#if RPI_CUDA < 13
#define cudaGetDeviceProperties cudaGetDeviceProperties_v2
#endif

typedef int cudaError_t;
enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidSymbol = 13,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorInvalidDevice = 101,
    cudaErrorNotSupported = 801
};

struct rpi_dim3 {
    unsigned x, y, z;
};

/* Makes a context current where the thread has none. */
CUresult rpi_runtime_ready(void);
/* Keeps an error for cudaGetLastError; returns it. */
cudaError_t rpi_runtime_result(CUresult result);

/* Calls the driver with a context. */
#define RPI_WITH_CONTEXT(call)                                                                     \
    (rpi_runtime_result(rpi_runtime_ready() ? rpi_runtime_ready() : (call)))

/* launch.c: the driver's kernel of a function that a program registered. */
cudaError_t rpi_runtime_kernel(const void *function, CUkernel *out_kernel);
/* The same, in the current context. */
cudaError_t rpi_runtime_function(const void *function, CUfunction *out_function);

#endif
