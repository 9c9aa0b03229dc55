/* SPDX-License-Identifier: MIT
 *
 * Address ranges with memory behind them, on the host driver: the arena that grows, the pool of
 * alternatives over it, and the rehearsals' many addresses on one chunk.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "driver/host/host.h"
#include "memory/pool/pool.h"
#include "memory/range/rehearsal_range.h"
#include "rare_addresses.h"

#define MIB 1048576ull

static const struct rp_driver *driver;

static struct rpi_host_statistics held(void)
{
    struct rpi_host_statistics statistics;
    rpi_host_statistics(&statistics);
    return statistics;
}

static int open_driver(void **state)
{
    (void)state;
    CUcontext context;
    driver = rpi_driver_host();
    return driver->cuInit(0) != CUDA_SUCCESS ||
           driver->cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
           driver->cuCtxSetCurrent(context) != CUDA_SUCCESS;
}

static int close_driver(void **state)
{
    (void)state;
    struct rpi_host_statistics left = held();
    rpi_host_reset();
    return left.chunks || left.mappings || left.reservations || left.physical_bytes;
}

static void write_and_read(uint64_t address, unsigned char value)
{
    unsigned char seen = 0;
    assert_int_equal(driver->cuMemsetD8(address, value, 1), 0);
    assert_int_equal(driver->cuMemcpyDtoH(&seen, address, 1), 0);
    assert_int_equal(seen, value);
}

/* As many as a program has that makes a pool for each of its callables, and again once they are
 * gone. */
static void many_ranges_lie_high(void **state)
{
    (void)state;
    if (!RPT_LOWEST)
        skip();
    enum { RANGES = 300 };
    for (int round = 0; round < 4; round++) {
        CUdeviceptr bases[RANGES];
        for (int i = 0; i < RANGES; i++) {
            assert_int_equal(rpi_reserve_addresses(driver, 64 * MIB, &bases[i]), 0);
            assert_in_range(bases[i] >> 32, RPT_LOWEST, RPT_HIGHEST);
            assert_true((uint32_t)bases[i] >= 0x50000000);
        }
        for (int i = 0; i < RANGES; i++)
            rpi_free_addresses(driver, bases[i], 64 * MIB);
    }
}

static unsigned reserves;

static CUresult counted_reserve(CUdeviceptr *address, size_t bytes, size_t alignment,
                                CUdeviceptr hint, unsigned long long flags)
{
    reserves++;
    return driver->cuMemAddressReserve(address, bytes, alignment, hint, flags);
}

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { OTHERS = 128 }; /* sanitizers have memory among the places */
#else
enum { OTHERS = 2 };
#endif

/* Where a program's pools lie all over the places, each further one asks the driver once, or a few times where others
 * have memory. */
static void places_that_are_taken_are_not_asked_for(void **state)
{
    (void)state;
    if (!RPT_LOWEST)
        skip();
    enum { RANGES = 300, LARGE = 6, ROUNDS = 5 };
    static const uint64_t large = 1ull << 42;
    struct rp_driver counted = *driver;
    counted.cuMemAddressReserve = counted_reserve;
    CUdeviceptr bases[RANGES], more;
    reserves = 0;
    uint64_t sizes[RANGES];
    for (int i = 0; i < RANGES; i++) {
        sizes[i] = i < LARGE ? large : 64 * MIB;
        assert_int_equal(rpi_reserve_addresses(&counted, sizes[i], &bases[i]), 0);
    }
    assert_in_range(reserves, RANGES, RANGES + OTHERS);
    reserves = 0;
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(rpi_reserve_addresses(&counted, large, &more), 0);
        rpi_free_addresses(&counted, more, large);
    }
    assert_in_range(reserves, ROUNDS, 3 * ROUNDS);
    for (int i = 0; i < RANGES; i++)
        rpi_free_addresses(&counted, bases[i], sizes[i]);
    assert_int_equal(rpi_reserve_addresses(driver, 64 * MIB, &more), 0);
    assert_in_range(more >> 32, RPT_LOWEST, RPT_HIGHEST);
    rpi_free_addresses(driver, more, 64 * MIB);
}

static void arena_grows_in_place_and_shrinks(void **state)
{
    (void)state;
    struct rpi_arena arena;
    assert_int_equal(rpi_arena_init(&arena, driver, 0, 64 * MIB, NULL), RP_OK);
    uint64_t base = arena.base;
    assert_int_equal(held().physical_bytes, 0);
    assert_int_equal(rpi_arena_grow(&arena, 1, NULL), RP_OK);
    assert_int_equal(arena.mapped, 2 * MIB);
    write_and_read(base + 2 * MIB - 1, 11);
    assert_int_equal(rpi_arena_grow(&arena, 2 * MIB, NULL), RP_OK);
    assert_int_equal(arena.chunks.count, 1);
    assert_int_equal(rpi_arena_grow(&arena, 7 * MIB, NULL), RP_OK);
    assert_int_equal(arena.mapped, 8 * MIB);
    assert_int_equal(arena.base, base);
    unsigned char seen = 0;
    assert_int_equal(driver->cuMemcpyDtoH(&seen, base + 2 * MIB - 1, 1), 0);
    assert_int_equal(seen, 11);
    write_and_read(base + 8 * MIB - 1, 12);
    assert_int_equal(driver->cuMemsetD8(base + 8 * MIB, 0, 1), CUDA_ERROR_INVALID_VALUE);
    rpi_arena_shrink(&arena, 3 * MIB); /* the second chunk is still needed */
    assert_int_equal(arena.mapped, 8 * MIB);
    rpi_arena_shrink(&arena, 2 * MIB);
    assert_int_equal(arena.mapped, 2 * MIB);
    assert_int_equal(held().physical_bytes, 2 * MIB);
    rpi_arena_finish(&arena);
    rpi_arena_finish(&arena);
}

static void arena_tells_what_it_cannot_have(void **state)
{
    (void)state;
    struct rpi_arena arena;
    struct rp_error err;
    struct rpi_host_options options, small;
    rpi_host_options(&options);
    small = options;
    small.total_bytes = 8 * MIB;
    rpi_host_configure(&small);
    assert_int_equal(rpi_arena_init(&arena, driver, 0, 64 * MIB, NULL), RP_OK);
    assert_int_equal(rpi_arena_grow(&arena, 4 * MIB, NULL), RP_OK);
    assert_int_equal(rpi_arena_grow(&arena, 10 * MIB, &err), RP_ERROR_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(err.requested, 6 * MIB);
    assert_int_equal(err.available, 4 * MIB);
    assert_int_equal(rpi_arena_grow(&arena, 65 * MIB, &err), RP_ERROR_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(arena.mapped, 4 * MIB);
    assert_int_equal(rpi_arena_grow(&arena, 8 * MIB, NULL), RP_OK);
    rpi_arena_finish(&arena);
    rpi_host_configure(&options);
}

static void arena_is_as_it_was_after_each_failure(void **state)
{
    (void)state;
    const struct rp_driver *faulty = rpi_driver_fault(driver);
    struct rpi_arena arena;
    assert_int_equal(rpi_arena_init(&arena, faulty, 0, 64 * MIB, NULL), RP_OK);
    assert_int_equal(rpi_arena_grow(&arena, 2 * MIB, NULL), RP_OK);
    struct rpi_host_statistics before = held();
    for (uint64_t call = 0;; call++) {
        struct rp_error err = {0};
        rpi_driver_fault_at(call, CUDA_ERROR_UNKNOWN);
        rp_status status = rpi_arena_grow(&arena, 6 * MIB, &err);
        if (status == RP_OK) {
            rpi_arena_shrink(&arena, 2 * MIB);
            if (!rpi_driver_fault_hit())
                break;
            continue; /* the capture mode could not be exchanged: nothing is lost */
        }
        assert_int_equal(status, RP_ERROR_DRIVER);
        assert_int_equal(arena.mapped, 2 * MIB);
        struct rpi_host_statistics now = held();
        assert_int_equal(now.chunks, before.chunks);
        assert_int_equal(now.mappings, before.mappings);
    }
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    rpi_arena_finish(&arena);
}

static void pool_is_as_high_as_its_highest(void **state)
{
    (void)state;
    struct rpi_pool pool;
    struct rp_error err;
    struct rpi_pool_group root = {.node.kind = RPI_COMPOSE_ALTERNATIVES};
    struct rpi_range ranges[] = {{0, 3 * MIB}, {0, 9 * MIB}};
    struct rpi_pool_member small = {.all = {.data = &ranges[0], .count = 1},
                                    .lower_bound = 2 * MIB},
                           large = {.all = {.data = &ranges[1], .count = 1},
                                    .lower_bound = 1 * MIB};
    assert_int_equal(rpi_pool_init(&pool, &root, driver, 0, 64 * MIB, 11 * MIB, 512, NULL), RP_OK);
    assert_int_equal(rpi_pool_grow(&pool, 3 * MIB, NULL), RP_OK);
    rpi_pool_add(&pool, &root, &small.node);
    rpi_pool_settle(&pool);
    assert_int_equal(pool.arena.mapped, 4 * MIB);
    assert_int_equal(rpi_pool_grow(&pool, 9 * MIB, NULL), RP_OK);
    rpi_pool_remove(&pool, &small.node); /* another thread's graph goes while one is captured */
    assert_int_equal(pool.arena.mapped, 10 * MIB);
    rpi_pool_add(&pool, &root, &small.node);
    rpi_pool_add(&pool, &root, &large.node);
    rpi_pool_settle(&pool);
    assert_int_equal(rpi_pool_height(&root.node), 9 * MIB);
    assert_int_equal(rpi_pool_lower_bound(&pool, &root.node), 2 * MIB);
    assert_int_equal(rpi_pool_grow(&pool, 10 * MIB + 1, &err), RP_ERROR_LIMIT);
    assert_int_equal(err.requested, 12 * MIB);
    assert_int_equal(err.available, 11 * MIB);
    rpi_pool_remove(&pool, &large.node);
    assert_int_equal(rpi_pool_height(&root.node), 3 * MIB);
    assert_int_equal(pool.arena.mapped, 4 * MIB);
    rpi_pool_remove(&pool, &small.node);
    assert_int_equal(pool.arena.mapped, 0);
    rpi_pool_finish(&pool);
}

static void rehearsals_have_addresses_of_their_own(void **state)
{
    (void)state;
    struct rpi_rehearsal_range range;
    static const uint64_t alignments[] = {1, 16, 512, 2 * MIB};
    uint64_t starts[8];
    assert_int_equal(rpi_rehearsal_range_init(&range, driver, 0, NULL), RP_OK);
    for (int rehearsal = 0; rehearsal < 8; rehearsal++) {
        uint64_t alignment = alignments[rehearsal % 4], last_end = 0;
        rpi_rehearsal_range_begin(&range);
        for (uint64_t i = 0; i < 100; i++) {
            uint64_t address = 0, bytes = i % 10 * 100000;
            assert_int_equal(rpi_rehearsal_range_take(&range, bytes, alignment, &address, NULL),
                             RP_OK);
            assert_int_equal(address % alignment, 0);
            assert_int_not_equal(address % (2 * alignment), 0);
            assert_true(address > last_end + 256); /* a gap before it */
            assert_true(rpi_rehearsal_range_holds(&range, address));
            if (bytes)
                write_and_read(address + bytes - 1, (unsigned char)i);
            last_end = address + bytes;
            if (i == 0)
                starts[rehearsal] = address;
        }
        for (int earlier = 0; earlier < rehearsal; earlier++)
            assert_int_not_equal(starts[earlier], starts[rehearsal]);
        assert_int_equal(held().physical_bytes, 2 * MIB);
    }
    assert_false(rpi_rehearsal_range_holds(&range, range.base - 1));
    assert_false(rpi_rehearsal_range_holds(&range, range.base + range.reserved));
    rpi_rehearsal_range_finish(&range);
}

static void rehearsals_are_aligned_as_they_are_told(void **state)
{
    (void)state;
    struct rpi_rehearsal_range range;
    uint64_t address, last_end = 0;
    assert_int_equal(rpi_rehearsal_range_init(&range, driver, 0, NULL), RP_OK);
    rpi_rehearsal_range_begin(&range);
    for (uint64_t i = 0; i < 40; i++) {
        uint64_t bytes = 1ull << (i % 23), like = (i * 2741 << 9) + (5 * MIB << 20);
        uint64_t step = 4096;
        while (step < bytes && step < 2 * MIB)
            step *= 2;
        assert_int_equal(rpi_rehearsal_range_take_like(&range, bytes, like, &address, NULL), RP_OK);
        assert_int_equal(address % step, like % step);
        assert_true(!i || (address > last_end + 256 && address < last_end + 2 * step + 512));
        last_end = address + bytes;
    }
    rpi_rehearsal_range_finish(&range);
}

static void rehearsals_take_turns_in_what_is_mapped(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {MIB, 300 * MIB}, most[] = {32 * MIB, 1056 * MIB};
    for (int size = 0; size < 2; size++) {
        struct rpi_rehearsal_range range;
        uint64_t address, first = 0, last = 0, mapped = 0;
        assert_int_equal(rpi_rehearsal_range_init(&range, driver, 0, NULL), RP_OK);
        for (int rehearsal = 0; rehearsal < 100; rehearsal++) {
            rpi_rehearsal_range_begin(&range);
            assert_int_equal(rpi_rehearsal_range_take(&range, sizes[size], 512, &address, NULL),
                             RP_OK);
            if (rehearsal == 0)
                first = address;
            else
                assert_true(address != first && address != last);
            if (rehearsal == 10)
                mapped = range.mapped;
            last = address;
        }
        assert_int_equal(range.mapped, mapped); /* nothing more to map after a while */
        assert_true(mapped <= most[size]);
        rpi_rehearsal_range_finish(&range);
    }
}

static void rehearsals_end_at_their_addresses(void **state)
{
    (void)state;
    struct rpi_rehearsal_range range;
    struct rp_error err;
    uint64_t address = 1;
    assert_int_equal(rpi_rehearsal_range_init(&range, driver, 0, NULL), RP_OK);
    rpi_rehearsal_range_begin(&range);
    assert_int_equal(rpi_rehearsal_range_take(&range, UINT64_MAX, 512, &address, &err),
                     RP_ERROR_LIMIT);
    assert_int_equal(rpi_rehearsal_range_take(&range, range.reserved, 512, &address, &err),
                     RP_ERROR_LIMIT);
    assert_int_equal(err.available, range.reserved);
    assert_int_equal(address, 1);
    assert_int_equal(held().physical_bytes, 0);
    assert_int_equal(rpi_rehearsal_range_take(&range, 10, 512, &address, &err), RP_OK);
    rpi_rehearsal_range_finish(&range);
    rpi_rehearsal_range_finish(&range);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_driver, close_driver)
    const struct CMUnitTest tests[] = {
        TEST(places_that_are_taken_are_not_asked_for),
        TEST(many_ranges_lie_high),
        TEST(arena_grows_in_place_and_shrinks),
        TEST(arena_tells_what_it_cannot_have),
        TEST(arena_is_as_it_was_after_each_failure),
        TEST(pool_is_as_high_as_its_highest),
        TEST(rehearsals_have_addresses_of_their_own),
        TEST(rehearsals_take_turns_in_what_is_mapped),
        TEST(rehearsals_end_at_their_addresses),
        TEST(rehearsals_are_aligned_as_they_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
