/* SPDX-License-Identifier: MIT */
#include "libcuda/image.h"

#include "graph/ground/copy_kernel.h"
#include "kernels/kernel.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define WRAPPER_MAGIC   0x466243b1u
#define CONTAINER_MAGIC 0xba55ed50u

/* What nvcc's programs register. */
struct wrapper {
    uint32_t magic, version;
    const void *container;
    const void *unused;
};

static void run_nothing(const struct rp_host_launch *launch)
{
    (void)launch;
}

bool rpi_image_does_nothing(const struct rp_host_kernel *kernel)
{
    return kernel->run == run_nothing;
}

static int by_offset(const void *a, const void *b)
{
    const struct rp_host_param *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* The library's own copy kernel comes as PTX, and is C here. */
static void (*own_kernel(const char *name))(const struct rp_host_launch *)
{
    for (uint32_t k = 0; k < rpi_copy_host_image.kernel_count; k++)
        if (strcmp(rpi_copy_host_image.kernels[k].name, name) == 0)
            return rpi_copy_host_image.kernels[k].run;
    return NULL;
}

bool rpi_image_add(struct rpi_image *image, const char *name, const struct rp_host_param *params,
                   uint32_t count, uint32_t max_threads)
{
    if (image->image.kernel_count == image->room) {
        size_t room = image->room ? 2 * image->room : 16;
        struct rp_host_kernel *more = realloc(image->kernels, room * sizeof *more);
        if (!more)
            return false;
        image->kernels = more;
        image->room = room;
    }
    struct rpi_kernel *kernel =
        calloc(1, sizeof *kernel + count * sizeof *kernel->params + strlen(name) + 1);
    if (!kernel)
        return false;
    char *own_name = (char *)&kernel->params[count];
    strcpy(own_name, name);
    if (count)
        memcpy(kernel->params, params, count * sizeof *params);
    qsort(kernel->params, count, sizeof *kernel->params, by_offset);
    void (*run)(const struct rp_host_launch *) = own_kernel(name);
    if (!run)
        run = rpi_kernel_find(own_name, kernel, count);
    image->kernels[image->image.kernel_count++] = (struct rp_host_kernel){
        own_name, run ? run : run_nothing, NULL, kernel->params, count, max_threads};
    return true;
}

static void discard(struct rpi_image *image)
{
    for (uint32_t k = 0; k < image->image.kernel_count; k++)
        free(rpi_kernel_of(&image->kernels[k]));
    free(image->kernels);
    free(image);
}

/* An ELF file's bytes: its section headers come last. */
static size_t elf_bytes(const unsigned char *elf)
{
    uint64_t sections;
    uint16_t size, count;
    memcpy(&sections, elf + 40, sizeof sections);
    memcpy(&size, elf + 58, sizeof size);
    memcpy(&count, elf + 60, sizeof count);
    return sections + (uint64_t)size * count;
}

static struct rpi_image *_Atomic kept; /* the latest; all images stay */

static void keep(struct rpi_image *image)
{
    image->next = atomic_load(&kept);
    while (!atomic_compare_exchange_weak(&kept, &image->next, image))
        ;
}

static CUresult read_any(struct rpi_image *image, const void *code)
{
    uint32_t magic;
    memcpy(&magic, code, sizeof magic);
    if (magic == WRAPPER_MAGIC)
        return rpi_image_add_fatbin(image, ((const struct wrapper *)code)->container);
    if (magic == CONTAINER_MAGIC)
        return rpi_image_add_fatbin(image, code);
    if (memcmp(code, "\177ELF", 4) == 0)
        return rpi_image_add_cubin(image, code, elf_bytes(code));
    if (strstr(code, ".version"))
        return rpi_image_add_ptx(image, code);
    return CUDA_ERROR_INVALID_IMAGE;
}

CUresult rpi_image_read(const void *code, const struct rp_host_image **out_image)
{
    if (!code)
        return CUDA_ERROR_INVALID_VALUE;
    if (memcmp(code, RP_HOST_IMAGE_MAGIC, sizeof RP_HOST_IMAGE_MAGIC) == 0) {
        *out_image = code;
        return CUDA_SUCCESS;
    }
    struct rpi_image *image = calloc(1, sizeof *image);
    if (!image)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = read_any(image, code);
    if (result) {
        discard(image);
        return result;
    }
    memcpy(image->image.magic, RP_HOST_IMAGE_MAGIC, sizeof image->image.magic);
    image->image.kernels = image->kernels;
    keep(image);
    *out_image = &image->image;
    return CUDA_SUCCESS;
}
