/* SPDX-License-Identifier: MIT
 *
 * Events. Recorded on a stream, an event is the task that ends all work before it; recorded on a
 * capturing stream it is a set of nodes, and can neither be waited for by the host nor asked about.
 */
#include "base/held.h"
#include "driver/host/state.h"

#include <assert.h>

CUresult rpi_host_cuEventCreate(CUevent *event, unsigned flags)
{
    if (!event || (flags & ~(unsigned)(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    CUevent created = rpi_calloc(1, sizeof *created);
    if (!created || !rpi_host_handle_add(created, RPI_HOST_EVENT)) {
        rpi_free(created);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    created->context = rpi_host_current();
    created->flags = flags;
    rpi_host.event_count++;
    *event = created;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuEventDestroy(CUevent event)
{
    if (!rpi_host_handle_is(event, RPI_HOST_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    rpi_host_handle_remove(event);
    rpi_host_task_drop(event->task);
    rpi_vec_finish(&event->terminals);
    rpi_free(event);
    rpi_host.event_count--;
    return CUDA_SUCCESS;
}

static bool is_of(const void *event, const void *context)
{
    return ((const struct CUevent_st *)event)->context == context;
}

void rpi_host_events_finish(CUcontext context)
{
    rpi_assert_held(&rpi_host.lock);
    CUevent event;
    while ((event = rpi_host_handle_find(RPI_HOST_EVENT, is_of, context)))
        rpi_host_cuEventDestroy(event);
}

void rpi_host_event_set(CUevent event, struct rpi_host_task *task,
                        const struct rpi_host_clock *clock)
{
    rpi_assert_held(&rpi_host.lock);
    rpi_host_task_set(&event->task, task);
    event->clock = *clock;
    event->recorded = true;
    event->capture = 0;
    event->terminals.count = 0;
}

static CUresult record_node(CUstream stream, CUevent event, CUgraphNodeType type)
{
    rpi_assert_held(&rpi_host.lock);
    assert(stream->capture);
    struct rpi_host_op *op = rpi_host_op_create(type);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->event = event;
    CUresult result = rpi_host_capture_add(stream, op, NULL, NULL);
    rpi_host_op_drop(op);
    return result;
}

CUresult rpi_host_cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned flags)
{
    CUstream stream = rpi_host_stream_of(handle);
    if (!rpi_host_handle_is(event, RPI_HOST_EVENT) || !stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (event->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = rpi_host_capture_check(stream);
    if (result)
        return result;
    if (stream->capture)
        return flags ? record_node(stream, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD)
                     : rpi_host_capture_record(stream, event);
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    struct rpi_host_task *marker = rpi_host_stream_marker(stream);
    if (!marker)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct rpi_host_clock clock;
    rpi_host_stream_clock(stream, &clock);
    rpi_host_event_set(event, marker, &clock);
    rpi_host_task_drop(marker);
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuEventRecord(CUevent event, CUstream stream)
{
    return rpi_host_cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT);
}

/* The stream's next op runs after the event. */
static CUresult wait_for(CUstream stream, CUevent event)
{
    rpi_assert_held(&rpi_host.lock);
    assert(!stream->capture && !event->capture);
    if (event->task && !event->task->done) {
        struct rpi_host_task *marker = rpi_host_task_create(NULL);
        bool ok = marker && rpi_host_stream_order(stream, marker) &&
                  rpi_host_task_after(marker, event->task);
        if (marker)
            rpi_host_task_submit(marker);
        if (ok)
            rpi_host_task_set(&stream->tail, marker);
        rpi_host_task_drop(marker);
        if (!ok)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    rpi_host_clock_join(&stream->clock, &event->clock);
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags)
{
    CUstream stream = rpi_host_stream_of(handle);
    if (!rpi_host_handle_is(event, RPI_HOST_EVENT) || !stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = rpi_host_capture_check(stream);
    if (result)
        return result;
    if (flags)
        return stream->capture ? record_node(stream, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT)
                               : CUDA_ERROR_INVALID_VALUE;
    if (stream->capture || event->capture)
        return rpi_host_capture_wait(stream, event);
    return wait_for(stream, event);
}

/* Errors of asking about an event. One that is recorded in a capture under way ends that; once the
 * capture is over the event stands for nothing. */
static CUresult check_question(CUevent event)
{
    rpi_assert_held(&rpi_host.lock);
    if (!rpi_host_handle_is(event, RPI_HOST_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture) {
        struct rpi_host_capture *capture = rpi_host_capture_by_id(event->capture);
        if (!capture || capture->invalid)
            return CUDA_ERROR_INVALID_VALUE;
        capture->invalid = true;
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    return rpi_host_capture_unsafe();
}

CUresult rpi_host_cuEventQuery(CUevent event)
{
    CUresult result = check_question(event);
    if (result)
        return result;
    if (event->task && !event->task->done)
        return CUDA_ERROR_NOT_READY;
    rpi_host_race_settle(&event->clock);
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuEventSynchronize(CUevent event)
{
    CUresult result = check_question(event);
    if (result)
        return result;
    struct rpi_host_clock clock = event->clock;
    rpi_host_task_wait(event->task);
    rpi_host_race_settle(&clock);
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    if (!rpi_host_handle_is(start, RPI_HOST_EVENT) || !rpi_host_handle_is(end, RPI_HOST_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    if (start->capture || end->capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (!start->recorded || !end->recorded || start->context != end->context ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!start->task->done || !end->task->done)
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)(((double)end->task->done_ns - (double)start->task->done_ns) * 1e-6);
    return CUDA_SUCCESS;
}
