/* SPDX-License-Identifier: MIT
 *
 * Blocks of the heap that were freed while another thread may be about to launch a kernel with
 * their address: workspaces of cuBLAS, which PyTorch before 2.12 can only free all at once
 * (capture/workspaces.h).
 *
 * Such a block, a spare, stays allocated. It goes to the next allocation of as many bytes for the
 * same stream, which is ordered behind that kernel. Spares that nobody takes in SPARE_MS are freed
 * when the cache is emptied, or when the next ones come.
 *
 * Any thread. A lock of this file's guards the spares, and no other is taken under it.
 */
#ifndef REPRISE_PYTHON_ALLOC_SPARES_H
#define REPRISE_PYTHON_ALLOC_SPARES_H

#include "base/state.h"

/* From now on what this thread frees of the heap are spares, or no more. */
void rpp_spare_frees_here(bool on);
/* Makes a spare of a block. False: this thread makes none, or there are too many. */
bool rpp_spare_keep(uint64_t address, size_t bytes, int ordinal, struct CUstream_st *stream);
/* A spare for an allocation, or 0. */
uint64_t rpp_spare_take(size_t bytes, int ordinal, struct CUstream_st *stream);
/* Frees those that nobody took in time. */
void rpp_spare_free_old(void);

#endif
