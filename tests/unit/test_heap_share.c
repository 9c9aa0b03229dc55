/* SPDX-License-Identifier: MIT
 *
 * Memory of a heap that is given out as file descriptors, and mapped again from these.
 */
#include "heap_fixture.h"

#include "fault_loop.h"

#include <fcntl.h>
#include <unistd.h>

enum { MOST = 16 };

static struct heap_fixture f;

static int open_heap(void **state)
{
    struct rp_heap_options options = RP_HEAP_OPTIONS_INIT;
    (void)state;
    options.max_split_bytes = 100 * MIB;
    heap_open(&f, rpi_driver_host(), &options, 1024 * MIB);
    return 0;
}

static int close_heap(void **state)
{
    (void)state;
    heap_close(&f);
    return 0;
}

struct shared {
    int files[MOST];
    size_t count;
    uint64_t file_bytes, offset, base;
};

static void share(uint64_t address, uint64_t bytes, struct shared *out)
{
    HEAP_OK(&f, rp_heap_share(f.heap, address, bytes, MOST, out->files, &out->count,
                              &out->file_bytes, &out->offset, &f.err));
}

static uint64_t map(struct shared *shared)
{
    HEAP_OK(&f, rp_device_map_shared(f.device, shared->files, shared->count, shared->file_bytes,
                                     &shared->base, &f.err));
    for (size_t i = 0; i < shared->count; i++)
        close(shared->files[i]);
    return shared->base + shared->offset;
}

static void unmap(const struct shared *shared)
{
    HEAP_OK(&f, rp_device_unmap_shared(f.device, shared->base, shared->count, shared->file_bytes,
                                       &f.err));
}

/* Byte i of either is that of the other. */
static void check_same(uint64_t ours, uint64_t theirs, uint64_t bytes)
{
    const uint64_t step = MIB / 2;
    for (uint64_t at = 0; at < bytes; at += step)
        *(uint64_t *)(uintptr_t)(ours + at) = at + 1;
    for (uint64_t at = 0; at < bytes; at += step) {
        assert_int_equal(*(uint64_t *)(uintptr_t)(theirs + at), at + 1);
        *(uint64_t *)(uintptr_t)(theirs + at) = 0;
        assert_int_equal(*(uint64_t *)(uintptr_t)(ours + at), 0);
    }
}

static void share_one(uint64_t bytes, size_t count, uint64_t file_bytes)
{
    struct shared shared;
    uint64_t before = heap_take(&f, 3000, f.streams[0]);
    uint64_t address = heap_take(&f, bytes, f.streams[0]);
    share(address, bytes, &shared);
    assert_int_equal(shared.count, count);
    assert_int_equal(shared.file_bytes, file_bytes);
    check_same(address, map(&shared), bytes);
    unmap(&shared);
    heap_give(&f, address);
    heap_give(&f, before);
}

static void test_a_block_is_the_same_memory_there(void **state)
{
    (void)state;
    share_one(1000, 1, 2 * MIB);
    share_one(10 * MIB, 1, 20 * MIB);
}

static void test_a_block_over_several_mappings(void **state)
{
    (void)state;
    uint64_t first = heap_take(&f, 15 * MIB, f.streams[0]); /* so that the next lies across */
    share_one(50 * MIB, 4, 20 * MIB);
    heap_give(&f, first);
}

static void test_an_oversize_block_is_one_mapping(void **state)
{
    (void)state;
    share_one(130 * MIB, 1, 130 * MIB);
}

static void test_part_of_a_block(void **state)
{
    (void)state;
    struct shared shared;
    uint64_t address = heap_take(&f, 50 * MIB, f.streams[0]);
    share(address + 41 * MIB, 2 * MIB, &shared);
    assert_int_equal(shared.count, 1);
    assert_int_equal(shared.offset, 1 * MIB);
    check_same(address + 41 * MIB, map(&shared), 2 * MIB);
    unmap(&shared);
}

static void test_memory_lives_as_long_as_somebody_maps_it(void **state)
{
    (void)state;
    struct shared shared;
    uint64_t address = heap_take(&f, 4 * MIB, f.streams[0]);
    *(uint64_t *)(uintptr_t)address = 77;
    share(address, 4 * MIB, &shared);
    uint64_t theirs = map(&shared);
    heap_give(&f, address);
    HEAP_OK(&f, rp_heap_empty_cache(f.heap, &f.err));
    address = heap_take(&f, 4 * MIB, f.streams[0]);
    *(uint64_t *)(uintptr_t)address = 78;
    assert_int_equal(*(uint64_t *)(uintptr_t)theirs, 77);
    unmap(&shared);
}

static void test_what_cannot_be_shared_is_refused(void **state)
{
    (void)state;
    struct shared s = {.count = 7};
    uint64_t address = heap_take(&f, 2 * MIB, f.streams[0]);
    heap_give(&f, heap_take(&f, 2 * MIB, f.streams[0]));
    const struct {
        uint64_t address, bytes;
    } wrong[] = {{64, 8}, {address, 0}, {address, 3 * MIB}, {address + 2 * MIB, 8}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(rp_heap_share(f.heap, wrong[i].address, wrong[i].bytes, MOST, s.files,
                                       &s.count, &s.file_bytes, &s.offset, &f.err),
                         RP_ERROR_INVALID_ARGUMENT);
        assert_int_equal(s.count, 7);
    }
    int file = open("/dev/null", O_RDONLY);
    assert_true(rp_device_map_shared(f.device, &file, 1, 2 * MIB, &address, &f.err) != RP_OK);
    assert_int_equal(
        rp_device_map_shared(f.device, &file, 1, UINT64_MAX / 2, &address, &f.err) == RP_OK, 0);
    close(file);
}

static void test_how_many_there_are(void **state)
{
    (void)state;
    struct shared s = {0};
    uint64_t address = heap_take(&f, 50 * MIB, f.streams[0]);
    HEAP_OK(&f, rp_heap_share(f.heap, address, 50 * MIB, 0, NULL, &s.count, &s.file_bytes,
                              &s.offset, &f.err));
    assert_int_equal(s.count, 3);
}

static bool share_and_map(const struct rp_driver *driver, void *user)
{
    struct heap_fixture g;
    struct shared s = {0};
    uint64_t address = 0;
    (void)user;
    memset(&g, 0, sizeof g);
    if (rpi_device_open_on(driver, 0, &g.device, &g.err) != RP_OK)
        return false;
    bool works = rp_heap_create(g.device, NULL, &g.heap, &g.err) == RP_OK &&
                 rp_heap_alloc(g.heap, 50 * MIB, NULL, &address, &g.err) == RP_OK &&
                 rp_heap_share(g.heap, address, 50 * MIB, MOST, s.files, &s.count, &s.file_bytes,
                               &s.offset, &g.err) == RP_OK;
    if (works) {
        works = rp_device_map_shared(g.device, s.files, s.count, s.file_bytes, &s.base, &g.err) ==
                RP_OK;
        if (works)
            works =
                rp_device_unmap_shared(g.device, s.base, s.count, s.file_bytes, &g.err) == RP_OK;
        for (size_t i = 0; i < s.count; i++)
            close(s.files[i]);
    }
    rp_heap_destroy(g.heap);
    rp_device_destroy(g.device);
    return works;
}

static int files_before;

static int count_files(void)
{
    int count = 0;
    for (int file = 0; file < 256; file++)
        count += fcntl(file, F_GETFD) >= 0;
    return count;
}

/* Beside the fixture's device, which keeps the driver as it is. */
static const char *what_is_left(void *user)
{
    struct rpi_host_statistics left;
    (void)user;
    rpi_host_statistics(&left);
    if (count_files() != files_before)
        return "file descriptors";
    return left.mappings || left.reservations || left.chunks ? "memory" : NULL;
}

static void test_each_failure_leaves_nothing(void **state)
{
    (void)state;
    struct rpt_scenario scenario = {.run = share_and_map, .left = what_is_left};
    assert_true(share_and_map(rpi_driver_host(), NULL));
    files_before = count_files();
    assert_true(rpt_fault_loop(rpi_driver_host(), &scenario, CUDA_ERROR_OUT_OF_MEMORY) > 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_heap, close_heap)
    const struct CMUnitTest tests[] = {
        TEST(test_a_block_is_the_same_memory_there),
        TEST(test_a_block_over_several_mappings),
        TEST(test_an_oversize_block_is_one_mapping),
        TEST(test_part_of_a_block),
        TEST(test_memory_lives_as_long_as_somebody_maps_it),
        TEST(test_what_cannot_be_shared_is_refused),
        TEST(test_how_many_there_are),
        TEST(test_each_failure_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
