/* SPDX-License-Identifier: MIT
 *
 * Keeping events small: times become 48 bits relative to the first event, threads and streams
 * become lanes, names become offsets into one block of texts. About 24 bytes an event plus 12 a
 * call while work is joined with its launches.
 */
#include "profile/trace.h"

#include "base/status.h"
#include "base/text.h"
#include "profile/sort.h"

#include <assert.h>
#include <string.h>

#define MOST_NAME_BYTES ((size_t)64 << 20)
#define MOST_THREADS    65535
#define MOST_STREAMS    1024
/* The base lies this far before the first event: later ones of the file may start earlier. */
#define BEFORE_FIRST_NS ((int64_t)1 << 46)
#define MOST_START      (((uint64_t)1 << 48) - 1)
#define MOST_SPAN       (((uint64_t)1 << 44) - 1)

void rpi_trace_init(struct rpi_trace *trace, const char *file)
{
    *trace = (struct rpi_trace){.file = file};
}

void rpi_trace_finish(struct rpi_trace *trace)
{
    rpi_vec_finish(&trace->frames);
    rpi_vec_finish(&trace->calls);
    rpi_vec_finish(&trace->work);
    rpi_vec_finish(&trace->names.texts);
    rpi_free(trace->names.slots);
    rpi_idmap_finish(&trace->threads);
    rpi_vec_finish(&trace->streams);
    *trace = (struct rpi_trace){.file = trace->file};
}

/* ---- Names --------------------------------------------------------------------------------- */

static uint64_t hash_text(const char *text, size_t bytes) /* FNV-1a over words of 8 bytes */
{
    uint64_t hash = 0xcbf29ce484222325u ^ bytes, word;
    for (; bytes >= 8; text += 8, bytes -= 8) {
        memcpy(&word, text, 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, text, bytes);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* The slot that holds the text, or the empty one where it belongs. */
static uint32_t *find_slot(const struct rpi_names *names, const char *text, size_t bytes)
{
    assert(names->slot_count && (names->slot_count & (names->slot_count - 1)) == 0);
    assert(names->count < names->slot_count);
    size_t mask = names->slot_count - 1, i = hash_text(text, bytes) & mask;
    for (; names->slots[i]; i = (i + 1) & mask) {
        const char *known = names->texts.data + names->slots[i];
        if (!strncmp(known, text, bytes) && !known[bytes])
            break;
    }
    return &names->slots[i];
}

static bool grow_slots(struct rpi_names *names)
{
    struct rpi_names grown = *names;
    grown.slot_count = names->slot_count ? 2 * names->slot_count : 1024;
    grown.slots = rpi_calloc(grown.slot_count, sizeof *grown.slots);
    if (!grown.slots)
        return false;
    for (size_t i = 0; i < names->slot_count; i++) {
        const char *text = names->texts.data + names->slots[i];
        if (names->slots[i])
            *find_slot(&grown, text, strlen(text)) = names->slots[i];
    }
    rpi_free(names->slots);
    *names = grown;
    return true;
}

bool rpi_names_add(struct rpi_names *names, const char *text, size_t bytes, uint32_t *out_index)
{
    const char *nul = memchr(text, 0, bytes);
    if (nul)
        bytes = (size_t)(nul - text);
    if (!names->texts.count && !rpi_vec_push(&names->texts, '\0')) /* index 0 means empty slot */
        return false;
    if (2 * (names->count + 1) > names->slot_count && !grow_slots(names))
        return false;
    uint32_t *slot = find_slot(names, text, bytes);
    if (!*slot && names->texts.count + bytes >= MOST_NAME_BYTES) {
        text = "(other)";
        bytes = strlen(text);
        slot = find_slot(names, text, bytes);
    }
    if (!*slot) {
        if (!rpi_vec_reserve(&names->texts, names->texts.count + bytes + 1))
            return false;
        *slot = (uint32_t)names->texts.count;
        memcpy(names->texts.data + names->texts.count, text, bytes);
        names->texts.data[names->texts.count + bytes] = '\0';
        names->texts.count += bytes + 1;
        names->count++;
    }
    assert(*slot && *slot < names->texts.count);
    *out_index = *slot;
    return true;
}

/* What a profiler wrote may be anything; what is kept can be shown. */
static bool add_name(struct rpi_names *names, const char *text, size_t bytes, uint32_t *out_index)
{
    if (rpi_text_is_plain(text, bytes))
        return rpi_names_add(names, text, bytes, out_index);
    char *masked = rpi_malloc(bytes + 1);
    if (!masked)
        return false;
    memcpy(masked, text, bytes);
    bool added = rpi_names_add(names, masked, rpi_text_mask(masked, bytes), out_index);
    rpi_free(masked);
    return added;
}

const char *rpi_name(const struct rpi_trace *trace, uint32_t index)
{
    assert(index < trace->names.texts.count);
    return trace->names.texts.data + index;
}

/* ---- Events -------------------------------------------------------------------------------- */

static rp_status refuse_more(const struct rpi_trace *trace, unsigned most, const char *what,
                             struct rp_error *err)
{
    return rpi_error(err, RP_ERROR_LIMIT, "advise",
                     "%s: has more than %u %s: profile fewer iterations, or one process alone",
                     trace->file, most, what);
}

static rp_status thread_lane(struct rpi_trace *trace, int64_t pid, int64_t tid, uint32_t *out_lane,
                             struct rp_error *err)
{
    uint64_t key = (uint64_t)pid << 32 ^ (uint64_t)tid;
    *out_lane = rpi_idmap_get(&trace->threads, key);
    if (*out_lane != RPI_ABSENT)
        return RP_OK;
    *out_lane = (uint32_t)trace->threads.count;
    if (*out_lane == MOST_THREADS)
        return refuse_more(trace, MOST_THREADS, "threads", err);
    return rpi_idmap_set(&trace->threads, key, *out_lane)
               ? RP_OK
               : rpi_error_host_memory(err, "advise", sizeof key);
}

static rp_status stream_lane(struct rpi_trace *trace, int64_t device, int64_t stream,
                             uint32_t *out_lane, struct rp_error *err)
{
    for (size_t i = 0; i < trace->streams.count; i++) {
        const struct rpi_stream *s = &trace->streams.data[i];
        if (s->device == device && s->stream == stream) {
            *out_lane = (uint32_t)i;
            return RP_OK;
        }
    }
    struct rpi_stream added = {device, stream};
    *out_lane = (uint32_t)trace->streams.count;
    if (*out_lane == MOST_STREAMS)
        return refuse_more(trace, MOST_STREAMS, "streams", err);
    return rpi_vec_push(&trace->streams, added)
               ? RP_OK
               : rpi_error_host_memory(err, "advise", sizeof added);
}

/* False: the event has no time that can be used. */
static bool place_in_time(struct rpi_trace *trace, const struct rpi_raw_event *raw,
                          struct rpi_event *event)
{
    if (raw->timeless || raw->span_ns < 0)
        return false;
    if (!trace->has_base) {
        trace->has_base = true;
        trace->base_ns = raw->start_ns > INT64_MIN + BEFORE_FIRST_NS
                             ? raw->start_ns - BEFORE_FIRST_NS
                             : INT64_MIN;
    }
    int64_t start;
    if (__builtin_sub_overflow(raw->start_ns, trace->base_ns, &start) || start < 0 ||
        (uint64_t)start > MOST_START)
        return false;
    event->start = (uint64_t)start & MOST_START;
    event->span =
        ((uint64_t)raw->span_ns < MOST_SPAN ? (uint64_t)raw->span_ns : MOST_SPAN) & MOST_SPAN;
    return true;
}

rp_status rpi_trace_add(struct rpi_trace *trace, const struct rpi_raw_event *raw,
                        struct rp_error *err)
{
    assert(raw->kind <= 15);
    struct rpi_event event = {.link = raw->correlation, .in_graph = raw->in_graph};
    bool on_stream = raw->kind >= RPI_WORK_KERNEL;
    struct rpi_events *into = on_stream                       ? &trace->work
                              : raw->kind == RPI_CALL_RUNTIME ? &trace->calls
                                                              : &trace->frames;
    size_t most = on_stream                       ? RPI_MOST_WORK
                  : raw->kind == RPI_CALL_RUNTIME ? RPI_MOST_CALLS
                                                  : RPI_MOST_FRAMES;
    bool timeless = !place_in_time(trace, raw, &event);
    if (into->count == most || timeless) {
        trace->left_out++;
        trace->timeless += timeless;
        trace->timeless_work += timeless && on_stream;
        return RP_OK;
    }
    uint32_t lane;
    rp_status status = on_stream ? stream_lane(trace, raw->lane_a, raw->lane_b, &lane, err)
                                 : thread_lane(trace, raw->lane_a, raw->lane_b, &lane, err);
    if (status != RP_OK)
        return status;
    if (!add_name(&trace->names, raw->name, raw->name_bytes, &event.name))
        return rpi_error_host_memory(err, "advise", raw->name_bytes);
    event.lane = lane & 0xffff;
    assert(event.lane == lane);
    event.kind = raw->kind & 15;
    if (!rpi_vec_push(into, event))
        return rpi_error_host_memory(err, "advise", into->count * sizeof event);
    return RP_OK;
}

/* More than one in ten? */
static bool too_many(uint64_t timeless, uint64_t kept)
{
    return timeless * 10 > kept + timeless;
}

rp_status rpi_trace_check(const struct rpi_trace *trace, struct rp_error *err)
{
    uint64_t kept = trace->frames.count + trace->calls.count + trace->work.count;
    bool work = too_many(trace->timeless_work, trace->work.count);
    if (!work && !too_many(trace->timeless, kept))
        return RP_OK;
    uint64_t timeless = work ? trace->timeless_work : trace->timeless;
    uint64_t all = timeless + (work ? trace->work.count : kept);
    return rpi_error(err, RP_ERROR_FORMAT, "advise",
                     "%s: %llu of %llu %s have no usable times (not finite, negative, or days from "
                     "the first): export the trace again",
                     trace->file, (unsigned long long)timeless, (unsigned long long)all,
                     work ? "pieces of GPU work" : "events");
}

/* ---- Order and links ----------------------------------------------------------------------- */

/* The calls' indices by correlation id: radix sort, 16 bits at a time, stable. */
static uint32_t *by_correlation(const struct rpi_events *calls)
{
    uint32_t *from = rpi_reallocarray(NULL, calls->count + 1, sizeof *from);
    uint32_t *to = rpi_reallocarray(NULL, calls->count + 1, sizeof *to);
    uint32_t *starts = rpi_calloc(65537, sizeof *starts);
    bool ok = from && to && starts;
    for (uint32_t i = 0; ok && i < calls->count; i++)
        from[i] = i;
    for (unsigned shift = 0; ok && shift < 32; shift += 16) {
        memset(starts, 0, 65537 * sizeof *starts);
        for (size_t i = 0; i < calls->count; i++)
            starts[(calls->data[i].link >> shift & 0xffff) + 1]++;
        for (size_t d = 0; d < 65536; d++)
            starts[d + 1] += starts[d];
        for (size_t i = 0; i < calls->count; i++)
            to[starts[calls->data[from[i]].link >> shift & 0xffff]++] = from[i];
        uint32_t *swapped = from;
        from = to;
        to = swapped;
    }
    rpi_free(to);
    rpi_free(starts);
    if (!ok) {
        rpi_free(from);
        return NULL;
    }
    return from;
}

/* The first call with this correlation id. */
static uint32_t find_call(const struct rpi_events *calls, const uint32_t *sorted, uint32_t id)
{
    assert(!calls->count || sorted);
    size_t low = 0, high = calls->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (calls->data[sorted[middle]].link < id)
            low = middle + 1;
        else
            high = middle;
    }
    return id && low < calls->count && calls->data[sorted[low]].link == id ? sorted[low]
                                                                           : RPI_NO_LINK;
}

rp_status rpi_trace_order(struct rpi_trace *trace, struct rp_error *err)
{
    rpi_sort_events(&trace->frames, RPI_BY_LANE);
    rpi_sort_events(&trace->calls, RPI_BY_LANE);
    rpi_sort_events(&trace->work, RPI_BY_START);
    uint32_t *sorted = by_correlation(&trace->calls);
    if (!sorted)
        return rpi_error_host_memory(err, "advise", trace->calls.count * sizeof *sorted);
    for (size_t i = 0; i < trace->work.count; i++)
        trace->work.data[i].link = find_call(&trace->calls, sorted, trace->work.data[i].link);
    rpi_free(sorted);
    return RP_OK;
}
