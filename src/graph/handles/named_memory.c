/* SPDX-License-Identifier: MIT
 *
 * Which memory a graph's nodes name beside what its capture gave them, for who knows memory that
 * the library does not.
 */
#include "base/held.h"
#include "base/hostmem.h"
#include "base/idmap.h"
#include "base/refuse.h"
#include "graph/exec/exec_cache.h"
#include "graph/objects/address_owner.h"
#include "graph/template/params.h"
#include "reprise_framework.h"

#include <assert.h>
#include <stdlib.h>

/* A range that was asked for: by address, and of equal ones by number. */
struct asked {
    uint64_t address, bytes;
    size_t number;
};

struct looking {
    const struct rp_graph *graph;
    struct asked *asked;
    size_t count;
    uint64_t longest; /* of the ranges */
    unsigned char *named;
    size_t first_site, end_site; /* of the node that is looked at */
    char *where;                 /* NULL, or for so many bytes that tell the first place */
    size_t where_bytes;
};

static int by_address(const void *left, const void *right)
{
    const struct asked *a = left, *b = right;
    if (a->address != b->address)
        return a->address < b->address ? -1 : 1;
    return (a->number > b->number) - (a->number < b->number);
}

/* Is the word at this place an address that the capture gave, in the graph's own blocks or its
 * arguments? RPI_ABSENT: it stands in no parameter, and is none. */
static bool is_given(const struct looking *l, uint32_t offset)
{
    assert(l->first_site <= l->end_site && l->end_site <= l->graph->sites.count);
    for (size_t i = l->first_site; i < l->end_site; i++)
        if (l->graph->sites.data[i].offset == offset)
            return true;
    return false;
}

/* May the graph use this memory? Not what lies in its pool, unless an earlier graph of its sequence
 * keeps it, or the program has it in its hands. */
static bool may_use(const struct rp_graph *graph, uint64_t address)
{
    rpi_assert_held(&graph->pool->core->lock);
    const struct rp_pool *pool = graph->pool;
    const struct rpi_arena *arena = &pool->core->memory.arena;
    uint64_t offset = address - arena->base;
    if (offset >= arena->reserved)
        return true;
    for (size_t i = 0; i < graph->reads.sources.count; i++) {
        struct rpi_range range = graph->reads.sources.data[i].range;
        if (range.from <= offset && offset < range.to)
            return true;
    }
    return rpi_address_is_held(pool->device, address);
}

/* Tells the first place alone. params: of the node, NULL for memory that a node copies from the host. */
static void tell_where(const struct looking *l, const struct rpi_params *params, uint32_t place)
{
    char node[256] = "a copy from the host";
    if (!l->where || l->where[0])
        return;
    if (params)
        rpi_params_describe(params, l->graph->pool->device->driver, node, sizeof node);
    if (params && params->type == CU_GRAPH_NODE_TYPE_KERNEL)
        snprintf(l->where, l->where_bytes, "%s, byte %u of its parameters", node, place);
    else
        snprintf(l->where, l->where_bytes, "%s", node);
}

/* Notes the ranges that the word is an address in: those that begin at most as far before it as the
 * longest is long. params: as for tell_where. */
static void look_up(const struct looking *l, const struct rpi_params *params, uint32_t place,
                    uint64_t word)
{
    size_t first = 0, end = l->count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (l->asked[middle].address > word)
            end = middle;
        else
            first = middle + 1;
    }
    while (first-- && word - l->asked[first].address < l->longest)
        if (word - l->asked[first].address < l->asked[first].bytes && !is_given(l, place)) {
            l->named[l->asked[first].number] |=
                RP_NAMED | (may_use(l->graph, word) ? 0 : RP_MISUSED);
            tell_where(l, params, place);
        }
}

/* A pointer may lie at any multiple of 4 in a packed struct. */
static void look_at(const struct looking *l, const struct rpi_params *params)
{
    rpi_assert_held(&l->graph->pool->core->lock);
    for (size_t i = 0; i < params->fields.count; i++) {
        const struct rpi_field *field = &params->fields.data[i];
        uint32_t end = field->offset + field->bytes;
        if (field->kind == RPI_FIELD_HOST)
            continue;
        for (uint32_t offset = (field->offset + 3u) & ~3u; offset + 8 <= end; offset += 4) {
            uint64_t word;
            memcpy(&word, params->image.data + offset, sizeof word);
            look_up(l, params, offset, word);
        }
    }
}

static rp_status look_through(struct looking *l, struct rp_error *err)
{
    const struct rp_graph *graph = l->graph;
    struct rp_device *device = graph->pool->device;
    const struct rpi_topology *topology = &graph->client->source->topology;
    struct rpi_params params = {0};
    rp_status status = rp_device_push(device, err);
    if (status != RP_OK)
        return status;
    pthread_mutex_lock(&graph->pool->core->lock); /* replays may point copies elsewhere */
    for (size_t i = 0; status == RP_OK && i < topology->handles.count; i++) {
        for (l->first_site = l->end_site; l->end_site < graph->sites.count; l->end_site++)
            if (graph->sites.data[l->end_site].node != i)
                break;
        status = rpi_params_read(&params, device->driver, topology->handles.data[i], err);
        if (status == RP_OK)
            look_at(l, &params);
    }
    for (size_t i = 0; status == RP_OK && i < graph->tabled.count; i++)
        look_up(l, NULL, RPI_ABSENT, graph->tabled.data[i]);
    pthread_mutex_unlock(&graph->pool->core->lock);
    rpi_params_finish(&params);
    rp_device_pop(device);
    return status;
}

/* Fills named[i] for ranges[i], and `where` unless that is NULL. function: who is asked. */
static rp_status find_named(const struct rp_graph *graph, const struct rp_memory *ranges,
                            size_t count, unsigned char *named, char *where, size_t where_bytes,
                            const char *function, struct rp_error *err)
{
    if (graph->adopted)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "its nodes are not known: the program captured it");
    if (!count)
        return RP_OK;
    struct looking l = {.graph = graph,
                        .count = count,
                        .named = named,
                        .where = where,
                        .where_bytes = where_bytes,
                        .asked = rpi_malloc(count * sizeof *l.asked)};
    if (!l.asked)
        return rpi_error_host_memory(err, function, count * sizeof *l.asked);
    for (size_t i = 0; i < count; i++) {
        l.asked[i] = (struct asked){ranges[i].address, ranges[i].bytes, i};
        l.longest = ranges[i].bytes > l.longest ? ranges[i].bytes : l.longest;
        named[i] = 0;
    }
    qsort(l.asked, count, sizeof *l.asked, by_address);
    rp_status status = look_through(&l, err);
    rpi_free(l.asked);
    return status;
}

rp_status rp_graph_names(const struct rp_graph *graph, const struct rp_memory *ranges, size_t count,
                         unsigned char *out_named, struct rp_error *err)
{
    if (rpi_is_forked() || !graph || (count && (!ranges || !out_named)))
        return rpi_refuse(err, "rp_graph_names",
                          !graph    ? "graph"
                          : !ranges ? "ranges"
                                    : "out_named");
    return find_named(graph, ranges, count, out_named, NULL, 0, "rp_graph_names", err);
}

rp_status rp_graph_where_named(const struct rp_graph *graph, const struct rp_memory *range,
                               char *out_where, size_t bytes, struct rp_error *err)
{
    if (rpi_is_forked() || !graph || !range || !out_where || !bytes)
        return rpi_refuse(err, "rp_graph_where_named",
                          !graph       ? "graph"
                          : !range     ? "range"
                          : !out_where ? "out_where"
                                       : "bytes");
    unsigned char named;
    out_where[0] = 0;
    return find_named(graph, range, 1, &named, out_where, bytes, "rp_graph_where_named", err);
}
