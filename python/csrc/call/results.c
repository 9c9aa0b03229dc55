/* SPDX-License-Identifier: MIT */
#include "call/results.h"

bool rpp_maker_set(struct rpp_maker *maker, PyObject *tensor_type, PyObject *empty,
                   PyObject *quick_empty)
{
    rpp_assert_gil();
    *maker = (struct rpp_maker){.empty = Py_NewRef(empty),
                                .quick_empty = Py_NewRef(quick_empty),
                                .resize = PyUnicode_InternFromString("resize_")};
    PyObject *capsule = PyObject_GetAttrString(tensor_type, "__dlpack_c_exchange_api__");
    maker->exchange = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    Py_XDECREF(capsule);
    if (!maker->exchange || !maker->resize)
        return false;
    if (maker->exchange->header.major != 1)
        PyErr_Format(PyExc_NotImplementedError, "DLPack %u is not known",
                     maker->exchange->header.major);
    return maker->exchange->header.major == 1;
}

void rpp_maker_drop(struct rpp_maker *maker)
{
    Py_XDECREF(maker->empty);
    Py_XDECREF(maker->quick_empty);
    Py_XDECREF(maker->resize);
    *maker = (struct rpp_maker){0};
}

bool rpp_result_read(struct rpp_result *result, PyObject *how, int32_t ordinal)
{
    rpp_assert_gil();
    PyObject *size, *strides, *dtype, *cut = NULL;
    if (!PyArg_ParseTuple(how, "O!O!O|O!", &PyTuple_Type, &size, &PyTuple_Type, &strides, &dtype,
                          &PyTuple_Type, &cut))
        return false;
    result->cut = Py_XNewRef(cut);
    result->whole = PyTuple_Pack(3, size, strides, dtype);
    result->place = PyTuple_Pack(2, size, strides);
    result->options = Py_BuildValue("{sOsi}", "dtype", dtype, "device", (int)ordinal);
    return result->whole && result->place && result->options;
}

void rpp_result_drop(struct rpp_result *result)
{
    Py_XDECREF(result->whole);
    Py_XDECREF(result->place);
    Py_XDECREF(result->options);
    Py_XDECREF(result->cut);
    *result = (struct rpp_result){0};
}

/* What torch.compile's programs allocate with skips PyTorch's parsing of arguments and its
 * dispatcher, a third to a half of a short call, and knows the current device only. */
static PyObject *make_whole(const struct rpp_result *result, const struct rpp_maker *maker,
                            int32_t ordinal, struct dl_tensor *out_tensor)
{
    PyObject *made = maker->quick_empty == Py_None
                         ? NULL
                         : PyObject_CallObject(maker->quick_empty, result->whole);
    if (made && maker->exchange->look(made, out_tensor) == 0 &&
        out_tensor->device.ordinal == ordinal)
        return made;
    Py_XDECREF(made);
    if (PyErr_Occurred())
        return NULL;
    made = PyObject_Call(maker->empty, result->place, result->options);
    if (made && maker->exchange->look(made, out_tensor) == 0)
        return made;
    Py_XDECREF(made);
    return NULL;
}

PyObject *rpp_result_make(const struct rpp_result *result, const struct rpp_maker *maker,
                          int32_t ordinal, struct dl_tensor *out_tensor)
{
    rpp_assert_gil();
    PyObject *made = make_whole(result, maker, ordinal, out_tensor);
    if (!made || !result->cut)
        return made;
    PyObject *same = PyObject_CallMethodObjArgs(made, maker->resize, result->cut, NULL);
    Py_DECREF(made);
    return same; /* resize_ returns the tensor; its memory stays where it is */
}
