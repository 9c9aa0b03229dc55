/* SPDX-License-Identifier: MIT
 *
 * The host driver as libcuda.so.1: every function of symbols.def under its own name and with the
 * suffix _v2, as NVIDIA's headers make calls of both, and cuGetProcAddress. Images of NVIDIA's
 * formats are read on their way to the host driver, and launches are noted.
 */
#include "libcuda/libcuda.h"

#include "base/env.h"
#include "driver/host/host.h"
#include "libcuda/image.h"

#include <stdlib.h>

/* ---- The table, with some functions of our own in front ------------------------------------- */

static struct rp_driver table; /* filled once, before anything can be called */

static CUresult read_module(CUmodule *module, const void *code)
{
    const struct rp_host_image *image;
    CUresult result = rpi_image_read(code, &image);
    return result ? result : rpi_driver_host()->cuModuleLoadData(module, image);
}

static CUresult read_library(CUlibrary *library, const void *code, CUjit_option *jit_options,
                             void **jit_values, unsigned jit_count, CUlibraryOption *options,
                             void **option_values, unsigned count)
{
    const struct rp_host_image *image;
    CUresult result = rpi_image_read(code, &image);
    return result ? result
                  : rpi_driver_host()->cuLibraryLoadData(library, image, jit_options, jit_values,
                                                         jit_count, options, option_values, count);
}

static CUresult launch(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       CUstream stream, void **params, void **extra)
{
    rpi_usage_note(function);
    return rpi_driver_host()->cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y,
                                             block_z, shared_bytes, stream, params, extra);
}

static CUresult launch_with(const CUlaunchConfig *config, CUfunction function, void **params,
                            void **extra)
{
    rpi_usage_note(function);
    return rpi_driver_host()->cuLaunchKernelEx(config, function, params, extra);
}

struct gpu {
    const char *key; /* as REPRISE_HOST_GPU says it */
    uint64_t mib;
    unsigned multiprocessors, l2_mib, bus_bits, clock_khz, memory_clock_khz;
    const char *name;
};

/* The first is what passes for the device where nothing is chosen. From host/gpus.txt. */
static const struct gpu gpus[] = {
#include "gpus.def"
};

static const struct gpu *chosen_gpu(const char *key)
{
    for (size_t i = 0; key && i < sizeof gpus / sizeof *gpus; i++)
        if (strcmp(key, gpus[i].key) == 0)
            return &gpus[i];
    return &gpus[0];
}

/* With less memory than the GPU has, unless it is asked for by name: kernels that do nothing leave
 * sizes in memory that mean nothing. */
static void configure(void)
{
    struct rpi_host_options options = RPI_HOST_OPTIONS_INIT;
    const char *bytes = rpi_env(RPI_ENV_HOST_BYTES), *key = rpi_env(RPI_ENV_HOST_GPU);
    const struct gpu *gpu = chosen_gpu(key);
    options.total_bytes = key ? gpu->mib << 20 : (uint64_t)4 << 30;
    if (bytes)
        options.total_bytes = strtoull(bytes, NULL, 10);
    options.check_races = false; /* few kernels declare what they touch */
    options.name = gpu->name;
    options.multiprocessors = gpu->multiprocessors;
    options.l2_bytes = gpu->l2_mib << 20;
    options.memory_bus_bits = gpu->bus_bits;
    options.clock_khz = gpu->clock_khz;
    options.memory_clock_khz = gpu->memory_clock_khz;
    rpi_host_configure(&options);
}

__attribute__((constructor)) static void fill_table(void)
{
    const char *path = getenv("HOST_LIBCUDA_TRACE");
    FILE *sink = path ? fopen(path, "w") : NULL;
    configure();
    table = *rpi_driver_host();
    table.cuModuleLoadData = read_module;
    table.cuLibraryLoadData = read_library;
    table.cuLaunchKernel = launch;
    table.cuLaunchKernelEx = launch_with;
    if (sink) {
        static struct rp_driver traced;
        traced = table;
        table = *rpi_driver_trace(&traced, sink);
    }
}

/* ---- What is exported ----------------------------------------------------------------------- */

#define X(need, name, version, params, args)                                                       \
    CUresult name params                                                                           \
    {                                                                                              \
        return table.name args;                                                                    \
    }                                                                                              \
    extern __typeof(name) name##_v2 __attribute__((alias(#name), visibility("default")));
#include "driver/symbols.def"
#undef X

static CUresult refuse(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

#define X(name)                                                                                    \
    extern __typeof(refuse) name __attribute__((alias("refuse"), visibility("default")));
#include "libcuda/refused.def"
#undef X

/* ---- By name -------------------------------------------------------------------------------- */

typedef void (*any_function)(void);

#define NAMED(name)                                                                                \
    {                                                                                              \
#name, (any_function)(name)                                                                \
    }
static const struct {
    const char *name;
    any_function function;
} beyond[] = {
    NAMED(cuStreamGetPriority),
    NAMED(cuCtxGetStreamPriorityRange),
    NAMED(cuDeviceGetUuid),
    NAMED(cuDeviceGetUuid_v2),
    NAMED(cuDeviceCanAccessPeer),
    NAMED(cuMemGetAddressRange),
    NAMED(cuMemGetAddressRange_v2),
    NAMED(cuModuleLoadDataEx),
    NAMED(cuFuncSetCacheConfig),
    NAMED(cuLaunchCooperativeKernel),
    NAMED(cuOccupancyMaxActiveBlocksPerMultiprocessor),
    NAMED(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags),
    NAMED(cuGetProcAddress),
    NAMED(cuGetProcAddress_v2),
#define X(name) NAMED(name),
#include "libcuda/refused.def"
#undef X
};

static any_function find(const char *name)
{
#define X(need, symbol, version, params, args)                                                     \
    if (strcmp(name, #symbol) == 0)                                                                \
        return (any_function)(symbol);
#include "driver/symbols.def"
#undef X
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++)
        if (strcmp(name, beyond[i].name) == 0)
            return beyond[i].function;
    return NULL;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    (void)version, (void)flags;
    any_function found = find(name);
    memcpy(function, &found, sizeof found);
    if (status)
        *status = found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult status;
    CUresult result = cuGetProcAddress_v2(name, function, version, flags, &status);
    return result || status == CU_GET_PROC_ADDRESS_SUCCESS ? result : CUDA_ERROR_NOT_FOUND;
}
