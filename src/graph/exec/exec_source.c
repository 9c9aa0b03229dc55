/* SPDX-License-Identifier: MIT */
#include "graph/exec/exec_source.h"

#include "base/hostmem.h"

#include <assert.h>

rp_status rpi_exec_source_create(struct rpi_exec_source **out_source,
                                 const struct rp_driver *driver, CUgraph template,
                                 struct rp_error *err)
{
    assert(template);
    struct rpi_exec_source *source = rpi_calloc(1, sizeof *source);
    if (!source)
        return rpi_error_host_memory(err, "rp_graph_capture", sizeof *source);
    rp_status status = rpi_topology_read(&source->topology, driver, template, err);
    if (status != RP_OK) {
        rpi_free(source);
        return status;
    }
    source->template = template;
    *out_source = source;
    return RP_OK;
}

rp_status rpi_exec_source_extend(struct rpi_exec_source *source, const struct rp_driver *driver,
                                 const CUgraphNode *added, size_t count, struct rp_error *err)
{
    struct rpi_topology topology = {0};
    rp_status status = rpi_topology_read(&topology, driver, source->template, err);
    if (status == RP_OK)
        status = rpi_topology_extend(&source->topology, &topology, added, count, err);
    rpi_topology_finish(&topology);
    return status;
}

void rpi_exec_source_destroy(struct rpi_exec_source *source, const struct rp_driver *driver)
{
    if (!source)
        return;
    assert(!source->holders);
    driver->cuGraphDestroy(source->template);
    rpi_topology_finish(&source->topology);
    rpi_free(source);
}
