/* SPDX-License-Identifier: MIT */
#include "base/uncollected.h"

struct uncollected {
    PyObject_HEAD unsigned entered; /* how often it is entered now */
};

static unsigned depth; /* of all contexts */
static int was_on;

static PyObject *enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    rpp_assert_gil();
    int is_on = PyGC_Disable();
    if (depth++ == 0)
        was_on = is_on;
    ((struct uncollected *)object)->entered++;
    return Py_NewRef(object);
}

static void leave(struct uncollected *self)
{
    assert(depth >= self->entered && self->entered > 0);
    self->entered--;
    if (--depth == 0 && was_on)
        PyGC_Enable();
}

static PyObject *exit_context(PyObject *object, PyObject *args)
{
    (void)args;
    rpp_assert_gil();
    struct uncollected *self = (struct uncollected *)object;
    if (self->entered == 0) {
        PyErr_SetString(PyExc_RuntimeError, "a context is left that was not entered");
        return NULL;
    }
    leave(self);
    Py_RETURN_NONE;
}

static void dealloc(PyObject *object)
{
    struct uncollected *self = (struct uncollected *)object;
    PyTypeObject *type = Py_TYPE(object);
    while (self->entered)
        leave(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"__enter__", enter, METH_NOARGS, NULL}, {"__exit__", exit_context, METH_VARARGS, NULL}, {0}};

static PyType_Slot slots[] = {{Py_tp_methods, methods}, {Py_tp_dealloc, dealloc}, {0}};

static PyType_Spec spec = {.name = "reprise._C.Uncollected",
                           .basicsize = sizeof(struct uncollected),
                           .flags = Py_TPFLAGS_DEFAULT,
                           .slots = slots};

int rpp_add_uncollected_type(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    int added = type ? PyModule_AddObjectRef(module, "Uncollected", type) : -1;
    Py_XDECREF(type);
    return added;
}
