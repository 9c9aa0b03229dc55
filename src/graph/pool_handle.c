/* SPDX-License-Identifier: MIT
 *
 * rp_pool: the public handle around a pool's memory, with the stream that captures begin on and the
 * event that orders replays.
 */
#include "graph/objects.h"

#include "base/hostmem.h"

#include <assert.h>
#include <errno.h>

#define MIB 1048576ull

int rpi_mutex_init_checked(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;
    int failed = pthread_mutexattr_init(&attributes);
    if (failed)
        return failed;
    failed = pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    if (!failed)
        failed = pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return failed;
}

rp_status rpi_lock_for_callable(pthread_mutex_t *mutex, const char *function, const char *pool,
                                struct rp_error *err)
{
    if (pthread_mutex_lock(mutex) == EDEADLK)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "%s was called by a callable that is itself run by it (pool '%s'): call "
                         "the inner callable directly",
                         function, pool);
    return RP_OK;
}

rp_status rpi_check_args(const char *function, const struct rp_arg *args, size_t arg_count,
                         struct rp_error *err)
{
    if (arg_count && !args)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                         "there should be %zu arguments, but args is NULL", arg_count);
    for (size_t i = 0; i < arg_count; i++) {
        if (args[i].role < RP_ARG_IN || args[i].role > RP_ARG_INOUT)
            return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                             "argument %zu has role %d, which is not an enum rp_arg_role", i,
                             (int)args[i].role);
        if (args[i].bytes > UINT64_MAX / 2)
            return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                             "argument %zu has %llu bytes, more than any device", i,
                             (unsigned long long)args[i].bytes);
    }
    return RP_OK;
}

static rp_status check_options(const struct rp_pool_options *options, struct rp_error *err)
{
    if (options->size != sizeof *options)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_pool_create",
                         "the options' size is %zu, not %zu: start from RP_POOL_OPTIONS_INIT",
                         options->size, sizeof *options);
    uint64_t alignment = options->alignment;
    if ((alignment & (alignment - 1)) != 0 || alignment > 2 * MIB)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_pool_create",
                         "the alignment is %llu, but has to be a power of two up to 2 MiB",
                         (unsigned long long)alignment);
    return RP_OK;
}

static rp_status init_locks(struct rp_pool *pool, struct rp_error *err)
{
    if (rpi_mutex_init_checked(&pool->capture_lock) == 0) {
        if (rpi_mutex_init_checked(&pool->eager_lock) == 0) {
            if (pthread_mutex_init(&pool->lock, NULL) == 0)
                return RP_OK;
            pthread_mutex_destroy(&pool->eager_lock);
        }
        pthread_mutex_destroy(&pool->capture_lock);
    }
    return rpi_error_host_memory(err, "rp_pool_create", sizeof pool->lock);
}

/* What the pool has of the driver. On failure rp_pool_destroy's part is done by release_driver. */
static rp_status acquire_driver(struct rp_pool *pool, const struct rp_pool_options *options,
                                struct rp_error *err)
{
    struct rp_device *device = pool->device;
    const struct rp_driver *driver = device->driver;
    rp_status status =
        rpi_pool_init(&pool->memory, driver, device->handle, device->total_bytes,
                      options->limit_bytes, options->alignment ? options->alignment : 512, err);
    if (status == RP_OK)
        status = rpi_arena_init(&pool->eager, driver, device->handle, device->total_bytes, err);
    if (status != RP_OK)
        return status;
    CUresult result = driver->cuStreamCreate(&pool->stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuStreamCreate", "making the stream of pool '%s'",
                                pool->name);
    result = driver->cuEventCreate(&pool->last_done, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuEventCreate", "making the event of pool '%s'",
                                pool->name);
    return RP_OK;
}

static void release_driver(struct rp_pool *pool)
{
    const struct rp_driver *driver = pool->device->driver;
    if (pool->last_done)
        driver->cuEventDestroy(pool->last_done);
    if (pool->stream)
        driver->cuStreamDestroy(pool->stream);
    rpi_arena_finish(&pool->eager);
    rpi_pool_finish(&pool->memory);
}

rp_status rp_pool_create(struct rp_device *device, const struct rp_pool_options *options,
                         struct rp_pool **out_pool, struct rp_error *err)
{
    static const struct rp_pool_options defaults = RP_POOL_OPTIONS_INIT;
    if (!device || !out_pool)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_pool_create", "%s is NULL",
                         device ? "out_pool" : "device");
    options = options ? options : &defaults;
    rp_status status = check_options(options, err);
    if (status != RP_OK)
        return status;
    struct rp_pool *pool = rpi_calloc(1, sizeof *pool);
    if (!pool)
        return rpi_error_host_memory(err, "rp_pool_create", sizeof *pool);
    pool->device = device;
    pool->plan_budget_ms = options->plan_budget_ms ? options->plan_budget_ms : 50;
    pool->name = rpi_strdup(options->name ? options->name : "pool");
    status = pool->name ? init_locks(pool, err) : rpi_error_host_memory(err, "rp_pool_create", 5);
    if (status != RP_OK)
        goto free_pool;
    status = rp_device_push(device, err);
    if (status != RP_OK)
        goto destroy_locks;
    status = acquire_driver(pool, options, err);
    if (status != RP_OK)
        release_driver(pool);
    rp_device_pop(device);
    if (status != RP_OK)
        goto destroy_locks;
    atomic_fetch_add(&device->pools, 1);
    *out_pool = pool;
    return RP_OK;

destroy_locks:
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->eager_lock);
    pthread_mutex_destroy(&pool->capture_lock);
free_pool:
    rpi_free(pool->name);
    rpi_free(pool);
    return status;
}

void rp_pool_destroy(struct rp_pool *pool)
{
    if (!pool)
        return;
    assert(pool->memory.members.count == 0);
    struct rp_device *device = pool->device;
    bool pushed = rpi_device_push_to_release(device);
    int mode = rpi_relax_begin(device->driver);
    device->driver->cuCtxSynchronize();
    rpi_relax_end(device->driver, mode);
    release_driver(pool);
    if (pushed)
        rp_device_pop(device);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->eager_lock);
    pthread_mutex_destroy(&pool->capture_lock);
    rpi_free(pool->name);
    rpi_free(pool);
    atomic_fetch_sub(&device->pools, 1);
}

void rp_pool_info(const struct rp_pool *pool, struct rp_pool_info *out_info)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&pool->lock;
    pthread_mutex_lock(lock);
    *out_info =
        (struct rp_pool_info){.planned_bytes = rpi_pool_height(&pool->memory),
                              .mapped_bytes = pool->memory.arena.mapped,
                              .lower_bound_bytes = rpi_pool_lower_bound(&pool->memory),
                              .rehearsal_bytes = atomic_load(&pool->device->alias.chunk_bytes),
                              .graphs = pool->memory.members.count};
    pthread_mutex_unlock(lock);
}
