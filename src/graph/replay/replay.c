/* SPDX-License-Identifier: MIT
 *
 * rp_graph_replay: check the contract, bind the arguments, put the replay behind those that
 * share its memory, copy in what is not bound, launch, copy out. Everything goes to the caller's
 * stream. The driver orders launches of one exec only, so a replay waits for the events that were
 * recorded behind the others' on other streams.
 */
#include "graph/replay/replay.h"
#include "base/clock.h"
#include "base/held.h"
#include "base/log.h"
#include "base/refuse.h"
#include "graph/bind/copy_choice.h"
#include "graph/exec/exec_cache.h"
#include "graph/objects/device_context.h"
#include "graph/objects/objects.h"
#include "graph/replay/argument_memory.h"
#include "memory/pool/replay_order.h"
#include "reprise_framework.h"

#include <assert.h>

static rp_status check_stream(const struct rp_graph *graph, CUstream stream, struct rp_error *err)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = graph->pool->device->driver->cuStreamIsCapturing(stream, &capturing);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuStreamIsCapturing", "replaying '%s'", graph->name);
    if (capturing != CU_STREAM_CAPTURE_STATUS_NONE)
        return rpi_error(err, RP_ERROR_UNSUPPORTED, "rp_graph_replay",
                         "graph '%s' cannot be replayed into a capture: its memory would be used "
                         "in an order that the pool cannot see. Replay it before or after",
                         graph->name);
    return RP_OK;
}

/* ---- Copies -------------------------------------------------------------------------------- */

/* Lists the values, where the direction is in, and the copies between the caller's buffers and the
 * staging of arguments that have this role and are not bound. */
static void list_copies(const struct rp_graph *graph, const struct rp_arg *args,
                        enum rp_arg_role direction, struct rpi_copy_list *list)
{
    assert(direction == RP_ARG_IN || direction == RP_ARG_OUT);
    const struct rpi_binding *binding = graph->binding;
    bool out = direction == RP_ARG_OUT;
    size_t count = 0;
    for (size_t i = 0; !out && i < binding->value_count; i++) {
        list->args[count] = RPI_COPY_OF_VALUE;
        list->copies[count++] =
            (struct rpi_copy){binding->value_addresses[i], binding->values[i], 0};
    }
    for (size_t i = 0; binding->copied && i < graph->arg_count; i++) {
        const struct rpi_bind_arg *arg = &binding->args[i];
        if (!(arg->role & direction) || !rpi_binding_copies(binding, i))
            continue;
        list->args[count] = (uint32_t)i;
        list->copies[count++] = out ? (struct rpi_copy){args[i].address, arg->staging, arg->bytes}
                                    : (struct rpi_copy){arg->staging, args[i].address, arg->bytes};
    }
    list->count = count;
    list->carried = 0;
}

/* Has the exec make what it can of the listed copies, and no others. */
static rp_status carry(const struct rp_graph *graph, enum rpi_copy_node_end end,
                       struct rpi_copy_list *list, struct rp_error *err)
{
    struct rpi_exec *exec = graph->exec;
    bool out = end == RPI_COPY_NODE_OUT;
    if (!exec->copy_nodes.ends[end].most)
        return RP_OK;
    bool beside = (out && graph->binding->outs_overlap) ||
                  rpi_copier_wants(&graph->pool->device->copier, list->copies, list->count);
    CUresult result = rpi_copy_nodes_give(&exec->copy_nodes, end, exec->handle, exec->nodes,
                                          list->copies, beside ? 0 : list->count, &list->carried);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphExecKernelNodeSetParams",
                                "replaying '%s': changing the node that copies arguments %s",
                                graph->name, out ? "out" : "in");
    return RP_OK;
}

static rp_status copy_failed(const struct rp_graph *graph, enum rpi_copy_node_end end, uint32_t arg,
                             CUresult result, const struct rpi_copy_failure *failure,
                             struct rp_error *err)
{
    const char *where = end == RPI_COPY_NODE_IN ? "in" : "out";
    if (arg == RPI_COPY_OF_VALUE)
        return rpi_error_driver(err, result, failure->function, "replaying '%s': setting values",
                                graph->name);
    if (failure->count > 1)
        return rpi_error_driver(err, result, failure->function,
                                "replaying '%s': copying %zu arguments %s from number %u on",
                                graph->name, failure->count, where, arg);
    return rpi_error_driver(err, result, failure->function,
                            "replaying '%s': copying argument %u %s", graph->name, arg, where);
}

/* Makes the listed copies that the graph does not. */
static rp_status copy(const struct rp_graph *graph, enum rpi_copy_node_end end,
                      const struct rpi_copy_list *list, CUstream stream, struct rp_error *err)
{
    bool in_order = end == RPI_COPY_NODE_OUT && graph->binding->outs_overlap;
    if (list->carried == list->count)
        return RP_OK;
    assert(list->carried < list->count);
    struct rpi_copy_failure failure = {0};
    CUresult result = rpi_copier_run(&graph->pool->device->copier, list->copies + list->carried,
                                     list->count - list->carried, in_order, stream, &failure);
    if (result == CUDA_SUCCESS)
        return RP_OK;
    assert(failure.first < list->count - list->carried);
    return copy_failed(graph, end, list->args[list->carried + failure.first], result, &failure,
                       err);
}

/* out_launch_us: what the launch took, where that is asked for. */
static rp_status enqueue(const struct rp_graph *graph, const struct rp_arg *args, CUstream stream,
                         double *out_launch_us, struct rp_error *err)
{
    struct rpi_copy_list *in = &graph->binding->in, *out = &graph->binding->out;
    list_copies(graph, args, RP_ARG_IN, in);
    list_copies(graph, args, RP_ARG_OUT, out);
    rp_status status = carry(graph, RPI_COPY_NODE_IN, in, err);
    if (status == RP_OK)
        status = carry(graph, RPI_COPY_NODE_OUT, out, err);
    if (status == RP_OK)
        status = copy(graph, RPI_COPY_NODE_IN, in, stream, err);
    if (status != RP_OK)
        return status;
    uint64_t start = out_launch_us ? rpi_clock_ns() : 0;
    CUresult result = rpi_exec_launch(graph->client, stream);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuGraphLaunch", "replaying '%s'", graph->name);
    if (out_launch_us)
        *out_launch_us = (double)(rpi_clock_ns() - start) * 1e-3;
    return copy(graph, RPI_COPY_NODE_OUT, out, stream, err);
}

/* ---- Order --------------------------------------------------------------------------------- */

/* A pool that is strict has its replays come when what they must wait for is over. */
static rp_status check_overlap(const struct rp_graph *graph, const struct rpi_pool_member *member,
                               struct rp_error *err)
{
    assert(graph->pool->strict_overlap && member->busy);
    const struct rp_driver *driver = graph->pool->device->driver;
    int mode = rpi_relax_begin(driver);
    bool over = driver->cuEventQuery(member->done) == CUDA_SUCCESS;
    rpi_relax_end(driver, mode);
    const char *other = rpi_graph_of(member)->name;
    if (over)
        return RP_OK;
    return rpi_error(err, RP_ERROR_CONTRACT, "rp_graph_replay",
                     "graph '%.60s' would run while a replay of '%.60s' on another stream is not "
                     "over, and pool '%.60s' is strict about that: replay both on one stream, or "
                     "wait for '%.60s' first",
                     graph->name, other, graph->pool->name, other);
}

/* Waits for a member's last replay. The per-thread stream is another one in every thread. */
static rp_status wait_for(const struct rp_graph *graph, struct rpi_pool_member *member,
                          CUstream stream, struct rp_error *err)
{
    const struct rp_driver *driver = graph->pool->device->driver;
    if (!member->busy || (member->stream == stream && stream != CU_STREAM_PER_THREAD))
        return RP_OK;
    if (member->unmarked) { /* its event is of an earlier replay */
        CUresult failed = driver->cuStreamSynchronize(member->stream);
        if (failed != CUDA_SUCCESS)
            return rpi_error_driver(err, failed, "cuStreamSynchronize",
                                    "waiting for a replay of '%s' whose event could not be "
                                    "recorded",
                                    rpi_graph_of(member)->name);
        member->busy = member->unmarked = false;
        return RP_OK;
    }
    if (graph->pool->strict_overlap) {
        rp_status status = check_overlap(graph, member, err);
        if (status != RP_OK)
            return status;
    }
    CUresult result = driver->cuStreamWaitEvent(stream, member->done, 0);
    if (result != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuStreamWaitEvent",
                                "putting a replay of '%s' behind another of pool '%s'", graph->name,
                                graph->pool->name);
    return RP_OK;
}

static rp_status wait_for_turn(struct rp_graph *graph, CUstream stream, struct rp_error *err)
{
    rpi_assert_held(&graph->pool->core->lock);
    struct rpi_pool *memory = &graph->pool->core->memory;
    rp_status status = rpi_replay_order_ahead(memory, &graph->member, err);
    if (status == RP_OK)
        status = wait_for(graph, &graph->member, stream, err);
    for (size_t i = 0; status == RP_OK && i < memory->ahead.count; i++)
        status = wait_for(graph, memory->ahead.data[i], stream, err);
    return status;
}

/* Remembers where the graph's memory is in use. The event is recorded now and not when somebody
 * waits: by then the stream may be gone, may be capturing, or may hold work of the caller's that
 * waits for the one who comes. A driver that cannot record an event is made to
 * finish instead, so that whoever comes next need not wait. */
static rp_status mark(struct rp_graph *graph, CUstream stream, struct rp_error *err)
{
    rpi_assert_held(&graph->pool->core->lock);
    const struct rp_driver *driver = graph->pool->device->driver;
    rpi_replay_order_take(&graph->pool->core->memory, &graph->member);
    graph->member.stream = stream;
    graph->member.busy = true;
    CUresult result = driver->cuEventRecord(graph->member.done, stream);
    graph->member.unmarked = result != CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        return RP_OK;
    if (driver->cuStreamSynchronize(stream) != CUDA_SUCCESS)
        return rpi_error_driver(err, result, "cuEventRecord", "marking a replay of '%s'",
                                graph->name);
    graph->member.busy = graph->member.unmarked = false;
    return RP_OK;
}

/* ---- Binding ------------------------------------------------------------------------------- */

/* Memory where this call copies for the first time. The nodes that use it are given once more, as
 * something else was mapped there when they were made. */
static rp_status back_copied(struct rp_graph *graph, struct rp_error *err)
{
    rpi_assert_held(&graph->pool->core->lock);
    struct rpi_binding *binding = graph->binding;
    rp_status status = RP_OK;
    for (size_t k = 0; status == RP_OK && binding->copied && k < binding->arg_count; k++) {
        if (!rpi_binding_copies(binding, k) || binding->args[k].backed)
            continue;
        status = rpi_binding_back(binding, k, err);
        graph->exec->bound[k] = 0;
    }
    return status;
}

/* Memory where it is needed; what is copied by choice is bound where there is none. */
static rp_status prepare_copies(struct rp_graph *graph, struct rp_error *err)
{
    struct rp_error failure = {0};
    rp_status status = back_copied(graph, &failure);
    bool full = status == RP_ERROR_LIMIT || status == RP_ERROR_OUT_OF_DEVICE_MEMORY;
    if (full && rpi_binding_give_up_copies(graph->binding)) {
        rpi_log(RP_LOG_INFO, "'%.60s' goes on binding its arguments: %s", graph->name,
                failure.message);
        status = back_copied(graph, &failure);
    }
    if (status != RP_OK && err)
        *err = failure;
    return status;
}

/* What the driver refuses to bind is copied, which may need memory. */
static rp_status bind(struct rp_graph *graph, struct rp_error *err)
{
    enum rpi_bind_answer answer = RPI_BIND_NEEDS_MEMORY;
    graph->exec->renewed = false;
    rp_status status = prepare_copies(graph, err);
    while (status == RP_OK && answer != RPI_BIND_BOUND) {
        status = rpi_exec_bind(graph->exec, graph->binding, graph->name, &answer, err);
        if (status == RP_OK && answer == RPI_BIND_NEEDS_EXEC)
            status = rpi_exec_renew(graph->client, err);
        if (status == RP_OK && answer != RPI_BIND_BOUND)
            status = prepare_copies(graph, err);
    }
    return status;
}

/* ---- Replays ------------------------------------------------------------------------------- */

/* With an exec taken. What changing nodes takes is learned where something is to be chosen. */
static rp_status replay_taken(struct rp_graph *graph, const struct rp_arg *args, CUstream stream,
                              struct rp_error *err)
{
    assert(graph->client->taken && graph->exec->handle);
    uint64_t before = graph->exec->patched, start = graph->binding->choice ? rpi_clock_ns() : 0;
    rp_status status = bind(graph, err);
    uint64_t given = graph->exec->patched - before;
    bool timed = rpi_copy_choice_wants_time(graph->binding->choice, given) &&
                 !graph->exec->renewed && !graph->client->updated;
    double bind_us = timed ? (double)(rpi_clock_ns() - start) * 1e-3 : 0, launch_us = 0;
    if (status == RP_OK)
        status = wait_for_turn(graph, stream, err);
    if (status != RP_OK)
        return status;
    status = enqueue(graph, args, stream, timed ? &launch_us : NULL, err);
    if (timed && status == RP_OK)
        rpi_copy_choice_learn(graph->binding->choice, given, bind_us + launch_us);
    rp_status marked = mark(graph, stream, status == RP_OK ? err : NULL);
    rpi_reads_done(graph, status == RP_OK);
    graph->replays += status == RP_OK;
    return status == RP_OK ? marked : status;
}

static rp_status check_scalars(const struct rp_graph *graph, struct rp_error *err)
{
    const struct rpi_bound_scalars *scalars = &graph->binding->scalars;
    if (scalars->set || !scalars->count)
        return RP_OK;
    return rpi_error(err, RP_ERROR_CONTRACT, "rp_graph_replay",
                     "graph '%.60s' has %zu scalars (rp_call_scalar), and was not told what they "
                     "are: rp_graph_set_scalars",
                     graph->name, scalars->count);
}

/* With the core's lock held. */
static rp_status replay(struct rp_graph *graph, const struct rp_arg *args, const uint64_t *values,
                        CUstream stream, struct rp_error *err)
{
    rpi_assert_held(&graph->pool->core->lock);
    rp_status status = check_scalars(graph, err);
    graph->binding->values = values;
    if (status == RP_OK && stream != graph->member.stream)
        status = rpi_device_check_stream(graph->pool->device, stream, "rp_graph_replay", err);
    if (status == RP_OK)
        status = rpi_check_memory(graph, args, err);
    if (status == RP_OK)
        status = rpi_reads_check(graph, err);
    if (status == RP_OK) {
        rpi_binding_choose(graph->binding, args, stream); /* before: an exec is made for these */
        status = rpi_exec_take(graph->client, err);
    }
    if (status != RP_OK)
        return status;
    status = replay_taken(graph, args, stream, err);
    if (graph->client->taken)
        rpi_exec_give(graph->client);
    return status;
}

void rpi_graph_copy_args(struct rp_graph *graph, bool copies)
{
    pthread_mutex_lock(&graph->pool->core->lock);
    rpi_binding_copy_all(graph->binding, copies);
    pthread_mutex_unlock(&graph->pool->core->lock);
}

/* What is there now is not what the capture used. */
static rp_status check_outside(const struct rp_graph *graph, struct rp_error *err)
{
    const struct rpi_heap_watch *lost = rpi_heap_watches_lost(&graph->outside);
    if (!lost)
        return RP_OK;
    return rpi_error(err, RP_ERROR_CONTRACT, "rp_graph_replay",
                     "graph '%.60s' uses %llu bytes at 0x%llx beside its arguments, and that block "
                     "of the heap was freed after the capture: capture it again, keep the block as "
                     "long as the graph, or give it as an argument",
                     graph->name, (unsigned long long)lost->bytes,
                     (unsigned long long)lost->address);
}

rp_status rp_graph_replay(struct rp_graph *graph, const struct rp_arg *args, size_t arg_count,
                          struct CUstream_st *stream, struct rp_error *err)
{
    if (rpi_is_forked() || !graph)
        return rpi_refuse(err, "rp_graph_replay", "graph");
    return rp_graph_replay_values(graph, args, arg_count, NULL, 0, stream, err);
}

static rp_status check_values(const struct rp_graph *graph, size_t count, struct rp_error *err)
{
    if (count == graph->binding->value_count)
        return RP_OK;
    return rpi_error(err, RP_ERROR_CONTRACT, "rp_graph_replay",
                     "graph '%.60s' is given %zu values and has %zu (rp_call_value, "
                     "rp_graph_replay_values)",
                     graph->name, count, graph->binding->value_count);
}

rp_status rp_graph_set_scalars(struct rp_graph *graph, const double *scalars, size_t count,
                               struct rp_error *err)
{
    if (rpi_is_forked() || !graph || (count && !scalars))
        return rpi_refuse(err, "rp_graph_set_scalars", !graph ? "graph" : "scalars");
    if (graph->adopted)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_graph_set_scalars",
                         "the graph was adopted, and has no scalars");
    struct rpi_bound_scalars *bound = &graph->binding->scalars;
    if (count != bound->count)
        return rpi_error(err, RP_ERROR_CONTRACT, "rp_graph_set_scalars",
                         "graph '%.60s' is given %zu scalars and has %zu (rp_call_scalar)",
                         graph->name, count, bound->count);
    pthread_mutex_lock(&graph->pool->core->lock);
    rpi_bound_scalars_set(bound, scalars);
    pthread_mutex_unlock(&graph->pool->core->lock);
    return RP_OK;
}

rp_status rp_graph_scalar_info(const struct rp_graph *graph, size_t index, size_t *out_places,
                               struct rp_error *err)
{
    if (rpi_is_forked() || !graph || !out_places)
        return rpi_refuse(err, "rp_graph_scalar_info", !graph ? "graph" : "out_places");
    if (graph->adopted || index >= graph->binding->scalars.count)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_graph_scalar_info",
                         "there is no scalar of this index");
    const struct rpi_bound_scalars *scalars = &graph->binding->scalars;
    *out_places = 0;
    for (size_t k = 0; k < scalars->slots.count; k++)
        if (scalars->slots.data[k].scalar == index)
            *out_places += scalars->slots.data[k].use_count;
    return RP_OK;
}

rp_status rp_graph_replay_values(struct rp_graph *graph, const struct rp_arg *args,
                                 size_t arg_count, const uint64_t *values, size_t value_count,
                                 struct CUstream_st *stream, struct rp_error *err)
{
    if (rpi_is_forked() || !graph || (value_count && !values))
        return rpi_refuse(err, "rp_graph_replay_values", !graph ? "graph" : "values");
    if (graph->adopted)
        return rpi_error(err, RP_ERROR_UNSUPPORTED, "rp_graph_replay",
                         "graph '%.60s' was adopted: whoever captured it replays it", graph->name);
    rp_status status = rpi_contract_check_args(graph, args, arg_count, err);
    if (status == RP_OK)
        status = check_values(graph, value_count, err);
    if (status == RP_OK)
        status = check_outside(graph, err);
    if (status != RP_OK)
        return status;
    struct rp_pool *pool = graph->pool;
    bool pushed = false;
    status = rpi_device_enter(pool->device, &pushed, err);
    if (status != RP_OK)
        return status;
    status = check_stream(graph, stream, err);
    if (status == RP_OK) {
        pthread_mutex_lock(&pool->core->lock);
        status = replay(graph, args, values, stream, err);
        pthread_mutex_unlock(&pool->core->lock);
    }
    if (pushed)
        rp_device_pop(pool->device);
    return status;
}
