/* SPDX-License-Identifier: MIT
 *
 * A Python object of pybind11's has the address of its C++ object behind its head, where that has
 * one base. It is taken for a CUDAPluggableAllocator only if its first word is that class's table
 * of methods. The process's own has another table (methods.c), or else is known by its address.
 */
#include "alloc/source.h"

#include "base/symbol.h"

#include <string.h>

#define CLASS "N5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"

enum { HEADER = 2 }; /* offset and type lie before the first method */

static struct {
    void *(*raw_alloc)(void *allocator, size_t bytes);
    void (*raw_delete)(void *allocator, void *pointer);
    void **table;
    void **current; /* where the process's allocator is */
} names;

static bool find_names(void)
{
    void *alloc = rpp_torch_symbol("libtorch_cuda.so", "_Z" CLASS "9raw_allocEm");
    void *delete = rpp_torch_symbol("libtorch_cuda.so", "_Z" CLASS "10raw_deleteEPv");
    memcpy(&names.raw_alloc, &alloc, sizeof alloc);
    memcpy(&names.raw_delete, &delete, sizeof delete);
    names.table = rpp_torch_symbol("libtorch_cuda.so", "_ZTV" CLASS "E");
    names.current =
        rpp_torch_symbol("libc10_cuda.so", "_ZN3c104cuda20CUDACachingAllocator9allocatorE");
    return alloc && delete &&names.table && names.current;
}

/* On the current device and stream, which are those of the allocation that needs it. */
static uint64_t take(uint64_t bytes, struct CUstream_st *stream, void *user)
{
    (void)stream;
    return (uintptr_t)names.raw_alloc(user, (size_t)bytes);
}

static void give(uint64_t address, uint64_t bytes, struct CUstream_st *stream, void *user)
{
    (void)bytes, (void)stream; /* it keeps them itself */
    if (!atomic_load(&rpp_state.leaving))
        names.raw_delete(user, (void *)(uintptr_t)address); // NOLINT(performance-no-int-to-ptr)
}

bool rpp_source_of(PyObject *allocator, struct rp_heap_source *out_source)
{
    if (!find_names()) {
        PyErr_SetString(PyExc_RuntimeError,
                        "this PyTorch has no torch::cuda::CUDAPluggableAllocator that Reprise can "
                        "find, so a torch.cuda.MemPool cannot have an allocator of its own under "
                        "reprise.install(). Leave the allocator out, or do not call install()");
        return false;
    }
    void **object;
    memcpy(&object, (const char *)allocator + sizeof(PyObject), sizeof object);
    if (object && object == *names.current) {
        PyErr_SetString(PyExc_RuntimeError,
                        "a torch.cuda.MemPool cannot have the process's own allocator, which is "
                        "Reprise's under reprise.install(). Leave the allocator out");
        return false;
    }
    if (!object || *(void ***)object != names.table + HEADER) {
        PyErr_Format(PyExc_TypeError,
                     "the allocator of a torch.cuda.MemPool has to be a CUDAPluggableAllocator "
                     "under reprise.install(), not %R",
                     allocator);
        return false;
    }
    *out_source = (struct rp_heap_source){.alloc = take, .free = give, .user = object};
    return true;
}
