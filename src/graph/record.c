/* SPDX-License-Identifier: MIT */
#include "graph/record.h"

#include "graph/learning.h"
#include "graph/online.h"

#include <stdio.h>

struct recording {
    struct rpi_learning learning; /* first, for casts */
    const struct rpi_rehearsal *rehearsal;
    const uint64_t *offsets;
    struct rpi_recorded *made;
    struct rpi_online online;
};

/* Does the next block follow the rehearsal so far: the same size on the same stream? */
static bool follows(const struct recording *run, uint64_t bytes, uint32_t stream)
{
    size_t k = run->made->record.blocks.count;
    if (k >= run->rehearsal->record.blocks.count)
        return false;
    const struct rpi_block *block = &run->rehearsal->record.blocks.data[k];
    return block->bytes == bytes && block->stream == stream;
}

/* Where the next block goes; counts it where that is not as planned. */
static uint64_t choose_offset(struct recording *run, uint64_t bytes, uint32_t stream,
                              uint64_t rounded)
{
    size_t k = run->made->record.blocks.count;
    if (follows(run, bytes, stream) && rpi_online_fits(&run->online, run->offsets[k], rounded))
        return run->offsets[k];
    run->made->diverged++;
    return rpi_online_find(&run->online, rounded);
}

static rp_status place(struct rpi_learning *learning, uint64_t bytes, uint32_t stream,
                       uint64_t *out_address, struct rp_error *err)
{
    struct recording *run = (struct recording *)learning;
    uint64_t rounded = rpi_round_up(bytes, learning->pool->core->memory.alignment), address;
    rp_status status =
        rpi_online_look(&run->online, stream, learning->nodes.data, learning->nodes.count, err);
    if (status == RP_OK)
        status = rpi_online_take(&run->online, choose_offset(run, bytes, stream, rounded), rounded,
                                 &address, err);
    if (status == RP_OK && !rpi_vec_push(&run->made->addresses, address))
        status = rpi_error_host_memory(err, "rp_call_alloc", sizeof address);
    if (status == RP_OK)
        *out_address = address;
    return status;
}

static rp_status give_back(struct rpi_learning *learning, uint32_t block, struct rp_error *err)
{
    struct recording *run = (struct recording *)learning;
    return rpi_online_free(&run->online, block, learning->nodes.data, learning->nodes.count, err);
}

/* Everything made lies in run and run->made, whatever happens. */
static rp_status record(struct recording *run, const char *name, rp_callable_fn callable,
                        void *user, const struct rp_arg *args, const uint64_t *staging,
                        size_t arg_count, const struct rpi_record_plan *plan, struct rp_error *err)
{
    static const struct rpi_learning_steps steps = {.place = place, .give_back = give_back};
    char what[96];
    snprintf(what, sizeof what, "recording '%.60s'", name);
    run->learning.steps = &steps;
    run->learning.record = &run->made->record;
    rp_status status = rpi_online_begin(&run->online, run->learning.pool, run->made->record.order,
                                        plan->height, &plan->obstacles->always, err);
    for (size_t k = 0; status == RP_OK && k < arg_count; k++)
        if (!rpi_vec_push(&run->made->addresses, staging[k]))
            status = rpi_error_host_memory(err, "rp_graph_capture", sizeof *staging);
    if (status == RP_OK)
        status = rpi_learn(&run->learning, what, callable, user, args, staging, arg_count, false,
                           &run->made->template, err);
    rpi_learning_finish(&run->learning);
    rpi_online_finish(&run->online);
    return status;
}

rp_status rpi_record(struct rp_pool *pool, const char *name, rp_callable_fn callable, void *user,
                     const struct rp_arg *args, const uint64_t *staging, size_t arg_count,
                     const struct rpi_rehearsal *rehearsal, const struct rpi_record_plan *plan,
                     struct rpi_recorded *out_recorded, struct rp_error *err)
{
    struct rpi_recorded made = {0};
    struct recording run = {
        .learning.pool = pool, .rehearsal = rehearsal, .offsets = plan->offsets, .made = &made};
    rp_status status = rpi_capture_record_init(&made.record, name, err);
    if (status == RP_OK)
        status = record(&run, name, callable, user, args, staging, arg_count, plan, err);
    if (status == RP_OK)
        *out_recorded = made;
    else
        rpi_recorded_finish(&made, pool->device->driver);
    return status;
}

void rpi_recorded_finish(struct rpi_recorded *recorded, const struct rp_driver *driver)
{
    if (recorded->template)
        driver->cuGraphDestroy(recorded->template);
    rpi_capture_record_finish(&recorded->record);
    rpi_vec_finish(&recorded->addresses);
    *recorded = (struct rpi_recorded){0};
}
