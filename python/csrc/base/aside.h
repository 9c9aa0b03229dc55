/* SPDX-License-Identifier: MIT
 *
 * A callable on a thread of its own, also while the interpreter goes, when Python's own threads can
 * no more be started (3.12).
 */
#ifndef REPRISE_PYTHON_ASIDE_H
#define REPRISE_PYTHON_ASIDE_H

#include "base/python.h"

/* run_aside(callable, seconds): has it ended by then? Its exceptions are dropped. Waits without the
 * GIL. A callable that takes longer is left to itself. */
PyObject *rpp_run_aside(PyObject *module, PyObject *args);

#endif
