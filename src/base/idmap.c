/* SPDX-License-Identifier: MIT */
#include "base/idmap.h"

#include "base/hostmem.h"

#include <assert.h>

struct rpi_idmap_slot {
    uint64_t key;
    uint32_t value; /* RPI_ABSENT: empty */
};

/* Where a key would like to be. Addresses are multiples of large powers of two: mix the high bits
 * down (the finaliser of MurmurHash3). */
static size_t home(const struct rpi_idmap *map, uint64_t key)
{
    assert(map->capacity && (map->capacity & (map->capacity - 1)) == 0);
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdu;
    key ^= key >> 33;
    key *= 0xc4ceb9fe1a85ec53u;
    key ^= key >> 33;
    return (size_t)key & (map->capacity - 1);
}

/* The slot of key, or the empty slot where it would go. */
static size_t find(const struct rpi_idmap *map, uint64_t key)
{
    assert(map->count < map->capacity);
    size_t i = home(map, key);
    while (map->slots[i].value != RPI_ABSENT && map->slots[i].key != key)
        i = (i + 1) & (map->capacity - 1);
    return i;
}

uint32_t rpi_idmap_get(const struct rpi_idmap *map, uint64_t key)
{
    return map->count ? map->slots[find(map, key)].value : RPI_ABSENT;
}

static bool resize(struct rpi_idmap *map, size_t capacity)
{
    assert(capacity > map->count && (capacity & (capacity - 1)) == 0);
    struct rpi_idmap grown = {rpi_calloc(capacity, sizeof(struct rpi_idmap_slot)), capacity,
                              map->count};
    if (!grown.slots)
        return false;
    for (size_t i = 0; i < capacity; i++)
        grown.slots[i].value = RPI_ABSENT;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].value != RPI_ABSENT)
            grown.slots[find(&grown, map->slots[i].key)] = map->slots[i];
    rpi_free(map->slots);
    *map = grown;
    return true;
}

bool rpi_idmap_set(struct rpi_idmap *map, uint64_t key, uint32_t value)
{
    assert(value != RPI_ABSENT);
    if (2 * (map->count + 1) > map->capacity &&
        !resize(map, map->capacity ? 2 * map->capacity : 16))
        return false;
    struct rpi_idmap_slot *slot = &map->slots[find(map, key)];
    if (slot->value == RPI_ABSENT)
        map->count++;
    slot->key = key;
    slot->value = value;
    return true;
}

void rpi_idmap_remove(struct rpi_idmap *map, uint64_t key)
{
    if (!map->count)
        return;
    size_t hole = find(map, key), mask = map->capacity - 1;
    if (map->slots[hole].value == RPI_ABSENT)
        return;
    for (size_t i = (hole + 1) & mask; map->slots[i].value != RPI_ABSENT; i = (i + 1) & mask) {
        size_t from_home = (i - home(map, map->slots[i].key)) & mask;
        if (from_home >= ((i - hole) & mask)) {
            map->slots[hole] = map->slots[i];
            hole = i;
        }
    }
    map->slots[hole].value = RPI_ABSENT;
    map->count--;
}

void rpi_idmap_finish(struct rpi_idmap *map)
{
    rpi_free(map->slots);
    *map = (struct rpi_idmap){0};
}
