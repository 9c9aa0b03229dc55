/* SPDX-License-Identifier: MIT
 *
 * Records of _effects/python_state.py, and the paths that they have.
 */
#ifndef REPRISE_PYTHON_RECORD_H
#define REPRISE_PYTHON_RECORD_H

#include "base/python.h"

/* How the program would write where something is: the owner's path, and what comes behind it. */
struct rpp_path {
    PyObject_HEAD PyObject *above, *form, *name;
};

/* An owner, and what it held when this was made. */
struct rpp_record {
    PyObject_HEAD PyObject *owner, *path, *held;
    PyObject *form; /* of a Mapping: of its paths; a word that tells kinds of others */
    PyObject
        *alike; /* (dict, copy of it): while these are the same, so is what the owner holds; or a
                        dict of the names of an owner that is a dict; (address, elements) of an owner
                        that is a tensor; NULL: nothing tells so */
    char registered; /* does PyTorch look for tensors here, as parameters or buffers? */
};

/* New ones, of classes of Python's that inherit these and have no __init__ or a like one. */
PyObject *rpp_path_new(PyTypeObject *type, PyObject *above, PyObject *form, PyObject *name);
PyObject *rpp_record_new(PyTypeObject *type, PyObject *owner, PyObject *path, PyObject *held);

bool rpp_is_record(PyObject *object);
int rpp_add_record_types(PyObject *module);

#endif
