/* SPDX-License-Identifier: MIT
 *
 * What a call returns, put together out of the tensors that it made: a tree of containers and
 * objects (python/reprise/_base/tree.py), new ones in each call. It is read once, and then built
 * without Python, where the launch is under way:
 *
 *     tuples, lists, dicts, objects   0.1 us each
 *     records                         an OrderedDict whose items are attributes as well, as models
 *                                     of transformers return: as one of them looked that its class
 *                                     made, where that class has no ways of its own. Its own
 *                                     __init__ takes 15 us
 *     other containers                by the function that takes them apart and makes them
 *
 * Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_BUILDER_H
#define REPRISE_PYTHON_BUILDER_H

#include "base/python.h"

#include <stdbool.h>

/* The object is a Builder. */
bool rpp_is_builder(PyObject *object);
/* How many tensors it takes. */
size_t rpp_builder_takes(PyObject *builder);
/* A new result, of the tensors and of the call's arguments; NULL with an exception set. Python may
 * run. */
PyObject *rpp_builder_make(PyObject *builder, PyObject *const *tensors, PyObject *args,
                           PyObject *kwargs);

/* Adds Builder. */
int rpp_add_builder_type(PyObject *module);

#endif
