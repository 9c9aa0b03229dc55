/* SPDX-License-Identifier: MIT
 *
 * Copies that a caller enqueues by the library's kernel.
 */
#include "base/refuse.h"
#include "graph/objects/device_context.h"
#include "graph/objects/objects.h"
#include "reprise_framework.h"

/* Takes the next copies that have bytes, as many as one launch has room for; how many were passed. */
static size_t take(const struct rp_copy *copies, size_t count, struct rpi_copy *out_some,
                   size_t *out_count)
{
    size_t i = 0;
    for (*out_count = 0; i < count && *out_count < RPI_COPY_MOST; i++)
        if (copies[i].bytes)
            out_some[(*out_count)++] =
                (struct rpi_copy){copies[i].to, copies[i].from, copies[i].bytes};
    return i;
}

static CUresult enqueue(struct rpi_copier *copier, const struct rp_copy *copies, size_t count,
                        CUstream stream)
{
    struct rpi_copy some[RPI_COPY_MOST];
    CUresult result = CUDA_SUCCESS;
    for (size_t done = 0, taken; result == CUDA_SUCCESS && done < count;) {
        done += take(copies + done, count - done, some, &taken);
        if (taken)
            result = rpi_copier_launch(copier, some, taken, stream);
    }
    return result;
}

rp_status rp_device_copy(struct rp_device *device, const struct rp_copy *copies, size_t count,
                         struct CUstream_st *stream, struct rp_error *err)
{
    if (rpi_is_forked() || !device || (count && !copies))
        return rpi_refuse(err, "rp_device_copy", !device ? "device" : "copies");
    bool pushed = false;
    rp_status status = rpi_device_enter(device, &pushed, err);
    if (status != RP_OK)
        return status;
    CUresult result = enqueue(&device->copier, copies, count, stream);
    if (pushed)
        rp_device_pop(device);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuLaunchKernel", "copying %zu pieces of memory",
                                count);
    return RP_OK;
}
