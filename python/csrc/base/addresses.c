/* SPDX-License-Identifier: MIT */
#include "base/addresses.h"

#include <assert.h>
#include <stdlib.h>

static size_t home(const struct rpp_addresses *table, uint64_t address)
{
    assert(table->capacity && (table->capacity & (table->capacity - 1)) == 0);
    return (size_t)((address >> 4) * 0x9E3779B97F4A7C15ull >> 20) & (table->capacity - 1);
}

/* The slot of the address, or the empty one where it would go. */
static size_t find(const struct rpp_addresses *table, uint64_t address)
{
    assert(table->count < table->capacity);
    size_t slot = home(table, address);
    while (table->slots[slot].address && table->slots[slot].address != address)
        slot = (slot + 1) & (table->capacity - 1);
    return slot;
}

const struct rpp_block *rpp_addresses_get(const struct rpp_addresses *table, uint64_t address)
{
    if (!table->count)
        return NULL;
    const struct rpp_block *block = &table->slots[find(table, address)];
    return block->address ? block : NULL;
}

static bool grow(struct rpp_addresses *table)
{
    enum { LEAST = 64 };
    struct rpp_addresses larger = {.capacity = table->capacity ? 2 * table->capacity : LEAST,
                                   .count = table->count};
    larger.slots = calloc(larger.capacity, sizeof *larger.slots);
    if (!larger.slots)
        return false;
    for (size_t i = 0; i < table->capacity; i++)
        if (table->slots[i].address)
            larger.slots[find(&larger, table->slots[i].address)] = table->slots[i];
    free(table->slots);
    assert(2 * larger.count <= larger.capacity);
    *table = larger;
    return true;
}

bool rpp_addresses_put(struct rpp_addresses *table, const struct rpp_block *block)
{
    assert(block->address);
    if (2 * (table->count + 1) > table->capacity && !grow(table))
        return false;
    struct rpp_block *slot = &table->slots[find(table, block->address)];
    table->count += slot->address == 0;
    *slot = *block;
    return true;
}

void rpp_addresses_remove(struct rpp_addresses *table, uint64_t address)
{
    if (!rpp_addresses_get(table, address))
        return;
    size_t mask = table->capacity - 1, hole = find(table, address);
    for (size_t slot = (hole + 1) & mask; table->slots[slot].address; slot = (slot + 1) & mask) {
        size_t wanted = home(table, table->slots[slot].address);
        if (((slot - wanted) & mask) < ((slot - hole) & mask))
            continue; /* still reachable */
        table->slots[hole] = table->slots[slot];
        hole = slot;
    }
    table->slots[hole].address = 0;
    table->count--;
}
