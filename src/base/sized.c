/* SPDX-License-Identifier: MIT */
#include "base/sized.h"

#include <string.h>

/* No options struct comes near this: a larger size was never set. */
enum { MOST_BYTES = 4096 };

rp_status rpi_take_options(void *chosen, size_t known, const void *options, const char *function,
                           const char *initializer, struct rp_error *err)
{
    size_t bytes;
    if (!options)
        return RP_OK;
    memcpy(&bytes, options, sizeof bytes);
    if (bytes < sizeof bytes || bytes > MOST_BYTES || bytes % sizeof bytes)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "the options' size is %zu: start from %s", bytes, initializer);
    const char *given = options;
    for (size_t i = known; i < bytes; i++)
        if (given[i])
            return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                             "the options' size is %zu, of which this library (%s) knows %zu, and "
                             "what comes behind is set: start from %s, or use a newer library",
                             bytes, rp_version(), known, initializer);
    memcpy(chosen, options, bytes < known ? bytes : known);
    memcpy(chosen, &known, sizeof known);
    return RP_OK;
}

void rpi_give(void *out, size_t bytes, const void *whole, size_t known)
{
    memcpy(out, whole, bytes < known ? bytes : known);
    if (bytes > known)
        memset((char *)out + known, 0, bytes - known);
}

void rpi_give_nothing(void *out, size_t bytes)
{
    if (out)
        memset(out, 0, bytes);
}
