/* SPDX-License-Identifier: MIT
 *
 * A pass of a graph, from a call's tensors to new ones: what forward and backward are for
 * autograd. Between the tensors and the launch there is no Python but PyTorch's allocation of the
 * results.
 */
#ifndef REPRISE_PYTHON_PASS_H
#define REPRISE_PYTHON_PASS_H

#include "base/python.h"

/* Adds Pass to the module; -1 with an exception set. */
int rpp_add_pass_type(PyObject *module);

#endif
