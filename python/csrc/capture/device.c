/* SPDX-License-Identifier: MIT */
#include "capture/device.h"

#include "base/state.h"

#include <reprise_framework.h>

/* The copies of a list, to be freed; NULL with an exception set. */
static struct rp_copy *read_copies(PyObject *list)
{
    rpp_assert_gil();
    Py_ssize_t count = PyList_Size(list);
    struct rp_copy *copies = PyMem_Calloc(count ? (size_t)count : 1, sizeof *copies);
    if (!copies)
        return (struct rp_copy *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned long long to, from, bytes;
        PyObject *one = PyList_GetItem(list, i);
        if (!PyTuple_Check(one)) {
            PyErr_SetString(PyExc_TypeError, "a copy is a tuple (to, from, bytes)");
        } else if (PyArg_ParseTuple(one, "KKK", &to, &from, &bytes)) {
            copies[i] = (struct rp_copy){to, from, bytes};
            continue;
        }
        PyMem_Free(copies);
        return NULL;
    }
    return copies;
}

PyObject *rpp_side_stream(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    int ordinal;
    struct rpp_device *device;
    struct CUstream_st *stream = NULL;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "i", &ordinal))
        return NULL;
    rp_status status = rpp_device_get(ordinal, &device, &err);
    if (status == RP_OK)
        status = rp_device_stream(device->device, &stream, &err);
    if (status != RP_OK)
        return rpp_set_error(status, &err);
    return PyLong_FromUnsignedLongLong((uintptr_t)stream);
}

PyObject *rpp_copy(PyObject *module, PyObject *args)
{
    (void)module;
    int ordinal;
    unsigned long long stream;
    PyObject *list;
    struct rpp_device *device;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "iKO!", &ordinal, &stream, &PyList_Type, &list))
        return NULL;
    rp_status status = rpp_device_get(ordinal, &device, &err);
    if (status != RP_OK)
        return rpp_set_error(status, &err);
    struct rp_copy *copies = read_copies(list);
    if (!copies)
        return NULL;
    size_t count = (size_t)PyList_Size(list);
    Py_BEGIN_ALLOW_THREADS status = rp_device_copy(device->device, copies, count,
                                                   (struct CUstream_st *)(uintptr_t)stream, &err);
    Py_END_ALLOW_THREADS PyMem_Free(copies);
    return status == RP_OK ? Py_NewRef(Py_None) : rpp_set_error(status, &err);
}
