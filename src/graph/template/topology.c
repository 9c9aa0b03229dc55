/* SPDX-License-Identifier: MIT */
#include "graph/template/topology.h"

#include "base/idmap.h"
#include "graph/template/params.h"
#include "graph/template/paths.h"

#include <assert.h>
#include <string.h>

void rpi_topology_finish(struct rpi_topology *topology)
{
    rpi_vec_finish(&topology->words);
    rpi_vec_finish(&topology->handles);
    rpi_vec_finish(&topology->kinds);
    *topology = (struct rpi_topology){0};
}

bool rpi_topology_equal(const struct rpi_topology *a, const struct rpi_topology *b)
{
    return a->hash == b->hash && a->words.count == b->words.count &&
           memcmp(a->words.data, b->words.data, a->words.count * sizeof *a->words.data) == 0;
}

/* FNV-1a, a word at a time. */
static uint64_t hash_words(uint64_t hash, const uint64_t *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ words[i]) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    return hash;
}

enum { HASH_START = 0x811c9dc5 };

static rp_status no_memory(struct rp_error *err)
{
    return rpi_error_host_memory(err, "rp_graph_capture", sizeof(struct rpi_topology));
}

struct reading {
    const struct rp_driver *driver;
    struct rpi_topology *topology;
    struct {
        RPI_VEC(CUgraphNode);
    } before;
    struct {
        RPI_VEC(CUgraphEdgeData);
    } edges;
};

/* The graph that is being read, one within another. */
struct level {
    struct rpi_idmap numbers; /* of its nodes, from 0 */
    struct {
        RPI_VEC(struct rpi_path_edge);
    } edges;
};

static rp_status add_words(struct reading *reading, const uint64_t *words, size_t count,
                           struct rp_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (!rpi_vec_push(&reading->topology->words, words[i]))
            return no_memory(err);
    return RP_OK;
}

static void add_launch(struct reading *reading, const uint64_t *words, size_t count)
{
    reading->topology->launches = hash_words(reading->topology->launches, words, count);
}

/* ---- One node ------------------------------------------------------------------------------ */

static rp_status read_dependencies(struct reading *reading, CUgraphNode node, struct level *level,
                                   struct rp_error *err)
{
    const struct rp_driver *driver = reading->driver;
    uint32_t number = rpi_idmap_get(&level->numbers, (uintptr_t)node);
    size_t count = 0;
    CUresult result = driver->cuGraphNodeGetDependencies(node, NULL, NULL, &count);
    if (result == CUDA_SUCCESS && (!rpi_vec_reserve(&reading->before, count + 1) ||
                                   !rpi_vec_reserve(&reading->edges, count + 1) ||
                                   !reading->before.data || !reading->edges.data))
        return no_memory(err);
    if (result == CUDA_SUCCESS && count)
        result = driver->cuGraphNodeGetDependencies(node, reading->before.data, reading->edges.data,
                                                    &count);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphNodeGetDependencies",
                                "reading the edges of a template");
    rp_status status = add_words(reading, (uint64_t[]){count}, 1, err);
    for (size_t i = 0; status == RP_OK && i < count; i++) {
        const CUgraphEdgeData *edge = &reading->edges.data[i];
        uint32_t from = rpi_idmap_get(&level->numbers, (uintptr_t)reading->before.data[i]);
        status = add_words(reading,
                           (uint64_t[]){(uint64_t)from << 24 | (uint64_t)edge->from_port << 16 |
                                        (uint64_t)edge->to_port << 8 | edge->type},
                           1, err);
        const struct rpi_path_edge path_edge = {from, number};
        if (status == RP_OK && !rpi_vec_push(&level->edges, path_edge))
            status = no_memory(err);
    }
    return status;
}

static rp_status read_kernel(struct reading *reading, CUgraphNode node, struct rp_error *err)
{
    const struct rp_driver *driver = reading->driver;
    CUDA_KERNEL_NODE_PARAMS params;
    CUkernelNodeAttrValue cooperative, cluster;
    reading->topology->charged++;
    memset(&params, 0, sizeof params);
    memset(&cooperative, 0, sizeof cooperative);
    memset(&cluster, 0, sizeof cluster);
    CUresult result = driver->cuGraphKernelNodeGetParams(node, &params);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphKernelNodeGetParams",
                                "reading the parameters of a kernel node");
    reading->topology->kinds.data[reading->topology->kinds.count - 1].function =
        rpi_kernel_function(driver, &params);
    /* A driver that tells neither does without the words: it still refuses what it must. */
    driver->cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &cooperative);
    driver->cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &cluster);
    const uint64_t fixed[] = {(uint64_t)cooperative.cooperative, cluster.clusterDim.x,
                              cluster.clusterDim.y, cluster.clusterDim.z};
    const uint64_t launch[] = {
        (uintptr_t)params.func, (uintptr_t)params.kern, params.gridDimX,
        params.gridDimY,        params.gridDimZ,        params.blockDimX,
        params.blockDimY,       params.blockDimZ,       params.sharedMemBytes};
    add_launch(reading, launch, sizeof launch / sizeof *launch);
    return add_words(reading, fixed, sizeof fixed / sizeof *fixed, err);
}

static rp_status read_copy(struct reading *reading, CUgraphNode node, struct rp_error *err)
{
    CUDA_MEMCPY3D copy;
    reading->topology->charged++;
    memset(&copy, 0, sizeof copy);
    CUresult result = reading->driver->cuGraphMemcpyNodeGetParams(node, &copy);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphMemcpyNodeGetParams",
                                "reading the parameters of a memcpy node");
    bool rows = copy.Height > 1 || copy.Depth > 1;
    const uint64_t fixed[] = {copy.srcMemoryType,
                              copy.dstMemoryType,
                              copy.Height,
                              copy.Depth,
                              rows ? copy.WidthInBytes : 0,
                              rows ? copy.srcPitch : 0,
                              rows ? copy.dstPitch : 0,
                              rows ? copy.srcHeight : 0,
                              rows ? copy.dstHeight : 0};
    add_launch(reading, (uint64_t[]){copy.WidthInBytes}, 1);
    return add_words(reading, fixed, sizeof fixed / sizeof *fixed, err);
}

static rp_status read_fill(struct reading *reading, CUgraphNode node, struct rp_error *err)
{
    CUDA_MEMSET_NODE_PARAMS fill;
    memset(&fill, 0, sizeof fill);
    CUresult result = reading->driver->cuGraphMemsetNodeGetParams(node, &fill);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphMemsetNodeGetParams",
                                "reading the parameters of a memset node");
    bool rows = fill.height > 1;
    const uint64_t fixed[] = {fill.height, rows ? fill.width : 0, rows ? fill.pitch : 0,
                              rows ? fill.elementSize : 0};
    add_launch(reading, (uint64_t[]){fill.width, fill.elementSize}, 2);
    return add_words(reading, fixed, sizeof fixed / sizeof *fixed, err);
}

/* ---- The graph ----------------------------------------------------------------------------- */

static rp_status read_graph(struct reading *reading, CUgraph graph, struct rp_error *err);

/* Its first path is that of the node, which was counted. */
static rp_status read_child(struct reading *reading, CUgraphNode node, struct rp_error *err)
{
    CUgraph child = NULL;
    size_t before = reading->topology->paths;
    CUresult result = reading->driver->cuGraphChildGraphNodeGetGraph(node, &child);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphChildGraphNodeGetGraph",
                                "reading the graph of a child graph node");
    rp_status status = read_graph(reading, child, err);
    if (reading->topology->paths > before)
        reading->topology->paths--;
    return status;
}

static rp_status read_node(struct reading *reading, CUgraphNode node, struct level *level,
                           struct rp_error *err)
{
    const struct rp_driver *driver = reading->driver;
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    CUresult result = driver->cuGraphNodeGetType(node, &type);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphNodeGetType", "reading a node's type");
    const struct rpi_node_kind kind = {type, NULL};
    if (!rpi_vec_push(&reading->topology->handles, node) ||
        !rpi_vec_push(&reading->topology->kinds, kind))
        return no_memory(err);
    rp_status status = add_words(reading, (uint64_t[]){type}, 1, err);
    if (status == RP_OK)
        status = read_dependencies(reading, node, level, err);
    if (status != RP_OK)
        return status;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return read_kernel(reading, node, err);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return read_copy(reading, node, err);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return read_fill(reading, node, err);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return read_child(reading, node, err);
    default:
        return RP_OK;
    }
}

/* Of the whole graph, whose edges were read. */
static rp_status count_paths(struct reading *reading, const struct level *level, size_t nodes,
                             struct rp_error *err)
{
    size_t paths = 0;
    if (!rpi_paths_count(level->edges.data, level->edges.count, nodes, &paths))
        return no_memory(err);
    reading->topology->paths += paths;
    return RP_OK;
}

static rp_status number_nodes(struct level *level, const CUgraphNode *nodes, size_t count,
                              struct rp_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (!rpi_idmap_set(&level->numbers, (uintptr_t)nodes[i], (uint32_t)i))
            return no_memory(err);
    return RP_OK;
}

static rp_status read_graph(struct reading *reading, CUgraph graph, struct rp_error *err)
{
    const struct rp_driver *driver = reading->driver;
    struct level level = {0};
    size_t count = 0;
    CUresult result = driver->cuGraphGetNodes(graph, NULL, &count);
    CUgraphNode *nodes = NULL;
    if (result == CUDA_SUCCESS) {
        nodes = rpi_calloc(count + 1, sizeof(CUgraphNode));
        if (!nodes)
            return no_memory(err);
        if (count)
            result = driver->cuGraphGetNodes(graph, nodes, &count);
    }
    rp_status status = RP_OK;
    if (result != CUDA_SUCCESS)
        status =
            rpi_error_driver(err, result, "cuGraphGetNodes", "reading the nodes of a template");
    if (status == RP_OK)
        status = number_nodes(&level, nodes, count, err);
    if (status == RP_OK)
        status = add_words(reading, (uint64_t[]){count}, 1, err);
    for (size_t i = 0; status == RP_OK && i < count; i++)
        status = read_node(reading, nodes[i], &level, err);
    if (status == RP_OK)
        status = count_paths(reading, &level, count, err);
    rpi_idmap_finish(&level.numbers);
    rpi_vec_finish(&level.edges);
    rpi_free(nodes);
    return status;
}

rp_status rpi_topology_read(struct rpi_topology *out_topology, const struct rp_driver *driver,
                            CUgraph template, struct rp_error *err)
{
    struct rpi_topology topology = {.launches = HASH_START};
    struct reading reading = {.driver = driver, .topology = &topology};
    rp_status status = read_graph(&reading, template, err);
    rpi_vec_finish(&reading.before);
    rpi_vec_finish(&reading.edges);
    if (status != RP_OK) {
        rpi_topology_finish(&topology);
        return status;
    }
    topology.hash = hash_words(HASH_START, topology.words.data, topology.words.count);
    topology.nodes = topology.handles.count;
    *out_topology = topology;
    return RP_OK;
}

/* Where the topology's driver lists the node; the count of nodes where it does not. */
static size_t position_of(const struct rpi_topology *topology, CUgraphNode node)
{
    size_t i = 0;
    while (i < topology->handles.count && topology->handles.data[i] != node)
        i++;
    return i;
}

rp_status rpi_topology_extend(struct rpi_topology *topology, struct rpi_topology *whole,
                              const CUgraphNode *added, size_t count, struct rp_error *err)
{
    for (size_t i = 0; i < topology->handles.count; i++) {
        CUgraphNode node = topology->handles.data[i];
        const uint64_t moved[] = {i, whole->handles.data[i] == node ? i : position_of(whole, node)};
        if (moved[0] != moved[1] &&
            (!rpi_vec_push(&whole->words, moved[0]) || !rpi_vec_push(&whole->words, moved[1])))
            return no_memory(err);
    }
    for (size_t i = 0; i < count; i++) {
        size_t position = position_of(whole, added[i]);
        assert(position < whole->kinds.count);
        if (!rpi_vec_push(&whole->words, position) || !rpi_vec_push(&topology->handles, added[i]) ||
            !rpi_vec_push(&topology->kinds, whole->kinds.data[position]))
            return no_memory(err);
    }
    struct rpi_topology extended = *whole;
    extended.hash = hash_words(HASH_START, whole->words.data, whole->words.count);
    extended.handles = topology->handles;
    extended.kinds = topology->kinds;
    whole->words = topology->words;
    *topology = extended;
    return RP_OK;
}
