/* SPDX-License-Identifier: MIT
 *
 * The inner loop of a walk (_reads/walk.py): tokens of values, owners, and attributes that are looked
 * up by names. Which kinds of values there are, and what follows from each, Python says: a type is
 * asked about once in a walk.
 *
 *     Same    an object by its identity; tokens hold it
 *     Scope   an object whose attributes are looked up by names, which come to be known meanwhile
 *     Walk    tokens, owners and what was seen; the base of Python's class
 *
 * Guarded by the GIL. Python runs in the midst of most functions, and may add to the same walk.
 */
#ifndef REPRISE_PYTHON_WALK_H
#define REPRISE_PYTHON_WALK_H

#include "base/python.h"

/* Adds Same, Scope and Walk. */
int rpp_add_walk_types(PyObject *module);

#endif
