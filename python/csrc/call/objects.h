/* SPDX-License-Identifier: MIT
 *
 * Objects among the arguments of calls that Python has looked through (_reads/arguments.py): what
 * tells calls with them apart, and the tensors that they bring. The fast path takes such a call for
 * as long as nothing changed in the object since, which its Reads says (reads/reads.h). Nothing
 * here keeps an object or its tensors alive. Guarded by the GIL.
 */
#ifndef REPRISE_PYTHON_OBJECTS_H
#define REPRISE_PYTHON_OBJECTS_H

#include "base/python.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RPP_MOST_OBJECTS = 16 };

struct rpp_object {
    PyObject *weak;    /* a weak reference to it */
    PyObject *reads;   /* a Reads of what it holds */
    uint64_t epoch;    /* of the Reads, when its tensors were found */
    PyObject *token;   /* bytes, which no argument of the fast path is */
    PyObject *tensors; /* a tuple: weak references, or the tensors */
};

struct rpp_object_table {
    size_t count, changes; /* changes: times that one came or some went */
    struct rpp_object list[RPP_MOST_OBJECTS];
};

/* From now on calls with the object are of the token, and bring the tensors. Of too many the one
 * goes that came first. -1 with an exception set. */
int rpp_objects_know(struct rpp_object_table *table, PyObject *weak, PyObject *reads,
                     PyObject *token, PyObject *tensors);
void rpp_objects_clear(struct rpp_object_table *table); /* a zeroed one is allowed */

/* The object as it is known, where nothing changed; or NULL. Looking may run Python, which may
 * change the table: then it is NULL. No exception is set. */
const struct rpp_object *rpp_objects_find(const struct rpp_object_table *table, PyObject *value);
int rpp_objects_traverse(const struct rpp_object_table *table, visitproc visit, void *arg);

#endif
