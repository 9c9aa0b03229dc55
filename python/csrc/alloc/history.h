/* SPDX-License-Identifier: MIT
 *
 * Histories and snapshots of the heaps, for torch.cuda.memory._record_memory_history and
 * _snapshot. Stacks are PyTorch's own (torch._C._profiler.gather_traceback): Python's,
 * TorchScript's and, where asked for, C++'s.
 *
 * A stack is gathered with the GIL held, in the thread that allocates or frees, and with no lock.
 * The heap lets go of stacks under its locks, where nobody may ask for the GIL: those wait in a
 * list until the next one is gathered, or a snapshot is taken.
 */
#ifndef REPRISE_PYTHON_ALLOC_HISTORY_H
#define REPRISE_PYTHON_ALLOC_HISTORY_H

#include "base/python.h"
#include <reprise_heap.h>

/* For the options of heaps. */
struct rp_heap_frames rpp_history_frames(void);

/* keep_history(ordinal, entries, stacks, skip, keep, gather, cpp, regions): rp_heap_keep_history.
 * gather: what makes a stack, called with (True, True, cpp); None: nothing does, and there are none.
 * regions: the compiled region is noted with it, or in its place. */
PyObject *rpp_keep_history(PyObject *module, PyObject *args);
/* mark_history(ordinal, mark): rp_heap_mark_history. */
PyObject *rpp_mark_history(PyObject *module, PyObject *args);
/* heap_look(ordinal, traces, marks): a snapshot as PyTorch has it: (segments, events, wanted).
 * events: none unless traces. marks: a list with the metadata of each mark. wanted: [(dict, stack),
 * ..], whose "frames" are to be filled in. */
PyObject *rpp_heap_look(PyObject *module, PyObject *args);

#endif
