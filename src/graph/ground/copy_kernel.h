/* SPDX-License-Identifier: MIT
 *
 * The kernel that makes many copies in one launch: one source for two worlds. nvcc makes PTX and
 * device code of it (scripts/make_kernels.sh, kept in copy_kernel_ptx.c and copy_kernel_code.c), the
 * C compiler makes functions for the host driver (copy_kernel_host.c), and copier.c fills the tables.
 *
 * A table goes along with the launch, by value; tables of three sizes are three kernels, as the
 * driver takes all of a launch's parameters whatever is used of them. Copies are cut into tiles:
 *
 *     copies  | 0: 40,000 bytes | 1: 100 bytes | 2: 20,000 bytes |
 *     tiles   | 0 | 1 | 2       | 3            | 4 | 5           |      first = 0, 3, 4
 *
 * A block takes every gridDim.x-th tile, so a large copy and many small ones fill the device alike.
 * A value takes a tile of its own.
 * Where both addresses are equally far from a multiple of 16 a tile goes by 16 bytes at a time but
 * for its ends, otherwise by 4, otherwise by single bytes. Copies of one table must not overlap but
 * in what they read.
 */
#ifndef REPRISE_GRAPH_COPY_KERNEL_H
#define REPRISE_GRAPH_COPY_KERNEL_H

/* X(most copies of the table). The last fills the 4 KiB that a launch's parameters may take. */
#define RPI_COPY_TABLES(X)                                                                         \
    X(8)                                                                                           \
    X(32)                                                                                          \
    X(144)
#define RPI_COPY_MOST 144 /* of the largest table */

#define RPI_COPY_TILE    16384 /* bytes */
#define RPI_COPY_THREADS 256   /* of a block */

#ifdef __CUDACC__
#define RPI_COPY_FN static __device__ __forceinline__
typedef unsigned uint32_t;
typedef unsigned long long uint64_t;
typedef uint4 rpi_copy_piece;
typedef uint32_t rpi_copy_word;
typedef uint64_t rpi_copy_value;
#else
#include <stdint.h>
#define RPI_COPY_FN static inline
typedef struct __attribute__((aligned(16), may_alias)) rpi_copy_piece {
    uint64_t low, high;
} rpi_copy_piece;
typedef uint32_t __attribute__((may_alias)) rpi_copy_word;
typedef uint64_t __attribute__((may_alias)) rpi_copy_value;
#endif

/* Without bytes `from` is no address but a value of 8 bytes, which is written to `to`. */
struct rpi_copy {
    uint64_t to, from, bytes;
};

#define X(most)                                                                                    \
    struct rpi_copy_table_##most {                                                                 \
        uint32_t count, tiles;                                                                     \
        struct rpi_copy copies[most];                                                              \
        uint32_t first[most]; /* tile of each */                                                   \
    };
RPI_COPY_TABLES(X)
#undef X

/* For each type: the elements of a tile that this thread moves, four read before one is written. */
#define RPI_COPY_BY(type)                                                                          \
    RPI_COPY_FN void rpi_copy_by_##type(uint64_t to, uint64_t from, uint32_t count,                \
                                        uint32_t thread, uint32_t threads)                         \
    {                                                                                              \
        type *out = (type *)to;                                                                    \
        const type *in = (const type *)from;                                                       \
        uint32_t i = thread;                                                                       \
        for (; i + 3 * threads < count; i += 4 * threads) {                                        \
            type a = in[i], b = in[i + threads], c = in[i + 2 * threads], d = in[i + 3 * threads]; \
            out[i] = a;                                                                            \
            out[i + threads] = b;                                                                  \
            out[i + 2 * threads] = c;                                                              \
            out[i + 3 * threads] = d;                                                              \
        }                                                                                          \
        for (; i < count; i += threads)                                                            \
            out[i] = in[i];                                                                        \
    }
typedef unsigned char rpi_copy_byte;
RPI_COPY_BY(rpi_copy_piece)
RPI_COPY_BY(rpi_copy_word)
RPI_COPY_BY(rpi_copy_byte)
#undef RPI_COPY_BY

/* One thread's part of bytes [0, bytes), in elements as wide as both addresses allow. */
RPI_COPY_FN void rpi_copy_tile(uint64_t to, uint64_t from, uint32_t bytes, uint32_t thread,
                               uint32_t threads)
{
    uint32_t apart = (uint32_t)(to ^ from), width = apart & 3 ? 1 : (apart & 15 ? 4 : 16);
    uint32_t head = (uint32_t)(0 - to) & (width - 1);
    if (head > bytes)
        head = bytes;
    uint32_t body = (bytes - head) / width, tail = (bytes - head) % width, last = bytes - tail;
    rpi_copy_by_rpi_copy_byte(to, from, head, thread, threads);
    if (width == 16)
        rpi_copy_by_rpi_copy_piece(to + head, from + head, body, thread, threads);
    else if (width == 4)
        rpi_copy_by_rpi_copy_word(to + head, from + head, body, thread, threads);
    else
        rpi_copy_by_rpi_copy_byte(to + head, from + head, body, thread, threads);
    rpi_copy_by_rpi_copy_byte(to + last, from + last, tail, thread, threads);
}

/* The tiles of one block of a grid, for one thread of it: of table `t`, which is read where it
 * lies. The copy of a tile is the last that begins at or before it. */
#define RPI_COPY_BLOCK(t, block, blocks, thread, threads)                                          \
    for (uint32_t tile = (block); tile < (t).tiles; tile += (blocks)) {                            \
        uint32_t low = 0, high = (t).count;                                                        \
        while (high - low > 1) {                                                                   \
            uint32_t middle = (low + high) / 2;                                                    \
            if ((t).first[middle] <= tile)                                                         \
                low = middle;                                                                      \
            else                                                                                   \
                high = middle;                                                                     \
        }                                                                                          \
        if (!(t).copies[low].bytes && (thread) == 0)                                               \
            *(rpi_copy_value *)(t).copies[low].to = (t).copies[low].from;                          \
        if (!(t).copies[low].bytes)                                                                \
            continue;                                                                              \
        uint64_t done = (uint64_t)(tile - (t).first[low]) * RPI_COPY_TILE;                         \
        uint64_t left = (t).copies[low].bytes - done;                                              \
        rpi_copy_tile((t).copies[low].to + done, (t).copies[low].from + done,                      \
                      (uint32_t)(left < RPI_COPY_TILE ? left : RPI_COPY_TILE), (thread),           \
                      (threads));                                                                  \
    }

#ifdef __CUDACC__
#define X(most)                                                                                    \
    extern "C" __global__ void __launch_bounds__(RPI_COPY_THREADS)                                 \
        rpi_copy_##most(const struct rpi_copy_table_##most table)                                  \
    {                                                                                              \
        RPI_COPY_BLOCK(table, blockIdx.x, gridDim.x, threadIdx.x, blockDim.x)                      \
    }
RPI_COPY_TABLES(X)
#undef X
#else
struct rp_host_image;
extern const struct rp_host_image rpi_copy_host_image; /* for the host driver */
/* For NVIDIA's: device code for several kinds of device, and PTX, as text, for all. */
extern const unsigned char rpi_copy_code[];
extern const char rpi_copy_ptx[];
#endif

#endif
