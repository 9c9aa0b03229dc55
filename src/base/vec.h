/* SPDX-License-Identifier: MIT
 *
 * A growable array of any element type:
 *
 *     struct { RPI_VEC(uint32_t); } ids = {0};        fields: data, count, capacity
 *     if (!rpi_vec_push(&ids, 7)) ... no host memory, ids unchanged
 *     rpi_vec_finish(&ids);
 *
 * Growth doubles, so that n pushes move O(n) elements.
 */
#ifndef REPRISE_BASE_VEC_H
#define REPRISE_BASE_VEC_H

#include "base/hostmem.h"

#include <stdbool.h>
#include <stddef.h>

#define RPI_VEC(type)                                                                              \
    type *data;                                                                                    \
    size_t count, capacity

/* The array moved to where `count` elements fit, *capacity updated; NULL when there is no memory.
 */
void *rpi_vec_grow(void *data, size_t *capacity, size_t count, size_t element_bytes);

/* Makes room for n elements in all; false when there is no memory, vec unchanged. */
#define rpi_vec_reserve(vec, n)                                                                    \
    __extension__({                                                                                \
        bool fits_ = (n) <= (vec)->capacity;                                                       \
        if (!fits_) {                                                                              \
            void *grown_ = rpi_vec_grow((vec)->data, &(vec)->capacity, (n), sizeof *(vec)->data);  \
            if (grown_)                                                                            \
                (vec)->data = grown_;                                                              \
            fits_ = grown_ != NULL;                                                                \
        }                                                                                          \
        fits_;                                                                                     \
    })
#define rpi_vec_push(vec, value)                                                                   \
    (rpi_vec_reserve((vec), (vec)->count + 1) ? ((vec)->data[(vec)->count++] = (value), true)      \
                                              : false)
#define rpi_vec_finish(vec)                                                                        \
    (rpi_free((vec)->data), (vec)->data = NULL, (vec)->count = (vec)->capacity = 0)

#endif
