/* SPDX-License-Identifier: MIT
 *
 * Fat binaries. A container is {u32 magic, u16 version, u16 bytes of this header, u64 bytes of the
 * entries}; an entry {u16 kind, u16, u32 bytes of this header, u64 bytes of the payload, padded;
 * u32 at 16: bytes when compressed; u32 at 28: architecture; u64 at 40: flags; u64 at 56: bytes
 * when decompressed}. Of machine code for the device's architecture all entries are read.
 */
#include "libcuda/image.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { KIND_MACHINE_CODE = 2, ARCHITECTURE = 90 };
enum { FLAG_LZ4 = 0x2000, FLAG_ZSTD = 0x8000 };

struct entry {
    uint16_t kind;
    uint32_t header, compressed, architecture;
    uint64_t padded, flags, decompressed;
};

static struct entry read_entry(const unsigned char *at)
{
    struct entry entry;
    memcpy(&entry.kind, at, sizeof entry.kind);
    memcpy(&entry.header, at + 4, sizeof entry.header);
    memcpy(&entry.padded, at + 8, sizeof entry.padded);
    memcpy(&entry.compressed, at + 16, sizeof entry.compressed);
    memcpy(&entry.architecture, at + 28, sizeof entry.architecture);
    memcpy(&entry.flags, at + 40, sizeof entry.flags);
    memcpy(&entry.decompressed, at + 56, sizeof entry.decompressed);
    return entry;
}

static CUresult add_compressed(struct rpi_image *image, const struct entry *entry,
                               const unsigned char *payload)
{
    void *elf = malloc(entry->decompressed);
    if (!elf)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t bytes = ZSTD_decompress(elf, entry->decompressed, payload, entry->compressed);
    CUresult result = ZSTD_isError(bytes) || bytes != entry->decompressed
                          ? CUDA_ERROR_INVALID_IMAGE
                          : rpi_image_add_cubin(image, elf, bytes);
    free(elf);
    return result;
}

static CUresult add_entry(struct rpi_image *image, const struct entry *entry,
                          const unsigned char *payload)
{
    if (entry->flags & FLAG_ZSTD)
        return add_compressed(image, entry, payload);
    if (entry->flags & FLAG_LZ4) /* what nvcc wrote by default before CUDA 13 */
        return CUDA_ERROR_INVALID_IMAGE;
    return rpi_image_add_cubin(image, payload, entry->padded);
}

CUresult rpi_image_add_fatbin(struct rpi_image *image, const void *container)
{
    const unsigned char *at = container;
    uint16_t header;
    uint64_t bytes;
    memcpy(&header, at + 6, sizeof header);
    memcpy(&bytes, at + 8, sizeof bytes);
    at += header;
    const unsigned char *end = at + bytes;
    bool found = false;
    while (end - at >= 64) {
        struct entry entry = read_entry(at);
        if (entry.header < 64 || (uint64_t)(end - at) < entry.header ||
            entry.padded > (uint64_t)(end - at) - entry.header)
            return CUDA_ERROR_INVALID_IMAGE;
        if (entry.kind == KIND_MACHINE_CODE && entry.architecture == ARCHITECTURE) {
            CUresult result = add_entry(image, &entry, at + entry.header);
            if (result)
                return result;
            found = true;
        }
        at += entry.header + entry.padded;
    }
    return found ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}
