/* SPDX-License-Identifier: MIT */
#include "graph/callable/callable.h"

#include "base/clock.h"
#include "base/hostmem.h"
#include "base/log.h"
#include "base/refuse.h"
#include "base/sized.h"
#include "graph/objects/arguments.h"
#include "graph/objects/device_context.h"
#include "graph/objects/gates.h"
#include "graph/verify/verify.h"
#include "reprise_heap.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Making and destroying ----------------------------------------------------------------- */

static void free_callable(struct rp_callable *callable)
{
    rpi_shapes_finish(&callable->shapes);
    rpi_look_finish(&callable->look);
    rpi_free(callable->name);
    rpi_free(callable->rendered);
    rpi_free(callable);
}

static rp_status check_options(const struct rp_device *device,
                               const struct rp_callable_options *options, struct rp_error *err)
{
    if (options->pool && options->pool->device != device)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_callable_create",
                         "the pool '%s' is of another device", options->pool->name);
    if (options->policy != RP_POLICY_ALWAYS && options->policy != RP_POLICY_AUTO &&
        options->policy != RP_POLICY_NEVER)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_callable_create",
                         "policy is %d, which is no enum rp_policy", (int)options->policy);
    if (options->bind != RP_BIND_AUTO && options->bind != RP_BIND_ALWAYS)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_callable_create",
                         "bind is %d, which is no enum rp_bind", (int)options->bind);
    if ((options->dim_count && !options->dims) || (options->fill_count && !options->fills))
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_callable_create",
                         "there should be %zu dimensions and %zu fills, but one of them is NULL",
                         options->dim_count, options->fill_count);
    return rpi_verify_check("rp_callable_create", options->verify, err);
}

static rp_status make_buckets(struct rp_callable *callable,
                              const struct rp_callable_options *options, struct rp_error *err)
{
    rp_status status = rp_device_push(callable->device, err);
    if (status != RP_OK)
        return status;
    status = rpi_buckets_init(&callable->buckets, options, callable->device, err);
    rp_device_pop(callable->device);
    return status;
}

static void drop_buckets(struct rp_callable *callable)
{
    bool pushed = rpi_device_push_to_release(callable->device);
    rpi_buckets_finish(&callable->buckets);
    if (pushed)
        rp_device_pop(callable->device);
}

static rp_status make_callable(struct rp_device *device, const struct rp_callable_options *options,
                               struct rp_callable *made, struct rp_error *err)
{
    struct rp_pool_options pool = RP_POOL_OPTIONS_INIT;
    made->device = device;
    made->heap = options->heap;
    made->most_graphs = options->most_graphs;
    made->copy_args = options->copy_args;
    made->bind = options->bind;
    made->policy = options->policy;
    made->verify = options->verify;
    rpi_way_judge_init(&made->judge, device);
    made->name = rpi_strdup(options->name ? options->name : "callable");
    if (!made->name)
        return rpi_error_host_memory(err, "rp_callable_create", 9);
    rp_status status = rpi_look_reserve(&made->look, 8, err);
    if (status != RP_OK)
        return status;
    pool.name = made->name;
    pool.parent = options->pool;
    status = make_buckets(made, options, err);
    if (status == RP_OK)
        status = rp_pool_create(device, &pool, &made->pool, err);
    if (status != RP_OK)
        drop_buckets(made);
    return status;
}

rp_status rp_callable_create(struct rp_device *device, const struct rp_callable_options *options,
                             rp_callable_fn function, void *user, struct rp_callable **out_callable,
                             struct rp_error *err)
{
    if (rpi_is_forked() || !device || !function || !out_callable)
        return rpi_refuse(err, "rp_callable_create",
                          !device     ? "device"
                          : !function ? "function"
                                      : "out_callable");
    struct rp_callable_options chosen = RP_CALLABLE_OPTIONS_INIT;
    rp_status status = rpi_take_options(&chosen, sizeof chosen, options, "rp_callable_create",
                                        "RP_CALLABLE_OPTIONS_INIT", err);
    if (status == RP_OK)
        status = check_options(device, &chosen, err);
    if (status != RP_OK)
        return status;
    struct rp_callable *callable = rpi_calloc(1, sizeof *callable);
    if (!callable)
        return rpi_error_host_memory(err, "rp_callable_create", sizeof *callable);
    callable->function = function;
    callable->user = user;
    status = make_callable(device, &chosen, callable, err);
    if (status != RP_OK) {
        free_callable(callable);
        return status;
    }
    *out_callable = callable;
    return RP_OK;
}

void rp_callable_destroy(struct rp_callable *callable)
{
    if (!callable || rpi_is_forked())
        return;
    for (size_t i = 0; i < callable->shapes.all.count; i++) {
        rp_way_choice_destroy(callable->shapes.all.data[i]->choice);
        rp_graph_destroy(callable->shapes.all.data[i]->graph);
    }
    rpi_way_judge_finish(&callable->judge);
    rp_pool_destroy(callable->pool);
    drop_buckets(callable);
    free_callable(callable);
}

/* ---- One shape ----------------------------------------------------------------------------- */

rp_status rpi_callable_look(struct rp_callable *callable, const struct rp_inputs *inputs,
                            struct rp_error *err)
{
    assert(rpi_gate_is_own(&callable->gate));
    struct rpi_look *look = &callable->look;
    rp_status status = rpi_look_reserve(look, inputs->arg_count, err);
    if (status != RP_OK)
        return status;
    if (inputs->arg_count)
        memcpy(look->args, inputs->args, inputs->arg_count * sizeof *look->args);
    look->arg_count = inputs->arg_count;
    look->key = inputs->key;
    look->key_bytes = inputs->key_bytes;
    if (rpi_buckets_wanted(&callable->buckets))
        status = rpi_buckets_look(&callable->buckets, look, inputs->args, err);
    if (status == RP_OK)
        rpi_look_at(look);
    return status;
}

/* Looks at a call and finds its shape, or makes it. */
static rp_status find_shape(struct rp_callable *callable, const struct rp_inputs *inputs,
                            struct rpi_shape **out_shape, struct rp_error *err)
{
    assert(rpi_gate_is_own(&callable->gate));
    rp_status status = rpi_callable_look(callable, inputs, err);
    if (status != RP_OK)
        return status;
    *out_shape = rpi_shapes_find(&callable->shapes, &callable->look);
    return *out_shape ? RP_OK : rpi_shapes_add(&callable->shapes, &callable->look, out_shape, err);
}

static void set_reason(struct rpi_shape *shape, enum rp_shape_state state, const char *reason)
{
    char *copy = reason ? rpi_strdup(reason) : NULL;
    rpi_free(shape->reason);
    shape->reason = copy;
    shape->state = state;
}

/* Can an eager run stand in for the graph after this? */
static bool is_work_arounds(rp_status status)
{
    switch (status) {
    case RP_ERROR_OUT_OF_DEVICE_MEMORY:
    case RP_ERROR_UNSUPPORTED:
    case RP_ERROR_CAPTURE:
    case RP_ERROR_DIVERGED:
    case RP_ERROR_CALLABLE:
    case RP_ERROR_LIMIT:
        return true;
    default:
        return false;
    }
}

struct rpi_callable_run rpi_callable_run_of(struct rp_callable *callable)
{
    const struct rpi_look *look = &callable->look;
    return (struct rpi_callable_run){.function = callable->function,
                                     .user = callable->user,
                                     .args = look->args,
                                     .arg_count = look->arg_count,
                                     .places = look->places,
                                     .key = look->key,
                                     .key_bytes = look->key_bytes,
                                     .addresses = look->addresses};
}

/* The call for which a shape is captured. */
struct calling {
    const struct rp_inputs *inputs;
    CUstream stream;
};

/* Verifies by running, with the contents of the call; in padded buffers they have to be first. */
static rp_status run_too(struct rp_callable *callable, const struct rpi_shape *shape,
                         const struct calling *calling, struct rp_capture_options *options,
                         struct rp_error *err)
{
    struct rpi_buckets *buckets = &callable->buckets;
    options->verify = RP_VERIFY_RUN;
    options->stream = calling->stream;
    if (!buckets->any)
        return RP_OK;
    rp_status status =
        rpi_buckets_copy_in(buckets, shape, calling->inputs->args, calling->stream, err);
    rpi_buckets_used(buckets, calling->stream);
    return status;
}

/* Memory for padded arguments, and the graph. calling is NULL ahead of any call. */
static rp_status make_graph(struct rp_callable *callable, const struct rpi_shape *shape,
                            const struct calling *calling, struct rp_graph **out_graph,
                            struct rp_error *err)
{
    struct rpi_callable_run run = rpi_callable_run_of(callable);
    struct rp_capture_options options = RP_CAPTURE_OPTIONS_INIT;
    char name[160];
    snprintf(name, sizeof name, "%.60s %.90s", callable->name, shape->text);
    options.name = name;
    options.copy_args = callable->copy_args;
    options.verify = callable->verify == RP_VERIFY_NONE ? RP_VERIFY_NONE : RP_VERIFY_CAPTURE;
    options.bind = callable->bind;
    rp_status status = rp_device_push(callable->device, err);
    if (status != RP_OK)
        return status;
    status = rpi_buckets_reserve(&callable->buckets, err);
    if (status == RP_OK && callable->verify == RP_VERIFY_RUN && calling)
        status = run_too(callable, shape, calling, &options, err);
    if (status == RP_OK)
        status =
            rp_graph_capture(callable->pool, &options, rpi_callable_run, &run,
                             callable->look.storages, callable->look.storage_count, out_graph, err);
    rp_device_pop(callable->device);
    return status;
}

/* Captures the shape that was just looked at. A failure that an eager run gets around makes it the
 * state that is given, with the reason. */
static rp_status capture_shape(struct rp_callable *callable, struct rpi_shape *shape,
                               const struct calling *calling, enum rp_shape_state on_failure,
                               struct rp_error *err)
{
    assert(rpi_gate_is_own(&callable->gate));
    assert(!shape->graph);
    struct rp_error failure = {0};
    uint64_t start = rpi_clock_ns();
    rp_status status = make_graph(callable, shape, calling, &shape->graph, &failure);
    double ms = rpi_ms_since(start);
    shape->capture_ms += ms;
    callable->info.capture_ms += ms;
    if (shape->choice)
        rp_way_choice_captured(shape->choice, status == RP_OK, ms);
    if (status == RP_OK) {
        set_reason(shape, RP_SHAPE_GRAPH, NULL);
        callable->info.graphs++;
        return RP_OK;
    }
    if (is_work_arounds(status))
        set_reason(shape, on_failure, failure.message);
    if (is_work_arounds(status) && on_failure == RP_SHAPE_EAGER)
        rpi_log(RP_LOG_WARNING, "'%s' of %s stays eager: %s", callable->name, shape->text,
                failure.message);
    if (err)
        *err = failure;
    return status;
}

/* Drops a graph that uses memory which was freed: the shape is as one that was never captured, for
 * the function has other memory by now. Where that happens again and again it stays eager, as
 * captures cost more than they bring. */
static void drop_stale(struct rp_callable *callable, struct rpi_shape *shape)
{
    assert(rpi_gate_is_own(&callable->gate));
    assert((shape->state == RP_SHAPE_GRAPH) == (shape->graph != NULL));
    enum { MOST_STALE = 4 };
    if (!shape->graph || !rp_graph_is_stale(shape->graph))
        return;
    struct rp_graph_info lost = {.size = sizeof lost};
    rp_graph_info(shape->graph, &lost);
    rp_way_choice_destroy(shape->choice);
    rp_graph_destroy(shape->graph);
    shape->choice = NULL;
    shape->graph = NULL;
    callable->info.graphs--;
    callable->info.stale_graphs++;
    set_reason(shape, RP_SHAPE_NEW, NULL);
    if (++shape->stale_graphs < MOST_STALE)
        return;
    char why[256];
    snprintf(why, sizeof why,
             "a block of %llu bytes that the function uses beside its arguments was freed, for the "
             "%uth time after a capture: keep it, or give it as an argument",
             (unsigned long long)lost.lost_bytes, shape->stale_graphs);
    set_reason(shape, RP_SHAPE_EAGER, why);
    rpi_log(RP_LOG_WARNING, "'%s' of %s stays eager: %s", callable->name, shape->text, why);
}

/* ---- Fresh outputs ------------------------------------------------------------------------- */

static void drop_fresh(struct rp_callable *callable, struct rp_arg *args, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        if (!callable->look.fresh[k])
            continue;
        rp_heap_free(callable->heap, args[k].address, NULL);
        args[k].address = 0;
    }
}

/* Memory for outputs that have none: of the bucket's size for a graph, of their own else. */
static rp_status take_fresh(struct rp_callable *callable, const struct rp_inputs *inputs,
                            bool for_graph, CUstream stream, struct rp_error *err)
{
    struct rpi_look *look = &callable->look;
    memset(look->fresh, 0, look->room * sizeof *look->fresh);
    for (size_t k = 0; k < inputs->arg_count; k++) {
        struct rp_arg *arg = &inputs->args[k];
        uint64_t bytes = for_graph ? look->args[k].bytes : arg->bytes;
        if (arg->role != RP_ARG_OUT || arg->address || !bytes)
            continue;
        rp_status status =
            callable->heap
                ? rp_heap_alloc(callable->heap, bytes, stream, &arg->address, err)
                : rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_callable_call",
                            "output %zu of '%.60s' has no address, and the callable has no heap "
                            "that fresh outputs could come from",
                            k, callable->name);
        if (status != RP_OK) {
            drop_fresh(callable, inputs->args, k);
            return status;
        }
        look->fresh[k] = true;
        look->storages[look->places[k].storage].address = arg->address;
    }
    return RP_OK;
}

/* Tells the caller of memory that is a bucket's: it has more bytes, and maybe gaps. */
static void show_fresh(const struct rp_callable *callable, const struct rpi_shape *shape,
                       struct rp_arg *args)
{
    for (size_t k = 0; k < shape->arg_count; k++) {
        const struct rpi_tensor *bucket = &shape->tensors[k];
        if (!callable->look.fresh[k])
            continue;
        int64_t stride = 1;
        bool gaps = false;
        for (uint32_t i = args[k].rank; !args[k].strides && i-- > 0;) {
            gaps |= args[k].shape[i] > 1 && bucket->strides[i] != stride;
            stride *= args[k].shape[i];
        }
        if (gaps)
            args[k].strides = bucket->strides;
        args[k].bytes = bucket->bytes;
    }
}

/* ---- A call -------------------------------------------------------------------------------- */

enum way {
    WAY_REPLAY,
    WAY_CAPTURE,    /* capture, then replay */
    WAY_EAGER,      /* run eagerly */
    WAY_EAGER_FIRST /* run eagerly, then capture for later calls */
};

/* May the shape become a graph? It stays eager otherwise. */
static bool has_room(const struct rp_callable *callable, struct rpi_shape *shape)
{
    if (!callable->most_graphs || callable->info.graphs < callable->most_graphs)
        return true;
    set_reason(shape, RP_SHAPE_EAGER, "the callable has as many graphs as most_graphs allows");
    return false;
}

/* The shape's choice; NULL where there is no host memory: then the call goes by the graph. */
static struct rp_way_choice *choice_of(struct rp_callable *callable, struct rpi_shape *shape)
{
    if (shape->choice || rp_way_choice_create(&callable->judge, &shape->choice, NULL) != RP_OK)
        return shape->choice;
    if (shape->graph)
        rp_way_choice_captured(shape->choice, 1, shape->capture_ms);
    return shape->choice;
}

/* As the shape's choice says, which *out_turn is to tell. */
static enum way judge(struct rp_callable *callable, struct rpi_shape *shape, CUstream stream,
                      struct rp_way_turn *out_turn)
{
    if (!choice_of(callable, shape))
        return shape->state == RP_SHAPE_GRAPH ? WAY_REPLAY : WAY_EAGER;
    rp_way_choice_begin(shape->choice, stream, 0, out_turn);
    if (out_turn->way != RP_WAY_CAPTURE)
        return out_turn->way == RP_WAY_EAGER ? WAY_EAGER : WAY_REPLAY;
    if (!has_room(callable, shape))
        return WAY_EAGER;
    return shape->state == RP_SHAPE_RETRY ? WAY_EAGER_FIRST : WAY_CAPTURE;
}

/* How this call of the shape is done. */
static enum way choose_way(struct rp_callable *callable, struct rpi_shape *shape, CUstream stream,
                           struct rp_way_turn *out_turn)
{
    if (callable->policy == RP_POLICY_NEVER)
        return WAY_EAGER;
    if (callable->policy == RP_POLICY_AUTO && shape->state != RP_SHAPE_EAGER && callable->warm)
        return judge(callable, shape, stream, out_turn);
    switch (shape->state) {
    case RP_SHAPE_GRAPH:
        return WAY_REPLAY;
    case RP_SHAPE_EAGER:
        return WAY_EAGER;
    case RP_SHAPE_RETRY:
        return WAY_EAGER_FIRST;
    case RP_SHAPE_NEW:
        break;
    }
    if (!callable->warm || !has_room(callable, shape))
        return WAY_EAGER;
    return WAY_CAPTURE;
}

/* Eagerly, with the heap's memory where there is one. */
static rp_status run_now(struct rp_callable *callable, struct rpi_callable_run *run,
                         const struct rp_inputs *inputs, CUstream stream, struct rp_error *err)
{
    if (!callable->heap)
        return rp_run(callable->pool, rpi_callable_run, run, inputs->args, inputs->arg_count,
                      stream, err);
    rp_status status = rp_device_push(callable->device, err);
    if (status != RP_OK)
        return status;
    status = rpi_run_on_heap(callable->heap, callable->name, run, stream, err);
    rp_device_pop(callable->device);
    return status;
}

/* With the caller's own arguments. */
static rp_status run_eagerly(struct rp_callable *callable, struct rpi_shape *shape,
                             const struct rp_inputs *inputs, CUstream stream, struct rp_error *err)
{
    rp_status status = take_fresh(callable, inputs, false, stream, err);
    if (status != RP_OK)
        return status;
    struct rpi_callable_run run = rpi_callable_run_of(callable);
    run.args = inputs->args;
    run.places = NULL;
    status = run_now(callable, &run, inputs, stream, err);
    if (status != RP_OK) {
        drop_fresh(callable, inputs->args, inputs->arg_count);
        return status;
    }
    callable->warm = true;
    callable->info.eager_runs++;
    shape->eager_runs++;
    return RP_OK;
}

/* A padded call would leave its copies in a capture that its replay is refused in. */
static rp_status check_stream(const struct rp_callable *callable, CUstream stream,
                              struct rp_error *err)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = callable->device->driver->cuStreamIsCapturing(stream, &capturing);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuStreamIsCapturing", "calling '%.60s'",
                                callable->name);
    if (capturing != CU_STREAM_CAPTURE_STATUS_NONE)
        return rpi_error(err, RP_ERROR_UNSUPPORTED, "rp_callable_call",
                         "'%.60s' cannot be called into a capture", callable->name);
    return RP_OK;
}

static rp_status replay_padded(struct rp_callable *callable, struct rpi_shape *shape,
                               const struct rp_inputs *inputs, CUstream stream,
                               struct rp_error *err)
{
    struct rpi_buckets *buckets = &callable->buckets;
    const struct rpi_look *look = &callable->look;
    rp_status status = check_stream(callable, stream, err);
    if (status == RP_OK)
        status = rpi_buckets_reserve(buckets, err);
    if (status != RP_OK)
        return status;
    status = rpi_buckets_copy_in(buckets, shape, inputs->args, stream, err);
    if (status == RP_OK)
        status = rp_graph_replay(shape->graph, look->storages, look->storage_count, stream, err);
    if (status == RP_OK)
        status = rpi_buckets_copy_out(buckets, shape, inputs->args, stream, err);
    rpi_buckets_used(buckets, stream);
    if (status == RP_OK) {
        callable->info.padded_calls++;
        shape->padded_calls++;
    }
    return status;
}

static rp_status replay(struct rp_callable *callable, struct rpi_shape *shape,
                        const struct rp_inputs *inputs, CUstream stream, struct rp_error *err)
{
    const struct rpi_look *look = &callable->look;
    rp_status status = take_fresh(callable, inputs, true, stream, err);
    if (status != RP_OK)
        return status;
    if (!callable->buckets.any) {
        status = rp_graph_replay(shape->graph, look->storages, look->storage_count, stream, err);
    } else if ((status = rp_device_push(callable->device, err)) == RP_OK) {
        status = replay_padded(callable, shape, inputs, stream, err);
        rp_device_pop(callable->device);
    }
    if (status != RP_OK) {
        drop_fresh(callable, inputs->args, inputs->arg_count);
        return status;
    }
    show_fresh(callable, shape, inputs->args);
    callable->info.replays++;
    shape->replays++;
    return RP_OK;
}

/* What the call that asked for a capture becomes: where a policy judges, it is asked once more. */
static enum way after_capture(struct rp_callable *callable, struct rpi_shape *shape,
                              rp_status captured, CUstream stream, struct rp_way_turn *out_turn)
{
    if (!shape->choice)
        return captured == RP_OK ? WAY_REPLAY : WAY_EAGER_FIRST;
    return judge(callable, shape, stream, out_turn);
}

static rp_status call_locked(struct rp_callable *callable, const struct rp_inputs *inputs,
                             CUstream stream, struct rp_error *err)
{
    const struct calling calling = {inputs, stream};
    struct rpi_shape *shape;
    rp_status status = find_shape(callable, inputs, &shape, err);
    if (status != RP_OK)
        return status;
    drop_stale(callable, shape);
    struct rp_way_turn turn = {.way = RP_WAY_EAGER};
    enum way way = choose_way(callable, shape, stream, &turn);
    if (way == WAY_CAPTURE) {
        struct rp_error failure;
        status = capture_shape(callable, shape, &calling, RP_SHAPE_RETRY, &failure);
        if (status != RP_OK && !is_work_arounds(status)) {
            if (err)
                *err = failure;
            return status;
        }
        way = after_capture(callable, shape, status, stream, &turn);
    }
    status = way == WAY_REPLAY ? replay(callable, shape, inputs, stream, err)
                               : run_eagerly(callable, shape, inputs, stream, err);
    if (turn.step)
        rp_way_choice_end(shape->choice, &turn, status == RP_OK);
    if (status == RP_OK && way == WAY_EAGER_FIRST) /* what fails is told by the shape */
        capture_shape(callable, shape, &calling, RP_SHAPE_EAGER, NULL);
    return status;
}

rp_status rpi_callable_begin(struct rp_callable *callable, const struct rp_inputs *inputs,
                             size_t count, const char *function, struct rp_error *err)
{
    if (rpi_is_forked() || !callable || (count && !inputs))
        return rpi_refuse(err, function, callable ? "inputs" : "callable");
    rp_status status = RP_OK;
    for (size_t i = 0; status == RP_OK && i < count; i++) {
        status = rpi_check_args(function, inputs[i].args, inputs[i].arg_count, err);
        if (status == RP_OK && inputs[i].key_bytes && !inputs[i].key)
            status = rpi_error(err, RP_ERROR_INVALID_ARGUMENT, function,
                               "key_bytes is %zu, but key is NULL", inputs[i].key_bytes);
    }
    if (status != RP_OK)
        return status;
    return rpi_gate_for_callable(&callable->gate, function, callable->name, err);
}

rp_status rp_callable_call(struct rp_callable *callable, const struct rp_inputs *inputs,
                           struct CUstream_st *stream, struct rp_error *err)
{
    if (rpi_is_forked() || !callable || !inputs)
        return rpi_refuse(err, "rp_callable_call", !callable ? "callable" : "inputs");
    rp_status status = rpi_callable_begin(callable, inputs, 1, "rp_callable_call", err);
    if (status != RP_OK)
        return status;
    status = call_locked(callable, inputs, stream, err);
    callable->info.calls += status == RP_OK;
    rpi_gate_leave(&callable->gate);
    return status;
}

/* ---- Ahead of time ------------------------------------------------------------------------- */

struct ranked {
    uint64_t bytes;
    size_t index;
};

static int compare_ranks(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->index < y->index ? -1 : 1;
}

/* The inputs by the bytes of their arguments, the largest first. NULL for want of memory. */
static struct ranked *rank(const struct rp_inputs *inputs, size_t count)
{
    struct ranked *ranks = rpi_calloc(count + 1, sizeof *ranks);
    for (size_t i = 0; ranks && i < count; i++) {
        ranks[i].index = i;
        for (size_t k = 0; k < inputs[i].arg_count; k++)
            ranks[i].bytes += inputs[i].args[k].bytes;
    }
    if (ranks)
        qsort(ranks, count, sizeof *ranks, compare_ranks);
    return ranks;
}

static void describe_choice(const struct rp_way_choice *choice, struct rp_shape_info *info)
{
    struct rp_way_choice_info told = {.size = sizeof told};
    rp_way_choice_info(choice, &told);
    info->choice = told.choice;
    info->choice_reason = told.reason;
    info->eager_us = told.eager_us;
    info->graph_us = told.graph_us;
    info->measured_calls = told.measured_calls;
}

static void describe_shape(const struct rpi_shape *shape, struct rp_shape_info *info)
{
    assert((shape->state == RP_SHAPE_GRAPH) == (shape->graph != NULL));
    *info = (struct rp_shape_info){.size = sizeof *info,
                                   .text = shape->text,
                                   .reason = shape->reason,
                                   .graph = shape->graph,
                                   .state = shape->state,
                                   .replays = shape->replays,
                                   .eager_runs = shape->eager_runs,
                                   .padded_calls = shape->padded_calls,
                                   .capture_ms = shape->capture_ms,
                                   .stale_graphs = shape->stale_graphs};
    if (!shape->reason && (shape->state == RP_SHAPE_RETRY || shape->state == RP_SHAPE_EAGER))
        info->reason = "there was no host memory to keep the reason";
    if (shape->choice)
        describe_choice(shape->choice, info);
    if (!shape->graph)
        return;
    struct rp_graph_info graph = {.size = sizeof graph};
    rp_graph_info(shape->graph, &graph);
    info->planned_bytes = graph.planned_bytes;
    info->lower_bound_bytes = graph.lower_bound_bytes;
    info->nodes = graph.nodes;
}

static rp_status capture_one(struct rp_callable *callable, const struct rp_inputs *inputs,
                             struct rp_shape_info *out_info, struct rp_error *err)
{
    assert(rpi_gate_is_own(&callable->gate));
    struct rpi_shape *shape;
    rp_status status = find_shape(callable, inputs, &shape, err);
    if (status != RP_OK)
        return status;
    drop_stale(callable, shape);
    if ((shape->state == RP_SHAPE_NEW || shape->state == RP_SHAPE_RETRY) &&
        has_room(callable, shape))
        status = capture_shape(callable, shape, NULL, RP_SHAPE_RETRY, err);
    if (status != RP_OK && !is_work_arounds(status))
        return status;
    describe_shape(shape, out_info);
    return RP_OK;
}

rp_status rp_callable_capture(struct rp_callable *callable, const struct rp_inputs *inputs,
                              size_t count, rp_progress_fn progress, void *user, size_t *out_failed,
                              struct rp_error *err)
{
    if (rpi_is_forked() || !callable || (count && !inputs))
        return rpi_refuse(err, "rp_callable_capture", !callable ? "callable" : "inputs");
    rp_status status = rpi_callable_begin(callable, inputs, count, "rp_callable_capture", err);
    if (status != RP_OK)
        return status;
    size_t failed = 0;
    struct ranked *ranks = rank(inputs, count);
    if (!ranks)
        status = rpi_error_host_memory(err, "rp_callable_capture", count * sizeof *ranks);
    for (size_t i = 0; status == RP_OK && i < count; i++) {
        struct rp_shape_info info = {.size = sizeof info};
        status = capture_one(callable, &inputs[ranks[i].index], &info, err);
        failed += status == RP_OK && info.state != RP_SHAPE_GRAPH;
        if (status == RP_OK && progress)
            progress(i + 1, count, &info, user);
    }
    rpi_free(ranks);
    rpi_gate_leave(&callable->gate);
    if (status == RP_OK && out_failed)
        *out_failed = failed;
    return status;
}

/* ---- Reports ------------------------------------------------------------------------------- */

/* The function and the progress callback, which run within the gate, may ask too. False where
 * asking would wait in a circle: then nothing is known. */
static bool enter_to_read(struct rp_callable *callable, bool *out_entered)
{
    enum rpi_gate_answer answer = rpi_gate_take(&callable->gate);
    *out_entered = answer == RPI_GATE_TAKEN;
    return answer != RPI_GATE_CIRCLE;
}

void rp_callable_info(struct rp_callable *callable, struct rp_callable_info *out_info)
{
    bool entered;
    if (rpi_is_forked() || !callable || !out_info || !enter_to_read(callable, &entered)) {
        rpi_give_nothing(out_info);
        return;
    }
    struct rp_callable_info info = callable->info;
    info.name = callable->name;
    info.pool = callable->pool;
    info.staging_bytes = callable->buckets.arena.mapped;
    info.shapes = callable->shapes.all.count;
    for (size_t i = 0; i < info.shapes; i++)
        info.eager_shapes += callable->shapes.all.data[i]->state == RP_SHAPE_EAGER;
    if (entered)
        rpi_gate_leave(&callable->gate);
    rpi_give(out_info, &info, sizeof info, __func__);
}

int rp_callable_shape_info(struct rp_callable *callable, size_t index,
                           struct rp_shape_info *out_info)
{
    bool entered;
    if (rpi_is_forked() || !callable || !out_info || !enter_to_read(callable, &entered))
        return 0;
    struct rp_shape_info info = {.size = sizeof info};
    bool there = index < callable->shapes.all.count;
    if (there)
        describe_shape(callable->shapes.all.data[index], &info);
    if (entered)
        rpi_gate_leave(&callable->gate);
    return there && rpi_give(out_info, &info, sizeof info, __func__);
}
