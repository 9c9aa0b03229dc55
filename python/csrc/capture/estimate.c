/* SPDX-License-Identifier: MIT
 *
 * Estimate: what captures to come will take. Each is added as it would be captured, and only
 * rehearsed; the pools that they are added to stay alive with it.
 */
#include "capture/estimate.h"

#include "capture/capture.h"

struct estimate {
    PyObject_HEAD struct rp_estimate *estimate;
    PyObject *pools; /* a list */
};

static PyObject *estimate_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    struct rp_error err = {0};
    struct rp_estimate *estimate;
    if (!PyArg_ParseTuple(args, ""))
        return NULL;
    PyObject *pools = PyList_New(0);
    if (!pools)
        return NULL;
    rp_status status = rp_estimate_create(&estimate, &err);
    if (status != RP_OK) {
        Py_DECREF(pools);
        return rpp_set_error(status, &err);
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct estimate *self = (struct estimate *)alloc(type, 0);
    if (!self) {
        rp_estimate_destroy(estimate);
        Py_DECREF(pools);
        return NULL;
    }
    self->estimate = estimate;
    self->pools = pools;
    return (PyObject *)self;
}

static void estimate_dealloc(PyObject *object)
{
    struct estimate *self = (struct estimate *)object;
    PyTypeObject *type = Py_TYPE(object);
    rp_estimate_destroy(self->estimate); /* before its pools */
    Py_XDECREF(self->pools);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *estimate_add(PyObject *object, PyObject *args)
{
    struct estimate *self = (struct estimate *)object;
    PyObject *pool = PyTuple_Size(args) > 0 ? PyTuple_GetItem(args, 0) : Py_None;
    if (PyList_Append(self->pools, pool) != 0)
        return NULL;
    return rpp_estimate_add(self->estimate, args);
}

static PyObject *estimate_info(PyObject *object, PyObject *unused)
{
    (void)unused;
    struct rp_estimate_info info = {.size = sizeof info};
    rp_estimate_info(((struct estimate *)object)->estimate, &info);
    return Py_BuildValue("{snsKsKsKsKsKsd}", "shapes", (Py_ssize_t)info.shapes, "planned_bytes",
                         info.planned_bytes, "mapped_bytes", info.mapped_bytes, "lower_bound_bytes",
                         info.lower_bound_bytes, "exec_bytes", info.exec_bytes, "rehearsal_bytes",
                         info.rehearsal_bytes, "ms", info.ms);
}

static PyObject *estimate_shapes(PyObject *object, PyObject *unused)
{
    (void)unused;
    struct rp_estimate_shape shape = {.size = sizeof shape};
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && rp_estimate_shape(((struct estimate *)object)->estimate, i, &shape);
         i++) {
        PyObject *facts = Py_BuildValue("{sssKsKsKsnsd}", "name", shape.text, "planned_bytes",
                                        shape.planned_bytes, "lower_bound_bytes",
                                        shape.lower_bound_bytes, "exec_bytes", shape.exec_bytes,
                                        "nodes", (Py_ssize_t)shape.nodes, "ms", shape.ms);
        if (!facts || PyList_Append(list, facts) != 0)
            Py_CLEAR(list);
        Py_XDECREF(facts);
    }
    return list;
}

static PyMethodDef methods[] = {
    {"add", estimate_add, METH_VARARGS, "add(pool, callable, args, results, name)"},
    {"info", estimate_info, METH_NOARGS, "Sizes in bytes, as struct rp_estimate_info has them."},
    {"shapes", estimate_shapes, METH_NOARGS, "Facts of each, in the order of their adding."},
    {NULL, NULL, 0, NULL},
};

int rpp_add_estimate_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, (void *)estimate_new},
        {Py_tp_dealloc, (void *)estimate_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_doc, "What captures to come will take."},
        {0, NULL},
    };
    static PyType_Spec spec = {"reprise._C.Estimate", sizeof(struct estimate), 0,
                               Py_TPFLAGS_DEFAULT, slots};
    PyTypeObject *type = (PyTypeObject *)PyType_FromSpec(&spec);
    int done = type ? PyModule_AddType(module, type) : -1;
    Py_XDECREF(type);
    return done;
}
