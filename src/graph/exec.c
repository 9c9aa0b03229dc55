/* SPDX-License-Identifier: MIT */
#include "graph/exec.h"

#include "base/log.h"

/* ---- Making -------------------------------------------------------------------------------- */

struct numbered {
    RPI_VEC(CUgraphNode);
};

/* Appends the graph's nodes, each followed by those of its child graph. */
static rp_status number_nodes(struct numbered *list, const struct rp_driver *driver, CUgraph graph,
                              bool inside, struct rp_error *err)
{
    size_t count = 0;
    CUresult result = driver->cuGraphGetNodes(graph, NULL, &count);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphGetNodes", "reading the nodes of a template");
    CUgraphNode *nodes = rpi_calloc(count + 1, sizeof(CUgraphNode));
    rp_status status = nodes && rpi_vec_reserve(list, list->count + count + 1)
                           ? RP_OK
                           : rpi_error_host_memory(err, "rp_graph_capture", count * sizeof *nodes);
    if (status == RP_OK && count)
        result = driver->cuGraphGetNodes(graph, nodes, &count);
    for (size_t i = 0; status == RP_OK && result == CUDA_SUCCESS && i < count; i++) {
        CUgraphNodeType type;
        CUgraph child = NULL;
        if (!rpi_vec_push(list, inside ? NULL : nodes[i]))
            status = rpi_error_host_memory(err, "rp_graph_capture", sizeof *nodes);
        result = driver->cuGraphNodeGetType(nodes[i], &type);
        if (result == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_GRAPH)
            result = driver->cuGraphChildGraphNodeGetGraph(nodes[i], &child);
        if (status == RP_OK && result == CUDA_SUCCESS && child)
            status = number_nodes(list, driver, child, true, err);
    }
    rpi_free(nodes);
    if (status == RP_OK && result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphGetNodes", "reading the nodes of a template");
    return status;
}

rp_status rpi_exec_nodes(const struct rp_driver *driver, CUgraph template, CUgraphNode **out_nodes,
                         struct rp_error *err)
{
    struct numbered list = {0};
    rp_status status = number_nodes(&list, driver, template, false, err);
    if (status == RP_OK)
        *out_nodes = list.data;
    else
        rpi_vec_finish(&list);
    return status;
}

/* Makes the template launchable, and its first launch cheap. */
static rp_status instantiate(struct rpi_exec *exec, CUgraph template, const char *name,
                             CUstream stream, struct rp_error *err)
{
    const struct rp_driver *driver = exec->driver;
    CUresult result = driver->cuGraphInstantiateWithFlags(&exec->handle, template, 0);
    if (result != CUDA_SUCCESS) {
        exec->handle = NULL;
        return rpi_error_driver(err, result, "cuGraphInstantiateWithFlags", "instantiating '%.60s'",
                                name);
    }
    const char *function = "cuGraphUpload";
    result = driver->cuGraphUpload(exec->handle, stream);
    if (result == CUDA_SUCCESS) {
        function = "cuStreamSynchronize";
        result = driver->cuStreamSynchronize(stream);
    }
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, function, "uploading '%.60s'", name);
    return RP_OK;
}

rp_status rpi_exec_create(struct rpi_exec *exec, const struct rp_device *device, CUgraph template,
                          CUgraphNode *nodes, const struct rpi_binding *binding, const char *name,
                          CUstream stream, struct rp_error *err)
{
    struct rpi_exec made = {.driver = device->driver, .context = device->context};
    size_t images = binding->images.count;
    made.bound = rpi_calloc(binding->arg_count + 1, sizeof *made.bound);
    made.stale = rpi_calloc(images + 1, sizeof *made.stale);
    rp_status status =
        made.bound && made.stale && rpi_vec_reserve(&made.pending, images + 1)
            ? RP_OK
            : rpi_error_host_memory(err, "rp_graph_capture", images * sizeof(uint32_t));
    for (size_t k = 0; status == RP_OK && k < binding->arg_count; k++)
        made.bound[k] = binding->args[k].staging; /* as it was recorded */
    if (status == RP_OK)
        status = instantiate(&made, template, name, stream, err);
    if (status != RP_OK) {
        rpi_exec_destroy(&made);
        return status;
    }
    made.nodes = nodes;
    *exec = made;
    return RP_OK;
}

void rpi_exec_destroy(struct rpi_exec *exec)
{
    if (exec->handle)
        exec->driver->cuGraphExecDestroy(exec->handle);
    rpi_free(exec->nodes);
    rpi_free(exec->bound);
    rpi_free(exec->stale);
    rpi_vec_finish(&exec->pending);
    *exec = (struct rpi_exec){0};
}

/* ---- Binding ------------------------------------------------------------------------------- */

/* Writes the argument's target where it changed, and notes the nodes that the driver has to have
 * again. */
static void write_sites(struct rpi_exec *exec, struct rpi_binding *binding, size_t k)
{
    const struct rpi_bind_arg *arg = &binding->args[k];
    if (exec->bound[k] == arg->target)
        return;
    for (size_t i = 0; i < arg->site_count; i++) {
        const struct rpi_bind_site *site = &binding->sites.data[arg->first_site + i];
        rpi_node_image_write(&binding->images.data[site->image], site->offset,
                             arg->target + (uint64_t)site->delta);
        if (exec->stale[site->image])
            continue;
        exec->stale[site->image] = true;
        exec->pending.data[exec->pending.count++] = site->image; /* room for all was made */
    }
    exec->bound[k] = arg->target;
}

/* Sends all arguments of a refused node back to their staging. False when all are there. */
static bool demote_args_of(struct rpi_exec *exec, struct rpi_binding *binding, uint32_t image,
                           const char *name)
{
    bool demoted = false;
    for (size_t k = 0; k < binding->arg_count; k++) {
        struct rpi_bind_arg *arg = &binding->args[k];
        bool used = false;
        for (size_t i = 0; i < arg->site_count && !used; i++)
            used = binding->sites.data[arg->first_site + i].image == image;
        if (!used || exec->bound[k] == arg->staging)
            continue;
        rpi_binding_demote(binding, k, RPI_COPY_REFUSED);
        write_sites(exec, binding, k);
        demoted = true;
        rpi_log(RP_LOG_WARNING,
                "'%.60s': argument %zu is copied from now on: the driver refused to change node %u",
                name, k, binding->nodes.data[image]);
    }
    return demoted;
}

rp_status rpi_exec_bind(struct rpi_exec *exec, struct rpi_binding *binding, const char *name,
                        struct rp_error *err)
{
    for (size_t k = 0; k < binding->arg_count; k++)
        write_sites(exec, binding, k);
    while (exec->pending.count) {
        uint32_t image = exec->pending.data[exec->pending.count - 1];
        uint32_t node = binding->nodes.data[image];
        const struct rpi_node_image *changed = &binding->images.data[image];
        const char *function = NULL;
        CUresult result = rpi_node_image_set(changed, exec->driver, exec->handle, exec->nodes[node],
                                             exec->context, &function);
        if (result == CUDA_SUCCESS) {
            exec->pending.count--;
            exec->stale[image] = false;
            exec->patched++;
            continue;
        }
        /* Memory of another kind than the recorded, which only copies and fills mind. */
        bool minds =
            result == CUDA_ERROR_INVALID_VALUE && changed->type != CU_GRAPH_NODE_TYPE_KERNEL;
        if (!minds || !demote_args_of(exec, binding, image, name))
            return rpi_error_driver(err, result, function,
                                    "binding arguments in node %u of '%.60s'", node, name);
    }
    return RP_OK;
}
