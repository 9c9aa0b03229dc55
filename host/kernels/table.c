/* SPDX-License-Identifier: MIT */
#include "kernels/kernel.h"

rpi_run rpi_kernel_find(const char *name, struct rpi_kernel *kernel, uint32_t param_count)
{
    static rpi_run (*const families[])(const char *, struct rpi_kernel *, uint32_t) = {
        rpi_elementwise_find, rpi_reduce_find,   rpi_multi_tensor_find,
        rpi_random_find,      rpi_movement_find, rpi_nets_find};
    rpi_run run = NULL;
    for (size_t i = 0; i < sizeof families / sizeof *families && !run; i++)
        run = families[i](name, kernel, param_count);
    return run;
}
