/* SPDX-License-Identifier: MIT */
#include "graph/capture/host_data.h"

#include "graph/template/view.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Tables are shorter. What is longer is a batch or a weight. */
enum { MOST_BYTES = 64 << 10 };

struct reading {
    struct rpi_host_data *data;
    const struct rp_driver *driver;
    struct rpi_params params;
    int file; /* through which memory is read; below 0: none yet */
};

static bool copy_of(const struct rpi_params *params, CUDA_MEMCPY3D *out_copy)
{
    if (params->type != CU_GRAPH_NODE_TYPE_MEMCPY)
        return false;
    assert(params->image.count == sizeof *out_copy);
    memcpy(out_copy, params->image.data, sizeof *out_copy);
    return out_copy->srcMemoryType == CU_MEMORYTYPE_HOST;
}

bool rpi_copies_from_host(const struct rpi_params *params)
{
    CUDA_MEMCPY3D copy;
    return copy_of(params, &copy);
}

/* Copies memory that may be gone: write() answers EFAULT where a load would end the process. The
 * system call itself, as sanitizers look ahead of the library's function. */
static bool read_memory(struct reading *r, const void *from, size_t bytes, unsigned char *to)
{
    if (r->file < 0)
        r->file = memfd_create("reprise-host-data", MFD_CLOEXEC);
    return r->file >= 0 &&
           syscall(SYS_pwrite64, r->file, from, bytes, (off_t)0) == (ssize_t)bytes &&
           pread(r->file, to, bytes, 0) == (ssize_t)bytes;
}

static rp_status read_copy(struct reading *r, const CUDA_MEMCPY3D *copy, struct rp_error *err)
{
    struct rpi_host_data *data = r->data;
    struct rpi_host_copy made = {.first = data->bytes.count, .bytes = copy->WidthInBytes};
    bool is_row = copy->Height <= 1 && copy->Depth <= 1 && made.bytes <= MOST_BYTES;
    if (!rpi_vec_reserve(&data->copies, data->copies.count + 1) ||
        (is_row && !rpi_vec_reserve(&data->bytes, made.first + made.bytes)))
        return rpi_error_host_memory(err, "rp_graph_capture", made.bytes);
    made.known = is_row && read_memory(r, (const char *)copy->srcHost + copy->srcXInBytes,
                                       made.bytes, data->bytes.data + made.first);
    if (made.known)
        data->bytes.count += made.bytes;
    data->copies.data[data->copies.count++] = made;
    return RP_OK;
}

static rp_status read_graph(struct reading *r, CUgraph graph, struct rp_error *err);

/* Most nodes are kernels: their parameters are not asked for. */
static rp_status read_node(struct reading *r, CUgraphNode node, struct rp_error *err)
{
    CUgraphNodeType type;
    CUDA_MEMCPY3D copy;
    CUresult result = r->driver->cuGraphNodeGetType(node, &type);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphNodeGetType",
                                "reading the nodes of a template");
    if (type != CU_GRAPH_NODE_TYPE_MEMCPY && type != CU_GRAPH_NODE_TYPE_GRAPH)
        return RP_OK;
    rp_status status = rpi_params_read(&r->params, r->driver, node, err);
    if (status == RP_OK && copy_of(&r->params, &copy))
        return read_copy(r, &copy, err);
    return status == RP_OK && r->params.child ? read_graph(r, r->params.child, err) : status;
}

static rp_status read_graph(struct reading *r, CUgraph graph, struct rp_error *err)
{
    struct rpi_template_view view;
    rp_status status = rpi_view_read_nodes(&view, r->driver, graph, err);
    for (size_t i = 0; status == RP_OK && i < view.node_count; i++)
        status = read_node(r, view.nodes[i], err);
    rpi_view_finish(&view);
    return status;
}

rp_status rpi_host_data_read(struct rpi_host_data *data, const struct rp_driver *driver,
                             CUgraph template, struct rp_error *err)
{
    assert(!data->copies.count && !data->bytes.count);
    struct reading r = {.data = data, .driver = driver, .file = -1};
    rp_status status = read_graph(&r, template, err);
    rpi_params_finish(&r.params);
    if (r.file >= 0)
        close(r.file);
    return status;
}

void rpi_host_data_finish(struct rpi_host_data *data)
{
    rpi_vec_finish(&data->copies);
    rpi_vec_finish(&data->bytes);
}

const unsigned char *rpi_host_data_of(const struct rpi_host_data *data, size_t number,
                                      size_t *out_bytes)
{
    assert(number < data->copies.count);
    const struct rpi_host_copy *copy = &data->copies.data[number];
    *out_bytes = copy->bytes;
    return copy->known ? data->bytes.data + copy->first : NULL;
}
