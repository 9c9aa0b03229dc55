/* SPDX-License-Identifier: MIT
 *
 * The scalars of a graph (rp_call_scalar) as a program computes them: each is a small expression of
 * numbers that lie in dicts, an optimizer's param_groups for example, and of counters, which are
 * tensors of one element on the CPU. A call reads the numbers, and where one changed computes the
 * scalars anew, in the order and with the operations that the program had, so with its results to
 * the bit. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_SCALARS_H
#define REPRISE_PYTHON_SCALARS_H

#include "base/python.h"

extern PyTypeObject *rpp_scalars_type;

/* Are the places as the graph was captured for? Reads them; no exception is set. */
bool rpp_scalars_fit(PyObject *scalars);
/* Reads them, and tells the graph what its scalars are if any changed. RP_ERROR_CONTRACT where they
 * do not fit: nothing was changed. */
rp_status rpp_scalars_set(PyObject *scalars, struct rp_graph *graph, struct rp_error *err);
/* Behind a replay: moves the counters on. */
void rpp_scalars_advance(PyObject *scalars);

/* Adds Scalars to the module; -1 with an exception set. */
int rpp_add_scalars_type(PyObject *module);
/* 0: numbers that work may be chosen by; of others 1: positive, 2: negative; 3 and 4: the same
 * beyond 1. */
int rpp_kind_of(double number);
/* scalar_kind(float): the same. */
PyObject *rpp_scalar_kind(PyObject *module, PyObject *number);
/* call_scalars(tuple of floats): rp_call_scalar of each, of the call under way. */
PyObject *rpp_call_scalars(PyObject *module, PyObject *values);

#endif
