/* SPDX-License-Identifier: MIT
 *
 * Capture: a stream whose work becomes nodes of a graph. A stream takes part in at most one
 * capture; it joins one by waiting on an event recorded in it. What breaks a rule invalidates the
 * captures concerned: every later call on their streams then fails until the capture is ended on
 * the stream where it began.
 */
#include "driver/host/state.h"

/* ---- rules --------------------------------------------------------------------------------- */

/* Whether some blocking stream is capturing, which a legacy stream would have to wait for. With
 * `invalidate` their captures are lost. */
static bool blocks_legacy(CUstream legacy, bool invalidate)
{
    bool found = false;
    for (CUstream stream = legacy->context->streams; stream; stream = stream->next) {
        if (!stream->capture || !rpi_host_stream_blocks(stream))
            continue;
        found = true;
        if (invalidate)
            stream->capture->invalid = true;
    }
    return found;
}

CUresult rpi_host_capture_check(CUstream stream)
{
    rpi_assert_held(&rpi_host.lock);
    if (stream->legacy && blocks_legacy(stream, true))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (stream->capture && stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return CUDA_SUCCESS;
}

/* Whether an unsafe call of this thread would disturb the capture. */
static bool forbids(const struct rpi_host_capture *capture, const struct rpi_host_thread *thread)
{
    if (thread->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    if (capture->thread == thread->number)
        return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return thread->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult rpi_host_capture_unsafe(void)
{
    rpi_assert_held(&rpi_host.lock);
    const struct rpi_host_thread *thread = rpi_host_thread();
    CUresult result = CUDA_SUCCESS;
    for (struct rpi_host_capture *capture = rpi_host.captures; capture; capture = capture->next) {
        if (forbids(capture, thread)) {
            capture->invalid = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

CUresult rpi_host_capture_no_sync(CUstream stream)
{
    rpi_assert_held(&rpi_host.lock);
    CUresult result = rpi_host_capture_check(stream);
    if (result)
        return result;
    if (stream->capture) {
        stream->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return rpi_host_capture_unsafe();
}

CUresult rpi_host_capture_no_sync_all(CUcontext context)
{
    rpi_assert_held(&rpi_host.lock);
    CUresult result = CUDA_SUCCESS;
    for (struct rpi_host_capture *capture = rpi_host.captures; capture; capture = capture->next) {
        if (capture->origin->context != context)
            continue;
        capture->invalid = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return result;
}

CUresult rpi_host_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_thread *thread = rpi_host_thread();
    CUstreamCaptureMode former = thread->mode;
    thread->mode = *mode;
    *mode = former;
    return CUDA_SUCCESS;
}

/* ---- captures and their streams ------------------------------------------------------------ */

struct rpi_host_capture *rpi_host_capture_by_id(uint64_t id)
{
    rpi_assert_held(&rpi_host.lock);
    struct rpi_host_capture *capture = rpi_host.captures;
    while (capture && capture->id != id)
        capture = capture->next;
    return capture;
}

bool rpi_host_capture_owns(CUgraph graph)
{
    rpi_assert_held(&rpi_host.lock);
    for (struct rpi_host_capture *capture = rpi_host.captures; capture; capture = capture->next)
        for (CUgraph into = capture->graph; into; into = into->parent ? into->parent->graph : NULL)
            if (into == graph)
                return true;
    return false;
}

static bool add_stream(struct rpi_host_capture *capture, CUstream stream)
{
    if (!rpi_vec_push(&capture->streams, stream))
        return false;
    stream->capture = capture;
    stream->terminals.count = 0;
    return true;
}

/* Replaces the stream's terminals. */
static bool set_terminals(CUstream stream, const struct rpi_host_edge *edges, size_t count)
{
    if (!rpi_vec_reserve(&stream->terminals, count))
        return false;
    if (count)
        memmove(stream->terminals.data, edges, count * sizeof *edges);
    stream->terminals.count = count;
    return true;
}

/* Adds what is not there yet; false: no host memory, nothing changed. */
static bool join_terminals(CUstream stream, const struct rpi_host_edge *edges, size_t count)
{
    size_t before = stream->terminals.count;
    if (!rpi_vec_reserve(&stream->terminals, before + count))
        return false;
    for (size_t i = 0; i < count; i++) {
        bool known = false;
        for (size_t j = 0; j < stream->terminals.count && !known; j++)
            known =
                stream->terminals.data[j].node == edges[i].node &&
                memcmp(&stream->terminals.data[j].data, &edges[i].data, sizeof edges[i].data) == 0;
        if (!known)
            stream->terminals.data[stream->terminals.count++] = edges[i];
    }
    return true;
}

/* Ends the capture: its streams are ordinary again. */
static void finish_capture(struct rpi_host_capture *capture, bool keep_graph)
{
    for (size_t i = 0; i < capture->streams.count; i++) {
        capture->streams.data[i]->capture = NULL;
        capture->streams.data[i]->terminals.count = 0;
    }
    struct rpi_host_capture **link = &rpi_host.captures;
    while (*link != capture)
        link = &(*link)->next;
    *link = capture->next;
    rpi_host.capture_count--;
    if (!keep_graph && !capture->into)
        rpi_host_graph_destroy(capture->graph);
    rpi_vec_finish(&capture->streams);
    rpi_free(capture);
}

void rpi_host_captures_finish(CUcontext context)
{
    rpi_assert_held(&rpi_host.lock);
    struct rpi_host_capture *capture = rpi_host.captures;
    while (capture) {
        struct rpi_host_capture *next = capture->next;
        if (capture->origin->context == context)
            finish_capture(capture, false);
        capture = next;
    }
}

void rpi_host_capture_stream_gone(CUstream stream)
{
    rpi_assert_held(&rpi_host.lock);
    struct rpi_host_capture *capture = stream->capture;
    if (!capture)
        return;
    if (capture->origin == stream) {
        finish_capture(capture, false);
        return;
    }
    capture->invalid = true;
    for (size_t i = 0; i < capture->streams.count; i++)
        if (capture->streams.data[i] == stream)
            capture->streams.data[i] = capture->streams.data[--capture->streams.count];
}

static CUresult begin(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                      const struct rpi_host_edge *edges, size_t count)
{
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct rpi_host_capture *capture = rpi_calloc(1, sizeof *capture);
    if (!capture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    capture->into = graph != NULL;
    capture->graph = graph ? graph : rpi_host_graph_create(NULL, false);
    if (!capture->graph || !set_terminals(stream, edges, count) || !add_stream(capture, stream)) {
        if (!graph && capture->graph)
            rpi_host_graph_destroy(capture->graph);
        stream->terminals.count = 0;
        rpi_free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stream->terminals.count = count;
    capture->id = ++rpi_host.ids;
    capture->mode = mode;
    capture->thread = rpi_host_thread()->number;
    capture->origin = stream;
    capture->next = rpi_host.captures;
    rpi_host.captures = capture;
    rpi_host.capture_count++;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode)
{
    CUstream stream = rpi_host_stream_of(handle);
    return stream ? begin(stream, mode, NULL, NULL, 0) : CUDA_ERROR_INVALID_HANDLE;
}

/* Edges from arrays that came from the program: nodes of `graph`, data where not NULL. */
static CUresult read_edges(CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data,
                           size_t count, struct rpi_host_edge **out_edges)
{
    if (count && !nodes)
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_edge *edges = rpi_calloc(count, sizeof *edges);
    if (!edges)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) {
        edges[i].node = nodes[i];
        if (data)
            edges[i].data = data[i];
        if (!rpi_host_handle_is(nodes[i], RPI_HOST_NODE) || nodes[i]->graph != graph ||
            !rpi_host_edge_valid(&edges[i])) {
            rpi_free(edges);
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    *out_edges = edges;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph,
                                              const CUgraphNode *nodes, const CUgraphEdgeData *data,
                                              size_t count, CUstreamCaptureMode mode)
{
    CUstream stream = rpi_host_stream_of(handle);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    /* One capture in a graph and its children: one that fails may take the whole with it. */
    if (!rpi_host_handle_is(graph, RPI_HOST_GRAPH) ||
        rpi_host_capture_owns(rpi_host_graph_top(graph)))
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_edge *edges;
    CUresult result = read_edges(graph, nodes, data, count, &edges);
    if (result)
        return result;
    result = begin(stream, mode, graph, edges, count);
    rpi_free(edges);
    return result;
}

/* Whether all that the capture's other streams did comes before the origin's terminals. */
static bool is_joined(const struct rpi_host_capture *capture)
{
    const struct rpi_host_edges *terminals = &capture->origin->terminals;
    uint64_t mark = rpi_host_graph_mark(terminals->data, terminals->count);
    for (size_t s = 0; s < capture->streams.count; s++) {
        const struct rpi_host_edges *others = &capture->streams.data[s]->terminals;
        for (size_t i = 0; i < others->count; i++)
            if (others->data[i].node->mark != mark)
                return false;
    }
    return true;
}

CUresult rpi_host_cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    CUstream stream = rpi_host_stream_of(handle);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_capture *capture = stream->capture;
    if (!capture)
        return stream->legacy && blocks_legacy(stream, false) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
                                                              : CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream) {
        capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    CUresult result = CUDA_SUCCESS;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        capture->thread != rpi_host_thread()->number)
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    else if (capture->invalid)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!is_joined(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    *graph = result ? NULL : capture->graph;
    finish_capture(capture, result == CUDA_SUCCESS);
    return result;
}

/* ---- work of a capturing stream ------------------------------------------------------------ */

/* A kernel launched with programmatic stream serialization may start before the kernels that it
 * follows have ended. */
static void mark_programmatic(struct rpi_host_edge *edges, size_t count)
{
    static const CUgraphEdgeData none;
    for (size_t i = 0; i < count; i++)
        if (edges[i].node->op->type == CU_GRAPH_NODE_TYPE_KERNEL &&
            memcmp(&edges[i].data, &none, sizeof none) == 0)
            edges[i].data = (CUgraphEdgeData){.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                              .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
}

/* Programmatic edges end at kernels only; before anything else they are ordinary ones. */
static void mark_ordinary(struct rpi_host_edge *edges, size_t count)
{
    for (size_t i = 0; i < count; i++)
        edges[i].data = (CUgraphEdgeData){0};
}

/* Edges to one node that differ in nothing count once. */
static size_t remove_doubles(struct rpi_host_edge *edges, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        bool known = false;
        for (size_t j = 0; j < kept && !known; j++)
            known = edges[j].node == edges[i].node;
        if (!known)
            edges[kept++] = edges[i];
    }
    return kept;
}

CUresult rpi_host_capture_add(CUstream stream, struct rpi_host_op *op, CUgraph child,
                              CUgraphNode *out_node)
{
    rpi_assert_held(&rpi_host.lock);
    /* Room for the new terminal first: nothing may fail once the node is there. */
    if (!rpi_vec_reserve(&stream->terminals, 1))
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t count = stream->terminals.count;
    struct rpi_host_edge *edges = rpi_calloc(count, sizeof *edges);
    if (!edges)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (count)
        memcpy(edges, stream->terminals.data, count * sizeof *edges);
    if (op->type != CU_GRAPH_NODE_TYPE_KERNEL)
        mark_ordinary(edges, count);
    else if (op->kernel.programmatic)
        mark_programmatic(edges, count);
    count = remove_doubles(edges, count);
    CUgraphNode node;
    CUresult result = rpi_host_graph_add(stream->capture->graph, edges, count, op, child, &node);
    rpi_free(edges);
    if (result)
        return result;
    stream->terminals.data[0] = (struct rpi_host_edge){.node = node};
    stream->terminals.count = 1;
    if (out_node)
        *out_node = node;
    return CUDA_SUCCESS;
}

CUresult rpi_host_capture_record(CUstream stream, CUevent event)
{
    rpi_assert_held(&rpi_host.lock);
    size_t count = stream->terminals.count;
    if (!rpi_vec_reserve(&event->terminals, count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (count)
        memcpy(event->terminals.data, stream->terminals.data,
               count * sizeof *event->terminals.data);
    event->terminals.count = count;
    event->capture = stream->capture->id;
    event->recorded = true;
    rpi_host_task_set(&event->task, NULL);
    return CUDA_SUCCESS;
}

CUresult rpi_host_capture_wait(CUstream stream, CUevent event)
{
    rpi_assert_held(&rpi_host.lock);
    struct rpi_host_capture *own = stream->capture;
    struct rpi_host_capture *other = rpi_host_capture_by_id(event->capture);
    if (!event->capture) {
        own->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (!other || other->invalid) {
        if (own)
            own->invalid = true;
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (own && own != other) {
        own->invalid = other->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (stream->legacy) {
        other->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (!rpi_vec_reserve(&stream->terminals, stream->terminals.count + event->terminals.count) ||
        (!own && !add_stream(other, stream)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    join_terminals(stream, event->terminals.data, event->terminals.count);
    return CUDA_SUCCESS;
}

/* ---- questions ----------------------------------------------------------------------------- */

static CUstreamCaptureStatus status_of(CUstream stream)
{
    if (!stream->capture)
        return CU_STREAM_CAPTURE_STATUS_NONE;
    return stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                    : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult rpi_host_cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    CUstream stream = rpi_host_stream_of(handle);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->legacy && blocks_legacy(stream, false))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status = status_of(stream);
    return CUDA_SUCCESS;
}

/* Copies the terminals to where the program may look at them. */
static bool show_terminals(CUstream stream)
{
    size_t count = stream->terminals.count;
    if (!rpi_vec_reserve(&stream->info_nodes, count) ||
        !rpi_vec_reserve(&stream->info_edges, count))
        return false;
    for (size_t i = 0; i < count; i++) {
        stream->info_nodes.data[i] = stream->terminals.data[i].node;
        stream->info_edges.data[i] = stream->terminals.data[i].data;
    }
    return true;
}

static bool any_data(const struct rpi_host_edges *edges)
{
    static const CUgraphEdgeData none;
    for (size_t i = 0; i < edges->count; i++)
        if (memcmp(&edges->data[i].data, &none, sizeof none) != 0)
            return true;
    return false;
}

CUresult rpi_host_cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus *status,
                                         cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
                                         const CUgraphEdgeData **edges, size_t *count)
{
    CUstream stream = rpi_host_stream_of(handle);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!status || (edges && !nodes))
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->legacy && blocks_legacy(stream, false))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    CUstreamCaptureStatus now = status_of(stream);
    bool active = now == CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (active && nodes && !edges && any_data(&stream->terminals))
        return CUDA_ERROR_LOSSY_QUERY;
    if (active && nodes && !show_terminals(stream))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *status = now;
    if (!active)
        return CUDA_SUCCESS;
    if (id)
        *id = stream->capture->id;
    if (graph)
        *graph = stream->capture->graph;
    if (nodes)
        *nodes = stream->info_nodes.data;
    if (edges)
        *edges = stream->info_edges.data;
    if (count)
        *count = stream->terminals.count;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode *nodes,
                                                    const CUgraphEdgeData *data, size_t count,
                                                    unsigned flags)
{
    CUstream stream = rpi_host_stream_of(handle);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream->capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (stream->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    struct rpi_host_edge *edges;
    CUresult result = read_edges(stream->capture->graph, nodes, data, count, &edges);
    if (result)
        return result;
    bool ok = rpi_vec_reserve(&stream->terminals, stream->terminals.count + count);
    if (ok && flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        stream->terminals.count = 0;
    ok = ok && join_terminals(stream, edges, count);
    rpi_free(edges);
    return ok ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
