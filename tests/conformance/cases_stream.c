/* SPDX-License-Identifier: MIT
 *
 * Streams, events, default streams and host functions: what is ordered after what, and what may be
 * asked while work is pending. A gate keeps work pending, so no case depends on time.
 */
#include "conformance.h"

void case_stream_flags(struct rpt *t)
{
    unsigned flags = 99;
    CUcontext context = NULL;
    CUstream blocking = rpt_blocking_stream(t), other = rpt_stream(t), refused;
    OK(cuStreamGetFlags(blocking, &flags));
    EQUAL(flags, CU_STREAM_DEFAULT);
    OK(cuStreamGetFlags(other, &flags));
    EQUAL(flags, CU_STREAM_NON_BLOCKING);
    OK(cuStreamGetCtx(other, &context));
    REQUIRE(context == t->context);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamCreate(&refused, 0x80));
}

/* Priorities outside the device's range are clamped to it. */
void case_stream_priority_is_clamped(struct rpt *t)
{
    CUstream stream;
    OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -1000));
    rpt_track(t, TRACKED_STREAM, HANDLE_OF(stream), 0);
    rpt_usable(t, stream);
}

void case_stream_runs_in_order(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    uint32_t values[50];
    for (uint32_t i = 0; i < 50; i++) {
        values[i] = i + 3;
        rpt_mix(t, stream, word, values[i]);
    }
    EQUAL(rpt_word(t, word), rpt_mixed(50, values));
}

void case_stream_query(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    OK(cuStreamQuery(stream));
    rpt_hold(t, stream);
    rpt_expect_pending(t, stream);
    rpt_open(t);
    OK(cuStreamSynchronize(stream));
    OK(cuStreamQuery(stream));
}

void case_streams_are_independent(struct rpt *t)
{
    CUstream held = rpt_stream(t), other = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_hold(t, held);
    rpt_mix(t, other, word, 4);
    OK(cuStreamSynchronize(other));
    rpt_expect_pending(t, held);
    rpt_open(t);
    EQUAL(rpt_word(t, word), 4);
}

/* Work that is pending when its stream is destroyed is done all the same. */
void case_stream_destroy_with_pending_work(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_hold(t, stream);
    rpt_mix(t, stream, word, 6);
    rpt_forget(t, TRACKED_STREAM, HANDLE_OF(stream));
    OK(cuStreamDestroy(stream));
    rpt_open(t);
    EQUAL(rpt_word(t, word), 6);
}

void case_context_synchronize_waits_for_all(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUdeviceptr words = rpt_memory(t, 8);
    for (uint32_t i = 0; i < 20; i++) {
        rpt_mix(t, a, words, i);
        rpt_mix(t, b, words + 4, i);
    }
    OK(cuCtxSynchronize());
    OK(cuStreamQuery(a));
    OK(cuStreamQuery(b));
}

/* ---- Events -------------------------------------------------------------------------------- */

void case_event_orders_streams(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUevent event = rpt_event(t);
    rpt_hold(t, a);
    rpt_mix(t, a, word, 1);
    OK(cuEventRecord(event, a));
    OK(cuStreamWaitEvent(b, event, 0));
    rpt_mix(t, b, word, 2);
    rpt_expect_pending(t, b);
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    rpt_open(t);
    OK(cuEventSynchronize(event));
    OK(cuEventQuery(event));
    EQUAL(rpt_word(t, word), MIXED(1, 2));
}

void case_event_never_recorded_is_complete(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUevent event = rpt_event(t);
    OK(cuEventQuery(event));
    OK(cuEventSynchronize(event));
    OK(cuStreamWaitEvent(stream, event, 0));
    rpt_usable(t, stream);
}

/* A wait is for the record that was the last when the wait was called. */
void case_event_wait_keeps_its_record(struct rpt *t)
{
    CUstream held = rpt_stream(t), waiting = rpt_stream(t), idle = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUevent event = rpt_event(t);
    rpt_hold(t, held);
    rpt_mix(t, held, word, 1);
    OK(cuEventRecord(event, held));
    OK(cuStreamWaitEvent(waiting, event, 0));
    OK(cuEventRecord(event, idle));
    OK(cuEventSynchronize(event));
    rpt_mix(t, waiting, word, 2);
    rpt_expect_pending(t, waiting);
    rpt_open(t);
    EQUAL(rpt_word(t, word), MIXED(1, 2));
}

/* A record covers what was in the stream then, not what came later. */
void case_event_does_not_wait_for_later_work(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUevent event = rpt_event(t);
    OK(cuEventRecord(event, a));
    rpt_hold(t, a);
    OK(cuStreamWaitEvent(b, event, 0));
    OK(cuStreamSynchronize(b));
    OK(cuEventSynchronize(event));
    rpt_expect_pending(t, a);
}

void case_event_destroy_while_pending(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUevent event = rpt_event(t);
    rpt_hold(t, a);
    rpt_mix(t, a, word, 1);
    OK(cuEventRecord(event, a));
    OK(cuStreamWaitEvent(b, event, 0));
    rpt_forget(t, TRACKED_EVENT, HANDLE_OF(event));
    OK(cuEventDestroy(event));
    rpt_mix(t, b, word, 2);
    rpt_open(t);
    EQUAL(rpt_word(t, word), MIXED(1, 2));
}

static CUevent timing_event(struct rpt *t)
{
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    rpt_track(t, TRACKED_EVENT, HANDLE_OF(event), 0);
    return event;
}

void case_event_elapsed_time(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUevent start = timing_event(t), end = timing_event(t);
    float milliseconds = -1;
    OK(cuEventRecord(start, stream));
    rpt_hold(t, stream);
    OK(cuEventRecord(end, stream));
    rpt_expect_pending(t, stream);
    EXPECT(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&milliseconds, start, end));
    rpt_open(t);
    OK(cuStreamSynchronize(stream));
    OK(cuEventElapsedTime(&milliseconds, start, end));
    REQUIRE(milliseconds >= 0);
}

void case_event_elapsed_time_refusals(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUevent start = timing_event(t), never = timing_event(t), untimed = rpt_event(t);
    float milliseconds;
    OK(cuEventRecord(start, stream));
    OK(cuEventRecord(untimed, stream));
    OK(cuStreamSynchronize(stream));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, start, never));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&milliseconds, start, untimed));
}

/* ---- Default streams ----------------------------------------------------------------------- */

/* The legacy stream waits for blocking streams, and they wait for it. */
void case_legacy_stream_orders_blocking_streams(struct rpt *t)
{
    CUstream a = rpt_blocking_stream(t), b = rpt_blocking_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_hold(t, a);
    rpt_mix(t, a, word, 1);
    rpt_mix(t, NULL, word, 2);
    rpt_mix(t, b, word, 3);
    rpt_expect_pending(t, NULL);
    rpt_expect_pending(t, b);
    rpt_open(t);
    EQUAL(rpt_word(t, word), MIXED(1, 2, 3));
}

void case_legacy_stream_ignores_nonblocking_streams(struct rpt *t)
{
    CUstream held = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_hold(t, held);
    rpt_mix(t, NULL, word, 4);
    OK(cuStreamSynchronize(NULL));
    rpt_expect_pending(t, held);
    rpt_open(t);
    EQUAL(rpt_word(t, word), 4);
}

void case_legacy_stream_by_its_handle(struct rpt *t)
{
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_mix(t, CU_STREAM_LEGACY, word, 1);
    rpt_mix(t, NULL, word, 2);
    OK(cuStreamSynchronize(CU_STREAM_LEGACY));
    EQUAL(rpt_word(t, word), MIXED(1, 2));
}

/* The per-thread default stream is a blocking one. */
void case_per_thread_stream(struct rpt *t)
{
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_hold(t, CU_STREAM_PER_THREAD);
    rpt_mix(t, CU_STREAM_PER_THREAD, word, 1);
    rpt_mix(t, NULL, word, 2);
    rpt_expect_pending(t, CU_STREAM_PER_THREAD);
    rpt_expect_pending(t, NULL);
    rpt_open(t);
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    EQUAL(rpt_word(t, word), MIXED(1, 2));
}

/* ---- Host functions ------------------------------------------------------------------------ */

struct seen {
    uint32_t *word, value;
    int calls;
};

static void look(void *data)
{
    struct seen *seen = data;
    seen->value = *seen->word;
    seen->calls++;
    *seen->word = 99;
}

/* A host function sees earlier work's results, and later work sees its. */
void case_host_function_in_order(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    uint32_t *host = rpt_pinned(t, 4);
    CUdeviceptr word = rpt_memory(t, 4), after = rpt_memory(t, 4);
    struct seen seen = {.word = host};
    rpt_mix(t, stream, word, 12);
    OK(cuMemcpyDtoHAsync(host, word, 4, stream));
    OK(cuLaunchHostFunc(stream, look, &seen));
    OK(cuMemcpyHtoDAsync(after, host, 4, stream));
    OK(cuStreamSynchronize(stream));
    EQUAL(seen.calls, 1);
    EQUAL(seen.value, 12);
    EQUAL(rpt_word(t, after), 99);
}
