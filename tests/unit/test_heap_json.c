/* SPDX-License-Identifier: MIT
 *
 * The heap's JSON, read by a JSON reader: every statistic and every field of a snapshot, compared
 * with the functions that give the same figures, and with a model of what the program did.
 */
#include "heap_fixture.h"

#include <jansson.h>
#include <stdio.h>

enum { SLOTS = 40, STEPS = 3000, HISTORY = 700, FREES_A_BLOCK = 2 };

static struct heap_fixture f;

struct live {
    uint64_t address, requested, stack;
    CUstream stream;
};

/* What the history should say of one call. */
struct happened {
    const char *action;
    uint64_t address, stack;
    CUstream stream;
};

static struct {
    struct live live[SLOTS];
    struct happened events[STEPS * (1 + FREES_A_BLOCK)];
    size_t event_count;
    uint64_t random, stacks;
} m;

static uint64_t next_random(void)
{
    m.random ^= m.random << 13;
    m.random ^= m.random >> 7;
    m.random ^= m.random << 17;
    return m.random;
}

/* ---- Frames: a stack has as many as its number modulo 3 --------------------------------------*/

static uint64_t capture(void *user)
{
    (void)user;
    return ++m.stacks;
}

static const char odd_name[] = "quote \" backslash \\ newline \n tab \t caf\xc3\xa9";

static int frame(uint64_t stack, size_t index, struct rp_heap_frame *out_frame, void *user)
{
    (void)user;
    if (index >= stack % 3)
        return 0;
    *out_frame = (struct rp_heap_frame){index ? odd_name : "model.py", index ? NULL : "forward",
                                        (int)(stack % 1000)};
    return 1;
}

static void same_frames(const json_t *frames, uint64_t stack)
{
    assert_int_equal(json_array_size(frames), stack % 3);
    for (size_t i = 0; i < json_array_size(frames); i++) {
        const json_t *got = json_array_get(frames, i);
        assert_string_equal(json_string_value(json_object_get(got, "filename")),
                            i ? odd_name : "model.py");
        assert_string_equal(json_string_value(json_object_get(got, "name")), i ? "" : "forward");
        assert_int_equal(json_integer_value(json_object_get(got, "line")), stack % 1000);
        assert_int_equal(json_object_size(got), 3);
    }
}

/* ---- The program -----------------------------------------------------------------------------*/

static void note(const char *action, const struct live *block, uint64_t stack)
{
    m.events[m.event_count++] = (struct happened){action, block->address, stack, block->stream};
}

static uint64_t random_bytes(uint64_t r)
{
    switch (r % 8) {
    case 0:
        return 1 + (r >> 8) % (40 * MIB);
    case 1:
        return 1 + (r >> 8) % (3 * MIB);
    default:
        return 1 + (r >> 8) % 40000;
    }
}

static void step(void)
{
    uint64_t r = next_random();
    struct live *slot = &m.live[(r >> 20) % SLOTS];
    if (slot->address) {
        heap_give(&f, slot->address);
        note("free_requested", slot, m.stacks);
        note("free_completed", slot, slot->stack);
        *slot = (struct live){0};
        return;
    }
    slot->requested = random_bytes(next_random());
    slot->stream = f.streams[(r >> 40) % HEAP_STREAMS];
    slot->address = heap_take(&f, slot->requested, slot->stream);
    slot->stack = m.stacks;
    note("alloc", slot, m.stacks);
}

static void run(uint64_t max_split)
{
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    options.frames = (struct rp_heap_frames){capture, NULL, frame, NULL};
    options.max_split_bytes = max_split;
    options.gc_threshold = 0.75;
    options.roundup_power2_divisions[5] = 8;
    memset(&m, 0, sizeof m);
    m.random = 88172645463325252u + max_split;
    heap_open(&f, rpi_driver_host(), &options, 4096 * MIB);
    HEAP_OK(&f, rp_heap_record_history(f.heap, HISTORY, &f.err));
    for (int i = 0; i < STEPS; i++)
        step();
}

static json_t *load(const char *text)
{
    json_error_t error;
    assert_non_null(text);
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!json)
        print_error("%s at %d: %.60s\n", error.text, error.position, text + error.position - 30);
    assert_non_null(json);
    return json;
}

static uint64_t number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    assert_true(json_is_integer(value));
    return (uint64_t)json_integer_value(value);
}

static const char *text(const json_t *object, const char *name)
{
    const char *value = json_string_value(json_object_get(object, name));
    assert_non_null(value);
    return value;
}

static const struct live *find_live(uint64_t address)
{
    for (int i = 0; i < SLOTS; i++)
        if (m.live[i].address == address)
            return &m.live[i];
    return NULL;
}

/* Returns how many bytes it has; *live counts blocks of the model. */
static uint64_t same_block(const json_t *json, const struct rp_heap_snapshot_block *block,
                           uint64_t address, size_t *live)
{
    assert_int_equal(json_object_size(json), 5);
    assert_int_equal(number(json, "address"), address);
    assert_int_equal(block->address, address);
    assert_int_equal(number(json, "size"), block->bytes);
    assert_int_equal(number(json, "requested_size"), block->requested);
    assert_string_equal(text(json, "state"), block->state);
    same_frames(json_object_get(json, "frames"), block->stack);
    const struct live *known = find_live(address);
    assert_string_equal(block->state, known ? "active_allocated" : "inactive");
    assert_int_equal(block->requested, known ? known->requested : 0);
    assert_int_equal(block->stack, known ? known->stack : 0);
    if (known)
        assert_ptr_equal(block->stream, known->stream);
    *live += known != NULL;
    return block->bytes;
}

static void same_segment(const struct rp_heap_snapshot *snapshot, const json_t *json,
                         const struct rp_heap_snapshot_segment *segment, size_t *live)
{
    const json_t *blocks = json_object_get(json, "blocks");
    uint64_t bytes = 0, allocated = 0, requested = 0;
    assert_int_equal(json_object_size(json), 12);
    assert_int_equal(number(json, "device"), 0);
    assert_int_equal(number(json, "address"), segment->address);
    assert_int_equal(number(json, "total_size"), segment->bytes);
    assert_int_equal(number(json, "allocated_size"), segment->allocated_bytes);
    assert_int_equal(number(json, "active_size"), segment->active_bytes);
    assert_int_equal(number(json, "requested_size"), segment->requested_bytes);
    assert_int_equal(number(json, "stream"), (uintptr_t)segment->stream);
    assert_string_equal(text(json, "segment_type"), segment->is_large ? "large" : "small");
    assert_int_equal(json_is_true(json_object_get(json, "is_expandable")), !segment->is_oversize);
    assert_int_equal(json_array_size(json_object_get(json, "segment_pool_id")), 2);
    assert_int_equal(json_array_size(json_object_get(json, "frames")), 0);
    assert_int_equal(json_array_size(blocks), segment->block_count);
    for (size_t i = 0; i < segment->block_count; i++) {
        struct rp_heap_snapshot_block block = {.size = sizeof block};
        assert_true(rp_heap_snapshot_block(snapshot, segment->first_block + i, &block));
        bytes += same_block(json_array_get(blocks, i), &block, segment->address + bytes, live);
        allocated += block.requested ? block.bytes : 0;
        requested += block.requested;
    }
    assert_int_equal(bytes, segment->bytes); /* blocks cover their segment */
    assert_int_equal(allocated, segment->allocated_bytes);
    assert_int_equal(allocated, segment->active_bytes);
    assert_int_equal(requested, segment->requested_bytes);
    assert_true(!segment->is_oversize || (segment->is_large && segment->block_count == 1));
}

static size_t same_segments(const struct rp_heap_snapshot *snapshot, const json_t *segments)
{
    size_t live = 0, oversize = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < json_array_size(segments); i++) {
        struct rp_heap_snapshot_segment segment = {.size = sizeof segment};
        assert_true(rp_heap_snapshot_segment(snapshot, i, &segment));
        same_segment(snapshot, json_array_get(segments, i), &segment, &live);
        bytes += segment.bytes;
        oversize += segment.is_oversize != 0;
    }
    struct rp_heap_snapshot_segment none = {.size = sizeof none};
    assert_false(rp_heap_snapshot_segment(snapshot, json_array_size(segments), &none));
    assert_int_equal(bytes, heap_stat(&f, "reserved_bytes.all.current"));
    assert_int_equal(live, heap_stat(&f, "allocation.all.current"));
    return oversize;
}

/* The latest events are what the model did last, with what was mapped and given back between. */
static void same_events(const struct rp_heap_snapshot *snapshot, const json_t *events)
{
    size_t count = json_array_size(events), at = m.event_count;
    uint64_t time = UINT64_MAX;
    assert_int_equal(count, HISTORY);
    for (size_t i = count; i-- > 0;) {
        const json_t *json = json_array_get(events, i);
        struct rp_heap_snapshot_event event = {.size = sizeof event};
        assert_true(rp_heap_snapshot_event(snapshot, i, &event));
        assert_int_equal(json_object_size(json), 6);
        assert_string_equal(text(json, "action"), event.action);
        assert_int_equal(number(json, "addr"), event.address);
        assert_int_equal(number(json, "size"), event.bytes);
        assert_int_equal(number(json, "stream"), (uintptr_t)event.stream);
        assert_int_equal(number(json, "time_us"), event.time_us);
        same_frames(json_object_get(json, "frames"), event.stack);
        assert_true(event.time_us <= time);
        time = event.time_us;
        if (strncmp(event.action, "segment_", 8) == 0)
            continue;
        assert_true(at > 0);
        const struct happened *want = &m.events[--at];
        assert_string_equal(event.action, want->action);
        assert_int_equal(event.address, want->address);
        assert_int_equal(event.stack, want->stack);
        assert_ptr_equal(event.stream, want->stream);
    }
    struct rp_heap_snapshot_event none = {.size = sizeof none};
    assert_false(rp_heap_snapshot_event(snapshot, count, &none));
}

static void same_settings(const json_t *settings, int64_t max_split)
{
    const json_t *rounding = json_object_get(settings, "roundup_power2_divisions");
    assert_true(json_is_true(json_object_get(settings, "expandable_segments")));
    assert_int_equal(number(settings, "max_split_size"), max_split);
    assert_true(json_real_value(json_object_get(settings, "garbage_collection_threshold")) == 0.75);
    assert_int_equal(json_object_size(rounding), RP_HEAP_ROUNDINGS);
    assert_int_equal(number(rounding, "1"), 0);
    assert_int_equal(number(rounding, "32"), 8);
    assert_int_equal(number(rounding, "32768"), 0);
}

static void check_snapshot(uint64_t max_split)
{
    struct rp_heap_snapshot *snapshot = NULL;
    run(max_split);
    HEAP_OK(&f, rp_heap_snapshot_create(f.heap, &snapshot, &f.err));
    json_t *json = load(rp_heap_snapshot_json(snapshot));
    assert_int_equal(json_object_size(json), 3);
    size_t oversize = same_segments(snapshot, json_object_get(json, "segments"));
    assert_int_equal(oversize, heap_stat(&f, "oversize_segments.current"));
    assert_true(max_split ? oversize > 0 : oversize == 0);
    assert_int_equal(json_array_size(json_object_get(json, "device_traces")), 1);
    same_events(snapshot, json_array_get(json_object_get(json, "device_traces"), 0));
    same_settings(json_object_get(json, "allocator_settings"), max_split ? (int64_t)max_split : -1);
    json_decref(json);
    rp_heap_snapshot_destroy(snapshot);
    heap_close(&f);
}

static void a_snapshot_is_what_the_program_did(void **state)
{
    (void)state;
    check_snapshot(0);
}

static void oversize_blocks_are_segments_of_their_own(void **state)
{
    (void)state;
    check_snapshot(24 * MIB);
}

/* A block that waits, and a request that failed. */
static void waiting_blocks_and_failures_are_shown(void **state)
{
    (void)state;
    struct heap_gate gate = HEAP_GATE_INIT;
    struct rp_heap_snapshot *snapshot = NULL;
    heap_open(&f, rpi_driver_host(), NULL, 64 * MIB);
    HEAP_OK(&f, rp_heap_record_history(f.heap, 10, &f.err));
    uint64_t block = heap_take(&f, 5000, f.streams[0]), other = 0;
    assert_int_equal(rp_heap_alloc(f.heap, 100 * MIB, f.streams[0], &other, NULL),
                     RP_ERROR_OUT_OF_DEVICE_MEMORY);
    heap_hold(&f, f.streams[1], &gate);
    HEAP_OK(&f, rp_heap_use(f.heap, block, f.streams[1], &f.err));
    heap_give(&f, block);
    HEAP_OK(&f, rp_heap_snapshot_create(f.heap, &snapshot, &f.err));
    json_t *json = load(rp_heap_snapshot_json(snapshot));
    const json_t *segment = json_array_get(json_object_get(json, "segments"), 0);
    const json_t *first = json_array_get(json_object_get(segment, "blocks"), 0);
    assert_string_equal(text(first, "state"), "active_pending_free");
    assert_int_equal(number(first, "requested_size"), 5000);
    assert_int_equal(number(segment, "allocated_size"), 0);
    assert_int_equal(number(segment, "active_size"), 5120);
    const json_t *trace = json_array_get(json_object_get(json, "device_traces"), 0);
    size_t ooms = 0;
    for (size_t i = 0; i < json_array_size(trace); i++) {
        const json_t *event = json_array_get(trace, i);
        if (strcmp(text(event, "action"), "oom") != 0)
            continue;
        assert_in_range(number(event, "device_free"), 1, 64 * MIB);
        assert_int_equal(number(event, "size"), 100 * MIB);
        assert_null(json_object_get(event, "addr"));
        ooms++;
    }
    assert_int_equal(ooms, 1);
    heap_gate_open(&gate);
    json_decref(json);
    rp_heap_snapshot_destroy(snapshot);
    heap_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_snapshot_is_what_the_program_did),
        cmocka_unit_test(oversize_blocks_are_segments_of_their_own),
        cmocka_unit_test(waiting_blocks_and_failures_are_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
