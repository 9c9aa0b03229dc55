/* SPDX-License-Identifier: MIT
 *
 * Which call of a library CUPTI saw refused in a capture, and how many took memory. With the GIL.
 */
#ifndef REPRISE_PYTHON_REFUSALS_H
#define REPRISE_PYTHON_REFUSALS_H

#include "base/python.h"

/* watch_refusals(path of a loaded CUPTI) and end_refusals() */
PyObject *rpp_watch_refusals(PyObject *module, PyObject *args);
PyObject *rpp_end_refusals(PyObject *module, PyObject *unused);
/* driver_allocations(), since watch_refusals() */
PyObject *rpp_driver_allocations(PyObject *module, PyObject *unused);

#endif
