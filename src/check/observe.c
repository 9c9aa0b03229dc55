/* SPDX-License-Identifier: MIT */
#include "check/observe.h"

#include "explain/explain.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* The observer of the call under way, for rp_call_...: they have no room for a pointer of ours. */
static _Thread_local struct rpi_observe *current;

/* ---- Streams and what they have seen ------------------------------------------------------- */

static struct rpi_seen_stream *find_stream(struct rpi_observe *o, CUstream stream)
{
    for (size_t i = 0; i < o->stream_count; i++)
        if (o->streams[i].stream == stream)
            return &o->streams[i];
    if (o->stream_count == RPI_SEEN_STREAMS)
        return NULL; /* more are not followed */
    struct rpi_seen_stream *seen = &o->streams[o->stream_count++];
    memset(seen, 0, sizeof *seen);
    seen->stream = stream;
    return seen;
}

static void enqueue(struct rpi_observe *o, CUstream stream, const void *caller)
{
    struct rpi_seen_stream *seen = find_stream(o, stream);
    if (!seen)
        return;
    seen->clock[seen - o->streams]++;
    rpi_stack_take(&seen->last, caller);
}

static void record_event(struct rpi_observe *o, CUevent event, CUstream stream)
{
    struct rpi_seen_stream *seen = find_stream(o, stream);
    size_t i = 0;
    while (i < o->event_count && o->events[i].event != event)
        i++;
    if (!seen || i == RPI_SEEN_EVENTS)
        return;
    o->event_count += i == o->event_count;
    o->events[i].event = event;
    memcpy(o->events[i].clock, seen->clock, sizeof seen->clock);
}

static void wait_event(struct rpi_observe *o, CUevent event, CUstream stream)
{
    struct rpi_seen_stream *seen = find_stream(o, stream);
    for (size_t i = 0; seen && i < o->event_count; i++)
        for (size_t s = 0; o->events[i].event == event && s < RPI_SEEN_STREAMS; s++)
            if (seen->clock[s] < o->events[i].clock[s])
                seen->clock[s] = o->events[i].clock[s];
}

static bool is_captured(const struct rpi_observe *o, CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (stream == NULL || stream == CU_STREAM_LEGACY)
        return false; /* it never is, and asking may be an error */
    return o->driver->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* ---- Blocks that were freed ---------------------------------------------------------------- */

static const struct rpi_block_seen *find_freed(const struct rpi_observe *o, uint64_t address)
{
    const struct rpi_block_seen *found = NULL;
    for (size_t i = 0; i < o->blocks.count; i++) {
        const struct rpi_block_seen *block = &o->blocks.data[i];
        if (address - block->address >= block->bytes)
            continue;
        if (!block->freed)
            return NULL; /* the address is another block's by now */
        found = block;
    }
    return found;
}

static void note_freed(struct rpi_observe *o, const struct rpi_watch_call *call, uint64_t address)
{
    struct rpi_stack stack;
    const struct rpi_block_seen *block = find_freed(o, address);
    if (!block)
        return;
    rpi_stack_take(&stack, call->caller);
    struct rpi_finding *f =
        rpi_findings_note(o->findings, "use-after-free", call->function, &stack);
    if (!f)
        return;
    snprintf(
        f->what, sizeof f->what,
        "work is given memory of a block of %llu bytes that rp_call_free ended before: by then "
        "it may be another's",
        (unsigned long long)block->bytes);
    snprintf(f->mend, sizeof f->mend, "free the block behind the last work that uses it");
}

/* What is launched: a function, or a library's kernel, which has one. */
static CUfunction launched_function(const struct rpi_observe *o, const struct rpi_watch_call *call)
{
    void *launched = (void *)(uintptr_t)rpi_watch_value(call, "function");
    CUfunction function = launched;
    size_t offset, bytes;
    if ((o->driver->capabilities & RPI_CAP_LIBRARY) &&
        o->driver->cuFuncGetParamInfo(function, 0, &offset, &bytes) == CUDA_ERROR_INVALID_HANDLE)
        o->driver->cuKernelGetFunction(&function, (CUkernel)launched);
    return function;
}

/* The parameters of a kernel that are as long as an address. */
static void look_at_params(struct rpi_observe *o, const struct rpi_watch_call *call)
{
    void **params = (void **)(uintptr_t)rpi_watch_value(call, "params");
    size_t offset, bytes;
    if (!params || !(o->driver->capabilities & RPI_CAP_PARAM_INFO))
        return;
    CUfunction function = launched_function(o, call);
    for (size_t i = 0; o->driver->cuFuncGetParamInfo(function, i, &offset, &bytes) == CUDA_SUCCESS;
         i++) {
        uint64_t word;
        if (bytes != sizeof word)
            continue;
        memcpy(&word, params[i], sizeof word);
        note_freed(o, call, word);
    }
}

static void look_for_freed(struct rpi_observe *o, const struct rpi_watch_call *call)
{
    if (rpi_watch_has(call, "params"))
        look_at_params(o, call);
    if (rpi_watch_has(call, "to"))
        note_freed(o, call, rpi_watch_value(call, "to"));
    if (rpi_watch_has(call, "from"))
        note_freed(o, call, rpi_watch_value(call, "from"));
}

static rp_status seen_alloc(struct rp_call *call, uint64_t bytes, CUstream stream,
                            uint64_t *out_address, struct rp_error *err)
{
    assert(current && current->inner->alloc);
    struct rpi_observe *o = current;
    rp_status status = o->inner->alloc(call, bytes, stream, out_address, err);
    if (status == RP_OK &&
        !rpi_vec_push(&o->blocks, ((struct rpi_block_seen){*out_address, bytes, false})))
        o->findings->no_memory = true;
    return status;
}

static rp_status seen_use(struct rp_call *call, uint64_t address, CUstream stream,
                          struct rp_error *err)
{
    assert(current && current->inner->use);
    return current->inner->use(call, address, stream, err);
}

static rp_status seen_free(struct rp_call *call, uint64_t address, struct rp_error *err)
{
    assert(current && current->inner->free);
    struct rpi_observe *o = current;
    rp_status status = o->inner->free(call, address, err);
    for (size_t i = 0; status == RP_OK && i < o->blocks.count; i++)
        if (o->blocks.data[i].address == address)
            o->blocks.data[i].freed = true;
    return status;
}

static const struct rpi_call_functions functions = {
    .alloc = seen_alloc, .use = seen_use, .free = seen_free};

/* ---- Calls --------------------------------------------------------------------------------- */

/* Is it work for a stream? *out_stream is which. */
static bool is_work(const struct rpi_watch_call *call, CUstream *out_stream)
{
    const char *f = call->function;
    size_t length = strlen(f);
    bool async = length > 5 && strcmp(f + length - 5, "Async") == 0;
    if (strcmp(f, "cuLaunchKernelEx") == 0) {
        *out_stream = ((const CUlaunchConfig *)(uintptr_t)rpi_watch_value(call, "config"))->hStream;
        return true;
    }
    if (!async && strncmp(f, "cuLaunch", 8) != 0)
        return false;
    *out_stream = (CUstream)(uintptr_t)rpi_watch_value(call, "stream");
    return rpi_watch_has(call, "stream");
}

static void note_outside(struct rpi_observe *o, const struct rpi_watch_call *call, CUstream stream)
{
    bool legacy = stream == NULL || stream == CU_STREAM_LEGACY;
    struct rpi_stack stack;
    rpi_stack_take(&stack, call->caller);
    struct rpi_finding *f = rpi_findings_note(
        o->findings, legacy ? "legacy-stream" : "outside-stream", call->function, &stack);
    if (!f)
        return;
    snprintf(f->what, sizeof f->what,
             "work on %s, which takes no part in the capture: it would run once, while capturing, "
             "and in no replay",
             legacy ? "the legacy default stream" : "another stream");
    snprintf(f->mend, sizeof f->mend, "%s",
             legacy ? "enqueue it on rp_call_stream"
                    : "let the stream wait for an event of the call's stream first, and that one "
                      "for it at the end; or enqueue on rp_call_stream");
}

static const struct rpi_kept_back *find_kept_back(const struct rpi_observe *o,
                                                  const struct rpi_watch_call *call)
{
    assert(o->active);
    for (size_t i = 0; i < o->kept_back.count; i++)
        if (o->kept_back.data[i].caller == call->caller &&
            strcmp(o->kept_back.data[i].function, call->function) == 0)
            return &o->kept_back.data[i];
    return NULL;
}

static enum rpi_watch_way before(struct rpi_watch_observer *observer,
                                 const struct rpi_watch_call *call)
{
    struct rpi_observe *o = (struct rpi_observe *)observer;
    CUstream stream;
    if (!o->active)
        return RPI_WATCH_CALL;
    const struct rpi_kept_back *kept = find_kept_back(o, call);
    if (kept)
        return kept->way;
    look_for_freed(o, call);
    if (!is_work(call, &stream))
        return RPI_WATCH_CALL;
    if (!is_captured(o, stream)) {
        note_outside(o, call, stream);
        return RPI_WATCH_SKIP;
    }
    enqueue(o, stream, call->caller);
    return RPI_WATCH_CALL;
}

static void note_call(struct rpi_observe *o, const struct rpi_watch_call *call, CUresult result)
{
    const struct rpi_call_explanation *known = rpi_explanation_of_call(call->function);
    const struct rp_explanation *code = rpi_explanation_of_code((int)result);
    struct rpi_stack stack;
    rpi_stack_take(&stack, call->caller);
    struct rpi_finding *f = rpi_findings_note(o->findings, known ? known->kind : "refused-call",
                                              call->function, &stack);
    if (!f)
        return;
    f->driver_code = (int)result;
    snprintf(f->what, sizeof f->what, "%s%s",
             known  ? known->what
             : code ? code->meaning
                    : rpi_result_meaning(result),
             result == CUDA_SUCCESS ? ", now, while nothing runs; replays do not repeat it" : "");
    snprintf(f->mend, sizeof f->mend, "%s",
             known  ? known->mend
             : code ? code->mends[0]
                    : "leave the call out of the region");
}

/* Copies and fills without a stream. Drivers make them while other streams are captured, and say
 * nothing. */
static bool happens_at_once(const struct rpi_watch_call *call)
{
    const struct rpi_call_explanation *known = rpi_explanation_of_call(call->function);
    return known &&
           (strcmp(known->kind, "host-copy") == 0 || strcmp(known->kind, "legacy-stream") == 0);
}

/* The next attempt goes on past this call. */
static void keep_back(struct rpi_observe *o, const struct rpi_watch_call *call)
{
    assert(call->caller && o->active);
    const struct rpi_call_explanation *known = rpi_explanation_of_call(call->function);
    bool needed =
        known && (strcmp(known->kind, "allocation") == 0 || strcmp(known->kind, "lazy-state") == 0);
    struct rpi_kept_back kept = {call->function, call->caller,
                                 needed ? RPI_WATCH_RELAX : RPI_WATCH_SKIP};
    if (!find_kept_back(o, call) && !rpi_vec_push(&o->kept_back, kept))
        o->findings->no_memory = true;
}

static void after(struct rpi_watch_observer *observer, const struct rpi_watch_call *call,
                  CUresult result)
{
    struct rpi_observe *o = (struct rpi_observe *)observer;
    if (!o->active)
        return;
    if (rpi_result_status(result) == RP_ERROR_CAPTURE) {
        /* What follows an invalidated capture is no obstacle of its own. */
        if (!o->refused)
            note_call(o, call, result);
        if (!o->refused)
            keep_back(o, call);
        o->refused = true;
    }
    if (result != CUDA_SUCCESS)
        return;
    if (happens_at_once(call))
        note_call(o, call, result);
    CUstream stream = (CUstream)(uintptr_t)rpi_watch_value(call, "stream");
    CUevent event = (CUevent)(uintptr_t)rpi_watch_value(call, "event");
    if (strncmp(call->function, "cuEventRecord", 13) == 0)
        record_event(o, event, stream);
    else if (strcmp(call->function, "cuStreamWaitEvent") == 0)
        wait_event(o, event, stream);
}

/* ---- Around a callable --------------------------------------------------------------------- */

void rpi_observe_init(struct rpi_observe *observe, const struct rp_driver *driver,
                      struct rp_findings *findings)
{
    memset(observe, 0, sizeof *observe);
    observe->observer.before = before;
    observe->observer.after = after;
    observe->driver = driver;
    observe->findings = findings;
}

void rpi_observe_finish(struct rpi_observe *observe)
{
    rpi_vec_finish(&observe->kept_back);
    rpi_vec_finish(&observe->blocks);
}

void rpi_observe_begin(struct rpi_observe *observe, struct rp_call *call)
{
    assert(!current && !observe->active);
    observe->stream_count = observe->event_count = 0;
    observe->blocks.count = 0;
    observe->refused = false;
    find_stream(observe, call->stream);
    observe->inner = call->functions;
    call->functions = &functions;
    current = observe;
    observe->active = true;
}

static void join(struct rpi_observe *o, CUstream stream)
{
    CUevent event;
    if (o->driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return;
    if (o->driver->cuEventRecord(event, stream) == CUDA_SUCCESS)
        o->driver->cuStreamWaitEvent(o->streams[0].stream, event, 0);
    o->driver->cuEventDestroy(event);
}

static void note_unjoined(struct rpi_observe *o, size_t s)
{
    assert(s && s < o->stream_count);
    struct rpi_finding *f = rpi_findings_note(o->findings, "unjoined-stream", "cuStreamEndCapture",
                                              &o->streams[s].last);
    if (!f)
        return;
    f->driver_code = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    snprintf(f->what, sizeof f->what,
             "nothing waits for what is enqueued here last on a side stream");
    snprintf(f->mend, sizeof f->mend,
             "record an event on the side stream behind it, and let rp_call_stream wait for the "
             "event before the callable returns");
}

void rpi_observe_end(struct rpi_observe *observe, struct rp_call *call)
{
    assert(current == observe && observe->active && call->functions == &functions);
    observe->active = false;
    call->functions = observe->inner;
    current = NULL;
    for (size_t s = 1; s < observe->stream_count && !observe->refused; s++) {
        if (observe->streams[0].clock[s] >= observe->streams[s].clock[s] ||
            !is_captured(observe, observe->streams[s].stream))
            continue;
        note_unjoined(observe, s);
        join(observe, observe->streams[s].stream);
    }
}
