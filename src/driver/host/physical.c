/* SPDX-License-Identifier: MIT
 *
 * The devices' memory: one sparse memfd. A chunk is a range of it, so that mapping a chunk at
 * several addresses makes true aliases, a chunk's place in the file is its physical address, and
 * pages cost host memory only once they are touched. A freed chunk's pages are punched out. Places
 * are found first fit, in time linear in the chunks.
 */
#include "driver/host/state.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_BYTES ((uint64_t)1 << 42)

int rpi_host_memory_fd(void)
{
    struct rpi_host_memory *memory = &rpi_host.memory;
    if (memory->fd < 0) {
        int fd = memfd_create("reprise-host-device", MFD_CLOEXEC);
        if (fd >= 0 && ftruncate(fd, (off_t)FILE_BYTES) != 0) {
            close(fd);
            fd = -1;
        }
        memory->fd = fd;
    }
    return memory->fd;
}

/* Index at which a chunk of `bytes` fits below its neighbour, and where it would begin. */
static size_t find_gap(uint64_t bytes, uint64_t *out_offset)
{
    const struct rpi_host_memory *memory = &rpi_host.memory;
    uint64_t end = 0;
    size_t i = 0;
    for (; i < memory->chunks.count; i++) {
        if (memory->chunks.data[i]->offset - end >= bytes)
            break;
        end = memory->chunks.data[i]->offset + memory->chunks.data[i]->bytes;
    }
    *out_offset = end;
    return i;
}

uint64_t rpi_host_memory_used(int device)
{
    return rpi_host.memory.used[device] + rpi_host.memory.execs[device];
}

CUresult rpi_host_chunk_create(int device, uint64_t bytes, struct rpi_host_chunk **out_chunk)
{
    struct rpi_host_memory *memory = &rpi_host.memory;
    uint64_t total = rpi_host.options.total_bytes;
    if (bytes > total || rpi_host_memory_used(device) > total - bytes || bytes > FILE_BYTES / 4)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rpi_host_chunk *chunk = rpi_calloc(1, sizeof *chunk);
    uint64_t offset;
    size_t at = find_gap(bytes, &offset);
    if (!chunk || rpi_host_memory_fd() < 0 || offset > FILE_BYTES - bytes ||
        !rpi_vec_reserve(&memory->chunks, memory->chunks.count + 1)) {
        rpi_free(chunk);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memmove(memory->chunks.data + at + 1, memory->chunks.data + at,
            (memory->chunks.count - at) * sizeof *memory->chunks.data);
    memory->chunks.data[at] = chunk;
    memory->chunks.count++;
    chunk->offset = offset;
    chunk->bytes = bytes;
    chunk->device = device;
    memory->used[device] += bytes;
    memory->physical += bytes;
    if (memory->physical > memory->peak)
        memory->peak = memory->physical;
    *out_chunk = chunk;
    return CUDA_SUCCESS;
}

void rpi_host_chunk_destroy(struct rpi_host_chunk *chunk)
{
    struct rpi_host_memory *memory = &rpi_host.memory;
    size_t low = 0, high = memory->chunks.count;
    while (low + 1 < high) {
        size_t middle = low + (high - low) / 2;
        if (memory->chunks.data[middle]->offset <= chunk->offset)
            low = middle;
        else
            high = middle;
    }
    memory->chunks.count--;
    memmove(memory->chunks.data + low, memory->chunks.data + low + 1,
            (memory->chunks.count - low) * sizeof *memory->chunks.data);
    memory->physical -= chunk->bytes;
    memory->used[chunk->device] -= chunk->bytes;
    fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)chunk->offset,
              (off_t)chunk->bytes);
    rpi_free(chunk);
}
