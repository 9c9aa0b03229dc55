/* SPDX-License-Identifier: MIT */
#include "graph/capture/capture.h"

#include "base/caller.h"
#include "explain/explain.h"
#include "memory/range/arena.h"
#include "reprise_framework.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* A node of the walk back; its unknown dependencies are walked before it is added. */
struct rpi_walk {
    CUgraphNode node;
    size_t first, count; /* its dependencies, once they were asked for */
    bool expanded;
};

static rp_status read_id(struct rpi_capture *capture, CUstreamCaptureStatus *out_state,
                         struct rp_error *err)
{
    const CUgraphNode *nodes;
    const CUgraphEdgeData *edges;
    CUgraph graph;
    size_t count;
    CUresult result = capture->driver->cuStreamGetCaptureInfo(
        capture->stream, out_state, &capture->id, &graph, &nodes, &edges, &count);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuStreamGetCaptureInfo", "%s: beginning the capture",
                                capture->what);
    return RP_OK;
}

static void start(struct rpi_capture *capture, const struct rp_driver *driver, CUstream stream,
                  struct rpi_order *order, const char *what)
{
    *capture =
        (struct rpi_capture){.driver = driver, .what = what, .stream = stream, .order = order};
    if (driver->cuCtxGetCurrent(&capture->context) != CUDA_SUCCESS)
        capture->context = NULL;
}

rp_status rpi_capture_begin(struct rpi_capture *capture, const struct rp_driver *driver,
                            CUstream stream, struct rpi_order *order, const char *what,
                            struct rp_error *err)
{
    start(capture, driver, stream, order, what);
    CUresult result = driver->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuStreamBeginCapture", "%s: beginning the capture",
                                what);
    capture->active = true;
    rpi_watch_begin(&capture->watch);
    capture->watching = true;
    CUstreamCaptureStatus state;
    return read_id(capture, &state, err);
}

rp_status rpi_capture_adopt(struct rpi_capture *capture, const struct rp_driver *driver,
                            CUstream stream, struct rpi_order *order, const char *what,
                            struct rp_error *err)
{
    start(capture, driver, stream, order, what);
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    rp_status status = read_id(capture, &state, err);
    if (status == RP_OK && state != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_graph_adopt",
                         "%s: the stream is not capturing: begin the capture before it is adopted",
                         what);
    return status;
}

static rp_status no_memory(const struct rpi_capture *capture, struct rp_error *err)
{
    return rpi_error_host_memory(err, capture->what, sizeof(struct rpi_walk));
}

/* Appends the node's dependencies to capture->dependencies. */
static rp_status read_dependencies(struct rpi_capture *capture, CUgraphNode node,
                                   struct rp_error *err)
{
    enum { FEW = 16 };
    size_t first = capture->dependencies.count, room = FEW;
    CUgraphEdgeData few[FEW], *edges = few;
    for (;;) {
        if (!rpi_vec_reserve(&capture->dependencies, first + room))
            return no_memory(capture, err);
        size_t count = room;
        CUresult result = capture->driver->cuGraphNodeGetDependencies(
            node, capture->dependencies.data + first, edges, &count);
        if (result == CUDA_SUCCESS && count == room) /* there may be more: ask how many */
            result = capture->driver->cuGraphNodeGetDependencies(node, NULL, NULL, &count);
        if (edges != few)
            rpi_free(edges);
        if (result != CUDA_SUCCESS)
            return rpi_error_driver(err, result, "cuGraphNodeGetDependencies",
                                    "%s: reading the order of the capture", capture->what);
        if (count <= room) {
            capture->dependencies.count = first + count;
            return RP_OK;
        }
        room = count + 1;
        edges = rpi_calloc(room, sizeof *edges);
        if (!edges)
            return no_memory(capture, err);
    }
}

/* Pushes the walk's node's unknown dependencies; *out_ready when there are none. */
static rp_status expand(struct rpi_capture *capture, size_t top, bool *out_ready,
                        struct rp_error *err)
{
    assert(top < capture->stack.count && !capture->stack.data[top].expanded);
    size_t first = capture->dependencies.count;
    rp_status status = read_dependencies(capture, capture->stack.data[top].node, err);
    if (status != RP_OK)
        return status;
    capture->stack.data[top].first = first;
    capture->stack.data[top].count = capture->dependencies.count - first;
    capture->stack.data[top].expanded = true;
    *out_ready = true;
    for (size_t i = first; i < capture->dependencies.count; i++) {
        CUgraphNode node = capture->dependencies.data[i];
        if (rpi_idmap_get(&capture->known, (uintptr_t)node) != RPI_ABSENT)
            continue;
        *out_ready = false;
        if (!rpi_vec_push(&capture->stack, ((struct rpi_walk){.node = node})))
            return no_memory(capture, err);
    }
    return RP_OK;
}

/* Makes room for one more node's predecessors, where they are kept. */
static bool reserve_kept(struct rpi_predecessors *kept, size_t count)
{
    return !kept || (rpi_vec_reserve(&kept->nodes, kept->nodes.count + count) &&
                     rpi_vec_reserve(&kept->ends, kept->ends.count + 1));
}

static void keep_predecessors(struct rpi_predecessors *kept, const uint32_t *nodes, size_t count)
{
    assert(!kept || kept->nodes.count + count <= kept->nodes.capacity);
    if (!kept)
        return;
    for (size_t i = 0; i < count; i++)
        kept->nodes.data[kept->nodes.count++] = nodes[i];
    kept->ends.data[kept->ends.count++] = (uint32_t)kept->nodes.count;
}

/* Adds a node whose dependencies are all known, and drops them. */
static rp_status add_node(struct rpi_capture *capture, const struct rpi_walk *walk,
                          struct rp_error *err)
{
    assert(walk->expanded && walk->first + walk->count == capture->dependencies.count);
    capture->predecessors.count = 0;
    if (!rpi_vec_reserve(&capture->predecessors, walk->count) ||
        !reserve_kept(capture->kept_predecessors, walk->count))
        return no_memory(capture, err);
    for (size_t i = 0; i < walk->count; i++)
        capture->predecessors.data[capture->predecessors.count++] =
            rpi_idmap_get(&capture->known, (uintptr_t)capture->dependencies.data[walk->first + i]);
    uint32_t node;
    rp_status status =
        rpi_order_add(capture->order, capture->predecessors.data, walk->count, &node, err);
    if (status != RP_OK)
        return status;
    keep_predecessors(capture->kept_predecessors, capture->predecessors.data, walk->count);
    if (!rpi_idmap_set(&capture->known, (uintptr_t)walk->node, node))
        return no_memory(capture, err);
    capture->dependencies.count = walk->first;
    return RP_OK;
}

static rp_status learn(struct rpi_capture *capture, CUgraphNode node, struct rp_error *err)
{
    capture->stack.count = capture->dependencies.count = 0;
    if (!rpi_vec_push(&capture->stack, ((struct rpi_walk){.node = node})))
        return no_memory(capture, err);
    while (capture->stack.count) {
        size_t top = capture->stack.count - 1;
        struct rpi_walk walk = capture->stack.data[top];
        if (rpi_idmap_get(&capture->known, (uintptr_t)walk.node) != RPI_ABSENT) {
            capture->stack.count--; /* reached on two ways */
            continue;
        }
        bool ready = true;
        rp_status status = RP_OK;
        if (!walk.expanded)
            status = expand(capture, top, &ready, err);
        if (status == RP_OK && ready) {
            walk = capture->stack.data[top];
            capture->stack.count--;
            status = add_node(capture, &walk, err);
        }
        if (status != RP_OK)
            return status;
    }
    return RP_OK;
}

/* The stream's state and terminals. Autograd's threads allocate before they have a context, and the
 * driver tells nothing without one. */
static CUresult ask_terminals(const struct rpi_capture *capture, CUstream stream,
                              CUstreamCaptureStatus *out_state, cuuint64_t *out_id,
                              const CUgraphNode **out_nodes, size_t *out_count)
{
    const struct rp_driver *driver = capture->driver;
    CUgraph graph = NULL;
    const CUgraphEdgeData *edges = NULL;
    CUresult result = driver->cuStreamGetCaptureInfo(stream, out_state, out_id, &graph, out_nodes,
                                                     &edges, out_count);
    if (result != CUDA_ERROR_INVALID_CONTEXT ||
        driver->cuCtxPushCurrent(capture->context) != CUDA_SUCCESS)
        return result;
    CUcontext popped;
    result = driver->cuStreamGetCaptureInfo(stream, out_state, out_id, &graph, out_nodes, &edges,
                                            out_count);
    driver->cuCtxPopCurrent(&popped);
    return result;
}

rp_status rpi_capture_terminals(struct rpi_capture *capture, CUstream stream,
                                struct rpi_node_list *nodes, bool *out_capturing,
                                struct rp_error *err)
{
    *out_capturing = false;
    if (stream == NULL || stream == CU_STREAM_LEGACY)
        return RP_OK; /* the legacy stream never captures, and asking may be an error */
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t id = 0;
    const CUgraphNode *terminals = NULL;
    size_t count = 0;
    CUresult result = ask_terminals(capture, stream, &state, &id, &terminals, &count);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuStreamGetCaptureInfo",
                                "%s: reading a stream's place in the capture", capture->what);
    if (state == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        return rpi_error_driver(
            err, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "cuStreamGetCaptureInfo",
            "%s: allocating after a call that may not be captured", capture->what);
    if (state != CU_STREAM_CAPTURE_STATUS_ACTIVE || id != capture->id)
        return RP_OK;
    if (!rpi_vec_reserve(nodes, nodes->count + count))
        return no_memory(capture, err);
    for (size_t i = 0; i < count; i++) {
        rp_status status = learn(capture, terminals[i], err);
        if (status != RP_OK)
            return status;
        nodes->data[nodes->count++] = rpi_idmap_get(&capture->known, (uintptr_t)terminals[i]);
    }
    *out_capturing = true;
    return RP_OK;
}

/* Appends those alloc nodes that no node of the list reaches. */
static rp_status add_forgotten(struct rpi_capture *capture, const uint32_t *alloc_nodes,
                               size_t alloc_count, struct rpi_node_list *nodes,
                               struct rp_error *err)
{
    size_t count = nodes->count;
    for (size_t i = 0; i < alloc_count; i++) {
        bool held = false;
        for (size_t j = 0; j < count && !held; j++)
            held = rpi_order_reaches(capture->order, alloc_nodes[i], nodes->data[j]);
        if (!held && !rpi_vec_push(nodes, alloc_nodes[i]))
            return no_memory(capture, err);
    }
    return RP_OK;
}

rp_status rpi_capture_free_nodes(struct rpi_capture *capture, const struct rpi_run_blocks *blocks,
                                 uint32_t block, const uint32_t *alloc_nodes, size_t alloc_count,
                                 struct rpi_node_list *nodes, struct rp_error *err)
{
    assert(block < blocks->blocks.count);
    const struct rpi_run_block *freed = &blocks->blocks.data[block];
    nodes->count = 0;
    bool capturing = true;
    rp_status status = rpi_capture_terminals(capture, freed->stream, nodes, &capturing, err);
    for (uint32_t i = freed->first_use; status == RP_OK && capturing && i != RPI_ABSENT;
         i = blocks->uses.data[i].next)
        status =
            rpi_capture_terminals(capture, blocks->uses.data[i].stream, nodes, &capturing, err);
    if (status != RP_OK)
        return status;
    if (!capturing)
        nodes->count = 0;
    return nodes->count ? add_forgotten(capture, alloc_nodes, alloc_count, nodes, err) : RP_OK;
}

/* ---- Captures that the callable begins ------------------------------------------------------ */

static rp_status out_of_turn(struct rp_error *err, const char *function, const char *why)
{
    return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function, "%s", why);
}

static rp_status count_nodes(const struct rpi_capture *capture, CUgraph graph, size_t *out_count,
                             struct rp_error *err)
{
    CUresult result = capture->driver->cuGraphGetNodes(graph, NULL, out_count);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphGetNodes", "%s: handing the capture over",
                                capture->what);
    return RP_OK;
}

rp_status rpi_capture_take_over(struct rpi_capture *capture, struct rp_error *err)
{
    CUgraph graph = NULL;
    size_t count = 0;
    if (!capture->active || capture->taken_over)
        return out_of_turn(err, "rp_call_take_over", "the capture was taken over before");
    CUresult result = capture->driver->cuStreamEndCapture(capture->stream, &graph);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuStreamEndCapture", "%s: handing the capture over",
                                capture->what);
    capture->active = false;
    capture->taken_over = true;
    rp_status status = count_nodes(capture, graph, &count, err);
    capture->driver->cuGraphDestroy(graph);
    if (status == RP_OK && count)
        return out_of_turn(err, "rp_call_take_over",
                           "work was enqueued before the callable took the capture over, and is "
                           "lost: take it over first");
    return status;
}

rp_status rpi_capture_begun(struct rpi_capture *capture, struct rp_error *err)
{
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!capture->taken_over || capture->active || capture->ended)
        return out_of_turn(err, "rp_call_begun",
                           "it says that the callable's capture has begun: once, after "
                           "rp_call_take_over");
    rp_status status = read_id(capture, &state, err);
    if (status == RP_OK && state != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return out_of_turn(err, "rp_call_begun",
                           "the stream of the run is not capturing: begin a capture on "
                           "rp_call_stream first");
    capture->active = status == RP_OK;
    return status;
}

rp_status rpi_capture_ended(struct rpi_capture *capture, CUgraph graph, struct rp_error *err)
{
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!capture->taken_over || !capture->active || !graph)
        return out_of_turn(err, "rp_call_ended",
                           "it takes the graph of the callable's own capture: once, after "
                           "rp_call_begun");
    CUresult result = capture->driver->cuStreamIsCapturing(capture->stream, &state);
    if (result == CUDA_SUCCESS && state != CU_STREAM_CAPTURE_STATUS_NONE)
        return out_of_turn(err, "rp_call_ended",
                           "the stream of the run is capturing still: end the capture first");
    capture->active = false;
    if (result == CUDA_SUCCESS)
        result = capture->driver->cuGraphClone(&capture->ended, graph);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphClone", "%s: taking the graph over",
                                capture->what);
    return RP_OK;
}

/* What the callable ended. */
static rp_status take_ended(struct rpi_capture *capture, CUgraph *out_graph, struct rp_error *err)
{
    assert(capture->taken_over);
    if (!capture->ended)
        return rpi_error(err, RP_ERROR_CAPTURE, "rp_graph_capture",
                         "%s: the callable took the capture over and gave no graph: it has to end "
                         "it, and call rp_call_ended",
                         capture->what);
    *out_graph = capture->ended;
    capture->ended = NULL;
    return RP_OK;
}

/* ---- The end -------------------------------------------------------------------------------- */

/* A callable has the stream, and can end the capture, or put another in its place. */
static rp_status check_same(const struct rpi_capture *capture, struct rp_error *err)
{
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUgraphNode *nodes;
    const CUgraphEdgeData *edges;
    cuuint64_t id = 0;
    CUgraph graph;
    size_t count;
    CUresult result = capture->driver->cuStreamGetCaptureInfo(capture->stream, &state, &id, &graph,
                                                              &nodes, &edges, &count);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuStreamGetCaptureInfo", "%s: ending the capture",
                                capture->what);
    if (state == CU_STREAM_CAPTURE_STATUS_NONE ||
        (state == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != capture->id))
        return rpi_error(err, RP_ERROR_CAPTURE, "rp_graph_capture",
                         "%s: the callable ended the capture%s. It must not end or begin a capture "
                         "on the stream that it is given",
                         capture->what,
                         state == CU_STREAM_CAPTURE_STATUS_NONE ? "" : " and began another");
    return RP_OK;
}

rp_status rpi_capture_end(struct rpi_capture *capture, CUgraph *out_graph, struct rp_error *err)
{
    if (capture->taken_over)
        return take_ended(capture, out_graph, err);
    rp_status status = check_same(capture, err);
    if (status != RP_OK)
        return status;
    CUgraph graph = NULL;
    CUresult result = capture->driver->cuStreamEndCapture(capture->stream, &graph);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuStreamEndCapture", "%s: ending the capture",
                                capture->what);
    capture->active = false;
    *out_graph = graph;
    return RP_OK;
}

/* What the call did wrong and what to do, from the tables. */
static void describe_fault(const struct rpi_watch *watch, char *text, size_t bytes)
{
    assert(watch->first.function && watch->first.result != CUDA_SUCCESS);
    const struct rpi_call_explanation *call = rpi_explanation_of_call(watch->first.function);
    const struct rp_explanation *code = rpi_explanation_of_code((int)watch->first.result);
    if (call && (watch->first.result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ||
                 watch->first.result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT))
        snprintf(text, bytes, "%s. To do: %s", call->what, call->mend);
    else if (code)
        snprintf(text, bytes, "%s. To do: %s", code->title, code->mends[0]);
    else
        snprintf(text, bytes, "%s", rpi_result_meaning(watch->first.result));
}

rp_status rpi_capture_blame(const struct rpi_capture *capture, rp_status status,
                            struct rp_error *err)
{
    const struct rpi_watch *watch = &capture->watch;
    bool follows =
        status == RP_ERROR_CAPTURE || status == RP_ERROR_DRIVER || status == RP_ERROR_CALLABLE;
    if (!watch->first.function || !follows)
        return status;
    char caller[128], place[160] = "", fault[320];
    rpi_caller_describe(watch->first.caller, caller, sizeof caller);
    if (caller[0])
        snprintf(place, sizeof place, ", called from %s,", caller);
    describe_fault(watch, fault, sizeof fault);
    rpi_error(err, status, watch->first.function,
              "%s: %s (driver call %zu of the callable)%s "
              "returned %s (%d): %s",
              capture->what, watch->first.function, watch->first.number, place,
              rpi_result_name(watch->first.result), (int)watch->first.result, fault);
    if (err) {
        err->driver_code = (int)watch->first.result;
        snprintf(err->driver_name, sizeof err->driver_name, "%s",
                 rpi_result_name(watch->first.result));
    }
    return status;
}

void rpi_capture_finish(struct rpi_capture *capture)
{
    if (capture->watching)
        rpi_watch_end(&capture->watch);
    capture->watching = false;
    if (capture->active) {
        /* A capture that broke ends with its error, which was told; one that could not be ended
         * ends here. */
        CUgraph graph = NULL;
        CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        capture->driver->cuStreamIsCapturing(capture->stream, &state);
        if (state != CU_STREAM_CAPTURE_STATUS_NONE &&
            capture->driver->cuStreamEndCapture(capture->stream, &graph) == CUDA_SUCCESS && graph)
            capture->driver->cuGraphDestroy(graph);
    }
    if (capture->ended)
        capture->driver->cuGraphDestroy(capture->ended);
    capture->ended = NULL;
    rpi_idmap_finish(&capture->known);
    rpi_vec_finish(&capture->stack);
    rpi_vec_finish(&capture->dependencies);
    rpi_vec_finish(&capture->predecessors);
    capture->active = false;
}
