/* SPDX-License-Identifier: MIT
 *
 * Pools of a heap: whose memory is whose, and what becomes of it when memory is short.
 */
#include "heap_fixture.h"

enum { A = 1, B = RP_HEAP_POOLS - 1 };

static struct heap_fixture f;

static uint64_t take_in(uint32_t pool, uint64_t bytes, CUstream stream)
{
    uint64_t address = 0;
    HEAP_OK(&f, rp_heap_alloc_in(f.heap, pool, bytes, stream, &address, &f.err));
    return address;
}

static rp_status try_in(uint32_t pool, uint64_t bytes)
{
    uint64_t address = 0;
    return rp_heap_alloc_in(f.heap, pool, bytes, f.streams[0], &address, &f.err);
}

static void set(uint32_t pool, unsigned flags)
{
    HEAP_OK(&f, rp_heap_set_pool(f.heap, pool, flags, &f.err));
}

static int64_t reserved(void)
{
    return heap_stat(&f, "reserved_bytes.all.current");
}

static int open_heap(void **state)
{
    (void)state;
    heap_open(&f, rpi_driver_host(), NULL, 256 * MIB);
    return 0;
}

static int close_heap(void **state)
{
    (void)state;
    heap_close(&f);
    return 0;
}

static void test_memory_of_a_pool_stays_in_it(void **state)
{
    (void)state;
    uint64_t in_a = take_in(A, 1000, f.streams[0]);
    heap_give(&f, in_a);
    assert_int_not_equal(heap_take(&f, 1000, f.streams[0]), in_a);
    assert_int_not_equal(take_in(B, 1000, f.streams[0]), in_a);
    assert_int_not_equal(take_in(A, 1000, f.streams[1]), in_a);
    assert_int_equal(take_in(A, 1000, f.streams[0]), in_a);
    assert_int_equal(reserved(), 8 * MIB);
    assert_int_equal(rp_heap_pool_bytes(f.heap, A), 2048);
    assert_int_equal(rp_heap_pool_bytes(f.heap, B), 1024);
    assert_int_equal(rp_heap_pool_bytes(f.heap, 2), 0);
}

static void test_snapshots_name_it(void **state)
{
    (void)state;
    struct rp_heap_snapshot *snapshot;
    struct rp_heap_snapshot_segment segment = {.size = sizeof segment};
    heap_take(&f, 1000, f.streams[0]);
    uint64_t in_b = take_in(B, 1000, f.streams[0]);
    HEAP_OK(&f, rp_heap_snapshot_create(f.heap, &snapshot, &f.err));
    for (size_t i = 0; rp_heap_snapshot_segment(snapshot, i, &segment); i++)
        assert_int_equal(segment.pool, segment.address == in_b ? B : 0);
    rp_heap_snapshot_destroy(snapshot);
}

static void test_a_pool_keeps_its_memory(void **state)
{
    (void)state;
    set(A, RP_HEAP_POOL_KEEPS);
    uint64_t kept = take_in(A, 100 * MIB, f.streams[0]);
    heap_give(&f, kept);
    HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
    assert_int_equal(reserved(), 100 * MIB);
    assert_int_equal(try_in(0, 200 * MIB), RP_ERROR_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(try_in(B, 200 * MIB), RP_ERROR_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(take_in(A, 100 * MIB, f.streams[0]), kept);
    heap_give(&f, kept);
    HEAP_OK(&f, rp_heap_empty_pool(f.heap, B, &f.err));
    assert_int_equal(reserved(), 100 * MIB);
    HEAP_OK(&f, rp_heap_empty_pool(f.heap, A, &f.err));
    assert_int_equal(reserved(), 0);
}

static void test_a_pool_that_keeps_nothing_gives_it_back(void **state)
{
    (void)state;
    heap_give(&f, take_in(A, 100 * MIB, f.streams[0]));
    heap_take(&f, 200 * MIB, f.streams[0]);
    assert_int_equal(reserved(), 200 * MIB);
}

static void test_a_pool_lends(void **state)
{
    (void)state;
    set(A, RP_HEAP_POOL_KEEPS);
    set(B, RP_HEAP_POOL_KEEPS | RP_HEAP_POOL_LENDS);
    uint64_t a = take_in(A, 120 * MIB, f.streams[0]), b = take_in(B, 120 * MIB, f.streams[0]);
    assert_int_equal(try_in(0, 100 * MIB), RP_ERROR_OUT_OF_DEVICE_MEMORY);
    heap_give(&f, a);
    heap_give(&f, b);
    uint64_t lent = heap_take(&f, 100 * MIB, f.streams[0]);
    assert_int_equal(lent, b);
    assert_int_equal(try_in(0, 100 * MIB), RP_ERROR_OUT_OF_DEVICE_MEMORY);
    heap_give(&f, lent);
    assert_int_equal(take_in(B, 110 * MIB, f.streams[0]), b);
}

static void test_blocks_of_a_pool_are_whole(void **state)
{
    (void)state;
    set(A, RP_HEAP_POOL_WHOLE);
    uint64_t first = take_in(A, 3 * MIB, f.streams[0]), second = take_in(A, 5000, f.streams[0]);
    assert_int_equal(reserved(), 6 * MIB);
    assert_true(second < first || second >= first + 4 * MIB);
    heap_give(&f, first);
    assert_int_equal(take_in(A, 1000, f.streams[0]), first);
}

static void test_misuse(void **state)
{
    (void)state;
    uint64_t address = 7;
    assert_int_equal(rp_heap_set_pool(f.heap, 0, 0, &f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_heap_set_pool(f.heap, RP_HEAP_POOLS, 0, &f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_heap_set_pool(NULL, 1, 0, &f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_heap_alloc_in(f.heap, RP_HEAP_POOLS, 1, NULL, &address, &f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_heap_empty_pool(NULL, 1, &f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_heap_pool_bytes(NULL, 1), 0);
    assert_int_equal(address, 7);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_heap, close_heap)
    const struct CMUnitTest tests[] = {
        TEST(test_memory_of_a_pool_stays_in_it),
        TEST(test_snapshots_name_it),
        TEST(test_a_pool_keeps_its_memory),
        TEST(test_a_pool_that_keeps_nothing_gives_it_back),
        TEST(test_a_pool_lends),
        TEST(test_blocks_of_a_pool_are_whole),
        TEST(test_misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
