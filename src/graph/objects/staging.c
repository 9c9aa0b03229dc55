/* SPDX-License-Identifier: MIT */
#include "graph/objects/staging.h"

#include "base/held.h"
#include "graph/objects/arguments.h"
#include "graph/objects/gates.h"
#include "graph/objects/objects.h"

#include <assert.h>

static const uint64_t page_bytes = 2097152; /* and of the rehearsals' small chunk */
static const uint64_t reserve_least = 1ull << 34;
/* Reserved in multiples of what the device has: graphs that may run at the same time, and arguments of
 * one graph that share memory, have addresses of their own. */
enum { RESERVE_TIMES = 8 };

static rp_status init(struct rpi_staging *staging, const struct rp_pool *pool, struct rp_error *err)
{
    struct rp_device *device = pool->device;
    CUdeviceptr base = 0;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t bytes = rpi_round_up(RESERVE_TIMES * device->total_bytes, reserve_least);
    for (; bytes >= reserve_least; bytes /= 2) {
        result = rpi_reserve_addresses(device->driver, bytes, &base);
        if (result == CUDA_SUCCESS)
            break;
    }
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuMemAddressReserve",
                                "reserving addresses that arguments are copied to");
    while (pool->parent)
        pool = pool->parent;
    const struct rpi_reserved range = {base, bytes, pool, RPI_RESERVED_STAGING};
    rp_status status = rpi_address_owner_add(device, &range, err);
    if (status != RP_OK) {
        rpi_free_addresses(device->driver, base, bytes);
        return status;
    }
    *staging = (struct rpi_staging){.driver = device->driver,
                                    .device = device->handle,
                                    .base = base,
                                    .reserved = bytes,
                                    .page_bytes = page_bytes};
    return RP_OK;
}

/* ---- Pages --------------------------------------------------------------------------------- */

static uint64_t address_of(const struct rpi_staging *staging, size_t page)
{
    return staging->base + page * staging->page_bytes;
}

static CUresult allow(const struct rpi_staging *staging, size_t first, size_t count)
{
    CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, staging->device},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return staging->driver->cuMemSetAccess(address_of(staging, first), count * staging->page_bytes,
                                           &access, 1);
}

/* Leaves nothing behind the page. */
static void clear(struct rpi_staging *staging, size_t page)
{
    struct rpi_staging_page *at = &staging->pages.data[page];
    if (at->mapped)
        rpi_unmap(staging->driver, address_of(staging, page), staging->page_bytes);
    if (at->real) {
        staging->driver->cuMemRelease(at->memory);
        staging->bytes -= staging->page_bytes;
    }
    *at = (struct rpi_staging_page){0};
}

static CUresult map_chunk(struct rpi_staging *staging, size_t page,
                          CUmemGenericAllocationHandle chunk, const char **out_function)
{
    *out_function = "cuMemMap";
    CUresult result =
        staging->driver->cuMemMap(address_of(staging, page), staging->page_bytes, 0, chunk, 0);
    if (result != CUDA_SUCCESS)
        return result;
    staging->pages.data[page].mapped = true;
    *out_function = "cuMemSetAccess";
    result = allow(staging, page, 1);
    if (result != CUDA_SUCCESS)
        clear(staging, page);
    return result;
}

/* Maps the chunk on all pages up to a height that have nothing. */
static rp_status map_until(struct rpi_staging *staging, uint64_t height,
                           CUmemGenericAllocationHandle chunk, struct rp_error *err)
{
    size_t pages = (size_t)((height + staging->page_bytes - 1) / staging->page_bytes);
    if (!rpi_vec_reserve(&staging->pages, pages))
        return rpi_error_host_memory(err, "rp_graph_capture", pages * sizeof *staging->pages.data);
    while (staging->pages.count < pages)
        staging->pages.data[staging->pages.count++] = (struct rpi_staging_page){0};
    const char *function = NULL;
    CUresult result = CUDA_SUCCESS;
    int mode = rpi_relax_begin(staging->driver);
    for (size_t i = 0; result == CUDA_SUCCESS && i < pages; i++)
        if (!staging->pages.data[i].mapped)
            result = map_chunk(staging, i, chunk, &function);
    rpi_relax_end(staging->driver, mode);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, function, "mapping addresses of arguments");
    return RP_OK;
}

/* Real memory in place of the chunk. When that fails the page has nothing. */
static rp_status make_real(struct rpi_staging *staging, size_t page, struct rp_error *err)
{
    const struct rp_driver *driver = staging->driver;
    struct rpi_staging_page *at = &staging->pages.data[page];
    CUmemAllocationProp properties = rpi_device_memory(staging->device);
    CUmemGenericAllocationHandle memory;
    const char *function = "cuMemCreate";
    CUresult result = driver->cuMemCreate(&memory, staging->page_bytes, &properties, 0);
    if (result == CUDA_SUCCESS) {
        clear(staging, page);
        function = "cuMemMap";
        result = driver->cuMemMap(address_of(staging, page), staging->page_bytes, 0, memory, 0);
        if (result == CUDA_SUCCESS) {
            *at = (struct rpi_staging_page){memory, true, true};
            staging->bytes += staging->page_bytes;
            function = "cuMemSetAccess";
            result = allow(staging, page, 1);
            if (result != CUDA_SUCCESS)
                clear(staging, page);
        } else {
            driver->cuMemRelease(memory);
        }
    }
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, function,
                                "taking memory that an argument is copied to");
    return RP_OK;
}

/* ---- Addresses ----------------------------------------------------------------------------- */

/* May a graph of this group run while the member does? */
static bool is_concurrent(const struct rpi_pool_node *group, const struct rpi_pool_member *member)
{
    const struct rpi_pool_node *other = member->node.parent;
    while (group != other) {
        if (group->depth >= other->depth)
            group = group->parent;
        else
            other = other->parent;
    }
    return group->kind == RPI_COMPOSE_CONCURRENT;
}

/* The lowest start for so many bytes away from what concurrent graphs have. */
static rp_status find_room(const struct rp_pool *pool, uint64_t bytes, uint64_t *out_from,
                           struct rp_error *err)
{
    const struct rpi_pool_node *top = &pool->core->memory.root->node;
    struct rpi_ranges taken = {0};
    for (const struct rpi_pool_member *m = rpi_pool_next(top, NULL); m; m = rpi_pool_next(top, m)) {
        if (m->staging.from == m->staging.to || !is_concurrent(&pool->group.node, m))
            continue;
        if (!rpi_vec_push(&taken, m->staging)) {
            rpi_vec_finish(&taken);
            return rpi_error_host_memory(err, "rp_graph_capture", sizeof m->staging);
        }
    }
    rpi_ranges_join(&taken);
    *out_from = 0;
    for (size_t i = 0; i < taken.count && taken.data[i].from < *out_from + bytes; i++)
        *out_from = taken.data[i].to;
    rpi_vec_finish(&taken);
    return RP_OK;
}

/* Lays the arguments one behind the other from 0; returns the end. */
static uint64_t lay_out(uint64_t base, const struct rp_arg *args, size_t arg_count,
                        const uint64_t *alignments, uint64_t *addresses)
{
    uint64_t at = base;
    for (size_t k = 0; k < arg_count; k++) {
        at = rpi_round_up(at, 2 * alignments[k]) + alignments[k];
        addresses[k] = at;
        at += rpi_block_bytes(args[k].bytes);
    }
    return at - base;
}

static rp_status place_locked(struct rp_pool *pool, const struct rp_arg *args, size_t arg_count,
                              const uint64_t *alignments, CUmemGenericAllocationHandle chunk,
                              uint64_t *out_addresses, struct rpi_range *out_range,
                              struct rp_error *err)
{
    rpi_assert_held(&pool->core->lock);
    enum { APART = 4096 }; /* more than any alignment, so that addresses fit wherever they begin */
    struct rpi_staging *staging = &pool->core->staging;
    rp_status status = staging->driver ? RP_OK : init(staging, pool, err);
    if (status != RP_OK)
        return status;
    uint64_t from = 0, bytes = lay_out(0, args, arg_count, alignments, out_addresses);
    bytes = rpi_round_up(bytes, APART);
    status = find_room(pool, bytes, &from, err);
    if (status != RP_OK)
        return status;
    if (bytes > staging->reserved || from > staging->reserved - bytes)
        return rpi_error(err, RP_ERROR_LIMIT, "rp_graph_capture",
                         "arguments of %llu bytes fit no range of addresses",
                         (unsigned long long)bytes);
    status = map_until(staging, from + bytes, chunk, err);
    if (status != RP_OK)
        return status;
    for (size_t k = 0; k < arg_count; k++)
        out_addresses[k] += staging->base + from;
    *out_range = (struct rpi_range){from, from + bytes};
    return RP_OK;
}

rp_status rpi_staging_place(struct rp_pool *pool, const struct rp_arg *args, size_t arg_count,
                            const uint64_t *alignments, uint64_t *out_addresses,
                            struct rpi_range *out_range, struct rp_error *err)
{
    struct rp_device *device = pool->device;
    CUmemGenericAllocationHandle chunk;
    if (!arg_count) {
        *out_range = (struct rpi_range){0, 0};
        return RP_OK;
    }
    rp_status status =
        rpi_gate_for_callable(&device->rehearsal_gate, "rp_graph_capture", pool->name, err);
    if (status != RP_OK)
        return status;
    status = rpi_rehearsal_range_small_chunk(&device->rehearsal_range, device->driver,
                                             device->handle, &chunk, err);
    if (status == RP_OK) {
        pthread_mutex_lock(&pool->core->lock);
        status =
            place_locked(pool, args, arg_count, alignments, chunk, out_addresses, out_range, err);
        pthread_mutex_unlock(&pool->core->lock);
    }
    rpi_gate_leave(&device->rehearsal_gate);
    return status;
}

/* ---- Memory -------------------------------------------------------------------------------- */

rp_status rpi_staging_back(struct rpi_pool_core *core, uint64_t from, uint64_t bytes,
                           struct rp_error *err)
{
    rpi_assert_held(&core->lock);
    struct rpi_staging *staging = &core->staging;
    size_t first = (size_t)((from - staging->base) / staging->page_bytes);
    size_t last = (size_t)((from + bytes - 1 - staging->base) / staging->page_bytes);
    uint64_t more = 0;
    assert(bytes && rpi_staging_holds(staging, from) && last < staging->pages.count);
    for (size_t i = first; i <= last; i++)
        more += staging->pages.data[i].real ? 0 : staging->page_bytes;
    if (!more)
        return RP_OK;
    rp_status status = rpi_pool_check_limit(&core->memory, more, err);
    int mode = rpi_relax_begin(staging->driver);
    for (size_t i = first; status == RP_OK && i <= last; i++)
        if (!staging->pages.data[i].real)
            status = make_real(staging, i, err);
    rpi_relax_end(staging->driver, mode);
    core->memory.beside = staging->bytes + staging->allocated;
    return status;
}

rp_status rpi_staging_allocate(struct rpi_pool_core *core, uint64_t bytes, CUdeviceptr *out_memory,
                               struct rp_error *err)
{
    rpi_assert_held(&core->lock);
    struct rpi_staging *staging = &core->staging;
    CUdeviceptr memory = 0;
    rp_status status = rpi_pool_check_limit(&core->memory, bytes, err);
    if (status != RP_OK)
        return status;
    int mode = rpi_relax_begin(staging->driver);
    CUresult result = staging->driver->cuMemAlloc(&memory, bytes);
    rpi_relax_end(staging->driver, mode);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuMemAlloc",
                                "taking memory that an argument is copied to");
    staging->allocated += bytes;
    core->memory.beside += bytes;
    *out_memory = memory;
    return RP_OK;
}

void rpi_staging_free(struct rpi_pool_core *core, uint64_t bytes, CUdeviceptr memory)
{
    rpi_assert_held(&core->lock);
    struct rpi_staging *staging = &core->staging;
    int mode = rpi_relax_begin(staging->driver);
    staging->driver->cuMemFree(memory);
    rpi_relax_end(staging->driver, mode);
    staging->allocated -= bytes;
    core->memory.beside -= bytes;
}

void rpi_staging_settle(struct rpi_pool_core *core)
{
    rpi_assert_held(&core->lock);
    struct rpi_staging *staging = &core->staging;
    const struct rpi_pool_node *top = &core->memory.root->node;
    for (size_t i = 0; staging->bytes && i < staging->pages.count; i++) {
        uint64_t from = i * staging->page_bytes, to = from + staging->page_bytes;
        bool needed = false;
        for (const struct rpi_pool_member *m = rpi_pool_next(top, NULL); m && !needed;
             m = rpi_pool_next(top, m))
            needed = m->staging.from < to && from < m->staging.to;
        if (staging->pages.data[i].real && !needed)
            clear(staging, i);
    }
    core->memory.beside = staging->bytes + staging->allocated;
}

void rpi_staging_finish(struct rpi_staging *staging)
{
    if (!staging->driver)
        return;
    for (size_t i = 0; i < staging->pages.count; i++)
        clear(staging, i);
    rpi_free_addresses(staging->driver, staging->base, staging->reserved);
    rpi_vec_finish(&staging->pages);
    *staging = (struct rpi_staging){0};
}
