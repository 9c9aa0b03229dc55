/* SPDX-License-Identifier: MIT
 *
 * Updating an exec to another graph of the same topology. Nodes are paired from the exits inwards:
 * exit nodes in the order of creation, then the dependencies of each pair in the order of their
 * edges. Everything is checked before anything is changed.
 */
#include "driver/host/state.h"

/* ---- one node ------------------------------------------------------------------------------ */

/* Memory of one kind stays of that kind. */
enum { PAGEABLE, PINNED, ALLOCATED, MAPPED };

static unsigned char memory_kind(uint64_t address)
{
    const struct rpi_host_span *span = rpi_host_span_of(address);
    if (!span)
        return PAGEABLE;
    if (span->kind == RPI_HOST_SPAN_PINNED)
        return PINNED;
    return span->kind == RPI_HOST_SPAN_MAPPING ? MAPPED : ALLOCATED;
}

/* To an update, and to a fill, all memory of the device is of one kind. */
static bool is_like(unsigned char a, unsigned char b)
{
    return (a == MAPPED ? ALLOCATED : a) == (b == MAPPED ? ALLOCATED : b);
}

static uint64_t source_address(const CUDA_MEMCPY3D *copy)
{
    return copy->srcMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)copy->srcHost : copy->srcDevice;
}

static uint64_t target_address(const CUDA_MEMCPY3D *copy)
{
    return copy->dstMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)copy->dstHost : copy->dstDevice;
}

void rpi_host_op_settle(struct rpi_host_op *op)
{
    rpi_assert_held(&rpi_host.lock);
    if (op->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
        op->source_kind = memory_kind(source_address(&op->copy));
        op->target_kind = memory_kind(target_address(&op->copy));
    } else if (op->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        op->target_kind = memory_kind(op->fill.dst);
    }
}

bool rpi_host_copy_moves(const struct rpi_host_op *from, struct rpi_host_op *to)
{
    rpi_assert_held(&rpi_host.lock);
    rpi_host_op_settle(to);
    return from->source_kind == to->source_kind && from->target_kind == to->target_kind;
}

static bool copy_allowed(const CUDA_MEMCPY3D *from, const CUDA_MEMCPY3D *to)
{
    if (from->srcMemoryType != to->srcMemoryType || from->dstMemoryType != to->dstMemoryType)
        return false;
    bool line = from->Height == 1 && from->Depth == 1 && to->Height == 1 && to->Depth == 1;
    return line || (from->WidthInBytes == to->WidthInBytes && from->Height == to->Height &&
                    from->Depth == to->Depth && from->srcPitch == to->srcPitch &&
                    from->dstPitch == to->dstPitch && from->srcHeight == to->srcHeight &&
                    from->dstHeight == to->dstHeight);
}

static bool fill_allowed(const CUDA_MEMSET_NODE_PARAMS *from, const CUDA_MEMSET_NODE_PARAMS *to)
{
    if (from->height != to->height)
        return false;
    return from->height == 1 || (from->width == to->width && from->pitch == to->pitch &&
                                 from->elementSize == to->elementSize);
}

static CUgraphExecUpdateResult kernel_allowed(const struct rpi_host_kernel_op *from,
                                              const struct rpi_host_kernel_op *to,
                                              bool keep_priority)
{
    if (from->cooperative != to->cooperative || (keep_priority && from->priority != to->priority) ||
        memcmp(from->cluster, to->cluster, sizeof from->cluster) != 0)
        return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
    return to->function->module->loaded ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                        : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
}

CUgraphExecUpdateResult rpi_host_update_allowed(const struct rpi_host_op *from,
                                                struct rpi_host_op *to, bool keep_priority)
{
    rpi_assert_held(&rpi_host.lock);
    bool allowed = true;
    rpi_host_op_settle(to);
    if (from->type != to->type)
        return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (from->type == CU_GRAPH_NODE_TYPE_KERNEL)
        return kernel_allowed(&from->kernel, &to->kernel, keep_priority);
    if (from->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        allowed = copy_allowed(&from->copy, &to->copy);
    else if (from->type == CU_GRAPH_NODE_TYPE_MEMSET)
        allowed = fill_allowed(&from->fill, &to->fill);
    allowed &=
        is_like(from->source_kind, to->source_kind) && is_like(from->target_kind, to->target_kind);
    return allowed ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
}

/* ---- pairing ------------------------------------------------------------------------------- */

struct pairing {
    CUgraph from, to;
    CUgraphNode *partner; /* [to's nodes]: the node of `from` */
    CUgraphNode *back;    /* [from's nodes]: the node of `to` */
    CUgraphNode *queue;   /* paired nodes of `to` whose dependencies are to be looked at */
    size_t queued;
    CUgraphExecUpdateResultInfo *info;
};

static bool refuse(struct pairing *pairing, CUgraphExecUpdateResult result, CUgraphNode node,
                   CUgraphNode dependency)
{
    *pairing->info = (CUgraphExecUpdateResultInfo){result, node, dependency};
    return false;
}

static void pair(struct pairing *pairing, CUgraphNode from, CUgraphNode to)
{
    pairing->partner[to->index] = from;
    pairing->back[from->index] = to;
    pairing->queue[pairing->queued++] = to;
}

static bool pair_exits(struct pairing *pairing)
{
    size_t i = 0;
    for (size_t j = 0; j < pairing->to->nodes.count; j++) {
        CUgraphNode to = pairing->to->nodes.data[j];
        if (to->after.count)
            continue;
        while (i < pairing->from->nodes.count && pairing->from->nodes.data[i]->after.count)
            i++;
        if (i == pairing->from->nodes.count)
            return refuse(pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, to, NULL);
        pair(pairing, pairing->from->nodes.data[i++], to);
    }
    return true;
}

static bool pair_dependencies(struct pairing *pairing, CUgraphNode to)
{
    CUgraphNode from = pairing->partner[to->index];
    if (from->before.count != to->before.count)
        return refuse(pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, to, NULL);
    for (size_t i = 0; i < to->before.count; i++) {
        const struct rpi_host_edge *old = &from->before.data[i], *new = &to->before.data[i];
        CUgraphNode partner = pairing->partner[new->node->index];
        CUgraphNode back = pairing->back[old->node->index];
        if (partner ? partner != old->node : back != NULL)
            return refuse(pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, to, new->node);
        if (memcmp(&old->data, &new->data, sizeof old->data) != 0)
            return refuse(pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, to, new->node);
        if (!partner)
            pair(pairing, old->node, new->node);
    }
    return true;
}

static bool prepare(CUgraph from, CUgraph to, bool keep_priority,
                    CUgraphExecUpdateResultInfo *out_info);

static bool check_pairs(struct pairing *pairing, bool keep_priority)
{
    for (size_t i = 0; i < pairing->to->nodes.count; i++) {
        CUgraphNode to = pairing->to->nodes.data[i], from = pairing->partner[i];
        if (!from)
            return refuse(pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, to, NULL);
        CUgraphExecUpdateResult result = rpi_host_update_allowed(from->op, to->op, keep_priority);
        if (result)
            return refuse(pairing, result, to, NULL);
        if (to->child && !prepare(from->child, to->child, keep_priority, pairing->info))
            return false;
    }
    return true;
}

/* Checks; where all is well each node of `from` remembers in `below` the node it becomes. */
static bool prepare(CUgraph from, CUgraph to, bool keep_priority,
                    CUgraphExecUpdateResultInfo *out_info)
{
    size_t count = to->nodes.count;
    struct pairing pairing = {.from = from, .to = to, .info = out_info};
    if (from->nodes.count != count)
        return refuse(&pairing, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, NULL, NULL);
    CUgraphNode *room = rpi_calloc(3 * count, sizeof(CUgraphNode));
    if (!room)
        return refuse(&pairing, CU_GRAPH_EXEC_UPDATE_ERROR, NULL, NULL);
    pairing.partner = room;
    pairing.back = room + count;
    pairing.queue = room + 2 * count;
    bool ok = pair_exits(&pairing);
    for (size_t i = 0; i < pairing.queued && ok; i++)
        ok = pair_dependencies(&pairing, pairing.queue[i]);
    ok = ok && check_pairs(&pairing, keep_priority);
    for (size_t i = 0; i < count && ok; i++)
        pairing.partner[i]->below = to->nodes.data[i];
    rpi_free(room);
    return ok;
}

static void apply(CUgraph from)
{
    for (size_t i = 0; i < from->nodes.count; i++) {
        CUgraphNode node = from->nodes.data[i];
        struct rpi_host_op *op = rpi_host_op_hold(node->below->op);
        rpi_host_op_drop(node->op);
        node->op = op;
        if (node->child)
            apply(node->child);
    }
}

CUgraphExecUpdateResult rpi_host_update(CUgraph from, CUgraph to, bool keep_priority,
                                        CUgraphExecUpdateResultInfo *out_info)
{
    rpi_assert_held(&rpi_host.lock);
    *out_info = (CUgraphExecUpdateResultInfo){0};
    if (prepare(from, to, keep_priority, out_info))
        apply(from);
    return out_info->result;
}
