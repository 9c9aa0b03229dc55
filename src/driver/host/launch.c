/* SPDX-License-Identifier: MIT
 *
 * Kernel launches: the checks that NVIDIA's driver makes, the parameters gathered into one buffer
 * in either form, and launch attributes.
 */
#include "base/held.h"
#include "driver/host/state.h"

#include <assert.h>

#define BUFFER_ALIGNMENT 64 /* what the strictest parameter types ask for */

static CUresult check_cluster(const struct rpi_host_kernel_op *k)
{
    assert(k->cluster[0] && k->cluster[1] && k->cluster[2]);
    uint64_t blocks = 1;
    for (int i = 0; i < 3; i++) {
        blocks *= k->cluster[i];
        if (blocks > 16 || k->grid[i] % k->cluster[i])
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
    return blocks <= (k->function->non_portable_cluster ? 16 : 8) ? CUDA_SUCCESS
                                                                  : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

static CUresult check_shape(const struct rpi_host_kernel_op *k)
{
    static const unsigned most_grid[3] = {0x7fffffff, 65535, 65535};
    static const unsigned most_block[3] = {1024, 1024, 64};
    uint64_t threads = 1, blocks = 1;
    for (int i = 0; i < 3; i++) {
        if (k->grid[i] == 0 || k->grid[i] > most_grid[i] || k->block[i] == 0 ||
            k->block[i] > most_block[i])
            return CUDA_ERROR_INVALID_VALUE;
        threads *= k->block[i];
        blocks *= k->grid[i];
    }
    if (threads > 1024 || k->shared_bytes > (unsigned)k->function->max_dynamic_shared)
        return CUDA_ERROR_INVALID_VALUE;
    if (k->function->kernel->max_threads && threads > k->function->kernel->max_threads)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_cluster(k);
    if (result)
        return result;
    const uint64_t multiprocessors = rpi_host_multiprocessors(), resident_threads = 2048;
    if (k->cooperative && blocks > multiprocessors * (resident_threads / threads))
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return CUDA_SUCCESS;
}

/* The buffer that `extra` describes. */
static CUresult read_extra(void **extra, const void **out_buffer, size_t *out_bytes)
{
    const void *buffer = NULL;
    const size_t *bytes = NULL;
    for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = extra[i + 1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (!bytes || (*bytes && !buffer))
        return CUDA_ERROR_INVALID_VALUE;
    *out_buffer = buffer;
    *out_bytes = *bytes;
    return CUDA_SUCCESS;
}

/* Room for `count` pointers and a buffer behind them. */
static bool make_room(struct rpi_host_kernel_op *k, size_t count, size_t bytes)
{
    assert(!k->params && count == k->function->kernel->param_count);
    size_t pointers = count * sizeof(void *);
    k->params = rpi_calloc(1, pointers + bytes + BUFFER_ALIGNMENT);
    if (!k->params)
        return false;
    uintptr_t end = (uintptr_t)k->params + pointers;
    end = (end + BUFFER_ALIGNMENT - 1) & ~(uintptr_t)(BUFFER_ALIGNMENT - 1);
    k->buffer = (unsigned char *)end;
    k->buffer_bytes = bytes;
    for (size_t i = 0; i < count; i++)
        k->params[i] = k->buffer + k->function->kernel->params[i].offset;
    return true;
}

static CUresult take_params(struct rpi_host_kernel_op *k, void **params, void **extra)
{
    const struct rp_host_kernel *kernel = k->function->kernel;
    const void *packed = NULL;
    size_t bytes = k->function->packed_bytes;
    if (params && extra)
        return CUDA_ERROR_INVALID_VALUE;
    if (extra) {
        CUresult result = read_extra(extra, &packed, &bytes);
        if (result || bytes > k->function->packed_bytes)
            return CUDA_ERROR_INVALID_VALUE;
    } else if (kernel->param_count && !params) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (uint32_t i = 0; !extra && i < kernel->param_count; i++)
        if (!params[i])
            return CUDA_ERROR_INVALID_VALUE;
    if (!make_room(k, kernel->param_count, k->function->packed_bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (extra) {
        k->packed = true;
        k->buffer_bytes = bytes; /* what a shorter buffer leaves out is 0 */
        if (bytes)
            memcpy(k->buffer, packed, bytes);
        k->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
        k->extra[1] = k->buffer;
        k->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
        k->extra[3] = &k->buffer_bytes;
        k->extra[4] = CU_LAUNCH_PARAM_END;
    } else {
        for (uint32_t i = 0; i < kernel->param_count; i++)
            memcpy(k->params[i], params[i], kernel->params[i].bytes);
    }
    return CUDA_SUCCESS;
}

/* The function that is meant: itself, or that of a library's kernel where there is none, in the
 * context that is named, else in that of the node that is changed, else in the current one. */
static CUresult find_function(const CUDA_KERNEL_NODE_PARAMS *params,
                              const struct rpi_host_kernel_op *like, CUfunction *out_function)
{
    CUcontext context = params->ctx              ? params->ctx
                        : like && like->function ? like->function->module->context
                                                 : rpi_host_current();
    if (!params->func && params->kern)
        return context ? rpi_host_function_in(context, params->kern, out_function)
                       : CUDA_ERROR_INVALID_CONTEXT;
    *out_function = params->func;
    return rpi_host_handle_is(params->func, RPI_HOST_FUNCTION) ? CUDA_SUCCESS
                                                               : CUDA_ERROR_INVALID_HANDLE;
}

CUresult rpi_host_kernel_op(const CUDA_KERNEL_NODE_PARAMS *params,
                            const struct rpi_host_kernel_op *like, struct rpi_host_op **out_op)
{
    rpi_assert_held(&rpi_host.lock);
    CUfunction function;
    if (params->ctx && !rpi_host_is_context(params->ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult result = find_function(params, like, &function);
    if (result)
        return result;
    assert(function); /* no handle is NULL */
    if (params->ctx && params->ctx != function->module->context)
        return CUDA_ERROR_INVALID_CONTEXT;
    struct rpi_host_op *op = rpi_host_op_create(CU_GRAPH_NODE_TYPE_KERNEL);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rpi_host_kernel_op *k = &op->kernel;
    *k = (struct rpi_host_kernel_op){
        .function = function,
        .grid = {params->gridDimX, params->gridDimY, params->gridDimZ},
        .block = {params->blockDimX, params->blockDimY, params->blockDimZ},
        .cluster = {1, 1, 1},
        .shared_bytes = params->sharedMemBytes,
    };
    k->function->module->references++;
    if (like) {
        memcpy(k->cluster, like->cluster, sizeof k->cluster);
        k->cooperative = like->cooperative;
        k->priority = like->priority;
        k->programmatic = like->programmatic;
    }
    result = check_shape(k);
    if (!result)
        result = take_params(k, params->kernelParams, params->extra);
    if (result)
        rpi_host_op_drop(op);
    else
        *out_op = op;
    return result;
}

/* The attributes of a launch. A programmatic event, which is not a property of the kernel, is
 * returned apart. */
static CUresult read_attributes(const CUlaunchAttribute *attributes, unsigned count,
                                struct rpi_host_kernel_op *out_like,
                                const CUlaunchAttributeValue **out_event)
{
    if (count && !attributes)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        const CUlaunchAttributeValue *value = &attributes[i].value;
        switch (attributes[i].id) {
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
            break;
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
            out_like->cooperative = value->cooperative != 0;
            break;
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            out_like->cluster[0] = value->clusterDim.x;
            out_like->cluster[1] = value->clusterDim.y;
            out_like->cluster[2] = value->clusterDim.z;
            if (!value->clusterDim.x || !value->clusterDim.y || !value->clusterDim.z)
                return CUDA_ERROR_INVALID_VALUE;
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
            out_like->programmatic = value->programmaticStreamSerializationAllowed != 0;
            break;
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
            if (!rpi_host_handle_is(value->programmaticEvent.event, RPI_HOST_EVENT))
                return CUDA_ERROR_INVALID_HANDLE;
            *out_event = value;
            break;
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
            out_like->priority = value->priority;
            break;
        default:
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

/* The event of a launch happens when the kernel lets its dependents start; here, when it ends. */
static CUresult record_programmatic(CUstream stream, const CUlaunchAttributeValue *value)
{
    rpi_assert_held(&rpi_host.lock);
    CUevent event = value->programmaticEvent.event;
    CUresult result = rpi_host_cuEventRecordWithFlags(event, stream->legacy ? NULL : stream, 0);
    if (result || !event->capture)
        return result;
    for (size_t i = 0; i < event->terminals.count; i++)
        event->terminals.data[i].data = (CUgraphEdgeData){
            .from_port = value->programmaticEvent.triggerAtBlockStart
                             ? CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER
                             : CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
            .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC,
        };
    return CUDA_SUCCESS;
}

/* Whether the launch brings more parameters than the kernel has. */
static bool is_overlong(const CUDA_KERNEL_NODE_PARAMS *params)
{
    const void *packed;
    size_t bytes;
    CUfunction function;
    if (!params->extra || params->kernelParams ||
        find_function(params, NULL, &function) != CUDA_SUCCESS)
        return false;
    assert(function);
    return read_extra(params->extra, &packed, &bytes) == CUDA_SUCCESS &&
           bytes > function->packed_bytes;
}

/* What is launched may be a library's kernel, by the same parameter; a node says which it is. */
static void name_kernel(CUDA_KERNEL_NODE_PARAMS *params)
{
    if (!rpi_host_handle_is(params->func, RPI_HOST_KERNEL))
        return;
    params->kern = (CUkernel)(void *)params->func;
    params->func = NULL;
}

static CUresult launch(CUstream handle, CUDA_KERNEL_NODE_PARAMS *params,
                       const CUlaunchAttribute *attributes, unsigned count)
{
    rpi_assert_held(&rpi_host.lock);
    CUstream stream = rpi_host_stream_of(handle);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    struct rpi_host_kernel_op like = {.cluster = {1, 1, 1}, .priority = stream->priority};
    const CUlaunchAttributeValue *event = NULL;
    CUresult result = read_attributes(attributes, count, &like, &event);
    if (result)
        return result;
    struct rpi_host_op *op;
    name_kernel(params);
    result = rpi_host_kernel_op(params, &like, &op);
    if (result)
        return !stream->capture && is_overlong(params) ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
                                                       : result;
    result = op->kernel.function->module->context == stream->context
                 ? rpi_host_enqueue(stream, op, NULL)
                 : CUDA_ERROR_INVALID_HANDLE;
    rpi_host_op_drop(op);
    if (!result && event)
        result = record_programmatic(stream, event);
    return result;
}

CUresult rpi_host_cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                 unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned shared_bytes, CUstream stream,
                                 void **params, void **extra)
{
    CUDA_KERNEL_NODE_PARAMS all = {
        .func = function,
        .gridDimX = grid_x,
        .gridDimY = grid_y,
        .gridDimZ = grid_z,
        .blockDimX = block_x,
        .blockDimY = block_y,
        .blockDimZ = block_z,
        .sharedMemBytes = shared_bytes,
        .kernelParams = params,
        .extra = extra,
    };
    return launch(stream, &all, NULL, 0);
}

CUresult rpi_host_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                                   void **extra)
{
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS all = {
        .func = function,
        .gridDimX = config->gridDimX,
        .gridDimY = config->gridDimY,
        .gridDimZ = config->gridDimZ,
        .blockDimX = config->blockDimX,
        .blockDimY = config->blockDimY,
        .blockDimZ = config->blockDimZ,
        .sharedMemBytes = config->sharedMemBytes,
        .kernelParams = params,
        .extra = extra,
    };
    return launch(config->hStream, &all, config->attrs, config->numAttrs);
}
