/* SPDX-License-Identifier: MIT
 *
 * Errors, versions and the calling thread's context.
 */
#include "cudart/runtime.h"

static _Thread_local cudaError_t last_error;

cudaError_t rpi_runtime_result(CUresult result)
{
    if (result)
        last_error = (cudaError_t)result;
    return (cudaError_t)result;
}

CUresult rpi_runtime_ready(void)
{
    CUcontext context = NULL;
    CUresult result = cuCtxGetCurrent(&context);
    if (result == CUDA_ERROR_NOT_INITIALIZED) {
        result = cuInit(0);
        if (!result)
            result = cuCtxGetCurrent(&context);
    }
    if (result || context)
        return result;
    result = cuDevicePrimaryCtxRetain(&context, 0);
    return result ? result : cuCtxSetCurrent(context);
}

RPI_EXPORT cudaError_t cudaGetLastError(void);
cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

RPI_EXPORT cudaError_t cudaPeekAtLastError(void);
cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

/* The runtime's names of the driver's codes. */
static const struct {
    cudaError_t error;
    const char *name;
} names[] = {
    {0, "cudaSuccess"},
    {1, "cudaErrorInvalidValue"},
    {2, "cudaErrorMemoryAllocation"},
    {3, "cudaErrorInitializationError"},
    {9, "cudaErrorInvalidConfiguration"},
    {13, "cudaErrorInvalidSymbol"},
    {21, "cudaErrorInvalidMemcpyDirection"},
    {98, "cudaErrorInvalidDeviceFunction"},
    {100, "cudaErrorNoDevice"},
    {101, "cudaErrorInvalidDevice"},
    {200, "cudaErrorInvalidKernelImage"},
    {201, "cudaErrorDeviceUninitialized"},
    {209, "cudaErrorNoKernelImageForDevice"},
    {400, "cudaErrorInvalidResourceHandle"},
    {401, "cudaErrorIllegalState"},
    {500, "cudaErrorSymbolNotFound"},
    {600, "cudaErrorNotReady"},
    {700, "cudaErrorIllegalAddress"},
    {701, "cudaErrorLaunchOutOfResources"},
    {709, "cudaErrorContextIsDestroyed"},
    {719, "cudaErrorLaunchFailure"},
    {720, "cudaErrorCooperativeLaunchTooLarge"},
    {800, "cudaErrorNotPermitted"},
    {801, "cudaErrorNotSupported"},
    {900, "cudaErrorStreamCaptureUnsupported"},
    {901, "cudaErrorStreamCaptureInvalidated"},
    {902, "cudaErrorStreamCaptureMerge"},
    {903, "cudaErrorStreamCaptureUnmatched"},
    {904, "cudaErrorStreamCaptureUnjoined"},
    {905, "cudaErrorStreamCaptureIsolation"},
    {906, "cudaErrorStreamCaptureImplicit"},
    {907, "cudaErrorCapturedEvent"},
    {908, "cudaErrorStreamCaptureWrongThread"},
    {910, "cudaErrorGraphExecUpdateFailure"},
    {999, "cudaErrorUnknown"},
};

RPI_EXPORT const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].error == error)
            return names[i].name;
    return "unrecognized error code";
}

RPI_EXPORT const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error)
{
    const char *text = NULL;
    if (error == cudaErrorInvalidConfiguration)
        return "the grid or block of a launch is not valid";
    if (error == cudaErrorInvalidDeviceFunction)
        return "the function is no kernel for this device";
    return cuGetErrorString((CUresult)error, &text) || !text ? "unrecognized error code" : text;
}

RPI_EXPORT cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaDriverGetVersion(int *version)
{
    return rpi_runtime_result(cuDriverGetVersion(version));
}

RPI_EXPORT cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version)
{
    if (!version)
        return rpi_runtime_result(CUDA_ERROR_INVALID_VALUE);
    *version = RPI_CUDA < 13 ? 12080 : 13000;
    return cudaSuccess;
}

RPI_EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function,
                                                        unsigned version, unsigned long long flags,
                                                        CUdriverProcAddressQueryResult *status);
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             CUdriverProcAddressQueryResult *status)
{
    return rpi_runtime_result(cuGetProcAddress_v2(name, function, (int)version, flags, status));
}

RPI_EXPORT cudaError_t cudaGetDriverEntryPoint(const char *name, void **function,
                                               unsigned long long flags,
                                               CUdriverProcAddressQueryResult *status);
cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                    CUdriverProcAddressQueryResult *status)
{
    return cudaGetDriverEntryPointByVersion(name, function, 1000 * RPI_CUDA, flags, status);
}
