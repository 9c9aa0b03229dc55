/* SPDX-License-Identifier: MIT */
#include "capture/recording.h"

#include "alloc/tap.h"

#include <stdlib.h>
#include <string.h>

PyObject *rpp_record_begin(PyObject *self, PyObject *args)
{
    rpp_assert_gil();
    int ordinal;
    unsigned long long stream;
    struct rp_error err = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "iK", &ordinal, &stream))
        return NULL;
    rp_status status = rpp_tap_begin(ordinal, (struct CUstream_st *)(uintptr_t)stream, &err);
    if (status != RP_OK)
        return rpp_set_error(status, &err);
    Py_RETURN_NONE;
}

PyObject *rpp_record_moment(PyObject *self, PyObject *args)
{
    rpp_assert_gil();
    unsigned long long stream;
    (void)self;
    if (!PyArg_ParseTuple(args, "K", &stream))
        return NULL;
    return PyLong_FromLong(rpp_tap_moment((struct CUstream_st *)(uintptr_t)stream));
}

static PyObject *terminals_of(const struct rpp_tap *tap, const struct rpp_tap_event *event)
{
    PyObject *list = PyTuple_New((Py_ssize_t)event->count);
    for (size_t i = 0; list && i < event->count; i++) {
        const struct rpp_tap_terminal *t = &tap->terminals[event->first + i];
        PyObject *pair = Py_BuildValue("(KK)", (unsigned long long)(uintptr_t)t->stream,
                                       (unsigned long long)(uintptr_t)t->node);
        if (!pair || PyTuple_SetItem(list, (Py_ssize_t)i, pair) != 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *events_of(const struct rpp_tap *tap)
{
    PyObject *list = PyList_New((Py_ssize_t)tap->event_count);
    for (size_t i = 0; list && i < tap->event_count; i++) {
        const struct rpp_tap_event *event = &tap->events[i];
        PyObject *terminals = terminals_of(tap, event);
        PyObject *tuple =
            terminals
                ? Py_BuildValue("(iKKKN)", (int)event->kind, (unsigned long long)event->address,
                                (unsigned long long)event->bytes,
                                (unsigned long long)(uintptr_t)event->stream, terminals)
                : NULL;
        if (!tuple || PyList_SetItem(list, (Py_ssize_t)i, tuple) != 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *rpp_record_end(PyObject *self, PyObject *unused)
{
    rpp_assert_gil();
    struct rpp_tap tap;
    (void)self, (void)unused;
    rpp_tap_end(&tap);
    PyObject *events = tap.failed ? PyErr_NoMemory() : events_of(&tap);
    rpp_tap_finish(&tap);
    return events;
}

/* ---- The graph ------------------------------------------------------------------------------ */

/* As in the driver: CUgraphEdgeData. */
struct edge_data {
    unsigned char from_port, to_port, type, reserved[5];
};

struct graph_facts {
    void **nodes, **from, **to;
    struct edge_data *edges;
    int *kinds;
    size_t node_count, edge_count;
};

static void finish_facts(struct graph_facts *facts)
{
    free(facts->nodes);
    free(facts->from);
    free(facts->to);
    free(facts->edges);
    free(facts->kinds);
}

/* The driver's code; 0 when all is read; -1: no host memory. */
static int read_graph(const struct rpp_device *device, void *graph, struct graph_facts *facts)
{
    int (*get_edges)(void *, void **, void **, struct edge_data *, size_t *);
    int (*get_type)(void *, int *);
    void (*function)(void) = rp_device_function(device->device, "cuGraphGetEdges");
    memcpy(&get_edges, &function, sizeof function);
    function = rp_device_function(device->device, "cuGraphNodeGetType");
    memcpy(&get_type, &function, sizeof function);
    int code = device->graph_nodes(graph, NULL, &facts->node_count);
    if (code == 0)
        code = get_edges(graph, NULL, NULL, NULL, &facts->edge_count);
    if (code)
        return code;
    facts->nodes = calloc(facts->node_count + 1, sizeof *facts->nodes);
    facts->kinds = calloc(facts->node_count + 1, sizeof *facts->kinds);
    facts->from = calloc(facts->edge_count + 1, sizeof *facts->from);
    facts->to = calloc(facts->edge_count + 1, sizeof *facts->to);
    facts->edges = calloc(facts->edge_count + 1, sizeof *facts->edges);
    if (!facts->nodes || !facts->kinds || !facts->from || !facts->to || !facts->edges)
        return -1;
    if (facts->node_count)
        code = device->graph_nodes(graph, facts->nodes, &facts->node_count);
    if (code == 0 && facts->edge_count)
        code = get_edges(graph, facts->from, facts->to, facts->edges, &facts->edge_count);
    for (size_t i = 0; code == 0 && i < facts->node_count; i++)
        code = get_type(facts->nodes[i], &facts->kinds[i]);
    return code;
}

static PyObject *list_nodes(const struct graph_facts *facts)
{
    PyObject *list = PyList_New((Py_ssize_t)facts->node_count);
    for (size_t i = 0; list && i < facts->node_count; i++) {
        PyObject *pair =
            Py_BuildValue("(Ki)", (unsigned long long)(uintptr_t)facts->nodes[i], facts->kinds[i]);
        if (!pair || PyList_SetItem(list, (Py_ssize_t)i, pair) != 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *list_edges(const struct graph_facts *facts)
{
    PyObject *list = PyList_New((Py_ssize_t)facts->edge_count);
    for (size_t i = 0; list && i < facts->edge_count; i++) {
        PyObject *edge =
            Py_BuildValue("(KKi)", (unsigned long long)(uintptr_t)facts->from[i],
                          (unsigned long long)(uintptr_t)facts->to[i], (int)facts->edges[i].type);
        if (!edge || PyList_SetItem(list, (Py_ssize_t)i, edge) != 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *rpp_record_graph(PyObject *self, PyObject *args)
{
    rpp_assert_gil();
    enum { CUDA_INVALID_VALUE = 1 };
    int ordinal, status = 0;
    unsigned long long stream, id;
    struct rpp_device *device;
    struct rp_error err = {0};
    struct graph_facts facts = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "iK", &ordinal, &stream))
        return NULL;
    rp_status found = rpp_device_get(ordinal, &device, &err);
    if (found == RP_OK)
        found = rp_device_push(device->device, &err);
    if (found != RP_OK)
        return rpp_set_error(found, &err);
    void *graph = NULL, *nodes, *edges;
    size_t count;
    int code = device->capture_info((struct CUstream_st *)(uintptr_t)stream, &status, &id, &graph,
                                    &nodes, &edges, &count);
    if (code == 0)
        code = graph ? read_graph(device, graph, &facts) : CUDA_INVALID_VALUE;
    rp_device_pop(device->device);
    PyObject *made = NULL;
    if (code < 0)
        PyErr_NoMemory();
    else if (code)
        PyErr_Format(rpp_error_type, "the graph of a capture could not be read: error %d", code);
    else
        made = Py_BuildValue("(NN)", list_nodes(&facts), list_edges(&facts));
    finish_facts(&facts);
    return made;
}
