/* SPDX-License-Identifier: MIT */
#include "base/sized.h"

#include "base/log.h"

#include <assert.h>
#include <string.h>

/* No options struct comes near this: a larger size was never set. */
enum { MOST_BYTES = 4096 };

static bool is_size(size_t bytes)
{
    return bytes >= sizeof bytes && bytes <= MOST_BYTES && bytes % sizeof bytes == 0;
}

static size_t size_of(const void *sized)
{
    size_t bytes;
    memcpy(&bytes, sized, sizeof bytes);
    return bytes;
}

rp_status rpi_take_options(void *chosen, size_t known, const void *options, const char *function,
                           const char *initializer, struct rp_error *err)
{
    if (!options)
        return RP_OK;
    size_t bytes = size_of(options);
    if (!is_size(bytes))
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

rp_status rpi_hand_out(void *out, const void *whole, size_t known, const char *function,
                       struct rp_error *err)
{
    size_t bytes = size_of(out), kept = sizeof bytes;
    assert(is_size(known));
    if (!is_size(bytes))
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "the struct's size is %zu: set it to its sizeof before the call", bytes);
    size_t told = bytes < known ? bytes : known;
    memcpy((char *)out + kept, (const char *)whole + kept, told - kept);
    memset((char *)out + told, 0, bytes - told);
    return RP_OK;
}

bool rpi_give(void *out, const void *whole, size_t known, const char *function)
{
    struct rp_error err;
    rp_status status = rpi_hand_out(out, whole, known, function, &err);
    if (status != RP_OK)
        rpi_log(RP_LOG_ERROR, "%s: %s", function, err.message);
    return status == RP_OK;
}

void rpi_give_nothing(void *out)
{
    size_t bytes = out ? size_of(out) : 0;
    if (is_size(bytes))
        memset((char *)out + sizeof bytes, 0, bytes - sizeof bytes);
}
