/* SPDX-License-Identifier: MIT
 *
 * The kernel of many copies (copy_kernel.h) as an image for the host driver: one thread does what
 * all blocks of the grid do, the last first, as no device promises an order; and the ranges of each
 * copy are declared for the race check.
 */
#include "graph/ground/copy_kernel.h"

#include "reprise.h"
#include "reprise_tools.h"

#include <stdbool.h>

static void declare(const struct rpi_copy *copies, uint32_t count, rp_host_access report,
                    void *context)
{
    for (uint32_t i = 0; i < count; i++) {
        bool value = !copies[i].bytes;
        if (!value)
            report(context, copies[i].from, copies[i].bytes, 0);
        report(context, copies[i].to, value ? sizeof copies[i].from : copies[i].bytes, 1);
    }
}

#define X(most)                                                                                    \
    static void run_##most(const struct rp_host_launch *launch)                                    \
    {                                                                                              \
        const struct rpi_copy_table_##most *table = launch->params[0];                             \
        for (uint32_t block = launch->grid[0]; block-- > 0;)                                       \
            RPI_COPY_BLOCK(*table, block, launch->grid[0], 0, 1)                                   \
    }                                                                                              \
    static void access_##most(const struct rp_host_launch *launch, rp_host_access report,          \
                              void *context)                                                       \
    {                                                                                              \
        const struct rpi_copy_table_##most *table = launch->params[0];                             \
        declare(table->copies, table->count, report, context);                                     \
    }                                                                                              \
    static const struct rp_host_param param_##most = {0, sizeof(struct rpi_copy_table_##most)};
RPI_COPY_TABLES(X)
#undef X

#define X(most) {"rpi_copy_" #most, run_##most, access_##most, &param_##most, 1, 0},
static const struct rp_host_kernel kernels[] = {RPI_COPY_TABLES(X)};
#undef X

const struct rp_host_image rpi_copy_host_image = {RP_HOST_IMAGE_MAGIC,
                                                  sizeof kernels / sizeof *kernels, 0, kernels};
