/* SPDX-License-Identifier: MIT
 *
 * Operations: how each kind is done, what it reads and writes, and its name. A copy or a fill of
 * several rows is a pitch and a number of rows; a copy in three dimensions has slices of rows.
 */
#include "driver/host/state.h"

#include <stdio.h>

struct rpi_host_op *rpi_host_op_create(CUgraphNodeType type)
{
    rpi_assert_held(&rpi_host.lock);
    struct rpi_host_op *op = rpi_calloc(1, sizeof *op);
    if (op) {
        op->references = 1;
        op->type = type;
    }
    return op;
}

struct rpi_host_op *rpi_host_op_hold(struct rpi_host_op *op)
{
    rpi_assert_held(&rpi_host.lock);
    op->references++;
    return op;
}

void rpi_host_op_drop(struct rpi_host_op *op)
{
    rpi_assert_held(&rpi_host.lock);
    if (!op || --op->references > 0)
        return;
    if (op->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        if (op->kernel.function)
            rpi_host_module_drop(op->kernel.function->module);
        rpi_free(op->kernel.params);
    }
    rpi_free(op->staging);
    rpi_free(op);
}

/* One side of a copy: where its first byte lies, and the distances of rows and slices. */
struct side {
    uint64_t base, row, slice;
};

static struct side source_of(const struct rpi_host_op *op)
{
    const CUDA_MEMCPY3D *c = &op->copy;
    if (op->staging)
        return (struct side){(uintptr_t)op->staging, c->WidthInBytes, c->WidthInBytes * c->Height};
    struct side side = {c->srcMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)c->srcHost
                                                               : (uintptr_t)c->srcDevice,
                        c->srcPitch, c->srcPitch * c->srcHeight};
    side.base += c->srcZ * side.slice + c->srcY * side.row + c->srcXInBytes;
    return side;
}

static struct side target_of(const struct rpi_host_op *op)
{
    const CUDA_MEMCPY3D *c = &op->copy;
    struct side side = {c->dstMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)c->dstHost
                                                               : (uintptr_t)c->dstDevice,
                        c->dstPitch, c->dstPitch * c->dstHeight};
    side.base += c->dstZ * side.slice + c->dstY * side.row + c->dstXInBytes;
    return side;
}

static void run_copy(const struct rpi_host_op *op)
{
    struct side from = source_of(op), to = target_of(op);
    for (size_t z = 0; z < op->copy.Depth; z++)
        for (size_t y = 0; y < op->copy.Height; y++)
            memmove((void *)(uintptr_t)(to.base + z * to.slice + y * to.row),
                    (const void *)(uintptr_t)(from.base + z * from.slice + y * from.row),
                    op->copy.WidthInBytes);
}

static void fill_row(unsigned char *row, const CUDA_MEMSET_NODE_PARAMS *fill)
{
    if (fill->elementSize == 1) {
        memset(row, (int)fill->value, fill->width);
        return;
    }
    unsigned short half = (unsigned short)fill->value;
    for (size_t i = 0; i < fill->width; i++) {
        if (fill->elementSize == 2)
            memcpy(row + i * 2, &half, 2);
        else
            memcpy(row + i * 4, &fill->value, 4);
    }
}

static void run_kernel(const struct rpi_host_kernel_op *kernel)
{
    struct rp_host_launch launch = {.shared_bytes = kernel->shared_bytes,
                                    .params = kernel->params,
                                    .kernel = kernel->function->kernel};
    memcpy(launch.grid, kernel->grid, sizeof launch.grid);
    memcpy(launch.block, kernel->block, sizeof launch.block);
    memcpy(launch.cluster, kernel->cluster, sizeof launch.cluster);
    kernel->function->kernel->run(&launch);
}

void rpi_host_op_run(const struct rpi_host_op *op)
{
    switch (op->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        run_kernel(&op->kernel);
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        run_copy(op);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        for (size_t y = 0; y < op->fill.height; y++)
            fill_row((unsigned char *)(uintptr_t)(op->fill.dst + y * op->fill.pitch), &op->fill);
        break;
    case CU_GRAPH_NODE_TYPE_HOST:
        op->host.fn(op->host.userData);
        break;
    default:
        break; /* empty and event nodes are only points in the order */
    }
}

static void report_rows(struct side side, const CUDA_MEMCPY3D *copy, rp_host_access report,
                        void *context, int is_write)
{
    for (size_t z = 0; z < copy->Depth; z++) {
        if (side.row == copy->WidthInBytes) {
            report(context, side.base + z * side.slice, side.row * copy->Height, is_write);
            continue;
        }
        for (size_t y = 0; y < copy->Height; y++)
            report(context, side.base + z * side.slice + y * side.row, copy->WidthInBytes,
                   is_write);
    }
}

void rpi_host_op_accesses(const struct rpi_host_op *op, rp_host_access report, void *context)
{
    rpi_assert_held(&rpi_host.lock);
    if (op->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        const struct rpi_host_kernel_op *kernel = &op->kernel;
        if (!kernel->function->kernel->access)
            return;
        struct rp_host_launch launch = {.shared_bytes = kernel->shared_bytes,
                                        .params = kernel->params,
                                        .kernel = kernel->function->kernel};
        memcpy(launch.grid, kernel->grid, sizeof launch.grid);
        memcpy(launch.block, kernel->block, sizeof launch.block);
        memcpy(launch.cluster, kernel->cluster, sizeof launch.cluster);
        kernel->function->kernel->access(&launch, report, context);
    } else if (op->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        if (!op->staging)
            report_rows(source_of(op), &op->copy, report, context, 0);
        report_rows(target_of(op), &op->copy, report, context, 1);
    } else if (op->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        for (size_t y = 0; y < op->fill.height; y++)
            report(context, op->fill.dst + y * op->fill.pitch,
                   op->fill.width * op->fill.elementSize, 1);
    }
}

void rpi_host_op_name(const struct rpi_host_op *op, char *out_name, size_t capacity)
{
    rpi_assert_held(&rpi_host.lock);
    static const char *const names[] = {
        [CU_GRAPH_NODE_TYPE_KERNEL] = "kernel",   [CU_GRAPH_NODE_TYPE_MEMCPY] = "memcpy",
        [CU_GRAPH_NODE_TYPE_MEMSET] = "memset",   [CU_GRAPH_NODE_TYPE_HOST] = "host function",
        [CU_GRAPH_NODE_TYPE_GRAPH] = "graph",     [CU_GRAPH_NODE_TYPE_EMPTY] = "empty",
        [CU_GRAPH_NODE_TYPE_WAIT_EVENT] = "wait", [CU_GRAPH_NODE_TYPE_EVENT_RECORD] = "record",
    };
    const char *name =
        op->type == CU_GRAPH_NODE_TYPE_KERNEL ? op->kernel.function->kernel->name : names[op->type];
    snprintf(out_name, capacity, "%s", name);
}

/* ---- making copies and fills --------------------------------------------------------------- */

/* The distance from the first byte that is touched to past the last; false on overflow. */
static bool extent_of(const CUDA_MEMCPY3D *copy, struct side side, uint64_t *out_bytes)
{
    const uint64_t most = (uint64_t)1 << 48;
    if (copy->WidthInBytes > most || copy->Height > most || copy->Depth > most || side.row > most ||
        side.slice > most || copy->Height * side.row > most || copy->Depth * side.slice > most)
        return false;
    *out_bytes =
        (copy->Depth - 1) * side.slice + (copy->Height - 1) * side.row + copy->WidthInBytes;
    return true;
}

static bool side_is_valid(const CUDA_MEMCPY3D *copy, CUmemorytype type, struct side side,
                          bool write)
{
    uint64_t bytes;
    if (!extent_of(copy, side, &bytes))
        return false;
    if (type == CU_MEMORYTYPE_DEVICE || rpi_host_reserved(side.base))
        return rpi_host_accessible(side.base, bytes, write);
    return side.base != 0;
}

/* A unified address is what memory it lies in says; memory that the driver does not know is the
 * program's own. */
static CUmemorytype type_of(CUmemorytype type, uint64_t address)
{
    if (type != CU_MEMORYTYPE_UNIFIED)
        return type;
    const struct rpi_host_span *span = rpi_host_span_of(address);
    if (span)
        return span->kind == RPI_HOST_SPAN_PINNED ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    return rpi_host_reserved(address) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

static bool pitch_is_valid(const CUDA_MEMCPY3D *copy, size_t x, size_t pitch, size_t height)
{
    bool rows = copy->Height > 1 || copy->Depth > 1;
    if (rows && pitch < copy->WidthInBytes + x)
        return false;
    return copy->Depth <= 1 || height >= copy->Height;
}

/* Memory types made definite, the pointer in the field that belongs to the type. */
static bool settle_types(CUDA_MEMCPY3D *c)
{
    bool unified_source = c->srcMemoryType == CU_MEMORYTYPE_UNIFIED;
    bool unified_target = c->dstMemoryType == CU_MEMORYTYPE_UNIFIED;
    c->srcMemoryType = type_of(c->srcMemoryType, c->srcDevice);
    c->dstMemoryType = type_of(c->dstMemoryType, c->dstDevice);
    if ((c->srcMemoryType != CU_MEMORYTYPE_HOST && c->srcMemoryType != CU_MEMORYTYPE_DEVICE) ||
        (c->dstMemoryType != CU_MEMORYTYPE_HOST && c->dstMemoryType != CU_MEMORYTYPE_DEVICE))
        return false;
    if (unified_source && c->srcMemoryType == CU_MEMORYTYPE_HOST)
        c->srcHost = (const void *)(uintptr_t)c->srcDevice;
    if (unified_target && c->dstMemoryType == CU_MEMORYTYPE_HOST)
        c->dstHost = (void *)(uintptr_t)c->dstDevice;
    return true;
}

static bool fill_has_memory(const CUDA_MEMSET_NODE_PARAMS *fill)
{
    uint64_t rows = fill->height > 1 ? (fill->height - 1) * fill->pitch : 0;
    return rpi_host_accessible(fill->dst, rows + fill->width * fill->elementSize, true);
}

bool rpi_host_op_has_memory(const struct rpi_host_op *op)
{
    rpi_assert_held(&rpi_host.lock);
    if (op->type == CU_GRAPH_NODE_TYPE_MEMSET)
        return fill_has_memory(&op->fill);
    if (op->type != CU_GRAPH_NODE_TYPE_MEMCPY)
        return true;
    const CUDA_MEMCPY3D *copy = &op->copy;
    return side_is_valid(copy, copy->srcMemoryType, source_of(op), false) &&
           side_is_valid(copy, copy->dstMemoryType, target_of(op), true);
}

CUresult rpi_host_copy_op(const CUDA_MEMCPY3D *copy, struct rpi_host_op **out_op)
{
    rpi_assert_held(&rpi_host.lock);
    CUDA_MEMCPY3D c = *copy;
    if (c.WidthInBytes == 0 || c.Height == 0 || c.Depth == 0 || c.srcLOD || c.dstLOD ||
        c.reserved0 || c.reserved1 || !settle_types(&c) ||
        !pitch_is_valid(&c, c.srcXInBytes, c.srcPitch, c.srcHeight) ||
        !pitch_is_valid(&c, c.dstXInBytes, c.dstPitch, c.dstHeight))
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_op *op = rpi_host_op_create(CU_GRAPH_NODE_TYPE_MEMCPY);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->copy = c;
    if (!rpi_host_op_has_memory(op)) {
        rpi_host_op_drop(op);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *out_op = op;
    return CUDA_SUCCESS;
}

CUresult rpi_host_fill_op(const CUDA_MEMSET_NODE_PARAMS *fill, bool captured,
                          struct rpi_host_op **out_op)
{
    rpi_assert_held(&rpi_host.lock);
    uint64_t size = fill->elementSize;
    if ((size != 1 && size != 2 && size != 4) || fill->width == 0 || fill->height == 0 ||
        fill->dst % size || fill->width > ((uint64_t)1 << 48) / size)
        return CUDA_ERROR_INVALID_VALUE;
    if (fill->height > 1 && (fill->pitch < fill->width * size || fill->pitch % size ||
                             fill->pitch > ((uint64_t)1 << 48) / fill->height))
        return CUDA_ERROR_INVALID_VALUE;
    if (!captured && !fill_has_memory(fill))
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_op *op = rpi_host_op_create(CU_GRAPH_NODE_TYPE_MEMSET);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->fill = *fill;
    *out_op = op;
    return CUDA_SUCCESS;
}

CUresult rpi_host_function_op(const CUDA_HOST_NODE_PARAMS *params, struct rpi_host_op **out_op)
{
    rpi_assert_held(&rpi_host.lock);
    if (!params->fn)
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_op *op = rpi_host_op_create(CU_GRAPH_NODE_TYPE_HOST);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->host = *params;
    *out_op = op;
    return CUDA_SUCCESS;
}
