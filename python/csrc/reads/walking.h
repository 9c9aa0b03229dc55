/* SPDX-License-Identifier: MIT
 *
 * A walk from within: for the files that it is made of. What is named here is declared nowhere else,
 * and used by walk.c and walk_torch.c alone.
 */
#ifndef REPRISE_PYTHON_WALKING_H
#define REPRISE_PYTHON_WALKING_H

#include "reads/peers.h"
#include "reads/same.h"
#include "reads/scope.h"

/* Of the kinds of owners in _reads/walk.py. */
enum { RPP_NAMES = 0, RPP_ITEMS = 1, RPP_TYPE = 5, RPP_TENSOR = 6, RPP_DICT = 11 };

struct rpp_walk {
    PyObject_HEAD PyObject *tokens, *paths, *owners, *first; /* lists */
    PyObject *names, *maybe, *dynamic_classes;               /* sets */
    PyObject *skipped;                                       /* names that are never looked up */
    PyObject *left, *takes, *place, *parts;
    PyObject *tensor;   /* the class of tensors */
    PyObject *makers;   /* by type, what makes its token: a function of Python's; True: the value
                              is plain; False: it is, and its text tells it */
    PyObject *could_be; /* by (type, own): names, as could_be() keeps them */
    PyObject
        *is_dynamic;     /* by type: is it one of dynamic_classes?, as long as these are the same */
    PyObject *has_slots; /* by type */
    PyObject *listed, *are_listed; /* names in the order in which they came to be known; a set */
    struct rpp_known known_at;
    long turn;              /* counts what `known_at` was */
    Py_ssize_t class_count; /* of `classes`, then */
    PyObject *classes;      /* those that were met: a dict */
    struct rpp_peers peers; /* of its scopes */
    struct rpp_seen seen;
    char dynamic, has_memory;
};

/* One owner, and what its values are found by. */
struct rpp_owned {
    int kind, way;
    bool is_open;
    PyObject *object, *keys, *values; /* keys: a tuple, or None */
    PyObject *paths;                  /* of the values: a sequence; NULL: prefix and key are */
    PyObject *prefix;
    Py_ssize_t missing; /* of the values: so many at the end are absent, and have one token */
};

/* Adds a value's token. False with an exception set, as all of these. */
bool rpp_walk_put(struct rpp_walk *walk, PyObject *value, PyObject *path);
/* Adds a token and its path. */
bool rpp_walk_append(struct rpp_walk *walk, PyObject *token, PyObject *path);
/* Adds an owner whose token is the next one. */
bool rpp_walk_append_owner(struct rpp_walk *walk, const struct rpp_owned *owned);
/* Adds an owner and the tokens of its values, but for places that are left out. */
bool rpp_walk_own(struct rpp_walk *walk, const struct rpp_owned *owned);
/* A weak reference to a tensor of the device, a new one; a new reference to any other value. */
PyObject *rpp_walk_weak(struct rpp_walk *walk, PyObject *value);

/* Methods of Walk for modules and tensors (walk_torch.c). */
PyObject *rpp_walk_kind_of(PyObject *self, PyObject *args);
PyObject *rpp_walk_module_part(PyObject *self, PyObject *args);
PyObject *rpp_walk_module(PyObject *self, PyObject *args);
PyObject *rpp_walk_tensor(PyObject *self, PyObject *args);
/* Makes their words; false with an exception set. */
bool rpp_walk_torch_prepare(void);

#endif
