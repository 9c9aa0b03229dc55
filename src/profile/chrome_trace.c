/* SPDX-License-Identifier: MIT
 *
 * Reading the JSON that torch.profiler's export_chrome_trace writes (Kineto's schema version 1), an
 * event at a time. Complete events (ph "X") of these categories are kept, everything else passed
 * over:
 *
 *     cpu_op, python_function, user_annotation      frames of a thread
 *     cuda_runtime, cuda_driver                     calls, with args.correlation
 *     kernel, gpu_memcpy, gpu_memset                work of a stream, with args.correlation,
 *                                                   args.device, args.stream
 *
 * and of instant events [memory], which profile_memory=True adds. Times are microseconds with three
 * decimals; older versions wrote whole microseconds.
 */
#include "base/status.h"
#include "base/text.h"
#include "profile/json_stream.h"
#include "profile/trace.h"

#include <string.h>

enum { MOST_NAME = 2048 };

/* One element of traceEvents while it is read. */
struct raw {
    char phase;
    int category; /* index into categories, or -1 */
    bool has_time, in_graph;
    bool timeless;   /* ts or dur is there and no finite number */
    int64_t ts, dur; /* nanoseconds */
    int64_t pid, tid, device, stream, correlation;
    int64_t memory_bytes, memory_device;
    size_t name_bytes;
    char name[MOST_NAME];
};

static const struct {
    const char *name;
    enum rpi_event_kind kind;
} categories[] = {
    {"cpu_op", RPI_FRAME_OP},
    {"python_function", RPI_FRAME_PYTHON},
    {"user_annotation", RPI_FRAME_ANNOTATION},
    {"cuda_runtime", RPI_CALL_RUNTIME},
    {"cuda_driver", RPI_CALL_RUNTIME},
    {"kernel", RPI_WORK_KERNEL},
    {"gpu_memcpy", RPI_WORK_COPY},
    {"gpu_memset", RPI_WORK_FILL},
};
enum { CATEGORIES = sizeof categories / sizeof *categories };

struct reader {
    struct rpi_trace *trace;
    struct rpi_json json;
    struct raw raw;
    bool has_events;
    struct rp_error *err;
};

static enum rpi_json_token next(struct reader *r)
{
    return rpi_json_next(&r->json, r->err);
}

/* A number in thousandths; anything else is taken and leaves *out as it was. */
static bool take_number(struct reader *r, int64_t *out)
{
    enum rpi_json_token token = next(r);
    if (token == RPI_JSON_NUMBER)
        rpi_json_thousandths(&r->json, out);
    return rpi_json_skip(&r->json, token, r->err);
}

/* A time, of which the event has none where it is no finite number. */
static bool take_time(struct reader *r, int64_t *out)
{
    int64_t thousandths = INT64_MIN;
    if (!take_number(r, &thousandths))
        return false;
    if (thousandths == INT64_MIN)
        r->raw.timeless = true;
    else
        *out = thousandths;
    return true;
}

/* A whole number. */
static bool take_whole(struct reader *r, int64_t *out)
{
    int64_t thousandths = INT64_MIN;
    if (!take_number(r, &thousandths))
        return false;
    if (thousandths != INT64_MIN)
        *out = thousandths / 1000;
    return true;
}

/* A text, cut to what fits, and ended by NUL. */
static bool take_text(struct reader *r, char *to, size_t room, size_t *out_bytes)
{
    enum rpi_json_token token = next(r);
    if (token == RPI_JSON_TEXT) {
        *out_bytes = r->json.bytes < room - 1 ? r->json.bytes : room - 1;
        memcpy(to, r->json.text, *out_bytes);
        to[*out_bytes] = '\0';
    }
    return rpi_json_skip(&r->json, token, r->err);
}

static bool skip_value(struct reader *r)
{
    return rpi_json_skip(&r->json, next(r), r->err);
}

static bool is(const struct reader *r, const char *key)
{
    return rpi_json_is(&r->json, key);
}

static bool take_argument(struct reader *r)
{
    struct raw *raw = &r->raw;
    int64_t graph = 0;
    if (is(r, "correlation"))
        return take_whole(r, &raw->correlation);
    if (is(r, "stream"))
        return take_whole(r, &raw->stream);
    if (is(r, "device"))
        return take_whole(r, &raw->device);
    if (is(r, "Bytes"))
        return take_whole(r, &raw->memory_bytes);
    if (is(r, "Device Type"))
        return take_whole(r, &raw->memory_device);
    if (is(r, "graph id") || is(r, "graph node id")) {
        bool ok = take_whole(r, &graph);
        raw->in_graph |= graph != 0;
        return ok;
    }
    return skip_value(r);
}

static bool take_arguments(struct reader *r)
{
    enum rpi_json_token token = next(r);
    if (token != RPI_JSON_OBJECT)
        return rpi_json_skip(&r->json, token, r->err);
    while ((token = next(r)) == RPI_JSON_KEY)
        if (!take_argument(r))
            return false;
    return token == RPI_JSON_OBJECT_END;
}

static bool take_category(struct reader *r)
{
    char text[32];
    size_t bytes = 0;
    if (!take_text(r, text, sizeof text, &bytes))
        return false;
    for (int i = 0; bytes && i < CATEGORIES; i++)
        if (!strcmp(text, categories[i].name))
            r->raw.category = i;
    return true;
}

static bool take_phase(struct reader *r)
{
    char text[4] = "";
    size_t bytes = 0;
    bool ok = take_text(r, text, sizeof text, &bytes);
    r->raw.phase = text[0];
    return ok;
}

static bool take_member(struct reader *r)
{
    struct raw *raw = &r->raw;
    if (is(r, "ph"))
        return take_phase(r);
    if (is(r, "cat"))
        return take_category(r);
    if (is(r, "name"))
        return take_text(r, raw->name, sizeof raw->name, &raw->name_bytes);
    if (is(r, "pid"))
        return take_whole(r, &raw->pid);
    if (is(r, "tid"))
        return take_whole(r, &raw->tid);
    if (is(r, "ts")) {
        raw->has_time = true;
        return take_time(r, &raw->ts);
    }
    if (is(r, "dur"))
        return take_time(r, &raw->dur);
    if (is(r, "args"))
        return take_arguments(r);
    return skip_value(r);
}

static bool keep_event(struct reader *r)
{
    struct raw *raw = &r->raw;
    struct rpi_trace *trace = r->trace;
    trace->events++;
    if (raw->phase == 'i' && !strcmp(raw->name, "[memory]") && raw->memory_device == 1) {
        trace->has_memory = true;
        trace->allocations += raw->memory_bytes > 0;
        trace->frees += raw->memory_bytes < 0;
    }
    if (raw->phase != 'X' || raw->category < 0 || !raw->has_time)
        return true;
    enum rpi_event_kind kind = categories[raw->category].kind;
    bool on_stream = kind >= RPI_WORK_KERNEL;
    trace->is_pytorch |= kind == RPI_FRAME_OP || kind == RPI_FRAME_PYTHON;
    trace->has_python |= kind == RPI_FRAME_PYTHON;
    struct rpi_raw_event event = {
        .kind = kind,
        .timeless = raw->timeless,
        .start_ns = raw->ts,
        .span_ns = raw->dur,
        .lane_a = on_stream && raw->device >= 0 ? raw->device : raw->pid,
        .lane_b = on_stream && raw->stream >= 0 ? raw->stream : raw->tid,
        .correlation = (uint32_t)raw->correlation,
        .in_graph = raw->in_graph,
        .name = raw->name,
        .name_bytes = raw->name_bytes,
    };
    return rpi_trace_add(trace, &event, r->err) == RP_OK;
}

static bool take_event(struct reader *r)
{
    r->raw.phase = '\0';
    r->raw.category = -1;
    r->raw.has_time = r->raw.in_graph = r->raw.timeless = false;
    r->raw.ts = r->raw.dur = 0;
    r->raw.pid = r->raw.tid = r->raw.correlation = 0;
    r->raw.device = r->raw.stream = -1;
    r->raw.memory_bytes = r->raw.memory_device = 0;
    r->raw.name_bytes = 0;
    r->raw.name[0] = '\0';
    enum rpi_json_token token;
    while ((token = next(r)) == RPI_JSON_KEY)
        if (!take_member(r))
            return false;
    return token == RPI_JSON_OBJECT_END && keep_event(r);
}

/* The elements of the array of events; its opening bracket has been taken. */
static bool take_events(struct reader *r)
{
    enum rpi_json_token token;
    r->has_events = true;
    while ((token = next(r)) != RPI_JSON_ARRAY_END)
        if (token == RPI_JSON_OBJECT ? !take_event(r) : !rpi_json_skip(&r->json, token, r->err))
            return false;
    return true;
}

/* deviceProperties: a list of objects, one a device; the first name is kept. */
static bool take_devices(struct reader *r)
{
    size_t bytes;
    enum rpi_json_token token = next(r);
    if (token != RPI_JSON_ARRAY)
        return rpi_json_skip(&r->json, token, r->err);
    r->trace->is_pytorch = true;
    while ((token = next(r)) != RPI_JSON_ARRAY_END) {
        if (token != RPI_JSON_OBJECT) {
            if (!rpi_json_skip(&r->json, token, r->err))
                return false;
            continue;
        }
        while ((token = next(r)) == RPI_JSON_KEY) {
            bool wanted = is(r, "name") && !r->trace->device_name[0];
            if (wanted ? !take_text(r, r->trace->device_name, sizeof r->trace->device_name, &bytes)
                       : !skip_value(r))
                return false;
            rpi_text_mask(r->trace->device_name, strlen(r->trace->device_name));
        }
        if (token != RPI_JSON_OBJECT_END)
            return false;
    }
    return true;
}

static bool take_top_member(struct reader *r)
{
    if (is(r, "deviceProperties"))
        return take_devices(r);
    if (!is(r, "traceEvents"))
        return skip_value(r);
    enum rpi_json_token token = next(r);
    return token == RPI_JSON_ARRAY ? take_events(r) : rpi_json_skip(&r->json, token, r->err);
}

static bool take_file(struct reader *r)
{
    enum rpi_json_token token = next(r);
    if (token == RPI_JSON_ARRAY) {
        if (!take_events(r))
            return false;
    } else if (token == RPI_JSON_OBJECT) {
        while ((token = next(r)) == RPI_JSON_KEY)
            if (!take_top_member(r))
                return false;
        if (token != RPI_JSON_OBJECT_END)
            return false;
    } else if (!rpi_json_skip(&r->json, token, r->err)) {
        return false;
    }
    return next(r) == RPI_JSON_END;
}

#define WHAT_TO_GIVE                                                                               \
    "export one with torch.profiler's export_chrome_trace, or a report of Nsight Systems with "    \
    "nsys export --type sqlite"

/* What the file is instead, where its contents tell. */
static rp_status judge(const struct reader *r)
{
    const struct rpi_trace *t = r->trace;
    if (!r->has_events)
        return rpi_error(r->err, RP_ERROR_FORMAT, "advise",
                         "%s: is JSON without traceEvents: no profiler trace, or one of another "
                         "tool; " WHAT_TO_GIVE,
                         t->file);
    rp_status status = rpi_trace_check(t, r->err);
    if (status != RP_OK || t->work.count)
        return status;
    if (t->is_pytorch)
        return rpi_error(r->err, RP_ERROR_FORMAT, "advise",
                         "%s: has %llu events but no GPU work: profile on a machine with a GPU, "
                         "with ProfilerActivity.CUDA among the activities",
                         t->file, (unsigned long long)t->events);
    if (!t->events)
        return rpi_error(r->err, RP_ERROR_FORMAT, "advise",
                         "%s: has no events: let the profiler's schedule reach its active steps, "
                         "and export the trace behind them",
                         t->file);
    return rpi_error(r->err, RP_ERROR_FORMAT, "advise",
                     "%s: has %llu events, none of which is PyTorch's or GPU work: a trace of "
                     "another tool; " WHAT_TO_GIVE,
                     t->file, (unsigned long long)t->events);
}

/* Reads the first block, whole even where a pipe gives it in pieces. */
static rp_status read_beginning(struct reader *r)
{
    enum { ENOUGH = 16 };
    struct rpi_json *json = &r->json;
    size_t got = 0, count = 0;
    do {
        rp_status status =
            rpi_source_read(json->source, json->end, json->capacity / 2 - count, &got, r->err);
        if (status != RP_OK)
            return status;
        json->end += got;
        count += got;
    } while (got && count < ENOUGH);
    return RP_OK;
}

/* Passes over the mark of UTF-8, and refuses what does not even begin like JSON. */
static rp_status check_beginning(struct reader *r)
{
    struct rpi_json *json = &r->json;
    size_t count = (size_t)(json->end - json->at);
    const char *file = r->trace->file;
    if (!count)
        return rpi_error(r->err, RP_ERROR_FORMAT, "advise", "%s: the file is empty", file);
    if (count >= 2 && (!memcmp(json->at, "\xff\xfe", 2) || !memcmp(json->at, "\xfe\xff", 2) ||
                       !json->at[0] || !json->at[1]))
        return rpi_error(r->err, RP_ERROR_FORMAT, "advise",
                         "%s: is UTF-16 or binary, where UTF-8 is needed: convert it, or export it "
                         "again",
                         file);
    if (count >= 3 && !memcmp(json->at, "\xef\xbb\xbf", 3))
        json->at += 3;
    const char *first = json->at;
    while (first < json->end && strchr(" \t\r\n", *first) && *first)
        first++;
    if (first < json->end && *first != '{' && *first != '[')
        return rpi_error(r->err, RP_ERROR_FORMAT, "advise",
                         "%s: does not begin like JSON: no profiler trace; " WHAT_TO_GIVE, file);
    return RP_OK;
}

static rp_status read_all(struct reader *r, struct rpi_source *source, struct rp_error *err)
{
    struct rp_error own = {0};
    r->err = &own;
    rp_status status = rpi_json_init(&r->json, r->trace->file, source, &own);
    if (status == RP_OK)
        status = read_beginning(r);
    if (status == RP_OK)
        status = check_beginning(r);
    if (status == RP_OK && !take_file(r))
        status = own.status ? own.status
                            : rpi_error(&own, RP_ERROR_FORMAT, "advise", "%s: is no valid trace",
                                        r->trace->file);
    if (status == RP_OK)
        status = judge(r);
    rpi_json_finish(&r->json);
    r->err = NULL;
    if (status != RP_OK && err)
        *err = own;
    return status;
}

rp_status rpi_trace_read_chrome(struct rpi_trace *trace, struct rpi_source *source,
                                struct rp_error *err)
{
    struct reader *reader = rpi_calloc(1, sizeof *reader);
    if (!reader)
        return rpi_error_host_memory(err, "advise", sizeof *reader);
    reader->trace = trace;
    rp_status status = read_all(reader, source, err);
    rpi_free(reader);
    return status;
}
