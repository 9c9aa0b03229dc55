/* SPDX-License-Identifier: MIT
 *
 * rp_graph, once it is captured: waiting for it, releasing and destroying it, and what is known of
 * it. graph_capture.c makes one, replay.c replays it.
 */
#include "graph/handles/adopt.h"

#include "base/refuse.h"
#include "base/sized.h"
#include "graph/exec/exec_cache.h"
#include "graph/handles/graph_object.h"
#include "graph/objects/device_context.h"
#include "graph/objects/wait.h"
#include "reprise_framework.h"

/* Waits until the graph's last replay is over; where the event says nothing, for its stream. */
static void wait_for_replays(struct rp_graph *graph)
{
    const struct rp_driver *driver = graph->pool->device->driver;
    pthread_mutex_lock(&graph->pool->core->lock);
    struct rpi_pool_member last = graph->member;
    pthread_mutex_unlock(&graph->pool->core->lock);
    rpi_wait_for_member(driver, &last);
}

static CUresult wait_for_stream(const struct rp_driver *driver,
                                const struct rpi_pool_member *member)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = driver->cuStreamIsCapturing(member->stream, &capturing);
    if (result != CUDA_SUCCESS || capturing != CU_STREAM_CAPTURE_STATUS_NONE)
        return result;
    return driver->cuStreamSynchronize(member->stream);
}

rp_status rp_graph_wait(struct rp_graph *graph, struct rp_error *err)
{
    if (rpi_is_forked() || !graph)
        return rpi_refuse(err, "rp_graph_wait", "graph");
    bool pushed = false;
    if (!graph || graph->adopted)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_graph_wait", "%s",
                         !graph ? "graph is NULL"
                                : "the graph was adopted: who replays it knows the stream");
    const struct rp_driver *driver = graph->pool->device->driver;
    rp_status status = rpi_device_enter(graph->pool->device, &pushed, err);
    if (status != RP_OK)
        return status;
    pthread_mutex_lock(&graph->pool->core->lock);
    struct rpi_pool_member last = graph->member;
    pthread_mutex_unlock(&graph->pool->core->lock);
    CUresult result = CUDA_SUCCESS;
    if (last.turn) {
        int mode = rpi_relax_begin(driver);
        result = wait_for_stream(driver, &last);
        rpi_relax_end(driver, mode);
    }
    if (pushed)
        rp_device_pop(graph->pool->device);
    return result == CUDA_SUCCESS ? RP_OK
                                  : rpi_error_driver(err, result, "cuStreamSynchronize",
                                                     "waiting for what uses '%.60s'", graph->name);
}

rp_status rp_graph_release(struct rp_graph *graph, struct rp_error *err)
{
    if (rpi_is_forked() || !graph)
        return rpi_refuse(err, "rp_graph_release", "graph");
    if (!graph || graph->adopted)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_graph_release", "%s",
                         !graph ? "graph is NULL"
                                : "the graph was adopted: rp_graph_let_go lets its blocks go");
    struct rpi_pool_core *core = graph->pool->core;
    pthread_mutex_lock(&core->lock);
    rpi_pool_release(&core->memory, &graph->member);
    pthread_mutex_unlock(&core->lock);
    return RP_OK;
}

void rp_graph_destroy(struct rp_graph *graph)
{
    if (!graph || rpi_is_forked())
        return;
    if (graph->adopted) {
        rpi_adopted_destroy(graph);
        return;
    }
    struct rp_pool *pool = graph->pool;
    const struct rp_driver *driver = pool->device->driver;
    bool pushed = rpi_device_push_to_release(pool->device);
    wait_for_replays(graph);
    rpi_exec_leave(graph->client);
    pthread_mutex_lock(&pool->core->lock);
    rpi_reads_removed(graph);
    rpi_pool_remove(&pool->core->memory, &graph->member.node);
    rpi_binding_release(graph->binding);
    rpi_staging_settle(pool->core);
    pthread_mutex_unlock(&pool->core->lock);
    driver->cuEventDestroy(graph->member.done);
    if (pushed)
        rp_device_pop(pool->device);
    rpi_graph_free(graph);
}

int rp_graph_is_stale(const struct rp_graph *graph)
{
    if (rpi_is_forked() || !graph)
        return 0;
    return rpi_heap_watches_lost(&graph->outside) != NULL;
}

void rp_graph_info(const struct rp_graph *graph, struct rp_graph_info *out_info)
{
    if (rpi_is_forked() || !graph || !out_info) {
        rpi_give_nothing(out_info);
        return;
    }
    pthread_mutex_lock(&graph->pool->core->lock);
    struct rp_graph_info info = graph->info;
    info.replays = graph->replays;
    const struct rpi_heap_watch *lost = rpi_heap_watches_lost(&graph->outside);
    info.outside_blocks = graph->outside.count;
    info.lost_address = lost ? lost->address : 0;
    info.lost_bytes = lost ? lost->bytes : 0;
    for (size_t k = 0; k < graph->arg_count; k++) {
        const struct rpi_bind_arg *arg = &graph->binding->args[k];
        info.bindable_args += arg->bytes && arg->never == RPI_COPY_NOT;
        info.staging_bytes += arg->backed ? arg->bytes : 0;
        info.unverified_args += arg->never == RPI_COPY_UNVERIFIED || arg->never == RPI_COPY_WRONG;
        if (!graph->replays || !arg->bytes)
            continue;
        info.bound_args += arg->reason == RPI_COPY_NOT;
        info.copied_args += arg->reason != RPI_COPY_NOT;
    }
    if (!graph->adopted) {
        info.patched_nodes = graph->exec->patched;
        rpi_exec_client_tell(graph->client, &info);
    }
    pthread_mutex_unlock(&graph->pool->core->lock);
    rpi_give(out_info, &info, sizeof info, __func__);
}

rp_status rp_graph_arg_info(const struct rp_graph *graph, size_t index,
                            struct rp_graph_arg_info *out_info, struct rp_error *err)
{
    if (rpi_is_forked() || !graph || !out_info)
        return rpi_refuse(err, "rp_graph_arg_info", !graph ? "graph" : "out_info");
    if (!graph || !out_info || index >= graph->arg_count)
        return rpi_error(err, RP_ERROR_INVALID_ARGUMENT, "rp_graph_arg_info", "%s",
                         !graph      ? "graph is NULL"
                         : !out_info ? "out_info is NULL"
                                     : "there is no argument of this index");
    pthread_mutex_lock(&graph->pool->core->lock);
    const struct rpi_bind_arg *arg = &graph->binding->args[index];
    enum rpi_copy_reason reason = graph->replays ? arg->reason : arg->never;
    const struct rp_graph_arg_info info = {
        .sites = arg->all_sites,
        .bindable = arg->bytes && arg->never == RPI_COPY_NOT,
        .bound = graph->replays && arg->bytes && arg->reason == RPI_COPY_NOT,
        .reason = rpi_copy_reason_text(arg->bytes ? reason : RPI_COPY_EMPTY),
        .nodes = arg->use_count,
    };
    pthread_mutex_unlock(&graph->pool->core->lock);
    return rpi_hand_out(out_info, &info, sizeof info, __func__, err);
}
