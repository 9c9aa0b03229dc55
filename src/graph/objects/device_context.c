/* SPDX-License-Identifier: MIT */
#include "graph/objects/device_context.h"

#include "base/refuse.h"

rp_status rp_device_push(struct rp_device *device, struct rp_error *err)
{
    if (rpi_is_forked() || !device)
        return rpi_refuse(err, "rp_device_push", "device");
    CUresult result = device->driver->cuCtxPushCurrent(device->context);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuCtxPushCurrent",
                                "making the device's context current");
    return RP_OK;
}

rp_status rpi_device_check_stream(const struct rp_device *device, CUstream stream,
                                  const char *function, struct rp_error *err)
{
    CUcontext context = NULL;
    CUdevice other = device->handle;
    CUresult result = device->driver->cuStreamGetCtx(stream, &context);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuStreamGetCtx", "looking at the stream");
    if (context == device->context)
        return RP_OK;
    if (device->driver->cuCtxPushCurrent(context) == CUDA_SUCCESS) {
        device->driver->cuCtxGetDevice(&other);
        device->driver->cuCtxPopCurrent(NULL);
    }
    if (other == device->handle)
        return RP_OK; /* another context of the same device: the driver judges that */
    return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                     "the stream is of device %d, and this is of device %d: give a stream that was "
                     "made there",
                     (int)other, (int)device->handle);
}

rp_status rpi_device_enter(struct rp_device *device, bool *out_pushed, struct rp_error *err)
{
    CUcontext current = NULL;
    if (device->driver->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == device->context)
        return RP_OK;
    rp_status status = rp_device_push(device, err);
    *out_pushed = status == RP_OK;
    return status;
}

bool rpi_device_push_to_release(struct rp_device *device)
{
    for (int attempt = 0; attempt < 2; attempt++)
        if (rp_device_push(device, NULL) == RP_OK)
            return true;
    return false;
}

void rp_device_pop(struct rp_device *device)
{
    if (rpi_is_forked() || !device)
        return;
    CUcontext popped;
    device->driver->cuCtxPopCurrent(&popped);
}
