/* SPDX-License-Identifier: MIT
 *
 * A table from device addresses to what is known of the block there. Open addressing with linear
 * probing, at most half full, no tombstones: a removal moves back what would be unreachable.
 */
#ifndef REPRISE_PYTHON_ADDRESSES_H
#define REPRISE_PYTHON_ADDRESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct CUstream_st;
struct rpp_once;

struct rpp_block {
    uint32_t owners;  /* segments: how many pools of PyTorch's still have it */
    uint64_t address; /* never 0 */
    uint64_t bytes;
    uint64_t call;    /* number of the call that it was allocated in */
    const void *pool; /* of that call; unowned */
    uint32_t index;   /* how many allocations of that call came before */
    bool is_arg;      /* it lies where an argument does: nothing to free */
    bool is_left;     /* a segment that the call was told is free, and PyTorch has still */
    struct CUstream_st *stream; /* of a block of `once`: that it was allocated for */
    struct rpp_once *once;      /* the capture of PyTorch's own that it is of; NULL: of a call */
};

struct rpp_addresses {
    struct rpp_block *slots; /* address 0: empty */
    size_t capacity, count;  /* capacity is a power of two, or 0 */
};

/* NULL when there is none. Valid until the table changes. */
const struct rpp_block *rpp_addresses_get(const struct rpp_addresses *table, uint64_t address);
/* Adds the block, or replaces the one at its address. False for want of host memory. */
bool rpp_addresses_put(struct rpp_addresses *table, const struct rpp_block *block);
/* Nothing when there is none. */
void rpp_addresses_remove(struct rpp_addresses *table, uint64_t address);

#endif
