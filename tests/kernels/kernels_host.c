/* SPDX-License-Identifier: MIT
 *
 * The kernels for the host driver: each becomes a C function that does the whole grid, a list of
 * its parameters with the offsets that CUDA's packing gives them (natural alignment, as in a C
 * structure), and a declaration of what a launch reads and writes.
 */
#include "base/clock.h"
#include "kernels.h"
#include "reprise.h"
#include "reprise_tools.h"

#include <stddef.h>

/* run_NAME unpacks the launch's parameters for body_NAME; list_NAME describes them. */
#define ARGUMENT(type, i) (*(type const *)launch->params[i])
#define SLOT(name, type, parameter)                                                                \
    {                                                                                              \
        offsetof(struct packed_##name, parameter), sizeof(type)                                    \
    }
#define RUN(name, ...)                                                                             \
    static void run_##name(const struct rp_host_launch *launch)                                    \
    {                                                                                              \
        body_##name(launch, ##__VA_ARGS__);                                                        \
    }
#define HIDDEN __attribute__((unused)) const struct rp_host_launch *launch

#define KERNEL0(name)                                                                              \
    static void body_##name(HIDDEN);                                                               \
    RUN(name)                                                                                      \
    static const struct rp_host_param list_##name[1];                                              \
    static void body_##name(HIDDEN)
#define KERNEL1(name, t0, p0)                                                                      \
    struct packed_##name {                                                                         \
        t0 p0;                                                                                     \
    };                                                                                             \
    static void body_##name(HIDDEN, t0 p0);                                                        \
    RUN(name, ARGUMENT(t0, 0))                                                                     \
    static const struct rp_host_param list_##name[] = {SLOT(name, t0, p0)};                        \
    static void body_##name(HIDDEN, t0 p0)
#define KERNEL2(name, t0, p0, t1, p1)                                                              \
    struct packed_##name {                                                                         \
        t0 p0;                                                                                     \
        t1 p1;                                                                                     \
    };                                                                                             \
    static void body_##name(HIDDEN, t0 p0, t1 p1);                                                 \
    RUN(name, ARGUMENT(t0, 0), ARGUMENT(t1, 1))                                                    \
    static const struct rp_host_param list_##name[] = {SLOT(name, t0, p0), SLOT(name, t1, p1)};    \
    static void body_##name(HIDDEN, t0 p0, t1 p1)
#define KERNEL3(name, t0, p0, t1, p1, t2, p2)                                                      \
    struct packed_##name {                                                                         \
        t0 p0;                                                                                     \
        t1 p1;                                                                                     \
        t2 p2;                                                                                     \
    };                                                                                             \
    static void body_##name(HIDDEN, t0 p0, t1 p1, t2 p2);                                          \
    RUN(name, ARGUMENT(t0, 0), ARGUMENT(t1, 1), ARGUMENT(t2, 2))                                   \
    static const struct rp_host_param list_##name[] = {SLOT(name, t0, p0), SLOT(name, t1, p1),     \
                                                       SLOT(name, t2, p2)};                        \
    static void body_##name(HIDDEN, t0 p0, t1 p1, t2 p2)
#define KERNEL4(name, t0, p0, t1, p1, t2, p2, t3, p3)                                              \
    struct packed_##name {                                                                         \
        t0 p0;                                                                                     \
        t1 p1;                                                                                     \
        t2 p2;                                                                                     \
        t3 p3;                                                                                     \
    };                                                                                             \
    static void body_##name(HIDDEN, t0 p0, t1 p1, t2 p2, t3 p3);                                   \
    RUN(name, ARGUMENT(t0, 0), ARGUMENT(t1, 1), ARGUMENT(t2, 2), ARGUMENT(t3, 3))                  \
    static const struct rp_host_param list_##name[] = {SLOT(name, t0, p0), SLOT(name, t1, p1),     \
                                                       SLOT(name, t2, p2), SLOT(name, t3, p3)};    \
    static void body_##name(HIDDEN, t0 p0, t1 p1, t2 p2, t3 p3)

#define EACH(i, count) for (uint32_t i = 0; i < (count); i++)
#define ONCE
#define AXIS_x        0
#define AXIS_y        1
#define AXIS_z        2
#define GRID(axis)    launch->grid[AXIS_##axis]
#define BLOCK(axis)   launch->block[AXIS_##axis]
#define CLUSTER(axis) launch->cluster[AXIS_##axis]
#define SHARED_BYTES  launch->shared_bytes
#define NANOSECONDS() rpi_clock_ns()
#define DEPENDENTS_MAY_START()
#define WAIT_FOR_PRIMARY()
#define TENSOR_MAP struct rpt_tensor_map
#define EACH_TILE(tile, first, map)                                                                \
    for (uint32_t first = 0; first < GRID(x) * RPT_TILE; first += RPT_TILE)                        \
        for (const float *tile = row_of(&(map), first), *end_of_##tile = tile + 1;                 \
             tile != end_of_##tile; tile++)
#define EACH_IN_TILE(i) for (uint32_t i = 0; i < RPT_TILE; i++)

static const float *row_of(const struct rpt_tensor_map *map, uint32_t first)
{
    return (const float *)(uintptr_t)map->words[0] + first;
}

#define BASE_KERNELS
#define SM90_KERNELS
#include "kernels.inc"

/* ---- What each launch reads and writes ----------------------------------------------------- */

static uint64_t address_at(const struct rp_host_launch *launch, int index)
{
    return (uint64_t) * (const uintptr_t *)launch->params[index];
}

static uint32_t count_at(const struct rp_host_launch *launch, int index)
{
    return *(const uint32_t *)launch->params[index];
}

#define ACCESS(name)                                                                               \
    static void access_##name(const struct rp_host_launch *launch, rp_host_access report,          \
                              void *context)
#define READS(index, bytes)  report(context, address_at(launch, index), (bytes), 0)
#define WRITES(index, bytes) report(context, address_at(launch, index), (bytes), 1)
#define FLOATS(index)        (4u * (uint64_t)count_at(launch, index))

ACCESS(rpt_fill)
{
    WRITES(0, FLOATS(2));
}

ACCESS(rpt_add)
{
    READS(1, FLOATS(3));
    READS(2, FLOATS(3));
    WRITES(0, FLOATS(3));
}

ACCESS(rpt_scale)
{
    READS(1, FLOATS(3));
    WRITES(0, FLOATS(3));
}

ACCESS(rpt_copy)
{
    READS(1, FLOATS(2));
    WRITES(0, FLOATS(2));
}

ACCESS(rpt_saxpy)
{
    READS(1, FLOATS(3));
    READS(0, FLOATS(3));
    WRITES(0, FLOATS(3));
}

ACCESS(rpt_mix)
{
    READS(0, 4);
    WRITES(0, 4);
}

ACCESS(rpt_slow)
{
    WRITES(0, 4);
}

ACCESS(rpt_padded)
{
    const struct rpt_padded_param *param = launch->params[0];
    report(context, (uint64_t)(uintptr_t)(param->to + param->index), 4, 1);
}

ACCESS(rpt_shape)
{
    WRITES(0, 28);
}

ACCESS(rpt_nothing)
{
    (void)launch, (void)report, (void)context;
}

ACCESS(rpt_cluster)
{
    WRITES(0, 12);
}

ACCESS(rpt_pdl_first)
{
    WRITES(0, FLOATS(2));
}

ACCESS(rpt_pdl_second)
{
    READS(1, FLOATS(2));
    WRITES(0, FLOATS(2));
}

ACCESS(rpt_tile)
{
    const struct rpt_tensor_map *map = launch->params[0];
    uint64_t bytes = 4ull * RPT_TILE * launch->grid[0];
    report(context, map->words[0], bytes, 0);
    WRITES(1, bytes);
}

/* ---- The image ----------------------------------------------------------------------------- */

#define ENTRY(kernel, parameters)                                                                  \
    {                                                                                              \
#kernel, run_##kernel, access_##kernel, list_##kernel, parameters, 0                       \
    }

static const struct rp_host_kernel kernels[] = {
    ENTRY(rpt_fill, 3),       ENTRY(rpt_add, 4),     ENTRY(rpt_scale, 4),   ENTRY(rpt_copy, 3),
    ENTRY(rpt_saxpy, 4),      ENTRY(rpt_mix, 2),     ENTRY(rpt_slow, 3),    ENTRY(rpt_padded, 1),
    ENTRY(rpt_shape, 1),      ENTRY(rpt_nothing, 0), ENTRY(rpt_cluster, 1), ENTRY(rpt_pdl_first, 4),
    ENTRY(rpt_pdl_second, 3), ENTRY(rpt_tile, 3),
};

const struct rp_host_image rpt_host_image = {
    .magic = RP_HOST_IMAGE_MAGIC,
    .kernel_count = sizeof kernels / sizeof *kernels,
    .kernels = kernels,
};
