/* SPDX-License-Identifier: MIT
 *
 * Captures for Python, and what their runs ask of the call under way. With the GIL.
 */
#ifndef REPRISE_PYTHON_CAPTURE_H
#define REPRISE_PYTHON_CAPTURE_H

#include "base/python.h"

/* capture(pool, callable, args, results or places, name, copy_args[, verify, stream]) */
PyObject *rpp_capture(PyObject *module, PyObject *args);
/* call_result(bytes, block), call_value(address), call_take_over(), call_begun() and
 * call_ended(graph, nodes) */
PyObject *rpp_call_result(PyObject *module, PyObject *args);
PyObject *rpp_call_value(PyObject *module, PyObject *args);
PyObject *rpp_call_leave(PyObject *module, PyObject *args);
PyObject *rpp_call_take_over(PyObject *module, PyObject *unused);
PyObject *rpp_call_begun(PyObject *module, PyObject *unused);
PyObject *rpp_call_ended(PyObject *module, PyObject *args);
/* Overwrites the stack below the caller. */
PyObject *rpp_clean_stack(PyObject *module, PyObject *unused);
/* tables_lie_on_heap(bool): does PyTorch make tables of tensors there? Runs get zeros from malloc then,
 * which is so until it is told otherwise. */
PyObject *rpp_tables_lie_on_heap(PyObject *module, PyObject *whether);

/* Estimate.add: (pool, callable, args, results, name) */
PyObject *rpp_estimate_add(struct rp_estimate *estimate, PyObject *args);

#endif
