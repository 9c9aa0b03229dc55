/* SPDX-License-Identifier: MIT
 *
 * What captures would take, without them, for Python. With the GIL.
 */
#ifndef REPRISE_PYTHON_ESTIMATE_H
#define REPRISE_PYTHON_ESTIMATE_H

#include "base/python.h"

/* Makes Estimate and adds it to the module; -1 with an exception set. */
int rpp_add_estimate_type(PyObject *module);

#endif
