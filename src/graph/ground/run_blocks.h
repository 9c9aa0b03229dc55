/* SPDX-License-Identifier: MIT
 *
 * The blocks of one run of a callable: which addresses are alive, and which streams use them.
 */
#ifndef REPRISE_GRAPH_GROUND_RUN_BLOCKS_H
#define REPRISE_GRAPH_GROUND_RUN_BLOCKS_H

#include "base/idmap.h"
#include "base/status.h"
#include "base/vec.h"
#include "driver/cuda_abi.h"

struct rpi_run_block {
    uint64_t address;
    CUstream stream;    /* of its allocation */
    uint32_t first_use; /* index into uses, the latest first; RPI_ABSENT: none */
};
struct rpi_run_blocks_use {
    CUstream stream;
    uint32_t next;
};

struct rpi_run_blocks {
    struct {
        RPI_VEC(struct rpi_run_block); /* all blocks of the run, in order of allocation */
    } blocks;
    struct {
        RPI_VEC(struct rpi_run_blocks_use);
    } uses;
    struct {
        RPI_VEC(CUstream); /* each stream that was named, in order of its first naming */
    } streams;
    struct rpi_idmap by_address; /* of blocks that are alive */
};

void rpi_run_blocks_finish(struct rpi_run_blocks *blocks);

/* The index of the stream among those named; names it when it is new. */
rp_status rpi_run_blocks_stream(struct rpi_run_blocks *blocks, CUstream stream, uint32_t *out_index,
                                struct rp_error *err);
/* Adds the next block. Its index is that of the blocks before plus one. */
rp_status rpi_run_blocks_add(struct rpi_run_blocks *blocks, uint64_t address, CUstream stream,
                             struct rp_error *err);
/* The block alive at an address; RP_ERROR_INVALID_ARGUMENT, said to be `function`'s, when there is
 * none. */
rp_status rpi_run_blocks_find(const struct rpi_run_blocks *blocks, uint64_t address,
                              const char *function, uint32_t *out_block, struct rp_error *err);
rp_status rpi_run_blocks_use(struct rpi_run_blocks *blocks, uint32_t block, CUstream stream,
                             struct rp_error *err);
/* The block's address is nobody's from now on. */
void rpi_run_blocks_remove(struct rpi_run_blocks *blocks, uint32_t block);

#endif
