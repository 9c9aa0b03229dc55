/* SPDX-License-Identifier: MIT */
#include "base/refuse.h"
#include "graph/objects/device_context.h"
#include "graph/objects/objects.h"
#include "reprise_framework.h"

rp_status rp_device_stream(struct rp_device *device, struct CUstream_st **out_stream,
                           struct rp_error *err)
{
    if (rpi_is_forked() || !device || !out_stream)
        return rpi_refuse(err, "rp_device_stream", !device ? "device" : "out_stream");
    bool pushed = false;
    rp_status status = rpi_device_enter(device, &pushed, err);
    if (status != RP_OK)
        return status;
    status = rpi_streams_beside(&device->streams, device->driver, out_stream, err);
    if (pushed)
        rp_device_pop(device);
    return status;
}
