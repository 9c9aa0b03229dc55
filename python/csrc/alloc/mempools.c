/* SPDX-License-Identifier: MIT */
#include "alloc/mempools.h"

#include "alloc/mempool.h"

#include <stdlib.h>

static bool parse_id(PyObject *args, const char *format, struct rpp_pool_id *id, void *more)
{
    unsigned long long first, second;
    if (!PyArg_ParseTuple(args, format, &first, &second, more))
        return false;
    *id = (struct rpp_pool_id){{first, second}};
    return true;
}

PyObject *rpp_py_mempool_make(PyObject *module, PyObject *args)
{
    (void)module;
    struct rpp_pool_id id;
    unsigned flags;
    if (!parse_id(args, "KKI", &id, &flags))
        return NULL;
    uint32_t pool = rpp_mempool_make(id, flags);
    if (!pool)
        return PyErr_Format(PyExc_RuntimeError,
                            "there are %d memory pools, the most there may be: drop some",
                            RP_HEAP_POOLS - 1);
    return PyLong_FromUnsignedLong(pool);
}

PyObject *rpp_py_mempool_find(PyObject *module, PyObject *args)
{
    (void)module;
    struct rpp_pool_id id;
    unsigned unused;
    if (!parse_id(args, "KK|I", &id, &unused))
        return NULL;
    return PyLong_FromUnsignedLong(rpp_mempool_find(id));
}

PyObject *rpp_py_mempool_drop(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned pool;
    if (!PyArg_ParseTuple(args, "I", &pool))
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    if (!atomic_load(&rpp_state.leaving))
        rpp_mempool_drop(pool);
    Py_END_ALLOW_THREADS;
    return Py_NewRef(Py_None);
}

typedef rp_status use_function(int ordinal, uint32_t pool, struct rp_error *err);

static PyObject *use(PyObject *args, use_function *function)
{
    int ordinal;
    unsigned pool;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "iI", &ordinal, &pool))
        return NULL;
    rp_status status = function(ordinal, pool, &err);
    return status == RP_OK ? Py_NewRef(Py_None) : rpp_set_error(status, &err);
}

PyObject *rpp_py_mempool_begin(PyObject *module, PyObject *args)
{
    (void)module;
    return use(args, rpp_mempool_begin);
}

PyObject *rpp_py_mempool_end(PyObject *module, PyObject *args)
{
    (void)module;
    return use(args, rpp_mempool_end);
}

PyObject *rpp_py_mempool_release(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned pool;
    if (!PyArg_ParseTuple(args, "I", &pool))
        return NULL;
    rpp_mempool_release(pool);
    return Py_NewRef(Py_None);
}

PyObject *rpp_py_mempool_count(PyObject *module, PyObject *args)
{
    (void)module;
    unsigned pool;
    if (!PyArg_ParseTuple(args, "I", &pool))
        return NULL;
    return PyLong_FromUnsignedLong(rpp_mempool_count(pool));
}

PyObject *rpp_lease_blocks(PyObject *module, PyObject *args)
{
    (void)module;
    int ordinal;
    unsigned long long first, second;
    size_t count;
    if (!PyArg_ParseTuple(args, "iKK", &ordinal, &first, &second))
        return NULL;
    uint64_t *addresses = rpp_once_blocks(ordinal, (struct rpp_pool_id){{first, second}}, &count);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *address = PyLong_FromUnsignedLongLong(addresses[i]);
        if (!address || PyList_Append(list, address) != 0)
            Py_CLEAR(list);
        Py_XDECREF(address);
    }
    free(addresses);
    return list;
}
