/* SPDX-License-Identifier: MIT
 *
 * The executable graphs of a device, for Python. With the GIL.
 */
#ifndef REPRISE_PYTHON_EXECS_H
#define REPRISE_PYTHON_EXECS_H

#include "base/python.h"

/* exec_budget(ordinal, bytes), exec_info(ordinal) and restore_pace(ordinal) */
PyObject *rpp_exec_budget(PyObject *module, PyObject *args);
PyObject *rpp_exec_info(PyObject *module, PyObject *args);
PyObject *rpp_restore_pace(PyObject *module, PyObject *args);

#endif
