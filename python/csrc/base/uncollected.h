/* SPDX-License-Identifier: MIT
 *
 * Uncollected(): a context without Python's garbage collector, which is the process's: it stays off until
 * the last context ends. Any thread, nested or not. In C since no signal's handler runs within: Ctrl-C
 * between a lock and its release would leave every later capture waiting for it. A context that was
 * entered ends with its object at the latest. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_UNCOLLECTED_H
#define REPRISE_PYTHON_UNCOLLECTED_H

#include "base/python.h"

/* Adds the type to the module: 0, or -1 with an exception set. */
int rpp_add_uncollected_type(PyObject *module);

#endif
