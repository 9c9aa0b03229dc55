/* SPDX-License-Identifier: MIT */
#include "base/python.h"

#include <string.h>

PyObject *rpp_error_type;

/* A text that may have been cut in the midst of a letter. */
static PyObject *text_of(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

PyObject *rpp_set_error(rp_status status, const struct rp_error *err)
{
    rpp_assert_gil();
    const char *text = err->message[0] ? err->message : rp_status_text(status);
    PyObject *message = text_of(text);
    PyObject *error = message ? PyObject_CallFunctionObjArgs(rpp_error_type, message, NULL) : NULL;
    PyObject *name = PyUnicode_FromString(rp_status_name(status));
    PyObject *code = PyLong_FromLong(err->driver_code);
    PyObject *operation = text_of(err->operation);
    if (error && name && code && operation && PyObject_SetAttrString(error, "status", name) == 0 &&
        PyObject_SetAttrString(error, "driver_code", code) == 0 &&
        PyObject_SetAttrString(error, "operation", operation) == 0)
        PyErr_SetObject(rpp_error_type, error);
    if (!PyErr_Occurred()) /* interning a name clears what went wrong before it */
        PyErr_NoMemory();
    Py_XDECREF(message);
    Py_XDECREF(error);
    Py_XDECREF(name);
    Py_XDECREF(code);
    Py_XDECREF(operation);
    return NULL;
}

struct rp_device *rpp_parse_device(PyObject *args)
{
    rpp_assert_gil();
    int ordinal;
    struct rpp_device *slot;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "i", &ordinal))
        return NULL;
    rp_status status = rpp_device_get(ordinal, &slot, &err);
    if (status == RP_OK)
        return slot->device;
    rpp_set_error(status, &err);
    return NULL;
}

PyObject *rpp_allocate(PyTypeObject *type)
{
    rpp_assert_gil();
    return ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}

void rpp_deallocate(PyObject *object, inquiry clear)
{
    rpp_assert_gil();
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    clear(object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}
