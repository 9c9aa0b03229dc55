/* SPDX-License-Identifier: MIT */
#include "alloc/observers.h"

static PyObject *observers; /* a list; NULL: nobody asked. Under the GIL. */

static void tell(PyObject *observer, int ordinal, uint64_t bytes, uint64_t total, uint64_t free)
{
    PyObject *done = PyObject_CallFunction(observer, "iKKK", ordinal, (unsigned long long)bytes,
                                           (unsigned long long)total, (unsigned long long)free);
    if (!done)
        PyErr_WriteUnraisable(observer);
    Py_XDECREF(done);
}

/* By any thread. An error that is under way stays: memory may be asked for behind one. */
static void tell_all(int ordinal, uint64_t bytes, uint64_t total, uint64_t free)
{
    PyObject *type, *value, *traceback;
    if (atomic_load(&rpp_state.leaving))
        return;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyErr_Fetch(&type, &value, &traceback);
    for (Py_ssize_t i = 0; i < PyList_Size(observers); i++) {
        PyObject *observer = Py_NewRef(PyList_GetItem(observers, i));
        tell(observer, ordinal, bytes, total, free);
        Py_DECREF(observer);
    }
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(gil);
}

PyObject *rpp_observe_shortage(PyObject *module, PyObject *function)
{
    rpp_assert_gil();
    (void)module;
    if (!PyCallable_Check(function))
        return PyErr_Format(PyExc_TypeError, "an observer has to be a function, not %R", function);
    if (!observers && !(observers = PyList_New(0)))
        return NULL;
    if (PyList_Append(observers, function) != 0)
        return NULL;
    atomic_store(&rpp_state.on_shortage, tell_all);
    return Py_NewRef(Py_None);
}
