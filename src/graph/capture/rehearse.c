/* SPDX-License-Identifier: MIT */
#include "graph/capture/rehearse.h"

#include "base/idmap.h"
#include "graph/capture/learning.h"
#include "graph/objects/arguments.h"
#include "graph/objects/gates.h"
#include "reprise_framework.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

/* Libraries choose kernels by alignments up to this one. */
static const struct rpi_rehearse_where mostly = {0};
/* By which one argument is farther from the next than the one before, in a capture that is to show
 * what moves with an argument. Packed structs hold what lay on the stack: a length there, or the
 * address of a small object, moves by a few KiB from one capture to the next. No two arguments may.
 */
enum { STEP = 18 << 10, MOST_STEPS = 61 };

struct found {
    struct rpi_rehearsed place; /* as an argument's */
    uint32_t block;             /* that was allocated for it; RPI_ABSENT: none */
};

struct rehearsing {
    struct rpi_learning learning; /* first, for casts */
    struct rpi_rehearsal *made;
    const struct rpi_rehearse_where *where;
    bool finding; /* the callable names its results */
    size_t arg_count;
    struct {
        RPI_VEC(struct found);
    } found;
};

/* An address of its own for the next argument or block. like: 0, or the address that it is to be
 * aligned as. */
static rp_status take(struct rehearsing *run, uint64_t bytes, uint64_t alignment, uint64_t like,
                      uint64_t *out_address, struct rp_error *err)
{
    struct rpi_rehearsal_range *rehearsal_range = &run->learning.pool->device->rehearsal_range;
    struct rpi_rehearsed block = {.bytes = bytes};
    rp_status status =
        like ? rpi_rehearsal_range_take_like(rehearsal_range, bytes, like, &block.address, err)
             : rpi_rehearsal_range_take(rehearsal_range, bytes, alignment, &block.address, err);
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
    struct rehearsing *run = (struct rehearsing *)learning;
    const struct rpi_addresses *like = run->where->like;
    size_t turn = run->made->blocks.count;
    return take(run, bytes, learning->pool->core->memory.alignment,
                like && turn < like->count ? like->data[turn] : 0, out_address, err);
}

/* Addresses of the arguments, into `addresses`. */
static rp_status place_args(struct rehearsing *run, const struct rp_arg *args, size_t arg_count,
                            uint64_t *addresses, struct rp_error *err)
{
    const struct rp_pool *pool = run->learning.pool;
    rp_status status = RP_OK;
    for (size_t k = 0; status == RP_OK && k < arg_count; k++) {
        uint64_t unused, alignment = rpi_arg_alignment(pool, &args[k]);
        if (run->where->apart)
            status = rpi_rehearsal_range_take(&pool->device->rehearsal_range,
                                              STEP * (k % MOST_STEPS + 1), alignment, &unused, err);
        if (status == RP_OK)
            status = take(run, rpi_block_bytes(args[k].bytes), alignment, 0, &addresses[k], err);
    }
    return status;
}

/* ---- Results ------------------------------------------------------------------------------- */

static rp_status check_block(const struct rehearsing *run, uint32_t block, uint64_t bytes,
                             struct rp_error *err)
{
    assert(block < run->made->record.blocks.count);
    uint64_t allocated = run->made->record.blocks.data[block].bytes;
    if (allocated == rpi_block_bytes(bytes))
        return RP_OK;
    return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_call_result",
                     "a result of %" PRIu64 " bytes cannot be a block of %" PRIu64
                     ": name the whole block, or ask for an address and copy there",
                     bytes, allocated);
}

static rp_status find(struct rpi_learning *learning, uint64_t bytes, uint32_t block,
                      uint64_t *out_address, struct rp_error *err)
{
    struct rehearsing *run = (struct rehearsing *)learning;
    struct found found = {.place.bytes = rpi_block_bytes(bytes), .block = block};
    rp_status status = RP_OK;
    if (!rpi_vec_reserve(&run->found, run->found.count + 1) ||
        !rpi_vec_reserve(&run->made->results, run->made->results.count + 1))
        status = rpi_error_host_memory(err, "rp_call_result", sizeof found);
    else if (block == RPI_ABSENT)
        status = rpi_rehearsal_range_take(&learning->pool->device->rehearsal_range,
                                          found.place.bytes, learning->pool->core->memory.alignment,
                                          &found.place.address, err);
    else
        status = check_block(run, block, bytes, err);
    if (status != RP_OK)
        return status;
    if (block != RPI_ABSENT)
        found.place.address = run->made->blocks.data[run->arg_count + block].address;
    run->found.data[run->found.count++] = found;
    run->made->results.data[run->made->results.count++] = bytes;
    *out_address = found.place.address;
    return RP_OK;
}

/* Puts the results' places behind the arguments', and the blocks that stay behind those. There is
 * room. */
static void move_places(struct rehearsing *run, const bool *gone, size_t blocks,
                        struct rpi_rehearsed *to)
{
    assert(run->made->blocks.count >= run->arg_count + blocks);
    const struct rpi_rehearsed *from = run->made->blocks.data;
    size_t count = 0;
    for (size_t k = 0; k < run->arg_count; k++)
        to[count++] = from[k];
    for (size_t i = 0; i < run->found.count; i++)
        to[count++] = run->found.data[i].place;
    for (size_t i = 0; i < blocks; i++)
        if (!gone[i])
            to[count++] = from[run->arg_count + i];
    rpi_free(run->made->blocks.data);
    run->made->blocks.data = to;
    run->made->blocks.count = count;
    run->made->blocks.capacity = run->arg_count + run->found.count + blocks;
}

/* Makes arguments of the results. */
static rp_status take_results(struct rehearsing *run, struct rp_error *err)
{
    size_t blocks = run->made->record.blocks.count;
    size_t places = run->arg_count + run->found.count + blocks;
    if (!run->found.count)
        return RP_OK;
    bool *gone = rpi_calloc(blocks + 1, sizeof *gone);
    struct rpi_rehearsed *to = rpi_reallocarray(NULL, places, sizeof *to);
    rp_status status = RP_OK;
    if (!gone || !to)
        status = rpi_error_host_memory(err, "rp_call_result", places * sizeof *to);
    for (size_t i = 0; status == RP_OK && i < run->found.count; i++)
        if (run->found.data[i].block != RPI_ABSENT)
            gone[run->found.data[i].block] = true;
    if (status == RP_OK)
        status = rpi_capture_record_take_out(&run->made->record, gone, err);
    if (status == RP_OK)
        move_places(run, gone, blocks, to);
    else
        rpi_free(to);
    rpi_free(gone);
    return status;
}

/* ---- The run ------------------------------------------------------------------------------- */

static rp_status begin_addresses(struct rp_device *device, struct rp_error *err)
{
    if (!device->rehearsal_range.driver) {
        rp_status status =
            rpi_rehearsal_range_init(&device->rehearsal_range, device->driver, device->handle, err);
        if (status != RP_OK)
            return status;
    }
    rpi_rehearsal_range_begin(&device->rehearsal_range);
    return RP_OK;
}

/* With the rehearsal lock held. Everything made lies in run and run->made, whatever happens. */
static rp_status rehearse(struct rehearsing *run, const char *name, rp_callable_fn callable,
                          void *user, const struct rp_arg *args, size_t arg_count,
                          struct rp_error *err)
{
    static const struct rpi_learning_steps steps = {.place = place},
                                           finding = {.place = place, .result = find};
    char what[96];
    snprintf(what, sizeof what, "rehearsing '%.60s'", name);
    run->learning.steps = run->finding ? &finding : &steps;
    run->learning.record = &run->made->record;
    uint64_t *addresses = rpi_reallocarray(NULL, arg_count + 1, sizeof *addresses);
    if (!addresses)
        return rpi_error_host_memory(err, what, (arg_count + 1) * sizeof *addresses);
    rp_status status = begin_addresses(run->learning.pool->device, err);
    if (status == RP_OK)
        status = place_args(run, args, arg_count, addresses, err);
    if (status == RP_OK)
        status = rpi_learn(&run->learning, what, callable, user, args, addresses, arg_count,
                           &run->made->template, err);
    if (status == RP_OK)
        status = take_results(run, err);
    run->made->values = run->learning.values.count;
    run->made->scalars = run->learning.scalars;
    run->learning.scalars = (struct rpi_scalars){0};
    run->made->host_data = run->learning.host_data;
    run->learning.host_data = (struct rpi_host_data){0};
    rpi_learning_finish(&run->learning);
    rpi_vec_finish(&run->found);
    rpi_free(addresses);
    return status;
}

static rp_status rehearse_made(struct rp_pool *pool, const char *name, rp_callable_fn callable,
                               void *user, const struct rp_arg *args, size_t arg_count,
                               const struct rpi_rehearse_where *where, bool finding,
                               struct rpi_rehearsal *out_rehearsal, struct rp_error *err)
{
    struct rp_device *device = pool->device;
    struct rpi_rehearsal made = {0};
    struct rehearsing run = {.learning.pool = pool,
                             .made = &made,
                             .where = where,
                             .finding = finding,
                             .arg_count = arg_count};
    rp_status status = rpi_capture_record_init(&made.record, name, err);
    if (status != RP_OK)
        return status;
    status = rpi_gate_for_callable(&device->rehearsal_gate, "rp_graph_capture", pool->name, err);
    if (status == RP_OK) {
        status = rehearse(&run, name, callable, user, args, arg_count, err);
        rpi_gate_leave(&device->rehearsal_gate);
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
    return rehearse_made(pool, name, callable, user, args, arg_count, &mostly, false, out_rehearsal,
                         err);
}

rp_status rpi_rehearse_at(struct rp_pool *pool, const char *name, rp_callable_fn callable,
                          void *user, const struct rp_arg *args, size_t arg_count,
                          const struct rpi_rehearse_where *where,
                          struct rpi_rehearsal *out_rehearsal, struct rp_error *err)
{
    return rehearse_made(pool, name, callable, user, args, arg_count, where, false, out_rehearsal,
                         err);
}

rp_status rpi_rehearse_finding(struct rp_pool *pool, const char *name, rp_callable_fn callable,
                               void *user, const struct rp_arg *args, size_t arg_count,
                               struct rpi_rehearsal *out_rehearsal, struct rp_error *err)
{
    return rehearse_made(pool, name, callable, user, args, arg_count, &mostly, true, out_rehearsal,
                         err);
}

void rpi_rehearsal_finish(struct rpi_rehearsal *rehearsal, const struct rp_driver *driver)
{
    if (rehearsal->template)
        driver->cuGraphDestroy(rehearsal->template);
    rpi_capture_record_finish(&rehearsal->record);
    rpi_vec_finish(&rehearsal->blocks);
    rpi_vec_finish(&rehearsal->results);
    rpi_vec_finish(&rehearsal->scalars);
    rpi_host_data_finish(&rehearsal->host_data);
    *rehearsal = (struct rpi_rehearsal){0};
}
