/* SPDX-License-Identifier: MIT
 *
 * What PyTorch's own allocator tells of each allocation and free, and nobody tells for a pluggable
 * one: callbacks of the GPU trace (torch.cuda._gpu_trace, which the CUDA sanitizer is made of), and
 * profilers with profile_memory. While nobody listens rpp_state.on_memory is NULL, so an allocation
 * pays one branch.
 */
#ifndef REPRISE_PYTHON_ALLOC_LISTEN_H
#define REPRISE_PYTHON_ALLOC_LISTEN_H

#include "base/python.h"

/* listen_trace(allocated, freed): functions that are called with an address from here on. */
PyObject *rpp_listen_trace(PyObject *module, PyObject *args);
/* traces_gpu() -> bool: has the program switched PyTorch's GPU trace on? */
PyObject *rpp_traces_gpu(PyObject *module, PyObject *unused);
/* listen_profiler(begins): a profiler begins or ends. Returns what cannot be found, or None. */
PyObject *rpp_listen_profiler(PyObject *module, PyObject *args);

#endif
