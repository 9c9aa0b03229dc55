/* SPDX-License-Identifier: MIT
 *
 * The fast path of calls: from the arguments to the launch without any Python.
 */
#ifndef REPRISE_PYTHON_FAST_CALL_H
#define REPRISE_PYTHON_FAST_CALL_H

#include "base/python.h"

/* Adds FastCall, miss and eager to the module; -1 with an exception set. */
int rpp_add_fast_call_type(PyObject *module);

#endif
