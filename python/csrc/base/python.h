/* SPDX-License-Identifier: MIT
 *
 * Python's stable interface, and what the files of the extension share of it.
 */
#ifndef REPRISE_PYTHON_PYTHON_H
#define REPRISE_PYTHON_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/state.h"

#include <assert.h>

/* Asserts that this thread has the GIL: where it has not, Python ends the process. */
#define rpp_assert_gil() assert(PyThreadState_Get() != NULL)

/* reprise.Error, made by the module. */
extern PyObject *rpp_error_type;

/* Raises reprise.Error with the status, the driver's code and the operation as attributes; returns
 * NULL. */
PyObject *rpp_set_error(rp_status status, const struct rp_error *err);

/* The device whose ordinal is the only argument, opened; NULL with an exception set. */
struct rp_device *rpp_parse_device(PyObject *args);

/* A new object of a type of ours, all zeroes; NULL with an exception set. */
PyObject *rpp_allocate(PyTypeObject *type);
/* Ends an object that nobody refers to, of a type that the collector tracks; clear: the type's. */
void rpp_deallocate(PyObject *object, inquiry clear);

#endif
