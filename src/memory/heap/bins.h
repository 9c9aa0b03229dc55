/* SPDX-License-Identifier: MIT
 *
 * The free blocks of one shelf, by size: the smallest that is large enough is found at once.
 *
 * Sizes up to 1 MiB, always multiples of 512, have a list each, and a bitmap in two levels tells
 * the lists that are not empty: constant time, the newest block of a size first. Larger ones are in
 * a treap (Seidel and Aragon 1996) by size and address: expected logarithmic time, the lowest
 * address of a size first. Not synchronised.
 */
#ifndef REPRISE_MEMORY_HEAP_BINS_H
#define REPRISE_MEMORY_HEAP_BINS_H

#include "driver/cuda_abi.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPI_HEAP_GRAIN_SHIFT 9
#define RPI_HEAP_GRAIN       ((uint64_t)1 << RPI_HEAP_GRAIN_SHIFT) /* of sizes and addresses */

enum { RPI_HEAP_BINS = 2048 }; /* lists: sizes of 1 to RPI_HEAP_BINS grains */

enum rpi_heap_state { RPI_HEAP_HOLE, RPI_HEAP_FREE, RPI_HEAP_LIVE, RPI_HEAP_WAITING };

/* A part of a range; see heap.h. */
struct rpi_heap_block {
    uint64_t address, bytes;
    struct rpi_heap_block *before, *after; /* neighbours in the range */
    /* Free: list of the bin (left: next, right: previous) or children in the treap. Hole: list of
     * holes. Waiting: left is the next one. */
    struct rpi_heap_block *left, *right;
    struct rpi_heap_range *range;
    uint32_t priority; /* in the treap */
    enum rpi_heap_state state;
    uint64_t requested;             /* live, waiting: what was asked for */
    CUstream stream;                /* live, waiting: whom it was given to */
    struct rpi_heap_use *uses;      /* owned */
    struct rpi_heap_stack *stack;   /* live, waiting: where it was allocated; one owner, or NULL */
    uint64_t freed_at;              /* free: the heap's tick */
    struct rpi_heap_watch *watches; /* live: list of those who want to know when it is freed */
};

struct rpi_heap_bins {
    uint64_t summary; /* bit i: words[i] is not 0 */
    uint64_t words[RPI_HEAP_BINS / 64];
    struct rpi_heap_block *lists[RPI_HEAP_BINS];
    struct rpi_heap_block *tree;
};

void rpi_heap_tree_insert(struct rpi_heap_block **link, struct rpi_heap_block *block);
void rpi_heap_tree_remove(struct rpi_heap_block **link, struct rpi_heap_block *block);
struct rpi_heap_block *rpi_heap_tree_find(struct rpi_heap_block *tree, uint64_t bytes);

static inline uint64_t rpi_heap_bin(uint64_t bytes)
{
    assert(bytes && bytes % RPI_HEAP_GRAIN == 0);
    return (bytes >> RPI_HEAP_GRAIN_SHIFT) - 1;
}

static inline void rpi_heap_bins_insert(struct rpi_heap_bins *bins, struct rpi_heap_block *block)
{
    uint64_t bin = rpi_heap_bin(block->bytes);
    if (bin >= RPI_HEAP_BINS) {
        rpi_heap_tree_insert(&bins->tree, block);
        return;
    }
    struct rpi_heap_block *next = bins->lists[bin];
    block->left = next;
    block->right = NULL;
    if (next)
        next->right = block;
    bins->lists[bin] = block;
    bins->words[bin / 64] |= (uint64_t)1 << bin % 64;
    bins->summary |= (uint64_t)1 << bin / 64;
}

static inline void rpi_heap_bins_remove(struct rpi_heap_bins *bins, struct rpi_heap_block *block)
{
    uint64_t bin = rpi_heap_bin(block->bytes);
    if (bin >= RPI_HEAP_BINS) {
        rpi_heap_tree_remove(&bins->tree, block);
        return;
    }
    if (block->left)
        block->left->right = block->right;
    if (block->right) {
        block->right->left = block->left;
        return;
    }
    bins->lists[bin] = block->left;
    if (block->left)
        return;
    bins->words[bin / 64] &= ~((uint64_t)1 << bin % 64);
    if (!bins->words[bin / 64])
        bins->summary &= ~((uint64_t)1 << bin / 64);
}

/* The best fit for `bytes`, a multiple of the grain above 0; NULL when none is large enough. */
static inline struct rpi_heap_block *rpi_heap_bins_find(const struct rpi_heap_bins *bins,
                                                        uint64_t bytes)
{
    uint64_t bin = rpi_heap_bin(bytes);
    if (bin >= RPI_HEAP_BINS)
        return rpi_heap_tree_find(bins->tree, bytes);
    uint64_t word = bin / 64, bits = bins->words[word] >> bin % 64;
    if (bits)
        return bins->lists[bin + (uint64_t)__builtin_ctzll(bits)];
    uint64_t later = bins->summary & (~(uint64_t)0 << word) & ~((uint64_t)1 << word);
    if (!later)
        return bins->tree ? rpi_heap_tree_find(bins->tree, bytes) : NULL;
    word = (uint64_t)__builtin_ctzll(later);
    return bins->lists[word * 64 + (uint64_t)__builtin_ctzll(bins->words[word])];
}

#endif
