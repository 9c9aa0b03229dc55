/* SPDX-License-Identifier: MIT
 *
 * Kernels of a cubin and their parameters. A kernel NAME has a section .nv.info.NAME, a list of
 * attributes: {u8 format, u8 attribute, u16 value}; of format 4 the value counts the bytes that
 * follow, formats 1 to 3 have none. Attribute 0x17 is a parameter: {u32 index, u16 ordinal, u16
 * offset, u32 flags}, its size the flags' upper 14 bits; 0x05 the most threads of a block.
 */
#include "libcuda/image.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT_SIZED = 4, ATTRIBUTE_MAX_THREADS = 0x05, ATTRIBUTE_PARAM = 0x17 };
enum { MOST_PARAMS = 1024, PARAM_SIZE_SHIFT = 18 };

struct info {
    struct rp_host_param params[MOST_PARAMS];
    uint32_t count, max_threads;
};

static void take_param(struct info *info, const unsigned char *at)
{
    uint16_t offset;
    uint32_t flags;
    memcpy(&offset, at + 6, sizeof offset);
    memcpy(&flags, at + 8, sizeof flags);
    if (info->count < MOST_PARAMS && flags >> PARAM_SIZE_SHIFT)
        info->params[info->count++] = (struct rp_host_param){offset, flags >> PARAM_SIZE_SHIFT};
}

static void take_max_threads(struct info *info, const unsigned char *at)
{
    uint32_t most[3];
    memcpy(most, at, sizeof most);
    uint64_t threads = (uint64_t)most[0] * most[1] * most[2];
    info->max_threads = threads <= 1024 ? (uint32_t)threads : 0;
}

static bool read_info(const unsigned char *at, size_t bytes, struct info *info)
{
    info->count = info->max_threads = 0;
    while (bytes >= 4) {
        unsigned char format = at[0], attribute = at[1];
        uint16_t value;
        memcpy(&value, at + 2, sizeof value);
        size_t more = format == FORMAT_SIZED ? value : 0;
        if (bytes < 4 + more)
            return false;
        if (format == FORMAT_SIZED && attribute == ATTRIBUTE_PARAM && more >= 12)
            take_param(info, at + 4);
        if (format == FORMAT_SIZED && attribute == ATTRIBUTE_MAX_THREADS && more >= 12)
            take_max_threads(info, at + 4);
        at += 4 + more;
        bytes -= 4 + more;
    }
    return true;
}

static bool has_kernel(const struct rpi_image *image, const char *name)
{
    for (uint32_t k = 0; k < image->image.kernel_count; k++)
        if (strcmp(image->kernels[k].name, name) == 0)
            return true;
    return false;
}

static const char PREFIX[] = ".nv.info.";

/* Only kernels have a section of parameters and are entries; functions that a kernel calls have no
 * .nv.info of their own that names parameters, and nobody asks for them. */
static CUresult add_section(struct rpi_image *image, const unsigned char *elf, size_t bytes,
                            const Elf64_Shdr *section, const char *name, struct info *info)
{
    if (strncmp(name, PREFIX, sizeof PREFIX - 1) != 0)
        return CUDA_SUCCESS;
    name += sizeof PREFIX - 1;
    if (section->sh_offset > bytes || section->sh_size > bytes - section->sh_offset ||
        !read_info(elf + section->sh_offset, section->sh_size, info))
        return CUDA_ERROR_INVALID_IMAGE;
    if (has_kernel(image, name))
        return CUDA_SUCCESS;
    return rpi_image_add(image, name, info->params, info->count, info->max_threads)
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add_sections(struct rpi_image *image, const unsigned char *elf, size_t bytes,
                             const Elf64_Ehdr *header, struct info *info)
{
    Elf64_Shdr names, section;
    memcpy(&names, elf + header->e_shoff + header->e_shstrndx * sizeof names, sizeof names);
    if (names.sh_offset > bytes || names.sh_size > bytes - names.sh_offset || !names.sh_size ||
        elf[names.sh_offset + names.sh_size - 1] != 0)
        return CUDA_ERROR_INVALID_IMAGE;
    for (unsigned i = 0; i < header->e_shnum; i++) {
        memcpy(&section, elf + header->e_shoff + i * sizeof section, sizeof section);
        if (section.sh_name >= names.sh_size)
            return CUDA_ERROR_INVALID_IMAGE;
        CUresult result = add_section(image, elf, bytes, &section,
                                      (const char *)elf + names.sh_offset + section.sh_name, info);
        if (result)
            return result;
    }
    return CUDA_SUCCESS;
}

CUresult rpi_image_add_cubin(struct rpi_image *image, const void *elf, size_t bytes)
{
    Elf64_Ehdr header;
    if (bytes < sizeof header)
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&header, elf, sizeof header);
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum ||
        header.e_shoff > bytes || header.e_shnum > (bytes - header.e_shoff) / sizeof(Elf64_Shdr))
        return CUDA_ERROR_INVALID_IMAGE;
    struct info *info = malloc(sizeof *info);
    if (!info)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = add_sections(image, elf, bytes, &header, info);
    free(info);
    return result;
}
