/* SPDX-License-Identifier: MIT
 *
 * Every way in which a capture goes wrong: 900 to 908. Each case says in which state the capture
 * and the stream are afterwards, and that the stream works once the capture has been ended.
 */
#include "conformance.h"

#define LOCAL  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define GLOBAL CU_STREAM_CAPTURE_MODE_GLOBAL

static const CUstreamCaptureMode modes[] = {GLOBAL, LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED};

/* ---- 900 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED --------------------------------------------- */

void case_error_900_stream_synchronize(struct rpt *t)
{
    for (int i = 0; i < 3; i++) {
        CUstream stream = rpt_stream(t);
        rpt_begin(t, stream, modes[i]);
        EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
        rpt_expect_invalidated(t, stream);
    }
}

void case_error_900_stream_query(struct rpt *t)
{
    for (int i = 0; i < 3; i++) {
        CUstream stream = rpt_stream(t);
        rpt_begin(t, stream, modes[i]);
        EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(stream));
        rpt_expect_invalidated(t, stream);
    }
}

void case_error_900_context_synchronize(struct rpt *t)
{
    for (int i = 0; i < 3; i++) {
        CUstream stream = rpt_stream(t);
        rpt_begin(t, stream, modes[i]);
        EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
        rpt_expect_invalidated(t, stream);
    }
}

/* Waiting for a stream that is not captured is unsafe: only a relaxed capture allows it. */
void case_error_900_other_stream_synchronize(struct rpt *t)
{
    for (int i = 0; i < 2; i++) {
        CUstream stream = rpt_stream(t), other = rpt_stream(t);
        rpt_begin(t, stream, modes[i]);
        EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(other));
        rpt_expect_invalidated(t, stream);
        rpt_usable(t, other);
    }
}

/* A forked stream belongs to the capture: synchronising it invalidates the whole. */
void case_error_900_forked_stream_synchronize(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    rpt_begin(t, a, LOCAL);
    rpt_fork(t, a, b);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(b));
    EQUAL(rpt_status(t, b), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    rpt_expect_invalidated(t, a);
    rpt_usable(t, b);
}

void case_error_900_allocation(struct rpt *t)
{
    for (int i = 0; i < 2; i++) {
        CUstream stream = rpt_stream(t);
        CUdeviceptr address;
        rpt_begin(t, stream, modes[i]);
        EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&address, 64));
        rpt_expect_invalidated(t, stream);
    }
}

struct call {
    CUevent event;
    CUstream stream;
    CUresult result;
    CUgraph graph;
};

static void allocate(struct rpt *t, void *data)
{
    struct call *call = data;
    CUdeviceptr address;
    call->result = t->d->cuMemAlloc(&address, 64);
    if (call->result == CUDA_SUCCESS)
        t->d->cuMemFree(address);
}

/* A global capture forbids unsafe calls to every thread that is not relaxed. */
void case_error_900_allocation_by_another_thread(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    struct call call = {0};
    rpt_begin(t, stream, GLOBAL);
    rpt_on_thread(t, allocate, &call, true);
    EQUAL(call.result, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    rpt_expect_invalidated(t, stream);
}

/* An event that has nothing to do with the capture: asking after it is unsafe all the same. */
void case_error_900_event_query(struct rpt *t)
{
    for (int i = 0; i < 2; i++) {
        CUstream stream = rpt_stream(t), other = rpt_stream(t);
        CUevent event = rpt_event(t);
        OK(cuEventRecord(event, other));
        OK(cuStreamSynchronize(other));
        rpt_begin(t, stream, modes[i]);
        EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventQuery(event));
        rpt_expect_invalidated(t, stream);
    }
}

static void query_event(struct rpt *t, void *data)
{
    struct call *call = data;
    call->result = t->d->cuEventQuery(call->event);
}

void case_error_900_event_query_by_another_thread(struct rpt *t)
{
    CUstream stream = rpt_stream(t), other = rpt_stream(t);
    struct call call = {.event = rpt_event(t)};
    OK(cuEventRecord(call.event, other));
    OK(cuStreamSynchronize(other));
    rpt_begin(t, stream, GLOBAL);
    rpt_on_thread(t, query_event, &call, true);
    EQUAL(call.result, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    rpt_expect_invalidated(t, stream);
}

void case_error_900_thread_mode_thread_local_in_other_capture(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUstreamCaptureMode mode = LOCAL;
    CUdeviceptr address;
    rpt_begin(t, stream, GLOBAL);
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc(&address, 64));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    rpt_expect_invalidated(t, stream);
}

/* ---- 901 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED --------------------------------------------- */

void case_error_901_every_use_of_an_invalidated_capture(struct rpt *t)
{
    CUstream stream = rpt_stream(t), other = rpt_stream(t);
    CUevent event = rpt_event(t), captured = rpt_event(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUstreamCaptureStatus status;
    rpt_begin(t, stream, LOCAL);
    OK(cuEventRecord(captured, stream));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
    OK(cuStreamGetCaptureInfo(stream, &status, NULL, NULL, NULL, NULL, NULL));
    EQUAL(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD32Async(word, 1, 1, stream));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuEventRecord(event, stream));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(other, captured, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuEventQuery(captured));
    rpt_expect_invalidated(t, stream);
    rpt_usable(t, other);
}

void case_error_901_forked_streams_are_freed_by_the_end(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_begin(t, a, LOCAL);
    rpt_fork(t, a, b);
    rpt_mix(t, b, word, 1);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(a));
    EQUAL(rpt_status(t, b), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    rpt_expect_invalidated(t, a);
    rpt_usable(t, b);
    EQUAL(rpt_word(t, word), 0);
}

void case_error_901_a_new_capture_works(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_begin(t, stream, LOCAL);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(stream));
    rpt_expect_invalidated(t, stream);
    rpt_begin(t, stream, LOCAL);
    rpt_mix(t, stream, word, 4);
    rpt_run(t, rpt_instantiate(t, rpt_end(t, stream)), stream);
    EQUAL(rpt_word(t, word), 4);
}

/* Another capture of the same thread is not touched. */
void case_error_901_other_captures_stay(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    rpt_begin(t, a, LOCAL);
    rpt_begin(t, b, LOCAL);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(a));
    EQUAL(rpt_status(t, b), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    rpt_end(t, b);
    rpt_expect_invalidated(t, a);
}

/* ---- 902 CUDA_ERROR_STREAM_CAPTURE_MERGE --------------------------------------------------- */

void case_error_902_merge(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUevent event = rpt_event(t);
    rpt_begin(t, a, LOCAL);
    rpt_begin(t, b, LOCAL);
    OK(cuEventRecord(event, a));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(b, event, 0));
    CUgraph graph = NULL;
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(a, &graph));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(b, &graph));
    REQUIRE(graph == NULL);
    rpt_usable(t, a);
    rpt_usable(t, b);
}

/* ---- 903 CUDA_ERROR_STREAM_CAPTURE_UNMATCHED ----------------------------------------------- */

void case_error_903_ended_on_a_forked_stream(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUgraph graph = NULL;
    rpt_begin(t, a, LOCAL);
    rpt_fork(t, a, b);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(b, &graph));
    REQUIRE(graph == NULL);
    rpt_expect_invalidated(t, a);
    rpt_usable(t, b);
}

/* ---- 904 CUDA_ERROR_STREAM_CAPTURE_UNJOINED ------------------------------------------------ */

void case_error_904_forked_and_not_joined(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUgraph graph = (CUgraph)(uintptr_t)1;
    rpt_begin(t, a, LOCAL);
    rpt_fork(t, a, b);
    rpt_mix(t, b, word, 1);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(a, &graph));
    REQUIRE(graph == NULL);
    rpt_usable(t, a);
    rpt_usable(t, b);
    EQUAL(rpt_word(t, word), 0);
}

void case_error_904_work_after_the_join(struct rpt *t)
{
    CUstream a = rpt_stream(t), b = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    CUgraph graph = NULL;
    rpt_begin(t, a, LOCAL);
    rpt_fork(t, a, b);
    rpt_mix(t, b, word, 1);
    rpt_fork(t, b, a);
    rpt_mix(t, b, word, 2);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(a, &graph));
    rpt_usable(t, a);
    rpt_usable(t, b);
}

/* ---- 905 CUDA_ERROR_STREAM_CAPTURE_ISOLATION ----------------------------------------------- */

void case_error_905_wait_for_an_event_from_outside(struct rpt *t)
{
    CUstream stream = rpt_stream(t), other = rpt_stream(t);
    CUevent event = rpt_event(t);
    OK(cuEventRecord(event, other));
    rpt_begin(t, stream, LOCAL);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(stream, event, 0));
    rpt_expect_invalidated(t, stream);
    rpt_usable(t, other);
}

void case_error_905_wait_for_an_event_from_before(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUevent event = rpt_event(t);
    OK(cuEventRecord(event, stream));
    rpt_begin(t, stream, LOCAL);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(stream, event, 0));
    rpt_expect_invalidated(t, stream);
}

/* ---- 906 CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ------------------------------------------------ */

void case_error_906_legacy_launch(struct rpt *t)
{
    CUstream stream = rpt_blocking_stream(t);
    CUfunction function = rpt_function(t, "rpt_nothing");
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
           cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    rpt_expect_invalidated(t, stream);
}

/* Copies and fills without a stream: what each returns while `captured` is captured. */
enum { COPIES_AT_ONCE = 6 };

struct at_once {
    CUdeviceptr words; /* 0: read, 1: written */
    uint32_t host;     /* pageable */
    CUresult results[COPIES_AT_ONCE];
};

static CUresult copy_at_once(struct rpt *t, struct at_once *a, int which)
{
    CUdeviceptr from = a->words, to = a->words + 4;
    switch (which) {
    case 0:
        return t->d->cuMemcpyHtoD(to, &a->host, 4);
    case 1:
        return t->d->cuMemcpyDtoD(to, from, 4);
    case 2:
        return t->d->cuMemcpy(to, from, 4);
    case 3:
        return t->d->cuMemsetD8(to, 3, 4);
    case 4:
        return t->d->cuMemsetD32(to, 3, 1);
    default:
        return t->d->cuMemcpyDtoH(&a->host, from, 4);
    }
}

static void copy_all_at_once(struct rpt *t, void *data)
{
    struct at_once *a = data;
    for (int i = 0; i < COPIES_AT_ONCE; i++)
        a->results[i] = copy_at_once(t, a, i);
}

void case_error_906_synchronous_copies(struct rpt *t)
{
    struct at_once a = {.words = rpt_memory(t, 8)};
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < COPIES_AT_ONCE; k++) {
            CUstream stream = rpt_blocking_stream(t);
            rpt_begin(t, stream, modes[i]);
            EQUAL(copy_at_once(t, &a, k), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            rpt_expect_invalidated(t, stream);
        }
    }
}

/* Beside the capture of a stream that the legacy one does not order they are made, though the host
 * waits for them, and take no part in it: in every mode, by the capturing thread and by others. */
static void copies_beside(struct rpt *t, bool other_thread)
{
    struct at_once a = {.words = rpt_memory(t, 8)};
    for (int i = 0; i < 3; i++) {
        CUstream stream = rpt_stream(t);
        uint32_t value = 40 + (uint32_t)i;
        OK(cuMemcpyHtoD(a.words, &value, 4));
        rpt_begin(t, stream, modes[i]);
        rpt_mix(t, stream, a.words, 1);
        a.host = 0;
        if (other_thread)
            rpt_on_thread(t, copy_all_at_once, &a, true);
        else
            copy_all_at_once(t, &a);
        for (int k = 0; k < COPIES_AT_ONCE; k++)
            EQUAL(a.results[k], CUDA_SUCCESS);
        EQUAL(a.host, value);
        EQUAL(rpt_status(t, stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
        EQUAL(rpt_node_count(t, rpt_end(t, stream)), 1);
        EQUAL(rpt_word(t, a.words + 4), 3);
    }
}

void case_synchronous_copies_beside_a_capture_undocumented(struct rpt *t)
{
    copies_beside(t, false);
}

void case_synchronous_copies_by_another_thread_undocumented(struct rpt *t)
{
    copies_beside(t, true);
}

void case_error_906_legacy_event_record(struct rpt *t)
{
    CUstream stream = rpt_blocking_stream(t);
    CUevent event = rpt_event(t);
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuEventRecord(event, NULL));
    rpt_expect_invalidated(t, stream);
}

/* Asking whether the legacy stream captures is refused, but breaks nothing. */
void case_error_906_legacy_status(struct rpt *t)
{
    CUstream stream = rpt_blocking_stream(t);
    CUstreamCaptureStatus status;
    rpt_begin(t, stream, LOCAL);
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
    EXPECT(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
           cuStreamGetCaptureInfo(NULL, &status, NULL, NULL, NULL, NULL, NULL));
    rpt_expect_intact(t, stream);
    EQUAL(rpt_status(t, NULL), CU_STREAM_CAPTURE_STATUS_NONE);
}

/* A non-blocking stream's capture leaves the legacy stream alone. */
void case_error_906_not_for_nonblocking_streams(struct rpt *t)
{
    CUstream stream = rpt_stream(t);
    CUdeviceptr word = rpt_memory(t, 4);
    rpt_begin(t, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    EQUAL(rpt_status(t, NULL), CU_STREAM_CAPTURE_STATUS_NONE);
    rpt_mix(t, NULL, word, 3);
    OK(cuStreamSynchronize(NULL));
    rpt_expect_intact(t, stream);
    EQUAL(rpt_word(t, word), 3);
}

/* ---- 907 CUDA_ERROR_CAPTURED_EVENT --------------------------------------------------------- */

void case_error_907_event_query(struct rpt *t)
{
    for (int i = 0; i < 3; i++) {
        CUstream stream = rpt_stream(t);
        CUevent event = rpt_event(t);
        rpt_begin(t, stream, modes[i]);
        OK(cuEventRecord(event, stream));
        EXPECT(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(event));
        rpt_expect_invalidated(t, stream);
    }
}

void case_error_907_event_synchronize(struct rpt *t)
{
    for (int i = 0; i < 3; i++) {
        CUstream stream = rpt_stream(t);
        CUevent event = rpt_event(t);
        rpt_begin(t, stream, modes[i]);
        OK(cuEventRecord(event, stream));
        EXPECT(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(event));
        rpt_expect_invalidated(t, stream);
    }
}

/* Recorded again outside, the event is an ordinary one. */
void case_error_907_event_recorded_again_outside(struct rpt *t)
{
    CUstream stream = rpt_stream(t), other = rpt_stream(t);
    CUevent event = rpt_event(t);
    rpt_begin(t, stream, LOCAL);
    OK(cuEventRecord(event, stream));
    rpt_end(t, stream);
    OK(cuEventRecord(event, other));
    OK(cuEventSynchronize(event));
    OK(cuEventQuery(event));
}

/* Once the capture is over, its events stand for nothing: not even 907. */
void case_error_907_after_the_capture_undocumented(struct rpt *t)
{
    CUstream stream = rpt_stream(t), other = rpt_stream(t);
    CUevent event = rpt_event(t);
    rpt_begin(t, stream, LOCAL);
    OK(cuEventRecord(event, stream));
    rpt_end(t, stream);
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuEventQuery(event));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuEventSynchronize(event));
    EXPECT(CUDA_ERROR_INVALID_VALUE, cuStreamWaitEvent(other, event, 0));
    rpt_usable(t, stream);
    rpt_usable(t, other);
}

/* ---- 908 CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD -------------------------------------------- */

static void end_capture(struct rpt *t, void *data)
{
    struct call *call = data;
    call->graph = (CUgraph)(uintptr_t)1;
    call->result = t->d->cuStreamEndCapture(call->stream, &call->graph);
}

/* The capture is over, and its graph is lost. */
void case_error_908_ended_by_another_thread(struct rpt *t)
{
    for (int i = 0; i < 2; i++) {
        struct call call = {.stream = rpt_stream(t)};
        CUgraph graph = NULL;
        rpt_begin(t, call.stream, modes[i]);
        rpt_on_thread(t, end_capture, &call, true);
        EQUAL(call.result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        EQUAL(rpt_status(t, call.stream), CU_STREAM_CAPTURE_STATUS_NONE);
        EXPECT(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(call.stream, &graph));
        rpt_usable(t, call.stream);
    }
}
