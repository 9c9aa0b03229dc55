/* SPDX-License-Identifier: MIT */
#include "alloc/listen.h"

#include "alloc/once.h"
#include "base/symbol.h"

#include <assert.h>
#include <string.h>

/* c10::Device, which is passed in a register. */
struct device {
    int8_t type, index;
};

typedef void report_function(void *pointer, int64_t bytes, size_t allocated, size_t reserved,
                             struct device device);

#define REPORT "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"

static struct {
    PyObject *allocated, *freed; /* of the trace; NULL: none. Set once, under the GIL */
    report_function *report;
    int profilers;         /* under the GIL */
    _Atomic bool traces;   /* allocated and freed are there */
    _Atomic bool profiles; /* profilers is above 0 */
} listeners;

/* By any thread. An error that is under way stays: tensors are freed behind one. */
static void tell_trace(bool freed, uint64_t address)
{
    assert(listeners.allocated && listeners.freed);
    PyObject *type, *value, *traceback;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *function = freed ? listeners.freed : listeners.allocated;
    PyObject *done = PyObject_CallFunction(function, "K", (unsigned long long)address);
    if (!done)
        PyErr_WriteUnraisable(function);
    Py_XDECREF(done);
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(gil);
}

/* PyTorch looks for a profiler of this thread itself. What a free leaves is told, as PyTorch's own
 * allocator does. */
static void tell_profiler(bool freed, uint64_t address, uint64_t bytes, int ordinal)
{
    assert(listeners.report);
    enum { CUDA = 1, GRAIN = 512 };
    int64_t size = (int64_t)((bytes + GRAIN - 1) / GRAIN * GRAIN), allocated, reserved, more;
    struct rp_heap *heap = rpp_heap_made(ordinal);
    rpp_once_totals(ordinal, &allocated, &reserved);
    if (heap && rp_heap_stat(heap, "allocated_bytes.all.current", &more, NULL) == RP_OK)
        allocated += more;
    if (heap && rp_heap_stat(heap, "reserved_bytes.all.current", &more, NULL) == RP_OK)
        reserved += more;
    if (freed)
        size = -size;
    if (freed && allocated > -size)
        allocated += size;
    listeners.report((void *)(uintptr_t)address, // NOLINT(performance-no-int-to-ptr)
                     size, (size_t)allocated, (size_t)reserved,
                     (struct device){CUDA, (int8_t)ordinal});
}

static void tell(bool freed, uint64_t address, uint64_t bytes, int ordinal)
{
    if (atomic_load(&rpp_state.leaving))
        return;
    if (atomic_load(&listeners.traces))
        tell_trace(freed, address);
    if (atomic_load(&listeners.profiles))
        tell_profiler(freed, address, bytes, ordinal);
}

static void listen(void)
{
    rpp_assert_gil();
    atomic_store(&listeners.traces, listeners.allocated != NULL);
    atomic_store(&listeners.profiles, listeners.profilers > 0);
    atomic_store(&rpp_state.on_memory,
                 listeners.allocated || listeners.profilers > 0 ? tell : NULL);
}

PyObject *rpp_listen_trace(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    PyObject *allocated, *freed;
    if (!PyArg_ParseTuple(args, "OO", &allocated, &freed))
        return NULL;
    if (!listeners.allocated) { /* as PyTorch's own, it stays on */
        listeners.freed = Py_NewRef(freed);
        listeners.allocated = Py_NewRef(allocated);
    }
    listen();
    return Py_NewRef(Py_None);
}

PyObject *rpp_traces_gpu(PyObject *module, PyObject *unused)
{
    rpp_assert_gil();
    (void)module, (void)unused;
    const bool *on = rpp_torch_symbol("libc10.so", "_ZN3c104impl8GPUTrace9haveStateE");
    return PyBool_FromLong(on && *on);
}

PyObject *rpp_listen_profiler(PyObject *module, PyObject *args)
{
    rpp_assert_gil();
    (void)module;
    int begins;
    if (!PyArg_ParseTuple(args, "p", &begins))
        return NULL;
    void *found = rpp_torch_symbol("libc10.so", REPORT);
    memcpy(&listeners.report, &found, sizeof found);
    if (!found)
        return PyUnicode_FromString("c10::reportMemoryUsageToProfiler");
    if (begins || listeners.profilers > 0)
        listeners.profilers += begins ? 1 : -1;
    listen();
    return Py_NewRef(Py_None);
}
