/* SPDX-License-Identifier: MIT
 *
 * Memory of the heap that other processes are given, and what this one is given by others.
 */
#ifndef REPRISE_PYTHON_SHARE_H
#define REPRISE_PYTHON_SHARE_H

#include "base/python.h"

PyObject *rpp_share_memory(PyObject *module, PyObject *args);
PyObject *rpp_map_shared(PyObject *module, PyObject *args);
PyObject *rpp_unmap_shared(PyObject *module, PyObject *args);
PyObject *rpp_shared_capsule(PyObject *module, PyObject *args);
PyObject *rpp_exchange_mode(PyObject *module, PyObject *args);

#endif
