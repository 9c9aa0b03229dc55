/* SPDX-License-Identifier: MIT
 *
 * A map from 64-bit keys (addresses, handles) to 32-bit indices: open addressing with linear
 * probing, at most half full, deletion by moving later entries back (Knuth 6.4, algorithm R), so
 * that no tombstones gather. A zeroed map is empty.
 */
#ifndef REPRISE_BASE_IDMAP_H
#define REPRISE_BASE_IDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPI_ABSENT UINT32_MAX

struct rpi_idmap {
    struct rpi_idmap_slot *slots;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
};

/* The value of key, or RPI_ABSENT. */
uint32_t rpi_idmap_get(const struct rpi_idmap *map, uint64_t key);
/* Adds or replaces; false when there is no host memory, the map unchanged. value != RPI_ABSENT. */
bool rpi_idmap_set(struct rpi_idmap *map, uint64_t key, uint32_t value);
/* Removes key where it is present. */
void rpi_idmap_remove(struct rpi_idmap *map, uint64_t key);
void rpi_idmap_finish(struct rpi_idmap *map);

#endif
