/* SPDX-License-Identifier: MIT
 *
 * Streams. A stream's next op runs after the stream's tail; the legacy stream's after the tails of
 * all blocking streams as well, and a blocking stream's after the legacy one's. Work of destroyed
 * streams is kept behind one marker, the orphans, for those who wait for everything.
 *
 * The life of an operation:
 *
 *     made       an op, by op.c from what the program passed
 *       |          rpi_host_enqueue: a capturing stream's goes into its graph (capture.c), and
 *       |          every launch of the graph makes a task of it from then on (executable.c)
 *     ordered    a task (engine.c), made to wait for all that precedes it on the stream:
 *       |          rpi_host_stream_order. Its accesses were compared with those of unordered ones
 *     tail       the stream's next op waits for it: rpi_host_stream_advance, which moves the clock
 *       |
 *     submitted  nothing is added before it any more; `waiting` counts predecessors that are not
 *       |          done
 *     ready      there are none: it lies in the engine's list, in no order
 *       |
 *     running    a thread does its work, without the lock
 *       |
 *     done       successors count it off, who waited is woken, and its last reference frees it
 *
 * A task that could not be ordered, for want of host memory, is cancelled: it becomes a marker, so
 * that what waits for it already is not held up.
 */
#include "driver/host/state.h"

static unsigned take_lane(void)
{
    unsigned best = 0;
    for (unsigned l = 1; l < RPI_HOST_LANES; l++)
        if (rpi_host.lane_users[l] < rpi_host.lane_users[best])
            best = l;
    rpi_host.lane_users[best]++;
    return best;
}

static CUstream create_stream(CUcontext context, unsigned flags, int priority)
{
    CUstream stream = rpi_calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->lane = take_lane();
    /* Positions of a lane go on when a stream takes it over: what its former user did counts as
     * before, so that a lane's reuse hides races but never invents one. */
    stream->clock.at[stream->lane] = rpi_host.lane_positions[stream->lane];
    return stream;
}

static void free_stream(CUstream stream)
{
    rpi_host.lane_users[stream->lane]--;
    rpi_host_task_drop(stream->tail);
    rpi_vec_finish(&stream->terminals);
    rpi_vec_finish(&stream->info_nodes);
    rpi_vec_finish(&stream->info_edges);
    rpi_free(stream);
}

static CUstream legacy_stream(CUcontext context)
{
    if (!context->legacy) {
        context->legacy = create_stream(context, CU_STREAM_DEFAULT, 0);
        if (context->legacy)
            context->legacy->legacy = true;
    }
    return context->legacy;
}

/* Keeps a stream's work in sight that is about to go. Where there is no memory for that, waits. */
static void adopt(CUstream stream)
{
    CUcontext context = stream->context;
    rpi_host_clock_join(&context->orphan_clock, &stream->clock);
    if (!stream->tail || stream->tail->done)
        return;
    struct rpi_host_task *marker = rpi_host_task_create(NULL);
    bool ok = marker && rpi_host_task_after(marker, context->orphans) &&
              rpi_host_task_after(marker, stream->tail);
    if (marker)
        rpi_host_task_submit(marker);
    if (ok)
        rpi_host_task_set(&context->orphans, marker);
    else
        rpi_host_task_wait(stream->tail);
    rpi_host_task_drop(marker);
}

/* Takes a stream out of its context, its work going on. */
static void retire(CUstream stream)
{
    rpi_host_capture_stream_gone(stream);
    CUstream *link = &stream->context->streams;
    while (*link != stream)
        link = &(*link)->next;
    *link = stream->next;
    adopt(stream);
    free_stream(stream);
}

static CUstream find_thread_stream(CUcontext context)
{
    uint64_t thread = rpi_host_thread()->number;
    CUstream stream = context->streams;
    while (stream && stream->thread != thread)
        stream = stream->next;
    return stream;
}

/* A thread's default streams go with the thread. */
static void thread_ends(void *unused)
{
    (void)unused;
    rpi_host_lock();
    for (int i = 0; i < RPI_HOST_CONTEXTS; i++) {
        CUstream stream = find_thread_stream(&rpi_host.contexts[i]);
        if (stream)
            retire(stream);
    }
    rpi_host_unlock();
}

static pthread_key_t thread_key;
static bool thread_key_made;

static void make_thread_key(void)
{
    thread_key_made = pthread_key_create(&thread_key, thread_ends) == 0;
}

static CUstream thread_stream(CUcontext context)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    CUstream stream = find_thread_stream(context);
    if (stream)
        return stream;
    pthread_once(&once, make_thread_key);
    stream = create_stream(context, CU_STREAM_DEFAULT, 0);
    if (!stream)
        return NULL;
    stream->thread = rpi_host_thread()->number;
    stream->next = context->streams;
    context->streams = stream;
    if (thread_key_made)
        pthread_setspecific(thread_key, stream);
    return stream;
}

CUstream rpi_host_stream_of(CUstream handle)
{
    rpi_assert_held(&rpi_host.lock);
    if (!handle || handle == CU_STREAM_LEGACY)
        return legacy_stream(rpi_host_current());
    if (handle == CU_STREAM_PER_THREAD)
        return thread_stream(rpi_host_current());
    return rpi_host_handle_is(handle, RPI_HOST_STREAM) ? handle : NULL;
}

bool rpi_host_stream_order(CUstream stream, struct rpi_host_task *task)
{
    rpi_assert_held(&rpi_host.lock);
    const struct CUctx_st *context = stream->context;
    bool ok = rpi_host_task_after(task, stream->tail);
    if (stream->legacy) {
        ok = ok && rpi_host_task_after(task, context->orphans);
        for (CUstream other = context->streams; other && ok; other = other->next)
            if (rpi_host_stream_blocks(other))
                ok = rpi_host_task_after(task, other->tail);
    } else if (rpi_host_stream_blocks(stream) && context->legacy) {
        ok = ok && rpi_host_task_after(task, context->legacy->tail);
    }
    return ok;
}

void rpi_host_stream_clock(CUstream stream, struct rpi_host_clock *out_clock)
{
    rpi_assert_held(&rpi_host.lock);
    const struct CUctx_st *context = stream->context;
    *out_clock = stream->clock;
    if (stream->legacy) {
        rpi_host_clock_join(out_clock, &context->orphan_clock);
        for (CUstream other = context->streams; other; other = other->next)
            if (rpi_host_stream_blocks(other))
                rpi_host_clock_join(out_clock, &other->clock);
    } else if (rpi_host_stream_blocks(stream) && context->legacy) {
        rpi_host_clock_join(out_clock, &context->legacy->clock);
    }
}

void rpi_host_stream_advance(CUstream stream, struct rpi_host_task *task)
{
    rpi_assert_held(&rpi_host.lock);
    struct rpi_host_clock clock;
    rpi_host_stream_clock(stream, &clock);
    clock.at[stream->lane] = ++rpi_host.lane_positions[stream->lane];
    stream->clock = clock;
    rpi_host_task_set(&stream->tail, task);
}

CUresult rpi_host_enqueue(CUstream stream, struct rpi_host_op *op, struct rpi_host_task **out_task)
{
    rpi_assert_held(&rpi_host.lock);
    if (out_task)
        *out_task = NULL;
    CUresult result = rpi_host_capture_check(stream);
    if (result)
        return result;
    if (stream->capture)
        return rpi_host_capture_add(stream, op, NULL, NULL);
    struct rpi_host_task *task = rpi_host_task_create(op);
    if (!task)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!rpi_host_stream_order(stream, task)) {
        rpi_host_task_cancel(task);
        rpi_host_task_drop(task);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct rpi_host_clock clock;
    rpi_host_stream_clock(stream, &clock);
    rpi_host_race_op(op, stream->lane, &clock, rpi_host.lane_positions[stream->lane] + 1);
    rpi_host_stream_advance(stream, task);
    rpi_host_task_submit(task);
    if (out_task)
        *out_task = task;
    else
        rpi_host_task_drop(task);
    return CUDA_SUCCESS;
}

struct rpi_host_task *rpi_host_stream_marker(CUstream stream)
{
    rpi_assert_held(&rpi_host.lock);
    struct rpi_host_task *marker = rpi_host_task_create(NULL);
    if (!marker)
        return NULL;
    bool ok = rpi_host_stream_order(stream, marker);
    rpi_host_task_submit(marker);
    if (!ok) {
        rpi_host_task_drop(marker);
        return NULL;
    }
    return marker;
}

/* Makes the task wait for all streams of a context. */
static bool comes_after_all(struct rpi_host_task *task, const struct CUctx_st *context)
{
    bool ok = rpi_host_task_after(task, context->orphans) &&
              (!context->legacy || rpi_host_task_after(task, context->legacy->tail));
    for (CUstream stream = context->streams; stream && ok; stream = stream->next)
        ok = rpi_host_task_after(task, stream->tail);
    return ok;
}

/* What a context's streams have behind them. */
static void join_all(struct rpi_host_clock *clock, const struct CUctx_st *context)
{
    rpi_host_clock_join(clock, &context->orphan_clock);
    if (context->legacy)
        rpi_host_clock_join(clock, &context->legacy->clock);
    for (CUstream stream = context->streams; stream; stream = stream->next)
        rpi_host_clock_join(clock, &stream->clock);
}

CUresult rpi_host_wait_all(CUcontext context)
{
    rpi_assert_held(&rpi_host.lock);
    struct rpi_host_clock clock = {0};
    bool ok = true;
    struct rpi_host_task *barrier = NULL;
    if (rpi_host.engine.unfinished > 0) {
        barrier = rpi_host_task_create(NULL);
        if (!barrier)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (int i = 0; i < RPI_HOST_CONTEXTS; i++) {
        if (context && context != &rpi_host.contexts[i])
            continue;
        join_all(&clock, &rpi_host.contexts[i]);
        ok = ok && (!barrier || comes_after_all(barrier, &rpi_host.contexts[i]));
    }
    if (barrier) {
        rpi_host_task_submit(barrier);
        if (ok)
            rpi_host_task_wait(barrier);
        rpi_host_task_drop(barrier);
    }
    if (!ok)
        return CUDA_ERROR_OUT_OF_MEMORY;
    rpi_host_race_settle(&clock);
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    if (!stream || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    CUcontext context = rpi_host_current();
    CUstream created = create_stream(context, flags,
                                     priority > 0    ? 0
                                     : priority < -5 ? -5
                                                     : priority);
    if (!created)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!rpi_host_handle_add(created, RPI_HOST_STREAM)) {
        free_stream(created);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    created->next = context->streams;
    context->streams = created;
    rpi_host.stream_count++;
    *stream = created;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuStreamCreate(CUstream *stream, unsigned flags)
{
    return rpi_host_cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult rpi_host_cuStreamDestroy(CUstream stream)
{
    if (!rpi_host_handle_is(stream, RPI_HOST_STREAM))
        return CUDA_ERROR_INVALID_HANDLE;
    rpi_host_handle_remove(stream);
    rpi_host.stream_count--;
    retire(stream);
    return CUDA_SUCCESS;
}

void rpi_host_streams_finish(CUcontext context)
{
    rpi_assert_held(&rpi_host.lock);
    while (context->streams) {
        CUstream stream = context->streams;
        context->streams = stream->next;
        if (rpi_host_handle_is(stream, RPI_HOST_STREAM)) {
            rpi_host_handle_remove(stream);
            rpi_host.stream_count--;
        }
        free_stream(stream);
    }
    if (context->legacy)
        free_stream(context->legacy);
    context->legacy = NULL;
}

/* A reference to the task that is done when the stream is; NULL with CUDA_SUCCESS: it is. */
static CUresult end_of(CUstream stream, struct rpi_host_task **out_task)
{
    *out_task = NULL;
    if (!stream->legacy) {
        rpi_host_task_set(out_task, stream->tail);
        return CUDA_SUCCESS;
    }
    *out_task = rpi_host_stream_marker(stream);
    return *out_task ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult rpi_host_cuStreamSynchronize(CUstream handle)
{
    CUstream stream = rpi_host_stream_of(handle);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = rpi_host_capture_no_sync(stream);
    if (result)
        return result;
    struct rpi_host_task *end;
    struct rpi_host_clock clock;
    if (stream->legacy)
        rpi_host_stream_clock(stream, &clock);
    else
        clock = stream->clock;
    result = end_of(stream, &end);
    if (result)
        return result;
    rpi_host_task_wait(end);
    rpi_host_task_drop(end);
    rpi_host_race_settle(&clock);
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuStreamQuery(CUstream handle)
{
    CUstream stream = rpi_host_stream_of(handle);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = rpi_host_capture_no_sync(stream);
    if (result)
        return result;
    struct rpi_host_task *end;
    result = end_of(stream, &end);
    if (result)
        return result;
    bool done = !end || end->done;
    rpi_host_task_drop(end);
    if (!done)
        return CUDA_ERROR_NOT_READY;
    struct rpi_host_clock clock = stream->clock;
    if (stream->legacy)
        rpi_host_stream_clock(stream, &clock);
    rpi_host_race_settle(&clock);
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    CUstream stream = rpi_host_stream_of(handle);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    *context = stream->context;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuStreamGetFlags(CUstream handle, unsigned *flags)
{
    CUstream stream = rpi_host_stream_of(handle);
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

CUresult rpi_host_cuLaunchHostFunc(CUstream handle, CUhostFn function, void *user_data)
{
    CUstream stream = rpi_host_stream_of(handle);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    CUDA_HOST_NODE_PARAMS params = {function, user_data};
    struct rpi_host_op *op;
    CUresult result = rpi_host_function_op(&params, &op);
    if (result)
        return result;
    result = rpi_host_enqueue(stream, op, NULL);
    rpi_host_op_drop(op);
    return result;
}
