/* SPDX-License-Identifier: MIT */
#include "graph/replay/argument_memory.h"

#include "base/held.h"
#include "graph/objects/objects.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_KNOWN = 4096 }; /* ranges that are kept; they start over then */

struct asked {
    struct rp_graph *graph;
    const struct rp_arg *arg;
    size_t index;
};

__attribute__((format(printf, 3, 4))) static rp_status
refuse(const struct asked *a, struct rp_error *err, const char *format, ...)
{
    char why[320];
    va_list values;
    va_start(values, format);
    vsnprintf(why, sizeof why, format, values);
    va_end(values);
    return rpi_error(err, RP_ERROR_CONTRACT, "rp_graph_replay",
                     "argument %zu of graph '%.60s', %" PRIu64 " bytes at 0x%" PRIx64 ", %s",
                     a->index, a->graph->name, a->arg->bytes, a->arg->address, why);
}

/* ---- In the pool's own memory --------------------------------------------------------------- */

/* The kept block that holds the range, UINT32_MAX when none does. */
static uint32_t find_kept(const struct rp_graph *graph, struct rpi_range range)
{
    for (uint32_t i = 0; i < graph->block_count; i++) {
        struct rpi_range block = rpi_block_range(graph, i);
        if (graph->blocks[i].kept && block.from <= range.from && range.to <= block.to)
            return i;
    }
    return UINT32_MAX;
}

static bool lies_within(const struct rpi_ranges *ranges, struct rpi_range range)
{
    for (size_t i = 0; i < ranges->count; i++)
        if (ranges->data[i].from <= range.from && range.to <= ranges->data[i].to)
            return true;
    return false;
}

/* The range lies in the pool. Fine are a kept block, to be read when it holds what its graph wrote
 * there (what graphs that others replay keep holds what the program knows), and the graph's own
 * memory, out of which is copied. */
static rp_status check_own(const struct asked *a, struct rpi_range range, struct rp_error *err)
{
    const struct rpi_pool_node *top = &a->graph->pool->core->memory.root->node;
    const struct rp_graph *writer = NULL;
    uint32_t block = UINT32_MAX;
    for (const struct rpi_pool_member *m = rpi_pool_next(top, NULL); m; m = rpi_pool_next(top, m)) {
        uint32_t found = rpi_ranges_overlap(&m->kept, range.from, range.to)
                             ? find_kept(rpi_graph_of(m), range)
                             : UINT32_MAX;
        if (found == UINT32_MAX)
            continue;
        writer = rpi_graph_of(m);
        block = found;
        if (!m->held && a->arg->role != RP_ARG_OUT && !rpi_reads_is_whole(writer, block))
            continue;
        return RP_OK;
    }
    if (lies_within(&a->graph->member.all, range))
        return RP_OK;
    if (writer)
        return refuse(a, err,
                      "lies in block %" PRIu32
                      " of graph '%.60s', which does not hold what that wrote: it "
                      "was not replayed, or another replay has overwritten it",
                      block, writer->name);
    char text[160];
    rpi_reads_describe(a->graph->pool, range.from, text, sizeof text);
    return refuse(a, err, "lies in %s: give memory of your own, or a block that a graph keeps",
                  text);
}

/* ---- Elsewhere ------------------------------------------------------------------------------ */

static bool is_known(const struct rpi_ranges *known, uint64_t from, uint64_t to)
{
    size_t low = 0, high = known->count;
    while (low < high) { /* the first that ends above `from` */
        size_t middle = low + (high - low) / 2;
        if (known->data[middle].to > from)
            high = middle;
        else
            low = middle + 1;
    }
    return low < known->count && known->data[low].from <= from && to <= known->data[low].to;
}

/* Forgetting is allowed: the driver is asked again. */
static void remember(struct rpi_ranges *known, struct rpi_range range)
{
    if (known->count >= MOST_KNOWN)
        known->count = 0;
    if (rpi_vec_push(known, range))
        rpi_ranges_join(known);
}

static bool ask(const struct asked *a, void *out, CUpointer_attribute attribute, uint64_t address)
{
    const struct rp_driver *driver = a->graph->pool->device->driver;
    return driver->cuPointerGetAttribute(out, attribute, address) == CUDA_SUCCESS;
}

/* An allocation is one piece from its start to its end. Virtual memory is mapped in pieces of the
 * granularity, of which the first and the last are looked at. */
static rp_status check_extent(const struct asked *a, struct rpi_range *out_known,
                              struct rp_error *err)
{
    const struct rpi_arena *arena = &a->graph->pool->core->memory.arena;
    uint64_t from = a->arg->address, to = from + a->arg->bytes, size = 0;
    CUdeviceptr start = 0;
    CUcontext context = NULL;
    bool is_virtual = !ask(a, &context, CU_POINTER_ATTRIBUTE_CONTEXT, from) || !context;
    if (is_virtual) {
        int mapped = 1;
        if (ask(a, &mapped, CU_POINTER_ATTRIBUTE_MAPPED, to - 1) && !mapped)
            return refuse(a, err, "reaches into addresses that no memory is mapped to");
        uint64_t page = arena->granularity;
        *out_known = (struct rpi_range){from / page * page, rpi_round_up(to, page)};
        return RP_OK;
    }
    *out_known = (struct rpi_range){from, to};
    if (!ask(a, &start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, from) ||
        !ask(a, &size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, from) || from < start)
        return RP_OK; /* not told: the address alone was good */
    if (to > start + size)
        return refuse(a, err,
                      "reaches past the end of its allocation of %" PRIu64 " bytes at 0x%" PRIx64,
                      size, (uint64_t)start);
    *out_known = (struct rpi_range){start, start + size};
    return RP_OK;
}

/* Asks the driver. Pinned host memory is as good as the device's own. */
static rp_status check_foreign(const struct asked *a, struct rpi_range *out_known,
                               struct rp_error *err)
{
    const struct rp_device *device = a->graph->pool->device;
    uint64_t from = a->arg->address;
    unsigned type = 0;
    int ordinal = 0, mapped = 1;
    CUresult result =
        device->driver->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, from);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE)
        return rpi_error_driver(err, result, "cuPointerGetAttribute",
                                "looking at argument %zu of '%s'", a->index, a->graph->name);
    if (result != CUDA_SUCCESS || (ask(a, &mapped, CU_POINTER_ATTRIBUTE_MAPPED, from) && !mapped))
        return refuse(a, err,
                      "is no memory that the driver knows: it was given back, or is the host's");
    if (type == CU_MEMORYTYPE_DEVICE &&
        ask(a, &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, from) &&
        ordinal != (int)device->handle)
        return refuse(a, err, "is memory of device %d, but the graph runs on device %d", ordinal,
                      (int)device->handle);
    return check_extent(a, out_known, err);
}

static rp_status check_elsewhere(const struct asked *a, struct rp_error *err)
{
    struct rp_device *device = a->graph->pool->device;
    struct rpi_ranges *known = &a->graph->pool->core->known;
    uint64_t from = a->arg->address;
    char text[160];
    if (is_known(known, from, from + a->arg->bytes)) {
        a->graph->contract.accepted[a->index] = from;
        return RP_OK;
    }
    if (rpi_staging_holds(&a->graph->pool->core->staging, from))
        return refuse(a, err, "lies where arguments of the pool's graphs are copied to");
    if (rpi_rehearsal_range_holds(&device->rehearsal_range, from))
        return refuse(a, err, "was an address of a rehearsal: the callable kept it");
    if (rpi_address_owner_find_eager(device, from, text, sizeof text))
        return refuse(a, err, "lies in %s, which is freed when a run is over", text);
    struct rpi_range found = {0, 0};
    rp_status status = check_foreign(a, &found, err);
    /* Another pool may give its memory back at any time. */
    if (status == RP_OK && !rpi_address_owner_find(device, from, text, sizeof text)) {
        remember(known, found);
        a->graph->contract.accepted[a->index] = from;
    }
    return status;
}

/* ---- Both ----------------------------------------------------------------------------------- */

rp_status rpi_check_memory(struct rp_graph *graph, const struct rp_arg *args, struct rp_error *err)
{
    rpi_assert_held(&graph->pool->core->lock);
    const struct rpi_arena *own = &graph->pool->core->memory.arena;
    rp_status status = RP_OK;
    for (size_t i = 0; status == RP_OK && i < graph->arg_count; i++) {
        struct asked asked = {graph, &args[i], i};
        uint64_t from = args[i].address, to;
        if (!args[i].bytes || from == graph->contract.accepted[i])
            continue;
        if (__builtin_add_overflow(from, args[i].bytes, &to))
            return refuse(&asked, err, "reaches past the last address");
        if (from - own->base < own->reserved)
            status = check_own(&asked, (struct rpi_range){from - own->base, to - own->base}, err);
        else
            status = check_elsewhere(&asked, err);
    }
    return status;
}
