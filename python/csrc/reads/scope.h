/* SPDX-License-Identifier: MIT
 *
 * A Scope: an object whose attributes are looked up by names, which come to be known as code is
 * found.
 */
#ifndef REPRISE_PYTHON_SCOPE_H
#define REPRISE_PYTHON_SCOPE_H

#include "base/python.h"

/* How much was known when a scope was looked at: any of these grows where more is. */
struct rpp_known {
    Py_ssize_t names, maybe, classes;
    const PyObject *own;
    bool dynamic;
};

struct rpp_scope {
    PyObject_HEAD PyObject *object;
    PyObject *names; /* its dict, or None */
    PyObject *path;  /* what stands before a name, its dot included */
    PyObject *own;   /* names that count though no code of the program has them: a frozenset */
    PyObject *skips; /* names that others look at: a frozenset */
    PyObject *done;  /* names that were looked up: a set, or an empty frozenset */
    int way;
    char shallow;  /* only numbers and such of what it has */
    char is_open;  /* may others be put in the place of its values, for a while? */
    char inherits; /* could it come to have what it has of its class, or is asked for in case? */
    struct rpp_known at;       /* for what it has */
    struct rpp_known lacks_at; /* for what it has not, and could come to have */
    Py_ssize_t listed;         /* names of its walk that it was looked up by */
    Py_ssize_t possible;       /* names that its type could have, likewise */
    const PyObject *own_seen;  /* and names of its own */
    bool done_is_shared;       /* others have `done` too: it does not change */
};

bool rpp_is_scope(PyObject *object);
/* A new one, with a dict or None and two frozensets; the rest is zero. NULL with an exception set. */
struct rpp_scope *rpp_scope_new(PyObject *object, PyObject *names, PyObject *path, PyObject *own,
                                PyObject *skips);
/* Notes that it was looked up by these names, a list or a tuple. False with an exception set. */
bool rpp_scope_note(struct rpp_scope *scope, PyObject *names);
int rpp_add_scope_type(PyObject *module);

#endif
