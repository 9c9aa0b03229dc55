/* SPDX-License-Identifier: MIT */
#include "base/vec.h"

#include <assert.h>

void *rpi_vec_grow(void *data, size_t *capacity, size_t count, size_t element_bytes)
{
    assert(count > *capacity && element_bytes);
    size_t wanted = *capacity ? *capacity : 8;
    while (wanted < count) {
        if (wanted > (size_t)-1 / 2)
            return NULL;
        wanted *= 2;
    }
    void *grown = rpi_reallocarray(data, wanted, element_bytes);
    if (grown)
        *capacity = wanted;
    return grown;
}
