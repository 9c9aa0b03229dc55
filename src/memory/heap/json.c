/* SPDX-License-Identifier: MIT
 *
 * Snapshots as JSON, in the form of PyTorch's dictionaries. Text is written by a
 * writer that counts what does not fit, so that the same code measures and writes.
 */
#include "memory/heap/snapshot.h"

#include "base/refuse.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct writer {
    char *text;
    size_t bytes; /* room, with the final 0 */
    size_t used;  /* length of the whole text so far, whether it fits or not */
};

static void put(struct writer *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct writer *out, const char *format, ...)
{
    size_t room = out->used < out->bytes ? out->bytes - out->used : 0;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(room ? out->text + out->used : NULL, room, format, args);
    va_end(args);
    out->used += length > 0 ? (size_t)length : 0;
}

static void put_string(struct writer *out, const char *text)
{
    put(out, "\"");
    for (const char *c = text ? text : ""; *c; c++) {
        if (*c == '"' || *c == '\\')
            put(out, "\\%c", *c);
        else if ((unsigned char)*c < ' ')
            put(out, "\\u%04x", (unsigned)*c);
        else
            put(out, "%c", *c);
    }
    put(out, "\"");
}

static void put_frames(struct writer *out, const struct rp_heap *heap,
                       const struct rpi_heap_stack *stack)
{
    struct rp_heap_frame frame = {NULL, NULL, 0};
    put(out, "\"frames\":[");
    for (size_t i = 0; stack && heap->frames.frame; i++) {
        if (!heap->frames.frame(stack->id, i, &frame, heap->frames.user))
            break;
        put(out, "%s{\"filename\":", i ? "," : "");
        put_string(out, frame.filename);
        put(out, ",\"line\":%d,\"name\":", frame.line);
        put_string(out, frame.name);
        put(out, "}");
    }
    put(out, "]");
}

static void put_segment(struct writer *out, const struct rp_heap_snapshot *snapshot, size_t index)
{
    const struct rp_heap_snapshot_segment *segment = &snapshot->segments.data[index];
    assert(segment->first_block + segment->block_count <= snapshot->blocks.count);
    assert(segment->allocated_bytes <= segment->active_bytes &&
           segment->active_bytes <= segment->bytes);
    put(out,
        "%s{\"device\":%d,\"address\":%" PRIu64 ",\"total_size\":%" PRIu64
        ",\"allocated_size\":%" PRIu64 ",\"active_size\":%" PRIu64 ",\"requested_size\":%" PRIu64
        ",\"stream\":%" PRIuPTR ",\"segment_type\":\"%s\",\"segment_pool_id\":[0,0],"
        "\"is_expandable\":%s,\"frames\":[],\"blocks\":[",
        index ? "," : "", snapshot->heap->device, segment->address, segment->bytes,
        segment->allocated_bytes, segment->active_bytes, segment->requested_bytes,
        (uintptr_t)segment->stream, segment->is_large ? "large" : "small",
        segment->is_oversize ? "false" : "true");
    for (size_t i = 0; i < segment->block_count; i++) {
        const struct rpi_snapshot_block *block = &snapshot->blocks.data[segment->first_block + i];
        put(out,
            "%s{\"address\":%" PRIu64 ",\"size\":%" PRIu64 ",\"requested_size\":%" PRIu64
            ",\"state\":\"%s\",",
            i ? "," : "", block->seen.address, block->seen.bytes, block->seen.requested,
            block->seen.state);
        put_frames(out, snapshot->heap, block->stack);
        put(out, "}");
    }
    put(out, "]}");
}

static void put_event(struct writer *out, const struct rp_heap_snapshot *snapshot, size_t index)
{
    const struct rpi_heap_event *event = &snapshot->events.data[index];
    put(out,
        "%s{\"action\":\"%s\",\"%s\":%" PRIu64 ",\"size\":%" PRIu64 ",\"stream\":%" PRIuPTR
        ",\"time_us\":%" PRIu64 ",",
        index ? "," : "", rpi_heap_event_name(event->action),
        event->action == RP_HEAP_EVENT_OOM ? "device_free" : "addr", event->address, event->bytes,
        (uintptr_t)event->stream, event->time_us);
    put_frames(out, snapshot->heap, event->stack);
    put(out, "}");
}

static void put_settings(struct writer *out, const struct rp_heap *heap)
{
    bool split = heap->max_split_bytes != UINT64_MAX;
    put(out,
        "\"allocator_settings\":{\"expandable_segments\":true,\"max_split_size\":%" PRId64
        ",\"garbage_collection_threshold\":%g,\"roundup_power2_divisions\":{",
        split ? (int64_t)heap->max_split_bytes : -1, heap->gc_threshold);
    for (int i = 0; i < RP_HEAP_ROUNDINGS; i++)
        put(out, "%s\"%d\":%u", i ? "," : "", 1 << i, heap->divisions[i]);
    put(out, "}}");
}

static void put_snapshot(struct writer *out, const struct rp_heap_snapshot *snapshot)
{
    put(out, "{\"segments\":[");
    for (size_t i = 0; i < snapshot->segments.count; i++)
        put_segment(out, snapshot, i);
    /* A list for each device; the heap's is the last, those before it are empty. */
    put(out, "],\"device_traces\":[");
    for (int device = 0; device < snapshot->heap->device; device++)
        put(out, "[],");
    put(out, "[");
    for (size_t i = 0; i < snapshot->events.count; i++)
        put_event(out, snapshot, i);
    put(out, "]],");
    put_settings(out, snapshot->heap);
    put(out, "}");
}

const char *rp_heap_snapshot_json(struct rp_heap_snapshot *snapshot)
{
    if (!snapshot)
        return NULL;
    if (snapshot->text)
        return snapshot->text;
    struct writer measure = {NULL, 0, 0};
    put_snapshot(&measure, snapshot);
    char *text = rpi_malloc(measure.used + 1);
    if (!text)
        return NULL;
    struct writer out = {text, measure.used + 1, 0};
    put_snapshot(&out, snapshot);
    snapshot->text = text;
    return text;
}
