/* SPDX-License-Identifier: MIT
 *
 * reprise.Pool for Python, and the pools of graphs that PyTorch captures itself (once.h). With the
 * GIL.
 */
#ifndef REPRISE_PYTHON_POOL_H
#define REPRISE_PYTHON_POOL_H

#include "base/python.h"

/* A pool: struct rp_pool, and the pool it lies in. */
struct rpp_pool {
    PyObject_HEAD struct rp_pool *pool;
    PyObject *parent; /* or NULL */
    int ordinal;
};

extern PyTypeObject *rpp_pool_type;
/* Makes the type and adds it to the module; -1 with an exception set. */
int rpp_add_pool_type(PyObject *module);

/* bind_pool(id, id, pool), draw_lease(ordinal, id, id, path) and leases(). */
PyObject *rpp_bind_pool(PyObject *module, PyObject *args);
PyObject *rpp_draw_lease(PyObject *module, PyObject *args);
PyObject *rpp_leases(PyObject *module, PyObject *unused);

#endif
