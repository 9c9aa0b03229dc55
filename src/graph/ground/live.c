/* SPDX-License-Identifier: MIT */
#include "graph/ground/live.h"

void rpi_live_finish(struct rpi_live *live)
{
    rpi_vec_finish(&live->blocks);
    rpi_vec_finish(&live->uses);
    rpi_vec_finish(&live->streams);
    rpi_idmap_finish(&live->by_address);
}

rp_status rpi_live_stream(struct rpi_live *live, CUstream stream, uint32_t *out_index,
                          struct rp_error *err)
{
    /* A handful of streams: the search is cheaper than a map. */
    for (size_t i = 0; i < live->streams.count; i++) {
        if (live->streams.data[i] == stream) {
            *out_index = (uint32_t)i;
            return RP_OK;
        }
    }
    if (!rpi_vec_push(&live->streams, stream))
        return rpi_error_host_memory(err, "rp_call", sizeof stream);
    *out_index = (uint32_t)live->streams.count - 1;
    return RP_OK;
}

rp_status rpi_live_add(struct rpi_live *live, uint64_t address, CUstream stream,
                       struct rp_error *err)
{
    struct rpi_live_block block = {address, stream, RPI_ABSENT};
    if (!rpi_vec_reserve(&live->blocks, live->blocks.count + 1) ||
        !rpi_idmap_set(&live->by_address, address, (uint32_t)live->blocks.count))
        return rpi_error_host_memory(err, "rp_call_alloc", sizeof block);
    live->blocks.data[live->blocks.count++] = block;
    return RP_OK;
}

rp_status rpi_live_find(const struct rpi_live *live, uint64_t address, const char *function,
                        uint32_t *out_block, struct rp_error *err)
{
    uint32_t block = rpi_idmap_get(&live->by_address, address);
    if (block == RPI_ABSENT)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "0x%llx is not the address of a block that is alive in this run",
                         (unsigned long long)address);
    *out_block = block;
    return RP_OK;
}

rp_status rpi_live_use(struct rpi_live *live, uint32_t block, CUstream stream, struct rp_error *err)
{
    struct rpi_live_block *used = &live->blocks.data[block];
    if (used->stream == stream)
        return RP_OK;
    for (uint32_t i = used->first_use; i != RPI_ABSENT; i = live->uses.data[i].next)
        if (live->uses.data[i].stream == stream)
            return RP_OK;
    struct rpi_live_use use = {stream, used->first_use};
    if (!rpi_vec_push(&live->uses, use))
        return rpi_error_host_memory(err, "rp_call_use", sizeof use);
    used->first_use = (uint32_t)live->uses.count - 1;
    return RP_OK;
}

void rpi_live_remove(struct rpi_live *live, uint32_t block)
{
    rpi_idmap_remove(&live->by_address, live->blocks.data[block].address);
}
