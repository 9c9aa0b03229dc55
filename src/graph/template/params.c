/* SPDX-License-Identifier: MIT */
#include "graph/template/params.h"

#include <assert.h>
#include <stdio.h>

void rpi_params_finish(struct rpi_params *params)
{
    rpi_vec_finish(&params->image);
    rpi_vec_finish(&params->fields);
}

static rp_status add_field(struct rpi_params *params, size_t offset, size_t bytes,
                           enum rpi_field_kind kind, struct rp_error *err)
{
    struct rpi_field field = {(uint32_t)offset, (uint32_t)bytes, kind};
    if (!rpi_vec_push(&params->fields, field))
        return rpi_error_host_memory(err, "reading node parameters", sizeof field);
    return RP_OK;
}

/* Makes the image at least this long; new bytes are 0. */
static rp_status extend_image(struct rpi_params *params, size_t bytes, struct rp_error *err)
{
    if (bytes <= params->image.count)
        return RP_OK;
    if (!rpi_vec_reserve(&params->image, bytes))
        return rpi_error_host_memory(err, "reading node parameters", bytes);
    memset(params->image.data + params->image.count, 0, bytes - params->image.count);
    params->image.count = bytes;
    return RP_OK;
}

CUfunction rpi_kernel_function(const struct rp_driver *driver,
                               const CUDA_KERNEL_NODE_PARAMS *kernel)
{
    CUfunction function = NULL;
    if (kernel->func || !kernel->kern || !(driver->capabilities & RPI_CAP_LIBRARY))
        return kernel->func;
    return driver->cuKernelGetFunction(&function, kernel->kern) == CUDA_SUCCESS ? function : NULL;
}

/* Fields of a kernel function, and its image's length. Anything larger than a word may be a struct
 * with padding. */
static rp_status read_kernel_fields(struct rpi_params *params, const struct rp_driver *driver,
                                    struct rp_error *err)
{
    if (!(driver->capabilities & RPI_CAP_PARAM_INFO) || !params->kernel.func)
        return RP_OK;
    for (size_t i = 0;; i++) {
        size_t offset = 0, bytes = 0;
        CUresult result = driver->cuFuncGetParamInfo(params->kernel.func, i, &offset, &bytes);
        if (result == CUDA_ERROR_INVALID_VALUE)
            return RP_OK; /* past the last one */
        if (result != CUDA_SUCCESS)
            return rpi_error_driver(err, result, "cuFuncGetParamInfo",
                                    "reading the parameters of a kernel node");
        rp_status status =
            add_field(params, offset, bytes, bytes > 8 ? RPI_FIELD_STRUCT : RPI_FIELD_VALUE, err);
        if (status == RP_OK)
            status = extend_image(params, offset + bytes, err);
        if (status != RP_OK)
            return status;
    }
}

/* The packed buffer that an `extra` list names; NULL when it names none. */
static const void *packed_buffer(void *const *extra, size_t *out_bytes)
{
    const void *buffer = NULL;
    *out_bytes = 0;
    for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            *out_bytes = *(const size_t *)extra[1];
    }
    return buffer;
}

static rp_status read_packed(struct rpi_params *params, struct rp_error *err)
{
    size_t bytes = 0;
    const void *buffer = packed_buffer(params->kernel.extra, &bytes);
    if (!buffer || !bytes)
        return RP_OK;
    params->packed_bytes = bytes;
    rp_status status = extend_image(params, bytes, err);
    if (status != RP_OK)
        return status;
    memcpy(params->image.data, buffer, bytes);
    if (!params->fields.count) /* a driver that tells no layout: all of it may be anything */
        return add_field(params, 0, bytes, RPI_FIELD_STRUCT, err);
    /* A buffer may end before the last parameter that the function declares. */
    while (params->fields.count) {
        struct rpi_field *last = &params->fields.data[params->fields.count - 1];
        if (last->offset + last->bytes <= bytes)
            break;
        params->fields.count--;
    }
    return RP_OK;
}

static rp_status read_kernel(struct rpi_params *params, const struct rp_driver *driver,
                             CUgraphNode node, struct rp_error *err)
{
    CUresult result = driver->cuGraphKernelNodeGetParams(node, &params->kernel);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphKernelNodeGetParams",
                                "reading the parameters of a kernel node");
    params->kernel.func = rpi_kernel_function(driver, &params->kernel);
    rp_status status = read_kernel_fields(params, driver, err);
    if (status != RP_OK)
        return status;
    if (!params->kernel.kernelParams)
        return read_packed(params, err);
    /* The array does not tell how long it is. */
    params->hidden = !(driver->capabilities & RPI_CAP_PARAM_INFO) || !params->kernel.func;
    for (size_t i = 0; i < params->fields.count; i++) {
        const struct rpi_field *field = &params->fields.data[i];
        if (field->bytes) /* without any there may be no image either */
            memcpy(params->image.data + field->offset, params->kernel.kernelParams[i],
                   field->bytes);
    }
    return RP_OK;
}

static rp_status set_image(struct rpi_params *params, const void *bytes, size_t count,
                           struct rp_error *err)
{
    rp_status status = extend_image(params, count, err);
    if (status == RP_OK)
        memcpy(params->image.data, bytes, count);
    return status;
}

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define FIELD(type, member, kind)                                                                  \
    {                                                                                              \
        offsetof(type, member), sizeof(((type *)0)->member), kind                                  \
    }

static const struct rpi_field copy_fields[] = {
    FIELD(CUDA_MEMCPY3D, srcXInBytes, RPI_FIELD_VALUE),
    FIELD(CUDA_MEMCPY3D, srcY, RPI_FIELD_VALUE),
    FIELD(CUDA_MEMCPY3D, srcZ, RPI_FIELD_VALUE),
    FIELD(CUDA_MEMCPY3D, srcMemoryType, RPI_FIELD_VALUE),
    FIELD(CUDA_MEMCPY3D, dstXInBytes, RPI_FIELD_VALUE),
    FIELD(CUDA_MEMCPY3D, dstY, RPI_FIELD_VALUE),
    FIELD(CUDA_MEMCPY3D, dstZ, RPI_FIELD_VALUE),
    FIELD(CUDA_MEMCPY3D, dstMemoryType, RPI_FIELD_VALUE),
    FIELD(CUDA_MEMCPY3D, WidthInBytes, RPI_FIELD_VALUE),
    FIELD(CUDA_MEMCPY3D, Height, RPI_FIELD_VALUE),
    FIELD(CUDA_MEMCPY3D, Depth, RPI_FIELD_VALUE),
};
/* They mean nothing for one row. */
static const struct rpi_field copy_pitches[] = {
    FIELD(CUDA_MEMCPY3D, srcPitch, RPI_FIELD_VALUE),
    FIELD(CUDA_MEMCPY3D, srcHeight, RPI_FIELD_VALUE),
    FIELD(CUDA_MEMCPY3D, dstPitch, RPI_FIELD_VALUE),
    FIELD(CUDA_MEMCPY3D, dstHeight, RPI_FIELD_VALUE),
};

static rp_status add_fields(struct rpi_params *params, const struct rpi_field *fields, size_t count,
                            struct rp_error *err)
{
    rp_status status = RP_OK;
    for (size_t i = 0; status == RP_OK && i < count; i++)
        status = add_field(params, fields[i].offset, fields[i].bytes, fields[i].kind, err);
    return status;
}

/* One end of a copy: host memory, device memory, or an array, which has no address. */
static rp_status add_end(struct rpi_params *params, CUmemorytype type, size_t host, size_t device,
                         struct rp_error *err)
{
    if (type == CU_MEMORYTYPE_ARRAY)
        return RP_OK;
    bool is_host = type == CU_MEMORYTYPE_HOST;
    return add_field(params, is_host ? host : device, sizeof(CUdeviceptr),
                     is_host ? RPI_FIELD_HOST : RPI_FIELD_VALUE, err);
}

static rp_status read_memcpy(struct rpi_params *params, const struct rp_driver *driver,
                             CUgraphNode node, struct rp_error *err)
{
    CUDA_MEMCPY3D copy;
    memset(&copy, 0, sizeof copy);
    CUresult result = driver->cuGraphMemcpyNodeGetParams(node, &copy);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphMemcpyNodeGetParams",
                                "reading the parameters of a memcpy node");
    rp_status status = set_image(params, &copy, sizeof copy, err);
    if (status == RP_OK)
        status = add_fields(params, copy_fields, COUNT(copy_fields), err);
    if (status == RP_OK && (copy.Height > 1 || copy.Depth > 1))
        status = add_fields(params, copy_pitches, COUNT(copy_pitches), err);
    if (status == RP_OK)
        status = add_end(params, copy.srcMemoryType, offsetof(CUDA_MEMCPY3D, srcHost),
                         offsetof(CUDA_MEMCPY3D, srcDevice), err);
    if (status == RP_OK)
        status = add_end(params, copy.dstMemoryType, offsetof(CUDA_MEMCPY3D, dstHost),
                         offsetof(CUDA_MEMCPY3D, dstDevice), err);
    return status;
}

/* The pitch means nothing for a fill of one row. */
static rp_status read_memset(struct rpi_params *params, const struct rp_driver *driver,
                             CUgraphNode node, struct rp_error *err)
{
    static const struct rpi_field always[] = {
        FIELD(CUDA_MEMSET_NODE_PARAMS, dst, RPI_FIELD_VALUE),
        FIELD(CUDA_MEMSET_NODE_PARAMS, value, RPI_FIELD_VALUE),
        FIELD(CUDA_MEMSET_NODE_PARAMS, elementSize, RPI_FIELD_VALUE),
        FIELD(CUDA_MEMSET_NODE_PARAMS, width, RPI_FIELD_VALUE),
        FIELD(CUDA_MEMSET_NODE_PARAMS, height, RPI_FIELD_VALUE),
    };
    CUDA_MEMSET_NODE_PARAMS fill;
    memset(&fill, 0, sizeof fill);
    CUresult result = driver->cuGraphMemsetNodeGetParams(node, &fill);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphMemsetNodeGetParams",
                                "reading the parameters of a memset node");
    rp_status status = set_image(params, &fill, sizeof fill, err);
    if (status == RP_OK)
        status = add_fields(params, always, COUNT(always), err);
    if (status == RP_OK && fill.height > 1)
        status = add_field(params, offsetof(CUDA_MEMSET_NODE_PARAMS, pitch), sizeof fill.pitch,
                           RPI_FIELD_VALUE, err);
    return status;
}

/* A host node's function must be the same; its user data may be made anew by each capture. */
static rp_status read_host(struct rpi_params *params, const struct rp_driver *driver,
                           CUgraphNode node, struct rp_error *err)
{
    CUDA_HOST_NODE_PARAMS host;
    memset(&host, 0, sizeof host);
    CUresult result = driver->cuGraphHostNodeGetParams(node, &host);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphHostNodeGetParams",
                                "reading the parameters of a host function node");
    rp_status status = set_image(params, &host, sizeof host, err);
    if (status == RP_OK)
        status = add_field(params, offsetof(CUDA_HOST_NODE_PARAMS, fn), sizeof host.fn,
                           RPI_FIELD_VALUE, err);
    if (status == RP_OK)
        status = add_field(params, offsetof(CUDA_HOST_NODE_PARAMS, userData), sizeof host.userData,
                           RPI_FIELD_HOST, err);
    return status;
}

/* The image is the event that is recorded or waited for outside of the graph too. No field: it is
 * no address. */
static rp_status read_event(struct rpi_params *params, const struct rp_driver *driver,
                            CUgraphNode node, struct rp_error *err)
{
    CUevent event = NULL;
    bool records = params->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    CUresult result = records ? driver->cuGraphEventRecordNodeGetEvent(node, &event)
                              : driver->cuGraphEventWaitNodeGetEvent(node, &event);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result,
                                records ? "cuGraphEventRecordNodeGetEvent"
                                        : "cuGraphEventWaitNodeGetEvent",
                                "reading the event of a node");
    return set_image(params, &event, sizeof event, err);
}

rp_status rpi_params_read(struct rpi_params *params, const struct rp_driver *driver,
                          CUgraphNode node, struct rp_error *err)
{
    params->image.count = params->fields.count = 0;
    params->child = NULL;
    params->packed_bytes = 0;
    params->hidden = false;
    CUresult result = driver->cuGraphNodeGetType(node, &params->type);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphNodeGetType", "reading a node's type");
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        memset(&params->kernel, 0, sizeof params->kernel);
        return read_kernel(params, driver, node, err);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return read_memcpy(params, driver, node, err);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return read_memset(params, driver, node, err);
    case CU_GRAPH_NODE_TYPE_HOST:
        return read_host(params, driver, node, err);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        result = driver->cuGraphChildGraphNodeGetGraph(node, &params->child);
        if (result != CUDA_SUCCESS)
            return rpi_error_driver(err, result, "cuGraphChildGraphNodeGetGraph",
                                    "reading the graph of a child graph node");
        return RP_OK;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return read_event(params, driver, node, err);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return RP_OK;
    default:
        params->hidden = true; /* nothing that is read here */
        return RP_OK;
    }
}

/* ---- Writing ------------------------------------------------------------------------------- */

/* Pointers before the image: to each parameter, or the list of the packed form. */
static size_t pointer_count(const struct rpi_params *params)
{
    enum { PACKED_POINTERS = 5 };
    if (params->type != CU_GRAPH_NODE_TYPE_KERNEL)
        return 0;
    return params->packed_bytes ? PACKED_POINTERS : params->fields.count;
}

static size_t round_up_16(size_t bytes)
{
    return (bytes + 15) & ~(size_t)15;
}

static size_t bytes_before_image(const struct rpi_params *params)
{
    return round_up_16(sizeof(struct rpi_node_image) + pointer_count(params) * sizeof(void *));
}

size_t rpi_node_image_bytes(const struct rpi_params *params)
{
    return bytes_before_image(params) + round_up_16(params->image.count);
}

/* Makes the image's own list of parameters: the array of pointers or the packed form. */
static void point_into(struct rpi_node_image *image, const struct rpi_params *params)
{
    image->kernel = params->kernel;
    image->kernel.kernelParams = image->kernel.extra = NULL;
    if (!params->packed_bytes) {
        for (size_t i = 0; i < params->fields.count; i++)
            image->pointers[i] = image->bytes + params->fields.data[i].offset;
        image->kernel.kernelParams = image->pointers;
        return;
    }
    image->pointers[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
    image->pointers[1] = image->bytes;
    image->pointers[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
    image->pointers[3] = &image->packed_bytes;
    image->pointers[4] = CU_LAUNCH_PARAM_END;
    image->kernel.extra = image->pointers;
}

struct rpi_node_image *rpi_node_image_make(void *memory, const struct rpi_params *params)
{
    struct rpi_node_image *image = memory;
    *image = (struct rpi_node_image){
        .type = params->type,
        .bytes = (unsigned char *)memory + bytes_before_image(params),
        .packed_bytes = params->packed_bytes,
    };
    if (params->image.count)
        memcpy(image->bytes, params->image.data, params->image.count);
    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL)
        point_into(image, params);
    return image;
}

CUresult rpi_node_image_set_other(const struct rpi_node_image *image,
                                  const struct rp_driver *driver, CUgraphExec exec,
                                  CUgraphNode node, CUcontext context, const char **out_function)
{
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS fill;
    if (image->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        *out_function = "cuGraphExecMemcpyNodeSetParams";
        memcpy(&copy, image->bytes, sizeof copy);
        return driver->cuGraphExecMemcpyNodeSetParams(exec, node, &copy, context);
    }
    assert(image->type == CU_GRAPH_NODE_TYPE_MEMSET);
    *out_function = "cuGraphExecMemsetNodeSetParams";
    memcpy(&fill, image->bytes, sizeof fill);
    return driver->cuGraphExecMemsetNodeSetParams(exec, node, &fill, context);
}

static const char *const type_names[] = {
    "kernel",     "memcpy",     "memset",          "host function",    "child graph",
    "empty",      "event wait", "event record",    "semaphore signal", "semaphore wait",
    "allocation", "free",       "batch memory op", "conditional"};

void rpi_params_describe(const struct rpi_params *params, const struct rp_driver *driver,
                         char *text, size_t bytes)
{
    const char *name = NULL;
    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL && params->kernel.func &&
        (driver->capabilities & RPI_CAP_FUNC_NAME) &&
        driver->cuFuncGetName(&name, params->kernel.func) == CUDA_SUCCESS && name)
        snprintf(text, bytes, "kernel %s", name);
    else if (params->type == CU_GRAPH_NODE_TYPE_KERNEL)
        snprintf(text, bytes, "kernel at %p", (void *)params->kernel.func);
    else if ((size_t)params->type < COUNT(type_names))
        snprintf(text, bytes, "%s", type_names[params->type]);
    else
        snprintf(text, bytes, "node of type %d", (int)params->type);
}
