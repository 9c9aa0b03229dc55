/* SPDX-License-Identifier: MIT
 *
 * Running a callable's function: as itself within another run, and eagerly with memory of a heap.
 * There each block is given back when the function frees it, or at the end of the run, for work
 * that is ordered after it: nothing waits for the device.
 */
#include "graph/callable/callable.h"
#include "graph/ground/call.h"
#include "graph/ground/run_blocks.h"
#include "reprise_heap.h"

#include <stdio.h>

rp_status rpi_callable_run(struct rp_call *call, void *user, struct rp_error *err)
{
    const struct rpi_callable_run *run = user;
    for (size_t k = 0; k < run->arg_count; k++) {
        struct rpi_place_in_storage place = {(uint32_t)k, 0};
        if (run->places)
            place = run->places[k];
        run->addresses[k] = call->args[place.storage] + place.offset;
    }
    struct rpi_call_view view = {.args = run->args,
                                 .addresses = run->addresses,
                                 .arg_count = run->arg_count,
                                 .key = run->key,
                                 .key_bytes = run->key_bytes};
    call->view = &view;
    rp_status status = run->function(call, run->user, err);
    call->view = NULL;
    return status;
}

struct heap_run {
    struct rp_call call; /* first: the callable's handle is a pointer to it */
    struct rp_heap *heap;
    struct rpi_run_blocks run_blocks;
};

static rp_status heap_alloc(struct rp_call *call, uint64_t bytes, CUstream stream,
                            uint64_t *out_address, struct rp_error *err)
{
    struct heap_run *run = (struct heap_run *)call;
    uint64_t address;
    rp_status status = rp_heap_alloc(run->heap, bytes ? bytes : 1, stream, &address, err);
    if (status != RP_OK)
        return status;
    status = rpi_run_blocks_add(&run->run_blocks, address, stream, err);
    if (status == RP_OK)
        *out_address = address;
    else
        rp_heap_free(run->heap, address, NULL);
    return status;
}

static rp_status heap_use(struct rp_call *call, uint64_t address, CUstream stream,
                          struct rp_error *err)
{
    struct heap_run *run = (struct heap_run *)call;
    uint32_t block;
    rp_status status = rpi_run_blocks_find(&run->run_blocks, address, "rp_call_use", &block, err);
    return status == RP_OK ? rp_heap_use(run->heap, address, stream, err) : status;
}

static rp_status heap_free(struct rp_call *call, uint64_t address, struct rp_error *err)
{
    struct heap_run *run = (struct heap_run *)call;
    uint32_t block;
    rp_status status = rpi_run_blocks_find(&run->run_blocks, address, "rp_call_free", &block, err);
    if (status == RP_OK)
        status = rp_heap_free(run->heap, address, err);
    if (status == RP_OK)
        rpi_run_blocks_remove(&run->run_blocks, block);
    return status;
}

static void free_rest(struct heap_run *run)
{
    for (uint32_t i = 0; i < run->run_blocks.blocks.count; i++) {
        uint64_t address = run->run_blocks.blocks.data[i].address;
        if (rpi_idmap_get(&run->run_blocks.by_address, address) == i)
            rp_heap_free(run->heap, address, NULL);
    }
    rpi_run_blocks_finish(&run->run_blocks);
}

rp_status rpi_run_on_heap(struct rp_heap *heap, const char *name, struct rpi_callable_run *run,
                          CUstream stream, struct rp_error *err)
{
    static const struct rpi_call_functions functions = {
        .alloc = heap_alloc, .use = heap_use, .free = heap_free};
    char what[96];
    snprintf(what, sizeof what, "running '%.60s' eagerly", name);
    for (size_t k = 0; k < run->arg_count; k++)
        run->addresses[k] = run->args[k].address;
    struct rpi_call_view view = {.args = run->args,
                                 .addresses = run->addresses,
                                 .arg_count = run->arg_count,
                                 .key = run->key,
                                 .key_bytes = run->key_bytes};
    struct heap_run heap_run = {.call = {.functions = &functions, .stream = stream, .view = &view},
                                .heap = heap};
    rp_status status = rpi_call_run(&heap_run.call, run->function, run->user, what, err);
    free_rest(&heap_run);
    return status;
}
