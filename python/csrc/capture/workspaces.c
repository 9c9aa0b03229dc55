/* SPDX-License-Identifier: MIT */
#include "capture/workspaces.h"

#include "alloc/spares.h"

#include <dlfcn.h>
#include <string.h>

static void (*drop_of_stream)(struct CUstream_st *stream);

PyObject *rpp_learn_workspaces(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    const char *path;
    if (!PyArg_ParseTuple(args, "s", &path))
        return NULL;
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    void *found = library
                      ? dlsym(library, "_ZN2at4cuda30clearCublasWorkspacesForStreamEP11CUstream_st")
                      : NULL;
    memcpy(&drop_of_stream, &found, sizeof found);
    return PyBool_FromLong(found != NULL);
}

PyObject *rpp_drop_workspaces(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    unsigned long long stream;
    if (!PyArg_ParseTuple(args, "K", &stream))
        return NULL;
    if (!drop_of_stream) {
        PyErr_SetString(PyExc_RuntimeError, "PyTorch cannot drop the workspaces of one stream");
        return NULL;
    }
    /* Frees: the allocator may want the interpreter's lock. */
    Py_BEGIN_ALLOW_THREADS;
    drop_of_stream((struct CUstream_st *)(uintptr_t)stream);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

PyObject *rpp_spare_frees(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    int on;
    if (!PyArg_ParseTuple(args, "p", &on))
        return NULL;
    rpp_spare_frees_here(on);
    Py_RETURN_NONE;
}
