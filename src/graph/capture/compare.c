/* SPDX-License-Identifier: MIT */
#include "graph/capture/compare.h"

#include "base/hostmem.h"
#include "graph/capture/word_proof.h"
#include "graph/template/params.h"
#include "graph/template/view.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- Nodes --------------------------------------------------------------------------------- */

static const char *attributes_differ(const struct rp_driver *driver, CUgraphNode before,
                                     CUgraphNode after)
{
    static const struct {
        CUkernelNodeAttrID id;
        size_t bytes;
        const char *name;
    } attributes[] = {
        {CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, 12, "its cluster size changed"},
        {CU_LAUNCH_ATTRIBUTE_COOPERATIVE, sizeof(int), "whether it is cooperative changed"},
        {CU_LAUNCH_ATTRIBUTE_PRIORITY, sizeof(int), "its priority changed"},
    };
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        CUkernelNodeAttrValue a = {{0}}, b = {{0}};
        CUresult first = driver->cuGraphKernelNodeGetAttribute(before, attributes[i].id, &a);
        CUresult second = driver->cuGraphKernelNodeGetAttribute(after, attributes[i].id, &b);
        if (first == CUDA_SUCCESS && second == CUDA_SUCCESS &&
            memcmp(&a, &b, attributes[i].bytes) != 0)
            return attributes[i].name;
    }
    return NULL;
}

const char *rpi_kernels_differ(const struct rp_driver *driver, const struct rpi_params *before,
                               const struct rpi_params *after, CUgraphNode node_before,
                               CUgraphNode node_after)
{
    const CUDA_KERNEL_NODE_PARAMS *a = &before->kernel, *b = &after->kernel;
    if (a->func != b->func || a->kern != b->kern)
        return "it was another kernel";
    if (a->gridDimX != b->gridDimX || a->gridDimY != b->gridDimY || a->gridDimZ != b->gridDimZ)
        return "its grid changed";
    if (a->blockDimX != b->blockDimX || a->blockDimY != b->blockDimY ||
        a->blockDimZ != b->blockDimZ)
        return "its block size changed";
    if (a->sharedMemBytes != b->sharedMemBytes)
        return "its shared memory changed";
    return attributes_differ(driver, node_before, node_after);
}

static rp_status compare_kernels(struct rpi_comparing *c, CUgraphNode before, CUgraphNode after,
                                 struct rp_error *err)
{
    const char *difference = rpi_kernels_differ(c->driver, &c->before, &c->after, before, after);
    if (difference)
        return rpi_node_diverged(c, err, difference);
    if (c->after.kernel.kernelParams && !(c->driver->capabilities & RPI_CAP_PARAM_INFO))
        return rpi_node_unsupported(
            c, err,
            "this driver does not tell the sizes of a kernel's parameters, so that "
            "they cannot be compared. A driver of CUDA 12.4 or later does; "
            "parameters in one packed buffer work with this one too");
    return RP_OK;
}

static rp_status compare_graphs(struct rpi_comparing *c, CUgraph before, CUgraph after,
                                size_t *out_nodes, size_t *out_edges, struct rp_error *err);

/* Nodes whose parameters are not all read could hold addresses that nobody compares: none is taken
 * on trust. */
static rp_status check_type(const struct rpi_comparing *c, struct rp_error *err)
{
    switch (c->after.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return RP_OK;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return rpi_node_unsupported(
            c, err,
            "memory of the driver's own pools cannot be planned. Allocate with "
            "rp_call_alloc and free with rp_call_free");
    default:
        return rpi_node_unsupported(
            c, err,
            "what a node of this type uses cannot be compared between two captures. "
            "Do this work outside the callable");
    }
}

static bool is_event(CUgraphNodeType type)
{
    return type == CU_GRAPH_NODE_TYPE_WAIT_EVENT || type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
}

static CUevent event_of(const struct rpi_params *params)
{
    assert(is_event(params->type) && params->image.count >= sizeof(CUevent));
    CUevent event;
    memcpy(&event, params->image.data, sizeof event);
    return event;
}

/* Its parameters are suspects, as far as nothing explains them. What lies between two is padding.
 */
static rp_status suspect_kernel(struct rpi_comparing *c, struct rp_error *err)
{
    enum { WORD = 8 };
    uint32_t bytes = (uint32_t)c->after.image.count, end = 0;
    bool tells_fields = (c->driver->capabilities & RPI_CAP_PARAM_INFO) && c->after.kernel.func;
    if (!rpi_suspects_add(&c->suspects, c->after.kernel.func, c->node, c->before.image.data,
                          c->after.image.data, bytes))
        return rpi_error_host_memory(err, "rp_graph_capture", bytes);
    for (size_t i = 0; i < c->after.fields.count; i++) {
        const struct rpi_field *field = &c->after.fields.data[i];
        assert(field->offset + field->bytes <= bytes);
        if (field->offset > end)
            rpi_word_proof_explain(c, end, field->offset - end);
        if (tells_fields && field->bytes >= WORD)
            rpi_suspects_mark(&c->suspects, field->offset, field->bytes, RPI_BYTE_OF_STRUCT);
        end = field->offset + field->bytes;
    }
    if (end < bytes)
        rpi_word_proof_explain(c, end, bytes - end);
    return RP_OK;
}

static rp_status compare_node(struct rpi_comparing *c, CUgraphNode before, CUgraphNode after,
                              struct rp_error *err)
{
    rp_status status = rpi_params_read(&c->before, c->driver, before, err);
    if (status == RP_OK)
        status = rpi_params_read(&c->after, c->driver, after, err);
    if (status != RP_OK)
        return status;
    if (c->before.type != c->after.type)
        return rpi_node_diverged(c, err, "it was of another type");
    status = check_type(c, err);
    if (status == RP_OK && c->after.type == CU_GRAPH_NODE_TYPE_KERNEL)
        status = compare_kernels(c, before, after, err);
    if (status == RP_OK && is_event(c->after.type) && event_of(&c->before) != event_of(&c->after))
        status =
            rpi_node_diverged(c, err, "it was another event. Create it outside of the callable");
    if (status == RP_OK && (c->before.image.count != c->after.image.count ||
                            c->before.fields.count != c->after.fields.count))
        status = rpi_node_diverged(c, err, "the size of its parameters changed");
    if (status == RP_OK && c->scalars.count && c->after.type == CU_GRAPH_NODE_TYPE_KERNEL)
        status = suspect_kernel(c, err);
    for (size_t i = 0; status == RP_OK && i < c->after.fields.count; i++)
        status = rpi_word_proof_field(c, &c->after.fields.data[i], err);
    if (status == RP_OK && rpi_copies_from_host(&c->after))
        status = rpi_word_proof_host_data(c, err);
    c->made.hidden |= c->after.hidden;
    CUgraph child_before = c->before.child, child_after = c->after.child;
    size_t nodes, edges;
    c->node++;
    if (status == RP_OK && child_after)
        status = compare_graphs(c, child_before, child_after, &nodes, &edges, err);
    return status;
}

/* ---- Graphs -------------------------------------------------------------------------------- */

static rp_status compare_counts(const struct rpi_comparing *c, const char *what, size_t before,
                                size_t after, struct rp_error *err)
{
    if (before == after)
        return RP_OK;
    return rpi_error(err, RP_ERROR_DIVERGED, "rp_graph_capture",
                     "'%.60s': the first capture has %zu %s, the second %zu. The callable must do "
                     "the same each time",
                     c->rehearsal->record.name, before, what, after);
}

static rp_status compare_edges(const struct rpi_comparing *c,
                               const struct rpi_template_view *before,
                               const struct rpi_template_view *after, struct rp_error *err)
{
    assert(before->edge_count == after->edge_count);
    for (size_t i = 0; i < after->edge_count; i++) {
        const struct rpi_edge *edge = &after->edges[i];
        if (rpi_edge_compare(&before->edges[i], edge) != 0)
            return rpi_error(err, RP_ERROR_DIVERGED, "rp_graph_capture",
                             "'%.60s': the edge from node %u to node %u is not the same in two "
                             "captures of the same work. The callable must do the same each time",
                             c->rehearsal->record.name, edge->from, edge->to);
    }
    return RP_OK;
}

static rp_status compare_views(struct rpi_comparing *c, const struct rpi_template_view *before,
                               const struct rpi_template_view *after, struct rp_error *err)
{
    /* Nodes first, as far as both go: the first node that differs says more than a count. */
    size_t count = before->node_count < after->node_count ? before->node_count : after->node_count;
    rp_status status = RP_OK;
    for (size_t i = 0; status == RP_OK && i < count; i++)
        status = compare_node(c, before->nodes[i], after->nodes[i], err);
    if (status == RP_OK)
        status = compare_counts(c, "nodes", before->node_count, after->node_count, err);
    if (status == RP_OK)
        status = compare_counts(c, "edges", before->edge_count, after->edge_count, err);
    if (status == RP_OK)
        status = compare_edges(c, before, after, err);
    return status;
}

static rp_status compare_graphs(struct rpi_comparing *c, CUgraph before, CUgraph after,
                                size_t *out_nodes, size_t *out_edges, struct rp_error *err)
{
    struct rpi_template_view first = {0}, second = {0};
    rp_status status = rpi_view_read(&first, c->driver, before, err);
    if (status == RP_OK)
        status = rpi_view_read(&second, c->driver, after, err);
    if (status == RP_OK)
        status = compare_views(c, &first, &second, err);
    *out_nodes = second.node_count;
    *out_edges = second.edge_count;
    rpi_view_finish(&first);
    rpi_view_finish(&second);
    return status;
}

static rp_status compare_named(const struct rpi_rehearsal *rehearsal, const char *what,
                               const char *function, size_t before, size_t after,
                               struct rp_error *err)
{
    if (before == after)
        return RP_OK;
    return rpi_error(err, RP_ERROR_DIVERGED, "rp_graph_capture",
                     "'%.60s': the callable named %zu %s (%s), and %zu in its rehearsal. It must "
                     "name the same in each run",
                     rehearsal->record.name, after, what, function, before);
}

/* Nothing else differs: what is suspect does. */
static rp_status judge_suspects(struct rpi_comparing *c, struct rp_error *err)
{
    enum { UNIT = 4 };
    struct rpi_suspect first;
    if (!rpi_suspects_complete(&c->suspects, c->earlier, c->earlier_count, &first))
        return RP_OK;
    uint32_t offset = first.offset & ~(uint32_t)(UNIT - 1), words[RPI_RUNS] = {0};
    assert(first.offset < first.node->bytes);
    uint32_t bytes = first.node->bytes - offset < UNIT ? first.node->bytes - offset : UNIT;
    for (size_t run = 0; run < RPI_RUNS; run++)
        memcpy(&words[run], c->suspects.images[run].data + first.node->first + offset, bytes);
    char difference[224];
    snprintf(difference, sizeof difference,
             "the number at byte %u of its parameters was 0x%" PRIx32 ", and is 0x%" PRIx32
             " now%s, which is no form of a scalar that was named (rp_call_scalar)",
             offset, words[0], words[1], words[0] == words[1] ? " and was another before" : "");
    c->node = first.node->node;
    c->after.type = CU_GRAPH_NODE_TYPE_KERNEL;
    c->after.kernel.func = (CUfunction)first.node->kernel;
    return rpi_node_diverged(c, err, difference);
}

rp_status rpi_compare(const struct rp_pool *pool, const struct rpi_rehearsal *rehearsal,
                      const struct rpi_recorded *recorded, size_t arg_count,
                      const struct rpi_in_use *in_use, const struct rpi_suspects *earlier,
                      size_t earlier_count, struct rpi_suspects *out_suspects,
                      struct rpi_comparison *out_comparison, struct rp_error *err)
{
    assert(earlier_count < RPI_MOST_ATTEMPTS);
    struct rpi_comparing c = {.driver = pool->device->driver,
                              .rehearsal_range = &pool->device->rehearsal_range,
                              .eager = &pool->core->eager,
                              .pool = &pool->core->memory.arena,
                              .staging = &pool->core->staging,
                              .home = pool,
                              .heaps = &pool->device->heaps,
                              .rehearsal = rehearsal,
                              .recorded = recorded,
                              .in_use = in_use,
                              .earlier = earlier,
                              .earlier_count = earlier_count,
                              .arg_count = arg_count};
    rp_status status = rpi_word_proof_order(&c, err);
    if (status == RP_OK && !rpi_suspects_init(&c.suspects, &rehearsal->scalars, &recorded->scalars))
        status = rpi_error_host_memory(err, "rp_graph_capture",
                                       rehearsal->scalars.count * sizeof(double));
    if (status == RP_OK)
        status = compare_named(rehearsal, "scalars", "rp_call_scalar", rehearsal->scalars.count,
                               recorded->scalars.count, err);
    if (status == RP_OK)
        status = rpi_scalar_table_init(&c.scalars, &rehearsal->scalars, &recorded->scalars, err);
    if (status == RP_OK)
        status = compare_graphs(&c, rehearsal->template, recorded->template, &c.made.nodes,
                                &c.made.edges, err);
    if (status == RP_OK)
        status = compare_named(rehearsal, "values", "rp_call_value", rehearsal->values,
                               recorded->values.count, err);
    if (status == RP_OK)
        status = judge_suspects(&c, err);
    *out_suspects = c.suspects;
    rpi_scalar_table_finish(&c.scalars);
    rpi_free(c.order);
    rpi_params_finish(&c.before);
    rpi_params_finish(&c.after);
    out_comparison->may_be_left_over = c.made.may_be_left_over;
    if (status == RP_OK)
        *out_comparison = c.made;
    else
        rpi_comparison_finish(&c.made);
    return status;
}

void rpi_comparison_finish(struct rpi_comparison *comparison)
{
    rpi_vec_finish(&comparison->sites);
    rpi_vec_finish(&comparison->scalars);
    rpi_vec_finish(&comparison->doubtful);
    rpi_vec_finish(&comparison->foreign);
    rpi_vec_finish(&comparison->outside);
    rpi_vec_finish(&comparison->tabled);
    comparison->may_be_left_over = false;
}
