/* SPDX-License-Identifier: MIT */
#include "alloc/mempools.h"

#include "alloc/mempool.h"
#include "alloc/source.h"

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
    rpp_assert_gil();
    (void)module;
    unsigned long long first, second;
    unsigned flags;
    PyObject *allocator;
    struct rp_heap_source source;
    if (!PyArg_ParseTuple(args, "KKIO", &first, &second, &flags, &allocator))
        return NULL;
    bool sourced = allocator != Py_None;
    if (sourced && !rpp_source_of(allocator, &source))
        return NULL;
    uint32_t pool =
        rpp_mempool_make((struct rpp_pool_id){{first, second}}, flags, sourced ? &source : NULL);
    if (!pool)
        return PyErr_Format(PyExc_RuntimeError,
                            "there are %d memory pools, the most there may be: drop some",
                            RP_HEAP_POOLS - 1);
    return PyLong_FromUnsignedLong(pool);
}

PyObject *rpp_py_mempool_find(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    struct rpp_pool_id id;
    unsigned unused;
    if (!parse_id(args, "KK|I", &id, &unused))
        return NULL;
    return PyLong_FromUnsignedLong(rpp_mempool_find(id));
}

PyObject *rpp_py_mempool_drop(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
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
    rpp_assert_gil();
    (void)module;
    unsigned pool;
    if (!PyArg_ParseTuple(args, "I", &pool))
        return NULL;
    rpp_mempool_release(pool);
    return Py_NewRef(Py_None);
}

PyObject *rpp_py_mempool_count(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    unsigned pool;
    if (!PyArg_ParseTuple(args, "I", &pool))
        return NULL;
    return PyLong_FromUnsignedLong(rpp_mempool_count(pool));
}

/* Adds what may have failed to be made. */
static bool give(PyObject *list, PyObject *item)
{
    bool given = item && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return given;
}

PyObject *rpp_lease_blocks(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    int ordinal;
    unsigned long long first, second;
    size_t count;
    if (!PyArg_ParseTuple(args, "iKK", &ordinal, &first, &second))
        return NULL;
    struct rpp_once_block *blocks =
        rpp_once_blocks(ordinal, (struct rpp_pool_id){{first, second}}, &count);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < count; i++)
        if (!give(list, Py_BuildValue("(KKK)", (unsigned long long)blocks[i].address,
                                      (unsigned long long)blocks[i].bytes,
                                      (unsigned long long)(uintptr_t)blocks[i].stream)))
            Py_CLEAR(list);
    free(blocks);
    return list;
}

PyObject *rpp_lease_pools(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    int ordinal;
    size_t count;
    if (!PyArg_ParseTuple(args, "i", &ordinal))
        return NULL;
    struct rpp_once_pool *pools = rpp_once_pools(ordinal, &count);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < count; i++)
        if (!give(list, Py_BuildValue("((KK)KK)", (unsigned long long)pools[i].id.words[0],
                                      (unsigned long long)pools[i].id.words[1],
                                      (unsigned long long)pools[i].address,
                                      (unsigned long long)pools[i].bytes)))
            Py_CLEAR(list);
    free(pools);
    return list;
}

PyObject *rpp_lease_want(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    unsigned long long first, second, address, stream;
    if (!PyArg_ParseTuple(args, "KKKK", &first, &second, &address, &stream))
        return NULL;
    rpp_once_want((struct rpp_pool_id){{first, second}}, address,
                  (struct CUstream_st *)(uintptr_t)stream); // NOLINT(performance-no-int-to-ptr)
    return Py_NewRef(Py_None);
}

/* ---- Owners ---------------------------------------------------------------------------------- */

enum {
    STORAGE_WORDS = 6
}; /* in which a storage has its address; the two behind are who frees it */

/* Where a storage has its address, what frees it and what that is given. */
static uintptr_t *owner_of(uintptr_t *storage, uintptr_t address)
{
    for (size_t i = 1; i < STORAGE_WORDS; i++)
        if (storage[i] == address)
            return &storage[i + 1];
    return NULL;
}

PyObject *rpp_swap_owners(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    unsigned long long first, second, address;
    if (!PyArg_ParseTuple(args, "KKK", &first, &second, &address))
        return NULL;
    uintptr_t *one = owner_of((uintptr_t *)(uintptr_t)first, (uintptr_t)address);    // NOLINT
    uintptr_t *other = owner_of((uintptr_t *)(uintptr_t)second, (uintptr_t)address); // NOLINT
    /* A tensor's owner is given its address: so both are where they are taken to be. */
    if (!one || !other || (one[0] != address && one[1] != address)) {
        PyErr_SetString(PyExc_RuntimeError, "this PyTorch keeps elsewhere who frees a storage");
        return NULL;
    }
    for (size_t i = 0; i < 2; i++) {
        uintptr_t kept = one[i];
        one[i] = other[i];
        other[i] = kept;
    }
    return Py_NewRef(Py_None);
}
