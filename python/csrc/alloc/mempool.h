/* SPDX-License-Identifier: MIT
 *
 * torch.cuda.MemPool and use_mem_pool where Reprise's heap is PyTorch's allocator: each MemPool is
 * a pool of the heaps (rp_heap_alloc_in), which a thread's allocations come from while it uses it.
 * A use within another hides that. What a stream that captures asks for is the capture's all the
 * same.
 *
 * A number is given again once its MemPool is gone and nothing lives in it.
 */
#ifndef REPRISE_PYTHON_ALLOC_MEMPOOL_H
#define REPRISE_PYTHON_ALLOC_MEMPOOL_H

#include "alloc/once.h"

/* A number for a MemPool of this id; 0: all are taken. flags: enum rp_heap_pool. source: where its
 * memory comes from; NULL: the device. A number with a source is given to MemPools of that alone:
 * what one left may be free and not given back yet. */
uint32_t rpp_mempool_make(struct rpp_pool_id id, unsigned flags,
                          const struct rp_heap_source *source);
/* The MemPool is gone: what is free of its memory goes at once, the rest when it is free. */
void rpp_mempool_drop(uint32_t pool);
/* The number of a MemPool that is not gone; 0: there is none. */
uint32_t rpp_mempool_find(struct rpp_pool_id id);
/* Whose number it is, or was last. */
struct rpp_pool_id rpp_mempool_id(uint32_t pool);

/* This thread's allocations on the device come from the pool until the end, by this thread too. */
rp_status rpp_mempool_begin(int ordinal, uint32_t pool, struct rp_error *err);
rp_status rpp_mempool_end(int ordinal, uint32_t pool, struct rp_error *err);
/* Takes back what begin added to its count, which is 1 for the MemPool itself. */
void rpp_mempool_release(uint32_t pool);
unsigned rpp_mempool_count(uint32_t pool);
/* The pool that this thread uses on the device; 0: none. */
uint32_t rpp_mempool_now(int ordinal);

#endif
