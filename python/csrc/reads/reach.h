/* SPDX-License-Identifier: MIT
 *
 * The inner loop of what a run may change (_effects/reach.py): dicts, lists and modules are gone
 * through here, all else by methods of Python's. A type is asked about once.
 *
 *     Path     how the program would write where something is
 *     Record   an owner, and what it held
 *     Reach    records, in the order in which their owners were found; the base of Python's class
 *
 * Guarded by the GIL. Python runs in the midst, and may add to the same Reach.
 */
#ifndef REPRISE_PYTHON_REACH_H
#define REPRISE_PYTHON_REACH_H

#include "base/python.h"

/* Adds Path, Record, Reach. */
int rpp_add_reach_types(PyObject *module);

/* touched(records): those whose owners hold other objects by now, a list. */
PyObject *rpp_touched(PyObject *module, PyObject *records);

#endif
