/* SPDX-License-Identifier: MIT
 *
 * Callables for `reprise check`: a clean one, and one that waits for its stream and kept a value.
 * They copy argument 0 to argument 1 through memory of the run.
 */
#include "reprise.h"

typedef unsigned (*copy_fn)(uint64_t to, uint64_t from, size_t bytes, struct CUstream_st *stream);
typedef unsigned (*wait_fn)(struct CUstream_st *stream);

rp_status copies(struct rp_call *call, void *user, struct rp_error *err);
rp_status waits(struct rp_call *call, void *user, struct rp_error *err);

enum { BYTES = 4096 };

RP_API rp_status copies(struct rp_call *call, void *user, struct rp_error *err)
{
    struct rp_device *device = user;
    copy_fn copy = (copy_fn)rp_device_function(device, "cuMemcpyDtoDAsync");
    struct CUstream_st *stream = rp_call_stream(call);
    uint64_t block;
    rp_status status = rp_call_alloc(call, BYTES, stream, &block, err);
    if (status != RP_OK)
        return status;
    if (copy(block, rp_call_arg(call, 0), BYTES, stream) ||
        copy(rp_call_arg(call, 1), block, BYTES, stream))
        return RP_ERROR_DRIVER;
    return rp_call_free(call, block, err);
}

RP_API rp_status waits(struct rp_call *call, void *user, struct rp_error *err)
{
    struct rp_device *device = user;
    wait_fn wait = (wait_fn)rp_device_function(device, "cuStreamSynchronize");
    rp_status status = copies(call, user, err);
    if (status == RP_OK && wait(rp_call_stream(call)))
        return RP_ERROR_DRIVER;
    return status;
}
