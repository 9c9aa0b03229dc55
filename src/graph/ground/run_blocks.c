/* SPDX-License-Identifier: MIT */
#include "graph/ground/run_blocks.h"

void rpi_run_blocks_finish(struct rpi_run_blocks *blocks)
{
    rpi_vec_finish(&blocks->blocks);
    rpi_vec_finish(&blocks->uses);
    rpi_vec_finish(&blocks->streams);
    rpi_idmap_finish(&blocks->by_address);
}

rp_status rpi_run_blocks_stream(struct rpi_run_blocks *blocks, CUstream stream, uint32_t *out_index,
                                struct rp_error *err)
{
    /* A handful of streams: the search is cheaper than a map. */
    for (size_t i = 0; i < blocks->streams.count; i++) {
        if (blocks->streams.data[i] == stream) {
            *out_index = (uint32_t)i;
            return RP_OK;
        }
    }
    if (!rpi_vec_push(&blocks->streams, stream))
        return rpi_error_host_memory(err, "rp_call", sizeof stream);
    *out_index = (uint32_t)blocks->streams.count - 1;
    return RP_OK;
}

rp_status rpi_run_blocks_add(struct rpi_run_blocks *blocks, uint64_t address, CUstream stream,
                             struct rp_error *err)
{
    struct rpi_run_block block = {address, stream, RPI_ABSENT};
    if (!rpi_vec_reserve(&blocks->blocks, blocks->blocks.count + 1) ||
        !rpi_idmap_set(&blocks->by_address, address, (uint32_t)blocks->blocks.count))
        return rpi_error_host_memory(err, "rp_call_alloc", sizeof block);
    blocks->blocks.data[blocks->blocks.count++] = block;
    return RP_OK;
}

rp_status rpi_run_blocks_find(const struct rpi_run_blocks *blocks, uint64_t address,
                              const char *function, uint32_t *out_block, struct rp_error *err)
{
    uint32_t block = rpi_idmap_get(&blocks->by_address, address);
    if (block == RPI_ABSENT)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "0x%llx is not the address of a block that is alive in this run",
                         (unsigned long long)address);
    *out_block = block;
    return RP_OK;
}

rp_status rpi_run_blocks_use(struct rpi_run_blocks *blocks, uint32_t block, CUstream stream,
                             struct rp_error *err)
{
    struct rpi_run_block *used = &blocks->blocks.data[block];
    if (used->stream == stream)
        return RP_OK;
    for (uint32_t i = used->first_use; i != RPI_ABSENT; i = blocks->uses.data[i].next)
        if (blocks->uses.data[i].stream == stream)
            return RP_OK;
    struct rpi_run_blocks_use use = {stream, used->first_use};
    if (!rpi_vec_push(&blocks->uses, use))
        return rpi_error_host_memory(err, "rp_call_use", sizeof use);
    used->first_use = (uint32_t)blocks->uses.count - 1;
    return RP_OK;
}

void rpi_run_blocks_remove(struct rpi_run_blocks *blocks, uint32_t block)
{
    rpi_idmap_remove(&blocks->by_address, blocks->blocks.data[block].address);
}
