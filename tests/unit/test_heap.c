/* SPDX-License-Identifier: MIT
 *
 * What the heap promises, one promise a test, on the host driver: reuse and its order, best fit,
 * waiting for other streams, giving back, limits, lending, garbage collection, errors.
 */
#include "heap_fixture.h"

#include "rare_addresses.h"

#include <stdio.h>
#include <time.h>

static struct heap_fixture f;

static void open_plain(void)
{
    heap_open(&f, rpi_driver_host(), NULL, 1024 * MIB);
}

static void finish_work(void)
{
    assert_int_equal(f.driver->cuCtxSynchronize(), 0);
}

/* ---- Reuse -----------------------------------------------------------------------------------*/

static void a_stream_reuses_its_memory_at_once(void **state)
{
    (void)state;
    struct heap_gate gate = HEAP_GATE_INIT;
    open_plain();
    heap_hold(&f, f.streams[0], &gate); /* it is the stream's order that makes it right */
    uint64_t first = heap_take(&f, 10000, f.streams[0]);
    heap_give(&f, first);
    assert_int_equal(heap_take(&f, 10000, f.streams[0]), first);
    assert_int_not_equal(heap_take(&f, 10000, f.streams[1]), first);
    heap_gate_open(&gate);
    heap_close(&f);
}

static void streams_do_not_share(void **state)
{
    (void)state;
    open_plain();
    uint64_t first = heap_take(&f, 3 * MIB, f.streams[0]);
    heap_give(&f, first);
    uint64_t second = heap_take(&f, 3 * MIB, f.streams[1]);
    assert_true(second + 3 * MIB <= first || first + 20 * MIB <= second);
    heap_close(&f);
}

/* Where no pair of small integers, read as one word, looks like one of its addresses. */
static void blocks_lie_high(void **state)
{
    (void)state;
    open_plain();
    for (int i = 0; i < HEAP_STREAMS; i++) {
        assert_in_range(heap_take(&f, 512, f.streams[i]) >> 32, RPT_LOWEST, RPT_HIGHEST);
        assert_in_range(heap_take(&f, 3 * MIB, f.streams[i]) >> 32, RPT_LOWEST, RPT_HIGHEST);
    }
    heap_close(&f);
}

static void the_best_fit_is_taken(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {8192, 2048, 4096, 1024 * 700, 1024 * 600};
    uint64_t blocks[5], walls[5];
    open_plain();
    for (int i = 0; i < 5; i++) {
        blocks[i] = heap_take(&f, sizes[i], NULL);
        walls[i] = heap_take(&f, 512, NULL);
    }
    for (int i = 0; i < 5; i++)
        heap_give(&f, blocks[i]);
    assert_int_equal(heap_take(&f, 1500, NULL), blocks[1]);
    assert_int_equal(heap_take(&f, 3000, NULL), blocks[2]);
    assert_int_equal(heap_take(&f, 3000, NULL), blocks[0]);
    assert_int_equal(heap_take(&f, 4096, NULL), blocks[0] + 3072);
    assert_int_equal(heap_take(&f, 1024 * 550, NULL), blocks[4]);
    for (int i = 0; i < 5; i++)
        heap_give(&f, walls[i]);
    heap_close(&f);
}

static void large_best_fit(void **state)
{
    (void)state;
    uint64_t blocks[4], walls[4];
    open_plain();
    for (int i = 0; i < 4; i++) {
        blocks[i] = heap_take(&f, (uint64_t)(9 - i) * 2 * MIB, NULL);
        walls[i] = heap_take(&f, MIB + 1, NULL);
    }
    heap_take(&f, 15 * MIB, NULL); /* what is left of the last chunk */
    for (int i = 0; i < 4; i++)
        heap_give(&f, blocks[i]);
    assert_int_equal(heap_take(&f, 13 * MIB, NULL), blocks[2]);
    assert_int_equal(heap_take(&f, 13 * MIB, NULL), blocks[1]);
    assert_int_equal(heap_take(&f, 13 * MIB, NULL), blocks[0]);
    heap_give(&f, walls[0]);
    heap_close(&f);
}

static void neighbours_become_one(void **state)
{
    (void)state;
    uint64_t blocks[4];
    open_plain();
    for (int i = 0; i < 4; i++)
        blocks[i] = heap_take(&f, 512 * 1024, NULL);
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 2 * MIB);
    heap_give(&f, blocks[0]);
    heap_give(&f, blocks[2]);
    heap_give(&f, blocks[1]);
    assert_int_equal(heap_take(&f, MIB, NULL), blocks[0]);
    assert_int_equal(heap_take(&f, 512 * 1024, NULL), blocks[2]);
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 2 * MIB);
    heap_close(&f);
}

static void segments_grow(void **state)
{
    (void)state;
    open_plain();
    uint64_t block = heap_take(&f, 15 * MIB, NULL); /* leaves 5 of the chunk's 20 */
    uint64_t next = heap_take(&f, 30 * MIB, NULL);
    assert_int_equal(next, block + 15 * MIB);
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 60 * MIB);
    assert_int_equal(heap_stat(&f, "segment.large_pool.current"), 3);
    assert_int_equal(heap_stat(&f, "num_device_alloc"), 2);
    heap_give(&f, block);
    heap_give(&f, next);
    assert_int_equal(heap_take(&f, 60 * MIB, NULL), block);
    heap_close(&f);
}

static void a_hit_calls_no_driver(void **state)
{
    (void)state;
    uint64_t blocks[100];
    heap_open(&f, rpi_driver_fault(rpi_driver_host()), NULL, 1024 * MIB);
    for (int warm = 0; warm < 2; warm++) {
        rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
        for (int i = 0; i < 100; i++)
            blocks[i] = heap_take(&f, (uint64_t)(i + 1) * 30000, f.streams[i % 2]);
        for (int i = 0; i < 100; i++)
            heap_give(&f, blocks[(i * 37) % 100]);
    }
    assert_int_equal(rpi_driver_fault_calls(), 0);
    heap_close(&f);
}

static void nothing_is_free(void **state)
{
    (void)state;
    uint64_t address = 1;
    open_plain();
    HEAP_OK(&f, rp_heap_alloc(f.heap, 0, f.streams[0], &address, &f.err));
    assert_int_equal(address, 0);
    heap_give(&f, address);
    HEAP_OK(&f, rp_heap_use(f.heap, address, f.streams[1], &f.err));
    assert_int_equal(heap_stat(&f, "allocation.all.allocated"), 0);
    heap_close(&f);
}

/* ---- Other streams ---------------------------------------------------------------------------*/

static void used_blocks_wait_for_their_users(void **state)
{
    (void)state;
    struct heap_gate gate = HEAP_GATE_INIT;
    open_plain();
    uint64_t block = heap_take(&f, 5000, f.streams[0]);
    HEAP_OK(&f, rp_heap_use(f.heap, block, f.streams[1], &f.err));
    HEAP_OK(&f, rp_heap_use(f.heap, block, f.streams[2], &f.err));
    HEAP_OK(&f, rp_heap_use(f.heap, block, f.streams[1], &f.err));
    heap_hold(&f, f.streams[1], &gate);
    heap_give(&f, block);
    assert_int_equal(heap_stat(&f, "active.all.current"), 1);
    assert_int_equal(heap_stat(&f, "allocation.all.current"), 0);
    assert_int_equal(heap_stat(&f, "requested_bytes.all.current"), 5000);
    for (int i = 0; i < 300; i++) {
        uint64_t other = heap_take(&f, 5000, f.streams[0]);
        assert_int_not_equal(other, block);
        heap_give(&f, other);
    }
    assert_int_equal(rp_heap_free(f.heap, block, &f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(f.err.message, "waits for other streams"));
    heap_gate_open(&gate);
    finish_work();
    uint64_t other = 0;
    for (int i = 0; other != block; i++) {
        assert_true(i < 200);
        other = heap_take(&f, 5120, f.streams[0]); /* its hole fits best once it is free */
    }
    heap_close(&f);
}

static void waiting_is_polled_seldom(void **state)
{
    (void)state;
    struct heap_gate gate = HEAP_GATE_INIT;
    heap_open(&f, rpi_driver_fault(rpi_driver_host()), NULL, 1024 * MIB);
    uint64_t blocks[50];
    for (int i = 0; i < 50; i++) {
        blocks[i] = heap_take(&f, 5000, f.streams[0]);
        HEAP_OK(&f, rp_heap_use(f.heap, blocks[i], f.streams[1], &f.err));
    }
    heap_hold(&f, f.streams[1], &gate);
    for (int i = 0; i < 50; i++)
        heap_give(&f, blocks[i]);
    rpi_driver_fault_at(UINT64_MAX, CUDA_SUCCESS);
    for (int i = 0; i < 1280; i++)
        heap_give(&f, heap_take(&f, 5000, f.streams[0]));
    /* At most 26 looks, each with 5 calls: context and mode, there and back, and one event. */
    assert_true(rpi_driver_fault_calls() <= 26 * 5);
    assert_true(rpi_driver_fault_calls() > 0);
    heap_gate_open(&gate);
    heap_close(&f);
}

/* A program that is far ahead of the device, whose blocks another stream uses. */
static void much_that_waits_is_followed(void **state)
{
    (void)state;
    struct heap_gate gate = HEAP_GATE_INIT;
    uint64_t blocks[6];
    open_plain();
    heap_hold(&f, f.streams[1], &gate);
    for (int i = 0; i < 6; i++) {
        blocks[i] = heap_take(&f, 40 * MIB, f.streams[0]);
        assert_int_equal(f.driver->cuMemsetD8Async(blocks[i], 1, MIB, f.streams[0]), 0);
        assert_int_equal(f.driver->cuMemsetD8Async(blocks[i] + MIB, 1, MIB, f.streams[1]), 0);
        HEAP_OK(&f, rp_heap_use(f.heap, blocks[i], f.streams[1], &f.err));
        heap_give(&f, blocks[i]);
        if (i < 2) { /* the stream is ahead as long as little waits */
            assert_int_equal(f.driver->cuStreamSynchronize(f.streams[0]), 0);
        } else {
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); /* time to run, if it could */
            assert_int_equal(f.driver->cuStreamQuery(f.streams[0]), CUDA_ERROR_NOT_READY);
        }
    }
    for (int i = 0; i < 6; i++)
        assert_int_equal(blocks[i], blocks[i % 2]);
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.peak"), 80 * MIB);
    for (int i = 0; i < 6; i++) {
        blocks[i] = heap_take(&f, 20 * MIB, f.streams[0]);
        HEAP_OK(&f, rp_heap_use(f.heap, blocks[i], f.streams[1], &f.err));
    }
    for (int i = 0; i < 6; i++)
        heap_give(&f, blocks[i]);
    int64_t waiting = heap_stat(&f, "active.all.current");
    heap_take(&f, 20 * MIB, f.streams[0]); /* no more than it needs */
    assert_int_equal(heap_stat(&f, "active.all.current"), waiting);
    assert_int_equal(heap_stat(&f, "num_sync_all_streams"), 0);
    heap_gate_open(&gate);
    heap_close(&f);
}

static void a_capturing_stream_follows_nothing(void **state)
{
    (void)state;
    struct heap_gate gate = HEAP_GATE_INIT;
    CUgraph graph = NULL;
    open_plain();
    heap_hold(&f, f.streams[1], &gate);
    uint64_t blocks[4];
    for (int i = 0; i < 4; i++) {
        blocks[i] = heap_take(&f, 40 * MIB, f.streams[0]);
        HEAP_OK(&f, rp_heap_use(f.heap, blocks[i], f.streams[1], &f.err));
        if (i == 1)
            assert_int_equal(
                f.driver->cuStreamBeginCapture(f.streams[0], CU_STREAM_CAPTURE_MODE_RELAXED), 0);
    }
    for (int i = 0; i < 4; i++)
        heap_give(&f, blocks[i]);
    heap_take(&f, 40 * MIB, f.streams[0]);
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 200 * MIB);
    assert_int_equal(f.driver->cuStreamEndCapture(f.streams[0], &graph), 0);
    f.driver->cuGraphDestroy(graph);
    heap_gate_open(&gate);
    heap_close(&f);
}

static void its_own_stream_is_no_other(void **state)
{
    (void)state;
    open_plain();
    uint64_t block = heap_take(&f, 5000, f.streams[0]);
    HEAP_OK(&f, rp_heap_use(f.heap, block, f.streams[0], &f.err));
    heap_give(&f, block);
    assert_int_equal(heap_stat(&f, "active.all.current"), 0);
    block = heap_take(&f, 5000, NULL);
    HEAP_OK(&f, rp_heap_use(f.heap, block, CU_STREAM_LEGACY, &f.err));
    heap_give(&f, block);
    assert_int_equal(heap_stat(&f, "active.all.current"), 0);
    heap_close(&f);
}

/* A block that a capturing stream uses, freed during the capture. */
static void captures_are_not_disturbed(void **state)
{
    (void)state;
    CUgraph graph = NULL;
    open_plain();
    uint64_t block = heap_take(&f, 5000, f.streams[0]), idle = heap_take(&f, 5000, f.streams[2]);
    HEAP_OK(&f, rp_heap_use(f.heap, block, f.streams[1], &f.err));
    HEAP_OK(&f, rp_heap_use(f.heap, idle, f.streams[3], &f.err));
    assert_int_equal(f.driver->cuStreamBeginCapture(f.streams[1], CU_STREAM_CAPTURE_MODE_GLOBAL),
                     0);
    assert_int_equal(f.driver->cuMemsetD8Async(block, 1, 5000, f.streams[1]), 0);
    heap_give(&f, block);
    heap_give(&f, idle);
    uint64_t more = heap_take(&f, 40 * MIB, f.streams[1]);
    heap_give(&f, more);
    for (int i = 0; i < 100; i++)
        heap_give(&f, heap_take(&f, 3000, f.streams[i % 4]));
    HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
    /* The capturing stream's own chunks stay. */
    assert_true(heap_stat(&f, "reserved_bytes.large_pool.current") >= (int64_t)(40 * MIB));
    assert_int_equal(heap_stat(&f, "active.all.current"), 1);
    assert_int_equal(f.driver->cuStreamEndCapture(f.streams[1], &graph), 0);
    assert_non_null(graph);
    f.driver->cuGraphDestroy(graph);
    HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
    assert_int_equal(heap_stat(&f, "active.all.current"), 0);
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 0);
    heap_close(&f);
}

/* ---- Giving back -----------------------------------------------------------------------------*/

static void free_chunks_are_given_back(void **state)
{
    (void)state;
    open_plain();
    uint64_t a = heap_take(&f, 20 * MIB, NULL), b = heap_take(&f, 90 * MIB, NULL);
    uint64_t c = heap_take(&f, 3 * MIB, NULL), small = heap_take(&f, 100, f.streams[0]);
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 122 * MIB);
    heap_give(&f, b); /* its first 4 chunks are whole; the fifth holds c */
    assert_int_equal(heap_stat(&f, "inactive_split.large_pool.current"), 2);
    assert_int_equal(heap_stat(&f, "inactive_split_bytes.large_pool.current"), 17 * MIB);
    HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 42 * MIB);
    assert_int_equal(heap_stat(&f, "inactive_split_bytes.large_pool.current"), 17 * MIB);
    assert_int_equal(heap_stat(&f, "num_device_free"), 1);
    struct rpi_host_statistics held;
    rpi_host_statistics(&held);
    assert_int_equal(held.physical_bytes, 42 * MIB);
    /* The hole between is filled again, with the free memory on its far side. */
    assert_int_equal(heap_take(&f, 90 * MIB, NULL), b);
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 122 * MIB);
    heap_give(&f, a);
    heap_give(&f, b);
    heap_give(&f, c);
    heap_give(&f, small);
    HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
    rpi_host_statistics(&held);
    assert_int_equal(held.physical_bytes, 0);
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.peak"), 122 * MIB);
    heap_close(&f);
}

/* The race check would see memory go that work not waited for still uses. */
static void giving_back_waits_for_the_stream(void **state)
{
    (void)state;
    open_plain();
    for (int i = 0; i < 20; i++) {
        uint64_t block = heap_take(&f, 20 * MIB, f.streams[0]);
        HEAP_OK(&f, rp_heap_use(f.heap, block, f.streams[1], &f.err));
        assert_int_equal(f.driver->cuMemsetD8Async(block, 1, MIB, f.streams[0]), 0);
        assert_int_equal(f.driver->cuMemsetD8Async(block + MIB, 1, MIB, f.streams[1]), 0);
        heap_give(&f, block);
        HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
        assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 0);
    }
    heap_close(&f);
}

/* ---- When memory is short --------------------------------------------------------------------*/

static void the_cache_makes_room(void **state)
{
    (void)state;
    struct heap_gate gate = HEAP_GATE_INIT;
    heap_open(&f, rpi_driver_host(), NULL, 100 * MIB);
    uint64_t block = heap_take(&f, 60 * MIB, f.streams[0]);
    HEAP_OK(&f, rp_heap_use(f.heap, block, f.streams[1], &f.err));
    heap_hold(&f, f.streams[1], &gate);
    heap_give(&f, block); /* waits, and is waited for */
    heap_gate_open(&gate);
    heap_take(&f, 60 * MIB, f.streams[2]);
    assert_int_equal(heap_stat(&f, "num_alloc_retries"), 1);
    assert_int_equal(heap_stat(&f, "num_ooms"), 0);
    assert_int_equal(heap_stat(&f, "num_sync_all_streams"), 1);
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 60 * MIB);
    heap_close(&f);
}

static void too_much_is_refused_with_the_figures(void **state)
{
    (void)state;
    uint64_t address = 77;
    heap_open(&f, rpi_driver_host(), NULL, 100 * MIB);
    uint64_t block = heap_take(&f, 50 * MIB, NULL);
    assert_int_equal(rp_heap_alloc(f.heap, 70 * MIB, NULL, &address, &f.err),
                     RP_ERROR_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(address, 77);
    assert_int_equal(f.err.requested, 70 * MIB);
    assert_int_equal(f.err.available, 40 * MIB);
    assert_int_equal(f.err.driver_code, CUDA_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(f.err.message, "70.0 MiB were asked for"));
    assert_non_null(strstr(f.err.message, "holds 60.0 MiB (50.0 allocated"));
    assert_non_null(strstr(f.err.message, "40.0 of 100.0 MiB free"));
    assert_int_equal(heap_stat(&f, "num_ooms"), 1);
    assert_int_equal(heap_stat(&f, "allocated_bytes.all.peak"), 50 * MIB);
    assert_int_equal(rp_heap_alloc(f.heap, SIZE_MAX, NULL, &address, &f.err),
                     RP_ERROR_OUT_OF_DEVICE_MEMORY);
    assert_non_null(strstr(f.err.message, "no setting helps"));
    heap_give(&f, block);
    heap_take(&f, 100 * MIB, NULL); /* all of it */
    heap_close(&f);
}

static void limits_hold(void **state)
{
    (void)state;
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    uint64_t address;
    options.limit_bytes = 40 * MIB;
    heap_open(&f, rpi_driver_host(), &options, 1000 * MIB);
    uint64_t block = heap_take(&f, 40 * MIB, NULL);
    assert_int_equal(rp_heap_alloc(f.heap, 512, NULL, &address, &f.err), RP_ERROR_LIMIT);
    assert_non_null(strstr(f.err.message, "rp_heap_set_limit"));
    assert_non_null(strstr(f.err.message, "of at most 40.0 MiB"));
    assert_int_equal(f.err.available, 0);
    rp_heap_set_limit(f.heap, 0);
    heap_give(&f, heap_take(&f, 512, NULL));
    heap_give(&f, block);
    HEAP_OK(&f, rp_heap_set_fraction(f.heap, 0.1, &f.err));
    assert_int_equal(rp_heap_alloc(f.heap, 101 * MIB, NULL, &address, &f.err), RP_ERROR_LIMIT);
    assert_non_null(strstr(f.err.message, "rp_heap_set_fraction"));
    heap_give(&f, heap_take(&f, 100 * MIB, NULL));
    assert_int_equal(rp_heap_set_fraction(f.heap, 0, &f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_heap_set_fraction(f.heap, 1.5, &f.err), RP_ERROR_INVALID_ARGUMENT);
    HEAP_OK(&f, rp_heap_set_fraction(f.heap, 1, &f.err));
    heap_give(&f, heap_take(&f, 200 * MIB, NULL));
    heap_close(&f);
}

/* One chunk is all there is, and the other stream has a block in it. */
static void idle_streams_lend(void **state)
{
    (void)state;
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    struct heap_gate gate = HEAP_GATE_INIT;
    uint64_t address = 0;
    options.limit_bytes = 20 * MIB;
    heap_open(&f, rpi_driver_host(), &options, 1000 * MIB);
    uint64_t kept = heap_take(&f, 2 * MIB, f.streams[0]);
    heap_hold(&f, f.streams[0], &gate); /* what it was given before the free is not done */
    assert_int_equal(rp_heap_alloc(f.heap, 5 * MIB, f.streams[1], &address, &f.err),
                     RP_ERROR_LIMIT);
    heap_gate_open(&gate);
    finish_work();
    uint64_t lent = heap_take(&f, 5 * MIB, f.streams[1]);
    assert_int_equal(lent, kept + 2 * MIB);
    struct rp_heap_block block = {.size = sizeof block};
    HEAP_OK(&f, rp_heap_find(f.heap, lent + 1000, &block, &f.err));
    assert_ptr_equal(block.stream, f.streams[1]);
    /* The borrower still works on it when it is freed: the owner has to wait. */
    gate.open = 0;
    heap_hold(&f, f.streams[1], &gate);
    heap_give(&f, lent);
    assert_int_not_equal(heap_take(&f, 5 * MIB, f.streams[0]), lent);
    heap_gate_open(&gate);
    finish_work();
    HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
    assert_int_equal(heap_take(&f, 5 * MIB, f.streams[0]), lent);
    heap_close(&f);
}

static void lending_can_come_first(void **state)
{
    (void)state;
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    options.share_early = 1;
    heap_open(&f, rpi_driver_host(), &options, 1000 * MIB);
    uint64_t block = heap_take(&f, 3000, f.streams[0]);
    heap_give(&f, block);
    finish_work();
    assert_int_equal(heap_take(&f, 3000, f.streams[1]), block);
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 2 * MIB);
    heap_close(&f);
}

static void old_memory_is_collected_first(void **state)
{
    (void)state;
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    options.gc_threshold = 0.5;
    options.limit_bytes = 400 * MIB;
    heap_open(&f, rpi_driver_host(), &options, 1000 * MIB);
    uint64_t old = heap_take(&f, 60 * MIB, f.streams[0]);
    heap_give(&f, old);
    uint64_t young = heap_take(&f, 60 * MIB, f.streams[1]);
    for (int i = 0; i < 50; i++)
        heap_give(&f, heap_take(&f, 2 * MIB, f.streams[2]));
    heap_give(&f, young);
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 140 * MIB);
    uint64_t block = heap_take(&f, 100 * MIB, f.streams[3]); /* 240 would pass 200 */
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 180 * MIB);
    assert_int_equal(heap_stat(&f, "num_alloc_retries"), 0);
    uint64_t count = (uint64_t)heap_stat(&f, "num_device_alloc");
    assert_int_equal(heap_take(&f, 60 * MIB, f.streams[1]), young); /* was kept */
    assert_int_equal(heap_stat(&f, "num_device_alloc"), count);
    heap_give(&f, block);
    heap_close(&f);
}

/* ---- Errors ----------------------------------------------------------------------------------*/

static void refused(uint64_t address, const char *why)
{
    assert_int_equal(rp_heap_free(f.heap, address, &f.err), RP_ERROR_INVALID_ARGUMENT);
    if (!strstr(f.err.message, why))
        print_error("%s\n", f.err.message);
    assert_non_null(strstr(f.err.message, why));
}

static void wrong_addresses_are_named(void **state)
{
    (void)state;
    CUdeviceptr foreign;
    open_plain();
    assert_int_equal(f.driver->cuMemAlloc(&foreign, 512), 0);
    uint64_t block = heap_take(&f, 5000, NULL), large = heap_take(&f, 5 * MIB, NULL);
    refused(foreign, "no address of this heap");
    refused(block + 512, "512 bytes inside the block");
    refused(large + 2 * MIB, "inside the block");
    heap_give(&f, block);
    refused(block, "freed twice");
    refused(block + 1000 * MIB, "freed twice");
    assert_int_equal(rp_heap_use(f.heap, block, f.streams[0], &f.err), RP_ERROR_INVALID_ARGUMENT);
    struct rp_heap_block found = {.size = sizeof found, .address = 5};
    assert_int_equal(rp_heap_find(f.heap, block, &found, &f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(found.address, 5);
    HEAP_OK(&f, rp_heap_find(f.heap, large + 5 * MIB - 1, &found, &f.err));
    assert_int_equal(found.address, large);
    assert_int_equal(found.bytes, 5 * MIB);
    assert_int_equal(rp_heap_alloc(f.heap, 5, CU_STREAM_PER_THREAD, &block, &f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_heap_use(f.heap, large, CU_STREAM_PER_THREAD, &f.err),
                     RP_ERROR_INVALID_ARGUMENT);
    f.driver->cuMemFree(foreign);
    heap_close(&f);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    struct rp_heap *heap = NULL;
    int64_t value;
    open_plain();
    options.gc_threshold = 1;
    assert_int_equal(rp_heap_create(f.device, &options, &heap, &f.err), RP_ERROR_INVALID_ARGUMENT);
    options.gc_threshold = 0;
    options.size = 3;
    assert_int_equal(rp_heap_create(f.device, &options, &heap, &f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_int_equal(rp_heap_create(NULL, NULL, &heap, &f.err), RP_ERROR_INVALID_ARGUMENT);
    assert_null(heap);
    assert_int_equal(rp_heap_stat(f.heap, "allocated", &value, &f.err), RP_ERROR_INVALID_ARGUMENT);
    rp_heap_destroy(NULL);
    heap_close(&f);
}

/* ---- Threads without a context ---------------------------------------------------------------*/

static void *use_without_context(void *user)
{
    CUcontext context = (CUcontext)1;
    uint64_t address = 0;
    const char **failed = user;
    f.driver->cuCtxSetCurrent(NULL);
    if (rp_heap_alloc(f.heap, 50 * MIB, f.streams[0], &address, NULL) != RP_OK ||
        rp_heap_use(f.heap, address, f.streams[1], NULL) != RP_OK ||
        rp_heap_free(f.heap, address, NULL) != RP_OK || rp_heap_empty_cache(f.heap, NULL) != RP_OK)
        *failed = "a call failed";
    if (f.driver->cuCtxGetCurrent(&context) != CUDA_SUCCESS || context)
        *failed = "a context was left current";
    return NULL;
}

static void threads_need_no_context(void **state)
{
    (void)state;
    const char *failed = NULL;
    pthread_t thread;
    open_plain();
    assert_int_equal(pthread_create(&thread, NULL, use_without_context, &failed), 0);
    pthread_join(thread, NULL);
    assert_null(failed);
    assert_int_equal(heap_stat(&f, "reserved_bytes.all.current"), 0);
    heap_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_reuses_its_memory_at_once),
        cmocka_unit_test(streams_do_not_share),
        cmocka_unit_test(blocks_lie_high),
        cmocka_unit_test(the_best_fit_is_taken),
        cmocka_unit_test(large_best_fit),
        cmocka_unit_test(neighbours_become_one),
        cmocka_unit_test(segments_grow),
        cmocka_unit_test(a_hit_calls_no_driver),
        cmocka_unit_test(nothing_is_free),
        cmocka_unit_test(used_blocks_wait_for_their_users),
        cmocka_unit_test(waiting_is_polled_seldom),
        cmocka_unit_test(much_that_waits_is_followed),
        cmocka_unit_test(a_capturing_stream_follows_nothing),
        cmocka_unit_test(its_own_stream_is_no_other),
        cmocka_unit_test(captures_are_not_disturbed),
        cmocka_unit_test(free_chunks_are_given_back),
        cmocka_unit_test(giving_back_waits_for_the_stream),
        cmocka_unit_test(the_cache_makes_room),
        cmocka_unit_test(too_much_is_refused_with_the_figures),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(idle_streams_lend),
        cmocka_unit_test(lending_can_come_first),
        cmocka_unit_test(old_memory_is_collected_first),
        cmocka_unit_test(wrong_addresses_are_named),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(threads_need_no_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
