/* SPDX-License-Identifier: MIT */
#include "graph/bind.h"

#include <assert.h>
#include <stdlib.h>

/* Libraries choose kernels by alignments up to this one. */
enum { MOST_ALIGNMENT = 256 };

const char *rpi_copy_reason_text(enum rpi_copy_reason reason)
{
    static const char *const texts[] = {
#define X(name, text) text,
        RPI_COPY_REASONS(X)
#undef X
    };
    return texts[reason];
}

void rpi_binding_finish(struct rpi_binding *binding)
{
    for (size_t i = 0; i < binding->images.count; i++)
        rpi_node_image_finish(&binding->images.data[i]);
    rpi_vec_finish(&binding->images);
    rpi_vec_finish(&binding->nodes);
    rpi_vec_finish(&binding->sites);
    rpi_free(binding->args);
    rpi_free(binding->order);
    *binding = (struct rpi_binding){0};
}

void rpi_binding_demote(struct rpi_binding *binding, size_t arg, enum rpi_copy_reason reason)
{
    struct rpi_bind_arg *demoted = &binding->args[arg];
    if (demoted->never == RPI_COPY_NOT)
        demoted->never = reason;
    demoted->reason = demoted->never;
    demoted->target = demoted->staging;
}

/* ---- What can be bound --------------------------------------------------------------------- */

static rp_status no_memory(struct rp_error *err, size_t bytes)
{
    return rpi_error_host_memory(err, "rp_graph_capture", bytes);
}

static rp_status init_args(struct rpi_binding *binding, const struct rpi_comparison *comparison,
                           const struct rpi_recorded *recorded, const struct rp_arg *args,
                           struct rp_error *err)
{
    size_t count = binding->arg_count;
    binding->args = rpi_calloc(count + 1, sizeof *binding->args);
    binding->order = rpi_calloc(count + 1, sizeof *binding->order);
    if (!binding->args || !binding->order)
        return no_memory(err, count * sizeof *binding->args);
    for (size_t k = 0; k < count; k++) {
        uint64_t staging = recorded->addresses.data[k];
        binding->order[k] = (uint32_t)k;
        binding->args[k] = (struct rpi_bind_arg){
            .staging = staging, .bytes = args[k].bytes, .role = args[k].role, .target = staging};
        if (comparison->hidden)
            rpi_binding_demote(binding, k, RPI_COPY_HIDDEN);
    }
    for (size_t i = 0; i < comparison->doubtful.count; i++)
        rpi_binding_demote(binding, comparison->doubtful.data[i], RPI_COPY_DOUBTFUL);
    return RP_OK;
}

/* Can an exec change this node? */
static enum rpi_copy_reason judge_node(const struct rpi_params *params)
{
    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL || params->type == CU_GRAPH_NODE_TYPE_MEMSET)
        return RPI_COPY_NOT;
    assert(params->type == CU_GRAPH_NODE_TYPE_MEMCPY); /* no other node has fields with sites */
    CUDA_MEMCPY3D copy;
    memcpy(&copy, params->image.data, sizeof copy);
    return copy.Height > 1 || copy.Depth > 1 ? RPI_COPY_ROWS : RPI_COPY_NOT;
}

static void demote_block(struct rpi_binding *binding, uint32_t block, enum rpi_copy_reason reason)
{
    if (block < binding->arg_count && reason != RPI_COPY_NOT)
        rpi_binding_demote(binding, block, reason);
}

/* Of two proved words that share bytes one is there by chance. */
static void demote_shared_bytes(struct rpi_binding *binding, const struct rpi_site *sites,
                                size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t j = i + 1; j < count; j++) {
            uint32_t a = sites[i].offset, b = sites[j].offset;
            if (a < b + 8 && b < a + 8) {
                demote_block(binding, sites[i].block, RPI_COPY_DOUBTFUL);
                demote_block(binding, sites[j].block, RPI_COPY_DOUBTFUL);
            }
        }
    }
}

/* One node's sites, [first, end) of the template's: demotes arguments, makes the image. */
static rp_status add_node(struct rpi_binding *binding, struct rpi_params *params,
                          const struct rp_driver *driver, CUgraphNode node,
                          const struct rpi_sites *sites, size_t first, size_t end,
                          struct rp_error *err)
{
    rp_status status = rpi_params_read(params, driver, node, err);
    if (status != RP_OK)
        return status;
    enum rpi_copy_reason reason = judge_node(params);
    for (size_t i = first; i < end; i++)
        demote_block(binding, sites->data[i].block, reason);
    demote_shared_bytes(binding, sites->data + first, end - first);
    struct rpi_node_image image;
    if (!rpi_vec_reserve(&binding->images, binding->images.count + 1) ||
        !rpi_vec_reserve(&binding->nodes, binding->nodes.count + 1))
        return no_memory(err, sizeof image);
    status = rpi_node_image_init(&image, params, err);
    if (status != RP_OK)
        return status;
    binding->images.data[binding->images.count++] = image;
    binding->nodes.data[binding->nodes.count++] = sites->data[first].node;
    return RP_OK;
}

/* Images of the nodes that hold addresses of arguments; the rest stays as it was recorded. */
static rp_status add_nodes(struct rpi_binding *binding, const struct rp_driver *driver,
                           const CUgraphNode *nodes, const struct rpi_sites *sites,
                           struct rp_error *err)
{
    struct rpi_params params = {0};
    rp_status status = RP_OK;
    for (size_t i = 0, end; status == RP_OK && i < sites->count; i = end) {
        bool uses_args = false;
        for (end = i; end < sites->count && sites->data[end].node == sites->data[i].node; end++) {
            uint32_t block = sites->data[end].block;
            uses_args |= block < binding->arg_count;
            if (block < binding->arg_count)
                binding->args[block].all_sites++;
        }
        /* No handle: the node lies in a child graph. */
        if (nodes[sites->data[i].node]) {
            if (uses_args)
                status = add_node(binding, &params, driver, nodes[sites->data[i].node], sites, i,
                                  end, err);
            continue;
        }
        for (size_t j = i; j < end; j++)
            demote_block(binding, sites->data[j].block, RPI_COPY_CHILD);
    }
    rpi_params_finish(&params);
    return status;
}

/* The sites of arguments that can be bound, sorted by argument: a counting sort. */
static rp_status sort_sites(struct rpi_binding *binding, const struct rpi_sites *sites,
                            struct rp_error *err)
{
    size_t total = 0;
    for (size_t k = 0; k < binding->arg_count; k++) {
        struct rpi_bind_arg *arg = &binding->args[k];
        if (arg->never == RPI_COPY_NOT && !arg->all_sites)
            rpi_binding_demote(binding, k, RPI_COPY_UNUSED);
        arg->first_site = total;
        total += arg->never == RPI_COPY_NOT ? arg->all_sites : 0;
    }
    if (!rpi_vec_reserve(&binding->sites, total + 1))
        return no_memory(err, total * sizeof *binding->sites.data);
    binding->sites.count = total;
    size_t image = 0;
    for (size_t i = 0; i < sites->count; i++) {
        const struct rpi_site *site = &sites->data[i];
        if (site->block >= binding->arg_count || binding->args[site->block].never != RPI_COPY_NOT)
            continue;
        while (binding->nodes.data[image] != site->node)
            image++;
        struct rpi_bind_arg *arg = &binding->args[site->block];
        binding->sites.data[arg->first_site + arg->site_count++] =
            (struct rpi_bind_site){(uint32_t)image, site->offset, site->delta};
    }
    return RP_OK;
}

rp_status rpi_binding_init(struct rpi_binding *binding, const struct rp_graph *graph,
                           const CUgraphNode *nodes, const struct rpi_comparison *comparison,
                           const struct rpi_recorded *recorded, const struct rp_arg *args,
                           struct rp_error *err)
{
    const struct rpi_pool *memory = &graph->pool->core->memory;
    uint64_t alignment = memory->alignment;
    *binding = (struct rpi_binding){
        .alignment = alignment < MOST_ALIGNMENT ? alignment : MOST_ALIGNMENT,
        .pool_base = memory->arena.base,
        .own = &graph->member.all,
        .arg_count = graph->arg_count,
    };
    rp_status status = init_args(binding, comparison, recorded, args, err);
    if (status == RP_OK)
        status = add_nodes(binding, graph->pool->device->driver, nodes, &comparison->sites, err);
    if (status == RP_OK)
        status = sort_sites(binding, &comparison->sites, err);
    if (status != RP_OK)
        rpi_binding_finish(binding);
    return status;
}

/* ---- What is bound in a call --------------------------------------------------------------- */

/* Sorts by address. The order of the last call is where it starts from: mostly little is to do, and
 * Shell's gaps keep the rest below the square. */
static void sort_by_address(struct rpi_binding *binding)
{
    static const size_t gaps[] = {1750, 701, 301, 132, 57, 23, 10, 4, 1};
    uint32_t *order = binding->order;
    for (size_t g = 0; g < sizeof gaps / sizeof *gaps; g++) {
        size_t gap = gaps[g];
        for (size_t i = gap; i < binding->arg_count; i++) {
            uint32_t moved = order[i];
            size_t j = i;
            for (; j >= gap && binding->args[order[j - gap]].given > binding->args[moved].given;
                 j -= gap)
                order[j] = order[j - gap];
            order[j] = moved;
        }
    }
}

/* Leaves as bound only arguments of which no two overlap where one is written: those that begin
 * lower stay. */
static void separate(struct rpi_binding *binding)
{
    uint64_t end_of_any = 0, end_of_written = 0;
    sort_by_address(binding);
    for (size_t i = 0; i < binding->arg_count; i++) {
        struct rpi_bind_arg *arg = &binding->args[binding->order[i]];
        if (arg->reason != RPI_COPY_NOT)
            continue;
        bool written = arg->role != RP_ARG_IN;
        if (arg->given < end_of_written || (written && arg->given < end_of_any)) {
            arg->reason = RPI_COPY_OVERLAPS;
            arg->target = arg->staging;
            continue;
        }
        uint64_t end = arg->given + arg->bytes;
        if (end_of_any < end)
            end_of_any = end;
        if (written && end_of_written < end)
            end_of_written = end;
    }
}

static enum rpi_copy_reason judge(const struct rpi_binding *binding, const struct rpi_bind_arg *arg)
{
    if (!arg->bytes)
        return RPI_COPY_EMPTY;
    if (arg->never != RPI_COPY_NOT)
        return arg->never;
    if (arg->given % binding->alignment)
        return RPI_COPY_UNALIGNED;
    uint64_t end = arg->given + arg->bytes;
    if (end < arg->given)
        return RPI_COPY_OVERLAPS; /* no device has such a range; the copy says so */
    uint64_t base = binding->pool_base;
    if (end > base &&
        rpi_ranges_overlap(binding->own, arg->given > base ? arg->given - base : 0, end - base))
        return RPI_COPY_OWN;
    return RPI_COPY_NOT;
}

void rpi_binding_choose(struct rpi_binding *binding, const struct rp_arg *args)
{
    bool changed = !binding->chosen;
    binding->chosen = true;
    for (size_t k = 0; k < binding->arg_count; k++) {
        changed |= binding->args[k].given != args[k].address;
        binding->args[k].given = args[k].address;
    }
    if (!changed)
        return;
    for (size_t k = 0; k < binding->arg_count; k++) {
        struct rpi_bind_arg *arg = &binding->args[k];
        arg->reason = judge(binding, arg);
        arg->target = arg->reason == RPI_COPY_NOT ? arg->given : arg->staging;
    }
    separate(binding);
}
