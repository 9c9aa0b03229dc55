/* SPDX-License-Identifier: MIT
 *
 * rp_pool: the public handle around a group of a pool's tree. The outermost pool owns the core: the
 * memory, and the stream that captures begin on; pools within it use that.
 */
#include "graph/objects/objects.h"

#include "base/hostmem.h"
#include "base/refuse.h"
#include "base/sized.h"
#include "graph/capture/plans.h"
#include "graph/objects/device_context.h"
#include "graph/objects/gates.h"

#include <assert.h>

#define MIB 1048576ull

/* A pool within another has its memory, and with it what is said of that. */
static rp_status check_inner(const struct rp_device *device, const struct rp_pool_options *options,
                             struct rp_error *err)
{
    const struct rp_pool *parent = options->parent;
    uint64_t alignment = parent->core->memory.alignment;
    if (parent->device != device)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_pool_create",
                         "the pool '%s' that this one should lie in is of another device",
                         parent->name);
    if (options->limit_bytes || (options->alignment && options->alignment != alignment))
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_pool_create",
                         "a pool within another shares its limit and its alignment (%llu): leave "
                         "limit_bytes and alignment at 0",
                         (unsigned long long)alignment);
    if (parent->group.node.depth >= RPI_POOL_MOST_DEPTH)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_pool_create",
                         "pools may lie in each other %d levels deep, not deeper",
                         RPI_POOL_MOST_DEPTH);
    return RP_OK;
}

static rp_status check_options(const struct rp_device *device,
                               const struct rp_pool_options *options, struct rp_error *err)
{
    uint64_t alignment = options->alignment;
    if ((alignment & (alignment - 1)) != 0 || alignment > 2 * MIB)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_pool_create",
                         "the alignment is %llu, but has to be a power of two up to 2 MiB",
                         (unsigned long long)alignment);
    if (options->kind < RP_POOL_ALTERNATIVES || options->kind > RP_POOL_CONCURRENT)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_pool_create",
                         "the kind is %d, which is not an enum rp_pool_kind", (int)options->kind);
    if (options->contract != RP_CONTRACT_ERROR && options->contract != RP_CONTRACT_WARN)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_pool_create",
                         "the contract is %d, which is not an enum rp_contract",
                         (int)options->contract);
    if (options->reserved)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_pool_create",
                         "the options' reserved field is not 0: start from RP_POOL_OPTIONS_INIT");
    return options->parent ? check_inner(device, options, err) : RP_OK;
}

static enum rpi_compose_kind compose_kind(enum rp_pool_kind kind)
{
    switch (kind) {
    case RP_POOL_SEQUENCE:
        return RPI_COMPOSE_SEQUENCE;
    case RP_POOL_CONCURRENT:
        return RPI_COMPOSE_CONCURRENT;
    case RP_POOL_ALTERNATIVES:
        break;
    }
    return RPI_COMPOSE_ALTERNATIVES;
}

/* ---- The core ------------------------------------------------------------------------------ */

static rp_status init_locks(struct rpi_pool_core *core, struct rp_error *err)
{
    if (pthread_mutex_init(&core->lock, NULL) == 0)
        return RP_OK;
    return rpi_error_host_memory(err, "rp_pool_create", sizeof core->lock);
}

static void destroy_locks(struct rpi_pool_core *core)
{
    pthread_mutex_destroy(&core->lock);
}

/* What the core has of the driver. After a failure too release_driver gives it back. */
static rp_status acquire_driver(struct rp_pool *pool, const struct rp_pool_options *options,
                                struct rp_error *err)
{
    struct rp_device *device = pool->device;
    struct rpi_pool_core *core = pool->core;
    const struct rp_driver *driver = device->driver;
    rp_status status =
        rpi_pool_init(&core->memory, &pool->group, driver, device->handle, device->total_bytes,
                      options->limit_bytes, options->alignment ? options->alignment : 512, err);
    if (status == RP_OK)
        status = rpi_arena_init(&core->eager, driver, device->handle, device->total_bytes, err);
    if (status != RP_OK)
        return status;
    const struct rpi_arena *blocks = &core->memory.arena, *runs = &core->eager;
    const struct rpi_reserved ranges[] = {
        {blocks->base, blocks->reserved, pool, RPI_RESERVED_BLOCKS},
        {runs->base, runs->reserved, pool, RPI_RESERVED_EAGER},
    };
    for (size_t i = 0; status == RP_OK && i < sizeof ranges / sizeof *ranges; i++)
        status = rpi_address_owner_add(device, &ranges[i], err);
    if (status != RP_OK)
        return status;
    return rpi_streams_take(&device->streams, driver, &core->stream, err);
}

static void release_driver(struct rpi_pool_core *core, struct rp_device *device)
{
    if (core->stream)
        rpi_streams_give(&device->streams, core->stream);
    rpi_address_owner_remove(device, core->eager.base);
    rpi_address_owner_remove(device, core->memory.arena.base);
    rpi_address_owner_remove(device, core->staging.base);
    rpi_readers_finish(&core->readers);
    rpi_vec_finish(&core->known);
    rpi_arena_finish(&core->eager);
    rpi_staging_finish(&core->staging);
    rpi_pool_finish(&core->memory);
}

static void let_in(struct rpi_mapper *mapper, CUdevice peer)
{
    struct rpi_pool_core *core =
        (struct rpi_pool_core *)((char *)mapper - offsetof(struct rpi_pool_core, mapper));
    pthread_mutex_lock(&core->lock);
    rpi_arena_let_in(&core->memory.arena, peer);
    pthread_mutex_unlock(&core->lock);
}

static rp_status create_core(struct rp_pool *pool, const struct rp_pool_options *options,
                             struct rp_error *err)
{
    struct rpi_pool_core *core = pool->core = rpi_calloc(1, sizeof *core);
    if (!core)
        return rpi_error_host_memory(err, "rp_pool_create", sizeof *core);
    rp_status status = init_locks(core, err);
    if (status != RP_OK)
        goto free_core;
    core->plans = rpi_calloc(1, sizeof *core->plans);
    status = core->plans ? rp_device_push(pool->device, err)
                         : rpi_error_host_memory(err, "rp_pool_create", sizeof *core->plans);
    if (status != RP_OK)
        goto destroy_locks;
    status = acquire_driver(pool, options, err);
    if (status != RP_OK)
        release_driver(core, pool->device);
    rp_device_pop(pool->device);
    if (status == RP_OK) {
        core->memory.arena.peers = &pool->device->peers;
        core->mapper.let_in = let_in;
        rpi_peers_join(&pool->device->peers, &core->mapper);
        return RP_OK;
    }

destroy_locks:
    rpi_free(core->plans);
    destroy_locks(core);
free_core:
    rpi_free(core);
    return status;
}

/* The graphs that were in it have been waited for, and eager runs wait for themselves: only what a
 * capture uploaded may be under way. Synchronising the context would break captures elsewhere. */
static void destroy_core(struct rp_pool *pool)
{
    struct rp_device *device = pool->device;
    rpi_peers_leave(&device->peers, &pool->core->mapper);
    bool pushed = rpi_device_push_to_release(device);
    int mode = rpi_relax_begin(device->driver);
    if (device->driver->cuStreamSynchronize(pool->core->stream) != CUDA_SUCCESS)
        device->driver->cuStreamSynchronize(pool->core->stream);
    rpi_relax_end(device->driver, mode);
    release_driver(pool->core, device);
    if (pushed)
        rp_device_pop(device);
    destroy_locks(pool->core);
    rpi_plans_finish(pool->core->plans);
    rpi_free(pool->core->plans);
    rpi_free(pool->core);
}

/* ---- The handle ---------------------------------------------------------------------------- */

static void join_parent(struct rp_pool *pool, struct rp_pool *parent)
{
    pool->parent = parent;
    pool->core = parent->core;
    pthread_mutex_lock(&pool->core->lock);
    rpi_pool_add(&pool->core->memory, &parent->group, &pool->group.node);
    pthread_mutex_unlock(&pool->core->lock);
}

static void take_contract(struct rp_pool *pool, const struct rp_pool_options *options)
{
    const struct rp_pool *parent = options->parent;
    pool->contract =
        parent && parent->contract == RP_CONTRACT_WARN ? RP_CONTRACT_WARN : options->contract;
    pool->strict_overlap = options->strict_overlap || (parent && parent->strict_overlap);
    pool->strict_order = options->strict_order || (parent && parent->strict_order);
}

static void free_pool(struct rp_pool *pool)
{
    rpi_pool_group_finish(&pool->group);
    rpi_free(pool->name);
    rpi_free(pool);
}

rp_status rp_pool_create(struct rp_device *device, const struct rp_pool_options *options,
                         struct rp_pool **out_pool, struct rp_error *err)
{
    if (rpi_is_forked() || !device || !out_pool)
        return rpi_refuse(err, "rp_pool_create", !device ? "device" : "out_pool");
    struct rp_pool_options chosen = RP_POOL_OPTIONS_INIT;
    rp_status status = rpi_take_options(&chosen, sizeof chosen, options, "rp_pool_create",
                                        "RP_POOL_OPTIONS_INIT", err);
    options = &chosen;
    if (status == RP_OK)
        status = check_options(device, options, err);
    if (status != RP_OK)
        return status;
    struct rp_pool *pool = rpi_calloc(1, sizeof *pool);
    if (!pool)
        return rpi_error_host_memory(err, "rp_pool_create", sizeof *pool);
    unsigned inherited = options->parent ? options->parent->plan_budget_ms : 0;
    pool->device = device;
    pool->group.node.kind = compose_kind(options->kind);
    take_contract(pool, &chosen);
    pool->plan_budget_ms = options->plan_budget_ms ? options->plan_budget_ms : inherited;
    pool->name = rpi_strdup(options->name ? options->name : "pool");
    if (!pool->name)
        status = rpi_error_host_memory(err, "rp_pool_create", 5);
    else if (options->parent)
        join_parent(pool, options->parent);
    else
        status = create_core(pool, options, err);
    if (status != RP_OK) {
        free_pool(pool);
        return status;
    }
    atomic_fetch_add(&device->pools, 1);
    *out_pool = pool;
    return RP_OK;
}

void rp_pool_destroy(struct rp_pool *pool)
{
    if (!pool || rpi_is_forked())
        return;
    assert(!pool->group.node.first); /* no graphs, no pools */
    struct rp_device *device = pool->device;
    if (pool->parent) {
        bool pushed = rpi_device_push_to_release(device);
        pthread_mutex_lock(&pool->core->lock);
        rpi_pool_remove(&pool->core->memory, &pool->group.node);
        pthread_mutex_unlock(&pool->core->lock);
        if (pushed)
            rp_device_pop(device);
    } else {
        destroy_core(pool);
    }
    free_pool(pool);
    atomic_fetch_sub(&device->pools, 1);
}

rp_status rp_pool_trim(struct rp_pool *pool, uint64_t *out_bytes, struct rp_error *err)
{
    if (rpi_is_forked() || !pool)
        return rpi_refuse(err, "rp_pool_trim", "pool");
    struct rpi_pool_core *core = pool->core;
    rp_status status = rpi_gate_for_callable(&core->capture_gate, "rp_pool_trim", pool->name, err);
    if (status != RP_OK)
        return status;
    status = rpi_adoption_check(pool, "rp_pool_trim", err);
    if (status == RP_OK)
        status = rp_device_push(pool->device, err);
    if (status == RP_OK) {
        pthread_mutex_lock(&core->lock);
        uint64_t before = rpi_pool_held(&core->memory);
        rpi_pool_trim(&core->memory);
        assert(rpi_pool_is_valid(&core->memory));
        if (out_bytes)
            *out_bytes = before - rpi_pool_held(&core->memory);
        pthread_mutex_unlock(&core->lock);
        rp_device_pop(pool->device);
    }
    rpi_gate_leave(&core->capture_gate);
    return status;
}

void rp_pool_info(const struct rp_pool *pool, struct rp_pool_info *out_info)
{
    if (rpi_is_forked() || !pool || !out_info) {
        rpi_give_nothing(out_info);
        return;
    }
    const struct rpi_pool_node *top = &pool->group.node;
    const struct rpi_pool *memory = &pool->core->memory;
    pthread_mutex_lock(&pool->core->lock);
    const struct rp_pool_info info = {
        .planned_bytes = rpi_pool_height(top),
        .mapped_bytes = rpi_pool_held(memory),
        .address = memory->arena.base,
        .lower_bound_bytes = rpi_pool_lower_bound(memory, top),
        .bound_exact = 1,
        .rehearsal_bytes = rpi_rehearsal_range_bytes(&pool->device->rehearsal_range),
        .graphs = rpi_pool_count(top),
        .staging_bytes = pool->core->staging.bytes + pool->core->staging.allocated};
    pthread_mutex_unlock(&pool->core->lock);
    rpi_give(out_info, &info, sizeof info, __func__);
}
