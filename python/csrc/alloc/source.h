/* SPDX-License-Identifier: MIT
 *
 * An allocator that a program made for a torch.cuda.MemPool, as where a pool of the heaps takes its
 * memory from: torch.cuda.memory.CUDAPluggableAllocator(..).allocator(), or one that C++ made, as
 * NCCL's. PyTorch's own allocator calls raw_alloc and raw_delete of it, and so does this.
 */
#ifndef REPRISE_PYTHON_ALLOC_SOURCE_H
#define REPRISE_PYTHON_ALLOC_SOURCE_H

#include "base/python.h"

/* allocator: a torch._C._cuda_CUDAAllocator, which has to outlive all memory that comes from it.
 * False, with an exception set: it is of another class, or the process's allocator itself. */
bool rpp_source_of(PyObject *allocator, struct rp_heap_source *out_source);

#endif
