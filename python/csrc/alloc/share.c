/* SPDX-License-Identifier: MIT
 *
 * The descriptors themselves are sent by Python (_alloc/lending.py, _alloc/borrowing.py). What
 * arrives becomes a tensor through DLPack, whose deleter lets go of a Python object.
 */
#include "alloc/share.h"

#include "base/dlpack.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct rp_heap *heap_of(uint64_t address, int *out_ordinal)
{
    struct rp_heap_block block = {.size = sizeof block};
    for (int i = 0; i < RPP_DEVICES; i++) {
        struct rp_heap *heap = rpp_heap_made(i);
        *out_ordinal = i;
        if (heap && rp_heap_find(heap, address, &block, NULL) == RP_OK)
            return heap;
    }
    return NULL;
}

static PyObject *close_all(int *files, size_t count)
{
    for (size_t i = 0; i < count; i++)
        close(files[i]);
    free(files);
    return NULL;
}

/* The descriptors, as a list that owns them. */
static PyObject *list_of(int *files, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *number = PyLong_FromLong(files[i]);
        if (!number)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, number);
    }
    if (!list)
        return close_all(files, count);
    free(files);
    return list;
}

/* (address, bytes, wanted) -> (ordinal, bytes of each mapping, offset in the first, how many, their
 * descriptors where they are wanted), or None: no memory of a heap. */
PyObject *rpp_share_memory(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    unsigned long long address, bytes;
    int wanted, ordinal;
    if (!PyArg_ParseTuple(args, "KKp", &address, &bytes, &wanted))
        return NULL;
    struct rp_heap *heap = heap_of(address, &ordinal);
    if (!heap)
        return Py_NewRef(Py_None);
    struct rp_error err = {0};
    size_t count = 0;
    uint64_t file_bytes = 0, offset = 0;
    int *files = NULL;
    rp_status status =
        rp_heap_share(heap, address, bytes, 0, NULL, &count, &file_bytes, &offset, &err);
    if (status == RP_OK && wanted) {
        files = malloc((count ? count : 1) * sizeof *files);
        if (!files)
            return PyErr_NoMemory();
        size_t capacity = count;
        Py_BEGIN_ALLOW_THREADS;
        status = rp_heap_share(heap, address, bytes, capacity, files, &count, &file_bytes, &offset,
                               &err);
        Py_END_ALLOW_THREADS;
    }
    if (status != RP_OK) {
        free(files);
        return rpp_set_error(status, &err);
    }
    PyObject *list = list_of(files, wanted ? count : 0);
    return list ? Py_BuildValue("(iKKnN)", ordinal, (unsigned long long)file_bytes,
                                (unsigned long long)offset, (Py_ssize_t)count, list)
                : NULL;
}

/* (ordinal, bytes of each, descriptors) -> address. The descriptors stay the caller's. */
PyObject *rpp_map_shared(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    int ordinal;
    unsigned long long file_bytes;
    PyObject *list;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "iKO!", &ordinal, &file_bytes, &PyList_Type, &list))
        return NULL;
    size_t count = (size_t)PyList_Size(list);
    int *files = malloc((count ? count : 1) * sizeof *files);
    if (!files)
        return PyErr_NoMemory();
    for (size_t i = 0; i < count; i++)
        files[i] = (int)PyLong_AsLong(PyList_GetItem(list, (Py_ssize_t)i));
    struct rpp_device *slot;
    uint64_t address = 0;
    rp_status status = RP_OK;
    if (!PyErr_Occurred()) {
        Py_BEGIN_ALLOW_THREADS;
        status = rpp_device_get(ordinal, &slot, &err);
        if (status == RP_OK)
            status = rp_device_map_shared(slot->device, files, count, file_bytes, &address, &err);
        Py_END_ALLOW_THREADS;
    }
    free(files);
    if (PyErr_Occurred())
        return NULL;
    return status == RP_OK ? PyLong_FromUnsignedLongLong(address) : rpp_set_error(status, &err);
}

enum { RELAXED = 2 }; /* CU_STREAM_CAPTURE_MODE_RELAXED */

static void exchange_mode(struct rp_device *device, int *mode)
{
    int (*exchange)(int *mode);
    void (*function)(void) = rp_device_function(device, "cuThreadExchangeStreamCaptureMode");
    memcpy(&exchange, &function, sizeof exchange);
    if (exchange)
        exchange(mode);
}

/* Waits for the stream; false: it captures. No capture elsewhere is broken. */
static bool wait_for(const struct rpp_device *slot, struct CUstream_st *stream)
{
    int status = 0, mode = RELAXED;
    if (stream && slot->is_capturing && slot->is_capturing(stream, &status) == 0 && status)
        return false;
    int (*synchronize)(struct CUstream_st * stream);
    void (*function)(void) = rp_device_function(slot->device, "cuStreamSynchronize");
    memcpy(&synchronize, &function, sizeof synchronize);
    exchange_mode(slot->device, &mode);
    if (synchronize)
        synchronize(stream);
    exchange_mode(slot->device, &mode);
    return true;
}

/* (ordinal, address, count, bytes of each, stream) -> bool. False: the stream captures, so it is
 * not known to be done with the memory, and nothing was unmapped. */
PyObject *rpp_unmap_shared(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    int ordinal;
    unsigned long long address, file_bytes, stream;
    Py_ssize_t count;
    struct rpp_device *slot;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "iKnKK", &ordinal, &address, &count, &file_bytes, &stream))
        return NULL;
    bool done = true;
    rp_status status = rpp_device_get(ordinal, &slot, &err);
    Py_BEGIN_ALLOW_THREADS;
    if (status == RP_OK && (status = rp_device_push(slot->device, &err)) == RP_OK) {
        done = wait_for(slot, (struct CUstream_st *)(uintptr_t)stream);
        if (done)
            status = rp_device_unmap_shared(slot->device, address, (size_t)count, file_bytes, &err);
        rp_device_pop(slot->device);
    }
    Py_END_ALLOW_THREADS;
    return status == RP_OK ? PyBool_FromLong(done) : rpp_set_error(status, &err);
}

/* (ordinal, mode) -> the mode before: which calls of this thread break captures, its own and others'. */
PyObject *rpp_exchange_mode(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    int ordinal, mode;
    struct rpp_device *slot;
    struct rp_error err = {0};
    if (!PyArg_ParseTuple(args, "ii", &ordinal, &mode))
        return NULL;
    rp_status status = rpp_device_get(ordinal, &slot, &err);
    if (status != RP_OK)
        return rpp_set_error(status, &err);
    exchange_mode(slot->device, &mode);
    return PyLong_FromLong(mode);
}

/* ---- Tensors -------------------------------------------------------------------------------- */

struct managed { /* DLManagedTensor */
    struct dl_tensor tensor;
    void *owner;
    void (*destroy)(struct managed *managed);
    int64_t shape, stride;
};

/* On any thread. When the interpreter is going the owner stays: the system unmaps its memory. */
static void destroy(struct managed *managed)
{
    PyObject *owner = managed->owner;
    free(managed);
    if (atomic_load(&rpp_state.leaving) || !Py_IsInitialized())
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(owner);
    PyGILState_Release(state);
}

static void drop_unused(PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, "dltensor"))
        return; /* a tensor has it */
    struct managed *managed = PyCapsule_GetPointer(capsule, "dltensor");
    managed->destroy(managed);
}

/* (address, bytes, ordinal, owner) -> a capsule of DLPack's, of bytes. The owner lives as long as
 * the tensor that is made of it. */
PyObject *rpp_shared_capsule(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    unsigned long long address;
    long long bytes;
    int ordinal;
    PyObject *owner;
    if (!PyArg_ParseTuple(args, "KLiO", &address, &bytes, &ordinal, &owner))
        return NULL;
    struct managed *managed = calloc(1, sizeof *managed);
    if (!managed)
        return PyErr_NoMemory();
    managed->shape = bytes;
    managed->stride = 1;
    managed->tensor = (struct dl_tensor){.data = (void *)(uintptr_t)address,
                                         .device = {DL_CUDA, ordinal},
                                         .rank = 1,
                                         .type = {.code = 1, .bits = 8, .lanes = 1},
                                         .shape = &managed->shape,
                                         .strides = &managed->stride};
    managed->owner = Py_NewRef(owner);
    managed->destroy = destroy;
    PyObject *capsule = PyCapsule_New(managed, "dltensor", drop_unused);
    if (!capsule)
        destroy(managed);
    return capsule;
}
