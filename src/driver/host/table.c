/* SPDX-License-Identifier: MIT
 *
 * The table of the host driver. Every function is entered here: it takes the lock and checks what
 * NVIDIA's driver checks before it looks at arguments.
 */
#include "driver/host/state.h"

enum function {
#define X(need, name, version, params, args) FUNCTION_##name,
#include "driver/symbols.def"
#undef X
    FUNCTION_COUNT
};

enum {
    ALWAYS = 1,  /* works before cuInit */
    CONTEXT = 2, /* needs a current context */
    UNSAFE = 4   /* not beside a capture, by the thread's mode */
};

static const unsigned char rules[FUNCTION_COUNT] = {
    [FUNCTION_cuInit] = ALWAYS,
    [FUNCTION_cuDriverGetVersion] = ALWAYS,
    [FUNCTION_cuGetErrorName] = ALWAYS,
    [FUNCTION_cuGetErrorString] = ALWAYS,
    [FUNCTION_cuCtxGetDevice] = CONTEXT,
    [FUNCTION_cuCtxSynchronize] = CONTEXT,
    [FUNCTION_cuMemGetInfo] = CONTEXT,
    [FUNCTION_cuMemAlloc] = CONTEXT | UNSAFE,
    [FUNCTION_cuMemFree] = CONTEXT | UNSAFE,
    [FUNCTION_cuMemAllocHost] = CONTEXT | UNSAFE,
    [FUNCTION_cuMemFreeHost] = CONTEXT | UNSAFE,
    [FUNCTION_cuMemcpy] = CONTEXT,
    [FUNCTION_cuMemcpyHtoD] = CONTEXT,
    [FUNCTION_cuMemcpyDtoH] = CONTEXT,
    [FUNCTION_cuMemcpyDtoD] = CONTEXT,
    [FUNCTION_cuMemcpyAsync] = CONTEXT,
    [FUNCTION_cuMemcpyHtoDAsync] = CONTEXT,
    [FUNCTION_cuMemcpyDtoHAsync] = CONTEXT,
    [FUNCTION_cuMemcpyDtoDAsync] = CONTEXT,
    [FUNCTION_cuMemcpy2DAsync] = CONTEXT,
    [FUNCTION_cuMemcpy3DAsync] = CONTEXT,
    [FUNCTION_cuMemsetD8] = CONTEXT,
    [FUNCTION_cuMemsetD32] = CONTEXT,
    [FUNCTION_cuMemsetD8Async] = CONTEXT,
    [FUNCTION_cuMemsetD16Async] = CONTEXT,
    [FUNCTION_cuMemsetD32Async] = CONTEXT,
    [FUNCTION_cuMemsetD2D8Async] = CONTEXT,
    [FUNCTION_cuStreamCreate] = CONTEXT,
    [FUNCTION_cuStreamCreateWithPriority] = CONTEXT,
    [FUNCTION_cuStreamDestroy] = CONTEXT,
    [FUNCTION_cuStreamSynchronize] = CONTEXT,
    [FUNCTION_cuStreamQuery] = CONTEXT,
    [FUNCTION_cuStreamWaitEvent] = CONTEXT,
    [FUNCTION_cuStreamGetCtx] = CONTEXT,
    [FUNCTION_cuStreamGetFlags] = CONTEXT,
    [FUNCTION_cuLaunchHostFunc] = CONTEXT,
    [FUNCTION_cuEventCreate] = CONTEXT,
    [FUNCTION_cuEventRecord] = CONTEXT,
    [FUNCTION_cuEventRecordWithFlags] = CONTEXT,
    [FUNCTION_cuEventQuery] = CONTEXT,
    [FUNCTION_cuEventSynchronize] = CONTEXT,
    [FUNCTION_cuEventElapsedTime] = CONTEXT,
    [FUNCTION_cuEventDestroy] = CONTEXT,
    [FUNCTION_cuStreamBeginCapture] = CONTEXT,
    [FUNCTION_cuStreamBeginCaptureToGraph] = CONTEXT,
    [FUNCTION_cuStreamEndCapture] = CONTEXT,
    [FUNCTION_cuStreamIsCapturing] = CONTEXT,
    [FUNCTION_cuStreamGetCaptureInfo] = CONTEXT,
    [FUNCTION_cuStreamUpdateCaptureDependencies] = CONTEXT,
    [FUNCTION_cuModuleLoadData] = CONTEXT | UNSAFE,
    [FUNCTION_cuModuleUnload] = CONTEXT | UNSAFE,
    [FUNCTION_cuModuleGetFunction] = CONTEXT,
    [FUNCTION_cuModuleGetGlobal] = CONTEXT,
    [FUNCTION_cuKernelGetFunction] = CONTEXT,
    [FUNCTION_cuFuncGetAttribute] = CONTEXT,
    [FUNCTION_cuFuncSetAttribute] = CONTEXT,
    [FUNCTION_cuLaunchKernel] = CONTEXT,
    [FUNCTION_cuLaunchKernelEx] = CONTEXT,
    [FUNCTION_cuGraphInstantiateWithFlags] = CONTEXT,
    [FUNCTION_cuGraphUpload] = CONTEXT,
    [FUNCTION_cuGraphLaunch] = CONTEXT,
    [FUNCTION_cuGraphExecUpdate] = CONTEXT,
};

/* On CUDA_SUCCESS the lock is held. */
static CUresult enter(enum function function)
{
    unsigned rule = rules[function];
    CUresult result = CUDA_SUCCESS;
    rpi_host_lock();
    if (rule & ALWAYS)
        return CUDA_SUCCESS;
    CUcontext current = rpi_host_current();
    if (!rpi_host.initialised)
        result = CUDA_ERROR_NOT_INITIALIZED;
    else if (rpi_host_thread()->in_callback)
        result = CUDA_ERROR_NOT_PERMITTED;
    else if ((rule & CONTEXT) && !current)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if ((rule & CONTEXT) && !current->retained)
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    else if (rule & UNSAFE)
        result = rpi_host_capture_unsafe();
    if (result)
        rpi_host_unlock();
    return result;
}

#define X(need, name, version, params, args)                                                       \
    static CUresult enter_##name params                                                            \
    {                                                                                              \
        CUresult result = enter(FUNCTION_##name);                                                  \
        if (result)                                                                                \
            return result;                                                                         \
        result = rpi_host_##name args;                                                             \
        rpi_host_unlock();                                                                         \
        return result;                                                                             \
    }
#include "driver/symbols.def"
#undef X

static const struct rp_driver table = {
    .provider = "host",
    .version = 13000,
    .capabilities = 0
#define X(name, bit, lost) | RPI_CAP_##name
    RPI_CAPABILITIES(X)
#undef X
        ,
#define X(need, name, version, params, args) .name = enter_##name,
#include "driver/symbols.def"
#undef X
};

const struct rp_driver *rpi_driver_host(void)
{
    return &table;
}
