/* SPDX-License-Identifier: MIT
 *
 * Driver result codes: names and meanings from results.def, their mapping to rp_status, and errors
 * made from them. Needs no driver: the texts are Reprise's own, so that they exist where
 * libcuda.so.1 does not. A code is looked up by a switch, which the compiler makes a table.
 */
#include "driver/driver.h"

#include "explain/explain.h"

#include <stdarg.h>
#include <stdio.h>

const char *rpi_result_name(CUresult result)
{
    switch ((int)result) {
#define X(name, value, meaning)                                                                    \
    case value:                                                                                    \
        return #name;
#include "driver/results.def"
#undef X
    }
    return "CUDA_ERROR_?";
}

const char *rpi_result_meaning(CUresult result)
{
    switch ((int)result) {
#define X(name, value, meaning)                                                                    \
    case value:                                                                                    \
        return meaning;
#include "driver/results.def"
#undef X
    }
    return "a code that this version of Reprise does not know";
}

rp_status rpi_result_status(CUresult result)
{
    switch ((int)result) {
    case CUDA_SUCCESS:
        return RP_OK;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return RP_ERROR_OUT_OF_DEVICE_MEMORY;
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
        return RP_ERROR_NO_DRIVER;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
    case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_CAPTURED_EVENT:
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
        return RP_ERROR_CAPTURE;
    default:
        return RP_ERROR_DRIVER;
    }
}

rp_status rpi_error_driver(struct rp_error *err, CUresult result, const char *function,
                           const char *operation, ...)
{
    rp_status status = rpi_result_status(result);
    if (!err)
        return status;
    char step[256];
    va_list args;
    va_start(args, operation);
    vsnprintf(step, sizeof step, operation, args);
    va_end(args);
    /* What to do about an argument that is not valid depends on the call. */
    const struct rp_explanation *e =
        result == CUDA_ERROR_INVALID_VALUE ? NULL : rpi_explanation_of_code((int)result);
    rpi_error(err, status, function, "%s: %s returned %s (%d): %s%s%s%s%s", step, function,
              rpi_result_name(result), (int)result, rpi_result_meaning(result),
              e ? ". Often: " : "", e ? e->causes[0] : "", e ? ". To do: " : "",
              e ? e->mends[0] : "");
    err->driver_code = (int)result;
    snprintf(err->driver_name, sizeof err->driver_name, "%s", rpi_result_name(result));
    return status;
}
