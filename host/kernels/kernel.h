/* SPDX-License-Identifier: MIT
 *
 * Kernels of PyTorch as C functions. Which one a kernel is, its mangled name says; the layouts of
 * its parameters are those of one version of PyTorch (table.c names it).
 */
#ifndef HOST_KERNELS_KERNEL_H
#define HOST_KERNELS_KERNEL_H

#include "reprise.h"

#include <stddef.h>

struct rpi_functor;

/* A kernel's parameters, and what was read out of its name. */
struct rpi_kernel {
    const struct rpi_functor
        *functor; /* what is computed for each element; NULL: not of that kind */
    int arity;    /* pointers that an elementwise kernel has, the output's too */
    int variant;  /* by the family */
    struct rp_host_param params[];
};

static inline struct rpi_kernel *rpi_kernel_of(const struct rp_host_kernel *kernel)
{
    return (struct rpi_kernel *)((char *)(uintptr_t)kernel->params -
                                 offsetof(struct rpi_kernel, params));
}

/* The C function of the kernel with that mangled name, its details in *kernel; NULL: none. */
void (*rpi_kernel_find(const char *name, struct rpi_kernel *kernel,
                       uint32_t param_count))(const struct rp_host_launch *launch);

#endif
