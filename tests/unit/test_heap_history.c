/* SPDX-License-Identifier: MIT
 *
 * What a history keeps, as its options say: which events, how many, of before, and with whose
 * stacks.
 */
#include "heap_fixture.h"

#include <stdio.h>

static struct heap_fixture f;
static uint64_t stacks, released;

static uint64_t capture(void *user)
{
    (void)user;
    return ++stacks;
}

static void release(uint64_t stack, void *user)
{
    (void)user;
    assert_true(stack > 0 && stack <= stacks);
    released++;
}

static int open_heap(void **state)
{
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    options.frames = (struct rp_heap_frames){capture, release, NULL, NULL};
    stacks = released = 0;
    heap_open(&f, rpi_driver_host(), &options, 4096 * MIB);
    *state = &f;
    return 0;
}

static int close_heap(void **state)
{
    (void)state;
    heap_close(&f);
    assert_int_equal(released, stacks);
    return 0;
}

static void keep(size_t entries, enum rp_heap_stacks which, uint64_t skip, int before)
{
    struct rp_heap_history_options options = RP_HEAP_HISTORY_OPTIONS_INIT;
    options.entries = entries;
    options.stacks = which;
    options.skip = skip;
    options.keep = before;
    HEAP_OK(&f, rp_heap_keep_history(f.heap, &options, &f.err));
}

static struct rp_heap_snapshot *look(void)
{
    struct rp_heap_snapshot *snapshot = NULL;
    HEAP_OK(&f, rp_heap_snapshot_create(f.heap, &snapshot, &f.err));
    return snapshot;
}

/* The events' names, each with its stack where it has one: "alloc:1 oom". */
static void told(char text[512])
{
    struct rp_heap_snapshot *snapshot = look();
    struct rp_heap_snapshot_event event = {.size = sizeof event};
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; rp_heap_snapshot_event(snapshot, i, &event); i++) {
        used += (size_t)snprintf(text + used, 512 - used, "%s%s", i ? " " : "", event.action);
        if (event.stack)
            used += (size_t)snprintf(text + used, 512 - used, ":%d", (int)event.stack);
    }
    rp_heap_snapshot_destroy(snapshot);
}

static void expect(const char *want)
{
    char text[512];
    told(text);
    assert_string_equal(text, want);
}

static void one_block(void)
{
    heap_give(&f, heap_take(&f, 1000, f.streams[0]));
    HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
}

static void test_stacks_of_all(void **state)
{
    (void)state;
    keep(100, RP_HEAP_STACKS_ALL, 0, 0);
    one_block();
    expect("segment_map:1 alloc:1 free_requested:2 free_completed:1 segment_unmap:3");
    expect("segment_map:1 alloc:1 free_requested:2 free_completed:1 segment_unmap:3 snapshot");
}

static void test_stacks_of_allocations(void **state)
{
    (void)state;
    keep(100, RP_HEAP_STACKS_OF_ALLOCATIONS, 0, 0);
    one_block();
    expect("segment_map:1 alloc:1 free_requested:1 free_completed:1 segment_unmap");
    assert_int_equal(stacks, 1);
}

static void test_stacks_of_blocks(void **state)
{
    (void)state;
    keep(100, RP_HEAP_STACKS_OF_BLOCKS, 0, 0);
    uint64_t address = heap_take(&f, 1000, f.streams[0]);
    expect("segment_map alloc");
    struct rp_heap_snapshot *snapshot = look();
    struct rp_heap_snapshot_block block = {.size = sizeof block};
    assert_true(rp_heap_snapshot_block(snapshot, 0, &block));
    assert_int_equal(block.stack, 1);
    rp_heap_snapshot_destroy(snapshot);
    heap_give(&f, address);
    assert_int_equal(stacks, 1);
}

static void test_no_stacks(void **state)
{
    (void)state;
    keep(100, RP_HEAP_STACKS_NONE, 0, 0);
    one_block();
    expect("segment_map alloc free_requested free_completed segment_unmap");
    assert_int_equal(stacks, 0);
}

static void test_stack_of_a_shortage(void **state)
{
    (void)state;
    uint64_t address;
    keep(100, RP_HEAP_STACKS_OF_ALLOCATIONS, 0, 0);
    assert_int_equal(rp_heap_alloc(f.heap, 1ull << 50, f.streams[0], &address, &f.err),
                     RP_ERROR_OUT_OF_DEVICE_MEMORY);
    expect("oom:1");
}

static void test_skips(void **state)
{
    (void)state;
    keep(100, RP_HEAP_STACKS_NONE,
         1 << RP_HEAP_EVENT_ALLOC | 1 << RP_HEAP_EVENT_SEGMENT_MAP | 1 << RP_HEAP_EVENT_SNAPSHOT,
         0);
    one_block();
    expect("free_requested free_completed segment_unmap");
    expect("free_requested free_completed segment_unmap");
}

static void test_events_of_before(void **state)
{
    (void)state;
    keep(100, RP_HEAP_STACKS_ALL, 0, 0);
    one_block();
    keep(100, RP_HEAP_STACKS_NONE, 0, 1);
    one_block();
    expect("segment_map:1 alloc:1 free_requested:2 free_completed:1 segment_unmap:3 "
           "segment_map alloc free_requested free_completed segment_unmap");
    keep(3, RP_HEAP_STACKS_ALL, 0, 1); /* the latest, with the snapshot of just now */
    expect("free_completed segment_unmap snapshot");
    keep(100, RP_HEAP_STACKS_ALL, 0, 0);
    expect("");
    keep(0, RP_HEAP_STACKS_ALL, 0, 1);
    one_block();
    expect("");
    assert_int_equal(stacks, 3);
}

/* Host memory comes with the events, and the ring turns where it is full. */
static void test_many(void **state)
{
    (void)state;
    enum { MOST = 5000, BLOCKS = 4000 };
    struct rp_heap_snapshot_event event = {.size = sizeof event};
    keep(MOST, RP_HEAP_STACKS_ALL, 1 << RP_HEAP_EVENT_FREE_COMPLETED, 0);
    heap_take(&f, 600, f.streams[0]); /* what is mapped stays */
    for (int i = 0; i < BLOCKS; i++)
        heap_give(&f, heap_take(&f, (uint64_t)i + 1, f.streams[0]));
    struct rp_heap_snapshot *snapshot = look();
    for (size_t i = 0; i < MOST; i++) {
        assert_true(rp_heap_snapshot_event(snapshot, i, &event));
        assert_string_equal(event.action, i % 2 ? "free_requested" : "alloc");
        assert_int_equal(event.bytes, BLOCKS - MOST / 2 + i / 2 + 1); /* as asked for */
    }
    assert_false(rp_heap_snapshot_event(snapshot, MOST, &event));
    rp_heap_snapshot_destroy(snapshot);
}

static void test_marks(void **state)
{
    (void)state;
    struct rp_heap_snapshot_event event = {.size = sizeof event};
    keep(100, RP_HEAP_STACKS_NONE, 0, 0);
    uint64_t address = heap_take(&f, 5, f.streams[0]);
    rp_heap_mark_history(f.heap, 7);
    heap_give(&f, address);
    struct rp_heap_snapshot *snapshot = look();
    for (size_t i = 0; rp_heap_snapshot_event(snapshot, i, &event); i++)
        assert_int_equal(event.mark, strncmp(event.action, "free_", 5) == 0 ? 7 : 0);
    rp_heap_snapshot_destroy(snapshot);
}

static void test_misuse(void **state)
{
    (void)state;
    struct rp_heap_history_options options = {0};
    assert_int_equal(rp_heap_keep_history(f.heap, &options, &f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_heap_keep_history(NULL, NULL, &f.err), RP_ERROR_INVALID_ARGUMENT);
    HEAP_OK(&f, rp_heap_keep_history(f.heap, NULL, &f.err));
    rp_heap_mark_history(NULL, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_heap, close_heap)
    const struct CMUnitTest tests[] = {
        TEST(test_stacks_of_all),
        TEST(test_stacks_of_allocations),
        TEST(test_stacks_of_blocks),
        TEST(test_no_stacks),
        TEST(test_stack_of_a_shortage),
        TEST(test_skips),
        TEST(test_events_of_before),
        TEST(test_many),
        TEST(test_marks),
        TEST(test_misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
