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

/* A length of an LZ4 block that starts with four bits: where these are all set, bytes are added, up
 * to the first that is not 255. */
static size_t read_length(size_t bits, const unsigned char **at, const unsigned char *end)
{
    size_t length = bits;
    unsigned char more = 255;
    if (bits < 15)
        return length;
    while (more == 255 && *at < end) {
        more = *(*at)++;
        length += more;
    }
    return length;
}

/* An LZ4 block: sequences of {u8 lengths; literals; u16 distance back}, of which the last ends with
 * its literals. false where it is not `bytes` long. */
static bool unpack_lz4(const unsigned char *from, size_t packed, unsigned char *to, size_t bytes)
{
    enum { LEAST_MATCH = 4 };
    const unsigned char *end = from + packed;
    size_t made = 0;
    while (from < end) {
        unsigned char lengths = *from++;
        size_t literals = read_length(lengths >> 4, &from, end);
        if (literals > (size_t)(end - from) || literals > bytes - made)
            return false;
        memcpy(to + made, from, literals);
        made += literals;
        from += literals;
        if (end - from < 2)
            break;
        size_t distance = from[0] | (size_t)from[1] << 8;
        from += 2;
        size_t match = read_length(lengths & 15, &from, end) + LEAST_MATCH;
        if (!distance || distance > made || match > bytes - made)
            return false;
        for (; match; match--, made++) /* it may reach into what it writes */
            to[made] = to[made - distance];
    }
    return from == end && made == bytes;
}

static bool unpack(const struct entry *entry, const unsigned char *payload, unsigned char *to)
{
    if (entry->flags & FLAG_LZ4) /* what nvcc wrote by default before CUDA 13 */
        return unpack_lz4(payload, entry->compressed, to, entry->decompressed);
    size_t bytes = ZSTD_decompress(to, entry->decompressed, payload, entry->compressed);
    return !ZSTD_isError(bytes) && bytes == entry->decompressed;
}

static CUresult add_compressed(struct rpi_image *image, const struct entry *entry,
                               const unsigned char *payload)
{
    if (entry->compressed > entry->padded)
        return CUDA_ERROR_INVALID_IMAGE;
    unsigned char *elf = malloc(entry->decompressed);
    if (!elf)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = unpack(entry, payload, elf)
                          ? rpi_image_add_cubin(image, elf, entry->decompressed)
                          : CUDA_ERROR_INVALID_IMAGE;
    free(elf);
    return result;
}

static CUresult add_entry(struct rpi_image *image, const struct entry *entry,
                          const unsigned char *payload)
{
    if (entry->flags & (FLAG_ZSTD | FLAG_LZ4))
        return add_compressed(image, entry, payload);
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
