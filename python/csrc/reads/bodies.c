/* SPDX-License-Identifier: MIT */
#include "reads/bodies.h"

#include <stdint.h>

/* Keeps the first object that is referred to; others are left. */
static int keep_first(PyObject *object, void *out)
{
    PyObject **found = out;
    if (!*found)
        *found = object;
    return 0;
}

PyObject *rpp_dict_of_class(PyObject *module, PyObject *type)
{
    rpp_assert_gil();
    (void)module;
    PyObject *view = PyObject_GetAttrString(type, "__dict__"), *found = NULL;
    if (!view)
        return NULL;
    if (Py_TYPE(view) == &PyDictProxy_Type) {
        traverseproc visit = (traverseproc)(uintptr_t)PyType_GetSlot(Py_TYPE(view), Py_tp_traverse);
        if (visit)
            visit(view, keep_first, &found);
    }
    PyObject *names = Py_NewRef(found && PyDict_CheckExact(found) ? found : Py_None);
    Py_DECREF(view);
    return names;
}

static bool begins(PyObject *name, const char *with)
{
    Py_ssize_t at = 0;
    while (with[at] && at < PyUnicode_GetLength(name) &&
           PyUnicode_ReadChar(name, at) == (Py_UCS4)with[at])
        at++;
    return with[at] == 0;
}

static bool ends_with_dunder(PyObject *name)
{
    Py_ssize_t length = PyUnicode_GetLength(name);
    return PyUnicode_ReadChar(name, length - 1) == '_' &&
           PyUnicode_ReadChar(name, length - 2) == '_';
}

/* Is it a name of Python's, or of its abstract classes' caches? */
static bool is_of_python(PyObject *name)
{
    return PyUnicode_Check(name) &&
           ((begins(name, "__") && ends_with_dunder(name)) || begins(name, "_abc_"));
}

PyObject *rpp_body_of(PyObject *module, PyObject *names)
{
    rpp_assert_gil();
    (void)module;
    if (!PyDict_Check(names))
        return PyErr_Format(PyExc_TypeError, "body_of takes a dict");
    PyObject *made = PyDict_New(), *name, *value;
    Py_ssize_t at = 0;
    while (made && PyDict_Next(names, &at, &name, &value))
        if (!is_of_python(name) && PyDict_SetItem(made, name, value) != 0)
            Py_CLEAR(made);
    return made;
}
