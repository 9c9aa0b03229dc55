/* SPDX-License-Identifier: MIT
 *
 * Would what a run may change be found by the same way again? A walk (reach.h) notes what led it on
 * and has no record: functions, objects, dicts that were empty, names that globals had, and what
 * classes inherit from. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_REACHED_H
#define REPRISE_PYTHON_REACHED_H

#include "base/python.h"

/* A place for what a walk notes, which is NULL or None where it notes nothing. False with an exception
 * set. parts: as rpp_parts_of has them; attributes: the dict of the function or object. */
bool rpp_note_function(PyObject *functions, PyObject *function, PyObject *parts,
                       PyObject *attributes);
bool rpp_note_object(PyObject *objects, PyObject *object, PyObject *attributes);

/* is_as_reached(functions, objects, globals, classes), lists: are they as they were noted? globals:
 * a dict and its keys, and so on; classes: a class and those that it inherits from. */
PyObject *rpp_is_as_reached(PyObject *module, PyObject *args);

int rpp_prepare_reached(void);

#endif
