/* SPDX-License-Identifier: MIT
 *
 * Public structs that grow from version to version: a program built with another header than the
 * library's gives and wants fewer bytes of them, or more.
 *
 *     older header    |--- what it knows ---|                       the rest: defaults, or not told
 *     newer header    |--- what the library knows ---|--- tail ---| all 0, or not understood
 *
 * Padding holds anything, so options have none at their end: a field that is added would come to
 * lie in what an older program never set. Their sizes are multiples of that of a size_t.
 */
#ifndef REPRISE_BASE_SIZED_H
#define REPRISE_BASE_SIZED_H

#include "base/status.h"

/* Puts the caller's options over the defaults in `chosen`, `known` bytes that begin with their
 * size_t size. options may be NULL. RP_ERROR_INVALID_ARGUMENT where the size cannot be one, or the
 * caller asks for what the library does not know. `initializer`: its name, for the error. */
rp_status rpi_take_options(void *chosen, size_t known, const void *options, const char *function,
                           const char *initializer, struct rp_error *err);

/* Fills the caller's struct of `bytes` from a whole one; what it has beyond that becomes 0. */
void rpi_give(void *out, size_t bytes, const void *whole, size_t known);
/* Fills it with 0; out may be NULL. */
void rpi_give_nothing(void *out, size_t bytes);

#endif
