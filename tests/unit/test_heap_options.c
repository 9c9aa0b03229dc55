/* SPDX-License-Identifier: MIT
 *
 * c10's settings of how sizes are rounded and which blocks are cut, on the host driver.
 */
#include "heap_fixture.h"

static struct heap_fixture f;

static void open_with(const struct rp_heap_options *options, uint64_t total_bytes)
{
    heap_open(&f, rpi_driver_host(), options, total_bytes);
}

static void open_splitting(uint64_t max_split, uint64_t rounding)
{
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    options.max_split_bytes = max_split;
    options.max_non_split_rounding_bytes = rounding;
    open_with(&options, 1024 * MIB);
}

static uint64_t bytes_of(uint64_t address)
{
    struct rp_heap_block block = {.size = sizeof block};
    HEAP_OK(&f, rp_heap_find(f.heap, address, &block, &f.err));
    assert_int_equal(block.address, address);
    return block.bytes;
}

/* ---- Oversize blocks -------------------------------------------------------------------------*/

static void oversize_blocks_are_never_cut(void **state)
{
    (void)state;
    open_splitting(32 * MIB, 0);
    uint64_t large = heap_take(&f, 100 * MIB + 1, f.streams[0]);
    assert_int_equal(bytes_of(large), 102 * MIB); /* whole chunks */
    heap_give(&f, large);
    uint64_t small = heap_take(&f, 20 * MIB, f.streams[0]);
    assert_true(small + 20 * MIB <= large || large + 102 * MIB <= small);
    assert_int_equal(heap_take(&f, 90 * MIB, f.streams[0]), large); /* all of it */
    assert_int_equal(bytes_of(large), 102 * MIB);
    assert_int_equal(heap_stat(&f, "requested_bytes.large_pool.current"), 110 * MIB);
    assert_int_equal(heap_stat(&f, "allocated_bytes.large_pool.current"), 122 * MIB);
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 122 * MIB);
    heap_close(&f);
}

static void much_smaller_requests_get_blocks_of_their_own(void **state)
{
    (void)state;
    open_splitting(32 * MIB, 0);
    uint64_t large = heap_take(&f, 60 * MIB, f.streams[0]);
    heap_give(&f, large);
    assert_int_not_equal(heap_take(&f, 40 * MIB, f.streams[0]), large); /* 20 less: too much */
    assert_int_equal(heap_take(&f, 40 * MIB + 1, f.streams[0]), large);
    heap_close(&f);
    open_splitting(32 * MIB, 40 * MIB);
    large = heap_take(&f, 80 * MIB, f.streams[0]);
    heap_give(&f, large);
    assert_int_not_equal(heap_take(&f, 40 * MIB, f.streams[0]), large);
    assert_int_equal(heap_take(&f, 40 * MIB + 1, f.streams[0]), large);
    heap_close(&f);
}

static void oversize_blocks_are_never_joined(void **state)
{
    (void)state;
    uint64_t blocks[3];
    open_splitting(32 * MIB, 60 * MIB);
    for (int i = 0; i < 3; i++)
        blocks[i] = heap_take(&f, 40 * MIB, f.streams[0]);
    for (int i = 0; i < 3; i++)
        heap_give(&f, blocks[i]);
    assert_true(rpi_heap_is_valid(f.heap));
    uint64_t larger = heap_take(&f, 80 * MIB, f.streams[0]);
    for (int i = 0; i < 3; i++)
        assert_true(larger + 80 * MIB <= blocks[i] || blocks[i] + 40 * MIB <= larger);
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 200 * MIB);
    HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 80 * MIB);
    heap_close(&f);
}

static void oversize_blocks_are_counted(void **state)
{
    (void)state;
    open_splitting(32 * MIB, 0);
    assert_int_equal(heap_stat(&f, "max_split_size"), 32 * MIB);
    heap_take(&f, 31 * MIB, f.streams[0]); /* none */
    uint64_t a = heap_take(&f, 32 * MIB, f.streams[0]), b = heap_take(&f, 50 * MIB, f.streams[1]);
    heap_give(&f, a);
    heap_take(&f, 32 * MIB, f.streams[0]);
    heap_give(&f, b);
    HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
    static const struct {
        const char *name;
        int64_t value;
    } want[] = {{"oversize_allocations.current", 1},   {"oversize_allocations.peak", 2},
                {"oversize_allocations.allocated", 3}, {"oversize_allocations.freed", 2},
                {"oversize_segments.current", 1},      {"oversize_segments.peak", 2},
                {"oversize_segments.allocated", 2},    {"oversize_segments.freed", 1},
                {"allocation.large_pool.current", 2},  {"allocation.large_pool.peak", 3},
                {"segment.large_pool.current", 3}}; /* of 20, 20 and 32 MiB */
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_int_equal(heap_stat(&f, want[i].name), want[i].value);
    heap_close(&f);
    open_with(NULL, 1024 * MIB);
    heap_take(&f, 100 * MIB, f.streams[0]);
    assert_int_equal(heap_stat(&f, "max_split_size"), -1);
    assert_int_equal(heap_stat(&f, "oversize_allocations.allocated"), 0);
    heap_close(&f);
}

/* The stream's oversize blocks make room, and no more of them than has to; other memory stays. */
static void oversize_blocks_go_first_when_memory_is_short(void **state)
{
    (void)state;
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    options.max_split_bytes = 32 * MIB;
    options.limit_bytes = 200 * MIB;
    open_with(&options, 1024 * MIB);
    static const uint64_t mib[] = {40, 48, 64};
    uint64_t blocks[3];
    for (int i = 0; i < 3; i++)
        blocks[i] = heap_take(&f, mib[i] * MIB, f.streams[0]);
    uint64_t kept = heap_take(&f, 10 * MIB, f.streams[1]);
    heap_give(&f, kept);
    for (int i = 0; i < 3; i++)
        heap_give(&f, blocks[i]);
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 172 * MIB);
    heap_take(&f, 70 * MIB, f.streams[0]); /* none has 70: the two largest go */
    assert_int_equal(heap_stat(&f, "num_alloc_retries"), 1);
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), (172 - 64 - 48 + 70) * MIB);
    assert_int_equal(heap_take(&f, 10 * MIB, f.streams[1]), kept);
    assert_int_equal(heap_take(&f, 39 * MIB, f.streams[0]), blocks[0]);
    heap_close(&f);
}

static void a_request_that_is_not_oversize_is_served_too(void **state)
{
    (void)state;
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    options.max_split_bytes = 32 * MIB;
    options.limit_bytes = 100 * MIB;
    open_with(&options, 1024 * MIB);
    heap_give(&f, heap_take(&f, 40 * MIB, f.streams[0]));
    heap_give(&f, heap_take(&f, 50 * MIB, f.streams[0]));
    heap_take(&f, 30 * MIB, f.streams[0]); /* 40 for 40: the smallest that is enough goes */
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), (50 + 40) * MIB);
    heap_close(&f);
}

static void oversize_blocks_wait_for_other_streams(void **state)
{
    (void)state;
    struct heap_gate gate = HEAP_GATE_INIT;
    open_splitting(32 * MIB, 0);
    uint64_t block = heap_take(&f, 40 * MIB, f.streams[0]);
    heap_hold(&f, f.streams[1], &gate);
    HEAP_OK(&f, rp_heap_use(f.heap, block, f.streams[1], &f.err));
    heap_give(&f, block);
    assert_int_not_equal(heap_take(&f, 40 * MIB, f.streams[0]), block);
    heap_gate_open(&gate);
    assert_int_equal(f.driver->cuStreamSynchronize(f.streams[1]), 0);
    assert_int_equal(heap_take(&f, 40 * MIB, f.streams[0]), block);
    heap_close(&f);
}

static void idle_streams_lend_oversize_blocks(void **state)
{
    (void)state;
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    options.max_split_bytes = 32 * MIB;
    options.share_early = 1;
    open_with(&options, 1024 * MIB);
    uint64_t block = heap_take(&f, 40 * MIB, f.streams[0]);
    heap_give(&f, block);
    assert_int_equal(heap_take(&f, 40 * MIB, f.streams[1]), block);
    heap_close(&f);
}

/* ---- Rounding --------------------------------------------------------------------------------*/

/* What one request takes. */
static uint64_t rounded(uint64_t bytes)
{
    uint64_t address = heap_take(&f, bytes, f.streams[0]), got = bytes_of(address);
    heap_give(&f, address);
    HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
    return got;
}

static void requests_are_rounded_to_parts_of_powers_of_two(void **state)
{
    (void)state;
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    for (int i = 0; i < RP_HEAP_ROUNDINGS; i++)
        options.roundup_power2_divisions[i] = 4;
    open_with(&options, 1024 * MIB);
    static const uint64_t sizes[][2] = {{1, 512},
                                        {512, 512},
                                        {513, 1024},
                                        {1200, 1536},
                                        {2048, 2048},
                                        {2049, 2560},
                                        {4096, 4096},
                                        {4097, 5120},
                                        {6000, 6144},
                                        {7169, 8192},
                                        {1 << 20, 1 << 20},
                                        {(1 << 20) + 1, 5 << 18},
                                        {3 << 20, 3 << 20},
                                        {(3 << 20) + 1, 7 << 19},
                                        {(9u << 20) + 5, 10u << 20},
                                        {100u << 20, 112u << 20}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_int_equal(rounded(sizes[i][0]), sizes[i][1]);
    heap_close(&f);
}

static void intervals_have_divisions_of_their_own(void **state)
{
    (void)state;
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    options.roundup_power2_divisions[0] = 1; /* below 2 MiB */
    options.roundup_power2_divisions[1] = 2; /* 2 MiB to 4 */
    options.roundup_power2_divisions[2] = 8; /* 4 MiB to 8 */
    options.roundup_power2_divisions[6] = 0; /* 64 MiB to 128 */
    options.roundup_power2_divisions[7] = 2; /* 128 MiB to 256 */
    open_with(&options, 1024 * MIB);
    assert_int_equal(rounded(1500 * 1024 + 1), 1500 * 1024 + 512);
    assert_int_equal(rounded(2 * MIB + 1), 3 * MIB);
    assert_int_equal(rounded(4 * MIB + 1), 4 * MIB + MIB / 2);
    assert_int_equal(rounded(9 * MIB + 1), 9 * MIB + 512);
    assert_int_equal(rounded(65 * MIB + 1), 65 * MIB + 512);
    assert_int_equal(rounded(129 * MIB), 192 * MIB);
    heap_close(&f);
}

/* A size that is rounded up into the next class belongs there. */
static void rounding_comes_before_classes(void **state)
{
    (void)state;
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    options.roundup_power2_divisions[0] = 2;
    options.roundup_power2_divisions[4] = 2;
    options.max_split_bytes = 24 * MIB;
    open_with(&options, 1024 * MIB);
    heap_take(&f, 800 * 1024, f.streams[0]);
    assert_int_equal(heap_stat(&f, "allocated_bytes.small_pool.current"), MIB);
    heap_take(&f, 17 * MIB, f.streams[0]);
    assert_int_equal(heap_stat(&f, "oversize_allocations.current"), 1);
    assert_int_equal(heap_stat(&f, "requested_bytes.all.current"), 17 * MIB + 800 * 1024);
    heap_close(&f);
}

static void an_impossible_request_is_refused_whatever_the_rounding(void **state)
{
    (void)state;
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    options.roundup_power2_divisions[RP_HEAP_ROUNDINGS - 1] = 2;
    open_with(&options, 64 * MIB);
    uint64_t address = 7;
    assert_int_equal(rp_heap_alloc(f.heap, UINT64_MAX, f.streams[0], &address, &f.err),
                     RP_ERROR_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(address, 7);
    heap_close(&f);
}

/* ---- What is refused -------------------------------------------------------------------------*/

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    open_with(NULL, 64 * MIB);
    struct rp_heap *heap = NULL;
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    options.max_split_bytes = 20 * MIB;
    assert_int_equal(rp_heap_create(f.device, &options, &heap, &f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(f.err.message, "max_split_bytes"));
    options.max_split_bytes = 0;
    options.max_non_split_rounding_bytes = 1;
    assert_int_equal(rp_heap_create(f.device, &options, &heap, &f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(f.err.message, "max_non_split_rounding_bytes"));
    options.max_non_split_rounding_bytes = 0;
    options.roundup_power2_divisions[3] = 6;
    assert_int_equal(rp_heap_create(f.device, &options, &heap, &f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(f.err.message, "roundup_power2_divisions[3]"));
    assert_null(heap);
    heap_close(&f);
}

static void options_change_while_it_is_in_use(void **state)
{
    (void)state;
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    open_with(NULL, 1024 * MIB);
    uint64_t before = heap_take(&f, 84 * MIB, f.streams[0]);
    assert_int_equal(bytes_of(before), 84 * MIB);
    options.max_split_bytes = 32 * MIB;
    options.roundup_power2_divisions[6] = 4;
    HEAP_OK(&f, rp_heap_set_options(f.heap, &options, &f.err));
    uint64_t rounded = heap_take(&f, 84 * MIB, f.streams[0]);
    assert_int_equal(bytes_of(rounded), 96 * MIB);
    assert_int_equal(heap_stat(&f, "oversize_allocations.current"), 1);
    assert_int_equal(heap_stat(&f, "max_split_size"), 32 * MIB);
    options.gc_threshold = 2;
    options.max_split_bytes = 64 * MIB;
    assert_int_equal(rp_heap_set_options(f.heap, &options, &f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(heap_stat(&f, "max_split_size"), 32 * MIB);
    heap_give(&f, rounded);
    heap_give(&f, before);
    HEAP_OK(&f, rp_heap_set_options(f.heap, NULL, &f.err));
    assert_int_equal(heap_stat(&f, "max_split_size"), -1);
    assert_int_equal(bytes_of(heap_take(&f, 84 * MIB, f.streams[0])), 84 * MIB);
    heap_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oversize_blocks_are_never_cut),
        cmocka_unit_test(much_smaller_requests_get_blocks_of_their_own),
        cmocka_unit_test(oversize_blocks_are_never_joined),
        cmocka_unit_test(oversize_blocks_are_counted),
        cmocka_unit_test(oversize_blocks_go_first_when_memory_is_short),
        cmocka_unit_test(a_request_that_is_not_oversize_is_served_too),
        cmocka_unit_test(oversize_blocks_wait_for_other_streams),
        cmocka_unit_test(idle_streams_lend_oversize_blocks),
        cmocka_unit_test(requests_are_rounded_to_parts_of_powers_of_two),
        cmocka_unit_test(intervals_have_divisions_of_their_own),
        cmocka_unit_test(rounding_comes_before_classes),
        cmocka_unit_test(an_impossible_request_is_refused_whatever_the_rounding),
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(options_change_while_it_is_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
