/* SPDX-License-Identifier: MIT
 *
 * The devices' memory: one sparse memfd. A chunk is a range of it, so that mapping a chunk at
 * several addresses makes true aliases, a chunk's place in the file is its physical address, and
 * pages cost host memory only once they are touched. A freed chunk's pages are punched out. Places
 * are found first fit, in time linear in the chunks.
 *
 * A chunk that is shared with another process gets a memfd of its own, which lives until nobody has
 * it any more. Its place in the common one stays taken, as its address.
 */
#include "driver/host/state.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES ((uint64_t)1 << 42)

int rpi_host_memory_fd(void)
{
    rpi_assert_held(&rpi_host.lock);
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
    rpi_assert_held(&rpi_host.lock);
    return rpi_host.memory.used[device] + rpi_host.memory.execs[device];
}

static CUresult make_chunk(int device, uint64_t bytes, struct rpi_host_chunk **out_chunk)
{
    struct rpi_host_memory *memory = &rpi_host.memory;
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
    chunk->file = -1;
    *out_chunk = chunk;
    return CUDA_SUCCESS;
}

CUresult rpi_host_chunk_create(int device, uint64_t bytes, struct rpi_host_chunk **out_chunk)
{
    rpi_assert_held(&rpi_host.lock);
    struct rpi_host_memory *memory = &rpi_host.memory;
    uint64_t total = rpi_host.options.total_bytes;
    if (bytes > total || rpi_host_memory_used(device) > total - bytes || bytes > FILE_BYTES / 4)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = make_chunk(device, bytes, out_chunk);
    if (result != CUDA_SUCCESS)
        return result;
    memory->used[device] += bytes;
    memory->physical += bytes;
    if (memory->physical > memory->peak)
        memory->peak = memory->physical;
    return CUDA_SUCCESS;
}

#define SHARED_NAME "reprise-host-shared-"

/* Copies what was written of the chunk; the rest of the new file reads as zeros, as it did. */
static bool copy_out(const struct rpi_host_chunk *chunk, int file)
{
    enum { PIECE = 1 << 16 };
    char piece[PIECE];
    off_t end = (off_t)(chunk->offset + chunk->bytes);
    off_t at = lseek(rpi_host.memory.fd, (off_t)chunk->offset, SEEK_DATA);
    while (at >= 0 && at < end) {
        off_t stop = lseek(rpi_host.memory.fd, at, SEEK_HOLE);
        stop = stop < 0 || stop > end ? end : stop;
        while (at < stop) {
            size_t wanted = stop - at < PIECE ? (size_t)(stop - at) : PIECE;
            ssize_t got = pread(rpi_host.memory.fd, piece, wanted, at);
            if (got <= 0 || pwrite(file, piece, (size_t)got, at - (off_t)chunk->offset) != got)
                return false;
            at += got;
        }
        at = lseek(rpi_host.memory.fd, at, SEEK_DATA);
    }
    return true;
}

static void punch(const struct rpi_host_chunk *chunk)
{
    fallocate(rpi_host.memory.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)chunk->offset,
              (off_t)chunk->bytes);
}

CUresult rpi_host_chunk_share(struct rpi_host_chunk *chunk)
{
    rpi_assert_held(&rpi_host.lock);
    char name[sizeof SHARED_NAME + 12];
    snprintf(name, sizeof name, SHARED_NAME "%d", chunk->device);
    int file = memfd_create(name, MFD_CLOEXEC);
    if (file < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (ftruncate(file, (off_t)chunk->bytes) != 0 || !copy_out(chunk, file)) {
        close(file);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    chunk->file = file;
    punch(chunk);
    return CUDA_SUCCESS;
}

CUresult rpi_host_chunk_open(int file, struct rpi_host_chunk **out_chunk)
{
    rpi_assert_held(&rpi_host.lock);
    char path[64], name[64] = {0};
    struct stat facts;
    int device;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (fstat(file, &facts) != 0 || readlink(path, name, sizeof name - 1) < 0 ||
        sscanf(name, "/memfd:" SHARED_NAME "%d", &device) != 1 || device < 0 ||
        device >= rpi_host_devices() || facts.st_size <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = make_chunk(device, (uint64_t)facts.st_size, out_chunk);
    if (result != CUDA_SUCCESS)
        return result;
    (*out_chunk)->file = file;
    (*out_chunk)->shareable = (*out_chunk)->foreign = true;
    return CUDA_SUCCESS;
}

bool rpi_host_chunk_map(const struct rpi_host_chunk *chunk, void *place, int protection)
{
    rpi_assert_held(&rpi_host.lock);
    int file = chunk->file < 0 ? rpi_host_memory_fd() : chunk->file;
    return mmap(place, chunk->bytes, protection, MAP_SHARED | MAP_FIXED, file,
                chunk->file < 0 ? (off_t)chunk->offset : 0) != MAP_FAILED;
}

void rpi_host_chunk_destroy(struct rpi_host_chunk *chunk)
{
    rpi_assert_held(&rpi_host.lock);
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
    if (!chunk->foreign) {
        memory->physical -= chunk->bytes;
        memory->used[chunk->device] -= chunk->bytes;
    }
    if (chunk->file >= 0)
        close(chunk->file);
    else
        punch(chunk);
    rpi_free(chunk);
}
