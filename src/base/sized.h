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

#include <stdbool.h>

/* Puts the caller's options over the defaults in `chosen`, `known` bytes that begin with their
 * size_t size. options may be NULL. RP_ERROR_INVALID_ARGUMENT where the size cannot be one, or the
 * caller asks for what the library does not know. `initializer`: its name, for the error. */
rp_status rpi_take_options(void *chosen, size_t known, const void *options, const char *function,
                           const char *initializer, struct rp_error *err);

/* Fills what lies behind the size_t size that the caller's struct begins with, from a whole one of
 * `known` bytes: cut to that size, and 0 beyond what is known. Where the size cannot be one nothing
 * is written: RP_ERROR_INVALID_ARGUMENT, or an error in the log and false. */
rp_status rpi_hand_out(void *out, const void *whole, size_t known, const char *function,
                       struct rp_error *err);
bool rpi_give(void *out, const void *whole, size_t known, const char *function);
/* Fills it with 0 instead; out may be NULL. */
void rpi_give_nothing(void *out);

#endif
