/* SPDX-License-Identifier: MIT
 *
 * The functions that PyTorch's pluggable allocator calls, with the C form of their C++ signatures
 * (torch/csrc/cuda/CUDAPluggableAllocator.h): an id of a pool is two words in registers, and a
 * std::function that is passed by value is an object of the caller's, given by address.
 *
 * Allocation: on a capturing stream of the call under way, a block of that call; on a capturing
 * stream of PyTorch's own, a block of that capture (once.h); otherwise from the device's heap.
 * Where there is no memory it throws what PyTorch's users catch (raise.h).
 *
 * Built with -fexceptions: exceptions pass through rpp_hook_alloc.
 */
#ifndef REPRISE_PYTHON_HOOKS_H
#define REPRISE_PYTHON_HOOKS_H

#include "alloc/once.h"

void *rpp_hook_alloc(size_t bytes, int ordinal, struct CUstream_st *stream);
/* The same for the segments of a torch.cuda.MemPool. PyTorch keeps those of a pool that is gone for
 * a while: one that nothing lives in may have the address of a new one. */
void *rpp_hook_segment(size_t bytes, int ordinal, struct CUstream_st *stream);
void rpp_hook_free(void *pointer, size_t bytes, int ordinal, struct CUstream_st *stream);
void rpp_hook_reset(void);
void rpp_hook_fraction(double fraction, int ordinal);
void *rpp_hook_base(void *pointer, size_t *out_bytes);
void rpp_hook_use(void *pointer, struct CUstream_st *stream);
void rpp_hook_begin_pool(int ordinal, struct rpp_pool_id id, void *filter);
void rpp_hook_end_pool(int ordinal, struct rpp_pool_id id);
void rpp_hook_release_pool(int ordinal, struct rpp_pool_id id);

/* A call begins and ends; its blocks that are alive at its end stay known until they are freed. */
void rpp_call_begin(struct rp_call *call, const struct rp_pool *pool, int ordinal,
                    const struct rpp_place *places, size_t place_count);
void rpp_call_end(void);
/* rp_call_result of the call under way; address: of a block of the call, or 0. */
rp_status rpp_hook_result(uint64_t bytes, uint64_t address, uint64_t *out_address,
                          struct rp_error *err);
/* rp_call_value, _scalar, _take_over, _begun and _ended of the call under way; LEAVE: rp_call_free of
 * a segment that nothing lies in, which PyTorch keeps until its pool goes. what: an address, a
 * double's bits, a graph, or nothing. */
enum rpp_call_step {
    RPP_CALL_VALUE,
    RPP_CALL_SCALAR,
    RPP_CALL_TAKE_OVER,
    RPP_CALL_BEGUN,
    RPP_CALL_ENDED,
    RPP_CALL_LEAVE,
};
rp_status rpp_hook_step(enum rpp_call_step step, uint64_t what, struct rp_error *err);
/* Is any block alive that a call allocated from the pool? */
bool rpp_pool_is_used(const struct rp_pool *pool);

#endif
