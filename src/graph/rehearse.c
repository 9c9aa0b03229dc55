/* SPDX-License-Identifier: MIT */
#include "graph/rehearse.h"

#include "graph/learning.h"

#include <stdio.h>

/* Libraries choose kernels by alignments up to this one. */
enum { MOST_ALIGNMENT = 256 };
enum { MOST_STEPS = 61 }; /* by which one argument is farther from the next than the one before */

struct rehearsing {
    struct rpi_learning learning; /* first, for casts */
    struct rpi_rehearsal *made;
    bool apart; /* arguments lie at other distances than they mostly do */
};

uint64_t rpi_arg_alignment(const struct rp_pool *pool, const struct rp_arg *arg)
{
    uint64_t most = pool->core->memory.alignment;
    if (most > MOST_ALIGNMENT)
        most = MOST_ALIGNMENT;
    uint64_t alignment = arg->address & -arg->address; /* the lowest bit; 0 for no address */
    return alignment && alignment < most ? alignment : most;
}

/* An address of its own for the next argument or block. */
static rp_status take(struct rehearsing *run, uint64_t bytes, uint64_t alignment,
                      uint64_t *out_address, struct rp_error *err)
{
    struct rpi_rehearsed block = {.bytes = bytes};
    rp_status status =
        rpi_alias_take(&run->learning.pool->device->alias, bytes, alignment, &block.address, err);
    if (status == RP_OK && !rpi_vec_push(&run->made->blocks, block))
        status = rpi_error_host_memory(err, "rp_call_alloc", sizeof block);
    if (status == RP_OK)
        *out_address = block.address;
    return status;
}

static rp_status place(struct rpi_learning *learning, uint64_t bytes, uint32_t stream,
                       uint64_t *out_address, struct rp_error *err)
{
    (void)stream;
    return take((struct rehearsing *)learning, bytes, learning->pool->core->memory.alignment,
                out_address, err);
}

/* Addresses of the arguments, into `addresses`. */
static rp_status place_args(struct rehearsing *run, const struct rp_arg *args, size_t arg_count,
                            uint64_t *addresses, struct rp_error *err)
{
    const struct rp_pool *pool = run->learning.pool;
    rp_status status = RP_OK;
    for (size_t k = 0; status == RP_OK && k < arg_count; k++) {
        uint64_t unused, alignment = rpi_arg_alignment(pool, &args[k]);
        if (run->apart)
            status = rpi_alias_take(&pool->device->alias, 2 * alignment * (k % MOST_STEPS + 1),
                                    alignment, &unused, err);
        if (status == RP_OK)
            status = take(run, rpi_block_bytes(args[k].bytes), alignment, &addresses[k], err);
    }
    return status;
}

static rp_status begin_addresses(struct rp_device *device, struct rp_error *err)
{
    if (!device->alias.driver) {
        rp_status status = rpi_alias_init(&device->alias, device->driver, device->handle, err);
        if (status != RP_OK)
            return status;
    }
    rpi_alias_begin(&device->alias);
    return RP_OK;
}

/* With the rehearsal lock held. Everything made lies in run and run->made, whatever happens. */
static rp_status rehearse(struct rehearsing *run, const char *name, rp_callable_fn callable,
                          void *user, const struct rp_arg *args, size_t arg_count,
                          struct rp_error *err)
{
    static const struct rpi_learning_steps steps = {.place = place};
    char what[96];
    snprintf(what, sizeof what, "rehearsing '%.60s'", name);
    run->learning.steps = &steps;
    run->learning.record = &run->made->record;
    uint64_t *addresses = rpi_reallocarray(NULL, arg_count + 1, sizeof *addresses);
    if (!addresses)
        return rpi_error_host_memory(err, what, (arg_count + 1) * sizeof *addresses);
    rp_status status = begin_addresses(run->learning.pool->device, err);
    if (status == RP_OK)
        status = place_args(run, args, arg_count, addresses, err);
    if (status == RP_OK)
        status = rpi_learn(&run->learning, what, callable, user, args, addresses, arg_count, true,
                           &run->made->template, err);
    rpi_learning_finish(&run->learning);
    rpi_free(addresses);
    return status;
}

static rp_status rehearse_made(struct rp_pool *pool, const char *name, rp_callable_fn callable,
                               void *user, const struct rp_arg *args, size_t arg_count, bool apart,
                               struct rpi_rehearsal *out_rehearsal, struct rp_error *err)
{
    struct rp_device *device = pool->device;
    struct rpi_rehearsal made = {0};
    struct rehearsing run = {.learning.pool = pool, .made = &made, .apart = apart};
    rp_status status = rpi_capture_record_init(&made.record, name, err);
    if (status != RP_OK)
        return status;
    status = rpi_lock_for_callable(&device->rehearsal_lock, "rp_graph_capture", pool->name, err);
    if (status == RP_OK) {
        status = rehearse(&run, name, callable, user, args, arg_count, err);
        pthread_mutex_unlock(&device->rehearsal_lock);
    }
    if (status == RP_OK)
        *out_rehearsal = made;
    else
        rpi_rehearsal_finish(&made, device->driver);
    return status;
}

rp_status rpi_rehearse(struct rp_pool *pool, const char *name, rp_callable_fn callable, void *user,
                       const struct rp_arg *args, size_t arg_count,
                       struct rpi_rehearsal *out_rehearsal, struct rp_error *err)
{
    return rehearse_made(pool, name, callable, user, args, arg_count, false, out_rehearsal, err);
}

rp_status rpi_rehearse_apart(struct rp_pool *pool, const char *name, rp_callable_fn callable,
                             void *user, const struct rp_arg *args, size_t arg_count,
                             struct rpi_rehearsal *out_rehearsal, struct rp_error *err)
{
    return rehearse_made(pool, name, callable, user, args, arg_count, true, out_rehearsal, err);
}

void rpi_rehearsal_finish(struct rpi_rehearsal *rehearsal, const struct rp_driver *driver)
{
    if (rehearsal->template)
        driver->cuGraphDestroy(rehearsal->template);
    rpi_capture_record_finish(&rehearsal->record);
    rpi_vec_finish(&rehearsal->blocks);
    *rehearsal = (struct rpi_rehearsal){0};
}
