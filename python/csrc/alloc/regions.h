/* SPDX-License-Identifier: MIT
 *
 * Which compiled region a thread is in, for memory histories with compile_context. PyTorch notices
 * regions itself once its own history is asked for them, and tells the allocator by two methods of
 * it, which answer here.
 */
#ifndef REPRISE_PYTHON_ALLOC_REGIONS_H
#define REPRISE_PYTHON_ALLOC_REGIONS_H

#include "base/python.h"

/* The innermost region's name, which is valid for good; NULL: none is known. */
const char *rpp_region_now(void);

/* Methods of c10::cuda::CUDACachingAllocator::CUDAAllocator; text: a std::string. */
void rpp_region_push(void *allocator, void *text);
void rpp_region_pop(void *allocator);

/* recordHistory of it: nothing within call_for_regions, else an error is thrown. */
void rpp_region_record(void);
extern bool rpp_regions_answer; /* are the three in their places? */

/* call_for_regions(function, arguments) -> bool: calls what switches PyTorch's own history on or
 * off, of which only the telling of regions remains. False: the methods do not answer. */
PyObject *rpp_call_for_regions(PyObject *module, PyObject *args);

#endif
