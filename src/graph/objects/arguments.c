/* SPDX-License-Identifier: MIT */
#include "graph/objects/arguments.h"

enum { MOST_ALIGNMENT = 256 };

rp_status rpi_check_args(const char *function, const struct rp_arg *args, size_t arg_count,
                         struct rp_error *err)
{
    if (arg_count && !args)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "there should be %zu arguments, but args is NULL", arg_count);
    for (size_t i = 0; i < arg_count; i++) {
        if (args[i].role < RP_ARG_IN || args[i].role > RP_ARG_INOUT)
            return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                             "argument %zu has role %d, which is not an enum rp_arg_role", i,
                             (int)args[i].role);
        if (args[i].bytes > UINT64_MAX / 2)
            return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                             "argument %zu has %llu bytes, more than any device", i,
                             (unsigned long long)args[i].bytes);
        rp_status status = rpi_tensor_check(&args[i], function, i, err);
        if (status != RP_OK)
            return status;
    }
    return RP_OK;
}

uint64_t rpi_arg_alignment(const struct rp_pool *pool, const struct rp_arg *arg)
{
    uint64_t most = pool->core->memory.alignment;
    if (most > MOST_ALIGNMENT)
        most = MOST_ALIGNMENT;
    uint64_t alignment = arg->address & -arg->address; /* the lowest bit; 0 for no address */
    return alignment && alignment < most ? alignment : most;
}

uint64_t rpi_block_bytes(uint64_t bytes)
{
    return bytes ? bytes : 1;
}
