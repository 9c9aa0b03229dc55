/* SPDX-License-Identifier: MIT */
#include "alloc/tap.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    pthread_mutex_t lock;
    atomic_bool on; /* read without the lock, so that nobody pays while nothing is recorded */
    struct rpp_tap tap;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *grown(void *list, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return list;
    size_t more = *room ? 2 * *room : 64;
    void *made = realloc(list, more * size);
    if (made)
        *room = more;
    return made;
}

/* The terminals of a stream of the capture. False: it is not in it. */
static bool terminals_of(const struct rpp_tap *tap, struct CUstream_st *stream, void ***out_nodes,
                         size_t *out_count)
{
    rpp_assert_held(&state.lock);
    enum { ACTIVE = 1 }; /* CU_STREAM_CAPTURE_STATUS_ACTIVE */
    const struct rpp_device *device = &rpp_state.devices[tap->ordinal];
    int status = 0;
    unsigned long long id = 0;
    void *graph, *edges;
    /* The legacy stream never captures, and asking it would break the capture. */
    return stream && device->is_capturing(stream, &status) == 0 && status == ACTIVE &&
           device->capture_info(stream, &status, &id, &graph, out_nodes, &edges, out_count) == 0 &&
           id == tap->capture;
}

static bool add_terminal(struct rpp_tap *tap, struct CUstream_st *stream, void *node)
{
    assert(tap->terminal_count <= tap->terminal_room);
    struct rpp_tap_terminal *list =
        grown(tap->terminals, tap->terminal_count, &tap->terminal_room, sizeof *list);
    if (!list)
        return false;
    tap->terminals = list;
    list[tap->terminal_count++] = (struct rpp_tap_terminal){stream, node};
    return true;
}

static bool add_terminals(struct rpp_tap *tap)
{
    rpp_assert_held(&state.lock);
    for (size_t s = 0; s < tap->stream_count; s++) {
        void **nodes = NULL;
        size_t count = 0;
        if (!terminals_of(tap, tap->streams[s], &nodes, &count))
            continue;
        for (size_t i = 0; i < count; i++)
            if (!add_terminal(tap, tap->streams[s], nodes[i]))
                return false;
        if (!count && !add_terminal(tap, tap->streams[s], NULL))
            return false;
    }
    return true;
}

static bool meet(struct rpp_tap *tap, struct CUstream_st *stream)
{
    assert(stream && tap->stream_count <= tap->stream_room);
    for (size_t s = 0; s < tap->stream_count; s++)
        if (tap->streams[s] == stream)
            return true;
    struct CUstream_st **list =
        grown(tap->streams, tap->stream_count, &tap->stream_room, sizeof(struct CUstream_st *));
    if (!list)
        return false;
    tap->streams = list;
    list[tap->stream_count++] = stream;
    return true;
}

/* With the lock held, and the context current. */
static bool add_event(struct rpp_tap *tap, struct rpp_tap_event event)
{
    rpp_assert_held(&state.lock);
    assert(tap->event_count <= tap->event_room);
    if (event.stream && !meet(tap, event.stream))
        return false;
    struct rpp_tap_event *list =
        grown(tap->events, tap->event_count, &tap->event_room, sizeof *list);
    if (!list)
        return false;
    tap->events = list;
    event.first = tap->terminal_count;
    if (!add_terminals(tap))
        return false;
    event.count = tap->terminal_count - event.first;
    list[tap->event_count++] = event;
    return true;
}

/* Is it of this recording? An allocation and a use are where their stream is in the capture. */
static bool is_of_capture(const struct rpp_tap *tap, const struct rpp_tap_event *event)
{
    void **nodes;
    size_t count;
    return event->kind == RPP_TAP_FREE || event->kind == RPP_TAP_MOMENT ||
           terminals_of(tap, event->stream, &nodes, &count);
}

static long note(struct rpp_tap_event event, int ordinal)
{
    long number = -1;
    pthread_mutex_lock(&state.lock);
    struct rpp_tap *tap = &state.tap;
    if (atomic_load(&state.on) && (ordinal < 0 || ordinal == tap->ordinal) &&
        rp_device_push(rpp_state.devices[tap->ordinal].device, NULL) == RP_OK) {
        if (is_of_capture(tap, &event)) {
            number = (long)tap->event_count;
            tap->failed |= !add_event(tap, event);
        }
        rp_device_pop(rpp_state.devices[tap->ordinal].device);
    }
    pthread_mutex_unlock(&state.lock);
    return number;
}

void rpp_tap_note(enum rpp_tap_kind kind, uint64_t address, uint64_t bytes, int ordinal,
                  struct CUstream_st *stream)
{
    if (!atomic_load_explicit(&state.on, memory_order_relaxed))
        return;
    note((struct rpp_tap_event){.kind = kind, .address = address, .bytes = bytes, .stream = stream},
         ordinal);
}

long rpp_tap_moment(struct CUstream_st *stream)
{
    return note((struct rpp_tap_event){.kind = RPP_TAP_MOMENT, .stream = stream}, -1);
}

rp_status rpp_tap_begin(int ordinal, struct CUstream_st *stream, struct rp_error *err)
{
    enum { ACTIVE = 1 };
    struct rpp_device *device;
    rp_status status = rpp_device_get(ordinal, &device, err);
    if (status == RP_OK)
        status = rp_device_push(device->device, err);
    if (status != RP_OK)
        return status;
    int capturing = 0;
    unsigned long long id = 0;
    void *graph, *nodes, *edges;
    size_t count;
    bool active =
        stream && device->is_capturing(stream, &capturing) == 0 && capturing == ACTIVE &&
        device->capture_info(stream, &capturing, &id, &graph, &nodes, &edges, &count) == 0;
    rp_device_pop(device->device);
    pthread_mutex_lock(&state.lock);
    bool other = atomic_load(&state.on);
    if (active && !other) {
        state.tap = (struct rpp_tap){.ordinal = ordinal, .capture = id};
        state.tap.failed = !meet(&state.tap, stream);
        atomic_store(&state.on, true);
    }
    pthread_mutex_unlock(&state.lock);
    if (active && !other)
        return RP_OK;
    snprintf(err->message, sizeof err->message, "%s",
             other ? "another capture is being recorded: record one after the other"
                   : "the stream is in no capture that could be recorded");
    return err->status = RP_ERROR_INVALID_ARGUMENT;
}

void rpp_tap_end(struct rpp_tap *out_tap)
{
    pthread_mutex_lock(&state.lock);
    atomic_store(&state.on, false);
    *out_tap = state.tap;
    state.tap = (struct rpp_tap){0};
    pthread_mutex_unlock(&state.lock);
}

void rpp_tap_finish(struct rpp_tap *tap)
{
    free(tap->events);
    free(tap->terminals);
    free(tap->streams);
}
