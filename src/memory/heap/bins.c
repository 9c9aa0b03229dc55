/* SPDX-License-Identifier: MIT */
#include "memory/heap/bins.h"

#include <assert.h>

static bool is_less(const struct rpi_heap_block *a, const struct rpi_heap_block *b)
{
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
}

/* Any function of the address that looks random keeps the treap balanced: the finaliser of
 * MurmurHash3, upper half. */
static uint32_t priority_of(uint64_t address)
{
    address ^= address >> 33;
    address *= 0xff51afd7ed558ccdu;
    address ^= address >> 33;
    address *= 0xc4ceb9fe1a85ec53u;
    return (uint32_t)(address >> 32);
}

void rpi_heap_tree_insert(struct rpi_heap_block **link, struct rpi_heap_block *block)
{
    assert(block->bytes && block->bytes % RPI_HEAP_GRAIN == 0);
    block->priority = priority_of(block->address);
    while (*link && (*link)->priority >= block->priority)
        link = is_less(block, *link) ? &(*link)->left : &(*link)->right;
    struct rpi_heap_block *rest = *link, **less = &block->left, **more = &block->right;
    *link = block;
    while (rest) {
        if (is_less(rest, block)) {
            *less = rest;
            less = &rest->right;
            rest = rest->right;
        } else {
            *more = rest;
            more = &rest->left;
            rest = rest->left;
        }
    }
    *less = *more = NULL;
}

void rpi_heap_tree_remove(struct rpi_heap_block **link, struct rpi_heap_block *block)
{
    assert(block->priority == priority_of(block->address));
    while (*link != block) {
        assert(*link);
        link = is_less(block, *link) ? &(*link)->left : &(*link)->right;
    }
    struct rpi_heap_block *less = block->left, *more = block->right;
    while (less && more) {
        if (less->priority >= more->priority) {
            *link = less;
            link = &less->right;
            less = less->right;
        } else {
            *link = more;
            link = &more->left;
            more = more->left;
        }
    }
    *link = less ? less : more;
}

struct rpi_heap_block *rpi_heap_tree_find(struct rpi_heap_block *tree, uint64_t bytes)
{
    struct rpi_heap_block *best = NULL;
    while (tree) {
        if (tree->bytes >= bytes) {
            best = tree;
            tree = tree->left;
        } else {
            tree = tree->right;
        }
    }
    return best;
}
