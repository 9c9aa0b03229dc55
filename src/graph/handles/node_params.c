/* SPDX-License-Identifier: MIT */
#include "base/refuse.h"
#include "graph/objects/device_context.h"
#include "graph/objects/objects.h"
#include "graph/template/params.h"
#include "reprise_framework.h"

#include <string.h>

static rp_status copy_out(const struct rpi_params *params, void *out_params, size_t room,
                          size_t *out_bytes, struct rp_error *err)
{
    size_t bytes = params->image.count;
    if (params->type != CU_GRAPH_NODE_TYPE_KERNEL)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_node_params",
                         "the node is no kernel node");
    if (bytes)
        memcpy(out_params, params->image.data, bytes < room ? bytes : room);
    *out_bytes = bytes;
    return RP_OK;
}

rp_status rp_node_params(struct rp_device *device, struct CUgraphNode_st *node, void *out_params,
                         size_t room, size_t *out_bytes, struct rp_error *err)
{
    if (rpi_is_forked() || !device || !node || (room && !out_params) || !out_bytes)
        return rpi_refuse(err, "rp_node_params",
                          !device      ? "device"
                          : !node      ? "node"
                          : !out_bytes ? "out_bytes"
                                       : "out_params");
    struct rpi_params params = {0};
    bool pushed = false;
    rp_status status = rpi_device_enter(device, &pushed, err);
    if (status != RP_OK)
        return status;
    status = rpi_params_read(&params, device->driver, node, err);
    if (status == RP_OK)
        status = copy_out(&params, out_params, room, out_bytes, err);
    rpi_params_finish(&params);
    if (pushed)
        rp_device_pop(device);
    return status;
}
