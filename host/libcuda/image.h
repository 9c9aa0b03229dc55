/* SPDX-License-Identifier: MIT
 *
 * Images in NVIDIA's formats, as the host driver takes them.
 *
 *   cubin        an ELF file of machine code for one architecture; it tells each kernel's
 * parameters fat binary   a container of cubins and PTX for several architectures, mostly
 * compressed wrapper      what a program that nvcc compiled registers: it points to a fat binary
 *   PTX          text: of a kernel only its name and parameters are read
 *
 * Machine code is not run. A kernel that has a C function (host/kernels) computes by that; another
 * one does nothing.
 */
#ifndef HOST_LIBCUDA_IMAGE_H
#define HOST_LIBCUDA_IMAGE_H

#include "driver/driver.h"
#include "reprise.h"
#include "reprise_tools.h"

#include <stdbool.h>

/* The image of C functions for `code`, which is in any of the formats. It stays for the process, as
 * graphs may refer to it. CUDA_ERROR_INVALID_IMAGE for what is none of these,
 * CUDA_ERROR_NO_BINARY_FOR_GPU for a fat binary without code for compute capability 9.0. Any
 * thread. */
CUresult rpi_image_read(const void *code, const struct rp_host_image **out_image);

/* Whether the kernel is one that does nothing here. */
bool rpi_image_does_nothing(const struct rp_host_kernel *kernel);

/* ---- image.c's parts ------------------------------------------------------------------------ */

/* An image that is being made. */
struct rpi_image {
    struct rp_host_image image;
    struct rp_host_kernel *kernels; /* [image.kernel_count] */
    size_t room;
    struct rpi_image *next; /* that was read before it */
};

/* Adds a kernel, whose parameters are copied and put in order. false: no host memory. */
bool rpi_image_add(struct rpi_image *image, const char *name, const struct rp_host_param *params,
                   uint32_t count, uint32_t max_threads);
/* cubin.c, ptx.c: add every kernel of theirs. */
CUresult rpi_image_add_cubin(struct rpi_image *image, const void *elf, size_t bytes);
CUresult rpi_image_add_ptx(struct rpi_image *image, const char *text);
/* fatbin.c */
CUresult rpi_image_add_fatbin(struct rpi_image *image, const void *container);

#endif
