/* SPDX-License-Identifier: MIT
 *
 * rp_graph_site: the sites of a template, in the words of the driver.
 */
#include "base/refuse.h"
#include "base/sized.h"
#include "graph/exec/exec_cache.h"
#include "graph/objects/objects.h"
#include "reprise_tools.h"

/* Which parameter a byte of a kernel's image lies in; *offset becomes that in the parameter. -1,
 * and nothing changed, where the driver does not tell. */
static int find_parameter(const struct rp_driver *driver, CUfunction function, uint32_t *offset)
{
    if (!(driver->capabilities & RPI_CAP_PARAM_INFO) || !function)
        return -1;
    size_t from = 0, bytes = 0;
    for (int i = 0; driver->cuFuncGetParamInfo(function, (size_t)i, &from, &bytes) == CUDA_SUCCESS;
         i++) {
        if (*offset < from || *offset >= from + bytes)
            continue;
        *offset -= (uint32_t)from;
        return i;
    }
    return -1;
}

static const char *function_name(const struct rp_driver *driver, CUfunction function)
{
    const char *name = NULL;
    if (!(driver->capabilities & RPI_CAP_FUNC_NAME) || !function ||
        driver->cuFuncGetName(&name, function) != CUDA_SUCCESS)
        return "";
    return name ? name : "";
}

static const char *kind_name(CUgraphNodeType type)
{
    return type == CU_GRAPH_NODE_TYPE_KERNEL   ? "kernel"
           : type == CU_GRAPH_NODE_TYPE_MEMCPY ? "memcpy"
                                               : "memset"; /* no other holds sites */
}

rp_status rp_graph_site(const struct rp_graph *graph, size_t index, struct rp_graph_site *out_site,
                        struct rp_error *err)
{
    if (rpi_is_forked() || !graph || !out_site)
        return rpi_refuse(err, "rp_graph_site", !graph ? "graph" : "out_site");
    if (!graph || !out_site || index >= graph->sites.count)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_graph_site", "%s",
                         !graph      ? "graph is NULL"
                         : !out_site ? "out_site is NULL"
                                     : "there is no site of this index");
    struct rp_device *device = graph->pool->device;
    const struct rpi_site *site = &graph->sites.data[index];
    const struct rpi_node_kind *kind = &graph->client->source->topology.kinds.data[site->node];
    bool is_argument = site->block < graph->arg_count;
    size_t number = is_argument ? site->block : site->block - graph->arg_count;
    rp_status status = rp_device_push(device, err);
    if (status != RP_OK)
        return status;
    struct rp_graph_site made = {
        .node = site->node,
        .kind = kind_name(kind->type),
        .function = function_name(device->driver, kind->function),
        .parameter = -1,
        .offset = site->offset,
        .is_argument = is_argument,
        .index = number,
        .delta = site->delta,
        .bytes = is_argument ? graph->contract.args[number].bytes : graph->blocks[number].bytes,
    };
    made.parameter = find_parameter(device->driver, kind->function, &made.offset);
    rp_device_pop(device);
    return rpi_hand_out(out_site, &made, sizeof made, __func__, err);
}
