/* SPDX-License-Identifier: MIT
 *
 * Copying and filling boxes of device memory: some sizes along some dimensions, at given strides.
 * Neighbouring dimensions that lie without a gap are joined, the innermost two go in one call of
 * the driver where its pitches allow, the others are walked.
 */
#ifndef REPRISE_GRAPH_CALLABLE_STRIDED_COPY_H
#define REPRISE_GRAPH_CALLABLE_STRIDED_COPY_H

#include "driver/driver.h"

/* Strides in elements. */
struct rpi_strided {
    uint64_t address;
    const int64_t *strides;
};

/* Enqueues a copy of rank sizes from one box to another. */
rp_status rpi_strided_copy(const struct rp_driver *driver, const struct rpi_strided *to,
                           const struct rpi_strided *from, const int64_t *sizes, uint32_t rank,
                           uint32_t element, CUstream stream, struct rp_error *err);

/* Fills what lies within `outer` and not within `inner` sizes with elements of these bits. */
rp_status rpi_strided_fill_beyond(const struct rp_driver *driver, const struct rpi_strided *box,
                                  const int64_t *inner, const int64_t *outer, uint32_t rank,
                                  uint32_t element, uint64_t bits, CUstream stream,
                                  struct rp_error *err);

#endif
