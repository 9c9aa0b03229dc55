/* SPDX-License-Identifier: MIT
 *
 * Pools whose memory comes from functions of the program's: what those are asked for, when it goes
 * back to them, and that they are called with no lock held.
 */
#include "heap_fixture.h"

enum { A = 1, B = 2, MOST = 64 };

static struct heap_fixture f;

/* A source that hands out addresses, which nobody reads or writes, one behind the other. */
static struct source {
    uint64_t next, left; /* bytes that it has */
    size_t taken, given;
    uint64_t out[MOST], bytes[MOST]; /* what is out; 0: nothing */
    struct CUstream_st *stream;
    bool asks_heap; /* each call looks at the heap, which would wait for ever for a lock */
} one, other;

static void look(const struct source *source)
{
    int64_t value;
    if (source->asks_heap) {
        assert_int_equal(rp_heap_stat(f.heap, "allocation.all.current", &value, &f.err), RP_OK);
        assert_int_equal(rp_heap_pool_bytes(f.heap, B), 0);
    }
}

static uint64_t source_alloc(uint64_t bytes, struct CUstream_st *stream, void *user)
{
    struct source *source = user;
    look(source);
    if (bytes > source->left)
        return 0;
    size_t i = 0;
    while (source->out[i])
        i++;
    assert_in_range(i, 0, MOST - 1);
    source->left -= bytes;
    source->taken++;
    source->stream = stream;
    source->out[i] = source->next;
    source->bytes[i] = bytes;
    source->next += bytes;
    return source->out[i];
}

static void source_free(uint64_t address, uint64_t bytes, struct CUstream_st *stream, void *user)
{
    struct source *source = user;
    size_t i = 0;
    look(source);
    while (i < MOST && source->out[i] != address)
        i++;
    assert_in_range(i, 0, MOST - 1);
    assert_int_equal(source->bytes[i], bytes);
    assert_ptr_equal(source->stream, stream);
    source->out[i] = 0;
    source->left += bytes;
    source->given++;
}

static struct rp_heap_source of(struct source *source)
{
    return (struct rp_heap_source){.alloc = source_alloc, .free = source_free, .user = source};
}

static uint64_t take_in(uint32_t pool, uint64_t bytes)
{
    uint64_t address = 0;
    HEAP_OK(&f, rp_heap_alloc_in(f.heap, pool, bytes, f.streams[0], &address, &f.err));
    return address;
}

static rp_status try_in(uint32_t pool, uint64_t bytes)
{
    uint64_t address = 0;
    return rp_heap_alloc_in(f.heap, pool, bytes, f.streams[0], &address, &f.err);
}

static int64_t reserved(void)
{
    return heap_stat(&f, "reserved_bytes.all.current");
}

static int open_heap(void **state)
{
    (void)state;
    one = (struct source){.next = (uint64_t)7 << 40, .left = 1000 * MIB, .asks_heap = true};
    other = (struct source){.next = (uint64_t)5 << 40, .left = 1000 * MIB};
    heap_open(&f, rpi_driver_host(), NULL, 256 * MIB);
    struct rp_heap_source source = of(&one);
    HEAP_OK(&f, rp_heap_set_source(f.heap, A, &source, &f.err));
    return 0;
}

static int close_heap(void **state)
{
    (void)state;
    one.asks_heap = false; /* the heap goes */
    heap_close(&f);
    assert_int_equal(one.taken, one.given);
    assert_int_equal(other.taken, other.given);
    return 0;
}

static void test_segments_are_c10s(void **state)
{
    (void)state;
    uint64_t first = take_in(A, 1000), second = take_in(A, MIB);
    assert_int_equal(first, (uint64_t)7 << 40);
    assert_int_equal(second, first + 1024);
    assert_int_equal(one.taken, 1);
    take_in(A, MIB);
    assert_int_equal(reserved(), 4 * MIB);
    take_in(A, 3 * MIB);
    assert_int_equal(reserved(), 24 * MIB);
    take_in(A, 11 * MIB);
    assert_int_equal(reserved(), 24 * MIB); /* from the 17 that are left of 20 */
    take_in(A, 13 * MIB + 1);
    assert_int_equal(reserved(), 38 * MIB);
    assert_int_equal(heap_stat(&f, "segment.all.current"), 4);
    assert_ptr_equal(one.stream, f.streams[0]);
    assert_int_equal(one.given, 0);
}

static void test_memory_goes_back_as_it_came(void **state)
{
    (void)state;
    uint64_t a = take_in(A, 30 * MIB), b = take_in(A, 512), c = take_in(A, 512);
    heap_give(&f, b);
    HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
    assert_int_equal(one.given, 0); /* c lies in the same segment */
    heap_give(&f, c);
    heap_give(&f, a);
    assert_int_equal(one.given, 0);
    assert_int_equal(take_in(A, 20 * MIB), a);
    assert_int_equal(one.taken, 2);
    HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
    assert_int_equal(one.given, 1);
    heap_give(&f, a);
    HEAP_OK(&f, rp_heap_empty_pool(f.heap, A, &f.err));
    assert_int_equal(one.given, 2);
    assert_int_equal(reserved(), 0);
    uint64_t again = take_in(A, 1000); /* in a range that was there before */
    heap_give(&f, again);
}

static void test_addresses_are_found(void **state)
{
    (void)state;
    enum { COUNT = 9 };
    struct rp_heap_source source = of(&other);
    struct rp_heap_block block = {.size = sizeof block};
    uint64_t kept[COUNT];
    HEAP_OK(&f, rp_heap_set_source(f.heap, B, &source, &f.err));
    one.asks_heap = false; /* B has something */
    for (int i = 0; i < COUNT; i++)
        kept[i] = take_in(i % 2 ? A : B, 12 * MIB);
    for (int i = 0; i < COUNT; i += 2)
        heap_give(&f, kept[i]);
    HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
    assert_int_equal(other.given, 5);
    for (int i = 0; i < COUNT; i++) {
        rp_status status = rp_heap_find(f.heap, kept[i] + 5 * MIB, &block, &f.err);
        assert_int_equal(status, i % 2 ? RP_OK : RP_ERROR_INVALID_ARGUMENT);
        if (i % 2)
            assert_int_equal(block.address, kept[i]);
    }
    assert_int_equal(rp_heap_find(f.heap, 4096, &block, &f.err), RP_ERROR_INVALID_ARGUMENT);
    HEAP_OK(&f, rp_heap_use(f.heap, kept[1], f.streams[1], &f.err));
    heap_give(&f, kept[1]);
    assert_int_equal(rp_heap_free(f.heap, kept[1], &f.err), RP_ERROR_INVALID_ARGUMENT);
}

static void test_a_limit_is_of_all(void **state)
{
    (void)state;
    rp_heap_set_limit(f.heap, 80 * MIB);
    uint64_t eager = heap_take(&f, 40 * MIB, f.streams[0]), a = take_in(A, 30 * MIB);
    assert_int_equal(try_in(A, 20 * MIB), RP_ERROR_LIMIT);
    assert_int_equal(one.taken, 1);
    heap_give(&f, eager);
    uint64_t b = take_in(A, 50 * MIB); /* what is cached goes for it */
    assert_int_equal(reserved(), 80 * MIB);
    heap_give(&f, a);
    heap_give(&f, b);
    eager = heap_take(&f, 80 * MIB, f.streams[0]); /* and the other way round */
    assert_int_equal(one.given, 2);
    heap_give(&f, eager);
    HEAP_OK(&f, rp_heap_set_pool(f.heap, A, RP_HEAP_POOL_KEEPS | RP_HEAP_POOL_LENDS, &f.err));
    a = take_in(A, 60 * MIB);
    heap_give(&f, a);
    assert_int_equal(heap_take(&f, 50 * MIB, f.streams[0]), a);
}

static void test_a_source_without_memory(void **state)
{
    (void)state;
    one.left = 22 * MIB;
    uint64_t a = take_in(A, 21 * MIB);
    assert_int_equal(try_in(A, MIB), RP_ERROR_OUT_OF_DEVICE_MEMORY);
    heap_give(&f, a);
    a = take_in(A, MIB); /* which the source has once the first is given back */
    assert_int_equal(one.given, 1);
    assert_int_equal(heap_stat(&f, "num_ooms"), 1);
    heap_give(&f, a);
}

static void test_whole_blocks(void **state)
{
    (void)state;
    HEAP_OK(&f, rp_heap_set_pool(f.heap, A, RP_HEAP_POOL_WHOLE, &f.err));
    uint64_t a = take_in(A, 3 * MIB), b = take_in(A, 5000);
    assert_int_equal(one.taken, 2);
    assert_int_equal(reserved(), 6 * MIB);
    heap_give(&f, a);
    assert_int_equal(take_in(A, 2 * MIB), a);
    heap_give(&f, b);
    HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
    assert_int_equal(one.given, 1);
}

static void test_snapshots_say_so(void **state)
{
    (void)state;
    struct rp_heap_snapshot *snapshot;
    struct rp_heap_snapshot_segment segment = {.size = sizeof segment};
    uint64_t a = take_in(A, 12 * MIB);
    take_in(A, 12 * MIB); /* right behind it, and a segment of its own */
    heap_take(&f, 1000, f.streams[0]);
    HEAP_OK(&f, rp_heap_snapshot_create(f.heap, &snapshot, &f.err));
    size_t count = 0;
    for (; rp_heap_snapshot_segment(snapshot, count, &segment); count++)
        assert_int_equal(segment.is_sourced,
                         segment.address == a || segment.address == a + 12 * MIB);
    assert_int_equal(count, 3);
    rp_heap_snapshot_destroy(snapshot);
}

static void test_misuse(void **state)
{
    (void)state;
    struct rp_heap_source source = of(&other), without = source;
    size_t count;
    uint64_t file_bytes, offset;
    without.free = NULL;
    heap_take(&f, 1000, f.streams[0]);
    uint64_t a = take_in(A, 1000);
    assert_int_equal(rp_heap_set_source(f.heap, 0, &source, &f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_heap_set_source(f.heap, RP_HEAP_POOLS, &source, &f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_heap_set_source(f.heap, B, &without, &f.err), RP_ERROR_INVALID_ARGUMENT);
    take_in(B, 1000);
    assert_int_equal(rp_heap_set_source(f.heap, B, &source, &f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(f.err.message, "before anything is allocated in it"));
    assert_int_not_equal(
        rp_heap_share(f.heap, a, 1000, 0, NULL, &count, &file_bytes, &offset, &f.err), RP_OK);
    one.asks_heap = false;
    HEAP_OK(&f, rp_heap_set_source(f.heap, A, &source, &f.err)); /* from then on */
    take_in(A, 30 * MIB);
    assert_int_equal(other.taken, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_heap, close_heap)
    const struct CMUnitTest tests[] = {
        TEST(test_segments_are_c10s),       TEST(test_memory_goes_back_as_it_came),
        TEST(test_addresses_are_found),     TEST(test_a_limit_is_of_all),
        TEST(test_a_source_without_memory), TEST(test_whole_blocks),
        TEST(test_snapshots_say_so),        TEST(test_misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
