/* SPDX-License-Identifier: MIT */
#include "call/pass.h"

#include "base/tensor_address.h"
#include "call/results.h"
#include "capture/graph.h"

struct pass {
    PyObject_HEAD struct rpp_graph *graph;
    struct rpp_maker maker;
    int32_t ordinal;
    size_t taken_count, result_count;
    Py_ssize_t *taken; /* of the tensors of a call those that are the graph's arguments */
    struct rpp_result *results;
};

static PyObject *item_of(PyObject *tensors, Py_ssize_t i)
{
    return PyTuple_Check(tensors) ? PyTuple_GetItem(tensors, i) : PyList_GetItem(tensors, i);
}

/* Makes the results, a list, and notes where they lie; NULL with an exception set. */
static PyObject *make_results(const struct pass *pass, uint64_t *addresses)
{
    PyObject *list = PyList_New((Py_ssize_t)pass->result_count);
    for (size_t i = 0; list && i < pass->result_count; i++) {
        struct dl_tensor tensor = {0};
        PyObject *made = rpp_result_make(&pass->results[i], &pass->maker, pass->ordinal, &tensor);
        if (!made) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SetItem(list, (Py_ssize_t)i, made);
        addresses[i] = (uintptr_t)tensor.data;
    }
    return list;
}

/* The arguments are the graph's: from here to the launch no other thread runs. */
static bool fill_in(const struct pass *pass, PyObject *tensors, const uint64_t *results)
{
    struct rp_arg *args = pass->graph->args;
    for (size_t i = 0; i < pass->taken_count; i++) {
        struct dl_tensor tensor = {0};
        PyObject *given = item_of(tensors, pass->taken[i]);
        if (!given || pass->maker.exchange->look(given, &tensor) != 0)
            return false;
        args[i].address = rpp_tensor_seen(&tensor);
    }
    for (size_t i = 0; i < pass->result_count; i++)
        args[pass->taken_count + i].address = results[i];
    return true;
}

/* state: None, or (seed, offset) of the first generator. False with an exception set. */
static bool launch(const struct pass *pass, PyObject *tensors, PyObject *state,
                   const uint64_t *results)
{
    void *stream = NULL;
    struct rp_error err = {0};
    const struct rpp_draws *draws = &pass->graph->draws;
    size_t first = state == Py_None ? 0 : 1;
    if (first && !rpp_draws_take(draws, state))
        return false;
    if (!rpp_draws_read(draws, first) || !fill_in(pass, tensors, results))
        return false;
    if (pass->maker.exchange->stream(DL_CUDA, pass->ordinal, &stream) != 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_RuntimeError, "PyTorch did not tell its current stream");
        return false;
    }
    rp_status status = rpp_graph_enqueue(pass->graph, stream, &err);
    if (status != RP_OK)
        rpp_set_error(status, &err);
    return status == RP_OK && rpp_draws_advance(draws, first);
}

/* run(tensors, state): a list of what the graph makes. */
static PyObject *pass_run(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    const struct pass *pass = (struct pass *)object;
    if (count != 2 || !(PyTuple_Check(arguments[0]) || PyList_Check(arguments[0])))
        return PyErr_Format(PyExc_TypeError, "run takes a tuple or a list, and a state or None");
    uint64_t *addresses = PyMem_Calloc(pass->result_count + 1, sizeof *addresses);
    if (!addresses)
        return PyErr_NoMemory();
    PyObject *made = make_results(pass, addresses);
    if (made && !launch(pass, arguments[0], arguments[1], addresses))
        Py_CLEAR(made);
    PyMem_Free(addresses);
    return made;
}

/* ---- The type ------------------------------------------------------------------------------ */

static bool read_taken(struct pass *pass, PyObject *taken)
{
    pass->taken_count = (size_t)PyTuple_Size(taken);
    pass->taken = PyMem_Calloc(pass->taken_count + 1, sizeof *pass->taken);
    for (size_t i = 0; pass->taken && i < pass->taken_count; i++)
        pass->taken[i] = PyLong_AsSsize_t(PyTuple_GetItem(taken, (Py_ssize_t)i));
    if (!pass->taken)
        PyErr_NoMemory();
    return !PyErr_Occurred();
}

static bool read_results(struct pass *pass, PyObject *results)
{
    Py_ssize_t count = PyTuple_Size(results);
    pass->results = PyMem_Calloc((size_t)count + 1, sizeof *pass->results);
    if (!pass->results)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; !PyErr_Occurred() && i < count; i++)
        (void)rpp_result_read(&pass->results[pass->result_count++], PyTuple_GetItem(results, i),
                              pass->ordinal);
    if (!PyErr_Occurred() && pass->graph->arg_count != pass->taken_count + pass->result_count)
        PyErr_Format(PyExc_TypeError, "the graph has %zu arguments, not %zu and %zu",
                     pass->graph->arg_count, pass->taken_count, pass->result_count);
    return !PyErr_Occurred();
}

/* Pass(graph, ordinal, taken, results, Tensor, empty_strided, _empty_strided_cuda or None) */
static PyObject *pass_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    PyObject *graph, *taken, *results, *tensor_type, *empty, *quick_empty;
    int ordinal;
    if (!PyArg_ParseTuple(args, "O!iO!O!OOO", rpp_graph_type, &graph, &ordinal, &PyTuple_Type,
                          &taken, &PyTuple_Type, &results, &tensor_type, &empty, &quick_empty))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct pass *pass = (struct pass *)alloc(type, 0);
    if (!pass)
        return NULL;
    pass->graph = (struct rpp_graph *)Py_NewRef(graph);
    pass->ordinal = ordinal;
    if (rpp_maker_set(&pass->maker, tensor_type, empty, quick_empty) && read_taken(pass, taken) &&
        read_results(pass, results))
        return (PyObject *)pass;
    Py_DECREF(pass);
    return NULL;
}

static int pass_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT((PyObject *)((struct pass *)object)->graph);
    return 0;
}

static void pass_dealloc(PyObject *object)
{
    struct pass *pass = (struct pass *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    for (size_t i = 0; i < pass->result_count; i++)
        rpp_result_drop(&pass->results[i]);
    PyMem_Free(pass->results);
    PyMem_Free(pass->taken);
    rpp_maker_drop(&pass->maker);
    Py_XDECREF((PyObject *)pass->graph);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"run", (PyCFunction)(void (*)(void))pass_run, METH_FASTCALL,
     "run(tensors, state): enqueues the graph for these, and returns a list of new tensors. state: "
     "seed and offset of the first generator that it draws from, which stays where it is; None: "
     "its own."},
    {NULL, NULL, 0, NULL},
};

int rpp_add_pass_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)pass_new},
        {Py_tp_dealloc, (void *)pass_dealloc},
        {Py_tp_traverse, (void *)pass_traverse},
        {Py_tp_methods, methods},
        {Py_tp_doc, "A pass of a graph, from tensors to new ones."},
        {0, NULL},
    };
    static PyType_Spec spec = {"reprise._C.Pass", sizeof(struct pass), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
    PyObject *type = PyType_FromSpec(&spec);
    return type ? PyModule_AddType(module, (PyTypeObject *)type) : -1;
}
