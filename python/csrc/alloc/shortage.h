/* SPDX-License-Identifier: MIT
 *
 * What is said where memory was asked for and there is none: the sentence of PyTorch's own
 * allocator, which people and tools match, with what Reprise knows behind it, and a call to who
 * wants to know (torch._C._cuda_attach_out_of_memory_observer).
 */
#ifndef REPRISE_PYTHON_ALLOC_SHORTAGE_H
#define REPRISE_PYTHON_ALLOC_SHORTAGE_H

#include "base/state.h"

enum { RPP_SHORTAGE_BYTES = 1536 }; /* of a text, with its end */

/* Writes the text for a request that failed for want of memory; why: the library's sentence. Then
 * tells the observers, unless nothing of such a size can be. No lock is held. */
void rpp_shortage_tell(uint64_t bytes, int ordinal, const char *why,
                       char out_text[RPP_SHORTAGE_BYTES]);

#endif
