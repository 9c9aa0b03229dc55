/* SPDX-License-Identifier: MIT
 *
 * What the interpreter tells of a run (_reads/runs.py): most events are of no interest, and that is
 * told here. Python is asked about all others, by the function that would have been called without
 * this.
 *
 *     a call       of something with a name that no effect has, by an object of a type that was asked
 *                  about: of none
 *     code         is asked about once in a process: whose it is, and whether it makes names to ask for
 *
 * Objects that are called are not kept, but for classes as long as a run is told of: what a run
 * drops is gone. Code objects are kept, some thousands. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_TOLD_H
#define REPRISE_PYTHON_TOLD_H

#include "base/python.h"

/* Adds the type Told. */
int rpp_add_told_type(PyObject *module);

#endif
