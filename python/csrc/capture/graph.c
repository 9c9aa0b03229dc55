/* SPDX-License-Identifier: MIT */
#include "capture/graph.h"

#include "alloc/hooks.h"
#include "alloc/pool.h"
#include "capture/scalars.h"
#include <assert.h>
#include <reprise_framework.h>
#include <string.h>

PyTypeObject *rpp_graph_type;

/* A graph that was dropped while tensors that it made (gradients, say) are alive: they lie in its
 * share of the pool, which has to stay. Guarded by the GIL. */
struct parked {
    struct rp_graph *graph;
    PyObject *pool;
    struct parked *next;
};
static struct parked *parked;

static unsigned long long writing_replays; /* guarded by the GIL */

PyObject *rpp_writing_replays(PyObject *module, PyObject *unused)
{
    rpp_assert_gil();
    (void)module, (void)unused;
    return PyLong_FromUnsignedLongLong(writing_replays);
}

/* lent: work of PyTorch's may be under way on what the graph made, an optimizer's step with its
 * gradients, and the memory goes with the graph. */
static void destroy(struct rp_graph *graph, bool lent)
{
    Py_BEGIN_ALLOW_THREADS;
    if (lent)
        (void)rp_graph_wait(graph, NULL);
    rp_graph_destroy(graph);
    Py_END_ALLOW_THREADS;
}

size_t rpp_sweep_graphs(void)
{
    rpp_assert_gil();
    size_t left = 0;
    struct parked *list = parked;
    parked = NULL;
    while (list) {
        struct parked *here = list;
        list = here->next;
        if (rpp_pool_is_used(((struct rpp_pool *)here->pool)->pool)) {
            here->next = parked;
            parked = here;
            left++;
            continue;
        }
        atomic_fetch_sub(&rpp_state.parked, 1);
        destroy(here->graph, true);
        Py_DECREF(here->pool);
        PyMem_Free(here);
    }
    return left;
}

/* Not while anything is captured: to destroy a graph waits for its replays. */
static int sweep_parked(void *unused)
{
    (void)unused;
    if (!atomic_load(&rpp_state.leaving) && !atomic_load(&rpp_state.calling) &&
        !atomic_load(&rpp_state.begun))
        (void)rpp_sweep_graphs();
    return 0;
}

static void ask_for_sweep(void)
{
    (void)Py_AddPendingCall(sweep_parked, NULL); /* there is no room: the next capture sweeps */
}

/* Parks the graph, and with it its reference to the pool. Without host memory both stay for ever:
 * tensors lie there. */
static void park(const struct rpp_graph *self)
{
    rpp_assert_gil();
    assert(self->graph && self->pool);
    struct parked *here = PyMem_Malloc(sizeof *here);
    if (!here)
        return;
    *here = (struct parked){self->graph, self->pool, parked};
    parked = here;
    rpp_state.ask_for_sweep = ask_for_sweep;
    atomic_fetch_add(&rpp_state.parked, 1);
}

static void graph_dealloc(PyObject *object)
{
    struct rpp_graph *self = (struct rpp_graph *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    bool leaving = atomic_load(&rpp_state.leaving);
    if (!leaving && rpp_pool_is_used(((struct rpp_pool *)self->pool)->pool)) {
        park(self);
        self->pool = NULL;
    } else if (!leaving) {
        destroy(self->graph, self->lends);
    }
    PyMem_Free(self->args);
    rpp_draws_finish(&self->draws);
    Py_XDECREF(self->scalars);
    Py_XDECREF(self->expected);
    Py_XDECREF(self->keeper);
    Py_XDECREF(self->pool);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* Reads a stream and the arguments' addresses from `first` on; false with an exception set. */
static bool read_call(struct rpp_graph *self, PyObject *args, Py_ssize_t first,
                      struct CUstream_st **out_stream)
{
    assert(first >= 0 && first <= PyTuple_Size(args));
    Py_ssize_t count = PyTuple_Size(args) - first;
    if (count != (Py_ssize_t)self->arg_count + 1) {
        PyErr_Format(PyExc_TypeError, "replay takes a stream and %zd addresses, not %zd",
                     (Py_ssize_t)self->arg_count, count - 1);
        return false;
    }
    for (Py_ssize_t i = 1; i < count; i++)
        self->args[i - 1].address = PyLong_AsUnsignedLongLong(PyTuple_GetItem(args, first + i));
    *out_stream =
        (struct CUstream_st *)(uintptr_t)PyLong_AsUnsignedLongLong(PyTuple_GetItem(args, first));
    return !PyErr_Occurred();
}

rp_status rpp_graph_enqueue(struct rpp_graph *graph, struct CUstream_st *stream,
                            struct rp_error *err)
{
    rpp_assert_gil();
    assert(!graph->draws.count || graph->draws.values);
    rp_status status = RP_OK;
    if (graph->scalars)
        status = rpp_scalars_set(graph->scalars, graph->graph, err);
    if (status == RP_OK)
        status = rp_graph_replay_values(graph->graph, graph->args, graph->arg_count,
                                        graph->draws.values, 2 * graph->draws.count, stream, err);
    if (status == RP_OK && graph->scalars)
        rpp_scalars_advance(graph->scalars);
    writing_replays += status == RP_OK && graph->writes;
    return status;
}

static bool enqueue(struct rpp_graph *self, struct CUstream_st *stream)
{
    struct rp_error err = {0};
    rp_status status = rpp_graph_enqueue(self, stream, &err);
    if (status != RP_OK)
        rpp_set_error(status, &err);
    return status == RP_OK;
}

/* replay(stream, address...): the addresses of the arguments, in the order of the capture. Draws
 * from the generators, and moves them on. */
static PyObject *graph_replay(PyObject *object, PyObject *args)
{
    struct rpp_graph *self = (struct rpp_graph *)object;
    struct CUstream_st *stream;
    if (!rpp_draws_read(&self->draws, 0) || !read_call(self, args, 0, &stream) ||
        !enqueue(self, stream) || !rpp_draws_advance(&self->draws, 0))
        return NULL;
    return Py_NewRef(Py_None);
}

/* replay_at((seed, offset), stream, address...): the same with these in place of the first
 * generator's, which stays where it is; the others move on. */
static PyObject *graph_replay_at(PyObject *object, PyObject *args)
{
    struct rpp_graph *self = (struct rpp_graph *)object;
    struct CUstream_st *stream;
    PyObject *state = PyTuple_Size(args) ? PyTuple_GetItem(args, 0) : Py_None;
    if (!rpp_draws_take(&self->draws, state) || !rpp_draws_read(&self->draws, 1) ||
        !read_call(self, args, 1, &stream) || !enqueue(self, stream) ||
        !rpp_draws_advance(&self->draws, 1))
        return NULL;
    return Py_NewRef(Py_None);
}

/* set_draws(((generator, increment), ...)): what the values that the capture named are of. */
static PyObject *graph_set_draws(PyObject *object, PyObject *pairs)
{
    struct rpp_graph *self = (struct rpp_graph *)object;
    return rpp_draws_set(&self->draws, pairs) ? Py_NewRef(Py_None) : NULL;
}

/* set_scalars(Scalars): what tells each replay the scalars that the capture named. */
static PyObject *graph_set_scalars(PyObject *object, PyObject *scalars)
{
    struct rpp_graph *self = (struct rpp_graph *)object;
    if (Py_TYPE(scalars) != rpp_scalars_type)
        return PyErr_Format(PyExc_TypeError, "set_scalars takes a Scalars");
    PyObject *before = self->scalars;
    self->scalars = Py_NewRef(scalars);
    Py_XDECREF(before);
    return Py_NewRef(Py_None);
}

/* scalar_places(index): in how many places of its nodes scalar `index` of the capture stands. */
static PyObject *graph_scalar_places(PyObject *object, PyObject *args)
{
    Py_ssize_t index;
    size_t places;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "n", &index))
        return NULL;
    rp_status status =
        rp_graph_scalar_info(((struct rpp_graph *)object)->graph, (size_t)index, &places, &err);
    return status == RP_OK ? PyLong_FromSize_t(places) : rpp_set_error(status, &err);
}

static int graph_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((struct rpp_graph *)object)->scalars);
    return 0;
}

static int graph_clear(PyObject *object)
{
    Py_CLEAR(((struct rpp_graph *)object)->scalars);
    return 0;
}

static PyObject *graph_lend(PyObject *object, PyObject *unused)
{
    (void)unused;
    ((struct rpp_graph *)object)->lends = true;
    return Py_NewRef(Py_None);
}

static PyObject *graph_release(PyObject *object, PyObject *unused)
{
    (void)unused;
    struct rp_error err = {0};
    rp_status status = rp_graph_release(((struct rpp_graph *)object)->graph, &err);
    return status == RP_OK ? Py_NewRef(Py_None) : rpp_set_error(status, &err);
}

static PyObject *graph_info(PyObject *object, PyObject *unused)
{
    (void)unused;
    struct rp_graph_info info = {.size = sizeof info};
    static const char *const verified[] = {NULL, "capture", "run"};
    rp_graph_info(((struct rpp_graph *)object)->graph, &info);
    return Py_BuildValue(
        "{sssnsnsnsKsKsKsKsnsnsnsdsdsdsdsKsnsnsnsKsOsKsKszsnszsdsnsKsO}", "name", info.name,
        "nodes", (Py_ssize_t)info.nodes, "edges", (Py_ssize_t)info.edges, "blocks",
        (Py_ssize_t)info.blocks, "total_bytes", info.total_bytes, "peak_bytes", info.peak_bytes,
        "lower_bound_bytes", info.lower_bound_bytes, "planned_bytes", info.planned_bytes,
        "diverged_blocks", (Py_ssize_t)info.diverged_blocks, "sites", (Py_ssize_t)info.sites,
        "rehearsals", (Py_ssize_t)info.rehearsals, "rehearse_ms", info.rehearse_ms, "plan_ms",
        info.plan_ms, "record_ms", info.record_ms, "instantiate_ms", info.instantiate_ms, "replays",
        info.replays, "bindable_args", (Py_ssize_t)info.bindable_args, "bound_args",
        (Py_ssize_t)info.bound_args, "copied_args", (Py_ssize_t)info.copied_args, "patched_nodes",
        info.patched_nodes, "own_exec", info.own_exec ? Py_True : Py_False, "exec_updates",
        info.exec_updates, "exec_bytes", info.exec_bytes, "verified", verified[info.verified],
        "unverified_args", (Py_ssize_t)info.unverified_args, "not_run", info.not_run, "verify_ms",
        info.verify_ms, "outside_blocks", (Py_ssize_t)info.outside_blocks, "lost_bytes",
        info.lost_bytes, "plan_stopped", info.plan_stopped ? Py_True : Py_False);
}

/* Of argument `index`: (sites, bindable, bound, reason or None). */
static PyObject *graph_arg_info(PyObject *object, PyObject *args)
{
    Py_ssize_t index;
    struct rp_graph_arg_info info = {.size = sizeof info};
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "n", &index))
        return NULL;
    rp_status status =
        rp_graph_arg_info(((struct rpp_graph *)object)->graph, (size_t)index, &info, &err);
    if (status != RP_OK)
        return rpp_set_error(status, &err);
    return Py_BuildValue("(nOOz)", (Py_ssize_t)info.sites, info.bindable ? Py_True : Py_False,
                         info.bound ? Py_True : Py_False, info.reason);
}

/* Has a replay left other bytes than it is to, as far as the host sees by now? */
static bool has_left_others(const struct rpp_graph *graph)
{
    rpp_assert_gil();
    char *expected;
    Py_ssize_t bytes;
    if (!graph->expected)
        return false;
    int status = PyBytes_AsStringAndSize(graph->expected, &expected, &bytes);
    assert(status == 0 && graph->found);
    (void)status;
    return memcmp(expected, graph->found, (size_t)bytes) != 0;
}

bool rpp_graph_is_stale(const struct rpp_graph *graph)
{
    return rp_graph_is_stale(graph->graph) || has_left_others(graph);
}

static PyObject *graph_is_stale(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(rpp_graph_is_stale((struct rpp_graph *)object));
}

/* expect(bytes, address, keeper): what each replay leaves in memory of the host, which another
 * object keeps. Once it left something else the graph is stale. */
static PyObject *graph_expect(PyObject *object, PyObject *args)
{
    struct rpp_graph *self = (struct rpp_graph *)object;
    PyObject *expected, *keeper;
    unsigned long long address;
    if (!PyArg_ParseTuple(args, "O!KO", &PyBytes_Type, &expected, &address, &keeper))
        return NULL;
    if (self->expected || !address)
        return PyErr_Format(PyExc_ValueError, "a graph leaves bytes in one place of the host");
    self->expected = Py_NewRef(expected);
    self->keeper = Py_NewRef(keeper);
    self->found = (const void *)(uintptr_t)address;
    return Py_NewRef(Py_None);
}

static PyObject *graph_set_writes(PyObject *object, PyObject *unused)
{
    (void)unused;
    ((struct rpp_graph *)object)->writes = true;
    return Py_NewRef(Py_None);
}

static PyObject *graph_left_others(PyObject *object, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(has_left_others((struct rpp_graph *)object));
}

static PyObject *as_tuple(const unsigned char *named, size_t count)
{
    rpp_assert_gil();
    PyObject *list = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *bits = PyLong_FromLong(named[i]);
        if (!bits)
            Py_CLEAR(list);
        else
            PyTuple_SetItem(list, (Py_ssize_t)i, bits);
    }
    return list;
}

static bool read_ranges(PyObject *list, struct rp_memory *ranges, Py_ssize_t count)
{
    assert(count == PyTuple_Size(list));
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned long long address, bytes;
        if (!PyArg_ParseTuple(PyTuple_GetItem(list, i), "KK", &address, &bytes))
            return false;
        ranges[i] = (struct rp_memory){address, bytes};
    }
    return true;
}

/* names(((address, bytes), ...)): bits of enum rp_named of each. */
static PyObject *graph_names(PyObject *object, PyObject *list)
{
    const struct rp_graph *graph = ((struct rpp_graph *)object)->graph;
    Py_ssize_t count = PyTuple_Size(list);
    if (count < 0)
        return NULL;
    struct rp_memory *ranges = PyMem_Calloc((size_t)count + 1, sizeof *ranges);
    unsigned char *named = PyMem_Calloc((size_t)count + 1, 1);
    struct rp_error err = {0};
    PyObject *told = NULL;
    if (!ranges || !named) {
        PyErr_NoMemory();
    } else if (read_ranges(list, ranges, count)) {
        rp_status status = rp_graph_names(graph, ranges, (size_t)count, named, &err);
        told = status == RP_OK ? as_tuple(named, (size_t)count) : rpp_set_error(status, &err);
    }
    PyMem_Free(ranges);
    PyMem_Free(named);
    return told;
}

/* where_lost(): the first place of its nodes that names the memory which info() says was freed; "":
 * all is there. */
static PyObject *graph_where_lost(PyObject *object, PyObject *unused)
{
    (void)unused;
    const struct rp_graph *graph = ((struct rpp_graph *)object)->graph;
    struct rp_graph_info info = {.size = sizeof info};
    struct rp_error err = {0};
    char where[320];
    rp_graph_info(graph, &info);
    if (!info.lost_bytes)
        return PyUnicode_FromString("");
    const struct rp_memory range = {info.lost_address, info.lost_bytes};
    rp_status status = rp_graph_where_named(graph, &range, where, sizeof where, &err);
    return status == RP_OK ? PyUnicode_FromString(where) : rpp_set_error(status, &err);
}

static PyMethodDef methods[] = {
    {"replay", graph_replay, METH_VARARGS, "Enqueues the graph: replay(stream, address...)."},
    {"replay_at", graph_replay_at, METH_VARARGS,
     "replay_at((seed, offset), stream, address...): the first generator stays where it is."},
    {"set_draws", graph_set_draws, METH_O,
     "set_draws(((generator, increment), ...)): what each replay draws from and moves on."},
    {"set_scalars", graph_set_scalars, METH_O,
     "set_scalars(Scalars): what tells each replay the scalars that the capture named."},
    {"scalar_places", graph_scalar_places, METH_VARARGS,
     "scalar_places(index): in how many places of its nodes a scalar stands."},
    {"is_stale", graph_is_stale, METH_NOARGS,
     "Was memory freed that the graph uses beside its arguments, or did it leave other bytes?"},
    {"expect", graph_expect, METH_VARARGS,
     "expect(bytes, address, keeper): what each replay leaves in memory of the host."},
    {"set_writes", graph_set_writes, METH_NOARGS,
     "Each replay writes to tensors that are no arguments of it."},
    {"left_others", graph_left_others, METH_NOARGS,
     "Did a replay leave other bytes there than expected?"},
    {"names", graph_names, METH_O,
     "Of each (address, bytes): 0; 1, nodes name memory there; with 2 beside it, and may not."},
    {"where_lost", graph_where_lost, METH_NOARGS,
     "Where its nodes name the memory that was freed: a node and a byte, or \"\"."},
    {"lend", graph_lend, METH_NOARGS,
     "Tensors lie in its memory: work behind its last replay, on that stream, is waited for when "
     "it goes."},
    {"release", graph_release, METH_NOARGS, "Later captures may lie over what it keeps."},
    {"info", graph_info, METH_NOARGS, "Facts, as struct rp_graph_info has them."},
    {"arg_info", graph_arg_info, METH_VARARGS, "(sites, bindable, bound, why not) of an argument."},
    {NULL, NULL, 0, NULL},
};

int rpp_add_graph_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, (void *)graph_dealloc},
        {Py_tp_traverse, (void *)graph_traverse},
        {Py_tp_clear, (void *)graph_clear},
        {Py_tp_methods, methods},
        {Py_tp_doc, "Captured work, ready to replay."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        "reprise._C.Graph", sizeof(struct rpp_graph), 0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    rpp_graph_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return rpp_graph_type ? PyModule_AddType(module, rpp_graph_type) : -1;
}
