/* SPDX-License-Identifier: MIT
 *
 * What the heap is timed with, on any driver: a worker has a number of slots; each step frees what
 * is in one of them, chosen at random, and puts a new block there, so that blocks die in no
 * particular order.
 *
 *     pair    one slot of 4 KiB: allocate, free, allocate ..
 *     small   512 slots of 1 byte to 64 KiB
 *     mixed   512 slots of 1 byte to 1 MiB, half of them below 2 KiB
 *     large   64 slots of 1 to 32 MiB
 */
#ifndef BENCH_HEAP_WORKLOADS_H
#define BENCH_HEAP_WORKLOADS_H

#include <stddef.h>
#include <stdint.h>

enum { MOST_SLOTS = 512 };

struct workload {
    const char *name;
    size_t slots;
    uint64_t (*bytes)(uint64_t random);
    unsigned divide; /* steps are fewer by this */
};

static uint64_t bytes_pair(uint64_t random)
{
    (void)random;
    return 4096;
}

static uint64_t bytes_small(uint64_t random)
{
    return 1 + random % 65536;
}

static uint64_t bytes_mixed(uint64_t random)
{
    uint64_t spread = random >> 8;
    return random & 1 ? 1 + spread % 2048 : 1 + spread % 1048576;
}

static uint64_t bytes_large(uint64_t random)
{
    return (1 << 20) + 1 + random % (31 << 20);
}

static const struct workload workloads[] = {
    {"pair", 1, bytes_pair, 1},
    {"small", MOST_SLOTS, bytes_small, 1},
    {"mixed", MOST_SLOTS, bytes_mixed, 1},
    {"large", 64, bytes_large, 4},
};

/* Marsaglia's xorshift64. */
static inline uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

#endif
