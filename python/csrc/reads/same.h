/* SPDX-License-Identifier: MIT
 *
 * Tokens of objects, and the objects that a walk has seen.
 */
#ifndef REPRISE_PYTHON_SAME_H
#define REPRISE_PYTHON_SAME_H

#include "base/python.h"

/* Adds the type Same: an object by its identity, which lives as long as this. */
int rpp_add_same_type(PyObject *module);

/* Objects by address, each with the number of those that were seen before it. */
struct rpp_seen {
    struct rpp_seen_entry *list; /* a hash table with open addressing */
    size_t room, count;
};

struct rpp_seen_entry {
    PyObject *object; /* NULL: free */
    PyObject *weak;   /* a weak reference to it, which may be gone; NULL: it is kept */
    size_t number;
};

/* Its number, and false; true where it is seen for the first time, and is kept from then on. False
 * with an exception set where there is no memory. */
bool rpp_seen_add(struct rpp_seen *seen, PyObject *object, size_t *out_number);
bool rpp_seen_has(const struct rpp_seen *seen, const PyObject *object);
int rpp_seen_visit(const struct rpp_seen *seen, visitproc visit, void *arg);
/* Keeps objects of the type no longer: their numbers are theirs while they live. False with an
 * exception set. */
bool rpp_seen_weaken(struct rpp_seen *seen, PyTypeObject *type);
/* Lets go of all. */
void rpp_seen_clear(struct rpp_seen *seen);

#endif
